//! Random steps, which a seed determines: small transactions insert, delete and relocate rows, indexes are built, and
//! columns are added, dropped and renamed.

use std::sync::Arc;

use taut_store::{CommitError, RowOrder, Store, Synchronous, Table};
use taut_testkit::Random;
use taut_types::{Column, ColumnIndex, Datum, IndexDesign, IndexKind, LogicalType, TableDesign};

use super::{
    Failure, all_old_rows, append, change_in, create_table, design, further_value, image_of, rows_with_ids, schema,
    write_for,
};

/// Runs one random step, which `seed`, `number` and the contents of the database determine.
pub fn random_step(store: &Store, seed: u64, number: u64, synchronous: Synchronous) -> Result<(), Failure> {
    let mut random = Random(seed.wrapping_mul(1_000_003).wrapping_add(number));
    let first = number as i64 * 100_000;
    let snapshot = store.snapshot();
    let tables: Vec<&Arc<Table>> = snapshot.tables().collect();
    let Some(table) = (!tables.is_empty()).then(|| random.pick(&tables)) else {
        return create_table(store, "t");
    };
    let rows = rows_with_ids(table)?;
    let some: Vec<i64> = rows.iter().map(|(_, value)| *value).filter(|_| random.below(3) == 0).collect();
    let count = [1, 2, 7, 150, 1_200][random.below(5)];
    let inserted: Vec<i64> = (first..first + count).collect();
    match random.below(23) {
        0..5 => change(store, &table.name, &inserted, &[], synchronous),
        5..8 => change(store, &table.name, &[], &some, synchronous),
        8..11 => change(store, &table.name, &inserted, &some, synchronous),
        11 => {
            let block = write_for(store, table, &inserted, "column")?;
            append(store, &table.name, vec![block])
        }
        12 if tables.len() < 3 => {
            let transaction = store.begin();
            let name = format!("n{number}");
            let created =
                transaction.change::<_, CommitError>(|edit| edit.create_table(&name, schema(), design("column")))?;
            change_in(&transaction, &name, &inserted, &[])?;
            change_in(&transaction, &table.name, &[first + 99_999], &some)?;
            assert!(transaction.snapshot().table_of(created).is_some());
            Ok(transaction.commit(synchronous)?)
        }
        12 | 13 => {
            let id = table.id;
            Ok(store.commit::<_, CommitError>(|edit| edit.truncate(id))?)
        }
        14 => Ok(store.checkpoint()?),
        15 if table.name != "t" => {
            let id = table.id;
            Ok(store.commit::<_, CommitError>(|edit| edit.drop_table(id))?)
        }
        15..18 => seal(store, table),
        18 => rewrite(store, table),
        19 => index(store, table),
        _ => change_columns(store, table, number, &mut random),
    }
}

fn change(
    store: &Store,
    name: &str,
    inserted: &[i64],
    deleted: &[i64],
    synchronous: Synchronous,
) -> Result<(), Failure> {
    let transaction = store.begin();
    change_in(&transaction, name, inserted, deleted)?;
    Ok(transaction.commit(synchronous)?)
}

/// Adds, drops or renames a column after `id`.
fn change_columns(store: &Store, table: &Table, number: u64, random: &mut Random) -> Result<(), Failure> {
    let further = table.schema.len() - 1;
    let index = ColumnIndex::from(1 + random.below(further.max(1)));
    Ok(store.commit::<_, CommitError>(|edit| match random.below(4) {
        0 if further > 0 => edit.drop_column(table.id, index),
        1 if further > 0 => {
            let name = format!("{}r", table.schema.column(index).name);
            edit.rename_column(table.id, index, &name)
        }
        _ => {
            let name = format!("{}{number}", random.pick(&["c", "n"]));
            let value = further_value(&name).map(|value| Datum::Number(value.into()));
            edit.add_column(table.id, Column::new(name, LogicalType::BigInt, true), value)
        }
    })?)
}

/// Replaces all blocks and delta pages of a table by one block with the rows that are not deleted.
fn seal(store: &Store, table: &Table) -> Result<(), Failure> {
    let old = all_old_rows(table);
    let values: Vec<i64> = rows_with_ids(table)?.into_iter().map(|(_, value)| value).collect();
    let new = if values.is_empty() { vec![] } else { vec![write_for(store, table, &values, "column")?] };
    Ok(store.commit::<_, CommitError>(|edit| edit.replace_rows(table.id, old, new, RowOrder::Sorted))?)
}

/// Rewrites the first block of a table in another layout, including its deleted rows.
fn rewrite(store: &Store, table: &Table) -> Result<(), Failure> {
    let Some(block) = table.blocks.first() else { return Ok(()) };
    let open = block.open(&Default::default())?;
    let new = vec![write_for(store, table, &super::values_of(&open)?, "packed_row")?];
    let old = [block.id()];
    Ok(store.commit::<_, CommitError>(|edit| edit.replace_blocks(table.id, &old, new, RowOrder::SamePositions))?)
}

/// Adds an index to a table and all of its blocks, or removes it.
fn index(store: &Store, table: &Table) -> Result<(), Failure> {
    let index = IndexDesign { name: "i".to_owned(), kind: IndexKind::CsbTree, columns: vec![ColumnIndex(0)] };
    let indexes = if table.design.indexes.is_empty() { vec![index] } else { vec![] };
    let design = TableDesign { indexes, ..table.design.as_ref().clone() };
    let mut blocks = Vec::new();
    for block in table.blocks.iter() {
        let values = super::values_of(&block.open(&Default::default())?)?;
        blocks.push((block.id(), store.write_block(&image_of(&table.schema, &values, &design), &design)?));
    }
    Ok(store.commit::<_, CommitError>(|edit| {
        edit.set_design(table.id, design)?;
        blocks
            .into_iter()
            .try_for_each(|(old, new)| edit.replace_blocks(table.id, &[old], vec![new], RowOrder::SamePositions))
    })?)
}
