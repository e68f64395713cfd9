//! Measures the time of a commit and of a cache lookup. docs/adr/0002-catalog-is-replaced-whole.md has the results.
//!
//! `cargo bench -p taut-store --bench commit_cost -- <empty directory> [blocks]`
//!
//! The catalog and the log are written to the directory, with all syncs. Blocks are in memory.
#![allow(clippy::print_stdout, reason = "a program that prints its results")]

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use taut_block::{BlockBuilder, BlockImage, Sections};
use taut_store::disk::{DirectoryEntry, Disk, FileDisk, Lock, MemoryDisk, ReadFile, WriteFile};
use taut_store::{CommitError, NewBlock, OpenOptions, ReadCounters, Store, TableId};
use taut_testkit::arguments;
use taut_types::{Column, LogicalType, Schema, TableDesign};

/// A disk that holds blocks in memory, and all other files on the file system.
#[derive(Debug)]
struct SplitDisk {
    files: FileDisk,
    blocks: MemoryDisk,
}

impl SplitDisk {
    fn of(&self, name: &str) -> &dyn Disk {
        if name.starts_with("blocks") { &self.blocks } else { &self.files }
    }
}

impl Disk for SplitDisk {
    fn path(&self, name: &str) -> PathBuf {
        self.files.path(name)
    }
    fn create(&self, name: &str) -> io::Result<Box<dyn WriteFile>> {
        self.of(name).create(name)
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn ReadFile>> {
        self.of(name).open(name)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.of(from).rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.of(name).remove(name)
    }
    fn list(&self, directory: &str) -> io::Result<Vec<DirectoryEntry>> {
        self.of(directory).list(directory)
    }
    fn create_directory(&self, name: &str) -> io::Result<()> {
        self.files.create_directory(name)
    }
    fn sync_directory(&self, name: &str) -> io::Result<()> {
        self.files.sync_directory(name)
    }
    fn lock(&self, name: &str) -> io::Result<Option<Box<dyn Lock>>> {
        self.files.lock(name)
    }
    fn extension_step(&self) -> u64 {
        self.files.extension_step()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = arguments().into_iter();
    let path = arguments.next().ok_or("name an empty directory")?;
    let blocks: usize = arguments.next().map_or(Ok(30_000), |text| text.parse())?;
    let disk = Arc::new(SplitDisk { files: FileDisk::new(&path), blocks: MemoryDisk::new() });
    let options = OpenOptions { create: true, ..OpenOptions::default() };
    let store = Store::open_on(disk.clone(), options)?;
    let (schema, design) = (schema()?, TableDesign::default());
    let image = image(&schema)?;
    let table = store.commit::<_, CommitError>(|edit| edit.create_table("lineitem", schema, design))?;
    let empty = least_and_median((0..20).map(|_| commit_one(&store, table, &image)))?;
    let new = (0..blocks).map(|_| store.write_block(&image, &TableDesign::default()));
    let new = new.collect::<Result<Vec<NewBlock>, _>>()?;
    store.commit::<_, CommitError>(|edit| edit.append_blocks(table, new))?;
    let full = least_and_median((0..20).map(|_| commit_one(&store, table, &image)))?;
    let bytes = std::fs::metadata(std::path::Path::new(&path).join("catalog"))?.len();
    println!("catalog of {blocks} blocks: {bytes} bytes, {} a block", bytes / blocks as u64);
    println!("commit of one block: {empty:?} into few blocks, {full:?} into {blocks} (the least and the median of 20)");
    println!("lookup of a cached section: {:?}", lookup(&store)?);
    drop(store);
    let start = Instant::now();
    let store = Store::open_on(disk, options)?;
    println!(
        "opening: {:?} for {} rows",
        start.elapsed(),
        store.snapshot().table("lineitem").ok_or("no table")?.rows()
    );
    Ok(())
}

fn schema() -> Result<Schema, Box<dyn Error>> {
    let columns = (0..16).map(|column| Column::new(format!("column_{column}"), LogicalType::BigInt, false));
    Ok(Schema::new(columns.collect())?)
}

/// A block of 16 columns with a thousand rows.
fn image(schema: &Schema) -> Result<BlockImage, Box<dyn Error>> {
    let schema = Arc::new(schema.clone());
    let column = |seed: i64| -> ArrayRef { Arc::new(Int64Array::from_iter_values((0..1_000).map(|row| row * seed))) };
    let mut builder = BlockBuilder::new(Arc::clone(&schema), Arc::default());
    builder.push(&RecordBatch::try_new(schema.arrow(), (1..17).map(column).collect())?)?;
    Ok(builder.finish()?)
}

fn commit_one(store: &Store, table: TableId, image: &BlockImage) -> Result<Duration, Box<dyn Error>> {
    let block = store.write_block(image, &TableDesign::default())?;
    let start = Instant::now();
    store.commit::<_, CommitError>(|edit| edit.append_blocks(table, vec![block]))?;
    Ok(start.elapsed())
}

/// Returns the minimum and the median of some times. Other programs affect the minimum least.
fn least_and_median(
    times: impl Iterator<Item = Result<Duration, Box<dyn Error>>>,
) -> Result<(Duration, Duration), Box<dyn Error>> {
    let mut times = times.collect::<Result<Vec<_>, _>>()?;
    times.sort_unstable();
    Ok((times[0], times[times.len() / 2]))
}

/// Average time to read a cached section: a million reads in up to 60 open blocks.
fn lookup(store: &Store) -> Result<Duration, Box<dyn Error>> {
    let snapshot = store.snapshot();
    let table = snapshot.table("lineitem").ok_or("no table")?;
    let counters = ReadCounters::new();
    let open = table.blocks.iter().take(60).map(|block| block.open(&counters)).collect::<Result<Vec<_>, _>>()?;
    open.iter().try_for_each(|block| block.section(0).map(drop))?;
    let start = Instant::now();
    for number in 0..1_000_000 {
        std::hint::black_box(open[number % open.len()].section(0)?);
    }
    Ok(start.elapsed() / 1_000_000)
}
