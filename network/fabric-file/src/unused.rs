//! Fields with a value that has no effect: each with the reason, so that no setting is ignored in silence.

use super::document::{Document, Origin, Written};
use super::error::{Mistake, Problem};
use super::network::Network;
use super::schema::{
    Collective, CollectiveKind, FabricFile, Generator, LinkTable, ModelTable, NicTable, Pattern,
    Qos, RoutingEngine, Shape, SpreadKind, Trust, Workload,
};
use super::uet::Transport;
use super::{congestion::Congestion, schema::Law};
use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// Where a field has an effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// It has an effect neither in a simulation nor in a lab.
    None,
    /// In a lab, and not in a simulation.
    Lab,
}

/// A field with a value that has no effect.
#[derive(Clone, PartialEq, Debug)]
pub struct Unused {
    /// The keys of its path.
    pub keys: Vec<String>,
    /// Where its value comes from.
    pub origin: Origin,
    /// Where it has an effect.
    pub effect: Effect,
    /// The reason, as a problem of the file.
    pub problem: Problem,
}

impl fmt::Display for Unused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = &self.problem.line {
            write!(f, "{}:{}: ", line.file, line.line)?;
        }
        write!(f, "{} {}", self.problem.field, self.problem.what)
    }
}

/// The fields that have no effect in this network. A setting for several entries counts only if it has no
/// effect in any of them.
pub fn unused(document: &Document, file: &FabricFile, network: &Network) -> Vec<Unused> {
    let reader = Reader { file, network };
    let written = document.written();
    let with_effect: BTreeSet<Origin> = written
        .iter()
        .filter(|field| reader.reason(&field.keys).is_none())
        .map(|field| field.origin)
        .collect();
    let is_for_others =
        |origin: &Origin| matches!(origin, Origin::Set(_)) && with_effect.contains(origin);
    let one = |field: Written| {
        let (effect, why) = reader.reason(&field.keys)?;
        let path = field.keys.join(".");
        let what = format!("has no effect: {why}");
        let problem = document.problem(Mistake::Combination, &path, Some(field.place), what, "");
        Some(Unused {
            keys: field.keys,
            origin: field.origin,
            effect,
            problem,
        })
    };
    written
        .into_iter()
        .filter(|field| !is_for_others(&field.origin))
        .filter_map(one)
        .collect()
}

impl Document {
    /// The keys of each field below a table that has a value, in the fabric file or otherwise.
    pub fn written_below(&self, tables: &[&str]) -> Vec<Vec<String>> {
        let written = self.written().into_iter().map(|field| field.keys);
        let is_below = |keys: &Vec<String>| {
            keys.first()
                .is_some_and(|first| tables.contains(&first.as_str()))
        };
        written.filter(is_below).collect()
    }
}

/// A reason: where the field has an effect, and what it would need.
type Reason = (Effect, String);

struct Reader<'a> {
    file: &'a FabricFile,
    network: &'a Network,
}

/// Fields of `[nic.NAME]` about headers, pauses and congestion control of Ethernet.
const NIC_ETHERNET: [&str; 12] = [
    "dscp",
    "pcp",
    "cnp-dscp",
    "cnp-priority",
    "ack-dscp",
    "ack-priority",
    "ecn",
    "priority",
    "pfc",
    "willing",
    "dcqcn",
    "hpcc",
];

/// Fields of `[nic.NAME]` that only reliable connections of InfiniBand have.
const NIC_RC: [&str; 6] = [
    "out-of-order",
    "reorder-window",
    "outstanding",
    "recovery",
    "ack-interval",
    "timeout",
];

