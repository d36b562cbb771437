//! The constants by which it is decided which thread serves the network, and when. A test compares this table
//! with the values below.
//!
//! | constant | value | reason, and measurement |
//! |---|---|---|
//! | `CALL_EVERY` | 25 us | packets wait no longer than for a thread that lingers; not measured |
//! | `CALLS_MIN` | 3 calls | a program that waits by reading memory calls once or twice per message |
//! | `COPIED_PER_CALL` | 128 KiB | copying this takes half of `CALL_EVERY` |
//! | `WAIT_COUNTS_FOR` | 4 ms | one tick: the thread sees by its next tick that no wait followed |
//! | `POLLS_AGAIN` | 16 events | tries now and then whether polling helps again; not measured |
//! | `THREAD_LINGERS` | 50 us | twice the time of waking another core (measured: 22 us) |
//! | `FIRST_TICK` | 50 us | a program that polled for a moment may wait by reading memory now |
//! | `TICK` | 4 ms | each tick takes a core from a program that polls: its p99 (measured) |
//! | `THREAD_HOLDS_ACKS` | 10 us | sent alone, an ACK ends the peer's polling before the answer comes |
//! | `THREAD_CROWDED` | 5 ms | the program that has to answer gets the core meanwhile; not measured |
//! | `YIELD_LONG` | 150 us | a yield takes 0.1 us where no other thread needs the core (measured) |
//! | `YIELD_AFTER` | 10 us | longer than a round trip in memory; 30 us is no faster (measured: 0.995) |
//! | `POLLS_CROWDED` | 100 ms | a yield behind a thread that only computes takes 10 ms (measured) |
//! | `BOUNDED_SLEEP` | 500 us | packets do not end it; beside 3 busy loops 101 to 1,079 MB/s (measured) |
//! | `POLL_ROUND_MAX` | 256 polls | bounds a round over devices of which one is not polled any more |
//! | `EVENT_POLLS` | 100 us | a peer that sleeps is woken in half of it, and answers in the rest |
//! | `SIGNALS_MAX` | 64 bytes | a wake-up socket holds one byte for each signal |
//! | `WAITER_HOLDS_ACKS` | 1 ms | the answer may come from another host, or a busy one |
//! | `PACKETS_HEARD` | 10 ms | a peer on a network sends more when it gets acknowledgements |
//! | `LIGHT_PACKETS` | 8 packets | a request of 4 KiB and its answer are five or six, with ACKs |
//! | `LIGHT_WAITS` | 8 waits | a stream is seen after the first wait, single requests after some |
//! | `RECEIVES_MAX` | 8 calls | 512 KiB: then completions are looked for again |
//! | `RECEIVES_ALL` | 1024 calls | a peer that sends faster than this reads must not hold the lock |
//! | `SOCKET_INTERVAL` | 5 us | a read of an empty socket is a system call of 0.42 us (measured) |
//! | `SOCKET_FRESH` | 20 us | paced queue pairs have a timer for each packet |
//! | `SHM_ROUNDS_ALL` | 128 rounds | the capacity of the rings |
//! | `ANSWER_ROUNDS` | 8 rounds | bounds the time before a transmission |
//! | `TRANSMIT_BUDGET` | 256 packets | the kernel's receive buffer is bounded, UC and UD are not paced |
//! | `CROWD` | 8 QPs | each of so many has little to send, and answers keep arriving |
//! | `EXECUTED_MAX` | 256 requests | a program that always finds completions takes no arrivals by polls |
//! | `DEFERRED_MAX` | 64 requests | the segments of one system call |
//! | `DEFERRED_BYTES_MAX` | 128 KiB | of two messages of 64 KiB the first asks for no acknowledgement |
//! | `DEFERRED_MAX_SHM` | 32 requests | a peer that gets fewer at once works while more are posted |
//! | `DEFERRED_BYTES_MAX_SHM` | 64 KiB | as above: batches save less through shared memory |
//! | `DEFERRED_BYTES_MAX_DIRECT` | 512 KiB | a run is one system call, and no peer waits for its first one |
//! | `CHANNEL_RECHECK` | 5 ms | in addition to notifications; not measured |

