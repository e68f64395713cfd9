//! Tests that an index lookup for several segments at once rules out only segments without matching rows.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::ops::Bound;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use common::{CountedSections, build, open};
use taut_block::{Block, SEGMENT_ROWS, ScanReport};
use taut_types::{
    BlockSize, Column, ColumnIndex, ColumnPredicate, DatumPredicate, IndexDesign, IndexKind, Layout, LogicalType,
    Schema, TableDesign,
};

const SEGMENTS: usize = 5;
const FAR: u32 = 0;
const NEAR: u32 = 1;
const NAME: u32 = 2;

/// Number of a row: unique, and far from the numbers of neighboring rows.
fn far(row: usize) -> i64 {
    // At most 62 bits, so that keys of an index with nulls are exact.
    (row as i64).wrapping_mul(0x5851_f42d_4c95_7f2d) >> 2
}

/// Text of a row. All texts share a prefix.
fn name(row: usize) -> String {
    format!("name {:016x}", far(row))
}

/// The row that the tests search in a segment. It has no null.
fn target_row(segment: usize) -> usize {
    segment * SEGMENT_ROWS + 4321
}

/// A block of five segments with an index on `columns`.
fn block(layout: Layout, kind: IndexKind, columns: &[u32]) -> (Block, CountedSections) {
    let schema = Arc::new(
        Schema::new(vec![
            Column::new("far", LogicalType::BigInt, true),
            Column::new("near", LogicalType::BigInt, false),
            Column::new("name", LogicalType::Varchar, false),
        ])
        .unwrap(),
    );
    let columns = columns.iter().map(|column| ColumnIndex(*column)).collect();
    let indexes = vec![IndexDesign { name: "i".to_owned(), kind, columns }];
    let design = TableDesign { layout, block_size: BlockSize::File, indexes, ..TableDesign::default() };
    let rows = 0..SEGMENTS * SEGMENT_ROWS;
    let far: ArrayRef = Arc::new(Int64Array::from_iter(rows.clone().map(|row| (row % 100 != 7).then(|| far(row)))));
    let near: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.clone().map(|row| row as i64 % 50)));
    let name: ArrayRef = Arc::new(StringViewArray::from_iter_values(rows.map(name)));
    let batch = RecordBatch::try_new(schema.arrow(), vec![far, near, name]).unwrap();
    open(&build(&schema, &design, &[batch]).unwrap()[0])
}

fn equals(column: u32, number: i64) -> ColumnPredicate {
    ColumnPredicate::new(ColumnIndex(column), DatumPredicate::Range { low: number.into(), high: number.into() })
}

fn is_name(row: usize) -> ColumnPredicate {
    let name: Box<[u8]> = name(row).into_bytes().into();
    let predicate = DatumPredicate::BytesRange { low: Bound::Included(name.clone()), high: Bound::Included(name) };
    ColumnPredicate::new(ColumnIndex(NAME), predicate)
}

/// Returns the segments that remain, and how many were ruled out by CSB+-trees and by Bloom filters.
fn prune((block, sections): &(Block, CountedSections), predicates: &[ColumnPredicate]) -> (Vec<usize>, u64, u64) {
    let pruned = block.prune(sections, predicates, 0..block.segments()).unwrap();
    let mut report = ScanReport::default();
    pruned.add_to_report(&mut report);
    assert_eq!(report.segments as usize + pruned.remaining().count(), block.segments());
    (pruned.remaining().collect(), report.segments_skipped_by_csb, report.segments_skipped_by_bloom)
}

const ALL: [usize; SEGMENTS] = [0, 1, 2, 3, 4];
const LAYOUTS: [Layout; 3] = [Layout::Row, Layout::PackedRow, Layout::Column];

