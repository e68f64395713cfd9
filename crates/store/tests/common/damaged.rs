//! Fixtures for tests of repairs: databases in each state in which a process can leave them, and functions that damage
//! them.

use taut_store::disk::SimulatedDisk;
use taut_store::{CommitError, RepairReport, Store};
use taut_types::{Column, Datum, LogicalType};

use super::{Contents, append, change_rows, contents, create_table, open, view, write};

/// All losses of a report, one per line.
pub fn texts(report: &RepairReport) -> String {
    let table_losses = report.tables.iter().flat_map(|table| table.losses.iter().map(ToString::to_string));
    report.losses.iter().map(ToString::to_string).chain(table_losses).collect::<Vec<_>>().join("\n")
}

/// A database with a view and two tables, which have rows in blocks of two layouts and in the delta, and deleted rows.
/// The second table has added columns that its blocks do not store. Also returns the contents of the database by
/// version.
pub fn sample() -> (SimulatedDisk, Store, Vec<Contents>) {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    let mut states = vec![Contents::new()];
    let mut record = |store: &Store| states.push(contents(store).unwrap());
    for name in ["t", "u"] {
        create_table(&store, name).unwrap();
        record(&store);
        let blocks = vec![write(&store, &[1, 2, 3], "column").unwrap(), write(&store, &[4, 5], "packed_row").unwrap()];
        append(&store, name, blocks).unwrap();
        record(&store);
        change_rows(&store, name, &[6, 7], &[2]).unwrap();
        record(&store);
    }
    for value in [None, Some(Datum::Number(7))] {
        let table = store.snapshot().table("u").unwrap().id;
        let name = if value.is_some() { "c7" } else { "n0" };
        let column = Column::new(name, LogicalType::BigInt, true);
        store.commit::<_, CommitError>(|edit| edit.add_column(table, column, value)).unwrap();
        record(&store);
    }
    store.commit::<_, CommitError>(|edit| edit.create_view(view("v", "select 1"), false)).unwrap();
    record(&store);
    change_rows(&store, "t", &[8], &[4, 7]).unwrap();
    record(&store);
    change_rows(&store, "u", &[9], &[]).unwrap();
    record(&store);
    (disk, store, states)
}

/// Names of the files that begin with `folder` and end with `end`.
pub fn names(disk: &SimulatedDisk, folder: &str, end: &str) -> Vec<String> {
    disk.files().into_keys().filter(|name| name.starts_with(folder) && name.ends_with(end)).collect()
}

/// Applies `change` to the bytes of a file.
pub fn damage(disk: &SimulatedDisk, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = disk.files().remove(name).unwrap();
    change(&mut bytes);
    disk.put(name, &bytes);
}

/// The sample after a kill, after closing, after a kill that followed a checkpoint, and after two kills.
pub fn samples_in_every_end_state() -> Vec<(&'static str, SimulatedDisk, Vec<Contents>)> {
    let mut samples = Vec::new();
    let (disk, store, states) = sample();
    samples.push(("killed", disk.after_kill(), states.clone()));
    drop(store);
    samples.push(("closed", disk, states));
    let (disk, store, mut states) = sample();
    store.checkpoint().unwrap();
    change_rows(&store, "t", &[10], &[3]).unwrap();
    states.push(contents(&store).unwrap());
    change_rows(&store, "u", &[11], &[6]).unwrap();
    states.push(contents(&store).unwrap());
    samples.push(("after a checkpoint", disk.after_kill(), states.clone()));
    let disk = disk.after_kill();
    let store = open(&disk).unwrap();
    change_rows(&store, "t", &[12], &[1]).unwrap();
    states.push(contents(&store).unwrap());
    samples.push(("killed twice", disk.after_kill(), states));
    samples
}
