//! Queue pairs, their requests, and registered memory, as a trace tells of them.

use crate::event::Event;
use crate::explain::mistake::{Finding, Mistake};
use crate::kind::Kind;
use std::collections::{HashMap, HashSet, VecDeque};

/// A queue pair: its process, and its number.
pub(super) type QpKey = (u32, u64);

/// Completions of receives have this bit in their opcode.
const RECEIVE_BIT: u64 = 128;
pub(super) const RESET: u64 = 0;
/// Types of queue pairs.
pub(super) const UC: u64 = 3;
pub(super) const UD: u64 = 4;
pub(super) const ERROR: u64 = 6;

/// A request that has no completion yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// The number of its event.
    pub(super) event: usize,
    pub(super) wr_id: u64,
    pub(super) opcode: u64,
    pub(super) length: u64,
    pub(super) address: u64,
    pub(super) lkey: Option<u64>,
    pub(super) remote: u64,
    pub(super) rkey: Option<u64>,
    pub(super) elements: u64,
    pub(super) signaled: bool,
}

impl Request {
    fn of(number: usize, event: &Event<'_>, signal_all: bool) -> Self {
        Self {
            event: number,
            wr_id: event.number("wr_id"),
            opcode: event.number("opcode"),
            length: event.number("length"),
            address: event.number("address"),
            lkey: event.field("lkey"),
            remote: event.number("remote"),
            rkey: event.field("rkey"),
            elements: event.number("elements"),
            signaled: signal_all || event.number("flags") & 2 != 0,
        }
    }

    /// Whether it consumes a receive of the peer: SEND of all forms, and WRITE with immediate data.
    pub(super) const fn needs_receive(&self) -> bool {
        matches!(self.opcode, 1..=3 | 9)
    }
}

/// A queue pair.
#[derive(Clone, Default, Debug)]
pub(super) struct Qp {
    pub(super) kind: u64,
    pub(super) signal_all: bool,
    pub(super) state: u64,
    /// The event that gave it its access flags.
    pub(super) access: Option<(usize, u64)>,
    /// The event that connected it.
    pub(super) connected: Option<usize>,
    pub(super) mtu: Option<u64>,
    pub(super) peer: Option<u64>,
    pub(super) receive_psn: Option<u64>,
    pub(super) send_psn: Option<u64>,
    /// The addresses of the peer and of its own.
    pub(super) addresses: Option<(String, String)>,
    /// The shared receive queue that it takes receives of.
    pub(super) srq: Option<u64>,
    pub(super) qkey: Option<u64>,
    pub(super) sends: VecDeque<Request>,
    pub(super) receives: VecDeque<Request>,
    /// Requests that were posted since its creation: those that consume a receive, and receives.
    pub(super) messages: u64,
    pub(super) receives_posted: u64,
    /// Completions of send requests that were polled.
    pub(super) polled: u64,
    /// Messages that came: completions of receives without an error.
    pub(super) arrived: u64,
}

impl Qp {
    /// Whether what does not arrive is lost without an error: UC and UD.
    pub(super) const fn is_unreliable(&self) -> bool {
        matches!(self.kind, UC | UD)
    }
}

/// A shared receive queue.
#[derive(Clone, Default, Debug)]
pub(super) struct Srq {
    pub(super) receives: VecDeque<Request>,
    pub(super) posted: u64,
}

/// Datagrams, and messages of UC, to one queue pair number.
#[derive(Clone, Default, Debug)]
pub(super) struct Datagrams {
    pub(super) count: u64,
    /// The first of them.
    pub(super) first: Vec<Datagram>,
    /// The last one that was sent before its receive was posted.
    pub(super) early: Option<Early>,
}

/// A message of UC that was sent before its receive was posted: it is lost if it arrives before it too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Early {
    /// The number of its event.
    pub(super) event: usize,
    /// Which one it was of those to its queue pair, and how many receives that had posted.
    pub(super) message: u64,
    pub(super) posted: u64,
}

impl Datagrams {
    /// The bytes of the longest one of the first.
    pub(super) fn longest(&self) -> u64 {
        let lengths = self.first.iter().map(|one| one.length);
        lengths.max().unwrap_or(0)
    }
}

