//! Parses arbitrary text as table options: the result is an error, or a design whose options produce the same design.

#![no_main]

use libfuzzer_sys::fuzz_target;
use taut_types::{Column, LogicalType, Schema, TableDesign};

fn schema() -> Schema {
    let names = ["a", "b", "B b", "quote\"d", "größe", "UPPER", "comma,(=)", "", "desc"];
    let types = [LogicalType::Integer, LogicalType::Varchar, LogicalType::Double, LogicalType::Boolean];
    let column = |(place, name): (usize, &&str)| Column::new(*name, types[place % types.len()], place % 2 == 0);
    Schema::new(names.iter().enumerate().map(column).collect()).expect("a schema")
}

// One option per line: name=value.
fuzz_target!(|text: &str| {
    let schema = schema();
    let options: Vec<_> = text.lines().map(|line| line.split_once('=').unwrap_or((line, ""))).collect();
    let design = match TableDesign::from_options(options.iter().copied(), &schema) {
        Ok(design) => design,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let written = design.to_options(&schema);
    let again = written.iter().map(|(name, value)| (*name, value.as_str()));
    let read = TableDesign::from_options(again, &schema).expect("options that a design writes are options");
    assert_eq!(read, design, "{written:?}");
    let columns: usize = design.groups(&schema).iter().map(|group| group.columns.len()).sum();
    assert_eq!(columns, schema.len());
    // An empty list of options leaves the design unchanged.
    assert_eq!(design.with_options([], &schema).as_ref(), Ok(&design));
});
