//! Row ids of rows that move to other blocks. In the stream of rows, the old row ids are an additional last column,
//! which the block does not store. If a row is changed concurrently, the store uses the ids to find its new position.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{Field, Schema as ArrowSchema, SchemaRef, UInt64Type};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result;
use parking_lot::Mutex;
use taut_block::{BlockBuilder, BlockImage, BuildError};
use taut_store::{BlockId, NewBlock, ReadError, RowId, RowRelocations};
use taut_types::{Schema, TableDesign};

use crate::write::coerce::Coercion;

/// Old row ids of the rows in new blocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct OldIds(Arc<Mutex<HashMap<BlockId, Vec<RowId>>>>);

impl OldIds {
    pub fn insert(&self, block: BlockId, ids: Vec<RowId>) {
        self.0.lock().insert(block, ids);
    }

    /// Returns the row relocations of some new blocks, or `None` if their rows had no ids.
    ///
    /// # Errors
    /// If the header of a block cannot be read.
    pub fn relocations(&self, blocks: &[NewBlock]) -> std::result::Result<Option<RowRelocations>, ReadError> {
        let mut ids_by_block = self.0.lock();
        let mut relocations = RowRelocations::default();
        for block in blocks {
            let Some(ids) = ids_by_block.remove(&block.entry().id) else { return Ok(None) };
            relocations.push(block, ids)?;
        }
        Ok(Some(relocations))
    }
}

/// A block that is being built, with the old ids of its rows.
pub(crate) struct BlockInProgress {
    block: BlockBuilder,
    columns: Vec<usize>,
    old_ids: Vec<RowId>,
}

impl BlockInProgress {
    pub fn new(schema: Arc<Schema>, design: Arc<TableDesign>) -> Self {
        let columns = (0..schema.len()).collect();
        Self { block: BlockBuilder::new(schema, design), columns, old_ids: Vec::new() }
    }

    /// Appends rows. If the batch has an additional column, it holds the old row ids.
    pub fn push(&mut self, batch: &RecordBatch) -> std::result::Result<(), BuildError> {
        let ids = batch.columns().get(self.columns.len()).and_then(|ids| ids.as_primitive_opt::<UInt64Type>());
        let Some(ids) = ids else { return self.block.push(batch) };
        let stored = batch.project(&self.columns);
        self.block.push(stored.as_ref().unwrap_or(batch))?;
        self.old_ids.extend(ids.values().iter().map(|id| RowId(*id)));
        Ok(())
    }

    pub fn is_full(&self) -> bool {
        self.block.is_full()
    }

    pub fn rows(&self) -> u64 {
        self.block.rows()
    }

    pub fn finish(self) -> std::result::Result<(BlockImage, Vec<RowId>), BuildError> {
        Ok((self.block.finish()?, self.old_ids))
    }
}

/// Conversion of rows to the types of a table. Keeps an additional last column with row ids if the source has one.
#[derive(Debug)]
pub(crate) struct CoercionWithRowIds {
    pub coercion: Coercion,
    /// Schema of the result.
    pub schema: SchemaRef,
    /// Ordinals of the table's columns, if there is an additional column.
    stored: Option<Vec<usize>>,
}

impl CoercionWithRowIds {
    /// Creates a conversion of rows without ids.
    pub fn without_ids(coercion: Coercion) -> Self {
        Self { schema: Arc::clone(coercion.target()), coercion, stored: None }
    }

    /// Creates a conversion of rows with ids as the last column.
    ///
    /// # Errors
    /// If the numbers of columns differ, or a type cannot be cast.
    pub fn with_ids(source: &SchemaRef, target: &Schema, table: &str) -> Result<Self> {
        let stored: Vec<usize> = (0..target.len()).collect();
        let coercion = Coercion::new(&Arc::new(source.project(&stored)?), target, table)?;
        let ids = source.fields().last().cloned();
        let fields: Vec<Arc<Field>> = coercion.target().fields().iter().cloned().chain(ids).collect();
        Ok(Self { coercion, schema: Arc::new(ArrowSchema::new(fields)), stored: Some(stored) })
    }

    /// Converts a batch to the types of the table.
    ///
    /// # Errors
    /// If a value does not fit its column, is null in a NOT NULL column, or fails a check constraint.
    pub fn coerce(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let Some(stored) = &self.stored else { return self.coercion.coerce(batch) };
        let coerced = self.coercion.coerce(&batch.project(stored)?)?;
        let columns = coerced.columns().iter().cloned().chain(batch.columns().last().cloned());
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns.collect())?)
    }
}
