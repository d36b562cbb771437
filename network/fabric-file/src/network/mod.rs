//! From the fields to hosts, switches and links by number.

mod adapters;
mod functions;
mod generate;
mod infiniband_subnet;
mod links;
mod nic_values;
mod nodes;
mod port_profiles;
mod sm_table;
mod switches;
mod transports;
mod vendor_switches;

pub use functions::{NamedFunction, SharedAdapter};
pub use sm_table::{LaneBuffers, Manager};

pub use infiniband_subnet::{ChannelAdapter, Subnet, SubnetLink, SubnetSwitch};

use super::document::{Document, ReadFile};
use super::error::{FileError, Mistake, Problem};
use super::hosts::{Drive, ProcessorTable};
use super::names::Names;
use super::schema::{FabricFile, HostTable, LinkLayer, NicTable, SpreadKind};
use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use fabric::Spread;
use fabric::Watchdog;
use fabric::config::SwitchConfig;
use fabric::topology::{End, Node, Topology};
use infiniband::LinkSpeed;
use vendors::Imported;

/// Mistakes of one file that are reported at most: each costs a search through the file.
const PROBLEMS_MAX: usize = 100;

/// A host of the file, under the name that the file gives it.
#[derive(Clone, PartialEq, Debug)]
pub struct NamedHost {
    /// The name, which no other host or switch has.
    pub name: String,
    /// The adapter, from the `[nic.NAME]` table that the host's entry names.
    pub nic: NicTable,
    /// The processor, from the `[processor.NAME]` table that the host's entry names.
    pub processor: ProcessorTable,
    /// The model of the host's drives, from the `[drive.NAME]` table that the host's entry names.
    pub drive: Drive,
    /// How many drives of that model the host has.
    pub drives: u32,
    /// Whether they keep parity.
    pub parity: bool,
    /// Whether the file marks the host as live.
    pub live: bool,
}

/// A switch of the file, under the name that the file gives it.
#[derive(Clone, PartialEq, Debug)]
pub struct NamedSwitch {
    /// The name, which no other host or switch has.
    pub name: String,
    /// Names of the ports: the vendor's where a vendor's configuration was read, else their numbers.
    pub ports: Vec<String>,
    /// Ports, queues, buffer and PFC of the switch.
    pub config: SwitchConfig,
    /// The vendor's configuration, where one was read.
    pub imported: Option<Imported>,
    /// The PFC watchdog, where one is configured.
    pub watchdog: Option<Watchdog>,
    /// Whether its ports take settings from their peers by DCBX.
    pub willing: bool,
}

/// Hosts, switches and links of a fabric file.
#[derive(Clone, Debug)]
pub struct Network {
    /// Which port is connected to which.
    pub topology: Topology,
    /// Hosts by number.
    pub hosts: Vec<NamedHost>,
    /// Switches by number.
    pub switches: Vec<NamedSwitch>,
    /// Adapters with virtual functions.
    pub adapters: Vec<SharedAdapter>,
    /// What an InfiniBand subnet has besides; `None` if the links are Ethernet.
    pub infiniband: Option<Subnet>,
    /// The manager of that subnet in a simulation.
    pub manager: Option<Manager>,
    /// How traffic is spread.
    pub spread: Spread,
    /// The tables that hosts and switches have.
    pub tables: TablesInUse,
}

/// Names of the tables that hosts and switches of a network have.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TablesInUse {
    /// `[nic.NAME]`, of hosts.
    pub nic: BTreeSet<String>,
    /// The same by host.
    pub nic_of: Vec<String>,
    /// `[processor.NAME]`, of hosts.
    pub processor: BTreeSet<String>,
    /// `[drive.NAME]`, of hosts.
    pub drive: BTreeSet<String>,
    /// `[qos.NAME]`, by switch; none where a vendor's files or an adapter configure it.
    pub qos: Vec<Option<String>>,
}

struct NetworkBuilder<'a> {
    document: &'a Document,
    file: &'a FabricFile,
    problems: Vec<Problem>,
    topology: Topology,
    hosts: Names,
    switches: Names,
    /// Index into `file.host` and `file.switch` of the entry that decides.
    host_entry: Vec<Option<usize>>,
    switch_entry: Vec<Option<usize>>,
    port_names: Vec<Vec<Option<String>>>,
    /// The link layer of all hosts.
    layer: LinkLayer,
    /// Widths and speeds of InfiniBand, by link.
    speeds: Vec<Option<LinkSpeed>>,
    /// How often links go down, over all links so far.
    outages: usize,
    /// Adapters with virtual functions.
    shared: Vec<SharedAdapter>,
    /// Names of hosts, once all are known.
    hosts_list: Vec<String>,
}

