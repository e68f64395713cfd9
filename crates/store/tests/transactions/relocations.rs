//! Row relocation while transactions delete and lock the rows. The relocation does not change what they see or lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Poll, Waker};

use taut_store::disk::{Fault, SimulatedDisk};
use taut_store::{CommitError, OldRows, RowOrder, RowRelocations, Store, Synchronous, TableId, TransactionError};
use taut_testkit::Random;

use crate::common::{
    Contents, Failure, Relocation, all_old_rows, append, assert_tidy, change_in, change_rows, contents, create_table,
    design, open, ready, write,
};
use crate::rows::{Deleting, delete, is_changed, poll, rows_with};

/// A table with rows 0 to 9 in two blocks, and rows 10 to 19 in a delta page. Rows 0 and 10 are deleted.
fn sample(disk: &SimulatedDisk) -> Result<(Store, TableId), Failure> {
    let store = open(disk)?;
    create_table(&store, "t")?;
    let blocks = vec![write(&store, &[0, 1, 2, 3, 4], "column")?, write(&store, &[5, 6, 7, 8, 9], "column")?];
    append(&store, "t", blocks)?;
    change_rows(&store, "t", &(10..20).collect::<Vec<_>>(), &[])?;
    change_rows(&store, "t", &[], &[0, 10])?;
    let table = store.snapshot().table("t").ok_or("no table")?.id;
    Ok((store, table))
}

fn read_relocation(store: &Store) -> Relocation {
    Relocation::read(store, store.snapshot().table("t").unwrap(), &mut Random(7)).unwrap()
}

fn relocate_all(store: &Store) {
    read_relocation(store).commit(store).unwrap();
}

/// Asserts that all rows except `deleted` exist, now and after reopening from the log or from the catalog.
fn assert_deleted(disk: &SimulatedDisk, store: &Store, deleted: &[i64]) {
    let expected: Vec<i64> = (0..20).filter(|value| !deleted.contains(value)).collect();
    let sorted = |store: &Store| {
        let mut values = contents(store).unwrap().remove("t").unwrap();
        values.sort_unstable();
        values
    };
    assert_eq!(sorted(store), expected);
    let lost = disk.after_power_loss(1);
    let reopened = open(&lost).unwrap();
    assert_eq!(sorted(&reopened), expected, "from the log");
    assert_tidy(&reopened, &lost, "from the log");
    store.checkpoint().unwrap();
    assert_eq!(sorted(&open(&disk.after_power_loss(1)).unwrap()), expected, "from the catalog");
}

#[test]
fn rows_deleted_since_they_were_read_stay_deleted() {
    let disk = SimulatedDisk::new();
    let (store, _) = sample(&disk).unwrap();
    let relocation = read_relocation(&store);
    change_rows(&store, "t", &[], &[1, 6, 11]).unwrap();
    change_rows(&store, "t", &[], &[2, 12]).unwrap();
    relocation.commit(&store).unwrap();
    assert_eq!(store.snapshot().table("t").unwrap().blocks.len(), 1);
    assert!(store.snapshot().table("t").unwrap().delta.has_no_pages());
    change_rows(&store, "t", &[], &[3, 13]).unwrap();
    assert_deleted(&disk, &store, &[0, 1, 2, 3, 6, 10, 11, 12, 13]);
}

#[test]
fn relocated_rows_of_all_segments_are_found() {
    let store = open(&SimulatedDisk::new()).unwrap();
    create_table(&store, "t").unwrap();
    let values: Vec<i64> = (0..140_000).collect();
    append(&store, "t", vec![write(&store, &values, "column").unwrap()]).unwrap();
    let table = store.snapshot().table("t").unwrap().id;
    let across = store.begin();
    let deleted: Vec<i64> = (0..140_000).step_by(20_011).collect();
    delete(&across, table, &deleted[..3]).unwrap();
    let relocation = read_relocation(&store);
    change_rows(&store, "t", &[], &deleted[3..5]).unwrap();
    relocation.commit(&store).unwrap();
    delete(&across, table, &deleted[5..]).unwrap();
    across.commit(Synchronous::Full).unwrap();
    let mut found = contents(&store).unwrap().remove("t").unwrap();
    found.sort_unstable();
    assert!(found.iter().eq(values.iter().filter(|value| *value % 20_011 != 0)), "{} rows", found.len());
}

