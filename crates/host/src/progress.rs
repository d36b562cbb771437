//! The thread that makes progress while the program is away.
//!
//! It has three paces. When the program polls, it only looks now and then whether that is still so, and runs
//! timers: soon at first, for a program that polled just this once may now wait by looking at memory, and
//! every millisecond when it goes on polling. When the program is away, it sleeps until a packet arrives.
//! When packets arrive, it keeps looking for the next ones for a moment before it sleeps again: waking costs
//! more than that moment.

use crate::clock;
use crate::device::Shared;
use crate::pump::TICK;
use rnic::{Instant, Nanos};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long it keeps looking after the last packet: twice what waking another core takes here (22 us).
const LINGER: Nanos = Nanos::from_micros(50);
/// The first look after the program began to poll; each further one waits twice as long, up to [`TICK`].
const FIRST_TICK: Nanos = Nanos::from_micros(50);
/// Without anything to wait for.
const FOR_EVER: Instant = Instant(u64::MAX);

/// Runs until the device is closed.
pub(crate) fn run(shared: &Shared) {
    let mut polls_seen = 0;
    let mut watching = true;
    let mut tick = FIRST_TICK;
    while !shared.stop.load(Ordering::Acquire) {
        let now = clock::now();
        let mut pump = shared.lock();
        let present = pump.is_present() && pump.empty_polls != polls_seen;
        polls_seen = pump.empty_polls;
        if present {
            pump.tick(now);
            pump.pump_events(&shared.events);
        } else {
            drop(pump);
            serve(shared, &mut polls_seen);
            pump = shared.lock();
        }
        // Taken together with the state above: who posts later sees when we wake, and wakes us if that is
        // late.
        let timeout = pump.rnic.next_timeout().unwrap_or(FOR_EVER);
        let wakes_at = if present { timeout.min(clock::now() + tick) } else { timeout };
        tick = if present { Nanos(tick.0 * 2).min(TICK) } else { FIRST_TICK };
        pump.wakes_at = wakes_at;
        drop(pump);
        if watching == present {
            watching = !present;
            shared.watch_socket(watching);
        }
        let sleep = (wakes_at != FOR_EVER).then(|| Duration::from_nanos((wakes_at - clock::now()).0));
        shared.epoll.wait(sleep);
        shared.wake.clear();
    }
}

/// Serves the network until nothing came for a moment, or the program polls again.
fn serve(shared: &Shared, polls_seen: &mut u64) {
    let mut until = clock::now() + LINGER;
    let mut served = false;
    loop {
        let now = clock::now();
        let mut pump = shared.lock();
        if pump.is_present() && pump.empty_polls != *polls_seen {
            *polls_seen = pump.empty_polls.wrapping_sub(1);
            return;
        }
        let arrived = pump.progress(now);
        pump.pump_events(&shared.events);
        drop(pump);
        served |= arrived;
        if shared.stop.load(Ordering::Acquire) {
            break;
        }
        if arrived {
            until = now + LINGER;
            continue;
        }
        if now >= until || !served {
            break;
        }
        // On a machine without a free core, whoever is to send the next packet may wait for this one.
        std::thread::yield_now();
    }
    // Acknowledgements that found no company.
    let mut pump = shared.lock();
    pump.transmit(clock::now());
    pump.pump_events(&shared.events);
}
