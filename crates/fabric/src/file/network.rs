//! From the fields to hosts, switches and links by number.

use super::document::{Document, ReadFile};
use super::error::{FileError, Mistake, Problem, nearest};
use super::hosts::{Drive, Processor};
use super::names::{Names, expand, is_pattern};
use super::profile::{bytes, is_closed};
use super::schema::{FabricFile, Forwarding, Generator, Host, Link, Nic, Qos, Shape, SpreadKind, Switch};
use crate::config::{BufferConfig, PROFILES_MAX, PortConfig, Profile, SwitchConfig};
use crate::route::Spread;
use crate::time::{Span, Time};
use crate::topology::{self, End, Extra, LinkConfig, Node, Topology};
use crate::vendor::{Imported, Place};
use crate::watchdog::Watchdog;
use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Hosts of one file at most.
pub const HOSTS_MAX: u32 = 1 << 17;

/// Switches of one file at most.
pub const SWITCHES_MAX: u32 = 1 << 15;

/// How often one entry takes a link down at most.
const OUTAGES_MAX: u32 = 10_000;

/// A host.
#[derive(Clone, PartialEq, Debug)]
pub struct Attached {
    /// Its name.
    pub name: String,
    /// Its adapter.
    pub nic: Nic,
    /// Its processor.
    pub processor: Processor,
    /// Its drives, and how many.
    pub drive: Drive,
    /// See `drive`.
    pub drives: u32,
}

/// A switch.
#[derive(Clone, PartialEq, Debug)]
pub struct NamedSwitch {
    /// Its name.
    pub name: String,
    /// Its ports' names: those of the vendor where a vendor's configuration was read, else their numbers.
    pub ports: Vec<String>,
    /// What it runs on.
    pub config: SwitchConfig,
    /// What was read, where it was a vendor's.
    pub imported: Option<Imported>,
    /// Its PFC watchdog.
    pub watchdog: Option<Watchdog>,
}

/// Everything that is connected.
#[derive(Clone, Debug)]
pub struct Network {
    /// Which port is connected to which.
    pub topology: Topology,
    /// Hosts by number.
    pub hosts: Vec<Attached>,
    /// Switches by number.
    pub switches: Vec<NamedSwitch>,
    /// How traffic is spread.
    pub spread: Spread,
}

struct Builder<'a> {
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
}

impl Network {
    /// Builds it. `files` gets what `routeros` and `sonic` name.
    ///
    /// # Errors
    /// Names that nothing has, values out of range, and what vendors' files hold that is not understood; as
    /// many at once as can be told.
    pub fn build(
        document: &Document,
        file: &FabricFile,
        files: &mut ReadFile<'_>,
    ) -> Result<Self, FileError> {
        let mut builder = Builder {
            document,
            file,
            problems: Vec::new(),
            topology: Topology::default(),
            hosts: Names::default(),
            switches: Names::default(),
            host_entry: Vec::new(),
            switch_entry: Vec::new(),
            port_names: Vec::new(),
        };
        if let Some(generator) = &file.topology {
            builder.generate(generator);
        }
        builder.add_nodes();
        for (index, link) in file.link.iter().enumerate() {
            builder.link(index, link);
        }
        let hosts = builder.adapters();
        let switches = if builder.problems.is_empty() { builder.configure(files) } else { Vec::new() };
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
        Ok(Self { topology: builder.topology, hosts, switches, spread })
    }

    /// Numbers of the hosts whose names match.
    pub fn hosts_matching(&self, pattern: &str) -> Vec<u32> {
        let all = self.hosts.iter().zip(0..);
        all.filter(|(host, _)| super::names::matches(pattern, &host.name)).map(|(_, number)| number).collect()
    }

    /// What a port is called: `sw0:3`, or `h4` for a host's only one.
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

impl Builder<'_> {
    fn wrong(&mut self, mistake: Mistake, field: &str, what: String, instead: &str) {
        let place = self.document.place_of(field);
        self.problems.push(self.document.problem(mistake, field, place, what, instead));
    }

