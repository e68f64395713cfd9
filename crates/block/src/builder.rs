//! Builds the bytes of a block from batches of rows.

use std::io;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::Buffer;
use arrow_select::concat::concat;
use serde::{Deserialize, Serialize};
use taut_encoding::Choice;
use taut_index::merge_similar_zones;
use taut_types::{
    BLOCK_BYTES_DEFAULT, BlockSize, ColumnIndex, ColumnStatistics, Compression, Group, GroupKind, IndexDesign, Schema,
    TableDesign,
};

use crate::groups;
use crate::header::{self, Header, HeaderSource};
use crate::section::{SECTION_ALIGNMENT, aligned};
use crate::statistics::StatisticsBuilder;
use crate::values::ColumnValues;
use crate::{Block, BlockError, BuildError, SEGMENT_ROWS, SectionError, Sections, indexes};

/// Maximum bytes of unencoded values in a segment, and in a block of automatic size. Bounds the memory that building a
/// segment of long values or of a wide table takes.
const SEGMENT_BYTES_MAX: u64 = 256 << 20;

/// Size of a set of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Number of rows.
    pub rows: u64,
    /// Bytes of the unencoded values.
    pub bytes: u64,
}

/// Estimates how many rows a block can take before it is full. Returns 0 if it is full, and `u64::MAX` if its size has
/// no limit. `held` is the extent of the rows in the block. `batch` is the extent of a sample of the next rows, from
/// which the bytes per row are estimated.
pub fn rows_until_full(size: BlockSize, held: Extent, batch: Extent) -> u64 {
    let until = |bytes: u64| {
        let missing = u128::from(bytes.saturating_sub(held.bytes)) * u128::from(batch.rows);
        u64::try_from(missing.div_ceil(u128::from(batch.bytes.max(1)))).unwrap_or(u64::MAX)
    };
    match size {
        BlockSize::Auto => {
            let segment = (SEGMENT_ROWS as u64).saturating_sub(held.rows);
            until(BLOCK_BYTES_DEFAULT).max(segment).min(until(SEGMENT_BYTES_MAX))
        }
        BlockSize::Bytes(bytes) => until(bytes),
        BlockSize::File => u64::MAX,
    }
}

/// Content of the description section: schema and design of the table for which the block was built.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Description {
    pub schema: Schema,
    pub design: TableDesign,
}

impl Description {
    fn write(schema: &Schema, design: &TableDesign) -> Result<Vec<u8>, BuildError> {
        serde_json::to_vec(&Self { schema: schema.clone(), design: design.clone() })
            .map_err(|_| BuildError::Design { expected: "a description that can be written as JSON" })
    }
}

/// Builds one block from rows in order.
///
/// The builder buffers rows until they fill a segment. Then it encodes the segment and releases the rows.
pub struct BlockBuilder {
    schema: Arc<Schema>,
    design: Arc<TableDesign>,
    groups: Vec<Group>,
    buffered: Vec<RecordBatch>,
    buffered_rows: usize,
    buffered_bytes: u64,
    rows: u64,
    plain_bytes: u64,
    segment_ends: Vec<u64>,
    /// Ordinal of the first section of each piece (one column group of one segment), counted from the first section of
    /// the first piece.
    first_sections: Vec<u32>,
    sections: Vec<Vec<u8>>,
    statistics: Vec<StatisticsBuilder>,
}

/// A built block. Its file is the header, then the sections in order, each at a multiple of 64 bytes.
#[derive(Clone, Debug)]
pub struct BlockImage {
    /// Bytes of the header, a multiple of 64.
    pub header: Vec<u8>,
    /// Bytes of each section, without padding.
    pub sections: Vec<Vec<u8>>,
    /// Number of rows.
    pub rows: u64,
    /// Bytes of the unencoded values.
    pub plain_bytes: u64,
    /// Number of segments.
    pub segments: u64,
    /// Statistics of each column, in the order of the schema.
    pub statistics: Vec<ColumnStatistics>,
}

impl BlockBuilder {
    /// Creates a builder without rows. The design must fit the schema.
    pub fn new(schema: Arc<Schema>, design: Arc<TableDesign>) -> Self {
        let groups = design.groups(&schema);
        let statistics = schema.columns().iter().map(|_| StatisticsBuilder::default()).collect();
        Self {
            schema,
            design,
            groups,
            buffered: vec![],
            buffered_rows: 0,
            buffered_bytes: 0,
            rows: 0,
            plain_bytes: 0,
            segment_ends: vec![],
            first_sections: vec![],
            sections: vec![],
            statistics,
        }
    }

