//! `rockery doctor`: facts of hosts and switches, and their faults.

use std::io::{self, Read as _};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use ::sim::input;
use ::sim::report::counted;
use doctor::{
    Finding, Marks, Neighbour, SwitchFacts, check, check_subnet, collect, hear, judged_host,
    judged_switch, neighbours, page, read_switch,
};
use doctor::{attach_host, plan_switch};
use fabric_file::Network;
use serde_json::{Value, json};
use vendors::facts::HostFacts;
use vendors::infiniband::SubnetFacts;
use vendors::switch_facts::ShownPort;
use vendors::{NotUnderstood, read_host};

use crate::Error;
use crate::args::{Doctor, DoctorAction};
use crate::{documents, finding, output, plan, printable, probe, sys};

/// Finds faults, or runs the subcommand.
///
/// # Errors
/// Findings, with status 1; files that cannot be read, with status 2.
pub(crate) fn act(what: &Doctor) -> Result<(), Error> {
    match &what.action {
        Some(DoctorAction::Snapshot) => output::print(collect::snapshot()),
        Some(DoctorAction::Lldp {
            capture,
            interface,
            seconds,
            json,
        }) => {
            let found = match (capture, interface) {
                (Some(capture), _) => captured(capture)?,
                (None, Some(interface)) => {
                    heard(interface, Duration::from_secs((*seconds).into()))?
                }
                (None, None) => Vec::new(),
            };
            lldp(&found, *json)
        }
        Some(DoctorAction::Probe(what)) => probe::act(what),
        Some(DoctorAction::Matrix { files, json }) => probe::matrix(files, *json),
        None => examine(what),
    }
}

fn captured(capture: &Path) -> Result<Vec<Neighbour>, Error> {
    let bytes = input::read(capture).map_err(Error::file(capture))?;
    Ok(neighbours(&capture.display().to_string(), &bytes)?)
}

