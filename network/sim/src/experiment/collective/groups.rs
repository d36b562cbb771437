//! Groups of ranks: those of the file, and one for each pair of hosts with transfers of the same marks.

use super::FileTable;
use crate::world::{CollectiveWork, FlowMarks, Job, LocalLinks, RankGroup, turns};
use fabric::{Rate, Span};
use fabric_file::schema::{GROUP_OF_ALL, GroupTable};
use fabric_file::{Document, FabricFile, FileError, Mistake, Network};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The workload that the queue pairs of transfers are in results.
const TRANSFERS: &str = "transfers";

/// Between ranks of a server. What takes no time would have hosts handle events of the past.
const DELAY_MIN: Span = Span::from_ns(1);
const DELAY_MAX: Span = Span(1_000_000_000_000);

/// The groups that something uses.
pub(super) struct Groups<'a> {
    document: &'a Document,
    file: &'a FabricFile,
    pub(super) network: &'a Network,
    found: Vec<RankGroup>,
    names: Vec<Option<String>>,
    marks: Vec<FlowMarks>,
    by_name: BTreeMap<String, u32>,
    by_pair: BTreeMap<([u32; 2], [Option<u8>; 2]), u32>,
    turns: BTreeMap<u32, Arc<[u32]>>,
}

impl<'a> Groups<'a> {
    pub(super) fn new(document: &'a Document, file: &'a FabricFile, network: &'a Network) -> Self {
        Self {
            document,
            file,
            network,
            found: Vec::new(),
            names: Vec::new(),
            marks: Vec::new(),
            by_name: BTreeMap::new(),
            by_pair: BTreeMap::new(),
            turns: BTreeMap::new(),
        }
    }

    /// Ranks of one server in a group.
    pub(super) fn per_server(&self, group: u32) -> u32 {
        self.found[group as usize].per_server
    }

    /// Hosts of a group, by rank.
    pub(super) fn hosts(&self, group: u32) -> &[u32] {
        &self.found[group as usize].hosts
    }

    /// The marks of each group's packets.
    pub(super) fn marks(&self) -> Vec<FlowMarks> {
        self.marks.clone()
    }

    pub(super) fn ranks(&self, group: u32) -> usize {
        self.hosts(group).len()
    }

    /// The group of this name, which a collective has.
    pub(super) fn named(&mut self, table: FileTable<'_>, name: &str) -> Result<u32, FileError> {
        if let Some(found) = self.by_name.get(name) {
            return Ok(*found);
        }
        let own = self.file.group.get(name);
        if own.is_none() && name != GROUP_OF_ALL {
            let there: Vec<&str> = self.file.group.keys().map(String::as_str).collect();
            let instead = match there.is_empty() {
                true => format!(
                    "write a table [group.{name}], or leave out group: then it is all hosts"
                ),
                false => format!("there are {}", there.join(", ")),
            };
            let what = format!("no group is called \"{name}\"");
            return Err(table.mistake(Mistake::UnknownName, "group", what, &instead));
        }
        let all = ["*".to_owned()];
        let patterns = own.map_or(&all[..], |own| &own.hosts);
        let path = format!("group.{name}");
        let hosts = FileTable {
            document: self.document,
            path: &path,
        };
        let ranks = hosts.hosts(self.network, "hosts", patterns)?;
        self.check_ranks(hosts, &ranks)?;
        let usual = GroupTable::default();
        let own = own.unwrap_or(&usual);
        let group = RankGroup {
            per_server: per_server(hosts, own, ranks.len())?,
            local: local(hosts, own)?,
            hosts: ranks,
        };
        let marks = hosts.marks(self.network, own.dscp, own.priority)?;
        let number = self.add(group, Some(name.to_owned()), marks);
        self.by_name.insert(name.to_owned(), number);
        Ok(number)
    }

    fn check_ranks(&self, table: FileTable<'_>, ranks: &[u32]) -> Result<(), FileError> {
        let mut seen = BTreeSet::new();
        if let Some(twice) = ranks.iter().find(|host| !seen.insert(**host)) {
            let host = &self.network.hosts[*twice as usize].name;
            let what = format!("{host} is in it twice, and a host is one rank");
            let instead = "name each host once";
            return Err(table.mistake(Mistake::Combination, "hosts", what, instead));
        }
        Ok(())
    }

    /// The order in which ranks turn to each other, for works in which everyone does.
    pub(super) fn turns(&mut self, group: u32, work: CollectiveWork) -> Arc<[u32]> {
        let has_turns = matches!(
            work,
            CollectiveWork::DirectAllToAll
                | CollectiveWork::DirectReduceScatter
                | CollectiveWork::DirectAllGather
        );
        if !has_turns {
            return Arc::default();
        }
        let ranks = self.ranks(group) as u32;
        let found = self.turns.entry(ranks);
        found.or_insert_with(|| turns(ranks).into()).clone()
    }

