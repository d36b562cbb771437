//! The sender of a flow: what is under way, what is to be sent again, and how much more may leave.

use super::entropy::{Entropy, Fate};
use super::nscc::Nscc;
use super::{Header, Sack, UetConfig};
use fabric::{Pcg32, Span, Time};
use std::collections::VecDeque;

/// Timeouts in which a sender without credit hears nothing until it takes a grant for lost: a receiver of
/// many senders grants each its part when its turn comes.
const SILENCE: u64 = 16;

/// A packet that leaves.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) struct Outgoing {
    pub(in crate::world) flow: u32,
    pub(in crate::world) to: u32,
    pub(in crate::world) header: Header,
    pub(in crate::world) payload: u32,
    pub(in crate::world) entropy: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    UnderWay,
    /// It is to be sent again.
    Lost,
    Arrived,
}

/// A packet from the oldest on that has not arrived.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Time,
    payload: u32,
    entropy: u16,
    timeouts: u8,
    state: State,
}

/// A message: the PSNs of its packets, and its bytes.
#[derive(Clone, Copy, Debug)]
struct Message {
    first: u64,
    end: u64,
    bytes: u64,
}

/// Credit of RCCC: bytes, since the beginning.
#[derive(Clone, Copy, Debug)]
struct Credit {
    /// The first window, which needs no grant.
    first: u64,
    granted: u64,
    /// Packets that were lost without a trace are sent again without a grant.
    owed: u64,
    /// What left ahead of its grant, because nothing was heard.
    borrowed: u64,
    used: u64,
    /// The next packet may leave ahead of its grant.
    may_borrow: bool,
}

impl Credit {
    const fn left(&self) -> u64 {
        (self.first + self.granted + self.owed).saturating_sub(self.used)
    }

    const fn allows(&self, bytes: u64) -> bool {
        self.may_borrow || self.left() >= bytes
    }

    /// A packet leaves that is allowed.
    fn spend(&mut self, bytes: u64) {
        self.borrowed += bytes.saturating_sub(self.left());
        self.used += bytes;
        self.may_borrow = false;
    }
}

/// The sender is to be called at a later time, or gives up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Timer {
    At(Time),
    Off,
    Failed,
}

/// The state of one flow.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    flow: u32,
    to: u32,
    config: UetConfig,
    /// Bytes of a packet on a link besides its payload.
    overhead: u32,
    messages: VecDeque<Message>,
    /// The oldest packet that has not arrived, the first that was never sent, and the first behind messages.
    oldest: u64,
    next: u64,
    end: u64,
    sent: VecDeque<Sent>,
    again: VecDeque<u64>,
    /// Bytes on links: under way, to be sent for the first time, and to be sent again.
    in_flight: u64,
    unsent: u64,
    to_repeat: u64,
    nscc: Option<Nscc>,
    credit: Option<Credit>,
    entropy: Entropy,
    /// When the receiver said anything last.
    heard_at: Time,
    /// When it wants to be called.
    pub(super) timer: Option<Time>,
    /// It is among those that may send.
    pub(super) is_ready: bool,
    failed: bool,
    /// Packets that were sent again, asked for because they were trimmed, and lost without a trace.
    pub(super) repeated: u64,
    pub(super) trimmed: u64,
    pub(super) timeouts: u64,
}

impl Sender {
    pub(super) fn new(flow: u32, to: u32, config: UetConfig, random: Pcg32) -> Self {
        let first = config.network.largest_window(config.network.base_rtt);
        Self {
            flow,
            to,
            config,
            overhead: config.network.packet - config.network.payload,
            messages: VecDeque::new(),
            oldest: 0,
            next: 0,
            end: 0,
            sent: VecDeque::new(),
            again: VecDeque::new(),
            in_flight: 0,
            unsent: 0,
            to_repeat: 0,
            nscc: config.nscc.then(|| Nscc::new(config.network)),
            credit: config.rccc.then_some(Credit {
                first,
                granted: 0,
                owed: 0,
                borrowed: 0,
                used: 0,
                may_borrow: false,
            }),
            entropy: Entropy::new(config.entropy, config.values, random),
            heard_at: Time(0),
            timer: None,
            is_ready: false,
            failed: false,
            repeated: 0,
            trimmed: 0,
            timeouts: 0,
        }
    }

    pub(super) const fn flow(&self) -> u32 {
        self.flow
    }

    /// A message is to be sent.
    pub(super) fn post(&mut self, bytes: u64) {
        let packets = bytes
            .div_ceil(u64::from(self.config.network.payload))
            .max(1);
        let first = self.end;
        self.end += packets;
        self.messages.push_back(Message {
            first,
            end: self.end,
            bytes,
        });
        self.unsent += bytes + packets * u64::from(self.overhead);
        if self.in_flight == 0 && !self.may_send() {
            self.ask_for_credit();
        }
    }

    /// Bytes that may be under way.
    pub(super) fn window(&self) -> u64 {
        self.nscc.as_ref().map_or(self.config.window, Nscc::window)
    }

