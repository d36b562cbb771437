//! Faults that rules found, each with its evidence, its consequence and its correction.

use core::fmt;

use vendors::facts::Evidence;

use crate::cost_simulation::Cost;
use crate::manual;

/// The consequence of a fault.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Consequence {
    /// The simulated difference.
    Simulated(Cost),
    /// No packet of RDMA arrives.
    NothingArrives,
    /// RDMA is not used: programs use TCP.
    FallsBackToTcp,
    /// Settings are lost at the next boot: until then nothing changes.
    AfterReboot(Cost),
    /// A consequence that the simulator does not model; no figure is known.
    NotSimulated(&'static str),
}

/// How much a fault matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// The network works, and is slower, less robust or unlike its plan.
    Warning,
    /// RDMA does not work or is not used, or the simulation loses packets or a tenth of the bandwidth.
    Error,
}

/// A fault that a rule found.
#[derive(Clone, PartialEq, Debug)]
pub struct Finding {
    /// The name of the rule.
    pub rule: &'static str,
    /// The host or switch, with its port.
    pub place: String,
    /// A description of the fault.
    pub what: String,
    /// The lines that show it.
    pub evidence: Vec<Evidence>,
    /// The consequence of the fault.
    pub consequence: Consequence,
    /// The correction, in the terms of that system.
    pub fix: String,
    /// The section of the manual.
    pub link: &'static str,
    /// The specification of the setting.
    pub specification: &'static str,
}

impl Finding {
    /// A fault that a rule found. The rule's section of the manual has what else belongs to it.
    pub(crate) fn new(
        rule: &'static str,
        place: String,
        what: String,
        evidence: Vec<Evidence>,
        consequence: Consequence,
        fix: String,
    ) -> Self {
        Self {
            rule,
            place,
            what,
            evidence,
            consequence,
            fix,
            link: manual::link(rule),
            specification: manual::specification(rule),
        }
    }
}

impl Finding {
    /// How much the fault matters, by its consequence.
    pub fn severity(&self) -> Severity {
        let is_error = match &self.consequence {
            Consequence::NothingArrives | Consequence::FallsBackToTcp => true,
            Consequence::Simulated(cost) => {
                let (now, fixed) = (cost.now, cost.fixed);
                now.dropped > fixed.dropped || now.gbps < fixed.gbps * 0.9
            }
            Consequence::AfterReboot(_) | Consequence::NotSimulated(_) => false,
        };
        match is_error {
            true => Severity::Error,
            false => Severity::Warning,
        }
    }
}

impl fmt::Display for Consequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simulated(cost) => write!(f, "{cost}"),
            Self::NothingArrives => write!(
                f,
                "0 Gb/s of RDMA: no packet arrives, and connections time out"
            ),
            Self::FallsBackToTcp => {
                write!(
                    f,
                    "0 Gb/s of RDMA: data goes over TCP, which costs processor time and latency"
                )
            }
            Self::AfterReboot(cost) => write!(f, "after the next start: {cost}"),
            Self::NotSimulated(why) => write!(f, "not simulated: {why}"),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {} [{}]", self.place, self.what, self.rule)?;
        for evidence in &self.evidence {
            writeln!(f, "  seen         {evidence}")?;
        }
        writeln!(f, "  consequence  {}", self.consequence)?;
        for (index, line) in self.fix.lines().enumerate() {
            writeln!(f, "  {:12} {line}", if index == 0 { "fix" } else { "" })?;
        }
        writeln!(f, "  more         {}; {}", self.link, self.specification)
    }
}
