//! Collectives and their critical paths.

use std::fmt::Write;

use sim::report::{CollectiveLink, CollectiveReport, PathReport, Report};

use crate::{escape, rows};

/// Collectives whose critical path is shown, and stretches of each.
const PATHS_SHOWN: usize = 16;
const LEGS_SHOWN: usize = 64;

/// Links that are shown, those with the most bytes.
const LINKS_SHOWN: usize = 64;

/// The section about collectives; nothing if there are none.
pub(super) fn collectives(report: &Report) -> String {
    if report.collectives.is_empty() {
        return String::new();
    }
    let head = [
        "collective",
        "operation",
        "ranks",
        "bytes",
        "on the network",
        "within servers",
        "done",
        "time µs",
        "algbw GB/s",
        "busbw GB/s",
        "slowest",
    ];
    let mut text = String::from("<h2>Collectives</h2>\n");
    text += &rows(&head, report.collectives.iter().map(cells));
    for one in report.collectives.iter().filter(|one| one.stuck.is_some()) {
        let _ = writeln!(
            text,
            "<p>{} did not end: {}</p>",
            escape(&one.name),
            escape(one.stuck.as_deref().unwrap_or_default())
        );
    }
    let paths = report.collectives.iter();
    let paths = paths.filter_map(|one| Some((one, one.path.as_ref()?)));
    for (one, path) in paths.take(PATHS_SHOWN) {
        text += &critical(one, path);
    }
    text + &links(report)
}

/// The links that collectives sent most over; nothing if the run did not record them.
fn links(report: &Report) -> String {
    let mut all: Vec<(&CollectiveReport, &CollectiveLink)> = Vec::new();
    for one in &report.collectives {
        all.extend(one.links.iter().map(|link| (one, link)));
    }
    if all.is_empty() {
        return String::new();
    }
    all.sort_by_key(|(_, link)| std::cmp::Reverse(link.bytes));
    let shown = all.iter().take(LINKS_SHOWN).map(|(one, link)| {
        vec![
            one.name.clone(),
            link.port.clone(),
            link.to.clone(),
            link.packets.to_string(),
            link.bytes.to_string(),
        ]
    });
    let head = ["collective", "port", "to", "packets", "bytes"];
    let mut text = String::from("<h3>Links of collectives</h3>\n");
    text += &rows(&head, shown);
    if let Some(more) = all.len().checked_sub(LINKS_SHOWN + 1) {
        let _ = writeln!(
            text,
            "<p class=\"soft\">And {} more, which the JSON and CSV files have.</p>",
            more + 1
        );
    }
    text
}

fn cells(one: &CollectiveReport) -> Vec<String> {
    let number = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |it| format!("{it:.3}"));
    vec![
        one.name.clone(),
        format!("{} {}", one.algorithm, one.kind),
        one.ranks.to_string(),
        one.bytes.to_string(),
        one.network_bytes.to_string(),
        one.local_bytes.to_string(),
        format!("{}/{}", one.repetitions, one.repeat),
        number(one.time_us),
        number(one.algbw_bytes_per_s.map(|rate| rate / 1e9)),
        number(one.busbw_bytes_per_s.map(|rate| rate / 1e9)),
        one.slowest.clone().unwrap_or_else(|| "–".to_owned()),
    ]
}

/// The critical path of a collective's last repetition.
fn critical(one: &CollectiveReport, path: &PathReport) -> String {
    let part = |us: f64| format!("{us:.2} ({:.1}%)", 100.0 * us / path.total_us.max(1e-9));
    let head = [
        "µs",
        "computing",
        "within servers",
        "on the wire",
        "behind other data of the same host",
        "in queues",
        "paused",
        "sent again",
        "without room at the receiver",
    ];
    let sums = vec![
        format!("{:.2}", path.total_us),
        part(path.compute_us),
        part(path.local_us),
        part(path.wire_us),
        part(path.own_us),
        part(path.queue_us),
        part(path.paused_us),
        part(path.retransmission_us),
        part(path.credit_us),
    ];
    let mut text = format!("<h3>Critical path of {}</h3>\n", escape(&one.name));
    text += &rows(&head, std::iter::once(sums));
    let legs = path.legs.iter().take(LEGS_SHOWN).map(|leg| {
        vec![
            leg.what.clone(),
            leg.from.clone(),
            leg.to.clone(),
            format!("{:.2}", leg.begin_us),
            format!("{:.2}", leg.end_us - leg.begin_us),
            leg.messages.to_string(),
        ]
    });
    let head = ["stretch", "from", "to", "begins µs", "takes µs", "messages"];
    text += &rows(&head, legs);
    if path.legs.len() > LEGS_SHOWN {
        let more = path.legs.len() - LEGS_SHOWN;
        let _ = writeln!(
            text,
            "<p class=\"soft\">And {more} more, which the JSON file has.</p>"
        );
    }
    text
}
