//! A sealed block: its parsed header, and access to its description, statistics and segments.

use std::sync::{Arc, PoisonError, RwLock};

use arrow_buffer::Buffer;
use hashbrown::HashMap;
use taut_index::Zone;
use taut_types::{
    ColumnIndex, ColumnPredicate, ColumnStatistics, Encoding, Group, IndexDesign, IndexKind, LogicalType, Schema,
    TableDesign,
};

use crate::builder::Description;
use crate::column_map::{MappedColumns, NOT_STORED};
use crate::error::Corrupt;
use crate::groups::Piece;
use crate::header::{DESCRIPTION, Header};
use crate::segment::SegmentReader;
use crate::selection::Rows;
use crate::statistics::ColumnSummary;
use crate::values::{ColumnBounds, ColumnValues};
use crate::{BlockError, CorruptBlock, ScanReport, SectionEntry, Sections, indexes};

/// A block with a parsed header. Its methods read sections from a [`Sections`] on demand.
///
/// The block caches the parsed statistics of columns, and nothing else. Each [`SegmentReader`] reads its sections
/// itself.
#[derive(Debug)]
pub struct Block {
    pub(crate) header: Header,
    /// Map from the columns of the table to the columns of the block. `None` if the table has the columns of the
    /// header.
    pub(crate) mapped: Option<MappedColumns>,
    /// Parsed statistics, by index of the column in the table.
    summaries: RwLock<HashMap<u32, Arc<ColumnSummary>>>,
}

/// Storage of one column in one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PieceStorage {
    /// Ordinal of the segment in the block.
    pub segment: usize,
    /// Rows of the segment.
    pub rows: usize,
    /// Number of null values.
    pub nulls: u64,
    /// The outermost encoding.
    pub encoding: Encoding,
    /// The encoding as text, such as `dictionary(25) of bit_packed(5)`.
    pub description: String,
    /// Bytes in the file. In row layouts, the share of the column in its piece (one column group of one segment). Zero
    /// if the block does not store the column.
    pub stored_bytes: u64,
    /// Bytes of the unencoded values.
    pub plain_bytes: u64,
}

impl From<Header> for Block {
    fn from(header: Header) -> Self {
        Self { header, mapped: None, summaries: RwLock::default() }
    }
}

impl Block {
    /// Reads the length of a header in bytes from its first 64 bytes.
    ///
    /// # Errors
    /// If the bytes are not the beginning of a block.
    pub fn header_length(first_64_bytes: &[u8]) -> Result<u64, CorruptBlock> {
        Header::length(first_64_bytes)
    }

    /// Parses a header. Checks its checksum and every count, offset, kind and type in it.
    ///
    /// # Errors
    /// If the header is corrupt.
    pub fn parse(header: Buffer) -> Result<Self, CorruptBlock> {
        Ok(Header::parse(header)?.into())
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.header.rows()
    }

    /// Bytes of the unencoded values.
    pub fn plain_bytes(&self) -> u64 {
        self.header.plain_bytes()
    }

    /// Bytes of the block file.
    pub fn file_length(&self) -> u64 {
        self.header.file_length()
    }

    /// Number of segments.
    pub fn segments(&self) -> usize {
        self.header.segments()
    }

    /// Rows of one segment: 1 to [`crate::SEGMENT_ROWS`].
    ///
    /// # Panics
    /// If there is no such segment.
    pub fn segment_rows(&self, segment: usize) -> usize {
        // A segment has at most 65,536 rows.
        let rows = self.header.segment(segment);
        (rows.end - rows.start) as usize
    }

    /// Ordinal in the block of the first row of a segment.
    ///
    /// # Panics
    /// If there is no such segment.
    pub fn segment_start(&self, segment: usize) -> u64 {
        self.header.segment(segment).start
    }

    /// Number of columns of the table, including columns that the block does not store.
    pub fn columns(&self) -> usize {
        self.mapped.as_ref().map_or(self.header.columns(), MappedColumns::columns)
    }

    /// The type of a column.
    ///
    /// # Panics
    /// If there is no such column.
    pub fn column_type(&self, column: ColumnIndex) -> LogicalType {
        match self.source(column) {
            Ok(stored) => self.header.column_type(stored.index()),
            Err(added) => added.logical_type,
        }
    }

