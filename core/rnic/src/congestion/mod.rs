//! Congestion control: how much a queue pair may have in the network, and at which rate it may send.

mod adaptive;
mod dcqcn;
mod hpcc;
mod pace;
mod swift;

use crate::config::{Config, CongestionConfig};
use crate::telemetry::Hop;
use crate::time::Instant;
use adaptive::Adaptive;
use alloc::boxed::Box;
use dcqcn::Dcqcn;
use hpcc::Hpcc;
use swift::Swift;

/// Interface of a congestion control algorithm. All times are the driver's. Events without effect on an
/// algorithm have an empty default.
trait Algorithm {
    /// Number of packets that may be unacknowledged.
    fn window_packets(&self, mtu: u32) -> u32;
    /// Packets of `bytes` in total, counted as if all were full, were sent.
    fn sent(&mut self, _bytes: u32, _now: Instant) {}
    /// Telemetry of the switches, in the order of the path; it arrived with the acknowledgement that is
    /// handled next.
    fn told(&mut self, _hops: &[Hop]) {}
    /// `bytes` were acknowledged, counted as in [`Self::sent`].
    fn acknowledged(&mut self, _bytes: u32, _now: Instant) {}
    /// A sequence error reported a loss. Called once per window of data.
    fn lost(&mut self, _now: Instant) {}
    /// Nothing was received for the whole timeout.
    fn timed_out(&mut self, _now: Instant) {}
    /// A congestion notification packet arrived.
    fn notified(&mut self, _now: Instant) {}
    /// `bytes` are sent now; returns when the next packet may be sent.
    fn paced(&mut self, _bytes: u32, now: Instant) -> Instant {
        now
    }
    /// Handles the deadlines that have passed.
    fn handle_timeout(&mut self, _now: Instant) {}
}

/// Number of packets of an MTU in so many bytes, without a division where the MTU is a power of two, as path
/// MTUs are.
#[inline]
fn packets(bytes: u32, mtu: u32) -> u32 {
    if mtu.is_power_of_two() {
        bytes >> mtu.trailing_zeros()
    } else {
        bytes / mtu
    }
}

/// The algorithm of a queue pair.
#[derive(Debug)]
pub(crate) enum Control {
    /// No algorithm: the window of the configuration alone.
    Off {
        window_bytes: u32,
    },
    Adaptive(Adaptive),
    Dcqcn(Box<Dcqcn>),
    Swift(Box<Swift>),
    Hpcc(Box<Hpcc>),
}

impl Control {
    pub(crate) fn new(config: &Config) -> Self {
        let window_bytes = config.window_bytes;
        match &config.congestion {
            CongestionConfig::Off => Self::Off { window_bytes },
            CongestionConfig::Adaptive => Self::Adaptive(Adaptive::new(window_bytes)),
            CongestionConfig::Dcqcn(dcqcn) => {
                Self::Dcqcn(Box::new(Dcqcn::new(dcqcn, window_bytes)))
            }
            CongestionConfig::Swift(swift) => {
                Self::Swift(Box::new(Swift::new(swift, window_bytes)))
            }
            CongestionConfig::Hpcc(hpcc) => Self::Hpcc(Box::new(Hpcc::new(hpcc, window_bytes))),
        }
    }

    fn algorithm(&mut self) -> Option<&mut dyn Algorithm> {
        match self {
            Self::Off { .. } => None,
            Self::Adaptive(algorithm) => Some(algorithm),
            Self::Dcqcn(algorithm) => Some(&mut **algorithm),
            Self::Swift(algorithm) => Some(&mut **algorithm),
            Self::Hpcc(algorithm) => Some(&mut **algorithm),
        }
    }

    /// Number of packets that may be unacknowledged, at least one, so that progress is always possible.
    #[inline]
    pub(crate) fn window_packets(&self, mtu: u32) -> u32 {
        let packets = match self {
            Self::Off { window_bytes } => packets(*window_bytes, mtu),
            Self::Adaptive(algorithm) => algorithm.window_packets(mtu),
            Self::Dcqcn(algorithm) => algorithm.window_packets(mtu),
            Self::Swift(algorithm) => algorithm.window_packets(mtu),
            Self::Hpcc(algorithm) => algorithm.window_packets(mtu),
        };
        packets.max(1)
    }