use rnic::Nanos;
use std::time::Duration;

// Which thread serves the network.

/// A program that posts or polls this often on average serves the network as well as the progress thread
/// would.
pub(super) const CALL_EVERY: Nanos = Nanos::from_micros(25);
/// Least number of calls that count as polling, however short the time.
pub(super) const CALLS_MIN: u64 = 3;
/// Bytes whose copy, to or from a peer's memory, counts as one call: a program that posts long requests calls
/// once in a copy, and serves the network all the same.
pub(super) const COPIED_PER_CALL: u32 = 128 << 10;
/// Time for which a wait for completions counts as polling: the progress thread only ticks while a program
/// waits again and again.
pub(super) const WAIT_COUNTS_FOR: Nanos = Nanos::from_millis(4);
/// Number of events of which one is polled for again, where polling before the sleep found nothing the last
/// time.
pub(super) const POLLS_AGAIN: u32 = 16;

// The progress thread.

/// Time for which the thread polls after the last packet.
pub(super) const THREAD_LINGERS: Nanos = Nanos::from_micros(50);
/// Time to the first tick after the program began to poll; it doubles with each tick, up to [`TICK`].
pub(super) const FIRST_TICK: Nanos = Nanos::from_micros(50);
/// Longest time for which a posted request is held back, and the interval at which the progress thread checks
/// whether the program still polls.
pub(super) const TICK: Nanos = Nanos::from_millis(4);
/// Time for which an acknowledgement of a packet that the thread took waits for the answer of a program that
/// polls its memory. Sent alone, it would end the peer's polling before the answer arrives: the peer would
/// then poll its memory too until its own thread wakes, and so on back and forth.
pub(super) const THREAD_HOLDS_ACKS: Nanos = Nanos::from_micros(10);
/// Time for which the thread does not poll after another thread needed the core.
pub(super) const THREAD_CROWDED: Nanos = Nanos::from_millis(5);

// A program that polls.

/// Longest time that `sched_yield` takes where no other thread needs the core; a longer one means that one
/// did.
pub(super) const YIELD_LONG: Nanos = Nanos::from_micros(150);
/// Time of polls without completions before each yields the core.
pub(super) const YIELD_AFTER: Nanos = Nanos::from_micros(10);
/// Time for which polls sleep instead of yielding after another thread needed the core.
pub(super) const POLLS_CROWDED: Nanos = Nanos::from_millis(100);
/// The longest sleep of one poll.
pub(super) const BOUNDED_SLEEP: Nanos = Nanos::from_micros(500);
/// Polls of several devices in a row after which a thread yields the core, if it has not come back to the
/// device at which it yielded last.
pub(super) const POLL_ROUND_MAX: u32 = 256;

// A program that waits in place of the progress thread.

/// Time for which a wait for an event polls before it sleeps.
pub(super) const EVENT_POLLS: Nanos = Nanos::from_micros(100);
/// Limit of signals that one call takes from the wake-up socket.
pub(super) const SIGNALS_MAX: usize = 64;
/// Time for which acknowledgements wait for the answer of a program that now waits for something other than
/// completions.
pub(super) const WAITER_HOLDS_ACKS: Nanos = Nanos::from_millis(1);
/// Time after a packet in which acknowledgements do not wait.
pub(super) const PACKETS_HEARD: Nanos = Nanos::from_millis(10);
/// Packets from one wait to the next, on average, up to which the program takes them itself.
pub(super) const LIGHT_PACKETS: u64 = 8;
/// The average is of about so many waits.
pub(super) const LIGHT_WAITS: u64 = 8;

// Arrivals.