    /// The stored column groups, with their columns in the table. Omits dropped columns, so a group may be empty.
    pub fn groups(&self) -> Vec<Group> {
        let group = |group| {
            let Group { kind, columns } = self.header.group(group);
            let of_table = |stored: ColumnIndex| match &self.mapped {
                None => Some(stored),
                Some(mapped) => mapped.of_stored(stored),
            };
            Group { kind, columns: columns.into_iter().filter_map(of_table).collect() }
        };
        (0..self.header.groups()).map(group).collect()
    }

    /// Kind of each index of the block, and its columns in the table. An element is `None` if a column of the index was
    /// dropped.
    pub fn indexes(&self) -> Vec<Option<(IndexKind, Vec<ColumnIndex>)>> {
        (0..self.header.indexes()).map(|index| self.index(index)).collect()
    }

    /// Bytes of one index in the file, over all segments.
    ///
    /// # Panics
    /// If there is no such index.
    pub fn index_bytes(&self, index: usize) -> u64 {
        let section = |segment| self.header.index_section(segment, index) as usize;
        (0..self.segments()).map(|segment| self.header.section(section(segment)).length).sum()
    }

    /// Number of sections.
    pub fn section_count(&self) -> u32 {
        self.header.sections() as u32
    }

    /// Offset, length and checksum of a section.
    ///
    /// # Panics
    /// If there is no such section.
    pub fn section(&self, index: u32) -> SectionEntry {
        self.header.section(index as usize)
    }

    /// Ordinals of the sections that hold a column of a segment. The range is empty if the block does not store the
    /// column. Sections of a row layout also hold the other columns of the group.
    ///
    /// # Panics
    /// If there is no such segment or column.
    pub fn sections_of(&self, segment: usize, column: ColumnIndex) -> std::ops::Range<u32> {
        let (group, _) = self.group_and_ordinal(column);
        if self.added_column(group).is_some() { 0..0 } else { self.header.piece_sections(segment, group) }
    }

    /// Whether the columns of a schema have the same count and types as the columns of this block. Ignores names.
    /// Ignores nullability too, because `SET NOT NULL` and `DROP NOT NULL` change a table but not its blocks.
    pub fn has_types(&self, schema: &Schema) -> bool {
        let types = schema.columns().iter().map(|column| column.logical_type);
        self.columns() == schema.len()
            && types.enumerate().all(|(index, logical)| self.column_type(index.into()) == logical)
    }

    /// Reads the schema and the design for which the block was built. They have the columns with which the block was
    /// built, even if columns of the table were added or dropped later.
    ///
    /// # Errors
    /// If the description section cannot be read or does not describe this block.
    pub fn description(&self, sections: &dyn Sections) -> Result<(Schema, TableDesign), BlockError> {
        let bytes = sections.section(DESCRIPTION)?;
        let corrupt = |expected| Corrupt { at: 0, expected }.in_section(DESCRIPTION);
        let description: Description =
            serde_json::from_slice(&bytes).map_err(|_| corrupt("schema and design as JSON"))?;
        if !self.header.matches_schema(&description.schema) {
            return Err(corrupt("the columns of the header"));
        }
        let indexes = description.design.indexes.iter().map(|index| (index.kind, index.columns.clone()));
        if !indexes.eq((0..self.header.indexes()).map(|index| self.header.index(index))) {
            return Err(corrupt("the indexes of the header"));
        }
        Ok((description.schema, description.design))
    }

    /// Reads the design for which the block was built, and converts it to the current columns of the table. Returns
    /// `None` if the design has sort columns or indexes on columns that were dropped.
    ///
    /// # Errors
    /// If the description section cannot be read or does not describe this block.
    pub fn design(&self, sections: &dyn Sections) -> Result<Option<TableDesign>, BlockError> {
        let (schema, mut design) = self.description(sections)?;
        let Some(mapped) = &self.mapped else { return Ok(Some(design)) };
        // Drops the last column first, so that the indexes of columns that are dropped later stay valid.
        for column in (0..schema.len()).rev().map(ColumnIndex::from) {
            if mapped.of_stored(column).is_none() {
                let Some(without) = design.without_column(column) else { return Ok(None) };
                design = without;
            }
        }
        let is_added = |column: &ColumnIndex| self.source(*column).is_err();
        let added = (0..self.columns()).map(ColumnIndex::from).filter(is_added);
        Ok(Some(added.fold(design, |design, column| design.with_column(column))))
    }