    /// The group of two hosts with transfers that have these marks.
    pub(super) fn pair(&mut self, pair: [u32; 2], marks: FlowMarks) -> u32 {
        let key = (pair, [marks.dscp, marks.class]);
        if let Some(found) = self.by_pair.get(&key) {
            return *found;
        }
        let group = RankGroup {
            hosts: pair.to_vec(),
            per_server: 1,
            local: LocalLinks {
                rate: Rate::from_gbps(1),
                delay: Span::ZERO,
            },
        };
        let number = self.add(group, None, marks);
        self.by_pair.insert(key, number);
        number
    }

    /// Groups of some ranks of another one, which are in its servers and have its marks.
    pub(super) fn parts(
        &mut self,
        table: FileTable<'_>,
        whole: u32,
        parts: &[Vec<u32>],
        name: &str,
        word: &str,
    ) -> Result<Vec<u32>, FileError> {
        let mut numbers = Vec::with_capacity(parts.len());
        for ranks in parts {
            let group = &self.found[whole as usize];
            let Some(per_server) = neighbours(ranks, group.per_server) else {
                let what = format!(
                    "the ranks of a {word} group are not spread evenly over servers of {}",
                    group.per_server
                );
                let instead = "numbers with which each server has as many of them, or none";
                return Err(table.mistake(Mistake::Combination, "parallel", what, instead));
            };
            let part = RankGroup {
                hosts: ranks
                    .iter()
                    .map(|rank| group.hosts[*rank as usize])
                    .collect(),
                per_server,
                local: group.local,
            };
            let marks = self.marks[whole as usize];
            numbers.push(self.add(part, Some(name.to_owned()), marks));
        }
        Ok(numbers)
    }

    fn add(&mut self, group: RankGroup, name: Option<String>, marks: FlowMarks) -> u32 {
        self.found.push(group);
        self.names.push(name);
        self.marks.push(marks);
        self.found.len() as u32 - 1
    }

    /// The groups, the number of the workload of each, and the names of these workloads: one for each group
    /// of the file that has jobs, and one for all transfers.
    pub(super) fn into_ranks(
        self,
        first: usize,
        jobs: &[Job],
    ) -> (Vec<RankGroup>, Vec<u32>, Vec<String>) {
        let mut has_jobs = vec![false; self.names.len()];
        jobs.iter()
            .for_each(|job| has_jobs[job.group as usize] = true);
        let mut workloads: Vec<String> = Vec::new();
        let mut transfers = None;
        let mut of_group = Vec::with_capacity(self.names.len());
        let groups = self.found.iter().zip(has_jobs);
        for (name, (group, has_jobs)) in self.names.into_iter().zip(groups) {
            let own = workloads.len();
            let number = match name {
                // Ranks of one server have no queue pairs, which results would be about; nor have all ranks
                // of a model, which exchange everything in smaller groups.
                Some(_) if !has_jobs || group.hosts.len() <= group.per_server as usize => 0,
                // Groups of one kind in a model follow each other.
                Some(name) if workloads.last() == Some(&name) => own - 1,
                Some(name) => {
                    workloads.push(name);
                    own
                }
                None => *transfers.get_or_insert_with(|| {
                    workloads.push(TRANSFERS.to_owned());
                    own
                }),
            };
            of_group.push((first + number) as u32);
        }
        (self.found, of_group, workloads)
    }
}

/// How many of these ranks, which are in order, each server of so many has, where it has any.
fn neighbours(ranks: &[u32], per_server: u32) -> Option<u32> {
    let mut runs = ranks.chunk_by(|one, other| one / per_server == other / per_server);
    let first = runs.next()?.len();
    runs.all(|run| run.len() == first).then_some(first as u32)
}

/// Ranks of one server, which divide those of the group.
fn per_server(table: FileTable<'_>, group: &GroupTable, ranks: usize) -> Result<u32, FileError> {
    let within = group.ranks_per_server;
    if within > 0 && ranks.is_multiple_of(within as usize) {
        return Ok(within);
    }
    let what = format!("{ranks} ranks are not divided into servers of {within}");
    let instead = "a number that divides them";
    Err(table.mistake(Mistake::Combination, "ranks-per-server", what, instead))
}

fn local(table: FileTable<'_>, group: &GroupTable) -> Result<LocalLinks, FileError> {
    let delay = group.local.delay.0;
    if (DELAY_MIN..=DELAY_MAX).contains(&delay) {
        return Ok(LocalLinks {
            rate: group.local.rate.0,
            delay,
        });
    }
    let what = "a delay below a nanosecond or above a second".to_owned();
    Err(table.mistake(Mistake::Value, "local.delay", what, "such as \"1us\""))
}

#[cfg(test)]
mod tests {
    use super::neighbours;

    #[test]
    fn ranks_of_a_server_are_counted() {
        assert_eq!(neighbours(&[0, 1, 2, 3], 4), Some(4));
        assert_eq!(neighbours(&[0, 1, 2, 3], 2), Some(2));
        assert_eq!(neighbours(&[1, 5, 9], 4), Some(1));
        assert_eq!(neighbours(&[0, 2, 4, 6], 4), Some(2));
        assert_eq!(neighbours(&[0, 1, 2], 2), None);
    }
}
