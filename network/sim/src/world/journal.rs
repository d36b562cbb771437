//! Records the life of one queue pair, or of one packet of it, only if the scenario watches one. Every packet
//! then takes the slower path over its links.

use super::hops::Departure;
use super::life::{LIFE_MAX, Life, LifeEvent, LifePacket, LifePlace, LifeRecord, Loss};
use super::link_direction::{Content, LinkDirection, TransportHeaders};
use super::scenario::Traced;
use super::uet::Header;
use fabric::config::CLASSES;
use fabric::lanes::DELIMITER_BYTES;
use fabric::{Egress, FRAME_OVERHEAD_BYTES, Packet, PacketId, Rate, Span, Time};
use std::collections::{BTreeMap, VecDeque};
use wire::{Message, Psn, Syndrome};

/// A port that packets of the queue pair have waited at or left by.
#[derive(Debug)]
struct WatchedPort {
    place: LifePlace,
    /// The classes that its packets have here, one bit each.
    classes: u8,
    /// By class: since when it is paused and until when, as far as pause frames said.
    paused: [Option<(Time, Time)>; CLASSES],
}

/// A packet on a link: when it arrives, and what switches did to it before.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    at: Time,
    is_marked: bool,
    is_trimmed: bool,
}

/// The record of one part of the network.
#[derive(Debug)]
pub(super) struct Journal {
    pub(super) traced: Traced,
    poster_host: u32,
    poster: usize,
    /// The time of the event that is being handled.
    pub(super) now: Time,
    /// Speed of the port that sends into each lane.
    rates: Vec<Rate>,
    records: Vec<LifeRecord>,
    left_out: u64,
    ports: BTreeMap<u32, WatchedPort>,
    /// Packets under way.
    arrivals: BTreeMap<u32, UnderWay>,
    /// The highest sequence number that each host has sent, and with Ultra Ethernet's transport the first
    /// one that the sender has not.
    highest: BTreeMap<u32, Psn>,
    unsent: u64,
    /// What the poster had posted and completed when it was looked at last, and whether it had failed.
    posted: u64,
    completed: u64,
    failed: bool,
    /// Where one packet is watched: messages begun by the packets sent so far; that packet's message, once it
    /// was sent; when each message was posted that is not completed; whether it was acknowledged.
    begun: u64,
    message: Option<u64>,
    posts: VecDeque<(u64, Time)>,
    is_acknowledged: bool,
}

impl Journal {
    /// `poster`: the host that posts the messages, and the place among its posters. `rates`: speed of the
    /// port that sends, by lane.
    pub(super) fn new(traced: Traced, poster: [u32; 2], rates: Vec<Rate>) -> Self {
        Self {
            traced,
            poster_host: poster[0],
            poster: poster[1] as usize,
            now: Time(0),
            rates,
            records: Vec::new(),
            left_out: 0,
            ports: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            highest: BTreeMap::new(),
            unsent: 0,
            posted: 0,
            completed: 0,
            failed: false,
            begun: 0,
            message: None,
            posts: VecDeque::new(),
            is_acknowledged: false,
        }
    }

    fn push(&mut self, at: Time, place: LifePlace, event: LifeEvent, packet: Option<&Content>) {
        if self.records.len() >= 2 * LIFE_MAX {
            if self.records.iter().all(LifeRecord::is_of_pause) {
                // The first message, or the packet, is still to come.
                self.records.drain(..LIFE_MAX);
            } else {
                self.left_out += keep_first(&mut self.records);
            }
        }
        let packet = packet.map(|content| LifePacket {
            from: content.from,
            headers: content.headers,
            payload: content.payload,
        });
        self.records.push(LifeRecord {
            at,
            place,
            event,
            packet,
        });
    }

