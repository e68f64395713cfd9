//! Databases with a damaged file return an error or the right rows. They never return wrong rows, and never panic.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "all of this file is a test")]

use std::fs;
use std::path::{Path, PathBuf};

use taut::{Database, Settings};
use tempfile::TempDir;

const ROWS: usize = 300;
const LAYOUTS: [(&str, &str); 4] = [
    ("slotted", "layout = 'row'"),
    ("packed", "layout = 'packed_row', sort_by = 'id'"),
    ("columns", "layout = 'column'"),
    ("grouped", "groups = '(id, n), (s), (d, f)'"),
];
/// Maximum number of flipped bytes per file: all bytes of a short file, evenly spaced bytes of a long one.
const FLIPS_MAX: usize = 250;

fn open(path: &Path) -> Result<Database, taut::Error> {
    Database::open_with(path, &Settings { threads: 1, create: false, ..Settings::default() })
}

/// Creates a database with a table in every layout, a dropped table and a view.
fn make(path: &Path) {
    let database = Database::open(path).unwrap();
    let session = database.session();
    for (table, design) in LAYOUTS {
        let sql = format!(
            "CREATE TABLE {table} WITH ({design}) AS
             SELECT i AS id, CASE WHEN i % 7 = 0 THEN NULL ELSE i * 0.25 END AS n, 'word ' || i % 50 AS s,
                    DATE '2020-01-01' + CAST(i % 100 AS int) AS d, i * 1.5e0 AS f
             FROM generate_series(1, {ROWS}) AS g(i)"
        );
        session.execute(&sql).unwrap();
    }
    session
        .execute("CREATE TABLE gone AS SELECT 1 AS a; DROP TABLE gone; CREATE VIEW v AS SELECT id FROM packed")
        .unwrap();
}

/// Result of a query as text, or the error of any part of it.
fn answer(database: &Database, sql: &str) -> Result<String, taut::Error> {
    let batches = database.session().query(sql)?.collect::<Result<Vec<_>, _>>()?;
    let rows: usize = batches.iter().map(|batch| batch.num_rows()).sum();
    Ok(format!("{rows} rows: {batches:?}"))
}

