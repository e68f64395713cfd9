//! `ALTER VIEW`, which renames a view or one of its columns.

use std::collections::BTreeSet;

use taut_sql::{ObjectKind, ViewChange};
use taut_store::{CommentTarget, View};

use super::ddl::named_columns;
use super::names::{check_kind, dependent_views, view_text};
use super::{Done, Outcome, QuerySession};
use crate::error::{Dependency, QueryError, Result};
use crate::write::changes::Changes;

impl QuerySession {
    /// Runs `ALTER VIEW`.
    pub(super) async fn alter_view(&self, name: &str, if_exists: bool, change: &ViewChange) -> Result<Outcome> {
        let snapshot = self.snapshot();
        check_kind(&snapshot, ObjectKind::View, name)?;
        if snapshot.view(name).is_none() {
            if !if_exists {
                return Err(QueryError::no_relation(name));
            }
            let notice = format!("relation {name:?} does not exist, skipping");
            return Ok(Outcome::Done(Done { notices: vec![notice], ..Done::with_tag("ALTER VIEW") }));
        }
        match change {
            ViewChange::Rename(new_name) => drop(self.rename_view(name, new_name).await?),
            ViewChange::RenameColumn { column, name: new_name } => {
                self.rename_view_column(name, column, new_name).await?;
            }
        }
        Ok(Outcome::Done(Done::with_tag("ALTER VIEW")))
    }

    /// Renames a column of a view. Returns an error if another view reads the view.
    pub(super) async fn rename_view_column(&self, name: &str, column: &str, new_name: &str) -> Result<()> {
        self.in_transaction(async |target: Changes| {
            let snapshot = target.snapshot();
            let view = snapshot.view(name).ok_or_else(|| QueryError::no_relation(name))?;
            let plan = self.plan_of_view(&snapshot, name).await?;
            let columns: Vec<&String> = plan.schema().fields().iter().map(|field| field.name()).collect();
            let new_name = new_name.to_owned();
            if !columns.iter().any(|known| *known == column) {
                return Err(QueryError::no_column(name, column));
            }
            if columns.contains(&&new_name) {
                let relation = Some(name.to_owned());
                return Err(QueryError::Exists { kind: ObjectKind::Column, name: new_name, relation });
            }
            // The SQL text of a view that reads this view may contain the name of the column.
            let views = dependent_views(&snapshot, ObjectKind::View, BTreeSet::from([name]));
            if !views.is_empty() {
                let dependencies = views.into_iter().map(|(view, on)| Dependency { dependent: view_text(&view), on });
                return Err(QueryError::Dependents {
                    verb: "rename",
                    object: Some(format!("column {column:?} of {}", view_text(name))),
                    dependencies: dependencies.collect(),
                    hint: "Drop the views first, and create them with the new name of the column.",
                });
            }
            let columns: Vec<&String> =
                columns.into_iter().map(|known| if known == column { &new_name } else { known }).collect();
            let renamed = View { sql: named_columns(&view.sql, name, &columns), ..view.clone() };
            let comment = CommentTarget::ViewColumn(name.to_owned(), column.to_owned());
            let text = snapshot.comments().find(|(on, _)| **on == comment).map(|(_, text)| text.to_owned());
            target.commit(|edit| {
                if let Some(text) = text {
                    edit.set_comment(comment, None)?;
                    edit.set_comment(CommentTarget::ViewColumn(name.to_owned(), new_name), Some(text))?;
                }
                edit.create_view(renamed, true)
            })?;
            Ok(())
        })
        .await
    }
}
