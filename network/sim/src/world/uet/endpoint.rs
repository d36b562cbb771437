//! The transport of one host: senders that take turns at the port, receivers, and timers.

use super::credits::Pacer;
use super::receiver::{Arrived, Receiver};
use super::sender::{Outgoing, Sender, Timer};
use super::{Header, UetConfig};
use fabric::{Pcg32, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// A packet that arrived.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) struct Incoming {
    pub(in crate::world) flow: u32,
    pub(in crate::world) header: Header,
    pub(in crate::world) payload: u32,
    pub(in crate::world) is_marked: bool,
    /// A switch has cut it to its headers, the last one on the path or another.
    pub(in crate::world) is_trimmed: bool,
    pub(in crate::world) at_last_hop: bool,
}

/// What a packet causes.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::world) struct Answer {
    /// A packet in return.
    pub(in crate::world) packet: Option<Outgoing>,
    /// Bytes that are in memory for the first time.
    pub(in crate::world) delivered: u32,
    /// Messages of the flow that are complete with it.
    pub(in crate::world) complete: u32,
}

/// The counters of a flow at its sender.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(in crate::world) struct SenderCounters {
    /// Packets that were sent again.
    pub(in crate::world) repeated: u64,
    /// Packets that the receiver asked for because they were trimmed.
    pub(in crate::world) trimmed: u64,
    /// Packets that were lost without a trace.
    pub(in crate::world) timeouts: u64,
}

/// The state of one host.
#[derive(Debug)]
pub(in crate::world) struct Endpoint {
    config: UetConfig,
    senders: Vec<Sender>,
    sender_of_flow: BTreeMap<u32, u32>,
    /// Senders that may send, in turn.
    ready: VecDeque<u32>,
    /// The receivers of flows that end here, with the host that each comes from.
    receivers: BTreeMap<u32, (u32, Receiver)>,
    pacer: Option<Pacer>,
    timers: BinaryHeap<Reverse<(Time, u32)>>,
}

impl Endpoint {
    pub(in crate::world) fn new(config: UetConfig) -> Self {
        let network = config.network;
        Self {
            config,
            senders: Vec::new(),
            sender_of_flow: BTreeMap::new(),
            ready: VecDeque::new(),
            receivers: BTreeMap::new(),
            pacer: config
                .rccc
                .then(|| Pacer::new(network.line_bps, network.packet)),
            timers: BinaryHeap::new(),
        }
    }

    /// A flow begins here.
    pub(in crate::world) fn add_sender(&mut self, flow: u32, to: u32, random: Pcg32) {
        self.sender_of_flow.insert(flow, self.senders.len() as u32);
        self.senders
            .push(Sender::new(flow, to, self.config, random));
    }

    /// A flow ends here.
    pub(in crate::world) fn add_receiver(&mut self, flow: u32, from: u32) {
        self.receivers.insert(flow, (from, Receiver::default()));
    }

    /// A message of a flow is to be sent.
    pub(in crate::world) fn post(&mut self, flow: u32, bytes: u64) {
        if let Some(sender) = self.sender_of_flow.get(&flow).copied() {
            self.senders[sender as usize].post(bytes);
            self.settle_sender(sender);
        }
    }

    /// Lets a sender take turns if it may send.
    fn settle_sender(&mut self, sender: u32) {
        let own = &mut self.senders[sender as usize];
        if !own.is_ready && own.may_send() {
            own.is_ready = true;
            self.ready.push_back(sender);
        }
    }

    /// Whether any sender may have a packet.
    pub(in crate::world) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The flow whose turn it is: its number.
    pub(in crate::world) fn turn(&self) -> Option<u32> {
        let sender = self.ready.front()?;
        Some(self.senders[*sender as usize].flow())
    }

    /// How many flows wait for their turn.
    pub(in crate::world) fn waiting(&self) -> usize {
        self.ready.len()
    }

    /// Passes the turn on.
    pub(in crate::world) fn pass(&mut self) {
        self.ready.rotate_left(1);
    }

    /// Takes the packet of the flow whose turn it is; none if it may not send after all.
    pub(in crate::world) fn send(&mut self, now: Time) -> Option<Outgoing> {
        let number = self.ready.pop_front()?;
        let sender = &mut self.senders[number as usize];
        sender.is_ready = false;
        let had_timer = sender.timer.is_some();
        let packet = sender.may_send().then(|| sender.send(now)).flatten();
        if let Some(at) = sender.timer.filter(|_| !had_timer) {
            self.timers.push(Reverse((at, number)));
        }
        self.settle_sender(number);
        packet
    }

