//! The three formats of a column group, and the interface that they share.
//!
//! | format    | a piece (one group of one segment) is                             | good for                    |
//! |-----------|-------------------------------------------------------------------|-----------------------------|
//! | `column`  | one chunk of one column                                           | scans of few columns        |
//! | `packed`  | a head and pages of dense, bit-aligned tuples                     | whole rows, fewer bytes     |
//! | `slotted` | a head and pages of tuples behind slots                           | baseline for comparison     |
//!
//! Each format documents its bytes and implements the same operations: build, open with checks, filter, read, and
//! report of its storage. Leading sort columns of a row layout may be abstraction levels (see `levels`): chunks in the
//! head that are read like columns.

pub(crate) mod column;
pub(crate) mod field_predicate;
pub(crate) mod filtered_pages;
pub(crate) mod levels;
pub(crate) mod output;
pub(crate) mod packed;
pub(crate) mod pages;
pub(crate) mod slotted;

use std::ops::Range;

use arrow_array::ArrayRef;
use arrow_buffer::{BooleanBuffer, Buffer};
use taut_encoding::{Bitmap, Choice, Chunk};
use taut_index::RowRanges;
use taut_types::{ColumnPredicate, DatumPredicate, Encoding, GroupKind, LevelColumns, LogicalType};

use self::column::ColumnPiece;
use self::levels::{ColumnStorage, Levels};
use self::packed::PackedPages;
use self::pages::Pages;
use self::slotted::SlottedPages;
use crate::report::ScanReport;
use crate::selection::Rows;
use crate::values::ColumnValues;
use crate::{BlockError, BuildError, Sections};

/// Builds a piece of `rows` rows. `columns` are the values, encoding choice and name of each column. `candidates` are
/// the sort columns that may become levels. Returns the sections of the piece, and the end row (exclusive) of each
/// zone.
pub(crate) fn build(
    kind: GroupKind,
    columns: &[(&ColumnValues, Choice, &str)],
    candidates: &LevelColumns,
    rows: usize,
) -> Result<(Vec<Vec<u8>>, Vec<u32>), BuildError> {
    if kind == GroupKind::Column {
        let [(values, choice, name)] = columns else {
            return Err(BuildError::Design { expected: "one column in a column group" });
        };
        return column::build(values, *choice, name, candidates);
    }
    let levels = levels::choose(kind, columns, candidates)?;
    let is_field = |ordinal: &usize| levels.iter().all(|level| level.ordinal != *ordinal);
    let fields: Vec<_> = (0..columns.len()).filter(is_field).map(|ordinal| columns[ordinal]).collect();
    let (mut sections, page_ends) = match kind {
        GroupKind::PackedRows => packed::build(&fields, rows)?,
        GroupKind::SlottedRows | GroupKind::Column => slotted::build(&fields, rows)?,
    };
    levels::append(&mut sections[0], levels)?;
    let zone_ends = pages::zone_ends(&page_ends, columns.len());
    Ok((sections, zone_ends))
}

/// An open piece of any format.
pub(crate) struct Piece<'a> {
    levels: Levels,
    tuples: TupleColumns<'a>,
}

