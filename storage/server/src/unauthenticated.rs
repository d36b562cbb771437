//! One budget for the memory of all peers of a server that have not authenticated. A server charges it where
//! it takes memory for such a peer, and ends the charge when the peer authenticates or its connection ends.
//!
//! When the budget runs short, the oldest connection of the source with the most memory is displaced: many
//! connections of a few addresses give way to one connection of another address. Addresses of the same IPv6
//! /64 are one source, because one machine can have all of them. Within that source the address with the most
//! memory gives way first, since honest machines of one network share a /64.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The part of a budget that is kept free, so that a new connection gets memory while displaced ones end: an
/// eighth.
const RESERVE_SHIFT: u32 = 3;
/// How often a new connection checks whether displaced ones have ended.
const LEAVING_INTERVAL: Duration = Duration::from_millis(5);
/// Bits of an IPv6 address that identify the host within its network.
const INTERFACE_BITS: u32 = 64;

/// The source that an address belongs to: an IPv4 address, or the /64 of an IPv6 address.
pub fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.into(),
        IpAddr::V6(v6) => Ipv6Addr::from(u128::from(v6) >> INTERFACE_BITS << INTERFACE_BITS).into(),
    }
}

type Notice = Box<dyn Fn() + Send + Sync>;

/// The state that the budget and the share of a connection have in common.
#[derive(Default)]
struct Flag {
    is_displaced: AtomicBool,
    notice: Mutex<Option<Notice>>,
}

struct Entry {
    address: IpAddr,
    bytes: usize,
    flag: Arc<Flag>,
}

#[derive(Default)]
struct State {
    /// Connections by number: the lowest is the oldest.
    entries: BTreeMap<u64, Entry>,
    next: u64,
    /// Bytes of all connections.
    used: usize,
    /// Bytes of displaced connections that have not ended yet.
    leaving: usize,
}

/// The memory that all unauthenticated peers of a server may hold.
pub struct UnauthenticatedBudget {
    limit: usize,
    state: Mutex<State>,
}

/// The memory of one unauthenticated connection, returned when this is dropped.
pub struct UnauthenticatedShare {
    budget: Arc<UnauthenticatedBudget>,
    number: u64,
    flag: Arc<Flag>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl UnauthenticatedBudget {
    /// A budget of `limit` bytes. Connections never hold more, those that were displaced and have not ended
    /// yet included.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            state: Mutex::default(),
        })
    }

    /// Bytes that connections hold.
    pub fn used(&self) -> usize {
        locked(&self.state).used
    }

    /// The limit in bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Admits a connection that holds `bytes` from now on. Other connections are displaced for it if
    /// necessary; `None` if that does not suffice, because one connection may not hold as much, or because
    /// displaced ones have not ended yet.
    pub fn admit(self: &Arc<Self>, address: IpAddr, bytes: usize) -> Option<UnauthenticatedShare> {
        let mut state = locked(&self.state);
        let number = state.next;
        let flag = Arc::new(Flag::default());
        let entry = Entry {
            address: address.to_canonical(),
            bytes: 0,
            flag: Arc::clone(&flag),
        };
        state.entries.insert(number, entry);
        state.next += 1;
        let charged = state.charge(number, bytes, self.limit);
        if charged.is_none() {
            state.entries.remove(&number);
        }
        drop(state);
        notify(&charged?);
        Some(UnauthenticatedShare {
            budget: Arc::clone(self),
            number,
            flag,
        })
    }
}

impl UnauthenticatedBudget {
    /// As [`UnauthenticatedBudget::admit`], but waits up to `patience` for displaced connections to end.
    pub fn admit_within(
        self: &Arc<Self>,
        address: IpAddr,
        bytes: usize,
        patience: Duration,
    ) -> Option<UnauthenticatedShare> {
        let deadline = Instant::now() + patience;
        loop {
            let may_change = locked(&self.state).leaving > 0;
            let share = self.admit(address, bytes);
            if share.is_some() || !may_change || Instant::now() >= deadline {
                return share;
            }
            std::thread::sleep(LEAVING_INTERVAL);
        }
    }
}

/// What a connection would hold if its charge were granted.
struct Claim {
    number: u64,
    bytes: usize,
}