impl Reader<'_> {
    fn is_infiniband(&self) -> bool {
        self.network.infiniband.is_some()
    }

    fn reason(&self, keys: &[String]) -> Option<Reason> {
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        match keys[..] {
            ["topology", field] => generator(self.file.topology.as_ref()?, field),
            ["routing", field] => self.routing(field),
            ["sm", field] => self.manager(field),
            ["nic", name, ref field @ ..] => self.nic(name, field),
            ["qos", name, ref field @ ..] => self.qos(name, field),
            ["processor", name, field] => self.processor(name, field),
            ["drive", name, _] => self.drive(name),
            [
                "host" | "switch",
                _,
                "guid" | "port-guid" | "description" | "ports",
            ] if !self.is_infiniband() => {
                Some(nowhere("no adapter has link-layer = \"infiniband\""))
            }
            ["host", _, field] => self.host(field),
            ["switch", index, "qos"] => {
                let switch = entry(&self.file.switch, index)?;
                let is_vendors = switch.routeros.is_some() || switch.sonic.is_some();
                is_vendors.then(|| nowhere("the switch has the configuration of a vendor's file"))
            }
            ["link", _, "opcodes"] if self.is_infiniband() => {
                Some(nowhere("switches of InfiniBand forward by LID"))
            }
            ["link", index, field] => link(entry(&self.file.link, index)?, field),
            ["group" | "transfer" | "workload", _, "dscp" | "priority"] if self.is_infiniband() => {
                Some(nowhere(
                    "packets of InfiniBand have the adapter's service-level",
                ))
            }
            ["group", name, ref field @ ..] => self.group(name, field),
            ["collective", index, field] => collective(entry(&self.file.collective, index)?, field),
            ["model", index, ref field @ ..] => model(entry(&self.file.model, index)?, field),
            ["workload", index, field] => workload(entry(&self.file.workload, index)?, field),
            _ => None,
        }
    }

    fn routing(&self, field: &str) -> Option<Reason> {
        let routing = &self.file.routing;
        match field {
            "flowlet-gap" if routing.spread != SpreadKind::Flowlet => {
                Some(nowhere("spread is not \"flowlet\""))
            }
            "reaction" if self.is_infiniband() => Some(nowhere(
                "the manager of a subnet routes once in a simulation",
            )),
            "reaction" if self.file.link.iter().all(|link| link.down.is_empty()) => {
                Some(nowhere("no link goes down"))
            }
            _ => None,
        }
    }

    fn manager(&self, field: &str) -> Option<Reason> {
        let sm = &self.file.sm;
        match field {
            _ if !self.is_infiniband() => {
                Some(nowhere("no adapter has link-layer = \"infiniband\""))
            }
            "roots" if sm.routing != RoutingEngine::Updn => {
                Some(nowhere("routing is not \"updn\""))
            }
            "lfts" if sm.routing != RoutingEngine::File => Some(nowhere("routing is not \"file\"")),
            _ => None,
        }
    }

    fn nic(&self, name: &str, field: &[&str]) -> Option<Reason> {
        if !self.network.tables.nic.contains(name) {
            return Some(nowhere(&format!("no host has nic = \"{name}\"")));
        }
        if self.is_infiniband()
            && field
                .first()
                .is_some_and(|field| NIC_ETHERNET.contains(field))
        {
            return Some(nowhere("only packets and ports of Ethernet have it"));
        }
        let of_infiniband = matches!(field, ["service-level" | "lane-buffer"]);
        if of_infiniband && !self.is_infiniband() {
            return Some(nowhere("link-layer is not \"infiniband\""));
        }
        let nic = self.file.nic.get(name)?;
        let stores = !self.file.storage.is_empty();
        match field {
            ["lane-buffer"] if nic.pcie.is_some() => {
                Some(nowhere("lanes share the receive-buffer of pcie"))
            }
            ["congestion"] if self.is_infiniband() && nic.congestion != Congestion::Window => Some(
                nowhere("adapters of InfiniBand have \"window\" or none here"),
            ),
            ["willing"] => Some((Effect::Lab, "only a lab exchanges DCBX".to_owned())),
            ["protocol"] if !stores => Some(nowhere("only [[storage]] uses it")),
            ["reorder-window"] if !nic.out_of_order => Some(nowhere("out-of-order is not true")),
            ["control-overhead"] if nic.data_overhead.is_none() => {
                Some(nowhere("there is no data-overhead"))
            }
            ["uet", _] | ["nscc", _] if nic.transport != Transport::Uet => {
                Some(nowhere("transport is not \"uet\""))
            }
            ["nscc", "target"] if !nic.congestion.has_nscc() => {
                Some(nowhere("congestion has no NSCC"))
            }
            ["window"] if nic.congestion.has_nscc() => Some(nowhere("NSCC has its own window")),
            [field] if nic.transport == Transport::Uet && NIC_RC.contains(field) => {
                Some(nowhere("transport = \"uet\" has no such field"))
            }
            [table, field] if Congestion::has_table(table) => congestion(nic, table, field),
            _ => None,
        }
    }

    fn qos(&self, name: &str, field: &[&str]) -> Option<Reason> {
        let mut switches = self.network.tables.qos.iter();
        if !switches.any(|qos| qos.as_deref() == Some(name)) {
            return Some(nowhere(&self.no_switch(name)));
        }
        if field == ["lane-buffer"] && !self.is_infiniband() {
            return Some(nowhere("no adapter has link-layer = \"infiniband\""));
        }
        let is_of_ethernet = field != ["lane-buffer"];
        if self.is_infiniband() && is_of_ethernet {
            return Some(nowhere("only switches of Ethernet have it"));
        }
        let qos = self.file.qos.get(name)?;
        match field {
            ["willing"] => Some((Effect::Lab, "only a lab exchanges DCBX".to_owned())),
            ["dscp", _] if !matches!(qos.trust, Trust::Dscp | Trust::Both) => {
                Some(nowhere("trust does not include DSCP"))
            }
            ["pcp", _] if !matches!(qos.trust, Trust::Pcp | Trust::Both) => {
                Some(nowhere("trust does not include PCP"))
            }
            ["queue", class, "burst"] if qos.queue.get(*class)?.rate.is_none() => {
                Some(nowhere("the queue has no rate"))
            }
            ["headroom-pool"] if qos.pfc.classes.is_empty() => {
                Some(nowhere("no class is lossless"))
            }
            ["pfc", field] => pfc(qos, field),
            _ => None,
        }
    }

    /// Why no switch has a table: one has another table or a vendor's file.
    fn no_switch(&self, name: &str) -> String {
        let tables = self.network.switches.iter().zip(&self.network.tables.qos);
        let vendors: Vec<&str> = tables
            .filter(|(switch, qos)| qos.is_none() && switch.imported.is_some())
            .map(|(switch, _)| switch.name.as_str())
            .take(4)
            .collect();
        let with = match vendors[..] {
            [] => String::new(),
            [one] => format!("; {one} has the configuration of a vendor's file"),
            ref several => format!(
                "; {} have the configurations of vendors' files",
                several.join(", ")
            ),
        };
        format!("no switch has qos = \"{name}\"{with}")
    }

    fn processor(&self, name: &str, field: &str) -> Option<Reason> {
        if !self.network.tables.processor.contains(name) {
            return Some(nowhere(&format!("no host has processor = \"{name}\"")));
        }
        let stores = !self.file.storage.is_empty();
        let slots = self
            .network
            .hosts
            .iter()
            .any(|host| host.nic.pcie.is_some());
        match field {
            "memory" if !stores && !slots => {
                Some(nowhere("only [[storage]] and adapters with pcie use it"))
            }
            "memory" => None,
            _ if !stores => Some(nowhere("only [[storage]] uses it")),
            _ => None,
        }
    }

    fn drive(&self, name: &str) -> Option<Reason> {
        if !self.network.tables.drive.contains(name) {
            return Some(nowhere(&format!("no host has drive = \"{name}\"")));
        }
        let stores = !self.file.storage.is_empty();
        (!stores).then(|| nowhere("only [[storage]] uses it"))
    }

    fn group(&self, name: &str, field: &[&str]) -> Option<Reason> {
        let mut users = self.file.collective.iter();
        let mut models = self.file.model.iter();
        if !users.any(|one| one.group == name) && !models.any(|one| one.group == name) {
            return Some(nowhere(&format!(
                "no collective or model has group = \"{name}\""
            )));
        }
        let alone = self.file.group.get(name)?.ranks_per_server == 1;
        (field.first() == Some(&"local") && alone)
            .then(|| nowhere("ranks-per-server is 1: no server has two ranks"))
    }

    fn host(&self, field: &str) -> Option<Reason> {
        let stores = !self.file.storage.is_empty();
        match field {
            "live" => Some((Effect::Lab, "a simulation runs no programs".to_owned())),
            "drive" | "drives" | "parity" if !stores => Some(nowhere("only [[storage]] uses it")),
            _ => None,
        }
    }
}

