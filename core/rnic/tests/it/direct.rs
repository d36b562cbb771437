//! Requests that a requester executes on its peer's memory directly, when those before them are acknowledged.

use crate::bench::*;
use rnic::*;
use wire::{Aeth, Message, Packet, Position, Qpn, Rkey, Syndrome, Tail};

const SEND: Operation = Operation::Send(Tail::None);
const WRITE: Operation = Operation::Write {
    address: 0x5000,
    rkey: Rkey(9),
    immediate: None,
};
/// Number of the shared-memory channel to the peer.
const CHANNEL: u16 = 1;

/// A channel to a peer whose memory is accessible.
#[derive(Default)]
struct AtHand {
    sent: Vec<(u32, bool)>,
    /// Whether each of these is an acknowledgement.
    acknowledges: Vec<bool>,
    executed: usize,
    /// Whether requests that follow each other are executed together, and how many at once at most.
    together: Option<usize>,
    /// Whether enough was executed in this round.
    is_full: bool,
    /// Keys and lengths of what was executed together.
    runs: Vec<Vec<(Rkey, u32)>>,
}

impl Sink for AtHand {
    type Channels = Self;

    fn send(&mut self, _path: &Path, packet: &Packet, _payload: Gather<'_>) -> Result<(), Fault> {
        self.sent.push((packet.psn.value() - START, packet.ack_req));
        self.acknowledges
            .push(matches!(packet.message, Message::Acknowledge(_)));
        Ok(())
    }

    fn channels(&mut self) -> Option<&mut Self> {
        Some(self)
    }
}

impl ChannelRings for AtHand {
    fn room(&mut self, _path: &Path, mtu: u32) -> u32 {
        8192 / mtu
    }

    fn datagram_channel(&mut self, _path: &Path, _from: Qpn, _to: Qpn) -> u16 {
        0
    }

    fn srq_owner(&mut self, _front_end: Qpn, _srq: Qpn) -> SrqOwner {
        SrqOwner::Absent
    }

    fn forward(
        &mut self,
        _channel: u16,
        _request: &ForwardedRequest,
        _packet: &Packet,
        _payload: &[u8],
    ) {
    }
}

impl DirectExecution for AtHand {
    fn execute(&mut self, _at: &DirectPath<'_>, work: DirectWork<'_>) -> usize {
        match work {
            DirectWork::One(_) => {
                self.executed += 1;
                1
            }
            DirectWork::Run { requests, .. } => {
                let done = requests.len().min(self.together.unwrap_or_default());
                self.runs.push(
                    requests[..done]
                        .iter()
                        .map(|request| (request.reth.rkey, request.reth.length))
                        .collect(),
                );
                done
            }
        }
    }
}

impl StreamStatistics for AtHand {
    const MEASURED_FROM: u32 = 0;

    fn advice(&mut self, _path: &Path, request: StreamedRequest) -> Advice {
        Advice {
            execution: if self.is_full && request.is_heard {
                Execution::Later
            } else {
                Execution::Direct
            },
            in_runs: self.together.is_some(),
        }
    }

    fn record(&mut self, _path: &Path, _request: StreamedRequest, _decision: Decision) {}
}

/// A peer that executes one request of this length.
struct Expecting {
    qpn: Qpn,
    length: u32,
}

impl DirectExecution for Expecting {
    fn execute(&mut self, at: &DirectPath<'_>, work: DirectWork<'_>) -> usize {
        let DirectWork::One(request) = work else {
            panic!("one request was posted")
        };
        assert_eq!(
            (at.path.channel, at.from, at.to, request.reth.length),
            (CHANNEL, self.qpn, PEER_QPN, self.length)
        );
        1
    }
}

/// Packets that the device sends in the channel now: PSNs, and whether each requests an acknowledgement. Also
/// the number of requests that it executes itself.
fn transmit(bench: &mut Bench) -> (Vec<(u32, bool)>, usize) {
    let mut sink = AtHand::default();
    while bench.device.transmit(bench.now, 64, &mut sink) > 0 {}
    (sink.sent, sink.executed)
}

