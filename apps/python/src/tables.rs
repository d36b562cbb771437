//! Tables of several reports at once.

use std::sync::Arc;

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use sim::report::collective_columns;
use sim::report::columns::{
    Column, flow_columns, hop_columns, port_columns, sample_columns, switch_columns,
    workload_columns,
};

use crate::report::Report;
use crate::table::Table;

/// One table of the rows of several reports. Their settings are its columns.
#[pyfunction]
pub(crate) fn tables_of(
    py: Python<'_>,
    kind: &str,
    reports: Vec<PyRef<'_, Report>>,
) -> PyResult<Table> {
    let reports: Vec<Arc<sim::report::Report>> =
        reports.iter().map(|report| Arc::clone(&report.0)).collect();
    let columns: fn(&[Arc<sim::report::Report>]) -> Vec<Column> = match kind {
        "collectives" => collective_columns,
        "flows" => flow_columns,
        "hops" => hop_columns,
        "ports" => port_columns,
        "samples" => sample_columns,
        "switches" => switch_columns,
        "workloads" => workload_columns,
        other => return Err(PyKeyError::new_err(format!("no table '{other}'"))),
    };
    Ok(Table::new(py.detach(|| columns(&reports))))
}
