//! `CREATE INDEX` and `DROP INDEX`: an index is part of the table's design ([`TableDesign`](taut_types::TableDesign)),
//! and of each of its blocks. A unique index is also a key among the constraints of the table.

use std::sync::Arc;

use taut_sql::{ConstraintChange, DeclaredCondition, DeclaredConstraint, NewIndex, ObjectKind, SchemaChange};
use taut_store::{Catalog, CommitError, Constraints, ForeignKey, Table, TableId, UniqueKey};
use taut_types::{ColumnIndex, IndexDesign, IndexKind, sibling_name, split_relation_name, unqualified_name};

use super::index_columns::{drop_unused_index_columns, renamed_index_columns};
use super::names::{drop_dependents, drop_foreign_keys, foreign_key_text};
use super::{Done, Outcome, QuerySession};
use crate::constraints::add_key_indexes;
use crate::error::{Dependency, QueryError, Result};
use crate::write::changes::Changes;
use crate::write::rewrite::rebuild_indexes;

impl QuerySession {
    pub(super) async fn create_index(&self, new: &NewIndex) -> Result<Outcome> {
        let table_name = self.name(&new.table)?;
        let table = self.table(&table_name)?;
        let name = new.name.clone().unwrap_or_else(|| index_name(&self.snapshot(), &table, new));
        let relation = sibling_name(&table.name, &name);
        let Some(column_names) = new.column_names() else {
            return self.create_computed_index(name, new, &table).await;
        };
        let index = index_design(name, new, &column_names, &table)?;
        let mut notices = Vec::new();
        notices.extend(searched_columns_notice(new, &index.name));
        let snapshot = self.snapshot();
        let is_index = self.index(&relation).is_some();
        if !is_index && !snapshot.is_name_free(&relation) {
            return Err(QueryError::relation_exists(relation));
        }
        match self.index(&relation) {
            None if new.is_unique => {
                let rule = DeclaredCondition::UniqueIndex { columns: column_names };
                let change = ConstraintChange::Add(DeclaredConstraint { name: Some(index.name), rule });
                self.alter_schema(&table_name, &[SchemaChange::Constraint(change)]).await?;
                return Ok(Outcome::Done(Done { notices, ..Done::with_tag("CREATE INDEX") }));
            }
            None => self.changes().commit(|edit| {
                let catalog = edit.catalog();
                if !catalog.is_name_free(&relation) {
                    return Err(CommitError::NameTaken { name: relation.clone() });
                }
                let table = catalog.table_of(table.id).ok_or(CommitError::NoTable { table: table.id })?;
                let (id, mut design) = (table.id, table.design.as_ref().clone());
                design.indexes.push(index);
                edit.set_design(id, design)
            })?,
            Some((owner, known))
                if new.if_not_exists
                    && owner.id == table.id
                    && known == index
                    && is_unique(&owner, &known.name) == new.is_unique =>
            {
                notices.push(format!("index {:?} already exists; blocks that lack it are given it", known.name));
            }
            Some((owner, known)) if new.if_not_exists => {
                let notice = format!("relation {:?} already exists on table {:?}, skipping", known.name, owner.name);
                return Ok(Outcome::Done(Done { notices: vec![notice], ..Done::with_tag("CREATE INDEX") }));
            }
            Some(_) => return Err(QueryError::relation_exists(relation)),
        }
        let _lock = self.lock_for_maintenance(table.id).await;
        self.rebuild(table.id, &format!("index {}", table.name), &[]).await?;
        self.mover.wake();
        Ok(Outcome::Done(Done { notices, ..Done::with_tag("CREATE INDEX") }))
    }

    /// Creates an index on expressions or a partial index.
    async fn create_computed_index(&self, name: String, new: &NewIndex, table: &Arc<Table>) -> Result<Outcome> {
        if new.kind == IndexKind::Bloom && new.parts.len() > new.kind.columns_max() {
            return Err(unsupported_columns(new));
        }
        let mut notices: Vec<String> = searched_columns_notice(new, &name).into_iter().collect();
        let relation = sibling_name(&table.name, &name);
        match self.index(&relation) {
            Some((owner, _)) if new.if_not_exists => {
                // Builds the index in the blocks that lack it.
                let _lock = self.lock_for_maintenance(owner.id).await;
                self.rebuild(owner.id, &format!("index {}", owner.name), &[]).await?;
                notices = vec![format!("relation {name:?} already exists on table {:?}, skipping", owner.name)];
                return Ok(Outcome::Done(Done { notices, ..Done::with_tag("CREATE INDEX") }));
            }
            None if self.snapshot().is_name_free(&relation) => {}
            _ => return Err(QueryError::relation_exists(relation)),
        }
        let _lock = self.lock_for_maintenance(table.id).await;
        self.in_transaction(async |target: Changes| self.add_computed_index(&target, (&table.name, &name), new).await)
            .await?;
        self.rebuild(table.id, &format!("index {}", table.name), &[]).await?;
        self.mover.wake();
        Ok(Outcome::Done(Done { notices, ..Done::with_tag("CREATE INDEX") }))
    }

