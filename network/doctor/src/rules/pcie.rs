//! The PCIe link of an adapter, and what is between it and memory.

use super::{Adapter, Consequence, Finding, Found, HostFacts, Marks, cost, cost_of, gbps, usual};
use vendors::facts::PcieLink;
use vendors::shell::quoted;

/// Read requests of this size or less are answered in packets that are mostly headers.
const SMALL_READ_REQUEST: u32 = 256;

/// Additional latency in nanoseconds of memory at another NUMA node: assumed, between published 60 and 150.
const REMOTE_NS: u32 = 120;

/// Part of the link's speed below which the PCIe link is the limit: headers take some of it.
const HEADROOM: f64 = 1.05;

pub(super) fn check(host: &HostFacts, adapter: &Adapter, found: &mut Vec<Finding>) {
    trained(host, adapter, found);
    read_requests(host, adapter, found);
    numa(host, adapter, found);
}

/// Whether a link may only be idle: cards that save power run at 2.5 GT/s with all lanes while nothing is
/// sent, which looks like a slot of the first generation. The kernel's log of the driver's start is no such
/// reading.
pub(crate) fn may_be_idle(host: &HostFacts, adapter: &Adapter) -> bool {
    let (Some(capable), Some(trained)) = (&adapter.pcie.capable, &adapter.pcie.trained) else {
        return false;
    };
    let (can, is) = (capable.value, trained.value);
    is.generation == 1
        && can.generation > 1
        && is.width == can.width
        && host.pcie_limited.is_empty()
}

fn trained(host: &HostFacts, adapter: &Adapter, found: &mut Vec<Finding>) {
    let own = |rule| Found {
        rule,
        host,
        adapter,
    };
    let (Some(capable), Some(trained)) = (&adapter.pcie.capable, &adapter.pcie.trained) else {
        return kernel_log(host, adapter, found);
    };
    let (can, is) = (capable.value, trained.value);
    // A narrower or older slot than the card's is a fault where the link then limits the network.
    let limits = is.gbps() < f64::from(gbps(adapter)) * HEADROOM;
    if !limits || may_be_idle(host, adapter) {
        return;
    }
    let rule = match (is.width < can.width, is.generation < can.generation) {
        (_, true) => "pcie-speed",
        (true, false) => "pcie-width",
        (false, false) => "pcie-below-link",
    };
    let what = match rule {
        "pcie-below-link" => {
            format!(
                "the card's {can} is less than the {} Gb/s of its network link",
                gbps(adapter)
            )
        }
        _ => format!("the PCIe link trained to {is}, and the card can do {can}"),
    };
    let fix = match rule {
        "pcie-below-link" => "a card with a wider or newer PCIe link, or a slower network link",
        "pcie-width" => {
            "another slot: the lanes of this one are fewer, shared, or its riser is faulty"
        }
        _ => {
            "read LnkSta again under load (lspci -vvv beside ib_write_bw): cards that save power are slower \
             while idle. Then contacts, riser, slot, and the link speed in the firmware settings of the host"
        }
    };
    let consequence = limit(
        adapter,
        Marks::of_adapter(host, adapter),
        is,
        if rule == "pcie-below-link" {
            None
        } else {
            Some(can)
        },
    );
    found.push(own(rule).say(what, &[&trained.seen, &capable.seen], consequence, fix));
}

fn limit(adapter: &Adapter, marks: Marks, is: PcieLink, can: Option<PcieLink>) -> Consequence {
    let mut fixed = usual(adapter, marks);
    let mut now = fixed.clone();
    now.receiver.pcie = Some((is.generation, is.width));
    fixed.receiver.pcie = can.map(|can| (can.generation, can.width));
    cost(&now, &fixed)
}

