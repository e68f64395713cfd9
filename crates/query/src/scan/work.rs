//! What is left of a scan: segments of blocks, and pages of rows that are in no block yet.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use taut_store::Table;

/// What a partition reads at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Morsel {
    /// A segment of a block.
    Segment(SegmentPlace),
    /// A page of the table's delta, by its place.
    Page(usize),
}

/// Where a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentPlace {
    /// Place among the table's blocks.
    pub block: usize,
    pub segment: usize,
}

/// The morsels that are left, in order. Partitions that share a queue take from it until it is empty, so that none
/// waits while another has work.
#[derive(Debug)]
pub struct WorkQueue {
    morsels: Vec<Morsel>,
    next: AtomicUsize,
}

impl WorkQueue {
    /// The segments of some of a table's blocks.
    pub fn new(table: &Table, blocks: Range<usize>) -> Self {
        Self::of(segments(table, blocks).collect())
    }

    /// The segments of all of a table's blocks.
    pub fn blocks(table: &Table) -> Self {
        Self::new(table, 0..table.blocks.len())
    }

    /// The pages of a table.
    pub fn pages(table: &Table) -> Self {
        Self::of(pages(table).collect())
    }

    /// All of a table. Pages come last: they are small, so that partitions end at about the same time.
    pub fn all(table: &Table) -> Self {
        Self::of(segments(table, 0..table.blocks.len()).chain(pages(table)).collect())
    }

    /// Nothing.
    pub fn empty() -> Self {
        Self::of(Vec::new())
    }

    fn of(morsels: Vec<Morsel>) -> Self {
        Self { morsels, next: AtomicUsize::new(0) }
    }

    /// How many morsels are left.
    pub(super) fn left(&self) -> usize {
        self.morsels.len().saturating_sub(self.next.load(Ordering::Relaxed))
    }

    pub(super) fn take(&self) -> Option<Morsel> {
        self.morsels.get(self.next.fetch_add(1, Ordering::Relaxed)).copied()
    }
}

fn segments(table: &Table, blocks: Range<usize>) -> impl Iterator<Item = Morsel> {
    let of_block = |block: usize| {
        let segments = 0..table.blocks[block].entry().segments as usize;
        segments.map(move |segment| Morsel::Segment(SegmentPlace { block, segment }))
    };
    blocks.flat_map(of_block)
}

fn pages(table: &Table) -> impl Iterator<Item = Morsel> {
    (0..table.delta.pages().len()).map(Morsel::Page)
}

/// Rows of a morsel, deleted ones too. Those of a segment are as if its block had as many in each: they are added up
/// before the block is opened.
pub(super) fn rows_of(table: &Table, morsel: Morsel) -> u64 {
    match morsel {
        Morsel::Segment(SegmentPlace { block, segment }) => {
            let entry = table.blocks[block].entry();
            let (segment, segments) = (segment as u64, entry.segments.max(1));
            let before = |segment: u64| (u128::from(entry.rows) * u128::from(segment) / u128::from(segments)) as u64;
            before(segment + 1) - before(segment)
        }
        Morsel::Page(page) => table.delta.pages()[page].rows() as u64,
    }
}

/// Rows of all morsels of a table.
pub(super) fn rows_of_all(table: &Table) -> u64 {
    table.block_rows() + table.delta.pages().iter().map(|page| page.rows() as u64).sum::<u64>()
}