    /// Reads the designs of the indexes in the order of [`Block::indexes`], and converts them to the current columns of
    /// the table. An element is `None` if a column of the index was dropped.
    ///
    /// # Errors
    /// If the description section cannot be read or does not describe this block.
    pub fn index_designs(&self, sections: &dyn Sections) -> Result<Vec<Option<IndexDesign>>, BlockError> {
        let (_, design) = self.description(sections)?;
        let of_table = |(stored, index): (IndexDesign, usize)| {
            self.index(index).map(|(_, columns)| IndexDesign { columns, ..stored })
        };
        Ok(design.indexes.into_iter().zip(0..).map(of_table).collect())
    }

    /// Parsed statistics section of a column. The block caches the result.
    ///
    /// # Errors
    /// If the section cannot be read or parsed.
    pub fn summary(&self, sections: &dyn Sections, column: ColumnIndex) -> Result<Arc<ColumnSummary>, BlockError> {
        let cached = self.summaries.read().unwrap_or_else(PoisonError::into_inner).get(&column.0).cloned();
        if let Some(summary) = cached {
            return Ok(summary);
        }
        let segment_rows = (0..self.segments()).map(|segment| self.segment_rows(segment));
        let summary = match self.source(column) {
            Ok(stored) => {
                let section = statistics_section(stored);
                ColumnSummary::parse(sections.section(section)?, self.column_type(column), segment_rows)
                    .map_err(|corrupt| corrupt.in_section(section))?
            }
            Err(added) => added.summary(segment_rows)?,
        };
        let mut summaries = self.summaries.write().unwrap_or_else(PoisonError::into_inner);
        summaries.insert(column.0, summary.clone());
        Ok(summary)
    }

    /// Statistics of a column over all rows of the block, including rows that a [`SegmentReader`] excludes.
    ///
    /// # Errors
    /// If the section cannot be read or parsed.
    pub fn statistics(&self, sections: &dyn Sections, column: ColumnIndex) -> Result<ColumnStatistics, BlockError> {
        let summary = self.summary(sections, column)?;
        let section = self.source(column).map_or(NOT_STORED, statistics_section);
        summary.statistics().map_err(|corrupt| corrupt.in_section(section))
    }

    /// Whether a row of the block may pass all column predicates. Returns false if the block has no rows, or if zone
    /// maps rule out all rows for one of the predicates.
    ///
    /// # Errors
    /// If statistics cannot be read or parsed.
    pub fn may_match(&self, sections: &dyn Sections, predicates: &[ColumnPredicate]) -> Result<bool, BlockError> {
        for predicate in predicates {
            if !self.summary(sections, predicate.column)?.may_match(predicate) {
                return Ok(false);
            }
        }
        Ok(self.rows() > 0)
    }

    /// A reader of one segment. It reads sections on demand.
    ///
    /// # Panics
    /// If there is no such segment.
    pub fn open_segment<'a>(&'a self, sections: &'a dyn Sections, segment: usize) -> SegmentReader<'a> {
        SegmentReader::new(self, sections, segment)
    }