    pub(super) async fn drop_indexes(&self, names: &[String], if_exists: bool, cascade: bool) -> Result<Outcome> {
        let (mut notices, mut tables) = (Vec::new(), Vec::<Arc<Table>>::new());
        for name in names {
            match self.index(name) {
                Some((table, index))
                    if table.constraints.keys.iter().any(|key| key.name == index.name && !key.is_index) =>
                {
                    return Err(QueryError::unsupported(
                        format!(
                            "DROP INDEX {name}, which constraint {:?} of table {:?} is looked up by,",
                            index.name, table.name
                        ),
                        "ALTER TABLE ... DROP CONSTRAINT drops both",
                    ));
                }
                Some((table, _)) if tables.iter().any(|known| known.id == table.id) => {}
                Some((table, _)) => tables.push(table),
                None if if_exists => notices.push(format!("index {name:?} does not exist, skipping")),
                None => {
                    return Err(QueryError::NotFound { kind: ObjectKind::Index, name: name.clone(), relation: None });
                }
            }
        }
        // The names of the dropped indexes of a table.
        let dropped = |table: &Table| -> Vec<String> {
            let indexes = table.design.indexes.iter().map(|index| index.name.clone());
            indexes.filter(|index| names.contains(&sibling_name(&table.name, index))).collect()
        };
        let snapshot = self.snapshot();
        let foreign_keys = references_to_dropped(&snapshot, &tables, names);
        let dependencies = foreign_keys.iter().map(|(child, key, index)| Dependency {
            dependent: foreign_key_text(&snapshot, *child, key),
            on: format!("index {index:?}"),
        });
        notices.extend(drop_dependents(ObjectKind::Index, names, dependencies.collect(), cascade)?);
        let foreign_keys: Vec<_> = foreign_keys.into_iter().map(|(child, key, _)| (child, key)).collect();
        // The design keeps an index until no block has it, so that an interrupted statement can be repeated.
        for table in &tables {
            let _lock = self.lock_for_maintenance(table.id).await;
            self.rebuild(table.id, &format!("drop index of {}", table.name), &dropped(table)).await?;
        }
        self.changes().commit(|edit| {
            drop_foreign_keys(edit, &foreign_keys)?;
            tables.iter().try_for_each(|table| {
                let table = edit.catalog().table_of(table.id).ok_or(CommitError::NoTable { table: table.id })?;
                let (id, mut design) = (table.id, table.design.as_ref().clone());
                let mut constraints = table.constraints.as_ref().clone();
                let dropped = dropped(table);
                constraints.keys.retain(|key| !key.is_index || !dropped.contains(&key.name));
                design.indexes.retain(|index| !dropped.contains(&index.name));
                // A key that used one of the dropped indexes gets its own index.
                add_key_indexes((&table.name, &mut design), &constraints, edit.catalog())?;
                if constraints != *table.constraints {
                    edit.set_constraints(id, constraints)?;
                }
                edit.set_design(id, design)?;
                drop_unused_index_columns(edit, id)
            })
        })?;
        // Blocks that were added meanwhile have the dropped indexes, and other blocks lack the new indexes of keys.
        for table in &tables {
            let _lock = self.lock_for_maintenance(table.id).await;
            self.rebuild(table.id, &format!("drop index of {}", table.name), &dropped(table)).await?;
        }
        Ok(Outcome::Done(Done { notices, ..Done::with_tag("DROP INDEX") }))
    }

    /// `ALTER INDEX ... RENAME TO`. A constraint that uses the index is renamed too, as in PostgreSQL.
    pub(super) async fn rename_index(&self, name: &str, if_exists: bool, new_name: &str) -> Result<Outcome> {
        let Some((table, index)) = self.index(name) else {
            if !if_exists {
                return Err(QueryError::no_relation(name));
            }
            let notice = format!("relation {name:?} does not exist, skipping");
            return Ok(Outcome::Done(Done { notices: vec![notice], ..Done::with_tag("ALTER INDEX") }));
        };
        let relation = sibling_name(&table.name, new_name);
        self.changes().commit(|edit| {
            if !edit.catalog().is_name_free(&relation) {
                return Err(CommitError::NameTaken { name: relation.clone() });
            }
            let table = edit.catalog().table_of(table.id).ok_or(CommitError::NoTable { table: table.id })?;
            let (id, mut design) = (table.id, table.design.as_ref().clone());
            let (known, mut constraints) = (Arc::clone(&table.constraints), table.constraints.as_ref().clone());
            let hidden = renamed_index_columns(table, &index.name, new_name);
            let indexes = design.indexes.iter_mut().map(|known| &mut known.name);
            let names = indexes.chain(constraints.keys.iter_mut().map(|key| &mut key.name));
            names.filter(|known| **known == index.name).for_each(|known| new_name.clone_into(known));
            if constraints != *known {
                edit.set_constraints(id, constraints)?;
            }
            edit.set_design(id, design)?;
            hidden.into_iter().try_for_each(|(column, name)| edit.rename_column(id, column, &name))
        })?;
        let _lock = self.lock_for_maintenance(table.id).await;
        self.rebuild(table.id, &format!("rename index of {}", table.name), &[]).await?;
        Ok(Outcome::Done(Done::with_tag("ALTER INDEX")))
    }

