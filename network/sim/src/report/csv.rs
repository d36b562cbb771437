//! Comma-separated values (RFC 4180), one row per flow or port.

use super::Report;
use std::fmt::Write;

/// Text as a cell: quoted where it must be.
pub(super) fn cell(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

pub(super) fn number(value: Option<f64>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// One row per flow. With `run`, its number is in the first column: for sweeps.
pub fn flows_csv(report: &Report, run: Option<usize>, head: bool) -> String {
    let mut text = String::new();
    if head {
        let columns = "workload,from,to,bytes,start_us,completion_us,slowdown,\
                       goodput_bps,retransmitted,notifications,failed";
        text = format!(
            "{}{}{columns}\n",
            if run.is_some() { "run," } else { "" },
            settings(report, true)
        );
    }
    for flow in &report.flows {
        let run = run.map(|run| format!("{run},")).unwrap_or_default();
        let name = report
            .workloads
            .get(flow.workload)
            .map_or("", |workload| workload.name.as_str());
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{run}{}{},{},{},{},{},{},{},{},{},{},{}",
            settings(report, false),
            cell(name),
            cell(&flow.from),
            cell(&flow.to),
            flow.bytes,
            flow.start_us,
            number(flow.completion_us),
            number(flow.slowdown),
            number(flow.goodput_bps),
            flow.retransmitted,
            flow.notifications,
            flow.failed
        );
    }
    text
}

/// One row per flow and port that its data crossed, in the order of the path.
pub fn hops_csv(report: &Report, run: Option<usize>, head: bool) -> String {
    let mut text = String::new();
    if head {
        let columns = "workload,flow,from,to,hop,port,next,packets,bytes,marked,lost,\
                       waited_mean_us,waited_max_us,waited_us,paused_us";
        text = format!(
            "{}{}{columns}\n",
            if run.is_some() { "run," } else { "" },
            settings(report, true)
        );
    }
    let run = run.map(|run| format!("{run},")).unwrap_or_default();
    for (number, flow) in report.flows.iter().enumerate() {
        let name = report
            .workloads
            .get(flow.workload)
            .map_or("", |workload| workload.name.as_str());
        for (place, hop) in flow.hops.iter().enumerate() {
            let _ = writeln!(
                text,
                "{run}{}{},{number},{},{},{place},{},{},{},{},{},{},{},{},{},{}",
                settings(report, false),
                cell(name),
                cell(&flow.from),
                cell(&flow.to),
                cell(&hop.port),
                cell(&hop.to),
                hop.packets,
                hop.bytes,
                hop.marked,
                hop.lost,
                hop.waited_mean_us,
                hop.waited_max_us,
                hop.waited_us,
                hop.paused_us
            );
        }
    }
    text
}

/// The settings besides the file, as columns: names or values. Behind them are those with a unit, as numbers.
pub(super) fn settings(report: &Report, names: bool) -> String {
    let texts = report.settings.iter();
    let texts = texts.map(|(name, value)| cell(if names { name } else { value }));
    let numbers = report.numbers.iter();
    let numbers = numbers.map(|(name, value)| match names {
        true => cell(name),
        false => value.to_string(),
    });
    texts.chain(numbers).map(|cell| cell + ",").collect()
}

/// One row per port and class.
pub fn ports_csv(report: &Report) -> String {
    let mut text =
        "port,to,rate_bps,load,class,packets,bytes,marked,peak_bytes,paused_us,queue_dropped,pauses_sent,\
         dropped,fcs_errors,lost_link_down,trimmed\n"
            .to_owned();
    for port in &report.ports {
        let dropped: u64 = port.dropped.iter().map(|(_, count)| count).sum();
        for queue in &port.queues {
            let of_queue: u64 = queue.dropped.iter().map(|(_, count)| count).sum();
            let _ = writeln!(
                text,
                "{},{},{},{},{},{},{},{},{},{},{of_queue},{},{dropped},{},{},{}",
                cell(&port.port),
                cell(&port.to),
                port.rate_bps,
                port.load,
                queue.class,
                queue.packets,
                queue.bytes,
                queue.marked,
                queue.peak_bytes,
                queue.paused_us,
                port.pauses_sent,
                port.fcs_errors,
                port.lost_link_down,
                queue.trimmed
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_with_commas_are_quoted() {
        assert_eq!(cell("a"), "a");
        assert_eq!(cell("a, \"b\""), "\"a, \"\"b\"\"\"");
    }
}
