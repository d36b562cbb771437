//! A table of the fabric file: the hosts that it names, and mistakes in its fields.

use super::FLOWS_MAX;
use crate::world::FlowMarks;
use fabric_file::{Document, FileError, Mistake, Network};

/// A table of a file, such as `workload[0]`.
#[derive(Clone, Copy)]
pub(super) struct FileTable<'a> {
    pub(super) document: &'a Document,
    pub(super) path: &'a str,
}

impl FileTable<'_> {
    /// A mistake in one of the table's fields.
    pub(super) fn mistake(
        &self,
        mistake: Mistake,
        field: &str,
        what: String,
        instead: &str,
    ) -> FileError {
        let field = format!("{}.{field}", self.path);
        self.document.mistake(mistake, &field, what, instead)
    }

    /// The marks that a table gives its packets. Those of InfiniBand have the service level of their adapter.
    pub(super) fn marks(
        &self,
        network: &Network,
        dscp: Option<u8>,
        class: Option<u8>,
    ) -> Result<FlowMarks, FileError> {
        for (field, value, most) in [("dscp", dscp, 63), ("priority", class, 7)] {
            if let Some(more) = value.filter(|value| *value > most) {
                let what = format!("{more} is more than {most}");
                let instead = format!("0 to {most}");
                return Err(self.mistake(Mistake::Value, field, what, &instead));
            }
        }
        Ok(match network.infiniband {
            Some(_) => FlowMarks::default(),
            None => FlowMarks { class, dscp },
        })
    }

    /// The hosts that the patterns of a field match.
    pub(super) fn hosts(
        &self,
        network: &Network,
        field: &str,
        patterns: &[String],
    ) -> Result<Vec<u32>, FileError> {
        let mut found = Vec::new();
        for (index, pattern) in patterns.iter().enumerate() {
            let matching = network.hosts_matching(pattern);
            if matching.is_empty() {
                let what = format!("no host is called \"{pattern}\"");
                let field = format!("{field}[{index}]");
                let instead = some_hosts(network);
                return Err(self.mistake(Mistake::UnknownName, &field, what, &instead));
            }
            found.extend(matching);
            if found.len() > FLOWS_MAX {
                let what = format!("the patterns stand for more than {FLOWS_MAX} hosts");
                return Err(self.mistake(Mistake::Limit, field, what, "name each host once"));
            }
        }
        Ok(found)
    }
}

fn some_hosts(network: &Network) -> String {
    let names: Vec<&str> = network
        .hosts
        .iter()
        .take(6)
        .map(|host| host.name.as_str())
        .collect();
    let more = if network.hosts.len() > names.len() {
        ", …"
    } else {
        ""
    };
    format!("there are {}{more}", names.join(", "))
}