/// Columns of a piece that are stored in tuples.
enum TupleColumns<'a> {
    /// A group of a single column has no tuples.
    None,
    Packed(PackedPages<'a>),
    Slotted(SlottedPages<'a>),
}

impl<'a> Piece<'a> {
    /// Opens the piece that is stored in `section_range`. `types` are the types of its columns, `rows` the rows of the
    /// segment.
    pub fn open(
        kind: GroupKind,
        sections: &'a dyn Sections,
        section_range: Range<u32>,
        types: &[LogicalType],
        rows: usize,
    ) -> Result<Self, BlockError> {
        let section = section_range.start;
        if kind == GroupKind::Column {
            return Self::open_column(section, sections.section(section)?, types[0], rows);
        }
        let mut pages = Pages::new(sections, section_range);
        let head = pages.head()?;
        let levels = Levels::parse(&head, section, types, rows).map_err(|corrupt| pages.corrupt_error(0, corrupt))?;
        let fields = levels.field_types(types);
        let tuples = match kind {
            GroupKind::PackedRows => TupleColumns::Packed(PackedPages::open(pages, &head, &fields, rows)?),
            GroupKind::SlottedRows | GroupKind::Column => {
                TupleColumns::Slotted(SlottedPages::open(pages, head, fields, rows)?)
            }
        };
        Ok(Self { levels, tuples })
    }

    /// Opens a piece of one column from the bytes of its section.
    pub fn open_column(section: u32, bytes: Buffer, logical: LogicalType, rows: usize) -> Result<Self, BlockError> {
        let column = ColumnPiece::open(section, bytes, logical, rows)?;
        Ok(Self { levels: Levels::Single(column), tuples: TupleColumns::None })
    }

    /// Chunk of the column with this ordinal. Returns `None` if the column is stored in tuples.
    pub fn chunk(&self, ordinal: usize) -> Option<&Chunk> {
        match self.levels.column_storage(ordinal) {
            ColumnStorage::Column(column) => Some(&column.chunk),
            ColumnStorage::Field(_) => None,
        }
    }

    /// The column of a group of a single column. Returns `None` for row layouts.
    pub fn single_column(&self) -> Option<&ColumnPiece> {
        match &self.levels {
            Levels::Single(column) => Some(column),
            Levels::OfRows { .. } => None,
        }
    }

    /// Deselects rows in `ranges` that fail a predicate on the column with this ordinal.
    pub fn filter(
        &mut self,
        ordinal: usize,
        predicate: &ColumnPredicate,
        ranges: &RowRanges,
        selection: &mut Bitmap,
    ) -> Result<(), BlockError> {
        match (self.levels.column_storage(ordinal), &mut self.tuples) {
            (ColumnStorage::Column(column), _) => column.filter(predicate, ranges, selection),
            (ColumnStorage::Field(_), TupleColumns::None) => {}
            (ColumnStorage::Field(field), TupleColumns::Packed(piece)) => {
                piece.filter(field, predicate, ranges, selection)?
            }
            (ColumnStorage::Field(field), TupleColumns::Slotted(piece)) => {
                piece.filter(field, predicate, ranges, selection)?
            }
        }
        Ok(())
    }

    /// Distinct values of the column with this ordinal. Returns `None` if it has no dictionary for the whole piece.
    pub fn dictionary(&self, ordinal: usize) -> Option<ArrayRef> {
        match (self.levels.column_storage(ordinal), &self.tuples) {
            (ColumnStorage::Column(column), _) => column.chunk.dictionary(),
            (ColumnStorage::Field(field), TupleColumns::Packed(piece)) => piece.dictionary(field),
            (ColumnStorage::Field(_), TupleColumns::None | TupleColumns::Slotted(_)) => None,
        }
    }

    /// Finds the rows in `rows` that pass a predicate, by binary search. The values of `rows` must ascend. Returns
    /// ascending ranges of rows, or `None` if the storage of the column does not support binary search.
    pub fn search(
        &mut self,
        ordinal: usize,
        predicate: &DatumPredicate,
        rows: Range<usize>,
    ) -> Result<Option<Vec<Range<usize>>>, BlockError> {
        match (self.levels.column_storage(ordinal), &mut self.tuples) {
            (ColumnStorage::Column(column), _) => Ok(column.chunk.search(predicate, rows)),
            (ColumnStorage::Field(field), TupleColumns::Slotted(piece)) => piece.search(field, predicate, rows),
            // Packed tuples have no binary search: their sort columns are usually levels.
            (ColumnStorage::Field(_), TupleColumns::None | TupleColumns::Packed(_)) => Ok(None),
        }
    }

    /// Ranges of dictionary codes whose strings pass a predicate. The column must be of text or bytes. Returns `None`
    /// if it has no dictionary for the whole piece. The predicate must not be [`DatumPredicate::Null`].
    pub fn codes_that_pass(&self, ordinal: usize, predicate: &DatumPredicate) -> Option<Vec<Range<u32>>> {
        match (self.levels.column_storage(ordinal), &self.tuples) {
            (ColumnStorage::Column(column), _) => column.chunk.codes_that_pass(predicate),
            (ColumnStorage::Field(field), TupleColumns::Packed(piece)) => piece.codes_that_pass(field, predicate),
            (ColumnStorage::Field(_), TupleColumns::None | TupleColumns::Slotted(_)) => None,
        }
    }

    /// Deselects rows in `ranges` whose dictionary code has a false flag, and null rows unless `null_passes`. Does
    /// nothing if the column has no dictionary for the whole piece.
    pub fn filter_codes(
        &mut self,
        ordinal: usize,
        flags: &BooleanBuffer,
        null_passes: bool,
        ranges: &RowRanges,
        selection: &mut Bitmap,
    ) -> Result<(), BlockError> {
        match (self.levels.column_storage(ordinal), &mut self.tuples) {
            (ColumnStorage::Column(column), _) => column.filter_codes(flags, null_passes, ranges, selection),
            (ColumnStorage::Field(field), TupleColumns::Packed(piece)) => {
                piece.filter_codes(field, flags, null_passes, ranges, selection)?;
            }
            (ColumnStorage::Field(_), TupleColumns::None | TupleColumns::Slotted(_)) => {}
        }
        Ok(())
    }

    /// Reads the columns with these ordinals in the given rows.
    pub fn read(&mut self, ordinals: &[usize], rows: &Rows<'_>) -> Result<Vec<ArrayRef>, BlockError> {
        let field = |ordinal: &usize| match self.levels.column_storage(*ordinal) {
            ColumnStorage::Column(_) => None,
            ColumnStorage::Field(field) => Some(field),
        };
        let fields: Vec<usize> = ordinals.iter().filter_map(field).collect();
        // Reading only levels loads no page.
        let arrays = if fields.is_empty() { vec![] } else { self.read_fields(&fields, rows)? };
        let mut arrays = arrays.into_iter();
        let array = |ordinal: &usize| match self.levels.column_storage(*ordinal) {
            ColumnStorage::Column(column) => Some(column.read(rows)),
            ColumnStorage::Field(_) => arrays.next(),
        };
        Ok(ordinals.iter().filter_map(array).collect())
    }

    fn read_fields(&mut self, fields: &[usize], rows: &Rows<'_>) -> Result<Vec<ArrayRef>, BlockError> {
        match &mut self.tuples {
            TupleColumns::None => Ok(vec![]),
            TupleColumns::Packed(piece) => piece.read(fields, rows),
            TupleColumns::Slotted(piece) => piece.read(fields, rows),
        }
    }

    /// Checks the parts of a piece that neither [`Piece::open`] nor reading all columns checks. `rows` is the number of
    /// rows of the segment.
    pub fn check(&mut self, rows: usize) -> Result<(), BlockError> {
        // Loads and checks every page. Reading all columns does not do this if all of them are levels.
        self.read_fields(&[], &Rows::Range(0..rows))?;
        self.levels.columns().iter().try_for_each(ColumnPiece::check)
    }

    /// Storage of the column with this ordinal: outermost encoding, description and bytes.
    pub fn storage(&self, ordinal: usize) -> (Encoding, String, u64) {
        match (self.levels.column_storage(ordinal), &self.tuples) {
            (ColumnStorage::Column(column), _) => column.storage(),
            (ColumnStorage::Field(field), TupleColumns::Packed(piece)) => piece.storage(field),
            (ColumnStorage::Field(field), TupleColumns::Slotted(piece)) => piece.storage(field),
            (ColumnStorage::Field(_), TupleColumns::None) => (Encoding::Plain, String::new(), 0),
        }
    }

    /// Adds to `report` the bytes and pages read since the last call.
    pub fn flush_counts(&mut self, report: &mut ScanReport) {
        for column in self.levels.columns_mut() {
            report.bytes_read += std::mem::take(&mut column.bytes_read);
        }
        let pages = match &mut self.tuples {
            TupleColumns::None => return,
            TupleColumns::Packed(piece) => &mut piece.pages,
            TupleColumns::Slotted(piece) => &mut piece.pages,
        };
        report.bytes_read += std::mem::take(&mut pages.bytes_read);
        report.pages_read += std::mem::take(&mut pages.pages_read);
    }
}
