//! Sequences: which numbers are taken after rollbacks and crashes and by concurrent sessions, and when a sequence is
//! dropped with its column.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeSet;

use common::{contents, create_table, open, read};
use taut_store::disk::{Fault, SimulatedDisk};
use taut_store::{
    CommitError, Constraints, Identity, OwnedSequence, Sequence, SequenceId, Store, Synchronous, Transaction,
};
use taut_types::{Column, ColumnIndex, LogicalType};

/// The numbers 10, 15, 20, ... 100.
fn by_fives(name: &str) -> Sequence {
    Sequence {
        id: SequenceId(0),
        name: name.to_owned(),
        logical_type: LogicalType::Integer,
        start: 10,
        increment: 5,
        min: 10,
        max: 100,
        cycles: false,
        last: 10,
        is_called: false,
    }
}

fn create(store: &Store, name: &str) -> SequenceId {
    store.commit::<_, CommitError>(|edit| edit.create_sequence(by_fives(name))).unwrap()
}

fn next(store: &Store, sequence: SequenceId) -> i64 {
    store.next_values(sequence, 1).unwrap()[0]
}

fn next_in(transaction: &Transaction, sequence: SequenceId) -> i64 {
    transaction.next_values(sequence, 1).unwrap()[0]
}

#[test]
fn a_rollback_returns_no_number_to_the_sequence() {
    let store = open(&SimulatedDisk::new()).unwrap();
    let sequence = create(&store, "s");
    let transaction = store.begin();
    assert_eq!(transaction.next_values(sequence, 3).unwrap(), [10, 15, 20]);
    assert_eq!(next(&store, sequence), 25);
    transaction.savepoint("a");
    assert_eq!(next_in(&transaction, sequence), 30);
    transaction.roll_back_to("a").unwrap();
    assert_eq!(next_in(&transaction, sequence), 35);
    drop(transaction);
    assert_eq!(next(&store, sequence), 40);
}

#[test]
fn a_sequence_of_a_transaction_is_rolled_back_with_it() {
    let store = open(&SimulatedDisk::new()).unwrap();
    let old = create(&store, "old");
    let transaction = store.begin();
    let new = transaction.change::<_, CommitError>(|edit| edit.create_sequence(by_fives("new"))).unwrap();
    assert_eq!(next_in(&transaction, new), 10);
    // No other transaction sees a restart before it is committed.
    let restarted = Sequence { id: old, last: 50, ..by_fives("old") };
    transaction.change::<_, CommitError>(|edit| edit.alter_sequence(restarted, true)).unwrap();
    assert_eq!((next_in(&transaction, old), next(&store, old)), (50, 10));
    assert!(matches!(store.next_values(new, 1), Err(CommitError::NoSequence { .. })));
    transaction.commit(Synchronous::Full).unwrap();
    assert_eq!((next(&store, new), next(&store, old)), (15, 55));

    let transaction = store.begin();
    transaction.change::<_, CommitError>(|edit| edit.drop_sequence(new)).unwrap();
    drop(transaction);
    assert_eq!(next(&store, new), 20);
}

#[test]
fn a_change_of_options_keeps_the_numbers_that_others_take_meanwhile() {
    let store = open(&SimulatedDisk::new()).unwrap();
    let sequence = create(&store, "s");
    let transaction = store.begin();
    let altered = Sequence { id: sequence, increment: 20, ..by_fives("t") };
    transaction.change::<_, CommitError>(|edit| edit.alter_sequence(altered, false)).unwrap();
    assert_eq!(store.next_values(sequence, 2).unwrap(), [10, 15]);
    // The numbers that the transaction itself takes after its change are not reused either.
    assert_eq!(next_in(&transaction, sequence), 20);
    assert_eq!(next(&store, sequence), 25);
    transaction.commit(Synchronous::Full).unwrap();
    assert_eq!(store.next_values(sequence, 2).unwrap(), [45, 65]);
    assert!(store.snapshot().sequence("t").is_some() && store.snapshot().sequence("s").is_none());
}

