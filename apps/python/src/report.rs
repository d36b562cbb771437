//! The results of a run.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use sim::report::columns::{
    flow_columns, hop_columns, port_columns, sample_columns, switch_columns, workload_columns,
};
use sim::report::{
    Severity, collective_columns, collectives_csv, flows_csv, hops_csv, ports_csv, table,
};

use crate::html;
use crate::table::Table;

/// A finding of a run about the configuration.
#[pyclass(frozen, eq, get_all, module = "rockery._rockery")]
#[derive(Clone, PartialEq)]
pub(crate) struct Finding {
    /// ``"broken"``: data was lost, or a transfer failed; ``"slow"``; or ``"note"``.
    severity: &'static str,
    /// The observation, with its numbers.
    seen: String,
    /// The setting that causes it.
    cause: String,
    /// The correction, as a command of the switch's vendor where the file names one.
    instead: String,
}

#[pymethods]
impl Finding {
    fn __repr__(&self) -> String {
        format!("Finding({}: {})", self.severity, self.seen)
    }

    fn __str__(&self) -> String {
        format!(
            "{}: {}\ncause: {}\ndo: {}",
            self.severity, self.seen, self.cause, self.instead
        )
    }
}

/// The results of one run.
#[pyclass(frozen, eq, module = "rockery._rockery")]
#[derive(PartialEq)]
pub(crate) struct Report(pub(crate) Arc<sim::report::Report>);

impl Report {
    fn table(
        &self,
        columns: fn(&[Arc<sim::report::Report>]) -> Vec<sim::report::columns::Column>,
    ) -> Table {
        Table::new(columns(std::slice::from_ref(&self.0)))
    }
}

#[pymethods]
impl Report {
    /// The report that `json` wrote, here or in the command `rockery sim --json`.
    #[staticmethod]
    fn from_json(py: Python<'_>, text: &str) -> PyResult<Self> {
        let read = py.detach(|| sim::report::Report::from_json(text));
        let report = read.map_err(|error| PyValueError::new_err(format!("no report: {error}")))?;
        Ok(Self(Arc::new(report)))
    }

    /// The report as JSON, as the command `rockery sim --json` writes it, without the newline at its end.
    fn json(&self, py: Python<'_>) -> String {
        py.detach(|| self.0.json())
    }

    /// The queue pairs as CSV, as `rockery sim --csv` writes them.
    fn flows_csv(&self) -> String {
        flows_csv(&self.0, None, true)
    }

    /// The ports and queues as CSV, as `rockery sim --csv` writes them.
    fn ports_csv(&self) -> String {
        ports_csv(&self.0)
    }

    /// The collectives and dependent transfers as CSV, as `rockery sim --csv` writes them.
    fn collectives_csv(&self) -> String {
        collectives_csv(&self.0, None, true)
    }

    /// Where the data of each queue pair waited as CSV, as `rockery sim --csv --hops` writes it.
    fn hops_csv(&self) -> String {
        hops_csv(&self.0, None, true)
    }

    /// The title of the fabric file.
    #[getter]
    fn title(&self) -> &str {
        &self.0.title
    }

    /// The seed of all random numbers.
    #[getter]
    fn seed(&self) -> u64 {
        self.0.seed
    }

    /// The settings of the sweep: paths and values.
    #[getter]
    fn settings(&self) -> Vec<(String, String)> {
        self.0.settings.clone()
    }

    /// Virtual time at the end, in seconds.
    #[getter]
    fn end_s(&self) -> f64 {
        self.0.end_s
    }

    /// Whether the run was stopped before its end.
    #[getter]
    fn partial(&self) -> bool {
        self.0.partial
    }

    /// Events that the simulator handled.
    #[getter]
    fn events(&self) -> u64 {
        self.0.events
    }

    /// Faults and notes, the worst first.
    #[getter]
    fn findings(&self) -> Vec<Finding> {
        let finding = |finding: &sim::report::Finding| Finding {
            severity: match finding.severity {
                Severity::Broken => "broken",
                Severity::Slow => "slow",
                Severity::Note => "note",
            },
            seen: finding.seen.clone(),
            cause: finding.cause.clone(),
            instead: finding.instead.clone(),
        };
        self.0.findings.iter().map(finding).collect()
    }

    /// One row for each workload, all of its queue pairs together.
    #[getter]
    fn workloads(&self) -> Table {
        self.table(workload_columns)
    }

    /// One row for each collective and dependent transfer.
    #[getter]
    fn collectives(&self) -> Table {
        self.table(collective_columns)
    }

    /// One row for each queue pair.
    #[getter]
    fn flows(&self) -> Table {
        self.table(flow_columns)
    }

    /// One row for each port that sent or received anything.
    #[getter]
    fn ports(&self) -> Table {
        self.table(port_columns)
    }

    /// One row for each switch.
    #[getter]
    fn switches(&self) -> Table {
        self.table(switch_columns)
    }

    /// One row for each queue pair and port on its path; empty without ``hops=True``.
    #[getter]
    fn hops(&self) -> Table {
        self.table(hop_columns)
    }

    /// One row for each port and moment; empty without ``sample``.
    #[getter]
    fn samples(&self) -> Table {
        self.table(sample_columns)
    }

    fn __str__(&self) -> String {
        table(&self.0)
    }

    fn __repr__(&self) -> String {
        let title = if self.0.title.is_empty() {
            "no title"
        } else {
            &self.0.title
        };
        let flows = self.0.flows.len();
        let (end_ms, seed) = (self.0.end_s * 1e3, self.0.seed);
        format!("<rockery.Report {title:?}: {flows} queue pairs, {end_ms:.3} ms, seed {seed}>")
    }

    /// For notebooks: the findings and the workloads.
    fn _repr_html_(&self) -> String {
        html::report(&self.0, &self.table(workload_columns).html())
    }

    /// For pickle: through JSON, which keeps every number.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        Ok((slf.get_type().getattr("from_json")?, (slf.get().0.json(),)))
    }
}
