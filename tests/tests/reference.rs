//! Checks that `docs/reference` agrees with the declarations in the code. `TAUT_UPDATE=1` rewrites the generated pages.
//! `crates/cli/tests/documents.rs` runs its examples.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fmt::Write;
use std::path::Path;

use taut::Database;
use taut::reference::{Encoding, STATEMENT_OPTIONS, Setting, SystemCatalog, SystemTable, TableDesign};

const UPDATE_VARIABLE: &str = "TAUT_UPDATE";

fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let row = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
    let mut text = row(&head) + &format!("|{}\n", "---|".repeat(head.len()));
    rows.into_iter().for_each(|cells| text += &row(&cells));
    text
}

fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{text}`") }
}

fn settings() -> String {
    let rows = Setting::ALL.into_iter().map(|setting| {
        let info = setting.info();
        let default = info.default.map(code).unwrap_or_default();
        vec![code(info.name), info.values.to_owned(), default, info.scope.to_owned(), info.description.to_owned()]
    });
    format!(
        "# Settings\n\n`SET name = value`, `RESET name` and `SHOW name` set and show a setting; `SHOW ALL` and `taut.settings` list all of them.\n\
         A rollback does not undo `SET`. Names that begin with `datafusion.` are settings of the planner.\n\n{}",
        table(&["setting", "values", "default", "scope", "meaning"], rows)
    )
}

fn table_options() -> String {
    let rows = TableDesign::OPTIONS.into_iter().chain(STATEMENT_OPTIONS).map(|option| {
        vec![code(option.name), option.values.to_owned(), code(option.default), option.description.to_owned()]
    });
    format!(
        "# Table options\n\nOptions of `CREATE TABLE ... WITH (...)` and, except for `implicit_sort`, of `ALTER TABLE ... SET (...)`.\n\
         `taut.table_options` lists them; `taut.tables` has those of each table. [Tables](../guide/tables.md) explains them.\n\n{}",
        table(&["option", "values", "default", "meaning"], rows)
    )
}

fn encodings() -> String {
    let rows = Encoding::ALL.into_iter().map(|encoding| vec![code(encoding.name()), encoding.description().to_owned()]);
    format!(
        "# Encodings\n\nEach encoding stores the values of a column chunk in its own way. Each segment gets the encoding that suits its values,\n\
         unless option `encoding` names one. `taut.columns` shows the chosen encodings. [The format](../format.md) describes their\n\
         bytes.\n\n{}",
        table(&["encoding", "what is stored"], rows)
    )
}

fn system_tables() -> String {
    let mut text =
        "# System tables\n\nThe tables of schema `taut` describe the database. Queries read them like other tables, in the snapshot \
                    of the statement. The\nname of a relation includes its schema, such as `sales.orders`, except for \
                    schema `public`.\n"
            .to_owned();
    for system_table in SystemTable::ALL {
        let rows = system_table
            .columns
            .iter()
            .map(|column| vec![code(column.name), column.sql_type().to_owned(), column.description.to_owned()]);
        let rows = table(&["column", "type", "meaning"], rows);
        write!(text, "\n## taut.{}\n\n{}\n\n{rows}", system_table.name, system_table.description).unwrap();
    }
    text
}

fn system_catalogs() -> String {
    let mut text = "# System catalogs of PostgreSQL\n\nPrograms that support PostgreSQL read these catalogs to find the tables, columns, constraints and indexes of a\n\
                    database. They list the relations of users, in the snapshot of the statement. An oid is a bigint. It is the same in every\n\
                    session, and changes if its object is renamed. If a table or view of a user has the name of a catalog, it hides the catalog;\n\
                    `pg_catalog.pg_class` always names the catalog.\n\n\
                    `'t'::regclass` is the oid of a relation, and `x::regclass` the name of the relation with oid `x`. The functions are\n\
                    `col_description`, `format_type`, `obj_description`, `pg_get_constraintdef`, `pg_get_expr`, `pg_get_indexdef`,\n\
                    `pg_get_userbyid`, `pg_get_viewdef`, `pg_table_is_visible` and `to_regclass`.\n\n"
        .to_owned();
    let rows = SystemCatalog::ALL.into_iter().filter(SystemCatalog::is_listed).map(|catalog| {
        let columns = catalog.columns().map(|(name, sql_type)| format!("`{name}` {sql_type}"));
        vec![code(catalog.name), columns.collect::<Vec<_>>().join(", ")]
    });
    text += &table(&["catalog", "columns"], rows);
    text
}

#[test]
fn the_reference_matches_the_code() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference");
    for (name, text) in [
        ("settings.md", settings()),
        ("table-options.md", table_options()),
        ("encodings.md", encodings()),
        ("system-tables.md", system_tables()),
        ("system-catalogs.md", system_catalogs()),
    ] {
        let path = directory.join(name);
        if std::env::var_os(UPDATE_VARIABLE).is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(found == text, "{name} differs; {UPDATE_VARIABLE}=1 cargo test --workspace --test reference writes it");
    }
}

/// Declarations and behaviour agree: every setting can be shown, and set to its default unless it has none.
#[test]
fn every_setting_is_shown_and_reset() {
    let database = Database::in_memory().unwrap();
    let session = database.session();
    for setting in Setting::ALL {
        let name = setting.name();
        session.query(&format!("SHOW {name}")).unwrap_or_else(|error| panic!("{name}: {error}"));
        let reset = session.execute(&format!("RESET {name}"));
        assert_eq!(reset.is_ok(), setting.info().default.is_some(), "{name}");
        // These settings accept every string, as the name of a directory or schema.
        let takes_text = [Setting::TempDirectory, Setting::SearchPath].contains(&setting);
        let wrong = if takes_text { "1" } else { "'no such value'" };
        let error = session.execute(&format!("SET {name} = {wrong}")).unwrap_err();
        assert_eq!((error.sqlstate(), error.hint().is_some()), ("22023", true), "{name}: {error}");
    }
}

/// Statements that have a heading in `docs/reference/statements`, such as `CREATE TABLE`.
fn headings() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/statements");
    let mut headings = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let titles = text.lines().filter_map(|line| line.strip_prefix("# ").or_else(|| line.strip_prefix("## ")));
        headings.extend(titles.map(str::to_owned));
    }
    headings
}

/// Whether a statement begins with the words of a heading. Words such as `UNIQUE` may come between them.
fn has_heading(headings: &[String], statement: &str) -> bool {
    let text = statement.to_uppercase().replace(['(', ';'], " ");
    let mut words: Vec<&str> = text.split_whitespace().take(8).collect();
    words.retain(|word| !["OR", "REPLACE", "UNIQUE", "LOCAL", "GLOBAL", "TEMP", "TEMPORARY"].contains(word));
    if let Some(first @ &mut "DESC") = words.first_mut() {
        *first = "DESCRIBE";
    }
    headings.iter().any(|heading| heading.split(' ').enumerate().all(|(at, word)| words.get(at) == Some(&word)))
}

/// Adds the successful statements of the test files in a folder to `found`, each with the name of its file.
fn recorded_statements(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            recorded_statements(&path, found);
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for record in text.split("\n\n") {
            let lines: Vec<&str> = record.lines().skip_while(|line| line.starts_with('#')).collect();
            let is_of_taut = |line: &&str| !["skipif taut", "onlyif duckdb", "onlyif postgresql"].contains(line);
            if !lines.iter().all(is_of_taut) {
                continue;
            }
            let succeeds =
                |line: &&str| ["statement ok", "statement count", "query "].iter().any(|head| line.starts_with(head));
            let Some(head) = lines.iter().position(succeeds) else { continue };
            let code = lines[head + 1..].iter().find(|line| !line.starts_with("--"));
            found.extend(code.map(|code| (path.display().to_string(), (*code).to_owned())));
        }
    }
}

/// Every statement of the SQL tests and every variant of `Statement` has a heading in the reference.
#[test]
fn every_statement_has_a_heading() {
    let headings = headings();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut statements = Vec::new();
    recorded_statements(&root.join("tests/sql"), &mut statements);
    assert!(statements.len() > 2_000, "{} statements", statements.len());
    for (file, statement) in statements {
        // Commands of the test runner, not SQL.
        if !["restart", "rewrite"].contains(&statement.as_str()) {
            assert!(
                has_heading(&headings, &statement),
                "{file}: docs/reference/statements has no heading for {statement}"
            );
        }
    }
    // The documentation of each variant of `Statement` begins with its statements.
    let text = std::fs::read_to_string(root.join("crates/sql/src/statement.rs")).unwrap();
    let variants = text.split_once("pub enum Statement {").unwrap().1.split_once("\n}").unwrap().0;
    for (at, line) in variants.lines().enumerate() {
        let follows_doc = at > 0 && variants.lines().nth(at - 1).is_some_and(|before| before.starts_with("    ///"));
        let Some(doc) = line.strip_prefix("    /// ").filter(|_| !follows_doc) else { continue };
        let named = doc.split('`').skip(1).step_by(2).any(|code| has_heading(&headings, code));
        assert!(named || doc.starts_with("Any other statement"), "docs/reference/statements has no heading for: {doc}");
    }
}
