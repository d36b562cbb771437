//! Collectives as text for a terminal.

use super::super::layout::{Rows, size, time};
use super::super::{ExchangeReport, Report};
use super::{CollectiveLink, CollectiveReport, PathReport};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Collectives that are listed at most, and stretches of a critical path.
const SHOWN: usize = 32;
const PAIRS_SHOWN: usize = 4;

/// Links that are listed for a collective at most.
const LINKS_SHOWN: usize = 4;

/// The table of collectives, and what each waited for.
pub(in crate::report) fn collectives(report: &Report) -> String {
    let all = listed(report);
    if all.is_empty() {
        return String::new();
    }
    let mut rows = Rows::new(&[
        "collective",
        "operation",
        "ranks",
        "size",
        "done",
        "time",
        "algbw GB/s",
        "busbw GB/s",
        "slowest",
    ]);
    for one in all.iter().copied().take(SHOWN) {
        let rate =
            |rate: Option<f64>| rate.map_or("-".to_owned(), |rate| format!("{:.3}", rate / 1e9));
        rows.0.push(vec![
            one.name.clone(),
            operation(one),
            one.ranks.to_string(),
            size(one.bytes as f64),
            format!("{}/{}", one.repetitions, one.repeat),
            one.time_us.map_or("-".to_owned(), time),
            rate(one.algbw_bytes_per_s),
            rate(one.busbw_bytes_per_s),
            one.slowest.clone().unwrap_or("-".to_owned()),
        ]);
    }
    let mut text = format!("\n{}", rows.text());
    let more = all.len().saturating_sub(SHOWN);
    if more > 0 {
        let _ = writeln!(text, "  … and {more} more (--json, --csv, --html have all)");
    }
    text.push('\n');
    for one in all.iter().copied().take(SHOWN) {
        if let Some(path) = &one.path {
            text += &critical(&one.name, path);
        }
        text += &busiest(one);
        if let Some(stuck) = &one.stuck {
            let _ = writeln!(text, "  {} did not end: {stuck}", one.name);
        }
    }
    text
}

/// Those of the file that exchange something, and computing that did not end; of the groups of a model that
/// exchange the same, the slowest, and those that are stuck.
fn listed(report: &Report) -> Vec<&CollectiveReport> {
    let of_models = report.models.iter().flat_map(|model| &model.exchanges);
    let of_models: Vec<&ExchangeReport> = of_models.collect();
    let is_listed = |one: &&CollectiveReport| {
        let is_slowest = |exchange: &&ExchangeReport| exchange.slowest.as_ref() == Some(&one.name);
        let is_own = |exchange: &&ExchangeReport| is_group_of(&one.name, &exchange.name);
        let mut exchanges = of_models.iter();
        one.stuck.is_some()
            || exchanges.clone().any(is_slowest)
            || one.ranks > 1 && !exchanges.any(is_own)
    };
    report.collectives.iter().filter(is_listed).collect()
}

/// Whether a name is that of an exchange's group.
fn is_group_of(name: &str, exchange: &str) -> bool {
    let group = name.strip_prefix(exchange);
    group.is_some_and(|group| group.starts_with('/'))
}

/// The operation, with its algorithm where there is a choice.
pub(super) fn operation(one: &CollectiveReport) -> String {
    match one.group.is_empty() {
        true => one.kind.clone(),
        false if one.ranks == 1 => "computing".to_owned(),
        false => format!("{} {}", one.algorithm, one.kind),
    }
}

/// The links that a collective sent most over.
fn busiest(one: &CollectiveReport) -> String {
    let mut links: Vec<&CollectiveLink> = one.links.iter().collect();
    links.sort_by_key(|link| std::cmp::Reverse(link.bytes));
    let shown = links.iter().take(LINKS_SHOWN);
    let shown =
        shown.map(|link| format!("{} → {} {}", link.port, link.to, size(link.bytes as f64)));
    let shown: Vec<String> = shown.collect();
    if shown.is_empty() {
        return String::new();
    }
    let more = match links.len().saturating_sub(LINKS_SHOWN) {
        0 => String::new(),
        more => format!(", … {more} more"),
    };
    format!("  links of {}: {}{more}\n", one.name, shown.join(", "))
}

/// What a repetition waited for, and the pairs of hosts that took longest.
fn critical(name: &str, path: &PathReport) -> String {
    let part = |us: f64| 100.0 * us / path.total_us.max(1e-9);
    let parts = [
        (path.compute_us, "computing"),
        (path.local_us, "within servers"),
        (path.wire_us, "on the wire"),
        (path.own_us, "behind other data of the same host"),
        (path.queue_us, "in queues"),
        (path.paused_us, "paused"),
        (path.retransmission_us, "sent again"),
        (path.credit_us, "without room at the receiver"),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(us, _)| part(*us) >= 0.05)
        .map(|(us, what)| format!("{:.1} % {what}", part(*us)))
        .collect();
    let mut text = format!(
        "  critical path of {name}: {}: {}\n",
        time(path.total_us),
        parts.join(", ")
    );
    let mut pairs: BTreeMap<(&str, &str), f64> = BTreeMap::new();
    for leg in path.legs.iter().filter(|leg| !leg.to.is_empty()) {
        *pairs.entry((&leg.from, &leg.to)).or_default() += leg.end_us - leg.begin_us;
    }
    let mut pairs: Vec<((&str, &str), f64)> = pairs.into_iter().collect();
    pairs.sort_by(|one, other| other.1.total_cmp(&one.1));
    let count = pairs.len();
    let longest: Vec<String> = pairs
        .iter()
        .take(PAIRS_SHOWN)
        .map(|((from, to), us)| format!("{from} → {to} {}", time(*us)))
        .collect();
    if !longest.is_empty() {
        let more = match count.saturating_sub(PAIRS_SHOWN) {
            0 => String::new(),
            more => format!(", … {more} more"),
        };
        let _ = writeln!(text, "    {}{more}", longest.join(", "));
    }
    text
}
