//! The result of a probe: findings, and a table of all hosts.

use doctor::Finding;
use doctor::probe::{Observed, Reach, Share, SizeLimit, StreamOutcome};
use serde_json::{Value, json};

use super::{Loaded, Probe};
use crate::{Error, finding, output, printable};

const UNKNOWN: &str = "unknown";

/// The observations of this machine, and the findings.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    /// The name of this machine.
    pub(super) from: &'a str,
    pub(super) observed: &'a [Observed],
    /// Rules of the findings, by host.
    pub(super) rules: &'a [Vec<&'a str>],
}

/// Prints everything, in words or as JSON.
///
/// # Errors
/// When standard output cannot be written.
pub(super) fn print(
    what: &Probe,
    seen: &Seen<'_>,
    loaded: &Loaded,
    found: &[Finding],
) -> Result<(), Error> {
    let observed = seen.observed;
    let loads: Vec<&StreamOutcome> = loaded.streams.all().collect();
    if what.json {
        let hosts = observed.iter().zip(seen.rules);
        let hosts: Vec<Value> = hosts.map(|(host, rules)| as_json(host, rules)).collect();
        let all: Vec<Value> = loads.iter().map(|load| load_as_json(load)).collect();
        let findings: Vec<Value> = found.iter().map(finding::as_json).collect();
        let (shares, why) = shares_as_json(loaded);
        let page = json!({
            "from": seen.from, "hosts": hosts, "load": all, "shares": shares,
            "shares_unknown": why, "findings": findings,
        });
        return output::json(serde_json::to_string_pretty(&page).unwrap_or_default());
    }
    let mut text = finding::as_text(found);
    text += &table(observed);
    if !loads.is_empty() {
        text.push('\n');
    }
    for load in &loads {
        text += &format!("{}\n", load.line());
    }
    text += &lossless(what, &loaded.streams.together, found);
    text += &shares(loaded);
    if observed.iter().any(|host| host.cooperates.is_none()) {
        text +=
            "\nMarks and exact hop counts need rockery doctor probe --listen at the other end.\n";
    }
    if found.is_empty() {
        text += "nothing is wrong of what was seen\n";
    }
    output::print(printable::lines(&text))
}