#[test]
fn transactions_that_span_relocations_change_the_rows_they_saw() {
    for relocations in 1..4 {
        let disk = SimulatedDisk::new();
        let (store, table) = sample(&disk).unwrap();
        let [before, after, undone, back, late] = std::array::from_fn(|_| store.begin());
        delete(&before, table, &[1, 11]).unwrap();
        delete(&undone, table, &[2, 12]).unwrap();
        delete(&back, table, &[3]).unwrap();
        back.savepoint("s");
        delete(&back, table, &[4, 14]).unwrap();
        let first = read_relocation(&store);
        before.commit(Synchronous::Full).unwrap();
        first.commit(&store).unwrap();
        (1..relocations).for_each(|_| relocate_all(&store));
        delete(&after, table, &[5, 15]).unwrap();
        drop(undone);
        back.roll_back_to("s").unwrap();
        delete(&back, table, &[16]).unwrap();
        assert_eq!(after.snapshot().table_of(table).unwrap().rows(), 16, "the transaction still sees its snapshot");
        after.commit(Synchronous::Full).unwrap();
        back.commit(Synchronous::Full).unwrap();
        // The deletions of these rows were committed between the read and the commit of the first relocation, or after
        // all relocations.
        for values in [1, 11, 5, 15, 3] {
            assert!(
                is_changed(&delete(&late, table, &[values]).unwrap_err()),
                "{values} after {relocations} relocations"
            );
        }
        delete(&late, table, &[2]).unwrap();
        late.commit(Synchronous::Full).unwrap();
        assert_deleted(&disk, &store, &[0, 10, 1, 11, 5, 15, 3, 16, 2]);
    }
}

#[test]
fn a_transaction_that_refreshes_after_a_relocation_keeps_its_changes() {
    let disk = SimulatedDisk::new();
    let (store, table) = sample(&disk).unwrap();
    let one = store.begin();
    change_in(&one, "t", &[90, 91], &[1, 11]).unwrap();
    delete(&one, table, &[90]).unwrap();
    one.savepoint("s");
    for deleted in [2, 3] {
        let relocation = read_relocation(&store);
        change_rows(&store, "t", &[], &[deleted]).unwrap();
        relocation.commit(&store).unwrap();
        one.refresh().unwrap();
        assert!(rows_with(&one, table, &[1, 2, 11, 90, deleted]).is_empty());
        delete(&one, table, &[deleted + 10]).unwrap();
    }
    one.commit(Synchronous::Full).unwrap();
    let two = store.begin();
    delete(&two, table, &[91]).unwrap();
    relocate_all(&store);
    two.commit(Synchronous::Full).unwrap();
    assert_deleted(&disk, &store, &[0, 10, 1, 11, 2, 12, 3, 13]);
}

#[test]
fn rows_are_found_after_a_rollback_to_a_savepoint_from_before_a_relocation() {
    let disk = SimulatedDisk::new();
    let (store, table) = sample(&disk).unwrap();
    let one = store.begin();
    delete(&one, table, &[1]).unwrap();
    one.savepoint("s");
    relocate_all(&store);
    one.refresh().unwrap();
    delete(&one, table, &[2]).unwrap();
    relocate_all(&store);
    one.roll_back_to("s").unwrap();
    delete(&one, table, &[13]).unwrap();
    one.commit(Synchronous::Full).unwrap();
    assert_deleted(&disk, &store, &[0, 10, 1, 13]);
}