/// A datagram that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datagram {
    /// The number of its event.
    pub(super) event: usize,
    pub(super) sender: QpKey,
    pub(super) length: u64,
    pub(super) ah: u64,
    pub(super) qkey: u64,
}

/// How many datagrams to a queue pair are kept: programs make a mistake with the first one.
const DATAGRAMS_MAX: usize = 64;

/// Where datagrams by an address handle go.
#[derive(Clone, Debug)]
pub(super) struct AddressHandle {
    /// The number of the event that made it.
    pub(super) event: usize,
    pub(super) to: String,
}

/// Memory that a program has registered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    /// The number of the event that registered it.
    pub(super) event: usize,
    pub(super) process: u32,
    pub(super) begin: u64,
    pub(super) length: u64,
    pub(super) access: u64,
    /// The number of the event that deregistered it.
    pub(super) ended: Option<usize>,
}

impl Region {
    /// Whether the region has all of these bytes.
    pub(super) const fn has(&self, address: u64, length: u64) -> bool {
        address >= self.begin
            && address - self.begin <= self.length
            && length <= self.length - (address - self.begin)
    }
}

/// All that is known at an event.
#[derive(Default, Debug)]
pub(super) struct Ends {
    qps: HashMap<QpKey, Qp>,
    /// By process and lkey: the last one that had it.
    local: HashMap<(u32, u64), Region>,
    /// By rkey: the last one of each process that had it.
    remote: HashMap<u64, Vec<Region>>,
    srqs: HashMap<(u32, u64), Srq>,
    /// By the number of the queue pair that they are for.
    datagrams: HashMap<u64, Datagrams>,
    /// By the number of a queue pair: the receives that were posted to it.
    posted: HashMap<u64, u64>,
    handles: HashMap<(u32, u64), AddressHandle>,
    /// Own addresses that processes have used.
    addresses: HashMap<u32, HashSet<String>>,
    findings: Vec<Finding>,
    /// What was reported of each queue pair.
    reported: HashSet<(QpKey, Mistake)>,
}

/// The queue pair of an event.
pub(super) fn key(event: &Event<'_>) -> QpKey {
    (event.process, event.number("qpn"))
}

impl Ends {
    pub(super) fn qp(&self, key: QpKey) -> Option<&Qp> {
        self.qps.get(&key)
    }

    pub(super) fn qps(&self) -> impl Iterator<Item = (QpKey, &Qp)> {
        self.qps.iter().map(|(key, qp)| (*key, qp))
    }

    /// The queue pair at the other end, if it is in the trace: it has the number that this one sends to, and
    /// sends to this one or to none.
    pub(super) fn peer(&self, key: QpKey) -> Option<(QpKey, &Qp)> {
        let peer = self.qp(key)?.peer?;
        let mut found = self
            .qps()
            .filter(|((_, qpn), qp)| *qpn == peer && qp.peer.is_none_or(|back| back == key.1));
        let first = found.next()?;
        // Two machines may have the same numbers: then which one it is, is not known.
        found.next().is_none().then_some(first)
    }

    /// The shared receive queue of a queue pair.
    pub(super) fn srq(&self, of: QpKey) -> Option<&Srq> {
        let number = self.qp(of)?.srq?;
        self.srqs.get(&(of.0, number))
    }

    /// The receives that messages to a queue pair take, and how many were posted.
    pub(super) fn receives(&self, of: QpKey) -> Option<(&VecDeque<Request>, u64)> {
        let qp = self.qp(of)?;
        match qp.srq {
            None => Some((&qp.receives, qp.receives_posted)),
            // Receives of an SRQ are also used by other queue pairs.
            Some(_) => self.srq(of).map(|srq| (&srq.receives, srq.posted)),
        }
    }

    pub(super) fn datagrams_to(&self, qpn: u64) -> Option<&Datagrams> {
        self.datagrams.get(&qpn)
    }

    pub(super) fn handle(&self, process: u32, ah: u64) -> Option<&AddressHandle> {
        self.handles.get(&(process, ah))
    }

    /// Own addresses that a process has used.
    pub(super) fn addresses(&self, process: u32) -> Option<&HashSet<String>> {
        self.addresses.get(&process)
    }

    fn note_address(&mut self, process: u32, address: &str) {
        let known = self.addresses.entry(process).or_default();
        known.insert(address.to_owned());
    }