    /// Appends rows in the Arrow types of the schema.
    ///
    /// # Errors
    /// If the batch does not fit the schema, or the design forces an encoding that cannot store the values.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<(), BuildError> {
        check_batch(&self.schema, batch)?;
        let bytes = plain_bytes(&self.schema, batch);
        let row_bytes = bytes / batch.num_rows().max(1) as u64;
        let rows_max = (SEGMENT_BYTES_MAX / row_bytes.max(1)).clamp(1, SEGMENT_ROWS as u64) as usize;
        let mut row = 0;
        while row < batch.num_rows() {
            let rows = (batch.num_rows() - row).min(SEGMENT_ROWS - self.buffered_rows).min(rows_max);
            self.buffered.push(batch.slice(row, rows));
            self.buffered_rows += rows;
            self.buffered_bytes += row_bytes * rows as u64;
            row += rows;
            if self.buffered_rows == SEGMENT_ROWS || self.buffered_bytes >= SEGMENT_BYTES_MAX {
                self.seal_segment()?;
            }
        }
        self.rows += batch.num_rows() as u64;
        self.plain_bytes += bytes;
        Ok(())
    }

    /// Bytes of the unencoded values pushed so far.
    pub fn plain_bytes(&self) -> u64 {
        self.plain_bytes
    }

    /// Number of rows pushed so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Whether the block has reached the size that its design sets.
    pub fn is_full(&self) -> bool {
        let held = Extent { rows: self.rows, bytes: self.plain_bytes };
        rows_until_full(self.design.block_size, held, Extent { rows: 1, bytes: 1 }) == 0
    }

    /// Encodes the buffered rows and assembles the block.
    ///
    /// # Errors
    /// If the design forces an encoding that cannot store the buffered rows, or the block has more sections or segments
    /// than the format can count.
    pub fn finish(mut self) -> Result<BlockImage, BuildError> {
        self.seal_segment()?;
        let mut sections = vec![Description::write(&self.schema, &self.design)?];
        let mut statistics = vec![];
        for (column, builder) in self.schema.columns().iter().zip(self.statistics) {
            let (section, summary) = builder.finish(column.logical_type);
            sections.push(section);
            statistics.push(summary);
        }
        let first = sections.len() as u32;
        let first_sections: Vec<u32> = self.first_sections.iter().map(|section| section + first).collect();
        sections.append(&mut self.sections);
        let parts = ImageParts {
            schema: &self.schema,
            groups: &self.groups,
            segment_ends: &self.segment_ends,
            first_sections: &first_sections,
            plain_bytes: self.plain_bytes,
        };
        parts.assemble(sections, statistics, &self.design.indexes)
    }

    fn encoding_choice(&self, column: ColumnIndex) -> Choice {
        match (self.design.encodings.get(&column), self.design.compression) {
            (Some(encoding), _) => Choice::Forced(*encoding),
            (None, Compression::Auto) => Choice::Auto,
            (None, Compression::None) => Choice::Plain,
        }
    }

    /// Encodes the buffered rows as one segment.
    fn seal_segment(&mut self) -> Result<(), BuildError> {
        if self.buffered_rows == 0 {
            return Ok(());
        }
        let buffered = std::mem::take(&mut self.buffered);
        let start = self.segment_ends.last().copied().unwrap_or(0);
        self.segment_ends.push(start + self.buffered_rows as u64);
        (self.buffered_rows, self.buffered_bytes) = (0, 0);
        for group in 0..self.groups.len() {
            self.seal_piece(group, &buffered)?;
        }
        Ok(())
    }

    fn seal_piece(&mut self, group: usize, batches: &[RecordBatch]) -> Result<(), BuildError> {
        let Group { kind, columns } = &self.groups[group];
        let values = columns
            .iter()
            .map(|column| {
                ColumnValues::for_column(concat_column(batches, column.index())?, self.schema.column(*column))
            })
            .collect::<Result<Vec<_>, _>>()?;
        let sources: Vec<(&ColumnValues, Choice, &str)> = columns
            .iter()
            .zip(&values)
            .map(|(column, values)| (values, self.encoding_choice(*column), self.schema.column(*column).name.as_str()))
            .collect();
        let levels = self.design.levels(&self.groups[group]);
        let rows = batches.iter().map(RecordBatch::num_rows).sum();
        let (mut sections, zone_ends) = groups::build(*kind, &sources, &levels, rows)?;
        let first = u32::try_from(self.sections.len())
            .map_err(|_| BuildError::TooLarge { what: "sections", found: self.sections.len() as u64 })?;
        self.first_sections.push(first);
        self.sections.append(&mut sections);
        for (column, values) in columns.iter().zip(&values) {
            let statistics = &mut self.statistics[column.index()];
            let mut zones = values.zones(&zone_ends, &mut statistics.bounds);
            if *kind != GroupKind::Column {
                // Zones of row layouts have few rows. With fifty columns, they would take a hundredth of the block if
                // similar neighbours were not merged.
                zones = merge_similar_zones(zones);
            }
            statistics.segments.push((zones, values.plain_bytes()));
            values.sketch(&mut statistics.sketch);
        }
        debug_assert!(*kind != GroupKind::Column || columns.len() == 1);
        Ok(())
    }
}

