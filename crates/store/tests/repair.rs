//! Repair of databases with each kind of damage. The new database opens, is undamaged, and contains the expected rows.
//! The report names all losses, and the damaged database stays unchanged.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::damaged::{damage, names, sample, samples_in_every_end_state, texts};
use common::{
    all_old_rows, append, assert_tidy, change_rows, contents, create_table, design, open, rows_of, schema, write,
    write_for,
};
use taut_store::disk::{Disk, SimulatedDisk};
use taut_store::{
    CommitError, Constraints, DatabaseLoss, ForeignKey, OpenError, ReferentialAction, RepairError, RepairReport,
    RowOrder, Store, TableLoss, UniqueKey, repair_on, verify,
};
use taut_types::{Column, ColumnIndex, Datum, LogicalType};

/// Repairs a database and checks that it stays unchanged. Returns the report, the new disk and the new store.
fn repaired(disk: &SimulatedDisk, context: &str) -> (RepairReport, SimulatedDisk, Store) {
    let (before, to) = (disk.files(), SimulatedDisk::new());
    disk.set_fault(None);
    let report = repair_on(Arc::new(disk.clone()), Arc::new(to.clone()));
    let report = report.unwrap_or_else(|error| panic!("{context}: {error}"));
    assert!(disk.changes().is_empty() && disk.files() == before, "{context}: {:?}", disk.changes());
    let lost = to.after_power_loss(1);
    let store = open(&lost).unwrap_or_else(|error| panic!("{context}, repaired: {error}"));
    assert_tidy(&store, &lost, context);
    assert_eq!(store.recovery().torn_tail, None, "{context}");
    let tables = store.snapshot();
    let found: Vec<(String, u64)> = tables.tables().map(|table| (table.name.clone(), table.rows())).collect();
    let reported: Vec<(String, u64)> = report.tables.iter().map(|table| (table.name.clone(), table.rows)).collect();
    assert_eq!(found, reported, "{context}");
    // The new database is writable.
    if let Some((name, _)) = found.first() {
        let store = open(&lost.after_kill()).unwrap();
        change_rows(&store, name, &[1_000_000], &[]).unwrap();
    }
    (report, lost, store)
}

#[test]
fn an_undamaged_database_is_copied() {
    for (end_state, disk, states) in samples_in_every_end_state() {
        let (report, new, store) = repaired(&disk, end_state);
        assert!(report.is_complete(), "{end_state}: {}", texts(&report));
        assert_eq!(contents(&store).unwrap(), *states.last().unwrap(), "{end_state}");
        assert_eq!(store.snapshot().view("v").map(|view| view.sql.as_str()), Some("select 1"));
        for name in names(&disk, "blocks/", "") {
            assert_eq!(new.files().get(&name), disk.files().get(&name), "{end_state}: {name}");
        }
        assert!(report.tables.iter().all(|table| table.copied_blocks == 2 && table.rewritten_blocks == 0));
        assert_ne!(store.snapshot().database_id(), open(&disk).unwrap().snapshot().database_id());
    }
}

#[test]
fn a_lost_block_loses_only_its_rows() {
    for (end_state, disk, states) in samples_in_every_end_state() {
        let all = states.last().unwrap();
        for (number, name) in names(&disk, "blocks/", "").into_iter().enumerate() {
            for kind in ["missing", "empty", "of another header"] {
                let damaged = disk.after_kill();
                match kind {
                    "missing" => damaged.remove(&name).unwrap(),
                    "empty" => damaged.put(&name, &[]),
                    _ => damage(&damaged, &name, |bytes| bytes[30] ^= 1),
                }
                let context = format!("{end_state}, {name} is {kind}");
                let (report, _, store) = repaired(&damaged, &context);
                let lost: [i64; 3] = if number % 2 == 0 { [1, 2, 3] } else { [4, 5, 0] };
                let table = ["t", "u"][number / 2];
                let mut expected = all.clone();
                let before = expected[table].len();
                expected.get_mut(table).unwrap().retain(|value| !lost.contains(value));
                assert_eq!(contents(&store).unwrap(), expected, "{context}");
                if before == expected[table].len() {
                    // All rows of the block had been deleted.
                    assert!(report.is_complete() && report.tables[number / 2].without_loss.len() == 1, "{context}");
                    continue;
                }
                let [TableLoss::Rows { path, rows, count, .. }] = &report.tables[number / 2].losses[..] else {
                    panic!("{context}: {}", texts(&report))
                };
                let in_block = if number % 2 == 0 { 0..3 } else { 0..2 };
                assert_eq!((path, &rows[..]), (&damaged.path(&name), &[in_block][..]), "{context}");
                assert_eq!(*count as usize, before - expected[table].len(), "{context}");
                assert!(!report.is_complete() && report.losses.is_empty(), "{context}");
            }
        }
    }
}

