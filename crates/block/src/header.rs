//! Header of a block: its columns, groups, segments and indexes, and the offset of each section. It contains no values.
//!
//! ```text
//! offset  size         field
//! 0       8            magic           "tautblk\n"
//! 8       2            version         2; readers accept 1 too
//! 10      2            indexes         I; zero in version 1
//! 12      4            header_length   bytes of the header, a multiple of 64
//! 16      8            checksum        XXH3 of bytes 24..header_length
//! 24      8            rows
//! 32      8            file_length
//! 40      8            plain_bytes     bytes of the unencoded values
//! 48      4            columns         C
//! 52      4            groups          G
//! 56      4            segments        S
//! 60      4            sections        N
//! 64      C * 8        column table    type code [u8; 3], nullable u8, group u16, ordinal in the group u16
//!         G * 8        group table     kind u8, zero [u8; 3], members_end u32
//!         C * 4        members         the columns of group 0 in stored order, then of group 1, ...
//!         S * 8        segment table   rows_end
//!         S * G * 4    piece table     first section of (segment 0, group 0), (segment 0, group 1), ...
//!         I * 8        index table     kind u8, columns u8, zero u16, first column u16, second column u16 or zero
//!         N * 24       section table   offset, length, checksum
//!                      zeros           up to header_length
//! ```
//!
//! Section 0 is the description as JSON: the schema, and the design (layout, sort order, encodings and indexes; see
//! [`TableDesign`](taut_types::TableDesign)). Sections `1..=C` are the statistics of the columns. The pieces follow. A
//! piece is one column group of one segment. It has one or more sections, up to the first section of the next piece.
//! The last S * I sections store indexes: (segment 0, index 0), (segment 0, index 1), ... Sections are contiguous, and
//! each begins at a multiple of 64. All integers are little-endian.
//!
//! A parsed header is not copied into other structures: its tables are read in place. Parsing a header of thousands of
//! columns is one pass over its bytes. Later reads touch only the columns that are needed.

use std::ops::Range;

use arrow_buffer::Buffer;
use taut_types::{Column, ColumnIndex, Group, GroupKind, IndexDesign, IndexKind, LogicalType, Schema};

use crate::bytes::{u16_at, u32_at, u64_at};
use crate::section::aligned;
use crate::{CorruptBlock, SEGMENT_ROWS, SectionEntry, checksum};

const MAGIC: &[u8; 8] = b"tautblk\n";
const VERSION: u16 = 2;
/// The oldest version that can be read. It has no indexes.
const VERSION_MIN: u16 = 1;
/// Offset from which the checksum covers the header.
const CHECKSUM_START: usize = 24;
pub(crate) const FIXED_BYTES: usize = 64;
const COLUMN_BYTES: usize = 8;
const GROUP_BYTES: usize = 8;
const MEMBER_BYTES: usize = 4;
const SEGMENT_BYTES: usize = 8;
const PIECE_BYTES: usize = 4;
const INDEX_BYTES: usize = 8;
const SECTION_BYTES: usize = 24;

/// Ordinal of the description section, which contains schema and design as JSON.
pub(crate) const DESCRIPTION: u32 = 0;

/// The parts of a block from which its header is written.
pub(crate) struct HeaderSource<'a> {
    pub schema: &'a Schema,
    pub groups: &'a [Group],
    pub plain_bytes: u64,
    pub segment_ends: &'a [u64],
    pub first_sections: &'a [u32],
    pub indexes: &'a [IndexDesign],
    pub sections: &'a [Vec<u8>],
}

/// A checked header whose tables are read in place.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    bytes: Buffer,
    counts: Counts,
    offsets: Offsets,
}

#[derive(Clone, Copy, Debug)]
struct Counts {
    columns: usize,
    groups: usize,
    segments: usize,
    sections: usize,
    indexes: usize,
}

#[derive(Clone, Copy, Debug)]
struct Offsets {
    groups: usize,
    members: usize,
    segments: usize,
    pieces: usize,
    indexes: usize,
    sections: usize,
    end: usize,
}

impl Counts {
    fn read(bytes: &[u8]) -> Self {
        let count = |at| u32_at(bytes, at) as usize;
        let indexes = usize::from(u16_at(bytes, 10));
        Self { columns: count(48), groups: count(52), segments: count(56), sections: count(60), indexes }
    }

