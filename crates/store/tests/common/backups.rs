//! Shared by the tests of backups: backups to simulated disks, and databases restored from them.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use taut_store::backup::{
    BackupError, BackupInfo, BackupOptions, BackupProgress, BackupReport, Backups, RestoreOptions, RestoreReport,
};
use taut_store::disk::SimulatedDisk;
use taut_store::{CommitError, RowOrder, Store};

use super::{Contents, all_old_rows, assert_tidy, contents, open, write};

pub const WITHOUT_LOG: BackupOptions = BackupOptions { log: false, keep: None };
pub const WITH_LOG: BackupOptions = BackupOptions { log: true, keep: None };
pub const LAST: RestoreOptions = RestoreOptions { backup: None, time: None };

pub fn never_cancel(_: BackupProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

pub fn back_up(store: &Store, to: &SimulatedDisk, options: BackupOptions) -> Result<BackupReport, BackupError> {
    store.backup_to(Arc::new(to.clone()), options, &mut never_cancel)
}

pub fn list(backups: &SimulatedDisk) -> Vec<BackupInfo> {
    Backups::open_on(Arc::new(backups.clone())).unwrap().list()
}

pub fn restore(from: &SimulatedDisk, options: RestoreOptions) -> Result<(SimulatedDisk, RestoreReport), BackupError> {
    let disk = SimulatedDisk::new();
    let report =
        Backups::open_on(Arc::new(from.clone()))?.restore_to(Arc::new(disk.clone()), options, &mut never_cancel)?;
    Ok((disk, report))
}

/// Contents of a restored database, after checking its files.
pub fn restored(from: &SimulatedDisk, options: RestoreOptions) -> Result<(Contents, RestoreReport), BackupError> {
    let (disk, report) = restore(from, options)?;
    let store = open(&disk).unwrap();
    assert_tidy(&store, &disk, "restored");
    assert_eq!(store.snapshot().version(), report.commit);
    Ok((contents(&store).unwrap(), report))
}

/// Replaces all blocks and delta pages of a table by one block with the same rows.
pub fn rewrite(store: &Store, name: &str, rows: &[i64], layout: &str) {
    let (snapshot, block) = (store.snapshot(), write(store, rows, layout).unwrap());
    let table = snapshot.table(name).unwrap();
    let old = all_old_rows(table);
    store.commit::<_, CommitError>(|edit| edit.replace_rows(table.id, old, vec![block], RowOrder::Sorted)).unwrap();
}

/// Current time, in microseconds since 1970. It is later than every commit so far, and earlier than the next one.
pub fn now() -> i64 {
    let read = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64;
    let first = read();
    while read() == first {}
    first
}

pub fn at(time: i64) -> RestoreOptions {
    RestoreOptions { backup: None, time: Some(time) }
}
