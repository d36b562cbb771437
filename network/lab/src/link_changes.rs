//! Properties of links that are named by their ends, as in `spine0-leaf1.rate`. Links of a generated topology
//! have no table in the file, and no other name.

use fabric::topology::{LinkConfig, Node};
use fabric_file::{Document, FileError, Network, SharedAdapter};
use sim::experiment::Experiment;

/// Properties that can change while a lab runs.
pub(crate) const FIELDS: [&str; 5] = ["rate", "delay", "length", "loss", "bit-errors"];

/// Tables of the fabric file whose paths begin like a name.
const TABLES: [&str; 3] = ["link", "nic", "qos"];

/// One link, to read a property as a fabric file has it.
const ONE_LINK: &str =
    "[[host]]\nname = \"a\"\n[[switch]]\nname = \"b\"\n[[link]]\nbetween = [\"a\", \"b\"]\n";

/// A changed property of all links between two nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LinkChange {
    ends: [String; 2],
    field: String,
    value: String,
}

impl LinkChange {
    /// The change of a path `A-B.FIELD`; none where the path is one of the file.
    ///
    /// # Errors
    /// Ends without a link between them, and values that a link does not have.
    pub(crate) fn of(
        experiment: &Experiment,
        path: &str,
        value: &str,
    ) -> Option<Result<Self, String>> {
        let (names, field) = path.rsplit_once('.')?;
        let table = names.split('.').next().unwrap_or_default();
        if TABLES.contains(&table) || !names.contains('-') || !FIELDS.contains(&field) {
            return None;
        }
        // Names may have hyphens as well: the place that names a link counts.
        let splits = names
            .match_indices('-')
            .map(|(at, _)| [names[..at].to_owned(), names[at + 1..].to_owned()]);
        let ends = splits
            .into_iter()
            .find(|ends| !links_between(experiment, ends).is_empty());
        let Some(ends) = ends else {
            return Some(Err(format!(
                "{path}: no link is between these nodes; a link is named by its ends, such as \
                 sender0-crs504, or is link.N of the file"
            )));
        };
        let change = Self {
            ends,
            field: field.to_owned(),
            value: value.to_owned(),
        };
        Some(change.config().map(|_| change))
    }

    /// A link with this property, read as a fabric file has it.
    fn config(&self) -> Result<LinkConfig, String> {
        let mut none = |name: &str| Err(format!("{name} is not there"));
        let mut read = || {
            let mut document = Document::read("link", ONE_LINK, &mut none)?;
            document.set(&format!("link.0.{}", self.field), &self.value)?;
            let fields = document.fields()?;
            Network::build(&document, &fields, &mut none)
        };
        let network = read().map_err(|error: FileError| error.to_string())?;
        let first = network.topology.links().first();
        first.map(|link| link.config).ok_or_else(|| {
            format!(
                "{} is no property of a link: `rockery lab set --help` lists them",
                self.field
            )
            .to_owned()
        })
    }

    /// Makes the change in a network.
    pub(crate) fn apply(&self, experiment: &mut Experiment) {
        let Ok(read) = self.config() else { return };
        for number in links_between(experiment, &self.ends) {
            let now = experiment.network.topology.links().get(number as usize);
            let Some(mut config) = now.map(|link| link.config) else {
                continue;
            };
            match self.field.as_str() {
                "rate" => config.rate = read.rate,
                "delay" | "length" => config.delay = read.delay,
                "loss" => config.loss = read.loss,
                _ => config.bit_errors = read.bit_errors,
            }
            experiment.network.topology.set_config(number, config);
            experiment.scenario.topology.set_config(number, config);
        }
    }
}

/// The links between two nodes, each named as a node (`crs504`) or as a port (`crs504:qsfp28-1-1`).
pub(crate) fn links_between(experiment: &Experiment, ends: &[String; 2]) -> Vec<u32> {
    let network = &experiment.network;
    let is_called = |end: fabric::topology::End, name: &String| {
        let node = match end.node {
            Node::Host(host) => &network.hosts[host as usize].name,
            Node::Switch(switch) => &network.switches[switch as usize].name,
        };
        // The port of an adapter with functions is called like its host.
        let adapter = network
            .adapters
            .iter()
            .find(|adapter| Node::Switch(adapter.switch) == end.node);
        let is_of = |adapter: &SharedAdapter| {
            end.port == 0 && network.hosts[adapter.host as usize].name == *name
        };
        node == name || network.port_name(end) == *name || adapter.is_some_and(is_of)
    };
    let links = (0_u32..).zip(network.topology.links());
    let found = links.filter(|(_, link)| {
        let [one, other] = link.ends;
        is_called(one, &ends[0]) && is_called(other, &ends[1])
            || is_called(other, &ends[0]) && is_called(one, &ends[1])
    });
    found.map(|(number, _)| number).collect()
}
