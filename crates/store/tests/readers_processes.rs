//! Readers and writers of real files in several threads and processes, and readers whose files fail or are replaced.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::{
    READ_ONLY, append, assert_tidy, check, check_snapshot, contents, create_table, open, read, versioned_step, write,
};
use taut_store::disk::{Fault, SimulatedDisk};
use taut_store::{OpenError, OpenOptions, Problem, Store, verify};

/// A state that a reader saw after the writer was killed survives a power loss.
#[test]
fn what_a_reader_saw_is_durable() {
    for seed in 0..40 {
        let disk = SimulatedDisk::new();
        let writer = open(&disk).unwrap();
        create_table(&writer, "t").unwrap();
        for row in 0..4 {
            let transaction = writer.begin();
            common::change_in(&transaction, "t", &[row], &[]).unwrap();
            transaction.commit(taut_store::Synchronous::Normal).unwrap();
        }
        let killed = disk.after_kill();
        let reader = read(&killed).unwrap();
        let seen = contents(&reader).unwrap();
        assert_eq!(seen["t"], [0, 1, 2, 3]);
        assert_eq!(contents(&open(&killed.after_power_loss(seed)).unwrap()).unwrap(), seen, "seed {seed}");
    }
}

#[test]
fn a_replaced_directory_is_detected() {
    let root = tempfile::tempdir().unwrap();
    let (path, moved) = (root.path().join("a.taut"), root.path().join("b.taut"));
    let create = OpenOptions { create: true, ..OpenOptions::default() };
    let writer = Store::open(&path, create).unwrap();
    versioned_step(&writer).unwrap();
    let reader = Store::open(&path, READ_ONLY).unwrap();
    std::fs::rename(&path, &moved).unwrap();
    assert!(matches!(reader.refresh(), Err(OpenError::Missing { .. })));
    drop(Store::open(&path, create).unwrap());
    assert!(matches!(reader.refresh(), Err(OpenError::Replaced { .. })));
    let damages = verify(&reader);
    assert!(matches!(&damages[..], [damage] if matches!(damage.problem, Problem::OtherDatabase)), "{damages:?}");
    assert!(damages[0].to_string().ends_with("catalog belongs to another database"), "{}", damages[0]);
    assert_eq!(check_snapshot(&reader.snapshot(), "as before"), 1);
}

#[test]
fn readers_and_a_writer_share_real_files() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a.taut");
    let writer = Store::open(&path, OpenOptions { create: true, ..OpenOptions::default() }).unwrap();
    (0..3).for_each(|_| versioned_step(&writer).unwrap());
    let error = Store::open(&path, OpenOptions::default()).unwrap_err();
    assert!(error.to_string().ends_with("; it can be opened read-only"), "{error}");
    let readers: Vec<Store> = (0..20).map(|_| Store::open(&path, READ_ONLY).unwrap()).collect();
    for _ in 0..10 {
        versioned_step(&writer).unwrap();
        writer.checkpoint().unwrap();
    }
    for reader in &readers {
        assert_eq!(check(reader, "on real files"), 3);
    }
    let entries = |name: &str| std::fs::read_dir(path.join(name)).unwrap().count();
    assert_eq!(entries("readers"), 20);
    assert!(entries("blocks") > 1 && verify(&writer).is_empty());
    readers[0].refresh().unwrap();
    assert_eq!(check(&readers[0], "refreshed"), 13);
    drop(readers);
    assert_eq!(entries("readers"), 0);
    writer.checkpoint().unwrap();
    assert_eq!(entries("blocks"), 1);
}

#[test]
fn readers_open_and_refresh_while_a_writer_thread_commits() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a.taut");
    let writer = Store::open(&path, OpenOptions { create: true, ..OpenOptions::default() }).unwrap();
    versioned_step(&writer).unwrap();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    let mut seen = BTreeMap::new();
    std::thread::scope(|scope| {
        let read = || {
            let (mut versions, mut opened) = (Vec::new(), 0);
            while !is_done.load(Ordering::Relaxed) {
                let reader = Store::open(&path, READ_ONLY).unwrap();
                opened += 1;
                for _ in 0..3 {
                    versions.push(check(&reader, "while others write"));
                    reader.refresh().unwrap();
                }
            }
            assert!(versions.is_sorted());
            (versions, opened)
        };
        let readers: Vec<_> = (0..2).map(|_| scope.spawn(read)).collect();
        let write = || {
            for number in 0..150 {
                versioned_step(&writer).unwrap();
                if number % 5 == 0 {
                    writer.checkpoint().unwrap();
                }
            }
        };
        let written = scope.spawn(write).join();
        is_done.store(true, Ordering::Relaxed);
        written.unwrap();
        for reader in readers {
            let (versions, opened) = reader.join().unwrap();
            assert!(opened > 1);
            versions.into_iter().for_each(|version| *seen.entry(version).or_insert(0) += 1);
        }
    });
    assert!(seen.len() > 3, "{seen:?}");
    writer.checkpoint().unwrap();
    let blocks = std::fs::read_dir(path.join("blocks")).unwrap().count();
    assert_eq!(blocks, 1);
}

const DATABASE_OF_CHILD: &str = "TAUT_TEST_READ_DATABASE";