impl State {
    /// Adds bytes to a connection; returns the connections that were displaced for that. `None`, without
    /// effect, if the limit does not allow it.
    fn charge(&mut self, number: u64, bytes: usize, limit: usize) -> Option<Vec<Arc<Flag>>> {
        let own = self.entries.get(&number)?.bytes.saturating_add(bytes);
        let used = self.used.checked_add(bytes).filter(|used| *used <= limit)?;
        let claim = Claim { number, bytes: own };
        let mut staying = used - self.leaving;
        let mut victims = BTreeSet::new();
        while staying > limit - (limit >> RESERVE_SHIFT) {
            let victim = self.victim(&claim, &victims)?;
            victims.insert(victim);
            staying -= self.entries.get(&victim).map_or(0, |entry| entry.bytes);
        }
        self.used = used;
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.bytes = own;
        }
        Some(
            victims
                .into_iter()
                .filter_map(|victim| self.displace(victim))
                .collect(),
        )
    }

    /// The connection to displace next if the claim is granted; `None` if that one has the
    /// most by itself.
    fn victim(&self, claim: &Claim, victims: &BTreeSet<u64>) -> Option<u64> {
        let present = || {
            let entries = self.entries.iter().filter(|(at, entry)| {
                !victims.contains(at) && !entry.flag.is_displaced.load(Ordering::Relaxed)
            });
            entries.map(|(at, entry)| {
                (
                    *at,
                    entry.address,
                    if *at == claim.number {
                        claim.bytes
                    } else {
                        entry.bytes
                    },
                )
            })
        };
        let of_source = largest(
            present().map(|(at, address, bytes)| (at, source(address), bytes)),
            claim.number,
        )?;
        let within = || present().filter(|(_, address, _)| source(*address) == of_source);
        let address = largest(within(), claim.number)?;
        within()
            .find(|(at, from, _)| *at != claim.number && *from == address)
            .map(|(at, _, _)| at)
    }

    fn displace(&mut self, number: u64) -> Option<Arc<Flag>> {
        let entry = self.entries.get(&number)?;
        entry.flag.is_displaced.store(true, Ordering::Release);
        self.leaving += entry.bytes;
        Some(Arc::clone(&entry.flag))
    }
}

/// The key with the largest sum; of equal ones that with the oldest connection besides `number`. `None` if
/// connection `number` is the only one with that key.
fn largest<K: Copy + Eq + Hash>(
    connections: impl Iterator<Item = (u64, K, usize)>,
    number: u64,
) -> Option<K> {
    let mut sums: HashMap<K, (usize, Reverse<u64>)> = HashMap::new();
    for (at, key, bytes) in connections {
        let (sum, Reverse(oldest)) = sums.entry(key).or_insert((0, Reverse(u64::MAX)));
        *sum = sum.saturating_add(bytes);
        *oldest = (*oldest).min(if at == number { u64::MAX } else { at });
    }
    let (key, (_, oldest)) = sums.into_iter().max_by_key(|(_, order)| *order)?;
    (oldest != Reverse(u64::MAX)).then_some(key)
}

fn notify(displaced: &[Arc<Flag>]) {
    for flag in displaced {
        if let Some(notice) = &*locked(&flag.notice) {
            notice();
        }
    }
}

impl UnauthenticatedShare {
    /// Calls `notice` when the connection is displaced, and at once if it is displaced already. It has to
    /// wake the thread of the connection; it must not use the budget.
    pub fn on_displaced(&self, notice: impl Fn() + Send + Sync + 'static) {
        let mut kept = locked(&self.flag.notice);
        if self.is_displaced() {
            notice();
        } else {
            *kept = Some(Box::new(notice));
        }
    }

    /// Whether another connection needs the memory: this one has to end.
    pub fn is_displaced(&self) -> bool {
        self.flag.is_displaced.load(Ordering::Acquire)
    }

    /// Holds `bytes` more. `false`, without effect, if the budget does not allow it.
    #[must_use]
    pub fn grow(&self, bytes: usize) -> bool {
        let mut state = locked(&self.budget.state);
        if self.is_displaced() {
            return false;
        }
        let charged = state.charge(self.number, bytes, self.budget.limit);
        drop(state);
        notify(charged.as_deref().unwrap_or_default());
        charged.is_some()
    }

