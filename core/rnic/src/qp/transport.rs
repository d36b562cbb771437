//! The layer below a queue pair: its packets are either sent on the network one by one, or put into a
//! shared-memory channel of the host. All differences between the two are here; the path selects one.
//!
//! | | packets | shared-memory channel |
//! |---|---|---|
//! | unit | one packet | a run of packets of one message, with the PSN of the first |
//! | window | congestion control | fixed: nothing is lost, and a full channel is reported to the sender |
//! | ACK timeout | as the program asks | at least 67 ms |
//! | direct execution | never | WRITEs, READs and atomics with nothing outstanding before them |
//! | an acknowledgement, and requests | the requests first | the acknowledgement first |

use super::attr::QpType;
use super::send_queue::SendEntry;
use super::timer;
use crate::address::{Path, Senders};
use crate::congestion::Control;
use crate::sink::{ChannelRings, PacketKind, Sink};
use crate::time::Nanos;
use crate::work::Operation;
use wire::{Qpn, Syndrome};

/// The responder has posted a receive, and a request that it refused with an RNR NAK may be sent at once. One
/// of the syndromes that are reserved on a network (IBTA table 45).
pub(super) const READY: Syndrome = Syndrome::Reserved(0x40);

/// Packets that may be outstanding on a shared-memory channel: far from half of the PSN space, within which
/// PSNs are compared.
const CHANNEL_WINDOW_PACKETS: u32 = 1 << 20;

/// The least ACK timeout on a shared-memory channel: that of code 14. Nothing is lost there, so an expired
/// timer only means that the peer's process does not run; a process that waits for a processor for some time
/// slices is not considered as such.
const CHANNEL_TIMEOUT_MIN: Nanos = Nanos(4_096 << 14);

/// Transport of a queue pair's packets to its peer.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Transport {
    /// RoCEv2 packets on the network.
    #[default]
    Packets,
    /// A shared-memory channel to a device of the same host.
    SharedMemory,
}

impl Transport {
    /// The transport that a path selects.
    pub(super) fn of_path(path: &Path) -> Self {
        if path.channel == 0 {
            Self::Packets
        } else {
            Self::SharedMemory
        }
    }

    /// Unit size: number of packets of this kind that may leave as one unit now. 0 while the channel is full.
    #[inline(always)]
    pub(super) fn room(self, path: &Path, mtu: u32, kind: PacketKind, sink: &mut impl Sink) -> u32 {
        match self {
            Self::Packets => u32::from(sink.has_room(path, kind)),
            Self::SharedMemory => sink
                .channels()
                .map_or(1, |channels| channels.room(path, mtu)),
        }
    }

    /// Window: number of packets that may be outstanding. At most `ahead`, where the sender must not exceed
    /// the peer's window for packets ahead of the expected one.
    #[inline(always)]
    pub(super) fn window_packets(self, congestion: &Control, mtu: u32, ahead: Option<u32>) -> u32 {
        match self {
            Self::SharedMemory => CHANNEL_WINDOW_PACKETS,
            Self::Packets => {
                let window = congestion.window_packets(mtu);
                ahead.map_or(window, |ahead| window.min(ahead))
            }
        }
    }

    /// The local ACK timeout of a code; `None` where the timer does not run.
    #[inline]
    pub(super) fn ack_timeout(self, code: u8) -> Option<Nanos> {
        let timeout = timer::ack_timeout(code)?;
        match self {
            Self::Packets => Some(timeout),
            Self::SharedMemory => Some(timeout.max(CHANNEL_TIMEOUT_MIN)),
        }
    }

    /// Number of packets that an arriving unit with this payload represents; `None` if it cannot be one unit.
    #[inline(always)]
    pub(super) fn packets_of(self, length: u32, mtu: u32) -> Option<u32> {
        match self {
            Self::Packets => (length <= mtu).then_some(1),
            Self::SharedMemory => Some(length.div_ceil(mtu).max(1)),
        }
    }

    /// Whether a gap in the PSNs means that requests were executed directly: a channel loses no packets.
    #[inline(always)]
    pub(super) fn skips_executed_requests(self) -> bool {
        self == Self::SharedMemory
    }

    /// Whether a NAK for a gap asks for one packet, where packets after it are placed out of order. On a
    /// channel it asks for a record, and the records after it were dropped.
    #[inline]
    pub(super) fn repeats_single_packets(self) -> bool {
        self == Self::Packets
    }

    /// Receiver not ready: whether the responder announces its next receive with [`READY`].
    #[inline]
    pub(super) fn announces_receives(self) -> bool {
        self == Self::SharedMemory
    }

    /// Whether WRITE packets may be shorter than the path MTU, so that segmentation offload takes them.
    #[inline]
    pub(super) fn cuts_evenly(self) -> bool {
        self == Self::Packets
    }

    /// Whether the packets of a READ response may all be READ RESPONSE ONLY, so that segmentation offload
    /// takes them. On a channel one unit stands for several packets.
    #[inline]
    pub(super) fn has_equal_responses(self) -> bool {
        self == Self::Packets
    }

    /// Whether an acknowledgement leaves before the requests of its turn: a peer that answers such a request
    /// by a WRITE or READ finds that nothing of its own is outstanding, and executes it directly. On a
    /// network it ends a batch of segments of equal length.
    #[inline(always)]
    pub(super) fn acknowledges_first(self) -> bool {
        self == Self::SharedMemory
    }

    /// Whether acknowledgements are requested that a network does without: an early first one, for which
    /// direct execution waits, and one for each completion of a short request.
    #[inline]
    pub(super) fn asks_early(self) -> bool {
        self == Self::SharedMemory
    }

    /// Direct execution: whether the request may be executed on the peer's memory here and now.
    #[inline]
    pub(super) fn may_execute(self, kind: QpType, entry: &SendEntry) -> bool {
        self == Self::SharedMemory && kind == QpType::Rc && is_executable(&entry.operation)
    }
}

/// Whether a request only reads or writes the peer's memory.
fn is_executable(operation: &Operation) -> bool {
    match operation {
        Operation::Write { immediate, .. } => immediate.is_none(),
        Operation::Read { .. } | Operation::FetchAdd { .. } | Operation::CompareSwap { .. } => true,
        _ => false,
    }
}

/// Origin of an arriving packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// The network: its sender can be forged.
    Network,
    /// A shared-memory channel, whose other end has only these queue pairs.
    SharedMemory(Senders),
}

impl Origin {
    /// The transport by which the packet came.
    #[inline(always)]
    pub(super) fn transport(self) -> Transport {
        match self {
            Self::Network => Transport::Packets,
            Self::SharedMemory(_) => Transport::SharedMemory,
        }
    }

    /// Whether a queue pair with this number can have sent the packet.
    #[inline(always)]
    pub(super) fn may_be(self, qpn: Qpn) -> bool {
        match self {
            Self::Network => true,
            Self::SharedMemory(senders) => senders.have(qpn),
        }
    }

    /// Whether the packet is known to come from this queue pair's process, as only a channel guarantees.
    #[inline]
    pub(super) fn is_known(self, qpn: Qpn) -> bool {
        self != Self::Network && self.may_be(qpn)
    }
}