    /// Takes a packet.
    pub(in crate::world) fn take(&mut self, now: Time, packet: &Incoming) -> Answer {
        let Header::Data {
            psn,
            sent_at,
            entropy,
            asks,
            wanted,
            ..
        } = packet.header
        else {
            return self.take_answer(now, packet);
        };
        let arrived = Arrived {
            psn,
            sent_at,
            entropy,
            asks,
            is_marked: packet.is_marked,
            payload: packet.payload,
        };
        let Some((from, receiver)) = self.receivers.get_mut(&packet.flow) else {
            return Answer::default();
        };
        let (is_new, header) = match packet.is_trimmed {
            true => (
                false,
                Some(receiver.take_trimmed(&arrived, packet.at_last_hop)),
            ),
            false => receiver.take(&arrived, self.config.ack_bytes),
        };
        if let Some(pacer) = &mut self.pacer {
            let had_all = receiver.granted >= receiver.wanted;
            // What was trimmed is sent again, and may be all that the sender still wants.
            if matches!(header, Some(Header::Nack { .. })) {
                let network = self.config.network;
                receiver.wanted += u64::from(packet.payload + network.packet - network.payload);
            }
            receiver.wanted = receiver.wanted.max(wanted);
            if had_all && receiver.wanted > receiver.granted {
                pacer.join(packet.flow);
            }
        }
        let to = *from;
        Answer {
            packet: header.map(|header| control(packet.flow, to, header, entropy)),
            delivered: if is_new { packet.payload } else { 0 },
            complete: 0,
        }
    }

    /// Takes what the receiver of a flow says.
    fn take_answer(&mut self, now: Time, packet: &Incoming) -> Answer {
        let Some(number) = self.sender_of_flow.get(&packet.flow).copied() else {
            return Answer::default();
        };
        let sender = &mut self.senders[number as usize];
        let mut complete = 0;
        match packet.header {
            Header::Ack(ack) => complete = sender.on_ack(now, &ack),
            Header::Nack {
                psn,
                sent_at,
                entropy,
                at_last_hop,
            } => sender.on_nack(now, psn, sent_at, entropy, at_last_hop),
            Header::Credit { granted } => sender.on_credit(now, granted),
            Header::Data { .. } => {}
        }
        self.settle_sender(number);
        Answer {
            complete,
            ..Answer::default()
        }
    }

    /// When it has to be called, whatever arrives.
    pub(in crate::world) fn next_at(&self) -> Time {
        let timer = self
            .timers
            .peek()
            .map_or(Time::NEVER, |Reverse((at, _))| *at);
        let grant = self.pacer.as_ref().and_then(Pacer::next_at);
        timer.min(grant.unwrap_or(Time::NEVER))
    }

    /// Handles timers that are due; the flow that has failed, if one has. It is called until there is none.
    pub(in crate::world) fn expire(&mut self, now: Time) -> Option<u32> {
        while let Some(Reverse((at, number))) = self.timers.peek().copied() {
            if at > now {
                break;
            }
            self.timers.pop();
            let sender = &mut self.senders[number as usize];
            match sender.on_timer(now) {
                Timer::At(at) => self.timers.push(Reverse((at, number))),
                Timer::Off => {}
                Timer::Failed => return Some(sender.flow()),
            }
            self.settle_sender(number);
        }
        None
    }

    /// The grant that is due, if there is one. It is called until there is none.
    pub(in crate::world) fn grant(&mut self, now: Time) -> Option<Outgoing> {
        let pacer = self.pacer.as_mut()?;
        let flow = pacer.turn(now)?;
        let (to, receiver) = self.receivers.get_mut(&flow)?;
        let wanted = receiver.wanted.saturating_sub(receiver.granted);
        receiver.granted += pacer.grant(now, flow, wanted);
        let header = Header::Credit {
            granted: receiver.granted,
        };
        // Any path will do: credits are few and small.
        Some(control(flow, *to, header, receiver.granted as u16))
    }

    /// The counters of a flow that begins here.
    pub(in crate::world) fn counters(&self, flow: u32) -> SenderCounters {
        let sender = self.sender_of_flow.get(&flow);
        let sender = sender.map(|number| &self.senders[*number as usize]);
        sender.map_or_else(SenderCounters::default, |sender| SenderCounters {
            repeated: sender.repeated,
            trimmed: sender.trimmed,
            timeouts: sender.timeouts,
        })
    }

    /// Bytes that its senders sent without a grant, for tests.
    #[cfg(test)]
    pub(super) fn without_grant(&self) -> u64 {
        self.senders.iter().map(Sender::without_grant).sum()
    }

    /// Checks what is to hold of its senders and of the credit that it has granted, for tests.
    #[cfg(test)]
    pub(super) fn check_senders(&self) {
        self.senders.iter().for_each(Sender::check_sums);
        for (_, receiver) in self.receivers.values() {
            assert!(receiver.granted <= receiver.wanted);
        }
    }
}

/// A packet without payload.
const fn control(flow: u32, to: u32, header: Header, entropy: u16) -> Outgoing {
    Outgoing {
        flow,
        to,
        header,
        payload: 0,
        entropy,
    }
}
