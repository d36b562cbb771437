//! The report of a run in virtual time.

mod collectives;
mod network;
mod sweep;

pub use sweep::sweep_page;

use std::fmt::Write;

use sim::experiment::Experiment;
use sim::report::{
    Finding, FlowReport, HopReport, Percentiles, PortReport, Report, Series, Severity, port_shares,
    slowest, table,
};

use crate::{Chart, Line, escape, head, rows, tail};

/// Ports whose queues are plotted: those that ever had the longest.
const PLOTTED: usize = 6;

/// Ports per workload in the list of where its data waited.
const SHARES: usize = 16;

/// Rows of the table of ports at most: browsers take seconds to lay out a long one.
const PORT_ROWS_MAX: usize = 1000;

/// The report of one run as an HTML page.
pub fn page(experiment: &Experiment, report: &Report) -> String {
    let title = if report.title.is_empty() {
        "rockery sim"
    } else {
        &report.title
    };
    let mut page = head(title);
    page += &body(experiment, report);
    page + &tail()
}

/// All sections of the page, for a page of another kind.
pub fn body(experiment: &Experiment, report: &Report) -> String {
    let mut body = summary(report);
    body += &findings(&report.findings);
    body += &notes(&report.notes);
    body += "<h2>Workloads</h2>\n";
    body += &workloads(report);
    body += &collectives::collectives(report);
    body += "<h2>Network</h2>\n<p class=\"soft\">Links by the load of their busier direction; a red \
             dot is a port that dropped packets. Hover for numbers.</p>\n";
    body += &network::picture(experiment, report);
    body += "<h2>Over time and flows</h2>\n<div class=\"plots\">\n";
    body += &plots(report);
    body += "</div>\n";
    body += &hops(report);
    body += "<h2>Ports</h2>\n";
    body += &ports(&report.ports);
    let _ = writeln!(
        body,
        "<details><summary><h2>As text</h2></summary>\n<pre>{}</pre></details>",
        escape(&table(report))
    );
    body
}

fn summary(report: &Report) -> String {
    let partial = if report.partial {
        " Stopped before its end."
    } else {
        ""
    };
    format!(
        "<p class=\"soft\">{:.3} ms of virtual time, seed {}, {} packets crossed a link.{partial}</p>\n",
        report.end_s * 1e3,
        report.seed,
        report.hops
    )
}

fn findings(findings: &[Finding]) -> String {
    let mut text = String::from("<h2>Findings</h2>\n");
    if findings.is_empty() {
        text += "<p>Nothing was lost, and no port was paused for long.</p>\n";
    }
    for own in findings {
        text += &finding(own, &own.seen);
    }
    text
}

/// A finding, with what was seen in these words.
fn finding(finding: &Finding, seen: &str) -> String {
    let class = match finding.severity {
        Severity::Broken => "broken",
        Severity::Slow => "slow",
        Severity::Note => "note",
    };
    format!(
        "<div class=\"finding {class}\"><b>{}</b><br>Cause: {}<br>Do: <code>{}</code>\
         <button type=\"button\" class=\"copy\" hidden>Copy</button></div>\n",
        escape(seen),
        escape(&finding.cause),
        escape(&finding.instead)
    )
}

fn notes(notes: &[String]) -> String {
    if notes.is_empty() {
        return String::new();
    }
    let items = notes
        .iter()
        .map(|note| format!("<li>{}</li>\n", escape(note)));
    format!("<h2>Notes</h2>\n<ul>\n{}</ul>\n", items.collect::<String>())
}

