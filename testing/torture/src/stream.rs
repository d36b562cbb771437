//! One direction of a connection: its requests, and a model of their results. The model does not depend on
//! packets.

use super::arena::Slot;
use super::host::{QKEY, SharedPeer, TestHost};
use rnic::{
    Completion, CompletionKind, Data, Destination, Extra, Instant, Operation, QpType, SendFlags,
    SendRequest, Sge, Status,
};
use sim::random::RunRng;
use std::collections::{BTreeMap, VecDeque};
use wire::{Qpn, Rkey, Tail};

/// Requests of a stream that are under way at once at most.
const DEPTH: usize = 12;

/// Receives that a stream's receiver keeps posted at most.
const RECEIVES: usize = 8;

/// Bytes that a UD receive has before the payload.
const GRH: usize = 40;

/// The condition that must hold once a request has completed.
#[derive(Clone, Copy, Debug)]
enum Promise {
    /// A message is on its way to the receiver, which checks it.
    Message,
    /// The remote slot has the pattern.
    Written { remote: Slot, tag: u64 },
    /// The local slot has the pattern of the remote one.
    Read { local: Slot, tag: u64 },
    /// The local word has the value that the remote one had.
    Original { local: Slot, before: u64 },
}

#[derive(Clone, Copy, Debug)]
struct Posted {
    id: u64,
    signaled: bool,
    promise: Promise,
    kind: CompletionKind,
    place: usize,
    /// Whether the receiver of a reliable stream has a completion for it too.
    is_received: bool,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    tag: u64,
    length: usize,
    immediate: Option<[u8; 4]>,
    kind: CompletionKind,
}

/// The state of one direction.
#[derive(Debug)]
pub(super) struct Stream {
    kind: QpType,
    from: usize,
    qpn: Qpn,
    peer: Qpn,
    message_max: usize,
    posted: VecDeque<Posted>,
    /// Slots of requests under way: ours, and the peer's. The tag is the pattern of a finished WRITE's slot.
    places: Vec<(Slot, Slot, Option<u64>)>,
    free_places: Vec<usize>,
    sent: VecDeque<Sent>,
    /// Datagrams and unreliable messages may be lost or doubled: they are found by their number.
    unreliable: BTreeMap<u32, Sent>,
    receives: BTreeMap<u64, Slot>,
    spare_receives: Vec<Slot>,
    counter: Slot,
    value: u64,
    next_id: u64,
    pub(super) left: u64,
    pub(super) dead: bool,
    /// Whether the receiver gave up the other direction of the connection. What it had acknowledged before
    /// that still completes here, and the rest is never answered.
    pub(super) peer_gave_up: bool,
    pub(super) completed: u64,
    /// Whether each request that may be is executed when it is posted, as on memory that the peer shares.
    pub(super) executes: bool,
    /// Number of requests that were.
    pub(super) executed: u64,
}

/// The result of a check; the error describes the failure in a sentence.
pub(super) type Verdict = Result<(), String>;

impl Stream {
    pub(super) fn new(
        kind: QpType,
        from: usize,
        qpns: [Qpn; 2],
        message_max: usize,
        requests: u64,
        hosts: &mut [TestHost; 2],
    ) -> Self {
        let places: Vec<_> = (0..DEPTH)
            .map(|_| {
                (
                    hosts[from].allot(message_max),
                    hosts[1 - from].allot(message_max),
                    None,
                )
            })
            .collect();
        let spare_receives = (0..RECEIVES)
            .map(|_| hosts[1 - from].allot(message_max + GRH))
            .collect();
        Self {
            kind,
            from,
            qpn: qpns[from],
            peer: qpns[1 - from],
            message_max,
            posted: VecDeque::new(),
            free_places: (0..DEPTH).collect(),
            places,
            sent: VecDeque::new(),
            unreliable: BTreeMap::new(),
            receives: BTreeMap::new(),
            spare_receives,
            counter: hosts[1 - from].allot(8),
            value: 0,
            next_id: 0,
            left: requests,
            dead: false,
            peer_gave_up: false,
            completed: 0,
            executes: false,
            executed: 0,
        }
    }

