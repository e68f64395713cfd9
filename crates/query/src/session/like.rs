//! Columns of a new table that `CREATE TABLE t (LIKE u INCLUDING ...)` copies from another table.

use taut_sql::{
    Declared, DeclaredCondition, DeclaredConstraint, DeclaredSequence, LikePart, SequenceOptions, parse_expression,
};
use taut_store::{Catalog, CommentTarget, Sequence, Table, UniqueKey};
use taut_types::{Column, ColumnIndex, IndexDesign, TableDesign, sibling_name, unqualified_name};

use super::index_columns::visible_design;
use crate::error::{QueryError, Result};

/// The copied parts of a table.
#[derive(Default)]
pub(super) struct Copied {
    pub columns: Vec<Column>,
    pub declared: Declared,
    /// Table options and indexes. Indexes of keys are not among them.
    pub design: TableDesign,
}

/// Copies the columns of a table, and the included parts, for a new table `name`.
///
/// # Errors
/// If an included index is partial or on an expression.
pub(super) fn copy_of(catalog: &Catalog, table: &Table, included: &[LikePart], name: &str) -> Result<Copied> {
    let includes = |part| included.contains(&part);
    if includes(LikePart::Indexes) && !table.constraints.index_columns.is_empty() {
        let what =
            format!("INCLUDING INDEXES of table {:?}, which has a partial index or one on an expression", table.name);
        return Err(QueryError::unsupported(what, "CREATE INDEX on the new table is"));
    }
    let column_name = |column: ColumnIndex| table.schema.column(column).name.clone();
    let names = |columns: &[ColumnIndex]| columns.iter().map(|column| column_name(*column)).collect();
    let mut declared = Declared::default();
    if includes(LikePart::Constraints) {
        for check in &table.constraints.checks {
            let condition = Box::new(parse_expression(&check.condition)?);
            let rule = DeclaredCondition::Check { condition };
            declared.constraints.push(DeclaredConstraint { name: Some(check.name.clone()), rule });
        }
    }
    if includes(LikePart::Indexes) {
        let rule = |key: &UniqueKey| match key.is_index {
            true => DeclaredCondition::UniqueIndex { columns: names(&key.columns) },
            false => DeclaredCondition::Key { columns: names(&key.columns), is_primary: key.is_primary },
        };
        let keys = table.constraints.keys.iter().map(|key| DeclaredConstraint { name: None, rule: rule(key) });
        declared.constraints.extend(keys);
    }
    if includes(LikePart::Generated) {
        for (column, expression) in &table.constraints.generated {
            declared.generated.push((column_name(*column), parse_expression(expression)?));
        }
    }
    let identity = |column: &ColumnIndex| {
        let owned = table.constraints.sequences.get(column)?;
        owned.identity.map(|identity| (identity, owned.sequence))
    };
    for (column, default) in &table.constraints.defaults {
        match identity(column) {
            // The new table does not share the sequence of an identity column.
            Some((identity, sequence)) if includes(LikePart::Identity) => {
                let options = catalog.sequence_of(sequence).map(options_of).unwrap_or_default();
                let column = column_name(*column);
                declared.sequences.push(DeclaredSequence { column, identity: Some(identity), options });
            }
            None if includes(LikePart::Defaults) => {
                declared.defaults.push((column_name(*column), parse_expression(default)?));
            }
            _ => {}
        }
    }
    if includes(LikePart::Comments) {
        let comments = catalog.comments().filter_map(|(on, comment)| match on {
            CommentTarget::Column(of, column) if *of == table.id => Some((column_name(*column), comment.to_owned())),
            _ => None,
        });
        declared.comments.extend(comments);
    }
    let (mut design, schema) = visible_design(table)?;
    if !includes(LikePart::Storage) {
        let TableDesign { compression, encodings, .. } = design;
        design = match includes(LikePart::Compression) {
            true => TableDesign { compression, encodings, ..TableDesign::default() },
            false => TableDesign::default(),
        };
    }
    if includes(LikePart::Indexes) {
        design.indexes = copied_indexes(catalog, table, name);
    }
    Ok(Copied { columns: schema.columns().to_vec(), declared, design })
}

/// The indexes of a table that do not belong to its keys, with names of their own in the schema of the new table.
fn copied_indexes(catalog: &Catalog, table: &Table, name: &str) -> Vec<IndexDesign> {
    let is_key = |index: &IndexDesign| table.constraints.keys.iter().any(|key| key.name == index.name);
    let mut copied: Vec<IndexDesign> = Vec::new();
    for index in table.design.indexes.iter().filter(|index| !is_key(index)) {
        let columns: Vec<&str> = index.columns.iter().map(|column| &*table.schema.column(*column).name).collect();
        let base = format!("{}_{}_idx", unqualified_name(name), columns.join("_"));
        let is_free = |index: &String| {
            catalog.is_name_free(&sibling_name(name, index)) && copied.iter().all(|other| other.name != *index)
        };
        let mut numbered = (1..).map(|number| format!("{base}{number}"));
        let free = Some(base.clone()).filter(&is_free).or_else(|| numbered.find(&is_free)).unwrap_or(base);
        copied.push(IndexDesign { name: free, ..index.clone() });
    }
    copied
}

/// Options of a new sequence that starts like another one.
fn options_of(sequence: &Sequence) -> SequenceOptions {
    SequenceOptions {
        logical_type: Some(sequence.logical_type),
        increment: Some(sequence.increment),
        min: Some(Some(sequence.min)),
        max: Some(Some(sequence.max)),
        start: Some(sequence.start),
        cycles: Some(sequence.cycles),
        ..SequenceOptions::default()
    }
}