    /// An address handle was made.
    pub(super) fn handle_made(&mut self, number: usize, event: &Event<'_>) {
        let Some((to, own)) = event.text.split_once(' ') else {
            return;
        };
        self.note_address(event.process, own);
        let handle = AddressHandle {
            event: number,
            to: to.to_owned(),
        };
        self.handles
            .insert((event.process, event.number("ah")), handle);
    }

    pub(super) fn local_region(&self, process: u32, lkey: u64) -> Option<&Region> {
        self.local.get(&(process, lkey))
    }

    /// The memory of a remote key: that of the peer's process if it is known, or of any.
    pub(super) fn remote_region(&self, process: Option<u32>, rkey: u64) -> Option<&Region> {
        let regions = self.remote.get(&rkey)?;
        let mut of_peer = regions
            .iter()
            .filter(|region| process.is_none_or(|process| region.process == process));
        of_peer.next_back()
    }

    /// Notes a mistake of a queue pair, each kind once.
    pub(super) fn report(&mut self, of: QpKey, finding: Finding) {
        if self.reported.insert((of, finding.mistake)) {
            self.findings.push(finding);
        }
    }

    pub(super) fn into_findings(self) -> Vec<Finding> {
        self.findings
    }

    pub(super) fn created(&mut self, _number: usize, event: &Event<'_>) {
        let qp = Qp {
            kind: event.number("type"),
            signal_all: event.number("signal_all") != 0,
            srq: event.field("srq"),
            ..Qp::default()
        };
        self.datagrams.remove(&event.number("qpn"));
        self.posted.remove(&event.number("qpn"));
        if qp.srq.is_none() {
            self.posted.insert(event.number("qpn"), 0);
        }
        self.qps.insert(key(event), qp);
        self.reported.retain(|(of, _)| *of != key(event));
    }

    pub(super) fn destroyed(&mut self, event: &Event<'_>) {
        self.qps.remove(&key(event));
    }

    pub(super) fn state_seen(&mut self, event: &Event<'_>) {
        if let Some(qp) = self.qps.get_mut(&key(event)) {
            qp.state = event.number("to");
        }
    }

    pub(super) fn modified(&mut self, number: usize, event: &Event<'_>) {
        if event.number("errno") != 0 {
            return;
        }
        // Queue pairs that librdmacm or a program of before the trace made are known from here on.
        let qp = self.qps.entry(key(event)).or_default();
        qp.state = event.field("to").unwrap_or(qp.state);
        if qp.state == RESET {
            qp.sends.clear();
            qp.receives.clear();
        }
        if let Some(access) = event.field("access") {
            qp.access = Some((number, access));
        }
        if let Some(peer) = event.field("peer") {
            (qp.peer, qp.connected) = (Some(peer), Some(number));
        }
        qp.mtu = event.field("mtu").or(qp.mtu);
        qp.receive_psn = event.field("rq_psn").or(qp.receive_psn);
        qp.send_psn = event.field("sq_psn").or(qp.send_psn);
        qp.qkey = event.field("qkey").or(qp.qkey);
        if let Some((peer, own)) = event.text.split_once(' ') {
            qp.addresses = Some((peer.to_owned(), own.to_owned()));
            self.note_address(event.process, own);
        }
    }

    pub(super) fn sent(&mut self, number: usize, event: &Event<'_>) {
        let Some(qp) = self.qps.get_mut(&key(event)) else {
            return;
        };
        if event.number("errno") == 0 {
            let request = Request::of(number, event, qp.signal_all);
            if request.needs_receive() {
                qp.messages += 1;
            }
            qp.sends.push_back(request);
            let is_message = request.needs_receive() && qp.is_unreliable();
            let to = event.field("remote_qpn").or(qp.peer);
            let is_uc = qp.kind == UC;
            if let Some(to) = to.filter(|_| is_message) {
                self.sent_datagram(number, to, event);
                if is_uc {
                    self.note_early(number, to);
                }
            }
        }
    }

    /// A datagram failed at its sender.
    fn not_sent(&mut self, number: usize) {
        for sent in self.datagrams.values_mut() {
            let before = sent.first.len();
            sent.first.retain(|one| one.event != number);
            sent.count -= (before - sent.first.len()) as u64;
        }
    }

