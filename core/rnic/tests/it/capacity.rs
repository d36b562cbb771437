//! Memory and allocations of queue pairs.

use crate::bench::*;
use rnic::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use wire::{Syndrome, Tail};

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static BYTES: Cell<i64> = const { Cell::new(0) };
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

fn count_bytes(bytes: i64) {
    // The counters of a thread that exits may be destroyed.
    let _ = BYTES.try_with(|total| total.set(total.get() + bytes));
    let _ = CALLS.try_with(|calls| calls.set(calls.get() + 1));
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_bytes(layout.size() as i64);
        // SAFETY: the caller's obligations are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count_bytes(-(layout.size() as i64));
        // SAFETY: the caller's obligations are the same.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Limit of the bytes of an idle queue pair.
const IDLE_BYTES_MAX: i64 = 8192;

#[test]
fn a_hundred_thousand_idle_queue_pairs_take_less_than_8_kib_each() {
    const COUNT: i64 = 100_000;
    let mut bench = Bench::new(QpType::Rc);
    bench
        .device
        .add_qpn_range(wire::Qpn::new(0x10_0000), COUNT as u32);
    let init = bench.init(QpType::Rc);
    let before = BYTES.get();
    for _ in 0..COUNT {
        let qpn = bench.device.create_qp(&init).unwrap();
        connect(&mut bench.device, QpType::Rc, qpn);
    }
    let each = (BYTES.get() - before) / COUNT;
    assert!(each <= IDLE_BYTES_MAX, "{each} bytes each");
}

#[test]
fn no_packet_allocates_once_the_queues_have_grown() {
    let mut bench = Bench::new(QpType::Rc);
    let round = |bench: &mut Bench| {
        let mut sink = Discard;
        bench.post(1, Operation::Send(Tail::None), 5000);
        while bench.device.transmit(bench.now, 64, &mut sink) > 0 {}
        let posted = bench.device.port().counters().sent_packets as u32;
        bench.acknowledge(posted - 1, Syndrome::ACK);
        let mut completed = 0;
        bench
            .device
            .cqs_mut()
            .poll(bench.cq, 16, |_| completed += 1);
        assert_eq!(completed, 1);
    };
    (0..200).for_each(|_| round(&mut bench));
    let before = CALLS.get();
    (0..200).for_each(|_| round(&mut bench));
    assert_eq!(CALLS.get() - before, 0);
}

struct Discard;

impl Sink for Discard {
    type Channels = NoChannels;

    fn send(&mut self, _: &Path, _: &wire::Packet, _: Gather<'_>) -> Result<(), Fault> {
        Ok(())
    }
}