    /// Whether a packet is watched on its way.
    fn is_watched(&self, content: &Content) -> bool {
        let is_wanted = || match self.traced.psn {
            None => true,
            Some(wanted) => match &content.headers {
                TransportHeaders::Roce(headers) => {
                    let message = &headers.message;
                    headers.psn.value() == wanted
                        && !matches!(message, Message::Acknowledge(_) | Message::Congestion)
                }
                TransportHeaders::Uet(Header::Data { psn, .. }) => *psn == u64::from(wanted),
                TransportHeaders::Uet(_) => false,
            },
        };
        content.flow == self.traced.flow && is_wanted()
    }

    /// A packet leaves a port.
    pub(super) fn departs(&mut self, departure: &Departure<'_>, info: &LinkDirection) {
        let Departure {
            lane,
            id,
            packet,
            content,
            end,
        } = departure;
        if content.flow != self.traced.flow {
            return;
        }
        let again = info.from_host && self.is_sent_again(content);
        if !self.is_watched(content) {
            return;
        }
        let arrived = self.arrivals.remove(&id.0).filter(|_| !info.from_host);
        let gap = match packet.hop_limit {
            0 => DELIMITER_BYTES,
            _ => FRAME_OVERHEAD_BYTES,
        };
        let rate = self.rates[*lane as usize];
        let start = Time(end.0 - rate.time_of(u32::from(packet.length) + gap).0);
        let place = self.port(*lane, info, packet.class()).place;
        let was_marked = arrived.is_some_and(|before| before.is_marked);
        let event = LifeEvent::Sent {
            end: *end,
            waited: arrived.map(|before| Span(start.0.saturating_sub(before.at.0))),
            marked: packet.is_marked() && !was_marked,
            again,
        };
        if info.from_host && self.traced.psn.is_some() {
            self.note_message(content);
        }
        self.push(start, place, event, Some(content));
    }

    /// Whether a host has sent a packet's sequence number before. Counts the messages that begin.
    fn is_sent_again(&mut self, content: &Content) -> bool {
        let headers = match &content.headers {
            TransportHeaders::Roce(headers) => headers,
            TransportHeaders::Uet(Header::Data { psn, starts, .. }) => {
                let is_new = *psn >= self.unsent;
                self.unsent = self.unsent.max(psn + 1);
                self.begun += u64::from(is_new && *starts);
                return !is_new;
            }
            TransportHeaders::Uet(_) => return false,
        };
        let starts = match headers.message {
            Message::Acknowledge(_) | Message::AtomicAcknowledge { .. } | Message::Congestion => {
                return false;
            }
            Message::Write { position, .. } | Message::Send { position, .. } => position.starts(),
            Message::ReadResponse { .. } => false,
            _ => true,
        };
        let psn = headers.psn;
        let is_new = self
            .highest
            .get(&content.from)
            .is_none_or(|highest| psn.distance_from(*highest) > 0);
        if is_new {
            self.highest.insert(content.from, psn);
            self.begun += u64::from(starts && content.from == self.poster_host);
        }
        !is_new
    }

    /// The watched packet leaves its host: its message is the one that began last.
    fn note_message(&mut self, content: &Content) {
        if content.from != self.poster_host || self.message.is_some() {
            return;
        }
        let Some(message) = self.begun.checked_sub(1) else {
            return;
        };
        self.message = Some(message);
        let posted = self.posts.iter().find(|(number, _)| *number == message);
        if let Some((_, at)) = posted.copied() {
            let place = LifePlace::Host(self.poster_host);
            self.push(at, place, LifeEvent::Posted { message }, None);
        }
    }

    /// The port that sends into a lane, which packets of the queue pair use in this class.
    fn port(&mut self, lane: u32, info: &LinkDirection, class: u8) -> &mut WatchedPort {
        let port = self.ports.entry(lane).or_insert_with(|| WatchedPort {
            place: LifePlace::Port(info.link, info.direction),
            classes: 0,
            paused: [None; CLASSES],
        });
        port.classes |= 1 << (class % CLASSES as u8);
        port
    }

    /// Whether the port of the poster's host is still to be watched: pauses before the first packet belong to
    /// the life of the queue pair.
    pub(super) fn lacks_port(&self, host: u32, lane: u32) -> bool {
        host == self.poster_host && !self.ports.contains_key(&lane)
    }