#[test]
fn locks_follow_relocated_rows() {
    // The first lock refers to the row by its old or its new row id.
    for (relocations, is_old_first, is_committed) in
        [(1, true, true), (1, true, false), (1, false, true), (1, false, false), (2, true, true), (2, false, false)]
    {
        let context = format!("{relocations} relocations, old first: {is_old_first}, committed: {is_committed}");
        let disk = SimulatedDisk::new();
        let (store, table) = sample(&disk).unwrap();
        let old = store.begin();
        if is_old_first {
            delete(&old, table, &[1, 11]).unwrap();
        }
        (0..relocations).for_each(|_| relocate_all(&store));
        let new = store.begin();
        let (first, second) = if is_old_first { (old, new) } else { (new, old) };
        if !is_old_first {
            delete(&first, table, &[1, 11]).unwrap();
        }
        delete(&second, table, &[2, 12]).unwrap();
        for value in [1, 11] {
            let rows = rows_with(&second, table, &[value]);
            let mut deleting: Deleting<'_> = Box::pin(second.delete_rows(table, &rows));
            assert!(poll(&mut deleting, Waker::noop()).is_pending(), "{context}: no lock of {value}");
        }
        let rows = rows_with(&second, table, &[1, 11]);
        let mut deleting: Deleting<'_> = Box::pin(second.delete_rows(table, &rows));
        assert!(poll(&mut deleting, Waker::noop()).is_pending(), "{context}");
        if is_committed {
            first.commit(Synchronous::Full).unwrap();
        } else {
            drop(first);
        }
        match poll(&mut deleting, Waker::noop()) {
            Poll::Ready(Ok(())) => assert!(!is_committed, "{context}"),
            Poll::Ready(Err(error)) => assert!(is_committed && is_changed(&error), "{context}: {error}"),
            Poll::Pending => panic!("{context}: still waits"),
        }
        drop(deleting);
        second.commit(Synchronous::Full).unwrap();
        assert_deleted(&disk, &store, &[0, 10, 1, 11, 2, 12]);
    }
}

#[test]
fn a_deadlock_is_found_with_old_and_new_row_ids() {
    let (store, table) = sample(&SimulatedDisk::new()).unwrap();
    let old = store.begin();
    delete(&old, table, &[1]).unwrap();
    relocate_all(&store);
    let new = store.begin();
    delete(&new, table, &[2]).unwrap();
    let rows = rows_with(&new, table, &[1]);
    let mut deleting: Deleting<'_> = Box::pin(new.delete_rows(table, &rows));
    assert!(poll(&mut deleting, Waker::noop()).is_pending());
    let result = ready(old.delete_rows(table, &rows_with(&old, table, &[2])));
    assert!(matches!(result, Err(TransactionError::Deadlock)), "{result:?}");
    drop(old);
    assert!(matches!(poll(&mut deleting, Waker::noop()), Poll::Ready(Ok(()))));
}

#[test]
fn rows_at_the_same_positions_are_found_without_relocations() {
    let disk = SimulatedDisk::new();
    let (store, table) = sample(&disk).unwrap();
    let [one, two] = [store.begin(), store.begin()];
    delete(&one, table, &[1, 6]).unwrap();
    let old: Vec<_> = store.snapshot().table_of(table).unwrap().blocks.iter().map(|block| block.id()).collect();
    let new = vec![write(&store, &[0, 1, 2, 3, 4], "row").unwrap(), write(&store, &[5, 6, 7, 8, 9], "row").unwrap()];
    store.commit::<_, CommitError>(|edit| edit.replace_blocks(table, &old, new, RowOrder::SamePositions)).unwrap();
    relocate_all(&store);
    delete(&two, table, &[2, 7]).unwrap();
    two.commit(Synchronous::Full).unwrap();
    one.commit(Synchronous::Full).unwrap();
    assert_deleted(&disk, &store, &[0, 10, 1, 6, 2, 7]);
}

