//! Converts batches of rows to the types of a table. A conversion that would lose information is an error.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::kernels::cmp::distinct;
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{
    DataType, Field, Float32Type, Float64Type, SchemaRef, TimeUnit, TimestampNanosecondType,
};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::util::display::{FormatOptions, array_value_to_string};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{DataFusionError, Result, exec_err, plan_err};
use taut_store::Table;
use taut_types::{LogicalType, Schema};

use crate::constraints::{Checks, GeneratedColumns};
use crate::error::{QueryError, Violation};
use crate::expressions::{
    Zone, is_bytes, is_float, narrowing_error, read_bytes, read_dates, read_floats, session_zone, write_texts,
};

/// Conversion from the batches of one source to those of one table, column by column.
#[derive(Debug)]
pub struct Coercion {
    table: String,
    target: SchemaRef,
    casts: Vec<bool>,
    /// Zone of text and of local times that become instants. `None` for UTC.
    zone: Option<Zone>,
    generated: GeneratedColumns,
    checks: Checks,
}

/// Cast options under which a value that does not fit is an error, not a null.
const STRICT: CastOptions<'static> = CastOptions { safe: false, format_options: FormatOptions::new() };

impl Coercion {
    /// Creates a conversion from the columns of a source to those of a table, matched by ordinal.
    ///
    /// # Errors
    /// If the numbers of columns differ, or a type cannot be cast.
    pub fn new(source: &SchemaRef, target: &Schema, table: &str) -> Result<Self> {
        Self::with_generated(source, target, table, GeneratedColumns::default())
    }

    fn with_generated(source: &SchemaRef, target: &Schema, table: &str, generated: GeneratedColumns) -> Result<Self> {
        if source.fields().len() != target.len() {
            return plan_err!(
                "table {table} has {} columns, the rows to insert {}",
                target.len(),
                source.fields().len()
            );
        }
        let arrow = target.arrow();
        let mut casts = Vec::with_capacity(target.len());
        for (index, (from, to)) in source.fields().iter().zip(arrow.fields()).enumerate() {
            if generated.contains(index) {
                casts.push(false);
                continue;
            }
            // A number is not cast to a date or timestamp: its unit and origin are unknown.
            let is_number_to_time = from.data_type().is_numeric() && to.data_type().is_temporal();
            if is_number_to_time || !datafusion::arrow::compute::can_cast_types(from.data_type(), to.data_type()) {
                let to_type = LogicalType::from_arrow(to.data_type()).map_or_else(String::new, |t| t.sql_name());
                return plan_err!(
                    "column {:?} of table {table} is {to_type}; {} does not fit it",
                    to.name(),
                    from.data_type()
                );
            }
            casts.push(from.data_type() != to.data_type());
        }
        Ok(Self { table: table.to_owned(), target: arrow, casts, zone: None, generated, checks: Checks::default() })
    }

    /// Like [`Coercion::new`], for new rows of an existing table. Computes its generated columns, ignores values of the
    /// source for them, and checks its check constraints.
    ///
    /// # Errors
    /// If the numbers of columns differ, a type cannot be cast, or an expression of the table cannot be compiled.
    pub fn for_table(source: &SchemaRef, table: &Table) -> Result<Self> {
        let checks = Checks::compile(table).map_err(|error| DataFusionError::External(Box::new(error)))?;
        Ok(Self { checks, ..Self::without_checks(source, table)? })
    }

    /// Like [`Coercion::for_table`], without the check constraints.
    ///
    /// # Errors
    /// If the numbers of columns differ, a type cannot be cast, or an expression of the table cannot be compiled.
    pub fn without_checks(source: &SchemaRef, table: &Table) -> Result<Self> {
        let generated = GeneratedColumns::compile(table);
        let generated = generated.map_err(|error| DataFusionError::External(Box::new(error)))?;
        Self::with_generated(source, &table.schema, &table.name, generated)
    }

    /// Converts text and local times to instants in the time zone of a session.
    pub fn in_zone(self, config: &ConfigOptions) -> Self {
        Self { zone: session_zone(config), ..self }
    }

    /// Schema of the table.
    pub fn target(&self) -> &SchemaRef {
        &self.target
    }

