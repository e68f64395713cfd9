//! `COPY ... TO` replaces a file only after the copy has succeeded.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this file is a test")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use taut::{Database, Session};
use taut_tests::run_and_cancel;

const FORMATS: [&str; 3] = ["parquet", "csv", "json"];

fn session() -> Session {
    let session = Database::in_memory().unwrap().session();
    session.execute("CREATE TABLE t AS SELECT i FROM generate_series(1, 200000) AS g(i)").unwrap();
    session
}

fn files(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

fn run(session: &Session, sql: &str) -> Result<(), taut::Error> {
    session.execute(sql).map(drop)
}

#[test]
fn a_copy_that_fails_leaves_the_file_that_was_there() {
    let session = session();
    for explain in ["", "EXPLAIN ANALYZE "] {
        for format in FORMATS {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join(format!("rows.{format}"));
            fs::write(&path, "precious").unwrap();
            let sql = format!("{explain}COPY (SELECT i, 10 / (i - 150000) AS d FROM t) TO '{}'", path.display());
            let error = run(&session, &sql).unwrap_err();
            assert_eq!(error.sqlstate(), "22012", "{sql}: {error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), "precious", "{sql}");
            assert_eq!(files(directory.path()), [format!("rows.{format}")], "{sql}");
        }
    }
}

#[test]
fn a_copy_that_is_cancelled_leaves_the_file_that_was_there() {
    let session = session();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rows.csv");
    fs::write(&path, "precious").unwrap();
    let sql = format!("COPY (SELECT i FROM generate_series(1, 1000000000) AS g(i)) TO '{}'", path.display());
    let error = run_and_cancel(&session, Duration::from_millis(300), || run(&session, &sql)).unwrap_err();
    assert!(error.is_cancelled(), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn a_copy_replaces_a_file_whole_even_one_that_it_reads() {
    let session = session();
    for format in FORMATS {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(format!("rows.{format}"));
        let path = path.to_str().unwrap();
        run(&session, &format!("COPY (SELECT i FROM t WHERE i <= 1000) TO '{path}'")).unwrap();
        run(&session, &format!("COPY (SELECT i FROM '{path}' WHERE i <= 10) TO '{path}'")).unwrap();
        run(&session, &format!("CREATE TABLE c AS SELECT count(*) AS n FROM '{path}'")).unwrap();
        // The check fails unless the file has ten rows.
        run(&session, "CREATE TABLE one (n bigint CHECK (n = 10))").unwrap();
        run(&session, "INSERT INTO one SELECT n FROM c").unwrap();
        run(&session, "DROP TABLE c").unwrap();
        run(&session, "DROP TABLE one").unwrap();
        assert_eq!(files(directory.path()), [format!("rows.{format}")]);
    }
}

#[cfg(unix)]
#[test]
fn a_copy_keeps_links_and_permissions() {
    use std::os::unix::fs::{PermissionsExt, symlink};

    let session = session();
    let directory = tempfile::tempdir().unwrap();
    let (file, link) = (directory.path().join("file.csv"), directory.path().join("link.csv"));
    fs::write(&file, "old").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    symlink(&file, &link).unwrap();
    run(&session, &format!("COPY (SELECT 1 AS a) TO '{}'", link.display())).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "a\n1\n");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[cfg(target_os = "linux")]
#[test]
fn a_copy_removes_what_a_killed_process_left_and_nothing_else() {
    let session = session();
    let directory = tempfile::tempdir().unwrap();
    let staging = |name: &str| {
        let staging = directory.path().join(name);
        fs::create_dir(&staging).unwrap();
        fs::write(staging.join("rows.csv"), "half").unwrap();
        staging
    };
    // The first directory is left from a killed process. The second one is locked by a running process. The last two
    // are not named `.taut-copy-<process>-<number>`.
    staging(".taut-copy-4711-0");
    let held = staging(".taut-copy-4712-0");
    staging(".taut-copy-backup");
    staging(".taut-copy-1-2-3");
    let lock = fs::File::open(&held).unwrap();
    lock.lock().unwrap();
    let path = directory.path().join("rows.csv");
    run(&session, &format!("COPY (SELECT 1 AS a) TO '{}'", path.display())).unwrap();
    assert_eq!(files(directory.path()), [".taut-copy-1-2-3", ".taut-copy-4712-0", ".taut-copy-backup", "rows.csv"]);
    assert_eq!(fs::read_to_string(held.join("rows.csv")).unwrap(), "half");
}

#[test]
fn special_characters_in_a_path_are_literal() {
    let session = session();
    let directory = tempfile::tempdir().unwrap();
    for name in ["a b.csv", "50%.csv", "c#.csv", "[x]*?.csv", "%20.csv", "ä\u{1F980}.csv"] {
        let path = directory.path().join(name);
        for expected in [1, 2] {
            run(&session, &format!("COPY (SELECT {expected} AS a) TO '{}'", path.display())).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), format!("a\n{expected}\n"), "{name}");
        }
        fs::remove_file(path).unwrap();
    }
    let path = directory.path().join("rows.csv");
    for url in [format!("file://{}", path.display()), format!("file:{}", path.display())] {
        fs::write(&path, "precious").unwrap();
        run(&session, &format!("COPY (SELECT 10 / (i - 150000) FROM t) TO '{url}'")).unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious", "{url}");
        run(&session, &format!("COPY (SELECT 1 AS a) TO '{url}'")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "a\n1\n", "{url}");
    }
    assert_eq!(files(directory.path()), ["rows.csv"]);
}

#[test]
fn urls_of_other_machines_are_refused() {
    let session = session();
    for url in ["https://example.org/rows.csv", "s3://bucket/rows.parquet", "s3://bucket/rows/"] {
        let to = run(&session, &format!("COPY t TO '{url}' WITH (format csv)")).unwrap_err();
        let from = run(&session, &format!("COPY t FROM '{url}' WITH (format csv)")).unwrap_err();
        for error in [to, from] {
            assert_eq!(error.sqlstate(), "0A000", "{error}");
            assert!(error.to_string().contains(&format!("{url:?}, which is not a local file")), "{error}");
        }
    }
}

#[test]
fn a_copy_creates_the_directory_of_its_file() {
    let session = session();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("2026").join("november").join("rows.csv");
    run(&session, &format!("COPY (SELECT 1 AS a) TO '{}'", path.display())).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "a\n1\n");
    assert_eq!(files(path.parent().unwrap()), ["rows.csv"]);
}

#[test]
fn the_file_extension_decides_delimiter_and_compression() {
    let session = session();
    let directory = tempfile::tempdir().unwrap();
    for name in ["a.csv.gz", "a.csv.zst", "a.json.gz", "a.tsv", "a.tsv.bz2", "a.csv.xz"] {
        let path = directory.path().join(name);
        let path = path.to_str().unwrap();
        run(&session, &format!("COPY (SELECT i, 'text, with a comma' AS t FROM t) TO '{path}'")).unwrap();
        run(&session, "CREATE TABLE copied (i bigint, t text, CHECK (t = 'text, with a comma'))").unwrap();
        run(&session, &format!("COPY copied FROM '{path}'")).unwrap_or_else(|error| panic!("{name}: {error}"));
        run(&session, "ALTER TABLE copied ADD PRIMARY KEY (i)").unwrap();
        run(&session, "DROP TABLE copied").unwrap();
        let bytes = fs::read(path).unwrap();
        assert!(!bytes.starts_with(b"i,t") && !bytes.starts_with(b"{"), "{name}");
    }
    let tabs = fs::read_to_string(directory.path().join("a.tsv")).unwrap();
    assert!(tabs.starts_with("i\tt\n") && tabs.contains("\n1\ttext, with a comma\n"), "{tabs:.80}");
}

#[test]
fn a_name_without_an_extension_is_a_file_too() {
    let session = session();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rows");
    for expected in [1, 2] {
        run(&session, &format!("COPY (SELECT {expected} AS a) TO '{}' (FORMAT csv)", path.display())).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("a\n{expected}\n"));
    }
    assert_eq!(files(directory.path()), ["rows"]);
}

