//! Where packets go.

use crate::address::Path;
use crate::domain::{ForwardedRequest, SrqOwner};
use crate::memory::{Fault, Gather};
use crate::time::Instant;
use wire::{Packet, Qpn, Reth};

/// A request that a peer on the same host may have executed for it.
#[derive(Clone, Copy, Debug)]
pub enum Direct<'a> {
    /// RDMA WRITE of these bytes.
    Write(Gather<'a>),
    /// RDMA READ into these bytes.
    Read(Gather<'a>),
    /// Fetch and add.
    FetchAdd {
        /// The value that is added.
        add: u64,
        /// What was there goes here.
        into: Gather<'a>,
    },
    /// Compare and swap.
    CompareSwap {
        /// The value that must be there for the swap.
        compare: u64,
        /// The value that is stored then.
        swap: u64,
        /// What was there goes here.
        into: Gather<'a>,
    },
}

/// How a WRITE or READ on a shared-memory channel is executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Execution {
    /// Through the channel, unless it happens to be alone in its queue.
    ByChannel,
    /// Directly, when all requests before it have been answered.
    Direct,
    /// Directly, at the next [`crate::Device::transmit`] that runs timers: enough was executed in this one.
    Later,
}

/// What adapters mark, and drivers may queue, differently.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketKind {
    /// Requests, READ responses, datagrams.
    Data,
    /// Acknowledgements, with the original value of an atomic operation or without.
    Acknowledgement,
}

/// Takes the packets that [`crate::Device::transmit`] makes, one call each, in the order in which they are to
/// leave.
pub trait Sink {
    /// The driver's shared-memory channels; [`NoChannels`] where it has none.
    type Channels: Channels;

    /// Sends one packet. The payload is read during the call: afterwards the program may have it back.
    /// A `Fault` means that the payload could not be read; nothing is sent.
    fn send(&mut self, path: &Path, packet: &Packet, payload: Gather<'_>) -> Result<(), Fault>;

    /// When the driver will ask for the next packet at the earliest, if it knows: a queue pair that must not
    /// send by then is not asked before its own time has come.
    fn asks_again_at(&self) -> Option<Instant> {
        None
    }

    /// Whether the driver takes a packet of this kind for the network now. Where it does not, the queue pair
    /// waits for [`crate::Device::resume`].
    #[inline]
    fn has_room(&mut self, _path: &Path, _kind: PacketKind) -> bool {
        true
    }

    /// The shared-memory channels to other devices of the host, if the driver has any.
    fn channels(&mut self) -> Option<&mut Self::Channels> {
        None
    }
}

/// Shared-memory channels to other devices of the host. What is sent by one goes through [`Sink::send`] too,
/// with the channel's number in [`Path::channel`].
pub trait Channels {
    /// The shortest WRITE or READ, in bytes, whose execution the driver chooses: [`Self::execution`] and
    /// [`Self::begins`] are called for no shorter one, which goes through the channel unless it happens to be
    /// alone in its queue.
    const CHOSEN_FROM: u32;

    /// How many packets of a message, each as long as the path MTU, may be sent as one unit now. The unit has
    /// the PSN of the first of them, and moves the receiver on by as many. 0 while the channel is full: then
    /// the queue pair waits for [`crate::Device::resume`].
    fn room(&mut self, path: &Path, mtu: u32) -> u32;

    /// Executes a request of ours on the peer's memory here and now, if the peer grants it and the driver can
    /// reach that memory. False where the request has to go through the channel; nothing is said about what
    /// the range holds then.
    fn execute(&mut self, path: &Path, from: Qpn, to: Qpn, reth: &Reth, direct: Direct<'_>) -> bool;

    /// How a request that begins now is to be executed. `length` is that of its payload.
    fn execution(&mut self, path: &Path, is_read: bool, length: u32) -> Execution;

    /// A WRITE or READ begins to go through the channel; `follows` others that are not answered yet.
    fn begins(&mut self, path: &Path, is_read: bool, length: u32, follows: bool);

    /// Whether requests on this path are executed so cheaply that it pays to wait until the peer has shown
    /// that it is ready, and to execute all of them.
    fn prefers_to_execute(&mut self, path: &Path) -> bool;

    /// The channel for a datagram from one queue pair to another; 0 is the network.
    fn datagram_channel(&mut self, path: &Path, from: Qpn, to: Qpn) -> u16;

    /// The owner of the XRC shared receive queue that a message to our queue pair names.
    fn srq_owner(&mut self, front_end: Qpn, srq: Qpn) -> SrqOwner;

    /// Forwards a request to the other end of a channel, which takes it with
    /// [`crate::SharedMemory::handle_forwarded`]. [`Self::room`] said that it fits.
    fn forward(&mut self, channel: u16, request: &ForwardedRequest, packet: &Packet, payload: &[u8]);
}

/// The channels of a driver that has none.
#[derive(Clone, Copy, Debug)]
pub enum NoChannels {}

impl Channels for NoChannels {
    const CHOSEN_FROM: u32 = u32::MAX;

    fn room(&mut self, _path: &Path, _mtu: u32) -> u32 {
        match *self {}
    }

    fn execute(&mut self, _path: &Path, _from: Qpn, _to: Qpn, _reth: &Reth, _direct: Direct<'_>) -> bool {
        match *self {}
    }

    fn execution(&mut self, _path: &Path, _is_read: bool, _length: u32) -> Execution {
        match *self {}
    }

    fn begins(&mut self, _path: &Path, _is_read: bool, _length: u32, _follows: bool) {
        match *self {}
    }

    fn prefers_to_execute(&mut self, _path: &Path) -> bool {
        match *self {}
    }

    fn datagram_channel(&mut self, _path: &Path, _from: Qpn, _to: Qpn) -> u16 {
        match *self {}
    }

    fn srq_owner(&mut self, _front_end: Qpn, _srq: Qpn) -> SrqOwner {
        match *self {}
    }

    fn forward(&mut self, _channel: u16, _request: &ForwardedRequest, _packet: &Packet, _payload: &[u8]) {
        match *self {}
    }
}