fn entry<'a, T>(entries: &'a [T], index: &str) -> Option<&'a T> {
    entries.get(index.parse::<usize>().ok()?)
}

fn nowhere(why: &str) -> Reason {
    (Effect::None, why.to_owned())
}

/// Sizes that the kind of a generated topology does not have.
fn generator(generator: &Generator, field: &str) -> Option<Reason> {
    let (kind, has): (_, &[&str]) = match generator.kind {
        Shape::Star => ("star", &["hosts"]),
        Shape::LeafSpine => ("leaf-spine", &["hosts", "leaves", "spines", "fabric-rate"]),
        Shape::FatTree => ("fat-tree", &["k", "fabric-rate"]),
        Shape::Rail => ("rail", &["servers", "rails", "spines", "fabric-rate"]),
        Shape::Dragonfly => ("dragonfly", &["hosts", "groups", "routers", "fabric-rate"]),
    };
    let of_kinds = [
        "k",
        "hosts",
        "leaves",
        "spines",
        "servers",
        "rails",
        "groups",
        "routers",
        "fabric-rate",
    ];
    let is_missing = of_kinds.contains(&field) && !has.contains(&field);
    is_missing.then(|| nowhere(&format!("kind = \"{kind}\" has no {field}")))
}

fn congestion(nic: &NicTable, table: &str, field: &str) -> Option<Reason> {
    let name = nic.congestion.name();
    if name != table {
        return Some(nowhere(&format!("congestion is \"{name}\"")));
    }
    let has_clock = nic.dcqcn.cut_interval.is_some();
    (field == "clamp-target" && !has_clock).then(|| nowhere("there is no cut-interval"))
}