    const fn on_link(&self, payload: u32) -> u64 {
        (payload + self.overhead) as u64
    }

    /// The payload of a packet that was not sent before.
    fn payload_of(&self, psn: u64) -> u32 {
        let index = self.messages.partition_point(|message| message.end <= psn);
        let full = u64::from(self.config.network.payload);
        let left = |message: &Message| message.bytes - (psn - message.first) * full;
        self.messages
            .get(index)
            .map_or(0, |message| left(message).min(full) as u32)
    }

    /// Whether the packet that has just left is to be acknowledged at once: no other may follow, or the
    /// window is too small for the receiver to acknowledge without being asked (Ultra Ethernet 1.0, section
    /// 3.6.13.5).
    fn needs_answer(&self) -> bool {
        let window = self.nscc.as_ref().map_or(u64::MAX, Nscc::window);
        window < u64::from(self.config.ack_bytes) || !self.may_send()
    }

    /// Whether a packet is the first of a message.
    fn starts_message(&self, psn: u64) -> bool {
        let index = self.messages.partition_point(|message| message.end <= psn);
        self.messages
            .get(index)
            .is_some_and(|message| message.first == psn)
    }

    /// The packet that leaves next, if there is any.
    fn candidate(&self) -> Option<(u64, u32)> {
        if let Some(psn) = self.again.front() {
            return Some((*psn, self.sent[(psn - self.oldest) as usize].payload));
        }
        (self.next < self.end).then(|| (self.next, self.payload_of(self.next)))
    }

    /// Whether a packet may leave.
    pub(super) fn may_send(&self) -> bool {
        let Some((_, payload)) = self.candidate().filter(|_| !self.failed) else {
            return false;
        };
        let bytes = self.on_link(payload);
        let fits = self.in_flight == 0 || self.in_flight + bytes <= self.window();
        fits && self.credit.is_none_or(|credit| credit.allows(bytes))
    }

    /// Takes the packet that leaves now; [`Self::may_send`] has said so.
    pub(super) fn send(&mut self, now: Time) -> Option<Outgoing> {
        let (psn, payload) = self.candidate()?;
        let bytes = self.on_link(payload);
        let entropy = self.entropy.next(now);
        let mut sent = Sent {
            at: now,
            payload,
            entropy,
            timeouts: 0,
            state: State::UnderWay,
        };
        let repeats = self.again.pop_front().is_some();
        if repeats {
            let before = &mut self.sent[(psn - self.oldest) as usize];
            sent.timeouts = before.timeouts;
            *before = sent;
            self.to_repeat -= bytes;
            self.repeated += 1;
        } else {
            self.sent.push_back(sent);
            self.next += 1;
            self.unsent -= bytes;
        }
        self.in_flight += bytes;
        let wanted = self.credit.as_mut().map_or(0, |credit| {
            credit.spend(bytes);
            (credit.used + self.unsent + self.to_repeat).saturating_sub(credit.first + credit.owed)
        });
        if self.timer.is_none() {
            self.timer = Some(self.deadline(&sent));
        }
        Some(Outgoing {
            flow: self.flow,
            to: self.to,
            header: Header::Data {
                psn,
                sent_at: now,
                entropy,
                asks: repeats || self.needs_answer(),
                starts: self.starts_message(psn),
                wanted,
            },
            payload,
            entropy,
        })
    }

    fn deadline(&self, sent: &Sent) -> Time {
        sent.at
            + Span(
                self.config
                    .timeout
                    .0
                    .saturating_mul(1 << sent.timeouts.min(32)),
            )
    }

    /// An acknowledgement came. Returns how many messages are complete with it.
    pub(super) fn on_ack(&mut self, now: Time, ack: &Sack) -> u32 {
        self.on_credit(now, ack.granted);
        let mut acked = 0;
        while self.oldest < ack.cumulative && !self.sent.is_empty() {
            acked += self.arrived(self.oldest);
            self.drop_oldest();
        }
        for bit in (0..64).filter(|bit| ack.bitmap >> bit & 1 == 1) {
            acked += self.arrived(ack.cumulative + u64::from(ack.offset) + bit);
        }
        while self
            .sent
            .front()
            .is_some_and(|sent| sent.state == State::Arrived)
        {
            self.drop_oldest();
        }
        let fate = if ack.is_marked {
            Fate::Marked
        } else {
            Fate::Good
        };
        self.entropy.learn(ack.entropy, fate, now);
        if let Some(nscc) = &mut self.nscc {
            nscc.on_ack(now, acked, ack.is_marked, now - ack.sent_at, self.in_flight);
        }
        let mut complete = 0;
        while self
            .messages
            .front()
            .is_some_and(|message| message.end <= self.oldest)
        {
            self.messages.pop_front();
            complete += 1;
        }
        complete
    }

