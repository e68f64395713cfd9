//! Helpers that the test suites of this crate share: blocks in memory, table designs and row predicates.
#![allow(dead_code, reason = "each suite uses a part")]

use std::collections::HashMap;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::{ArrayRef, BooleanArray, RecordBatch};
use arrow_buffer::Buffer;
use arrow_schema::ArrowError;
use rand::Rng;
use rand::rngs::StdRng;
use roaring::RoaringBitmap;
use taut_block::{
    Block, BlockBuilder, BlockImage, DerivedLookup, Extreme, SectionEntry, SectionError, Sections, SegmentReader,
    Selection,
};
use taut_testkit::{Model, TestTable, array_of};
use taut_types::{
    Abstraction, Column, ColumnIndex, ColumnPredicate, Compression, Datum, Encoding, GroupKind, IndexDesign, IndexKind,
    Layout, LogicalType, NonNullPredicate, RowPredicate, Schema, SortColumn, TableDesign, datum_at,
};

/// A table of bytea columns whose values have lengths in `bytes`. Every second column has some nulls.
pub fn bytes_table(columns: usize, bytes: RangeInclusive<usize>, rows: usize, random: &mut StdRng) -> TestTable {
    let is_nullable = |column: usize| column % 2 == 1;
    let column = |column: usize| Column::new(format!("c{column}"), LogicalType::Bytea, is_nullable(column));
    let schema = Schema::new((0..columns).map(column).collect()).unwrap();
    let mut values = |column: usize| {
        let value = |random: &mut StdRng| {
            let length = random.random_range(bytes.clone());
            Datum::Bytes((0..length).map(|_| random.random::<u8>()).collect())
        };
        let data = (0..rows).map(|row| (!is_nullable(column) || row % 7 != 3).then(|| value(random)));
        array_of(&data.collect::<Vec<_>>(), LogicalType::Bytea)
    };
    let arrays = (0..columns).map(&mut values).collect();
    let batches = vec![RecordBatch::try_new(schema.arrow(), arrays).unwrap()];
    TestTable { name: format!("{columns} columns of {bytes:?} bytes"), schema, batches }
}

/// Sections and extremes in memory. Counts the reads of each section.
pub struct CountedSections {
    sections: Vec<Buffer>,
    entries: Vec<SectionEntry>,
    pub read_counts: Vec<AtomicUsize>,
    /// Whether reads verify checksums, like the reads of a store.
    pub verify_checksums: bool,
    extremes: Mutex<HashMap<(u32, Extreme), Buffer>>,
}

impl CountedSections {
    pub fn new(block: &Block, sections: &[Vec<u8>]) -> Self {
        let entries = (0..block.section_count()).map(|index| block.section(index)).collect();
        Self {
            sections: sections.iter().map(|section| Buffer::from(section.as_slice())).collect(),
            entries,
            read_counts: sections.iter().map(|_| AtomicUsize::new(0)).collect(),
            verify_checksums: true,
            extremes: Mutex::default(),
        }
    }

    pub fn replace(&mut self, index: usize, bytes: &[u8]) {
        self.sections[index] = Buffer::from(bytes);
    }

    /// Returns the sections that were read since the last call, and resets the counts.
    pub fn take_sections_read(&self) -> Vec<u32> {
        let counts = self.read_counts.iter().map(|count| count.swap(0, Ordering::Relaxed)).enumerate();
        counts.filter(|(_, count)| *count > 0).map(|(index, _)| index as u32).collect()
    }
}

impl Sections for CountedSections {
    fn section(&self, index: u32) -> Result<Buffer, SectionError> {
        self.read_counts[index as usize].fetch_add(1, Ordering::Relaxed);
        let bytes = self.sections[index as usize].clone();
        if self.verify_checksums {
            self.entries[index as usize].verify(index, &bytes)?;
        }
        Ok(bytes)
    }

    fn extremes(&self, index: u32, extreme: Extreme) -> DerivedLookup {
        self.extremes.lock().unwrap().get(&(index, extreme)).cloned().map_or(DerivedLookup::Miss, DerivedLookup::Hit)
    }

    fn cache_extremes(&self, index: u32, extreme: Extreme, extremes: Buffer) {
        assert!(self.extremes.lock().unwrap().insert((index, extreme), extremes).is_none(), "extremes are cached once");
    }
}