    fn is_reliable(&self) -> bool {
        self.kind == QpType::Rc
    }

    /// Whether one end of the connection gave up.
    pub(super) fn is_over(&self) -> bool {
        self.dead || self.peer_gave_up
    }

    /// Whether no request is left or outstanding, or the connection is over.
    pub(super) fn is_done(&self) -> bool {
        self.is_over()
            || (self.left == 0
                && self.posted.is_empty()
                && (self.sent.is_empty() || !self.is_reliable()))
    }

    /// Whether a completion at `side` is a receive of this stream.
    pub(super) fn receives_at(&self, side: usize, qpn: Qpn) -> bool {
        side != self.from && qpn == self.peer
    }

    /// Whether a completion at `side` is a send of this stream.
    pub(super) fn sends_at(&self, side: usize, qpn: Qpn) -> bool {
        side == self.from && qpn == self.qpn
    }

    /// Posts some receives, but not always all: the sender then meets a receiver that is not ready.
    pub(super) fn post_receives(
        &mut self,
        hosts: &mut [TestHost; 2],
        rng: &mut RunRng,
        now: Instant,
    ) -> Verdict {
        let most = 1 + rng.below(RECEIVES as u64);
        for _ in 0..most {
            let Some(slot) = self.spare_receives.pop() else {
                break;
            };
            let id = self.next_id;
            self.next_id += 1;
            self.receives.insert(id, slot);
            let posted = hosts[1 - self.from].post_receive(self.peer, id, slot, now);
            posted.map_err(|error| format!("receive refused: {error}"))?;
        }
        Ok(())
    }

    /// Posts one request of a random kind.
    pub(super) fn post(
        &mut self,
        hosts: &mut [TestHost; 2],
        rng: &mut RunRng,
        now: Instant,
    ) -> Verdict {
        if self.is_over() || self.left == 0 {
            return Ok(());
        }
        let Some(place) = self.free_places.pop() else {
            return Ok(());
        };
        self.check_guard(hosts, place)?;
        self.left -= 1;
        let id = self.next_id;
        self.next_id += 1;
        let unreceived = self.sent.len();
        let plan = self.plan(hosts, rng, place, id);
        let is_received = self.sent.len() > unreceived;
        // The last one is signaled: without a completion the end of the stream would not be seen.
        let signaled = self.left == 0 || self.free_places.is_empty() || rng.per_mille(700);
        self.submit(hosts, rng, &plan, id, signaled, now)?;
        let kind = plan.kind;
        self.posted.push_back(Posted {
            id,
            signaled,
            promise: plan.promise,
            kind,
            place,
            is_received,
        });
        Ok(())
    }

    /// A slot whose WRITE completed must not have been touched since.
    fn check_guard(&mut self, hosts: &[TestHost; 2], place: usize) -> Verdict {
        let (_, remote, guard) = self.places[place];
        let Some(tag) = guard else { return Ok(()) };
        match hosts[1 - self.from].arena.blemish(remote, tag) {
            Some(at) => Err(format!(
                "byte {at} was written again after its WRITE had completed"
            )),
            None => Ok(()),
        }
    }