/// Content of a header except the list of sections.
struct ImageParts<'a> {
    schema: &'a Schema,
    groups: &'a [Group],
    segment_ends: &'a [u64],
    first_sections: &'a [u32],
    plain_bytes: u64,
}

impl ImageParts<'_> {
    /// Assembles a block from its sections, and builds the indexes over them.
    fn assemble(
        &self,
        mut sections: Vec<Vec<u8>>,
        statistics: Vec<ColumnStatistics>,
        indexes: &[IndexDesign],
    ) -> Result<BlockImage, BuildError> {
        if !indexes.is_empty() {
            // Indexes are built by reading the block, so the block first needs a header. In that header, the sections
            // of the indexes are empty.
            let count = self.segment_ends.len() * indexes.len();
            sections.resize_with(sections.len() + count, Vec::new);
            let header = Header::parse(self.header(&sections, indexes)?.into())
                .map_err(|_| BuildError::Design { expected: "a header that can be read back" })?;
            let block = Block::from(header);
            let built = indexes::build(&block, &BuiltSections(&sections))?;
            let start = sections.len() - count;
            sections.splice(start.., built);
        }
        let header = self.header(&sections, indexes)?;
        let rows = self.segment_ends.last().copied().unwrap_or(0);
        let segments = self.segment_ends.len() as u64;
        Ok(BlockImage { header, sections, rows, plain_bytes: self.plain_bytes, segments, statistics })
    }

    fn header(&self, sections: &[Vec<u8>], indexes: &[IndexDesign]) -> Result<Vec<u8>, BuildError> {
        let source = HeaderSource {
            schema: self.schema,
            groups: self.groups,
            plain_bytes: self.plain_bytes,
            segment_ends: self.segment_ends,
            first_sections: self.first_sections,
            indexes,
            sections,
        };
        header::write(&source)
            .ok_or(BuildError::TooLarge { what: "sections and segments", found: sections.len() as u64 })
    }
}

/// Sections of a block that is being built. They are in memory.
struct BuiltSections<'a>(&'a [Vec<u8>]);

impl Sections for BuiltSections<'_> {
    fn section(&self, index: u32) -> Result<Buffer, SectionError> {
        match self.0.get(index as usize) {
            Some(section) => Ok(Buffer::from(section.as_slice())),
            None => Err(SectionError::Corrupt { section: index, expected: "a section with this number" }),
        }
    }
}

/// Checks that the columns of a batch have the Arrow types of the schema, and nulls only where the schema allows them.
pub(crate) fn check_batch(schema: &Schema, batch: &RecordBatch) -> Result<(), BuildError> {
    let missing = || "no column".to_owned();
    for index in 0..schema.len().max(batch.num_columns()) {
        let column = schema.columns().get(index);
        let expected = column.map(|column| column.logical_type.arrow());
        let found = batch.columns().get(index).map(|array| array.data_type().clone());
        if expected != found {
            let text = |found: Option<arrow_schema::DataType>| found.map_or_else(missing, |found| found.to_string());
            return Err(BuildError::Mismatch { column: index, expected: text(expected), found: text(found) });
        }
        if let (Some(column), Some(array)) = (column, batch.columns().get(index))
            && !column.nullable
            && array.null_count() > 0
        {
            return Err(BuildError::Null { column: column.name.clone() });
        }
    }
    Ok(())
}

/// One column of all batches, concatenated.
fn concat_column(batches: &[RecordBatch], column: usize) -> Result<ArrayRef, BuildError> {
    if let [batch] = batches {
        return Ok(batch.column(column).clone());
    }
    let arrays: Vec<&dyn Array> = batches.iter().map(|batch| batch.column(column).as_ref()).collect();
    concat(&arrays).map_err(|_| BuildError::TooLarge { what: "bytes of text", found: u64::MAX })
}

/// Bytes of the unencoded values of a batch.
fn plain_bytes(schema: &Schema, batch: &RecordBatch) -> u64 {
    use arrow_array::cast::AsArray;
    use taut_types::LogicalType;

    let lengths = |views: &[u128], array: &ArrayRef| {
        let length = |(row, view): (usize, &u128)| if array.is_null(row) { 0 } else { u64::from(*view as u32) };
        match array.null_count() {
            0 => views.iter().map(|view| u64::from(*view as u32)).sum(),
            _ => views.iter().enumerate().map(length).sum::<u64>(),
        }
    };
    let columns = schema.columns().iter().zip(batch.columns());
    columns
        .map(|(column, array)| match column.logical_type {
            LogicalType::Varchar => lengths(array.as_string_view().views(), array),
            LogicalType::Bytea => lengths(array.as_binary_view().views(), array),
            logical => (logical.plain_bytes().unwrap_or(0) * array.len()) as u64,
        })
        .sum()
}

