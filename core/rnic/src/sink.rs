//! Output of packets.

use crate::address::Path;
use crate::domain::{ForwardedRequest, SrqOwner};
use crate::memory::{Fault, Gather, Piece};
use crate::time::Instant;
use wire::{Packet, Qpn, Reth};

/// A request that a peer on the same host may execute directly.
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
        /// Destination of the old value.
        into: Gather<'a>,
    },
    /// Compare and swap.
    CompareSwap {
        /// The value that the old one must equal for the swap.
        compare: u64,
        /// The new value.
        swap: u64,
        /// Destination of the old value.
        into: Gather<'a>,
    },
}

/// The largest number of requests in a run ([`Channels::execute_run`]).
pub const RUN_MAX: usize = 16;

/// A WRITE or READ of a run.
#[derive(Clone, Copy, Debug)]
pub struct RunRequest {
    /// The peer's memory.
    pub reth: Reth,
    /// Local memory of the same length: pinned, and checked.
    pub piece: Piece,
}

/// Kind of a request whose copy method the driver may measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Streamed {
    /// RDMA WRITE without immediate data.
    Write,
    /// RDMA READ of the peer's memory.
    Read,
    /// SEND of any kind, with immediate data or without.
    Send,
}

/// Way of executing a WRITE or READ on a shared-memory channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Execution {
    /// Through the channel, unless nothing else is outstanding in its queue.
    ByChannel,
    /// Directly, when all requests before it have been answered.
    Direct,
    /// Directly, after the next [`crate::Device::resume`]: enough was executed in this round.
    Later,
}

/// Kind of a packet. Adapters mark, and drivers may queue, the kinds differently.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketKind {
    /// Requests, READ responses, datagrams.
    Data,
    /// Acknowledgements, with the original value of an atomic operation or without.
    Acknowledgement,
}

/// Receives the packets that [`crate::Device::transmit`] makes, one per call, in the order of transmission.
pub trait Sink {
    /// The driver's shared-memory channels; [`NoChannels`] where it has none.
    type Channels: Channels;

    /// Sends one packet. The payload is read during the call: afterwards the program may reuse its buffer. A
    /// `Fault` means that the payload could not be read; nothing is sent.
    fn send(&mut self, path: &Path, packet: &Packet, payload: Gather<'_>) -> Result<(), Fault>;

    /// Earliest time at which the driver will request the next packet, if it is known: a queue pair that must
    /// not send before it gets no turn until its pacing time.
    fn asks_again_at(&self) -> Option<Instant> {
        None
    }

    /// Whether the driver accepts a packet of this kind for the network now. Where it does not, the queue
    /// pair waits for [`crate::Device::resume`].
    #[inline]
    fn has_room(&mut self, _path: &Path, _kind: PacketKind) -> bool {
        true
    }

    /// The shared-memory channels to other devices of the host, if the driver has any.
    fn channels(&mut self) -> Option<&mut Self::Channels> {
        None
    }
}

/// Shared-memory channels to other devices of the host. Packets for a channel are passed to [`Sink::send`]
/// too, with the channel's number in [`Path::channel`].
pub trait Channels {
    /// The shortest request, in bytes, whose execution the driver chooses: [`Self::execution`] and
    /// [`Self::begins`] are not called for shorter ones, which go through the channel, unless they are WRITEs
    /// or READs and nothing else is outstanding in their queue.
    const CHOSEN_FROM: u32;

    /// Number of packets of a message, each as long as the path MTU, that may be sent as one unit now. The
    /// unit has the PSN of the first of them, and advances the receiver by as many. 0 while the channel is
    /// full: then the queue pair waits for [`crate::Device::resume`].
    fn room(&mut self, path: &Path, mtu: u32) -> u32;

    /// Executes a request on the peer's memory here and now, if the peer grants it and the driver can reach
    /// that memory. False where the request has to go through the channel; the contents of the range are then
    /// undefined.
    fn execute(&mut self, path: &Path, from: Qpn, to: Qpn, reth: &Reth, direct: Direct<'_>)
    -> bool;

    /// Whether the driver executes WRITEs or READs of this length faster by [`Self::execute_run`] than one by
    /// one.
    fn takes_runs(&mut self, _path: &Path, _is_read: bool, _length: u32) -> bool {
        false
    }

    /// Executes consecutive requests as [`Self::execute`] would one by one: all WRITEs, or all READs. Returns
    /// the number of those executed, from the first on; the contents of the next one's range are undefined.
    fn execute_run(
        &mut self,
        _path: &Path,
        _from: Qpn,
        _to: Qpn,
        _is_read: bool,
        _run: &[RunRequest],
    ) -> usize {
        0
    }

    /// How to execute a request that begins now. `length` is that of its payload.
    fn execution(&mut self, path: &Path, is_read: bool, length: u32) -> Execution;

    /// Notifies the driver of a request that begins to go through the channel; `follows` is whether earlier
    /// requests are not answered yet.
    fn begins(&mut self, path: &Path, kind: Streamed, length: u32, follows: bool);

    /// Whether direct execution on this path is so cheap that it pays to wait until the peer has answered for
    /// the first time, and to execute all requests directly.
    fn prefers_to_execute(&mut self, path: &Path) -> bool;

    /// The channel for a datagram from one queue pair to another; 0 is the network.
    fn datagram_channel(&mut self, path: &Path, from: Qpn, to: Qpn) -> u16;

    /// The owner of the XRC shared receive queue that a message to the local queue pair names.
    fn srq_owner(&mut self, front_end: Qpn, srq: Qpn) -> SrqOwner;

    /// Forwards a request to the other end of a channel, which takes it with
    /// [`crate::SharedMemory::handle_forwarded`]. [`Self::room`] said that it fits.
    fn forward(
        &mut self,
        channel: u16,
        request: &ForwardedRequest,
        packet: &Packet,
        payload: &[u8],
    );
}

/// The channels of a driver that has none.
#[derive(Clone, Copy, Debug)]
pub enum NoChannels {}

impl Channels for NoChannels {
    const CHOSEN_FROM: u32 = u32::MAX;

    fn room(&mut self, _path: &Path, _mtu: u32) -> u32 {
        match *self {}
    }

    fn execute(
        &mut self,
        _path: &Path,
        _from: Qpn,
        _to: Qpn,
        _reth: &Reth,
        _direct: Direct<'_>,
    ) -> bool {
        match *self {}
    }

    fn execution(&mut self, _path: &Path, _is_read: bool, _length: u32) -> Execution {
        match *self {}
    }

    fn begins(&mut self, _path: &Path, _kind: Streamed, _length: u32, _follows: bool) {
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

    fn forward(
        &mut self,
        _channel: u16,
        _request: &ForwardedRequest,
        _packet: &Packet,
        _payload: &[u8],
    ) {
        match *self {}
    }
}
