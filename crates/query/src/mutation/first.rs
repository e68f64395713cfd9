//! Of rows to insert that have a key in common the first alone: the others conflict with it.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, BooleanArray};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};

/// The keys that were seen.
#[derive(Debug)]
pub struct FirstRows {
    keys: Vec<SeenKeys>,
    reservation: MemoryReservation,
}

#[derive(Debug)]
struct SeenKeys {
    columns: Vec<usize>,
    converter: RowConverter,
    seen: HashSet<OwnedRow>,
}

impl FirstRows {
    /// None yet, of keys over some columns of the batches.
    ///
    /// # Errors
    /// When a column has a type that cannot be compared.
    pub fn of(
        keys: &[Vec<usize>],
        schema: &datafusion::arrow::datatypes::Schema,
        context: &TaskContext,
    ) -> Result<Self> {
        let seen = |columns: &Vec<usize>| {
            let fields = columns.iter().map(|column| SortField::new(schema.field(*column).data_type().clone()));
            let converter = RowConverter::new(fields.collect())?;
            Ok(SeenKeys { columns: columns.clone(), converter, seen: HashSet::new() })
        };
        let reservation = MemoryConsumer::new("ON CONFLICT DO NOTHING").register(context.memory_pool());
        Ok(Self { keys: keys.iter().map(seen).collect::<Result<_>>()?, reservation })
    }

    /// Which rows of a batch have no key in common with one before that was first. A key with a null is like no other.
    ///
    /// # Errors
    /// When the keys take more memory than there is.
    pub fn of_batch(&mut self, batch: &RecordBatch) -> Result<BooleanArray> {
        let mut is_first = vec![true; batch.num_rows()];
        for key in &mut self.keys {
            let columns: Vec<ArrayRef> = key.columns.iter().map(|column| Arc::clone(batch.column(*column))).collect();
            let rows = key.converter.convert_columns(&columns)?;
            let mut bytes = 0;
            for (place, is_first) in is_first.iter_mut().enumerate().filter(|(_, is_first)| **is_first) {
                if columns.iter().all(|column| column.is_valid(place)) {
                    let row = rows.row(place).owned();
                    bytes += row.as_ref().len() + size_of::<OwnedRow>() * 2;
                    *is_first = key.seen.insert(row);
                }
            }
            self.reservation.try_grow(bytes)?;
        }
        Ok(BooleanArray::from(is_first))
    }
}
