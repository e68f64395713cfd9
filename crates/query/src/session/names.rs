//! `DROP TABLE`, `DROP VIEW` and `ALTER TABLE ... RENAME TO`. With `CASCADE`, a drop also removes the views, foreign
//! keys and column defaults that depend on the dropped objects. Without it, such a dependency is an error.

use std::collections::BTreeSet;

use taut_sql::{ObjectKind, PUBLIC, relations_of};
use taut_store::{Catalog, CatalogEdit, CommitError, ForeignKey, TableId, View};
use taut_types::{relation_name, sibling_name};

use super::comments::{comments_of_view, set_comments};
use super::constraints::{drop_references_between, set_constraints};
use super::schemas::owned_sequences;
use super::sequences::{DefaultUse, drop_defaults, uses_of_owned};
use super::{Done, Outcome, QuerySession};
use crate::error::{Dependency, QueryError, Result, SequenceError};

impl QuerySession {
    /// Drops tables or views and, with `cascade`, the objects that depend on them.
    pub(super) fn drop_names(
        &self,
        kind: ObjectKind,
        names: &[String],
        if_exists: bool,
        cascade: bool,
    ) -> Result<Outcome> {
        let snapshot = self.snapshot();
        let mut notices = Vec::new();
        let (mut found, mut tables, mut views) = (BTreeSet::new(), Vec::new(), Vec::new());
        for name in names {
            check_kind(&snapshot, kind, name)?;
            match (kind, snapshot.table(name), snapshot.view(name)) {
                (ObjectKind::Table, Some(table), _) if found.insert(name.as_str()) => tables.push(table.id),
                (ObjectKind::View, _, Some(_)) if found.insert(name) => views.push(name.clone()),
                _ if found.contains(name.as_str()) => {}
                _ if if_exists => notices.push(format!("{kind} {name:?} does not exist, skipping")),
                _ => return Err(QueryError::NotFound { kind, name: name.clone(), relation: None }),
            }
        }
        let others = snapshot.tables().filter(|table| !tables.contains(&table.id));
        let keys = others.flat_map(|table| table.constraints.foreign_keys.iter().map(|key| (table.id, key)));
        let foreign_keys: Vec<(TableId, &ForeignKey)> = keys.filter(|(_, key)| tables.contains(&key.table)).collect();
        let owned: Vec<String> = tables.iter().flat_map(|table| owned_sequences(&snapshot, Some(*table))).collect();
        found.extend(owned.iter().map(String::as_str));
        let dependent_views = dependent_views(&snapshot, kind, found);
        let uses = uses_of_owned(&snapshot, &tables);
        let of_defaults = uses.iter().map(DefaultUse::dependency);
        let of_views =
            dependent_views.iter().map(|(view, on)| Dependency { dependent: view_text(view), on: on.clone() });
        let dependencies = of_defaults.chain(of_views).chain(foreign_keys.iter().map(|(child, key)| Dependency {
            dependent: foreign_key_text(&snapshot, *child, key),
            on: format!("table {:?}", snapshot.table_of(key.table).map_or("", |table| table.name.as_str())),
        }));
        notices.extend(drop_dependents(kind, names, dependencies.collect(), cascade)?);
        self.changes().commit_last(|edit| {
            drop_defaults(edit, &uses_of_owned(edit.catalog(), &tables))?;
            drop_foreign_keys(edit, &foreign_keys)?;
            drop_references_between(edit, &tables)?;
            // A view is dropped before the relations that it reads.
            let dropped = dependent_views.iter().map(|(view, _)| view).chain(&views);
            drop_views(edit, dropped.map(String::as_str).collect())?;
            tables.iter().try_for_each(|table| edit.drop_table(*table))
        })?;
        Ok(Outcome::Done(Done { notices, ..Done::with_tag(&format!("DROP {}", kind.name().to_uppercase())) }))
    }

    /// Renames a view that no other view reads.
    pub(super) async fn rename_view(&self, name: &str, new_name: &str) -> Result<Outcome> {
        let snapshot = self.snapshot();
        let view = snapshot.view(name).ok_or_else(|| QueryError::no_relation(name))?;
        let views = dependent_views(&snapshot, ObjectKind::View, BTreeSet::from([name]));
        if !views.is_empty() {
            let dependencies = views.into_iter().map(|(view, on)| Dependency { dependent: view_text(&view), on });
            return Err(QueryError::Dependents {
                verb: "rename",
                object: Some(view_text(name)),
                dependencies: dependencies.collect(),
                hint: "Drop the views first, and create them with the new name of the view.",
            });
        }
        let new_name = &sibling_name(name, new_name);
        if snapshot.table(new_name).is_some() || snapshot.view(new_name).is_some() {
            return Err(QueryError::relation_exists(new_name));
        }
        let comments = comments_of_view(&snapshot, name, new_name);
        self.changes().commit(|edit| {
            edit.drop_view(name)?;
            edit.create_view(View { name: new_name.to_owned(), ..view.clone() }, false)?;
            set_comments(edit, comments)
        })?;
        Ok(Outcome::Done(Done::with_tag("ALTER TABLE")))
    }