    fn plan(&mut self, hosts: &mut [TestHost; 2], rng: &mut RunRng, place: usize, id: u64) -> Plan {
        let (local, remote, _) = self.places[place];
        self.places[place].2 = None;
        let tag = rng.next_u64();
        let length = match rng.below(10) {
            0 => 0,
            1..=4 => rng.below(self.message_max.min(64) as u64) as usize,
            _ => rng.below(self.message_max as u64 + 1) as usize,
        };
        let [local, remote] = [local, remote].map(|slot| Slot { length, ..slot });
        let choice = match self.kind {
            QpType::Rc => rng.below(8),
            QpType::Uc => rng.pick(&[1, 2, 3]),
            _ => 1,
        };
        let immediate = (id as u32).to_be_bytes();
        let ends = Ends {
            local,
            remote,
            rkey: hosts[1 - self.from].keys.rkey,
        };
        match choice {
            0 => self.message(hosts, local, tag, Operation::Send(Tail::None), None),
            1 => self.message(
                hosts,
                local,
                tag,
                Operation::Send(Tail::Immediate(immediate)),
                Some(immediate),
            ),
            2 | 3 => {
                hosts[self.from].arena.paint(local, tag);
                self.write(&ends, tag, (choice == 3).then_some(immediate))
            }
            4 => {
                hosts[1 - self.from].arena.paint(remote, tag);
                ends.read(tag)
            }
            5 => self.fetch_add(&ends, tag),
            6 => {
                let compare = if rng.per_mille(500) { self.value } else { tag };
                self.compare_swap(&ends, compare, tag)
            }
            _ => {
                hosts[self.from].arena.paint(ends.word(), tag);
                ends.atomic_write(tag)
            }
        }
    }

    fn write(&mut self, ends: &Ends, tag: u64, immediate: Option<[u8; 4]>) -> Plan {
        let Ends {
            local,
            remote,
            rkey,
        } = *ends;
        if immediate.is_some() {
            let kind = CompletionKind::ReceiveWriteImmediate;
            self.expect(tag, local.length, immediate, kind);
        }
        let promise = if self.is_reliable() {
            Promise::Written { remote, tag }
        } else {
            Promise::Message
        };
        Plan {
            operation: Operation::Write {
                address: remote.address(),
                rkey,
                immediate,
            },
            local,
            promise,
            kind: CompletionKind::Write,
        }
    }

    /// An addition to the counter, whose value is known before and afterwards.
    fn fetch_add(&mut self, ends: &Ends, tag: u64) -> Plan {
        let before = self.value;
        self.value = self.value.wrapping_add(tag);
        let local = ends.word();
        Plan {
            operation: Operation::FetchAdd {
                address: self.counter.address(),
                rkey: ends.rkey,
                add: tag,
            },
            local,
            promise: Promise::Original { local, before },
            kind: CompletionKind::FetchAdd,
        }
    }

    /// A comparison with the counter, which may fail.
    fn compare_swap(&mut self, ends: &Ends, compare: u64, tag: u64) -> Plan {
        let before = self.value;
        if compare == self.value {
            self.value = !tag;
        }
        let local = ends.word();
        Plan {
            operation: Operation::CompareSwap {
                address: self.counter.address(),
                rkey: ends.rkey,
                compare,
                swap: !tag,
            },
            local,
            promise: Promise::Original { local, before },
            kind: CompletionKind::CompareSwap,
        }
    }

    fn message(
        &mut self,
        hosts: &mut [TestHost; 2],
        local: Slot,
        tag: u64,
        operation: Operation,
        immediate: Option<[u8; 4]>,
    ) -> Plan {
        hosts[self.from].arena.paint(local, tag);
        self.expect(tag, local.length, immediate, CompletionKind::Receive);
        Plan {
            operation,
            local,
            promise: Promise::Message,
            kind: CompletionKind::Send,
        }
    }

    fn expect(
        &mut self,
        tag: u64,
        length: usize,
        immediate: Option<[u8; 4]>,
        kind: CompletionKind,
    ) {
        let sent = Sent {
            tag,
            length,
            immediate,
            kind,
        };
        match immediate {
            Some(number) if !self.is_reliable() => {
                self.unreliable.insert(u32::from_be_bytes(number), sent);
            }
            _ => self.sent.push_back(sent),
        }
    }

