//! Writes the file `catalog`, and the delta file that belongs to it.

use taut_block::checksum;

use super::change::Change;
use super::format::{self, DeltaFileEntry};
use super::{Catalog, record};
use crate::directory::Directory;
use crate::error::CommitError;
use crate::files::{CATALOG, CATALOG_NEW, LOG, ROOT, delta_name};

/// Replaces the catalog file, and the delta file that belongs to it. The log continues in file `number`.
pub(crate) fn write_catalog(directory: &Directory, catalog: &Catalog, number: u64) -> Result<(), CommitError> {
    let changes = changes_of(catalog)?;
    let delta = if changes.is_empty() {
        None
    } else {
        let bytes = record::to_bytes(&changes, catalog, None)?;
        let name = delta_name(number);
        directory.write_file(&name, |to| to.write_all(&bytes))?;
        directory.disk.sync_directory(LOG).map_err(|source| directory.error("sync", LOG, source))?;
        Some(DeltaFileEntry { bytes: bytes.len() as u64, checksum: checksum(&bytes) })
    };
    let bytes = format::to_bytes(catalog, directory.next_ids(), number, delta)?;
    let written = directory.write_file(CATALOG_NEW, |to| to.write_all(&bytes));
    if written.is_err() {
        // If the removal fails, the file only occupies space until the next checkpoint replaces it.
        let _ = directory.disk.remove(CATALOG_NEW);
    }
    written?;
    let disk = &directory.disk;
    disk.rename(CATALOG_NEW, CATALOG).map_err(|source| directory.error("rename", CATALOG_NEW, source))?;
    disk.sync_directory(ROOT).map_err(|source| directory.error("sync", ROOT, source))?;
    Ok(())
}

/// The changes that restore the deltas of all tables, given their blocks.
pub(crate) fn changes_of(catalog: &Catalog) -> Result<Vec<Change>, CommitError> {
    let mut changes = Vec::new();
    for table in catalog.tables() {
        for page in table.delta.pages() {
            let rows = page.batch(&table.schema);
            let rows = rows.map_err(|_| CommitError::Misplaced { table: table.name.clone() })?;
            changes.push(Change::InsertRows { table: table.id, page: page.id(), first: 0, rows });
        }
        for (container, deleted) in table.delta.all_deleted() {
            changes.extend(deleted.segments().map(|(segment, rows)| Change::DeleteRows {
                table: table.id,
                container,
                segment,
                rows: rows.as_ref().clone(),
            }));
        }
    }
    Ok(changes)
}
