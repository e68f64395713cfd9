//! Reads a table design from its options, shows the column groups of each layout, and reports a wrong option.
//!
//! `cargo run -p taut-types --example table_design`
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;

use taut_types::{Column, LogicalType, Schema, TableDesign};

fn main() -> Result<(), Box<dyn Error>> {
    let price = LogicalType::Decimal { precision: 15, scale: 2 };
    let schema = Schema::new(vec![
        Column::new("order", LogicalType::BigInt, false),
        Column::new("day", LogicalType::Date, false),
        Column::new("price", price, false),
        Column::new("comment", LogicalType::Varchar, true),
    ])?;

    for layout in ["column", "packed_row", "row"] {
        let options = [("layout", layout), ("sort_by", "day, \"order\" desc")];
        let design = TableDesign::from_options(options, &schema)?;
        println!("{layout}:");
        for group in design.groups(&schema) {
            let names: Vec<&str> = group.columns.iter().map(|column| schema.column(*column).name.as_str()).collect();
            println!("  {:?} of {}", group.kind, names.join(", "));
        }
        // The catalog stores a design as options.
        let stored = design.to_options(&schema);
        let stored = stored.iter().map(|(name, value)| (*name, value.as_str()));
        assert_eq!(TableDesign::from_options(stored, &schema)?, design);
    }

    let error = TableDesign::from_options([("sort_by", "dya")], &schema);
    println!("{}", error.err().ok_or("there is no column with this name")?);
    Ok(())
}
