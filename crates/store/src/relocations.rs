//! Row relocations: the new row ids of rows that compaction moved to other blocks, so that holders of the old row ids
//! find them.
//!
//! ```text
//! catalog   version 7 ─ 8            version 9 ─ 10 ─ 11       version 12
//!                 └── position 1 ── moves ──> position 2 ── moves ──> position 3
//! ```
//!
//! Each version of the catalog holds its position in a list of row relocations. References lead only from earlier
//! positions to later ones. So a relocation is kept as long as an earlier version is held, and is freed without a
//! search.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use parking_lot::RwLock;
use roaring::RoaringBitmap;

use crate::delta::{ContainerId, RowId, RowSet};
use crate::error::ReadError;
use crate::{NewBlock, ReadCounters, Table, TableId};

/// Marks a row that is in no new block. No row has this id, because no block has 65,536 segments.
const NOWHERE: RowId = RowId(u64::MAX);

/// Row relocations of one compaction: the new row id of each row of some containers that was live when they were read.
#[derive(Debug, Default)]
pub struct RowRelocations {
    /// New row ids by container and segment. Rows beyond the end of the list are in no new block.
    segments: HashMap<(ContainerId, u16), Vec<RowId>>,
    /// Blocks that were replaced by blocks with the same rows at the same positions.
    blocks: HashMap<ContainerId, ContainerId>,
    /// Count of rows in `segments` that are in a new block.
    rows: u64,
}

impl RowRelocations {
    /// Adds the rows of a new block. `old` yields the previous row id of each row, in the order of the block. The
    /// commit fails if a row has no previous id, or if two rows of the new blocks have the same one.
    ///
    /// # Errors
    /// If the header of the block, which lists its segments, cannot be read.
    pub fn push(&mut self, block: &NewBlock, old: impl IntoIterator<Item = RowId>) -> Result<(), ReadError> {
        let Some(container) = ContainerId::of(block.file.id()) else { return Ok(()) };
        let open = block.file.open(&ReadCounters::new())?;
        let mut old = old.into_iter();
        for segment in 0..open.block().segments() {
            for (row, old) in (0..open.block().segment_rows(segment)).zip(&mut old) {
                self.insert(old, RowId::new(container, segment as u16, row as u16));
            }
        }
        Ok(())
    }

    fn insert(&mut self, old: RowId, new: RowId) {
        let segment = self.segments.entry((old.container(), old.segment())).or_default();
        let position = usize::from(old.row());
        if segment.len() <= position {
            segment.resize(position + 1, NOWHERE);
        }
        self.rows += u64::from(segment[position] == NOWHERE);
        segment[position] = new;
    }

    /// Relocations of all rows of some blocks to the same positions of other blocks.
    pub(crate) fn of_blocks(blocks: impl Iterator<Item = (ContainerId, ContainerId)>) -> Self {
        Self { blocks: blocks.collect(), ..Self::default() }
    }

    /// Number of relocated rows.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// New row ids of some rows of a segment, without rows that are in no new block. `None` if the segment was not
    /// relocated.
    pub(crate) fn new_row_ids(&self, container: ContainerId, segment: u16, rows: &RoaringBitmap) -> Option<RowSet> {
        if let Some(block) = self.blocks.get(&container) {
            let mut new_ids = RowSet::default();
            new_ids.add(*block, segment, rows);
            return Some(new_ids);
        }
        let segment_ids = self.segments.get(&(container, segment))?;
        let new_ids = rows.iter().filter_map(|row| segment_ids.get(row as usize).copied());
        Some(new_ids.filter(|row| *row != NOWHERE).collect())
    }
}

/// Position of a version of the catalog in the list of row relocations. All later relocations are reachable from it.
#[derive(Clone, Default)]
pub(crate) struct RelocationsSince(Arc<RelocationNode>);

/// A node in the list of row relocations: the relocations of the next commit, once there is one.
#[derive(Default)]
struct RelocationNode {
    next: RwLock<Option<RelocationLink>>,
}

#[derive(Clone)]
struct RelocationLink {
    relocations: Arc<[(TableId, Arc<RowRelocations>)]>,
    then: RelocationsSince,
}

impl RelocationsSince {
    /// Sets the relocations of a commit, and the position after them. They replace the relocations of a commit that
    /// failed, which no reader has seen.
    pub fn set_next(&self, then: &Self, relocations: Arc<[(TableId, Arc<RowRelocations>)]>) {
        *self.0.next.write() = Some(RelocationLink { relocations, then: then.clone() });
    }