#[test]
fn directories_and_devices_are_refused_as_files() {
    let session = session();
    let directory = tempfile::tempdir().unwrap();
    let existing = directory.path().join("rows.csv");
    fs::create_dir(&existing).unwrap();
    for (target, kind) in [(existing.to_str().unwrap(), "a directory"), ("/dev/null", "a device or pipe")] {
        let error = run(&session, &format!("COPY (SELECT 1 AS a) TO '{target}' (FORMAT csv)")).unwrap_err();
        assert_eq!(error.sqlstate(), "0A000");
        assert!(error.to_string().contains(&format!("which is {kind},")), "{error}");
    }
    assert!(files(&existing).is_empty());
    run(&session, &format!("COPY (SELECT 1 AS a) TO '{}/' (FORMAT csv)", existing.display())).unwrap();
    assert_eq!(files(&existing).len(), 1);
    let file = directory.path().join("file");
    fs::write(&file, "precious").unwrap();
    let error = run(&session, &format!("COPY (SELECT 1 AS a) TO '{}/' (FORMAT csv)", file.display())).unwrap_err();
    assert!(error.to_string().contains("which is a file,"), "{error}");
}

#[cfg(target_os = "linux")]
#[test]
fn the_error_of_a_full_disk_names_the_file() {
    let session = session();
    for name in ["rows.csv", "rows.json", "rows.parquet", "rows.csv.gz"] {
        // One disk per file. After an error, space is freed only when the writer of the file has ended.
        let Some(disk) = taut_tests::SmallDisk::new() else {
            eprintln!("not run: this user may not mount a file system");
            return;
        };
        let path = disk.path().join(name);
        fs::write(&path, "precious").unwrap();
        let error = run(
            &session,
            &format!("COPY (SELECT i, md5(i::text) FROM generate_series(1, 200000) AS g(i)) TO '{}'", path.display()),
        );
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with(&format!("could not write to file {path:?}: ")), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }
}

