//! The commands `taut inspect` and `taut verify`.

mod common;

use std::path::Path;

use common::{block_files, csv, scratch, taut};

const TABLE: &str = "
    create table t with (layout = 'groups', groups = '(id,kind),(name)', sort_by = 'id', block_size = '128KiB')
    as select id, id % 3 as kind, 'name ' || (id % 50) as name from generate_series(1, 40000) as s(id)";

#[test]
fn a_table_is_drawn() {
    let (_directory, database) = scratch();
    csv(&database, TABLE);
    csv(&database, "create table empty (n bigint)");
    let all = taut(&["inspect", &database]).succeeds();
    let one = taut(&["inspect", &database, "t"]).succeeds();
    assert!(all.contains(&one), "{all}\n{one}");
    assert!(all.starts_with("empty   layout='column'\n  0 rows in 0 blocks"), "{all}");
    let lines: Vec<_> = one.lines().collect();
    assert!(lines[0].starts_with("t   layout='groups', groups='(id,kind),(name)', sort_by='id'"), "{one}");
    assert!(lines[1].contains("40,000 rows in "), "{one}");
    assert!(lines[2].contains("[GG") && lines[2].contains("G groups"), "{one}");
    let line_of = |name: &str| lines.iter().find(|line| line.starts_with(&format!(" {name} "))).unwrap();
    // A value of the sort key is in one block. Values of the other columns are in all blocks.
    assert!(line_of("id").contains("1 .. 40000") && line_of("id").contains("1.0 of "), "{one}");
    assert!(line_of("kind").contains("0 .. 2") && !line_of("kind").contains("1.0 of "), "{one}");
    assert!(lines.iter().any(|line| line.contains("packed_rows") && line.contains("id, kind")), "{one}");
}

#[test]
fn missing_databases_and_tables_are_reported() {
    let (_directory, database) = scratch();
    let errors = taut(&["inspect", &database]).fails();
    assert!(errors.contains("no database"), "{errors}");
    assert!(!Path::new(&database).exists(), "taut inspect created a database");
    csv(&database, "create table t (n bigint)");
    let errors = taut(&["inspect", &database, "u"]).fails();
    assert!(errors.contains("\"u\"") && errors.contains("tables: t"), "{errors}");
    assert!(taut(&["verify", "/nowhere/x.taut"]).fails().contains("/nowhere/x.taut"));
}

#[test]
fn a_flipped_byte_is_found() {
    let (_directory, database) = scratch();
    csv(&database, TABLE);
    let output = taut(&["verify", &database]).succeeds();
    assert!(output.starts_with("no damage: 1 tables, "), "{output}");
    let files = block_files(&database);
    let whole = std::fs::read(&files[0]).unwrap();
    for offset in [0, whole.len() / 3, whole.len() / 2, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[offset] ^= 0x10;
        std::fs::write(&files[0], &bytes).unwrap();
        let run = taut(&["verify", &database]);
        let name = files[0].file_name().unwrap().to_str().unwrap();
        assert!(run.output.contains(name) && run.output.contains("table \"t\""), "byte {offset}: {run:?}");
        assert!(run.fails().contains("damage in 1 place of 1 file"), "byte {offset}");
    }
    std::fs::write(&files[0], &whole).unwrap();
    taut(&["verify", &database]).succeeds();
    std::fs::remove_file(&files[0]).unwrap();
    let run = taut(&["verify", &database]);
    assert!(run.output.contains("is missing"), "{run:?}");
    run.fails();
}

#[test]
fn a_damaged_catalog_is_found() {
    let (_directory, database) = scratch();
    csv(&database, "create table t (n bigint)");
    let path = Path::new(&database).join("catalog");
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(&path, &bytes).unwrap();
    let run = taut(&["verify", &database]);
    assert!(run.output.starts_with("damaged: "), "{run:?}");
    run.fails();
}
