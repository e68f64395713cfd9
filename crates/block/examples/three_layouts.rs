//! Builds the same rows in each layout, filters them, and reads the rows that pass.
//!
//! `cargo run -p taut-block --example three_layouts`
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use arrow_buffer::Buffer;
use taut_block::{Block, BlockBuilder, ScanReport};
use taut_types::{
    Column, ColumnIndex, ColumnPredicate, DatumPredicate, Layout, LogicalType, Predicate, Schema, TableDesign,
};

const ROWS: i64 = 100_000;

fn main() -> Result<(), Box<dyn Error>> {
    let columns = [("id", LogicalType::BigInt), ("city", LogicalType::Varchar), ("people", LogicalType::BigInt)];
    let columns = columns.map(|(name, logical)| Column::new(name, logical, false));
    let schema = Arc::new(Schema::new(columns.into())?);
    let id: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS));
    let city: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..ROWS).map(|row| format!("city {}", row % 97))));
    let people: ArrayRef = Arc::new(Int64Array::from_iter_values((0..ROWS).map(|row| row * 7_919 % 1_000_000)));
    let batch = RecordBatch::try_new(schema.arrow(), vec![id, city, people])?;

    let range = DatumPredicate::Range { low: 999_900, high: i128::MAX };
    let many_people = ColumnPredicate::new(ColumnIndex(2), range);
    let predicate = Predicate { column_predicates: vec![many_people], row_predicates: vec![] };
    let all: Vec<ColumnIndex> = (0..schema.len()).map(ColumnIndex::from).collect();
    for layout in [Layout::Column, Layout::PackedRow, Layout::Row] {
        let design = Arc::new(TableDesign { layout, ..TableDesign::default() });
        let mut builder = BlockBuilder::new(Arc::clone(&schema), Arc::clone(&design));
        builder.push(&batch)?;
        let image = builder.finish()?;
        let bytes = image.bytes();
        let block = Block::parse(image.header.into())?;
        let sections: Vec<Buffer> = image.sections.into_iter().map(Buffer::from).collect();

        let (mut found, mut report) = (vec![], ScanReport::default());
        for segment in 0..block.segments() {
            let mut reader = block.open_segment(&sections, segment);
            let selection = reader.filter(&predicate, &mut report)?;
            let arrays = reader.project(&selection, 0..selection.len(), &all, &mut report)?;
            found.push(RecordBatch::try_new(schema.arrow(), arrays)?);
        }
        let rows: usize = found.iter().map(RecordBatch::num_rows).sum();
        println!("{:<10} {bytes:>8} bytes, {rows} rows from {} bytes read", design.layout.name(), report.bytes_read);
    }
    Ok(())
}
