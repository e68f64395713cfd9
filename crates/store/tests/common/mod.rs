//! Shared by the store tests: small blocks, and contents of a database as a plain map.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod backups;
pub mod damaged;
pub mod random_steps;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use roaring::RoaringBitmap;
use taut_block::{BlockBuilder, BlockImage, ScanReport};
use taut_store::disk::{Disk, Fault, SimulatedDisk};
use taut_store::{
    BlockId, Catalog, CommitError, ContainerId, NewBlock, OldRows, OpenBlock, OpenError, OpenOptions, ReadCounters,
    RowId, RowOrder, RowRelocations, RowSet, Store, Synchronous, Table, TableId, Transaction, View, verify,
};
use taut_testkit::Random;
use taut_types::{Column, ColumnIndex, LogicalType, Predicate, Schema, TableDesign};

/// Options of a process that only reads.
pub const READ_ONLY: OpenOptions =
    OpenOptions { create: false, inspect: false, read_only: true, cache_bytes: Some(1 << 20) };

/// Rows of each table by name.
pub type Contents = BTreeMap<String, Vec<i64>>;
pub type Failure = Box<dyn std::error::Error>;

pub fn schema() -> Schema {
    Schema::new(vec![Column::new("id", LogicalType::BigInt, false)]).unwrap()
}

pub fn design(layout: &str) -> TableDesign {
    TableDesign::from_options([("layout", layout)], &schema()).unwrap()
}

/// Builds a block of rows with a design.
pub fn image(values: &[i64], design: &TableDesign) -> BlockImage {
    image_of(&schema(), values, design)
}

/// Builds a block of rows of a table that may have further columns.
pub fn image_of(schema: &Schema, values: &[i64], design: &TableDesign) -> BlockImage {
    let mut builder = BlockBuilder::new(Arc::new(schema.clone()), Arc::new(design.clone()));
    builder.push(&batch_of(schema, values)).unwrap();
    builder.finish().unwrap()
}

pub fn write(store: &Store, values: &[i64], layout: &str) -> Result<NewBlock, Failure> {
    let design = design(layout);
    Ok(store.write_block(&image(values, &design), &design)?)
}

/// Writes a block of rows of a table that may have further columns.
pub fn write_for(store: &Store, table: &Table, values: &[i64], layout: &str) -> Result<NewBlock, Failure> {
    let design = TableDesign::from_options([("layout", layout)], &table.schema)?;
    Ok(store.write_block(&image_of(&table.schema, values, &design), &design)?)
}

/// Rows of a block in order, including deleted ones.
pub fn values_of(open: &OpenBlock) -> Result<Vec<i64>, Failure> {
    let mut values = Vec::new();
    for segment in 0..open.block().segments() {
        values.extend(values_of_segment(open, segment, None, None)?.into_iter().map(|(_, value)| value));
    }
    Ok(values)
}

/// Rows of a segment that are not deleted, with their positions.
fn values_of_segment(
    open: &OpenBlock,
    segment: usize,
    deleted: Option<&RoaringBitmap>,
    schema: Option<&Schema>,
) -> Result<Vec<(u32, i64)>, Failure> {
    let mut report = ScanReport::default();
    let mut reader = open.block().open_segment(open, segment);
    if let Some(deleted) = deleted {
        reader.exclude(deleted);
    }
    let selection = reader.filter(&Predicate::default(), &mut report).map_err(|error| open.locate(error))?;
    let all: Vec<ColumnIndex> = (0..open.block().columns()).map(ColumnIndex::from).collect();
    let columns = reader.project(&selection, 0..selection.len(), &all, &mut report);
    let columns = columns.map_err(|error| open.locate(error))?;
    if let Some(schema) = schema {
        check_further_columns(schema, &columns, |_| true)?;
    }
    Ok(selection.positions().into_iter().zip(columns[0].as_primitive::<Int64Type>().values().iter().copied()).collect())
}

