//! Arranges a packed piece (one column group of one segment): fields in tuples, tuples in pages, and inline values in
//! heaps.

use std::ops::Range;

use arrow_array::{Array, BinaryViewArray};

use super::PAGE_HEAD_BYTES;
use super::bits::{PADDING, width_of};
use super::field::LENGTHS;
use super::lengths::Anchors;
use super::plan::FieldPlan;
use crate::groups::pages::{INLINE_BYTES_MAX, Overflow, PAGE_ROWS_MIN};
use crate::{BuildError, PAGE_BYTES};

/// Minimum number of tuples that a page should hold. If pages would hold fewer, they are made longer, up to
/// `LONG_PAGE_BYTES`. Otherwise, the overhead of pages would take 0.2 % of a block.
const PAGE_ROWS_TARGET: usize = 512;
const LONG_PAGE_BYTES: usize = 2 * PAGE_BYTES;

/// Stored bytes of an inline column, value after value, and the offset at which each value ends.
pub(super) struct Heap {
    pub bytes: Vec<u8>,
    pub ends: Vec<usize>,
    /// Rows whose bytes are a reference to an overflow section.
    pub overflow_rows: Vec<u32>,
    /// Bytes of the values, including values in overflow sections.
    pub stored_bytes: u64,
}

impl Heap {
    pub fn build(
        views: &BinaryViewArray,
        compressor: Option<&fsst::Compressor>,
        nullable: bool,
        overflow: &mut Overflow,
    ) -> Result<Self, BuildError> {
        let mut heap =
            Self { bytes: vec![], ends: Vec::with_capacity(views.len()), overflow_rows: vec![], stored_bytes: 0 };
        for row in 0..views.len() {
            if !nullable || !views.is_null(row) {
                let value = views.value(row);
                if value.len() > INLINE_BYTES_MAX {
                    heap.bytes.extend_from_slice(&overflow.push(value)?);
                    heap.overflow_rows.push(row as u32);
                    heap.stored_bytes += value.len() as u64;
                } else if let Some(compressor) = compressor {
                    heap.bytes.extend_from_slice(&compressor.compress(value));
                } else {
                    heap.bytes.extend_from_slice(value);
                }
            }
            heap.ends.push(heap.bytes.len());
        }
        heap.stored_bytes += heap.bytes.len() as u64;
        Ok(heap)
    }

    /// Offset in `bytes` at which the value of a row begins.
    pub fn start(&self, row: usize) -> usize {
        if row == 0 { 0 } else { self.ends[row - 1] }
    }

    /// Stored bytes of the value of a row.
    pub fn length(&self, row: usize) -> usize {
        self.ends[row] - self.start(row)
    }

    /// Least and greatest length of the values of the first `rows` rows, as the start and end of a range.
    fn lengths(&self, rows: usize) -> Range<usize> {
        let lengths = (0..rows).map(|row| self.length(row));
        lengths.clone().min().unwrap_or(0)..lengths.max().unwrap_or(0)
    }
}

/// Sizes of the pages of a piece, and of their tuples and anchors.
#[derive(Clone, Copy)]
pub(super) struct PageGeometry {
    pub page_bytes: usize,
    pub tuple_bits: usize,
    /// Anchors, if inline values are found by lengths.
    pub anchors: Option<Anchors>,
}

impl PageGeometry {
    /// Bytes of `rows` tuples in a page, without the values in its heap.
    pub fn bytes_for(self, rows: usize) -> usize {
        (rows * self.tuple_bits).div_ceil(8) + self.anchors.map_or(0, |anchors| anchors.bytes_for(rows))
    }
}

/// Geometry of the pages of a piece, and the end row (exclusive) of each page.
pub(super) struct Arrangement {
    pub geometry: PageGeometry,
    pub page_ends: Vec<u32>,
}

/// Assigns each field its bits in the tuple, and chooses the geometry of pages.
pub(super) fn arrange(plans: &mut [FieldPlan], heaps: &[Option<Heap>], rows: usize) -> PageGeometry {
    let heap_bytes = |row| heaps.iter().flatten().map(|heap| heap.length(row)).sum();
    let heap_bytes_max: usize = (0..rows).map(heap_bytes).max().unwrap_or(0);
    let lengths: Vec<Range<usize>> = heaps.iter().flatten().map(|heap| heap.lengths(rows)).collect();
    // Mean bits of the heap per tuple.
    let heap_bits = heaps.iter().flatten().map(|heap| 8 * heap.bytes.len()).sum::<usize>() / rows.max(1);
    let mut page_bytes = PAGE_BYTES;
    loop {
        // An end in the heap is less than the page size, which is a power of two.
        let end_bits = page_bytes.trailing_zeros();
        let anchors = Anchors::for_fields(lengths.len(), page_bytes).filter(|anchors| {
            let bits = lengths.iter().map(|lengths| width_of(lengths.len() as u128)).sum::<u32>();
            bits + (anchors.bits_per_tuple() as u32) < end_bits * lengths.len() as u32
        });
        let mut lengths = lengths.iter();
        let mut bit = 0_u32;
        for plan in &mut *plans {
            if plan.record.is_inline() {
                plan.record.flags &= !LENGTHS;
                (plan.record.width, plan.record.base) = (end_bits, 0);
                if let (Some(_), Some(lengths)) = (anchors, lengths.next()) {
                    plan.record.flags |= LENGTHS;
                    (plan.record.width, plan.record.base) = (width_of(lengths.len() as u128), lengths.start as i128);
                }
            }
            plan.record.bit = bit;
            // There are at most 16,384 fields of 130 bits, so the sum fits 32 bits.
            bit += plan.record.bits() as u32;
        }
        let bits = bit as usize;
        let rounded = bits.next_multiple_of(8);
        let tuple_bits = if (rounded - bits) * 32 <= bits + heap_bits { rounded } else { bits };
        let geometry = PageGeometry { page_bytes, tuple_bits, anchors };
        let needed = PAGE_HEAD_BYTES
            + PADDING
            + PAGE_ROWS_MIN * (tuple_bits.div_ceil(8) + heap_bytes_max)
            + anchors.map_or(0, |anchors| anchors.bytes_for(PAGE_ROWS_MIN));
        let is_long_enough = page_bytes >= LONG_PAGE_BYTES || PAGE_ROWS_TARGET * tuple_bits <= page_bytes * 8;
        if needed <= page_bytes && is_long_enough {
            return geometry;
        }
        page_bytes *= 2;
    }
}

/// Returns the end row (exclusive) of each page. Each page holds as many rows as fit.
pub(super) fn fill_pages(geometry: PageGeometry, heaps: &[Option<Heap>], rows: usize) -> Vec<u32> {
    let available_bytes = geometry.page_bytes - PAGE_HEAD_BYTES - PADDING;
    let heaps: Vec<&Heap> = heaps.iter().flatten().collect();
    if heaps.is_empty() {
        let per_page = (available_bytes * 8).checked_div(geometry.tuple_bits).unwrap_or(rows).min(rows);
        return (1..=rows.div_ceil(per_page)).map(|page| (page * per_page).min(rows) as u32).collect();
    }
    let (mut ends, mut first, mut heap_bytes) = (vec![], 0, 0);
    for row in 0..rows {
        let row_bytes: usize = heaps.iter().map(|heap| heap.length(row)).sum();
        if geometry.bytes_for(row - first + 1) + heap_bytes + row_bytes > available_bytes {
            ends.push(row as u32);
            (first, heap_bytes) = (row, 0);
        }
        heap_bytes += row_bytes;
    }
    ends.push(rows as u32);
    ends
}
