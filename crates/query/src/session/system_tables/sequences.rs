//! `taut.sequences`: one row for each sequence.

use std::sync::Arc;

use datafusion::arrow::array::{BooleanArray, Int64Array};
use taut_store::{Sequence, SequenceId};

use super::{SystemColumn, SystemRows, SystemState, SystemTable, texts};

pub(super) const TABLE: SystemTable = SystemTable {
    name: "sequences",
    description: "All sequences, including those of `serial` and identity columns.",
    columns: &[
        SystemColumn::text("sequence_name", "Name of the sequence."),
        SystemColumn::text("type", "SQL type of its numbers."),
        SystemColumn::number("start_value", "First number."),
        SystemColumn::number("increment", "Difference between a number and the next one."),
        SystemColumn::number("min_value", "The smallest number."),
        SystemColumn::number("max_value", "The greatest number."),
        SystemColumn::boolean("cycle", "Whether the sequence restarts after its last number."),
        SystemColumn::number("next_value", "Next number that `nextval` returns; null after the last one."),
        SystemColumn::text("table_name", "Table of the column that owns the sequence; null if no column does."),
        SystemColumn::text("column_name", "Column that owns the sequence. Dropping the column drops the sequence."),
    ],
    rows,
};

fn rows(state: &SystemState) -> SystemRows {
    let catalog = &state.snapshot;
    let mut sequences: Vec<&Sequence> = catalog.sequences().collect();
    sequences.sort_by(|left, right| left.name.cmp(&right.name));
    let owner_of = |id: SequenceId| {
        let mut owners = catalog.tables().flat_map(|table| {
            let owned = table.constraints.sequences.iter();
            owned.map(move |(column, owned)| (table, *column, owned.sequence))
        });
        let (table, column, _) = owners.find(|(.., sequence)| *sequence == id)?;
        Some((table.name.clone(), table.schema.column(column).name.clone()))
    };
    let owners: Vec<_> = sequences.iter().map(|sequence| owner_of(sequence.id)).collect();
    let numbers = |number: fn(&Sequence) -> i64| {
        Arc::new(Int64Array::from(sequences.iter().map(|sequence| number(sequence)).collect::<Vec<_>>()))
    };
    let columns = Ok(vec![
        texts(sequences.iter().map(|sequence| Some(sequence.name.clone()))),
        texts(sequences.iter().map(|sequence| Some(sequence.logical_type.sql_name()))),
        numbers(|sequence| sequence.start) as _,
        numbers(|sequence| sequence.increment) as _,
        numbers(|sequence| sequence.min) as _,
        numbers(|sequence| sequence.max) as _,
        Arc::new(BooleanArray::from(sequences.iter().map(|sequence| sequence.cycles).collect::<Vec<_>>())) as _,
        Arc::new(Int64Array::from(sequences.iter().map(|sequence| sequence.next()).collect::<Vec<_>>())) as _,
        texts(owners.iter().map(|owner| owner.as_ref().map(|(table, _)| table.clone()))),
        texts(owners.iter().map(|owner| owner.as_ref().map(|(_, column)| column.clone()))),
    ]);
    Box::new(std::iter::once(columns))
}
