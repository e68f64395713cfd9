//! An open page: columns to which rows are appended.

use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, BinaryViewBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Float32Builder, Float64Builder,
    Int16Builder, Int32Builder, Int64Builder, PrimitiveBuilder, StringViewBuilder, TimestampMicrosecondBuilder,
    make_builder,
};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BinaryViewArray, BooleanArray, PrimitiveArray, RecordBatch, StringViewArray,
    new_null_array,
};
use arrow_buffer::{NullBuffer, bit_util};
use arrow_schema::{DataType, SchemaRef};
use parking_lot::Mutex;
use taut_types::Schema;

/// Growable columns. Appended rows never change. A reader passes the number of rows that its snapshot sees.
pub struct OpenPage {
    columns: Mutex<Columns>,
}

struct Columns {
    schema: SchemaRef,
    builders: Vec<Box<dyn ArrayBuilder>>,
    rows: usize,
    bytes: usize,
}

impl OpenPage {
    /// A page without rows.
    pub fn new(schema: &Schema) -> Self {
        let schema = schema.arrow();
        let builders = schema.fields().iter().map(|field| make_builder(field.data_type(), 0)).collect();
        Self { columns: Mutex::new(Columns { schema, builders, rows: 0, bytes: 0 }) }
    }

    /// Number of rows appended so far, by any transaction.
    pub fn rows(&self) -> usize {
        self.columns.lock().rows
    }

    /// Approximate bytes appended so far.
    pub fn bytes(&self) -> usize {
        self.columns.lock().bytes
    }

    /// Appends rows if the page has exactly `first` rows. Returns whether it appended them.
    pub fn append_at(&self, first: usize, rows: &RecordBatch) -> bool {
        let mut columns = self.columns.lock();
        if columns.rows != first {
            return false;
        }
        for (builder, array) in columns.builders.iter_mut().zip(rows.columns()) {
            append(builder.as_mut(), array);
        }
        columns.rows += rows.num_rows();
        columns.bytes += super::approximate_bytes(rows);
        true
    }

    /// The given rows of the given columns, by column index.
    ///
    /// # Panics
    /// If the page does not have one of the rows.
    pub fn rows_at(&self, columns: &[usize], rows: &[u32]) -> Vec<ArrayRef> {
        let stored = self.columns.lock();
        let types = stored.schema.fields();
        let gather = |column: &usize| gather_rows(stored.builders[*column].as_ref(), types[*column].data_type(), rows);
        columns.iter().map(gather).collect()
    }

    /// The first `rows` rows of the given columns, by column index.
    pub fn columns(&self, columns: &[usize], rows: usize) -> Vec<ArrayRef> {
        let stored = self.columns.lock();
        columns.iter().map(|column| stored.builders[*column].finish_cloned().slice(0, rows)).collect()
    }
}

impl std::fmt::Debug for OpenPage {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "OpenPage({} rows)", self.rows())
    }
}

/// Copies the given rows of a builder to an array.
fn gather_rows(builder: &dyn ArrayBuilder, data_type: &DataType, rows: &[u32]) -> ArrayRef {
    fn gather_numbers<T: ArrowPrimitiveType>(
        builder: &dyn ArrayBuilder,
        data_type: &DataType,
        rows: &[u32],
    ) -> Option<ArrayRef> {
        let builder = builder.as_any().downcast_ref::<PrimitiveBuilder<T>>()?;
        let (values, nulls) = (builder.values_slice(), gather_nulls(builder.validity_slice(), rows));
        let array = PrimitiveArray::<T>::new(rows.iter().map(|row| values[*row as usize]).collect(), nulls);
        Some(Arc::new(array.with_data_type(data_type.clone())))
    }
    let array = match data_type {
        DataType::Boolean => builder.as_any().downcast_ref::<BooleanBuilder>().map(|builder| {
            let (bits, nulls) = (builder.values_slice(), gather_nulls(builder.validity_slice(), rows));
            let values = rows.iter().map(|row| bit_util::get_bit(bits, *row as usize)).collect();
            Arc::new(BooleanArray::new(values, nulls)) as ArrayRef
        }),
        DataType::Int16 => gather_numbers::<Int16Type>(builder, data_type, rows),
        DataType::Int32 => gather_numbers::<Int32Type>(builder, data_type, rows),
        DataType::Int64 => gather_numbers::<Int64Type>(builder, data_type, rows),
        DataType::Float32 => gather_numbers::<Float32Type>(builder, data_type, rows),
        DataType::Float64 => gather_numbers::<Float64Type>(builder, data_type, rows),
        DataType::Decimal128(..) => gather_numbers::<Decimal128Type>(builder, data_type, rows),
        DataType::Date32 => gather_numbers::<Date32Type>(builder, data_type, rows),
        DataType::Timestamp(..) => gather_numbers::<TimestampMicrosecondType>(builder, data_type, rows),
        DataType::Utf8View => builder.as_any().downcast_ref::<StringViewBuilder>().map(|builder| {
            let nulls = gather_nulls(builder.validity_slice(), rows);
            let value = |(row, index): (&u32, usize)| {
                let is_valid = nulls.as_ref().is_none_or(|nulls| nulls.is_valid(index));
                is_valid.then(|| str::from_utf8(builder.get_value(*row as usize)).ok()).flatten()
            };
            Arc::new(rows.iter().zip(0..).map(value).collect::<StringViewArray>()) as ArrayRef
        }),
        DataType::BinaryView => builder.as_any().downcast_ref::<BinaryViewBuilder>().map(|builder| {
            let nulls = gather_nulls(builder.validity_slice(), rows);
            let value = |(row, index): (&u32, usize)| {
                let is_valid = nulls.as_ref().is_none_or(|nulls| nulls.is_valid(index));
                is_valid.then(|| builder.get_value(*row as usize))
            };
            Arc::new(rows.iter().zip(0..).map(value).collect::<BinaryViewArray>()) as ArrayRef
        }),
        _ => None,
    };
    debug_assert!(array.is_some(), "no column has type {data_type}");
    array.unwrap_or_else(|| new_null_array(data_type, rows.len()))
}

