//! The facts of this host, as a snapshot: outputs of tools and files of sysfs. Nothing is changed, and root
//! is not needed; files and tools that are not accessible or not installed are left out.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Bytes of one output at most.
const OUTPUT_MAX: usize = 1 << 20;

/// Entries of a GID table that are looked at.
const GIDS_MAX: u32 = 256;

/// A network interface of this host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// The name of the interface.
    pub name: String,
    /// The driver, where there is a device.
    pub driver: Option<String>,
    /// Speed of the link in Mb/s.
    pub mbps: Option<u32>,
    /// MTU of the interface.
    pub mtu: Option<u32>,
}

/// The network interfaces of this host that are devices.
pub fn interfaces() -> Vec<Interface> {
    let mut found: Vec<Interface> = Vec::new();
    for name in entries("/sys/class/net") {
        let path = format!("/sys/class/net/{name}");
        let driver = fs::read_link(format!("{path}/device/driver")).ok();
        let driver = driver.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        let number =
            |file: &str| read(&format!("{path}/{file}")).and_then(|text| text.parse().ok());
        if name != "lo" {
            found.push(Interface {
                driver,
                mbps: number("speed"),
                mtu: number("mtu"),
                name,
            });
        }
    }
    found
}

/// Whether this host has RDMA adapters.
pub fn has_adapters() -> bool {
    !entries("/sys/class/infiniband").is_empty()
}

/// A snapshot of this host.
pub fn snapshot() -> String {
    let mut text = String::from("# rockery doctor snapshot\n");
    let mut sysfs = String::from("==> sysfs <==\n");
    let (mut netdevs, mut addresses) = (Vec::new(), Vec::new());
    for device in entries("/sys/class/infiniband") {
        device_files(&mut sysfs, &device, &mut netdevs, &mut addresses);
    }
    for netdev in &netdevs {
        interface_files(&mut sysfs, netdev);
    }
    text += &sysfs;
    // Without adapters, the tools have no output.
    if netdevs.is_empty() {
        return text;
    }
    let groups = "/sys/kernel/iommu_groups";
    if Path::new(groups).is_dir() {
        let names = entries(groups);
        section(
            &mut text,
            &format!("ls {groups}"),
            names.iter().map(String::as_str),
        );
    }
    run(&mut text, "ip", &["-o", "addr"], &[]);
    run(&mut text, "rdma", &["statistic", "show", "link"], &[]);
    run(&mut text, "lspci", &["-vvv"], &[]);
    run(&mut text, "lspci", &["-nn"], &[]);
    run(&mut text, "devlink", &["dev", "info"], &[]);
    for netdev in &netdevs {
        for object in ["pfc", "app", "ets"] {
            run(
                &mut text,
                "dcb",
                &["-j", object, "show", "dev", netdev],
                &[],
            );
        }
        run(&mut text, "mlnx_qos", &["-i", netdev], &[]);
        run(&mut text, "ethtool", &[netdev], &[]);
        run(&mut text, "ethtool", &["-a", netdev], &[]);
        run(&mut text, "ethtool", &["-i", netdev], &[]);
        run(&mut text, "ethtool", &["-S", netdev], &[]);
    }
    run(&mut text, "dmesg", &[], MESSAGES);
    run(&mut text, "iptables-save", &[], &[]);
    run(&mut text, "nft", &["list", "ruleset"], &[]);
    run(&mut text, "rdma", &["link"], &[]);
    variables(&mut text);
    for file in ["/proc/cmdline", "/proc/mounts"] {
        // Mounts of SMB only: other options may hold secrets.
        let lines = read(file).unwrap_or_default();
        let wanted = lines
            .lines()
            .filter(|line| file != "/proc/mounts" || is_smb(line));
        section(&mut text, &format!("cat {file}"), wanted);
    }
    kernel_options(&mut text);
    text
}

fn is_smb(line: &str) -> bool {
    line.split_whitespace()
        .nth(2)
        .is_some_and(|kind| matches!(kind, "cifs" | "smb3"))
}

fn device_files(
    text: &mut String,
    device: &str,
    netdevs: &mut Vec<String>,
    addresses: &mut Vec<String>,
) {
    let path = format!("/sys/class/infiniband/{device}");
    if let Ok(target) = fs::read_link(format!("{path}/device")) {
        let _ = writeln!(text, "{path}/device: {}", target.display());
        if let Some(name) = target.file_name() {
            let address = name.to_string_lossy().into_owned();
            pci_files(text, &address);
            addresses.push(address);
        }
    }
    if let Ok(driver) = fs::read_link(format!("{path}/device/driver")) {
        let _ = writeln!(text, "{path}/device/driver: {}", driver.display());
    }
    file(text, &format!("{path}/node_type"));
    file(text, &format!("{path}/board_id"));
    for port in entries(&format!("{path}/tc")) {
        file(text, &format!("{path}/tc/{port}/traffic_class"));
    }
    for port in entries(&format!("{path}/ports")) {
        let path = format!("{path}/ports/{port}");
        ["link_layer", "state", "rate"]
            .iter()
            .for_each(|name| file(text, &format!("{path}/{name}")));
        for index in 0..GIDS_MAX {
            let Some(gid) = read(&format!("{path}/gids/{index}")) else {
                break;
            };
            if gid.chars().all(|letter| matches!(letter, '0' | ':')) {
                continue;
            }
            let _ = writeln!(text, "{path}/gids/{index}: {gid}");
            file(text, &format!("{path}/gid_attrs/types/{index}"));
            file(text, &format!("{path}/gid_attrs/ndevs/{index}"));
            netdevs.extend(read(&format!("{path}/gid_attrs/ndevs/{index}")));
        }
        for folder in ["hw_counters", "counters"] {
            for name in entries(&format!("{path}/{folder}")) {
                file(text, &format!("{path}/{folder}/{name}"));
            }
        }
        let config = format!("/sys/kernel/config/rdma_cm/{device}/ports/{port}");
        file(text, &format!("{config}/default_roce_tos"));
        file(text, &format!("{config}/default_roce_mode"));
    }
    netdevs.sort();
    netdevs.dedup();
}

