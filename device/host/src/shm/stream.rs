//! How the payload of a stream of long requests is copied: through the ring, which takes two copies on two
//! cores, or by one copy of the kernel: on the requester's core for WRITEs and READs, on the receiver's core
//! for SENDs, whose record then refers to the payload.
//!
//! Which one is faster depends on the processor, on what its cache still holds, and on what else the machine
//! does at that moment: of two machines with two cores each, the ring was 2.1 times as fast as the kernel's
//! copy at 1 MiB on one, and half as fast on the other; on one of them both results were seen on two days.
//! No constant holds, so each stream is measured while it runs. Every so often a short part of it takes the
//! other method (a *trial*), and the stream goes on with the one that moved more bytes per second.

use rnic::{Instant, Streamed};

/// The shortest request, in bytes, whose stream is measured: shorter ones are bound by the cost of a request.
pub(crate) const MEASURED_FROM: u32 = 4097;
/// Number of length classes that are measured separately, powers of two: from 8 KiB (4,097 to 8,192 bytes) to
/// 4 MiB.
const CLASSES: usize = 10;
/// Bytes that are sent with a method before its rate is measured: more than a ring and the READs of a queue
/// pair hold, so that requests are begun as fast as they end.
const WARM_UP: u64 = 4 << 20;
/// Bytes over which the rate of the ring is measured.
const RING_WINDOW: u64 = 8 << 20;
/// Bytes over which the rate of the kernel's copy is measured: each call is timed by itself.
const CALL_WINDOW: u64 = 1 << 20;
/// Least number of requests of a window.
const WINDOW_REQUESTS: u64 = 4;
/// Bytes between two trials: this many at first, four times as many after each trial that changed nothing.
const STAY_MIN: u64 = 64 << 20;
const STAY_MAX: u64 = 4 << 30;
/// The other method has to be faster by a tenth, because both rates vary.
const GAIN: f64 = 1.1;

/// A way to move payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Method {
    /// Two copies, into the ring and out of it.
    Ring,
    /// One copy, by a system call on the peer's memory.
    Call,
}

/// Number of kinds that are measured separately.
const KINDS: usize = 3;

/// The streams of one channel: WRITEs, READs and SENDs of each length class.
#[derive(Debug)]
pub(super) struct Streams([[Stream; CLASSES]; KINDS]);

impl Streams {
    pub(super) fn new() -> Self {
        let kinds = [Streamed::Write, Streamed::Read, Streamed::Send];
        Self(kinds.map(|kind| std::array::from_fn(|_| Stream::new(kind))))
    }

    /// The stream of requests of this kind and length; `None` where it is not measured.
    pub(super) fn stream_of(&mut self, kind: Streamed, length: u32) -> Option<&mut Stream> {
        if length < MEASURED_FROM {
            return None;
        }
        let class = (length - 1).ilog2() as usize - 12;
        self.0[kind as usize].get_mut(class)
    }

    /// The streams of which at least one rate was measured.
    pub(super) fn measured(&self) -> impl Iterator<Item = Measured> {
        self.0.iter().flat_map(|classes| {
            let longest = (0..).map(|class| (MEASURED_FROM - 1) << (class + 1));
            let streams = classes.iter().zip(longest);
            streams
                .filter(|(stream, _)| stream.ring.is_some() || stream.call.is_some())
                .map(move |(stream, longest)| Measured {
                    kind: stream.kind,
                    longest,
                    method: stream.method,
                    ring: stream.ring.unwrap_or_default(),
                    call: stream.call.unwrap_or_default(),
                })
        })
    }
}

/// Measurements of a stream.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Measured {
    /// Kind of its requests.
    pub(crate) kind: Streamed,
    /// The longest requests of its class, in bytes.
    pub(crate) longest: u32,
    /// Method of the next request.
    pub(crate) method: Method,
    /// The last rate of the rings in GB/s; 0 where none was measured.
    pub(crate) ring: f64,
    /// The last rate of the kernel's copy in GB/s; 0 where none was measured.
    pub(crate) call: f64,
}

