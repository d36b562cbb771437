//! Shared receive queues, XRC, memory windows, and unreliable connections.

use crate::bench::*;
use rnic::*;
use wire::{Message, Packet, Position, Psn, Qpn, Service, Syndrome, Tail};

fn post_shared(bench: &mut Bench, srq: Srq, id: u64) {
    let sges = [Sge {
        address: BASE,
        length: 64,
        lkey: bench.keys.lkey,
    }];
    bench
        .device
        .srqs()
        .post_receive(srq, &ReceiveRequest { id, sges: &sges })
        .unwrap();
}

#[test]
fn a_shared_queue_serves_its_queue_pairs_in_order_and_tells_its_limit_once() {
    let mut bench = Bench::new(QpType::Rc);
    let srq = bench.device.srqs().create(bench.pd, 8, 1, None).unwrap();
    let init = QpInit {
        srq: Some(srq),
        ..bench.init(QpType::Rc)
    };
    let qpns: Vec<Qpn> = (0..2)
        .map(|_| bench.device.create_qp(&init).unwrap())
        .collect();
    qpns.iter()
        .for_each(|&qpn| connect(&mut bench.device, QpType::Rc, qpn));
    (1..=3).for_each(|id| post_shared(&mut bench, srq, id));
    bench.device.srqs().modify(srq, None, Some(2)).unwrap();
    for (index, qpn) in [qpns[0], qpns[1], qpns[1]].into_iter().enumerate() {
        bench.qpn = qpn;
        bench.receive(index.saturating_sub(1) as u32, send(Position::Only), b"x");
    }
    assert_eq!(
        bench.completions(),
        [1, 2, 3].map(|id| (id, Status::Success))
    );
    assert_eq!(bench.events(), [Event::SrqLimitReached(srq)]);
    assert_eq!(bench.device.srqs().destroy(srq), Err(Error::Busy));
}

#[test]
fn of_those_that_wait_for_a_shared_receive_on_shared_memory_channels_one_is_told_of_each() {
    let mut bench = Bench::new(QpType::Rc);
    let srq = bench.device.srqs().create(bench.pd, 8, 1, None).unwrap();
    let init = QpInit {
        srq: Some(srq),
        ..bench.init(QpType::Rc)
    };
    let qpns: Vec<Qpn> = (0..3)
        .map(|_| bench.device.create_qp(&init).unwrap())
        .collect();
    for &qpn in &qpns {
        connect(&mut bench.device, QpType::Rc, qpn);
        bench.device.shm().set_channel(qpn, 1).unwrap();
        bench.qpn = qpn;
        bench.receive_by_channel(0, send(Position::Only), b"x");
    }
    assert_eq!(bench.answers(), [(0, Syndrome::RnrNak(24)); 3]);
    // A queue pair that was destroyed takes no turn.
    bench.device.destroy_qp(qpns[0]).unwrap();
    for _ in &qpns[1..] {
        post_shared(&mut bench, srq, 1);
        assert_eq!(bench.answers(), [(0, READY)]);
    }
    post_shared(&mut bench, srq, 1);
    assert_eq!(bench.answers(), []);
}

#[test]
fn an_xrc_message_goes_to_the_queue_that_it_names_if_the_domain_is_the_same() {
    let mut bench = Bench::new(QpType::Rc);
    let [ours, theirs] = [(); 2].map(|()| bench.device.alloc_xrcd(None).unwrap());
    let receives = bench.device.cqs_mut().create(8).unwrap();
    let named = bench
        .device
        .srqs()
        .create(bench.pd, 8, 1, Some((ours, receives)))
        .unwrap();
    let foreign = bench
        .device
        .srqs()
        .create(bench.pd, 8, 1, Some((theirs, receives)))
        .unwrap();
    let init = QpInit {
        pd: None,
        send_cq: None,
        receive_cq: None,
        xrcd: Some(ours),
        ..bench.init(QpType::XrcReceive)
    };
    bench.qpn = bench.device.create_qp(&init).unwrap();
    connect_xrc_receiver(&mut bench);
    [named, foreign]
        .into_iter()
        .for_each(|srq| post_shared(&mut bench, srq, u64::from(srq.value())));
    let message = |offset: u32, srq: Srq| {
        let psn = Psn::new(START + offset);
        let mut packet = Packet::new(Service::Xrc, bench.qpn, psn, send(Position::Only));
        packet.xrc_srq = Some(Qpn::new(srq.value()));
        packet
    };
    let packets = [message(0, named), message(1, foreign)];
    bench.receive_from(&bench.arrival(), &packets[0], b"for you");
    let mut taken = Vec::new();
    bench
        .device
        .cqs_mut()
        .poll(receives, 8, |done| taken.push((done.id, done.status)));
    assert_eq!(taken, [(u64::from(named.value()), Status::Success)]);
    bench.receive_from(&bench.arrival(), &packets[1], b"not for you");
    assert_eq!(bench.answers(), [(1, Syndrome::NAK_INVALID_REQUEST)]);
}

