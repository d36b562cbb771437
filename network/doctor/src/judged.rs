//! What was judged of hosts and switches, so that a page without findings says what it is about.

use vendors::facts::{Adapter, HostFacts};
use vendors::text::{classes, ranges};
use vendors::{Area, Intent};

use crate::marks::Marks;
use crate::rules::{is_of_interest, marks_of, may_be_idle, place_of_adapter, takes_any_order};
use crate::snapshot::SwitchFacts;

/// Names of ports in one line at most.
const NAMES_MAX: usize = 4;

/// A thing that was judged: a group of ports or an adapter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Judged {
    /// The place that findings of the same thing have.
    pub place: String,
    /// What was judged of it, in a line.
    pub text: String,
}

/// Each group of ports that are configured alike.
pub fn judged_switch(switch: &SwitchFacts, hosts: &[HostFacts], asked: Marks) -> Vec<Judged> {
    let marks = marks_of(hosts, switch, asked);
    switch
        .groups
        .iter()
        .map(|intent| {
            let of_others = intent.pfc_send == 0
                && switch.planned.is_none()
                && switch.has_pfc_elsewhere(intent);
            let mut text = of_group(switch, intent, marks);
            if of_others && intent.unknown(Area::Pfc).is_none() {
                text += ", and on at other ports: whether data passes here is unknown";
            }
            let place = switch.place_of(intent);
            Judged { place, text }
        })
        .collect()
}

fn of_group(switch: &SwitchFacts, intent: &Intent, marks: Marks) -> String {
    let names: Vec<&str> = intent.ports.iter().map(|port| port.name.as_str()).collect();
    let title = match names.len().checked_sub(NAMES_MAX) {
        Some(more @ 1..) => format!("{} and {more} more", names[..NAMES_MAX].join(", ")),
        _ => names.join(", "),
    };
    let classified = intent.unknown(Area::Classes).is_none();
    let mut parts = Vec::new();
    match marks.dscp.filter(|_| classified && intent.trust.dscp()) {
        Some(dscp) => {
            let class = intent.class_of_dscp(dscp);
            parts.push(format!("DSCP {dscp} → {}", of_class(intent, class)));
            let cnp = marks
                .cnp
                .map(|cnp| format!("CNP {cnp} → {}", intent.class_of_dscp(cnp)));
            parts.extend(cnp);
        }
        None => parts.extend(of_lossless(intent, classified)),
    }
    if intent.pfc_send == 0 && intent.unknown(Area::Pfc).is_none() {
        parts.push("PFC off".to_owned());
    }
    for unknown in &intent.unknown {
        parts.push(format!("{} unknown ({})", unknown.area.name(), unknown.why));
    }
    let by_tag = match marks.dscp {
        Some(dscp) => switch.may_decide_by_tag(intent, dscp),
        None => intent.trust.pcp() && !intent.trust.dscp(),
    };
    if by_tag {
        parts.push("whether packets are tagged is unknown".to_owned());
    } else if marks.dscp.is_none() {
        parts.push("which DSCP data has is unknown (--dscp)".to_owned());
    }
    format!("{title}: {}", parts.join(", "))
}

/// The lossless classes, and the marks that lead to them.
fn of_lossless(intent: &Intent, classified: bool) -> Vec<String> {
    let by = |class: u8| {
        let mut by = Vec::new();
        if intent.trust.dscp() && classified {
            by.push(("DSCP", ranges(intent.dscp_of(class))));
        }
        if intent.trust.pcp() && classified {
            by.push(("PCP", ranges(intent.pcp_of(class))));
        }
        by.retain(|(_, values)| !values.is_empty());
        let by: Vec<String> = by
            .iter()
            .map(|(name, values)| format!("{name} {values}"))
            .collect();
        match by.is_empty() {
            true => of_class(intent, class),
            false => format!("{} → {}", by.join(" or "), of_class(intent, class)),
        }
    };
    classes(intent.pfc_send).map(by).collect()
}

fn of_class(intent: &Intent, class: u8) -> String {
    let pfc = match (intent.unknown(Area::Pfc), intent.lossless(class)) {
        (Some(_), _) => "",
        (None, true) => ", lossless",
        (None, false) => ", lossy",
    };
    let ecn = match (
        intent.unknown(Area::Ecn),
        intent.queues[usize::from(class & 7)].ecn,
    ) {
        (Some(_), _) => "",
        (None, Some(_)) => ", ECN on",
        (None, None) => ", ECN off",
    };
    format!("class {class}{pfc}{ecn}")
}

/// Judges each adapter of a host, whether it is up or not.
pub fn judged_host(host: &HostFacts, asked: Marks) -> Vec<Judged> {
    let judged = host.adapters.iter().map(|adapter| Judged {
        place: place_of_adapter(host, adapter),
        text: of_adapter(host, adapter, asked),
    });
    let without_rdma = host.adapters_without_rdma.iter().map(|adapter| Judged {
        place: place_of_adapter(host, adapter),
        text: format!(
            "{}: RDMA off or not seen, and on at another adapter: not judged",
            adapter.device
        ),
    });
    judged.chain(without_rdma).collect()
}

