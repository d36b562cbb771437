//! Notes: what the file has and the run left out, and fields that acted on no packet.

use crate::experiment::Experiment;
use crate::world::{HostConfig, Marking, Results};
use fabric::config::CLASSES;
use std::collections::BTreeSet;

/// The notes of a run: those that are known before it, and those of its counters.
pub(super) fn notes(experiment: &Experiment, results: &Results) -> Vec<String> {
    let view = View {
        experiment,
        results,
        markings: markings(experiment, results),
    };
    let mut notes = experiment.notes();
    for keys in &experiment.written {
        let note = view.note_on_field(keys);
        notes.extend(note.filter(|note| !notes.contains(note)));
    }
    notes
}

struct View<'a> {
    experiment: &'a Experiment,
    results: &'a Results,
    markings: Vec<Marking>,
}

/// The markings of packets that hosts sent: data, acknowledgements and notifications.
fn markings(experiment: &Experiment, results: &Results) -> Vec<Marking> {
    let host = |number: u32| &experiment.scenario.hosts[number as usize];
    let mut all: Vec<Marking> = Vec::new();
    let mut add = |marking: Marking| {
        if !all.contains(&marking) {
            all.push(marking);
        }
    };
    // READs and storage send data both ways, and every host of a flow sends acknowledgements or requests.
    for flow in &experiment.scenario.flows {
        for config in [host(flow.from), host(flow.to)] {
            flow.marks.of(config).into_iter().for_each(&mut add);
        }
    }
    let notified = results.hosts.iter().zip(&experiment.scenario.hosts);
    let notified = notified.filter(|(result, _)| result.device.np_cnp_sent > 0);
    notified.for_each(|(_, config): (_, &HostConfig)| add(config.notifications));
    all
}

impl View<'_> {
    /// The note on a field, by the keys of its path, if it acted on no packet.
    fn note_on_field(&self, keys: &[String]) -> Option<String> {
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        match keys[..] {
            ["qos", name, ref field @ ..] => self.qos(name, field),
            ["nic", name, field] => self.nic(name, field),
            _ => None,
        }
    }

    fn qos(&self, name: &str, field: &[&str]) -> Option<String> {
        let packets = self.packets(name)?;
        match *field {
            ["queue", class, ref field @ ..] => {
                let number = class
                    .parse::<usize>()
                    .ok()
                    .filter(|class| *class < CLASSES)?;
                if packets[number] == 0 {
                    return Some(format!(
                        "qos.{name}.queue.{class} acted on no packet: none was in class {class}"
                    ));
                }
                let is_marked = self.markings.iter().any(|marking| marking.ecn);
                (field.first() == Some(&"ecn") && !is_marked).then(|| {
                    let why = "no adapter sent ECN-capable ones";
                    format!("qos.{name}.queue.{class}.ecn acted on no packet: {why}")
                })
            }
            ["pfc", "classes"] => {
                let classes = &self.experiment.file.qos.get(name)?.pfc.classes;
                let idle = |class: &&u8| packets[usize::from(**class)] == 0;
                let idle: Vec<String> = classes.iter().filter(idle).map(u8::to_string).collect();
                let idle = idle.join(", ");
                (!idle.is_empty()).then(|| {
                    format!("qos.{name}.pfc.classes: no packet was in lossless class {idle}")
                })
            }
            ["pfc", "class", class, ..] => {
                let number = class
                    .parse::<usize>()
                    .ok()
                    .filter(|class| *class < CLASSES)?;
                (packets[number] == 0).then(|| {
                    format!(
                        "qos.{name}.pfc.class.{class} acted on no packet: none was in class {class}"
                    )
                })
            }
            ["dscp", key] => {
                let had = self.markings.iter().any(|marking| is_in(key, marking.dscp));
                (!had).then(|| {
                    format!("qos.{name}.dscp.{key} acted on no packet: none had this DSCP")
                })
            }
            ["pcp", key] => {
                let mut tags = self.markings.iter().filter_map(|marking| marking.pcp);
                let had = tags.any(|pcp| is_in(key, pcp));
                (!had).then(|| {
                    format!(
                        "qos.{name}.pcp.{key} acted on no packet: none had a tag with this priority"
                    )
                })
            }
            _ => None,
        }
    }

    /// Packets by class of all switches that have this table; `None` if no switch has it.
    fn packets(&self, name: &str) -> Option<[u64; CLASSES]> {
        let switches = self.results.switches.iter();
        let switches = switches.zip(&self.experiment.network.tables.qos);
        let mut mine = switches
            .filter(|(_, qos)| qos.as_deref() == Some(name))
            .peekable();
        mine.peek()?;
        let mut packets = [0; CLASSES];
        for port in mine.flat_map(|(switch, _)| &switch.ports) {
            for (class, sum) in packets.iter_mut().enumerate() {
                *sum += port.queues[class].sent_packets + port.dropped(class, |_| true).packets;
            }
        }
        Some(packets)
    }

    fn nic(&self, name: &str, field: &str) -> Option<String> {
        let hosts = self.experiment.network.tables.nic_of.iter().zip(0_u32..);
        let mine: BTreeSet<u32> = hosts
            .filter(|(nic, _)| *nic == name)
            .map(|(_, host)| host)
            .collect();
        let mut ends = self.experiment.scenario.flows.iter();
        if mine.is_empty() {
            return None;
        }
        if !ends.any(|flow| mine.contains(&flow.from) || mine.contains(&flow.to)) {
            return Some(format!(
                "nic.{name} acted on no packet: no host with it sends or receives"
            ));
        }
        let mut results = mine.iter().map(|host| &self.results.hosts[*host as usize]);
        let is_of_notifications = matches!(field, "cnp-dscp" | "cnp-priority");
        (is_of_notifications && results.all(|host| host.device.np_cnp_sent == 0)).then(|| {
            format!("nic.{name}.{field} acted on no packet: no congestion notification was sent")
        })
    }
}

/// Whether a value is the one of a table's key, or in its range.
fn is_in(key: &str, value: u8) -> bool {
    let (from, to) = key.split_once('-').unwrap_or((key, key));
    let number = |text: &str| text.trim().parse::<u8>().ok();
    number(from)
        .zip(number(to))
        .is_some_and(|(from, to)| (from..=to).contains(&value))
}
