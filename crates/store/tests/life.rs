//! Snapshots, blocks and the cache while a database is open and after it is opened again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{
    append, assert_tidy, contents, create_table, design, drop_table, open, replace_all, rows_of, schema, values_of,
    view, write,
};
use taut_block::Sections;
use taut_store::disk::SimulatedDisk;
use taut_store::{BlockId, CommitError, NewBlock, OpenOptions, ReadCounters, RowOrder, Store, TableId};

fn files(disk: &SimulatedDisk) -> usize {
    disk.files().keys().filter(|name| name.starts_with("blocks/")).count()
}

#[test]
fn blocks_that_are_never_committed_leave_no_file() {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    create_table(&store, "t").unwrap();
    let block = write(&store, &[1, 2], "column").unwrap();
    assert_eq!(files(&disk), 1);
    drop(block);
    assert_eq!(files(&disk), 0);
    let block = write(&store, &[1, 2], "column").unwrap();
    let refused = store.commit::<(), _>(|edit| {
        edit.append_blocks(TableId(1), vec![block])?;
        Err(CommitError::NoView { name: "v".to_owned() })
    });
    assert!(refused.is_err());
    assert_tidy(&store, &disk, "a commit whose closure returned an error");
    assert!(contents(&store).unwrap()["t"].is_empty());
}

#[test]
fn a_snapshot_keeps_what_is_replaced_or_dropped() {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    create_table(&store, "t").unwrap();
    append(&store, "t", vec![write(&store, &[1, 2], "column").unwrap()]).unwrap();
    let (first, again) = (store.snapshot(), store.snapshot());
    replace_all(&store, "t", vec![write(&store, &[1, 2], "row").unwrap()], "row").unwrap();
    let second = store.snapshot();
    drop_table(&store, "t").unwrap();
    assert_eq!(files(&disk), 2);
    assert_eq!(rows_of(first.table("t").unwrap()).unwrap(), [1, 2]);
    assert_eq!(rows_of(second.table("t").unwrap()).unwrap(), [1, 2]);
    drop(first);
    assert_eq!(files(&disk), 2, "another snapshot still references the block");
    drop(again);
    assert_eq!(files(&disk), 1);
    drop(second);
    assert_tidy(&store, &disk, "after the last snapshot");
}

#[test]
fn a_table_created_loaded_and_dropped_by_one_commit_leaves_nothing() {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    let block = write(&store, &[1], "row").unwrap();
    let change = |edit: &mut taut_store::CatalogEdit| -> Result<(), CommitError> {
        let table = edit.create_table("t", schema(), design("row"))?;
        edit.append_blocks(table, vec![block])?;
        edit.drop_table(table)
    };
    store.commit(change).unwrap();
    assert_tidy(&store, &disk, "afterwards");
}

#[test]
fn a_block_that_is_read_once_is_not_cached() {
    let store = open(&SimulatedDisk::new()).unwrap();
    create_table(&store, "t").unwrap();
    append(&store, "t", vec![write(&store, &[1, 2], "column").unwrap()]).unwrap();
    let file = Arc::clone(&store.snapshot().table("t").unwrap().blocks[0]);
    let held = || (store.cache_statistics().sections, store.cache_statistics().bytes);
    let counters = ReadCounters::new();
    let once = file.open_once(&counters).unwrap();
    let header = counters.disk_bytes();
    let section = once.section(0).unwrap();
    assert_eq!((held(), counters.disk_bytes()), ((0, 0), header + section.len() as u64));
    // Cached sections are not read again.
    assert_eq!(file.open(&counters).unwrap().section(0).unwrap(), section);
    let (held_then, read) = (held(), counters.disk_bytes());
    assert_eq!(held_then.0, 1);
    assert_eq!(once.section(0).unwrap(), section);
    assert_eq!((held(), counters.disk_bytes()), (held_then, read));
}

#[test]
fn writers_never_change_what_a_reader_sees() {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    create_table(&store, "t").unwrap();
    let rows: Vec<i64> = (0..900).collect();
    append(&store, "t", vec![write(&store, &rows, "column").unwrap()]).unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    let snapshot = store.snapshot();
                    assert_eq!(rows_of(snapshot.table("t").unwrap()).unwrap(), rows);
                    if let Some(other) = snapshot.table("u") {
                        let rows = rows_of(other).unwrap();
                        assert!(rows.is_empty() || rows == [7; 300], "{rows:?}");
                    }
                }
            });
        }
        for round in 0..150 {
            let layout = ["row", "packed_row", "column"][round % 3];
            let parts = rows.chunks(300 + 100 * (round % 4)).map(|part| write(&store, part, layout).unwrap());
            replace_all(&store, "t", parts.collect(), layout).unwrap();
            create_table(&store, "u").unwrap();
            append(&store, "u", vec![write(&store, &[7; 300], layout).unwrap()]).unwrap();
            drop_table(&store, "u").unwrap();
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert_tidy(&store, &disk, "at the end");
}

