//! Most numbers packed, the others plain: encoding `patched` (PFOR: Zukowski and others, 2006).
//!
//! ```text
//! part: distances from `base` in `width` bits, as in `packed.rs`
//! parts: exceptions, as in `exceptions.rs`; the head's `entries` counts them
//! ```
//!
//! `base` is the low end of a range that contains most numbers, the [`Window`]. It need not be the least number.
//! Numbers outside the window are exceptions. The encoding is for columns with a few outliers, which would widen every
//! number of `frame_of_reference`. If a tenth of the numbers are exceptions, storing the row and the plain number of
//! each takes too much space. Exceptions are then marked, see `marked.rs`.

use std::ops::Range;

use taut_types::DatumPredicate;

use crate::Bitmap;
use crate::head::{CorruptChunk, Head, Parts, Writer};
use crate::kernels::Native;
use crate::numbers::exceptions::{self, Exceptions, Window};
use crate::numbers::statistics::Statistics;
use crate::packed::{self, Packed};

/// Packed numbers, and exceptions.
#[derive(Clone, Debug)]
pub(crate) struct Patched {
    packed: Packed,
    exceptions: Exceptions,
}

/// Bits of the parts of numbers, if `exceptions` of them are outside the window. Padding of the exceptions is not
/// included.
pub(crate) fn estimate_bits<N: Native>(statistics: &Statistics<'_, N>, window: Window<N>, exceptions: usize) -> usize {
    window.bits(statistics.rows(), exceptions, statistics.plain_bytes)
}

/// Writes the parts of numbers, packed if they are in the window, and sets the head fields that describe them.
pub(crate) fn write<N: Native>(values: &[N], window: Window<N>, head: &mut Head, writer: &mut Writer) {
    let packed: Vec<N> =
        values.iter().map(|value| if window.contains(*value) { *value } else { window.base }).collect();
    // A chunk has at most 2^16 rows.
    let outside = values.iter().enumerate().filter(|(_, value)| !window.contains(**value));
    let rows: Vec<u16> = outside.map(|(row, _)| row as u16).collect();
    (head.base, head.width) = (window.base.to_number(), window.width);
    packed::write(&packed, window.base, window.width, writer);
    exceptions::write(values, &rows, head, writer);
}

impl Patched {
    /// Reads the parts that the head describes.
    pub(crate) fn parse(head: &Head, parts: &mut Parts) -> Result<Self, CorruptChunk> {
        let packed = Packed::parse(parts, head.base, head.width, head.rows)?;
        Ok(Self { packed, exceptions: Exceptions::parse(head, parts)? })
    }

    /// Readable name of the encoding.
    pub(crate) fn description(&self) -> String {
        format!("patched({}) with {} exceptions", self.packed.width(), self.exceptions.len())
    }

    /// The number of a row.
    pub(crate) fn value(&self, row: usize) -> i128 {
        self.exceptions.number(row).unwrap_or_else(|| self.packed.value(row))
    }

    /// Appends the numbers of a range.
    pub(crate) fn append<O: Native>(&self, rows: Range<usize>, out: &mut Vec<O>) {
        let start = out.len();
        self.packed.append(rows.clone(), out);
        self.exceptions.apply(rows, &mut out[start..]);
    }

    /// Appends the numbers at ascending positions.
    pub(crate) fn append_at<O: Native>(&self, positions: &[u32], out: &mut Vec<O>) {
        let start = out.len();
        self.packed.append_at(positions, out);
        self.exceptions.apply_at(positions, &mut out[start..]);
    }

    /// Clears the rows of a range that fail a predicate.
    pub(crate) fn filter(&self, predicate: &DatumPredicate, negated: bool, rows: Range<usize>, selection: &mut Bitmap) {
        if self.exceptions.len() == 0 {
            return self.packed.filter(predicate, negated, rows, selection);
        }
        let correct = self.exceptions.mask_corrector(predicate, negated, rows.clone());
        self.packed.filter_corrected(predicate, negated, rows, selection, correct);
    }
}
