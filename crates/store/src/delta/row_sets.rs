//! Sets of rows: the deleted rows of a container, and the rows that a transaction has deleted or locked.

use std::collections::BTreeMap;
use std::sync::Arc;

use roaring::RoaringBitmap;

use super::{ContainerId, RowId};

/// Deleted rows of one container, by segment. Copies share the segments that do not change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeletedRows {
    segments: Vec<Option<Arc<RoaringBitmap>>>,
    count: u64,
}

impl DeletedRows {
    /// The deleted rows of one segment. `None` if there are none.
    pub fn segment(&self, segment: usize) -> Option<&Arc<RoaringBitmap>> {
        self.segments.get(segment)?.as_ref()
    }

    /// The segments with deleted rows.
    pub fn segments(&self) -> impl Iterator<Item = (u16, &Arc<RoaringBitmap>)> {
        let numbered = self.segments.iter().enumerate();
        numbered.filter_map(|(segment, rows)| Some((segment as u16, rows.as_ref()?)))
    }

    /// Number of deleted rows.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether all rows of `other` are in this set.
    pub fn contains_all(&self, other: &Self) -> bool {
        other
            .segments()
            .all(|(segment, rows)| self.segment(usize::from(segment)).is_some_and(|found| rows.is_subset(found)))
    }

    pub(crate) fn add(&mut self, segment: u16, rows: &RoaringBitmap) {
        let index = usize::from(segment);
        if self.segments.len() <= index {
            self.segments.resize(index + 1, None);
        }
        let existing = self.segments[index].get_or_insert_default();
        let before = existing.len();
        insert_all(Arc::make_mut(existing), rows);
        self.count += existing.len() - before;
    }
}

/// Set of row ids of one table, from any of its containers.
#[derive(Clone, Debug, Default)]
pub struct RowSet {
    segments: BTreeMap<(ContainerId, u16), RoaringBitmap>,
    count: u64,
}

impl RowSet {
    /// Adds a row. Returns whether it was not in the set.
    pub fn insert(&mut self, row: RowId) -> bool {
        let is_new = self.segments.entry((row.container(), row.segment())).or_default().insert(u32::from(row.row()));
        self.count += u64::from(is_new);
        is_new
    }

    /// Adds ascending rows of one segment that all follow the rows of that segment in the set. If they do not, adds
    /// none and returns false.
    pub fn append(&mut self, rows: &[RowId]) -> bool {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return true };
        let segment = (first.container(), first.segment());
        if segment != (last.container(), last.segment()) || !rows.is_sorted_by(|before, after| before < after) {
            return false;
        }
        let (low, high) = (u32::from(first.row()), u32::from(last.row()));
        let existing = self.segments.entry(segment).or_default();
        if existing.max().is_some_and(|greatest| greatest >= low) {
            return false;
        }
        if (high - low) as usize + 1 == rows.len() {
            existing.insert_range(low..=high);
        } else {
            existing.extend(rows.iter().map(|row| u32::from(row.row())));
        }
        self.count += rows.len() as u64;
        true
    }

    /// Whether a row is in the set.
    pub fn contains(&self, row: RowId) -> bool {
        self.segment(row.container(), row.segment()).is_some_and(|rows| rows.contains(u32::from(row.row())))
    }

    /// Adds rows of a segment.
    pub(crate) fn add(&mut self, container: ContainerId, segment: u16, rows: &RoaringBitmap) {
        let existing = self.segments.entry((container, segment)).or_default();
        let before = existing.len();
        insert_all(existing, rows);
        self.count += existing.len() - before;
    }

    /// Adds all rows of another set.
    pub fn extend(&mut self, other: &Self) {
        other.segments().for_each(|(container, segment, rows)| self.add(container, segment, rows));
    }

    /// The rows of each segment.
    pub fn segments(&self) -> impl Iterator<Item = (ContainerId, u16, &RoaringBitmap)> {
        self.segments.iter().map(|((container, segment), rows)| (*container, *segment, rows))
    }

    /// The rows of one segment. `None` if there are none.
    pub fn segment(&self, container: ContainerId, segment: u16) -> Option<&RoaringBitmap> {
        self.segments.get(&(container, segment))
    }

    /// Keeps only the rows of containers for which `is_kept` returns true.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(ContainerId) -> bool) {
        self.segments.retain(|(container, _), _| is_kept(*container));
        self.count = self.segments.values().map(RoaringBitmap::len).sum();
    }

    /// Number of rows in the set.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// Maximum number of rows that are added or looked up one by one instead of with an operation on the whole set.
const ONE_BY_ONE_MAX: u64 = 8;

fn insert_all(set: &mut RoaringBitmap, rows: &RoaringBitmap) {
    if rows.len() > ONE_BY_ONE_MAX {
        *set |= rows;
        return;
    }
    for row in rows {
        set.insert(row);
    }
}

/// Whether `set`, which may be large, contains any of `rows`.
pub(crate) fn intersects(set: &RoaringBitmap, rows: &RoaringBitmap) -> bool {
    match rows.len() {
        ..=ONE_BY_ONE_MAX => rows.iter().any(|row| set.contains(row)),
        _ => !set.is_disjoint(rows),
    }
}

impl FromIterator<RowId> for RowSet {
    fn from_iter<I: IntoIterator<Item = RowId>>(rows: I) -> Self {
        let mut set = Self::default();
        for row in rows {
            set.insert(row);
        }
        set
    }
}