/// A lost block whose rows had all been deleted is not reported as a loss.
#[test]
fn a_lost_block_with_only_deleted_rows_is_no_loss() {
    let (disk, store, _) = sample();
    change_rows(&store, "t", &[], &[1, 3]).unwrap();
    let expected = contents(&store).unwrap();
    drop(store);
    for is_missing in [false, true] {
        let damaged = disk.after_kill();
        let name = names(&damaged, "blocks/", "").remove(0);
        match is_missing {
            true => damaged.remove(&name).unwrap(),
            false => damage(&damaged, &name, |bytes| bytes[30] ^= 1),
        }
        let (report, new, store) = repaired(&damaged, &name);
        assert!(report.is_complete(), "{}", texts(&report));
        assert_eq!(report.tables[0].without_loss[0].path, damaged.path(&name));
        assert_eq!(contents(&store).unwrap(), expected);
        assert!(!new.files().contains_key(&name));
    }
}

/// Damages a block of several segments at many offsets.
#[test]
fn intact_segments_of_a_damaged_block_are_salvaged() {
    const ROWS: i64 = 150_000;
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    create_table(&store, "t").unwrap();
    // Values that occupy some bytes in each segment.
    let value = |row: i64| (row * 7_919) % 1_009;
    let values: Vec<i64> = (0..ROWS).map(value).collect();
    append(&store, "t", vec![write(&store, &values, "column").unwrap()]).unwrap();
    change_rows(&store, "t", &[-1], &[5]).unwrap();
    let expected = rows_of(store.snapshot().table("t").unwrap()).unwrap();
    drop(store);
    let name = names(&disk, "blocks/", "").remove(0);
    let length = disk.files()[&name].len();
    let (mut partial, mut rewritten, mut lost) = (0, 0, 0);
    let header = u32::from_le_bytes(disk.files()[&name][12..16].try_into().unwrap()) as usize;
    for at in (0..length).step_by(length / 60).chain((header..header + 2_000).step_by(60)) {
        for is_truncated in [false, true] {
            let damaged = disk.after_kill();
            damage(&damaged, &name, |bytes| if is_truncated { bytes.truncate(at) } else { bytes[at] ^= 0x10 });
            let context = format!("byte {at} of {length}, truncated: {is_truncated}");
            let (report, _, store) = repaired(&damaged, &context);
            let found = rows_of(store.snapshot().table("t").unwrap()).unwrap();
            let rows = match &report.tables[0].losses[..] {
                [TableLoss::Rows { rows, count, .. }] => {
                    assert_eq!(found.len() as u64 + count, expected.len() as u64, "{context}");
                    if report.tables[0].rewritten_blocks == 1 {
                        partial += 1
                    } else {
                        lost += 1
                    }
                    rows.clone()
                }
                [] if report.tables[0].rewritten_blocks == 1 => {
                    let [damaged] = &report.tables[0].without_loss[..] else { panic!("{context}: {report:?}") };
                    assert!(damaged.to_string().starts_with("no row of "), "{context}: {damaged}");
                    assert!(report.is_complete(), "{context}: {}", texts(&report));
                    rewritten += 1;
                    vec![]
                }
                // The damage is between two sections.
                [] => {
                    assert!(report.is_complete(), "{context}: {}", texts(&report));
                    vec![]
                }
                other => panic!("{context}: {other:?}"),
            };
            let is_lost = |row: &i64| rows.iter().any(|range| range.contains(&(*row as u64)));
            let remaining: Vec<i64> =
                (0..ROWS).filter(|row| !is_lost(row)).map(value).filter(|value| *value != 5).chain([-1]).collect();
            assert!(found == remaining, "{context}: the rows differ from the report");
        }
    }
    assert!(partial > 20 && rewritten > 0 && lost > 0, "{partial} {rewritten} {lost}");
}