#[test]
fn the_segment_of_a_key_remains() {
    for layout in LAYOUTS {
        let indexed = block(layout, IndexKind::CsbTree, &[FAR]);
        assert_eq!(prune(&indexed, &[equals(FAR, far(target_row(3)))]), (vec![3], 4, 0));
        assert_eq!(prune(&indexed, &[equals(FAR, far(target_row(3)) + 1)]), (vec![], 5, 0), "no row has this one");
        let numbers: Arc<[i128]> = {
            let mut numbers = [far(target_row(1)), far(target_row(1)) + 1, far(target_row(4))].map(i128::from);
            numbers.sort_unstable();
            Arc::from(numbers)
        };
        let list = ColumnPredicate::new(ColumnIndex(FAR), DatumPredicate::OneOf(numbers));
        assert_eq!(prune(&indexed, &[list]), (vec![1, 4], 3, 0));
        let number = i128::from(far(target_row(2)));
        let range = DatumPredicate::Range { low: number - 1000, high: number + 1000 };
        assert_eq!(prune(&indexed, &[ColumnPredicate::new(ColumnIndex(FAR), range)]), (vec![2], 4, 0));
        // Prunes only some of the segments.
        let (block, sections) = &indexed;
        let some = block.prune(sections, &[equals(FAR, far(target_row(3)))], [1, 3]).unwrap();
        assert_eq!(some.remaining().collect::<Vec<_>>(), [3]);
    }
}

#[test]
fn two_columns_are_searched_together() {
    let indexed = block(Layout::Column, IndexKind::CsbTree, &[NEAR, FAR]);
    let row = target_row(1);
    let near = equals(NEAR, row as i64 % 50);
    assert_eq!(prune(&indexed, &[equals(FAR, far(row)), near.clone()]), (vec![1], 4, 0));
    assert_eq!(prune(&indexed, &[equals(FAR, far(row)), equals(NEAR, (row as i64 + 1) % 50)]), (vec![], 5, 0));
    // Every segment has rows with this value, so no index is read.
    assert_eq!(prune(&indexed, std::slice::from_ref(&near)), (ALL.to_vec(), 0, 0));
    assert_eq!(prune(&indexed, &[equals(FAR, far(row))]), (ALL.to_vec(), 0, 0), "the second column alone");
}

#[test]
fn text_is_searched_by_its_prefix() {
    let indexed = block(Layout::PackedRow, IndexKind::CsbTree, &[NAME]);
    assert_eq!(prune(&indexed, &[is_name(target_row(2))]), (vec![2], 4, 0));
    assert_eq!(prune(&indexed, &[is_name(SEGMENTS * SEGMENT_ROWS + 5)]), (vec![], 5, 0));
}

#[test]
fn bloom_filters_are_searched_too() {
    let indexed = block(Layout::Row, IndexKind::Bloom, &[FAR]);
    let (segments, by_tree, by_filter) = prune(&indexed, &[equals(FAR, far(target_row(3)))]);
    // A Bloom filter may have false positives.
    assert!(segments.contains(&3) && by_filter >= 3 && by_tree == 0, "{segments:?}");
    let range = DatumPredicate::Range { low: 0, high: 1000 };
    assert_eq!(prune(&indexed, &[ColumnPredicate::new(ColumnIndex(FAR), range)]), (ALL.to_vec(), 0, 0));
}

#[test]
fn indexes_that_cannot_rule_out_segments_are_not_searched() {
    let indexed = block(Layout::Column, IndexKind::CsbTree, &[FAR]);
    let (block, sections) = &indexed;
    let may_prune = |predicate: &ColumnPredicate| {
        let probes = block.index_probes(sections, std::slice::from_ref(predicate)).unwrap();
        probes.is_some_and(|probes| probes.may_prune(0))
    };
    let key = equals(FAR, far(target_row(3)));
    assert!(may_prune(&key));
    let wide = ColumnPredicate::new(ColumnIndex(FAR), DatumPredicate::Range { low: 0, high: i64::MAX.into() });
    let null = ColumnPredicate::new(ColumnIndex(FAR), DatumPredicate::Null);
    let negated = ColumnPredicate { negated: true, ..key.clone() };
    for predicate in [wide, null, negated, equals(NEAR, 7), is_name(target_row(3))] {
        assert!(!may_prune(&predicate), "{predicate:?}");
        assert_eq!(prune(&indexed, &[predicate]), (ALL.to_vec(), 0, 0));
    }
    // Zone maps already rule out all segments, so no index is read.
    assert_eq!(prune(&indexed, &[key, equals(NEAR, 50)]), (ALL.to_vec(), 0, 0));
}