    fn submit(
        &mut self,
        hosts: &mut [TestHost; 2],
        rng: &mut RunRng,
        plan: &Plan,
        id: u64,
        signaled: bool,
        now: Instant,
    ) -> Verdict {
        let [first, second] = hosts;
        let (host, other) = if self.from == 0 {
            (first, second)
        } else {
            (second, first)
        };
        let mut flags = if signaled {
            SendFlags::SIGNALED
        } else {
            SendFlags::empty()
        };
        if rng.per_mille(100) {
            flags |= SendFlags::FENCE;
        }
        let (sges, count) = split(
            host.sge(plan.local),
            rng,
            matches!(plan.promise, Promise::Original { .. }),
        );
        let bytes = host.arena.slice(plan.local).to_vec();
        let sends = matches!(plan.operation, Operation::Send(_) | Operation::Write { .. });
        let inline = sends && bytes.len() <= 64 && rng.per_mille(300);
        let data = if inline {
            Data::Inline(&bytes)
        } else {
            Data::Sges(&sges[..count])
        };
        let destination = (self.kind == QpType::Ud).then(|| Destination {
            vector: host.vector_to(other.gid()),
            qpn: self.peer,
            qkey: QKEY,
        });
        let request = SendRequest {
            id,
            operation: plan.operation,
            flags,
            data,
            destination,
            xrc_srq: None,
        };
        let TestHost { device, arena, .. } = host;
        // Not from the rng, so that the seeds that are kept stay the runs that they were.
        let mut peer = SharedPeer { host: other, arena };
        if self.executes && device.execute_at_once(self.qpn, &request, || now, &mut peer) {
            self.executed += 1;
            return Ok(());
        }
        let posted = device.post_send(self.qpn, &request, now);
        posted.map_err(|error| format!("{:?} refused: {error}", plan.operation))
    }

    /// Checks the completion of a send, and of those unsignaled before it.
    pub(super) fn check_send(&mut self, hosts: &mut [TestHost; 2], done: &Completion) -> Verdict {
        let gave_up = done.status == Status::RetryExceeded && self.is_reliable();
        // Seven retries can all be lost: then the connection is over, and the rest is flushed.
        self.dead |= gave_up || (self.peer_gave_up && done.status == Status::Flushed);
        if self.dead {
            let allowed = matches!(done.status, Status::RetryExceeded | Status::Flushed);
            return if allowed {
                Ok(())
            } else {
                Err(format!("a dead connection completed {done:?}"))
            };
        }
        if done.status != Status::Success {
            return Err(format!("a send failed: {done:?}"));
        }
        loop {
            let posted = self
                .posted
                .pop_front()
                .ok_or(format!("completed, but not posted: {done:?}"))?;
            self.keep(hosts, &posted)?;
            self.completed += 1;
            self.free_places.push(posted.place);
            if posted.id == done.id {
                self.check_order(done)?;
                return if posted.kind == done.kind {
                    Ok(())
                } else {
                    Err(format!("wrong kind: {done:?}"))
                };
            }
            if posted.signaled {
                return Err(format!("{} completed before {}", done.id, posted.id));
            }
        }
    }

    /// A reliable message completes after its receive: those that were not received are not completed.
    fn check_order(&self, done: &Completion) -> Verdict {
        let outstanding = self.posted.iter().filter(|posted| posted.is_received);
        if self.is_reliable() && self.sent.len() > outstanding.count() {
            return Err(format!("completed before it was received: {done:?}"));
        }
        Ok(())
    }

    fn keep(&mut self, hosts: &mut [TestHost; 2], posted: &Posted) -> Verdict {
        let id = posted.id;
        match posted.promise {
            Promise::Message => Ok(()),
            Promise::Written { remote, tag } => {
                if let Some(at) = hosts[1 - self.from].arena.blemish(remote, tag) {
                    return Err(format!(
                        "WRITE {id} completed, but byte {at} of {} is wrong",
                        remote.length
                    ));
                }
                let place = self.places[posted.place].1;
                hosts[1 - self.from].arena.paint(place, !tag);
                self.places[posted.place].2 = Some(!tag);
                Ok(())
            }
            Promise::Read { local, tag } => match hosts[self.from].arena.blemish(local, tag) {
                Some(at) => Err(format!(
                    "READ {id} completed, but byte {at} of {} is wrong",
                    local.length
                )),
                None => Ok(()),
            },
            Promise::Original { local, before } => match hosts[self.from].arena.word(local) {
                value if value == before => Ok(()),
                value => Err(format!(
                    "atomic {id} returned {value:#x}, the model has {before:#x}"
                )),
            },
        }
    }

