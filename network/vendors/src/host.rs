//! Hosts: snapshots of outputs of their commands, each below a line with the command, and corrections.

use crate::facts::{Adapter, HostFacts};
use crate::host_remedy::HostRemedy;
use crate::outcome::Outcomes;
use crate::sections::{check_count, read_each, sections};
use crate::text::ReadError;
use crate::{firmware, linux, windows};

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
    for section in &sections {
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
                || linux::shown::take(section, host)?
                || windows::shown::take(section, host)?;
            Ok(Some(is_known))
        });
        if is_known == Some(false) {
            let command = crate::text::shortened(section.command);
            let what = format!("\"{command}\": the output of this command is not read");
            outcomes.not_understood(&ReadError::new(file, section.head.number, what));
        }
    }
    for adapter in &mut host.adapters {
        // What sysfs forces on queue pairs wins over the default of rdma_cm.
        adapter.tos = adapter.forced_tos.clone().or(adapter.tos.take());
    }
    windows::shown::finish(&mut host);
    host.left = outcomes.left();
    Ok(host)
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
