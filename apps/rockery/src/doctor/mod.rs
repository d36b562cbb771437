//! `rockery doctor`: facts of hosts and switches, and their faults.

mod examined;
mod github;
mod json;
mod junit;
mod lldp;
mod page;
mod sarif;
mod switch_files;
mod without_adapters;

use std::time::Duration;

use ::sim::report::counted;
use doctor::{Finding, Marks, check, check_subnet, collect};
use vendors::read_host;

use crate::Error;
use crate::args::{Doctor, DoctorAction, FailingFindings, FindingsFormat};
use crate::{output, plan, printable, probe};
use examined::{Examined, THIS_HOST};

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
                (Some(capture), _) => lldp::captured(capture)?,
                (None, Some(interface)) => {
                    lldp::heard(interface, Duration::from_secs((*seconds).into()))?
                }
                (None, None) => Vec::new(),
            };
            lldp::show(&found, *json)
        }
        Some(DoctorAction::Probe(what)) => probe::act(what),
        Some(DoctorAction::Matrix { files, json }) => probe::matrix(files, *json),
        None => examine(what),
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
    facts.switches(&what.switch, network.as_ref())?;
    what.infiniband.iter().for_each(|path| facts.subnet(path));
    let this_host = what.host.is_empty() && what.switch.is_empty() && what.infiniband.is_empty();
    if this_host {
        match read_host(THIS_HOST, &collect::snapshot()) {
            Ok(host) => facts.hosts.push(host),
            Err(error) => facts.unread.push(error.to_string()),
        }
    }
    compare_counters(what, &mut facts)?;
    let mut found = check(&facts.hosts, &facts.switches, facts.marks);
    found.extend(facts.subnets.iter().flat_map(check_subnet));
    let format = match what.json {
        true => FindingsFormat::Json,
        false => what.format,
    };
    let without_adapters = this_host && !collect::has_adapters();
    let failing = found.iter().filter(|finding| fails(what, finding)).count();
    let ending = ending(&facts, failing);
    match format {
        FindingsFormat::Json => output::json(pretty(&json::document(&facts, &found)))?,
        FindingsFormat::Sarif => {
            let status = ending.as_ref().err().map_or(0, Error::status);
            output::json(pretty(&sarif::log(&facts, &found, status)))?;
        }
        FindingsFormat::Junit => output::document(junit::suites(&facts, &found))?,
        FindingsFormat::Github => output::document(github::commands(&facts, &found))?,
        FindingsFormat::Text => {
            output::print(printable::lines(&page::page(&facts, &found)))?;
            if without_adapters {
                output::print(without_adapters::page())?;
            }
        }
    }
    ending
}

/// Takes the counters of earlier snapshots from those of the hosts.
fn compare_counters(what: &Doctor, facts: &mut Examined) -> Result<(), Error> {
    if what.before.is_empty() {
        return Ok(());
    }
    let expected = what.host.len().max(1);
    if what.before.len() != expected {
        return Err(Error::EarlierSnapshots(what.before.len(), expected));
    }
    let before: Vec<_> = what.before.iter().map(|path| facts.earlier(path)).collect();
    // A file that was not read is an error already, and would shift the order.
    if !facts.unread.is_empty() {
        return Ok(());
    }
    for (host, before) in facts.hosts.iter_mut().zip(before) {
        if let Some(before) = before {
            host.count_from(&before);
        }
    }
    Ok(())
}

/// Whether a finding ends with status 1.
fn fails(what: &Doctor, finding: &Finding) -> bool {
    what.fail_on.iter().any(|kind| match kind {
        FailingFindings::Severity(least) => finding.severity() >= *least,
        FailingFindings::Rule(rule) => finding.rule == *rule,
    })
}

fn pretty(document: &serde_json::Value) -> String {
    serde_json::to_string_pretty(document).unwrap_or_default()
}

/// The end of the command: files that could not be read, else findings, else lines of QoS that may be faults.
fn ending(facts: &Examined, findings: usize) -> Result<(), Error> {
    if !facts.unread.is_empty() {
        return Err(Error::Unread(facts.unread.join("\n")));
    }
    let unknown = facts.left().filter(|line| !line.areas.is_empty()).count();
    match findings {
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
