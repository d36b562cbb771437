//! The report as text for a terminal.

use super::layout::{Rows, size, time};
use super::{
    HopReport, Percentiles, PortReport, Report, Severity, WorkloadReport, counted, port_shares,
    slowest,
};
use std::fmt::Write;

/// Ports that are listed: those with the highest weight.
const PORTS_SHOWN: usize = 16;

/// How much of the time was simulated packet by packet, where steady states were skipped.
fn skipped(report: &Report) -> String {
    report.skipped.map_or_else(String::new, |skipped| {
        let simulated = time((report.end_s - skipped.seconds) * 1e6);
        format!(
            " ({simulated} packet by packet, {} skipped)",
            counted(skipped.times, "piece", "pieces")
        )
    })
}

/// The report as text.
pub fn table(report: &Report) -> String {
    let how_far = match report.partial {
        true => "; stopped before its end",
        false => "",
    };
    text(report, how_far)
}

/// The report of a network that runs on, as text.
pub fn table_so_far(report: &Report) -> String {
    text(report, " so far")
}

fn text(report: &Report, how_far: &str) -> String {
    let mut text = String::new();
    if !report.title.is_empty() {
        let _ = writeln!(text, "{}", report.title);
    }
    let settings: Vec<String> = report
        .settings
        .iter()
        .map(|(path, value)| format!("{path} = {value}"))
        .collect();
    let settings = if settings.is_empty() {
        String::new()
    } else {
        format!("; {}", settings.join(", "))
    };
    let _ = writeln!(
        text,
        "{} of virtual time{}, seed {}{settings}{how_far}\n",
        time(report.end_s * 1e6),
        skipped(report),
        report.seed
    );
    if !report.workloads.is_empty() {
        text += &workloads(&report.workloads);
        text += &limits(&report.workloads);
    }
    for workload in report
        .workloads
        .iter()
        .filter(|workload| workload.reorder_distances.iter().any(|count| *count > 0))
    {
        text += &distances(workload);
    }
    text += &super::models::models(report);
    text += &super::collective::collectives(report);
    text += &storage(report);
    text += &hops(report);
    text += &ports(&report.ports);
    text += &switches(report);
    text += &functions(report);
    text += &findings(report);
    text
}

fn workloads(workloads: &[WorkloadReport]) -> String {
    let head = [
        "workload",
        "flows",
        "done",
        "Gb/s",
        "fair",
        "FCT p50",
        "p99",
        "slowdown p50",
        "p99",
        "latency p50",
        "p99",
        "resent",
        "timeouts",
        "CNPs",
        "swapped",
    ];
    let mut rows = Rows::new(&head);
    for workload in workloads {
        let pair = |spread: Option<Percentiles>, show: fn(f64) -> String| {
            spread.map_or_else(
                || ["-".to_owned(), "-".to_owned()],
                |spread| [show(spread.p50), show(spread.p99)],
            )
        };
        let [fct, fct_p99] = pair(workload.completion_us, time);
        let [slow, slow_p99] = pair(workload.slowdown, |value| format!("{value:.2}"));
        let [latency, latency_p99] = pair(workload.latency_us, time);
        rows.0.push(vec![
            workload.name.clone(),
            workload.flows.to_string(),
            workload.finished.to_string(),
            format!("{:.2}", workload.goodput_bps / 1e9),
            workload
                .fairness
                .map_or_else(|| "-".to_owned(), |fairness| format!("{fairness:.3}")),
            fct,
            fct_p99,
            slow,
            slow_p99,
            latency,
            latency_p99,
            workload.retransmitted.to_string(),
            workload.timeouts.to_string(),
            workload.notifications.to_string(),
            format!("{:.2}%", workload.swapped_percent),
        ]);
    }
    rows.fitting().text()
}

/// The resource that is full, by workload.
fn limits(workloads: &[WorkloadReport]) -> String {
    let mut text = String::new();
    for workload in workloads {
        let _ = match &workload.limit {
            Some(limit) => {
                writeln!(
                    text,
                    "  {} is limited by {}, busy for {:.0} % of the time",
                    workload.name, limit.what, limit.busy_percent
                )
            }
            None if workload.waits_for.is_some() || workload.retransmitted > 0 => {
                let again = (workload.retransmitted > 0).then(|| {
                    let packets = counted(workload.retransmitted, "packet was", "packets were");
                    format!("{packets} sent again")
                });
                let why = workload.waits_for.clone().into_iter().chain(again);
                writeln!(
                    text,
                    "  {} fills nothing: {}",
                    workload.name,
                    why.collect::<Vec<_>>().join("; ")
                )
            }
            None => writeln!(
                text,
                "  {} fills nothing: it waits for round trips or windows, or for other workloads",
                workload.name
            ),
        };
    }
    format!("\n{text}")
}

