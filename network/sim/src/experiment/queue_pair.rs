//! Names of queue pairs: the workload, the host that posts, and the number among those of the workload that
//! post there.

use super::Experiment;
use crate::world::{Flow, Traced, Transfer};
use std::collections::BTreeMap;
use std::fmt;

/// Names that an error lists.
const LISTED_MAX: usize = 12;

/// The name of a queue pair.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct QueuePairName {
    /// Name of the workload.
    pub workload: String,
    /// The host that posts its messages.
    pub host: String,
    /// From 0, among those of workloads of this name that post there.
    pub number: usize,
}

impl fmt::Display for QueuePairName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.workload, self.host, self.number)
    }
}

/// The reason why a text names no queue pair.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoQueuePair {
    /// None is called so.
    #[error("no queue pair is called {name}; there are: {}", listed(.there))]
    Unknown {
        /// The name that was given.
        name: String,
        /// The names that there are, of its workload where that is known.
        there: Vec<String>,
    },
    /// Several queue pairs have it, because host or number is left out.
    #[error("{name} is the name of several queue pairs, choose one: {}", listed(.meant))]
    Several {
        /// The name that was given.
        name: String,
        /// Their whole names.
        meant: Vec<String>,
    },
}

fn listed(names: &[String]) -> String {
    let shown = names[..names.len().min(LISTED_MAX)].join(", ");
    match names.len().saturating_sub(LISTED_MAX) {
        0 => shown,
        more => format!("{shown}, and {more} more"),
    }
}

impl QueuePairName {
    /// Whether a text is this name, or its beginning.
    fn is_meant_by(&self, text: &str) -> bool {
        let rest = text.strip_prefix(self.workload.as_str());
        let Some(rest) = rest.and_then(|rest| self.host_behind(rest)) else {
            return false;
        };
        rest.is_empty()
            || rest
                .strip_prefix('/')
                .is_some_and(|number| number == self.number.to_string())
    }

    /// The text behind `/` and the host; nothing where that ends with the workload.
    fn host_behind<'a>(&self, rest: &'a str) -> Option<&'a str> {
        if rest.is_empty() {
            return Some(rest);
        }
        rest.strip_prefix('/')?.strip_prefix(self.host.as_str())
    }
}

impl Experiment {
    /// The name of each queue pair, by the number of its flow.
    pub fn queue_pair_names(&self) -> Vec<QueuePairName> {
        let mut counts: BTreeMap<(&str, u32), usize> = BTreeMap::new();
        let name = |flow: &Flow| {
            let host = match flow.operation {
                Transfer::Read => flow.to,
                _ => flow.from,
            };
            let workload = self.workloads.get(flow.workload as usize);
            let workload = workload.map_or("", String::as_str);
            let count = counts.entry((workload, host)).or_default();
            let number = *count;
            *count += 1;
            QueuePairName {
                workload: workload.to_owned(),
                host: self.network.hosts[host as usize].name.clone(),
                number,
            }
        };
        self.scenario.flows.iter().map(name).collect()
    }

    /// The queue pair `WORKLOAD/HOST/NUMBER`, or one packet of it with `:PSN` behind. Where one queue pair
    /// alone is meant without them, number and host may be left out.
    ///
    /// # Errors
    /// Where none has this name, or several do.
    pub fn queue_pair(&self, text: &str) -> Result<Traced, NoQueuePair> {
        let names = self.queue_pair_names();
        let with_psn = text
            .rsplit_once(':')
            .and_then(|(name, psn)| Some((name, Some(number(psn)?))));
        let readings = [Some((text, None)), with_psn];
        for (name, psn) in readings.into_iter().flatten() {
            let meant: Vec<u32> = (0..)
                .zip(&names)
                .filter(|(_, other)| other.is_meant_by(name))
                .map(|(flow, _)| flow)
                .collect();
            match meant[..] {
                [] => {}
                [flow] => return Ok(Traced { flow, psn }),
                _ => {
                    let whole = |flow: &u32| names[*flow as usize].to_string();
                    return Err(NoQueuePair::Several {
                        name: name.to_owned(),
                        meant: meant.iter().map(whole).collect(),
                    });
                }
            }
        }
        let name = with_psn.map_or(text, |(name, _)| name);
        let of_workload = |other: &&QueuePairName| {
            let rest = name.strip_prefix(other.workload.as_str());
            rest.is_some_and(|rest| rest.starts_with('/'))
        };
        let is_known = names.iter().any(|other| of_workload(&other));
        let there = names
            .iter()
            .filter(|other| !is_known || of_workload(other))
            .map(ToString::to_string);
        Err(NoQueuePair::Unknown {
            name: name.to_owned(),
            there: there.collect(),
        })
    }
}

/// A packet sequence number, in decimal or hexadecimal.
fn number(text: &str) -> Option<u32> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok()?,
        None => text.parse().ok()?,
    };
    (number < 1 << 24).then_some(number)
}