fn workloads(report: &Report) -> String {
    let head = [
        "workload",
        "limited by",
        "flows",
        "done",
        "failed",
        "Gb/s",
        "fairness",
        "FCT p50 µs",
        "FCT p90 µs",
        "FCT p99 µs",
        "slowdown p50",
        "slowdown p99",
        "latency p50 µs",
        "latency p99 µs",
        "resent",
        "timeouts",
        "CNPs",
        "swapped",
        "largest distance",
    ];
    let number =
        |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| format!("{value:.2}"));
    let at = |spread: Option<Percentiles>, of: fn(Percentiles) -> f64| number(spread.map(of));
    let row = |workload: &sim::report::WorkloadReport| {
        vec![
            workload.name.clone(),
            workload.limit.as_ref().map_or_else(
                || "nothing that is full".to_owned(),
                |limit| format!("{} ({:.0}%)", limit.what, limit.busy_percent),
            ),
            workload.flows.to_string(),
            workload.finished.to_string(),
            workload.failed.to_string(),
            format!("{:.2}", workload.goodput_bps / 1e9),
            number(workload.fairness),
            at(workload.completion_us, |spread| spread.p50),
            at(workload.completion_us, |spread| spread.p90),
            at(workload.completion_us, |spread| spread.p99),
            at(workload.slowdown, |spread| spread.p50),
            at(workload.slowdown, |spread| spread.p99),
            at(workload.latency_us, |spread| spread.p50),
            at(workload.latency_us, |spread| spread.p99),
            workload.retransmitted.to_string(),
            workload.timeouts.to_string(),
            workload.notifications.to_string(),
            format!("{:.2}%", workload.swapped_percent),
            workload.reorder_distance_max.to_string(),
        ]
    };
    let (head, cells) = with_values(&head, report.workloads.iter().map(row).collect());
    rows(&head, cells.into_iter())
}

/// The columns of a table in which a row has a value, so that it fits a page. The others are in the JSON
/// file.
fn with_values<'a>(head: &[&'a str], rows: Vec<Vec<String>>) -> (Vec<&'a str>, Vec<Vec<String>>) {
    let says_nothing = |cell: &str| matches!(cell, "–" | "0" | "0.00%");
    let has_value = |column: &usize| rows.iter().any(|row| !says_nothing(&row[*column]));
    let kept: Vec<usize> = (0..head.len()).filter(has_value).collect();
    let cells = |row: &Vec<String>| kept.iter().map(|column| row[*column].clone()).collect();
    (
        kept.iter().map(|column| head[*column]).collect(),
        rows.iter().map(cells).collect(),
    )
}

/// Where the data of each workload waited, and the path of its slowest flow.
fn hops(report: &Report) -> String {
    let head = [
        "port",
        "to",
        "packets",
        "waited µs",
        "at most",
        "paused",
        "marked",
        "lost",
    ];
    let cells = |hop: &HopReport| {
        vec![
            hop.port.clone(),
            hop.to.clone(),
            hop.packets.to_string(),
            format!("{:.2}", hop.waited_mean_us),
            format!("{:.2}", hop.waited_max_us),
            format!("{:.1}", hop.paused_us),
            format!(
                "{:.1}%",
                100.0 * hop.marked as f64 / hop.packets.max(1) as f64
            ),
            hop.lost.to_string(),
        ]
    };
    let mut text = String::new();
    for (index, workload) in report.workloads.iter().enumerate() {
        let Some(flow) = slowest(report, index) else {
            continue;
        };
        let _ = writeln!(text, "<h2>Where {} waited</h2>", escape(&workload.name));
        let shares = port_shares(report, index);
        text += &rows(
            &head,
            shares.iter().take(SHARES).map(|share| cells(&share.hop)),
        );
        let _ = writeln!(
            text,
            "<p class=\"soft\">Its slowest queue pair, {} → {}, port by port. A host's packets are made \
             when they may leave: there, pauses alone are counted.</p>",
            escape(&flow.from),
            escape(&flow.to)
        );
        text += &rows(&head, flow.hops.iter().map(cells));
    }
    text
}

fn ports(ports: &[PortReport]) -> String {
    let mut head = vec![
        "port",
        "to",
        "class",
        "load",
        "packets",
        "peak queue KiB",
        "paused µs",
        "marked",
        "pauses sent",
        "dropped",
    ];
    let trims = ports.iter().any(|port| port.trimmed > 0);
    if trims {
        head.insert(head.len() - 2, "trimmed");
    }
    let per_queue = ports
        .iter()
        .flat_map(|port| port.queues.iter().map(move |queue| (port, queue)));
    let row = |(port, queue): (&PortReport, &sim::report::QueueReport)| {
        let mut row = vec![
            port.port.clone(),
            port.to.clone(),
            queue.class.to_string(),
            format!("{:.1}%", 100.0 * port.load),
            queue.packets.to_string(),
            format!("{:.1}", f64::from(queue.peak_bytes) / 1024.0),
            format!("{:.1}", queue.paused_us),
            queue.marked.to_string(),
            port.pauses_sent.to_string(),
            port.losses_text(),
        ];
        if trims {
            row.insert(row.len() - 2, queue.trimmed.to_string());
        }
        row
    };
    let count = per_queue.clone().count();
    let table = rows(&head, per_queue.take(PORT_ROWS_MAX).map(row));
    match count.saturating_sub(PORT_ROWS_MAX) {
        0 => table,
        more => {
            table + &format!("<p class=\"soft\">And {more} more, which the CSV file has.</p>\n")
        }
    }
}

