//! Adapter, processor and drives of each host, from the tables that its entry names.

use super::{NamedHost, NetworkBuilder};
use crate::error::Mistake;
use crate::functions::FunctionSettings;
use crate::schema::{HostTable, NicTable};
use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use fabric::Rate;
use fabric::topology::Node;
use units::Bandwidth;
use vendors::text::nearest;

/// Cores of one processor at most.
const CORES_MAX: u32 = 4096;

/// Drives of one host at most.
const DRIVES_MAX: u32 = 1024;

/// Drives that keep parity, at least: of two, one would be a copy of the other.
const PARITY_DRIVES_MIN: u32 = 3;

impl NetworkBuilder<'_> {
    /// The hosts, each with the tables of its entry.
    pub(super) fn adapters(&mut self) -> Vec<NamedHost> {
        let names = core::mem::take(&mut self.hosts).into_list();
        self.hosts_list.clone_from(&names);
        let attached = self.attached();
        self.check_cables();
        let mut hosts = Vec::with_capacity(names.len());
        for (number, name) in names.into_iter().enumerate() {
            let entry = self.host_entry[number];
            if !attached[number] && self.problems.is_empty() {
                let what = format!("host {name} has no link");
                let instead =
                    format!("[[link]] between = [\"{name}\", \"a switch\"], or another host");
                let field = host_field(entry, "name");
                self.wrong(Mistake::Combination, &field, what, &instead);
            }
            hosts.extend(self.host_with_tables(name, entry));
        }
        // If a table is missing, the list has gaps; the file is refused then.
        for adapter in self.shared.iter().filter(|_| self.problems.is_empty()) {
            for function in &adapter.functions {
                set_function(&mut hosts[function.host as usize].nic, &function.settings);
            }
        }
        let tables: Vec<(String, NicTable)> = self
            .file
            .nic
            .iter()
            .map(|(name, nic)| (name.clone(), nic.clone()))
            .collect();
        for (name, nic) in &tables {
            self.check_nic(&format!("nic.{name}"), nic);
            self.check_nic_sizes(&format!("nic.{name}"), nic);
        }
        self.check_storage_tables();
        hosts
    }

    /// For each host whether it has a link.
    fn attached(&self) -> Vec<bool> {
        let mut attached = alloc::vec![false; self.topology.hosts() as usize];
        for end in self.topology.links().iter().flat_map(|link| link.ends) {
            if let Node::Host(host) = end.node {
                attached[host as usize] = true;
            }
        }
        attached
    }

    /// Hosts that are linked with each other reach no other one: there are no others then.
    fn check_cables(&mut self) {
        let links = self.topology.links().iter();
        let cable = links.map(|link| link.ends.map(|end| end.node));
        let mut cable = cable.filter_map(|nodes| match nodes {
            [Node::Host(one), Node::Host(other)] => Some([one, other]),
            _ => None,
        });
        let Some(hosts) = cable.next().filter(|_| self.topology.hosts() > 2) else {
            return;
        };
        let [one, other] = hosts.map(|host| self.hosts_list[host as usize].clone());
        let what = format!("{one} and {other} are linked with each other, and reach no other host");
        let instead = "link hosts with switches, or leave the other hosts out";
        self.wrong(Mistake::Combination, "link", what, instead);
    }

    /// A host with the tables that its entry names; `None` if one of them is missing.
    fn host_with_tables(&mut self, name: String, entry: Option<usize>) -> Option<NamedHost> {
        let file = self.file;
        let table_name = |field: fn(&HostTable) -> &str| {
            entry.map_or("default", |entry| field(&file.host[entry]))
        };
        let nic = table_name(|host| &host.nic);
        let (processor, drive) = (
            table_name(|host| &host.processor),
            table_name(|host| &host.drive),
        );
        let nic_table = table(&file.nic, nic);
        let processor_table = table(&file.processor, processor);
        let drive_table = table(&file.drive, drive);
        for (missing, kind, wanted) in [
            (nic_table.is_none(), "nic", nic),
            (processor_table.is_none(), "processor", processor),
            (drive_table.is_none(), "drive", drive),
        ] {
            if missing {
                self.no_such_table(&host_field(entry, kind), kind, wanted, entry);
            }
        }
        Some(NamedHost {
            name,
            nic: nic_table?,
            processor: processor_table?,
            drive: drive_table?,
            drives: entry.map_or(1, |entry| file.host[entry].drives.max(1)),
            parity: entry.is_some_and(|entry| file.host[entry].parity),
            live: entry.is_some_and(|entry| file.host[entry].live),
        })
    }

    /// Checks the sizes of per-host allocations for storage: cores and drives.
    fn check_storage_tables(&mut self) {
        let file = self.file;
        for (name, processor) in &file.processor {
            if !(1..=CORES_MAX).contains(&processor.cores) {
                let what = format!("{} is not from 1 to {CORES_MAX}", processor.cores);
                self.wrong(Mistake::Value, &format!("processor.{name}.cores"), what, "");
            }
        }
        for (index, host) in file
            .host
            .iter()
            .enumerate()
            .filter(|(_, host)| host.drives > DRIVES_MAX)
        {
            let what = format!("{} is more than {DRIVES_MAX}", host.drives);
            self.wrong(Mistake::Value, &format!("host[{index}].drives"), what, "");
        }
        for (index, host) in file.host.iter().enumerate() {
            if host.parity && host.drives < PARITY_DRIVES_MIN {
                let what = format!(
                    "parity takes {PARITY_DRIVES_MIN} drives, and the host has {}",
                    host.drives
                );
                self.wrong(Mistake::Value, &format!("host[{index}].parity"), what, "");
            }
        }
    }

    fn check_nic(&mut self, field: &str, nic: &NicTable) {
        if ![256, 512, 1024, 2048, 4096].contains(&nic.mtu) {
            let what = format!("{} is no path MTU of InfiniBand", nic.mtu);
            self.wrong(
                Mistake::Value,
                &format!("{field}.mtu"),
                what,
                "write 256, 512, 1024, 2048 or 4096",
            );
        }
        for (name, value, limit) in [
            ("dscp", nic.dscp, 63),
            ("cnp-dscp", nic.cnp_dscp, 63),
            ("pcp", nic.pcp.unwrap_or(0), 7),
            ("priority", nic.priority, 7),
            ("cnp-priority", nic.cnp_priority, 7),
            ("ack-dscp", nic.ack_dscp.unwrap_or(0), 63),
            ("ack-priority", nic.ack_priority.unwrap_or(0), 7),
            ("retries", nic.retries, 7),
            ("timeout", nic.timeout, 31),
            ("service-level", nic.service_level, 15),
        ] {
            if value > limit {
                let what = format!("{value} is more than {limit}");
                self.wrong(
                    Mistake::Value,
                    &format!("{field}.{name}"),
                    what,
                    &format!("0 to {limit}"),
                );
            }
        }
        if nic.outstanding == Some(0) {
            let what = "nothing may ever leave".to_owned();
            self.wrong(
                Mistake::Value,
                &format!("{field}.outstanding"),
                what,
                "at least 1",
            );
        }
        if let Some(class) = nic.pfc.iter().find(|class| **class > 7) {
            self.wrong(
                Mistake::Value,
                &format!("{field}.pfc"),
                format!("{class} is no priority"),
                "0 to 7",
            );
        }
    }

    /// Notes that an entry names a table that is not there: once per entry, however many hosts it has.
    pub(super) fn no_such_table(
        &mut self,
        field: &str,
        kind: &str,
        name: &str,
        entry: Option<usize>,
    ) {
        if entry.is_some() && self.problems.iter().any(|problem| problem.field == field) {
            return;
        }
        let names: Vec<&str> = match kind {
            "nic" => self.file.nic.keys().map(String::as_str).collect(),
            "processor" => self.file.processor.keys().map(String::as_str).collect(),
            "drive" => self.file.drive.keys().map(String::as_str).collect(),
            _ => self.file.qos.keys().map(String::as_str).collect(),
        };
        let instead = match nearest(name, names.iter().copied()) {
            Some(meant) => format!("did you mean \"{meant}\"?"),
            None => format!("add [{kind}.{name}]"),
        };
        self.wrong(
            Mistake::UnknownName,
            field,
            format!("there is no table [{kind}.{name}]"),
            &instead,
        );
    }
}

/// Sets the fields of a function's own adapter: the priority of its tag, and its rate.
fn set_function(nic: &mut NicTable, settings: &FunctionSettings) {
    if settings.vlan > 0 {
        nic.pcp = Some(settings.qos);
    }
    if settings.max_bps > 0 {
        let own = nic.rate.map_or(u64::MAX, |rate| rate.0.bps());
        nic.rate = Some(Bandwidth(Rate::from_bps(own.min(settings.max_bps))));
    }
}

/// A field of a host's entry. Generated hosts have no entry, and mistakes in them are shown without one.
fn host_field(entry: Option<usize>, field: &str) -> String {
    match entry {
        Some(entry) => format!("host[{entry}].{field}"),
        None => "nic".to_owned(),
    }
}

/// A table by name; the one called `default` is there without being written.
fn table<T: Clone + Default>(tables: &BTreeMap<String, T>, name: &str) -> Option<T> {
    tables
        .get(name)
        .cloned()
        .or_else(|| (name == "default").then(T::default))
}