    fn generate(&mut self, generator: &Generator) {
        let speeds = generator.speeds();
        let mut missing = Vec::new();
        let mut number = |name: &'static str, value: Option<u32>| {
            value.filter(|value| (1..=u32::from(u16::MAX)).contains(value)).unwrap_or_else(|| {
                missing.push(name);
                1
            })
        };
        let made = match generator.kind {
            Shape::Star => {
                let hosts = number("hosts", generator.hosts);
                topology::star(hosts, speeds.hosts).map(|made| (made, star_names(hosts)))
            }
            Shape::LeafSpine => {
                let leaves = number("leaves", generator.leaves);
                let spines = number("spines", generator.spines);
                let hosts = number("hosts", generator.hosts);
                let names = (
                    numbered("h", leaves * hosts),
                    [numbered("leaf", leaves), numbered("spine", spines)].concat(),
                );
                topology::leaf_spine(leaves, spines, hosts, speeds).map(|made| (made, names))
            }
            Shape::FatTree => {
                let k = number("k", generator.k.filter(|k| k % 2 == 0 && *k <= 64));
                topology::fat_tree(k, speeds).map(|made| (made, fat_tree_names(k)))
            }
            Shape::Rail => {
                let servers = number("servers", generator.servers);
                let rails = number("rails", generator.rails);
                let spines = number("spines", generator.spines);
                let hosts = (0..servers).flat_map(|n| (0..rails).map(move |r| format!("n{n}r{r}")));
                let names = (hosts.collect(), [numbered("rail", rails), numbered("spine", spines)].concat());
                topology::rail_optimised(servers, rails, spines, speeds).map(|made| (made, names))
            }
            Shape::Dragonfly => {
                let groups = number("groups", generator.groups);
                let routers = number("routers", generator.routers);
                let hosts = number("hosts", generator.hosts);
                let switches = (0..groups).flat_map(|g| (0..routers).map(move |r| format!("g{g}r{r}")));
                let names = (numbered("h", groups * routers * hosts), switches.collect());
                topology::dragonfly(groups, routers, hosts, speeds).map(|made| (made, names))
            }
        };
        if !missing.is_empty() {
            let what = format!("this kind needs {}", missing.join(", "));
            let instead = "numbers from 1 to 65535; k of a fat-tree is even and at most 64";
            return self.wrong(Mistake::Combination, "topology", what, instead);
        }
        match made {
            Ok((made, (hosts, switches))) => {
                self.topology = made;
                hosts.iter().for_each(|name| {
                    self.hosts.add(name);
                });
                switches.iter().for_each(|name| {
                    self.switches.add(name);
                });
                self.host_entry = alloc::vec![None; hosts.len()];
                self.switch_entry = alloc::vec![None; switches.len()];
                let ports = (0..self.topology.switches()).map(|switch| self.topology.ports(switch));
                self.port_names = ports.map(|count| alloc::vec![None; usize::from(count)]).collect();
            }
            Err(error) => self.wrong(Mistake::Limit, "topology", error.to_string(), "make it smaller"),
        }
    }

    fn add_nodes(&mut self) {
        for (index, Host { name, count, .. }) in self.file.host.iter().enumerate() {
            let field = format!("host[{index}].name");
            for name in self.valid_names(&field, name, *count, true) {
                let there = self.hosts.matching(&name);
                there.iter().for_each(|number| self.host_entry[*number as usize] = Some(index));
                if there.is_empty() && is_pattern(&name) {
                    self.unknown(&field, "host", &name, true);
                } else if there.is_empty() {
                    self.topology.add_host();
                    self.hosts.add(&name);
                    self.host_entry.push(Some(index));
                }
            }
        }
        for (index, Switch { name, count, .. }) in self.file.switch.iter().enumerate() {
            let field = format!("switch[{index}].name");
            for name in self.valid_names(&field, name, *count, false) {
                let there = self.switches.matching(&name);
                there.iter().for_each(|number| self.switch_entry[*number as usize] = Some(index));
                if there.is_empty() && is_pattern(&name) {
                    self.unknown(&field, "switch", &name, false);
                } else if there.is_empty() {
                    self.topology.add_switch();
                    self.switches.add(&name);
                    self.switch_entry.push(Some(index));
                    self.port_names.push(Vec::new());
                }
            }
        }
    }

    fn valid_names(&mut self, field: &str, name: &str, count: Option<u32>, host: bool) -> Vec<String> {
        let (limit, other) = if host { (HOSTS_MAX, &self.switches) } else { (SWITCHES_MAX, &self.hosts) };
        let taken = !is_pattern(name) && other.number(name).is_some();
        let odd = name.is_empty() || name.contains([':', ' ']);
        if count.is_some_and(|count| count > limit) {
            let what = format!("{} are too many: {limit} at most", count.unwrap_or_default());
            self.wrong(Mistake::Limit, field, what, "");
        } else if taken || odd {
            let what =
                if taken { "a host and a switch have this name" } else { "a name has no colon and no space" };
            self.wrong(Mistake::Value, field, format!("\"{name}\": {what}"), "choose another");
        } else {
            return expand(name, count);
        }
        Vec::new()
    }

    fn unknown(&mut self, field: &str, kind: &str, name: &str, host: bool) {
        let names = if host { &self.hosts } else { &self.switches };
        let meant = nearest(name, names.iter()).map(|meant| format!("did you mean \"{meant}\"?"));
        let some: Vec<&str> = names.iter().take(8).collect();
        let instead = meant.unwrap_or_else(|| match some.as_slice() {
            [] => format!("there is no {kind} at all: add [[{kind}]], or a topology"),
            some => format!("there are {}{}", some.join(", "), if some.len() == 8 { ", …" } else { "" }),
        });
        self.wrong(Mistake::UnknownName, field, format!("no {kind} is called \"{name}\""), &instead);
    }

    fn link(&mut self, index: usize, link: &Link) {
        let field = format!("link[{index}]");
        let delay = match (link.delay, link.length) {
            (Some(_), Some(_)) => {
                let what = "a delay and a length contradict each other".to_owned();
                return self.wrong(Mistake::Combination, &field, what, "give one of them");
            }
            (Some(delay), None) => delay.0,
            (None, Some(length)) => length.delay(),
            (None, None) => Span::from_us(1),
        };
        let config =
            LinkConfig { rate: link.rate.0, delay, loss: link.loss.chance(), bit_errors: link.bit_errors.0 };
        let chance = match link.chance() {
            Ok(chance) => chance,
            Err((name, what, instead)) => {
                return self.wrong(Mistake::Value, &format!("{field}.{name}"), what, instead);
            }
        };
        let from = self.ends(&format!("{field}.between[0]"), &link.between[0]);
        let to = self.ends(&format!("{field}.between[1]"), &link.between[1]);
        if to.len() > 1 {
            let what = format!("\"{}\" stands for {} ends", link.between[1], to.len());
            return self.wrong(Mistake::Value, &format!("{field}.between[1]"), what, "only the first may");
        }
        let Some((to, to_port)) = to.into_iter().next() else { return };
        for (from, from_port) in from {
            for _ in 0..link.count {
                match self.topology.connect(from, to, config) {
                    Ok(()) => {
                        let extra = Extra { chance: chance.clone(), ..Extra::of(link.extra_delay.0) };
                        if extra != Extra::default() {
                            let number = self.topology.links().len() as u32 - 1;
                            self.topology.slow_down(number, 0, extra);
                        }
                        self.take_down(&field, link);
                        self.name_port(&field, from, from_port.as_deref());
                        self.name_port(&field, to, to_port.as_deref());
                    }
                    Err(error) => {
                        let what = match error {
                            topology::LinkError::HostConnected(host) => {
                                let name =
                                    self.hosts.iter().nth(host as usize).unwrap_or_default().to_owned();
                                format!("host {name} has a link already, and a host has one port")
                            }
                            other => other.to_string(),
                        };
                        return self.wrong(Mistake::Limit, &field, what, "");
                    }
                }
            }
        }
    }

    /// The times when the last link is down.
    fn take_down(&mut self, field: &str, link: &Link) {
        let number = self.topology.links().len() as u32 - 1;
        for (index, down) in link.down.iter().enumerate() {
            let field = format!("{field}.down[{index}]");
            if down.times > OUTAGES_MAX || (down.times > 1 && down.every.0 <= down.lasts.0) {
                let what = format!("{} times, one every {}", down.times, down.every);
                let instead =
                    format!("at most {OUTAGES_MAX} times, and longer from one to the next than each");
                return self.wrong(Mistake::Value, &field, what, &instead);
            }
            for time in 0..u64::from(down.times) {
                let from = Time(0) + down.at.0 + down.every.0.times(time);
                self.topology.take_down(number, from, from + down.lasts.0);
            }
        }
    }

    fn name_port(&mut self, field: &str, node: Node, name: Option<&str>) {
        let Node::Switch(switch) = node else { return };
        let ports = &mut self.port_names[switch as usize];
        if name.is_some_and(|name| ports.iter().flatten().any(|other| other == name)) {
            let what = format!("port {} has a link already", name.unwrap_or_default());
            return self.wrong(Mistake::Combination, &format!("{field}.between"), what, "");
        }
        ports.push(name.map(str::to_owned));
    }

    fn ends(&mut self, field: &str, text: &str) -> Vec<(Node, Option<String>)> {
        let (name, port) = text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port)));
        let hosts = self.hosts.matching(name).into_iter().map(Node::Host);
        let switches = self.switches.matching(name).into_iter().map(Node::Switch);
        let ends: Vec<_> = hosts.chain(switches).map(|node| (node, port.map(str::to_owned))).collect();
        if ends.is_empty() {
            let names = self.hosts.iter().chain(self.switches.iter());
            let instead = match nearest(name, names) {
                Some(meant) => format!("did you mean \"{meant}\"?"),
                None => "names come from [[host]], [[switch]] and the topology".to_owned(),
            };
            let what = format!("no host and no switch is called \"{name}\"");
            self.wrong(Mistake::UnknownName, field, what, &instead);
        }
        ends
    }

    fn adapters(&mut self) -> Vec<Attached> {
        let names = core::mem::take(&mut self.hosts).into_list();
        let attached = self.topology.attachments();
        let mut hosts = Vec::with_capacity(names.len());
        for (number, name) in names.into_iter().enumerate() {
            let entry = self.host_entry[number];
            let nic = entry.map_or("default", |entry| self.file.host[entry].nic.as_str());
            let field = entry.map_or_else(|| "nic".to_owned(), |entry| format!("host[{entry}].nic"));
            if attached[number].is_none() && self.problems.is_empty() {
                let what = format!("host {name} is attached to no switch");
                let instead = format!("[[link]] between = [\"{name}\", \"a switch\"]");
                self.wrong(Mistake::Combination, &field.replace(".nic", ".name"), what, &instead);
            }
            let of = |name: fn(&Host) -> &str| entry.map_or("default", |entry| name(&self.file.host[entry]));
            let (processor, drive) = (of(|host| &host.processor), of(|host| &host.drive));
            let drives = entry.map_or(1, |entry| self.file.host[entry].drives.max(1));
            let nic_table = table(&self.file.nic, nic);
            let processor_table = table(&self.file.processor, processor);
            let drive_table = table(&self.file.drive, drive);
            for (missing, kind, wanted) in [
                (nic_table.is_none(), "nic", nic),
                (processor_table.is_none(), "processor", processor),
                (drive_table.is_none(), "drive", drive),
            ] {
                if missing {
                    self.no_such_table(&field.replace(".nic", &format!(".{kind}")), kind, wanted, entry);
                }
            }
            if let (Some(nic), Some(processor), Some(drive)) = (nic_table, processor_table, drive_table) {
                hosts.push(Attached { name, nic, processor, drive, drives });
            }
        }
        let tables: Vec<(String, Nic)> =
            self.file.nic.iter().map(|(name, nic)| (name.clone(), nic.clone())).collect();
        tables.iter().for_each(|(name, nic)| self.check_nic(&format!("nic.{name}"), nic));
        hosts
    }

    fn check_nic(&mut self, field: &str, nic: &Nic) {
        if ![256, 512, 1024, 2048, 4096].contains(&nic.mtu) {
            let what = format!("{} is no path MTU of InfiniBand", nic.mtu);
            self.wrong(Mistake::Value, &format!("{field}.mtu"), what, "write 256, 512, 1024, 2048 or 4096");
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
        ] {
            if value > limit {
                let what = format!("{value} is more than {limit}");
                self.wrong(Mistake::Value, &format!("{field}.{name}"), what, &format!("0 to {limit}"));
            }
        }
        if nic.outstanding == Some(0) {
            let what = "nothing may ever leave".to_owned();
            self.wrong(Mistake::Value, &format!("{field}.outstanding"), what, "at least 1");
        }
        if let Some(class) = nic.pfc.iter().find(|class| **class > 7) {
            self.wrong(Mistake::Value, &format!("{field}.pfc"), format!("{class} is no priority"), "0 to 7");
        }
    }

    /// Said once per entry, however many hosts it stands for.
    fn no_such_table(&mut self, field: &str, kind: &str, name: &str, entry: Option<usize>) {
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
        self.wrong(Mistake::UnknownName, field, format!("there is no table [{kind}.{name}]"), &instead);
    }

    fn configure(&mut self, files: &mut ReadFile<'_>) -> Vec<NamedSwitch> {
        let links = links_of_ports(&self.topology);
        let names = core::mem::take(&mut self.switches).into_list();
        let mut switches = Vec::with_capacity(names.len());
        for (number, name) in names.into_iter().enumerate() {
            let entry = self.switch_entry[number];
            let links = &links[number];
            let vendor = entry.and_then(|entry| {
                let switch = &self.file.switch[entry];
                match (&switch.routeros, &switch.sonic) {
                    (Some(_), Some(_)) => Some((entry, "routeros", Vec::new())),
                    (Some(scripts), None) => Some((entry, "routeros", scripts.clone())),
                    (None, Some(config)) => Some((entry, "sonic", alloc::vec![config.clone()])),
                    (None, None) => None,
                }
            });
            let made = match vendor {
                Some((entry, kind, paths)) => {
                    let entry = Entry { number, index: entry, kind };
                    self.imported(name, &entry, &paths, links, files)
                }
                None => self.native(name, entry, links),
            };
            switches.extend(made);
        }
        self.cut_through();
        switches
    }

    /// Links whose far end acts on first bits: into switches that cut through, as fast as any there.
    fn cut_through(&mut self) {
        let cuts = |entry: &Option<usize>| {
            let entry = entry.map(|entry| &self.file.switch[entry]);
            let vendor = entry.is_some_and(|entry| entry.routeros.is_some() || entry.sonic.is_some());
            let qos = self.file.qos.get(entry.map_or("default", |entry| entry.qos.as_str()));
            !vendor && qos.is_some_and(|qos| qos.forwarding == Forwarding::CutThrough)
        };
        let cuts: Vec<bool> = self.switch_entry.iter().map(cuts).collect();
        let mut fastest = alloc::vec![0; cuts.len()];
        for link in self.topology.links() {
            for end in link.ends {
                if let Node::Switch(switch) = end.node {
                    let rate = &mut fastest[switch as usize];
                    *rate = link.config.rate.bps().max(*rate);
                }
            }
        }
        for (number, link) in (0..).zip(self.topology.links().to_vec()) {
            for (direction, to) in [(0, link.ends[1]), (1, link.ends[0])] {
                let Node::Switch(to) = to.node else { continue };
                if cuts[to as usize] && link.config.rate.bps() >= fastest[to as usize] {
                    let extra = self.topology.extra(number, direction);
                    self.topology.slow_down(number, direction, Extra { cut_through: true, ..extra });
                }
            }
        }
    }

    fn native(&mut self, name: String, entry: Option<usize>, links: &[LinkConfig]) -> Option<NamedSwitch> {
        let table = entry.map_or("default", |entry| self.file.switch[entry].qos.as_str());
        let Some(qos) = self.file.qos.get(table).cloned().or_else(|| (table == "default").then(Qos::default))
        else {
            let field = entry.map_or_else(String::new, |entry| format!("switch[{entry}].qos"));
            self.no_such_table(&field, "qos", table, entry);
            return None;
        };
        let table = format!("qos.{table}");
        let mut ports = Ports::default();
        for link in links {
            let added = qos.profile(link).and_then(|profile| ports.add(link, profile));
            if let Err((field, what)) = added {
                self.wrong(Mistake::Value, &format!("{table}.{field}"), what, "");
                return None;
            }
        }
        let all = (!qos.pfc.classes.is_empty()).then(|| ("pfc.xoff".to_owned(), qos.pfc.xoff));
        let own = qos.pfc.class.iter();
        let own =
            own.filter_map(|(class, own)| own.xoff.map(|xoff| (format!("pfc.class.{class}.xoff"), xoff)));
        for (field, _) in all.into_iter().chain(own).filter(|(_, xoff)| is_closed(xoff.0)) {
            let what = "nothing may ever be buffered, so every sender is paused for good".to_owned();
            self.wrong(Mistake::Value, &format!("{table}.{field}"), what, "write \"alpha 1/8\"");
        }
        let sizes = bytes(qos.buffer.0, "buffer").and_then(|total| {
            let cell = bytes(qos.cell.0, "cell")?;
            let pool = qos.headroom_pool.map(|pool| bytes(pool.0, "headroom-pool")).transpose()?;
            Ok(BufferConfig { total_bytes: total, headroom_pool_bytes: pool, cell_bytes: cell })
        });
        let buffer = match sizes {
            Ok(buffer) => buffer,
            Err((field, what)) => {
                self.wrong(Mistake::Value, &format!("{table}.{field}"), what, "");
                return None;
            }
        };
        let config = SwitchConfig { ports: ports.ports, profiles: ports.profiles, buffer };
        if let Some(need) = config.overcommitted() {
            let what = format!(
                "{name}: headroom and reserves of {} ports need {need} bytes, and the buffer has {}",
                links.len(),
                buffer.total_bytes
            );
            let instead = "make it larger, set headroom-pool, or shorten the links";
            self.wrong(Mistake::Combination, &format!("{table}.buffer"), what, instead);
        }
        let ports = (0..links.len()).map(|port| port.to_string()).collect();
        let watchdog = qos.pfc.watchdog.as_ref();
        let watchdog =
            watchdog.map(|watchdog| Watchdog { detect: watchdog.detect.0, restore: watchdog.restore.0 });
        Some(NamedSwitch { name, ports, config, imported: None, watchdog })
    }

    fn imported(
        &mut self,
        name: String,
        entry: &Entry,
        paths: &[String],
        links: &[LinkConfig],
        files: &mut ReadFile<'_>,
    ) -> Option<NamedSwitch> {
        let Entry { number, index, kind } = *entry;
        let field = format!("switch[{index}].{kind}");
        if paths.is_empty() {
            let what = "needs one of routeros and sonic".to_owned();
            self.wrong(Mistake::Combination, &field, what, "give one of them");
            return None;
        }
        let mut texts = Vec::new();
        for path in paths {
            match files(path) {
                Ok(text) => texts.push((path.as_str(), text)),
                Err(why) => {
                    let what = format!("{path}: {why}");
                    self.wrong(Mistake::Reference, &field, what, "names are relative to this file");
                    return None;
                }
            }
        }
        let imported = match Imported::read(kind == "sonic", &texts) {
            Ok(imported) => imported,
            Err(error) => {
                self.wrong(Mistake::Reference, &field, error.to_string(), "");
                return None;
            }
        };
        let given = self.port_names.get(number).cloned().unwrap_or_default();
        let mut ports = Ports::default();
        let mut names = Vec::new();
        for (port, link) in links.iter().enumerate() {
            let wanted = given.get(port).cloned().flatten();
            let place = Place { name: wanted.as_deref(), index: port, count: links.len() };
            match imported.port(&place, link) {
                Ok((name, profile)) => {
                    names.push(name);
                    if let Err((_, what)) = ports.add(link, profile) {
                        self.wrong(Mistake::Limit, &field, what, "");
                        return None;
                    }
                }
                Err(what) => {
                    let there = imported.port_names();
                    let meant =
                        wanted.as_deref().and_then(|name| nearest(name, there.iter().map(String::as_str)));
                    let instead = match meant {
                        Some(meant) => format!("did you mean \"{name}:{meant}\"?"),
                        None => format!("its ports are {}", there.join(", ")),
                    };
                    self.wrong(Mistake::UnknownName, &field, what, &instead);
                    return None;
                }
            }
        }
        let buffer = imported.buffer();
        let config = SwitchConfig { ports: ports.ports, profiles: ports.profiles, buffer };
        let watchdog = imported.watchdog();
        Some(NamedSwitch { name, ports: names, config, imported: Some(imported), watchdog })
    }
}

