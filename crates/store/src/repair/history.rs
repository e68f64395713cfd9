//! The last readable state of a damaged database: from its catalog, delta file and log, without reading blocks.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::RecordBatch;

use super::{DatabaseLoss, RepairError};
use crate::catalog::change::Change;
use crate::catalog::columns::change_rows;
use crate::catalog::format::CatalogFile;
use crate::catalog::record;
use crate::directory::Directory;
use crate::disk::read_whole;
use crate::error::OpenError;
use crate::files::{BLOCKS, CATALOG, ROOT, file_error, list, parse_block_name};
use crate::log::{self, Record, TornTail};
use crate::open::{TornLogTail, build_catalog, read_catalog, read_delta};
use crate::{BlockId, Catalog, CatalogEdit, NewBlock, OldRows, Table, TableId};

/// The last readable state, and what is lost.
pub(super) struct History {
    pub catalog: Catalog,
    pub losses: Vec<DatabaseLoss>,
    pub torn_tail: Option<TornLogTail>,
    /// Whether the tables may come from different commits.
    pub is_mixed: bool,
}

/// Reads the newest state. Its blocks belong to `damaged`. If the file of a block is missing, the state contains the
/// blocks that replaced it. This requires an intact record after the damaged part of the log that names them.
pub(super) fn read_history(damaged: &Arc<Directory>) -> Result<History, RepairError> {
    let mut losses = Vec::new();
    let file = find_catalog(damaged, &mut losses)?;
    damaged.reserve_ids_below((file.next_block, file.next_table));
    let (first, delta, version) = (file.log, file.delta, file.version);
    let catalog = build_catalog(file, damaged);
    let Some(first) = first else { return Ok(History { catalog, losses, torn_tail: None, is_mixed: false }) };

    let (disk, database) = (&*damaged.disk, catalog.database);
    let mut replay = Replay::new(&catalog, damaged)?;
    if let Some(delta) = delta
        && let Err(error) = read_delta(disk, first, delta).and_then(|bytes| replay.apply_delta(&bytes, first))
    {
        let error = error.into_damage().map_err(RepairError::Unreadable)?;
        replay.is_lenient = true;
        losses.push(DatabaseLoss::Delta { error });
    }
    let end = log::replay(disk, database, first, Some(version), &mut |record| replay.apply_record(&record));
    let mut torn_tail = None;
    match end {
        Ok(end) => torn_tail = end.torn_tail.map(|TornTail { path, at, bytes, .. }| TornLogTail { path, at, bytes }),
        Err(error) => {
            let error = error.into_damage().map_err(RepairError::Unreadable)?;
            let salvaged = replay.edit.catalog().version;
            let past_damage =
                log::records_past_damage(disk, database, first, salvaged).map_err(RepairError::Unreadable)?;
            let commits = past_damage.last_sequence.map(|last| last - salvaged);
            past_damage.records.iter().for_each(|payload| replay.apply_relocations(payload));
            // The number of commits in a missing file is unknown.
            let commits = commits.filter(|_| !matches!(error, OpenError::MissingLog { .. }));
            losses.push(DatabaseLoss::Log { error, version: salvaged, commits });
        }
    }
    let is_mixed = replay.is_mixed;
    let lost_changes = replay.insert_displaced_rows();
    losses.extend((lost_changes > 0).then_some(DatabaseLoss::Changes { count: lost_changes }));
    Ok(History { catalog: replay.edit.into_catalog(), losses, torn_tail, is_mixed })
}

/// Reads the catalog. If it is damaged, returns the newest other catalog that can be read: `catalog.new`, or a copy
/// that a user made.
fn find_catalog(damaged: &Directory, losses: &mut Vec<DatabaseLoss>) -> Result<CatalogFile<'static>, RepairError> {
    let disk = &*damaged.disk;
    let read = |name: &str| {
        let bytes = read_whole(disk, name).map_err(|source| file_error(disk, "read", name, source))?;
        read_catalog(disk, &bytes)
    };
    let error = match read(CATALOG) {
        Ok(file) => return Ok(file),
        Err(error) => error.into_damage().map_err(RepairError::Unreadable)?,
    };
    let entries = list(disk, ROOT).map_err(OpenError::from)?;
    let others = entries.iter().filter(|entry| !entry.is_directory && entry.name.starts_with(CATALOG));
    let mut readable = Vec::new();
    for entry in others {
        match read(&entry.name) {
            Ok(file) => readable.push((entry.name.as_str(), file)),
            Err(error) => drop(error.into_damage().map_err(RepairError::Unreadable)?),
        }
    }
    match readable.into_iter().max_by_key(|(_, file)| file.version) {
        Some((name, file)) => {
            losses.push(DatabaseLoss::Catalog { error, used: disk.path(name), version: file.version });
            Ok(file)
        }
        None => Err(RepairError::NoCatalog { error }),
    }
}

/// The replay of commits.
struct Replay {
    edit: CatalogEdit,
    /// The blocks whose files exist, intact or damaged.
    present: HashSet<BlockId>,
    /// Whether changes that cannot be made are skipped.
    is_lenient: bool,
    is_mixed: bool,
    /// Inserted rows whose position in the delta is lost.
    displaced: Vec<(TableId, RecordBatch)>,
    lost_changes: u64,
}

impl Replay {
    fn new(catalog: &Catalog, damaged: &Arc<Directory>) -> Result<Self, OpenError> {
        let entries = list(&*damaged.disk, BLOCKS)?;
        Ok(Self {
            edit: CatalogEdit::new(catalog, damaged),
            present: entries.iter().filter_map(|entry| parse_block_name(&entry.name)).collect(),
            is_lenient: false,
            is_mixed: false,
            displaced: Vec::new(),
            lost_changes: 0,
        })
    }

