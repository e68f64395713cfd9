//! `taut sql` sorts data larger than memory and copies it over a file. In each round, a signal ends the process midway.
//! The file must then be one complete copy, no spill file may be left, and the database must open.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this file is a test")]

mod common;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use common::{command, csv, scratch, taut};

/// Number of rounds for each signal. Environment variable `KILL_ROUNDS` overrides it.
const ROUNDS: u64 = 2;
/// Number of rows of a copy.
const ROWS: usize = 200_000;
/// Number of copies that a process receives.
const COPIES: u64 = 20;
/// Maximum time that a process runs after it begins to spill.
const LIFETIME_MAX_MILLISECONDS: u64 = 400;
/// Interval and maximum number of checks for spilling, together half a minute.
const CHECK_INTERVAL: Duration = Duration::from_millis(2);
const CHECKS_MAX: usize = 15_000;

/// Whether a process has an open file in a directory. Spill files have no name, so `/proc` shows them and the directory
/// does not.
fn has_open(process: u32, directory: &Path) -> bool {
    let Ok(files) = std::fs::read_dir(format!("/proc/{process}/fd")) else { return false };
    files.flatten().any(|file| std::fs::read_link(file.path()).is_ok_and(|target| target.starts_with(directory)))
}

/// Names of the hidden directories into which `COPY` writes.
fn staging_directories(directory: &Path) -> Vec<String> {
    let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(".taut-copy-")).collect()
}

/// Version of a copy. Panics if the copy is incomplete.
fn version_of(copied: &str) -> u64 {
    let mut lines = copied.lines();
    assert_eq!(lines.next(), Some("version,i,t"));
    let versions: Vec<&str> = lines.map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(versions.len(), ROWS, "rows of a copy");
    assert!(versions.iter().all(|version| *version == versions[0]), "rows of two copies");
    versions[0].parse().unwrap()
}

#[test]
fn copies_are_whole_and_no_spill_file_is_left_after_a_signal() {
    let (directory, database) = scratch();
    let rows =
        format!("SELECT i, 'text of row number ' || i * 7919 % 100003 AS t FROM generate_series(1, {ROWS}) AS g(i)");
    csv(&database, &format!("CREATE TABLE big AS {rows}"));
    let spills = directory.path().join("spills");
    std::fs::create_dir(&spills).unwrap();
    let target = directory.path().join("copy.csv");
    let seed = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let rounds = 4 * std::env::var("KILL_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let (mut last, mut spilled) = (None, 0);
    for round in 0..rounds {
        let signal = ["KILL", "TERM", "HUP", "INT"][(round % 4) as usize];
        let context = format!("seed {seed}, round {round}, {signal}");
        let mut script = format!("SET temp_directory = '{}';\n", spills.display());
        for copy in 0..COPIES {
            let version = round * COPIES + copy;
            script += &format!(
                "COPY (SELECT {version} AS version, i, t FROM big ORDER BY t, i) TO '{}' (FORMAT csv, HEADER);\n",
                target.display()
            );
        }
        let mut child = command(&["sql", &database, "--threads", "2", "--memory", "24MiB"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || input.write_all(script.as_bytes()).is_ok());
        let spills_now = (0..CHECKS_MAX).any(|_| {
            std::thread::sleep(CHECK_INTERVAL);
            has_open(child.id(), &spills) || child.try_wait().unwrap().is_some()
        });
        spilled += u64::from(spills_now && child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis((seed ^ round.wrapping_mul(7919)) % LIFETIME_MAX_MILLISECONDS));
        let sent = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
        child.wait().unwrap();
        writer.join().unwrap();
        assert!(sent.success() || child.try_wait().unwrap().is_some(), "{context}");
        let left: Vec<_> = std::fs::read_dir(&spills).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert!(left.is_empty(), "{context}: {left:?}");
        let version = target.exists().then(|| version_of(&std::fs::read_to_string(&target).unwrap()));
        assert!(version >= last, "{context}: the file has version {version:?} and had {last:?}");
        last = version;
        let staged = staging_directories(directory.path());
        assert!(staged.len() <= 1, "{context}: {staged:?}");
        taut(&["verify", &database]).succeeds();
    }
    csv(&database, &format!("COPY (SELECT 1 AS one) TO '{}'", directory.path().join("one.csv").display()));
    assert_eq!(staging_directories(directory.path()), [""; 0], "a copy removes what a killed process left");
    assert!(spilled > rounds / 2, "only {spilled} of {rounds} processes were seen to spill");
    assert_eq!(csv(&database, "SELECT count(*) FROM big"), format!("count(*)\n{ROWS}\n"));
}