/// Finds the same fault in the kernel's log where there is no output of lspci.
fn kernel_log(host: &HostFacts, adapter: &Adapter, found: &mut Vec<Finding>) {
    let slow = |limited: &&super::Fact<f64>| limited.value < f64::from(gbps(adapter)) * HEADROOM;
    let Some(limited) = host.pcie_limited.iter().find(slow) else {
        return;
    };
    if found.iter().any(|finding| {
        finding.rule == "pcie-kernel-log" && finding.evidence.contains(&limited.seen)
    }) {
        return;
    }
    // The nearest link of that bandwidth stands for the one of the log.
    let widths = [1, 2, 4, 8, 16]
        .into_iter()
        .flat_map(|width| (1..=5).map(move |generation| PcieLink { generation, width }));
    let nearest = widths.min_by(|one, other| {
        (one.gbps() - limited.value)
            .abs()
            .total_cmp(&(other.gbps() - limited.value).abs())
    });
    let Some(nearest) = nearest else { return };
    let what = format!(
        "the kernel found {:.0} Gb/s of PCIe bandwidth for a link of {} Gb/s",
        limited.value,
        gbps(adapter)
    );
    let fix = "check riser and slot; sudo lspci -vvv shows LnkSta below LnkCap";
    let own = Found {
        rule: "pcie-kernel-log",
        host,
        adapter,
    };
    found.push(own.say(
        what,
        &[&limited.seen],
        limit(adapter, Marks::of_adapter(host, adapter), nearest, None),
        fix,
    ));
}

fn read_requests(host: &HostFacts, adapter: &Adapter, found: &mut Vec<Finding>) {
    let own = |rule| Found {
        rule,
        host,
        adapter,
    };
    let pci = quoted(adapter.pci.as_deref().unwrap_or("BDF"));
    if let Some(request) = &adapter.pcie.max_read_request
        && request.value <= SMALL_READ_REQUEST
    {
        let link = adapter
            .pcie
            .trained
            .as_ref()
            .map_or((4, 8), |link| (link.value.generation, link.value.width));
        let consequence = cost_of(adapter, Marks::of_adapter(host, adapter), |talk| {
            talk.pcie = Some(link);
            // A completion is no longer than the request that it answers.
            talk.pcie_payload = request.value.clamp(128, 256);
        });
        let what = format!(
            "the adapter reads memory in requests of {} bytes",
            request.value
        );
        let fix = format!(
            "setpci -s {pci} CAP_EXP+8.w=5000:7000   # 4096 bytes; and in the firmware settings of the host"
        );
        found.push(own("pcie-read-request").say(what, &[&request.seen], consequence, fix));
    }
    if let Some(relaxed) = &adapter.pcie.relaxed_ordering
        && !relaxed.value
    {
        let what = "relaxed ordering is off: each write to memory waits for the one before";
        let why = "the simulated PCIe link does not order writes, and what ordering costs depends on the \
            memory controller; reports name receivers that pause the switch at half the rate";
        let fix = format!(
            "setpci -s {pci} CAP_EXP+8.w=10:10, or \"PCI relaxed ordering\" in the firmware settings of \
                the host"
        );
        let consequence = Consequence::NotSimulated(why);
        found.push(own("pcie-relaxed-ordering").say(what, &[&relaxed.seen], consequence, fix));
    }
}

fn numa(host: &HostFacts, adapter: &Adapter, found: &mut Vec<Finding>) {
    let Some(node) = &adapter.numa_node else {
        return;
    };
    let other = host
        .gpus
        .iter()
        .filter(|gpu| gpu.value.is_some_and(|gpu| gpu >= 0 && gpu != node.value));
    let others: Vec<_> = other.collect();
    // Every GPU is at another node: none of them has a near adapter.
    if host.gpus.is_empty() || others.len() < host.gpus.len() || node.value < 0 {
        return;
    }
    let near = |adapter: &Adapter| {
        adapter
            .numa_node
            .as_ref()
            .is_some_and(|own| Some(own.value) == others[0].value)
    };
    if host.adapters.iter().any(near) {
        return;
    }
    let link = adapter
        .pcie
        .trained
        .as_ref()
        .map_or((4, 16), |link| (link.value.generation, link.value.width));
    let mut now = usual(adapter, Marks::of_adapter(host, adapter));
    (now.count, now.depth, now.message) = (1, 1, 64 << 10);
    let mut fixed = now.clone();
    for (case, ns) in [(&mut now, 550 + REMOTE_NS), (&mut fixed, 550)] {
        for talk in [&mut case.senders, &mut case.receiver] {
            (talk.pcie, talk.memory_ns) = (Some(link), ns);
        }
    }
    let what = format!(
        "the adapter is at NUMA node {}, and the GPUs are at another one",
        node.value
    );
    let fix = "a slot of the GPUs' processor; until then numactl \
               --cpunodebind keeps processes near the adapter";
    let own = Found {
        rule: "numa",
        host,
        adapter,
    };
    found.push(own.say(
        what,
        &[&node.seen, &others[0].seen],
        cost(&now, &fixed),
        fix,
    ));
}