/// A type 2 window of the first 16 bytes of the region, bound to the bench's queue pair.
fn bound_window(bench: &mut Bench) -> WindowBinding {
    let rights = Access::LOCAL_WRITE | Access::BIND_WINDOW;
    let init = RegionInit {
        address: BASE,
        length: 1024,
        iova: BASE,
        access: rights,
    };
    let region = bench.device.memory().register(bench.pd, init).unwrap().lkey;
    let (window, rkey) = bench
        .device
        .memory()
        .alloc_window(bench.pd, WindowKind::Type2)
        .unwrap();
    let access = Access::REMOTE_WRITE;
    let binding = WindowBinding {
        window,
        rkey,
        region,
        address: BASE,
        length: 16,
        access,
    };
    bench
        .post_sges(1, Operation::BindWindow(binding), &[])
        .unwrap();
    bench.sent();
    assert_eq!(bench.completions(), [(1, Status::Success)]);
    binding
}

#[test]
fn a_window_opens_its_part_of_a_region_until_the_peer_gives_it_back() {
    let mut bench = Bench::new(QpType::Rc);
    let binding = bound_window(&mut bench);
    bench.receive(0, write_only(BASE, binding.rkey, 4), b"open");
    assert_eq!(&bench.memory.0[..4], b"open");
    bench.post_receive(2, 64);
    let tail = Tail::Invalidate(binding.rkey);
    bench.receive(
        1,
        Message::Send {
            position: Position::Only,
            tail,
        },
        b"",
    );
    let mut extras = Vec::new();
    bench
        .device
        .cqs_mut()
        .poll(bench.cq, 8, |done| extras.push(done.extra));
    assert_eq!(extras, [Extra::Invalidated(binding.rkey)]);
    bench.receive(2, write_only(BASE, binding.rkey, 4), b"shut");
    assert_eq!(bench.answers(), [(2, Syndrome::NAK_REMOTE_ACCESS)]);
    assert_eq!(&bench.memory.0[..4], b"open");
}

#[test]
fn a_window_that_is_invalidated_locally_is_shut_and_cannot_be_invalidated_again() {
    let mut bench = Bench::new(QpType::Rc);
    let binding = bound_window(&mut bench);
    for id in [2, 3] {
        bench
            .post_sges(id, Operation::LocalInvalidate(binding.rkey), &[])
            .unwrap();
    }
    bench.sent();
    assert_eq!(
        bench.completions(),
        [(2, Status::Success), (3, Status::LocalQpOperation)]
    );
}

#[test]
fn an_unreliable_message_that_loses_a_packet_is_lost_and_the_next_takes_its_receive() {
    let mut bench = Bench::new(QpType::Uc);
    bench.post_receive(1, 4096);
    let mut receive = |offset: u32, position, payload: &[u8]| {
        let packet = Packet::new(
            Service::Uc,
            bench.qpn,
            Psn::new(START + offset),
            send(position),
        );
        bench.receive_from(&bench.arrival(), &packet, payload);
        bench.completions()
    };
    assert_eq!(receive(0, Position::First, &[1; MTU]), []);
    assert_eq!(receive(2, Position::Last, &[1; 10]), []);
    assert_eq!(receive(3, Position::First, &[2; MTU]), []);
    assert_eq!(receive(4, Position::Last, &[2; 10]), [(1, Status::Success)]);
    assert_eq!(bench.memory.0[..MTU + 10], [2; MTU + 10]);
    assert_eq!(bench.answers(), []);
}
