//! Packets that crossed a link, for captures.

use super::{Packet, Subnet};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use fabric::Time;

/// Packets that are kept until they are taken, at most.
pub const CROSSED_MAX: usize = 1 << 16;

/// A packet on a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Crossed {
    /// When its last bit left.
    pub at: Time,
    /// The link, in the order of the description.
    pub link: usize,
    /// The end of the link that sent it.
    pub side: u8,
    /// The packet as it left, with the path of its directed route so far.
    pub packet: Packet,
}

/// The links that are captured, and what has crossed them.
#[derive(Debug, Default)]
pub(super) struct Captures {
    links: BTreeSet<usize>,
    crossed: Vec<Crossed>,
}

impl Captures {
    pub(super) fn add(&mut self, link: usize, side: usize, at: Time, packet: &Packet) {
        if self.links.contains(&link) && self.crossed.len() < CROSSED_MAX {
            self.crossed.push(Crossed {
                at,
                link,
                side: side as u8,
                packet: packet.clone(),
            });
        }
    }
}

impl Subnet {
    /// Begins or ends the capture of a link, in both directions.
    pub fn set_capture(&mut self, link: usize, on: bool) {
        if on {
            self.captures.links.insert(link);
        } else {
            self.captures.links.remove(&link);
        }
    }

    /// Takes what has crossed captured links up to a time, in order.
    pub fn take_crossed(&mut self, until: Time) -> Vec<Crossed> {
        let crossed = &mut self.captures.crossed;
        crossed.sort_by_key(|crossed| crossed.at);
        let later = crossed.partition_point(|crossed| crossed.at <= until);
        let mut taken = crossed.split_off(later);
        core::mem::swap(crossed, &mut taken);
        taken
    }
}