/// Designs with which the suites build every table.
pub fn designs(schema: &Schema) -> Vec<(String, TableDesign)> {
    let columns: Vec<ColumnIndex> = (0..schema.len()).map(ColumnIndex::from).collect();
    let halves = columns.chunks(columns.len().div_ceil(2)).next().unwrap().to_vec();
    let singles = columns[halves.len()..].iter().map(|column| vec![*column]);
    let first = std::iter::once(halves.iter().rev().copied().collect()).chain(singles).collect();
    let parity = |odd| columns.iter().copied().filter(|column| column.0 % 2 == odd).collect::<Vec<_>>();
    let second = [parity(1), parity(0)].into_iter().filter(|group| !group.is_empty()).collect();
    let layouts = [
        ("row", Layout::Row),
        ("packed_row", Layout::PackedRow),
        ("column", Layout::Column),
        ("groups of rows and columns", Layout::Groups(first)),
        ("groups of rows", Layout::Groups(second)),
    ];
    let mut designs = vec![];
    for (name, layout) in layouts {
        let design = TableDesign { layout, ..TableDesign::default() };
        designs.push((name.to_owned(), design.clone()));
        if !matches!(design.layout, Layout::Groups(_)) {
            let indexed = TableDesign { indexes: indexes(&columns), ..design.clone() };
            designs.push((format!("{name}, indexed"), indexed));
        }
        designs.push((format!("{name}, not compressed"), TableDesign { compression: Compression::None, ..design }));
    }
    designs.extend(designs_with_levels(&columns));
    designs
}

/// Designs with levels. Each sorts by different columns first, regardless of the order of the rows.
fn designs_with_levels(columns: &[ColumnIndex]) -> Vec<(String, TableDesign)> {
    let all = Abstraction::Levels(columns.len() as u16);
    let (one, two, auto) = (Abstraction::Levels(1), Abstraction::Levels(2), Abstraction::Auto);
    let pairs = Layout::Groups(columns.chunks(2).map(<[ColumnIndex]>::to_vec).collect());
    let layouts = [
        (Layout::Row, vec![one, two, auto]),
        (Layout::PackedRow, vec![one, two, auto, all]),
        (Layout::Column, vec![one, two, auto]),
        (pairs, vec![Abstraction::Levels(3), auto]),
    ];
    let mut designs = vec![];
    for (layout, levels) in layouts {
        for abstraction in levels {
            let mut sort_by: Vec<SortColumn> = columns
                .iter()
                .map(|column| SortColumn {
                    column: *column,
                    descending: column.0 % 3 == 0,
                    nulls_first: column.0 % 2 == 0,
                })
                .collect();
            sort_by.rotate_left(designs.len() * 5 % columns.len());
            // Some designs have indexes, so that predicates on levels use them too.
            let indexes = if abstraction == two { indexes(columns) } else { vec![] };
            let name = format!("{}, {abstraction:?} by column {}", layout.name(), sort_by[0].column.0);
            let design =
                TableDesign { layout: layout.clone(), sort_by, abstraction, indexes, ..TableDesign::default() };
            designs.push((name, design));
        }
    }
    designs
}

/// A CSB+-tree index on every column, and a Bloom filter on every third. Every second tree has the next column as its
/// second column.
fn indexes(columns: &[ColumnIndex]) -> Vec<IndexDesign> {
    let mut indexes = vec![];
    for (ordinal, column) in columns.iter().enumerate() {
        let mut tree_columns = vec![*column];
        if ordinal % 2 == 1 {
            tree_columns.push(columns[(ordinal + 1) % columns.len()]);
        }
        tree_columns.dedup();
        indexes.push(IndexDesign { name: format!("c{ordinal}"), kind: IndexKind::CsbTree, columns: tree_columns });
        if ordinal % 3 == 0 {
            indexes.push(IndexDesign { name: format!("b{ordinal}"), kind: IndexKind::Bloom, columns: vec![*column] });
        }
    }
    indexes
}