/// Not a test: the next test runs it in another process.
#[test]
fn child_reads_the_database() {
    use std::io::BufRead;
    let Some(path) = std::env::var_os(DATABASE_OF_CHILD) else { return };
    let reader = Store::open(PathBuf::from(path), READ_ONLY).unwrap();
    let mut output = io::stdout().lock();
    io::Write::write_all(&mut output, b"\nopen\n").unwrap();
    for line in io::stdin().lock().lines() {
        if line.unwrap() == "refresh" {
            reader.refresh().unwrap();
        }
        let version = check(&reader, "in the other process");
        io::Write::write_all(&mut output, format!("version {version}\n").as_bytes()).unwrap();
    }
}

#[test]
fn another_process_reads_until_it_is_killed() {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};
    let root = tempfile::tempdir().unwrap();
    let writer = Store::open(root.path(), OpenOptions { create: true, ..OpenOptions::default() }).unwrap();
    (0..3).for_each(|_| versioned_step(&writer).unwrap());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_reads_the_database", "--nocapture"])
        .env(DATABASE_OF_CHILD, root.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "open"));
    let mut ask = |what: &str| {
        writeln!(input, "{what}").unwrap();
        lines.next().unwrap()
    };
    assert_eq!(ask("read"), "version 3");
    for _ in 0..5 {
        versioned_step(&writer).unwrap();
        writer.checkpoint().unwrap();
    }
    assert_eq!(ask("read"), "version 3");
    assert_eq!(ask("refresh"), "version 8");
    let entries = |name: &str| std::fs::read_dir(root.path().join(name)).unwrap().count();
    for _ in 0..5 {
        versioned_step(&writer).unwrap();
        writer.checkpoint().unwrap();
    }
    assert_eq!(ask("read"), "version 8");
    assert!(entries("blocks") > 1 && entries("readers") == 1);
    child.kill().unwrap();
    child.wait().unwrap();
    writer.checkpoint().unwrap();
    assert_eq!((entries("blocks"), entries("readers")), (1, 0));
}

#[test]
fn a_refresh_after_an_append_reuses_the_open_blocks() {
    let disk = SimulatedDisk::new();
    let writer = open(&disk).unwrap();
    create_table(&writer, "t").unwrap();
    append(&writer, "t", vec![write(&writer, &[1, 2], "column").unwrap()]).unwrap();
    let reader = read(&disk).unwrap();
    let first = Arc::clone(&reader.snapshot().table("t").unwrap().blocks[0]);
    append(&writer, "t", vec![write(&writer, &[3], "row").unwrap()]).unwrap();
    reader.refresh().unwrap();
    assert_eq!(contents(&reader).unwrap()["t"], [1, 2, 3]);
    // The new snapshot reuses the open block of the earlier one.
    assert!(Arc::ptr_eq(&first, &reader.snapshot().table("t").unwrap().blocks[0]));
}

/// If a read or a change of a reader fails, the reader keeps its state and can retry. A writer that cannot list the
/// readers removes nothing.
#[test]
fn failures_of_readers_and_of_reading_registrations_lose_nothing() {
    for (refreshes, of_reads) in [(false, false), (false, true), (true, false), (true, true)] {
        for at in 0.. {
            let disk = SimulatedDisk::new();
            let writer = open(&disk).unwrap();
            (0..4).for_each(|_| versioned_step(&writer).unwrap());
            let reader = read(&disk).unwrap();
            (0..3).for_each(|_| versioned_step(&writer).unwrap());
            disk.set_fault(Some(if of_reads { Fault::FailReadAt(at) } else { Fault::FailAt(at) }));
            let result = if refreshes { reader.refresh().map(drop) } else { read(&disk).map(drop) };
            let had_fault = if of_reads { disk.reads() > at } else { disk.changes().len() as u64 > at };
            disk.set_fault(None);
            let context = format!("refreshes: {refreshes}, failure {at}, of reads: {of_reads}: {result:?}");
            let expected = if refreshes && result.is_ok() { 7 } else { 4 };
            assert_eq!(check(&reader, &context), expected, "{context}");
            (0..3).for_each(|_| versioned_step(&writer).unwrap());
            writer.checkpoint().unwrap();
            assert_eq!(check(&reader, &context), expected, "{context}");
            reader.refresh().unwrap();
            assert_eq!(check(&reader, &context), 10, "{context}");
            drop(reader);
            writer.checkpoint().unwrap();
            assert_tidy(&writer, &disk, &context);
            if !had_fault {
                break;
            }
        }
    }
    for at in 0.. {
        let disk = SimulatedDisk::new();
        let writer = open(&disk).unwrap();
        (0..4).for_each(|_| versioned_step(&writer).unwrap());
        let reader = read(&disk).unwrap();
        disk.set_fault(Some(Fault::FailReadAt(at)));
        let done = (0..3).all(|_| versioned_step(&writer).is_ok()) && writer.checkpoint().is_ok();
        let had_fault = disk.reads() > at;
        disk.set_fault(None);
        assert_eq!(check(&reader, &format!("failure {at}, done: {done}")), 4);
        if !had_fault {
            assert!(done && at > 2, "{at}");
            break;
        }
    }
}
