//! Indexes for the lookup of keys.

use taut_store::{Catalog, CommitError, Constraints};
use taut_types::{ColumnIndex, IndexDesign, IndexKind, TableDesign, sibling_name};

/// Adds an index to the design of a table for each key that has none. A key of one column gets a Bloom filter, which
/// rules out segments without the key. A key of several columns gets a CSB+-tree on its first two columns. A constraint
/// needs no index if the rows are sorted by its first column, or another index begins with it. A unique index always
/// gets a CSB+-tree.
///
/// # Errors
/// If a key needs an index, which gets the name of the key, but a table, a view or an index already has that name.
pub fn add_key_indexes(
    (table, design): (&str, &mut TableDesign),
    constraints: &Constraints,
    catalog: &Catalog,
) -> std::result::Result<(), CommitError> {
    for key in &constraints.keys {
        let leads = |columns: &[ColumnIndex]| columns.first() == key.columns.first();
        let is_sorted = design.sort_by.first().is_some_and(|sort| Some(&sort.column) == key.columns.first());
        let (kind, columns) = match key.columns.as_slice() {
            [column] if !key.is_index => (IndexKind::Bloom, vec![*column]),
            columns => (IndexKind::CsbTree, columns.iter().take(IndexKind::CsbTree.columns_max()).copied().collect()),
        };
        let is_superfluous = is_sorted || design.indexes.iter().any(|index| leads(&index.columns));
        if design.indexes.iter().any(|index| index.name == key.name) || (is_superfluous && !key.is_index) {
            continue;
        }
        let name = sibling_name(table, &key.name);
        if !catalog.is_name_free(&name) {
            return Err(CommitError::NameTaken { name });
        }
        design.indexes.push(IndexDesign { name: key.name.clone(), kind, columns });
    }
    Ok(())
}