#[test]
fn a_copy_to_a_directory_adds_all_of_its_files_or_none() {
    let session = session();
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("rows");
    let copy = |query: &str, end: &str| run(&session, &format!("COPY ({query}) TO '{}/'{end}", target.display()));
    for format in FORMATS {
        let end = format!(" (FORMAT {format})");
        assert_eq!(copy("SELECT 10 / (i - 150000) AS d FROM t", &end).unwrap_err().sqlstate(), "22012");
        assert!(files(directory.path()).is_empty(), "{format}");
        copy("SELECT 1 AS a", &end).unwrap();
        copy("SELECT 2 AS a", &end).unwrap();
        assert_eq!(files(&target).len(), 2, "{format}");
        assert_eq!(copy("SELECT 10 / (i - 150000) AS d FROM t", &end).unwrap_err().sqlstate(), "22012");
        assert_eq!(files(&target).len(), 2, "{format}");
        assert_eq!(files(directory.path()), ["rows"]);
        fs::remove_dir_all(&target).unwrap();
    }
    copy("SELECT 1 AS a WHERE false", " (FORMAT csv)").unwrap();
    assert!(target.is_dir());
}

#[test]
fn a_copy_into_a_database_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("database");
    let session = Database::open(&path).unwrap().session();
    session.execute("CREATE TABLE t AS SELECT 1 AS a; CHECKPOINT").unwrap();
    for file in ["catalog", "rows.csv", "blocks/rows.csv", "rows/"] {
        let error = run(&session, &format!("COPY t TO '{}/{file}' (FORMAT csv)", path.display())).unwrap_err();
        assert!(error.to_string().contains("which is in a database or its backups,"), "{file}: {error}");
    }
    run(&session, &format!("COPY t TO '{}/rows.csv'", directory.path().display())).unwrap();
}
