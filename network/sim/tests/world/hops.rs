//! The waiting times of flows, compared with the counters of the ports themselves.

use fabric::{Drop, FRAME_OVERHEAD_BYTES, Span};
use sim::world::{FlowHop, Lossless, Results, Watch};

use super::three_to_one::{RECEIVER, marking, three_to_one};

/// Three hosts write to a fourth, with the waiting times of flows and samples of ports.
fn incast(common: &Lossless, loss: u32) -> Results {
    let watch = Watch {
        sample_every: Some(Span::from_ns(100)),
        hops: true,
        ..Watch::default()
    };
    three_to_one(common, loss, watch, None)
}

/// The hop of a flow that leads to the receiver.
fn last(results: &Results, flow: usize) -> FlowHop {
    *results.flows[flow].hops.last().unwrap()
}

#[test]
fn waits_marks_and_pauses_add_up_to_what_ports_count() {
    let results = incast(&marking(), 0);
    let port = &results.switches[0].ports[RECEIVER as usize].queues[3];
    let hops: Vec<FlowHop> = (0..3).map(|flow| last(&results, flow)).collect();
    let sum = |of: fn(&FlowHop) -> u64| hops.iter().map(of).sum::<u64>();
    assert_eq!(sum(|hop| hop.packets), port.sent_packets);
    assert_eq!(
        (sum(|hop| hop.bytes), sum(|hop| hop.marked)),
        (port.sent_bytes, port.marked_packets)
    );
    assert!(port.marked_packets > 10 && hops.iter().all(|hop| hop.crossed == 1 && hop.lost == 0));
    // Little's law: bytes times their waits are the queue's area.
    let frame = port.sent_bytes as f64 / port.sent_packets as f64;
    let waits = sum(|hop| hop.waited_ps) as f64 / 1e6 * frame;
    let samples = results
        .samples
        .iter()
        .filter(|at| (at.link, at.direction) == (last(&results, 0).link, 1));
    let area: f64 = samples
        .map(|sample| f64::from(sample.queued_bytes) * 0.1)
        .sum();
    assert!(
        (waits / area - 1.0).abs() < 0.03,
        "{waits} and {area} bytes x us"
    );
    // The longest wait is the longest queue, less the frame that is leaving.
    let longest = hops.iter().map(|hop| hop.waited_max_ps).max().unwrap() as f64 / 1e6;
    let drained =
        f64::from(port.peak_bytes) * (1.0 + f64::from(FRAME_OVERHEAD_BYTES) / frame) * 8.0 / 100e3;
    assert!(
        (longest / drained - 1.0).abs() < 0.1,
        "{longest} us, and {drained} by the longest queue"
    );
    for (host, flow) in results.flows.iter().enumerate().take(3) {
        let sender = flow.hops[0];
        let paused = results.hosts[host].queues[3].paused_ps;
        assert!(sender.crossed == 0 && sender.waited_ps == 0);
        assert!(
            paused > 0 && sender.paused_ps <= paused && sender.paused_ps * 10 > paused * 8,
            "{sender:?}"
        );
    }
}

#[test]
fn lost_packets_are_counted_at_one_hop() {
    let lossy = Lossless {
        class: None,
        buffer_bytes: 60_000,
        ..Lossless::default()
    };
    for (common, loss) in [(&Lossless::default(), u32::MAX / 100), (&lossy, 0)] {
        let results = incast(common, loss);
        let mut lost = 0;
        for flow in &results.flows {
            let [sent, behind] = flow.hops[..] else {
                panic!("two ports: {:?}", flow.hops)
            };
            assert_eq!(behind.packets, sent.packets - sent.lost);
            assert_eq!(flow.order.packets, behind.packets - behind.lost);
            lost += sent.lost + behind.lost;
        }
        let dropped: u64 = Drop::ALL.into_iter().map(|why| results.drops(why)).sum();
        assert!(
            lost > 0 && lost <= dropped + results.damaged,
            "acknowledgements are lost as well"
        );
        assert_eq!(results.left, 0);
    }
}