impl BlockImage {
    /// Copies a block, with `indexes` instead of its own indexes. `indexes` refers to columns of the table. Changes the
    /// description, builds the index sections, and copies all other sections unchanged. Decodes only the indexed
    /// columns. The new block has the columns with which `block` was written.
    ///
    /// # Errors
    /// If the block does not store a column of an index, or cannot be read. If it has more sections or segments than
    /// the format can count.
    pub fn with_indexes(block: &Block, sections: &dyn Sections, indexes: &[IndexDesign]) -> Result<Self, BuildError> {
        let indexes = &indexes.iter().map(|index| block.stored_index(index)).collect::<Option<Vec<_>>>();
        let indexes = indexes.as_ref().ok_or(BuildError::Design { expected: "indexes on stored columns" })?;
        let block = &block.with_columns(None)?;
        let (schema, design) = block.description(sections)?;
        let design = TableDesign { indexes: indexes.clone(), ..design };
        let header = &block.header;
        let segment_ends: Vec<u64> = (0..header.segments()).map(|segment| header.segment(segment).end).collect();
        let pieces = (0..header.segments()).flat_map(|segment| (0..header.groups()).map(move |group| (segment, group)));
        let first_sections: Vec<u32> =
            pieces.map(|(segment, group)| header.piece_sections(segment, group).start).collect();
        let mut copied = vec![Description::write(&schema, &design)?];
        let end = header.sections() - header.segments() * header.indexes();
        for section in 1..end {
            copied.push(sections.section(section as u32).map_err(BlockError::from)?.to_vec());
        }
        let statistics = (0..header.columns())
            .map(|column| block.statistics(sections, ColumnIndex::from(column)))
            .collect::<Result<_, _>>()?;
        let parts = ImageParts {
            schema: &schema,
            groups: &block.groups(),
            segment_ends: &segment_ends,
            first_sections: &first_sections,
            plain_bytes: block.plain_bytes(),
        };
        parts.assemble(copied, statistics, indexes)
    }

    /// Length in bytes of the file that [`BlockImage::write_to`] writes.
    pub fn bytes(&self) -> u64 {
        let sections: u64 = self.sections.iter().map(|section| aligned(section.len() as u64)).sum();
        self.header.len() as u64 + sections
    }

    /// Writes the block as a file.
    ///
    /// # Errors
    /// If the writer fails.
    pub fn write_to(&self, writer: &mut impl io::Write) -> io::Result<()> {
        const ZEROS: [u8; SECTION_ALIGNMENT as usize] = [0; SECTION_ALIGNMENT as usize];
        writer.write_all(&self.header)?;
        for section in &self.sections {
            writer.write_all(section)?;
            let padding = aligned(section.len() as u64) - section.len() as u64;
            writer.write_all(&ZEROS[..padding as usize])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_block_is_full_when_its_size_is_reached() {
        let rows = |size, rows, bytes, row_bytes| {
            rows_until_full(size, Extent { rows, bytes }, Extent { rows: 1, bytes: row_bytes })
        };
        let segment = SEGMENT_ROWS as u64;
        assert_eq!(rows(BlockSize::Bytes(MIB), 0, 0, 8), MIB / 8);
        assert_eq!(rows(BlockSize::Bytes(MIB), 0, MIB - 1, 8), 1);
        assert_eq!(rows(BlockSize::Bytes(MIB), 0, MIB, 8), 0);
        assert_eq!(rows(BlockSize::File, 1 << 40, 1 << 60, 8), u64::MAX);
        // A block of narrow rows is full at a number of bytes. A block of wide rows is full at a whole segment. A block
        // of very wide rows is full at the byte limit of a segment.
        assert_eq!(rows(BlockSize::Auto, 0, 0, 8), 2 * MIB);
        assert_eq!(rows(BlockSize::Auto, 100, 100 * 1_000, 1_000), segment - 100);
        assert_eq!(rows(BlockSize::Auto, segment, 64 * MIB, 1_000), 0);
        assert_eq!(rows(BlockSize::Auto, 0, 0, 4 * MIB), 64);
        assert_eq!(rows(BlockSize::Auto, 1, 256 * MIB, 8), 0);
        assert_eq!(rows(BlockSize::Auto, 0, 0, 0), 16 * MIB, "rows of no bytes");
    }
}