#[test]
fn every_loss_from_a_flipped_byte_of_a_block_is_reported() {
    let (disk, store, states) = sample();
    drop(store);
    for name in names(&disk, "blocks/", "").into_iter().take(2) {
        for at in 0..disk.files()[&name].len() {
            let damaged = disk.after_kill();
            damage(&damaged, &name, |bytes| bytes[at] ^= 1 << (at % 8));
            let context = format!("{name}, byte {at}");
            let (report, _, store) = repaired(&damaged, &context);
            let (found, all) = (contents(&store).unwrap(), states.last().unwrap());
            assert_eq!(found["u"], all["u"], "{context}");
            let lost: u64 = report.tables[0]
                .losses
                .iter()
                .map(|loss| if let TableLoss::Rows { count, .. } = loss { *count } else { 0 })
                .sum();
            assert_eq!(found["t"].len() as u64 + lost, all["t"].len() as u64, "{context}: {}", texts(&report));
            assert!(found["t"].iter().all(|value| all["t"].contains(value)), "{context}");
        }
    }
}

#[test]
fn blocks_from_before_a_change_of_not_null_are_valid_and_salvaged() {
    let rows_after_each_flip = |drops_not_null: bool| {
        let (disk, store, _) = sample();
        let table = store.snapshot().table("t").unwrap().id;
        if drops_not_null {
            store.commit::<_, CommitError>(|edit| edit.set_nullable(table, ColumnIndex(0), true)).unwrap();
            assert!(verify(&store).is_empty(), "{:?}", verify(&store));
        }
        drop(store);
        let name = names(&disk, "blocks/", "").remove(0);
        let flips = (0..disk.files()[&name].len()).step_by(16).map(|at| {
            let damaged = disk.after_kill();
            damage(&damaged, &name, |bytes| bytes[at] ^= 1);
            repaired(&damaged, &format!("byte {at}")).0.tables[0].rows
        });
        flips.collect::<Vec<_>>()
    };
    let rows = rows_after_each_flip(false);
    assert!(rows.contains(&5), "some flips lose no row: {rows:?}");
    assert_eq!(rows_after_each_flip(true), rows);
}

#[test]
fn a_missing_log_file_restores_the_last_commit_before_it() {
    let mut cases = 0;
    for (end_state, disk, states) in samples_in_every_end_state() {
        for name in names(&disk, "log/", ".log") {
            let damaged = disk.after_kill();
            damaged.remove(&name).unwrap();
            let context = format!("{end_state}, without {name}");
            assert!(matches!(open(&damaged.after_kill()), Err(OpenError::MissingLog { .. })), "{context}");
            let (report, _, store) = repaired(&damaged, &context);
            let version = store.snapshot().version() as usize;
            assert_eq!(contents(&store).unwrap(), states[version], "{context}");
            let [DatabaseLoss::Log { version: reported, commits, .. }] = &report.losses[..] else {
                panic!("{context}: {}", texts(&report))
            };
            assert_eq!((*reported, *commits), (version as u64, None), "{context}");
            assert!(texts(&report).contains(&name.replace(".closed", "")), "{context}: {}", texts(&report));
            cases += 1;
        }
    }
    assert!(cases >= 5, "{cases}");
}

#[test]
fn a_damaged_log_restores_the_last_commit_before_the_damage() {
    let (mut stops, mut ends) = (0, 0);
    for (end_state, disk, states) in samples_in_every_end_state() {
        for name in names(&disk, "log/", ".log") {
            let length = disk.files()[&name].iter().rposition(|byte| *byte != 0).unwrap();
            for at in (0..length).step_by(37) {
                let damaged = disk.after_kill();
                damage(&damaged, &name, |bytes| bytes[at] ^= 1 << (at % 8));
                let context = format!("{end_state}, {name}, byte {at}");
                let is_refused = open(&damaged.after_kill()).is_err();
                let (report, _, store) = repaired(&damaged, &context);
                let version = store.snapshot().version() as usize;
                assert_eq!(contents(&store).unwrap(), states[version], "{context}: {}", texts(&report));
                // A damaged last record cannot be distinguished from one that a crash has torn.
                assert_eq!(!report.is_complete(), is_refused, "{context}: {}", texts(&report));
                match &report.losses[..] {
                    [DatabaseLoss::Log { commits, .. }] => {
                        let last = states.len() - 1;
                        let seen = version as u64 + commits.unwrap_or(0);
                        assert!(seen <= last as u64, "{context}");
                        // Damage after the head of the file, which has 56 bytes, hides at most one commit: a later
                        // record or head shows the number of the other commits.
                        assert!(at < 56 || seen + 1 >= last as u64, "{context}: {version} {commits:?} of {last}");
                        stops += 1;
                    }
                    [] => ends += 1,
                    other => panic!("{context}: {other:?}"),
                }
            }
        }
    }
    assert!(stops > 50 && ends > 5, "{stops} {ends}");
}

