//! Each distinct string once, and a code per row: encodings `dictionary` and `run_length` of text and bytes.
//!
//! ```text
//! parts: the distinct strings, ascending, as in `strings.rs`
//! parts: codes, as in `codes.rs`; for `run_length` they are in runs
//! ```
//!
//! Codes have the order of the strings, so that a predicate on strings is a predicate on codes. Rows decode to views of
//! the entries. The views of all entries are made once per chunk.

use std::ops::{Bound, Range};
use std::sync::{Arc, OnceLock};

use arrow_array::BinaryViewArray;
use taut_types::{DatumPredicate, Encoding};

use crate::bytes::strings::{self, Strings};
use crate::codes::{self, Codes};
use crate::distinct::Distinct;
use crate::head::{CorruptChunk, Head, Parts, Writer};
use crate::kernels::Views;

/// Distinct strings, and a code per row.
#[derive(Clone, Debug)]
pub(crate) struct BytesDictionary {
    entries: Strings,
    codes: Codes,
    in_runs: bool,
    views: Arc<OnceLock<Views>>,
}

/// Writes the distinct strings of an array and a code per row, and sets the head fields that describe them.
pub(crate) fn write(array: &BinaryViewArray, distinct: &Distinct<u32>, head: &mut Head, writer: &mut Writer) {
    let entries = distinct.entries.iter().map(|row| array.value(*row as usize));
    let heap_bytes = entries.clone().map(<[u8]>::len).sum();
    strings::write(entries, heap_bytes, head, writer);
    let in_runs = (head.encoding == Encoding::RunLength).then_some(true);
    codes::write(&distinct.codes, distinct.entries.len(), in_runs, head, writer);
}

impl BytesDictionary {
    /// Reads the parts that the head describes.
    pub(crate) fn parse(head: &Head, is_text: bool, parts: &mut Parts) -> Result<Self, CorruptChunk> {
        if head.entries == 0 {
            return Err(CorruptChunk { at: 12, expected: "at least one entry" });
        }
        let entries = Strings::parse(head, is_text, head.entries, parts)?;
        let codes = Codes::parse(head, parts)?;
        let in_runs = head.encoding == Encoding::RunLength;
        if in_runs && !matches!(codes, Codes::Runs(..)) {
            return Err(CorruptChunk { at: 1, expected: "codes in runs" });
        }
        Ok(Self { entries, codes, in_runs, views: Arc::default() })
    }

    /// Readable name of the encodings, for example `dictionary(7) of bit_packed(3)`.
    pub(crate) fn description(&self) -> String {
        let (entries, codes) = (self.entries.len(), self.codes.description());
        if self.in_runs {
            format!("{codes} of dictionary({entries})")
        } else {
            format!("dictionary({entries}) of {codes}")
        }
    }

    /// Distinct strings, ascending.
    pub(crate) fn entries(&self) -> &Strings {
        &self.entries
    }

    /// Codes of the rows.
    pub(crate) fn codes(&self) -> &Codes {
        &self.codes
    }

    /// Views of all entries, built by the first call.
    pub(crate) fn table(&self) -> &Views {
        self.views.get_or_init(|| self.entries.views(0..self.entries.len()).0)
    }

    /// Strings of a range of rows.
    pub(crate) fn views(&self, rows: Range<usize>) -> Views {
        let table = self.table();
        let mut views = table.empty_like(rows.len());
        self.codes.visit(rows, |codes| views.append_from(table, codes));
        views
    }

    /// Strings at ascending positions.
    pub(crate) fn views_at(&self, positions: &[u32]) -> Views {
        let codes = self.codes.gather(positions);
        if self.views.get().is_none() && codes.len() < self.entries.len() {
            // Fewer rows than entries: build views of only the entries of these rows.
            let entries: Vec<u32> =
                codes.iter().map(|code| u32::from(*code).min(self.entries.len() as u32 - 1)).collect();
            return self.entries.views_at(&entries);
        }
        let table = self.table();
        let mut views = table.empty_like(positions.len());
        views.append_from(table, &codes);
        views
    }

    /// String of one row. Empty if its code has no entry.
    pub(crate) fn value(&self, row: usize) -> &[u8] {
        let code = usize::from(self.codes.value(row));
        if code < self.entries.len() { self.entries.get(code) } else { &[] }
    }

    /// Codes whose entries pass a predicate.
    pub(crate) fn codes_that_pass(&self, predicate: &DatumPredicate) -> Vec<Range<u32>> {
        // Codes have at most 16 bits.
        match self.predicate_on_codes(predicate) {
            DatumPredicate::Range { low, high } if low <= high => {
                let codes = low as u32..high as u32 + 1;
                vec![codes]
            }
            DatumPredicate::OneOf(codes) => codes.iter().map(|code| *code as u32..*code as u32 + 1).collect(),
            _ => vec![],
        }
    }

    /// Predicate on codes that is equivalent to a predicate on strings.
    pub(crate) fn predicate_on_codes(&self, predicate: &DatumPredicate) -> DatumPredicate {
        let entries = &self.entries;
        match predicate {
            DatumPredicate::BytesRange { low, high } => {
                let first = match low {
                    Bound::Included(low) => entries.partition_point(|entry| entry < &**low),
                    Bound::Excluded(low) => entries.partition_point(|entry| entry <= &**low),
                    Bound::Unbounded => 0,
                };
                let end = match high {
                    Bound::Included(high) => entries.partition_point(|entry| entry <= &**high),
                    Bound::Excluded(high) => entries.partition_point(|entry| entry < &**high),
                    Bound::Unbounded => entries.len(),
                };
                DatumPredicate::Range { low: first as i128, high: end as i128 - 1 }
            }
            DatumPredicate::BytesOneOf(list) => {
                let code = |value: &[u8]| {
                    let code = entries.partition_point(|entry| entry < value);
                    (code < entries.len() && entries.get(code) == value).then_some(code as i128)
                };
                codes::one_of(list.iter().filter_map(|value| code(value)))
            }
            DatumPredicate::Range { .. } | DatumPredicate::OneOf(_) | DatumPredicate::Null => {
                DatumPredicate::OneOf(Arc::from([]))
            }
        }
    }
}