    /// Renames a table that no view reads.
    pub(super) async fn rename_table(&self, name: &str, new_name: &str) -> Result<Outcome> {
        let _lock = self.lock_for_maintenance(self.table(name)?.id).await;
        let (table, snapshot) = (self.table(name)?, self.snapshot());
        // The SQL text of a view contains the name of the table.
        let views = dependent_views(&snapshot, ObjectKind::Table, BTreeSet::from([name]));
        if !views.is_empty() {
            let dependencies = views.into_iter().map(|(view, on)| Dependency { dependent: view_text(&view), on });
            return Err(QueryError::Dependents {
                verb: "rename",
                object: Some(format!("table {name:?}")),
                dependencies: dependencies.collect(),
                hint: "Drop the views first, and create them with the new name of the table.",
            });
        }
        let new_name = &sibling_name(name, new_name);
        if snapshot.table(new_name).is_some() || snapshot.view(new_name).is_some() {
            return Err(QueryError::relation_exists(new_name));
        }
        self.changes().commit(|edit| edit.rename_table(table.id, new_name))?;
        Ok(Outcome::Done(Done::with_tag("ALTER TABLE")))
    }
}

/// Checks the kind of the object that is called `name`. Accepts a name without an object.
///
/// # Errors
/// If the object is not of kind `kind`.
pub(super) fn check_kind(catalog: &Catalog, kind: ObjectKind, name: &str) -> Result<()> {
    let (is_table, is_view) = (catalog.table(name).is_some(), catalog.view(name).is_some());
    let is_sequence = !is_table && !is_view && catalog.sequence(name).is_some();
    let exists = is_table || is_view || is_sequence;
    let name = || name.to_owned();
    match kind {
        ObjectKind::Table if exists && !is_table => Err(QueryError::NotATable { name: name() }),
        ObjectKind::View if exists && !is_view => Err(QueryError::NotAView { name: name() }),
        ObjectKind::Sequence if exists && !is_sequence => Err(SequenceError::NotASequence { name: name() }.into()),
        _ => Ok(()),
    }
}

/// Returns the views that read the objects in `names`, directly or through other views. The objects are of kind `kind`,
/// or sequences. Each view
/// occurs once, with one relation that it reads, such as `table "t"`. Views in `names` are omitted.
pub(super) fn dependent_views(catalog: &Catalog, kind: ObjectKind, names: BTreeSet<&str>) -> Vec<(String, String)> {
    let reads: Vec<(&str, Vec<String>)> =
        catalog.views().map(|view| (view.name.as_str(), relations_of_view(view))).collect();
    let (mut reached, mut views) = (names.clone(), Vec::new());
    loop {
        let next = reads.iter().filter(|(view, _)| !reached.contains(view)).find_map(|(view, reads)| {
            let on = reads.iter().find(|name| reached.contains(name.as_str()))?;
            Some((*view, on))
        });
        let Some((view, on)) = next else { return views };
        reached.insert(view);
        let kind = match names.contains(on.as_str()) {
            true if catalog.sequence(on).is_some() => ObjectKind::Sequence,
            true => kind,
            false => ObjectKind::View,
        };
        views.push((view.to_owned(), format!("{kind} {on:?}")));
    }
}

/// Returns the names of the relations that a view reads. They may include paths of files.
pub(super) fn relations_of_view(view: &View) -> Vec<String> {
    if !view.relations.is_empty() {
        return view.relations.keys().cloned().collect();
    }
    // Before format version 12, a view did not store these names, and the only schema was `public`.
    let read = relations_of(&view.sql).unwrap_or_default();
    read.iter().map(|reference| relation_name(reference.schema().unwrap_or(PUBLIC), reference.table())).collect()
}

pub(super) fn view_text(view: &str) -> String {
    format!("view {view:?}")
}

/// Describes a foreign key of a table for messages.
pub(super) fn foreign_key_text(catalog: &Catalog, table: TableId, key: &ForeignKey) -> String {
    format!("constraint {:?} on table {:?}", key.name, catalog.table_of(table).map_or("", |table| table.name.as_str()))
}

/// Drops views, each before the views that it reads.
pub(super) fn drop_views(edit: &mut CatalogEdit, mut views: Vec<&str>) -> std::result::Result<(), CommitError> {
    while !views.is_empty() {
        let is_free = |view: &&str| edit.catalog().views().all(|other| !other.relations.contains_key(*view));
        let next = views.iter().position(is_free).unwrap_or_default();
        edit.drop_view(views.swap_remove(next))?;
    }
    Ok(())
}

/// Returns notices about the objects that `DROP ... CASCADE` drops in addition to the named objects.
///
/// # Errors
/// If something depends on the named objects, and the statement has no `CASCADE`.
pub(super) fn drop_dependents(
    kind: ObjectKind,
    names: &[String],
    dependencies: Vec<Dependency>,
    cascade: bool,
) -> Result<Vec<String>> {
    if cascade || dependencies.is_empty() {
        return Ok(dependencies
            .iter()
            .map(|dependency| format!("drop cascades to {}", dependency.dependent))
            .collect());
    }
    let object = match names {
        [name] => Some(format!("{kind} {name:?}")),
        _ => None,
    };
    let hint = "Use DROP ... CASCADE to drop the dependent objects too.";
    Err(QueryError::Dependents { verb: "drop", object, dependencies, hint })
}

/// Drops foreign keys. Each one comes with the id of the table that declares it.
pub(super) fn drop_foreign_keys(
    edit: &mut CatalogEdit,
    foreign_keys: &[(TableId, &ForeignKey)],
) -> std::result::Result<(), CommitError> {
    for (child, key) in foreign_keys {
        let table = edit.catalog().table_of(*child).ok_or(CommitError::NoTable { table: *child })?;
        let mut constraints = table.constraints.as_ref().clone();
        constraints.foreign_keys.retain(|other| other.name != key.name);
        set_constraints(edit, *child, constraints)?;
    }
    Ok(())
}