/// Settings of all lossless classes that there are none for.
fn pfc(qos: &Qos, field: &str) -> Option<Reason> {
    let pfc = &qos.pfc;
    let of_classes = ["xoff", "xon", "headroom", "quanta", "response"];
    if pfc.classes.is_empty() && of_classes.contains(&field) {
        return Some(nowhere("no class is lossless"));
    }
    let own = |class: &u8| {
        pfc.class
            .get(&class.to_string())
            .is_some_and(|own| match field {
                "xoff" => own.xoff.is_some(),
                "xon" => own.xon.is_some(),
                "headroom" => own.headroom.is_some(),
                _ => false,
            })
    };
    let all_have = !pfc.classes.is_empty() && pfc.classes.iter().all(own);
    all_have.then(|| nowhere("every lossless class has its own"))
}

fn link(link: &LinkTable, field: &str) -> Option<Reason> {
    match field {
        "extra-shape" if link.extra_law != Law::Pareto => {
            Some(nowhere("extra-law is not \"pareto\""))
        }
        "extra-samples" if link.extra_law != Law::Measured => {
            Some(nowhere("extra-law is not \"measured\""))
        }
        "extra-spread" if link.extra_law == Law::Measured => {
            Some(nowhere("extra-law is \"measured\""))
        }
        _ => None,
    }
}

/// Whether a workload has one of these patterns.
fn is_among(workload: &Workload, patterns: &[Pattern]) -> bool {
    let own = workload.pattern.filter(|_| workload.load.is_none());
    own.is_some_and(|own| patterns.contains(&own))
}

fn collective(collective: &Collective, field: &str) -> Option<Reason> {
    let of_data = ["protocol", "chunk", "slices", "credit"];
    let is_barrier = collective.kind == CollectiveKind::Barrier;
    (is_barrier && of_data.contains(&field)).then(|| nowhere("a barrier moves no data"))
}

fn model(model: &ModelTable, field: &[&str]) -> Option<Reason> {
    let parallel = &model.parallel;
    let copies = parallel.data.saturating_mul(parallel.context);
    let why = match field {
        ["efficiency"] if model.layer_time.is_some() => "layer-time says how long a layer takes",
        ["bucket-layers" | "algorithm" | "gradient-bytes" | "zero"] if copies <= 1 => {
            "data and context are 1: gradients are not added up"
        }
        ["algorithm"] if model.zero > 0 => "zero is not 0: gradients are reduce-scattered",
        ["bucket-layers"] if model.zero >= 3 => "zero is 3: each layer is by itself",
        ["parallel", "sequence"] if parallel.tensor == 1 => "parallel.tensor is 1",
        ["experts", "top"] if model.experts.count == 1 => "experts.count is 1",
        _ => return None,
    };
    Some(nowhere(why))
}

fn workload(workload: &Workload, field: &str) -> Option<Reason> {
    let by_load = [
        "pattern",
        "shift",
        "messages",
        "bytes",
        "depth",
        "qps",
        "source-gid",
        "source-mac",
    ];
    let by_list = ["pattern", "from", "to", "message", "depth", "qps"];
    let by_record = ["operation", "message", "depth"];
    let why = match field {
        _ if workload.load.is_some() && by_load.contains(&field) => {
            "with load, each message has a queue pair of its own"
        }
        _ if workload.flows.is_some() && by_list.contains(&field) => "the list of flows has it",
        _ if workload.connections.is_some() && by_list.contains(&field) => "the matrix has it",
        "start-unit" if workload.connections.is_none() => "there are no connections",
        "message" if workload.load.is_some() && workload.sizes.is_some() => {
            "sizes says how long messages are"
        }
        "message" if workload.load.is_some() && workload.sizes_file.is_some() => {
            "sizes-file says how long messages are"
        }
        "sizes" | "sizes-file" if workload.load.is_none() => "only a load has them",
        "incast" if workload.load.is_none() => "only a load has one",
        "gaps" if workload.replay.is_none() => "there is no replay",
        _ if workload.replay.is_some() && by_record.contains(&field) => {
            "the record of replay has it"
        }
        "to" if workload.pattern == Some(Pattern::Ring) && workload.load.is_none() => {
            "in a ring each of from sends to the next of from"
        }
        "to" if is_among(workload, &[Pattern::Shift, Pattern::Bisection]) => {
            "each of from sends to another one of from"
        }
        "shift" if !is_among(workload, &[Pattern::Shift]) => "the pattern is not \"shift\"",
        _ => return None,
    };
    Some(nowhere(why))
}
