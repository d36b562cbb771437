//! Output of a device's packets. The choice between the two transports is made here, for each
//! packet, by the channel number of its path ([`rnic::Path::channel`]): 0 is the network, and the packet goes
//! to the socket ([`Transmitter`]); any other number is a shared-memory channel ([`ShmChannels`]).
//!
//! A queue pair gets that number when it learns its peer's address (`Device::modify_qp`), a datagram when it
//! is sent (`datagram_channel`).

use crate::lab::LabPort;
use crate::shm::{Found, MEASURED_FROM, Method, ShmChannels};
use crate::transmit::Transmitter;
use rnic::{
    Advice, ChannelRings, Decision, DirectExecution, DirectPath, DirectRequest, DirectWork,
    Execution, Fault, ForwardedRequest, Gather, PacketKind, Path, RunRequest, Sink, SrqOwner,
    StreamStatistics, StreamedRequest,
};
use wire::{Packet, Qpn};

/// The sink that [`rnic::Device::transmit`] writes to: the socket and the shared-memory channels of a device.
#[derive(Debug)]
pub(crate) struct Egress<'a> {
    pub(crate) transmitter: &'a mut Transmitter,
    pub(crate) shm: &'a mut ShmChannels,
    /// In a host of a lab: the port that takes the packets for the socket.
    pub(crate) lab: Option<&'a mut LabPort>,
    /// Whether the first request may be executed by a system call on the peer's memory: nothing else is about
    /// to be sent, so no other request waits for that call.
    pub(crate) may_call: bool,
    /// Bytes that streams of long requests have moved by system calls in this round.
    pub(crate) called: u32,
    /// Whether requests were executed here that are as long as those of measured streams.
    pub(crate) executes: bool,
}

/// Bytes that streams of long requests may move by system calls in one round, with the device's lock held:
/// 0.1 ms.
const CALLED_MAX: u32 = 1 << 20;

impl Sink for Egress<'_> {
    type Channels = Self;

    fn send(&mut self, path: &Path, packet: &Packet, payload: Gather<'_>) -> Result<(), Fault> {
        match self.shm.rings(path.channel) {
            // `room` has checked that the record fits. One that does not is lost, as a packet may be on a
            // network.
            Some(rings) => rings
                .send(path, packet, payload, &mut self.transmitter.counters)
                .unwrap_or(Ok(())),
            None => match &mut self.lab {
                Some(lab) => lab.send(path, packet, payload),
                None => self.transmitter.send(path, packet, payload),
            },
        }
    }

    fn has_room(&mut self, path: &Path, kind: PacketKind) -> bool {
        path.channel != 0 || self.lab.as_mut().is_none_or(|lab| lab.has_room(path, kind))
    }

    fn channels(&mut self) -> Option<&mut Self> {
        Some(self)
    }
}

impl ChannelRings for Egress<'_> {
    fn room(&mut self, path: &Path, mtu: u32) -> u32 {
        self.shm
            .rings(path.channel)
            .map_or(1, |rings| rings.room(mtu))
    }

    fn datagram_channel(&mut self, path: &Path, from: Qpn, to: Qpn) -> u16 {
        match self.shm.look_up(from, to, path.destination) {
            Found::Channel(channel) => channel,
            Found::Pending | Found::None => 0,
        }
    }

    fn srq_owner(&mut self, front_end: Qpn, srq: Qpn) -> SrqOwner {
        self.shm.srq_owner(front_end, srq)
    }

    fn forward(
        &mut self,
        channel: u16,
        request: &ForwardedRequest,
        packet: &Packet,
        payload: &[u8],
    ) {
        if let Some(rings) = self.shm.rings(channel) {
            self.transmitter.counters.shm_sent += 1;
            rings.forward(request, packet, payload);
        }
    }
}

/// Execution in a turn of the state machine.
impl DirectExecution for Egress<'_> {
    fn execute(&mut self, at: &DirectPath<'_>, work: DirectWork<'_>) -> usize {
        let done = match work {
            DirectWork::One(request) => usize::from(self.execute_one(at, &request)),
            DirectWork::Run { is_read, requests } => self.execute_run(at, is_read, requests),
        };
        self.transmitter.counters.shm_direct += done as u64;
        done
    }
}

impl Egress<'_> {
    fn execute_one(&mut self, at: &DirectPath<'_>, request: &DirectRequest<'_>) -> bool {
        let (may_call, length) = (std::mem::take(&mut self.may_call), request.reth.length);
        let rings = self.shm.rings(at.path.channel);
        let done = rings.is_some_and(|rings| rings.execute(at, request, may_call));
        self.called = self.called.saturating_add(length);
        // One that was alone says nothing about others.
        self.executes |= done && !may_call && length >= MEASURED_FROM;
        done
    }

    fn execute_run(&mut self, at: &DirectPath<'_>, is_read: bool, run: &[RunRequest]) -> usize {
        let Some(rings) = self.shm.rings(at.path.channel) else {
            return 0;
        };
        let left = CALLED_MAX.saturating_sub(self.called);
        let (done, bytes) = rings.execute_run(at, is_read, run, left);
        self.called = self.called.saturating_add(bytes);
        self.may_call &= done == 0;
        self.executes |= run[..done]
            .iter()
            .any(|request| request.reth.length >= MEASURED_FROM);
        done
    }
}

impl StreamStatistics for Egress<'_> {
    const MEASURED_FROM: u32 = MEASURED_FROM;

    fn advice(&mut self, path: &Path, request: StreamedRequest) -> Advice {
        let Some(rings) = self.shm.rings(path.channel) else {
            return Advice::BY_CHANNEL;
        };
        let is_shared = rings.has_shared_mappings();
        let method = rings.stream_method(request.kind, request.length);
        let execution = match method {
            _ if !request.is_heard && is_shared => Execution::Direct,
            _ if !request.is_heard => Execution::ByChannel,
            Method::Ring => Execution::ByChannel,
            Method::Call if self.called > 0 && self.called + request.length > CALLED_MAX => {
                Execution::Later
            }
            Method::Call => Execution::Direct,
        };
        Advice {
            execution,
            in_runs: is_shared || method == Method::Call,
        }
    }

    fn record(&mut self, path: &Path, request: StreamedRequest, decision: Decision) {
        match decision {
            Decision::Later => self.shm.note_later(),
            Decision::ByChannel { follows } => {
                if let Some(rings) = self.shm.rings(path.channel) {
                    rings.note_stream(request.kind, request.length, follows);
                }
            }
        }
    }
}
