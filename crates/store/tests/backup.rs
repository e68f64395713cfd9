//! A backup contains the state of one commit and shares blocks with other backups.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use common::backups::{LAST, WITH_LOG, WITHOUT_LOG, back_up, never_cancel, restore, restored, rewrite};
use common::{
    Contents, append, assert_tidy, change_rows, contents, create_table, design, open, replace_all, schema, view, write,
};
use taut_store::backup::{BackupError, BackupLog, BackupOptions, BackupReport, Backups, RestoreOptions};
use taut_store::disk::{Disk, FileDisk, SimulatedDisk};
use taut_store::{CommitError, OpenOptions, Store, verify};
use taut_testkit::Random;

#[test]
fn a_database_in_every_layout_is_restored_with_its_delta_rows() {
    for layout in ["column", "row", "packed_row"] {
        let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
        let store = open(&disk).unwrap();
        store.commit::<_, CommitError>(|edit| edit.create_table("t", schema(), design(layout)).map(drop)).unwrap();
        create_table(&store, "empty").unwrap();
        store.commit::<_, CommitError>(|edit| edit.create_view(view("v", "select 1"), false)).unwrap();
        let rows: Vec<i64> = (0..70_000).collect();
        append(&store, "t", vec![write(&store, &rows, layout).unwrap(), write(&store, &[7, 8], layout).unwrap()])
            .unwrap();
        change_rows(&store, "t", &[100_001, 100_002], &[3, 69_999, 8]).unwrap();
        change_rows(&store, "t", &[100_003], &[100_001]).unwrap();
        let report = back_up(&store, &backups, WITHOUT_LOG).unwrap();
        assert_eq!((report.number, report.commit, report.log), (1, 6, BackupLog::None));
        assert_eq!((report.copied_blocks, report.shared_blocks), (2, 0));
        let (restored_disk, restored_report) = restore(&backups, LAST).unwrap();
        assert_eq!((restored_report.backup, restored_report.commit, restored_report.time), (1, 6, report.time));
        let again = open(&restored_disk).unwrap();
        assert_tidy(&again, &restored_disk, layout);
        assert_eq!(contents(&again).unwrap(), contents(&store).unwrap(), "{layout}");
        assert_eq!(again.snapshot().view("v").unwrap().sql, "select 1");
        assert_eq!(again.snapshot().table("t").unwrap().design.layout.name(), layout);
        assert_ne!(again.snapshot().database_id(), store.snapshot().database_id());
        // Both databases continue independently.
        change_rows(&again, "t", &[-1], &[7]).unwrap();
        create_table(&again, "new").unwrap();
        append(&again, "new", vec![write(&again, &[1], layout).unwrap()]).unwrap();
        drop(again);
        let again = open(&restored_disk).unwrap();
        assert_tidy(&again, &restored_disk, layout);
        assert_eq!(contents(&again).unwrap()["new"], [1]);
        assert!(contents(&store).unwrap()["t"].contains(&7));
    }
}

#[test]
fn empty_and_in_memory_databases_are_backed_up_to_files() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::in_memory().unwrap();
    let (backups, first, second) =
        (directory.path().join("backups"), directory.path().join("first"), directory.path().join("second"));
    store.backup(&backups, WITHOUT_LOG, &mut never_cancel).unwrap();
    create_table(&store, "t").unwrap();
    append(&store, "t", vec![write(&store, &[1, 2], "row").unwrap()]).unwrap();
    change_rows(&store, "t", &[3], &[1]).unwrap();
    store.backup(&backups, WITHOUT_LOG, &mut never_cancel).unwrap();
    let from = Backups::open(&backups).unwrap();
    from.restore(&first, RestoreOptions { backup: Some(1), time: None }, &mut never_cancel).unwrap();
    from.restore(&second, LAST, &mut never_cancel).unwrap();
    let open = |path: &Path| Store::open(path, OpenOptions::default()).unwrap();
    assert_eq!(contents(&open(&first)).unwrap(), Contents::new());
    assert_eq!(contents(&open(&second)).unwrap()["t"], [2, 3]);
    assert!(verify(&open(&second)).is_empty());
}