fn acknowledge(bench: &mut Bench, offset: u32) {
    bench.receive_by_channel(
        offset,
        Message::Acknowledge(Aeth {
            syndrome: Syndrome::ACK,
            msn: 0,
        }),
        &[],
    );
}

/// The peer may delay an acknowledgement to send it together with an answer, and nothing else is sent before
/// the WRITE.
#[test]
fn a_request_that_waits_to_be_executed_asks_for_the_acknowledgement_again_once() {
    let mut bench = Bench::new(QpType::Rc);
    bench.device.shm().set_channel(bench.qpn, CHANNEL).unwrap();
    bench.post(1, SEND, 10);
    assert_eq!(transmit(&mut bench), (vec![(0, true)], 0));
    acknowledge(&mut bench, 0);
    bench.post(2, SEND, 10);
    assert_eq!(transmit(&mut bench), (vec![(1, true)], 0));
    bench.post(3, WRITE, 2500);
    assert_eq!(transmit(&mut bench), (vec![(1, true)], 0));
    assert_eq!(transmit(&mut bench), (vec![], 0));
    acknowledge(&mut bench, 1);
    assert_eq!(transmit(&mut bench), (vec![], 1));
    assert_eq!(bench.completions().len(), 3);
}

/// A program that has all its requests outstanding posts the next one after a completion. On a network an
/// acknowledgement costs both sides a system call, and only the last request asks for one.
#[test]
fn a_request_with_a_completion_asks_for_its_acknowledgement_in_a_channel() {
    let asks = [true, false].map(|has_channel| {
        let mut bench = Bench::new(QpType::Rc);
        if has_channel {
            bench.device.shm().set_channel(bench.qpn, CHANNEL).unwrap();
            bench.post(0, SEND, 10);
            transmit(&mut bench);
            acknowledge(&mut bench, 0);
        }
        for id in 1..=4 {
            let flags = if id == 2 {
                SendFlags::SIGNALED
            } else {
                SendFlags::empty()
            };
            bench.post_with(id, SEND, 10, flags);
        }
        let asked = |(_, asks): (u32, bool)| asks;
        transmit(&mut bench)
            .0
            .into_iter()
            .map(asked)
            .collect::<Vec<_>>()
    });
    assert_eq!(asks[0], [false, true, false, true]);
    assert_eq!(asks[1], [false, false, false, true]);
}

/// The requests after the WRITE cause one more wait.
#[test]
fn each_wait_asks_once() {
    let mut bench = Bench::new(QpType::Rc);
    bench.device.shm().set_channel(bench.qpn, CHANNEL).unwrap();
    bench.post(1, SEND, 10);
    transmit(&mut bench);
    acknowledge(&mut bench, 0);
    [SEND, WRITE, SEND, WRITE]
        .into_iter()
        .zip(2..)
        .for_each(|(what, id)| bench.post(id, what, 100));
    assert_eq!(transmit(&mut bench), (vec![(1, true), (1, true)], 0));
    acknowledge(&mut bench, 1);
    assert_eq!(transmit(&mut bench), (vec![(3, true), (3, true)], 1));
    acknowledge(&mut bench, 3);
    assert_eq!(transmit(&mut bench), (vec![], 1));
}

/// A peer that answers the request with a WRITE executes it at once only if nothing before it is outstanding.
#[test]
fn in_a_channel_an_acknowledgement_goes_before_requests() {
    let mut bench = Bench::new(QpType::Rc);
    bench.device.shm().set_channel(bench.qpn, CHANNEL).unwrap();
    bench.post_receive(7, 100);
    bench.receive_by_channel(0, send(Position::Only), b"abc");
    bench.post(1, SEND, 10);
    let mut sink = AtHand::default();
    while bench.device.transmit(bench.now, 64, &mut sink) > 0 {}
    assert_eq!(sink.acknowledges, [true, false]);
}

