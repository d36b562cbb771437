//! Texts of OS10, read as intents.

use super::policies::Policies;
use crate::blocks::{Block, blocks, fit, interfaces, with_channels};
use crate::intent::{Intent, Queue, Trust};
use crate::interface::read_settings;
use crate::irrelevant::pass;
use crate::outcome::{Area, Outcomes};
use crate::text::{ReadError, number};

pub(crate) fn read(file: &str, text: &str) -> Result<(Vec<Intent>, Outcomes), ReadError> {
    let (blocks, mut outcomes) = blocks(file, text)?;
    let blocks = with_channels(blocks, &mut outcomes);
    let mut policies = Policies::default();
    // The first pass reads the definitions that policies refer to, wherever they are in the text.
    for pass in 0..2 {
        for block in &blocks {
            policies.take(file, block, pass, &mut outcomes);
        }
    }
    for block in &blocks {
        if block.after("interface").is_none() {
            pass(block, &mut outcomes);
        }
    }
    let mut found = Vec::new();
    for block in &blocks {
        if let Some(name) = block.after("interface") {
            let ports = interfaces(name);
            if !fit(file, block, &ports, found.len(), &mut outcomes) {
                continue;
            }
            outcomes.within(ports.clone());
            found.extend(interface(file, &ports, block, &policies, &mut outcomes));
            outcomes.within(Vec::new());
        }
    }
    Ok((found, outcomes))
}

/// The settings of an interface.
struct Interface<'a> {
    /// Trust maps: DSCP, then 802.1p.
    trust: (Option<&'a str>, Option<&'a str>),
    input: Option<&'a str>,
    network: Option<&'a str>,
    queuing: Option<&'a str>,
    pfc_on: bool,
    global_pause: bool,
    mtu: u32,
    /// Whether a line is about QoS.
    about: bool,
}

impl<'a> Interface<'a> {
    /// Takes a line; whether it is known.
    fn line(&mut self, file: &str, line: &Block<'a>) -> Result<bool, ReadError> {
        match line.line.words().as_slice() {
            ["trust-map", "dscp", name] => self.trust.0 = Some(name),
            ["trust-map", "dot1p", name] => self.trust.1 = Some(name),
            ["priority-flow-control", "mode", "on"] => self.pfc_on = true,
            ["priority-flow-control", "mode", "off"] | ["no", "priority-flow-control", ..] => {
                self.pfc_on = false;
            }
            // The watchdog drops packets of a class that is paused without end. It is not simulated.
            ["pfc-watchdog", ..] => {}
            ["service-policy", "input", "type", "network-qos", name] => self.network = Some(name),
            ["service-policy", "input", "type", "qos", name]
            | ["service-policy", "input", name] => {
                self.input = Some(name);
            }
            ["service-policy", "output", "type", "queuing", name] => self.queuing = Some(name),
            ["ets", "mode", "on" | "off"] | ["qos-map", "traffic-class", _] => {}
            ["trust-map" | "service-policy", ..] => {
                return Err(line.wrong(file, "this policy is not known"));
            }
            [
                "flowcontrol",
                "receive" | "transmit",
                state @ ("on" | "off"),
            ] => {
                self.global_pause |= *state == "on";
                return Ok(true);
            }
            ["mtu", value] => {
                self.mtu = number(file, line.line.number, value, 576..=65_535)?;
                return Ok(true);
            }
            _ => return Ok(false),
        }
        self.about = true;
        Ok(true)
    }
}

/// The intents of some interfaces that one command names; none where it says nothing of QoS.
fn interface<'a>(
    file: &str,
    ports: &[String],
    block: &Block<'a>,
    policies: &Policies<'a>,
    outcomes: &mut Outcomes,
) -> Vec<Intent> {
    let mut own = Interface {
        trust: policies.system,
        input: policies.system_input,
        network: policies.system_network,
        queuing: policies.system_queuing,
        pfc_on: false,
        global_pause: false,
        mtu: 1500,
        about: false,
    };
    outcomes.applied(block.line.number);
    let is_unknown = read_settings(block.below.iter(), outcomes, |line, _| own.line(file, line));
    own.about |= is_unknown;
    if !own.about {
        return Vec::new();
    }
    let intent = intent(file, block, &own, policies, outcomes);
    intent.for_ports(ports)
}

fn intent(
    file: &str,
    block: &Block<'_>,
    own: &Interface<'_>,
    policies: &Policies<'_>,
    outcomes: &mut Outcomes,
) -> Intent {
    let mut intent = Intent {
        trust: Trust::None,
        dscp: [0; 64],
        pcp: [0; 8],
        default_class: 0,
        queues: [Queue::WEIGHTED; 8],
        dcbx: policies.dcbx,
        mtu: own.mtu,
        global_pause: own.global_pause,
        ..Intent::default()
    };
    let mut missing = |intent: &mut Intent, kind: &str, name: &str, areas: &[Area]| {
        let what = match (kind, name) {
            ("trust map", "default") => {
                "the trust map \"default\" is the device's own, and is not in its \
                                         configuration: `show qos maps` prints it"
                    .to_owned()
            }
            _ => format!("there is no {kind} \"{name}\""),
        };
        outcomes.not_understood(&block.wrong(file, &what));
        areas
            .iter()
            .for_each(|area| intent.forget(*area, what.clone()));
    };
    let (dscp, pcp) = own.trust;
    match (dscp, dscp.and_then(|name| policies.dscp.get(name))) {
        (Some(_), Some(map)) => (intent.dscp, intent.trust) = (*map, Trust::Dscp),
        (Some(name), None) => missing(&mut intent, "trust map", name, &[Area::Classes]),
        (None, _) => {}
    }
    match (pcp, pcp.and_then(|name| policies.pcp_of(name))) {
        (Some(_), Some(map)) => {
            intent.pcp = map;
            intent.trust = Trust::of(intent.trust.dscp(), true);
        }
        (Some(name), None) => missing(&mut intent, "trust map", name, &[Area::Classes]),
        (None, _) => {}
    }
    if let Some(name) = own.input
        && !policies.classify(name, &mut intent)
    {
        missing(&mut intent, "service-policy", name, &[Area::Classes]);
    }
    if let Some(name) = own.queuing {
        match policies.queuing.get(name) {
            Some(queues) => intent.queues = *queues,
            None => missing(
                &mut intent,
                "policy of queues with ecn",
                name,
                &[Area::Queues, Area::Ecn],
            ),
        }
    }
    let mut pfc = 0;
    if let Some(name) = own.network {
        match policies.network.get(name) {
            Some(classes) => pfc = *classes,
            None => missing(&mut intent, "network-qos policy", name, &[Area::Pfc]),
        }
    }
    if !own.pfc_on {
        pfc = 0;
    }
    (intent.pfc_send, intent.pfc_obey) = (pfc, pfc);
    intent
}