    pub(crate) fn open_piece<'a>(
        &self,
        sections: &'a dyn Sections,
        segment: usize,
        group: usize,
    ) -> Result<Piece<'a>, BlockError> {
        if let Some(added) = self.added_column(group) {
            let rows = self.segment_rows(segment);
            return Piece::open_column(NOT_STORED, added.chunk(rows)?, added.logical_type, rows);
        }
        let columns = self.header.group(group).columns;
        let types: Vec<LogicalType> = columns.iter().map(|column| self.header.column_type(column.index())).collect();
        let section_range = self.header.piece_sections(segment, group);
        Piece::open(self.header.group_kind(group), sections, section_range, &types, self.segment_rows(segment))
    }

    /// Storage of a column in each segment.
    ///
    /// # Errors
    /// If a piece cannot be read or parsed.
    pub fn column_storage(
        &self,
        sections: &dyn Sections,
        column: ColumnIndex,
    ) -> Result<Vec<PieceStorage>, BlockError> {
        let (group, ordinal) = self.group_and_ordinal(column);
        let summary = self.summary(sections, column)?;
        let is_stored = self.source(column).is_ok();
        (0..self.segments())
            .map(|segment| {
                let (encoding, description, bytes) = self.open_piece(sections, segment, group)?.storage(ordinal);
                let stored_bytes = if is_stored { bytes } else { 0 };
                let stored = summary.segment(segment);
                Ok(PieceStorage {
                    segment,
                    rows: self.segment_rows(segment),
                    nulls: stored.nulls,
                    encoding,
                    description,
                    stored_bytes,
                    plain_bytes: stored.plain_bytes,
                })
            })
            .collect()
    }

    /// Reads and decodes the whole block, and compares statistics and indexes with the values. Checks all columns that
    /// the block had when it was written.
    ///
    /// # Errors
    /// If a section cannot be read or is corrupt, or if statistics or indexes disagree with the values. The check ends
    /// at the first error.
    pub fn check(&self, sections: &dyn Sections) -> Result<(), BlockError> {
        if self.mapped.is_some() {
            return self.with_columns(None)?.check(sections);
        }
        self.description(sections)?;
        let mut bounds = vec![ColumnBounds::default(); self.columns()];
        let mut report = ScanReport::default();
        for segment in 0..self.segments() {
            for group in 0..self.header.groups() {
                let columns = self.header.group(group).columns;
                let mut piece = self.open_piece(sections, segment, group)?;
                piece.check(self.segment_rows(segment))?;
                for (ordinal, column) in columns.iter().enumerate() {
                    let arrays = piece.read(&[ordinal], &Rows::Range(0..self.segment_rows(segment)))?;
                    let summary = self.summary(sections, *column)?;
                    for array in arrays {
                        let agrees = ColumnValues::new(array, self.column_type(*column)).is_ok_and(|values| {
                            let stored = summary.segment(segment);
                            let ends: Vec<u32> = stored.zones.zones().iter().map(|zone| zone.rows_end).collect();
                            let zones = values.zones(&ends, &mut bounds[column.index()]);
                            zones_agree(&zones, stored.zones.zones()) && values.plain_bytes() == stored.plain_bytes
                        });
                        self.expect_agreement(agrees, *column)?;
                    }
                }
                piece.flush_counts(&mut report);
            }
        }
        self.check_indexes(sections)?;
        for (index, bounds) in bounds.into_iter().enumerate() {
            let column = ColumnIndex::from(index);
            let statistics = self.statistics(sections, column)?;
            let bounds = bounds.shorten();
            let agrees =
                statistics.min == bounds.min && statistics.max == bounds.max && statistics.exact != bounds.is_inexact;
            self.expect_agreement(agrees, column)?;
        }
        Ok(())
    }

    /// Compares the stored indexes with indexes rebuilt from the values.
    fn check_indexes(&self, sections: &dyn Sections) -> Result<(), BlockError> {
        for segment in 0..self.segments() {
            for index in 0..self.header.indexes() {
                let section = self.header.index_section(segment, index);
                if sections.section(section)?.as_slice()
                    != indexes::build_index_section(self, sections, segment, index)?
                {
                    let corrupt = Corrupt { at: 0, expected: "an index that agrees with the values" };
                    return Err(corrupt.in_section(section));
                }
            }
        }
        Ok(())
    }

    /// Returns an error that names the statistics section of `column`, unless `agrees`.
    fn expect_agreement(&self, agrees: bool, column: ColumnIndex) -> Result<(), BlockError> {
        let corrupt = Corrupt { at: 0, expected: "statistics that agree with the values" };
        if agrees { Ok(()) } else { Err(corrupt.in_section(statistics_section(column))) }
    }
}

/// Whether stored zones agree with zones computed from the values. Blocks of version 1 do not record whether zones
/// ascend.
fn zones_agree(computed: &[Zone], stored: &[Zone]) -> bool {
    let agrees = |(computed, stored): (&Zone, &Zone)| {
        computed == stored || *computed == Zone { is_ascending: true, ..stored.clone() }
    };
    computed.len() == stored.len() && computed.iter().zip(stored).all(agrees)
}

/// Ordinal of the section with a column's statistics. These sections follow the description, one for each column.
fn statistics_section(column: ColumnIndex) -> u32 {
    DESCRIPTION + 1 + column.0
}
