//! Ultra Ethernet's transport of adapters, from `[nic.NAME]` and the paths of flows.

use super::Experiment;
use super::path::Paths;
use crate::world::{EntropyKind, NsccConfig, UetConfig};
use fabric::Span;
use fabric_file::schema::NicTable;
use fabric_file::uet;

/// The target delay in parts of the longest round trip, in a network that trims: three quarters (Ultra
/// Ethernet 1.0, section 3.6.13).
const TARGET: [u64; 2] = [3, 4];

/// What an adapter's table says; round trip and target are zero where it leaves them out.
pub(super) fn transport(nic: &NicTable, line_bps: u64) -> UetConfig {
    let span = |given: Option<units::Timespan>| given.map_or(Span::ZERO, |span| span.0);
    UetConfig {
        window: nic.window.0,
        network: NsccConfig {
            base_rtt: span(nic.nscc.base_rtt),
            target: span(nic.nscc.target),
            line_bps,
            payload: nic.mtu,
            packet: 0,
        },
        nscc: nic.congestion.has_nscc(),
        rccc: nic.congestion.has_rccc(),
        entropy: match nic.uet.entropy {
            uet::EntropyKind::Oblivious => EntropyKind::Oblivious,
            uet::EntropyKind::Bitmap => EntropyKind::Bitmap,
            uet::EntropyKind::Reps => EntropyKind::Reps,
            uet::EntropyKind::Mixed => EntropyKind::Mixed,
        },
        values: nic.uet.values,
        ack_bytes: u32::try_from(nic.uet.ack_bytes.0).unwrap_or(u32::MAX),
        timeout: nic.uet.timeout.0,
        retries: nic.retries,
    }
}

impl Experiment {
    /// Gives adapters with Ultra Ethernet's transport the longest round trip of a packet of their flows, and
    /// what depends on it.
    pub(super) fn measure_round_trips(&mut self) {
        let is_uet = |host: u32| self.scenario.hosts[host as usize].uet.is_some();
        let mut longest = Span::ZERO;
        let mut paths = Paths::new(self);
        for flow in self.scenario.flows.iter().filter(|flow| is_uet(flow.from)) {
            let payload = u64::from(self.scenario.hosts[flow.from as usize].mtu.bytes());
            let path = paths.between(flow.from, flow.to);
            let alone = path.map(|path| self.alone(&path, flow.from, payload));
            longest = longest.max(alone.unwrap_or_default());
        }
        for host in &mut self.scenario.hosts {
            let packet = host.mtu.bytes() + host.overhead_bytes();
            let Some(uet) = &mut host.uet else { continue };
            let network = &mut uet.network;
            network.packet = packet;
            if network.base_rtt == Span::ZERO {
                network.base_rtt = longest;
            }
            if network.target == Span::ZERO {
                network.target = Span(network.base_rtt.0 * TARGET[0] / TARGET[1]);
            }
        }
    }
}