#[test]
fn numbers_and_names_are_checked() {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    create_table(&store, "t").unwrap();
    let sequence = create(&store, "s");
    for name in ["s", "t"] {
        let error = store.commit::<_, CommitError>(|edit| edit.create_sequence(by_fives(name))).unwrap_err();
        assert!(matches!(&error, CommitError::NameTaken { name: taken } if taken == name), "{error}");
    }
    assert!(matches!(create_table(&store, "s").unwrap_err().downcast_ref(), Some(CommitError::NameTaken { .. })));
    let outside = Sequence { start: 9, ..by_fives("u") };
    let error = store.commit::<_, CommitError>(|edit| edit.create_sequence(outside)).unwrap_err();
    assert!(matches!(error, CommitError::Sequence { .. }), "{error}");
    assert!(matches!(store.set_value(sequence, 101, true), Err(CommitError::Sequence { .. })));
    assert!(matches!(
        store.next_values(sequence, 20),
        Err(CommitError::SequenceExhausted { limit: 100, ascends: true, .. })
    ));
    assert_eq!(store.next_values(sequence, 19).unwrap().last(), Some(&100));
    assert!(store.next_values(sequence, 1).is_err());
    store.set_value(sequence, 30, false).unwrap();
    assert_eq!(next(&store, sequence), 30);
    assert!(matches!(read(&disk).unwrap().next_values(sequence, 1), Err(CommitError::ReadOnly)));
}

#[test]
fn an_owned_sequence_is_dropped_with_its_column_or_table() {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    create_table(&store, "t").unwrap();
    let table = store.snapshot().table("t").unwrap().id;
    let own = |store: &Store, name: &str, column: usize| {
        let commit = store.commit::<_, CommitError>(|edit| {
            let sequence = edit.create_sequence(by_fives(name))?;
            let stored = edit.catalog().table_of(table).ok_or(CommitError::NoTable { table })?;
            let mut constraints = stored.constraints.as_ref().clone();
            let owned = OwnedSequence { sequence, identity: Some(Identity::Always) };
            constraints.sequences.insert(ColumnIndex::from(column), owned);
            edit.set_constraints(table, constraints)?;
            Ok(sequence)
        });
        commit.unwrap()
    };
    let columns = ["a", "b"].map(|name| Column::new(name, LogicalType::BigInt, true));
    for column in columns {
        store.commit::<_, CommitError>(|edit| edit.add_column(table, column, None)).unwrap();
    }
    let (of_a, of_b) = (own(&store, "sa", 1), own(&store, "sb", 2));
    store.commit::<_, CommitError>(|edit| edit.drop_column(table, ColumnIndex::from(1))).unwrap();
    let check = |store: &Store| {
        let snapshot = store.snapshot();
        assert!(snapshot.sequence_of(of_a).is_none());
        assert_eq!(snapshot.sequence("sb").map(|sequence| sequence.id), Some(of_b));
        let constraints: &Constraints = &snapshot.table_of(table).unwrap().constraints;
        assert!(constraints.is_always_generated(ColumnIndex::from(1)));
        assert!(!constraints.is_always_generated(ColumnIndex::from(0)));
    };
    check(&store);
    store.checkpoint().unwrap();
    drop(store);
    let store = open(&disk).unwrap();
    check(&store);
    store.commit::<_, CommitError>(|edit| edit.drop_table(table)).unwrap();
    assert_eq!(store.snapshot().sequences().count(), 0);
}

#[test]
fn concurrent_changes_of_a_definition_conflict() {
    let store = open(&SimulatedDisk::new()).unwrap();
    let sequence = create(&store, "s");
    let alter = |altered: Sequence| {
        let transaction = store.begin();
        let altered = Sequence { id: sequence, ..altered };
        transaction.change::<_, CommitError>(|edit| edit.alter_sequence(altered, false)).unwrap();
        transaction
    };
    let (renamed, by_twenties) = (alter(by_fives("renamed")), alter(Sequence { increment: 20, ..by_fives("s") }));
    assert_eq!(next(&store, sequence), 10);
    renamed.commit(Synchronous::Full).unwrap();
    let error = by_twenties.commit(Synchronous::Full).unwrap_err();
    assert!(matches!(&error, CommitError::SequenceChanged { sequence } if sequence == "renamed"), "{error}");
    assert_eq!(next(&store, sequence), 15);
}

