//! Removal of unique keys and foreign keys that the rows violate after a repair. A violated key must not stay, because
//! plans rely on keys, for example to remove a join along a foreign key.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::ArrayRef;
use taut_block::ScanReport;
use taut_types::{ColumnIndex, Predicate};

use super::{RepairedTable, TableLoss};
use crate::catalog::Constraints;
use crate::error::ReadError;
use crate::keys::key_hashes;
use crate::{ForeignKey, KeySearch, ReadCounters, Table, TableId, UniqueKey};

const NOT_UNIQUE: &str = "rows that were deleted may be back, and have the same key";
const REFERENCED_ROWS_LOST: &str = "rows that it references are lost";

/// Drops the constraints that the rows violate. Unique keys are checked only if deleted rows may have reappeared,
/// foreign keys also if referenced rows are lost.
pub(super) fn drop_violated_constraints(tables: &mut [Table], reports: &mut [RepairedTable], deletions_are_lost: bool) {
    let mut dropped: Vec<(usize, String)> = Vec::new();
    for (index, table) in tables.iter().enumerate() {
        let keys = table.constraints.keys.iter().filter(|_| deletions_are_lost);
        for key in keys.filter(|key| !is_unique(table, key)) {
            reports[index].losses.push(TableLoss::Constraint { name: key.name.clone(), reason: NOT_UNIQUE });
            dropped.push((index, key.name.clone()));
        }
    }
    for (index, name) in std::mem::take(&mut dropped) {
        Arc::make_mut(&mut tables[index].constraints).keys.retain(|key| key.name != name);
    }
    for (index, table) in tables.iter().enumerate() {
        for key in &table.constraints.foreign_keys {
            let parent = tables.iter().position(|parent| parent.id == key.table);
            let has_lost = parent.is_none_or(|parent| loses_rows(&reports[parent]));
            let holds = (!has_lost && !deletions_are_lost)
                || parent.is_some_and(|parent| {
                    let parent = &tables[parent];
                    key.references(&table.schema, &parent.schema, &parent.constraints)
                        && references_exist(table, key, parent)
                });
            if !holds {
                dropped.push((index, key.name.clone()));
            }
        }
    }
    for (index, name) in &dropped {
        reports[*index].losses.push(TableLoss::Constraint { name: name.clone(), reason: REFERENCED_ROWS_LOST });
        Arc::make_mut(&mut tables[*index].constraints).foreign_keys.retain(|key| key.name != *name);
    }
    if !dropped.is_empty() {
        recompute_referenced_by(tables);
    }
}

fn loses_rows(report: &RepairedTable) -> bool {
    report.losses.iter().any(|loss| matches!(loss, TableLoss::Rows { .. }))
}

/// Computes `referenced_by` of all tables from their foreign keys.
fn recompute_referenced_by(tables: &mut [Table]) {
    let references: Vec<(TableId, TableId)> = tables
        .iter()
        .flat_map(|child| child.constraints.foreign_keys.iter().map(|key| (key.table, child.id)))
        .collect();
    for table in tables {
        let children = references.iter().filter(|(parent, _)| *parent == table.id).map(|(_, child)| *child);
        let constraints: &mut Constraints = Arc::make_mut(&mut table.constraints);
        constraints.referenced_by = children.collect::<BTreeSet<_>>();
    }
}

/// Whether no two rows have the same key. Returns false if some rows cannot be read.
fn is_unique(table: &Table, key: &UniqueKey) -> bool {
    let columns: Vec<usize> = key.columns.iter().map(|column| column.index()).collect();
    all_batches_satisfy(table, &key.columns, |keys| {
        let found = KeySearch::new(table, &columns).find(keys)?;
        // Each row finds itself, so a key with two rows is a duplicate. This includes equal keys in one batch, which
        // find the same rows.
        Ok(found.windows(2).all(|pair| pair[0].0 != pair[1].0))
    })
}

/// Whether each row with a foreign key without nulls references an existing row. Returns false if some rows cannot be
/// read.
fn references_exist(table: &Table, key: &ForeignKey, parent: &Table) -> bool {
    let referenced: Vec<usize> = key.referenced.iter().map(|column| column.index()).collect();
    all_batches_satisfy(table, &key.columns, |keys| {
        let found: BTreeSet<u32> =
            KeySearch::new(parent, &referenced).find(keys)?.into_iter().map(|(index, _)| index).collect();
        let mut referencing = (0..).zip(key_hashes(keys)).filter(|(_, hash)| hash.is_some());
        Ok(referencing.all(|(index, _)| found.contains(&index)))
    })
}

/// Calls `holds` with the given columns of the live rows, batch by batch, until it returns false. Returns whether all
/// rows were read and `holds` returned true for all.
fn all_batches_satisfy(
    table: &Table,
    columns: &[ColumnIndex],
    mut holds: impl FnMut(&[ArrayRef]) -> Result<bool, ReadError>,
) -> bool {
    let mut check_blocks = || -> Result<bool, ReadError> {
        for file in table.blocks.iter() {
            let open = file.open(&ReadCounters::new())?;
            for segment in 0..open.block().segments() {
                let mut report = ScanReport::default();
                let mut reader = table.open_segment(&open, segment);
                let selection = reader.filter(&Predicate::default(), &mut report);
                let selection = selection.map_err(|error| open.locate(error))?;
                let arrays = reader.project(&selection, 0..selection.len(), columns, &mut report);
                if !holds(&arrays.map_err(|error| open.locate(error))?)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    };
    if !check_blocks().unwrap_or(false) {
        return false;
    }
    let ordinals: Vec<usize> = columns.iter().map(|column| column.index()).collect();
    table.delta.pages().iter().all(|page| {
        let deleted = table.delta.deleted(page.id()).and_then(|deleted| deleted.segment(0));
        // A page has at most 65,536 rows.
        let live = (0..page.rows() as u32).filter(|row| deleted.is_none_or(|deleted| !deleted.contains(*row)));
        let rows: Vec<u32> = live.collect();
        page.rows_at(&ordinals, &rows).is_ok_and(|keys| holds(&keys).unwrap_or(false))
    })
}