/// Listens on an interface for so long.
fn heard(interface: &str, time: Duration) -> Result<Vec<Neighbour>, Error> {
    let failed = |error: io::Error| {
        let what = match error.kind() {
            io::ErrorKind::PermissionDenied => format!(
                "listening needs CAP_NET_RAW: run it as root, or read a capture that tcpdump -i {interface} \
                 -w lldp.pcap ether proto 0x88cc has written"
            ),
            _ => error.to_string(),
        };
        Error::Unread(format!("{interface}: {what}"))
    };
    let mut frames = sys::listen_for_lldp(interface).map_err(failed)?;
    let (until, mut found, mut frame) = (Instant::now() + time, Vec::new(), [0; 2048]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        sys::datagrams::wait(&[(frames.as_raw_fd(), false)], left).map_err(failed)?;
        match frames.read(&mut frame) {
            Ok(length) => hear(&mut found, &frame[..length]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(failed(error)),
        }
        if left.is_zero() {
            return Ok(found);
        }
    }
}

fn lldp(found: &[Neighbour], json: bool) -> Result<(), Error> {
    if json {
        output::json(serde_json::to_string_pretty(found).unwrap_or_default())
    } else if found.is_empty() {
        output::line("no frame of LLDP in it: switches send one every 30 seconds")
    } else {
        output::print(printable::lines(&page(found)))
    }
}

/// Facts that were read, and what could not be read.
#[derive(Default)]
struct Examined {
    hosts: Vec<HostFacts>,
    switches: Vec<SwitchFacts>,
    subnets: Vec<SubnetFacts>,
    /// Hosts, and files of switches, that are not in the fabric file.
    unplanned: Vec<String>,
    unread: Vec<String>,
    /// The DSCPs that the user has said.
    marks: Marks,
}

/// A file, and the name that it has in the fabric file, if one is written before it.
fn named(text: &str) -> (Option<&str>, &Path) {
    match text.split_once('=').filter(|_| !Path::new(text).exists()) {
        Some((name, file)) => (Some(name), Path::new(file)),
        None => (None, Path::new(text)),
    }
}

/// Lines of one file that are listed at most; the others are counted.
const LINES_SHOWN_MAX: usize = 20;

impl Examined {
    /// All lines that were not understood.
    fn left(&self) -> impl Iterator<Item = &NotUnderstood> {
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

    fn host(&mut self, text: &str, network: Option<&Network>) {
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

    fn subnet(&mut self, path: &Path) {
        let Some(text) = self.text_of(path) else {
            return;
        };
        match vendors::infiniband::facts(&path.display().to_string(), &text) {
            Ok(subnet) => self.subnets.push(subnet),
            Err(error) => self.unread.push(error.to_string()),
        }
    }

    fn switch(&mut self, text: &str, network: Option<&Network>) -> Result<(), Error> {
        let (name, path) = named(text);
        let Some(text) = self.text_of(path) else {
            return Ok(());
        };
        match read_switch(&path.display().to_string(), &text) {
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
        Ok(())
    }
}

fn examine(what: &Doctor) -> Result<(), Error> {
    let network = what.fabric.as_deref().map(plan::network).transpose()?;
    let mut facts = Examined {
        marks: Marks {
            dscp: what.dscp,
            cnp: what.cnp_dscp,
        },
        ..Examined::default()
    };
    what.host
        .iter()
        .for_each(|text| facts.host(text, network.as_ref()));
    for text in &what.switch {
        facts.switch(text, network.as_ref())?;
    }
    what.infiniband.iter().for_each(|path| facts.subnet(path));
    let this_host = what.host.is_empty() && what.switch.is_empty() && what.infiniband.is_empty();
    if this_host {
        match read_host("this host", &collect::snapshot()) {
            Ok(host) => facts.hosts.push(host),
            Err(error) => facts.unread.push(error.to_string()),
        }
    }
    let mut found = check(&facts.hosts, &facts.switches, facts.marks);
    found.extend(facts.subnets.iter().flat_map(check_subnet));
    if what.json {
        output::json(serde_json::to_string_pretty(&as_json(&facts, &found)).unwrap_or_default())?;
    } else {
        output::print(printable::lines(&as_text(&facts, &found)))?;
        if this_host && !collect::has_adapters() {
            output::print(without_adapters())?;
        }
    }
    if !facts.unread.is_empty() {
        return Err(Error::Unread(facts.unread.join("\n")));
    }
    let unknown = facts.left().filter(|line| !line.areas.is_empty()).count();
    match found.len() {
        // A line of QoS that is not understood may be a fault.
        0 if unknown > 0 => Err(Error::Unread(format!(
            "{}, so what is set there is unknown",
            counted(
                unknown as u64,
                "line of QoS was not understood",
                "lines of QoS were not understood"
            )
        ))),
        0 => Ok(()),
        count => Err(Error::Findings(counted(
            count as u64,
            "finding",
            "findings",
        ))),
    }
}

fn as_text(facts: &Examined, found: &[Finding]) -> String {
    let (hosts, switches) = (&facts.hosts, &facts.switches);
    let mut text: String = found.iter().map(|finding| format!("{finding}\n")).collect();
    if let Some(folder) = documents::folder().filter(|_| !found.is_empty()) {
        text += &format!("docs/ is {} here\n", folder.display());
    }
    let is_shown = |host: &&HostFacts| !host.adapters.is_empty() || !host.left.is_empty();
    for host in hosts.iter().filter(is_shown) {
        let unknown = unknown(host);
        text += &format!(
            "{}: {}",
            host.name,
            counted(host.adapters.len() as u64, "adapter", "adapters")
        );
        if !unknown.is_empty() {
            text += &format!("; not seen, so unknown: {}", unknown.join(", "));
        }
        text.push('\n');
        text += &details(&judged_host(host, facts.marks), &host.left);
    }
    for switch in switches {
        let configured: usize = switch.groups.iter().map(|group| group.ports.len()).sum();
        let ports = configured.max(switch.shown.ports.len());
        text += &format!(
            "{}: {} of {}",
            switch.file,
            counted(ports as u64, "port", "ports"),
            switch.dialect.name()
        );
        let unknown = unknown_of_switch(switch);
        if !unknown.is_empty() {
            text += &format!("; not seen, so unknown: {}", unknown.join(", "));
        }
        text.push('\n');
        text += &details(&judged_switch(switch, hosts, facts.marks), &switch.left);
        for line in switch.not_judged.iter().take(LINES_SHOWN_MAX) {
            text += &format!("  not judged  {line}\n");
        }
    }
    for subnet in &facts.subnets {
        text += &format!(
            "{}: {}, from {}\n",
            subnet.file,
            counted(subnet.ports.len() as u64, "port", "ports"),
            subnet.tools.join(", ")
        );
        text += &details(&[], &subnet.left);
    }
    for file in &facts.unplanned {
        text += &format!("{file}: the fabric file has nothing of this name; write NAME={file}\n");
    }
    if found.is_empty()
        && (hosts.iter().any(|host| !host.adapters.is_empty())
            || !switches.is_empty()
            || !facts.subnets.is_empty())
    {
        text += &match facts.left().count() {
            0 => "nothing is wrong of what was seen\n".to_owned(),
            count => format!(
                "no finding, and {}: what they set or show is unknown\n",
                counted(
                    count as u64,
                    "line was not understood",
                    "lines were not understood"
                )
            ),
        };
    }
    text
}

/// What was judged, and the lines that were not understood.
fn details(judged: &[String], left: &[NotUnderstood]) -> String {
    let mut text: String = judged.iter().map(|line| format!("  {line}\n")).collect();
    for line in left.iter().take(LINES_SHOWN_MAX) {
        text += &format!("  not understood  {line}\n");
    }
    if left.len() > LINES_SHOWN_MAX {
        text += &format!(
            "  not understood  and {} more lines\n",
            left.len() - LINES_SHOWN_MAX
        );
    }
    text
}

/// The areas of a host without facts, to which no rule applied.
fn unknown(host: &HostFacts) -> Vec<&'static str> {
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
fn unknown_of_switch(switch: &SwitchFacts) -> Vec<&'static str> {
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

/// The page of a host without RDMA adapters: what RoCE its interfaces could carry, and what rockery makes of
/// them.
fn without_adapters() -> String {
    let mut text = String::from(
        "This host has no RDMA adapter (/sys/class/infiniband is empty).\n\nInterfaces, and what RoCE they \
         could carry:\n",
    );
    for interface in collect::interfaces() {
        let driver = interface.driver.as_deref().unwrap_or("no device");
        let speed = interface.mbps.map_or_else(String::new, |mbps| {
            format!(", {:.1} Gb/s", f64::from(mbps) / 1000.0)
        });
        let mtu = interface
            .mtu
            .map_or_else(String::new, |mtu| format!(", MTU {mtu}{}", roce_mtu(mtu)));
        text += &format!("  {}: {driver}{speed}{mtu}\n", interface.name);
    }
    text += "\nDevices that rockery run gives programs (RoCEv2 in software, UDP port 4791):\n";
    let devices = host::all();
    for device in &devices {
        let reach = if device.is_loopback {
            ", reached from this host only"
        } else {
            ""
        };
        text += &format!(
            "  {}: on {}, path MTU {}, {}{reach}\n",
            device.name,
            device.interface,
            device.active_mtu.bytes(),
            counted(device.gids.len() as u64, "GID", "GIDs"),
        );
    }
    if let Some(holder) = host::PortHolder::foreign() {
        text += &format!("  {}\n", crate::devices::port_is_taken(&holder));
    }
    text += match devices.is_empty() {
        true => "  none: no interface is up and has an address\n",
        false => {
            "Each offers reliable and unreliable connections and datagrams, with SEND, WRITE, READ and \
             atomics:\nrockery run PROGRAM starts a program with them, and rockery doctor probe HOST asks \
             other hosts from here.\n"
        }
    };
    text + "\nWith an adapter for RoCE in a PCIe slot, lossless traffic between hosts takes DSCP 26 on their \
        packets, PFC and\nECN on the adapters, and switches with the configuration that rockery plan writes. \
        rockery doctor --host\nSNAPSHOT and --switch FILE look at hosts and switches that have it.\n"
}

/// The size of RoCE packets for the MTU of an interface: 80 bytes are headers.
fn roce_mtu(mtu: u32) -> String {
    let fits = [4096, 2048, 1024, 512, 256]
        .into_iter()
        .find(|size| mtu >= size + 80);
    match fits {
        Some(4096) => ": RoCE packets of 4096 bytes".to_owned(),
        Some(size) => format!(": RoCE packets of {size} bytes, and of 4096 with an MTU of 4200"),
        None => ": too small for RoCE, which needs 336".to_owned(),
    }
}

fn as_json(facts: &Examined, found: &[Finding]) -> Value {
    let hosts = facts
        .hosts
        .iter()
        .map(|host| (host.name.clone(), json!(unknown(host))));
    let switches = facts
        .switches
        .iter()
        .map(|switch| (switch.file.clone(), json!(unknown_of_switch(switch))));
    let unknown: serde_json::Map<String, Value> = hosts.chain(switches).collect();
    let hosts = facts
        .hosts
        .iter()
        .map(|host| (host.name.clone(), json!(judged_host(host, facts.marks))));
    let switches = facts.switches.iter().map(|switch| {
        let judged = judged_switch(switch, &facts.hosts, facts.marks);
        (switch.file.clone(), json!(judged))
    });
    let judged: serde_json::Map<String, Value> = hosts.chain(switches).collect();
    let left: Vec<Value> = facts
        .left()
        .map(|line| json!({ "file": line.file, "line": line.line, "why": line.why, "ports": line.ports }))
        .collect();
    let lines = facts.switches.iter().flat_map(|switch| &switch.not_judged);
    let not_judged: Vec<Value> = lines
        .map(|line| json!({ "file": line.file, "line": line.line, "why": line.why, "ports": line.ports }))
        .collect();
    json!({
        "findings": found.iter().map(finding::as_json).collect::<Vec<_>>(), "unread": facts.unread,
        "unknown": unknown, "not_in_fabric_file": facts.unplanned, "judged": judged,
        "not_understood": left, "not_judged": not_judged,
    })
}