    /// Whether packets may have to wait for the pacing time.
    pub(crate) fn is_pacing(&self) -> bool {
        matches!(self, Self::Dcqcn(_) | Self::Hpcc(_) | Self::Swift(_))
    }

    /// Records sent bytes, for the algorithms that measure round trips.
    #[inline]
    pub(crate) fn sent(&mut self, bytes: u32, now: Instant) {
        match self {
            Self::Off { .. } | Self::Adaptive(_) | Self::Dcqcn(_) => {}
            Self::Swift(algorithm) => algorithm.sent(bytes, now),
            Self::Hpcc(algorithm) => algorithm.sent(bytes, now),
        }
    }

    /// Records the hop limit of an acknowledgement.
    #[inline]
    pub(crate) fn travelled(&mut self, hop_limit: u8) {
        if let Self::Swift(algorithm) = self {
            algorithm.travelled(hop_limit);
        }
    }

    /// The lines of the algorithm's state.
    #[cfg(feature = "simulation")]
    #[inline]
    pub(crate) fn lines(&self, load: &impl Fn(*const u8)) {
        let (first, bytes): (*const u8, usize) = match self {
            Self::Off { .. } | Self::Adaptive(_) => return,
            Self::Dcqcn(algorithm) => {
                (core::ptr::from_ref(&**algorithm).cast(), size_of::<Dcqcn>())
            }
            Self::Swift(algorithm) => {
                (core::ptr::from_ref(&**algorithm).cast(), size_of::<Swift>())
            }
            Self::Hpcc(algorithm) => (core::ptr::from_ref(&**algorithm).cast(), size_of::<Hpcc>()),
        };
        (0..bytes + 63)
            .step_by(64)
            .for_each(|at| load(first.wrapping_add(at)));
    }

    pub(crate) fn told(&mut self, hops: &[Hop]) {
        if let Some(algorithm) = self.algorithm() {
            algorithm.told(hops);
        }
    }

    #[inline]
    pub(crate) fn acknowledged(&mut self, bytes: u32, now: Instant) {
        if let Self::Off { .. } | Self::Dcqcn(_) = self {
            return;
        }
        if let Some(algorithm) = self.algorithm() {
            algorithm.acknowledged(bytes, now);
        }
    }

    pub(crate) fn lost(&mut self, now: Instant) {
        if let Some(algorithm) = self.algorithm() {
            algorithm.lost(now);
        }
    }

    pub(crate) fn timed_out(&mut self, now: Instant) {
        if let Some(algorithm) = self.algorithm() {
            algorithm.timed_out(now);
        }
    }

    pub(crate) fn notified(&mut self, now: Instant) {
        if let Some(algorithm) = self.algorithm() {
            algorithm.notified(now);
        }
    }

    #[inline]
    pub(crate) fn paced(&mut self, bytes: u32, now: Instant) -> Instant {
        match self {
            Self::Off { .. } | Self::Adaptive(_) => now,
            Self::Swift(algorithm) => algorithm.paced(bytes, now),
            Self::Dcqcn(algorithm) => algorithm.paced(bytes, now),
            Self::Hpcc(algorithm) => algorithm.paced(bytes, now),
        }
    }

    /// The next deadline for `handle_timeout`; [`Instant::NEVER`] where there is none.
    #[inline]
    pub(crate) fn deadline(&self) -> Instant {
        match self {
            Self::Dcqcn(algorithm) => algorithm.next_clock(),
            _ => Instant::NEVER,
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if let Some(algorithm) = self.algorithm() {
            algorithm.handle_timeout(now);
        }
    }

    /// Current rate in bits per second, where the algorithm has one.
    pub(crate) fn rate_bps(&self) -> Option<u64> {
        match self {
            Self::Dcqcn(algorithm) => Some(algorithm.rate_bps()),
            Self::Hpcc(algorithm) => Some(algorithm.rate_bps()),
            _ => None,
        }
    }
}
