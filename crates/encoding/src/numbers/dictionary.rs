//! Each distinct number once, and a code per row: encoding `dictionary` of numbers.
//!
//! ```text
//! part: entries * plain_bytes   the distinct numbers, ascending; floating point as ordered integers
//! parts: codes, as in `codes.rs`
//! ```
//!
//! Codes have the order of the numbers, so that a predicate on numbers is a predicate on codes. Entries that do not
//! ascend give wrong results of predicates, but nothing worse.

use std::ops::Range;
use std::sync::Arc;

use taut_types::DatumPredicate;

use crate::codes::{self, Codes};
use crate::distinct::Distinct;
use crate::head::{CorruptChunk, Head, Parts, Writer, padded};
use crate::kernels::Native;
use crate::numbers::plain::{self, Plain};
use crate::numbers::statistics::Statistics;
use crate::packed;

/// Distinct numbers, and a code per row.
#[derive(Clone, Debug)]
pub(crate) struct NumberDictionary {
    entries: Plain,
    codes: Codes,
}

/// Bytes of the parts of a dictionary of `entries` distinct numbers.
pub(crate) fn estimate<N: Native>(statistics: &Statistics<'_, N>, entries: usize) -> usize {
    padded(entries * statistics.plain_bytes) + codes::bytes(statistics.rows(), statistics.runs, entries)
}

/// Bits of the entries and of packed codes, without padding of the entries. Codes in runs may take fewer.
pub(crate) fn estimate_bits<N: Native>(statistics: &Statistics<'_, N>, entries: usize) -> usize {
    entries * statistics.plain_bits() + 8 * packed::bytes(statistics.rows(), codes::width_of(entries))
}

/// Writes the distinct numbers and a code per row, and sets the head fields that describe them.
pub(crate) fn write<N: Native>(distinct: &Distinct<N>, head: &mut Head, writer: &mut Writer) {
    plain::write(&distinct.entries, head.plain_bytes, false, writer);
    codes::write(&distinct.codes, distinct.entries.len(), None, head, writer);
}

impl NumberDictionary {
    /// Reads the parts that the head describes.
    pub(crate) fn parse(head: &Head, parts: &mut Parts) -> Result<Self, CorruptChunk> {
        if head.entries == 0 {
            return Err(CorruptChunk { at: 12, expected: "at least one entry" });
        }
        let entries = Plain::parse(parts, head.plain_bytes, false, head.entries)?;
        Ok(Self { entries, codes: Codes::parse(head, parts)? })
    }

    /// Readable name of the encodings.
    pub(crate) fn description(&self) -> String {
        format!("dictionary({}) of {}", self.entries.len(), self.codes.description())
    }

    /// Distinct numbers, ascending.
    pub(crate) fn entries(&self) -> &Plain {
        &self.entries
    }

    /// Codes of the rows.
    pub(crate) fn codes(&self) -> &Codes {
        &self.codes
    }

    /// Appends the numbers of a range.
    pub(crate) fn append<O: Native>(&self, rows: Range<usize>, out: &mut Vec<O>) {
        out.reserve(rows.len());
        self.codes.visit(rows, |codes| self.entries.append_codes(codes, out));
    }

    /// Appends the numbers at ascending positions.
    pub(crate) fn append_at<O: Native>(&self, positions: &[u32], out: &mut Vec<O>) {
        self.entries.append_codes(&self.codes.gather(positions), out);
    }

    /// Number of one row.
    pub(crate) fn value(&self, row: usize) -> i128 {
        // A code past the last entry is read as the last one. There is at least one entry.
        self.entries.value(usize::from(self.codes.value(row)).min(self.entries.len() - 1))
    }

    /// Predicate on codes that is equivalent to a predicate on numbers.
    pub(crate) fn predicate_on_codes(&self, predicate: &DatumPredicate) -> DatumPredicate {
        let code = |number: i128| self.entries.lower_bound(number) as i128;
        match predicate {
            DatumPredicate::Range { low, high } => {
                let end = high.checked_add(1).map_or(self.entries.len() as i128, code);
                DatumPredicate::Range { low: code(*low), high: end - 1 }
            }
            DatumPredicate::OneOf(numbers) => {
                let code = |number: i128| {
                    let code = self.entries.lower_bound(number);
                    (code < self.entries.len() && self.entries.value(code) == number).then_some(code as i128)
                };
                codes::one_of(numbers.iter().filter_map(|number| code(*number)))
            }
            DatumPredicate::BytesRange { .. } | DatumPredicate::BytesOneOf(_) | DatumPredicate::Null => {
                DatumPredicate::OneOf(Arc::from([]))
            }
        }
    }
}