/// One line for each host.
fn table(observed: &[Observed]) -> String {
    let heads = ["host", "RoCE", "payload", "hops", "DSCP", "ECN"];
    let mut rows = vec![heads.map(str::to_owned)];
    rows.extend(observed.iter().map(row));
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let line = |row: &[String; 6]| {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

fn row(observed: &Observed) -> [String; 6] {
    let dscp = observed
        .marks
        .iter()
        .map(|mark| match (mark.arrived >> 2, mark.returned >> 2) {
            (arrived, returned) if arrived == mark.sent >> 2 && returned == arrived => {
                arrived.to_string()
            }
            (arrived, returned) => format!("{} as {arrived}, back {returned}", mark.sent >> 2),
        });
    let dscp: Vec<String> = dscp.collect();
    let kept = observed
        .marks
        .iter()
        .all(|mark| mark.arrived & 3 != 0 && mark.returned & 3 != 0);
    let known = |text: String| {
        if observed.marks.is_empty() {
            UNKNOWN.to_owned()
        } else {
            text
        }
    };
    [
        observed.host.clone(),
        reach(observed.reach).to_owned(),
        payload(observed),
        match observed.hops {
            Some((hops, true)) => hops.to_string(),
            Some((hops, false)) => format!("{hops}, guessed"),
            None => UNKNOWN.to_owned(),
        },
        known(dscp.join(" ")),
        known(if kept { "kept" } else { "bleached" }.to_owned()),
    ]
}

const fn reach(reach: Reach) -> &'static str {
    match reach {
        Reach::Answered => "answers",
        Reach::NoStack => "no stack",
        Reach::Blocked => "blocked",
        Reach::Nothing => "host down",
        Reach::NotSent => UNKNOWN,
    }
}

fn payload(observed: &Observed) -> String {
    match (observed.sizes.largest, observed.sizes.limit) {
        (Some(mtu), Some(SizeLimit::ThisMachine)) => format!("{mtu}, this machine sends no more"),
        (Some(mtu), _) => mtu.to_string(),
        (None, Some(_)) => "none".to_owned(),
        (None, None) => UNKNOWN.to_owned(),
    }
}

/// The result of the loads for the lossless class, where it is good or unknown.
fn lossless(what: &Probe, together: &[StreamOutcome], found: &[Finding]) -> String {
    let is_of_load =
        |finding: &Finding| matches!(finding.rule, "probe-lossy-class" | "probe-pfc-one-end");
    if what.load.is_none() || found.iter().any(is_of_load) {
        return String::new();
    }
    let dscp = what.dscp;
    let unknown =
        |why: &str| format!("whether the class of DSCP {dscp} is lossless is unknown: {why}\n");
    match together {
        [] => unknown("it takes two hosts with --listen, --load and --from"),
        _ if together.iter().any(|stream| stream.end.is_none()) => {
            unknown("not all hosts sent until the end")
        }
        _ if !together.iter().all(StreamOutcome::is_of_the_network) => {
            unknown("a program did not keep up with the rate; try a lower one")
        }
        _ if !together.iter().any(StreamOutcome::is_held_back) => {
            unknown("the hosts together did not fill a link; try a higher rate")
        }
        _ => format!(
            "the class of DSCP {dscp} lost nothing at {}:1, and senders were paused\n",
            together.len()
        ),
    }
}

/// One line for each class that was sent beside others.
fn shares(loaded: &Loaded) -> String {
    match &loaded.shares {
        Err(why) => format!("the shares of classes are unknown: {why}\n"),
        Ok(shares) => shares.iter().map(share).collect(),
    }
}

fn share(share: &Share) -> String {
    let note = if share.limited {
        ""
    } else {
        ", all that was sent"
    };
    format!(
        "DSCP {} gets {:.0} % of the link beside the other classes{note}; {:.0} % are expected\n",
        share.dscp, share.measured, share.expected
    )
}

fn shares_as_json(loaded: &Loaded) -> (Value, Value) {
    let one = |share: &Share| {
        json!({
            "dscp": share.dscp, "expected": share.expected, "measured": share.measured,
            "limited": share.limited,
        })
    };
    match &loaded.shares {
        Err(why) => (Value::Null, json!(why)),
        Ok(shares) => (shares.iter().map(one).collect(), Value::Null),
    }
}

fn as_json(observed: &Observed, rules: &[&str]) -> Value {
    let marks = observed.marks.iter().map(|mark| {
        let both = |class: u8| json!({ "dscp": class >> 2, "ecn": class & 3 });
        json!({ "sent": both(mark.sent), "arrived": both(mark.arrived), "returned": both(mark.returned) })
    });
    json!({
        "host": observed.host, "address": observed.address.to_string(), "roce": reach(observed.reach),
        "payload": observed.sizes.largest, "cooperates": observed.cooperates.is_some(),
        "hops": observed.hops.map(|(hops, _)| hops), "hops_exact": observed.hops.map(|(_, exact)| exact),
        "marks": marks.collect::<Vec<_>>(), "log": observed.log, "rules": rules,
    })
}

fn load_as_json(load: &StreamOutcome) -> Value {
    json!({
        "host": load.host, "dscp": load.order.traffic_class >> 2, "kbps": load.order.kbps,
        "milliseconds": load.order.millis, "bytes": load.order.bytes, "due": load.offered(),
        "sent": load.end.map(|end| end.sent), "held_back": load.end.map(|end| end.held_back),
        "late": load.end.map(|end| end.behind), "arrived": load.arrived, "lost": load.lost(),
        "marked": load.marked, "dropped_here": load.overrun,
    })
}