/// Rows of a table that are not deleted, with their row ids. Rows in blocks come first, then rows in delta pages.
pub fn rows_with_ids(table: &Table) -> Result<Vec<(RowId, i64)>, Failure> {
    let mut rows = Vec::new();
    for file in table.blocks.iter() {
        let open = file.open(&ReadCounters::new())?;
        let (container, deleted) =
            (ContainerId::of(file.id()).ok_or("no container")?, table.delta.deleted_of_block(file.id()));
        for segment in 0..open.block().segments() {
            let deleted = deleted.and_then(|deleted| deleted.segment(segment)).map(AsRef::as_ref);
            let with_id = |(row, value)| (RowId::new(container, segment as u16, row as u16), value);
            rows.extend(values_of_segment(&open, segment, deleted, Some(&table.schema))?.into_iter().map(with_id));
        }
    }
    for page in table.delta.pages() {
        let columns = page.columns(&(0..table.schema.len()).collect::<Vec<_>>());
        let values = columns[0].as_primitive::<Int64Type>().values();
        let deleted = table.delta.deleted(page.id()).and_then(|deleted| deleted.segment(0));
        let live = (0..page.rows()).filter(|row| deleted.is_none_or(|deleted| !deleted.contains(*row as u32)));
        check_further_columns(&table.schema, &columns, |row| {
            deleted.is_none_or(|deleted| !deleted.contains(row as u32))
        })?;
        rows.extend(live.map(|row| (RowId::new(page.id(), 0, row as u16), values[row])));
    }
    if rows.len() as u64 != table.rows() {
        return Err(format!("the table counts {} rows, but has {}", table.rows(), rows.len()).into());
    }
    Ok(rows)
}

/// Rows of a table that are not deleted, in order.
pub fn rows_of(table: &Table) -> Result<Vec<i64>, Failure> {
    Ok(rows_with_ids(table)?.into_iter().map(|(_, value)| value).collect())
}

/// Batch of rows to insert.
pub fn batch(values: &[i64]) -> RecordBatch {
    batch_of(&schema(), values)
}

/// Batch of rows of a table that may have further columns.
pub fn batch_of(schema: &Schema, values: &[i64]) -> RecordBatch {
    let id: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
    let further = schema.columns()[1..].iter().map(|column| {
        Arc::new(std::iter::repeat_n(further_value(&column.name), values.len()).collect::<Int64Array>()) as ArrayRef
    });
    RecordBatch::try_new(schema.arrow(), std::iter::once(id).chain(further).collect()).unwrap()
}

/// Value of a column after `id` in every row: the number in its name, or null if the name begins with `n`.
pub fn further_value(name: &str) -> Option<i64> {
    let number = name.trim_matches(|letter: char| !letter.is_ascii_digit()).parse().ok()?;
    (!name.starts_with('n')).then_some(number)
}

/// Checks the columns after `id` in all live rows.
fn check_further_columns(
    schema: &Schema,
    columns: &[ArrayRef],
    is_live: impl Fn(usize) -> bool,
) -> Result<(), Failure> {
    if columns.len() != schema.len() {
        return Err(format!("{} columns, but {} in the schema", columns.len(), schema.len()).into());
    }
    // Tables that random steps did not create have columns with other names and values.
    let is_further = |name: &str| name.starts_with(['c', 'n']) && name.contains(|letter: char| letter.is_ascii_digit());
    for (column, array) in schema.columns().iter().zip(columns).skip(1).filter(|(column, _)| is_further(&column.name)) {
        let expected = further_value(&column.name);
        let found = array.as_primitive::<Int64Type>().iter().enumerate();
        if let Some((row, found)) = found.filter(|(row, _)| is_live(*row)).find(|(_, found)| *found != expected) {
            return Err(format!("column {:?} is {found:?} in row {row}", column.name).into());
        }
    }
    Ok(())
}

/// Value of a future that is ready. Panics if it would wait.
pub fn ready<T>(future: impl Future<Output = T>) -> T {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("another transaction has locked the rows"),
    }
}

