//! Configurations and states of real switches, adapters and hosts: planned from fabric files, probed, and
//! judged by rules, each finding with its simulated cost. A fact that was not observed is unknown: no rule
//! evaluates it. This crate never applies a configuration to a device.
#![forbid(unsafe_code)]

mod alike;
mod attach;
pub mod collect;
mod configuration_text;
pub mod cost_simulation;
mod finding;
mod from_fabric;
mod judged;
pub(crate) mod manual;
mod marks;
mod neighbours;
pub mod probe;
mod rules;
mod snapshot;
mod switch_plan;
mod two_paths;

pub use alike::alike;
pub use attach::{attach_host, plan_switch};
pub use configuration_text::{ConfigurationText, Line};
pub use finding::{Consequence, Finding, Severity};
pub use from_fabric::{SourceError, class_weights, host_intent};
pub use judged::{Judged, judged_host, judged_switch};
pub use manual::{Entry, RULES};
pub use marks::Marks;
pub use neighbours::{EtsFacts, Neighbour, PfcFacts, hear, neighbours, page};
pub use rules::{check, check_subnet};
pub use snapshot::{Planned, SwitchFacts, read_switch, read_switch_files};
pub use switch_plan::{SwitchPlan, spread, switch_intent, switch_plan};
pub use two_paths::TwoPaths;
