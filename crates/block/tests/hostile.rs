//! Tests of damaged blocks: checksums detect the damage, and reads without checksums do not panic.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use arrow_buffer::Buffer;
use common::{CountedSections, build, bytes_table, designs, open};
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use taut_block::{Block, BlockImage, ScanReport, Sections, SegmentReader, Selection, checksum};
use taut_testkit::{Model, TestTable, predicates_for, tables};
use taut_types::{ColumnIndex, ColumnPredicate, Predicate};

const SEED: u64 = 11;
/// Minimum number of bytes that are damaged in each section. In shorter sections every byte is damaged.
const FLIPS: usize = 300;
/// Number of times that each block is damaged at random and read without verifying checksums.
const DAMAGES: usize = 150;

fn table(name: &str) -> TestTable {
    tables(SEED).into_iter().find(|table| table.name == name).unwrap()
}

fn images(table: &TestTable) -> Vec<(String, BlockImage)> {
    let designs = designs(&table.schema).into_iter();
    designs.map(|(name, design)| (name, build(&table.schema, &design, &table.batches).unwrap().remove(0))).collect()
}

#[test]
fn every_flipped_byte_is_reported() {
    let mut random = StdRng::seed_from_u64(SEED);
    for table in [table("2 rows"), table("long values")] {
        for (name, image) in images(&table) {
            for at in 0..image.header.len() {
                let mut header = image.header.clone();
                header[at] ^= 1 << random.random_range(0..8);
                assert!(Block::parse(Buffer::from(header.as_slice())).is_err(), "{name}: header byte {at}");
            }
            let (block, mut sections) = open(&image);
            block.check(&sections).unwrap();
            let all: Vec<u32> = (0..block.section_count()).collect();
            assert_eq!(sections.take_sections_read(), all, "{name}: a check reads every section");
            for (index, section) in image.sections.iter().enumerate() {
                let mut bytes = section.clone();
                for at in (0..section.len()).step_by((section.len() / FLIPS).max(1)) {
                    bytes[at] ^= 1 << random.random_range(0..8);
                    let verified = block.section(index as u32).verify(index as u32, &bytes);
                    assert!(verified.is_err(), "{name}: section {index}, byte {at}");
                    bytes[at] = section[at];
                }
                let at = random.random_range(0..section.len());
                bytes[at] ^= 1 << random.random_range(0..8);
                sections.replace(index, &bytes);
                // A new block, so that no cached section hides the damage.
                let fresh = Block::parse(Buffer::from(image.header.as_slice())).unwrap();
                let error = fresh.check(&sections).expect_err("a flipped byte");
                assert!(error.to_string().starts_with(&format!("section {index}:")), "{name}: {error}");
                sections.replace(index, section);
            }
        }
    }
}

/// Calls all read methods of a block. Errors are allowed, panics are not.
fn call_all_read_methods(block: &Block, sections: &dyn Sections, conjuncts: &[ColumnPredicate]) {
    let all: Vec<ColumnIndex> = (0..block.columns()).map(ColumnIndex::from).collect();
    let _ = block.check(sections);
    let _ = block.description(sections);
    let mut report = ScanReport::default();
    for column in &all {
        let _ = block.statistics(sections, *column);
        let _ = block.column_storage(sections, *column);
    }
    for conjunct in conjuncts {
        let _ = block.prune(sections, std::slice::from_ref(conjunct), 0..block.segments());
    }
    for segment in 0..block.segments() {
        let rows = block.segment_rows(segment);
        for conjunct in conjuncts {
            for force in [SegmentReader::scan_all_rows, SegmentReader::always_use_indexes] {
                let mut reader = block.open_segment(sections, segment);
                force(&mut reader);
                let predicate = Predicate { column_predicates: vec![conjunct.clone()], row_predicates: vec![] };
                if let Ok(selection) = reader.filter(&predicate, &mut report) {
                    let _ = reader.project(&selection, 0..selection.len(), &all[..1], &mut report);
                }
            }
        }
        for column in &all {
            let mut reader = block.open_segment(sections, segment);
            let _ = reader.project(&Selection::All(rows), 0..rows, &[*column], &mut report);
            let some = Selection::Positions((0..rows as u32).step_by(7).collect());
            let _ = reader.project(&some, 0..some.len(), &[*column], &mut report);
        }
        // Reads few rows of each page, whose slots are checked one by one, and then all rows.
        let mut reader = block.open_segment(sections, segment);
        let few = Selection::Positions((0..rows as u32).step_by(499).collect());
        let _ = reader.project(&few, 0..few.len(), &all, &mut report);
        let _ = reader.project(&Selection::All(rows), 0..rows, &all, &mut report);
    }
}