/// Inserts rows and deletes the rows with some values.
pub fn change_in(transaction: &Transaction, name: &str, inserted: &[i64], deleted: &[i64]) -> Result<(), Failure> {
    let snapshot = transaction.snapshot();
    let table = snapshot.table(name).ok_or("no such table")?;
    let rows = rows_with_ids(table)?.into_iter().filter(|(_, value)| deleted.contains(value));
    let rows: RowSet = rows.map(|(row, _)| row).collect();
    if !rows.is_empty() {
        ready(transaction.delete_rows(table.id, &rows))?;
    }
    Ok(transaction.insert_rows(table.id, &batch_of(&table.schema, inserted))?)
}

/// Inserts and deletes rows in a new transaction.
pub fn change_rows(store: &Store, name: &str, inserted: &[i64], deleted: &[i64]) -> Result<(), Failure> {
    let transaction = store.begin();
    change_in(&transaction, name, inserted, deleted)?;
    Ok(transaction.commit(Synchronous::Full)?)
}

pub fn contents(store: &Store) -> Result<Contents, Failure> {
    let snapshot = store.snapshot();
    snapshot.tables().map(|table| Ok((table.name.clone(), rows_of(table)?))).collect()
}

pub fn create_table(store: &Store, name: &str) -> Result<(), Failure> {
    Ok(store.commit::<_, CommitError>(|edit| edit.create_table(name, schema(), design("column")).map(drop))?)
}

pub fn append(store: &Store, name: &str, blocks: Vec<NewBlock>) -> Result<(), Failure> {
    let table = store.snapshot().table(name).ok_or("no such table")?.id;
    Ok(store.commit::<_, CommitError>(|edit| edit.append_blocks(table, blocks))?)
}

pub fn replace_all(store: &Store, name: &str, blocks: Vec<NewBlock>, layout: &str) -> Result<(), Failure> {
    let snapshot = store.snapshot();
    let table = snapshot.table(name).ok_or("no such table")?;
    let old: Vec<BlockId> = table.blocks.iter().map(|block| block.id()).collect();
    Ok(store.commit::<_, CommitError>(|edit| {
        edit.replace_blocks(table.id, &old, blocks, RowOrder::SameOrder)?;
        edit.set_design(table.id, design(layout))
    })?)
}

/// A view without recorded relations.
pub fn view(name: &str, sql: &str) -> View {
    View {
        name: name.to_owned(),
        sql: sql.to_owned(),
        search_path: Vec::new(),
        relations: BTreeMap::new(),
        functions: BTreeSet::new(),
    }
}

pub fn drop_table(store: &Store, name: &str) -> Result<(), Failure> {
    let table = store.snapshot().table(name).ok_or("no such table")?.id;
    Ok(store.commit::<_, CommitError>(|edit| edit.drop_table(table))?)
}

pub fn open(disk: &SimulatedDisk) -> Result<Store, OpenError> {
    let options = OpenOptions { create: true, cache_bytes: Some(1 << 20), ..OpenOptions::default() };
    Store::open_on(Arc::new(disk.clone()), options)
}

/// All blocks and delta pages of a table.
pub fn all_old_rows(table: &Table) -> OldRows {
    let blocks = table.blocks.iter().map(|block| block.id()).collect();
    let pages = table.delta.pages().iter().map(|page| (page.id(), page.rows() as u32)).collect();
    let omitted = table.delta.all_deleted().map(|(container, rows)| (container, rows.clone())).collect();
    let nulls = table.statistics.iter().map(|column| column.nulls).collect();
    OldRows { blocks, pages, nulls, omitted: Some(omitted), relocations: None }
}

/// Relocation of all rows of a table to a new block. The rows have been read and written, but not replaced in the
/// catalog.
pub struct Relocation {
    pub table: TableId,
    pub old: OldRows,
    pub new: Vec<NewBlock>,
    /// Old row ids, in the order of the new block.
    pub rows: Vec<RowId>,
}

