//! Opens arbitrary bytes as a block file: the result is an error, or rows that are valid Arrow data.
//!
//! Checksums detect nearly all damage before any other code reads it. Sections are therefore verified only if bit 1 of
//! byte 1 is set. Otherwise their checksums are ignored, and the header gets a correct checksum.

#![no_main]

use std::sync::{Arc, OnceLock};

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use libfuzzer_sys::fuzz_target;
use taut_block::{Block, BlockBuilder, ScanReport, SectionEntry, SectionError, Sections, checksum};
use taut_fuzz::{Shape, check_array, column, damaged, predicates, types};
use taut_types::{Column, ColumnIndex, ColumnPredicate, IndexDesign, IndexKind, Predicate, Schema, TableDesign};

const ROWS: usize = 700;
const LAYOUTS: [&[(&str, &str)]; 7] = [
    &[("layout", "row")],
    &[("layout", "packed_row"), ("sort_by", "c1")],
    &[("layout", "packed_row"), ("sort_by", "c11,c0,c4"), ("abstraction", "3")],
    &[("layout", "row"), ("sort_by", "c2,c12 desc"), ("abstraction", "2")],
    &[("layout", "column"), ("sort_by", "c2")],
    &[("layout", "column"), ("compression", "none")],
    &[("groups", "(c0,c3,c11),(c1),(c2,c4),(c5,c6,c7,c8,c9,c10,c12)")],
];

/// Indexes of every block: CSB+-trees on integers, on text with integers, and on floating-point numbers; Bloom filters
/// on integers and on bytes.
const INDEXES: [(IndexKind, &[usize]); 5] = [
    (IndexKind::CsbTree, &[3]),
    (IndexKind::CsbTree, &[11, 2]),
    (IndexKind::CsbTree, &[5]),
    (IndexKind::Bloom, &[1]),
    (IndexKind::Bloom, &[12]),
];

fn index(kind: IndexKind, columns: &[usize]) -> IndexDesign {
    let columns = columns.iter().copied().map(ColumnIndex::from).collect();
    IndexDesign { name: "i".to_owned(), kind, columns }
}

/// One block file for every combination of layout and shape.
fn valid() -> &'static [Vec<u8>] {
    static VALID: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    VALID.get_or_init(|| LAYOUTS.iter().flat_map(|options| Shape::ALL.map(|shape| file(options, shape))).collect())
}

fn file(options: &[(&str, &str)], shape: Shape) -> Vec<u8> {
    let columns =
        types().into_iter().enumerate().map(|(place, logical)| Column::new(format!("c{place}"), logical, true));
    let schema = Arc::new(Schema::new(columns.collect()).expect("a schema"));
    let mut design = TableDesign::from_options(options.iter().copied(), &schema).expect("a design");
    design.indexes = INDEXES.iter().map(|(kind, columns)| index(*kind, columns)).collect();
    let arrays = types().into_iter().map(|logical| column(logical, shape, ROWS)).collect();
    let mut builder = BlockBuilder::new(Arc::clone(&schema), Arc::new(design));
    builder.push(&RecordBatch::try_new(schema.arrow(), arrays).expect("a batch")).expect("rows");
    let mut bytes = Vec::new();
    builder.finish().expect("a block").write_to(&mut bytes).expect("memory");
    bytes
}

struct InMemory<'a> {
    file: &'a [u8],
    entries: Vec<SectionEntry>,
    /// Whether a wrong checksum of a section is an error. Otherwise damaged bytes reach the code behind the checksums.
    verifies_checksums: bool,
}

impl Sections for InMemory<'_> {
    fn section(&self, index: u32) -> Result<Buffer, SectionError> {
        let corrupt = || SectionError::Corrupt { section: index, expected: "its bytes" };
        let entry = self.entries.get(index as usize).ok_or_else(corrupt)?;
        let end = entry.offset.checked_add(entry.length).ok_or_else(corrupt)?;
        let bytes = self.file.get(entry.offset as usize..end as usize).ok_or_else(corrupt)?;
        if self.verifies_checksums && checksum(bytes) != entry.checksum {
            return Err(corrupt());
        }
        Ok(Buffer::from(bytes))
    }
}