    /// Converts a batch to the types of the table.
    ///
    /// # Errors
    /// If a value does not fit its column, is null in a NOT NULL column, or fails a check constraint.
    pub fn coerce(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let mut columns = Vec::with_capacity(batch.num_columns());
        let fields = self.target.fields();
        for (index, ((array, field), needs_cast)) in batch.columns().iter().zip(fields).zip(&self.casts).enumerate() {
            if !self.generated.contains(index) {
                self.check_nulls(array, field)?;
            }
            let array =
                if *needs_cast { self.cast(array, field.name(), field.data_type())? } else { Arc::clone(array) };
            columns.push(array);
        }
        self.generated.compute(&mut columns, batch.num_rows())?;
        let mut computed = columns.iter().zip(fields).enumerate().filter(|(index, _)| self.generated.contains(*index));
        computed.try_for_each(|(_, (array, field))| self.check_nulls(array, field))?;
        let rows = RecordBatch::try_new(Arc::clone(&self.target), columns)?;
        self.checks.check(&rows)?;
        Ok(rows)
    }

    fn check_nulls(&self, array: &ArrayRef, field: &Field) -> Result<()> {
        if field.is_nullable() || array.logical_null_count() == 0 {
            return Ok(());
        }
        let error = Violation::Null { table: self.table.clone(), column: field.name().clone() };
        Err(DataFusionError::External(Box::new(QueryError::from(error))))
    }

    fn cast(&self, array: &ArrayRef, name: &str, target: &DataType) -> Result<ArrayRef> {
        if let DataType::Timestamp(TimeUnit::Nanosecond, _) = array.data_type() {
            let nanoseconds = array.as_primitive::<TimestampNanosecondType>();
            if let Some(finer) = nanoseconds.iter().flatten().find(|value| value % 1_000 != 0) {
                return exec_err!(
                    "column {name:?} of table {}: timestamps have microseconds, but here is one of {finer} nanoseconds \
                     since 1970; round it first, such as by date_trunc('microsecond', {name})",
                    self.table
                );
            }
        }
        // Decodes dictionaries first: a null among the values of a dictionary is visible only in the decoded array.
        let array = match array.data_type() {
            DataType::Dictionary(_, values) => &cast_with_options(array, values, &STRICT)?,
            _ => array,
        };
        let zoned = match &self.zone {
            Some(zone) if matches!(target, DataType::Timestamp(_, Some(_))) => zone.instants(array),
            _ => Ok(Arc::clone(array)),
        };
        match zoned.and_then(|array| exact_cast(&array, target)) {
            Ok(array) => Ok(array),
            Err(error) => {
                let (table, column) = (self.table.clone(), name.to_owned());
                let is_text = matches!(array.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
                Err(DataFusionError::External(Box::new(QueryError::Cast { table, column, is_text, cause: error })))
            }
        }
    }
}

/// Casts an array without losing information.
///
/// # Errors
/// If a value does not fit the type, or a number would be truncated.
pub(crate) fn exact_cast(array: &ArrayRef, target: &DataType) -> std::result::Result<ArrayRef, ArrowError> {
    let is_text = matches!(array.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    if is_text && target.is_temporal() {
        return read_dates(array, target, false);
    }
    if is_text && is_bytes(target) {
        return read_bytes(array, target, false);
    }
    if is_text && is_float(target) {
        return read_floats(array, target, false);
    }
    if is_float(array.data_type()) && target.is_string() {
        return cast_with_options(&write_texts(array)?, target, &STRICT);
    }
    let cast = cast_with_options(array, target, &STRICT)?;
    if let (Some(doubles), Some(reals)) =
        (array.as_primitive_opt::<Float64Type>(), cast.as_primitive_opt::<Float32Type>())
    {
        return narrowing_error(doubles, reals).map_or(Ok(cast), Err);
    }
    match first_lossy_row(array, &cast)? {
        Some(row) => {
            let value = array_value_to_string(array, row)?;
            // Worded like Arrow's own error, so that it gets the SQLSTATE of a number out of range.
            let what = format!(
                "Can't cast value {value} to {target}: digits would be lost; round it first, or choose a wider type"
            );
            Err(ArrowError::CastError(what))
        }
        None => Ok(cast),
    }
}

/// Index of the first row whose fraction a cast to an integer has truncated. Rounding to the digits of a decimal or
/// floating-point column is allowed, as in an SQL assignment.
fn first_lossy_row(array: &ArrayRef, cast: &ArrayRef) -> Result<Option<usize>, ArrowError> {
    let (from, to) = (array.data_type(), cast.data_type());
    if !((from.is_floating() || from.is_decimal()) && to.is_integer()) {
        return Ok(None);
    }
    let changed = distinct(&cast_with_options(cast, from, &STRICT)?, array)?;
    Ok(changed.values().set_indices().next())
}