    fn sent_datagram(&mut self, number: usize, to: u64, event: &Event<'_>) {
        let sent = self.datagrams.entry(to).or_default();
        sent.count += 1;
        if sent.first.len() < DATAGRAMS_MAX {
            sent.first.push(Datagram {
                event: number,
                sender: key(event),
                length: event.number("length"),
                ah: event.number("ah"),
                qkey: event.number("qkey"),
            });
        }
    }

    /// Notes a message of UC that was sent before its receive was posted. Nothing is known of a queue pair
    /// that is not in the trace, or takes receives of a shared queue.
    fn note_early(&mut self, number: usize, to: u64) {
        let Some(posted) = self.posted.get(&to).copied() else {
            return;
        };
        let Some(sent) = self.datagrams.get_mut(&to) else {
            return;
        };
        if posted < sent.count {
            sent.early = Some(Early {
                event: number,
                message: sent.count,
                posted,
            });
        }
    }

    pub(super) fn received(&mut self, number: usize, event: &Event<'_>) {
        if event.number("errno") != 0 {
            return;
        }
        let request = Request::of(number, event, true);
        if let Some(number) = event.field("srq") {
            let srq = self.srqs.entry((event.process, number)).or_default();
            srq.receives.push_back(request);
            srq.posted += 1;
        } else if let Some(qp) = self.qps.get_mut(&key(event)) {
            qp.receives.push_back(request);
            qp.receives_posted += 1;
            *self.posted.entry(event.number("qpn")).or_default() += 1;
        }
    }

    /// The request that a completion is about, which stays outstanding.
    pub(super) fn request_of(&self, event: &Event<'_>) -> Option<Request> {
        let qp = self.qp(key(event))?;
        let wr_id = event.number("wr_id");
        let queue = match is_receive(event) {
            true => self.receives(key(event))?.0,
            false => &qp.sends,
        };
        queue.iter().find(|request| request.wr_id == wr_id).copied()
    }

    /// A completion: its request is no more outstanding, nor are those before it in a send queue.
    pub(super) fn completed(&mut self, event: &Event<'_>) {
        let Some(qp) = self.qps.get_mut(&key(event)) else {
            return;
        };
        let wr_id = event.number("wr_id");
        if is_receive(event) {
            qp.arrived += u64::from(event.number("status") == 0);
            let shared = qp.srq.map(|number| (event.process, number));
            let receives = match shared {
                None => &mut qp.receives,
                Some(shared) => &mut self.srqs.entry(shared).or_default().receives,
            };
            let place = receives.iter().position(|it| it.wr_id == wr_id);
            place.map(|place| receives.remove(place));
            return;
        }
        qp.polled += 1;
        let is_it =
            |it: &Request| it.wr_id == wr_id && (it.signaled || event.number("status") != 0);
        let Some(place) = qp.sends.iter().position(is_it) else {
            return;
        };
        let last = qp.sends.drain(..=place).next_back();
        if let Some(request) = last.filter(|_| event.number("status") != 0) {
            self.not_sent(request.event);
        }
    }

    pub(super) fn registered(&mut self, number: usize, event: &Event<'_>) {
        let (Some(lkey), Some(rkey)) = (event.field("lkey"), event.field("rkey")) else {
            return;
        };
        let region = Region {
            event: number,
            process: event.process,
            begin: event.number("iova"),
            length: event.number("length"),
            // Flags that are not known allow everything.
            access: event.field("access").unwrap_or(u64::MAX),
            ended: None,
        };
        self.local.insert((event.process, lkey), region);
        let of_key = self.remote.entry(rkey).or_default();
        of_key.retain(|known| known.process != event.process);
        of_key.push(region);
    }

    pub(super) fn deregistered(&mut self, number: usize, event: &Event<'_>) {
        if event.number("errno") != 0 {
            return;
        }
        let process = event.process;
        if let Some(region) = self.local.get_mut(&(process, event.number("lkey"))) {
            region.ended = Some(number);
        }
        let of_key = self.remote.get_mut(&event.number("rkey")).into_iter();
        of_key
            .flatten()
            .filter(|region| region.process == process)
            .for_each(|region| region.ended = Some(number));
    }
}

/// Whether a completion is one of a receive queue.
pub(super) fn is_receive(event: &Event<'_>) -> bool {
    event.kind == Kind::Completion && event.number("opcode") & RECEIVE_BIT != 0
}
