//! Flows as Parquet, and what became of them port by port: one row each, for pandas, DuckDB and the like.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use ::sim::report::columns::{Column, Values, flow_columns, hop_columns};
use ::sim::report::{Report, collective_columns};
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};

use crate::Error;

/// Writes the flows of all reports.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn write(path: &Path, reports: &[Report]) -> Result<(), Error> {
    save(path, "flows", &flow_columns(reports))
}

/// Writes the ports that the flows of all reports crossed, in the order of their paths.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn write_hops(path: &Path, reports: &[Report]) -> Result<(), Error> {
    save(path, "hops", &hop_columns(reports))
}

/// Writes the collectives and transfers of all reports.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn write_collectives(path: &Path, reports: &[Report]) -> Result<(), Error> {
    save(path, "collectives", &collective_columns(reports))
}

fn save(path: &Path, name: &str, columns: &[Column]) -> Result<(), Error> {
    let file = File::create(path).map_err(Error::file(path))?;
    fill(file, name, columns).map_err(|source| Error::Parquet {
        path: path.to_owned(),
        source,
    })
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

fn fill(file: File, name: &str, columns: &[Column]) -> Result<(), ParquetError> {
    let fields = columns
        .iter()
        .map(|(name, values)| field(name, values))
        .collect::<Result<Vec<_>, _>>()?;
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

fn column(
    group: &mut SerializedRowGroupWriter<'_, File>,
    values: &Values,
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General(
            "fewer columns than fields".to_owned(),
        ));
    };
    match values {
        Values::Text(texts) => {
            let bytes: Vec<ByteArray> = texts
                .iter()
                .map(|text| ByteArray::from(text.as_str()))
                .collect();
            column
                .typed::<ByteArrayType>()
                .write_batch(&bytes, None, None)?;
        }
        Values::Whole(numbers) => {
            column
                .typed::<Int64Type>()
                .write_batch(numbers, None, None)?;
        }
        Values::Number(numbers) => {
            let there: Vec<f64> = numbers.iter().copied().flatten().collect();
            let levels: Vec<i16> = numbers
                .iter()
                .map(|number| i16::from(number.is_some()))
                .collect();
            column
                .typed::<DoubleType>()
                .write_batch(&there, Some(&levels), None)?;
        }
        Values::Truth(truths) => {
            column.typed::<BoolType>().write_batch(truths, None, None)?;
        }
    }
    column.close()
}
