//! Congestion control: how much a queue pair may have in the network, and how fast it may add to it.

mod adaptive;
mod dcqcn;
mod swift;

use crate::config::{Config, CongestionConfig};
use crate::time::Instant;
use adaptive::Adaptive;
use alloc::boxed::Box;
use dcqcn::Dcqcn;
use swift::Swift;

/// What an algorithm hears and says. All times are the driver's.
trait Algorithm {
    /// Bytes that may be unacknowledged.
    fn window_bytes(&self) -> u32;
    /// Packets of `bytes`, counted as if all were full, have left.
    fn sent(&mut self, _bytes: u32, _now: Instant) {}
    /// `bytes` were acknowledged, counted likewise.
    fn acknowledged(&mut self, bytes: u32, now: Instant);
    /// A sequence error said that something was lost. Called once per window of data.
    fn lost(&mut self, now: Instant);
    /// Nothing was heard for the whole timeout.
    fn timed_out(&mut self, now: Instant);
    /// A congestion notification packet came.
    fn notified(&mut self, now: Instant);
    /// `bytes` leave now; returns when the next packet may.
    fn paced(&mut self, bytes: u32, now: Instant) -> Instant;
    /// When `handle_timeout` is wanted.
    fn deadline(&self) -> Option<Instant>;
    /// Does what is due.
    fn handle_timeout(&mut self, now: Instant);
}

/// The algorithm of a queue pair.
#[derive(Debug)]
pub(crate) enum Control {
    /// The window of the configuration, nothing more.
    Off {
        window_bytes: u32,
    },
    Adaptive(Adaptive),
    Dcqcn(Box<Dcqcn>),
    Swift(Box<Swift>),
}

impl Control {
    pub(crate) fn new(config: &Config) -> Self {
        let window_bytes = config.window_bytes;
        match &config.congestion {
            CongestionConfig::Off => Self::Off { window_bytes },
            CongestionConfig::Adaptive => Self::Adaptive(Adaptive::new(window_bytes)),
            CongestionConfig::Dcqcn(dcqcn) => Self::Dcqcn(Box::new(Dcqcn::new(dcqcn, window_bytes))),
            CongestionConfig::Swift(swift) => Self::Swift(Box::new(Swift::new(swift, window_bytes))),
        }
    }

    fn algorithm(&mut self) -> Option<&mut dyn Algorithm> {
        match self {
            Self::Off { .. } => None,
            Self::Adaptive(algorithm) => Some(algorithm),
            Self::Dcqcn(algorithm) => Some(&mut **algorithm),
            Self::Swift(algorithm) => Some(&mut **algorithm),
        }
    }

    pub(crate) fn window_bytes(&self) -> u32 {
        match self {
            Self::Off { window_bytes } => *window_bytes,
            Self::Adaptive(algorithm) => algorithm.window_bytes(),
            Self::Dcqcn(algorithm) => algorithm.window_bytes(),
            Self::Swift(algorithm) => algorithm.window_bytes(),
        }
    }

    /// Whether packets may have to wait for their time.
    pub(crate) fn is_pacing(&self) -> bool {
        matches!(self, Self::Dcqcn(_))
    }

    /// Only an algorithm that measures delays wants to know.
    pub(crate) fn sent(&mut self, bytes: u32, now: Instant) {
        if let Self::Swift(algorithm) = self {
            algorithm.sent(bytes, now);
        }
    }

    pub(crate) fn acknowledged(&mut self, bytes: u32, now: Instant) {
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

    pub(crate) fn paced(&mut self, bytes: u32, now: Instant) -> Instant {
        match self {
            Self::Off { .. } | Self::Adaptive(_) | Self::Swift(_) => now,
            Self::Dcqcn(algorithm) => algorithm.paced(bytes, now),
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Off { .. } | Self::Adaptive(_) | Self::Swift(_) => None,
            Self::Dcqcn(algorithm) => algorithm.deadline(),
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
            _ => None,
        }
    }
}
