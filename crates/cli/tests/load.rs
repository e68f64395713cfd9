//! The command `taut load`: formats, table designs, and malformed files.

mod common;

use common::{csv, file, scratch, taut};

const CSV: &str = "id,name,day,price\n2,b,2024-02-29,1.5\n1,\"a,a\",2024-01-01,\n3,,2024-03-01,2.25\n";

#[test]
fn csv_json_and_parquet_give_the_same_table() {
    let (directory, database) = scratch();
    let csv_file = file(&directory, "t.csv", CSV);
    let output = taut(&["load", &database, "from_csv", &csv_file, "--with", "sort_by=id"]).succeeds();
    assert!(output.starts_with("from_csv: 3 rows from "), "{output}");
    assert!(output.contains("3 rows in 1 block,"), "{output}");
    for name in ["t.json", "t.parquet"] {
        let path = directory.path().join(name);
        let path = path.to_str().unwrap();
        csv(&database, &format!("copy (select * from from_csv) to '{path}'"));
        let table = name.replace("t.", "from_");
        taut(&["load", &database, &table, path]).succeeds();
        let difference =
            format!("select count(*) as n from (select * from from_csv except select * from {table}) as d");
        assert_eq!(csv(&database, &format!("select count(*) as n from {table}")), "n\n3\n", "{name}");
        assert_eq!(
            csv(&database, &format!("select id, name, price from {table} order by id")).lines().nth(1),
            Some("1,\"a,a\",")
        );
        // JSON has no dates: the column `day` of `from_json` is text.
        if name == "t.parquet" {
            assert_eq!(csv(&database, &difference), "n\n0\n");
        }
    }
}

#[test]
fn files_follow_each_other_and_the_format_may_be_given() {
    let (directory, database) = scratch();
    let (one, two) = (file(&directory, "one.data", "n\n1\n"), file(&directory, "two.data", "n\n2\n"));
    taut(&["load", &database, "t", &one, &two, "--format", "csv"]).succeeds();
    taut(&["load", &database, "t", &one, "--format", "csv"]).succeeds();
    assert_eq!(csv(&database, "select n from t order by n"), "n\n1\n1\n2\n");
}

#[test]
fn output_as_csv_and_json_is_loaded_again() {
    let (directory, database) = scratch();
    let query = "select * from (values (1, null, ''), (2, '', 'a,\"b')) as t(id, x, y) order by id";
    let text = csv(&database, query);
    assert_eq!(text, "id,x,y\n1,,\"\"\n2,\"\",\"a,\"\"b\"\n");
    let lines = taut(&["sql", &database, "--format", "json", "-c", query]).succeeds();
    for (table, name, content) in [("from_csv", "t.csv", &text), ("from_json", "t.json", &lines)] {
        let path = file(&directory, name, content);
        taut(&["load", &database, table, &path]).succeeds();
        assert_eq!(csv(&database, &format!("select * from {table} order by id")), text, "{name}");
    }
}

#[test]
fn a_design_is_kept() {
    let (directory, database) = scratch();
    let path = file(&directory, "t.csv", CSV);
    let with = "layout=groups, groups='(id,name),(day),(price)', sort_by='day desc, id'";
    taut(&["load", &database, "t", &path, "--with", with]).succeeds();
    assert_eq!(csv(&database, "select layout, sort_by from taut.tables"), "layout,sort_by\ngroups,\"day desc, id\"\n");
    assert_eq!(csv(&database, "select id from t"), "id\n3\n2\n1\n");
}

#[test]
fn a_wrong_design_is_refused_with_what_is_allowed() {
    let (directory, database) = scratch();
    let path = file(&directory, "t.csv", CSV);
    let cases = [
        ("layout=rows", "'packed_row'"),
        ("layot=row", "allowed are layout, groups"),
        ("sort_by=id, name desc", "--with: expected name=value, found \"name desc\""),
        ("layout='row", "closing quote"),
    ];
    for (with, message) in cases {
        let errors = taut(&["load", &database, "t", &path, "--with", with]).fails();
        assert!(errors.contains(message), "{with}: {errors}");
    }
}

#[test]
fn a_bad_row_is_named_and_nothing_is_loaded() {
    let (directory, database) = scratch();
    csv(&database, "create table t (id bigint, name varchar, price double)");
    let good = file(&directory, "good.csv", "id,name,price\n1,a,1.0\n");
    let cases = [
        ("value.csv", "id,name,price\n1,a,1.0\n2,b,cheap\n", ["line 3", "price"]),
        ("fields.csv", "id,name,price\n1,a,1.0\n2,b\n", ["line 3", "missing data for column \"price\""]),
    ];
    for (name, content, places) in cases {
        let path = file(&directory, name, content);
        let errors = taut(&["load", &database, "t", &good, &path]).fails();
        for place in [name, places[0], places[1]] {
            assert!(errors.contains(place), "{name}: {errors}");
        }
        assert_eq!(csv(&database, "select count(*) as n from t"), "n\n0\n", "{name}");
    }
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let (directory, database) = scratch();
    let errors = taut(&["load", &database, "t", "/nowhere/t.csv"]).fails();
    assert!(errors.contains("/nowhere/t.csv"), "{errors}");
    let path = file(&directory, "not.parquet", "this is no parquet file");
    let errors = taut(&["load", &database, "t", &path]).fails();
    assert!(errors.starts_with("error: "), "{errors}");
    assert_eq!(csv(&database, "select table_name from taut.tables"), "table_name\n");
}