/// Designs that force each encoding on every column that allows it.
pub fn designs_with_forced_encodings(schema: &Schema) -> Vec<(String, TableDesign)> {
    let mut designs = vec![];
    for (layout, levels) in [(Layout::PackedRow, false), (Layout::Column, false), (Layout::Row, true)] {
        for encoding in Encoding::ALL {
            let mut design = TableDesign { layout: layout.clone(), ..TableDesign::default() };
            for group in design.groups(schema) {
                // Levels have the encodings of columns.
                let kind = if levels { GroupKind::Column } else { group.kind };
                for column in group.columns {
                    if encoding.is_allowed(schema.column(column).logical_type, kind) {
                        design.encodings.insert(column, encoding);
                    }
                    if levels {
                        design.sort_by.push(SortColumn { column, descending: false, nulls_first: false });
                    }
                }
            }
            if levels {
                design.abstraction = Abstraction::Levels(schema.len() as u16);
            }
            if !design.encodings.is_empty() {
                let what = if levels { "levels of rows" } else { design.layout.name() };
                designs.push((format!("{what}, {}", encoding.name()), design));
            }
        }
    }
    designs
}

/// Builds blocks from batches. Starts a new block when one is full.
pub fn build(
    schema: &Schema,
    design: &TableDesign,
    batches: &[RecordBatch],
) -> Result<Vec<BlockImage>, taut_block::BuildError> {
    let (schema, design) = (Arc::new(schema.clone()), Arc::new(design.clone()));
    let mut images = vec![];
    let mut builder = BlockBuilder::new(schema.clone(), design.clone());
    for batch in batches {
        builder.push(batch)?;
        if builder.is_full() {
            let full = std::mem::replace(&mut builder, BlockBuilder::new(schema.clone(), design.clone()));
            images.push(full.finish()?);
        }
    }
    if builder.rows() > 0 || images.is_empty() {
        images.push(builder.finish()?);
    }
    Ok(images)
}

/// Opens a block in memory, and checks its header length.
pub fn open(image: &BlockImage) -> (Block, CountedSections) {
    let length = Block::header_length(&image.header[..64]).unwrap();
    assert_eq!(length, image.header.len() as u64);
    let block = Block::parse(Buffer::from(image.header.as_slice())).unwrap();
    assert_eq!(block.file_length(), image.bytes());
    let sections = CountedSections::new(&block, &image.sections);
    (block, sections)
}

/// Distribution of excluded rows in a segment.
#[derive(Clone, Copy, Debug)]
pub enum Excluded {
    None,
    One,
    Sparse,
    Half,
    Dense,
    Runs,
    AllButOne,
    All,
}

impl Excluded {
    pub const ALL: [Self; 8] =
        [Self::None, Self::One, Self::Sparse, Self::Half, Self::Dense, Self::Runs, Self::AllButOne, Self::All];

    /// Draws excluded rows of a segment with `rows` rows. Some sets include positions beyond its end.
    pub fn draw(self, rows: usize, random: &mut StdRng) -> RoaringBitmap {
        let rows = rows as u32;
        let one = random.random_range(0..rows);
        let mut in_run = false;
        let mut is_member = |row: u32| match self {
            Self::None => false,
            Self::One => row == one,
            Self::Sparse => random.random_bool(0.01),
            Self::Half => random.random_bool(0.5),
            Self::Dense => random.random_bool(0.99),
            Self::Runs => {
                in_run ^= random.random_bool(0.01);
                in_run
            }
            Self::AllButOne => row != one,
            Self::All => true,
        };
        let mut excluded: RoaringBitmap = (0..rows).filter(|row| is_member(*row)).collect();
        if random.random_bool(0.3) {
            excluded.insert_range(rows..rows + random.random_range(0..100_000));
        }
        if random.random_bool(0.5) {
            excluded.optimize();
        }
        excluded
    }
}

/// Function from the data of some columns in one row to the result of a row predicate. Returns `Err` if the predicate
/// fails, and `Ok(None)` for null.
pub type DatumFunction = fn(&[Option<Datum>]) -> Result<Option<bool>, ()>;

/// Row predicate that evaluates a function on the data of some columns.
pub struct DatumFunctionPredicate {
    pub columns: Vec<ColumnIndex>,
    pub types: Vec<LogicalType>,
    pub function: DatumFunction,
}

impl std::fmt::Debug for DatumFunctionPredicate {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "DatumFunctionPredicate on {:?}", self.columns)
    }
}

impl RowPredicate for DatumFunctionPredicate {
    fn columns(&self) -> &[ColumnIndex] {
        &self.columns
    }

    fn evaluate(&self, columns: &[ArrayRef], rows: usize) -> Result<BooleanArray, ArrowError> {
        assert_eq!(columns.len(), self.columns.len());
        let evaluate_row = |row| {
            let data: Vec<_> =
                columns.iter().zip(&self.types).map(|(column, logical)| datum_at(column, *logical, row)).collect();
            (self.function)(&data).map_err(|()| ArrowError::ComputeError("a value that fails".to_owned()))
        };
        (0..rows).map(evaluate_row).collect::<Result<BooleanArray, _>>()
    }
}

