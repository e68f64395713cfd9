//! Kills `taut sql` repeatedly while it works. Every reported commit must be stored, and no transaction may be stored
//! in part.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this file is a test")]

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use common::{command, csv, scratch, taut};

/// Number of rounds. Each round ends with a kill. Environment variable `KILL_ROUNDS` overrides it.
const ROUNDS: u64 = 8;
/// Maximum lifetime of a process.
const LIFETIME_MAX: Duration = Duration::from_millis(700);
/// Maximum number of transactions that a process receives.
const TRANSACTIONS_MAX: u64 = 5_000;
/// Smallest key of bulk loads. A later transaction deletes these rows.
const LOADED: i64 = 1_000_000;

type Rows = BTreeMap<i64, i64>;

/// Hash of a number and a salt.
fn hash(number: u64, salt: u64) -> u64 {
    let product = (number ^ salt << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (product ^ (product >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 8
}

/// Statements of the transaction with this number. Also applies its changes to `rows`.
fn changes(number: u64, rows: &mut Rows) -> String {
    let (key, value) = ((hash(number, 1) % 200) as i64, (hash(number, 2) % 1_000_000) as i64);
    let loaded = LOADED + (number % 1_000) as i64 * 10_000;
    match hash(number, 3) % 16 {
        0..6 => {
            rows.insert(key, value);
            format!("INSERT INTO t VALUES ({key}, {value}) ON CONFLICT (k) DO UPDATE SET v = excluded.v;\n")
        }
        6..9 => {
            rows.remove(&key);
            format!("DELETE FROM t WHERE k = {key};\n")
        }
        9..14 => {
            rows.range_mut(key..=key + 20).for_each(|(_, known)| *known += value);
            format!("UPDATE t SET v = v + {value} WHERE k BETWEEN {key} AND {};\n", key + 20)
        }
        14 => {
            rows.retain(|key, _| *key < LOADED);
            rows.extend((loaded..loaded + 6_000).map(|key| (key, value)));
            format!(
                "DELETE FROM t WHERE k >= {LOADED};\n\
                 INSERT INTO t SELECT i, {value} FROM generate_series({loaded}, {}) AS s(i);\n",
                loaded + 5_999
            )
        }
        _ => {
            rows.retain(|key, _| *key < LOADED);
            format!("DELETE FROM t WHERE k >= {LOADED};\n")
        }
    }
}

/// Input of a process for one transaction: its changes and its number, and sometimes a maintenance statement before it.
fn statements(number: u64, rows: &mut Rows) -> String {
    let maintenance = match hash(number, 4) % 40 {
        0 => "CHECKPOINT;\n",
        1 => "VACUUM t;\n",
        2 => "VACUUM FULL t;\n",
        3 => "ALTER TABLE t SET (layout = 'row');\n",
        4 => "ALTER TABLE t SET (layout = 'column');\n",
        5 => "DROP INDEX IF EXISTS by_value; CREATE INDEX by_value ON t (v);\n",
        _ => "",
    };
    let changes = changes(number, rows);
    format!("{maintenance}BEGIN;\n{changes}UPDATE progress SET number = {number};\nCOMMIT;\n")
}

#[test]
fn committed_changes_survive_a_kill() {
    let (_directory, database) = scratch();
    csv(
        &database,
        "CREATE TABLE t (k bigint PRIMARY KEY, v bigint) WITH (sort_by = 'k'); CREATE TABLE progress (number bigint); \
         INSERT INTO progress VALUES (0)",
    );
    let seed = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let rounds = std::env::var("KILL_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let (mut rows, mut number) = (Rows::new(), 0);
    for round in 0..rounds {
        let mut child = command(&["sql", &database]).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut planned = rows.clone();
        let writer = std::thread::spawn(move || {
            // Writing fails once the process is gone.
            (number + 1..=number + TRANSACTIONS_MAX)
                .take_while(|number| input.write_all(statements(*number, &mut planned).as_bytes()).is_ok())
                .count()
        });
        let reader = std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).filter(|line| line == "(COMMIT)").count() as u64
        });
        std::thread::sleep(LIFETIME_MAX.mul_f64((hash(round, seed) % 1_000) as f64 / 1_000.0));
        // No statement of the input fails, so a process that has ended before the kill has succeeded.
        assert!(child.try_wait().unwrap().is_none_or(|status| status.success()), "seed {seed}, round {round}");
        child.kill().unwrap();
        child.wait().unwrap();
        let reported = reader.join().unwrap();
        writer.join().unwrap();
        let context = format!("seed {seed}, round {round}: {reported} commits reported after commit {number}");
        let found = csv(&database, "SELECT number FROM progress");
        let found: u64 = found.lines().nth(1).unwrap().parse().unwrap();
        assert!((number + reported..=number + reported + 1).contains(&found), "{context}; stored: {found}");
        for number in number + 1..=found {
            changes(number, &mut rows);
        }
        number = found;
        let expected: String = rows.iter().map(|(key, value)| format!("{key},{value}\n")).collect();
        let found = csv(&database, "SELECT k, v FROM t ORDER BY k");
        assert!(found.split_once('\n').unwrap().1 == expected, "{context}: rows differ");
        taut(&["verify", &database]).succeeds();
    }
    assert!(number > rounds, "{number} commits in {rounds} rounds");
}
