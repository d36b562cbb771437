//! Scenarios that cannot run.

use super::{DEPTH_MAX, SAMPLES_MAX};
use crate::world::scenario::{Flow, Forgery, Scenario, SriovAdapterConfig, Transfer, Watch};

/// The reason why a scenario cannot run.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ScenarioError {
    /// Numbers of switches differ.
    #[error("the topology has {topology} switches, the scenario describes {described}")]
    Switches {
        /// In the topology.
        topology: u32,
        /// In the scenario.
        described: usize,
    },
    /// Numbers of hosts differ.
    #[error("the topology has {topology} hosts, the scenario describes {described}")]
    Hosts {
        /// In the topology.
        topology: u32,
        /// In the scenario.
        described: usize,
    },
    /// A switch has fewer ports than links.
    #[error("switch {0} is configured with fewer ports than it has links")]
    Ports(u32),
    /// Packets are watched, and times are to be skipped in which there are none.
    #[error(
        "captures, samples, hops and traces need every packet: they exclude that steady states are skipped"
    )]
    SkippedAndWatched,
    /// A flow between hosts that there are not, or from a host to itself.
    #[error("flow {0} does not lead from one host to another")]
    FlowEnds(usize),
    /// A flow that moves nothing, or too much at once.
    #[error("flow {0} needs messages of 1 byte to 2 GiB, and a depth of 1 to {DEPTH_MAX}")]
    FlowSize(usize),
    /// Something that Ultra Ethernet's transport does not do, or that is not simulated for it.
    #[error("transport = \"uet\": {0}")]
    Uet(&'static str),
    /// A host is not connected to anything.
    #[error("host {0} has flows but no link")]
    NotConnected(u32),
    /// More queue pairs than a host may have, or another limit of the device's.
    #[error("host {host} cannot have its queue pairs: {reason}")]
    Device {
        /// The host's number.
        host: u32,
        /// The device's error.
        reason: rnic::Error,
    },
    /// Storage where there are no drives, or no processor.
    #[error("host {0} takes part in storage and has neither processor nor drives")]
    NoStorage(u32),
    /// Functions of one adapter without a PCIe slot, or not attached to one switch.
    #[error("the functions of adapter {0} need one PCIe slot and one switch")]
    SriovAdapter(usize),
    /// A link without delay where threads divide the network.
    #[error(
        "with several threads every link needs a delay: set `delay` of the links or use one thread"
    )]
    NoDelay,
    /// More samples than memory is meant for.
    #[error(
        "a sample of {ports} ports every {every_us} us is more than {SAMPLES_MAX} samples by {by_us} us: \
         choose a longer time for --sample"
    )]
    Samples {
        /// Ports that are sampled each time.
        ports: usize,
        /// Time between two samples of a port, in microseconds.
        every_us: f64,
        /// Virtual time until which the samples fit, in microseconds; or at which the run is to end.
        by_us: f64,
    },
}

/// What flows of Ultra Ethernet's transport cannot be, or go with.
fn check_uet(scenario: &Scenario, flow: &Flow) -> Result<(), ScenarioError> {
    let hosts = [flow.from, flow.to].map(|host| &scenario.hosts[host as usize]);
    if hosts.iter().all(|host| host.uet.is_none()) {
        return Ok(());
    }
    let has_other = flow.operation != Transfer::Write || flow.trace.is_some();
    let shares = |card: &SriovAdapterConfig| {
        card.hosts()
            .any(|host| [flow.from, flow.to].contains(&host))
    };
    let wrong = [
        (
            hosts.iter().any(|host| host.uet.is_none()),
            "both ends of a transfer need it",
        ),
        (
            has_other,
            "only WRITEs are simulated: no other operations, replays, storage or collectives",
        ),
        (
            flow.forgery != Forgery::None,
            "its packets bear the sender's own addresses",
        ),
        (
            hosts.iter().any(|host| host.pcie.is_some()),
            "adapters with a PCIe link are not simulated",
        ),
        (
            scenario.cards.iter().any(shares),
            "functions of adapters are not simulated",
        ),
        (
            !scenario.watch.captures.is_empty(),
            "its packets cannot be captured",
        ),
        (
            scenario.skip_steady.is_some(),
            "steady states cannot be skipped",
        ),
    ];
    let found = wrong.iter().find(|(is_wrong, _)| *is_wrong);
    found.map_or(Ok(()), |(_, why)| Err(ScenarioError::Uet(why)))
}

/// Checks what does not need the parts of the network.
pub(super) fn check(scenario: &Scenario) -> Result<(), ScenarioError> {
    let topology = &scenario.topology;
    let Watch {
        captures,
        sample_every,
        hops,
        traced,
        ..
    } = &scenario.watch;
    let is_watched = !captures.is_empty() || sample_every.is_some() || *hops || traced.is_some();
    if scenario.skip_steady.is_some() && is_watched {
        return Err(ScenarioError::SkippedAndWatched);
    }
    if topology.switches() as usize != scenario.switches.len() {
        let described = scenario.switches.len();
        return Err(ScenarioError::Switches {
            topology: topology.switches(),
            described,
        });
    }
    if topology.hosts() as usize != scenario.hosts.len() {
        return Err(ScenarioError::Hosts {
            topology: topology.hosts(),
            described: scenario.hosts.len(),
        });
    }
    for (number, switch) in (0..).zip(&scenario.switches) {
        if switch.ports.len() < usize::from(topology.ports(number)) {
            return Err(ScenarioError::Ports(number));
        }
    }
    let attachments = topology.attachments();
    for (index, card) in scenario.cards.iter().enumerate() {
        let place = |host: u32| {
            let switch = attachments.get(host as usize).copied().flatten()?.0;
            Some((switch, scenario.hosts[host as usize].pcie?.rate))
        };
        let first = card
            .functions
            .first()
            .and_then(|function| place(function.host));
        if first.is_none()
            || card
                .functions
                .iter()
                .any(|function| place(function.host) != first)
        {
            return Err(ScenarioError::SriovAdapter(index));
        }
    }
    for (index, flow) in scenario.flows.iter().enumerate() {
        if flow.from == flow.to || flow.from.max(flow.to) >= topology.hosts() {
            return Err(ScenarioError::FlowEnds(index));
        }
        check_uet(scenario, flow)?;
        let sizes =
            (1..=1 << 31).contains(&flow.message_bytes) && (1..=DEPTH_MAX).contains(&flow.depth);
        if !sizes || flow.messages == 0 {
            return Err(ScenarioError::FlowSize(index));
        }
    }
    Ok(())
}