    /// Offsets of the tables. Returns `None` if they end beyond 4 GiB.
    fn offsets(self) -> Option<Offsets> {
        let groups = FIXED_BYTES.checked_add(self.columns.checked_mul(COLUMN_BYTES)?)?;
        let members = groups.checked_add(self.groups.checked_mul(GROUP_BYTES)?)?;
        let segments = members.checked_add(self.columns.checked_mul(MEMBER_BYTES)?)?;
        let pieces = segments.checked_add(self.segments.checked_mul(SEGMENT_BYTES)?)?;
        let indexes = pieces.checked_add(self.segments.checked_mul(self.groups)?.checked_mul(PIECE_BYTES)?)?;
        let sections = indexes.checked_add(self.indexes.checked_mul(INDEX_BYTES)?)?;
        let end = sections.checked_add(self.sections.checked_mul(SECTION_BYTES)?)?;
        let offsets = Offsets { groups, members, segments, pieces, indexes, sections, end };
        (end <= u32::MAX as usize - FIXED_BYTES).then_some(offsets)
    }
}

fn corrupt_at(at: usize, expected: &'static str) -> CorruptBlock {
    CorruptBlock { at, expected }
}

/// Encodes a header. Returns `None` if its bytes exceed 4 GiB, or if there are more than 65,535 indexes.
pub(crate) fn write(source: &HeaderSource<'_>) -> Option<Vec<u8>> {
    let counts = Counts {
        columns: source.schema.len(),
        groups: source.groups.len(),
        segments: source.segment_ends.len(),
        sections: source.sections.len(),
        indexes: source.indexes.len(),
    };
    let indexes = u16::try_from(counts.indexes).ok()?;
    let offsets = counts.offsets()?;
    let length = aligned(offsets.end as u64) as usize;
    let mut bytes = Vec::with_capacity(length);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&indexes.to_le_bytes());
    bytes.extend_from_slice(&(length as u32).to_le_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&source.segment_ends.last().copied().unwrap_or(0).to_le_bytes());
    let file_length_at = bytes.len();
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&source.plain_bytes.to_le_bytes());
    for count in [counts.columns, counts.groups, counts.segments, counts.sections] {
        bytes.extend_from_slice(&(count as u32).to_le_bytes());
    }
    write_columns(source, &mut bytes);
    for end in source.segment_ends {
        bytes.extend_from_slice(&end.to_le_bytes());
    }
    for first in source.first_sections {
        bytes.extend_from_slice(&first.to_le_bytes());
    }
    for index in source.indexes {
        let column = |ordinal: usize| index.columns.get(ordinal).map_or(0, |column| column.0 as u16);
        bytes.extend_from_slice(&[index.kind as u8, index.columns.len() as u8, 0, 0]);
        bytes.extend_from_slice(&column(0).to_le_bytes());
        bytes.extend_from_slice(&column(1).to_le_bytes());
    }
    let mut offset = length as u64;
    for section in source.sections {
        for field in [offset, section.len() as u64, checksum(section)] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        offset = aligned(offset + section.len() as u64);
    }
    assert!(bytes.len() == offsets.end, "the tables of a header are as long as their counts say");
    bytes.resize(length, 0);
    bytes[file_length_at..file_length_at + 8].copy_from_slice(&offset.to_le_bytes());
    let header_checksum = checksum(&bytes[CHECKSUM_START..]);
    bytes[16..24].copy_from_slice(&header_checksum.to_le_bytes());
    Some(bytes)
}

fn write_columns(source: &HeaderSource<'_>, bytes: &mut Vec<u8>) {
    let mut locations = vec![(0u16, 0u16); source.schema.len()];
    for (group, members) in source.groups.iter().enumerate() {
        for (ordinal, column) in members.columns.iter().enumerate() {
            // A schema has at most 16,384 columns, so both fit 16 bits.
            locations[column.index()] = (group as u16, ordinal as u16);
        }
    }
    for (column, (group, ordinal)) in source.schema.columns().iter().zip(locations) {
        bytes.extend_from_slice(&column.logical_type.code());
        bytes.push(u8::from(column.nullable));
        bytes.extend_from_slice(&group.to_le_bytes());
        bytes.extend_from_slice(&ordinal.to_le_bytes());
    }
    let mut members_end = 0u32;
    for group in source.groups {
        members_end += group.columns.len() as u32;
        bytes.extend_from_slice(&[group.kind as u8, 0, 0, 0]);
        bytes.extend_from_slice(&members_end.to_le_bytes());
    }
    for column in source.groups.iter().flat_map(|group| &group.columns) {
        bytes.extend_from_slice(&column.0.to_le_bytes());
    }
}