    /// A packet has arrived; the bytes that this acknowledges.
    fn arrived(&mut self, psn: u64) -> u64 {
        let index = psn.checked_sub(self.oldest);
        let Some(sent) = index.and_then(|index| self.sent.get_mut(index as usize)) else {
            return 0;
        };
        let was = std::mem::replace(&mut sent.state, State::Arrived);
        let bytes = u64::from(sent.payload + self.overhead);
        match was {
            State::UnderWay => self.in_flight -= bytes,
            State::Lost => {
                self.to_repeat -= bytes;
                self.again.retain(|lost| *lost != psn);
            }
            State::Arrived => return 0,
        }
        bytes
    }

    fn drop_oldest(&mut self) {
        self.sent.pop_front();
        self.oldest += 1;
    }

    /// A packet was trimmed, and its receiver asks for it.
    pub(super) fn on_nack(
        &mut self,
        now: Time,
        psn: u64,
        sent_at: Time,
        entropy: u16,
        at_last_hop: bool,
    ) {
        self.heard_at = now;
        let index = psn.checked_sub(self.oldest);
        let sent = index.and_then(|index| self.sent.get(index as usize).copied());
        // Of one that was sent again meanwhile, or has arrived, it is of no interest any more.
        let Some(sent) = sent.filter(|sent| sent.state == State::UnderWay && sent.at == sent_at)
        else {
            return;
        };
        self.trimmed += 1;
        if !at_last_hop {
            self.entropy.learn(entropy, Fate::Trimmed, now);
        }
        if let Some(nscc) = &mut self.nscc {
            let bytes = u64::from(sent.payload + self.overhead);
            let stays = at_last_hop && self.config.rccc;
            nscc.on_nack(now, bytes, now - sent_at, stays, self.in_flight - bytes);
        }
        self.lose(psn);
    }

    /// A packet is to be sent again.
    fn lose(&mut self, psn: u64) {
        let sent = &mut self.sent[(psn - self.oldest) as usize];
        sent.state = State::Lost;
        let bytes = u64::from(sent.payload + self.overhead);
        self.in_flight -= bytes;
        self.to_repeat += bytes;
        self.again.push_back(psn);
    }

    /// The receiver says how much credit it has granted so far.
    pub(super) fn on_credit(&mut self, now: Time, granted: u64) {
        self.heard_at = now;
        if let Some(credit) = &mut self.credit {
            credit.granted = credit.granted.max(granted);
        }
    }

    /// The time of the timer has come: packets that are overdue are sent again.
    pub(super) fn on_timer(&mut self, now: Time) -> Timer {
        self.timer = None;
        if self.failed {
            return Timer::Off;
        }
        let mut next: Option<Time> = None;
        for psn in self.oldest..self.next {
            let sent = self.sent[(psn - self.oldest) as usize];
            if sent.state != State::UnderWay {
                continue;
            }
            let deadline = self.deadline(&sent);
            if deadline > now {
                next = Some(next.map_or(deadline, |next| next.min(deadline)));
                continue;
            }
            if sent.timeouts >= self.config.retries {
                self.failed = true;
                return Timer::Failed;
            }
            self.sent[(psn - self.oldest) as usize].timeouts += 1;
            self.timeouts += 1;
            self.entropy.learn(sent.entropy, Fate::Lost, now);
            let bytes = u64::from(sent.payload + self.overhead);
            if let Some(nscc) = &mut self.nscc {
                nscc.on_timeout(bytes);
            }
            if let Some(credit) = &mut self.credit {
                credit.owed += bytes;
            }
            self.lose(psn);
        }
        if self.in_flight == 0 && !self.may_send() && self.candidate().is_some() {
            // It waits for its turn among those that are granted credit, unless a grant was lost.
            let at = self.heard_at + Span(self.config.timeout.0.saturating_mul(SILENCE));
            match at > now {
                true => next = Some(at),
                false => self.ask_for_credit(),
            }
        }
        self.timer = next;
        next.map_or(Timer::Off, Timer::At)
    }

    /// Nothing is under way, and no credit comes: one packet goes ahead of its grant, says how much credit is
    /// wanted, and its acknowledgement how much there is.
    fn ask_for_credit(&mut self) {
        if let Some(credit) = &mut self.credit {
            credit.may_borrow = true;
        }
    }

    /// What went without a grant, for tests.
    #[cfg(test)]
    pub(super) fn without_grant(&self) -> u64 {
        self.credit
            .map_or(0, |credit| credit.owed + credit.borrowed)
    }

    /// What is to hold at any moment: for tests.
    #[cfg(test)]
    pub(super) fn check_sums(&self) {
        let of = |state: State| {
            let own = self.sent.iter().filter(|sent| sent.state == state);
            own.map(|sent| self.on_link(sent.payload)).sum::<u64>()
        };
        assert_eq!(self.in_flight, of(State::UnderWay));
        assert_eq!(self.to_repeat, of(State::Lost));
        assert_eq!(self.oldest + self.sent.len() as u64, self.next);
        assert!(self.next <= self.end);
        assert!(
            self.in_flight == 0 || self.timer.is_some() || self.failed,
            "what is lost would be lost for ever"
        );
        if let Some(credit) = self.credit {
            assert!(
                credit.used <= credit.first + credit.granted + credit.owed + credit.borrowed,
                "{credit:?}"
            );
        }
    }
}