    /// Watches the port that sends into a lane, in this class.
    pub(super) fn watch_port(&mut self, lane: u32, info: &LinkDirection, class: u8) {
        self.port(lane, info, class);
    }

    /// A packet is on its way, and arrives at `at`.
    pub(super) fn under_way(&mut self, id: PacketId, content: &Content, at: Time, packet: &Packet) {
        if self.is_watched(content) {
            let under_way = UnderWay {
                at,
                is_marked: packet.is_marked(),
                is_trimmed: packet.kind.is_trimmed(),
            };
            self.arrivals.insert(id.0, under_way);
        }
    }

    /// A packet is put behind others.
    pub(super) fn queued(
        &mut self,
        lane: u32,
        info: &LinkDirection,
        content: &Content,
        id: PacketId,
        egress: &Egress,
        packet: &Packet,
    ) {
        if !self.is_watched(content) {
            return;
        }
        let now = self.now;
        let class = usize::from(packet.class()) % CLASSES;
        let until = egress.paused_until(class).filter(|until| *until > now);
        let port = self.port(lane, info, packet.class());
        let place = port.place;
        if let Some(until) = until {
            // It was stopped before a packet of the queue pair came by.
            port.paused[class].get_or_insert((now, until));
        }
        let was_trimmed = self
            .arrivals
            .get(&id.0)
            .is_some_and(|before| before.is_trimmed);
        if packet.kind.is_trimmed() && !was_trimmed {
            let to_bytes = u32::from(packet.length);
            self.push(now, place, LifeEvent::Trimmed { to_bytes }, Some(content));
        }
        let event = LifeEvent::Enqueued {
            ahead_bytes: egress.queue_bytes(class),
            is_paused: until.is_some(),
        };
        self.push(now, place, event, Some(content));
    }

    /// A packet does not arrive: lost on a link, or dropped by the node that sends into it, where it came by
    /// the same link.
    pub(super) fn lost(
        &mut self,
        info: &LinkDirection,
        id: PacketId,
        content: &Content,
        at: Time,
        loss: Loss,
    ) {
        if self.is_watched(content) {
            self.arrivals.remove(&id.0);
            let place = LifePlace::Port(info.link, info.direction);
            self.push(at, place, LifeEvent::Lost(loss), Some(content));
        }
    }

    /// A packet arrives at a host.
    pub(super) fn arrives(&mut self, host: u32, id: PacketId, content: &Content, packet: &Packet) {
        if content.flow != self.traced.flow {
            return;
        }
        self.arrivals.remove(&id.0);
        if self.is_watched(content) || self.answers(host, content) {
            let place = LifePlace::Host(host);
            let event = LifeEvent::Arrived {
                marked: packet.is_marked(),
                trimmed: packet.kind.is_trimmed(),
            };
            self.push(self.now, place, event, Some(content));
        }
    }

    /// Whether an answer tells the sender of the watched packet what became of it: the first acknowledgement
    /// that covers it, and negative ones for it.
    fn answers(&mut self, host: u32, content: &Content) -> bool {
        let Some(psn) = self.traced.psn else {
            return false;
        };
        if host != self.poster_host || self.message.is_none() || self.is_acknowledged {
            return false;
        }
        let headers = match &content.headers {
            TransportHeaders::Roce(headers) => headers,
            TransportHeaders::Uet(Header::Ack(sack)) => {
                self.is_acknowledged = sack.covers(u64::from(psn));
                return self.is_acknowledged;
            }
            TransportHeaders::Uet(Header::Nack { psn: trimmed, .. }) => {
                return *trimmed == u64::from(psn);
            }
            TransportHeaders::Uet(_) => return false,
        };
        let Message::Acknowledge(aeth) = headers.message else {
            return false;
        };
        let ahead = headers.psn.distance_from(Psn::new(psn));
        match aeth.syndrome {
            Syndrome::Ack(_) => {
                self.is_acknowledged = ahead >= 0;
                self.is_acknowledged
            }
            _ => ahead == 0,
        }
    }

