//! `rockery lab ps` and `rockery lab top`: the labs of this user, with hosts, counters and lateness.

use std::convert::Infallible;
use std::process::ExitCode;
use std::time::Duration;

use ::lab::{Client, LabError, Status, labs};

use crate::printable::{self, Printable};
use crate::{Error, output};

/// How long a lab may take to answer. One that is stopped never does.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// The interval at which `top` requests the state of labs.
const INTERVAL: Duration = Duration::from_secs(1);

/// Shows the labs once a second, until it is interrupted.
///
/// # Errors
/// When standard output cannot be written.
pub(super) fn top(only: Option<&str>) -> Result<Infallible, Error> {
    let clears = output::is_terminal();
    loop {
        if clears {
            output::clear()?;
        }
        list(only, false)?;
        std::thread::sleep(INTERVAL);
    }
}

/// Lists the labs. The status is 1 if one of them did not answer.
///
/// # Errors
/// When standard output cannot be written.
pub(super) fn ps(only: Option<&str>, json: bool) -> Result<ExitCode, Error> {
    match list(only, json)? {
        true => Ok(ExitCode::SUCCESS),
        false => Ok(ExitCode::FAILURE),
    }
}

/// Lists the labs that answer, and names the others with the reason; whether all have answered.
fn list(only: Option<&str>, json: bool) -> Result<bool, Error> {
    let mut all = true;
    let names: Vec<String> = match only {
        Some(name) => {
            // A lab that does not run is an error, as for the other commands.
            drop(Client::connect(Some(name))?);
            vec![name.to_owned()]
        }
        None => labs(),
    };
    if names.is_empty() && !json {
        output::note!("rockery: no lab of this user runs here: `rockery lab up FILE` starts one");
    }
    for name in names {
        match asked(&name) {
            Ok(status) if json => {
                output::json(serde_json::to_string(&status).unwrap_or_default())?;
            }
            Ok(status) => output::print(text(&status))?,
            // The lab ended after its socket was listed.
            Err(error) if error.is_gone() => {}
            Err(error) => {
                all = false;
                // Any user may have chosen the name.
                output::note!(
                    "rockery: lab {}: {}",
                    Printable(&name),
                    printable::lines(&error.to_string())
                );
            }
        }
    }
    Ok(all)
}

fn asked(name: &str) -> Result<Status, LabError> {
    Client::connect_within(name, ANSWERS_WITHIN)?.status()
}

/// The ports of hosts, on InfiniBand.
fn ports(status: &Status) -> String {
    let ports = status.hosts.iter();
    let ports = ports.filter_map(|host| Some((host, host.infiniband.as_ref()?)));
    let mut text = String::new();
    for (host, port) in ports {
        if text.is_empty() {
            text = format!(
                "  {:<16} {:<7} {:>6} {:>6} {:>13} {:>13} {:>12} {:>8} {:>7} {:>6}\n",
                "port",
                "state",
                "LID",
                "SM LID",
                "bytes out",
                "bytes in",
                "waited, us",
                "discards",
                "damaged",
                "downed"
            );
        }
        text += &format!(
            "  {:<16} {:<7} {:>6} {:>6} {:>13} {:>13} {:>12} {:>8} {:>7} {:>6}\n",
            host.name,
            port.state,
            port.lid,
            port.manager_lid,
            port.transmit_bytes,
            port.receive_bytes,
            port.transmit_wait_us,
            port.transmit_discards,
            port.receive_errors,
            port.link_downed
        );
    }
    text
}

/// A lab as a table.
fn text(status: &Status) -> String {
    let Status { lateness, .. } = status;
    let mut text = format!(
        "lab {} (process {}): {}\n  clock {:.3} s, slowed down {} times; dropped {}, marked {}, pauses {}\n",
        status.name,
        status.process,
        status.title,
        status.now_ns as f64 / 1e9,
        status.slowdown,
        status.dropped,
        status.marked,
        status.pauses
    );
    text += &format!(
        "  late by {} ns (median), {} ns (99.9 %), {} ns (at most); shortest link {} ns: {}\n",
        lateness.p50_ns,
        lateness.p999_ns,
        lateness.max_ns,
        status.shortest_link_ns,
        if status.valid { "valid" } else { "not valid" }
    );
    text += &format!(
        "  {:<16} {:<15} {:<24} {:>7} {:>10} {:>10} {:>10} {:>10} {:>6}\n",
        "host", "IPv4", "IPv6", "devices", "RDMA out", "RDMA in", "frames out", "frames in", "lost"
    );
    for host in &status.hosts {
        let counters = &host.counters;
        text += &format!(
            "  {:<16} {:<15} {:<24} {:>7} {:>10} {:>10} {:>10} {:>10} {:>6}\n",
            host.name,
            host.v4,
            host.v6,
            host.devices,
            counters.rdma_sent,
            counters.rdma_received,
            counters.frames_sent,
            counters.frames_received,
            counters.lost
        );
    }
    text + &ports(status)
}
