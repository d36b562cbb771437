//! Facts of Linux hosts, from the outputs of their tools and from sysfs.

use super::adapter::interface;
use super::counters;
use super::firewall::firewall;
use super::{logs, pci};
use crate::facts::{Adapter, Fact, GidEntry, HostFacts, PcieLink, SmbMount};
use crate::sections::Section;
use crate::text::{Line, ReadError};

/// Takes the facts of one section; whether it is one of Linux.
pub(crate) fn take(section: &Section<'_>, host: &mut HostFacts) -> Result<bool, ReadError> {
    match section.program() {
        "sysfs" => sysfs(section, host)?,
        "show_gids" => show_gids(section, host)?,
        "lspci" => lspci(section, host)?,
        "mlnx_qos" => mlnx_qos(section, host)?,
        "dcb" => return super::dcb::take(section, host),
        "ethtool" => return ethtool(section, host),
        "dmesg" => dmesg(section, host)?,
        "ip" if is_addresses(section.command) => addresses(section, host)?,
        "iptables-save" | "ip6tables-save" | "nft" => firewall(section, host),
        "iptables" | "ip6tables" if lists_rules(section.command) => firewall(section, host),
        "ls" if section.command.ends_with("/sys/kernel/iommu_groups") => {
            let groups = section.lines.iter().flat_map(Line::words).count();
            host.iommu_groups = Some(section.fact(&section.head, groups as u32));
        }
        "rdma" if section.command.contains(" statistic") => counters::rdma(section, host)?,
        "rdma" if section.command.starts_with("rdma link") => logs::rdma_links(section, host),
        "ibdev2netdev" => logs::interfaces(section, host)?,
        "cma_roce_tos" => return logs::tos(section, host),
        "env" => environment(section, host)?,
        "grep" => return grep(section, host),
        "cat" if section.command.ends_with("/proc/mounts") => mounts(section, host),
        "cat" if section.command.ends_with("/proc/cmdline") => cmdline(section, host),
        "cat" => match logs::file_of(section) {
            Some((path, line)) => sysfs_value(section, line, path, line.text, host)?,
            None => return Ok(false),
        },
        _ => return Ok(false),
    }
    Ok(true)
}

/// Whether a command of iptables prints rules as `iptables-save` does.
fn lists_rules(command: &str) -> bool {
    command
        .split_whitespace()
        .any(|word| matches!(word, "-S" | "--list-rules"))
}

/// Entries of one GID table at most.
const GIDS_MAX: usize = 4096;

/// A path and its value: `PATH: VALUE`, or `PATH:VALUE` as grep prints it. Only the last part of a path has a
/// colon behind it: PCI addresses have some within.
fn path_and_value(text: &str) -> Option<(&str, &str)> {
    let head = text.split_once(": ").map_or(text, |(head, _)| head);
    let last = head.rfind('/').map_or(0, |at| at + 1);
    let is_link = head.contains(":../");
    let end = match is_link {
        true => head.find(":../"),
        false => head[last..].find(':').map(|at| last + at),
    };
    let end = end.or_else(|| text.find(": "))?;
    Some((&text[..end], text[end + 1..].trim_start()))
}

/// Files that name a device's port, its interface and its PCI address come before those that are found by
/// them.
fn order_of_path(path: &str) -> u8 {
    let is_one = |part: &str| path.contains(part);
    match path.starts_with("/sys/class/infiniband/") {
        true if path.ends_with("/device") || is_one("/gids/") || is_one("/ndevs/") => 0,
        true => 1,
        false => 2,
    }
}

/// Lines `PATH: VALUE` of files in /sys and configfs.
fn sysfs(section: &Section<'_>, host: &mut HostFacts) -> Result<(), ReadError> {
    let mut ordered = Vec::new();
    for line in &section.lines {
        let Some((path, value)) = path_and_value(line.text) else {
            return Err(section.wrong(line, "PATH: VALUE was expected"));
        };
        ordered.push((line, path, value));
    }
    ordered.sort_by_key(|(_, path, _)| order_of_path(path));
    for (line, path, value) in ordered {
        sysfs_value(section, line, path, value, host)?;
    }
    Ok(())
}

