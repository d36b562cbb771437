//! The peer of a probe (`--listen`): it reports the DSCP, ECN and TTL of packets that arrive, and sends load
//! to the addresses of `--from`. An answer is never longer than the request, and a request for load has to
//! contain the nonce of an earlier answer to the same address: a forged source address floods no other host.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use doctor::probe::{Heard, LoadOrder, ProbeMessage, Seen};
use wire::ROCE_PORT;

use super::network::{PACKET_MAX, Receiver};
use super::nonce::Nonces;
use super::speaker::Speaker;
use super::{Probe, SECONDS_MAX, load, resolved};
use crate::sys::datagrams::Packet;
use crate::{Error, output};

/// Bytes of the packets that a request for load may name.
const LOAD_BYTES: std::ops::RangeInclusive<u32> = 128..=PACKET_MAX as u32;

/// Answers until the process is ended.
///
/// # Errors
/// A port that is in use, and names that are not resolved.
pub(super) fn answer(what: &Probe) -> Result<(), Error> {
    let receiver = Receiver::open(what.port)?;
    let from = what
        .from
        .iter()
        .map(|host| resolved(host))
        .collect::<Result<_, _>>()?;
    let mut listener = Listener::without_load(what.port);
    (listener.from, listener.most) = (from, what.load.unwrap_or(0));
    output::announce(format_args!("answering probes on UDP port {}\n", what.port));
    let mut buffer = vec![0; PACKET_MAX];
    let failed = |error: io::Error| Error::Unread(format!("UDP port {}: {error}", what.port));
    loop {
        receiver
            .wait(&[], Duration::from_secs(60))
            .map_err(failed)?;
        while let Some((packet, heard)) = receiver.next(&mut buffer).map_err(failed)? {
            // If the answer cannot be sent, the prober counts the packet as lost.
            let _ = heard.map(|heard| listener.hear(&packet, &heard));
        }
    }
}

/// The state of a listener.
#[derive(Debug)]
pub(super) struct Listener {
    nonces: Nonces,
    /// Hosts that may request load.
    from: Vec<IpAddr>,
    /// The highest rate in kb/s.
    most: u32,
    port: u16,
    /// Whether load is being sent: one stream at a time.
    busy: Arc<AtomicBool>,
    /// A socket for each address of this machine that has received a question.
    speakers: Vec<(IpAddr, u16, Speaker)>,
}

impl Listener {
    /// A listener that answers probes, and sends load to no host.
    pub(super) fn without_load(port: u16) -> Self {
        let (from, speakers) = (Vec::new(), Vec::new());
        Self {
            nonces: Nonces::new(),
            from,
            most: 0,
            port,
            busy: Arc::default(),
            speakers,
        }
    }

    /// Answers a question; returns whether the packet was one.
    ///
    /// # Errors
    /// Answers that cannot be sent.
    pub(super) fn hear(&mut self, packet: &Packet, heard: &Heard) -> io::Result<bool> {
        let peer = packet.source.ip();
        match heard {
            Heard::Management(mad) => {
                let speaker = self.speaker(packet.destination, ROCE_PORT)?;
                let Some(rejection) = speaker.ends(peer).rejection(mad) else {
                    return Ok(false);
                };
                speaker.mark(0)?;
                speaker.send(peer, None, &rejection)?;
            }
            Heard::Probe(ProbeMessage::Look {
                question,
                traffic_class,
            }) => {
                let seen = self.report(packet, *question);
                self.say(packet, *traffic_class, ProbeMessage::Seen(seen))?;
            }
            Heard::Probe(ProbeMessage::Order(order)) => self.send_load(packet, order)?,
            Heard::Probe(_) => return Ok(false),
        }
        Ok(true)
    }

    /// The report on a packet.
    fn report(&self, packet: &Packet, question: u32) -> Seen {
        let peer = packet.source.ip();
        Seen {
            question,
            traffic_class: packet.traffic_class,
            hop_limit: packet.hop_limit,
            bytes: packet.length as u32,
            nonce: self.nonces.of(peer),
            load_kbps: self.allowed(peer),
        }
    }

    /// The highest rate for a host.
    fn allowed(&self, peer: IpAddr) -> u32 {
        if self.from.contains(&peer) {
            self.most
        } else {
            0
        }
    }

    fn send_load(&mut self, packet: &Packet, order: &LoadOrder) -> io::Result<()> {
        let peer = packet.source.ip();
        if !self.nonces.is_valid(order.nonce, peer) {
            // The peer repeats its order with the nonce of this report, if it is the one that ordered.
            let seen = self.report(packet, order.stream);
            return self.say(packet, 0, ProbeMessage::Seen(seen));
        }
        let allowed = self.allowed(peer);
        let is_right =
            LOAD_BYTES.contains(&order.bytes) && (1..=SECONDS_MAX * 1000).contains(&order.millis);
        if order.kbps > allowed || !is_right {
            let refused = ProbeMessage::Refused {
                stream: order.stream,
                allowed_kbps: allowed,
            };
            return self.say(packet, 0, refused);
        }
        if self.busy.swap(true, Ordering::AcqRel) {
            // The order was repeated, because no packet of the stream has arrived yet.
            return Ok(());
        }
        let (order, busy) = (*order, Arc::clone(&self.busy));
        let speaker = Speaker::new(packet.destination, self.port)?;
        std::thread::spawn(move || load::send(&speaker, peer, &order, &busy));
        Ok(())
    }

    fn say(&mut self, packet: &Packet, traffic_class: u8, message: ProbeMessage) -> io::Result<()> {
        let (peer, port) = (packet.source.ip(), self.port);
        let speaker = self.speaker(packet.destination, port)?;
        speaker.mark(traffic_class)?;
        speaker.send(peer, None, &speaker.ends(peer).message(message, 0))
    }

    fn speaker(&mut self, address: IpAddr, port: u16) -> io::Result<&Speaker> {
        let known = self
            .speakers
            .iter()
            .position(|(own, to, _)| (*own, *to) == (address, port));
        let index = match known {
            Some(index) => index,
            None => {
                self.speakers
                    .push((address, port, Speaker::new(address, port)?));
                self.speakers.len() - 1
            }
        };
        let speaker = &self.speakers[index].2;
        // Errors of earlier packets would be returned by the next send.
        while speaker.report()?.is_some() {}
        Ok(speaker)
    }
}