fn bytes_below(path: &Path) -> u64 {
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| if entry.path().is_dir() { bytes_below(&entry.path()) } else { entry.metadata().unwrap().len() })
        .sum()
}

#[test]
fn a_later_backup_copies_only_the_blocks_that_are_new() {
    let directory = tempfile::tempdir().unwrap();
    let (database, backups) = (directory.path().join("database"), directory.path().join("backups"));
    let store = Store::open(&database, OpenOptions { create: true, ..OpenOptions::default() }).unwrap();
    create_table(&store, "t").unwrap();
    let mut random = Random(1);
    let rows: Vec<i64> = (0..60_000).map(|_| random.range(0..1_000_003)).collect();
    append(&store, "t", vec![write(&store, &rows, "column").unwrap()]).unwrap();
    let first = store.backup(&backups, WITHOUT_LOG, &mut never_cancel).unwrap();
    let before = bytes_below(&backups);
    assert!(first.written_bytes > 60_000, "{first:?}");
    // Without changes, only a catalog and a manifest are written.
    let second = store.backup(&backups, WITHOUT_LOG, &mut never_cancel).unwrap();
    assert_eq!((second.copied_blocks, second.shared_blocks), (0, 1));
    let grown = bytes_below(&backups) - before;
    assert!(second.written_bytes < 3_000 && grown < second.written_bytes + 3_000, "{second:?}, {grown}");
    // One small block was added.
    let block = write(&store, &[1, 2, 3], "column").unwrap();
    let block_bytes = block.entry().file_bytes;
    append(&store, "t", vec![block]).unwrap();
    let before = bytes_below(&backups);
    let third = store.backup(&backups, WITHOUT_LOG, &mut never_cancel).unwrap();
    assert_eq!((third.copied_blocks, third.shared_blocks), (1, 1));
    let grown = bytes_below(&backups) - before;
    assert!((block_bytes..block_bytes + 6_000).contains(&grown), "{grown} for a block of {block_bytes}");
    assert!((block_bytes..grown).contains(&third.written_bytes), "{third:?}, {grown}");
    // The first block is replaced. Its copy stays as long as a backup needs it.
    rewrite(&store, "t", &[&rows[..], &[1, 2, 3]].concat(), "row");
    let fourth = store.backup(&backups, WITHOUT_LOG, &mut never_cancel).unwrap();
    assert_eq!((fourth.copied_blocks, fourth.shared_blocks), (1, 0));
    let blocks = || fs::read_dir(backups.join("blocks")).unwrap().count();
    assert_eq!(blocks(), 3);
    let fifth = store.backup(&backups, BackupOptions { log: false, keep: Some(3) }, &mut never_cancel).unwrap();
    assert_eq!((fifth.removed, blocks()), (vec![1, 2], 3));
    let sixth = store.backup(&backups, BackupOptions { log: false, keep: Some(2) }, &mut never_cancel).unwrap();
    assert_eq!((sixth.removed, blocks()), (vec![3, 4], 1));
    let from = Backups::open(&backups).unwrap();
    assert_eq!(from.list().iter().map(|info| info.number).collect::<Vec<_>>(), [5, 6]);
    from.restore(directory.path().join("restored"), LAST, &mut never_cancel).unwrap();
    let error =
        from.restore(directory.path().join("other"), RestoreOptions { backup: Some(4), time: None }, &mut never_cancel);
    assert!(error.unwrap_err().to_string().ends_with("has no backup 4; it has 5, 6"));
}

