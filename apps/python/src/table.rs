//! Tables of columns, for Arrow's readers and for pandas.

use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, RecordBatchIterator, StringArray,
};
use arrow_schema::{ArrowError, DataType, Field, Schema, ffi::FFI_ArrowSchema};
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyDict};
use sim::report::columns::{Column, Values};

use crate::html;

/// A table of named columns.
#[pyclass(frozen, module = "rockery._rockery")]
pub(crate) struct Table {
    columns: Vec<Column>,
}

impl Table {
    pub(crate) fn new(columns: Vec<Column>) -> Self {
        Self { columns }
    }

    /// The table for notebooks.
    pub(crate) fn html(&self) -> String {
        let row = |row| {
            self.columns
                .iter()
                .map(|(_, values)| text(values, row))
                .collect()
        };
        html::table(&self.column_names(), self.rows(), row)
    }

    /// The number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.columns.first().map_or(0, |(_, values)| values.len())
    }

    fn column(&self, name: &str) -> PyResult<&Values> {
        let found = self.columns.iter().find(|(known, _)| known == name);
        found.map(|(_, values)| values).ok_or_else(|| {
            let names: Vec<&str> = self.columns.iter().map(|(name, _)| name.as_str()).collect();
            PyKeyError::new_err(format!(
                "no column '{name}': there are {}",
                names.join(", ")
            ))
        })
    }

    fn schema(&self) -> Schema {
        let field = |(name, values): &Column| match values {
            Values::Text(_) => Field::new(name, DataType::Utf8, false),
            Values::Whole(_) => Field::new(name, DataType::Int64, false),
            Values::Number(_) => Field::new(name, DataType::Float64, true),
            Values::Truth(_) => Field::new(name, DataType::Boolean, false),
        };
        Schema::new(self.columns.iter().map(field).collect::<Vec<_>>())
    }

    fn batch(&self) -> Result<RecordBatch, ArrowError> {
        let array = |(_, values): &Column| -> ArrayRef {
            match values {
                Values::Text(texts) => Arc::new(StringArray::from_iter_values(texts)),
                Values::Whole(numbers) => Arc::new(Int64Array::from(numbers.clone())),
                Values::Number(numbers) => Arc::new(Float64Array::from(numbers.clone())),
                Values::Truth(truths) => Arc::new(BooleanArray::from(truths.clone())),
            }
        };
        RecordBatch::try_new(
            Arc::new(self.schema()),
            self.columns.iter().map(array).collect(),
        )
    }
}

fn refused(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

#[pymethods]
impl Table {
    /// The names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<&str> {
        self.columns.iter().map(|(name, _)| name.as_str()).collect()
    }

    fn __len__(&self) -> usize {
        self.rows()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        list(py, self.column(name)?)
    }

    /// All columns as lists, by name. Absent numbers are None.
    fn to_pydict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        for (name, values) in &self.columns {
            all.set_item(name, list(py, values)?)?;
        }
        Ok(all)
    }

    /// A pandas DataFrame. Absent numbers are NaN.
    fn to_pandas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let pandas = py.import("pandas")?;
        let numpy = py.import("numpy")?;
        let from = |bytes: Vec<u8>, kind: &str| {
            numpy.call_method1("frombuffer", (PyBytes::new(py, &bytes), kind))
        };
        let columns = PyDict::new(py);
        for (name, values) in &self.columns {
            let column = match values {
                Values::Text(_) => list(py, values)?,
                Values::Whole(numbers) => from(
                    numbers
                        .iter()
                        .flat_map(|number| number.to_ne_bytes())
                        .collect(),
                    "int64",
                )?,
                Values::Number(numbers) => {
                    let numbers = numbers.iter().map(|number| number.unwrap_or(f64::NAN));
                    from(numbers.flat_map(f64::to_ne_bytes).collect(), "float64")?
                }
                Values::Truth(truths) => from(
                    truths.iter().map(|truth| u8::from(*truth)).collect(),
                    "bool",
                )?,
            };
            columns.set_item(name, column)?;
        }
        pandas.call_method1("DataFrame", (columns,))
    }

    /// A pyarrow Table.
    fn to_arrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("pyarrow")?.call_method1("table", (slf,))
    }

    /// Arrow's PyCapsule interface: the schema.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.schema()).map_err(refused)?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// Arrow's PyCapsule interface: all rows, in one batch.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface lets a producer export another schema than the requested one.
        drop(requested_schema);
        let batch = self.batch().map_err(refused)?;
        let schema = batch.schema();
        let batches = RecordBatchIterator::new([Ok(batch)], schema);
        let stream = FFI_ArrowArrayStream::new(Box::new(batches));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    fn __repr__(&self) -> String {
        format!(
            "<rockery.Table: {} rows, columns {}>",
            self.rows(),
            self.column_names().join(", ")
        )
    }

    fn _repr_html_(&self) -> String {
        self.html()
    }
}

/// A value as text, for people.
fn text(values: &Values, row: usize) -> String {
    let found = match values {
        Values::Text(texts) => texts.get(row).cloned(),
        Values::Whole(numbers) => numbers.get(row).map(ToString::to_string),
        Values::Number(numbers) => numbers
            .get(row)
            .copied()
            .flatten()
            .map(|number| format!("{number:.4}")),
        Values::Truth(truths) => truths.get(row).map(ToString::to_string),
    };
    found.unwrap_or_default()
}

fn list<'py>(py: Python<'py>, values: &Values) -> PyResult<Bound<'py, PyAny>> {
    match values {
        Values::Text(texts) => texts.into_pyobject(py),
        Values::Whole(numbers) => numbers.into_pyobject(py),
        Values::Number(numbers) => numbers.into_pyobject(py),
        Values::Truth(truths) => truths.into_pyobject(py),
    }
}
