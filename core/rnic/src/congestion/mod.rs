//! Congestion control: how much a queue pair may have in the network, and at which rate it may send.

mod adaptive;
mod dcqcn;
mod dctcp;
mod hpcc;
mod pace;
mod registry;
mod round_trips;
mod swift;
mod timely;

pub use dcqcn::{DcqcnConfig, FirmwareDcqcn};
pub use dctcp::DctcpConfig;
pub use hpcc::HpccConfig;
pub use swift::SwiftConfig;
pub use timely::TimelyConfig;

use crate::telemetry::Hop;
use crate::time::{Instant, Nanos};
use adaptive::Adaptive;
use alloc::boxed::Box;
use dcqcn::Dcqcn;
use dctcp::Dctcp;
use hpcc::Hpcc;
use swift::Swift;
use timely::Timely;

/// The least interval between two congestion notifications per queue pair, where an algorithm sets none
/// (DCQCN paper, section 5: N = 50 us).
const NOTIFICATION_INTERVAL: Nanos = Nanos::from_micros(50);

registry::controls! {
    /// DCQCN (Zhu et al., SIGCOMM 2015) with these parameters.
    Dcqcn(DcqcnConfig);
    /// Swift (Kumar et al., SIGCOMM 2020) with these parameters.
    Swift(SwiftConfig);
    /// HPCC (Li et al., SIGCOMM 2019) with these parameters: for networks whose switches add telemetry (INT),
    /// and drivers that pass it on ([`crate::simulation::Simulated::handle_telemetry`]).
    Hpcc(HpccConfig);
    /// TIMELY (Mittal et al., SIGCOMM 2015) with these parameters.
    Timely(TimelyConfig);
    /// DCTCP (RFC 8257) with these parameters, for the window of a queue pair.
    Dctcp(DctcpConfig);
}

/// What tells a sender that it is to be slower.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// Packets that are lost, and nothing else on purpose.
    Loss,
    /// Notification packets of the receiver, from time to time while packets arrive marked.
    Notifications,
    /// Acknowledgements, one for each packet, that say whether it arrived marked (BECN in their BTH).
    Echoes,
    /// The round trips of packets.
    Delay,
    /// Telemetry of switches.
    Telemetry,
}

/// The parameters of an algorithm, and what others have to know of it.
trait Parameters {
    /// The algorithm that has these parameters.
    type Control: Algorithm;
    /// The algorithm's name in files and reports.
    const NAME: &'static str;
    /// What it listens to.
    const SIGNAL: Signal;
    /// The algorithm of a new queue pair, of which so many bytes may be unacknowledged at most.
    fn control(&self, window_bytes: u32) -> Self::Control;
    /// The least time between two notifications that a receiver sends.
    fn notification_interval(&self) -> Nanos {
        NOTIFICATION_INTERVAL
    }
    /// How long the fast part of the recovery from one reduction takes.
    fn recovery(&self) -> Nanos {
        Nanos(0)
    }
}

/// A congestion control algorithm. All times are the driver's. Events without effect on an algorithm have an
/// empty default.
trait Algorithm {
    /// Whether packets may have to wait for the pacing time.
    const PACES: bool = false;
    /// Number of packets that may be unacknowledged.
    fn window_packets(&self, mtu: u32) -> u32;
    /// Packets of `bytes` in total, counted as if all were full, were sent.
    fn sent(&mut self, _bytes: u32, _now: Instant) {}
    /// The hop limit of the acknowledgement that is handled next.
    fn travelled(&mut self, _hop_limit: u8) {}
    /// Telemetry of the switches, in the order of the path; it arrived with the acknowledgement that is
    /// handled next.
    fn told(&mut self, _hops: &[Hop]) {}
    /// The acknowledgement that is handled next says that its packets arrived marked.
    fn echoed(&mut self) {}
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
    /// The next deadline for [`Self::handle_timeout`]; [`Instant::NEVER`] where there is none.
    fn deadline(&self) -> Instant {
        Instant::NEVER
    }
    /// Handles the deadlines that have passed.
    fn handle_timeout(&mut self, _now: Instant) {}
    /// Current rate in bits per second, where the algorithm has one.
    fn rate_bps(&self) -> Option<u64> {
        None
    }
    /// The lines of its state.
    #[cfg(feature = "simulation")]
    fn lines(&self, load: &impl Fn(*const u8))
    where
        Self: Sized,
    {
        let first: *const u8 = core::ptr::from_ref(self).cast();
        (0..size_of::<Self>() + 63)
            .step_by(64)
            .for_each(|at| load(first.wrapping_add(at)));
    }
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

impl CongestionConfig {
    /// The most packets between two requests for an acknowledgement, where this many are configured: a
    /// receiver that echoes marks does so for each packet.
    pub(crate) fn ack_interval(&self, configured: u32) -> u32 {
        match self.signal() {
            Signal::Echoes => 1,
            _ => configured.max(1),
        }
    }
}