/// Changes some bytes: flips a bit, writes a random byte, fills bytes with zeros or ones, adds one, or truncates the
/// end.
fn damage(bytes: &mut Vec<u8>, random: &mut StdRng) {
    if bytes.is_empty() {
        return;
    }
    for _ in 0..random.random_range(1..4) {
        // Headers are short and at the front, so half of the damage goes there.
        let end = if random.random_bool(0.5) { bytes.len().min(600) } else { bytes.len() };
        let at = random.random_range(0..end);
        match random.random_range(0..5) {
            0 => bytes[at] ^= 1 << random.random_range(0..8),
            1 => bytes[at] = random.random(),
            2 => {
                let end = bytes.len().min(at + 4);
                bytes[at..end].fill(0xff);
            }
            3 => {
                let end = bytes.len().min(at + random.random_range(1..40));
                bytes[at..end].fill(0);
            }
            _ if random.random_bool(0.2) => bytes.truncate(at.max(1)),
            _ => bytes[at] = bytes[at].wrapping_add(1),
        }
    }
}

#[test]
fn damage_with_a_valid_checksum_never_panics() {
    let mut random = StdRng::seed_from_u64(SEED);
    // Table, prefix of the names of designs, number of damages. Table `local` has dictionaries of pages.
    let cases = [("1023 rows", "", DAMAGES), ("long values", "", DAMAGES), ("Extreme", "", DAMAGES)];
    let cases = cases.into_iter().chain([("local", "packed_row", DAMAGES / 3)]);
    let cases: Vec<_> = cases.map(|(name, layout, damages)| (table(name), layout, damages)).collect();
    // Columns, bytes of a value, rows: text located by lengths, the same in long pages, and text located by ends.
    let shapes = [(3, 0..=20, 2_000), (2, 0..=6_000, 100), (5, 0..=20, 1_000)];
    let text_tables = shapes.map(|(columns, bytes, rows)| bytes_table(columns, bytes, rows, &mut random));
    let cases = cases.into_iter().chain(text_tables.map(|table| (table, "packed_row", DAMAGES / 3)));
    for (table, layout, damages) in cases {
        let model = Model::of(&table);
        let predicates = predicates_for(&model, &mut random);
        for (_, image) in images(&table).into_iter().filter(|(design, _)| design.starts_with(layout)) {
            for _ in 0..damages {
                let block = Block::parse(Buffer::from(image.header.as_slice())).unwrap();
                let mut sections = CountedSections::new(&block, &image.sections);
                sections.verify_checksums = false;
                let index = random.random_range(0..image.sections.len());
                let mut bytes = image.sections[index].clone();
                damage(&mut bytes, &mut random);
                sections.replace(index, &bytes);
                let conjuncts: Vec<ColumnPredicate> =
                    (0..4).map(|_| predicates[random.random_range(0..predicates.len())].clone()).collect();
                call_all_read_methods(&block, &sections, &conjuncts);
            }
        }
    }
}

#[test]
fn damaged_headers_with_valid_checksums_never_panic() {
    let mut random = StdRng::seed_from_u64(SEED);
    let table = table("2 rows");
    for (_, image) in images(&table) {
        let mut accepted = 0;
        for _ in 0..2_000 {
            let mut header = image.header.clone();
            let at = random.random_range(24..header.len());
            header[at] = if random.random_bool(0.5) { random.random() } else { header[at] ^ 1 };
            let header_checksum = checksum(&header[24..]);
            header[16..24].copy_from_slice(&header_checksum.to_le_bytes());
            let Ok(block) = Block::parse(Buffer::from(header.as_slice())) else { continue };
            accepted += 1;
            let mut sections = CountedSections::new(&block, &image.sections);
            sections.verify_checksums = false;
            call_all_read_methods(&block, &sections, &[]);
        }
        assert!(accepted > 0, "some damage, such as another type of a column, passes for a block");
    }
}

proptest! {
    #[test]
    fn random_bytes_are_rejected_as_header(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(Block::parse(Buffer::from(bytes.as_slice())).is_err());
        let mut with_magic = b"tautblk\n\x01\0\0\0".to_vec();
        with_magic.extend_from_slice(&bytes);
        prop_assert!(Block::parse(Buffer::from(with_magic.as_slice())).is_err());
    }
}