    /// Checks a receive: the next message, whole, once; or, unreliable, some message that was sent, whole.
    pub(super) fn check_receive(&mut self, hosts: &[TestHost; 2], done: &Completion) -> Verdict {
        let slot = self
            .receives
            .remove(&done.id)
            .ok_or(format!("received, but not posted: {done:?}"))?;
        self.spare_receives.push(slot);
        if self.dead || done.status == Status::Flushed {
            return Ok(());
        }
        if done.status != Status::Success {
            return Err(format!("a receive failed: {done:?}"));
        }
        let sent = if self.is_reliable() {
            self.sent.pop_front()
        } else {
            let Extra::Immediate(number) = done.extra else {
                return Err(format!("no immediate: {done:?}"));
            };
            self.unreliable.get(&u32::from_be_bytes(number)).copied()
        };
        let sent = sent.ok_or(format!("received, but not sent: {done:?}"))?;
        let grh = if self.kind == QpType::Ud { GRH } else { 0 };
        let immediate = match done.extra {
            Extra::Immediate(bytes) => Some(bytes),
            _ => None,
        };
        if done.length as usize != sent.length + grh
            || immediate != sent.immediate
            || done.kind != sent.kind
        {
            return Err(format!("{done:?} does not match {sent:?}"));
        }
        if sent.kind == CompletionKind::Receive {
            let body = Slot {
                offset: slot.offset + grh,
                length: sent.length,
            };
            if let Some(at) = hosts[1 - self.from].arena.blemish(body, sent.tag) {
                return Err(format!(
                    "byte {at} of a message of {} is wrong",
                    sent.length
                ));
            }
        }
        Ok(())
    }
}

/// A request before it is posted.
#[derive(Clone, Copy, Debug)]
struct Plan {
    operation: Operation,
    local: Slot,
    promise: Promise,
    kind: CompletionKind,
}

/// The memory of a request at both ends.
struct Ends {
    local: Slot,
    remote: Slot,
    rkey: Rkey,
}

impl Ends {
    /// The local memory of atomics, which have eight bytes.
    fn word(&self) -> Slot {
        Slot {
            length: 8,
            ..self.local
        }
    }

    fn read(&self, tag: u64) -> Plan {
        let local = self.local;
        Plan {
            operation: Operation::Read {
                address: self.remote.address(),
                rkey: self.rkey,
            },
            local,
            promise: Promise::Read { local, tag },
            kind: CompletionKind::Read,
        }
    }

    fn atomic_write(&self, tag: u64) -> Plan {
        let remote = Slot {
            length: 8,
            ..self.remote
        };
        Plan {
            operation: Operation::AtomicWrite {
                address: remote.address(),
                rkey: self.rkey,
            },
            local: self.word(),
            promise: Promise::Written { remote, tag },
            kind: CompletionKind::AtomicWrite,
        }
    }
}

/// Cuts the data into up to three elements.
fn split(sge: Sge, rng: &mut RunRng, whole: bool) -> ([Sge; 3], usize) {
    let mut parts = [sge; 3];
    if whole || sge.length < 3 {
        return (parts, 1);
    }
    let first = rng.below(u64::from(sge.length)) as u32;
    let second = rng.below(u64::from(sge.length - first)) as u32;
    let mut address = sge.address;
    for (part, length) in parts
        .iter_mut()
        .zip([first, second, sge.length - first - second])
    {
        (part.address, part.length) = (address, length);
        address += u64::from(length);
    }
    (parts, 3)
}