    /// Row relocations of a table, in commit order.
    fn of_table(&self, table: TableId) -> Vec<Arc<RowRelocations>> {
        let (mut found, mut position) = (Vec::new(), self.clone());
        loop {
            let next = position.0.next.read().clone();
            let Some(RelocationLink { relocations, then }) = next else { return found };
            found.extend(
                relocations
                    .iter()
                    .filter(|(relocated, _)| *relocated == table)
                    .map(|(_, relocations)| Arc::clone(relocations)),
            );
            position = then;
        }
    }

    /// Row ids of some rows of a table, with all row ids that they got later.
    pub fn all_row_ids<'a>(&self, table: TableId, rows: &'a RowSet) -> Cow<'a, RowSet> {
        let mut all = Cow::Borrowed(rows);
        for relocations in self.of_table(table) {
            let new_ids: Vec<RowSet> = all
                .segments()
                .filter_map(|(container, at, rows)| relocations.new_row_ids(container, at, rows))
                .collect();
            new_ids.iter().for_each(|new_ids| all.to_mut().extend(new_ids));
        }
        all
    }

    /// Row ids of some rows in another version of their table. Returns `None` if that version lacks one of the rows.
    /// The list may also contain relocations after that version, which are not applied.
    pub fn row_ids_in(&self, table: &Table, mut rows: RowSet) -> Option<RowSet> {
        let all_exist = |rows: &RowSet| rows.segments().all(|(container, ..)| table.has_container(container));
        for relocations in self.of_table(table.id) {
            if all_exist(&rows) {
                break;
            }
            let mut new_ids = RowSet::default();
            for (container, segment, rows) in rows.segments() {
                match relocations.new_row_ids(container, segment, rows) {
                    Some(relocated) if !table.has_container(container) => new_ids.extend(&relocated),
                    _ => new_ids.add(container, segment, rows),
                }
            }
            if new_ids.len() != rows.len() {
                return None;
            }
            rows = new_ids;
        }
        all_exist(&rows).then_some(rows)
    }
}

impl Debug for RelocationsSince {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("RelocationsSince")
    }
}

/// Iterative, because recursion over a long list would overflow the stack.
impl Drop for RelocationNode {
    fn drop(&mut self) {
        let mut next = self.next.get_mut().take();
        while let Some(RelocationLink { then, .. }) = next {
            next = Arc::into_inner(then.0).and_then(|mut node| node.next.get_mut().take());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use super::*;

    #[test]
    fn a_relocation_is_kept_as_long_as_an_earlier_version() {
        let positions: Vec<RelocationsSince> = (0..4).map(|_| RelocationsSince::default()).collect();
        let mut kept: Vec<Weak<RowRelocations>> = Vec::new();
        for (number, positions) in (0..).zip(positions.windows(2)) {
            let relocations =
                Arc::new(RowRelocations::of_blocks(std::iter::once((ContainerId(number), ContainerId(number + 1)))));
            kept.push(Arc::downgrade(&relocations));
            positions[0].set_next(&positions[1], Arc::new([(TableId(1), relocations)]));
        }
        let row: RowSet = [RowId::new(ContainerId(0), 3, 5)].into_iter().collect();
        assert_eq!(positions[0].all_row_ids(TableId(1), &row).len(), 4);
        assert_eq!(positions[1].all_row_ids(TableId(1), &row).len(), 1);
        assert_eq!(positions[0].all_row_ids(TableId(2), &row).len(), 1);
        let is_kept = || kept.iter().map(|relocations| relocations.strong_count() > 0).collect::<Vec<_>>();
        let mut positions = positions.into_iter();
        let first = positions.next();
        positions.next();
        assert_eq!(is_kept(), [true, true, true]);
        drop(first);
        assert_eq!(is_kept(), [false, false, true]);
        positions.next();
        assert_eq!(is_kept(), [false, false, false]);
    }

    #[test]
    fn a_long_list_is_freed_without_recursion() {
        let first = RelocationsSince::default();
        let mut last = first.clone();
        for _ in 0..200_000 {
            let then = RelocationsSince::default();
            last.set_next(&then, Arc::new([]));
            last = then;
        }
        drop(last);
        drop(first);
    }
}