/// Two transactions assign a sequence to different columns, or one of them drops it. Only one may commit, because a
/// catalog cannot be opened if two columns own the same sequence or a column owns one that does not exist.
#[test]
fn concurrent_owners_of_a_sequence_conflict() {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    create_table(&store, "t").unwrap();
    create_table(&store, "u").unwrap();
    let sequence = create(&store, "s");
    let own = |table: &str| {
        let transaction = store.begin();
        let id = transaction.snapshot().table(table).unwrap().id;
        let owned = OwnedSequence { sequence, identity: None };
        let sequences = [(ColumnIndex::from(0), owned)].into();
        let constraints = Constraints { sequences, ..Constraints::default() };
        transaction.change::<_, CommitError>(|edit| edit.set_constraints(id, constraints)).unwrap();
        transaction
    };
    let drop_sequence = || {
        let transaction = store.begin();
        transaction.change::<_, CommitError>(|edit| edit.drop_sequence(sequence)).unwrap();
        transaction
    };
    let (of_t, of_u, dropped) = (own("t"), own("u"), drop_sequence());
    of_t.commit(Synchronous::Full).unwrap();
    assert!(matches!(of_u.commit(Synchronous::Full), Err(CommitError::Constraints { .. })));
    let error = dropped.commit(Synchronous::Full).unwrap_err();
    assert!(matches!(&error, CommitError::ConstraintsChanged { table } if table == "t"), "{error}");
    store.checkpoint().unwrap();
    drop((of_t, of_u, dropped));
    drop(store);
    assert!(open(&disk).unwrap().snapshot().sequence("s").is_some());
}

#[test]
fn sessions_never_get_the_same_number() {
    let store = open(&SimulatedDisk::new()).unwrap();
    let counting = Sequence { increment: 1, start: 1, min: 1, max: i32::MAX.into(), last: 1, ..by_fives("s") };
    let sequence = store.commit::<_, CommitError>(|edit| edit.create_sequence(counting)).unwrap();
    let taken = std::thread::scope(|scope| {
        let take = |count: usize| {
            let store = &store;
            move || (0..200).flat_map(|_| store.next_values(sequence, count).unwrap()).collect::<Vec<_>>()
        };
        let threads: Vec<_> = [1, 2, 5].map(|count| scope.spawn(take(count))).into_iter().collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let distinct: BTreeSet<i64> = taken.iter().copied().collect();
    assert_eq!((distinct.len(), distinct.last()), (1_600, Some(&1_600)));
}

/// Numbers in durable rows are never taken again.
#[test]
fn no_number_of_a_durable_row_is_taken_again_after_a_crash() {
    let run = |disk: &SimulatedDisk, written: &mut Vec<i64>| -> Result<(), common::Failure> {
        let store = open(disk)?;
        create_table(&store, "t")?;
        let counting = Sequence { increment: 1, start: 1, min: 1, max: i32::MAX.into(), last: 1, ..by_fives("s") };
        let sequence = store.commit::<_, CommitError>(|edit| edit.create_sequence(counting))?;
        for step in 0..6 {
            let numbers = store.next_values(sequence, 2)?;
            common::change_rows(&store, "t", &numbers, &[])?;
            written.extend(numbers);
            if step == 3 {
                store.checkpoint()?;
            }
        }
        Ok(())
    };
    let mut points = 0;
    for at in 0.. {
        let disk = SimulatedDisk::new();
        disk.set_fault(Some(Fault::CrashAt(at)));
        let mut written = Vec::new();
        let is_done = run(&disk, &mut written).is_ok() && !disk.is_crashed();
        for lost in [disk.after_kill(), disk.after_power_loss(at)] {
            let Ok(store) = open(&lost) else { continue };
            let rows: BTreeSet<i64> = contents(&store).unwrap().into_values().flatten().collect();
            assert!(written.iter().all(|number| rows.contains(number)), "change {at}: durable rows are lost");
            match store.snapshot().sequence("s").map(|sequence| next(&store, sequence.id)) {
                Some(next) => assert!(rows.iter().all(|row| *row < next), "change {at}: {next} again, after {rows:?}"),
                None => assert!(rows.is_empty(), "change {at}: rows {rows:?} without their sequence"),
            }
        }
        if is_done {
            break;
        }
        points += 1;
    }
    assert!(points > 20, "{points} crash points");
}