#[test]
fn a_block_that_is_damaged_in_the_backup_is_copied_again() {
    let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let store = open(&disk).unwrap();
    create_table(&store, "t").unwrap();
    append(&store, "t", vec![write(&store, &[1, 2, 3], "column").unwrap()]).unwrap();
    back_up(&store, &backups, WITHOUT_LOG).unwrap();
    let (name, bytes) = backups.files().into_iter().find(|(name, _)| name.ends_with(".block")).unwrap();
    for damaged in [&bytes[..100], &[&[0][..], &bytes[1..]].concat()] {
        backups.put(&name, damaged);
        assert_eq!(back_up(&store, &backups, WITHOUT_LOG).unwrap().copied_blocks, 1);
        assert_eq!(backups.files()[&name], bytes);
    }
}

#[test]
fn a_damaged_block_of_the_database_is_named_and_not_backed_up() {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    create_table(&store, "t").unwrap();
    append(&store, "t", vec![write(&store, &(0..300).collect::<Vec<_>>(), "column").unwrap()]).unwrap();
    let (name, bytes) = disk.files().into_iter().find(|(name, _)| name.ends_with(".block")).unwrap();
    for at in [0, 40, bytes.len() / 2, bytes.len() - 64] {
        let (backups, mut flipped) = (SimulatedDisk::new(), bytes.clone());
        flipped[at] ^= 1;
        disk.put(&name, &flipped);
        match back_up(&store, &backups, WITHOUT_LOG) {
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("table \"t\" cannot be backed up") && text.contains(&name), "{text}");
                assert!(!backups.files().keys().any(|name| name.ends_with(".manifest")));
            }
            // A flipped padding byte is not detected.
            Ok(_) => assert_eq!(bytes[at], 0, "byte {at}"),
        }
    }
}

#[test]
fn a_backup_is_the_state_at_its_commit_while_others_write_and_take_checkpoints() {
    let directory = tempfile::tempdir().unwrap();
    let (database, backups) = (directory.path().join("database"), directory.path().join("backups"));
    let store = Store::open(&database, OpenOptions { create: true, ..OpenOptions::default() }).unwrap();
    for table in ["a", "b"] {
        create_table(&store, table).unwrap();
        append(&store, table, vec![write(&store, &(0..5_000).collect::<Vec<_>>(), "column").unwrap()]).unwrap();
    }
    // Contents of the database after each commit. Commits hold the lock, the backup does not.
    let states = Mutex::new(BTreeMap::from([(store.snapshot().version(), contents(&store).unwrap())]));
    let is_over = AtomicBool::new(false);
    let reports = std::thread::scope(|scope| {
        for (name, first) in [("a", 1_000_000), ("b", 2_000_000)] {
            let (store, states, is_over) = (&store, &states, &is_over);
            scope.spawn(move || {
                for number in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let mut states = states.lock().unwrap();
                    let before = states.last_key_value().unwrap().1.clone();
                    let deleted = before[name].get(number as usize % before[name].len()).copied().unwrap();
                    if number % 40 == 39 {
                        let rows = &before[name];
                        rewrite(store, name, rows, "packed_row");
                    } else {
                        change_rows(store, name, &[first + number], &[deleted]).unwrap();
                    }
                    states.insert(store.snapshot().version(), contents(store).unwrap());
                }
            });
        }
        let (store, is_over) = (&store, &is_over);
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                store.checkpoint().unwrap();
            }
        });
        let reports: Vec<BackupReport> = (0..12)
            .map(|number| {
                let mut slowly = |_| {
                    std::thread::sleep(std::time::Duration::from_millis(3));
                    ControlFlow::Continue(())
                };
                let options = BackupOptions { log: number % 3 != 0, keep: None };
                store.backup(&backups, options, &mut slowly).unwrap()
            })
            .collect();
        is_over.store(true, Ordering::Relaxed);
        reports
    });
    let states = states.into_inner().unwrap();
    assert!(states.len() > 20, "only {} commits", states.len());
    assert!(reports.first().unwrap().commit < reports.last().unwrap().commit);
    let from = Backups::open(&backups).unwrap();
    for report in &reports {
        let path = directory.path().join(report.number.to_string());
        let restored =
            from.restore(&path, RestoreOptions { backup: Some(report.number), time: None }, &mut never_cancel).unwrap();
        assert_eq!(restored.commit, report.commit);
        let store = Store::open(&path, OpenOptions::default()).unwrap();
        assert!(verify(&store).is_empty());
        let found = contents(&store).unwrap();
        assert!(found == states[&report.commit], "backup {} holds other rows", report.number);
    }
    drop(store);
    let again = Store::open(&database, OpenOptions::default()).unwrap();
    assert!(contents(&again).unwrap() == *states.last_key_value().unwrap().1);
}

