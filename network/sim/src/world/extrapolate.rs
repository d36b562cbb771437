//! Extrapolation of counters over a time that was skipped: the counts of the windows before it, times the
//! ratio of their lengths. Peaks and levels stay as they are.

use super::results::{HostResult, Results, SwitchResult};
use fabric::{Incidents, IngressCounters, LinkCounters, PortCounters, QueueCounters, Span, Tally};

/// The length of the skipped time, beside that of the windows that it repeats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Repetition {
    pub(super) skipped: Span,
    pub(super) windows: Span,
}

impl Repetition {
    /// Scales a count of the windows to the skipped time.
    pub(super) fn of(self, count: u64) -> u64 {
        let product = u128::from(count) * u128::from(self.skipped.0);
        u64::try_from(product / u128::from(self.windows.0.max(1))).unwrap_or(u64::MAX)
    }
}

/// Counters that grow.
pub(super) trait Extrapolate {
    /// Adds the counts between `earlier` and `later`, repeated.
    fn extrapolate(&mut self, later: &Self, earlier: &Self, by: Repetition);

    /// Adds the counts of another.
    fn add(&mut self, more: &Self);
}

impl Extrapolate for u64 {
    fn extrapolate(&mut self, later: &Self, earlier: &Self, by: Repetition) {
        *self += by.of(later.saturating_sub(*earlier));
    }

    fn add(&mut self, more: &Self) {
        *self += more;
    }
}

impl<T: Extrapolate> Extrapolate for [T] {
    fn extrapolate(&mut self, later: &Self, earlier: &Self, by: Repetition) {
        self.iter_mut()
            .zip(later)
            .zip(earlier)
            .for_each(|((mine, later), earlier)| {
                mine.extrapolate(later, earlier, by);
            });
    }

    fn add(&mut self, more: &Self) {
        self.iter_mut()
            .zip(more)
            .for_each(|(mine, more)| mine.add(more));
    }
}

impl<T: Extrapolate, const N: usize> Extrapolate for [T; N] {
    fn extrapolate(&mut self, later: &Self, earlier: &Self, by: Repetition) {
        self.as_mut_slice().extrapolate(later, earlier, by);
    }

    fn add(&mut self, more: &Self) {
        self.as_mut_slice().add(more);
    }
}

impl<T: Extrapolate> Extrapolate for Vec<T> {
    fn extrapolate(&mut self, later: &Self, earlier: &Self, by: Repetition) {
        self.as_mut_slice().extrapolate(later, earlier, by);
    }

    fn add(&mut self, more: &Self) {
        self.as_mut_slice().add(more);
    }
}

/// Most ports have none.
impl Extrapolate for Option<Box<Incidents>> {
    fn extrapolate(&mut self, later: &Self, earlier: &Self, by: Repetition) {
        let Some(later) = later else { return };
        let none = Box::default();
        self.get_or_insert_default()
            .extrapolate(later, earlier.as_ref().unwrap_or(&none), by);
    }

    fn add(&mut self, more: &Self) {
        if let Some(more) = more {
            self.get_or_insert_default().add(more);
        }
    }
}

/// The counters of devices have a method for all of their fields.
macro_rules! of_devices {
    ($($name:ty)*) => {$(
        impl Extrapolate for $name {
            fn extrapolate(&mut self, later: &Self, earlier: &Self, by: Repetition) {
                let counted = later.zip_with(earlier, u64::saturating_sub);
                *self = self.zip_with(&counted, |mine, counted| mine + by.of(counted));
            }

            fn add(&mut self, more: &Self) {
                *self = self.zip_with(more, |mine, more| mine + more);
            }
        }
    )*};
}

of_devices! { rnic::QpCounters rnic::PortCounters }

/// Names the fields that grow.
macro_rules! growing {
    ($($name:ident { $($field:ident),* $(,)? })*) => {$(
        impl Extrapolate for $name {
            fn extrapolate(&mut self, later: &Self, earlier: &Self, by: Repetition) {
                $(self.$field.extrapolate(&later.$field, &earlier.$field, by);)*
            }

            fn add(&mut self, more: &Self) {
                $(self.$field.add(&more.$field);)*
            }
        }
    )*};
}

