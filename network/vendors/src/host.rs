//! Hosts: snapshots of outputs of their commands, each below a line with the command, and corrections.

use crate::facts::{Adapter, HostFacts};
use crate::host_remedy::HostRemedy;
use crate::outcome::{Area, Outcomes};
use crate::sections::{Section, check_count, read_each, sections};
use crate::text::ReadError;
use crate::{esxi, firmware, freebsd, linux, windows};

/// Commands whose outputs concern no rule, by their first words.
const IRRELEVANT: &[&str] = &[
    "cat /etc/os-release",
    "cat /proc/version",
    "date",
    "hostname",
    "hostnamectl",
    "lsb_release",
    "lscpu",
    "uname",
    "uptime",
    "Get-Date",
    "hostname.exe",
    "Get-NetAdapterHardwareInfo",
    "Get-NetAdapterRss",
    "Get-NetAdapterSriov",
    "Get-NetAdapterBinding",
    // No output of this module of Intel's is published.
    "Get-IntelEthernetDCBStatus",
    "Get-WindowsFeature",
    // ECN and other settings of TCP.
    "netsh int tcp show",
    "netsh interface tcp show",
];

/// Sections are read by rank: those first that name the adapters, wherever they are in the snapshot.
/// Outputs of equal rank keep their order.
fn rank(section: &Section<'_>) -> u8 {
    match section.program().to_ascii_lowercase().as_str() {
        "sysfs" | "get-netadapterrdma" => 0,
        "show_gids" | "rdma" | "ibdev2netdev" | "get-netadapterqos" => 1,
        _ => 2,
    }
}

/// Reads a snapshot of a host. What is not understood is in `left`, and unknown.
///
/// # Errors
/// A text that is no snapshot.
pub fn read_host(file: &str, text: &str) -> Result<HostFacts, ReadError> {
    let mut host = HostFacts {
        name: file.to_owned(),
        ..HostFacts::default()
    };
    let mut outcomes = Outcomes::of(file, &[]);
    let sections = sections(file, text)?;
    check_count(&sections)?;
    let mut ordered: Vec<&Section<'_>> = sections.iter().collect();
    ordered.sort_by_key(|section| rank(section));
    for section in ordered {
        let is_irrelevant = |words: &str| {
            // PowerShell takes cmdlets in any case.
            let begin = section.command.get(..words.len());
            let is_own = begin.is_some_and(|begin| begin.eq_ignore_ascii_case(words));
            let rest = section.command.get(words.len()..).filter(|_| is_own);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
        };
        if IRRELEVANT.iter().any(|words| is_irrelevant(words)) {
            continue;
        }
        let is_known = read_each(section, &mut host, &mut outcomes, |section, host| {
            let is_known = firmware::take(section, host)?
                || freebsd::shown::take(section, host)?
                || linux::shown::take(section, host)?
                || windows::shown::take(section, host)?
                || esxi::shown::take(section, host)?;
            Ok(Some(is_known))
        });
        if is_known == Some(false) {
            let command = crate::text::shortened(section.command);
            let what = format!("\"{command}\": the output of this command is not read");
            outcomes.not_understood(&ReadError::new(file, section.head.number, what));
        }
    }
    linux::shown::finish(&mut host);
    for adapter in &mut host.adapters {
        // What sysfs forces on queue pairs wins over the default of rdma_cm.
        adapter.tos = adapter.forced_tos.clone().or(adapter.tos.take());
    }
    windows::shown::finish(&mut host);
    host.left = outcomes.left();
    for line in host.left.iter_mut().filter(|line| line.areas.is_empty()) {
        let own = sections
            .iter()
            .rfind(|section| section.head.number < line.line);
        if own.is_some_and(is_of_qos) {
            line.areas.push(Area::Pfc);
        }
    }
    Ok(host)
}

/// Whether a command shows DCB or pauses: a line of its output that is not understood may be a fault.
fn is_of_qos(section: &Section<'_>) -> bool {
    let command = section.command.to_ascii_lowercase();
    let begins = |words: &&str| command.starts_with(*words);
    [
        "mlnx_qos",
        "dcb ",
        "ethtool -a",
        "ethtool --show-pause",
        "get-netadapterqos",
        "get-netqos",
    ]
    .iter()
    .any(begins)
}

impl HostRemedy {
    /// The commands for an adapter, or words where its tools are not known.
    pub fn of(self, adapter: &Adapter, is_windows: bool) -> String {
        let own = match is_windows {
            true => windows::remedy::command(self, adapter),
            false => linux::remedy::command(self, adapter),
        };
        own.unwrap_or_else(|| self.in_words())
    }
}
