//! Live hosts: nodes whose packets come from outside of the simulation, and leave it where they arrive. The
//! switches and links between them are the simulated ones; the driver runs the world up to the time of a
//! clock, and implements [`LiveHosts`].
//!
//! A live host has the queues of a port, which pauses stop, as a simulated host has outside its device. A
//! packet is taken from outside only when its class may leave, so a pause delays the host's own sending.

use super::scenario::Forgery;
use fabric::{PacketKind, Time};

/// A packet that a live host sends. Its content stays outside, under the token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LivePacket {
    /// The host that it is for, which is live.
    pub to: u32,
    /// InfiniBand: the LID by which switches forward it, as [`super::World::leaf_of_lid`] numbers it, in
    /// place of the switch of `to`.
    pub leaf: Option<u32>,
    /// Queue of the host's port, and the priority whose pause frames stop it.
    pub class: u8,
    /// DSCP in the upper six bits, ECN in the lower two.
    pub tos: u8,
    /// 802.1Q priority code point, where the frame is tagged.
    pub pcp: Option<u8>,
    /// Bytes from the destination address to the check sequence.
    pub length: u16,
    /// Bytes that the adapter reads from memory for it, and that the receiver's writes there.
    pub payload: u16,
    /// The owner of its source address. The embedded switch of an adapter drops forged ones, where it checks.
    pub forgery: Forgery,
    /// The input of the ECMP hash.
    pub entropy: u32,
    /// How many switches it may cross.
    pub hop_limit: u8,
    /// Operation of the packet, and whether switches may spray it.
    pub kind: PacketKind,
    /// Names the packet outside; below 2^31.
    pub token: u32,
}

/// The answer of a live host to a poll for packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offer {
    /// This packet, now.
    Packet(LivePacket),
    /// A packet at a later time, in one of the wanted classes.
    At(Time),
    /// Nothing, until a call of [`super::World::wake_live`].
    Nothing,
}

/// A packet that arrived at a live host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivered {
    /// The token that it was sent with.
    pub token: u32,
    /// DSCP and ECN as switches left them.
    pub tos: u8,
    /// The hop limit that is left.
    pub hop_limit: u8,
}

/// The world outside of live hosts.
pub trait LiveHosts {
    /// Takes the next packet of a host, of one of the classes whose bits are set.
    fn pull(&mut self, host: u32, classes: u8, now: Time) -> Offer;

    /// A packet has arrived at a host.
    fn deliver(&mut self, host: u32, packet: Delivered, now: Time);

    /// The network has lost a packet.
    fn lose(&mut self, token: u32);
}