impl Relocation {
    /// Reads the current rows of a table and writes them in random order.
    pub fn read(store: &Store, table: &Table, random: &mut Random) -> Result<Self, Failure> {
        let mut rows = rows_with_ids(table)?;
        for last in (1..rows.len()).rev() {
            rows.swap(random.below(last + 1), last);
        }
        let (rows, values): (Vec<RowId>, Vec<i64>) = rows.into_iter().unzip();
        let new = if values.is_empty() { vec![] } else { vec![write_for(store, table, &values, "packed_row")?] };
        let mut relocations = RowRelocations::default();
        new.iter().try_for_each(|block| relocations.push(block, rows.iter().copied()))?;
        let old = OldRows { relocations: Some(Arc::new(relocations)), ..all_old_rows(table) };
        Ok(Self { table: table.id, old, new, rows })
    }

    pub fn commit(self, store: &Store) -> Result<(), CommitError> {
        store.commit(|edit| edit.replace_rows(self.table, self.old, self.new, RowOrder::Sorted))
    }
}

/// Calls `crash` with a seed and with the index of the disk change at which the machine stops, for at least `wanted`
/// crash points. In the run of a seed, every `step`-th change is a crash point, and the seed determines the first one.
/// `crash` returns false if the run has fewer changes. Returns the number of crash points, and the number of seeds.
pub fn for_crash_points(wanted: u64, step: usize, mut crash: impl FnMut(u64, u64) -> bool) -> (u64, u64) {
    let mut tested = 0;
    for seed in 0.. {
        if tested >= wanted {
            return (tested, seed);
        }
        let changes = (seed % step as u64..).step_by(step);
        tested += changes.take_while(|at| crash(seed, *at)).count() as u64;
    }
    unreachable!()
}

/// Calls `check` with the disk after each crash while the database opens, and the change at which the machine stopped.
pub fn for_crashes_while_opening(disk: &SimulatedDisk, check: impl Fn(&SimulatedDisk, u64)) {
    for at in 0.. {
        let opened = disk.after_kill();
        opened.set_fault(Some(Fault::CrashAt(at)));
        drop(open(&opened));
        if !opened.is_crashed() {
            return;
        }
        check(&opened, at);
    }
}

/// Asserts that the disk holds only the files of the database, and that none is damaged.
pub fn assert_tidy(store: &Store, disk: &SimulatedDisk, context: &str) {
    let damages: Vec<String> = verify(store).iter().map(ToString::to_string).collect();
    assert!(damages.is_empty(), "{context}: {damages:?}");
    let snapshot = store.snapshot();
    let blocks = snapshot.tables().flat_map(|table| table.blocks.iter());
    let mut expected: BTreeSet<String> = blocks.map(|block| format!("blocks/{}.block", block.id())).collect();
    expected.extend(["catalog", "lock"].map(str::to_owned));
    // The call of `verify` above checks the names of log files.
    let found: BTreeSet<String> = disk.files().into_keys().filter(|name| !name.starts_with("log/")).collect();
    assert_eq!(found, expected, "{context}: {:?}", disk.list("blocks"));
}

/// One of a fixed sequence of steps, and the contents of the database after it.
pub struct FixedStep {
    pub name: &'static str,
    pub run: fn(&Store) -> Result<(), Failure>,
    pub after: Contents,
}