#[test]
fn a_damaged_manifest_hides_no_other_backup_and_keeps_its_files() {
    let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let store = open(&disk).unwrap();
    create_table(&store, "t").unwrap();
    append(&store, "t", vec![write(&store, &[1], "column").unwrap()]).unwrap();
    back_up(&store, &backups, WITHOUT_LOG).unwrap();
    replace_all(&store, "t", vec![write(&store, &[2], "row").unwrap()], "row").unwrap();
    back_up(&store, &backups, WITHOUT_LOG).unwrap();
    let name = "backups/00000002.manifest";
    let whole = backups.files()[name].clone();
    backups.put(name, &[&whole[..30], b"x", &whole[31..]].concat());
    let from = Backups::open_on(Arc::new(backups.clone())).unwrap();
    assert_eq!((from.list().len(), from.damaged().len()), (1, 1));
    drop(from);
    // The last state was requested, so no other is restored instead.
    assert!(restored(&backups, LAST).unwrap_err().to_string().contains(name));
    assert_eq!(restored(&backups, RestoreOptions { backup: Some(1), time: None }).unwrap().0["t"], [1]);
    let error = back_up(&store, &backups, BackupOptions { log: false, keep: Some(1) }).unwrap_err();
    assert!(error.to_string().contains("old backups are not removed"), "{error}");
    assert_eq!(restored(&backups, LAST).unwrap().0["t"], [2]);
    backups.put(name, &whole);
    assert_eq!(restored(&backups, RestoreOptions { backup: Some(2), time: None }).unwrap().0["t"], [2]);
    let text = String::from_utf8(whole).unwrap().replacen("taut-backup 1 ", "taut-backup 9 ", 1);
    backups.put(name, text.as_bytes());
    let error = restored(&backups, RestoreOptions { backup: Some(2), time: None }).unwrap_err().to_string();
    assert!(error.contains("expected format version 1, found 9"), "{error}");
}