/// The null bits of the given rows, from the validity bits of all rows.
fn gather_nulls(validity: Option<&[u8]>, rows: &[u32]) -> Option<NullBuffer> {
    let validity = validity?;
    let nulls = NullBuffer::from_iter(rows.iter().map(|row| bit_util::get_bit(validity, *row as usize)));
    (nulls.null_count() > 0).then_some(nulls)
}

/// Appends an array to a builder of the same type, which must be a type of table columns.
fn append(builder: &mut dyn ArrayBuilder, array: &ArrayRef) {
    macro_rules! append {
        ($builder:ty, $array:expr) => {
            if let Some(builder) = builder.as_any_mut().downcast_mut::<$builder>() {
                builder.append_array($array);
            }
        };
    }
    match array.data_type() {
        DataType::Boolean => append!(BooleanBuilder, array.as_boolean()),
        DataType::Int16 => append!(Int16Builder, array.as_primitive()),
        DataType::Int32 => append!(Int32Builder, array.as_primitive()),
        DataType::Int64 => append!(Int64Builder, array.as_primitive()),
        DataType::Float32 => append!(Float32Builder, array.as_primitive()),
        DataType::Float64 => append!(Float64Builder, array.as_primitive()),
        DataType::Decimal128(..) => append!(Decimal128Builder, array.as_primitive()),
        DataType::Date32 => append!(Date32Builder, array.as_primitive()),
        DataType::Timestamp(..) => append!(TimestampMicrosecondBuilder, array.as_primitive()),
        // Copied value by value, because an array may be a slice of much larger buffers.
        DataType::Utf8View => {
            if let Some(builder) = builder.as_any_mut().downcast_mut::<StringViewBuilder>() {
                array.as_string_view().iter().for_each(|value| builder.append_option(value));
            }
        }
        DataType::BinaryView => {
            if let Some(builder) = builder.as_any_mut().downcast_mut::<BinaryViewBuilder>() {
                array.as_binary_view().iter().for_each(|value| builder.append_option(value));
            }
        }
        other => debug_assert!(false, "no column has type {other}"),
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::UInt32Array;
    use arrow_select::take::take;
    use taut_testkit::array_of;
    use taut_types::{Column, Datum, LogicalType};

    use super::*;

    const ROWS: i128 = 30;

    #[test]
    fn rows_at_returns_the_same_values_as_columns() {
        let types = [
            LogicalType::Boolean,
            LogicalType::SmallInt,
            LogicalType::Integer,
            LogicalType::BigInt,
            LogicalType::Real,
            LogicalType::Double,
            LogicalType::Decimal { precision: 20, scale: 3 },
            LogicalType::Date,
            LogicalType::Timestamp,
            LogicalType::TimestampTz,
            LogicalType::Varchar,
            LogicalType::Bytea,
        ];
        let columns: Vec<Column> = (0..2 * types.len())
            .map(|ordinal| Column::new(format!("c{ordinal}"), types[ordinal / 2], ordinal % 2 == 0))
            .collect();
        let array = |column: &Column| {
            let key = |row: i128| match column.logical_type {
                LogicalType::Boolean => Datum::Number(row % 2),
                LogicalType::Varchar | LogicalType::Bytea => {
                    Datum::Bytes("long ".repeat(row as usize % 5).into_bytes().into())
                }
                _ => Datum::Number(row * 7 - 40),
            };
            let values: Vec<_> =
                (0..ROWS).map(|row| Some(key(row)).filter(|_| !column.nullable || row % 3 > 0)).collect();
            array_of(&values, column.logical_type)
        };
        let arrays: Vec<ArrayRef> = columns.iter().map(array).collect();
        let schema = Schema::new(columns).unwrap();
        let batch = RecordBatch::try_new(schema.arrow(), arrays).unwrap();
        let page = OpenPage::new(&schema);
        assert!(page.append_at(0, &batch.slice(0, 11)) && page.append_at(11, &batch.slice(11, 19)));
        let ordinals: Vec<usize> = (0..schema.len()).rev().collect();
        for rows in [vec![], vec![29], vec![0, 3, 11, 28], (0..30).collect()] {
            let found = page.rows_at(&ordinals, &rows);
            for (ordinal, array) in ordinals.iter().zip(found) {
                let expected = take(batch.column(*ordinal), &UInt32Array::from(rows.clone()), None).unwrap();
                assert_eq!(&array, &expected, "{} at {rows:?}", schema.arrow().field(*ordinal));
            }
        }
    }
}