/// A switch whose configuration is a vendor's: its number, its entry in the file, and whose.
struct Entry {
    number: usize,
    index: usize,
    kind: &'static str,
}

/// A table by name; the one called `default` is there without being written.
fn table<T: Clone + Default>(tables: &BTreeMap<String, T>, name: &str) -> Option<T> {
    tables.get(name).cloned().or_else(|| (name == "default").then(T::default))
}

/// Ports, with profiles that are alike kept once.
#[derive(Default)]
struct Ports {
    ports: Vec<PortConfig>,
    profiles: Vec<Profile>,
}

impl Ports {
    fn add(&mut self, link: &LinkConfig, profile: Profile) -> Result<(), (String, String)> {
        let found = self.profiles.iter().position(|other| *other == profile);
        let index = found.unwrap_or_else(|| {
            self.profiles.push(profile);
            self.profiles.len() - 1
        });
        if index >= PROFILES_MAX {
            return Err((
                "pfc.headroom".into(),
                format!("its links differ in more than {PROFILES_MAX} ways"),
            ));
        }
        self.ports.push(PortConfig { rate: link.rate, profile: index as u8 });
        Ok(())
    }
}

/// For each switch the links of its ports, in order of ports.
fn links_of_ports(topology: &Topology) -> Vec<Vec<LinkConfig>> {
    let mut found: Vec<Vec<(u16, LinkConfig)>> = alloc::vec![Vec::new(); topology.switches() as usize];
    for link in topology.links() {
        for end in link.ends {
            if let Node::Switch(switch) = end.node {
                found[switch as usize].push((end.port, link.config));
            }
        }
    }
    let sorted = found.into_iter().map(|mut ports| {
        ports.sort_by_key(|(port, _)| *port);
        ports.into_iter().map(|(_, link)| link).collect()
    });
    sorted.collect()
}

fn numbered(stem: &str, count: u32) -> Vec<String> {
    (0..count).map(|number| format!("{stem}{number}")).collect()
}

fn star_names(hosts: u32) -> (Vec<String>, Vec<String>) {
    (numbered("h", hosts), alloc::vec!["s0".to_owned()])
}

fn fat_tree_names(k: u32) -> (Vec<String>, Vec<String>) {
    let half = k / 2;
    let switches = [numbered("edge", k * half), numbered("agg", k * half), numbered("core", half * half)];
    (numbered("h", k * half * half), switches.concat())
}
