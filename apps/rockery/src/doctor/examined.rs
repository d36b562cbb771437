//! The facts that were read of hosts, switches and subnets, and what could not be read or was not seen.

use std::path::Path;

use ::sim::input;
use ::sim::report::counted;
use doctor::{
    Finding, Judged, Marks, SwitchFacts, attach_host, judged_host, judged_switch, plan_switch,
    read_switch_files,
};
use fabric_file::Network;
use vendors::facts::HostFacts;
use vendors::infiniband::SubnetFacts;
use vendors::switch_facts::ShownPort;
use vendors::{NotUnderstood, read_host};

use super::switch_files::{SwitchFiles, by_switch};
use crate::Error;

/// The name that the snapshot of this host has in place of a file's.
pub(super) const THIS_HOST: &str = "this host";

/// Facts that were read, and what could not be read.
#[derive(Default)]
pub(super) struct Examined {
    pub(super) hosts: Vec<HostFacts>,
    pub(super) switches: Vec<SwitchFacts>,
    pub(super) subnets: Vec<SubnetFacts>,
    /// Hosts, and files of switches, that are not in the fabric file.
    pub(super) unplanned: Vec<String>,
    pub(super) unread: Vec<String>,
    /// The DSCPs that the user has said.
    pub(super) marks: Marks,
}

/// A file, and the name that it has in the fabric file, if one is written before it.
fn named(text: &str) -> (Option<&str>, &Path) {
    match text.split_once('=').filter(|_| !Path::new(text).exists()) {
        Some((name, file)) => (Some(name), Path::new(file)),
        None => (None, Path::new(text)),
    }
}

impl Examined {
    /// All lines that were not understood.
    pub(super) fn left(&self) -> impl Iterator<Item = &NotUnderstood> {
        let hosts = self.hosts.iter().flat_map(|host| &host.left);
        let switches = self.switches.iter().flat_map(|switch| &switch.left);
        let subnets = self.subnets.iter().flat_map(|subnet| &subnet.left);
        hosts.chain(switches).chain(subnets)
    }

    fn text_of(&mut self, path: &Path) -> Option<String> {
        match input::read(path) {
            Ok(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) => {
                self.unread.push(format!("{}: {error}", path.display()));
                None
            }
        }
    }

    pub(super) fn host(&mut self, text: &str, network: Option<&Network>) {
        let (name, path) = named(text);
        let Some(text) = self.text_of(path) else {
            return;
        };
        match read_host(&path.display().to_string(), &text) {
            Ok(mut host) => {
                if network.is_some_and(|network| !attach_host(network, &mut host, name)) {
                    self.unplanned.push(host.name.clone());
                }
                self.hosts.push(host);
            }
            Err(error) => self.unread.push(error.to_string()),
        }
    }

    /// An earlier snapshot of a host.
    pub(super) fn earlier(&mut self, path: &Path) -> Option<HostFacts> {
        let text = self.text_of(path)?;
        match read_host(&path.display().to_string(), &text) {
            Ok(host) => Some(host),
            Err(error) => {
                self.unread.push(error.to_string());
                None
            }
        }
    }

    pub(super) fn subnet(&mut self, path: &Path) {
        let Some(text) = self.text_of(path) else {
            return;
        };
        match vendors::infiniband::facts(&path.display().to_string(), &text) {
            Ok(subnet) => self.subnets.push(subnet),
            Err(error) => self.unread.push(error.to_string()),
        }
    }

    pub(super) fn switches(
        &mut self,
        texts: &[String],
        network: Option<&Network>,
    ) -> Result<(), Error> {
        let mut files = Vec::new();
        for (name, path) in texts.iter().map(|text| named(text)) {
            files.extend(self.text_of(path).map(|text| (name, path, text)));
        }
        for SwitchFiles { name, files, .. } in by_switch(files) {
            match read_switch_files(&files) {
                Ok(mut switch) => {
                    if let Some(network) = network
                        && !plan_switch(network, &mut switch, name)?
                    {
                        self.unplanned.push(switch.file.clone());
                    }
                    self.switches.push(switch);
                }
                Err(error) => self.unread.push(error.to_string()),
            }
        }
        Ok(())
    }
}