/// The fixed sequence of steps: a table is created, loaded, rewritten and dropped, and another one is loaded.
pub fn fixed_steps() -> Vec<FixedStep> {
    fn one() -> Vec<i64> {
        (0..2_500).collect()
    }
    fn two() -> Vec<i64> {
        (2_500..3_700).map(|value| value * 7).collect()
    }
    fn all() -> Vec<i64> {
        [one(), two()].concat()
    }
    let contents = |tables: &[(&str, Vec<i64>)]| -> Contents {
        tables.iter().map(|(name, rows)| ((*name).to_owned(), rows.clone())).collect()
    };
    let step = |name, run, after| FixedStep { name, run, after };
    vec![
        step("create", |store| create_table(store, "t"), contents(&[("t", vec![])])),
        step(
            "load",
            |store| append(store, "t", vec![write(store, &one(), "column")?, write(store, &two(), "column")?]),
            contents(&[("t", all())]),
        ),
        step(
            "rewrite",
            |store| replace_all(store, "t", vec![write(store, &all(), "packed_row")?], "packed_row"),
            contents(&[("t", all())]),
        ),
        step(
            "create and load",
            |store| {
                let block = write(store, &two(), "row")?;
                Ok(store.commit::<_, CommitError>(|edit| {
                    let table = edit.create_table("u", schema(), design("row"))?;
                    edit.append_blocks(table, vec![block])?;
                    edit.create_view(view("v", "select 1"), false)
                })?)
            },
            contents(&[("t", all()), ("u", two())]),
        ),
        step("drop", |store| drop_table(store, "t"), contents(&[("u", two())])),
    ]
}

/// Layout of each table and of its blocks, which shows whether the table was rewritten.
pub fn layouts(store: &Store) -> Vec<(String, String, Vec<String>)> {
    let snapshot = store.snapshot();
    let layouts = |table: &Arc<Table>| {
        let blocks = table.blocks.iter().map(|block| block.entry().layout.to_string()).collect();
        (table.name.clone(), table.design.layout.name().to_owned(), blocks)
    };
    snapshot.tables().map(layouts).collect()
}

/// Runs one step, which the catalog version determines. So [`check`] can compute the contents after these steps.
pub fn versioned_step(store: &Store) -> Result<(), Failure> {
    let version = store.snapshot().version() as i64;
    let rows: Vec<i64> = (version * 10..version * 10 + 3).collect();
    match version {
        0 => create_table(store, "t"),
        version if version % 3 == 0 => change_rows(store, "t", &rows, &[]),
        _ => replace(store, &rows),
    }
}

/// Replaces all rows of table `t` by a new block.
pub fn replace(store: &Store, rows: &[i64]) -> Result<(), Failure> {
    let table = store.snapshot().table("t").ok_or("no such table")?.id;
    let block = write(store, rows, "column")?;
    Ok(store.commit::<_, CommitError>(|edit| {
        edit.truncate(table)?;
        edit.append_blocks(table, vec![block])
    })?)
}

/// Asserts that a store has the contents of its version after [`versioned_step`]s. Returns the version.
pub fn check(store: &Store, context: &str) -> u64 {
    if store.is_read_only() {
        // Verification reads the files again. Cached data and open files would hide a missing file.
        let damages = verify(store);
        assert!(damages.is_empty(), "{context}: {damages:?}");
    }
    check_snapshot(&store.snapshot(), context)
}

/// Same as [`check`], for a snapshot.
pub fn check_snapshot(snapshot: &Catalog, context: &str) -> u64 {
    let version = snapshot.version();
    let found = snapshot.table("t").map(|table| rows_of(table).unwrap_or_else(|e| panic!("{context}: {e}")));
    let expected = (version > 0).then(|| {
        let mut rows = Vec::new();
        for before in 0..version as i64 {
            let new = before * 10..before * 10 + 3;
            match before {
                0 => {}
                before if before % 3 == 0 => rows.extend(new),
                _ => rows = new.collect(),
            }
        }
        rows
    });
    assert_eq!(found, expected, "{context}: version {version}");
    version
}

/// Names of the files in a directory.
pub fn files_of(disk: &SimulatedDisk, directory: &str) -> Vec<String> {
    disk.files().into_keys().filter(|name| name.starts_with(directory)).collect()
}

/// Opens the database on a simulated disk for reading.
pub fn read(disk: &SimulatedDisk) -> Result<Store, OpenError> {
    read_on(disk.clone())
}

/// Opens the database on a disk for reading.
pub fn read_on(disk: impl Disk + 'static) -> Result<Store, OpenError> {
    Store::open_on(Arc::new(disk), READ_ONLY)
}
