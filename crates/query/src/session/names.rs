//! `DROP TABLE`, `DROP VIEW` and `ALTER TABLE ... RENAME TO`, which end the use of a name. What depends on the name,
//! views and foreign keys of other tables, is dropped with `CASCADE`, and otherwise prevents the statement.

use std::collections::BTreeSet;

use taut_sql::{ObjectKind, relations_of};
use taut_store::{Catalog, ForeignKey, TableId};

use super::constraints::{drop_references_between, set_constraints};
use super::{Done, Outcome, QuerySession};
use crate::error::{Dependency, QueryError, Result};

impl QuerySession {
    pub(super) fn drop_names(
        &self,
        kind: ObjectKind,
        names: &[String],
        if_exists: bool,
        cascade: bool,
    ) -> Result<Outcome> {
        let snapshot = self.snapshot();
        let mut notices = Vec::new();
        let (mut found, mut tables, mut views) = (Vec::new(), Vec::new(), Vec::new());
        for name in names {
            match (kind, snapshot.table(name), snapshot.view(name)) {
                (ObjectKind::Table, Some(table), _) => {
                    found.push(name.clone());
                    tables.push(table.id);
                }
                (ObjectKind::View, _, Some(_)) => {
                    found.push(name.clone());
                    views.push(name.clone());
                }
                _ if if_exists => notices.push(format!("{kind} {name:?} does not exist, skipping")),
                _ => return Err(QueryError::NotFound { kind, name: name.clone(), relation: None }),
            }
        }
        let dependencies = dependent_views(&snapshot, kind, &found);
        if !cascade && !dependencies.is_empty() {
            let what = match names {
                [name] => format!("drop {kind} {name:?}"),
                _ => "drop desired object(s)".to_owned(),
            };
            return Err(QueryError::Dependents {
                what,
                dependencies,
                hint: "Use DROP ... CASCADE to drop the dependent objects too.",
            });
        }
        notices.extend(dependencies.iter().map(|dependency| format!("drop cascades to view {:?}", dependency.view)));
        views.extend(dependencies.into_iter().map(|dependency| dependency.view));
        let foreign_keys = if cascade { references_to(&snapshot, &tables) } else { Vec::new() };
        notices.extend(foreign_keys.iter().map(|(child, key)| {
            let table = snapshot.table_of(*child).map(|table| table.name.clone()).unwrap_or_default();
            format!("drop cascades to constraint {:?} on table {table:?}", key.name)
        }));
        self.changes().commit_last(|edit| {
            for (child, key) in &foreign_keys {
                let Some(table) = edit.catalog().table_of(*child) else { continue };
                let mut constraints = table.constraints.as_ref().clone();
                constraints.foreign_keys.retain(|other| other.name != key.name);
                set_constraints(edit, *child, constraints)?;
            }
            drop_references_between(edit, &tables)?;
            tables.iter().try_for_each(|table| edit.drop_table(*table))?;
            views.iter().try_for_each(|view| edit.drop_view(view))
        })?;
        Ok(Outcome::Done(Done { notices, ..Done::with_tag(&format!("DROP {}", kind.name().to_uppercase())) }))
    }

    pub(super) async fn rename_table(&self, name: &str, new: &str) -> Result<Outcome> {
        let _lock = self.lock_for_maintenance(self.table(name)?.id).await;
        let (table, snapshot) = (self.table(name)?, self.snapshot());
        // The text of a view names the table.
        let dependencies = dependent_views(&snapshot, ObjectKind::Table, &[name.to_owned()]);
        if !dependencies.is_empty() {
            let hint = "Drop the views first, and create them with the new name of the table.";
            return Err(QueryError::Dependents { what: format!("rename table {name:?}"), dependencies, hint });
        }
        if snapshot.table(new).is_some() || snapshot.view(new).is_some() {
            return Err(QueryError::relation_exists(new));
        }
        self.changes().commit(|edit| edit.rename_table(table.id, new))?;
        Ok(Outcome::Done(Done::with_tag("ALTER TABLE")))
    }
}

/// The views that read the named tables or views, and the views that read those. Each comes once. Named views are left
/// out.
fn dependent_views(catalog: &Catalog, kind: ObjectKind, names: &[String]) -> Vec<Dependency> {
    let reads: Vec<(&str, Vec<String>)> =
        catalog.views().map(|view| (view.name.as_str(), relations_of(&view.sql).unwrap_or_default())).collect();
    let mut reached: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let mut dependencies: Vec<Dependency> = Vec::new();
    loop {
        let next = reads.iter().filter(|(view, _)| !reached.contains(view)).find_map(|(view, reads)| {
            let on = reads.iter().find(|name| reached.contains(name.as_str()))?;
            Some((*view, on.clone()))
        });
        let Some((view, on)) = next else { return dependencies };
        reached.insert(view);
        let kind = if names.contains(&on) { kind } else { ObjectKind::View };
        dependencies.push(Dependency { view: view.to_owned(), kind, on });
    }
}

/// The foreign keys that reference the given tables, of other tables.
fn references_to(catalog: &Catalog, tables: &[TableId]) -> Vec<(TableId, ForeignKey)> {
    let others = catalog.tables().filter(|table| !tables.contains(&table.id));
    others
        .flat_map(|table| table.constraints.foreign_keys.iter().map(|key| (table.id, key.clone())))
        .filter(|(_, key)| tables.contains(&key.table))
        .collect()
}
