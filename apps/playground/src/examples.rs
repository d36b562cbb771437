//! The fabric files of `examples/`, with the files that they name.

use std::collections::BTreeMap;

use fabric_file::Document;
use serde::Serialize;
use sim::experiment::Experiment;

macro_rules! files {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../../examples/", $path)))),*]
    };
}

/// Files of the folder `examples`, those that are run and those that they name.
pub(crate) const FILES: &[(&str, &str)] = files!(
    "around.toml",
    "collectives/all-reduce.toml",
    "collectives/gpt-13b.toml",
    "collectives/gpt.toml",
    "collectives/slow-link.toml",
    "collectives/step.toml",
    "collectives/trees.toml",
    "crs504/as-printed.rsc",
    "crs504/as-written.toml",
    "crs504/dscp-not-trusted.rsc",
    "crs504/dscp-not-trusted.toml",
    "crs504/ecn-off.rsc",
    "crs504/ecn-off.toml",
    "crs504/lab.toml",
    "crs504/mapped.rsc",
    "crs504/mapped.toml",
    "crs504/paths.toml",
    "crs504/pfc-on-wrong-class.rsc",
    "crs504/pfc-on-wrong-class.toml",
    "crs504/roce.rsc",
    "crs504/routed.toml",
    "crs504/shares.rsc",
    "crs504/shares.toml",
    "fat-tree.toml",
    "functions.toml",
    "incast-thresholds.toml",
    "incast.toml",
    "incast/dcqcn.toml",
    "incast/dctcp.toml",
    "incast/hpcc.toml",
    "incast/ring.toml",
    "incast/storm.toml",
    "incast/swift.toml",
    "incast/timely.toml",
    "incast/watchdog.toml",
    "infiniband/ring.toml",
    "infiniband/routing.toml",
    "nvme/cores.toml",
    "nvme/parity.toml",
    "nvme/rdma.toml",
    "nvme/tcp.toml",
    "nvme/timeouts.toml",
    "parameters/hpcc-ns3.toml",
    "pcie/trained.toml",
    "sonic/config_db.json",
    "sonic/lab.toml",
    "spraying/by-opcode.toml",
    "spraying/eight-paths.toml",
    "spraying/job.toml",
    "spraying/recovery.toml",
    "spraying/two-hosts.toml",
    "spraying/two-paths.toml",
    "uet/incast.toml",
    "uet/permutation.toml",
    "uneven-paths.toml",
    "web-search.toml",
);

/// A fabric file that runs as it is.
#[derive(Serialize)]
pub(crate) struct Example {
    /// Its path below `examples`, without the extension.
    pub(crate) name: &'static str,
    /// The title that it states.
    pub(crate) title: String,
    /// The text of the fabric file.
    pub(crate) text: &'static str,
    /// The files that it names, by these names.
    pub(crate) files: BTreeMap<String, &'static str>,
}

/// All examples that are experiments, by name.
pub(crate) fn all() -> Vec<Example> {
    FILES
        .iter()
        .filter_map(|(path, text)| example(path.strip_suffix(".toml")?, text))
        .collect()
}

/// `None` for a file without a workload, which others include.
fn example(name: &'static str, text: &'static str) -> Option<Example> {
    let folder = name
        .rsplit_once('/')
        .map_or(String::new(), |(folder, _)| format!("{folder}/"));
    let mut files = BTreeMap::new();
    let mut read = |named: &str| {
        let path = format!("{folder}{named}");
        let found = FILES.iter().find(|(known, _)| *known == path);
        let (_, text) = found.ok_or_else(|| format!("{path} is not among the page's examples"))?;
        files.insert(named.to_owned(), *text);
        Ok((*text).to_owned())
    };
    let document = Document::read(name, text, &mut read).ok()?;
    let experiment = Experiment::new(&document, &mut read).ok()?;
    Some(Example {
        name,
        title: experiment.file.title,
        text,
        files,
    })
}