/// The value of one file in /sys or configfs.
fn sysfs_value(
    section: &Section<'_>,
    line: &Line<'_>,
    path: &str,
    value: &str,
    host: &mut HostFacts,
) -> Result<(), ReadError> {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    match parts.as_slice() {
        ["sys", "class", "infiniband", name, rest @ ..] => {
            let name = match rest {
                ["ports" | "tc", port, ..] => HostFacts::port_name(name, port),
                _ => (*name).to_owned(),
            };
            of_device(section, line, host.device(&name), rest, value)?;
            host.index_names(&name);
        }
        ["sys", "class", "net", name, rest @ ..] => {
            let Some(adapter) = host.adapter_of(name) else {
                return Ok(());
            };
            of_interface(section, line, adapter, rest, value)?;
        }
        [
            "sys",
            "kernel",
            "config",
            "rdma_cm",
            name,
            "ports",
            port,
            file,
        ] => {
            let adapter = host.device(&HostFacts::port_name(name, port));
            match *file {
                "default_roce_tos" => {
                    adapter.tos = Some(section.fact(line, section.number(line, value)?))
                }
                "default_roce_mode" => {
                    adapter.roce_v2 = Some(section.fact(line, value.contains("v2")));
                }
                _ => {}
            }
        }
        ["sys", "bus", "pci", "devices", address, rest @ ..] => {
            if let Some(adapter) = host.adapter_at(address) {
                of_pci(section, line, adapter, rest, value)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn of_device(
    section: &Section<'_>,
    line: &Line<'_>,
    adapter: &mut Adapter,
    rest: &[&str],
    value: &str,
) -> Result<(), ReadError> {
    match rest {
        ["device"] if adapter.pci.is_none() => {
            adapter.pci = value.rsplit('/').next().map(str::to_owned);
        }
        ["node_type"] => {
            adapter.iwarp = Some(section.fact(line, value.contains("RNIC")));
        }
        ["device", "driver"] => adapter.driver = value.rsplit('/').next().map(str::to_owned),
        ["board_id"] => adapter.psid = Some(section.fact(line, value.to_owned())),
        ["ports", _, "state"] => adapter.up = Some(section.fact(line, value.contains("ACTIVE"))),
        ["ports", _, "link_layer"] => {
            adapter.ethernet = Some(section.fact(line, value == "Ethernet"))
        }
        ["ports", _, "rate"] => {
            let gbps: f64 =
                section.number(line, value.split_whitespace().next().unwrap_or_default())?;
            adapter.gbps = Some(section.fact(line, gbps as u32));
        }
        ["ports", _, "gids", index] => {
            let index: u32 = section.number(line, index)?;
            let address: std::net::Ipv6Addr = value
                .parse()
                .map_err(|_| section.wrong(line, "a GID was expected"))?;
            if adapter.gids.len() >= GIDS_MAX {
                return Err(section.wrong(line, "a table has 4096 GIDs at most"));
            }
            if !address.is_unspecified() {
                adapter.gids.push(section.fact(
                    line,
                    GidEntry {
                        index,
                        address: mapped(address),
                        v2: None,
                    },
                ));
            }
        }
        ["ports", _, "gid_attrs", "types", index] => {
            let index: u32 = section.number(line, index)?;
            if let Some(entry) = adapter
                .gids
                .iter_mut()
                .find(|entry| entry.value.index == index)
            {
                entry.value.v2 = Some(value == "RoCE v2");
            }
        }
        ["ports", _, "gid_attrs", "ndevs", _] if adapter.netdev.is_none() => {
            adapter.netdev = Some(section.fact(line, value.to_owned()));
        }
        ["ports", _, "hw_counters" | "counters", name] => {
            counters::take(section, line, adapter, name, value)?;
        }
        ["tc", _, "traffic_class"] => {
            let word = value.rsplit('=').next().unwrap_or_default();
            adapter.forced_tos = Some(section.fact(line, section.number(line, word)?));
        }
        _ => {}
    }
    Ok(())
}

fn of_interface(
    section: &Section<'_>,
    line: &Line<'_>,
    adapter: &mut Adapter,
    rest: &[&str],
    value: &str,
) -> Result<(), ReadError> {
    match rest {
        ["mtu"] => adapter.mtu = Some(section.fact(line, section.number(line, value)?)),
        ["device", "sriov_numvfs"] => {
            adapter.functions = Some(section.fact(line, section.number(line, value)?))
        }
        ["device", "numa_node"] => {
            adapter.numa_node = Some(section.fact(line, section.number(line, value)?))
        }
        ["ecn", "roce_np", "cnp_dscp"] => {
            adapter.cnp_dscp = Some(section.fact(line, section.number(line, value)?))
        }
        ["ecn", "roce_np", "cnp_802p_prio"] => {
            adapter.cnp_priority = Some(section.fact(line, section.number(line, value)?));
        }
        ["ecn", role @ ("roce_np" | "roce_rp"), "enable", priority] => {
            let on = section.fact(line, section.number::<u8>(line, value)? != 0);
            let map = if *role == "roce_np" {
                &mut adapter.notifies
            } else {
                &mut adapter.reacts
            };
            map.insert(section.number(line, priority)?, on);
        }
        _ => {}
    }
    Ok(())
}

fn of_pci(
    section: &Section<'_>,
    line: &Line<'_>,
    adapter: &mut Adapter,
    rest: &[&str],
    value: &str,
) -> Result<(), ReadError> {
    match rest {
        ["sriov_numvfs"] => {
            adapter.functions = Some(section.fact(line, section.number(line, value)?))
        }
        ["sriov_totalvfs"] => {
            adapter.functions_max = Some(section.fact(line, section.number(line, value)?));
        }
        ["ari_enabled"] => adapter.ari = Some(section.fact(line, value != "0")),
        ["iommu_group", "devices", other, "class"] => {
            let class = u32::from_str_radix(value.trim_start_matches("0x"), 16);
            let class = class.map_err(|_| section.wrong(line, "a class of PCI was expected"))?;
            adapter
                .group
                .push(section.fact(line, ((*other).to_owned(), class)));
        }
        ["numa_node"] => adapter.numa_node = Some(section.fact(line, section.number(line, value)?)),
        [file @ ("current_link_speed" | "max_link_speed")] => {
            let generation = generation(value)
                .ok_or_else(|| section.wrong(line, "a speed in GT/s was expected"))?;
            let link = if *file == "max_link_speed" {
                &mut adapter.pcie.capable
            } else {
                &mut adapter.pcie.trained
            };
            let width = link.as_ref().map_or(0, |link| link.value.width);
            *link = Some(section.fact(line, PcieLink { generation, width }));
        }
        [file @ ("current_link_width" | "max_link_width")] => {
            let width: u8 = section.number(line, value)?;
            let link = if *file == "max_link_width" {
                &mut adapter.pcie.capable
            } else {
                &mut adapter.pcie.trained
            };
            let generation = link.as_ref().map_or(0, |link| link.value.generation);
            *link = Some(section.fact(line, PcieLink { generation, width }));
        }
        _ => {}
    }
    Ok(())
}

/// `16.0 GT/s PCIe` or `16GT/s` as a generation.
fn generation(text: &str) -> Option<u8> {
    let digits: String = text
        .chars()
        .take_while(|letter| letter.is_ascii_digit() || *letter == '.')
        .collect();
    match digits.parse::<f64>().ok()? {
        speed if speed < 3.0 => Some(1),
        speed if speed < 6.0 => Some(2),
        speed if speed < 10.0 => Some(3),
        speed if speed < 20.0 => Some(4),
        speed if speed < 40.0 => Some(5),
        speed if speed < 70.0 => Some(6),
        _ => None,
    }
}

/// An IPv4 address where the GID is one.
fn mapped(address: std::net::Ipv6Addr) -> std::net::IpAddr {
    address
        .to_ipv4_mapped()
        .map_or(std::net::IpAddr::V6(address), std::net::IpAddr::V4)
}

fn show_gids(section: &Section<'_>, host: &mut HostFacts) -> Result<(), ReadError> {
    for line in &section.lines {
        let words = line.words();
        let [name, port, index, gid, rest @ ..] = words.as_slice() else {
            continue;
        };
        let (Ok(index), Ok(address)) = (index.parse(), gid.parse::<std::net::Ipv6Addr>()) else {
            continue;
        };
        // Some drivers do not show the version, and no interface behind it.
        let version = rest.iter().find(|word| matches!(**word, "v1" | "v2"));
        let v2 = version.map(|version| *version == "v2");
        let name = HostFacts::port_name(name, port);
        let adapter = host.device(&name);
        let netdev = rest.last().filter(|_| version.is_some());
        if let (Some(netdev), None) = (netdev, &adapter.netdev) {
            adapter.netdev = Some(section.fact(line, (*netdev).to_owned()));
        }
        if adapter.gids.len() >= GIDS_MAX {
            return Err(section.wrong(line, "a table has 4096 GIDs at most"));
        }
        adapter.gids.push(section.fact(
            line,
            GidEntry {
                index,
                address: mapped(address),
                v2,
            },
        ));
        host.index_names(&name);
    }
    Ok(())
}

fn lspci(section: &Section<'_>, host: &mut HostFacts) -> Result<(), ReadError> {
    let mut address = String::new();
    let mut is_gpu = None;
    for line in &section.lines {
        let text = line.text;
        let first = text.split_whitespace().next().unwrap_or_default();
        if line.indent == 0 && first.contains(':') && first.contains('.') {
            address = if first.len() <= 7 {
                format!("0000:{first}")
            } else {
                first.to_owned()
            };
            is_gpu = None;
            pci::take_device(&mut host.bridges, section, line, &address);
            if text.contains("3D controller") || text.contains("Processing accelerators") {
                is_gpu = Some(host.gpus.len());
                host.gpus.push(section.fact(line, None));
            }
            continue;
        }
        if let (Some(index), Some(node)) = (is_gpu, text.strip_prefix("NUMA node: ")) {
            host.gpus[index].value = Some(section.number(line, node)?);
        }
        if let Some(rest) = text.strip_prefix("ACSCtl:")
            && rest.contains("ReqRedir+")
        {
            host.acs_redirects.push(section.fact(line, ()));
        }
        pci::take_line(&mut host.bridges, section, line, &address)?;
        let Some(adapter) = host.adapter_at(&address) else {
            continue;
        };
        let pcie = &mut adapter.pcie;
        if let Some(rest) = text.strip_prefix("LnkCap:") {
            pcie.capable = link(section, line, rest)?.map(|link| section.fact(line, link));
        } else if let Some(rest) = text.strip_prefix("LnkSta:") {
            pcie.trained = link(section, line, rest)?.map(|link| section.fact(line, link));
        } else if let Some(node) = text.strip_prefix("NUMA node: ") {
            adapter.numa_node = Some(section.fact(line, section.number(line, node)?));
        }
        if text.contains("RlxdOrd") {
            pcie.relaxed_ordering = Some(section.fact(line, text.contains("RlxdOrd+")));
        }
        if let Some((_, rest)) = text.split_once("MaxReadReq ") {
            let word = rest.split_whitespace().next().unwrap_or_default();
            pcie.max_read_request = Some(section.fact(line, section.number(line, word)?));
        }
    }
    Ok(())
}

/// `Speed 16GT/s (downgraded), Width x8 (downgraded)`. Older versions of lspci print `Speed unknown` for
/// speeds that they do not know: then the link is unknown.
fn link(section: &Section<'_>, line: &Line<'_>, rest: &str) -> Result<Option<PcieLink>, ReadError> {
    if rest.contains("Speed unknown") || rest.contains("Width unknown") {
        return Ok(None);
    }
    let after = |word: &str| rest.split_once(word).map(|(_, rest)| rest.trim_start());
    let speed = after("Speed ").and_then(generation);
    let width = after("Width x").and_then(|rest| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u8>().ok()
    });
    match (speed, width) {
        (Some(generation), Some(width)) => Ok(Some(PcieLink { generation, width })),
        _ => Err(section.wrong(line, "Speed and Width were expected")),
    }
}

/// Lines of `mlnx_qos` that concern no rule, by their first words.
const WITHOUT_RULE: &[&str] = &[
    "dscp2prio mapping",
    "default priority",
    "Receive buffer size",
    "Cable len",
    "PFC configuration",
    "priority  ",
    "priority\t",
    "delay",
    "skprio:",
    "(vlan",
    "ETS ",
    "up:",
    "buffer_size",
];

fn mlnx_qos(section: &Section<'_>, host: &mut HostFacts) -> Result<(), ReadError> {
    let Some(name) = section.option("-i", "--interface") else {
        return Err(section.wrong(&section.head, "the interface (-i) was expected"));
    };
    let Some(adapter) = interface(section, host, name)? else {
        return Ok(());
    };
    let mut class = None;
    let mut dscp: Option<Fact<[u8; 64]>> = None;
    for line in &section.lines {
        let text = line.text;
        if let Some(mode) = text.strip_prefix("DCBX mode: ") {
            adapter.dcbx_by_host = Some(section.fact(line, mode.starts_with("OS")));
        } else if let Some(trust) = text.strip_prefix("Priority trust state: ") {
            let trusts = match trust {
                "dscp" => true,
                "pcp" => false,
                _ => return Err(section.wrong(line, "dscp or pcp was expected")),
            };
            adapter.trusts_dscp = Some(section.fact(line, trusts));
        } else if let Some((priority, values)) = text
            .strip_prefix("prio:")
            .and_then(|rest| rest.split_once(" dscp:"))
        {
            let map = dscp.get_or_insert_with(|| section.fact(line, [0; 64]));
            map_priority(section, line, map, priority, values)?;
        } else if let Some(values) = text.strip_prefix("enabled ") {
            let bits = eight(section, line, values)?;
            if bits.iter().any(|bit| *bit > 1) {
                return Err(section.wrong(line, "0 or 1 was expected for each priority"));
            }
            adapter.pfc = Some(
                section.fact(
                    line,
                    bits.iter()
                        .rev()
                        .fold(0, |mask, bit| mask << 1 | u8::from(*bit != 0)),
                ),
            );
        } else if let Some(values) = text.strip_prefix("buffer ") {
            adapter.buffer_of_priority = Some(section.fact(line, eight(section, line, values)?));
        } else if let Some(rest) = text.strip_prefix("tc: ") {
            let number: u8 =
                section.number(line, rest.split_whitespace().next().unwrap_or_default())?;
            let share = text
                .split_once("bw: ")
                .map(|(_, rest)| rest.trim_end_matches('%'));
            let share = share
                .map(|word| section.number::<u8>(line, word))
                .transpose()?;
            class = Some(number);
            adapter.shares.insert(number, section.fact(line, share));
        } else if let (Some(priority), Some(class)) = (text.strip_prefix("priority:"), class) {
            adapter
                .class_of_priority
                .insert(section.number(line, priority)?, class);
        } else if !WITHOUT_RULE.iter().any(|begin| text.starts_with(begin)) {
            return Err(section.wrong(line, "this line of mlnx_qos is not known"));
        }
    }
    adapter.dscp = dscp;
    adapter.has_mlnx_qos = true;
    Ok(())
}

/// Takes the DSCPs of a priority: `prio:3 dscp:31,30,…`.
fn map_priority(
    section: &Section<'_>,
    line: &Line<'_>,
    map: &mut Fact<[u8; 64]>,
    priority: &str,
    values: &str,
) -> Result<(), ReadError> {
    let priority: u8 = section.number(line, priority)?;
    for value in values.split(',').filter(|value| !value.trim().is_empty()) {
        let value: usize = section.number(line, value)?;
        let entry = map
            .value
            .get_mut(value)
            .ok_or_else(|| section.wrong(line, "a DSCP is at most 63"))?;
        *entry = priority;
        if value == 26 {
            map.seen = section.fact(line, ()).seen;
        }
    }
    Ok(())
}

fn eight(section: &Section<'_>, line: &Line<'_>, values: &str) -> Result<[u8; 8], ReadError> {
    let values: Vec<u8> = values
        .split_whitespace()
        .map(|word| section.number(line, word))
        .collect::<Result<_, _>>()?;
    values
        .try_into()
        .map_err(|_| section.wrong(line, "eight values were expected, one for each priority"))
}

/// `ethtool IF` and `ethtool -a IF`; whether the command is one of them.
fn ethtool(section: &Section<'_>, host: &mut HostFacts) -> Result<bool, ReadError> {
    let words: Vec<&str> = section.command.split_whitespace().collect();
    let (name, pause) = match words.as_slice() {
        ["ethtool", "-a" | "--show-pause", name] => (name, true),
        ["ethtool", name] => (name, false),
        ["ethtool", "-S" | "--statistics", name]
        | [
            "ethtool",
            "-S" | "--statistics",
            name,
            "|",
            "grep" | "egrep",
            ..,
        ] => {
            return counters::ethtool(section, name, host).map(|()| true);
        }
        _ => return Ok(false),
    };
    let Some(adapter) = interface(section, host, name)? else {
        return Ok(true);
    };
    if pause {
        return pauses(section, adapter).map(|()| true);
    }
    // Link modes are in lines of their own below the first; the heading says whose they are.
    let mut heading = "";
    let (mut own, mut partner) = (Vec::new(), Vec::new());
    for line in &section.lines {
        let (key, value) = match line.text.split_once(':') {
            Some((key, value)) => {
                heading = key;
                (key, value.trim())
            }
            None => ("", line.text),
        };
        if key == "Link detected" && matches!(value, "yes" | "no") {
            let up = section.fact(line, value == "yes");
            adapter.up.get_or_insert(up);
        }
        if key == "Speed" && value.ends_with("Mb/s") {
            let mbps: u32 = section.number(line, value.trim_end_matches("Mb/s"))?;
            adapter.gbps = Some(section.fact(line, mbps / 1000));
        }
        let modes = match heading {
            "Supported link modes" => &mut own,
            "Link partner advertised link modes" => &mut partner,
            _ => continue,
        };
        let speeds = value
            .split_whitespace()
            .filter_map(|mode| mode.split_once("000base"));
        let speeds = speeds.filter_map(|(speed, _)| speed.parse::<u32>().ok());
        modes.extend(speeds.map(|gbps| section.fact(line, gbps)));
    }
    // A mode that the other end does not have is no mode of the link.
    let is_common = |mode: &Fact<u32>| {
        partner.is_empty()
            || partner
                .iter()
                .any(|other: &Fact<u32>| other.value == mode.value)
    };
    own.retain(is_common);
    own.into_iter().for_each(|mode| adapter.may_run_at(mode));
    Ok(true)
}

/// `ethtool -a IF`: 802.3x pause.
fn pauses(section: &Section<'_>, adapter: &mut Adapter) -> Result<(), ReadError> {
    for line in &section.lines {
        let Some(("RX" | "TX", value)) = line.text.split_once(':') else {
            continue;
        };
        match value.trim() {
            "on" => adapter.global_pause = Some(section.fact(line, true)),
            "off" => {
                let off = || section.fact(line, false);
                adapter.global_pause.get_or_insert_with(off);
            }
            _ => return Err(section.wrong(line, "on or off was expected")),
        }
    }
    Ok(())
}

/// `126.024 Gb/s available PCIe bandwidth (…)` and `…, limited by 2.5 GT/s PCIe x8 link …`.
fn dmesg(section: &Section<'_>, host: &mut HostFacts) -> Result<(), ReadError> {
    for line in &section.lines {
        if let Some((before, rest)) = line.text.split_once(" Gb/s available PCIe bandwidth")
            && rest.contains("limited by")
        {
            let word = before.split_whitespace().last().unwrap_or_default();
            host.pcie_limited
                .push(section.fact(line, section.number(line, word)?));
        }
    }
    Ok(())
}

/// Whether a command shows interfaces or their addresses: `ip -o addr`, `ip a`, `ip link show`.
fn is_addresses(command: &str) -> bool {
    let mut words = command.split_whitespace().skip(1);
    let object = words.find(|word| !word.starts_with('-'));
    let mut words = command.split_whitespace();
    let is_other = words.any(|word| word.starts_with("-b") || word.starts_with("-j"));
    let shows = |word: &str| {
        (word.starts_with('a') && "address".starts_with(word))
            || (word.starts_with('l') && "link".starts_with(word))
    };
    object.is_some_and(shows) && !is_other
}

/// `ip -o addr`: `2: eth0    inet 192.168.1.1/24 brd …`; without `-o` the addresses are below a line with
/// the name and the MTU.
fn addresses(section: &Section<'_>, host: &mut HostFacts) -> Result<(), ReadError> {
    let mut current = String::new();
    for line in &section.lines {
        let words = line.words();
        let (name, address) = match words.as_slice() {
            [_, name, "inet" | "inet6", address, ..] => (*name, *address),
            ["inet" | "inet6", address, ..] => (current.as_str(), *address),
            [number, name, flags, rest @ ..] if is_head(number, flags) => {
                // A VLAN's name has its link behind an @.
                let name = name.trim_end_matches(':').split('@').next();
                name.unwrap_or_default().clone_into(&mut current);
                let mtu = rest.iter().skip_while(|word| **word != "mtu").nth(1);
                if let (Some(mtu), Some(adapter)) = (mtu, host.adapter_of(&current)) {
                    let mtu = section.fact(line, section.number(line, mtu)?);
                    adapter.mtu.get_or_insert(mtu);
                }
                continue;
            }
            _ => continue,
        };
        let Some(adapter) = host.adapter_of(name.trim_end_matches(':')) else {
            continue;
        };
        let address = address.split('/').next().unwrap_or_default();
        let address = address
            .parse()
            .map_err(|_| section.wrong(line, "an IP address was expected"))?;
        adapter.addresses.push(section.fact(line, address));
    }
    Ok(())
}

/// Whether a line begins an interface: its number, and flags in angle brackets.
fn is_head(number: &str, flags: &str) -> bool {
    number.ends_with(':') && flags.starts_with('<')
}

/// Gives further ports of a device what they share with the first: the card and its driver.
pub(crate) fn finish(host: &mut HostFacts) {
    let firsts: Vec<Adapter> = host.adapters.clone();
    for adapter in &mut host.adapters {
        let Some((device, _)) = adapter.device.split_once('/') else {
            continue;
        };
        let Some(first) = firsts.iter().find(|own| own.device == device) else {
            continue;
        };
        adapter.pci = first.pci.clone();
        adapter.driver = first.driver.clone();
        adapter.psid = first.psid.clone();
        adapter.iwarp = first.iwarp.clone();
        adapter.card = first.card.clone();
        adapter.pcie = first.pcie.clone();
        adapter.numa_node = adapter.numa_node.clone().or(first.numa_node.clone());
    }
}

/// `link rxe0/1 state ACTIVE … netdev eth0`.
fn environment(section: &Section<'_>, host: &mut HostFacts) -> Result<(), ReadError> {
    for line in &section.lines {
        // `export -p` and files of a shell have quotes.
        let text = line.text.strip_prefix("export ").unwrap_or(line.text);
        let text = text.strip_prefix("declare -x ").unwrap_or(text);
        let Some((name, value)) = text.split_once('=') else {
            continue;
        };
        let value = value.trim_matches(['"', '\'']);
        match name {
            _ if value == "auto" => {}
            "NCCL_IB_GID_INDEX" | "UCX_IB_GID_INDEX" => {
                let index = section.number(line, value)?;
                let own = section.fact(line, (name.to_owned(), index));
                host.gid_variables.push(own);
            }
            "NCCL_IB_TC" | "UCX_IB_TRAFFIC_CLASS" => {
                let class = section.number(line, value)?;
                let own = section.fact(line, (name.to_owned(), class));
                host.class_variables.push(own);
            }
            _ => {}
        }
    }
    Ok(())
}

/// `grep` of files in /sys, of files in /etc that set DCB at start, and of options of the kernel; whether it
/// is one of them.
fn grep(section: &Section<'_>, host: &mut HostFacts) -> Result<bool, ReadError> {
    let mut lines = section.lines.iter();
    if !section.lines.is_empty() && lines.all(|line| line.text.starts_with("/sys/")) {
        sysfs(section, host)?;
        return Ok(true);
    }
    let is_of_start = section.command.contains("mlnx_qos");
    if is_of_start {
        let fact = match section.lines.first() {
            Some(line) => section.fact(line, true),
            None => section.fact(&section.head, false),
        };
        host.persistent = Some(fact);
    }
    const SMB_DIRECT: &str = "CONFIG_CIFS_SMB_DIRECT";
    let mut lines = section.lines.iter();
    let option = lines.find(|line| line.text.contains(SMB_DIRECT));
    if let Some(line) = option {
        let is_on = line.text.contains("CONFIG_CIFS_SMB_DIRECT=y");
        host.kernel_smb_direct = Some(section.fact(line, is_on));
    }
    Ok(is_of_start || option.is_some() || section.command.contains(SMB_DIRECT))
}

fn mounts(section: &Section<'_>, host: &mut HostFacts) {
    for line in &section.lines {
        let words = line.words();
        if let [share, _, "cifs" | "smb3", options, ..] = words.as_slice() {
            let rdma = options.split(',').any(|option| option == "rdma");
            host.smb_mounts.push(section.fact(
                line,
                SmbMount {
                    share: (*share).to_owned(),
                    rdma,
                },
            ));
        }
    }
}

fn cmdline(section: &Section<'_>, host: &mut HostFacts) {
    let Some(line) = section.lines.first() else {
        return;
    };
    let on = line.text.contains("intel_iommu=on") || line.text.contains("amd_iommu=on");
    host.iommu_translates = Some(section.fact(line, on && !line.text.contains("iommu=pt")));
}
