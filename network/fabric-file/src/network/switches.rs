//! The configuration of each switch, from the `[qos.NAME]` table or the vendor's files that its entry names.

use super::port_profiles::PortProfiles;
use super::vendor_switches::VendorSwitch;
use super::{NamedSwitch, NetworkBuilder, Subnet};
use crate::document::ReadFile;
use crate::error::Mistake;
use crate::profile::{Wrong, bytes, is_closed};
use crate::schema::{Forwarding, LinkLayer, Qos};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use fabric::Watchdog;
use fabric::config::{BufferConfig, SwitchConfig};
use fabric::topology::{Extra, LinkConfig, Node, Topology};

impl NetworkBuilder<'_> {
    /// The switches, each with its configuration.
    pub(super) fn configure(
        &mut self,
        files: &mut ReadFile<'_>,
        subnet: Option<&Subnet>,
    ) -> Vec<NamedSwitch> {
        let links = links_of_ports(&self.topology);
        let names = core::mem::take(&mut self.switches).into_list();
        let mut switches = Vec::with_capacity(names.len());
        for (number, name) in names.into_iter().enumerate() {
            let entry = self.switch_entry[number];
            let links = &links[number];
            if let Some(adapter) = self
                .shared
                .iter()
                .find(|adapter| adapter.switch as usize == number)
            {
                let nic = self.file.nic.get(&adapter.nic).cloned().unwrap_or_default();
                switches.push(self.embedded(adapter, &nic, &links[0]));
                continue;
            }
            let vendor = entry.and_then(|entry| {
                let switch = &self.file.switch[entry];
                match (&switch.routeros, &switch.sonic) {
                    (Some(_), Some(_)) => Some((entry, "routeros", Vec::new())),
                    (Some(scripts), None) => Some((entry, "routeros", scripts.clone())),
                    (None, Some(files)) => Some((entry, "sonic", files.all())),
                    (None, None) => None,
                }
            });
            let made = match vendor {
                Some((entry, kind, paths)) => {
                    let entry = VendorSwitch {
                        number,
                        index: entry,
                        kind,
                        paths,
                    };
                    self.imported(name, &entry, links, files)
                }
                None => self.native(name, entry, links, subnet.is_some()),
            };
            switches.extend(made);
        }
        self.cut_through();
        if let Some(subnet) = subnet {
            subnet.name_ports(&self.topology, &mut switches);
        }
        switches
    }

    /// Sets cut-through on links into switches that cut through, where no port of the switch is faster. All
    /// switches of InfiniBand do.
    fn cut_through(&mut self) {
        let cuts = |entry: &Option<usize>| {
            let entry = entry.map(|entry| &self.file.switch[entry]);
            let vendor =
                entry.is_some_and(|entry| entry.routeros.is_some() || entry.sonic.is_some());
            let qos = self
                .file
                .qos
                .get(entry.map_or("default", |entry| entry.qos.as_str()));
            let is_infiniband = self.layer == LinkLayer::Infiniband;
            is_infiniband
                || !vendor && qos.is_some_and(|qos| qos.forwarding == Forwarding::CutThrough)
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
                    self.topology.slow_down(
                        number,
                        direction,
                        Extra {
                            cut_through: true,
                            ..extra
                        },
                    );
                }
            }
        }
    }

    /// A switch with the configuration of a `[qos.NAME]` table.
    fn native(
        &mut self,
        name: String,
        entry: Option<usize>,
        links: &[LinkConfig],
        is_infiniband: bool,
    ) -> Option<NamedSwitch> {
        let (table, qos) = if is_infiniband {
            ("qos.default".to_owned(), Qos::of_virtual_lanes(links.len()))
        } else {
            self.qos_of(entry)?
        };
        let mut ports = PortProfiles::default();
        for link in links {
            let added = qos
                .profile(link)
                .and_then(|profile| ports.add(link, profile));
            if let Err((field, what)) = added {
                self.wrong(Mistake::Value, &format!("{table}.{field}"), what, "");
                return None;
            }
        }
        self.check_pause_thresholds(&table, &qos);
        let buffer = match buffer_of(&qos) {
            Ok(buffer) => buffer,
            Err((field, what)) => {
                self.wrong(Mistake::Value, &format!("{table}.{field}"), what, "");
                return None;
            }
        };
        let config = SwitchConfig {
            ports: ports.ports,
            profiles: ports.profiles,
            buffer,
        };
        if let Some(need) = config.overcommitted() {
            let what = format!(
                "{name}: headroom and reserves of {} ports need {need} bytes, and the buffer has {}",
                links.len(),
                buffer.total_bytes
            );
            let instead = "make it larger, set headroom-pool, or shorten the links";
            let field = format!("{table}.buffer");
            self.wrong(Mistake::Combination, &field, what, instead);
        }
        let ports = (0..links.len()).map(|port| port.to_string()).collect();
        let watchdog = qos.pfc.watchdog.as_ref();
        let watchdog = watchdog.map(|watchdog| Watchdog {
            detect: watchdog.detect.0,
            restore: watchdog.restore.0,
        });
        Some(NamedSwitch {
            name,
            ports,
            config,
            imported: None,
            watchdog,
            willing: qos.willing,
        })
    }

    /// The `[qos.NAME]` table that an entry names, with its path.
    fn qos_of(&mut self, entry: Option<usize>) -> Option<(String, Qos)> {
        let file = self.file;
        let name = entry.map_or("default", |entry| file.switch[entry].qos.as_str());
        let qos = file.qos.get(name).cloned();
        let Some(qos) = qos.or_else(|| (name == "default").then(Qos::default)) else {
            let field = entry.map_or_else(String::new, |entry| format!("switch[{entry}].qos"));
            self.no_such_table(&field, "qos", name, entry);
            return None;
        };
        Some((format!("qos.{name}"), qos))
    }

    /// A lossless class whose threshold admits nothing would be paused for good.
    fn check_pause_thresholds(&mut self, table: &str, qos: &Qos) {
        let all = (!qos.pfc.classes.is_empty()).then(|| ("pfc.xoff".to_owned(), qos.pfc.xoff));
        let own = qos.pfc.class.iter().filter_map(|(class, own)| {
            own.xoff
                .map(|xoff| (format!("pfc.class.{class}.xoff"), xoff))
        });
        let closed = all
            .into_iter()
            .chain(own)
            .filter(|(_, xoff)| is_closed(xoff.0));
        for (field, _) in closed {
            let what =
                "nothing may ever be buffered, so every sender is paused for good".to_owned();
            let field = format!("{table}.{field}");
            self.wrong(Mistake::Value, &field, what, "write \"alpha 1/8\"");
        }
    }
}

/// For each switch the links of its ports, in order of ports.
fn links_of_ports(topology: &Topology) -> Vec<Vec<LinkConfig>> {
    let mut found: Vec<Vec<(u16, LinkConfig)>> =
        alloc::vec![Vec::new(); topology.switches() as usize];
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

/// The buffer of a switch, or the field that is out of range and why.
fn buffer_of(qos: &Qos) -> Result<BufferConfig, Wrong> {
    let total_bytes = bytes(qos.buffer.0, "buffer")?;
    let cell_bytes = bytes(qos.cell.0, "cell")?;
    let pool = qos.headroom_pool.map(|pool| bytes(pool.0, "headroom-pool"));
    Ok(BufferConfig {
        total_bytes,
        headroom_pool_bytes: pool.transpose()?,
        cell_bytes,
    })
}