/// Requests of one kind and about the same length.
#[derive(Debug)]
pub(super) struct Stream {
    kind: Streamed,
    method: Method,
    /// The last measured rates of both methods, in bytes per nanosecond.
    ring: Option<f64>,
    call: Option<f64>,
    /// Whether `method` is on trial.
    is_trial: bool,
    window: Window,
    /// Bytes until the next trial; in a trial without a stream, until it ends.
    left: u64,
    /// Bytes between this trial and the next one.
    stay: u64,
}

/// Bytes and time that a rate is computed from.
#[derive(Clone, Copy, Default, Debug)]
struct Window {
    /// Bytes that were sent in sequence and are not counted yet, up to [`WARM_UP`].
    warm_up: u64,
    /// Start of the last request that is counted.
    since: Option<Instant>,
    bytes: u64,
    requests: u64,
    nanos: u64,
}

impl Window {
    /// The rate in bytes per nanosecond.
    fn rate(&self) -> f64 {
        self.bytes as f64 / self.nanos.max(1) as f64
    }
}

impl Stream {
    fn new(kind: Streamed) -> Self {
        Self {
            kind,
            method: Method::Ring,
            ring: None,
            call: None,
            is_trial: false,
            window: Window::default(),
            left: 0,
            stay: STAY_MIN,
        }
    }

    /// The method of executing the next request.
    pub(super) fn method(&self) -> Method {
        self.method
    }

    /// Records a request that goes through the ring, with its payload or, for a SEND, with a reference to it;
    /// `follows` is whether earlier ones are not answered yet. Without them the ring was empty, and the time
    /// since the last request does not show its rate.
    pub(super) fn sent(&mut self, length: u32, follows: bool, now: impl FnOnce() -> Instant) {
        if self.method == Method::Call && self.kind != Streamed::Send {
            // A request that could not be executed directly, because the queue pair was not ready.
            return;
        }
        let bytes = u64::from(length);
        self.left = self.left.saturating_sub(bytes);
        if !follows {
            (self.window.warm_up, self.window.since) = (0, None);
            if self.is_trial && self.left == 0 {
                // Requests come one by one: no stream.
                self.give_up();
            }
            return;
        }
        if self.window.warm_up < WARM_UP {
            self.window.warm_up += bytes;
            return;
        }
        let now = now();
        if let Some(since) = self.window.since.replace(now) {
            self.window.bytes += bytes;
            self.window.requests += 1;
            self.window.nanos += now.0.saturating_sub(since.0);
        }
        if self.window.bytes >= RING_WINDOW && self.window.requests >= WINDOW_REQUESTS {
            let rate = Some(self.window.rate());
            match self.method {
                Method::Ring => self.ring = rate,
                Method::Call => self.call = rate,
            }
            self.end_window();
        }
    }

    /// Records requests, of `bytes` together, that a system call executed in `nanos`.
    pub(super) fn called(&mut self, bytes: u64, requests: u64, nanos: u64) {
        self.left = self.left.saturating_sub(bytes);
        self.window.bytes += bytes;
        self.window.requests += requests;
        self.window.nanos += nanos;
        if self.window.bytes >= CALL_WINDOW && self.window.requests >= WINDOW_REQUESTS {
            self.call = Some(self.window.rate());
            self.end_window();
        }
    }

    /// Records that the peer did not permit execution by a system call: the stream uses the ring.
    pub(super) fn refused(&mut self) {
        self.give_up();
        self.call = None;
        self.stay = STAY_MAX;
        self.left = STAY_MAX;
    }

    /// Ends a window: the rate of a method is measured.
    fn end_window(&mut self) {
        self.window = Window {
            warm_up: WARM_UP,
            since: self.window.since,
            ..Window::default()
        };
        if !self.is_trial {
            // A peer that gets no processor for a while slows the ring and not the kernel's copy, whose
            // trials are short.
            let falls_behind = self.method == Method::Ring && is_faster(self.call, self.ring);
            if self.left == 0 || falls_behind {
                self.take(self.other(), true);
            }
            return;
        }
        let (rate, before) = match self.method {
            Method::Ring => (self.ring, self.call),
            Method::Call => (self.call, self.ring),
        };
        if is_faster(rate, before) {
            self.stay = STAY_MIN;
            self.take(self.method, false);
        } else {
            self.stay = (self.stay * 4).min(STAY_MAX);
            self.take(self.other(), false);
        }
    }

