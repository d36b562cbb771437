//! `rockery lab test`: whether each live host of a lab reaches each other one.

use std::collections::BTreeMap;
use std::process::ExitCode;

use ::lab::reach::{Peer, ReachAnswer, ReachCommand, Unreached, Way};
use ::lab::{Client, HostStatus};
use serde_json::json;

use super::part::Part;
use super::refused;
use crate::printable::Printable;
use crate::{Error, output};

/// The options of `rockery lab test`.
#[derive(Debug, clap::Args)]
pub(crate) struct Test {
    /// Name of the lab, if several run.
    #[arg(long, value_name = "NAME")]
    lab: Option<String>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    /// The hosts to test, each with each other one; all live hosts if none is given.
    #[arg(value_name = "HOST")]
    hosts: Vec<String>,
}

/// A pair of hosts, and the ways by which the first does not reach the second.
struct Pair {
    from: String,
    to: String,
    failed: Vec<Unreached>,
}

/// Tests a lab that runs. The status is 1 where a host does not reach another one.
///
/// # Errors
/// When there is no such lab or host, or a host has fewer than one other.
pub(super) fn act(what: &Test) -> Result<ExitCode, Error> {
    let status = Client::connect(what.lab.as_deref())?.status()?;
    let hosts = chosen(&status.hosts, &what.hosts)?;
    let pairs = test(&status.name, &hosts)?;
    let failed = pairs.iter().filter(|pair| !pair.failed.is_empty()).count();
    match what.json {
        true => output::json(document(&status.name, &pairs).to_string())?,
        false => output::print(text(&status.name, hosts.len(), &pairs, failed))?,
    }
    Ok(match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// The hosts of these names, or all.
fn chosen(all: &[HostStatus], names: &[String]) -> Result<Vec<Peer>, Error> {
    let there = || {
        let names: Vec<&str> = all.iter().map(|host| host.name.as_str()).collect();
        names.join(", ")
    };
    let mut found: Vec<&HostStatus> = Vec::new();
    for name in names {
        let host = all.iter().find(|host| host.name == *name);
        let host = host.ok_or_else(|| {
            refused(format!(
                "no live host is called {name}; there are: {}",
                there()
            ))
        })?;
        if !found.iter().any(|known| known.name == host.name) {
            found.push(host);
        }
    }
    if names.is_empty() {
        found = all.iter().collect();
    }
    if found.len() < 2 {
        return Err(refused(format!(
            "a test needs two hosts in which programs run, and there is: {}",
            found.first().map_or("none", |host| host.name.as_str())
        )));
    }
    found
        .into_iter()
        .map(|host| {
            let address = |_| refused(format!("host {} has no address", host.name));
            Ok(Peer {
                name: host.name.clone(),
                v4: host.v4.parse().map_err(address)?,
                v6: host.v6.parse().map_err(address)?,
            })
        })
        .collect()
}

/// Has all hosts listen, and then each try the others.
fn test(lab: &str, hosts: &[Peer]) -> Result<Vec<Pair>, Error> {
    let parts = hosts
        .iter()
        .map(|host| Part::start(lab, &host.name, "reach"));
    let mut parts: Vec<Part> = parts.collect::<Result<_, _>>()?;
    for part in &mut parts {
        match part.hear()? {
            ReachAnswer::Listens => {}
            _ => return Err(part.wrong()),
        }
    }
    for (part, own) in parts.iter_mut().zip(hosts) {
        let others = hosts.iter().filter(|host| host.name != own.name);
        part.tell(&ReachCommand::Reach(others.cloned().collect()))?;
    }
    let mut pairs = Vec::new();
    for (part, own) in parts.iter_mut().zip(hosts) {
        let mut tried = BTreeMap::new();
        loop {
            match part.hear()? {
                ReachAnswer::Tried { peer, failed } => _ = tried.insert(peer, failed),
                ReachAnswer::Over => break,
                ReachAnswer::Listens => return Err(part.wrong()),
            }
        }
        // In the order of the lab, whatever was ready first.
        for other in hosts.iter().filter(|host| host.name != own.name) {
            let failed = tried.remove(&other.name).ok_or_else(|| part.wrong())?;
            pairs.push(Pair {
                from: own.name.clone(),
                to: other.name.clone(),
                failed,
            });
        }
    }
    Ok(pairs)
}

fn text(lab: &str, hosts: usize, pairs: &[Pair], failed: usize) -> String {
    let mut text = String::new();
    for pair in pairs {
        let (from, to) = (&pair.from, &pair.to);
        for one in &pair.failed {
            let why = Printable(&one.why);
            text += &format!("{from} \u{2192} {to}: {}: {why}\n", one.by.name());
        }
    }
    let count = pairs.len();
    let ways = Way::ALL.map(Way::name).join(", ");
    let summary = match failed {
        0 => format!("all {count} pairs of {hosts} hosts reach each other ({ways})"),
        _ => format!("{failed} of {count} pairs of {hosts} hosts do not reach each other ({ways})"),
    };
    text + &format!("lab {lab}: {summary}\n")
}

fn document(lab: &str, pairs: &[Pair]) -> serde_json::Value {
    let of = |pair: &Pair| {
        let failed = pair.failed.iter();
        let failed = failed.map(|one| (one.by.name(), one.why.as_str()));
        json!({
            "from": pair.from, "to": pair.to, "reached": pair.failed.is_empty(),
            "failed": failed.collect::<BTreeMap<_, _>>(),
        })
    };
    json!({
        "lab": lab,
        "reached": pairs.iter().all(|pair| pair.failed.is_empty()),
        "pairs": pairs.iter().map(of).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(from: &str, to: &str, failed: &[(Way, &str)]) -> Pair {
        let failed = failed.iter().map(|(by, why)| Unreached {
            by: *by,
            why: (*why).to_owned(),
        });
        Pair {
            from: from.to_owned(),
            to: to.to_owned(),
            failed: failed.collect(),
        }
    }

    #[test]
    fn each_way_that_fails_is_a_line() {
        let pairs = [
            pair("a", "b", &[]),
            pair(
                "b",
                "a",
                &[
                    (Way::Ipv4, "no answer within 10 s"),
                    (Way::Rdma, "\u{1b}[2J"),
                ],
            ),
        ];
        assert_eq!(
            text("x", 2, &pairs, 1),
            "b \u{2192} a: IPv4: no answer within 10 s\nb \u{2192} a: RDMA: \\u{1b}[2J\nlab x: 1 of 2 \
             pairs of 2 hosts do not reach each other (IPv4, IPv6, RDMA)\n"
        );
        let document = document("x", &pairs);
        assert_eq!(document["reached"], false);
        assert_eq!(document["pairs"][0]["reached"], true);
        assert_eq!(
            document["pairs"][1]["failed"]["IPv4"],
            "no answer within 10 s"
        );
    }
}
