//! A page that grows: columns to which rows are appended one after the other.

use arrow_array::builder::{
    ArrayBuilder, BinaryViewBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Float32Builder, Float64Builder,
    Int16Builder, Int32Builder, Int64Builder, StringViewBuilder, TimestampMicrosecondBuilder, make_builder,
};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use parking_lot::Mutex;
use taut_types::Schema;

/// Columns that grow. Rows are never changed; who reads says how many of them it knows of.
pub struct OpenPage {
    columns: Mutex<Columns>,
}

struct Columns {
    builders: Vec<Box<dyn ArrayBuilder>>,
    rows: usize,
    bytes: usize,
}

impl OpenPage {
    /// A page without rows.
    pub fn new(schema: &Schema) -> Self {
        let builders = schema.arrow().fields().iter().map(|field| make_builder(field.data_type(), 0)).collect();
        Self { columns: Mutex::new(Columns { builders, rows: 0, bytes: 0 }) }
    }

    /// Rows appended so far, for whomever.
    pub fn rows(&self) -> usize {
        self.columns.lock().rows
    }

    /// Bytes appended so far, about.
    pub fn bytes(&self) -> usize {
        self.columns.lock().bytes
    }

    /// Appends rows where the page has as many as `first`; tells whether it has.
    pub fn append_at(&self, first: usize, rows: &RecordBatch) -> bool {
        let mut columns = self.columns.lock();
        if columns.rows != first {
            return false;
        }
        for (builder, array) in columns.builders.iter_mut().zip(rows.columns()) {
            append(builder.as_mut(), array);
        }
        columns.rows += rows.num_rows();
        columns.bytes += super::bytes_of(rows);
        true
    }

    /// The first rows of some columns.
    pub fn columns(&self, places: &[usize], rows: usize) -> Vec<ArrayRef> {
        let columns = self.columns.lock();
        places.iter().map(|place| columns.builders[*place].finish_cloned().slice(0, rows)).collect()
    }
}

impl std::fmt::Debug for OpenPage {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "OpenPage({} rows)", self.rows())
    }
}

/// Appends an array to a builder of its type: one of those that columns of a table have.
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
        // Copied value by value: an array may be a part of buffers that are much larger.
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