fn of_adapter(host: &HostFacts, adapter: &Adapter, asked: Marks) -> String {
    let name = &adapter.device;
    if adapter.iwarp_seen().is_some() {
        return of_iwarp(host, adapter);
    }
    if adapter.is_infiniband() {
        return format!("{name}: InfiniBand, no rule of RoCE applies");
    }
    if !is_of_interest(host, adapter) {
        return format!("{name}: down, and not judged");
    }
    let marks = asked.or(Marks::of_adapter(host, adapter));
    let mut parts = Vec::new();
    let pfc = adapter.pfc.as_ref().map(|pfc| pfc.value);
    if host.windows.is_some() {
        if let Some(rdma) = &adapter.rdma_enabled {
            parts.push(format!("RDMA {}", rdma_state(adapter, rdma.value)));
        }
        let technology = adapter.technology.as_ref().map(|own| own.value);
        parts.extend(technology.and_then(|own| match own {
            3 => Some("RoCEv1".to_owned()),
            4 => Some("RoCEv2".to_owned()),
            _ => None,
        }));
    } else {
        match (marks.dscp, &adapter.dscp) {
            (Some(dscp), Some(map)) => {
                let priority = map.value[usize::from(dscp & 63)];
                let pfc = pfc.map(|mask| match mask >> (priority & 7) & 1 {
                    1 => ", PFC on",
                    _ => ", PFC off",
                });
                parts.push(format!(
                    "DSCP {dscp} → priority {priority}{}",
                    pfc.unwrap_or("")
                ));
            }
            (Some(dscp), None) => parts.push(format!("DSCP {dscp}, map unknown")),
            (None, _) => parts.push("which DSCP data has is unknown (--dscp)".to_owned()),
        }
        if let (Some(cnp), Some(map)) = (marks.cnp, &adapter.dscp) {
            parts.push(format!("CNP {cnp} → {}", map.value[usize::from(cnp & 63)]));
        }
    }
    if let Some(mask) = pfc {
        let list = match mask {
            0 => "none".to_owned(),
            mask => ranges(classes(mask)),
        };
        parts.push(format!("PFC for {list}"));
    }
    parts.extend(adapter.mtu.as_ref().map(|mtu| format!("MTU {}", mtu.value)));
    parts.extend(of_card(host, adapter));
    if !adapter.counters_fell.is_empty() {
        let names = adapter.counters_fell.join(", ");
        parts.push(format!(
            "{names} fell: wrapped, or the driver was loaded again"
        ));
    }
    match parts.is_empty() {
        true => format!("{name}: nothing of it was seen"),
        false => format!("{name}: {}", parts.join(", ")),
    }
}

/// Whether the adapter has virtual functions, or is planned to have some.
fn has_functions(host: &HostFacts, adapter: &Adapter) -> bool {
    let planned = host.planned.as_ref().map_or(0, |planned| planned.functions);
    planned.max(adapter.functions.as_ref().map_or(0, |made| made.value)) > 0
}

/// An adapter that needs neither lossless classes nor marks: its data are TCP.
fn of_iwarp(host: &HostFacts, adapter: &Adapter) -> String {
    let name = &adapter.device;
    let is_windows = host.windows.is_some();
    let fix = vendors::HostRemedy::Roce.of(adapter, is_windows);
    let by = match adapter.technology.is_some() {
        true => "*NetworkDirectTechnology is 1",
        false => "its node type is RNIC",
    };
    let (rules, more) = match is_windows {
        true => (
            "those of SMB apply, and none of RoCE",
            ", where the adapter has it",
        ),
        false => ("no rule of RoCE applies", ""),
    };
    let rdma = adapter.rdma_enabled.as_ref();
    let rdma = rdma.map_or_else(String::new, |rdma| {
        format!("RDMA {}, ", rdma_state(adapter, rdma.value))
    });
    format!("{name}: {rdma}iWARP ({by}): {rules}. For RoCE{more}: {fix}")
}

/// The state of RDMA on Windows.
fn rdma_state(adapter: &Adapter, is_enabled: bool) -> &'static str {
    let operational = adapter.rdma_operational.as_ref();
    match (is_enabled, operational.map(|own| own.value)) {
        (true, Some(false)) => "enabled and not in operation",
        (true, _) => "on",
        (false, _) => "off",
    }
}

/// The card, its firmware, and a PCIe link that has to be read again.
fn of_card(host: &HostFacts, adapter: &Adapter) -> Vec<String> {
    let mut parts = Vec::new();
    parts.extend(adapter.card_name().map(str::to_owned));
    let card = host
        .cards
        .iter()
        .find(|own| own.pci.is_some() && own.pci == adapter.pci);
    let version = card.and_then(|own| own.version.as_ref());
    parts.extend(version.map(|version| format!("firmware {}", version.value)));
    let slot = adapter
        .pci
        .as_deref()
        .and_then(|pci| host.bridges.chipset_port(pci));
    parts.extend(slot.map(|(port, _)| format!("in a slot of the chipset ({port})")));
    let vectors = card.and_then(|own| own.settings.get("NUM_VF_MSIX"));
    parts.extend(
        vectors
            .filter(|_| has_functions(host, adapter))
            .map(|vectors| {
                let next = &vectors.value.next;
                format!("{next} interrupts for each virtual function, one of which is no queue's")
            }),
    );
    let any = takes_any_order(host, adapter).filter(|any| any.value);
    // The address is in every packet then: 97.66 in place of 98.01 Gb/s were measured.
    parts.extend(any.map(|_| "packets in any order, with an address in each".to_owned()));
    if let Some(trained) = adapter
        .pcie
        .trained
        .as_ref()
        .filter(|_| may_be_idle(host, adapter))
    {
        parts.push(format!(
            "{} while idle: read it again under load",
            trained.value
        ));
    }
    parts
}