impl Header {
    /// Length in bytes of the header that begins with these bytes.
    pub fn length(first: &[u8]) -> Result<u64, CorruptBlock> {
        if first.len() < FIXED_BYTES {
            return Err(corrupt_at(first.len(), "64 bytes"));
        }
        if &first[..8] != MAGIC {
            return Err(corrupt_at(0, "the magic of a block"));
        }
        if !(VERSION_MIN..=VERSION).contains(&u16_at(first, 8)) {
            return Err(corrupt_at(8, "version 1 or 2"));
        }
        if u16_at(first, 8) == VERSION_MIN && u16_at(first, 10) != 0 {
            return Err(corrupt_at(10, "zero"));
        }
        let length = u64::from(u32_at(first, 12));
        match Counts::read(first).offsets() {
            Some(offsets) if aligned(offsets.end as u64) == length => Ok(length),
            _ => Err(corrupt_at(12, "a header as long as its tables")),
        }
    }

    /// Parses a header and checks it completely.
    pub fn parse(bytes: Buffer) -> Result<Self, CorruptBlock> {
        let length = Self::length(&bytes)?;
        if bytes.len() as u64 != length {
            return Err(corrupt_at(12, "the length of the header in bytes"));
        }
        if checksum(&bytes[CHECKSUM_START..]) != u64_at(&bytes, 16) {
            return Err(corrupt_at(16, "the checksum of the header"));
        }
        let counts = Counts::read(&bytes);
        let Some(offsets) = counts.offsets() else { return Err(corrupt_at(12, "a header of less than 4 GiB")) };
        if !(1..=Schema::COLUMNS_MAX).contains(&counts.columns) {
            return Err(corrupt_at(48, "1 to 16384 columns"));
        }
        if !(1..=counts.columns).contains(&counts.groups) {
            return Err(corrupt_at(52, "at least one group, and no more groups than columns"));
        }
        let header = Self { bytes, counts, offsets };
        header.check_groups()?;
        header.check_indexes()?;
        header.check_segments()?;
        header.check_sections()?;
        Ok(header)
    }

    fn check_groups(&self) -> Result<(), CorruptBlock> {
        let mut start = 0;
        for group in 0..self.counts.groups {
            let at = self.offsets.groups + group * GROUP_BYTES;
            let kind = GroupKind::from_code(self.bytes[at]).ok_or(corrupt_at(at, "a kind of group"))?;
            if self.bytes[at + 1..at + 4] != [0; 3] {
                return Err(corrupt_at(at + 1, "zeros"));
            }
            let end = u32_at(&self.bytes, at + 4) as usize;
            if end <= start || end > self.counts.columns || (kind == GroupKind::Column && end != start + 1) {
                return Err(corrupt_at(at + 4, "the end of the group's members"));
            }
            for (ordinal, member) in (start..end).enumerate() {
                let member_at = self.offsets.members + member * MEMBER_BYTES;
                let column = u32_at(&self.bytes, member_at) as usize;
                if column >= self.counts.columns || self.group_and_ordinal(column) != (group, ordinal) {
                    return Err(corrupt_at(member_at, "a column that names this group and ordinal"));
                }
            }
            start = end;
        }
        // An entry of the column table names only one group and ordinal, which were compared with those of each member.
        // So no column is a member twice. There are as many members as columns, so every column is a member.
        if start != self.counts.columns {
            return Err(corrupt_at(self.offsets.groups, "groups of all columns"));
        }
        for column in 0..self.counts.columns {
            let at = FIXED_BYTES + column * COLUMN_BYTES;
            if self.logical_type(column).is_none() || self.bytes[at + 3] > 1 {
                return Err(corrupt_at(at, "a type"));
            }
        }
        Ok(())
    }