/// A host, a switch or a subnet that was examined.
pub(super) struct Device<'a> {
    /// Its name: findings of it have places that begin with the name.
    pub(super) name: String,
    /// The file that it was read from.
    pub(super) file: String,
    /// What was judged of it.
    pub(super) judged: Vec<Judged>,
    /// Areas of which nothing was seen.
    pub(super) unknown: Vec<&'static str>,
    pub(super) left: &'a [NotUnderstood],
    pub(super) not_judged: &'a [NotUnderstood],
}

impl Device<'_> {
    /// Whether a finding is about the device.
    pub(super) fn has(&self, finding: &Finding) -> bool {
        let rest = finding.place.strip_prefix(&self.name);
        let is_own = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([',', ' ']));
        // Ports of a subnet have names of their own.
        let file = finding.evidence.first().map(|seen| &seen.file);
        is_own || file == Some(&self.file)
    }

    /// What is unknown of it, in a sentence.
    pub(super) fn not_seen(&self) -> String {
        let list = self.unknown.join(", ");
        format!("{}: not seen, so unknown: {list}", self.name)
    }
}

impl Examined {
    /// All hosts, switches and subnets.
    pub(super) fn devices(&self) -> Vec<Device<'_>> {
        let hosts = self.hosts.iter().map(|host| Device {
            name: host.name.clone(),
            file: host.name.clone(),
            judged: judged_host(host, self.marks),
            unknown: unknown(host),
            left: &host.left,
            not_judged: &[],
        });
        let switches = self.switches.iter().map(|switch| Device {
            name: switch.file.clone(),
            file: switch.first_file().to_owned(),
            judged: judged_switch(switch, &self.hosts, self.marks),
            unknown: unknown_of_switch(switch),
            left: &switch.left,
            not_judged: &switch.not_judged,
        });
        let subnets = self.subnets.iter().map(|subnet| Device {
            name: subnet.file.clone(),
            file: subnet.file.clone(),
            judged: vec![Judged {
                place: subnet.file.clone(),
                text: counted(subnet.ports.len() as u64, "port", "ports"),
            }],
            unknown: Vec::new(),
            left: &subnet.left,
            not_judged: &[],
        });
        hosts.chain(switches).chain(subnets).collect()
    }
}

/// The areas of a host without facts, to which no rule applied.
pub(super) fn unknown(host: &HostFacts) -> Vec<&'static str> {
    let any = |seen: &dyn Fn(&vendors::facts::Adapter) -> bool| host.adapters.iter().any(seen);
    let windows = host.windows.is_some();
    let areas = [
        (
            "PCIe",
            windows
                || any(&|adapter| adapter.pcie.trained.is_some())
                || !host.pcie_limited.is_empty(),
        ),
        ("GIDs", windows || any(&|adapter| !adapter.gids.is_empty())),
        ("MTU", any(&|adapter| adapter.mtu.is_some())),
        ("PFC", any(&|adapter| adapter.pfc.is_some())),
        ("ToS", windows || any(&|adapter| adapter.tos.is_some())),
        (
            "DCQCN",
            windows || any(&|adapter| !adapter.notifies.is_empty()),
        ),
        ("firewall", windows || host.firewall_seen),
    ];
    areas
        .into_iter()
        .filter(|(_, seen)| !seen)
        .map(|(name, _)| name)
        .collect()
}

/// The areas of a switch without facts, to which no rule applied.
pub(super) fn unknown_of_switch(switch: &SwitchFacts) -> Vec<&'static str> {
    let shown = |seen: fn(&ShownPort) -> bool| switch.shown.each().any(seen);
    let configured = !switch.groups.is_empty();
    let areas = [
        ("configuration", configured),
        ("PFC in operation", shown(|port| port.pfc.is_some())),
        ("DSCP map", configured || shown(|port| port.dscp.is_some())),
        (
            "ECN",
            configured || shown(|port| port.marks.is_some() || !port.marked.is_empty()),
        ),
        ("drops", shown(|port| !port.drops.is_empty())),
    ];
    areas
        .into_iter()
        .filter(|(_, seen)| !seen)
        .map(|(name, _)| name)
        .collect()
}