impl Network {
    /// Builds the network. `files` reads the files that `routeros` and `sonic` name.
    ///
    /// # Errors
    /// Names that do not exist, values out of range, and lines of vendors' files that are not understood; as
    /// many at once as can be found.
    pub fn build(
        document: &Document,
        file: &FabricFile,
        files: &mut ReadFile<'_>,
    ) -> Result<Self, FileError> {
        let mut builder = NetworkBuilder {
            document,
            file,
            problems: Vec::new(),
            topology: Topology::default(),
            hosts: Names::default(),
            switches: Names::default(),
            host_entry: Vec::new(),
            switch_entry: Vec::new(),
            port_names: Vec::new(),
            layer: LinkLayer::Ethernet,
            speeds: Vec::new(),
            outages: 0,
            shared: Vec::new(),
            hosts_list: Vec::new(),
        };
        if let Some(generator) = &file.topology {
            builder.generate(generator);
        }
        builder.add_nodes();
        builder.find_link_layer();
        for (index, link) in file.link.iter().enumerate() {
            builder.link(index, link);
        }
        let infiniband = builder.subnet();
        builder.add_functions();
        let hosts = builder.adapters();
        let manager = infiniband.as_ref().map(|_| builder.manager(files));
        let switches = if builder.problems.is_empty() {
            builder.configure(files, infiniband.as_ref())
        } else {
            Vec::new()
        };
        if !builder.problems.is_empty() {
            return Err(FileError(builder.problems));
        }
        let spread = match file.routing.spread {
            SpreadKind::Hash => Spread::Hash,
            SpreadKind::Random => Spread::Random,
            SpreadKind::RoundRobin => Spread::RoundRobin,
            SpreadKind::Adaptive => Spread::Adaptive,
            SpreadKind::Flowlet => Spread::Flowlet(file.routing.flowlet_gap.0),
        };
        Ok(Self {
            tables: builder.tables_in_use(),
            topology: builder.topology,
            hosts,
            switches,
            infiniband,
            manager,
            adapters: builder.shared,
            spread,
        })
    }

    /// Numbers of the hosts whose names match.
    pub fn hosts_matching(&self, pattern: &str) -> Vec<u32> {
        let all = self.hosts.iter().zip(0..);
        all.filter(|(host, _)| super::names::matches(pattern, &host.name))
            .map(|(_, number)| number)
            .collect()
    }

    /// The adapter with functions that a host belongs to, as physical or as virtual function.
    pub fn adapter_of(&self, host: u32) -> Option<&SharedAdapter> {
        // Functions come last, adapter by adapter: those before are physical ones.
        let after = self
            .adapters
            .partition_point(|adapter| adapter.functions[0].host <= host);
        let of_function = after.checked_sub(1).map(|before| &self.adapters[before]);
        of_function.or_else(|| {
            let found = self
                .adapters
                .binary_search_by_key(&host, |adapter| adapter.host)
                .ok()?;
            Some(&self.adapters[found])
        })
    }

    /// Number and settings of a virtual function.
    pub fn function(&self, host: u32) -> Option<(u32, &NamedFunction)> {
        let functions = &self.adapter_of(host)?.functions;
        let number = host.checked_sub(functions[0].host)?;
        Some((number, functions.get(number as usize)?))
    }

    /// The name of a port: `sw0:3`, or `h4` for a host's only one.
    pub fn port_name(&self, end: End) -> String {
        match end.node {
            Node::Host(host) => self.hosts[host as usize].name.clone(),
            Node::Switch(switch) => {
                let switch = &self.switches[switch as usize];
                format!("{}:{}", switch.name, switch.ports[usize::from(end.port)])
            }
        }
    }
}

impl NetworkBuilder<'_> {
    fn tables_in_use(&self) -> TablesInUse {
        let mut tables = TablesInUse::default();
        for entry in &self.host_entry {
            let host = entry.map(|entry| &self.file.host[entry]);
            let name = |of: fn(&HostTable) -> &String| host.map_or("default", |host| of(host));
            tables.nic.insert(name(|host| &host.nic).to_owned());
            tables.nic_of.push(name(|host| &host.nic).to_owned());
            tables
                .processor
                .insert(name(|host| &host.processor).to_owned());
            tables.drive.insert(name(|host| &host.drive).to_owned());
        }
        let switches = (0_u32..).zip(&self.switch_entry);
        tables.qos = switches
            .map(|(number, entry)| {
                let switch = entry.map(|entry| &self.file.switch[entry]);
                let is_vendors = switch
                    .is_some_and(|switch| switch.routeros.is_some() || switch.sonic.is_some());
                let is_embedded = self.shared.iter().any(|adapter| adapter.switch == number);
                (!is_vendors && !is_embedded)
                    .then(|| switch.map_or("default", |switch| &switch.qos).to_owned())
            })
            .collect();
        tables
    }

    /// Records a mistake in a field; ignored after the first [`PROBLEMS_MAX`].
    fn wrong(&mut self, mistake: Mistake, field: &str, what: String, instead: &str) {
        if self.problems.len() >= PROBLEMS_MAX {
            return;
        }
        let place = self.document.place_of(field);
        self.problems
            .push(self.document.problem(mistake, field, place, what, instead));
    }
}
