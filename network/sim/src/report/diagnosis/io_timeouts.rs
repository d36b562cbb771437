//! Findings about I/Os that took too long.

use super::super::layout::time;
use super::super::units::us;
use super::super::{Finding, Severity, counted};
use super::{View, finding};

impl View<'_> {
    /// Hosts whose controllers were reset because an I/O took too long.
    pub(super) fn io_timeouts(&self) -> Vec<Finding> {
        let named = self.report.stores.iter();
        let late = named.filter(|store| store.io_timeouts.ios > 0);
        late.filter_map(|store| {
            let hosts = &self.experiment.network.hosts;
            let number = hosts.iter().position(|host| host.name == store.host)? as u32;
            let scenario = &self.experiment.scenario;
            let mut flows = scenario.flows.iter();
            let limits = flows
                .find(|flow| flow.from == number && flow.operation.is_storage())?
                .io;
            let count = store.io_timeouts;
            let severity = if count.errors > 0 {
                Severity::Broken
            } else {
                Severity::Slow
            };
            let seen = format!(
                "{}: {} longer than {}; {} cancelled {}, and {} with an error",
                store.host,
                counted(count.ios, "I/O took", "I/Os took"),
                time(us(limits.timeout.0)),
                counted(
                    count.resets,
                    "reset of the controller",
                    "resets of the controller"
                ),
                counted(
                    count.cancelled + count.errors,
                    "I/O under way",
                    "I/Os under way"
                ),
                counted(count.errors, "of them ended", "of them ended"),
            );
            let cause = format!(
                "{}: one late I/O costs all of its controller's, and the host is connected again after {}",
                store.host,
                time(us(limits.reconnect.0))
            );
            let instead = "find what holds I/Os for so long (what limits the workload, links that go down); \
                where queues are merely long, less depth or a longer io-timeout";
            Some(finding(severity, seen, cause, instead))
        })
        .collect()
    }
}