fn pci_files(text: &mut String, address: &str) {
    let path = format!("/sys/bus/pci/devices/{address}");
    let files = [
        "max_link_speed",
        "max_link_width",
        "current_link_speed",
        "current_link_width",
        "numa_node",
        "sriov_numvfs",
        "sriov_totalvfs",
        "ari_enabled",
    ];
    for name in files {
        file(text, &format!("{path}/{name}"));
    }
    let group = format!("{path}/iommu_group/devices");
    for other in entries(&group).iter().filter(|other| *other != address) {
        file(text, &format!("{group}/{other}/class"));
    }
}

fn interface_files(text: &mut String, netdev: &str) {
    let path = format!("/sys/class/net/{netdev}");
    let files = ["mtu", "ecn/roce_np/cnp_dscp", "ecn/roce_np/cnp_802p_prio"];
    files
        .iter()
        .for_each(|name| file(text, &format!("{path}/{name}")));
    for priority in 0..8 {
        for role in ["roce_np", "roce_rp"] {
            file(text, &format!("{path}/ecn/{role}/enable/{priority}"));
        }
    }
}

fn entries(path: &str) -> Vec<String> {
    let listed = fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<String> = listed
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn read(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn file(text: &mut String, path: &str) {
    if let Some(value) = read(path) {
        let _ = writeln!(text, "{path}: {}", value.lines().next().unwrap_or_default());
    }
}

fn section<'a>(text: &mut String, command: &str, lines: impl Iterator<Item = &'a str>) {
    let _ = writeln!(text, "==> {command} <==");
    for line in lines {
        // Control characters would make the snapshot unreadable.
        let clean: String = line
            .chars()
            .filter(|letter| !letter.is_control() || *letter == '\t')
            .collect();
        let _ = writeln!(text, "{clean}");
    }
}

/// Output of a command that succeeds; lines with `only` where it is given.
/// Messages of drivers that the kernel's log is searched for.
const MESSAGES: &[&str] = &[
    "available PCIe bandwidth",
    "Port module event",
    "insufficient power on the PCIe slot",
    "health compromised",
    "not enough MMIO resources for SR-IOV",
    "SR-IOV: bus number out of range",
    "disagrees about version of symbol",
];

/// Appends the output of a program; of its lines those with one of these texts, or all where there are none.
fn run(text: &mut String, program: &str, arguments: &[&str], only: &[&str]) {
    let command = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let Some(output) = command.ok().filter(|output| output.status.success()) else {
        return;
    };
    let output =
        String::from_utf8_lossy(&output.stdout[..output.stdout.len().min(OUTPUT_MAX)]).into_owned();
    let name = [&[program], arguments].concat().join(" ");
    section(
        text,
        &name,
        output
            .lines()
            .filter(|line| only.is_empty() || only.iter().any(|only| line.contains(only))),
    );
}

fn variables(text: &mut String) {
    let names = [
        "NCCL_IB_GID_INDEX",
        "UCX_IB_GID_INDEX",
        "NCCL_IB_TC",
        "UCX_IB_TRAFFIC_CLASS",
    ];
    let set: Vec<String> = names
        .iter()
        .filter_map(|name| {
            let value = environment::variable(name)?.into_string().ok()?;
            Some(format!("{name}={value}"))
        })
        .collect();
    section(text, "env", set.iter().map(String::as_str));
}

fn kernel_options(text: &mut String) {
    let Some(release) = read("/proc/sys/kernel/osrelease") else {
        return;
    };
    let path = format!("/boot/config-{release}");
    if let Some(options) = read(&path) {
        let own = options
            .lines()
            .filter(|line| line.contains("CONFIG_CIFS_SMB_DIRECT"));
        section(text, &format!("grep CONFIG_CIFS_SMB_DIRECT {path}"), own);
    }
    let units = [
        "/etc/systemd/system",
        "/etc/network",
        "/etc/NetworkManager",
        "/etc/rc.local",
        "/etc/udev/rules.d",
    ];
    let mut found = Vec::new();
    let mut seen = false;
    for place in units {
        let files = match Path::new(place).is_dir() {
            true => entries(place)
                .into_iter()
                .map(|name| format!("{place}/{name}"))
                .collect(),
            false => vec![place.to_owned()],
        };
        for path in files {
            let Some(content) = read(&path) else { continue };
            seen = true;
            if ["mlnx_qos", "dcb pfc", "rockery-roce"]
                .iter()
                .any(|word| content.contains(word))
            {
                found.push(path);
            }
        }
    }
    // The absence of a line shows something only if files could be read.
    if seen {
        section(
            text,
            "grep -rlE \"mlnx_qos|dcb pfc\" /etc",
            found.iter().map(String::as_str),
        );
    }
}