    fn check_indexes(&self) -> Result<(), CorruptBlock> {
        for index in 0..self.counts.indexes {
            let at = self.offsets.indexes + index * INDEX_BYTES;
            let Some(kind) = IndexKind::from_code(self.bytes[at]) else {
                return Err(corrupt_at(at, "a kind of index"));
            };
            let columns = usize::from(self.bytes[at + 1]);
            if !(1..=kind.columns_max()).contains(&columns) || self.bytes[at + 2..at + 4] != [0; 2] {
                return Err(corrupt_at(at + 1, "as many columns as the kind of index can have"));
            }
            let (first, second) = (usize::from(u16_at(&self.bytes, at + 4)), usize::from(u16_at(&self.bytes, at + 6)));
            let second_fits = if columns == 1 { second == 0 } else { second < self.counts.columns && second != first };
            if first >= self.counts.columns || !second_fits {
                return Err(corrupt_at(at + 4, "columns of the block"));
            }
        }
        Ok(())
    }

    fn check_segments(&self) -> Result<(), CorruptBlock> {
        let mut start = 0;
        for segment in 0..self.counts.segments {
            let at = self.offsets.segments + segment * SEGMENT_BYTES;
            let end = u64_at(&self.bytes, at);
            if end <= start || end - start > SEGMENT_ROWS as u64 {
                return Err(corrupt_at(at, "a segment of 1 to 65536 rows"));
            }
            start = end;
        }
        if start != self.rows() {
            return Err(corrupt_at(24, "as many rows as the segments have"));
        }
        let mut next = self.counts.columns as u64 + 1;
        for piece in 0..self.counts.segments * self.counts.groups {
            let at = self.offsets.pieces + piece * PIECE_BYTES;
            let first = u64::from(u32_at(&self.bytes, at));
            let in_order = if piece == 0 { first == next } else { first >= next };
            let previous_is_column =
                piece > 0 && self.group_kind((piece - 1) % self.counts.groups) == GroupKind::Column;
            if !in_order || (previous_is_column && first != next) {
                return Err(corrupt_at(at, "the first section of a piece"));
            }
            next = first + 1;
        }
        let last_is_column = self.counts.segments > 0 && self.group_kind(self.counts.groups - 1) == GroupKind::Column;
        let is_exact = self.counts.segments == 0 || last_is_column;
        let index_sections = self.counts.segments as u64 * self.counts.indexes as u64;
        next += index_sections;
        if self.counts.sections as u64 != next && (is_exact || (self.counts.sections as u64) < next) {
            return Err(corrupt_at(60, "as many sections as the pieces need"));
        }
        Ok(())
    }

    fn check_sections(&self) -> Result<(), CorruptBlock> {
        let mut offset = self.bytes.len() as u64;
        for section in 0..self.counts.sections {
            let entry = self.section(section);
            let at = self.offsets.sections + section * SECTION_BYTES;
            // With this limit, a sum of lengths can overflow only after 16 million sections: a header of 400 MB.
            if entry.offset != offset || entry.length > 1 << 40 {
                return Err(corrupt_at(at, "a section that begins right after the previous section"));
            }
            offset = aligned(offset + entry.length);
        }
        if offset != self.file_length() {
            return Err(corrupt_at(32, "the end of the last section"));
        }
        if self.bytes[self.offsets.end..].iter().any(|byte| *byte != 0) {
            return Err(corrupt_at(self.offsets.end, "zeros"));
        }
        Ok(())
    }

    pub fn rows(&self) -> u64 {
        u64_at(&self.bytes, 24)
    }

    pub fn file_length(&self) -> u64 {
        u64_at(&self.bytes, 32)
    }

    pub fn plain_bytes(&self) -> u64 {
        u64_at(&self.bytes, 40)
    }

    pub fn columns(&self) -> usize {
        self.counts.columns
    }

    pub fn groups(&self) -> usize {
        self.counts.groups
    }

    pub fn segments(&self) -> usize {
        self.counts.segments
    }

    pub fn sections(&self) -> usize {
        self.counts.sections
    }

    fn logical_type(&self, column: usize) -> Option<LogicalType> {
        let at = FIXED_BYTES + column * COLUMN_BYTES;
        LogicalType::from_code([self.bytes[at], self.bytes[at + 1], self.bytes[at + 2]])
    }

    pub fn column_type(&self, column: usize) -> LogicalType {
        assert!(column < self.counts.columns, "a block has no such column");
        // Parsing has checked every type code.
        self.logical_type(column).unwrap_or(LogicalType::Boolean)
    }

    pub fn is_nullable(&self, column: usize) -> bool {
        self.bytes[FIXED_BYTES + column * COLUMN_BYTES + 3] == 1
    }

