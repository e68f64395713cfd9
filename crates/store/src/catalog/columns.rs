//! Changes to the columns of one table. Blocks keep the columns with which they were written: a [`ColumnMap`] maps the
//! current columns of the table to those of a block. Rows in no block are changed in memory.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_select::take::take;
use taut_block::{AddedColumn, ColumnMap};
use taut_types::{Column, ColumnIndex, Datum, LogicalType, Schema, array_of_datum};

use super::change::Change;
use super::check::check_design;
use super::table_blocks::{columns_error, partitions_of};
use super::{BlockEntry, Catalog, SortBounds, Table, TableId, TablePartitions};
use crate::BlockFile;
use crate::delta::ContainerId;
use crate::error::CommitError;

/// Appends a column to the table. Its value in all existing rows is `value`, or null.
pub(super) fn add_column(table: &mut Table, column: &Column, value: Option<&Datum>) -> Result<(), CommitError> {
    let has_rows = table.block_rows() > 0 || !table.delta.has_no_pages();
    if !column.nullable && value.is_none() && has_rows {
        return Err(CommitError::MayHoldNulls { table: table.name.clone() });
    }
    let logical_type = column.logical_type;
    let array = array_of_datum(value, logical_type)
        .ok_or_else(|| differ(table, format!("the value of added column {:?}", column.name)))?;
    let schema = with_columns(table, |columns| columns.push(column.clone()))?;
    let added = AddedColumn { logical_type, value: value.cloned() };
    let statistics = added
        .statistics(table.block_rows())
        .map_err(|error| differ(table, format!("the value of added column {:?}: {error}", column.name)))?;
    let columns_before = table.schema.len();
    map_blocks(table, |block| {
        let before = block.columns().map(|map| map.with_added(added.clone()));
        let map = before.unwrap_or_else(|| ColumnMap::identity(columns_before).with_added(added.clone()));
        (block.entry().clone(), map)
    });
    Arc::make_mut(&mut table.statistics).push(statistics);
    change_pages(table, &schema, |mut columns, rows| {
        // A page has at most 65,536 rows.
        columns.push(take(&array, &UInt32Array::from(vec![0; rows]), None)?);
        Ok(columns)
    })?;
    table.design = Arc::new(table.design.with_column(ColumnIndex::from(columns_before)));
    table.schema = schema;
    Ok(())
}

/// Drops a column that no constraint, index, sort order or partitioning uses.
pub(super) fn drop_column(table: &mut Table, column: ColumnIndex) -> Result<(), CommitError> {
    let dropped = table.schema.columns().get(column.index()).ok_or_else(|| no_column(table, column))?;
    let in_use = || CommitError::ColumnInUse { table: table.name.clone(), column: dropped.name.clone() };
    let design = table.design.without_column(column).ok_or_else(in_use)?;
    let constraints = table.constraints.without_column(column);
    let constraints = constraints.and_then(|constraints| constraints.without_referenced_column(table.id, column));
    let constraints = constraints.ok_or_else(in_use)?;
    let schema = with_columns(table, |columns| drop(columns.remove(column.index())))?;
    let columns_before = table.schema.len();
    map_blocks(table, |block| {
        let map = block.columns().map_or_else(|| ColumnMap::identity(columns_before), |map| map.as_ref().clone());
        let bounds = block.entry().sort_bounds.iter().cloned();
        let kept = |bounds: SortBounds| Some(SortBounds { column: bounds.column.after_drop(column)?, ..bounds });
        let sort_bounds = bounds.filter_map(kept).collect();
        (BlockEntry { sort_bounds, ..block.entry().clone() }, map.without(column))
    });
    if let (Some(by), Some(partitions)) = (design.partition_by, &table.partitions) {
        let partitioning = partitions.partitioning.with_column(by.column);
        let of_blocks = partitions.of_blocks.clone();
        table.partitions = Some(Arc::new(TablePartitions { partitioning, of_blocks }));
    }
    Arc::make_mut(&mut table.statistics).remove(column.index());
    // Pages are indexed by their columns, so the keys are removed before the pages change.
    table.delta.set_keys([]);
    change_pages(table, &schema, |mut columns, _| {
        columns.remove(column.index());
        Ok(columns)
    })?;
    table.delta.set_keys(constraints.lookup_columns().iter().map(|columns| &**columns));
    (table.design, table.constraints, table.schema) = (Arc::new(design), Arc::new(constraints), schema);
    Ok(())
}