    fn apply_delta(&mut self, bytes: &[u8], number: u64) -> Result<(), OpenError> {
        let mut edit = self.edit.clone();
        let path = edit.directory().disk.path(&crate::files::delta_name(number));
        crate::open::apply_record(&mut edit, bytes).map_err(|(at, expected)| OpenError::Corrupt {
            path,
            at,
            expected,
        })?;
        self.edit = edit;
        Ok(())
    }

    /// Applies the changes of a record: all or none, unless the replay is lenient.
    fn apply_record(&mut self, record: &Record<'_>) -> Result<(), OpenError> {
        let corrupt = |at: u64, expected: String| OpenError::Corrupt {
            path: record.path.to_owned(),
            at: record.payload_at() + at,
            expected,
        };
        if !self.is_lenient {
            let mut edit = self.edit.clone();
            crate::open::apply_record(&mut edit, record.payload).map_err(|(at, expected)| corrupt(at, expected))?;
            self.edit = edit;
        } else {
            let parsed = record::parse(record.payload).map_err(|(at, expected)| corrupt(at as u64, expected))?;
            for change in parsed.changes {
                let next_ids = change.next_ids();
                match change.into_change(self.edit.catalog(), self.edit.directory()) {
                    Ok(change) => self.apply_leniently(change),
                    Err(_) => self.lost_changes += 1,
                }
                self.edit.directory().reserve_ids_below(next_ids);
            }
        }
        self.edit.set_version(record.sequence);
        Ok(())
    }

    /// Applies a change that may affect lost rows.
    fn apply_leniently(&mut self, change: Change) {
        if let Change::Truncate { table } | Change::DropTable { table } = &change {
            self.displaced.retain(|(displaced, _)| displaced != table);
        }
        let before = change.table().and_then(|table| self.edit.catalog().table_of(table)).cloned();
        if self.edit.redo(&change).is_ok() {
            if let Some(before) = before {
                self.change_displaced_rows(&before, &change);
            }
            return;
        }
        match change {
            Change::InsertRows { table, rows, .. } => self.displaced.push((table, rows)),
            Change::ReplaceRows { table, old, new, .. } => self.replace(table, &old, new),
            _ => self.lost_changes += 1,
        }
    }

    /// Converts the displaced rows of a table to the columns that it has after a change. Each batch that cannot be
    /// converted counts as one lost change.
    fn change_displaced_rows(&mut self, before: &Table, change: &Change) {
        let is_changed = self.edit.catalog().table_of(before.id).is_some_and(|after| after.schema != before.schema);
        if !is_changed {
            return;
        }
        for (table, rows) in std::mem::take(&mut self.displaced) {
            if table != before.id {
                self.displaced.push((table, rows));
                continue;
            }
            match change_rows(&rows, change, &before.schema) {
                Some(changed) => self.displaced.extend(changed.into_iter().map(|rows| (table, rows))),
                None => self.lost_changes += 1,
            }
        }
    }

    /// Replaces the old blocks and pages that still exist by new blocks.
    fn replace(&mut self, table: TableId, old: &OldRows, new: Vec<NewBlock>) {
        let Some(stored) = self.edit.catalog().table_of(table) else {
            self.lost_changes += 1;
            return;
        };
        let is_old = |index: &usize| old.blocks.contains(&stored.blocks[*index].id());
        let remaining: Vec<usize> = (0..stored.blocks.len()).filter(|index| !is_old(index)).collect();
        let mut rest = stored.restricted_to(&remaining, usize::MAX);
        rest.delta.remove_pages(|page| old.pages.iter().any(|(old, _)| *old == page));
        let mut edit = self.edit.clone();
        edit.put_table(rest);
        match edit.redo(&Change::AppendBlocks { table, blocks: new }) {
            Ok(()) => (self.edit, self.is_mixed) = (edit, true),
            Err(_) => self.lost_changes += 1,
        }
    }

    /// Applies some changes of a commit after the damaged part of the log: replacements of blocks whose files no longer
    /// exist, and deletions of rows in the new blocks. Ignores its other changes.
    fn apply_relocations(&mut self, payload: &[u8]) {
        let Ok(parsed) = record::parse(payload) else { return };
        let mut new_blocks: HashSet<BlockId> = HashSet::new();
        for change in parsed.changes {
            let next_ids = change.next_ids();
            let change = change.into_change(self.edit.catalog(), self.edit.directory());
            self.edit.directory().reserve_ids_below(next_ids);
            match change {
                Ok(Change::ReplaceRows { table, old, new, .. }) => {
                    let stored = self.edit.catalog().table_of(table);
                    let exists = |block: &BlockId| {
                        stored.is_some_and(|stored| stored.blocks.iter().any(|other| other.id() == *block))
                    };
                    if old.blocks.iter().any(|block| exists(block) && !self.present.contains(block)) {
                        new_blocks.extend(new.iter().map(|block| block.entry().id));
                        self.replace(table, &old, new);
                    }
                }
                // Rows that were deleted while they were relocated.
                Ok(change @ Change::DeleteRows { container, .. })
                    if new_blocks.contains(&BlockId(container.0.into())) =>
                {
                    self.lost_changes += u64::from(self.edit.redo(&change).is_err());
                }
                _ => {}
            }
        }
    }

    /// Inserts the displaced rows. Returns the number of changes that could not be made.
    fn insert_displaced_rows(&mut self) -> u64 {
        for (table, rows) in std::mem::take(&mut self.displaced) {
            let inserted = self.edit.insert_rows(table, rows);
            self.lost_changes += u64::from(inserted.is_err());
        }
        self.lost_changes
    }
}
