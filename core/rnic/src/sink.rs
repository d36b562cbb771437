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

/// A request of one queue pair to the memory of the peer that it is connected to.
#[derive(Clone, Copy, Debug)]
pub struct DirectRequest<'a> {
    /// The peer's memory.
    pub reth: Reth,
    /// What is done with it.
    pub direct: Direct<'a>,
}

/// The connection of requests that may be executed directly.
#[derive(Clone, Copy, Debug)]
pub struct DirectPath<'a> {
    /// Path to the peer, with the channel's number.
    pub path: &'a Path,
    /// The local queue pair.
    pub from: Qpn,
    /// The peer's queue pair.
    pub to: Qpn,
}

/// The largest number of requests in a run ([`DirectWork::Run`]).
pub const RUN_MAX: usize = 16;

/// A WRITE or READ of a run.
#[derive(Clone, Copy, Debug)]
pub struct RunRequest {
    /// The peer's memory.
    pub reth: Reth,
    /// Local memory of the same length: pinned, and checked.
    pub piece: Piece,
}

/// Requests of one queue pair that follow each other.
#[derive(Clone, Copy, Debug)]
pub enum DirectWork<'a> {
    /// A request of any kind.
    One(DirectRequest<'a>),
    /// WRITEs or READs, as many requests as it has elements.
    Run {
        /// Whether all are READs; otherwise all are WRITEs.
        is_read: bool,
        /// The requests, oldest first.
        requests: &'a [RunRequest],
    },
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

/// A request that begins now, for the driver's statistics.
#[derive(Clone, Copy, Debug)]
pub struct StreamedRequest {
    /// Kind of the operation; an atomic counts as a WRITE.
    pub kind: Streamed,
    /// Length of its payload.
    pub length: u32,
    /// Whether the peer has answered a request of the queue pair. Before that, nothing is executed directly.
    pub is_heard: bool,
}

/// The fastest way of a WRITE or READ on a shared-memory channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Execution {
    /// Through the channel, unless nothing else is outstanding in its queue.
    ByChannel,
    /// Directly, when all requests before it have been answered.
    Direct,
    /// Directly, after the next [`crate::Device::resume`]: enough was executed in this round.
    Later,
}

/// What the driver's statistics say about a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Advice {
    /// The fastest way in which the request can be executed.
    pub execution: Execution,
    /// Whether requests like it are executed faster by one [`DirectWork::Run`] than one by one.
    pub in_runs: bool,
}

impl Advice {
    /// Through the channel, unless nothing else is outstanding, and one by one.
    pub const BY_CHANNEL: Self = Self {
        execution: Execution::ByChannel,
        in_runs: false,
    };
}

/// What was decided about a request, for the driver's statistics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// The request begins to go through the channel.
    ByChannel {
        /// Whether earlier requests are not answered yet.
        follows: bool,
    },
    /// It waits for [`crate::Device::resume`], see [`Execution::Later`].
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

/// Shared-memory channels to other devices of the host: their rings, the execution of requests on the memory
/// at the other end, and the statistics by which one or the other is chosen. Packets for a channel are passed
/// to [`Sink::send`] too, with the channel's number in [`Path::channel`].
pub trait Channels: ChannelRings + DirectExecution + StreamStatistics {}

impl<T: ChannelRings + DirectExecution + StreamStatistics> Channels for T {}

/// The rings of shared-memory channels.
pub trait ChannelRings {
    /// Number of packets of a message, each as long as the path MTU, that may be sent as one unit now. The
    /// unit has the PSN of the first of them, and advances the receiver by as many. 0 while the channel is
    /// full: then the queue pair waits for [`crate::Device::resume`].
    fn room(&mut self, path: &Path, mtu: u32) -> u32;

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

/// Executes requests on the memory at the other end of a shared-memory channel.
pub trait DirectExecution {
    /// Executes requests here and now, from the first on, if the peer grants them and the driver can reach
    /// that memory. Returns the number of those executed. The next one has to go through the channel; the
    /// contents of its range are undefined.
    fn execute(&mut self, at: &DirectPath<'_>, work: DirectWork<'_>) -> usize;
}

/// What the driver has measured about long requests on shared-memory channels.
pub trait StreamStatistics {
    /// The shortest request, in bytes, about which there are statistics. Shorter ones go through the channel,
    /// unless they are WRITEs or READs and nothing else is outstanding in their queue.
    const MEASURED_FROM: u32;

    /// The fastest way of a request that begins now. Before the peer has answered: [`Execution::Direct`]
    /// where direct execution is so cheap that it pays to wait for the answer, and to execute all requests
    /// directly.
    fn advice(&mut self, path: &Path, request: StreamedRequest) -> Advice;

    /// Records what was decided about a request of at least [`Self::MEASURED_FROM`] bytes.
    fn record(&mut self, path: &Path, request: StreamedRequest, decision: Decision);
}

/// The channels of a driver that has none.
#[derive(Clone, Copy, Debug)]
pub enum NoChannels {}

impl ChannelRings for NoChannels {
    fn room(&mut self, _path: &Path, _mtu: u32) -> u32 {
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

impl DirectExecution for NoChannels {
    fn execute(&mut self, _at: &DirectPath<'_>, _work: DirectWork<'_>) -> usize {
        match *self {}
    }
}

impl StreamStatistics for NoChannels {
    const MEASURED_FROM: u32 = u32::MAX;

    fn advice(&mut self, _path: &Path, _request: StreamedRequest) -> Advice {
        match *self {}
    }

    fn record(&mut self, _path: &Path, _request: StreamedRequest, _decision: Decision) {
        match *self {}
    }
}
