//! Creates a database in a directory, commits blocks and rows, reads a snapshot, and opens the database again.
//!
//! `cargo run -p taut-store --example commit_and_reopen`
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use taut_block::BlockBuilder;
use taut_store::{CommitError, OpenOptions, Store, Synchronous};
use taut_types::{Column, LogicalType, Schema, TableDesign};

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("numbers");
    let schema = Schema::new(vec![Column::new("number", LogicalType::BigInt, false)])?;
    let batch = |numbers: std::ops::Range<i64>| {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
        RecordBatch::try_new(schema.arrow(), vec![column])
    };

    let store = Store::open(&path, OpenOptions { create: true, ..OpenOptions::default() })?;
    let (columns, design) = (schema.clone(), TableDesign::default());
    let table = store.commit::<_, CommitError>(|edit| edit.create_table("t", columns, design))?;

    // Many rows become a block, which a commit publishes.
    let mut builder = BlockBuilder::new(Arc::new(schema.clone()), Arc::default());
    builder.push(&batch(0..100_000)?)?;
    let block = store.write_block(&builder.finish()?, &TableDesign::default())?;
    store.commit::<_, CommitError>(|edit| edit.append_blocks(table, vec![block]))?;
    let snapshot = store.snapshot();

    // A transaction inserts three rows, which are stored in the delta.
    let transaction = store.begin();
    transaction.insert_rows(table, &batch(100_000..100_003)?)?;
    transaction.commit(Synchronous::Full)?;

    let rows = |catalog: &taut_store::Catalog| catalog.table("t").map_or(0, |table| table.rows());
    println!("the snapshot has {} rows, the newest version {}", rows(&snapshot), rows(&store.snapshot()));
    // The directory stays locked until the store, its snapshots and its transactions are dropped.
    drop((snapshot, transaction, store));

    let store = Store::open(&path, OpenOptions::default())?;
    let catalog = store.snapshot();
    println!("version {} has {} rows after opening it again", catalog.version(), rows(&catalog));
    for file in std::fs::read_dir(path.join("blocks"))? {
        println!("{}", file?.path().display());
    }
    Ok(())
}