fn plots(report: &Report) -> String {
    flow_charts(report) + &port_charts(report) + &reorder_chart(report)
}

/// Distributions over the flows of each workload.
fn flow_charts(report: &Report) -> String {
    let flows = |of: fn(&FlowReport) -> Option<f64>| {
        let per_workload = report
            .workloads
            .iter()
            .enumerate()
            .map(|(index, workload)| {
                let mine = report.flows.iter().filter(|flow| flow.workload == index);
                Line {
                    name: workload.name.clone(),
                    points: cdf(mine.filter_map(of).collect()),
                }
            });
        per_workload
            .filter(|line| line.points.len() > 1)
            .collect::<Vec<_>>()
    };
    let chart = |title, x, lines| {
        let chart = Chart {
            title,
            x,
            y: "part of flows",
            lines,
            step: true,
        };
        chart.svg()
    };
    [
        chart("Completion times", "µs", flows(|flow| flow.completion_us)),
        chart(
            "Slowdown",
            "times as long as alone",
            flows(|flow| flow.slowdown),
        ),
        chart(
            "Goodput of queue pairs",
            "Gb/s",
            flows(|flow| flow.goodput_bps.map(|bps| bps / 1e9)),
        ),
    ]
    .concat()
}

/// Queues and rates over time, of the ports whose queues were longest.
fn port_charts(report: &Report) -> String {
    let mut busiest: Vec<&Series> = report.series.iter().collect();
    let peak = |series: &Series| series.queued_bytes.iter().copied().max().unwrap_or(0);
    busiest.sort_by_key(|series| std::cmp::Reverse(peak(series)));
    busiest.truncate(PLOTTED);
    let over_time = |of: fn(&Series) -> Vec<f64>| {
        let line = |series: &&Series| Line {
            name: series.port.clone(),
            points: series.at_us.iter().copied().zip(of(series)).collect(),
        };
        busiest.iter().map(line).collect::<Vec<_>>()
    };
    let queued = over_time(|series| {
        let bytes = series.queued_bytes.iter();
        bytes.map(|bytes| f64::from(*bytes) / 1024.0).collect()
    });
    let queues = Chart {
        title: "Longest queues",
        x: "µs",
        y: "KiB",
        lines: queued,
        step: false,
    };
    let rates = Chart {
        title: "Rates of the same ports",
        x: "µs",
        y: "Gb/s",
        lines: over_time(|series| series.rate_bps.iter().map(|bps| bps / 1e9).collect()),
        step: false,
    };
    queues.svg() + &rates.svg()
}

/// How far packets were overtaken, by workload.
fn reorder_chart(report: &Report) -> String {
    let reordered = report
        .workloads
        .iter()
        .filter(|workload| !workload.reorder_distances.is_empty());
    let lines = reordered.map(|workload| {
        let counts = workload.reorder_distances.iter().zip(0_i32..);
        let points = counts
            .map(|(count, power)| (f64::from(power), *count as f64))
            .collect();
        Line {
            name: workload.name.clone(),
            points,
        }
    });
    let chart = Chart {
        title: "Reorder distance",
        x: "distance, power of two",
        y: "packets",
        lines: lines.collect(),
        step: true,
    };
    chart.svg()
}

/// Values and the part of them that is not above.
fn cdf(mut values: Vec<f64>) -> Vec<(f64, f64)> {
    values.sort_by(f64::total_cmp);
    let count = values.len() as f64;
    values
        .into_iter()
        .enumerate()
        .map(|(index, value)| (value, (index + 1) as f64 / count))
        .collect()
}