    /// The place of the watched queue pair among the posters of a host, where it posts there.
    pub(super) fn poster_at(&self, host: u32) -> Option<usize> {
        (host == self.poster_host).then_some(self.poster)
    }

    /// The watched queue pair's program has posted and completed so many messages, and may have failed.
    pub(super) fn look(&mut self, posted: u64, completed: u64, failed: bool) {
        let (place, now) = (LifePlace::Host(self.poster_host), self.now);
        for message in self.posted..posted {
            match self.traced.psn {
                None => self.push(now, place, LifeEvent::Posted { message }, None),
                Some(_) => self.posts.push_back((message, now)),
            }
        }
        for message in self.completed..completed {
            while self.posts.front().is_some_and(|first| first.0 <= message) {
                self.posts.pop_front();
            }
            if self.traced.psn.is_none() || self.message == Some(message) {
                self.push(now, place, LifeEvent::Completed { message }, None);
            }
        }
        if failed && !self.failed {
            self.push(now, place, LifeEvent::Failed, None);
        }
        (self.posted, self.completed, self.failed) = (posted, completed, failed);
    }

    /// The port that sends into `lane` got Xoff or Xon.
    pub(super) fn pause_changed(&mut self, lane: u32, now: Time, egress: &Egress) {
        let Some(port) = self.ports.get_mut(&lane) else {
            return;
        };
        let (place, classes) = (port.place, port.classes);
        let mut changes = Vec::new();
        for class in (0..CLASSES).filter(|class| classes >> class & 1 == 1) {
            let until = egress.paused_until(class).filter(|until| *until > now);
            let paused = &mut port.paused[class];
            let number = class as u8;
            if let Some((since, ran_out)) = paused.filter(|(_, end)| *end <= now) {
                let after = ran_out - since;
                let event = LifeEvent::Resumed {
                    class: number,
                    after,
                };
                changes.push((ran_out, event));
                *paused = None;
            }
            match (until, *paused) {
                (Some(until), Some((since, _))) => *paused = Some((since, until)),
                (Some(until), None) => {
                    *paused = Some((now, until));
                    changes.push((now, LifeEvent::Paused { class: number }));
                }
                (None, Some((since, _))) => {
                    *paused = None;
                    let after = now - since;
                    let event = LifeEvent::Resumed {
                        class: number,
                        after,
                    };
                    changes.push((now, event));
                }
                (None, None) => {}
            }
        }
        for (at, event) in changes {
            self.push(at, place, event, None);
        }
    }
}

/// The records of all parts, in order of time; at one moment hosts come first, and each node's are in its own
/// order, so that threads do not show.
pub(super) fn merge<'a>(journals: impl Iterator<Item = &'a Journal>) -> Option<Life> {
    let mut life: Option<Life> = None;
    for journal in journals {
        let life = life.get_or_insert(Life {
            traced: journal.traced,
            records: Vec::new(),
            left_out: 0,
        });
        life.records.extend(&journal.records);
        life.left_out += journal.left_out;
    }
    let mut life = life?;
    life.left_out += keep_first(&mut life.records);
    keep_own_pauses(&mut life.records, life.traced.psn.is_some());
    Some(life)
}

/// Drops pauses before the first event of the queue pair, or of one packet, and after the last event of that.
fn keep_own_pauses(records: &mut Vec<LifeRecord>, is_of_packet: bool) {
    let is_own = |record: &LifeRecord| !record.is_of_pause();
    if is_of_packet {
        let end = records.iter().rposition(is_own).map_or(0, |last| last + 1);
        records.truncate(end);
    }
    let first = records.iter().position(is_own).unwrap_or(records.len());
    records.drain(..first);
}

/// Keeps the records of the earliest events, in order of time; returns how many were dropped.
fn keep_first(records: &mut Vec<LifeRecord>) -> u64 {
    records.sort_by_key(|record| (record.at, record.place));
    let more = records.len().saturating_sub(LIFE_MAX);
    records.truncate(LIFE_MAX);
    more as u64
}
