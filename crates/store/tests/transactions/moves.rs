//! Row relocation while transactions delete and lock the rows. Only the mover notices it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Poll, Waker};

use taut_store::disk::{Fault, SimulatedDisk};
use taut_store::{CommitError, OldRows, RowOrder, RowRelocations, Store, Synchronous, TableId, TransactionError};
use taut_testkit::Random;

use crate::common::{
    Contents, Failure, Move, append, assert_tidy, change_in, change_rows, contents, create_table, design, everything,
    open, ready, write,
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

fn read_move(store: &Store) -> Move {
    Move::read(store, store.snapshot().table("t").unwrap(), &mut Random(7)).unwrap()
}

fn move_all(store: &Store) {
    read_move(store).commit(store).unwrap();
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
    let moving = read_move(&store);
    change_rows(&store, "t", &[], &[1, 6, 11]).unwrap();
    change_rows(&store, "t", &[], &[2, 12]).unwrap();
    moving.commit(&store).unwrap();
    assert_eq!(store.snapshot().table("t").unwrap().blocks.len(), 1);
    assert!(store.snapshot().table("t").unwrap().delta.has_no_pages());
    change_rows(&store, "t", &[], &[3, 13]).unwrap();
    assert_deleted(&disk, &store, &[0, 1, 2, 3, 6, 10, 11, 12, 13]);
}

#[test]
fn rows_of_all_segments_are_found() {
    let store = open(&SimulatedDisk::new()).unwrap();
    create_table(&store, "t").unwrap();
    let values: Vec<i64> = (0..140_000).collect();
    append(&store, "t", vec![write(&store, &values, "column").unwrap()]).unwrap();
    let table = store.snapshot().table("t").unwrap().id;
    let across = store.begin();
    let deleted: Vec<i64> = (0..140_000).step_by(20_011).collect();
    delete(&across, table, &deleted[..3]).unwrap();
    let moving = read_move(&store);
    change_rows(&store, "t", &[], &deleted[3..5]).unwrap();
    moving.commit(&store).unwrap();
    delete(&across, table, &deleted[5..]).unwrap();
    across.commit(Synchronous::Full).unwrap();
    let mut found = contents(&store).unwrap().remove("t").unwrap();
    found.sort_unstable();
    assert!(found.iter().eq(values.iter().filter(|value| *value % 20_011 != 0)), "{} rows", found.len());
}

#[test]
fn transactions_that_run_across_moves_change_the_rows_they_saw() {
    for moves in 1..4 {
        let disk = SimulatedDisk::new();
        let (store, table) = sample(&disk).unwrap();
        let [before, after, undone, back, late] = std::array::from_fn(|_| store.begin());
        delete(&before, table, &[1, 11]).unwrap();
        delete(&undone, table, &[2, 12]).unwrap();
        delete(&back, table, &[3]).unwrap();
        back.savepoint("s");
        delete(&back, table, &[4, 14]).unwrap();
        let first = read_move(&store);
        before.commit(Synchronous::Full).unwrap();
        first.commit(&store).unwrap();
        (1..moves).for_each(|_| move_all(&store));
        delete(&after, table, &[5, 15]).unwrap();
        drop(undone);
        back.roll_back_to("s").unwrap();
        delete(&back, table, &[16]).unwrap();
        assert_eq!(after.snapshot().table_of(table).unwrap().rows(), 16, "it sees what it saw");
        after.commit(Synchronous::Full).unwrap();
        back.commit(Synchronous::Full).unwrap();
        // Rows that were deleted before the first relocation read them, after that, and after the relocations.
        for values in [1, 11, 5, 15, 3] {
            assert!(is_changed(&delete(&late, table, &[values]).unwrap_err()), "{values} after {moves} moves");
        }
        delete(&late, table, &[2]).unwrap();
        late.commit(Synchronous::Full).unwrap();
        assert_deleted(&disk, &store, &[0, 10, 1, 11, 5, 15, 3, 16, 2]);
    }
}

#[test]
fn what_a_transaction_did_goes_on_in_a_newer_version() {
    let disk = SimulatedDisk::new();
    let (store, table) = sample(&disk).unwrap();
    let one = store.begin();
    change_in(&one, "t", &[90, 91], &[1, 11]).unwrap();
    delete(&one, table, &[90]).unwrap();
    one.savepoint("s");
    for deleted in [2, 3] {
        let moving = read_move(&store);
        change_rows(&store, "t", &[], &[deleted]).unwrap();
        moving.commit(&store).unwrap();
        one.refresh().unwrap();
        assert!(rows_with(&one, table, &[1, 2, 11, 90, deleted]).is_empty());
        delete(&one, table, &[deleted + 10]).unwrap();
    }
    one.commit(Synchronous::Full).unwrap();
    let two = store.begin();
    delete(&two, table, &[91]).unwrap();
    move_all(&store);
    two.commit(Synchronous::Full).unwrap();
    assert_deleted(&disk, &store, &[0, 10, 1, 11, 2, 12, 3, 13]);
}

#[test]
fn a_savepoint_from_before_a_move_leads_to_the_rows_after_it() {
    let disk = SimulatedDisk::new();
    let (store, table) = sample(&disk).unwrap();
    let one = store.begin();
    delete(&one, table, &[1]).unwrap();
    one.savepoint("s");
    move_all(&store);
    one.refresh().unwrap();
    delete(&one, table, &[2]).unwrap();
    move_all(&store);
    one.roll_back_to("s").unwrap();
    delete(&one, table, &[13]).unwrap();
    one.commit(Synchronous::Full).unwrap();
    assert_deleted(&disk, &store, &[0, 10, 1, 13]);
}

#[test]
fn locks_go_with_the_rows() {
    // The first lock refers to the row by its old or its new row id.
    for (moves, is_old_first, is_committed) in
        [(1, true, true), (1, true, false), (1, false, true), (1, false, false), (2, true, true), (2, false, false)]
    {
        let context = format!("{moves} moves, old first: {is_old_first}, committed: {is_committed}");
        let disk = SimulatedDisk::new();
        let (store, table) = sample(&disk).unwrap();
        let old = store.begin();
        if is_old_first {
            delete(&old, table, &[1, 11]).unwrap();
        }
        (0..moves).for_each(|_| move_all(&store));
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
fn waiting_in_a_circle_is_found_by_any_name_of_a_row() {
    let (store, table) = sample(&SimulatedDisk::new()).unwrap();
    let old = store.begin();
    delete(&old, table, &[1]).unwrap();
    move_all(&store);
    let new = store.begin();
    delete(&new, table, &[2]).unwrap();
    let rows = rows_with(&new, table, &[1]);
    let mut deleting: Deleting<'_> = Box::pin(new.delete_rows(table, &rows));
    assert!(poll(&mut deleting, Waker::noop()).is_pending());
    let refused = ready(old.delete_rows(table, &rows_with(&old, table, &[2])));
    assert!(matches!(refused, Err(TransactionError::Deadlock)), "{refused:?}");
    drop(old);
    assert!(matches!(poll(&mut deleting, Waker::noop()), Poll::Ready(Ok(()))));
}

#[test]
fn rows_at_the_same_places_are_found_without_being_told() {
    let disk = SimulatedDisk::new();
    let (store, table) = sample(&disk).unwrap();
    let [one, two] = [store.begin(), store.begin()];
    delete(&one, table, &[1, 6]).unwrap();
    let old: Vec<_> = store.snapshot().table_of(table).unwrap().blocks.iter().map(|block| block.id()).collect();
    let new = vec![write(&store, &[0, 1, 2, 3, 4], "row").unwrap(), write(&store, &[5, 6, 7, 8, 9], "row").unwrap()];
    store.commit::<_, CommitError>(|edit| edit.replace_blocks(table, &old, new, RowOrder::Same)).unwrap();
    move_all(&store);
    delete(&two, table, &[2, 7]).unwrap();
    two.commit(Synchronous::Full).unwrap();
    one.commit(Synchronous::Full).unwrap();
    assert_deleted(&disk, &store, &[0, 10, 1, 6, 2, 7]);
}

#[test]
fn a_page_that_has_grown_and_moves_that_do_not_fit_are_refused() {
    let disk = SimulatedDisk::new();
    let (store, table) = sample(&disk).unwrap();
    let moving = read_move(&store);
    change_rows(&store, "t", &[20], &[]).unwrap();
    assert!(matches!(moving.commit(&store), Err(CommitError::RowsChanged { .. })));
    change_rows(&store, "t", &[], &[20]).unwrap();
    let move_by = |rows: &dyn Fn(&mut Vec<taut_store::RowId>)| {
        let Move { old, new, rows: mut given, .. } = read_move(&store);
        rows(&mut given);
        let mut moves = RowRelocations::default();
        moves.push(&new[0], given).unwrap();
        let old = OldRows { moves: Some(Arc::new(moves)), ..old };
        store.commit::<_, CommitError>(|edit| edit.replace_rows(table, old, new, RowOrder::Sorted))
    };
    let is_refused = |result| matches!(result, Err(CommitError::RowsDiffer { expected: 18, found: 17, .. }));
    assert!(is_refused(move_by(&|rows| rows.truncate(17))));
    assert!(is_refused(move_by(&|rows| rows[3] = rows[4])));
    // A deleted row instead of an existing one.
    let left_out = {
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
    assert!(matches!(move_by(&|rows| rows[3] = left_out), Err(CommitError::RowsDiffer { .. })));
    let kept = everything(store.snapshot().table_of(table).unwrap());
    assert_eq!(kept.blocks.len(), 2, "nothing has changed");
    move_by(&|_| ()).unwrap();
    assert_deleted(&disk, &store, &[0, 10]);
}

#[test]
fn a_move_that_failed_hides_no_row() {
    let disk = SimulatedDisk::new();
    let (store, table) = sample(&disk).unwrap();
    let [one, two, three] = std::array::from_fn(|_| store.begin());
    delete(&one, table, &[1]).unwrap();
    let failing = read_move(&store);
    // The first changes of the disk make the name of the block durable, and then write the log.
    disk.set_fault(Some(Fault::FailAt(1)));
    assert!(matches!(failing.commit(&store), Err(CommitError::Log(_))));
    disk.set_fault(None);
    delete(&two, table, &[2]).unwrap();
    move_all(&store);
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
fn serializable_transactions_fail_where_rows_change_and_not_where_they_move() {
    type Change<'a> = (&'a str, bool, Box<dyn Fn(&Store, Move) + 'a>);
    let changes: [Change<'_>; 7] = [
        ("nothing", true, Box::new(|_, _| ())),
        ("move", true, Box::new(|store, moving| moving.commit(store).unwrap())),
        (
            "design",
            true,
            Box::new(|store, moving| {
                store.commit::<_, CommitError>(|edit| edit.set_design(moving.table, design("row"))).unwrap();
            }),
        ),
        ("insert", false, Box::new(|store, _| change_rows(store, "t", &[50], &[]).unwrap())),
        ("delete", false, Box::new(|store, _| change_rows(store, "t", &[], &[1]).unwrap())),
        ("load", false, Box::new(|store, _| append(store, "t", vec![write(store, &[50], "row").unwrap()]).unwrap())),
        (
            "truncate",
            false,
            Box::new(|store, moving| {
                store.commit::<_, CommitError>(|edit| edit.truncate(moving.table)).unwrap();
            }),
        ),
    ];
    for (what, is_fine, change) in changes {
        let (store, table) = sample(&SimulatedDisk::new()).unwrap();
        create_table(&store, "u").unwrap();
        let moving = read_move(&store);
        // The relocation deletes the row again. For transactions that began later that is no change.
        change_rows(&store, "t", &[], &[11]).unwrap();
        let reader = store.begin();
        reader.serialize(true);
        reader.record_read(table);
        change_in(&reader, "u", &[1], &[]).unwrap();
        change(&store, moving);
        let result = reader.commit(Synchronous::Full);
        match is_fine {
            true => result.unwrap_or_else(|error| panic!("{what}: {error}")),
            false => assert!(matches!(result, Err(CommitError::Serialization { .. })), "{what}: {result:?}"),
        }
    }
}

/// Relocations with deletions in between. Calls `told` after each commit.
fn history(disk: &SimulatedDisk, mut told: impl FnMut(&Store)) -> Result<(), Failure> {
    let (store, table) = sample(disk)?;
    told(&store);
    let across = store.begin();
    ready(across.delete_rows(table, &rows_with(&across, table, &[1, 11])))?;
    for deleted in [2, 3] {
        let moving = Move::read(&store, store.snapshot().table("t").ok_or("no table")?, &mut Random(1))?;
        change_rows(&store, "t", &[100 + deleted], &[deleted, deleted + 10])?;
        told(&store);
        match moving.commit(&store) {
            // The page has grown.
            Err(CommitError::RowsChanged { .. }) if deleted == 2 => {}
            result => result?,
        }
        told(&store);
        let moving = Move::read(&store, store.snapshot().table("t").ok_or("no table")?, &mut Random(2))?;
        change_rows(&store, "t", &[], &[deleted + 3, deleted + 13])?;
        told(&store);
        moving.commit(&store)?;
        told(&store);
    }
    across.commit(Synchronous::Full)?;
    told(&store);
    Ok(())
}

#[test]
fn a_move_is_replayed_with_what_was_deleted_meanwhile() {
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
