//! Remaining work of a scan: segments of blocks, and delta pages.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::common::Result;
use taut_block::{PrunedSegments, ScanReport};
use taut_store::{OpenBlock, Table};
use taut_types::ColumnPredicate;

use super::driver::block_error;
use crate::runtime::progress::ScanProgress;

/// Morsel: the unit of work that a partition of a scan takes from a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Morsel {
    /// A segment of a block.
    Segment(SegmentAddress),
    /// A page of the table's delta, by ordinal.
    Page(usize),
}

/// Address of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentAddress {
    /// Ordinal of the block in the table.
    pub block: usize,
    pub segment: usize,
}

/// Remaining morsels, in order. Partitions of a scan that share a queue take morsels until it is empty, so none is idle
/// while another has much work. A partition takes several segments only to check their indexes together. The segments
/// that pass the check are little work, because few of their rows match.
#[derive(Debug)]
pub struct WorkQueue {
    morsels: Vec<Morsel>,
    next: AtomicUsize,
}

impl WorkQueue {
    /// Creates a queue of the segments of the blocks at these ordinals.
    pub fn new(table: &Table, blocks: Range<usize>) -> Self {
        Self::from_morsels(segments(table, blocks).collect())
    }

    /// Queue of the segments of all of a table's blocks.
    pub fn blocks(table: &Table) -> Self {
        Self::new(table, 0..table.blocks.len())
    }

    /// Queue of the delta pages of a table.
    pub fn pages(table: &Table) -> Self {
        Self::from_morsels(pages(table).collect())
    }

    /// Queue of all segments and pages of a table. Pages come last: they are small, so that partitions end at about the
    /// same time.
    pub fn all(table: &Table) -> Self {
        Self::from_morsels(segments(table, 0..table.blocks.len()).chain(pages(table)).collect())
    }

    /// An empty queue.
    pub fn empty() -> Self {
        Self::from_morsels(Vec::new())
    }

    pub(super) fn from_morsels(morsels: Vec<Morsel>) -> Self {
        Self { morsels, next: AtomicUsize::new(0) }
    }

    /// Returns all morsels of the queue, taken ones included.
    pub(super) fn into_morsels(self) -> Vec<Morsel> {
        self.morsels
    }

    /// Number of remaining morsels.
    fn remaining(&self) -> usize {
        self.morsels.len().saturating_sub(self.next.load(Ordering::Relaxed))
    }

    fn take(&self) -> Option<Morsel> {
        self.morsels.get(self.next.fetch_add(1, Ordering::Relaxed)).copied()
    }

    /// Takes the next morsels as long as they are segments of `block`, at most `count_max`.
    fn take_from_block(&self, block: usize, count_max: usize) -> &[Morsel] {
        let is_of_block = |morsel: &&Morsel| matches!(morsel, Morsel::Segment(index) if index.block == block);
        let segments_from = |next: usize| {
            let following = self.morsels.get(next..).unwrap_or_default();
            &following[..following.iter().take(count_max).take_while(is_of_block).count()]
        };
        let before =
            self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| Some(next + segments_from(next).len()));
        before.map_or(&[], segments_from)
    }
}

/// Number of segments whose indexes a partition checks together at first.
const PROBE_BATCH_INITIAL: usize = 2;

/// Morsels that one partition of a scan takes from a queue.
pub(super) struct Morsels {
    queue: Arc<WorkQueue>,
    table: Arc<Table>,
    progress: Option<Arc<ScanProgress>>,
    /// Segments that were taken together and not ruled out by indexes.
    remaining: VecDeque<SegmentAddress>,
    /// Whether the segment that was taken last comes from `remaining`, so that its indexes have been checked.
    is_probed: bool,
    /// Number of segments whose indexes are checked together. It is small at first, because other partitions cannot
    /// take these segments, and grows as long as most are ruled out.
    batch_size: usize,
}

impl Morsels {
    pub fn new(queue: Arc<WorkQueue>, table: Arc<Table>, progress: Option<Arc<ScanProgress>>) -> Self {
        Self { queue, table, progress, remaining: VecDeque::new(), is_probed: false, batch_size: PROBE_BATCH_INITIAL }
    }

