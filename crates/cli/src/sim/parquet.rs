//! Flows as Parquet, and what became of them port by port: one row each, for pandas, DuckDB and the like.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use ::sim::report::{FlowReport, HopReport, Report};
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};

use crate::Error;

/// A flow with the run that it belongs to.
type Row<'a> = (usize, &'a Report, &'a FlowReport);

/// A port that a flow crossed: its place on the way, and the flow's number.
type HopRow<'a> = (Row<'a>, usize, usize, &'a HopReport);

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
    save(path, "flows", &columns(reports))
}

/// Writes the ports that the flows of all reports crossed, in the order of their ways.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn write_hops(path: &Path, reports: &[Report]) -> Result<(), Error> {
    save(path, "hops", &hop_columns(reports))
}

fn save(path: &Path, name: &str, columns: &[(String, Values)]) -> Result<(), Error> {
    let file = File::create(path).map_err(Error::file(path))?;
    fill(file, name, columns).map_err(|source| Error::Parquet { path: path.to_owned(), source })
}

fn workload_name((_, report, flow): &Row<'_>) -> String {
    report.workloads.get(flow.workload).map_or_else(String::new, |workload| workload.name.clone())
}

/// The values of a sweep, by path.
fn settings<T>(reports: &[Report], rows: &[T], report: impl Fn(&T) -> &Report) -> Vec<(String, Values)> {
    let paths = reports.first().map(|report| report.settings.as_slice()).unwrap_or_default();
    let column = |(index, (path, _)): (usize, &(String, String))| {
        let value =
            |row: &T| report(row).settings.get(index).map_or_else(String::new, |(_, value)| value.clone());
        (path.clone(), Values::Text(rows.iter().map(value).collect()))
    };
    paths.iter().enumerate().map(column).collect()
}

fn columns(reports: &[Report]) -> Vec<(String, Values)> {
    let numbered = reports.iter().enumerate();
    let rows: Vec<Row<'_>> =
        numbered.flat_map(|(run, report)| report.flows.iter().map(move |flow| (run, report, flow))).collect();
    let text = |of: &dyn Fn(&Row<'_>) -> String| Values::Text(rows.iter().map(of).collect());
    let whole = |of: &dyn Fn(&Row<'_>) -> u64| Values::Whole(rows.iter().map(|row| of(row) as i64).collect());
    let number = |of: &dyn Fn(&Row<'_>) -> Option<f64>| Values::Number(rows.iter().map(of).collect());
    let mut columns = vec![("run".to_owned(), whole(&|row| row.0 as u64))];
    columns.extend(settings(reports, &rows, |row| row.1));
    columns.extend([
        ("seed".to_owned(), whole(&|row| row.1.seed)),
        ("workload".to_owned(), text(&workload_name)),
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

fn hop_columns(reports: &[Report]) -> Vec<(String, Values)> {
    let flows = reports.iter().enumerate().flat_map(|(run, report)| {
        report.flows.iter().enumerate().map(move |(number, flow)| ((run, report, flow), number))
    });
    let rows: Vec<HopRow<'_>> = flows
        .flat_map(|(row, number)| {
            row.2.hops.iter().enumerate().map(move |(place, hop)| (row, number, place, hop))
        })
        .collect();
    let text = |of: &dyn Fn(&HopRow<'_>) -> String| Values::Text(rows.iter().map(of).collect());
    let whole =
        |of: &dyn Fn(&HopRow<'_>) -> u64| Values::Whole(rows.iter().map(|row| of(row) as i64).collect());
    let number =
        |of: &dyn Fn(&HopRow<'_>) -> f64| Values::Number(rows.iter().map(|row| Some(of(row))).collect());
    let mut columns = vec![("run".to_owned(), whole(&|row| row.0.0 as u64))];
    columns.extend(settings(reports, &rows, |row| row.0.1));
    columns.extend([
        ("seed".to_owned(), whole(&|row| row.0.1.seed)),
        ("workload".to_owned(), text(&|row| workload_name(&row.0))),
        ("flow".to_owned(), whole(&|row| row.1 as u64)),
        ("from".to_owned(), text(&|row| row.0.2.from.clone())),
        ("to".to_owned(), text(&|row| row.0.2.to.clone())),
        ("hop".to_owned(), whole(&|row| row.2 as u64)),
        ("port".to_owned(), text(&|row| row.3.port.clone())),
        ("next".to_owned(), text(&|row| row.3.to.clone())),
        ("packets".to_owned(), whole(&|row| row.3.packets)),
        ("bytes".to_owned(), whole(&|row| row.3.bytes)),
        ("marked".to_owned(), whole(&|row| row.3.marked)),
        ("lost".to_owned(), whole(&|row| row.3.lost)),
        ("waited_mean_us".to_owned(), number(&|row| row.3.waited_mean_us)),
        ("waited_max_us".to_owned(), number(&|row| row.3.waited_max_us)),
        ("waited_us".to_owned(), number(&|row| row.3.waited_us)),
        ("paused_us".to_owned(), number(&|row| row.3.paused_us)),
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

fn fill(file: File, name: &str, columns: &[(String, Values)]) -> Result<(), ParquetError> {
    let fields = columns.iter().map(|(name, values)| field(name, values)).collect::<Result<Vec<_>, _>>()?;
    let schema = Type::group_type_builder(name).with_fields(fields).build()?;
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