/// Blocks that were merged after the damage no longer exist. Repair uses the merged block.
#[test]
fn rows_relocated_after_damage_of_the_log_are_found() {
    let (disk, store, states) = sample();
    let before = states.last().unwrap().clone();
    create_table(&store, "w").unwrap();
    let log = names(&disk, "log/", ".log").remove(0);
    let damaged_at = disk.files()[&log].iter().rposition(|byte| *byte != 0).unwrap() - 3;
    let table = store.snapshot().table("t").unwrap().as_ref().clone();
    let values = rows_of(&table).unwrap();
    let seal = |values: &[i64], table: &taut_store::Table| {
        let block = write(&store, values, "column").unwrap();
        store
            .commit::<_, CommitError>(|edit| {
                edit.replace_rows(table.id, all_old_rows(table), vec![block], RowOrder::Sorted)
            })
            .unwrap();
    };
    seal(&values, &table);
    drop(table);
    // Merges the block again, with a row of a commit that is lost.
    change_rows(&store, "t", &[100], &[]).unwrap();
    let table = store.snapshot().table("t").unwrap().as_ref().clone();
    let relocated = rows_of(&table).unwrap();
    seal(&relocated, &table);
    drop(table);
    let disk = disk.after_kill();
    assert_eq!(names(&disk, "blocks/", "").len(), 3, "the first blocks are removed");
    damage(&disk, &log, |bytes| bytes[damaged_at] ^= 1);
    let (report, _, store) = repaired(&disk, "moved");
    // Four commits are lost: the creation of `w`, two merges, and an insertion.
    assert!(matches!(&report.losses[..], [DatabaseLoss::Log { commits: Some(4), .. }]), "{}", texts(&report));
    let found = contents(&store).unwrap();
    assert_eq!((&found["t"], &found["u"]), (&relocated, &before["u"]), "{}", texts(&report));
    assert!(report.tables.iter().all(|table| table.losses.is_empty()), "{}", texts(&report));
}

#[test]
fn a_lost_delta_loses_the_delta_rows_and_the_deletions() {
    for kind in ["missing", "flipped", "shorter"] {
        let (disk, store, _) = sample();
        store.checkpoint().unwrap();
        // Commits after the checkpoint: rows of a lost page, deletions there and in a block, a new column, a new table,
        // and a row relocation.
        change_rows(&store, "t", &[20, 21], &[6]).unwrap();
        let column = Column::new("c5", LogicalType::BigInt, true);
        let table = store.snapshot().table("t").unwrap().id;
        store.commit::<_, CommitError>(|edit| edit.add_column(table, column, Some(Datum::Number(5)))).unwrap();
        change_rows(&store, "t", &[22], &[5]).unwrap();
        create_table(&store, "w").unwrap();
        change_rows(&store, "w", &[30], &[]).unwrap();
        let table = store.snapshot().table("u").unwrap().as_ref().clone();
        let block = write_for(&store, &table, &rows_of(&table).unwrap(), "column").unwrap();
        store
            .commit::<_, CommitError>(|edit| {
                edit.replace_rows(table.id, all_old_rows(&table), vec![block], RowOrder::Sorted)
            })
            .unwrap();
        let disk = disk.after_kill();
        let name = names(&disk, "log/", ".delta").remove(0);
        match kind {
            "missing" => disk.remove(&name).unwrap(),
            "flipped" => damage(&disk, &name, |bytes| bytes[20] ^= 1),
            _ => damage(&disk, &name, |bytes| bytes.truncate(9)),
        }
        assert!(open(&disk.after_kill()).is_err());
        let (report, _, store) = repaired(&disk, kind);
        let found = contents(&store).unwrap();
        let sorted = |name: &str| {
            let mut rows = found[name].clone();
            rows.sort_unstable();
            rows
        };
        // Rows 2 and 4 were deleted before, and rows 6 to 8 were in the delta.
        assert_eq!(sorted("t"), [1, 2, 3, 4, 20, 21, 22], "{kind}: {}", texts(&report));
        // All rows of `u` were relocated, so they are in a block.
        assert_eq!(sorted("u"), [1, 3, 4, 5, 6, 7, 9], "{kind}");
        assert_eq!(sorted("w"), [30], "{kind}");
        assert!(!report.is_complete() && texts(&report).contains(&name), "{kind}: {}", texts(&report));
    }
}