    /// Builds the indexes of a table's current design in its blocks, except the indexes in `without`. Blocks from which
    /// the transaction in progress has deleted rows may lack the indexes, because they cannot be replaced before it
    /// commits. Queries are correct without an index, and VACUUM builds it.
    pub(super) async fn rebuild(&self, table: TableId, operation: &str, without: &[String]) -> Result<()> {
        let snapshot = self.snapshot();
        let newest = snapshot.table_of(table).ok_or(CommitError::NoTable { table })?;
        let indexes = newest.design.indexes.iter().filter(|index| !without.contains(&index.name));
        let indexes: Vec<IndexDesign> = indexes.cloned().collect();
        let progress = self.progress_counter(operation, Some(newest.rows()));
        match rebuild_indexes(&self.changes(), table, &indexes, self.threads, progress).await {
            Err(QueryError::Commit(CommitError::OwnRows { .. })) => Ok(()),
            result => result,
        }
    }

    /// Looks up an index by its name with schema. Returns its table too.
    fn index(&self, relation: &str) -> Option<(Arc<Table>, IndexDesign)> {
        let (schema, name) = split_relation_name(relation);
        let snapshot = self.snapshot();
        let mut tables = snapshot.tables().filter(|table| split_relation_name(&table.name).0 == schema);
        tables.find_map(|table| {
            let index = table.design.indexes.iter().find(|index| index.name == *name)?;
            Some((Arc::clone(table), index.clone()))
        })
    }
}

/// Generates an unused name for an index that is created without a name, as PostgreSQL does.
fn index_name(catalog: &Catalog, table: &Table, new: &NewIndex) -> String {
    let name = format!("{}_{}_idx", unqualified_name(&table.name), new.part_names().join("_"));
    let numbered = (1..).map(|number| format!("{name}{number}"));
    let is_free = |name: &String| catalog.is_name_free(&sibling_name(&table.name, name));
    std::iter::once(name.clone()).chain(numbered).find(is_free).unwrap_or_default()
}

/// Design of a new index. A CSB+-tree stores only the first two of its columns.
fn index_design(name: String, new: &NewIndex, column_names: &[String], table: &Table) -> Result<IndexDesign> {
    let columns: Vec<ColumnIndex> = column_names
        .iter()
        .map(|column| {
            let not_found = || QueryError::no_column(&table.name, column);
            table.visible_column(column).ok_or_else(not_found)
        })
        .collect::<Result<_>>()?;
    let is_twice = (1..columns.len()).any(|at| columns[..at].contains(&columns[at]));
    if is_twice || (new.kind == IndexKind::Bloom && columns.len() > IndexKind::Bloom.columns_max()) {
        return Err(unsupported_columns(new));
    }
    let columns = columns.into_iter().take(new.kind.columns_max()).collect();
    Ok(IndexDesign { name, kind: new.kind, columns })
}

fn unsupported_columns(new: &NewIndex) -> QueryError {
    let parts = new.parts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let what = format!("an index USING {} on ({parts})", new.kind.name());
    QueryError::unsupported(what, "csb takes different columns, bloom takes one column")
}

/// Notice about an index that searches use with only some of its columns.
fn searched_columns_notice(new: &NewIndex, name: &str) -> Option<String> {
    let (searched, all) = (new.kind.columns_max(), new.parts.len());
    let notice = || format!("index {name:?} is searched by the first {searched} of its {all} columns only");
    (searched < all).then(notice)
}

/// The foreign keys that reference the columns of a dropped unique index, and no other key. Each comes with its table
/// and the name of the index.
fn references_to_dropped<'a>(
    catalog: &'a Catalog,
    tables: &'a [Arc<Table>],
    dropped: &[String],
) -> Vec<(TableId, &'a ForeignKey, &'a str)> {
    let mut references = Vec::new();
    for table in tables {
        let is_dropped = |key: &&UniqueKey| key.is_index && dropped.contains(&sibling_name(&table.name, &key.name));
        let mut rest = table.constraints.as_ref().clone();
        rest.keys.retain(|key| !is_dropped(&key));
        for key in table.constraints.keys.iter().filter(is_dropped) {
            let own = Constraints { keys: vec![key.clone()], ..Constraints::default() };
            let needs = |foreign: &ForeignKey| {
                foreign.table == table.id && own.has_key(&foreign.referenced) && !rest.has_key(&foreign.referenced)
            };
            for child in catalog.tables() {
                let foreign_keys = child.constraints.foreign_keys.iter().filter(|foreign| needs(foreign));
                references.extend(foreign_keys.map(|foreign| (child.id, foreign, key.name.as_str())));
            }
        }
    }
    references
}

/// Whether an index of a table was made by `CREATE UNIQUE INDEX`.
fn is_unique(table: &Table, index: &str) -> bool {
    table.constraints.keys.iter().any(|key| key.is_index && key.name == index)
}