fn queries() -> Vec<String> {
    let whole = LAYOUTS.map(|(table, _)| format!("SELECT * FROM {table} ORDER BY id"));
    let some = LAYOUTS.map(|(table, _)| {
        format!("SELECT count(*), min(s), max(n) FROM {table} WHERE d < DATE '2020-02-01' AND n > 5")
    });
    whole.into_iter().chain(some).collect()
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// Counts of damaged databases: all, those that opened, and those with right answers to all queries.
#[derive(Debug, Default)]
struct Tally {
    tried: usize,
    opened: usize,
    right: usize,
}

struct Fixture {
    directory: TempDir,
    expected: Vec<String>,
    tally: Tally,
}

impl Fixture {
    fn new() -> Self {
        let directory = TempDir::with_prefix("taut-damage-").unwrap();
        make(&directory.path().join("database"));
        let database = open(&directory.path().join("database")).unwrap();
        let expected = queries().iter().map(|sql| answer(&database, sql).unwrap()).collect();
        Self { directory, expected, tally: Tally::default() }
    }

    fn database(&self) -> PathBuf {
        self.directory.path().join("database")
    }

    /// Opens the database and runs all queries. Each must fail or return the expected rows.
    fn ask(&mut self, damage: &str) {
        self.tally.tried += 1;
        let database = match open(&self.database()) {
            Ok(database) => database,
            Err(error) => return assert!(!error.to_string().is_empty()),
        };
        self.tally.opened += 1;
        let mut all_right = true;
        for (sql, expected) in queries().iter().zip(&self.expected) {
            match answer(&database, sql) {
                Ok(found) => assert_eq!(&found, expected, "{damage}: other rows from {sql}"),
                Err(error) => {
                    all_right = false;
                    assert!(!error.to_string().is_empty());
                }
            }
        }
        self.tally.right += usize::from(all_right);
    }

    /// Runs [`Self::ask`] with other content in one file, and then restores the file.
    fn with_content(&mut self, path: &Path, content: &[u8], damage: &str) {
        let right = fs::read(path).unwrap();
        fs::write(path, content).unwrap();
        self.ask(damage);
        fs::write(path, right).unwrap();
    }
}

#[test]
fn a_flipped_byte_changes_no_answer() {
    let mut fixture = Fixture::new();
    for path in files(&fixture.database()) {
        let content = fs::read(&path).unwrap();
        let step = content.len().div_ceil(FLIPS_MAX).max(1);
        for place in (0..content.len()).step_by(step) {
            let mut flipped = content.clone();
            flipped[place] ^= 1 << (place % 8);
            fixture.with_content(&path, &flipped, &format!("{} with byte {place} flipped", path.display()));
        }
    }
    println!("{:?}", fixture.tally);
    assert!(fixture.tally.tried > 500 && fixture.tally.right < fixture.tally.tried, "{:?}", fixture.tally);
}

#[test]
fn a_truncated_file_changes_no_answer() {
    let mut fixture = Fixture::new();
    for path in files(&fixture.database()) {
        let content = fs::read(&path).unwrap();
        let step = content.len().div_ceil(20).max(1);
        for length in (0..content.len()).step_by(step).chain(content.len().checked_sub(1)) {
            fixture.with_content(&path, &content[..length], &format!("{} cut at {length}", path.display()));
        }
        let mut longer = content.clone();
        longer.extend_from_slice(&[0; 100]);
        fixture.with_content(&path, &longer, &format!("{} with zeros behind", path.display()));
    }
    println!("{:?}", fixture.tally);
}

#[test]
fn a_missing_file_is_named() {
    let mut fixture = Fixture::new();
    for path in files(&fixture.database()) {
        let content = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fixture.ask(&format!("{} missing", path.display()));
        fs::write(&path, content).unwrap();
    }
    let blocks = fixture.database().join("blocks");
    let block = files(&blocks).pop().unwrap();
    let name = block.file_name().unwrap().to_string_lossy().into_owned();
    let moved = fixture.directory.path().join("aside");
    fs::rename(&block, &moved).unwrap();
    let message = match open(&fixture.database()) {
        Err(error) => error.to_string(),
        Ok(database) => {
            let errors = queries().into_iter().filter_map(|sql| answer(&database, &sql).err());
            errors.map(|error| error.to_string()).collect::<Vec<_>>().join("\n")
        }
    };
    assert!(message.contains(name.trim_end_matches(".block")), "{name} is not named in: {message}");
}

#[test]
fn foreign_files_are_left_alone() {
    let mut fixture = Fixture::new();
    let foreign = [fixture.database().join("notes.txt"), fixture.database().join("blocks").join("foreign.block")];
    for path in &foreign {
        fs::write(path, "not one of ours").unwrap();
    }
    fs::create_dir(fixture.database().join("blocks").join("folder")).unwrap();
    fixture.ask("foreign files");
    assert_eq!(fixture.tally.right, 1);
    assert_eq!(fs::read_to_string(&foreign[0]).unwrap(), "not one of ours");
}

#[test]
fn swapped_block_files_change_no_answer() {
    let mut fixture = Fixture::new();
    let blocks = files(&fixture.database().join("blocks"));
    for pair in blocks.windows(2) {
        let contents = [fs::read(&pair[0]).unwrap(), fs::read(&pair[1]).unwrap()];
        fs::write(&pair[1], &contents[0]).unwrap();
        fixture.with_content(&pair[0], &contents[1], "two blocks swapped");
        fs::write(&pair[1], &contents[1]).unwrap();
    }
    println!("{:?}", fixture.tally);
}

#[test]
fn a_database_opens_once_and_closes_with_its_last_session() {
    let fixture = Fixture::new();
    let first = open(&fixture.database()).unwrap();
    let error = open(&fixture.database()).unwrap_err().to_string();
    assert!(error.contains("open") || error.contains("lock") || error.contains("use"), "{error}");
    let session = first.session();
    drop(first);
    assert!(open(&fixture.database()).is_err(), "a session keeps its database open");
    drop(session);
    open(&fixture.database()).unwrap();
}