/// The device's driver may delay packets that are [`Pending::Acknowledgements`].
#[test]
fn the_acknowledgement_of_a_repeated_request_does_not_wait_for_company() {
    let mut bench = Bench::new(QpType::Rc);
    bench.post_receive(7, 100);
    bench.receive_by_channel(0, send(Position::Only), b"abc");
    assert_eq!(bench.device.pending(), Pending::Acknowledgements);
    bench.receive_by_channel(0, send(Position::Only), b"abc");
    assert_eq!(bench.device.pending(), Pending::Data);
    assert_eq!(bench.answers(), [(0, Syndrome::ACK)]);
    assert_eq!(bench.device.pending(), Pending::Nothing);
    bench.post_receive(8, 100);
    bench.receive_by_channel(1, send(Position::Only), b"abc");
    assert_eq!(bench.device.pending(), Pending::Acknowledgements);
}

/// A run ends where another kind of request follows. What the driver leaves is executed next, or alone.
#[test]
fn requests_that_follow_each_other_are_executed_together() {
    let write = |key| Operation::Write {
        address: 0x5000,
        rkey: Rkey(key),
        immediate: None,
    };
    for (together, runs, alone) in [
        (
            16,
            vec![vec![(Rkey(1), 1000), (Rkey(2), 2000), (Rkey(3), 3000)]],
            0,
        ),
        (2, vec![vec![(Rkey(1), 1000), (Rkey(2), 2000)]], 1),
        (0, vec![vec![], vec![]], 3),
    ] {
        let mut bench = Bench::new(QpType::Rc);
        bench.device.shm().set_channel(bench.qpn, CHANNEL).unwrap();
        bench.post(0, SEND, 10);
        transmit(&mut bench);
        acknowledge(&mut bench, 0);
        assert_eq!(bench.completions().len(), 1);
        (1..=3).for_each(|id| bench.post(u64::from(id), write(id), 1000 * id));
        bench.post(4, SEND, 10);
        bench.post(5, write(5), 100);
        let mut sink = AtHand {
            together: Some(together),
            ..AtHand::default()
        };
        while bench.device.transmit(bench.now, 64, &mut sink) > 0 {}
        assert_eq!((sink.runs, sink.executed), (runs, alone), "{together}");

        assert_eq!(
            bench.completions(),
            [1, 2, 3].map(|id| (id, Status::Success))
        );
        // Packets of 1, 2 and 3 MTUs were numbered, as if they had been sent.
        assert_eq!(sink.sent.first(), Some(&(1 + 6, true)));
    }
}

/// No timer is started for it: it would wake the driver's thread, which would take the device's lock from the
/// program that goes on in its next call.
#[test]
fn a_request_for_the_next_round_waits_until_the_driver_resumes_it() {
    let mut bench = heard();
    let timeout = bench.device.next_timeout();
    bench.post(1, WRITE, 100);
    let mut full = AtHand {
        is_full: true,
        ..AtHand::default()
    };
    while bench.device.transmit(bench.now, 64, &mut full) > 0 {}
    assert_eq!(
        (full.executed, bench.device.pending()),
        (0, Pending::Nothing)
    );
    assert_eq!(
        (bench.device.next_timeout(), bench.device.has_stalled()),
        (timeout, true)
    );
    assert_eq!(transmit(&mut bench), (vec![], 0));
    bench.device.resume();
    assert_eq!(transmit(&mut bench), (vec![], 1));
    assert_eq!(bench.completions(), [(1, Status::Success)]);
}

/// Posts as a driver does: a request that is not executed at once goes to the send queue. Whether it was.
fn post_or_execute(
    bench: &mut Bench,
    id: u64,
    operation: Operation,
    length: u32,
    flags: SendFlags,
) -> bool {
    let sges = [Sge {
        address: BASE,
        length,
        lkey: bench.keys.lkey,
    }];
    let data = Data::Sges(&sges);
    let request = SendRequest {
        id,
        operation,
        flags,
        data,
        destination: None,
        xrc_srq: None,
    };
    let (device, qpn, now) = (&mut bench.device, bench.qpn, bench.now);
    let mut peer = Expecting { qpn, length };
    let done = device.execute_at_once(qpn, &request, || now, &mut peer);
    if !done {
        device.post_send(qpn, &request, now).unwrap();
    }
    done
}