/// How far packets lie behind, and how far it is from one that is out of order to the next.
fn distances(workload: &WorkloadReport) -> String {
    let name = &workload.name;
    let mut text = format!(
        "\n  {name}: reorder distance (largest {})\n",
        workload.reorder_distance_max
    );
    text += &powers(&workload.reorder_distances);
    if !workload.swap_steps.is_empty() {
        let _ = writeln!(
            text,
            "\n  {name}: packets from one that is swapped to the next (largest {})",
            workload.swap_step_max
        );
        text += &powers(&workload.swap_steps);
    }
    text
}

/// A bar for each power of two.
fn powers(counts: &[u64]) -> String {
    let all: u64 = counts.iter().sum();
    let mut text = String::new();
    for (power, count) in (0_u32..).zip(counts) {
        let (from, to) = (1_u64 << power, (2_u64 << power) - 1);
        let range = if from == to {
            from.to_string()
        } else {
            format!("{from}-{to}")
        };
        let bar = "#".repeat((40 * count / all.max(1)) as usize);
        let _ = writeln!(text, "  {range:>12}  {count:>10}  {bar}");
    }
    text
}

fn storage(report: &Report) -> String {
    if report.stores.is_empty() {
        return String::new();
    }
    let mut rows = Rows::new(&[
        "storage",
        "IOPS",
        "GB/s",
        "latency mean",
        "p50",
        "p99",
        "max",
    ]);
    for workload in report
        .workloads
        .iter()
        .filter(|workload| workload.ios_per_s.is_some())
    {
        let at = |of: fn(Percentiles) -> f64| {
            workload
                .latency_us
                .map_or("-".to_owned(), |all| time(of(all)))
        };
        rows.0.push(vec![
            workload.name.clone(),
            format!("{:.0}", workload.ios_per_s.unwrap_or_default()),
            format!("{:.2}", workload.goodput_bps / 8e9),
            at(|all| all.mean),
            at(|all| all.p50),
            at(|all| all.p99),
            at(|all| all.max),
        ]);
    }
    format!("\n{}\n{}", rows.text(), storage_hosts(report).text())
}

/// Hosts that take part in storage; the columns of I/Os that took too long where there are any.
fn storage_hosts(report: &Report) -> Rows {
    let any_late = report
        .stores
        .iter()
        .any(|store| store.io_timeouts.resets > 0);
    let mut head = vec!["host", "cores", "busy", "drives busy"];
    if any_late {
        head.extend(["timed out", "resets", "sent again", "errors"]);
    }
    let mut hosts = Rows::new(&head);
    for store in report.stores.iter().take(PORTS_SHOWN) {
        let mut row = vec![
            store.host.clone(),
            store.cores.to_string(),
            format!("{:.1}%", store.cores_busy_percent),
            format!("{:.1}%", store.drives_busy_percent),
        ];
        if any_late {
            let late = store.io_timeouts;
            let counts = [late.ios, late.resets, late.cancelled, late.errors];
            row.extend(counts.map(|count| count.to_string()));
        }
        hosts.0.push(row);
    }
    hosts
}

/// Where the data of each workload waited, and the path of its slowest flow.
fn hops(report: &Report) -> String {
    let mut text = String::new();
    for (index, workload) in report.workloads.iter().enumerate() {
        let Some(flow) = slowest(report, index) else {
            continue;
        };
        let cells = |hop: &HopReport| {
            let of =
                |count: u64| format!("{:.1}%", 100.0 * count as f64 / hop.packets.max(1) as f64);
            vec![
                hop.packets.to_string(),
                time(hop.waited_mean_us),
                time(hop.waited_max_us),
                time(hop.paused_us),
                of(hop.marked),
                hop.lost.to_string(),
            ]
        };
        let head = [
            "to", "flows", "packets", "waited", "at most", "paused", "marked", "lost",
        ];
        let title = format!("where {} waited", workload.name);
        let mut rows = Rows::new(&[&[title.as_str()], &head[..]].concat());
        for share in port_shares(report, index).iter().take(PORTS_SHOWN / 2) {
            let own = [
                share.hop.port.clone(),
                share.hop.to.clone(),
                share.flows.to_string(),
            ];
            rows.0.push([own.to_vec(), cells(&share.hop)].concat());
        }
        let title = format!("its slowest: {} → {}", flow.from, flow.to);
        let mut way = Rows::new(&[&[title.as_str(), "to"], &head[2..]].concat());
        for hop in flow.hops.iter().take(PORTS_SHOWN) {
            way.0
                .push([vec![hop.port.clone(), hop.to.clone()], cells(hop)].concat());
        }
        let _ = write!(text, "\n{}\n{}", rows.text(), way.text());
    }
    text
}

