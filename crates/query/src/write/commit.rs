//! Commits of rewritten rows, and checks that the table has not changed meanwhile.

use std::sync::Arc;

use taut_store::{Catalog, CatalogEdit, CommitError, NewBlock, OldRows, RowOrder, Table};
use taut_types::{Partitioning, TableDesign};

use crate::constraints::add_key_indexes;

/// Partitions of a table, if they are known.
pub(crate) fn partitioning_of(table: &Table) -> Option<Arc<Partitioning>> {
    table.partitions.as_ref().map(|partitions| Arc::new(partitions.partitioning.clone()))
}

/// Refuses to commit rows if the columns or constraints that they were made for have changed.
///
/// # Errors
/// If the columns or the constraints of the table have changed since it was looked up.
pub(crate) fn check_constraints(looked_up: &Table, catalog: &Catalog) -> std::result::Result<(), CommitError> {
    let is_same =
        |newest: &Arc<Table>| newest.constraints == looked_up.constraints && newest.schema == looked_up.schema;
    match catalog.table_of(looked_up.id).is_none_or(is_same) {
        true => Ok(()),
        false => Err(CommitError::ConstraintsChanged { table: looked_up.name.clone() }),
    }
}

/// Refuses to overwrite a change of another statement to the design of a table. Ignores changes of indexes.
///
/// # Errors
/// If the design has changed since the table was looked up.
pub(crate) fn check_design(looked_up: &Table, newest: &Table) -> std::result::Result<(), CommitError> {
    let indexes = || looked_up.design.indexes.clone();
    let newest_design = TableDesign { indexes: indexes(), ..newest.design.as_ref().clone() };
    match newest_design == *looked_up.design {
        true => Ok(()),
        false => Err(CommitError::Design { table: looked_up.name.clone() }),
    }
}

/// Replaces rows of a table by blocks in the sort order of a new design. Sets this design and, if they are known, its
/// partitions.
///
/// # Errors
/// If the table was dropped or its design has changed. Also if the new design has another sort order, and rows were
/// added to the table meanwhile.
pub(crate) fn replace_all(
    edit: &mut CatalogEdit,
    table: &Table,
    old: OldRows,
    (design, partitioning): (&TableDesign, Option<&Partitioning>),
    blocks: Vec<NewBlock>,
) -> std::result::Result<(), CommitError> {
    let newest = edit.catalog().table_of(table.id).ok_or(CommitError::NoTable { table: table.id })?;
    check_design(table, newest)?;
    // Rows that were added meanwhile are in the old sort order.
    if design.sort_by != newest.design.sort_by && newest.blocks.len() > old.blocks.len() {
        return Err(CommitError::SortOrder { table: table.name.clone() });
    }
    // Another statement may have changed the indexes. Its indexes are used.
    let mut design = TableDesign { indexes: newest.design.indexes.clone(), ..design.clone() };
    add_key_indexes((&newest.name, &mut design), &newest.constraints, edit.catalog())?;
    let known = newest.partitions.as_ref().map(|partitions| partitions.partitioning.clone());
    edit.set_design(table.id, design)?;
    if let Some(partitioning) = partitioning
        && known.as_ref() != Some(partitioning)
    {
        edit.set_partitioning(table.id, partitioning.clone())?;
    }
    edit.replace_rows(table.id, old, blocks, RowOrder::Sorted)
}