/// Renames a column.
pub(super) fn rename_column(table: &mut Table, column: ColumnIndex, name: &str) -> Result<(), CommitError> {
    check_column_exists(table, column)?;
    table.schema = with_columns(table, |columns| name.clone_into(&mut columns[column.index()].name))?;
    Ok(())
}

/// Sets the type of a column of a table without rows.
pub(super) fn set_type(
    table: &mut Table,
    column: ColumnIndex,
    logical_type: LogicalType,
    catalog: &Catalog,
) -> Result<(), CommitError> {
    check_column_exists(table, column)?;
    if !table.blocks.is_empty() || !table.delta.has_no_pages() {
        return Err(CommitError::HasRows { table: table.name.clone() });
    }
    let schema = with_columns(table, |columns| columns[column.index()].logical_type = logical_type)?;
    check_design(&table.design, &schema).map_err(|what| differ(table, what))?;
    let fits = table.constraints.check(table.id, &schema, catalog);
    fits.map_err(|expected| CommitError::Constraints { table: table.name.clone(), expected })?;
    if table.design.partition_by.is_some_and(|by| by.column == column) {
        table.partitions = partitions_of(&table.design, 0);
    }
    table.schema = schema;
    Ok(())
}

/// Applies a change of columns to `rows`, which have the columns of `schema`. Returns `None` if `change` is of another
/// kind or fails.
pub(crate) fn change_rows(rows: &RecordBatch, change: &Change, schema: &Arc<Schema>) -> Option<Vec<RecordBatch>> {
    const PAGE: ContainerId = ContainerId(0);
    let mut table = Table::empty(TableId(0), "", Arc::clone(schema), Arc::default());
    table.delta.append(schema, (PAGE, 0), rows).ok()?;
    match change {
        Change::AddColumn { column, value, .. } => add_column(&mut table, column, value.as_ref()).ok()?,
        Change::DropColumn { column, .. } => drop_column(&mut table, *column).ok()?,
        Change::RenameColumn { column, name, .. } => rename_column(&mut table, *column, name).ok()?,
        Change::SetNullable { .. } => return Some(vec![rows.clone()]),
        _ => return None,
    }
    table.delta.pages().iter().map(|page| page.batch(&table.schema).ok()).collect()
}

fn differ(table: &Table, what: String) -> CommitError {
    columns_error(&table.name, &table.schema, what)
}

fn no_column(table: &Table, column: ColumnIndex) -> CommitError {
    differ(table, format!("column {}", column.0))
}

fn check_column_exists(table: &Table, column: ColumnIndex) -> Result<(), CommitError> {
    if column.index() < table.schema.len() { Ok(()) } else { Err(no_column(table, column)) }
}

/// The schema of a table after a change of its columns.
fn with_columns(table: &Table, change: impl FnOnce(&mut Vec<Column>)) -> Result<Arc<Schema>, CommitError> {
    let mut columns = table.schema.columns().to_vec();
    change(&mut columns);
    Schema::new(columns).map(Arc::new).map_err(|source| CommitError::Schema { table: table.name.clone(), source })
}

/// Replaces the map of columns of each block. Blocks with equal maps share one.
fn map_blocks(table: &mut Table, new_map: impl Fn(&BlockFile) -> (BlockEntry, ColumnMap)) {
    let mut shared: Vec<Arc<ColumnMap>> = Vec::new();
    let mapped = table.blocks.iter().map(|block| {
        let (entry, map) = new_map(block);
        // Blocks with equal maps are mostly neighbours.
        let map = shared.iter().rev().find(|other| ***other == map).cloned().unwrap_or_else(|| {
            let map = Arc::new(map);
            shared.push(Arc::clone(&map));
            map
        });
        Arc::new(block.with_columns(entry, Some(map)))
    });
    table.blocks = Arc::new(mapped.collect());
}

/// Changes the columns of all pages. `change` gets the columns of a page and its number of rows.
fn change_pages(
    table: &mut Table,
    schema: &Schema,
    change: impl Fn(Vec<ArrayRef>, usize) -> Result<Vec<ArrayRef>, arrow_schema::ArrowError>,
) -> Result<(), CommitError> {
    let name = &table.name;
    table
        .delta
        .change_columns(table.schema.len(), schema, change)
        .map_err(|_| CommitError::Misplaced { table: name.clone() })
}