    /// The group of a column, and the ordinal of the column in the group.
    pub fn group_and_ordinal(&self, column: usize) -> (usize, usize) {
        let at = FIXED_BYTES + column * COLUMN_BYTES;
        (usize::from(u16_at(&self.bytes, at + 4)), usize::from(u16_at(&self.bytes, at + 6)))
    }

    pub fn group_kind(&self, group: usize) -> GroupKind {
        // Parsing has checked every kind.
        GroupKind::from_code(self.bytes[self.offsets.groups + group * GROUP_BYTES]).unwrap_or(GroupKind::Column)
    }

    pub fn group(&self, group: usize) -> Group {
        let columns = self.members(group).map(|index| self.member(index)).collect();
        Group { kind: self.group_kind(group), columns }
    }

    /// The first column of a group. Every group has at least one.
    pub fn first_column(&self, group: usize) -> ColumnIndex {
        self.member(self.members(group).start)
    }

    /// Ordinals of the columns of a group in the table of members.
    fn members(&self, group: usize) -> Range<usize> {
        let end_of = |group: usize| u32_at(&self.bytes, self.offsets.groups + group * GROUP_BYTES + 4) as usize;
        if group == 0 { 0..end_of(0) } else { end_of(group - 1)..end_of(group) }
    }

    /// Entry `index` of the table of members.
    fn member(&self, index: usize) -> ColumnIndex {
        ColumnIndex(u32_at(&self.bytes, self.offsets.members + index * MEMBER_BYTES))
    }

    /// Rows of a segment, as a range of rows of the block.
    pub fn segment(&self, segment: usize) -> Range<u64> {
        assert!(segment < self.counts.segments, "a block has no such segment");
        let end_of = |segment: usize| u64_at(&self.bytes, self.offsets.segments + segment * SEGMENT_BYTES);
        let start = if segment == 0 { 0 } else { end_of(segment - 1) };
        start..end_of(segment)
    }

    /// Ordinals of the sections of a piece.
    pub fn piece_sections(&self, segment: usize, group: usize) -> Range<u32> {
        assert!(segment < self.counts.segments && group < self.counts.groups, "a block has no such piece");
        let piece = segment * self.counts.groups + group;
        let first = |piece: usize| u32_at(&self.bytes, self.offsets.pieces + piece * PIECE_BYTES);
        let is_last = piece + 1 == self.counts.segments * self.counts.groups;
        first(piece)..if is_last { self.index_sections_start() } else { first(piece + 1) }
    }

    fn index_sections_start(&self) -> u32 {
        // Parsing has checked that there are at least this many sections.
        (self.counts.sections - self.counts.segments * self.counts.indexes) as u32
    }

    pub fn indexes(&self) -> usize {
        self.counts.indexes
    }

    /// The kind and the columns of an index.
    pub fn index(&self, index: usize) -> (IndexKind, Vec<ColumnIndex>) {
        assert!(index < self.counts.indexes, "a block has no such index");
        let at = self.offsets.indexes + index * INDEX_BYTES;
        // Parsing has checked every kind.
        let kind = IndexKind::from_code(self.bytes[at]).unwrap_or(IndexKind::CsbTree);
        let column = |ordinal: usize| ColumnIndex(u16_at(&self.bytes, at + 4 + 2 * ordinal).into());
        (kind, (0..usize::from(self.bytes[at + 1])).map(column).collect())
    }

    /// Ordinal of the section of an index in a segment.
    pub fn index_section(&self, segment: usize, index: usize) -> u32 {
        assert!(segment < self.counts.segments && index < self.counts.indexes, "a block has no such index");
        self.index_sections_start() + (segment * self.counts.indexes + index) as u32
    }

    pub fn section(&self, section: usize) -> SectionEntry {
        assert!(section < self.counts.sections, "a block has no such section");
        let at = self.offsets.sections + section * SECTION_BYTES;
        SectionEntry {
            offset: u64_at(&self.bytes, at),
            length: u64_at(&self.bytes, at + 8),
            checksum: u64_at(&self.bytes, at + 16),
        }
    }

    /// Whether the columns of a schema have the types and nullability of the columns of this header. Names are not
    /// compared.
    pub fn matches_schema(&self, schema: &Schema) -> bool {
        let is_same = |(index, column): (usize, &Column)| {
            self.column_type(index) == column.logical_type && self.is_nullable(index) == column.nullable
        };
        schema.len() == self.columns() && schema.columns().iter().enumerate().all(is_same)
    }
}