#[test]
fn nothing_is_overwritten_and_directories_do_not_overlap() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let store = Store::open(path("database"), OpenOptions { create: true, ..OpenOptions::default() }).unwrap();
    create_table(&store, "t").unwrap();
    let refused = |name: &str| store.backup(path(name), WITHOUT_LOG, &mut never_cancel).unwrap_err().to_string();
    fs::create_dir(path("database/other")).unwrap();
    for name in ["database", "database/backups", "database/a/b", "database/../database/x", "."] {
        assert!(refused(name).contains("must not lie within each other"), "{name}: {}", refused(name));
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(path("database"), path("link")).unwrap();
        assert!(refused("link/backups").contains("must not lie within each other"));
    }
    fs::create_dir(path("full")).unwrap();
    fs::write(path("full/thesis.txt"), "text").unwrap();
    assert!(refused("full").contains("is not a backup directory: it contains \"thesis.txt\""));
    fs::write(path("file"), "text").unwrap();
    assert!(refused("file").contains("is a file"));
    store.backup(path("backups"), WITHOUT_LOG, &mut never_cancel).unwrap();
    let error =
        store.backup(path("backups"), BackupOptions { log: false, keep: Some(0) }, &mut never_cancel).unwrap_err();
    assert_eq!(error.to_string(), "at least one backup must be kept");

    let from = Backups::open(path("backups")).unwrap();
    let in_use = store.backup(path("backups"), WITHOUT_LOG, &mut never_cancel).unwrap_err().to_string();
    assert!(in_use.contains("is in use by process"), "{in_use}");
    for name in ["database", "full", "file", "backups", "backups/new"] {
        let error = from.restore(path(name), LAST, &mut never_cancel).unwrap_err().to_string();
        let expected =
            if name.starts_with("backups") { "must not lie within" } else { "already exists and is not empty" };
        assert!(error.contains(expected), "{name}: {error}");
    }
    assert_eq!(fs::read_to_string(path("full/thesis.txt")).unwrap(), "text");
    fs::create_dir(path("empty")).unwrap();
    from.restore(path("empty"), LAST, &mut never_cancel).unwrap();
    assert!(from.restore(path("empty"), LAST, &mut never_cancel).is_err());
    drop(from);
    let other = Store::open(path("empty"), OpenOptions::default()).unwrap();
    let error = other.backup(path("backups"), WITHOUT_LOG, &mut never_cancel).unwrap_err().to_string();
    assert!(error.contains("contains backups of another database"), "{error}");
    for name in ["nothing", "full", "file"] {
        assert!(Backups::open(path(name)).is_err());
    }
    let missing = Backups::open(path("nothing")).unwrap_err().to_string();
    assert!(missing.starts_with("there is no backup directory at"), "{missing}");
    let disk = FileDisk::new(path("none"));
    disk.create_directory("").unwrap();
    let none =
        Backups::open(path("none")).unwrap().restore(path("new"), LAST, &mut never_cancel).unwrap_err().to_string();
    assert!(none.contains("has no complete backup") && !path("new").exists(), "{none}");
}

#[test]
fn a_cancelled_backup_or_restore_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let store = Store::open(path("database"), OpenOptions { create: true, ..OpenOptions::default() }).unwrap();
    create_table(&store, "t").unwrap();
    append(&store, "t", vec![write(&store, &[1, 2], "row").unwrap(), write(&store, &[3], "row").unwrap()]).unwrap();
    for log in [false, true] {
        let options = BackupOptions { log, keep: None };
        let cancelled = store.backup(path("backups"), options, &mut |_| ControlFlow::Break(()));
        assert!(matches!(cancelled, Err(BackupError::Cancelled)), "{cancelled:?}");
        assert!(!store.retains_log());
        assert_eq!(fs::read_dir(path("backups/blocks")).unwrap().count(), 0);
        assert_eq!(fs::read_dir(path("backups/backups")).unwrap().count(), 0);
    }
    store.backup(path("backups"), WITH_LOG, &mut never_cancel).unwrap();
    let from = Backups::open(path("backups")).unwrap();
    let cancelled = from.restore(path("new"), LAST, &mut |_| ControlFlow::Break(()));
    assert!(matches!(cancelled, Err(BackupError::Cancelled)), "{cancelled:?}");
    assert!(!path("new").exists(), "an incomplete directory would be opened as an empty database");
    fs::create_dir(path("empty")).unwrap();
    from.restore(path("empty"), LAST, &mut |_| ControlFlow::Break(())).unwrap_err();
    assert_eq!(fs::read_dir(path("empty")).unwrap().count(), 0);
    let no_backup = RestoreOptions { backup: Some(9), ..LAST };
    from.restore(path("database"), no_backup, &mut never_cancel).unwrap_err();
    assert!(path("database/lock").exists() && path("database/catalog").exists());
    from.restore(path("new"), LAST, &mut never_cancel).unwrap();
    assert_eq!(contents(&Store::open(path("new"), OpenOptions::default()).unwrap()).unwrap()["t"], [1, 2, 3]);
}
