//! Blocks whose rows belong to one partition: when the catalog records this partition, and when it discards it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use common::{assert_tidy, image, open, rows_of, schema};
use taut_store::disk::SimulatedDisk;
use taut_store::{BlockId, CommitError, NewBlock, Problem, RowOrder, Store, Table, TableId, verify};
use taut_types::{Datum, LogicalType, Partitioning, TableDesign};

fn design(options: &[(&str, &str)]) -> TableDesign {
    TableDesign::from_options(options.iter().copied(), &schema()).unwrap()
}

fn partitioning(design: &TableDesign, sample: std::ops::Range<i128>) -> Arc<Partitioning> {
    let sample = sample.map(Datum::Number).collect();
    Arc::new(Partitioning::from_sample(design.partition_by.unwrap(), LogicalType::BigInt, sample).unwrap())
}

fn block(store: &Store, values: &[i64]) -> NewBlock {
    let design = TableDesign::default();
    store.write_block(&image(values, &design), &design).unwrap()
}

fn create(store: &Store, design: &TableDesign) -> TableId {
    store.commit::<_, CommitError>(|edit| edit.create_table("t", schema(), design.clone())).unwrap()
}

fn append(store: &Store, table: TableId, blocks: Vec<NewBlock>) {
    store.commit::<_, CommitError>(|edit| edit.append_blocks(table, blocks)).unwrap();
}

fn table(store: &Store) -> Arc<Table> {
    Arc::clone(store.snapshot().table("t").unwrap())
}

fn partitions_of(table: &Table) -> Vec<Option<u32>> {
    (0..table.blocks.len()).map(|index| table.partition_of(index)).collect()
}

#[test]
fn range_boundaries_come_from_the_first_load_and_stay() {
    let disk = SimulatedDisk::new();
    let design = design(&[("partition_by", "range(id, 2)")]);
    let (first, other) = (partitioning(&design, 0..10), partitioning(&design, 0..1000));
    {
        let store = open(&disk).unwrap();
        let id = create(&store, &design);
        append(&store, id, vec![block(&store, &[7])]);
        assert!(table(&store).partitions.is_none());
        let blocks =
            vec![block(&store, &[1, 4]).in_partition(&first, 0), block(&store, &[5, 9]).in_partition(&first, 1)];
        append(&store, id, blocks);
        // Another load chose other boundaries before the first load committed.
        append(&store, id, vec![block(&store, &[1, 4, 400]).in_partition(&other, 0)]);
        append(&store, id, vec![block(&store, &[6]).in_partition(&first, 1)]);
        assert_eq!(partitions_of(&table(&store)), [None, Some(0), Some(1), None, Some(1)]);
        assert_eq!(*table(&store).runs, [0, 1, 2, 3, 4], "each partition of a load that is not sorted is a run");
    }
    let store = open(&disk).unwrap();
    let table = table(&store);
    assert_eq!(partitions_of(&table), [None, Some(0), Some(1), None, Some(1)]);
    assert_eq!(table.partitions.as_ref().unwrap().partitioning, *first);
    assert_tidy(&store, &disk, "opened again");
}

#[test]
fn a_load_sorted_by_its_range_column_is_one_run() {
    let store = open(&SimulatedDisk::new()).unwrap();
    let ascending = design(&[("partition_by", "range(id, 3)"), ("sort_by", "id")]);
    let by = partitioning(&ascending, 0..9);
    let id = create(&store, &ascending);
    let blocks = |order: &[u32]| -> Vec<NewBlock> {
        order
            .iter()
            .map(|partition| block(&store, &[i64::from(*partition) * 3]).in_partition(&by, *partition))
            .collect()
    };
    append(&store, id, blocks(&[0, 0, 1, 2]));
    assert_eq!(*table(&store).runs, [0]);
    append(&store, id, blocks(&[1, 0, 2]));
    assert_eq!(*table(&store).runs, [0, 4, 5], "blocks that do not ascend are not one run");
    // Blocks of hash partitions, or of partitions that the table no longer has, are not in order.
    let hashed = design(&[("partition_by", "hash(id, 3)"), ("sort_by", "id")]);
    store.commit::<_, CommitError>(|edit| edit.drop_table(id)).unwrap();
    let id = create(&store, &hashed);
    append(&store, id, blocks(&[0, 0, 1, 2]));
    assert_eq!(partitions_of(&table(&store)), [None; 4]);
    assert_eq!(*table(&store).runs, [0, 2, 3]);
}

#[test]
fn replaced_blocks_keep_their_partition_until_the_design_changes() {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    let hashed = design(&[("partition_by", "hash(id, 4)")]);
    let by = partitioning(&hashed, 0..1);
    let id = create(&store, &hashed);
    let of = |values: &[i64]| {
        let partition = by.partition_of(Some(&Datum::Number(values[0].into())), LogicalType::BigInt);
        block(&store, values).in_partition(&by, partition)
    };
    let one = |number: i64| by.partition_of(Some(&Datum::Number(number.into())), LogicalType::BigInt);
    append(&store, id, vec![of(&[1]), of(&[2]), of(&[3])]);
    let known = vec![Some(one(1)), Some(one(2)), Some(one(3))];
    assert_eq!(partitions_of(&table(&store)), known);
    let second = table(&store).blocks[1].id();
    store.commit(|edit| edit.replace_blocks(id, &[second], vec![of(&[2])], RowOrder::SameOrder)).unwrap();
    assert_eq!(partitions_of(&table(&store)), known);
    assert_tidy(&store, &disk, "replaced");
    let other = design(&[("partition_by", "hash(id, 5)")]);
    store.commit(|edit| edit.set_design(id, other.clone())).unwrap();
    assert_eq!(partitions_of(&table(&store)), [None; 3]);
    let old: Vec<BlockId> = table(&store).blocks.iter().map(|block| block.id()).collect();
    let by = partitioning(&other, 0..1);
    let again = block(&store, &[1, 2, 3]).in_partition(&by, 0);
    store.commit(|edit| edit.replace_blocks(id, &old, vec![again], RowOrder::Sorted)).unwrap();
    assert_eq!(partitions_of(&table(&store)), [Some(0)]);
    assert_eq!(rows_of(&table(&store)).unwrap(), [1, 2, 3]);
    // A design without partitions removes them, and partitions of another design are refused.
    let error = store.commit(|edit| edit.set_partitioning(id, partitioning(&hashed, 0..1).as_ref().clone()));
    assert!(error.unwrap_err().to_string().contains("partitions does not fit"));
    store.commit(|edit| edit.set_design(id, design(&[]))).unwrap();
    assert!(table(&store).partitions.is_none());
}

#[test]
fn verify_finds_a_row_of_another_partition() {
    let store = open(&SimulatedDisk::new()).unwrap();
    let ranged = design(&[("partition_by", "range(id, 2)")]);
    let by = partitioning(&ranged, 0..10);
    let id = create(&store, &ranged);
    append(
        &store,
        id,
        vec![block(&store, &[1, 4]).in_partition(&by, 0), block(&store, &[5, 8, 4]).in_partition(&by, 1)],
    );
    let damages = verify(&store);
    assert_eq!(damages.len(), 1, "{damages:?}");
    assert!(matches!(damages[0].problem, Problem::Partition { expected: 1, found: 0, row: 2 }));
    assert!(damages[0].to_string().contains("row 2: expected partition 1, found 0 (table \"t\")"), "{}", damages[0]);
}
