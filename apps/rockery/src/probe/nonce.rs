//! Nonces that prove to a listener that an order for load comes from the address that it names.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// A nonce is valid in the interval in which it was given and in the next one: for at least this time, and
/// for at most twice as long. A prober that has lost its address cannot order load in its name afterwards.
const INTERVAL: Duration = Duration::from_secs(30);

/// The nonces of a listener. Each is a keyed hash of the peer's address and of the interval, so the nonce
/// that one host receives orders no load to another host, and the listener keeps nothing for a peer.
#[derive(Debug)]
pub(super) struct Nonces {
    /// SipHash with a random key of this process.
    keyed: RandomState,
    begun: Instant,
}

impl Nonces {
    pub(super) fn new() -> Self {
        Self {
            keyed: RandomState::new(),
            begun: Instant::now(),
        }
    }

    /// The nonce for a peer from now on.
    pub(super) fn of(&self, peer: IpAddr) -> u64 {
        self.at(peer, self.begun.elapsed())
    }

    /// Whether a peer has received this nonce, and not too long ago.
    pub(super) fn is_valid(&self, nonce: u64, peer: IpAddr) -> bool {
        self.is_valid_at(nonce, peer, self.begun.elapsed())
    }

    fn at(&self, peer: IpAddr, time: Duration) -> u64 {
        self.in_interval(peer, time.as_secs() / INTERVAL.as_secs())
    }

    fn is_valid_at(&self, nonce: u64, peer: IpAddr, time: Duration) -> bool {
        let current = time.as_secs() / INTERVAL.as_secs();
        let of = |interval| self.in_interval(peer, interval) == nonce;
        of(current) || current.checked_sub(1).is_some_and(of)
    }

    fn in_interval(&self, peer: IpAddr, interval: u64) -> u64 {
        self.keyed.hash_one((peer, interval))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers() -> Vec<IpAddr> {
        let v4 = (1..=200).map(|host| IpAddr::from([10, 0, 0, host]));
        let v6 = (1..=200).map(|host| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, host]));
        v4.chain(v6).collect()
    }

    #[test]
    fn the_nonce_of_one_address_is_valid_for_no_other_address() {
        let nonces = Nonces::new();
        for of in peers() {
            let nonce = nonces.of(of);
            for peer in peers() {
                assert_eq!(nonces.is_valid(nonce, peer), peer == of, "{of} {peer}");
            }
        }
    }

    #[test]
    fn nonces_expire_after_at_least_one_interval_and_at_most_two() {
        let nonces = Nonces::new();
        let peer = IpAddr::from([10, 0, 0, 1]);
        for begin in [0, 1, 29, 30, 59, 60, 1000] {
            let begin = Duration::from_secs(begin);
            let nonce = nonces.at(peer, begin);
            for later in 0..100 {
                let is_valid = nonces.is_valid_at(nonce, peer, begin + Duration::from_secs(later));
                match later {
                    0..=30 => assert!(is_valid, "{begin:?} + {later} s"),
                    31..60 => {}
                    _ => assert!(!is_valid, "{begin:?} + {later} s"),
                }
            }
        }
    }

    #[test]
    fn each_listener_has_its_own_nonces() {
        let peer = IpAddr::from([10, 0, 0, 1]);
        assert!(!Nonces::new().is_valid(Nonces::new().of(peer), peer));
    }
}
