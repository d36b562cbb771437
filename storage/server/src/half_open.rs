//! RDMA connections that were accepted and not yet confirmed by their peers (RTU). A CM REQ can have a
//! spoofed source address, so their number is limited, and each new one replaces the oldest of the address
//! with the most: even during a flood of requests, a host whose RTU arrives within a few round trips
//! connects.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::source;

#[derive(Debug)]
struct Entry<T> {
    key: usize,
    /// The address that the request came from, or the /64 of an IPv6 address.
    source: IpAddr,
    began_ns: u64,
    connection: T,
}

/// The half-open connections of a listener, the oldest first.
#[derive(Debug)]
pub struct HalfOpen<'a, T> {
    entries: VecDeque<Entry<T>>,
    /// The number of half-open connections of all listeners.
    count: &'a AtomicUsize,
    /// How many there may be in all listeners.
    count_max: usize,
}

impl<'a, T> HalfOpen<'a, T> {
    /// No connections. All listeners of a server have the same `count`, and may have `count_max` together.
    pub fn new(count: &'a AtomicUsize, count_max: usize) -> Self {
        Self {
            count_max,
            entries: VecDeque::new(),
            count,
        }
    }

    fn counted(&self, entry: Option<Entry<T>>) -> Option<T> {
        let entry = entry?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some(entry.connection)
    }

    /// Makes room for a further connection; returns the one that was removed for that: the oldest of the
    /// source with the most.
    pub fn make_room(&mut self) -> Option<T> {
        // Listeners share the limit: one that has no half-open connection may exceed it by one.
        if self.count.load(Ordering::Relaxed) < self.count_max {
            return None;
        }
        let mut sources: HashMap<IpAddr, (usize, Reverse<usize>)> = HashMap::new();
        for (place, entry) in self.entries.iter().enumerate() {
            sources.entry(entry.source).or_insert((0, Reverse(place))).0 += 1;
        }
        let (_, Reverse(oldest)) = sources.into_values().max()?;
        let oldest = self.entries.remove(oldest);
        self.counted(oldest)
    }

    /// Adds a connection whose request came from this address.
    pub fn insert(&mut self, key: usize, from: IpAddr, now_ns: u64, connection: T) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let source = source(from);
        self.entries.push_back(Entry {
            key,
            source,
            began_ns: now_ns,
            connection,
        });
    }

    /// Removes the connection with this key; returns it with the time of its request.
    pub fn take(&mut self, key: usize) -> Option<(u64, T)> {
        let place = self.entries.iter().position(|entry| entry.key == key)?;
        let entry = self.entries.remove(place)?;
        let began_ns = entry.began_ns;
        self.counted(Some(entry))
            .map(|connection| (began_ns, connection))
    }

    /// Removes a connection whose request arrived before this time.
    pub fn begun_before(&mut self, ns: u64) -> Option<T> {
        let is_old = self
            .entries
            .front()
            .is_some_and(|entry| entry.began_ns < ns);
        let oldest = if is_old {
            self.entries.pop_front()
        } else {
            None
        };
        self.counted(oldest)
    }

    /// Whether there is no half-open connection.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl<T> Drop for HalfOpen<'_, T> {
    fn drop(&mut self) {
        self.count.fetch_sub(self.entries.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF_OPEN_MAX: usize = 128;

    fn from(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    #[test]
    fn a_flood_of_few_addresses_replaces_no_connection_of_another_one() {
        let count = AtomicUsize::new(0);
        let mut half_open = HalfOpen::new(&count, HALF_OPEN_MAX);
        for key in 0..HALF_OPEN_MAX {
            half_open.insert(key, from(key as u8 % 4), 0, key);
        }
        half_open.make_room();
        half_open.insert(1000, from(9), 0, 1000);
        for key in 2000..2000 + 3 * HALF_OPEN_MAX {
            assert!(half_open.make_room().is_some_and(|removed| removed != 1000));
            half_open.insert(key, from(key as u8 % 4), 0, key);
        }
        assert_eq!(half_open.take(1000), Some((0, 1000)));
    }

    #[test]
    fn the_oldest_half_open_connection_is_replaced() {
        let count = AtomicUsize::new(0);
        let (mut one, mut other) = (
            HalfOpen::new(&count, HALF_OPEN_MAX),
            HalfOpen::new(&count, HALF_OPEN_MAX),
        );
        let mut evicted = Vec::new();
        for key in 0..3 * HALF_OPEN_MAX {
            evicted.extend(one.make_room());
            one.insert(key, from(1), key as u64, key);
        }
        assert_eq!(evicted, (0..2 * HALF_OPEN_MAX).collect::<Vec<_>>());
        assert_eq!(count.load(Ordering::Relaxed), HALF_OPEN_MAX);
        assert_eq!(other.make_room(), None);
        other.insert(7, from(2), 7, 7);
        assert_eq!(other.make_room(), Some(7));
        let last = 3 * HALF_OPEN_MAX - 1;
        assert_eq!(
            (one.take(last), one.take(last)),
            (Some((last as u64, last)), None)
        );
        assert_eq!(one.begun_before(2 * HALF_OPEN_MAX as u64), None);
        assert_eq!(
            one.begun_before(2 * HALF_OPEN_MAX as u64 + 1),
            Some(2 * HALF_OPEN_MAX)
        );
        drop(one);
        assert_eq!((count.load(Ordering::Relaxed), other.is_empty()), (0, true));
    }
}