    /// Holds `bytes` less.
    pub fn shrink(&self, bytes: usize) {
        let mut state = locked(&self.budget.state);
        let is_displaced = self.is_displaced();
        let State {
            entries,
            used,
            leaving,
            ..
        } = &mut *state;
        let Some(entry) = entries.get_mut(&self.number) else {
            return;
        };
        let bytes = bytes.min(entry.bytes);
        entry.bytes -= bytes;
        *used -= bytes;
        if is_displaced {
            *leaving -= bytes;
        }
    }

    /// Whether half of the memory of unauthenticated peers is left with `bytes` more.
    pub fn leaves_half(&self, bytes: usize) -> bool {
        self.budget.used().saturating_add(bytes) <= self.budget.limit() / 2
    }

    /// Whether no other connection is displaced for `bytes` more.
    pub fn has_room(&self, bytes: usize) -> bool {
        let limit = self.budget.limit();
        self.budget.used().saturating_add(bytes) <= limit - (limit >> RESERVE_SHIFT)
    }

    /// Bytes that the connection holds.
    pub fn bytes(&self) -> usize {
        locked(&self.budget.state)
            .entries
            .get(&self.number)
            .map_or(0, |entry| entry.bytes)
    }
}

impl Drop for UnauthenticatedShare {
    fn drop(&mut self) {
        let mut state = locked(&self.budget.state);
        if let Some(entry) = state.entries.remove(&self.number) {
            state.used -= entry.bytes;
            if self.is_displaced() {
                state.leaving -= entry.bytes;
            }
        }
    }
}