#[test]
fn a_grown_page_and_wrong_relocations_are_refused() {
    let disk = SimulatedDisk::new();
    let (store, table) = sample(&disk).unwrap();
    let relocation = read_relocation(&store);
    change_rows(&store, "t", &[20], &[]).unwrap();
    assert!(matches!(relocation.commit(&store), Err(CommitError::RowsChanged { .. })));
    change_rows(&store, "t", &[], &[20]).unwrap();
    let relocate_by = |rows: &dyn Fn(&mut Vec<taut_store::RowId>)| {
        let Relocation { old, new, rows: mut given, .. } = read_relocation(&store);
        rows(&mut given);
        let mut relocations = RowRelocations::default();
        relocations.push(&new[0], given).unwrap();
        let old = OldRows { relocations: Some(Arc::new(relocations)), ..old };
        store.commit::<_, CommitError>(|edit| edit.replace_rows(table, old, new, RowOrder::Sorted))
    };
    let is_refused = |result| matches!(result, Err(CommitError::RowsDiffer { expected: 18, found: 17, .. }));
    assert!(is_refused(relocate_by(&|rows| rows.truncate(17))));
    assert!(is_refused(relocate_by(&|rows| rows[3] = rows[4])));
    // A deleted row instead of an existing one.
    let deleted_row = {
        let (container, rows) = store
            .snapshot()
            .table_of(table)
            .unwrap()
            .delta
            .all_deleted()
            .next()
            .map(|(container, rows)| (container, rows.clone()))
            .unwrap();
        let (segment, rows) = rows.segments().next().map(|(segment, rows)| (segment, rows.min().unwrap())).unwrap();
        taut_store::RowId::new(container, segment, rows as u16)
    };
    assert!(matches!(relocate_by(&|rows| rows[3] = deleted_row), Err(CommitError::RowsDiffer { .. })));
    let kept = all_old_rows(store.snapshot().table_of(table).unwrap());
    assert_eq!(kept.blocks.len(), 2, "nothing has changed");
    relocate_by(&|_| ()).unwrap();
    assert_deleted(&disk, &store, &[0, 10]);
}

#[test]
fn a_failed_relocation_hides_no_row() {
    let disk = SimulatedDisk::new();
    let (store, table) = sample(&disk).unwrap();
    let [one, two, three] = std::array::from_fn(|_| store.begin());
    delete(&one, table, &[1]).unwrap();
    let failing = read_relocation(&store);
    // Change 0 makes the name of the block durable. Change 1 is the first of the log.
    disk.set_fault(Some(Fault::FailAt(1)));
    assert!(matches!(failing.commit(&store), Err(CommitError::Log(_))));
    disk.set_fault(None);
    delete(&two, table, &[2]).unwrap();
    relocate_all(&store);
    delete(&three, table, &[3]).unwrap();
    for (holder, value) in [(&two, 1), (&three, 2), (&one, 3)] {
        let rows = rows_with(holder, table, &[value]);
        let mut deleting: Deleting<'_> = Box::pin(holder.delete_rows(table, &rows));
        assert!(poll(&mut deleting, Waker::noop()).is_pending(), "no lock of {value}");
    }
    [one, two, three].iter().for_each(|transaction| transaction.commit(Synchronous::Full).unwrap());
    assert_deleted(&disk, &store, &[0, 10, 1, 2, 3]);
}

