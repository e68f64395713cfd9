//! `taut.comments`: one row for each comment.

use taut_store::{Catalog, CommentTarget};

use super::{SystemColumn, SystemRows, SystemState, SystemTable, texts};

pub(super) const TABLE: SystemTable = SystemTable {
    name: "comments",
    description: "The comments on tables, views, sequences, columns, schemas and functions.",
    columns: &[
        SystemColumn::text("object_type", "`table`, `view`, `sequence`, `column`, `schema` or `function`."),
        SystemColumn::text("object_name", "Name of the object, or of the table or view of a column."),
        SystemColumn::text("column_name", "Name of the column; null for a comment on the object itself."),
        SystemColumn::text("comment", "The comment."),
    ],
    rows,
};

/// Type, name and column of a commented object. Returns `None` if the object does not exist.
fn object(catalog: &Catalog, on: &CommentTarget) -> Option<(&'static str, String, Option<String>)> {
    Some(match on {
        CommentTarget::Table(table) => ("table", catalog.table_of(*table)?.name.clone(), None),
        CommentTarget::Column(table, column) => {
            let table = catalog.table_of(*table)?;
            ("column", table.name.clone(), Some(table.schema.column(*column).name.clone()))
        }
        CommentTarget::View(view) => ("view", view.clone(), None),
        CommentTarget::ViewColumn(view, column) => ("column", view.clone(), Some(column.clone())),
        CommentTarget::Sequence(sequence) => ("sequence", catalog.sequence_of(*sequence)?.name.clone(), None),
        CommentTarget::Schema(schema) => ("schema", schema.clone(), None),
        CommentTarget::Function(function) => ("function", function.clone(), None),
    })
}

fn rows(state: &SystemState) -> SystemRows {
    let catalog = &state.snapshot;
    let comments = catalog.comments().filter_map(|(on, comment)| Some((object(catalog, on)?, comment.to_owned())));
    let mut comments: Vec<_> = comments.collect();
    comments.sort_by(|((_, left, column), _), ((_, right, other), _)| (left, column).cmp(&(right, other)));
    let columns = vec![
        texts(comments.iter().map(|((kind, ..), _)| Some((*kind).to_owned()))),
        texts(comments.iter().map(|((_, name, _), _)| Some(name.clone()))),
        texts(comments.iter().map(|((.., column), _)| column.clone())),
        texts(comments.iter().map(|(_, comment)| Some(comment.clone()))),
    ];
    Box::new(std::iter::once(Ok(columns)))
}