impl fmt::Debug for UnauthenticatedBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnauthenticatedBudget")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for UnauthenticatedShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnauthenticatedShare")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    const EACH: usize = 1000;
    const LIMIT: usize = 80 * EACH;

    fn v4(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    fn v6(network: u16, host: u16) -> IpAddr {
        IpAddr::from([0x2001, 0xdb8, 0, network, 0, 0, 0, host])
    }

    /// Opens connections one after the other, each of which ends when it is displaced.
    #[derive(Default)]
    struct Peers(Vec<(IpAddr, UnauthenticatedShare)>);

    impl Peers {
        fn open(&mut self, budget: &Arc<UnauthenticatedBudget>, address: IpAddr) -> bool {
            let share = budget.admit(address, EACH);
            self.0.retain(|(_, share)| !share.is_displaced());
            let is_open = share.is_some();
            self.0.extend(share.map(|share| (address, share)));
            assert!(budget.used() <= budget.limit());
            is_open
        }

        fn count(&self, address: IpAddr) -> usize {
            self.0.iter().filter(|(from, _)| *from == address).count()
        }
    }

    #[test]
    fn four_addresses_do_not_lock_out_a_fifth() {
        let budget = UnauthenticatedBudget::new(LIMIT);
        let mut peers = Peers::default();
        for number in 0..400 {
            assert!(peers.open(&budget, v4(number as u8 % 4)));
        }
        assert!(peers.open(&budget, v4(9)) && peers.open(&budget, v4(9)));
        for number in 0..4000 {
            assert!(peers.open(&budget, v4(number as u8 % 4)));
        }
        assert_eq!(peers.count(v4(9)), 2, "the others displace each other only");
        drop(peers);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_network_of_64_bits_is_one_source_and_its_hosts_are_told_apart() {
        let budget = UnauthenticatedBudget::new(LIMIT);
        let mut peers = Peers::default();
        assert!(peers.open(&budget, v4(1)) && peers.open(&budget, v6(2, 1)));
        for host in 0..4000 {
            assert!(peers.open(&budget, v6(1, host)));
        }
        assert_eq!((peers.count(v4(1)), peers.count(v6(2, 1))), (1, 1));
        assert!(peers.open(&budget, v6(1, 9999)));
        for _ in 0..4000 {
            assert!(peers.open(&budget, v6(1, 5000)));
        }
        assert_eq!(
            peers.count(v6(1, 9999)),
            1,
            "another address of the same network has more"
        );
        let mapped = IpAddr::from([0, 0, 0, 0, 0, 0xffff, 0xc000, 0x0201]);
        assert_eq!((source(mapped), source(v6(7, 1))), (v4(1), v6(7, 0)));
    }

    #[test]
    fn connections_that_were_displaced_and_stay_keep_their_bytes_in_the_sum() {
        let budget = UnauthenticatedBudget::new(LIMIT);
        let mut shares = Vec::new();
        while let Some(share) = budget.admit(v4(1), EACH) {
            shares.push(share);
            assert!(shares.len() <= LIMIT / EACH);
        }
        assert_eq!((budget.used(), shares.len()), (LIMIT, LIMIT / EACH));
        let displaced = shares.iter().filter(|share| share.is_displaced()).count();
        assert_eq!(displaced, LIMIT / EACH / 8);
        assert!(budget.admit(v4(2), EACH).is_none());
        let (ending, waiting) = (Duration::from_millis(20), Duration::from_secs(60));
        std::thread::scope(|scope| {
            let new = scope.spawn(|| budget.admit_within(v4(2), EACH, waiting).is_some());
            std::thread::sleep(ending);
            shares.retain(|share| !share.is_displaced());
            assert!(new.join().unwrap());
        });
        assert!(budget.admit(v4(2), EACH).is_some());
        drop(shares);
        assert_eq!(budget.used(), 0);
        assert_eq!(locked(&budget.state).leaving, 0);
    }

    #[test]
    fn a_displaced_connection_is_notified_once_and_grows_no_more() {
        let budget = UnauthenticatedBudget::new(8 * EACH);
        let notices = Arc::new(AtomicUsize::new(0));
        let counted = || {
            let notices = Arc::clone(&notices);
            move || _ = notices.fetch_add(1, Ordering::Relaxed)
        };
        let oldest = budget.admit(v4(1), EACH).unwrap();
        oldest.on_displaced(counted());
        let large = budget.admit(v4(1), EACH).unwrap();
        assert!(large.grow(5 * EACH) && large.bytes() == 6 * EACH);
        assert_eq!(notices.load(Ordering::Relaxed), 0);
        let _new = budget.admit(v4(2), EACH).unwrap();
        assert!(oldest.is_displaced() && !oldest.grow(1));
        assert_eq!(notices.load(Ordering::Relaxed), 1);
        oldest.on_displaced(counted());
        assert_eq!(
            notices.load(Ordering::Relaxed),
            2,
            "a notice that comes late is given at once"
        );
        large.shrink(2 * EACH);
        assert_eq!((large.bytes(), budget.used()), (4 * EACH, 6 * EACH));
        oldest.shrink(usize::MAX);
        assert_eq!(
            (budget.used(), locked(&budget.state).leaving),
            (5 * EACH, 0)
        );
    }

    #[test]
    fn one_connection_displaces_no_other_one_for_the_largest_part() {
        let budget = UnauthenticatedBudget::new(LIMIT);
        let small = budget.admit(v4(1), EACH).unwrap();
        let large = budget.admit(v4(2), EACH).unwrap();
        assert!(!large.grow(LIMIT - EACH) && !large.grow(usize::MAX));
        while large.grow(EACH) {}
        assert!(!small.is_displaced() && !large.is_displaced());
        assert_eq!(large.bytes() + EACH, LIMIT - LIMIT / 8);
        assert!(budget.admit(v4(3), LIMIT).is_none() && budget.admit(v4(3), usize::MAX).is_none());
        assert!(!small.is_displaced() && !large.is_displaced());
    }

    /// Any sequence of admissions, growth and ends, by threads at the same time, stays within the limit.
    #[test]
    fn connections_of_many_threads_never_hold_more_than_the_limit() {
        let budget = UnauthenticatedBudget::new(LIMIT);
        std::thread::scope(|scope| {
            for seed in 1..=8_u64 {
                let budget = &budget;
                scope.spawn(move || {
                    let mut random = seed;
                    let mut next = move |below: u64| {
                        random = random
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1);
                        (random >> 33) % below
                    };
                    let mut shares: Vec<UnauthenticatedShare> = Vec::new();
                    for _ in 0..2000 {
                        let bytes = next(5 * EACH as u64) as usize;
                        match (next(4), shares.last()) {
                            (0, Some(share)) => _ = share.grow(bytes),
                            (1, Some(share)) => share.shrink(bytes),
                            (2, _) => shares.retain(|share| !share.is_displaced()),
                            _ => shares.extend(budget.admit(v4(next(6) as u8), bytes)),
                        }
                        assert!(budget.used() <= LIMIT);
                    }
                });
            }
        });
        let state = locked(&budget.state);
        assert_eq!((state.used, state.leaving, state.entries.len()), (0, 0, 0));
    }
}