#[test]
fn another_catalog_is_used_if_one_can_be_read() {
    let (disk, store, states) = sample();
    store.checkpoint().unwrap();
    let older = disk.files().remove("catalog").unwrap();
    drop(store);
    for name in ["catalog.new", "catalog.bak"] {
        for missing in [false, true] {
            let damaged = disk.after_kill();
            damaged.put(name, &older);
            damaged.put("catalog.old", b"not a catalog");
            match missing {
                true => damaged.remove("catalog").unwrap(),
                false => damage(&damaged, "catalog", |bytes| bytes[100] ^= 1),
            }
            let (report, _, store) = repaired(&damaged, name);
            assert_eq!(contents(&store).unwrap(), *states.last().unwrap(), "{name}");
            let [DatabaseLoss::Catalog { used, version, .. }] = &report.losses[..] else {
                panic!("{}", texts(&report))
            };
            assert_eq!((used, *version), (&damaged.path(name), states.len() as u64 - 1));
        }
    }
    damage(&disk, "catalog", |bytes| bytes[100] ^= 1);
    let (before, to) = (disk.files(), SimulatedDisk::new());
    let error = repair_on(Arc::new(disk.clone()), Arc::new(to.clone())).unwrap_err();
    assert!(matches!(error, RepairError::NoCatalog { .. }), "{error}");
    assert!(error.to_string().starts_with("nothing can be salvaged without a catalog"), "{error}");
    assert!(disk.files() == before && to.files().is_empty());
}

/// Plans rely on keys, so keys that no longer hold are dropped.
#[test]
fn constraints_are_kept_where_they_hold() {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    let key = UniqueKey { name: "key".into(), columns: vec![ColumnIndex(0)], is_primary: true, is_index: false };
    let foreign = |table, name: &str| ForeignKey {
        name: name.into(),
        columns: vec![ColumnIndex(0)],
        table,
        referenced: vec![ColumnIndex(0)],
        on_delete: ReferentialAction::NoAction,
    };
    let created = store.commit::<_, CommitError>(|edit| {
        let parent = edit.create_table("parent", schema(), design("column"))?;
        edit.set_constraints(parent, Constraints { keys: vec![key.clone()], ..Constraints::default() })?;
        for name in ["first", "second"] {
            let child = edit.create_table(name, schema(), design("column"))?;
            let constraints = Constraints { foreign_keys: vec![foreign(parent, name)], ..Constraints::default() };
            edit.set_constraints(child, constraints)?;
            let mut of_parent = edit.catalog().table_of(parent).unwrap().constraints.as_ref().clone();
            of_parent.referenced_by.insert(child);
            edit.set_constraints(parent, of_parent)?;
        }
        Ok(parent)
    });
    created.unwrap();
    let blocks = vec![write(&store, &[1, 2], "column").unwrap(), write(&store, &[3], "column").unwrap()];
    append(&store, "parent", blocks).unwrap();
    append(&store, "first", vec![write(&store, &[1], "column").unwrap()]).unwrap();
    change_rows(&store, "first", &[2], &[]).unwrap();
    append(&store, "second", vec![write(&store, &[2, 3], "column").unwrap()]).unwrap();
    drop(store);
    let constraints = |store: &Store| -> BTreeMap<String, Vec<String>> {
        let snapshot = store.snapshot();
        let names = |table: &Arc<taut_store::Table>| table.constraints.names().map(str::to_owned).collect();
        snapshot.tables().map(|table| (table.name.clone(), names(table))).collect()
    };
    let expected = |first: &[&str], second: &[&str]| -> BTreeMap<String, Vec<String>> {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        [("parent", list(&["key"])), ("first", list(first)), ("second", list(second))]
            .into_iter()
            .map(|(name, list)| (name.to_owned(), list))
            .collect()
    };
    let (report, _, store) = repaired(&disk, "whole");
    assert!(report.is_complete());
    assert_eq!(constraints(&store), expected(&["first"], &["second"]));
    let block = names(&disk, "blocks/", "").remove(1);
    disk.remove(&block).unwrap();
    let (report, _, store) = repaired(&disk, "a row of the parent is lost");
    assert_eq!(constraints(&store), expected(&["first"], &[]), "{}", texts(&report));
    assert_eq!(store.snapshot().table("parent").unwrap().constraints.referenced_by.len(), 1);
    assert!(texts(&report).contains("constraint \"second\" is dropped: rows that it references are lost"));
}

