//! `CREATE OR REPLACE TABLE`: drops a table and creates another with the same name, in one transaction. Views that read
//! the table remain if they can be planned on the new table.

use std::sync::Arc;

use taut_sql::{ObjectKind, Parameters, TableSource};
use taut_store::{CatalogEdit, CommentTarget, Table, View};
use taut_types::sibling_name;

use super::comments::{comments_of_view, set_comments};
use super::names::{dependent_views, drop_views, foreign_key_text};
use super::sequences::{DefaultUse, uses_of_owned};
use super::{Done, QuerySession, query_tables};
use crate::error::{Dependency, QueryError, Result};
use crate::write::changes::Changes;

/// Name of the new table until the old table is dropped. Both are in the same schema. No statement can contain this
/// name.
const NEW_TABLE: &str = "\0new";

impl QuerySession {
    /// Runs `CREATE OR REPLACE TABLE` for a table that exists.
    pub(super) async fn replace_table(
        &self,
        name: &str,
        source: &TableSource,
        options: &[(String, String)],
        parameters: &Parameters,
    ) -> Result<Done> {
        let _lock = self.lock_for_maintenance(self.table(name)?.id).await;
        self.in_transaction(async |target: Changes| {
            let snapshot = target.snapshot();
            let old = snapshot.table(name).ok_or_else(|| QueryError::no_relation(name))?;
            let views = dependent_views(&snapshot, ObjectKind::Table, [name].into());
            refuse_references(&snapshot, old)?;
            let done = match source {
                // A query may read the old table, so the old table is dropped afterwards.
                TableSource::Query { query, names } => {
                    let read = query_tables(query)?;
                    let path = self.search_path();
                    let is_read = |relation: &str| {
                        let mut names = read.iter().filter_map(|table| path.name(&snapshot, table).ok());
                        names.any(|name| name == relation)
                    };
                    let reads_old = is_read(name) || views.iter().any(|(view, _)| is_read(view));
                    if let Some(transaction) = target.transaction().filter(|_| reads_old) {
                        // Rows that concurrent transactions insert after the query has read the old table would be
                        // lost.
                        transaction.require_unchanged(old.id);
                    }
                    let new_name = &sibling_name(name, NEW_TABLE);
                    let done = self.create_table_as(&target, new_name, (query, names), options, parameters).await?;
                    target.commit(|edit| {
                        let new = edit.catalog().table(new_name).map(|table| table.id);
                        let new = new.ok_or_else(|| QueryError::no_relation(name))?;
                        replace(edit, old, &views, |edit| Ok(edit.rename_table(new, name)?))
                    })?;
                    done
                }
                TableSource::Columns { .. } | TableSource::Like { .. } => {
                    let (schema, design, declared) = self.declared_table(&snapshot, name, source, options)?;
                    target.commit(|edit| {
                        replace(edit, old, &views, |edit| Self::define_table(edit, name, &schema, design, &declared))
                    })?;
                    Done::with_tag("CREATE TABLE")
                }
            };
            let replaced = format!("{} {name:?}", ObjectKind::Table);
            self.check_dependent_views((&snapshot, &target.snapshot()), &views, &replaced).await?;
            Ok(done)
        })
        .await
    }
}

/// Checks that no other table depends on a table that is replaced.
///
/// # Errors
/// If another table has a foreign key to the table, or a default that uses one of its sequences.
fn refuse_references(snapshot: &taut_store::Catalog, table: &Table) -> Result<()> {
    let children = snapshot.tables().filter(|child| child.id != table.id);
    let keys = children.flat_map(|child| child.constraints.foreign_keys.iter().map(move |key| (child.id, key)));
    let dependencies: Vec<_> = keys
        .filter(|(_, key)| key.table == table.id)
        .map(|(child, key)| Dependency {
            dependent: foreign_key_text(snapshot, child, key),
            on: format!("{} {:?}", ObjectKind::Table, table.name),
        })
        .collect();
    let dependencies: Vec<_> = dependencies
        .into_iter()
        .chain(uses_of_owned(snapshot, &[table.id]).iter().map(DefaultUse::dependency))
        .collect();
    if dependencies.is_empty() {
        return Ok(());
    }
    Err(QueryError::Dependents {
        verb: "replace",
        object: Some(format!("{} {:?}", ObjectKind::Table, table.name)),
        dependencies,
        hint: "Drop these first, and create them again afterwards.",
    })
}

/// Drops a table, calls `create` to create another with the same name, and recreates the views that read the table,
/// with their comments.
fn replace(
    edit: &mut CatalogEdit,
    old: &Arc<Table>,
    views: &[(String, String)],
    create: impl FnOnce(&mut CatalogEdit) -> Result<()>,
) -> Result<()> {
    let kept: Vec<View> = views.iter().filter_map(|(view, _)| edit.catalog().view(view).cloned()).collect();
    let comments = |view: &View| comments_of_view(edit.catalog(), &view.name, &view.name);
    let comments: Vec<(CommentTarget, String)> = kept.iter().flat_map(comments).collect();
    drop_views(edit, kept.iter().map(|view| view.name.as_str()).collect())?;
    edit.drop_table(old.id)?;
    create(edit)?;
    kept.into_iter().try_for_each(|view| edit.create_view(view, false))?;
    Ok(set_comments(edit, comments)?)
}
