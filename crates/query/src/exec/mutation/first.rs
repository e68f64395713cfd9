//! `ON CONFLICT DO NOTHING` among the rows of one statement: of the rows to insert that share a key, keeps only the
//! first. The later rows conflict with it.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, BooleanArray};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::row::{OwnedRow, RowConverter, Rows, SortField};
use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};

/// Key values of the rows selected so far.
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
    /// Creates an empty set of values for each key. A key is a list of column ordinals of the batches.
    ///
    /// # Errors
    /// If a column has a type that cannot be compared.
    pub fn new(
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

    /// Selects each row of a batch that shares no key with a row selected before. Returns true for these rows. A key
    /// with a null never equals another key.
    ///
    /// # Errors
    /// If the keys exceed the memory limit.
    pub fn select_first(&mut self, batch: &RecordBatch) -> Result<BooleanArray> {
        let mut keys = Vec::with_capacity(self.keys.len());
        for key in &self.keys {
            let columns: Vec<ArrayRef> = key.columns.iter().map(|column| Arc::clone(batch.column(*column))).collect();
            keys.push((key.converter.convert_columns(&columns)?, columns));
        }
        let (mut is_first, mut bytes) = (Vec::with_capacity(batch.num_rows()), 0);
        for index in 0..batch.num_rows() {
            let key_of = |(rows, columns): &(Rows, Vec<ArrayRef>)| {
                columns.iter().all(|column| column.is_valid(index)).then(|| rows.row(index).owned())
            };
            let row_keys: Vec<Option<OwnedRow>> = keys.iter().map(key_of).collect();
            let mut seen = self.keys.iter().zip(&row_keys);
            let is_new = !seen.any(|(key, row)| row.as_ref().is_some_and(|row| key.seen.contains(row)));
            is_first.push(is_new);
            // Later rows do not conflict with a dropped row.
            for (key, row) in self.keys.iter_mut().zip(row_keys).filter(|_| is_new) {
                if let Some(row) = row {
                    bytes += row.as_ref().len() + size_of::<OwnedRow>() * 2;
                    key.seen.insert(row);
                }
            }
        }
        self.reservation.try_grow(bytes)?;
        Ok(BooleanArray::from(is_first))
    }
}