/// The weight of a port in the choice of those that are listed.
fn weight(port: &PortReport) -> f64 {
    let lost: u64 = port.losses().map(|(_, count)| count).sum();
    let peak = port.peak_queue_bytes;
    let lost = lost as f64 * 1e12 + port.trimmed as f64 * 1e6;
    lost + port.paused_us * 1e3 + f64::from(peak) + port.load
}

fn ports(ports: &[PortReport]) -> String {
    let mut head = vec![
        "port",
        "to",
        "load",
        "packets",
        "peak queue",
        "paused",
        "marked",
        "pauses sent",
        "dropped",
    ];
    let trims = ports.iter().any(|port| port.trimmed > 0);
    if trims {
        head.insert(head.len() - 2, "trimmed");
    }
    let mut rows = Rows::new(&head);
    let mut shown: Vec<&PortReport> = ports.iter().collect();
    shown.sort_by(|one, other| weight(other).total_cmp(&weight(one)));
    shown.truncate(PORTS_SHOWN);
    for port in &shown {
        let mut row = vec![
            port.port.clone(),
            port.to.clone(),
            format!("{:.1}%", 100.0 * port.load),
            port.packets.to_string(),
            size(f64::from(port.peak_queue_bytes)),
            time(port.paused_us),
            port.marked.to_string(),
            port.pauses_sent.to_string(),
            port.losses_text(),
        ];
        if trims {
            row.insert(row.len() - 2, port.trimmed.to_string());
        }
        rows.0.push(row);
    }
    let more = ports.len() - shown.len();
    let more = if more > 0 {
        format!("  … and {more} more (--json, --csv, --html have all)\n")
    } else {
        String::new()
    };
    format!("\n{}{more}", rows.text())
}

fn switches(report: &Report) -> String {
    let mut head = vec![
        "switch",
        "buffer peak",
        "of",
        "marked",
        "pauses sent",
        "dropped",
    ];
    let trims = report.switches.iter().any(|switch| switch.trimmed > 0);
    if trims {
        head.insert(head.len() - 2, "trimmed");
    }
    let mut rows = Rows::new(&head);
    for switch in report.switches.iter().take(PORTS_SHOWN) {
        let mut row = vec![
            switch.name.clone(),
            size(f64::from(switch.buffer_peak_bytes)),
            size(f64::from(switch.buffer_bytes)),
            switch.marked.to_string(),
            switch.pauses_sent.to_string(),
            switch.dropped.to_string(),
        ];
        if trims {
            row.insert(row.len() - 2, switch.trimmed.to_string());
        }
        rows.0.push(row);
    }
    format!("\n{}", rows.text())
}

fn functions(report: &Report) -> String {
    if report.functions.is_empty() {
        return String::new();
    }
    let mut rows = Rows::new(&[
        "dropped at function",
        "spoofed GID",
        "spoofed MAC",
        "other VLAN",
    ]);
    for one in report.functions.iter().take(PORTS_SHOWN) {
        let counts = [
            one.dropped.spoofed_gid,
            one.dropped.spoofed_mac,
            one.dropped.vlan,
        ];
        let counts = counts.map(|count| count.to_string());
        rows.0.push(
            std::iter::once(one.function.clone())
                .chain(counts)
                .collect(),
        );
    }
    format!("\n{}", rows.text())
}

fn findings(report: &Report) -> String {
    if report.findings.is_empty() {
        return "\nNothing was lost, and no port was paused for long: no findings.\n".to_owned();
    }
    let mut text = String::from("\nFindings\n");
    for finding in &report.findings {
        let severity = match finding.severity {
            Severity::Broken => "broken",
            Severity::Slow => "slow",
            Severity::Note => "note",
        };
        let _ = writeln!(text, "  {severity:<6}  {}", finding.seen);
        let _ = writeln!(text, "          cause: {}", finding.cause);
        let _ = writeln!(text, "          do:    {}", finding.instead);
    }
    text
}