    pub fn next(&mut self) -> Option<Morsel> {
        let next = self.remaining.pop_front();
        self.is_probed = next.is_some();
        if let Some(address) = next {
            return Some(Morsel::Segment(address));
        }
        let morsel = self.queue.take()?;
        self.report_progress(&[morsel]);
        Some(morsel)
    }

    /// Number of remaining morsels: in the queue, and taken by this partition but not yet returned.
    pub fn remaining(&self) -> usize {
        self.queue.remaining() + self.remaining.len()
    }

    /// Whether the indexes of a block rule out the segment that was taken last: none of its rows passes `predicates`.
    /// The same search covers the following segments, which this partition takes from the queue. The next calls of
    /// [`Morsels::next`] return the following segments that are not ruled out.
    ///
    /// # Errors
    /// If an index cannot be read.
    pub fn index_excludes(
        &mut self,
        open: &OpenBlock,
        address: SegmentAddress,
        predicates: &[ColumnPredicate],
        report: &mut ScanReport,
    ) -> Result<bool> {
        let locate_error = |error| block_error(open, error);
        let probes =
            if self.is_probed { None } else { open.block().index_probes(open, predicates).map_err(locate_error)? };
        let Some(probes) = probes.filter(|probes| probes.may_prune(address.segment)) else {
            return Ok(false);
        };
        let following = self.queue.take_from_block(address.block, self.batch_size - 1);
        self.report_progress(following);
        let following_segments = following.iter().filter_map(|morsel| match morsel {
            Morsel::Segment(following) => Some(following.segment),
            Morsel::Page(_) => None,
        });
        let segments = std::iter::once(address.segment).chain(following_segments);
        let pruned = probes.prune(segments).map_err(locate_error)?;
        pruned.add_to_report(report);
        self.batch_size = match pruned.is_majority_ruled_out() {
            true => PrunedSegments::SEGMENTS_MAX.min(self.batch_size * 4),
            false => 1.max(self.batch_size / 4),
        };
        let mut remaining = pruned.remaining().peekable();
        let remains = remaining.next_if_eq(&address.segment).is_some();
        self.remaining.extend(remaining.map(|segment| SegmentAddress { segment, ..address }));
        Ok(!remains)
    }

    fn report_progress(&self, morsels: &[Morsel]) {
        if let Some(progress) = self.progress.as_ref().filter(|_| !morsels.is_empty()) {
            progress.0.add(morsels.iter().map(|morsel| morsel_rows(&self.table, *morsel)).sum());
        }
    }
}

fn segments(table: &Table, blocks: Range<usize>) -> impl Iterator<Item = Morsel> {
    let of_block = |block: usize| {
        let segments = 0..table.blocks[block].entry().segments as usize;
        segments.map(move |segment| Morsel::Segment(SegmentAddress { block, segment }))
    };
    blocks.flat_map(of_block)
}

fn pages(table: &Table) -> impl Iterator<Item = Morsel> {
    (0..table.delta.pages().len()).map(Morsel::Page)
}

/// Estimated rows of a morsel, deleted rows included. Divides the rows of a block evenly among its segments, because
/// the block is not open yet.
fn morsel_rows(table: &Table, morsel: Morsel) -> u64 {
    match morsel {
        Morsel::Segment(SegmentAddress { block, segment }) => {
            let entry = table.blocks[block].entry();
            let (segment, segments) = (segment as u64, entry.segments.max(1));
            let before = |segment: u64| (u128::from(entry.rows) * u128::from(segment) / u128::from(segments)) as u64;
            before(segment + 1) - before(segment)
        }
        Morsel::Page(page) => table.delta.pages()[page].rows() as u64,
    }
}

/// Rows of all morsels of a table.
pub(super) fn table_rows(table: &Table) -> u64 {
    table.block_rows() + table.delta.pages().iter().map(|page| page.rows() as u64).sum::<u64>()
}
