//! State that the roles of a queue pair share.

use super::attr::{QpAttr, QpInit, QpType, State};
use super::step::Step;
use super::timer::TimerTable;
use super::transport::Transport;
use crate::address::Path;
use crate::congestion::Control;
use crate::counters::QpCounters;
use crate::handle::{Cq, Pd, Srq};
use crate::resources::Resources;
use crate::sink::{PacketKind, Sink};
use wire::{Qpn, Service};

/// Identity, attributes, state and path of a queue pair. The fields that each message reads come first, so
/// that they share cache lines: with thousands of queue pairs, the cost of a message is that of the lines
/// that it reads.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Common {
    pub(crate) qpn: Qpn,
    pub(crate) state: State,
    pub(crate) kind: QpType,
    /// Whether the service is acknowledged: RC and XRC.
    is_reliable: bool,
    pub(super) transport: Transport,
    /// Whether packets ahead of the expected one are placed, and WRITE packets numbered as messages of their
    /// own.
    pub(super) out_of_order: bool,
    /// WRITEs without immediate leave as WRITE ONLY packets.
    pub(super) write_only: bool,
    /// Whether those packets are cut to equal lengths.
    pub(super) write_evenly: bool,
    /// READs ask for READ RESPONSE ONLY packets.
    pub(super) response_only: bool,
    /// The channel was full when the queue pair wanted to send.
    pub(super) waits_for_room: bool,
    /// The queue pair has entered the error state in the operation at hand, and is flushed at its end.
    pub(super) has_failed: bool,
    /// Largest number of packets between two requests for an acknowledgement.
    pub(super) ack_interval: u32,
    pub(super) timers: TimerTable,
    pub(crate) congestion: Control,
    pub(crate) init: QpInit,
    pub(crate) attr: QpAttr,
    pub(super) path: Path,
    pub(crate) counters: QpCounters,
    /// Number of packets that the peer may have to keep ahead of a missing one.
    pub(super) reorder_window: u32,
}

impl Common {
    pub(super) fn new(qpn: Qpn, init: &QpInit, resources: &Resources) -> Self {
        let config = &resources.config;
        Self {
            qpn,
            kind: init.kind,
            state: State::Reset,
            init: *init,
            attr: QpAttr::default(),
            is_reliable: !matches!(init.kind, QpType::Uc | QpType::Ud),
            path: Path::default(),
            transport: Transport::Packets,
            out_of_order: config.out_of_order,
            // The receiver can place such a packet independently of those before it.
            write_only: config.write_only || config.out_of_order,
            write_evenly: config.write_only,
            response_only: config.response_only,
            reorder_window: config.reorder_window.max(1),
            ack_interval: config.congestion.ack_interval(config.ack_interval),
            congestion: Control::new(&config.congestion, config.window_bytes),
            counters: QpCounters::default(),
            timers: TimerTable::default(),
            waits_for_room: false,
            has_failed: false,
        }
    }

    pub(super) fn service(&self) -> Service {
        match self.kind {
            QpType::Rc => Service::Rc,
            QpType::Uc => Service::Uc,
            QpType::Ud => Service::Ud,
            QpType::XrcSend | QpType::XrcReceive => Service::Xrc,
        }
    }

    /// Whether the service is acknowledged: RC and XRC.
    #[inline(always)]
    pub(super) fn is_reliable(&self) -> bool {
        self.is_reliable
    }

    /// Whether requests are sent in this state.
    #[inline(always)]
    pub(super) fn is_sending(&self) -> bool {
        matches!(self.state, State::ReadyToSend | State::SendQueueDrained)
    }

    /// Whether requests are taken in this state.
    #[inline(always)]
    pub(super) fn is_receiving(&self) -> bool {
        use State::{ReadyToReceive, ReadyToSend, SendQueueDrained, SendQueueError};
        matches!(
            self.state,
            ReadyToReceive | ReadyToSend | SendQueueDrained | SendQueueError
        )
    }

    #[inline]
    pub(super) fn mtu(&self) -> u32 {
        self.attr.path_mtu.bytes()
    }

    /// The protection domain. XRC's responder half has none of its own: it uses the SRQ's.
    #[inline]
    pub(super) fn pd(&self) -> Pd {
        self.init.pd.unwrap_or(Pd(u32::MAX))
    }

    pub(super) fn send_cq(&self) -> Cq {
        self.init.send_cq.unwrap_or(Cq(u32::MAX))
    }

    pub(super) fn receive_cq(&self, resources: &Resources, srq: Option<Srq>) -> Cq {
        srq.and_then(|srq| resources.srqs.get(srq))
            .and_then(|srq| srq.xrc)
            .map(|(_, cq)| cq)
            .or(self.init.receive_cq)
            .unwrap_or(Cq(u32::MAX))
    }

    /// Sets the path, and selects the transport.
    pub(super) fn set_path(&mut self, path: Path) {
        self.path = path;
        self.transport = Transport::of_path(&path);
    }

    /// Number of packets of this kind that may leave as one unit now; 0 while the channel is full.
    #[inline(always)]
    pub(super) fn room(&self, kind: PacketKind, sink: &mut impl Sink) -> u32 {
        self.transport.room(&self.path, self.mtu(), kind, sink)
    }

    /// Number of packets that may be outstanding.
    #[inline(always)]
    pub(super) fn window_packets(&self) -> u32 {
        let ahead = self.out_of_order.then_some(self.reorder_window);
        self.transport
            .window_packets(&self.congestion, self.mtu(), ahead)
    }

    /// Records that the channel is full: [`crate::Device::resume`] gives the queue pair its next turn.
    pub(super) fn wait_for_room(&mut self) -> Step {
        self.waits_for_room = true;
        Step::Blocked
    }
}
