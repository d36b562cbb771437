//! Texts of NX-OS, read as intents.

use std::collections::BTreeMap;

use super::dlb::LoadBalancing;
use super::policies::Policies;
use super::system;
use crate::blocks::{Block, blocks, fit, interfaces, with_channels};
use crate::intent::{Intent, Pause, Queue, Trust};
use crate::interface::read_settings;
use crate::irrelevant::pass;
use crate::outcome::{Area, Outcomes};
use crate::path_spread::PathSpread;
use crate::text::{ReadError, number};

pub(crate) fn read(file: &str, text: &str) -> Result<(Vec<Intent>, Outcomes), ReadError> {
    let (blocks, mut outcomes) = blocks(file, text)?;
    let blocks = with_channels(blocks, &mut outcomes);
    let mut policies = Policies::default();
    let mut balancing = LoadBalancing::default();
    for block in blocks
        .iter()
        .filter(|block| block.after("hardware profile dlb").is_some())
    {
        balancing.take(file, block, &mut outcomes);
    }
    // Class maps are read first, wherever they are in the text: policies refer to them.
    for is_class_map in [true, false] {
        for block in &blocks {
            if block.line.text.starts_with("class-map") == is_class_map
                && block.after("interface").is_none()
                && block.after("hardware profile dlb").is_none()
                && !policies.take(file, block, &mut outcomes)
            {
                pass(block, &mut outcomes);
            }
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
            let own = interface(file, &ports, block, &policies, &balancing, &mut outcomes);
            found.extend(own);
            outcomes.within(Vec::new());
        }
    }
    Ok((found, outcomes))
}

/// The MTU of a port without configuration.
const MTU_DEFAULT: u32 = 1500;

/// The settings of an interface.
struct Interface<'a> {
    input: Option<&'a str>,
    output: Option<&'a str>,
    /// The queuing policy of arriving packets, which sizes the buffers of lossless classes.
    input_queuing: Option<&'a str>,
    mode: Option<&'a str>,
    mtu: Option<u32>,
    global_pause: bool,
    /// Whether the PFC watchdog is on.
    watches: bool,
    /// Whether a line is about QoS.
    about: bool,
}