/// A bench whose peer, at the other end of a channel, has executed a request.
fn heard() -> Bench {
    let mut bench = Bench::new(QpType::Rc);
    bench.device.shm().set_channel(bench.qpn, CHANNEL).unwrap();
    bench.post(0, SEND, 10);
    transmit(&mut bench);
    acknowledge(&mut bench, 0);
    assert_eq!(bench.completions().len(), 1);
    bench
}

#[test]
fn a_request_is_executed_when_it_is_posted_while_nothing_is_before_it() {
    const READ: Operation = Operation::Read {
        address: 0x5000,
        rkey: Rkey(9),
    };
    const ADD: Operation = Operation::FetchAdd {
        address: 0x5000,
        rkey: Rkey(9),
        add: 1,
    };
    let mut bench = heard();
    let posted = [(1, WRITE, 2500), (2, READ, 1024), (3, ADD, 8)].map(|(id, what, length)| {
        post_or_execute(&mut bench, id, what, length, SendFlags::SIGNALED)
    });
    assert_eq!(posted, [true; 3]);
    assert!(
        post_or_execute(&mut bench, 4, WRITE, 10, SendFlags::FENCE),
        "no READ is outstanding"
    );
    assert_eq!(bench.device.pending(), Pending::Nothing);
    assert_eq!(
        bench.completions(),
        [1, 2, 3].map(|id| (id, Status::Success))
    );
    // Packets of 3, 1, 1 and 1 MTUs were numbered, as if they had been sent.
    assert!(!post_or_execute(
        &mut bench,
        5,
        SEND,
        10,
        SendFlags::empty()
    ));
    assert!(
        !post_or_execute(&mut bench, 6, WRITE, 10, SendFlags::empty()),
        "the SEND waits"
    );
    assert_eq!(
        transmit(&mut bench),
        (vec![(1 + 6, false), (1 + 6, true)], 0)
    );
    assert!(
        !post_or_execute(&mut bench, 7, WRITE, 10, SendFlags::empty()),
        "the SEND is not acknowledged"
    );
    acknowledge(&mut bench, 1 + 6);
    assert_eq!(transmit(&mut bench), (vec![], 2));
    assert!(post_or_execute(
        &mut bench,
        8,
        WRITE,
        10,
        SendFlags::empty()
    ));
}

#[test]
fn a_request_is_posted_where_the_queue_pair_may_not_execute_it() {
    let posts = |bench: &mut Bench, operation, length| {
        assert!(!post_or_execute(
            bench,
            1,
            operation,
            length,
            SendFlags::SIGNALED
        ));
    };
    let mut unheard = Bench::new(QpType::Rc);
    unheard
        .device
        .shm()
        .set_channel(unheard.qpn, CHANNEL)
        .unwrap();
    posts(&mut unheard, WRITE, 10);
    posts(&mut Bench::new(QpType::Rc), WRITE, 10);
    let immediate = Operation::Write {
        address: 0x5000,
        rkey: Rkey(9),
        immediate: Some([0; 4]),
    };
    posts(&mut heard(), immediate, 10);
    posts(
        &mut heard(),
        Operation::AtomicWrite {
            address: 0x5000,
            rkey: Rkey(9),
        },
        8,
    );
    let mut draining = heard();
    let attr = QpAttr {
        state: State::SendQueueDrained,
        ..QpAttr::default()
    };
    draining
        .device
        .modify_qp(draining.qpn, &attr, AttrMask::STATE, draining.now)
        .unwrap();
    posts(&mut draining, WRITE, 10);
    let mut broken = heard();
    broken.keys.lkey = Lkey::from_value(0);
    posts(&mut broken, WRITE, 10);
    while broken
        .device
        .transmit(broken.now, 64, &mut AtHand::default())
        > 0
    {}
    assert_eq!(broken.completions(), [(1, Status::LocalProtection)]);
}

/// A completion queue without room is in error, and with it the queue pair.
#[test]
fn a_request_that_is_executed_at_once_can_overrun_its_completion_queue() {
    let mut bench = heard();
    let full = (0..=1024)
        .take_while(|id| post_or_execute(&mut bench, *id, WRITE, 10, SendFlags::SIGNALED));
    assert_eq!(full.count(), 1025);
    assert_eq!(
        bench.device.query_qp(bench.qpn).unwrap().0.state,
        State::Error
    );
}