/// Without the delta, deleted rows reappear.
#[test]
fn a_key_that_deleted_rows_violate_is_dropped() {
    for violated in [false, true] {
        let disk = SimulatedDisk::new();
        let store = open(&disk).unwrap();
        create_table(&store, "t").unwrap();
        let table = store.snapshot().table("t").unwrap().id;
        let key = UniqueKey { name: "key".into(), columns: vec![ColumnIndex(0)], is_primary: true, is_index: false };
        let constraints = Constraints { keys: vec![key], ..Constraints::default() };
        store.commit::<_, CommitError>(|edit| edit.set_constraints(table, constraints)).unwrap();
        append(&store, "t", vec![write(&store, &[1, 2], "column").unwrap()]).unwrap();
        change_rows(&store, "t", &[], &[2]).unwrap();
        append(&store, "t", vec![write(&store, &[if violated { 2 } else { 3 }], "column").unwrap()]).unwrap();
        drop(store);
        disk.remove(&names(&disk, "log/", ".delta")[0]).unwrap();
        let (report, _, store) = repaired(&disk, "without its delta");
        let snapshot = store.snapshot();
        assert_eq!(snapshot.table("t").unwrap().rows(), 3);
        assert_eq!(snapshot.table("t").unwrap().constraints.keys.is_empty(), violated, "{}", texts(&report));
        assert_eq!(texts(&report).contains("constraint \"key\" is dropped"), violated, "{}", texts(&report));
    }
}

/// Damages several files at random. Nothing panics, all salvaged rows existed, and losses are reported.
#[test]
fn random_damage_of_several_files_is_survived() {
    let seeds = taut_testkit::number_from_environment("TAUT_REPAIR_SEEDS").unwrap_or(600);
    let samples = samples_in_every_end_state();
    let (mut whole, mut partial, mut nothing) = (0, 0, 0);
    for seed in 0..seeds {
        let mut random = taut_testkit::Random(seed);
        let (end_state, disk, states) = &samples[random.below(samples.len())];
        let damaged = disk.after_kill();
        let mut context = format!("seed {seed}, {end_state}");
        for _ in 0..=random.below(3) {
            let names: Vec<String> = damaged.files().into_keys().filter(|name| name != "lock").collect();
            // The catalog is damaged less often, because nothing can be salvaged without it.
            let name = random.pick(&names).clone();
            let kind = random.below(4);
            context += &format!(", {name} by {kind}");
            let length = damaged.files()[&name].len();
            match kind {
                _ if name == "catalog" && random.below(3) > 0 => {}
                0 => damaged.remove(&name).unwrap(),
                1 => damage(&damaged, &name, |bytes| bytes.truncate(random.below(length + 1))),
                2 => damage(&damaged, &name, |bytes| bytes.extend((0..random.below(100)).map(|byte| byte as u8))),
                _ if length == 0 => {}
                _ => damage(&damaged, &name, |bytes| bytes[random.below(length)] ^= 1 << random.below(8)),
            }
        }
        let (before, to) = (damaged.files(), SimulatedDisk::new());
        let report = match repair_on(Arc::new(damaged.clone()), Arc::new(to.clone())) {
            Ok(report) => report,
            Err(RepairError::NoCatalog { .. }) => {
                nothing += 1;
                continue;
            }
            Err(error) => panic!("{context}: {error}"),
        };
        assert!(damaged.files() == before, "{context}");
        let store = open(&to).unwrap_or_else(|error| panic!("{context}, repaired: {error}"));
        assert_tidy(&store, &to, &context);
        let found = contents(&store).unwrap_or_else(|error| panic!("{context}: {error}"));
        for (name, rows) in &found {
            let ever =
                |value: &i64| states.iter().any(|state| state.get(name).is_some_and(|rows| rows.contains(value)));
            assert!(rows.iter().all(ever), "{context}: rows of {name} that never existed");
        }
        match report.is_complete() {
            true => {
                // A torn tail of the log contains no complete commit, so it does not count as a loss.
                let version = store.snapshot().version() as usize;
                assert_eq!(found, states[version], "{context}");
                whole += 1;
            }
            false => partial += 1,
        }
    }
    assert!(partial > whole && whole > 10 && nothing > 10, "{whole} {partial} {nothing}");
}