/// Row predicate that null passes. Other values pass if `non_null_predicate` admits them. If that predicate is not
/// exact, their digest must also be odd.
#[derive(Debug)]
pub struct NullOr {
    pub columns: [ColumnIndex; 1],
    pub logical: LogicalType,
    pub non_null_predicate: NonNullPredicate,
}

impl NullOr {
    pub fn new(schema: &Schema, predicate: ColumnPredicate, is_exact: bool) -> Self {
        let logical = schema.column(predicate.column).logical_type;
        Self { columns: [predicate.column], logical, non_null_predicate: NonNullPredicate { predicate, is_exact } }
    }

    pub fn admits(&self, datum: Option<&Datum>) -> bool {
        let NonNullPredicate { predicate, is_exact } = &self.non_null_predicate;
        datum.is_none_or(|datum| {
            predicate.admits(Some(datum)) && (*is_exact || digest(&Some(datum.clone())).unwrap() % 2 == 1)
        })
    }
}

impl RowPredicate for NullOr {
    fn columns(&self) -> &[ColumnIndex] {
        &self.columns
    }

    fn evaluate(&self, columns: &[ArrayRef], rows: usize) -> Result<BooleanArray, ArrowError> {
        let datum = |row| datum_at(&columns[0], self.logical, row);
        Ok((0..rows).map(|row| Some(self.admits(datum(row).as_ref()))).collect())
    }

    fn non_null_predicate(&self) -> Option<&NonNullPredicate> {
        Some(&self.non_null_predicate)
    }
}

/// Hash of all bits of a datum. `None` for null.
pub fn digest(datum: &Option<Datum>) -> Option<u64> {
    Some(match datum.as_ref()? {
        Datum::Number(number) => (*number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40,
        Datum::Bytes(bytes) => taut_block::checksum(bytes) >> 40,
    })
}

/// Checks numbers, codes and sums of the `rows` of a selection. `start` is the row of the model at which the segment
/// begins.
pub fn check_aggregation(
    model: &Model,
    start: usize,
    (selection, rows): (&Selection, Range<usize>),
    reader: &mut SegmentReader<'_>,
) {
    let positions: Vec<usize> = rows.clone().map(|index| start + selection.position(index) as usize).collect();
    for index in 0..model.schema.len() {
        let column = ColumnIndex::from(index);
        let value = |position: &usize| model.value(*position, column);
        if let Some((numbers, nulls)) = reader.numbers(selection, rows.clone(), column).unwrap() {
            let summary = reader.number_summary(column).unwrap().unwrap();
            for (row, position) in positions.iter().enumerate() {
                let expected = value(position).and_then(Datum::number);
                let is_valid = nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
                assert_eq!(is_valid.then_some(numbers[row]), expected.map(|number| number as i64), "{column:?}");
                let bounds = summary.bounds.map(|(low, high)| low..=high);
                assert!(expected.is_none_or(|number| bounds.is_some_and(|bounds| bounds.contains(&number))));
                assert!(expected.is_some() || summary.nulls > 0);
            }
            if matches!(selection, Selection::All(all) if *all == rows.len()) {
                let present = || positions.iter().filter_map(value).filter_map(|datum| datum.number());
                assert_eq!(summary.bounds, present().min().zip(present().max()), "{column:?}");
                assert_eq!(summary.nulls, (positions.len() - present().count()) as u64);
                let sum = reader.sum_of_runs(column).unwrap();
                assert!(sum.is_none_or(|sum| Some(sum) == present().try_fold(0, i128::checked_add)), "{column:?}");
            }
        }
        let count = reader.code_count(column).unwrap();
        let Some(codes) = reader.codes(selection, rows.clone(), column).unwrap() else {
            assert_eq!(count, None);
            continue;
        };
        let mut values = vec![None; count.unwrap()];
        for (code, position) in codes.iter().zip(&positions) {
            assert_eq!(*values[usize::from(*code)].get_or_insert(value(position)), value(position), "{column:?}");
        }
        if let Some(runs) = reader.code_runs(selection, rows.clone(), column).unwrap() {
            let unrolled = runs.iter().flat_map(|(code, rows)| std::iter::repeat_n(*code, *rows));
            assert!(unrolled.eq(codes), "{column:?}");
        }
    }
}
