//! Flows as Parquet: one row each, for pandas, DuckDB and the like.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use ::sim::report::{FlowReport, Report};
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};

use crate::Error;

/// A flow with the run that it belongs to.
type Row<'a> = (usize, &'a Report, &'a FlowReport);

/// What a column holds.
enum Values {
    Text(Vec<String>),
    Whole(Vec<i64>),
    Number(Vec<Option<f64>>),
    Truth(Vec<bool>),
}

/// Writes the flows of all reports.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn write(path: &Path, reports: &[Report]) -> Result<(), Error> {
    let file = File::create(path).map_err(Error::file(path))?;
    let columns = columns(reports);
    fill(file, &columns).map_err(|source| Error::Parquet { path: path.to_owned(), source })
}

fn columns(reports: &[Report]) -> Vec<(String, Values)> {
    let numbered = reports.iter().enumerate();
    let rows: Vec<Row<'_>> =
        numbered.flat_map(|(run, report)| report.flows.iter().map(move |flow| (run, report, flow))).collect();
    let text = |of: &dyn Fn(&Row<'_>) -> String| Values::Text(rows.iter().map(of).collect());
    let whole = |of: &dyn Fn(&Row<'_>) -> u64| Values::Whole(rows.iter().map(|row| of(row) as i64).collect());
    let number = |of: &dyn Fn(&Row<'_>) -> Option<f64>| Values::Number(rows.iter().map(of).collect());
    let name = |(_, report, flow): &Row<'_>| {
        report.workloads.get(flow.workload).map_or_else(String::new, |workload| workload.name.clone())
    };
    let mut columns = vec![("run".to_owned(), whole(&|row| row.0 as u64))];
    let settings = reports.first().map(|report| report.settings.as_slice()).unwrap_or_default();
    for (index, (path, _)) in settings.iter().enumerate() {
        let value =
            |row: &Row<'_>| row.1.settings.get(index).map_or_else(String::new, |(_, value)| value.clone());
        columns.push((path.clone(), text(&value)));
    }
    columns.extend([
        ("seed".to_owned(), whole(&|row| row.1.seed)),
        ("workload".to_owned(), text(&name)),
        ("from".to_owned(), text(&|row| row.2.from.clone())),
        ("to".to_owned(), text(&|row| row.2.to.clone())),
        ("bytes".to_owned(), whole(&|row| row.2.bytes)),
        ("start_us".to_owned(), number(&|row| Some(row.2.start_us))),
        ("completion_us".to_owned(), number(&|row| row.2.completion_us)),
        ("slowdown".to_owned(), number(&|row| row.2.slowdown)),
        ("goodput_bps".to_owned(), number(&|row| row.2.goodput_bps)),
        ("retransmitted".to_owned(), whole(&|row| row.2.retransmitted)),
        ("notifications".to_owned(), whole(&|row| row.2.notifications)),
        ("failed".to_owned(), Values::Truth(rows.iter().map(|row| row.2.failed).collect())),
    ]);
    columns
}

fn field(name: &str, values: &Values) -> Result<TypePtr, ParquetError> {
    let (physical, repetition) = match values {
        Values::Text(_) => (Physical::BYTE_ARRAY, Repetition::REQUIRED),
        Values::Whole(_) => (Physical::INT64, Repetition::REQUIRED),
        Values::Number(_) => (Physical::DOUBLE, Repetition::OPTIONAL),
        Values::Truth(_) => (Physical::BOOLEAN, Repetition::REQUIRED),
    };
    let logical = matches!(values, Values::Text(_)).then_some(LogicalType::String);
    let built = Type::primitive_type_builder(name, physical).with_repetition(repetition);
    Ok(Arc::new(built.with_logical_type(logical).build()?))
}

fn fill(file: File, columns: &[(String, Values)]) -> Result<(), ParquetError> {
    let fields = columns.iter().map(|(name, values)| field(name, values)).collect::<Result<Vec<_>, _>>()?;
    let schema = Type::group_type_builder("flows").with_fields(fields).build()?;
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(file, Arc::new(schema), properties)?;
    let mut group = writer.next_row_group()?;
    for (_, values) in columns {
        column(&mut group, values)?;
    }
    group.close()?;
    writer.close()?;
    Ok(())
}

fn column(group: &mut SerializedRowGroupWriter<'_, File>, values: &Values) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General("fewer columns than fields".to_owned()));
    };
    match values {
        Values::Text(texts) => {
            let bytes: Vec<ByteArray> = texts.iter().map(|text| ByteArray::from(text.as_str())).collect();
            column.typed::<ByteArrayType>().write_batch(&bytes, None, None)?;
        }
        Values::Whole(numbers) => {
            column.typed::<Int64Type>().write_batch(numbers, None, None)?;
        }
        Values::Number(numbers) => {
            let there: Vec<f64> = numbers.iter().copied().flatten().collect();
            let levels: Vec<i16> = numbers.iter().map(|number| i16::from(number.is_some())).collect();
            column.typed::<DoubleType>().write_batch(&there, Some(&levels), None)?;
        }
        Values::Truth(truths) => {
            column.typed::<BoolType>().write_batch(truths, None, None)?;
        }
    }
    column.close()
}
