//! Reports as tables of columns, for Parquet and Arrow: one row each for flows, ports and so on. Every table
//! begins with the number of the run, the settings of the sweep, the seed, and the settings as numbers.

use super::{FlowReport, HopReport, Percentiles, PortReport, Report, Series, WorkloadReport};
use std::borrow::Borrow;

use super::setting_unit::Unit;

/// A column: its name and its values.
pub type Column = (String, Values);

/// The values of a column, one for each row.
#[derive(Clone, PartialEq, Debug)]
pub enum Values {
    /// Names and other text, none of which is absent.
    Text(Vec<String>),
    /// Counts, which are never absent.
    Whole(Vec<i64>),
    /// Numbers that may be absent.
    Number(Vec<Option<f64>>),
    /// True or false.
    Truth(Vec<bool>),
}

impl Values {
    /// The number of rows.
    pub fn len(&self) -> usize {
        match self {
            Self::Text(texts) => texts.len(),
            Self::Whole(numbers) => numbers.len(),
            Self::Number(numbers) => numbers.len(),
            Self::Truth(truths) => truths.len(),
        }
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The value of a swept field.
fn setting(report: &Report, index: usize) -> &str {
    let setting = report.settings.get(index);
    setting.map_or("", |(_, value)| value)
}

/// One of the percentiles, or the mean.
type Part = fn(Percentiles) -> f64;

/// Rows with the reports that they are of, and the columns that were made of them so far.
pub(super) struct Rows<'a, T> {
    rows: Vec<(&'a Report, T)>,
    columns: Vec<Column>,
}

impl<'a, T> Rows<'a, T> {
    /// Starts with the columns that all tables have.
    pub(super) fn new<R: Borrow<Report>>(
        reports: &'a [R],
        rows: impl Fn(&'a Report) -> Vec<T>,
    ) -> Self {
        let of_run = |(run, report): (usize, &'a R)| {
            let report: &'a Report = report.borrow();
            rows(report)
                .into_iter()
                .map(move |row| (run as i64, (report, row)))
        };
        let (runs, rows): (Vec<i64>, Vec<(&Report, T)>) =
            reports.iter().enumerate().flat_map(of_run).unzip();
        let mut all = Self {
            rows,
            columns: vec![("run".to_owned(), Values::Whole(runs))],
        };
        let paths = reports
            .first()
            .map(|report| report.borrow().settings.as_slice())
            .unwrap_or_default();
        // A sweep over `seed` has one column for it: the number that each run has anyway.
        let swept = paths.iter().enumerate();
        let swept: Vec<(usize, &String)> = swept
            .map(|(index, (path, _))| (index, path))
            .filter(|(_, path)| *path != "seed")
            .collect();
        for (index, path) in &swept {
            all = all.text(path, |report, _| setting(report, *index).to_owned());
        }
        all = all.whole("seed", |report, _| report.seed);
        for (index, path) in swept {
            let runs = reports
                .iter()
                .map(|report| setting(report.borrow(), index).to_owned());
            if let Some(unit) = Unit::of_all(&runs.collect::<Vec<_>>()) {
                let name = format!("{path}_{}", unit.name());
                all = all.number_of_run(&name, |report| unit.number(setting(report, index)));
            }
        }
        all
    }

    pub(super) fn text(mut self, name: &str, of: impl Fn(&Report, &T) -> String) -> Self {
        let values = self
            .rows
            .iter()
            .map(|(report, row)| of(report, row))
            .collect();
        self.columns.push((name.to_owned(), Values::Text(values)));
        self
    }

    pub(super) fn whole(mut self, name: &str, of: impl Fn(&Report, &T) -> u64) -> Self {
        let values = self
            .rows
            .iter()
            .map(|(report, row)| of(report, row) as i64)
            .collect();
        self.columns.push((name.to_owned(), Values::Whole(values)));
        self
    }

    pub(super) fn number(mut self, name: &str, of: impl Fn(&T) -> Option<f64>) -> Self {
        let values = self.rows.iter().map(|(_, row)| of(row)).collect();
        self.columns.push((name.to_owned(), Values::Number(values)));
        self
    }

    pub(super) fn columns(self) -> Vec<Column> {
        self.columns
    }

    fn number_of_run(mut self, name: &str, of: impl Fn(&Report) -> Option<f64>) -> Self {
        let values = self.rows.iter().map(|(report, _)| of(report)).collect();
        self.columns.push((name.to_owned(), Values::Number(values)));
        self
    }

    fn truth(mut self, name: &str, of: impl Fn(&T) -> bool) -> Self {
        let values = self.rows.iter().map(|(_, row)| of(row)).collect();
        self.columns.push((name.to_owned(), Values::Truth(values)));
        self
    }

    /// Columns `NAME_p50`, `NAME_p90`, `NAME_p99`, `NAME_max` and `NAME_mean`.
    fn percentiles(mut self, name: &str, of: impl Fn(&T) -> Option<Percentiles>) -> Self {
        let parts: [(&str, Part); 5] = [
            ("p50", |it| it.p50),
            ("p90", |it| it.p90),
            ("p99", |it| it.p99),
            ("max", |it| it.max),
            ("mean", |it| it.mean),
        ];
        for (part, value) in parts {
            self = self.number(&format!("{name}_{part}"), |row| of(row).map(value));
        }
        self
    }
}

fn workload_name(report: &Report, flow: &FlowReport) -> String {
    report
        .workloads
        .get(flow.workload)
        .map_or_else(String::new, |workload| workload.name.clone())
}

/// The flows of all reports.
pub fn flow_columns<R: Borrow<Report>>(reports: &[R]) -> Vec<Column> {
    let rows: Rows<'_, &FlowReport> = Rows::new(reports, |report| report.flows.iter().collect());
    rows.text("workload", |report, flow| workload_name(report, flow))
        .text("from", |_, flow| flow.from.clone())
        .text("to", |_, flow| flow.to.clone())
        .whole("bytes", |_, flow| flow.bytes)
        .number("start_us", |flow| Some(flow.start_us))
        .number("completion_us", |flow| flow.completion_us)
        .number("slowdown", |flow| flow.slowdown)
        .number("goodput_bps", |flow| flow.goodput_bps)
        .whole("retransmitted", |_, flow| flow.retransmitted)
        .whole("notifications", |_, flow| flow.notifications)
        .truth("failed", |flow| flow.failed)
        .columns
}

/// A port on the path of a flow: the flow and its number, the place on the path, the port.
type HopRow<'a> = (&'a FlowReport, usize, usize, &'a HopReport);

fn hop_rows(report: &Report) -> Vec<HopRow<'_>> {
    let flows = report.flows.iter().enumerate();
    let hops = flows.flat_map(|(number, flow)| {
        flow.hops
            .iter()
            .enumerate()
            .map(move |hop| (number, flow, hop))
    });
    hops.map(|(number, flow, (place, hop))| (flow, number, place, hop))
        .collect()
}

/// The ports that the flows of all reports crossed, in the order of their paths.
pub fn hop_columns<R: Borrow<Report>>(reports: &[R]) -> Vec<Column> {
    Rows::new(reports, hop_rows)
        .text("workload", |report, row| workload_name(report, row.0))
        .whole("flow", |_, row| row.1 as u64)
        .text("from", |_, row| row.0.from.clone())
        .text("to", |_, row| row.0.to.clone())
        .whole("hop", |_, row| row.2 as u64)
        .text("port", |_, row| row.3.port.clone())
        .text("next", |_, row| row.3.to.clone())
        .whole("packets", |_, row| row.3.packets)
        .whole("bytes", |_, row| row.3.bytes)
        .whole("marked", |_, row| row.3.marked)
        .whole("lost", |_, row| row.3.lost)
        .number("waited_mean_us", |row| Some(row.3.waited_mean_us))
        .number("waited_max_us", |row| Some(row.3.waited_max_us))
        .number("waited_us", |row| Some(row.3.waited_us))
        .number("paused_us", |row| Some(row.3.paused_us))
        .columns
}

/// The workloads of all reports.
pub fn workload_columns<R: Borrow<Report>>(reports: &[R]) -> Vec<Column> {
    let rows: Rows<'_, &WorkloadReport> =
        Rows::new(reports, |report| report.workloads.iter().collect());
    rows.text("workload", |_, workload| workload.name.clone())
        .whole("flows", |_, workload| workload.flows)
        .whole("finished", |_, workload| workload.finished)
        .whole("failed", |_, workload| workload.failed)
        .whole("bytes", |_, workload| workload.bytes)
        .whole("delivered_bytes", |_, workload| workload.delivered_bytes)
        .number("begin_us", |workload| {
            workload.interval_us.map(|interval| interval[0])
        })
        .number("end_us", |workload| {
            workload.interval_us.map(|interval| interval[1])
        })
        .number("goodput_bps", |workload| Some(workload.goodput_bps))
        .number("fairness", |workload| workload.fairness)
        .percentiles("completion_us", |workload| workload.completion_us)
        .percentiles("slowdown", |workload| workload.slowdown)
        .percentiles("latency_us", |workload| workload.latency_us)
        .number("ios_per_s", |workload| workload.ios_per_s)
        .whole("retransmitted", |_, workload| workload.retransmitted)
        .whole("timeouts", |_, workload| workload.timeouts)
        .whole("notifications", |_, workload| workload.notifications)
        .text("limit", |_, workload| {
            workload
                .limit
                .as_ref()
                .map_or_else(String::new, |it| it.what.clone())
        })
        .columns
}

/// The ports of all reports.
pub fn port_columns<R: Borrow<Report>>(reports: &[R]) -> Vec<Column> {
    let rows: Rows<'_, &PortReport> = Rows::new(reports, |report| report.ports.iter().collect());
    rows.text("port", |_, port| port.port.clone())
        .text("next", |_, port| port.to.clone())
        .whole("link", |_, port| u64::from(port.link))
        .whole("direction", |_, port| u64::from(port.direction))
        .whole("rate_bps", |_, port| port.rate_bps)
        .number("load", |port| Some(port.load))
        .whole("packets", |_, port| port.packets)
        .whole("bytes", |_, port| port.bytes)
        .whole("marked", |_, port| port.marked)
        .whole("peak_queue_bytes", |_, port| {
            u64::from(port.peak_queue_bytes)
        })
        .whole("dropped", |_, port| {
            port.dropped.iter().map(|(_, count)| count).sum()
        })
        .whole("fcs_errors", |_, port| port.fcs_errors)
        .whole("lost_link_down", |_, port| port.lost_link_down)
        .whole("trimmed", |_, port| port.trimmed)
        .whole("pauses_sent", |_, port| port.pauses_sent)
        .number("paused_us", |port| Some(port.paused_us))
        .columns
}

/// The switches of all reports.
pub fn switch_columns<R: Borrow<Report>>(reports: &[R]) -> Vec<Column> {
    Rows::new(reports, |report| report.switches.iter().collect::<Vec<_>>())
        .text("switch", |_, switch| switch.name.clone())
        .whole("buffer_bytes", |_, switch| u64::from(switch.buffer_bytes))
        .whole("buffer_peak_bytes", |_, switch| {
            u64::from(switch.buffer_peak_bytes)
        })
        .whole("dropped", |_, switch| switch.dropped)
        .whole("marked", |_, switch| switch.marked)
        .whole("trimmed", |_, switch| switch.trimmed)
        .whole("pauses_sent", |_, switch| switch.pauses_sent)
        .columns
}

fn samples(report: &Report) -> Vec<(&Series, usize)> {
    let series = report.series.iter();
    series
        .flat_map(|series| (0..series.at_us.len()).map(move |at| (series, at)))
        .collect()
}

/// Ports over time: one row for each port and moment, if samples were requested.
pub fn sample_columns<R: Borrow<Report>>(reports: &[R]) -> Vec<Column> {
    Rows::new(reports, samples)
        .text("port", |_, (series, _)| series.port.clone())
        .number("at_us", |(series, at)| series.at_us.get(*at).copied())
        .whole("queued_bytes", |_, (series, at)| {
            series.queued_bytes.get(*at).map_or(0, |it| u64::from(*it))
        })
        .number("rate_bps", |(series, at)| series.rate_bps.get(*at).copied())
        .truth("paused", |(series, at)| {
            series.paused.get(*at).copied().unwrap_or_default()
        })
        .columns
}
