//! Findings as a page for a person.

use ::sim::report::counted;
use doctor::{Finding, Judged, judged_host, judged_switch};
use vendors::NotUnderstood;
use vendors::facts::HostFacts;

use super::examined::{Examined, unknown, unknown_of_switch};
use crate::documents;

/// Lines of one file that are listed at most; the others are counted.
const LINES_SHOWN_MAX: usize = 20;

/// The page: findings, what was judged, and lines that were not understood.
pub(super) fn page(facts: &Examined, found: &[Finding]) -> String {
    let (hosts, switches) = (&facts.hosts, &facts.switches);
    let mut text = crate::finding::as_text(found);
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
fn details(judged: &[Judged], left: &[NotUnderstood]) -> String {
    let mut text: String = judged
        .iter()
        .map(|own| format!("  {}\n", own.text))
        .collect();
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
