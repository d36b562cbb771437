//! The counter tables that switches with a vendor's configuration would print for a run.

use crate::experiment::Experiment;
use crate::world::Results;
use fabric::Span;
use fabric::topology::{End, Node};
use vendors::{CountedPort, CountedSwitch, Imported};

/// The output of a switch.
#[derive(Clone, PartialEq, Debug)]
pub struct Printed {
    /// The switch's name.
    pub switch: String,
    /// The operating system of the switch.
    pub system: &'static str,
    /// The tables, as the switch's system prints them.
    pub text: String,
}

/// For each switch with a vendor's configuration, the output that it would print.
pub fn vendor_tables(experiment: &Experiment, results: &Results) -> Vec<Printed> {
    let switches = (0_u32..).zip(&experiment.network.switches);
    let print = |(number, switch): (u32, &fabric_file::NamedSwitch)| {
        let imported = switch.imported.as_ref()?;
        let counted = counted(experiment, results, number)?;
        let (system, text) = match imported {
            Imported::RouterOs(config) => ("RouterOS", config.print(&counted)),
            Imported::Sonic(config) => ("SONiC", config.print(&counted)),
        };
        Some(Printed {
            switch: switch.name.clone(),
            system,
            text,
        })
    };
    switches.filter_map(print).collect()
}

/// The counters of a switch, of the ports that links are attached to.
fn counted(experiment: &Experiment, results: &Results, number: u32) -> Option<CountedSwitch> {
    let (named, result) = (
        experiment.network.switches.get(number as usize)?,
        results.switches.get(number as usize)?,
    );
    let links = experiment.network.topology.links();
    let is_linked = |port: u16| {
        let here = End {
            node: Node::Switch(number),
            port,
        };
        links.iter().any(|link| link.ends.contains(&here))
    };
    let ports = (0_u16..)
        .zip(&named.ports)
        .zip(&named.config.ports)
        .zip(&result.ports);
    let linked = ports.filter(|(((port, _), _), _)| is_linked(*port));
    let ports = linked.map(|(((_, name), config), counters)| CountedPort {
        name: name.clone(),
        rate: config.rate,
        counters: counters.clone(),
    });
    Some(CountedSwitch {
        elapsed: Span(results.end.0),
        buffer: result.buffer,
        ports: ports.collect(),
    })
}