/// Limit of receive calls in a row, of up to 64 KiB each, before completions are looked for again.
pub(super) const RECEIVES_MAX: usize = 8;
/// Limit of receive calls in a row where all arrived packets have to be taken, as before the first record of
/// a channel.
pub(super) const RECEIVES_ALL: usize = 1024;
/// Interval between reads of the socket while there are shared-memory channels to read as well.
pub(super) const SOCKET_INTERVAL: Nanos = Nanos::from_micros(5);
/// Timers run without another read of the socket if the socket was found empty less than this ago.
pub(super) const SOCKET_FRESH: Nanos = Nanos::from_micros(20);
/// Limit of rounds over the shared-memory channels before timers run.
pub(super) const SHM_ROUNDS_ALL: usize = 128;
/// Limit of rounds over the shared-memory channels in which answers are looked for before a transmission.
pub(super) const ANSWER_ROUNDS: usize = 8;

// Transmissions.

/// Packets that are made before the socket is read: a device that sends without a pause has to receive
/// meanwhile.
pub(super) const TRANSMIT_BUDGET: usize = 256;
/// Number of queue pairs with unacknowledged requests from which on packets are held back for full batches.
pub(super) const CROWD: u32 = 8;
/// Number of requests that are executed when they are posted before what has arrived is taken.
pub(super) const EXECUTED_MAX: u32 = 256;
/// Limit of work requests that are held back before all are sent as packets.
pub(super) const DEFERRED_MAX: usize = 64;
/// Limit of their bytes.
pub(super) const DEFERRED_BYTES_MAX: u64 = 128 << 10;
/// Limit of work requests that are held back where there are shared-memory channels.
pub(super) const DEFERRED_MAX_SHM: usize = 32;
/// Limit of their bytes.
pub(super) const DEFERRED_BYTES_MAX_SHM: u64 = 64 << 10;
/// Limit of their bytes where this process executes long requests itself.
pub(super) const DEFERRED_BYTES_MAX_DIRECT: u64 = 512 << 10;

// Channels.

/// Interval at which a queue pair that waits for a channel checks for it, besides being notified.
pub(super) const CHANNEL_RECHECK: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    /// A value as the table has it, of the expression of a constant: `Nanos::from_micros(50)` is `50 us`. For
    /// numbers, the table has a unit besides.
    fn value_of(expression: &str) -> String {
        let argument = |call: &str| {
            let (_, rest) = expression.split_once(call)?;
            rest.strip_suffix(')')
        };
        let time = argument("from_micros(").map(|number| format!("{number} us"));
        let time = time.or_else(|| argument("from_millis(").map(|number| format!("{number} ms")));
        let bytes = expression.strip_suffix(" << 10");
        time.or_else(|| bytes.map(|number| format!("{number} KiB")))
            .unwrap_or_else(|| format!("{expression} "))
    }

    #[test]
    fn the_table_has_each_constant_with_its_value_and_a_reason() {
        let source = include_str!("constants.rs");
        let row = |line: &'static str| {
            let mut cells = line.strip_prefix("//! | `")?.split(" | ");
            let name = cells.next()?.trim_end_matches('`');
            let reason = cells.nth(1)?.trim_end_matches(" |");
            let value = line.split(" | ").nth(2)?;
            Some((name, (value, reason)))
        };
        let constant = |line: &'static str| {
            let (name, rest) = line.strip_prefix("pub(super) const ")?.split_once(": ")?;
            let (_, expression) = rest.strip_suffix(';')?.split_once(" = ")?;
            Some((name, value_of(expression)))
        };
        let rows: BTreeMap<_, _> = source.lines().filter_map(row).collect();
        let constants: BTreeMap<_, _> = source.lines().filter_map(constant).collect();
        assert!(rows.keys().eq(constants.keys()), "{rows:?} {constants:?}");
        for (name, (value, reason)) in rows {
            let expected = &constants[name];
            assert!(
                value.starts_with(expected.as_str()),
                "{name}: {value} {expected}"
            );
            assert!(reason.len() > 5, "{name} has no reason");
        }
    }
}
