//! Simple model of a table: rows as vectors of datums, predicates by their definition.

use std::ops::Range;

use arrow_array::{Array, ArrayRef, RecordBatch};
use taut_types::{ColumnIndex, ColumnPredicate, Datum, LogicalType, Schema, datum_at, datum_text};

use crate::TestTable;

/// A table as rows of datums.
#[derive(Clone, Debug)]
pub struct Model {
    /// Columns of the table.
    pub schema: Schema,
    /// Rows of the table. A row has one value per column; `None` is null.
    pub rows: Vec<Vec<Option<Datum>>>,
}

impl Model {
    /// Model of a generated table.
    pub fn of(table: &TestTable) -> Self {
        Self::from_batches(&table.schema, &table.batches)
    }

    /// Model of the rows of batches.
    pub fn from_batches(schema: &Schema, batches: &[RecordBatch]) -> Self {
        let row_of = |batch: &RecordBatch, row| {
            let columns = schema.columns().iter().zip(batch.columns());
            columns.map(|(column, array)| datum_at(array, column.logical_type, row)).collect()
        };
        let rows = batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| row_of(batch, row))).collect();
        Self { schema: schema.clone(), rows }
    }

    /// Model of one array, as a table of one column.
    pub fn of_array(array: &ArrayRef, logical: LogicalType) -> Self {
        let schema = Schema::new(vec![taut_types::Column::new("value", logical, true)]).unwrap();
        let rows = (0..array.len()).map(|row| vec![datum_at(array, logical, row)]).collect();
        Self { schema, rows }
    }

    /// Model of a range of the rows.
    pub fn slice(&self, rows: Range<usize>) -> Self {
        Self { schema: self.schema.clone(), rows: self.rows[rows].to_vec() }
    }

    /// Value in one row of a column. Returns `None` for a null.
    pub fn value(&self, row: usize, column: ColumnIndex) -> Option<&Datum> {
        self.rows[row][column.index()].as_ref()
    }

    /// Positions of the rows that pass all predicates, ascending.
    pub fn filter(&self, predicates: &[ColumnPredicate]) -> Vec<usize> {
        let passes =
            |row: &usize| predicates.iter().all(|predicate| predicate.admits(self.value(*row, predicate.column)));
        (0..self.rows.len()).filter(passes).collect()
    }
}

/// Checks that `arrays` hold the `columns` of the model at `positions`, in order and in the right Arrow types.
///
/// # Panics
/// If they differ. The message describes the first difference.
#[track_caller]
pub fn agree(model: &Model, positions: &[usize], columns: &[ColumnIndex], arrays: &[ArrayRef]) {
    if let Some(difference) = disagreement(model, positions, columns, arrays) {
        panic!("{difference}");
    }
}

/// First difference between `arrays` and the `columns` of the model at `positions`, as text. Returns `None` if they
/// agree.
pub fn disagreement(
    model: &Model,
    positions: &[usize],
    columns: &[ColumnIndex],
    arrays: &[ArrayRef],
) -> Option<String> {
    if columns.len() != arrays.len() {
        return Some(format!("expected {} columns, found {}", columns.len(), arrays.len()));
    }
    for (index, array) in columns.iter().zip(arrays) {
        let column = model.schema.column(*index);
        let (name, logical) = (&column.name, column.logical_type);
        if array.data_type() != &logical.arrow() {
            return Some(format!("column {name}: expected {}, found {}", logical.arrow(), array.data_type()));
        }
        if array.len() != positions.len() {
            return Some(format!("column {name}: expected {} rows, found {}", positions.len(), array.len()));
        }
        for (row, position) in positions.iter().enumerate() {
            let (expected, found) = (model.value(*position, *index), datum_at(array, logical, row));
            if expected != found.as_ref() {
                let (expected, found) = (describe(expected, logical), describe(found.as_ref(), logical));
                return Some(format!(
                    "column {name}, result row {row}, table row {position}: expected {expected}, found {found}"
                ));
            }
        }
    }
    None
}

fn describe(value: Option<&Datum>, logical: LogicalType) -> String {
    let Some(datum) = value else { return "null".to_owned() };
    let text = datum_text(datum, logical);
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{:?}... ({} bytes)", &text[..end], text.len()),
        None => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables;

    #[test]
    fn a_difference_is_found_and_named() {
        let table = &tables(5)[0];
        let model = Model::of(table);
        let columns: Vec<_> = (0..table.schema.len()).map(ColumnIndex::from).collect();
        let rows = table.batches[0].num_rows();
        let positions: Vec<usize> = (0..rows).collect();
        agree(&model, &positions, &columns, table.batches[0].columns());
        let mut changed = model.clone();
        changed.rows[0][2] = None;
        let message = disagreement(&changed, &positions, &columns, table.batches[0].columns()).unwrap();
        assert!(message.starts_with("column 2_integer, result row 0, table row 0: expected null"), "{message}");
        assert!(disagreement(&model, &positions[1..], &columns, table.batches[0].columns()).is_some());
        assert!(disagreement(&model, &positions, &columns[1..], table.batches[0].columns()).is_some());
    }
}