#[test]
fn blocks_are_written_by_many_threads_and_committed_by_one() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(root.path(), OpenOptions { create: true, ..OpenOptions::default() }).unwrap();
    create_table(&store, "t").unwrap();
    let parts: Vec<Vec<i64>> = (0..16).map(|part| (part * 100..part * 100 + 100).collect()).collect();
    let blocks: Vec<NewBlock> = std::thread::scope(|scope| {
        let threads: Vec<_> = parts
            .chunks(4)
            .map(|parts| {
                let store = &store;
                scope.spawn(move || parts.iter().map(|part| write(store, part, "column").unwrap()).collect::<Vec<_>>())
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    append(&store, "t", blocks).unwrap();
    assert_eq!(contents(&store).unwrap()["t"], (0..1_600).collect::<Vec<i64>>());
    let snapshot = store.snapshot();
    let table = snapshot.table("t").unwrap();
    let ids: BTreeSet<BlockId> = table.blocks.iter().map(|block| block.id()).collect();
    assert_eq!((ids.len(), table.rows(), table.runs.as_slice()), (16, 1_600, &[0][..]));
    assert_eq!(table.statistics[0].rows, 1_600);
}

/// Sort runs of table `t`, each as the first values of its blocks.
fn runs(store: &Store) -> Vec<Vec<i64>> {
    let snapshot = store.snapshot();
    let first = |block: &Arc<taut_store::BlockFile>| {
        let open = block.open(&ReadCounters::new()).unwrap();
        values_of(&open).unwrap()[0]
    };
    snapshot.table("t").unwrap().runs().map(|run| run.iter().map(first).collect()).collect()
}

#[test]
fn runs_follow_loads_and_replacements() {
    let store = Store::in_memory().unwrap();
    create_table(&store, "t").unwrap();
    let blocks = |values: &[i64]| -> Vec<NewBlock> {
        values.iter().map(|value| write(&store, &[*value], "column").unwrap()).collect()
    };
    append(&store, "t", blocks(&[1, 2, 3, 4])).unwrap();
    append(&store, "t", vec![]).unwrap();
    append(&store, "t", blocks(&[11, 12])).unwrap();
    assert_eq!(runs(&store), [vec![1, 2, 3, 4], vec![11, 12]]);
    let id_at = |at: usize| store.snapshot().table("t").unwrap().blocks[at].id();
    let replace = |old: &[BlockId], new, order| {
        store.commit::<_, CommitError>(|edit| edit.replace_blocks(TableId(1), old, new, order))
    };
    replace(&[id_at(1)], blocks(&[22]), RowOrder::SameOrder).unwrap();
    assert_eq!(runs(&store), [vec![1, 22, 3, 4], vec![11, 12]]);
    replace(&[id_at(2)], blocks(&[33]), RowOrder::Sorted).unwrap();
    assert_eq!(runs(&store), [vec![1, 22], vec![33], vec![4], vec![11, 12]]);
    for old in [vec![id_at(3), id_at(4)], vec![id_at(0), id_at(2)]] {
        let error = replace(&old, blocks(&[5, 6]), RowOrder::SameOrder).unwrap_err();
        assert!(matches!(error, CommitError::NotOneRun { .. }), "{error}");
    }
    replace(&[id_at(3), id_at(4), id_at(5)], blocks(&[7, 8, 9]), RowOrder::Sorted).unwrap();
    assert_eq!(runs(&store), [vec![1, 22], vec![33], vec![7, 8, 9]]);
    let all: Vec<BlockId> = (0..6).map(id_at).collect();
    replace(&all, blocks(&[1, 2, 3, 4, 5, 6]), RowOrder::Sorted).unwrap();
    assert_eq!(runs(&store), [vec![1, 2, 3, 4, 5, 6]]);
}

#[test]
fn a_commit_detects_concurrent_changes() {
    let store = Store::in_memory().unwrap();
    create_table(&store, "t").unwrap();
    append(&store, "t", vec![write(&store, &[1, 2], "column").unwrap()]).unwrap();
    let snapshot = store.snapshot();
    let table = snapshot.table("t").unwrap();
    let old = [table.blocks[0].id()];
    replace_all(&store, "t", vec![write(&store, &[1, 2], "row").unwrap()], "row").unwrap();
    let block = |values: &[i64]| vec![write(&store, values, "column").unwrap()];
    let commit = |change: &mut dyn FnMut(&mut taut_store::CatalogEdit) -> Result<(), CommitError>| {
        let version = store.snapshot().version();
        let error = store.commit::<(), CommitError>(change).unwrap_err();
        assert_eq!(store.snapshot().version(), version, "{error}");
        error
    };
    let mut new = block(&[1, 2]);
    let error = commit(&mut |edit| edit.replace_blocks(table.id, &old, std::mem::take(&mut new), RowOrder::SameOrder));
    assert!(matches!(error, CommitError::NoBlock { block, .. } if block == old[0]), "{error}");
    let current = [store.snapshot().table("t").unwrap().blocks[0].id()];
    let mut new = block(&[1]);
    let error =
        commit(&mut |edit| edit.replace_blocks(table.id, &current, std::mem::take(&mut new), RowOrder::SameOrder));
    assert!(matches!(error, CommitError::RowsDiffer { expected: 2, found: 1, .. }), "{error}");
    assert!(matches!(commit(&mut |edit| edit.create_view(view("t", ""), false)), CommitError::NameTaken { .. }));
    assert!(matches!(commit(&mut |edit| edit.drop_view("v")), CommitError::NoView { .. }));
    let other = Store::in_memory().unwrap();
    let mut new = vec![write(&other, &[1], "column").unwrap()];
    let error = commit(&mut |edit| edit.append_blocks(table.id, std::mem::take(&mut new)));
    assert!(matches!(error, CommitError::ForeignBlock { .. }), "{error}");
    drop_table(&store, "t").unwrap();
    create_table(&store, "t").unwrap();
    let mut new = block(&[3]);
    let error = commit(&mut |edit| edit.append_blocks(table.id, std::mem::take(&mut new)));
    assert!(matches!(error, CommitError::NoTable { table: id } if id == table.id), "{error}");
    assert!(matches!(commit(&mut |edit| edit.set_design(table.id, design("row"))), CommitError::NoTable { .. }));
    assert!(matches!(commit(&mut |edit| edit.drop_table(table.id)), CommitError::NoTable { .. }));
}

#[test]
fn tables_are_renamed_and_views_kept() {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    let id = store.commit::<_, CommitError>(|edit| edit.create_table("a", schema(), design("row"))).unwrap();
    store.commit::<_, CommitError>(|edit| edit.create_view(view("v", "select 'x'"), false)).unwrap();
    store.commit::<_, CommitError>(|edit| edit.rename_table(id, "b")).unwrap();
    drop(store);
    let snapshot = open(&disk).unwrap().snapshot();
    assert!(snapshot.table("a").is_none());
    assert_eq!(snapshot.table("b").unwrap().id, id);
    assert_eq!(snapshot.table_of(id).unwrap().name, "b");
    assert_eq!(snapshot.view("v").unwrap().sql, "select 'x'");
}

#[test]
fn the_cache_serves_what_was_read_and_stays_within_its_limit() {
    let disk = SimulatedDisk::new();
    let limit = 20_000;
    let options = OpenOptions { create: true, cache_bytes: Some(limit), ..OpenOptions::default() };
    let store = Store::open_on(Arc::new(disk.clone()), options).unwrap();
    create_table(&store, "t").unwrap();
    let rows: Vec<i64> = (0..20_000).map(|row| row * 1_000_003 % 777_777).collect();
    append(&store, "t", rows.chunks(1_000).map(|part| write(&store, part, "column").unwrap()).collect()).unwrap();
    let snapshot = store.snapshot();
    let table = snapshot.table("t").unwrap();
    let total = table.file_bytes();
    assert!(total > 3 * limit as u64, "{total}");
    for _ in 0..3 {
        assert_eq!(rows_of(table).unwrap(), rows);
        let now = store.cache_statistics();
        assert!(now.bytes <= limit && now.sections > 0, "{now:?}");
    }
    // A block that fits is read from the disk once, and from the cache afterwards.
    let read = || {
        let counters = ReadCounters::new();
        let open = table.blocks[0].open(&counters).unwrap();
        assert_eq!(values_of(&open).unwrap(), rows[..1_000]);
        (counters.disk_bytes(), counters.cache_bytes())
    };
    read();
    let reads = disk.reads();
    let (from_disk, from_cache) = read();
    assert_eq!((from_disk, disk.reads()), (0, reads));
    assert!(from_cache > 0 && from_cache < table.blocks[0].entry().file_bytes);
    let open = table.blocks[0].open(&ReadCounters::new()).unwrap();
    assert!(open.section(u32::MAX).is_err());
    let buffer = open.section(0).unwrap();
    assert_eq!(buffer.as_ptr() as usize % 64, 0, "sections are aligned in memory");
    // A dropped table leaves no sections in the cache.
    drop((open, snapshot));
    drop_table(&store, "t").unwrap();
    assert_eq!(store.cache_statistics().bytes, 0);
}