fuzz_target!(|input: &[u8]| {
    let Some(mut file) = damaged(input, |start| &valid()[start % valid().len()]) else { return };
    let verifies_checksums = input[1] & 2 == 2;
    let Ok(length) = Block::header_length(&file) else { return };
    let Some(length) = usize::try_from(length).ok().filter(|length| *length <= file.len()) else { return };
    if !verifies_checksums {
        let sum = checksum(&file[24..length]);
        file[16..24].copy_from_slice(&sum.to_le_bytes());
    }
    let Ok(block) = Block::parse(Buffer::from(&file[..length])) else { return };
    let sections = InMemory {
        file: &file,
        entries: (0..block.section_count()).map(|index| block.section(index)).collect(),
        verifies_checksums,
    };
    let _ = block.description(&sections);
    let _ = block.check(&sections);
    for index in (0..block.columns().min(20)).map(ColumnIndex::from) {
        let _ = block.statistics(&sections, index);
        let _ = block.column_storage(&sections, index);
    }
    let is_sound = valid().contains(&file);
    for segment in 0..block.segments().min(2) {
        read(&block, &sections, segment, is_sound);
    }
});

/// Filters and projects one segment, column by column, with and without indexes.
fn read(block: &Block, sections: &InMemory<'_>, segment: usize, is_sound: bool) {
    let mut report = ScanReport::default();
    let mut filter_both_ways = |conjuncts: Vec<ColumnPredicate>| {
        let columns: Vec<_> = conjuncts.iter().map(|conjunct| conjunct.column).collect();
        let predicate = Predicate { column_predicates: conjuncts, row_predicates: Vec::new() };
        let [scanned, looked_up] = [false, true].map(|is_looked_up| {
            let mut reader = block.open_segment(sections, segment);
            if is_looked_up {
                reader.always_use_indexes()
            } else {
                reader.ignore_indexes()
            }
            let selection = reader.filter(&predicate, &mut report).ok()?;
            let rows = selection.len();
            assert!(rows <= block.segment_rows(segment));
            let arrays = reader.project(&selection, 0..rows, &columns, &mut report).ok()?;
            for (column, array) in columns.iter().zip(&arrays) {
                check_array(array, block.column_type(*column), rows);
            }
            Some((arrays, selection.positions()))
        });
        assert!(!is_sound || scanned.is_some() && scanned == looked_up, "{:?}", predicate.column_predicates);
        let pruned = block.prune(sections, &predicate.column_predicates, [segment]);
        let is_left = pruned.map(|pruned| pruned.remaining().count() > 0);
        let has_rows = scanned.is_some_and(|(_, positions)| !positions.is_empty());
        assert!(!is_sound || is_left.is_ok_and(|is_left| is_left || !has_rows), "{:?}", predicate.column_predicates);
    };
    let all: Vec<_> = (0..block.columns().min(20)).map(ColumnIndex::from).collect();
    let predicates_of = |index: ColumnIndex| predicates(index.0, block.column_type(index));
    for conjunct in all.iter().flat_map(|index| predicates_of(*index)) {
        let _ = block.may_match(sections, std::slice::from_ref(&conjunct));
        filter_both_ways(vec![conjunct]);
    }
    // Predicates on both columns of an index.
    if let (Some(first), Some(second)) = (all.get(11), all.get(2)) {
        for second in predicates_of(*second) {
            filter_both_ways(predicates_of(*first)[2..3].iter().cloned().chain([second]).collect());
        }
    }
    let mut reader = block.open_segment(sections, segment);
    let Ok(selection) = reader.filter(&Predicate::default(), &mut report) else { return };
    let rows = selection.len();
    let Ok(arrays) = reader.project(&selection, 0..rows, &all, &mut report) else { return };
    for (index, array) in all.iter().zip(&arrays) {
        check_array(array, block.column_type(*index), rows);
    }
}