#[test]
fn serializable_transactions_fail_if_rows_change_but_not_if_they_are_relocated() {
    /// Name of a change, whether a transaction that has read the table can commit after it, and the change.
    type Change<'a> = (&'a str, bool, Box<dyn Fn(&Store, Relocation) + 'a>);
    let changes: [Change<'_>; 7] = [
        ("nothing", true, Box::new(|_, _| ())),
        ("relocation", true, Box::new(|store, relocation| relocation.commit(store).unwrap())),
        (
            "design",
            true,
            Box::new(|store, relocation| {
                store.commit::<_, CommitError>(|edit| edit.set_design(relocation.table, design("row"))).unwrap();
            }),
        ),
        ("insert", false, Box::new(|store, _| change_rows(store, "t", &[50], &[]).unwrap())),
        ("delete", false, Box::new(|store, _| change_rows(store, "t", &[], &[1]).unwrap())),
        ("load", false, Box::new(|store, _| append(store, "t", vec![write(store, &[50], "row").unwrap()]).unwrap())),
        (
            "truncate",
            false,
            Box::new(|store, relocation| {
                store.commit::<_, CommitError>(|edit| edit.truncate(relocation.table)).unwrap();
            }),
        ),
    ];
    for (what, is_fine, change) in changes {
        let (store, table) = sample(&SimulatedDisk::new()).unwrap();
        create_table(&store, "u").unwrap();
        let relocation = read_relocation(&store);
        // The relocation includes this row, and deletes it in the new block too. For the reader this is not a change,
        // because it begins after the deletion.
        change_rows(&store, "t", &[], &[11]).unwrap();
        let reader = store.begin();
        reader.set_serializable(true);
        reader.record_table_read(table);
        change_in(&reader, "u", &[1], &[]).unwrap();
        change(&store, relocation);
        let result = reader.commit(Synchronous::Full);
        match is_fine {
            true => result.unwrap_or_else(|error| panic!("{what}: {error}")),
            false => assert!(matches!(result, Err(CommitError::Serialization { .. })), "{what}: {result:?}"),
        }
    }
}

/// Relocations with deletions in between. Calls `after_commit` after each commit.
fn history(disk: &SimulatedDisk, mut after_commit: impl FnMut(&Store)) -> Result<(), Failure> {
    let (store, table) = sample(disk)?;
    after_commit(&store);
    let across = store.begin();
    ready(across.delete_rows(table, &rows_with(&across, table, &[1, 11])))?;
    for deleted in [2, 3] {
        let relocation = Relocation::read(&store, store.snapshot().table("t").ok_or("no table")?, &mut Random(1))?;
        change_rows(&store, "t", &[100 + deleted], &[deleted, deleted + 10])?;
        after_commit(&store);
        match relocation.commit(&store) {
            // The page has grown.
            Err(CommitError::RowsChanged { .. }) if deleted == 2 => {}
            result => result?,
        }
        after_commit(&store);
        let relocation = Relocation::read(&store, store.snapshot().table("t").ok_or("no table")?, &mut Random(2))?;
        change_rows(&store, "t", &[], &[deleted + 3, deleted + 13])?;
        after_commit(&store);
        relocation.commit(&store)?;
        after_commit(&store);
    }
    across.commit(Synchronous::Full)?;
    after_commit(&store);
    Ok(())
}

#[test]
fn a_relocation_is_replayed_with_concurrent_deletions() {
    let sorted = |store: &Store| {
        let mut contents = contents(store).unwrap();
        contents.values_mut().for_each(|values| values.sort_unstable());
        contents
    };
    let mut states = BTreeMap::<u64, Contents>::new();
    let disk = SimulatedDisk::new();
    history(&disk, |store| drop(states.insert(store.snapshot().version(), sorted(store)))).unwrap();
    let first = *states.keys().next().unwrap();
    assert_eq!(states.values().next_back().unwrap()["t"], [4, 7, 8, 9, 14, 17, 18, 19, 102, 103]);
    let changes = disk.changes().len() as u64;
    let mut seen = 0;
    for at in 0..changes {
        let disk = SimulatedDisk::new();
        disk.set_fault(Some(Fault::CrashAt(at)));
        let mut acknowledged = 0;
        let _ = history(&disk, |store| acknowledged = store.snapshot().version());
        for disk in [disk.after_kill(), disk.after_power_loss(at)] {
            let Ok(store) = open(&disk) else { panic!("crash at {at}: not opened") };
            let version = store.snapshot().version();
            assert!(version >= acknowledged, "crash at {at}: {version} of {acknowledged}");
            if version >= first {
                assert_eq!(sorted(&store), states[&version], "crash at {at}, version {version}");
                assert_tidy(&store, &disk, &format!("crash at {at}"));
                seen += 1;
            }
        }
    }
    assert!(seen > changes, "{seen} of {changes}");
}