growing! {
    Tally { packets, bytes }
    QueueCounters { sent_packets, sent_bytes, marked_packets, marked_bytes, paused_ps }
    IngressCounters { packets, bytes, dropped, pauses_received, pauses_sent, resumes_sent }
    Incidents { pfc_sent, pfc_received, refused, dropped }
    LinkCounters { damaged, lost }
    PortCounters { ingress, queues, incidents, link }
    SwitchResult { ports }
    HostResult { device, queues, pauses_received, pauses_sent, incidents, link, dropped, pcie_busy_ps }
}

/// The counts that were added for all times that were skipped.
#[derive(Debug)]
pub(super) struct Skipped {
    /// Of each flow: the queue pair that sends, and the one that receives.
    flows: Vec<[rnic::QpCounters; 2]>,
    hosts: Vec<HostResult>,
    switches: Vec<SwitchResult>,
    damaged: u64,
}

impl Skipped {
    /// Zero counts, for a network of the size that results have.
    pub(super) fn none(results: &Results) -> Self {
        let ports = |switch: &SwitchResult| SwitchResult {
            ports: vec![PortCounters::default(); switch.ports.len()],
            ..SwitchResult::default()
        };
        Self {
            flows: vec![<[rnic::QpCounters; 2]>::default(); results.flows.len()],
            hosts: vec![HostResult::default(); results.hosts.len()],
            switches: results.switches.iter().map(ports).collect(),
            damaged: 0,
        }
    }

    /// Adds a repetition of the counts from one moment to a later one.
    pub(super) fn repeat(&mut self, later: &Results, earlier: &Results, by: Repetition) {
        for ((mine, later), earlier) in self.flows.iter_mut().zip(&later.flows).zip(&earlier.flows)
        {
            mine[0].extrapolate(&later.sender, &earlier.sender, by);
            mine[1].extrapolate(&later.receiver, &earlier.receiver, by);
        }
        self.hosts.extrapolate(&later.hosts, &earlier.hosts, by);
        self.switches
            .extrapolate(&later.switches, &earlier.switches, by);
        self.damaged
            .extrapolate(&later.damaged, &earlier.damaged, by);
    }

    /// Adds all of it to results.
    pub(super) fn add_to(&self, results: &mut Results) {
        for (flow, more) in results.flows.iter_mut().zip(&self.flows) {
            flow.sender.add(&more[0]);
            flow.receiver.add(&more[1]);
        }
        results.hosts.add(&self.hosts);
        results.switches.add(&self.switches);
        results.damaged.add(&self.damaged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_grow_in_proportion_and_peaks_stay() {
        let by = Repetition {
            skipped: Span::from_us(300),
            windows: Span::from_us(100),
        };
        let earlier = QueueCounters {
            sent_packets: 10,
            peak_bytes: 7,
            ..QueueCounters::default()
        };
        let later = QueueCounters {
            sent_packets: 15,
            peak_bytes: 9,
            ..QueueCounters::default()
        };
        let mut skipped = QueueCounters::default();
        skipped.extrapolate(&later, &earlier, by);
        assert_eq!(
            skipped,
            QueueCounters {
                sent_packets: 15,
                ..QueueCounters::default()
            }
        );
    }

    #[test]
    fn incidents_that_began_in_the_windows_count() {
        let by = Repetition {
            skipped: Span::from_us(200),
            windows: Span::from_us(100),
        };
        let later = Some(Box::new(Incidents {
            pfc_sent: [0, 0, 0, 4, 0, 0, 0, 0],
            ..Incidents::default()
        }));
        let mut skipped = None;
        skipped.extrapolate(&later, &None, by);
        assert_eq!(
            skipped.map(|incidents: Box<Incidents>| incidents.pfc_sent[3]),
            Some(8)
        );
    }
}
