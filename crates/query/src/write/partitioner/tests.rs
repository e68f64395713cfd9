//! Each row is written to its partition, within the memory limits.

use std::collections::BTreeSet;

use datafusion::arrow::array::{Int64Array, StringViewArray};
use taut_store::{CommitError, Store, Table};
use taut_types::{Column, Schema, TableDesign};

use super::*;

const ROWS: i64 = 40_000;
/// Upper bound of the bytes of a row in memory: 8 of the number, 16 of the view, and 42 of the string.
const ROW_BYTES: usize = 80;
const TIGHT: MemoryBounds = MemoryBounds { buffered: 100_000, partitioned_at_once: 20_000 };

fn batches(schema: &Schema) -> Vec<RecordBatch> {
    let text = |number: i64| format!("a text too long for views to inline {number:06}");
    let batch = |start: i64| {
        let numbers: ArrayRef =
            Arc::new((start..start + 500).map(|n| (n % 13 != 0).then_some(n)).collect::<Int64Array>());
        let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values((start..start + 500).map(text)));
        RecordBatch::try_new(schema.arrow(), vec![numbers, texts]).unwrap()
    };
    (0..ROWS).step_by(500).map(batch).collect()
}

/// Partitions rows into a table. Returns the table and the maximum number of bytes that were held.
async fn partition_rows(options: &[(&str, &str)], bounds: MemoryBounds) -> (Arc<Table>, usize) {
    let columns = vec![Column::new("a", LogicalType::BigInt, true), Column::new("b", LogicalType::Varchar, false)];
    let schema = Arc::new(Schema::new(columns).unwrap());
    let design = TableDesign::from_options(options.iter().copied(), &schema).unwrap();
    let store = Arc::new(Store::in_memory().unwrap());
    let changes = crate::write::changes::Changes::autocommit(Arc::clone(&store));
    let writer = BlockWriter::new(&changes, ("t", &schema), &design, 2);
    let mut partitioner = Partitioner { bounds, ..Partitioner::new(writer, design.partition_by, None) };
    let mut held_max = 0;
    for batch in batches(&schema) {
        partitioner.push(batch).await.unwrap();
        held_max = held_max.max(partitioner.buffered_bytes + partitioner.waiting_bytes);
    }
    let blocks = partitioner.finish().await.unwrap();
    let filled = |edit: &mut taut_store::CatalogEdit| {
        let table = edit.create_table("t", schema.as_ref().clone(), design.clone())?;
        edit.append_blocks(table, blocks)
    };
    store.commit::<_, CommitError>(filled).unwrap();
    assert!(taut_store::verify(&store).is_empty(), "each row is in its partition");
    let table = Arc::clone(store.snapshot().table("t").unwrap());
    assert_eq!(table.rows(), ROWS as u64);
    (table, held_max)
}

fn partitions_of(table: &Table) -> Vec<u32> {
    (0..table.blocks.len()).map(|index| table.partition_of(index).unwrap()).collect()
}

#[tokio::test]
async fn the_fullest_partition_is_written_before_memory_runs_out() {
    for by in ["hash(a, 16)", "range(a, 16)"] {
        let (roomy, _) = partition_rows(&[("partition_by", by)], MEMORY_BOUNDS).await;
        assert_eq!(
            partitions_of(&roomy),
            (0..=16).collect::<Vec<_>>(),
            "{by}: one block per partition, the partition of nulls last"
        );
        let (tight, held_max) = partition_rows(&[("partition_by", by)], TIGHT).await;
        assert!(held_max <= TIGHT.buffered + 2 * TIGHT.partitioned_at_once, "{by}: {held_max}");
        let partitions = partitions_of(&tight);
        assert!(partitions.is_sorted() && tight.blocks.len() > 2 * 17, "{by}: {partitions:?}");
        // The fullest of 17 partitions has at least a 17th of the rows in memory. The last block of a partition is not
        // checked, because it has the remaining rows, which may be few.
        let least = tight.blocks.iter().zip(partitions.windows(2)).filter(|(_, pair)| pair[0] == pair[1]);
        let least = least.map(|(block, _)| block.entry().rows).min().unwrap();
        assert!(least as usize >= TIGHT.buffered / ROW_BYTES / 17, "{by}: a block of {least} rows");
    }
}

#[tokio::test]
async fn blocks_without_a_size_limit_stay_open_when_memory_is_full() {
    let (table, held_max) = partition_rows(&[("partition_by", "hash(a, 4)"), ("block_size", "file")], TIGHT).await;
    assert_eq!(partitions_of(&table), [0, 1, 2, 3, 4]);
    assert!(held_max <= TIGHT.buffered + 2 * TIGHT.partitioned_at_once, "{held_max}");
}

#[tokio::test]
async fn blocks_of_a_partition_have_the_size_of_the_design() {
    let (table, _) = partition_rows(&[("partition_by", "hash(a, 2)"), ("block_size", "256KiB")], MEMORY_BOUNDS).await;
    let distinct: BTreeSet<u32> = partitions_of(&table).into_iter().collect();
    assert_eq!(distinct.into_iter().collect::<Vec<_>>(), [0, 1, 2]);
    assert!(table.blocks.len() >= 6, "{}", table.blocks.len());
    assert!(table.blocks.iter().all(|block| block.entry().plain_bytes < 300 << 10));
}

#[tokio::test]
async fn boundaries_come_from_the_rows_that_fit_in_memory() {
    let (table, _) = partition_rows(&[("partition_by", "range(a, 4)")], TIGHT).await;
    let partitioning = &table.partitions.as_ref().unwrap().partitioning;
    // Three quarters of all rows are below 30,000. The last boundary is much lower, because it is chosen from the first
    // rows.
    let last = partitioning.bounds(3).0.and_then(|datum| datum.number()).unwrap();
    assert!((500..4_000).contains(&last), "{last}");
}

#[tokio::test]
async fn rows_stay_unpartitioned_without_a_design() {
    let (table, _) = partition_rows(&[], TIGHT).await;
    assert!(table.partitions.is_none());
    assert_eq!(table.blocks.len(), 1);
}