impl<'a> Interface<'a> {
    /// Takes a line; whether it is known.
    fn line(&mut self, file: &str, line: &Block<'a>) -> Result<bool, ReadError> {
        match line.line.words().as_slice() {
            ["priority-flow-control", "mode", mode, rest @ ..] => {
                let is_known = matches!(*mode, "on" | "off" | "auto");
                if !is_known || !matches!(rest, [] | ["send-tlv"]) {
                    let what = "the mode is on, off or auto, with send-tlv or without";
                    return Err(line.wrong(file, what));
                }
                self.mode = Some(mode);
            }
            ["no", "priority-flow-control", "mode", ..] => self.mode = Some("off"),
            // With disable-action the watchdog reports a storm, and drops nothing.
            [
                "priority-flow-control",
                "watch-dog-interval",
                state @ ("on" | "off"),
                rest @ ..,
            ] => {
                self.watches = *state == "on" && rest.is_empty();
                if !matches!(rest, [] | ["disable-action"]) {
                    return Err(line.wrong(file, "this setting of the PFC watchdog is not known"));
                }
            }
            ["no", "priority-flow-control", "watch-dog-interval", ..] => self.watches = false,
            ["priority-flow-control", "watch-dog-interval", ..] => {
                return Err(line.wrong(file, "the watchdog is on or off"));
            }
            ["service-policy", "type", "qos", "input", name, ..] => self.input = Some(name),
            ["service-policy", "type", "queuing", "output", name, ..] => self.output = Some(name),
            ["service-policy", "type", "queuing", "input", name, ..] => {
                self.input_queuing = Some(name);
            }
            ["service-policy", ..] => return Err(line.wrong(file, "this policy is not known")),
            ["flowcontrol", "receive" | "send", state @ ("on" | "off")] => {
                self.global_pause |= *state == "on";
                return Ok(true);
            }
            ["mtu", value] => {
                self.mtu = Some(number(file, line.line.number, value, 576..=9216)?);
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
    balancing: &LoadBalancing,
    outcomes: &mut Outcomes,
) -> Vec<Intent> {
    let mut own = Interface {
        input: policies.system_input,
        output: policies.system_output,
        input_queuing: policies.system_input_queuing,
        mode: None,
        mtu: None,
        global_pause: false,
        watches: false,
        about: false,
    };
    outcomes.applied(block.line.number);
    let is_unknown = read_settings(block.below.iter(), outcomes, |line, _| own.line(file, line));
    own.about |= is_unknown;
    let spreads = |name: &String| balancing.of_port(name) != PathSpread::Flows;
    if own.input.is_none() && !own.about && !ports.iter().any(spreads) {
        return Vec::new();
    }
    let mut intents = intent(file, block, &own, policies, outcomes).for_ports(ports);
    for (intent, name) in intents.iter_mut().zip(ports) {
        intent.spread = balancing.of_port(name);
    }
    intents
}

fn intent(
    file: &str,
    block: &Block<'_>,
    own: &Interface<'_>,
    policies: &Policies<'_>,
    outcomes: &mut Outcomes,
) -> Intent {
    let mut intent = Intent {
        dscp: [0; 64],
        pcp: [0; 8],
        mtu: own.mtu.unwrap_or(MTU_DEFAULT),
        dcbx: policies.lldp,
        trust: Trust::None,
        global_pause: own.global_pause,
        pause: Pause::default(),
        queues: [Queue::WEIGHTED; 8],
        ..Intent::default()
    };
    let mut missing = |intent: &mut Intent, kind: &str, name: &str, areas: &[Area]| {
        let what = system::missing(kind, name);
        outcomes.not_understood(&block.wrong(file, &what));
        areas
            .iter()
            .for_each(|area| intent.forget(*area, what.clone()));
    };
    if let Some(name) = own.input {
        let classes = policies.inputs.get(name).map(Vec::as_slice);
        match classes.or_else(|| system::input(name)) {
            Some(classes) => policies.classify(classes, &mut intent),
            None => missing(&mut intent, "qos", name, &[Area::Classes]),
        }
    }
    if let Some(name) = own.output {
        let policy = policies.queuing.get(name).cloned();
        match policy.or_else(|| system::output(name)) {
            Some(policy) => intent.queues = policy.queues,
            None => missing(&mut intent, "queuing", name, &[Area::Queues, Area::Ecn]),
        }
    }
    let mut pfc = 0;
    if let Some(name) = policies.system_network {
        let policy = policies.network.get(name).cloned();
        match policy.or_else(|| system::network(name)) {
            Some(policy) => {
                pfc = policy.pfc;
                // The policy limits frames of the switch; ports that have no MTU of their own take it.
                let of_policy = policy.mtu();
                intent.mtu = own.mtu.or(of_policy).unwrap_or(MTU_DEFAULT);
            }
            None => missing(&mut intent, "network-qos", name, &[Area::Pfc]),
        }
    }
    // A text without policies is a part: the one that says which classes are lossless is elsewhere.
    if own.mode == Some("on") && policies.is_empty() {
        missing(&mut intent, "network-qos", "of system qos", &[Area::Pfc]);
    }
    // With the mode auto the neighbour's DCBX decides: PFC is on where both ends agree.
    if own.mode == Some("off") {
        pfc = 0;
    }
    (intent.pfc_send, intent.pfc_obey) = (pfc, pfc);
    // The watchdog runs where it is on for the switch and for the interface.
    let watches = policies.watches && own.watches && pfc != 0;
    intent.watchdog = watches.then(|| policies.timers.watchdog());
    let input_queuing = own.input_queuing;
    let policy = input_queuing.and_then(|name| policies.queuing.get(name));
    let buffers: Option<&BTreeMap<u8, Pause>> = policy.map(|policy| &policy.buffers);
    if let (Some(name), None) = (input_queuing, policy) {
        let why = system::missing("queuing", name);
        outcomes.not_judged(
            block.line.number,
            format!("buffers of arriving packets: {why}"),
        );
    }
    if pfc != 0 {
        let of_class = buffers.and_then(|buffers| buffers.get(&(pfc.trailing_zeros() as u8)));
        intent.pause = of_class.copied().unwrap_or_default();
    }
    intent
}