    fn other(&self) -> Method {
        match self.method {
            Method::Ring => Method::Call,
            Method::Call => Method::Ring,
        }
    }

    fn take(&mut self, method: Method, is_trial: bool) {
        if method != self.method {
            self.window = Window::default();
        }
        self.method = method;
        self.is_trial = is_trial;
        self.left = if is_trial {
            WARM_UP + 2 * RING_WINDOW
        } else {
            self.stay
        };
    }

    /// Goes back to the ring, until requests follow each other again.
    fn give_up(&mut self) {
        self.window = Window::default();
        self.method = Method::Ring;
        self.is_trial = false;
        self.left = 0;
        self.stay = STAY_MIN;
    }
}

/// Whether a rate is higher than another one by more than both vary.
fn is_faster(rate: Option<f64>, other: Option<f64>) -> bool {
    rate.zip(other)
        .is_some_and(|(rate, other)| rate > other * GAIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine, modelled by the rates of both methods in bytes per nanosecond (GB/s).
    struct Machine {
        ring: f64,
        call: f64,
        now: f64,
        /// Bytes that were sent, by method.
        bytes: [u64; 2],
    }

    impl Machine {
        fn new(ring: f64, call: f64) -> Self {
            Self {
                ring,
                call,
                now: 0.0,
                bytes: [0; 2],
            }
        }

        /// Sends so many bytes in requests of this length.
        fn send(&mut self, stream: &mut Stream, total: u64, length: u32) {
            for _ in 0..total / u64::from(length) {
                let method = stream.method();
                self.bytes[usize::from(method == Method::Call)] += u64::from(length);
                if method == Method::Call {
                    let nanos = f64::from(length) / self.call;
                    self.now += nanos;
                    stream.called(u64::from(length), 1, nanos as u64);
                } else {
                    self.now += f64::from(length) / self.ring;
                    let now = Instant(self.now as u64);
                    stream.sent(length, true, || now);
                }
            }
        }

        fn share_of_calls(&mut self, stream: &mut Stream, total: u64, length: u32) -> f64 {
            self.bytes = [0; 2];
            self.send(stream, total, length);
            self.bytes[1] as f64 / (self.bytes[0] + self.bytes[1]) as f64
        }
    }

    /// Both methods at 64 KiB and 1 MiB, as measured on an AMD EPYC and on an Intel Xeon of two cores each.
    #[test]
    fn each_processor_gets_its_faster_method() {
        for (ring, call, length) in [
            (40.9, 11.8, 64 << 10),
            (31.3, 14.9, 1 << 20),
            (10.0, 21.0, 64 << 10),
            (10.0, 25.0, 1 << 20),
            (5.1, 9.4, 1 << 20),
            (5.1, 9.4, 4 << 20),
        ] {
            let mut machine = Machine::new(ring, call);
            let mut streams = Streams::new();
            let stream = streams.stream_of(Streamed::Write, length).unwrap();
            machine.send(stream, 128 << 20, length);
            let share = machine.share_of_calls(stream, 16 << 30, length);
            if call > ring {
                assert!(share > 0.95, "{share}")
            } else {
                assert!(share < 0.05, "{share}")
            }
        }
    }

    /// Another program empties the cache: the stream follows within the bytes between two trials.
    #[test]
    fn a_stream_follows_the_machine() {
        let mut machine = Machine::new(30.0, 12.0);
        let mut streams = Streams::new();
        let stream = streams.stream_of(Streamed::Read, 1 << 20).unwrap();
        machine.send(stream, 1 << 30, 1 << 20);
        machine.ring = 5.0;
        machine.send(stream, 2 * STAY_MAX, 1 << 20);
        assert!(machine.share_of_calls(stream, 8 << 30, 1 << 20) > 0.9);
        machine.ring = 30.0;
        machine.send(stream, 2 * STAY_MAX, 1 << 20);
        assert!(machine.share_of_calls(stream, 8 << 30, 1 << 20) < 0.1);
    }

    /// The peer gets no processor any more, long before the next trial is due.
    #[test]
    fn a_ring_that_falls_behind_is_left_at_once() {
        let mut machine = Machine::new(30.0, 12.0);
        let mut streams = Streams::new();
        let stream = streams.stream_of(Streamed::Write, 64 << 10).unwrap();
        machine.send(stream, 16 << 30, 64 << 10);
        assert!(stream.left > 256 << 20, "{stream:?}");
        machine.ring = 1.5;
        machine.send(stream, 2 * RING_WINDOW + CALL_WINDOW, 64 << 10);
        assert_eq!((stream.method(), stream.is_trial), (Method::Call, false));
    }

    #[test]
    fn requests_one_by_one_take_the_ring() {
        let mut streams = Streams::new();
        let stream = streams.stream_of(Streamed::Write, 64 << 10).unwrap();
        for _ in 0..10_000 {
            assert_eq!(stream.method(), Method::Ring);
            stream.sent(64 << 10, false, || unreachable!("no rate is measured"));
        }
    }

    /// A stream that used calls ends, and requests come one by one: the next trial of the ring ends calls.
    #[test]
    fn a_stream_that_ends_leaves_no_calls_behind() {
        let mut machine = Machine::new(5.0, 10.0);
        let mut streams = Streams::new();
        let stream = streams.stream_of(Streamed::Write, 1 << 20).unwrap();
        machine.send(stream, 64 << 20, 1 << 20);
        assert_eq!(stream.method(), Method::Call);
        for _ in 0..STAY_MAX >> 20 {
            match stream.method() {
                Method::Call => stream.called(1 << 20, 1, 100_000),
                Method::Ring => stream.sent(1 << 20, false, || unreachable!("no rate is measured")),
            }
        }
        assert_eq!((stream.method(), stream.is_trial), (Method::Ring, false));
    }

    #[test]
    fn refused_calls_are_not_tried_for_long() {
        let mut machine = Machine::new(5.0, 10.0);
        let mut streams = Streams::new();
        let stream = streams.stream_of(Streamed::Write, 1 << 20).unwrap();
        machine.send(stream, 64 << 20, 1 << 20);
        stream.refused();
        assert_eq!(machine.share_of_calls(stream, STAY_MAX / 2, 1 << 20), 0.0);
    }

    #[test]
    fn streams_that_were_measured_are_shown() {
        let mut machine = Machine::new(10.0, 25.0);
        let mut streams = Streams::new();
        assert_eq!(streams.measured().count(), 0);
        machine.send(
            streams.stream_of(Streamed::Read, 1 << 20).unwrap(),
            1 << 30,
            1 << 20,
        );
        let [measured] = streams.measured().collect::<Vec<_>>()[..] else {
            panic!("one stream")
        };
        assert_eq!(
            (measured.kind, measured.longest, measured.method),
            (Streamed::Read, 1 << 20, Method::Call)
        );
        assert!(
            (measured.ring - 10.0).abs() < 0.1 && (measured.call - 25.0).abs() < 0.1,
            "{measured:?}"
        );
    }

    #[test]
    fn lengths_have_classes_by_powers_of_two() {
        let mut streams = Streams::new();
        assert!(
            streams.stream_of(Streamed::Write, 4096).is_none()
                && streams.stream_of(Streamed::Write, (4 << 20) + 1).is_none()
        );
        for (length, class) in [(4097, 0), (8192, 0), (8193, 1), (1 << 20, 7), (4 << 20, 9)] {
            let at = std::ptr::from_mut(streams.stream_of(Streamed::Write, length).unwrap());
            assert!(std::ptr::eq(at, &raw const streams.0[0][class]), "{length}");
        }
    }
}
