//! Requests that a requester executes on its peer's memory directly, when those before them are acknowledged.

use crate::bench::*;
use rnic::*;
use wire::{Aeth, Message, Packet, Position, Qpn, Reth, Rkey, Syndrome, Tail};

const SEND: Operation = Operation::Send(Tail::None);
const WRITE: Operation = Operation::Write { address: 0x5000, rkey: Rkey(9), immediate: None };
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
    /// Keys and lengths of what was executed together.
    runs: Vec<Vec<(Rkey, u32)>>,
}

impl Sink for AtHand {
    type Channels = Self;

    fn send(&mut self, _path: &Path, packet: &Packet, _payload: Gather<'_>) -> Result<(), Fault> {
        self.sent.push((packet.psn.value() - START, packet.ack_req));
        self.acknowledges.push(matches!(packet.message, Message::Acknowledge(_)));
        Ok(())
    }

    fn channels(&mut self) -> Option<&mut Self> {
        Some(self)
    }
}

impl Channels for AtHand {
    const CHOSEN_FROM: u32 = 0;

    fn room(&mut self, _path: &Path, mtu: u32) -> u32 {
        8192 / mtu
    }

    fn execute(&mut self, _path: &Path, _from: Qpn, _to: Qpn, _reth: &Reth, _direct: Direct<'_>) -> bool {
        self.executed += 1;
        true
    }

    fn takes_runs(&mut self, _path: &Path, _is_read: bool, _length: u32) -> bool {
        self.together.is_some()
    }

    fn execute_run(&mut self, _: &Path, _: Qpn, _: Qpn, _is_read: bool, run: &[RunRequest]) -> usize {
        let done = run.len().min(self.together.unwrap_or_default());
        self.runs.push(run[..done].iter().map(|request| (request.reth.rkey, request.reth.length)).collect());
        done
    }

    fn execution(&mut self, _path: &Path, _is_read: bool, _length: u32) -> Execution {
        Execution::Direct
    }

    fn begins(&mut self, _path: &Path, _kind: Streamed, _length: u32, _follows: bool) {}

    fn prefers_to_execute(&mut self, _path: &Path) -> bool {
        true
    }

    fn datagram_channel(&mut self, _path: &Path, _from: Qpn, _to: Qpn) -> u16 {
        0
    }

    fn srq_owner(&mut self, _front_end: Qpn, _srq: Qpn) -> SrqOwner {
        SrqOwner::Absent
    }

    fn forward(&mut self, _channel: u16, _request: &ForwardedRequest, _packet: &Packet, _payload: &[u8]) {}
}

/// Packets that the device sends in the channel now: PSNs, and whether each requests an acknowledgement. Also
/// the number of requests that it executes itself.
fn transmit(bench: &mut Bench) -> (Vec<(u32, bool)>, usize) {
    let mut sink = AtHand::default();
    while bench.device.transmit(bench.now, 64, &mut sink) > 0 {}
    (sink.sent, sink.executed)
}

fn acknowledge(bench: &mut Bench, offset: u32) {
    bench.receive_by_channel(offset, Message::Acknowledge(Aeth { syndrome: Syndrome::ACK, msn: 0 }), &[]);
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
            let flags = if id == 2 { SendFlags::SIGNALED } else { SendFlags::empty() };
            bench.post_with(id, SEND, 10, flags);
        }
        let asked = |(_, asks): (u32, bool)| asks;
        transmit(&mut bench).0.into_iter().map(asked).collect::<Vec<_>>()
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
    [SEND, WRITE, SEND, WRITE].into_iter().zip(2..).for_each(|(what, id)| bench.post(id, what, 100));
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
    let write = |key| Operation::Write { address: 0x5000, rkey: Rkey(key), immediate: None };
    for (together, runs, alone) in [
        (16, vec![vec![(Rkey(1), 1000), (Rkey(2), 2000), (Rkey(3), 3000)]], 0),
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
        let mut sink = AtHand { together: Some(together), ..AtHand::default() };
        while bench.device.transmit(bench.now, 64, &mut sink) > 0 {}
        assert_eq!((sink.runs, sink.executed), (runs, alone), "{together}");

        assert_eq!(bench.completions(), [1, 2, 3].map(|id| (id, Status::Success)));
        // Packets of 1, 2 and 3 MTUs were numbered, as if they had been sent.
        assert_eq!(sink.sent.first(), Some(&(1 + 6, true)));
    }
}
