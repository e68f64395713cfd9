//! `COMMENT ON`.

use std::sync::Arc;

use taut_sql::{CommentedObject, ObjectKind};
use taut_store::{Catalog, CatalogEdit, CommentTarget, CommitError};

use super::names::check_kind;
use super::{Done, Outcome, QuerySession};
use crate::error::{QueryError, Result};
use crate::write::changes::Changes;

impl QuerySession {
    /// Sets a comment, or removes it if `comment` is `None` or empty.
    pub(super) async fn comment_on(&self, on: &CommentedObject, comment: Option<&str>) -> Result<Outcome> {
        // An empty comment removes the comment, as in PostgreSQL.
        let comment = comment.filter(|comment| !comment.is_empty());
        // The commit fails if another transaction has changed the columns of the table meanwhile.
        let commented = self.in_transaction(async |target: Changes| {
            let snapshot = target.snapshot();
            let on = match on {
                CommentedObject::Relation { kind, name } => relation(&snapshot, *kind, &self.name(name)?)?,
                CommentedObject::Column { relation, column } => {
                    self.column(&snapshot, &self.name(relation)?, column).await?
                }
                CommentedObject::Schema { name, .. } if snapshot.has_schema(name) => {
                    CommentTarget::Schema(name.clone())
                }
                CommentedObject::Schema { name, .. } => return Err(QueryError::no_schema(name)),
                CommentedObject::Function { name, types } => self.commented_function(name, types.as_deref()).await?,
            };
            Ok(target.commit(|edit| edit.set_comment(on, comment.map(str::to_owned)))?)
        });
        commented.await?;
        Ok(Outcome::Done(Done::with_tag("COMMENT")))
    }

    async fn column(&self, snapshot: &Arc<Catalog>, relation: &str, column: &str) -> Result<CommentTarget> {
        if let Some(table) = snapshot.table(relation) {
            let index = table.visible_column(column).ok_or_else(|| QueryError::no_column(relation, column))?;
            return Ok(CommentTarget::Column(table.id, index));
        }
        if snapshot.view(relation).is_none() {
            return Err(QueryError::no_relation(relation));
        }
        let plan = self.plan_of_view(snapshot, relation).await?;
        match plan.schema().fields().iter().any(|field| field.name() == column) {
            true => Ok(CommentTarget::ViewColumn(relation.to_owned(), column.to_owned())),
            false => Err(QueryError::no_column(relation, column)),
        }
    }
}

/// Returns the comments on a view and its columns, addressed to the view's new name.
pub(super) fn comments_of_view(catalog: &Catalog, view: &str, new_name: &str) -> Vec<(CommentTarget, String)> {
    let renamed = |on: &CommentTarget| match on {
        CommentTarget::View(name) if name == view => Some(CommentTarget::View(new_name.to_owned())),
        CommentTarget::ViewColumn(name, column) if name == view => {
            Some(CommentTarget::ViewColumn(new_name.to_owned(), column.clone()))
        }
        _ => None,
    };
    catalog.comments().filter_map(|(on, comment)| Some((renamed(on)?, comment.to_owned()))).collect()
}

/// Sets comments.
pub(super) fn set_comments(
    edit: &mut CatalogEdit,
    comments: Vec<(CommentTarget, String)>,
) -> std::result::Result<(), CommitError> {
    comments.into_iter().try_for_each(|(on, comment)| edit.set_comment(on, Some(comment)))
}

/// Returns the table, view or sequence with a name, as the object of a comment.
fn relation(snapshot: &Catalog, kind: ObjectKind, name: &str) -> Result<CommentTarget> {
    check_kind(snapshot, kind, name)?;
    match (kind, snapshot.table(name), snapshot.view(name), snapshot.sequence(name)) {
        (ObjectKind::Table, Some(table), ..) => Ok(CommentTarget::Table(table.id)),
        (ObjectKind::View, _, Some(_), _) => Ok(CommentTarget::View(name.to_owned())),
        (ObjectKind::Sequence, .., Some(sequence)) => Ok(CommentTarget::Sequence(sequence.id)),
        _ => Err(QueryError::no_relation(name)),
    }
}
