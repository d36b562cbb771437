//! Settings that the page varies with a slider or a choice: those of the file that decide about congestion.

use fabric_file::congestion::Congestion;
use fabric_file::schema::{FabricFile, Qos, SpreadKind};
use serde::Serialize;
use units::Size;

/// A setting, and the values that can be chosen.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Dial {
    /// The path, as `--set` takes it.
    pub(crate) path: String,
    /// The name that the page shows.
    pub(crate) label: String,
    /// Values as they are written in the file.
    pub(crate) values: Vec<String>,
    /// The index of the file's own value.
    pub(crate) at: usize,
    /// Whether the values are a scale, from small to large.
    pub(crate) scale: bool,
}

/// The settings of a file.
pub(crate) fn of(file: &FabricFile) -> Vec<Dial> {
    let mut dials: Vec<Dial> = file
        .sweep
        .iter()
        .map(|(path, values)| swept(path, values))
        .collect();
    let default = Qos::default();
    let uses_default = file.topology.is_some() && !file.qos.contains_key("default");
    let qos = file.qos.iter().map(|(name, qos)| (name.as_str(), qos));
    for (name, qos) in qos.chain(uses_default.then_some(("default", &default))) {
        dials.extend(switch(name, qos));
    }
    dials.extend(scripts(file));
    dials.extend(adapters(file));
    dials.extend(paths(file));
    let mut seen = Vec::new();
    dials.retain(|dial| {
        let is_new = !seen.contains(&dial.path);
        seen.push(dial.path.clone());
        is_new && dial.values.len() > 1
    });
    dials
}

fn swept(path: &str, values: &[fabric_file::schema::Scalar]) -> Dial {
    let values = values.iter().map(ToString::to_string).collect();
    Dial {
        path: path.to_owned(),
        label: format!("{path} (sweep)"),
        values,
        at: 0,
        scale: false,
    }
}

/// Buffer, ECN thresholds and PFC of one kind of switch.
fn switch(name: &str, qos: &Qos) -> Vec<Dial> {
    let at = |field: &str| format!("qos.{name}.{field}");
    let of = if name == "default" {
        String::new()
    } else {
        format!(" of {name}")
    };
    let mut dials = vec![sizes(at("buffer"), format!("Buffer{of}"), qos.buffer)];
    for (class, queue) in &qos.queue {
        let Some(ecn) = &queue.ecn else { continue };
        let field = |end: &str| at(&format!("queue.{class}.ecn.{end}"));
        dials.push(sizes(
            field("min"),
            format!("ECN minimum{of}, class {class}"),
            ecn.min,
        ));
        dials.push(sizes(
            field("max"),
            format!("ECN maximum{of}, class {class}"),
            ecn.max,
        ));
    }
    let classes = format!("{:?}", qos.pfc.classes);
    let values = if classes == "[]" {
        vec![classes, "[3]".to_owned()]
    } else {
        vec!["[]".to_owned(), classes]
    };
    let index = usize::from(!qos.pfc.classes.is_empty());
    dials.push(Dial {
        path: at("pfc.classes"),
        label: format!("PFC classes{of}"),
        values,
        at: index,
        scale: false,
    });
    dials
}

/// Powers of two around a size.
fn sizes(path: String, label: String, size: Size) -> Dial {
    let smaller = (1..=6)
        .rev()
        .map(|power| size.0 >> power)
        .filter(|bytes| *bytes > 0);
    let around = smaller.chain((0..=4).map(|power| size.0.saturating_mul(1 << power)));
    let values: Vec<String> = around.map(|bytes| Size(bytes).to_string()).collect();
    let own = size.to_string();
    let at = values.iter().position(|value| *value == own).unwrap_or(0);
    Dial {
        path,
        label,
        values,
        at,
        scale: true,
    }
}

/// RouterOS scripts after a switch's first, each of which can be left out.
fn scripts(file: &FabricFile) -> Option<Dial> {
    let (index, scripts) = file
        .switch
        .iter()
        .enumerate()
        .rev()
        .find_map(|(index, switch)| Some((index, switch.routeros.as_ref()?)))?;
    let text = |scripts: &[String]| {
        let quoted: Vec<String> = scripts.iter().map(|script| format!("{script:?}")).collect();
        format!("[{}]", quoted.join(", "))
    };
    let values: Vec<String> = (1..=scripts.len())
        .map(|count| text(&scripts[..count]))
        .collect();
    let at = values.len().saturating_sub(1);
    let label = format!("RouterOS scripts of {}", file.switch[index].name);
    Some(Dial {
        path: format!("switch.{index}.routeros"),
        label,
        values,
        at,
        scale: false,
    })
}

/// Congestion control and MTU of adapters.
fn adapters(file: &FabricFile) -> Vec<Dial> {
    let default = fabric_file::schema::NicTable::default();
    let missing = !file.nic.contains_key("default");
    let named = file.nic.iter().map(|(name, nic)| (name.as_str(), nic));
    let all = named.chain(missing.then_some(("default", &default)));
    let dials = all.flat_map(|(name, nic)| {
        let of = if name == "default" {
            String::new()
        } else {
            format!(" of {name}")
        };
        let congestion = serde_json::to_value(nic.congestion).unwrap_or_default();
        let kinds = Congestion::RC.map(Congestion::name);
        let mtu = ["256", "512", "1024", "2048", "4096"];
        [
            choice(
                format!("nic.{name}.congestion"),
                format!("Congestion control{of}"),
                &kinds,
                &word(&congestion),
            ),
            choice(
                format!("nic.{name}.mtu"),
                format!("Path MTU{of}"),
                &mtu,
                &nic.mtu.to_string(),
            ),
        ]
    });
    dials.collect()
}

/// Paths between switches, and how packets are spread over them.
fn paths(file: &FabricFile) -> Vec<Dial> {
    let mut dials = Vec::new();
    let topology = file.topology.as_ref();
    if let Some(spines) = topology.and_then(|topology| topology.spines) {
        let spines = spines.to_string();
        dials.push(choice(
            "topology.spines".into(),
            "Spines".into(),
            &["1", "2", "4", "8", "16"],
            &spines,
        ));
    }
    let side_by_side = file
        .link
        .iter()
        .enumerate()
        .filter(|(_, link)| link.count > 1);
    for (index, link) in side_by_side {
        let label = format!("Links from {} to {}", link.between[0], link.between[1]);
        let count = link.count.to_string();
        dials.push(choice(
            format!("link.{index}.count"),
            label,
            &["1", "2", "4", "8", "16"],
            &count,
        ));
    }
    let several =
        topology.is_some_and(|topology| topology.kind != fabric_file::schema::Shape::Star);
    if several || !dials.is_empty() || file.routing.spread != SpreadKind::Hash {
        let spread = serde_json::to_value(file.routing.spread).unwrap_or_default();
        let kinds = ["hash", "flowlet", "random", "round-robin", "adaptive"];
        dials.push(choice(
            "routing.spread".into(),
            "Paths of packets".into(),
            &kinds,
            &word(&spread),
        ));
    }
    dials
}

fn word(value: &serde_json::Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Known values, and the file's own among them.
fn choice(path: String, label: String, known: &[&str], own: &str) -> Dial {
    let mut values: Vec<String> = known.iter().map(|value| (*value).to_owned()).collect();
    let at = values
        .iter()
        .position(|value| value == own)
        .unwrap_or_else(|| {
            values.push(own.to_owned());
            values.len() - 1
        });
    Dial {
        path,
        label,
        values,
        at,
        scale: false,
    }
}
