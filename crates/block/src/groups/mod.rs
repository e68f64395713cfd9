//! The three formats of a group of columns, and what they have in common.
//!
//! | format    | a piece (one group of one segment) is                             | good for                    |
//! |-----------|-------------------------------------------------------------------|-----------------------------|
//! | `column`  | one chunk of one column                                           | scans of few columns        |
//! | `packed`  | a head and pages of dense, bit-aligned tuples                     | whole rows, fewer bytes     |
//! | `slotted` | a head and pages of tuples behind slots                           | the standard to compare with |
//!
//! Each has the same parts: byte picture, build, open (which checks), filter, read, storage.

pub(crate) mod column;
pub(crate) mod field_test;
pub(crate) mod output;
pub(crate) mod packed;
pub(crate) mod pages;
pub(crate) mod slotted;

use std::ops::Range;

use arrow_array::ArrayRef;
use arrow_buffer::BooleanBuffer;
use taut_encoding::{Bitmap, Choice};
use taut_index::RowRanges;
use taut_types::{ColumnTest, Encoding, GroupKind, LogicalType, Test};

use self::column::ColumnPiece;
use self::packed::PackedPiece;
use self::slotted::SlottedPiece;
use crate::report::ScanReport;
use crate::selection::Rows;
use crate::values::ColumnValues;
use crate::{BlockError, BuildError, Sections};

/// Builds a piece. Returns its sections, and the rows at which its zones end.
pub(crate) fn build(
    kind: GroupKind,
    columns: &[(&ColumnValues, Choice, &str)],
) -> Result<(Vec<Vec<u8>>, Vec<u32>), BuildError> {
    let (sections, page_ends) = match (kind, columns) {
        (GroupKind::Column, [(values, choice, name)]) => return column::build(values, *choice, name),
        (GroupKind::Column, _) => return Err(BuildError::Design { expected: "one column in a column group" }),
        (GroupKind::PackedRows, _) => packed::build(columns)?,
        (GroupKind::SlottedRows, _) => slotted::build(columns)?,
    };
    let zone_ends = pages::zone_ends(&page_ends, columns.len());
    Ok((sections, zone_ends))
}

/// A piece of any format, ready to be read.
pub(crate) enum Piece<'a> {
    Column(ColumnPiece),
    Packed(PackedPiece<'a>),
    Slotted(SlottedPiece<'a>),
}

impl<'a> Piece<'a> {
    /// Opens a piece of columns of these types.
    pub fn open(
        kind: GroupKind,
        sections: &'a dyn Sections,
        numbers: Range<u32>,
        types: Vec<LogicalType>,
        rows: usize,
    ) -> Result<Self, BlockError> {
        Ok(match kind {
            GroupKind::Column => Self::Column(ColumnPiece::open(sections, numbers, types[0], rows)?),
            GroupKind::PackedRows => Self::Packed(PackedPiece::open(sections, numbers, &types, rows)?),
            GroupKind::SlottedRows => Self::Slotted(SlottedPiece::open(sections, numbers, types, rows)?),
        })
    }

    /// Clears the bits of rows in `ranges` that fail a test on the column at `place`.
    pub fn filter(
        &mut self,
        place: usize,
        test: &ColumnTest,
        ranges: &RowRanges,
        selection: &mut Bitmap,
    ) -> Result<(), BlockError> {
        match self {
            Self::Column(piece) => {
                piece.filter(test, ranges, selection);
                Ok(())
            }
            Self::Packed(piece) => piece.filter(place, test, ranges, selection),
            Self::Slotted(piece) => piece.filter(place, test, ranges, selection),
        }
    }

    /// The distinct values of the column at `place`, where they are stored as such.
    pub fn dictionary(&self, place: usize) -> Option<ArrayRef> {
        match self {
            Self::Column(piece) => piece.chunk.dictionary(),
            Self::Packed(piece) => piece.dictionary(place),
            Self::Slotted(_) => None,
        }
    }

    /// Of rows whose values ascend, those that pass a test, by binary search; `None` where that is not to be had. A zone
    /// of rows is a page, which is tested in about the time that a search through it takes.
    pub fn search(&self, test: &Test, rows: Range<usize>) -> Option<Vec<Range<usize>>> {
        match self {
            Self::Column(piece) => piece.chunk.search(test, rows),
            Self::Packed(_) | Self::Slotted(_) => None,
        }
    }

    /// The codes of text whose dictionary entries pass a test that is not one for nulls; `None` without a dictionary.
    pub fn codes_that_pass(&self, place: usize, test: &Test) -> Option<Vec<Range<u32>>> {
        match self {
            Self::Column(piece) => piece.chunk.codes_that_pass(test),
            Self::Packed(piece) => piece.codes_that_pass(place, test),
            Self::Slotted(_) => None,
        }
    }

    /// Clears rows whose dictionary entry's flag is false; null rows stay iff `null_passes`.
    pub fn filter_codes(
        &mut self,
        place: usize,
        flags: &BooleanBuffer,
        null_passes: bool,
        ranges: &RowRanges,
        selection: &mut Bitmap,
    ) -> Result<(), BlockError> {
        match self {
            Self::Column(piece) => {
                piece.filter_codes(flags, null_passes, ranges, selection);
                Ok(())
            }
            Self::Packed(piece) => piece.filter_codes(place, flags, null_passes, ranges, selection),
            Self::Slotted(_) => Ok(()),
        }
    }

    /// The columns at these places, for some rows.
    pub fn read(&mut self, places: &[usize], rows: &Rows<'_>) -> Result<Vec<ArrayRef>, BlockError> {
        match self {
            Self::Column(piece) => Ok(places.iter().map(|_| piece.read(rows)).collect()),
            Self::Packed(piece) => piece.read(places, rows),
            Self::Slotted(piece) => piece.read(places, rows),
        }
    }

    /// Checks what opening leaves to the moment of reading, as far as reading all columns does not.
    pub fn check(&self) -> Result<(), BlockError> {
        match self {
            Self::Column(piece) => piece.check(),
            Self::Packed(_) | Self::Slotted(_) => Ok(()),
        }
    }

    /// How the column at `place` is stored: outermost encoding, in words, and bytes.
    pub fn storage(&self, place: usize) -> (Encoding, String, u64) {
        match self {
            Self::Column(piece) => piece.storage(),
            Self::Packed(piece) => piece.storage(place),
            Self::Slotted(piece) => piece.storage(place),
        }
    }

    /// Moves the counts of what was read into a report.
    pub fn report(&mut self, report: &mut ScanReport) {
        let (bytes, pages) = match self {
            Self::Column(piece) => (&mut piece.bytes_read, None),
            Self::Packed(piece) => (&mut piece.pages.bytes_read, Some(&mut piece.pages.pages_read)),
            Self::Slotted(piece) => (&mut piece.pages.bytes_read, Some(&mut piece.pages.pages_read)),
        };
        report.bytes_read += std::mem::take(bytes);
        report.pages_read += pages.map_or(0, std::mem::take);
    }
}
