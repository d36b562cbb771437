//! Shared-memory channels to other devices of the host: packets on them, and XRC forwarding
//! ([`crate::domain`]), in which a proxy executes the requests that another device forwards.

use super::Device;
use crate::address::{Arrival, Channel, Path, Senders};
use crate::domain::ForwardedRequest;
use crate::error::Error;
use crate::memory::{Memory, Payload, Piece};
use crate::qp::{Inbound, Origin, Qp};
use crate::resources::Resources;
use crate::sink::{ChannelRings, Sink};
use crate::time::Instant;
use wire::{Message, Packet, Position, Psn, Qpn, Service, Tail};

impl Device {
    /// Operations on shared-memory channels.
    #[inline]
    pub fn shm(&mut self) -> SharedMemory<'_> {
        SharedMemory(self)
    }

    /// The shared-memory channel on which a queue pair sends; 0 is the network.
    pub fn channel(&self, qpn: Qpn) -> Result<u16, Error> {
        Ok(self.queue_pairs.get(qpn)?.path().channel)
    }
}

/// A device and its shared-memory channels ([`Device::shm`]). The driver numbers the channels; 0 is the
/// network.
#[derive(Debug)]
pub struct SharedMemory<'d>(&'d mut Device);

impl SharedMemory<'_> {
    /// Handles a packet from a channel: it may represent several packets, and its sender can only be one of
    /// `senders`.
    #[inline]
    pub fn handle_packet(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        senders: Senders,
        packet: &Packet,
        payload: Payload<'_>,
        memory: &mut impl Memory,
    ) {
        let inbound = Inbound {
            arrival,
            origin: Origin::SharedMemory(senders),
            packet,
            payload,
        };
        self.0.handle_inbound(now, &inbound, memory);
    }

    /// Handles a request that one of the channel's senders forwards to a local shared receive queue. The
    /// answers are sent on the channel.
    pub fn handle_forwarded(
        &mut self,
        now: Instant,
        from: Channel,
        forwarded: &ForwardedRequest,
        packet: &Packet,
        payload: Payload<'_>,
        memory: &mut impl Memory,
    ) {
        let Device {
            queue_pairs,
            resources,
            domains,
            ..
        } = &mut *self.0;
        if !from.senders.have(forwarded.front_end) {
            resources.port.counters.dropped_wrong_address += 1;
            return;
        }
        if forwarded.is_close_notice {
            return queue_pairs.dismiss(resources, |qp| qp.qpn() == forwarded.front_end, now);
        }
        let index = queue_pairs
            .proxy_of(resources, from.number, forwarded, now)
            .or_else(|| {
                let xrcd = domains.named(forwarded.domain);
                queue_pairs.add_proxy(resources, from.number, forwarded, xrcd, packet.psn)
            });
        let Some(index) = index else {
            resources.port.counters.dropped_no_qp += 1;
            return;
        };
        let Some(proxy) = queue_pairs.qps.get_mut(index) else {
            return;
        };
        proxy.handle_forwarded_request(resources, now, from.senders, packet, payload, memory);
        queue_pairs.turns.schedule_qp(index, proxy, false, false);
        queue_pairs.fail_overrun(resources, now);
    }

    /// The queue pair that a queue pair is connected to.
    pub fn peer(&self, qpn: Qpn) -> Option<Qpn> {
        self.0.queue_pairs.get(qpn).ok().map(Qp::peer)
    }

    /// The memory that the next SENDs to a queue pair will fill: of its own receives with one element each,
    /// the oldest first. Returns their number.
    pub fn next_receives(&self, qpn: Qpn, into: &mut [Piece]) -> usize {
        let Ok(qp) = self.0.queue_pairs.get(qpn) else {
            return 0;
        };
        let found = qp.next_receives(&self.0.resources);
        into.iter_mut()
            .zip(found)
            .map(|(place, piece)| *place = piece)
            .count()
    }

    /// Moves a connected queue pair to a channel, from its next packet on. The next change of its address
    /// vector moves it back to the network.
    pub fn set_channel(&mut self, qpn: Qpn, channel: u16) -> Result<(), Error> {
        self.0
            .queue_pairs
            .with(&mut self.0.resources, qpn, |qp, _| {
                qp.set_path(Path {
                    channel,
                    ..*qp.path()
                });
                Ok(())
            })
    }

    /// Handles the end of a channel: queue pairs that send on it go back to the network, its proxies end, and
    /// requests that were forwarded on it are refused.
    pub fn close_channel(&mut self, channel: u16, now: Instant) {
        let Device {
            queue_pairs,
            resources,
            ..
        } = &mut *self.0;
        queue_pairs.dismiss(resources, |qp| qp.path().channel == channel, now);
        queue_pairs.close_forwarding(resources, channel, now);
        for (_, qp) in queue_pairs
            .qps
            .iter_mut()
            .filter(|(_, qp)| qp.path().channel == channel)
        {
            qp.set_path(Path {
                channel: 0,
                ..*qp.path()
            });
        }
        queue_pairs.resume();
    }
}

/// Sends the close notices: the owners of shared receive queues to which requests of a connection were
/// forwarded are notified of its end. Those without room are sent later.
pub(super) fn send_close_notices(resources: &mut Resources, sink: &mut impl Sink) {
    if resources.close_notices.is_empty() {
        return;
    }
    let mtu = resources.port.active_mtu.bytes();
    let Some(channels) = sink.channels() else {
        return;
    };
    resources.close_notices.retain(|(channel, notice)| {
        let path = Path {
            channel: *channel,
            ..Default::default()
        };
        if channels.room(&path, mtu) == 0 {
            return true;
        }
        let nothing = Message::Send {
            position: Position::Only,
            tail: Tail::None,
        };
        let packet = Packet::new(Service::Rc, notice.front_end, Psn::new(0), nothing);
        channels.forward(*channel, notice, &packet, &[]);
        false
    });
}
