//! `CREATE`, `DROP` and `ALTER SCHEMA`, `ALTER ... SET SCHEMA`, and resolution of relation names in statements.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::common::TableReference;
use taut_sql::{
    ColumnChange, ConstraintChange, Declared, DeclaredCondition, DeclaredConstraint, ObjectKind, PUBLIC, SchemaChange,
    TableSource, parse_expression,
};
use taut_store::{Catalog, CatalogEdit, CommentTarget, CommitError, Sequence, TableId, View};
use taut_types::{TEMPORARY_SCHEMA, is_temporary_relation, relation_name, split_relation_name, unqualified_name};

use super::comments::{comments_of_view, set_comments};
use super::functions::{move_function, views_with_functions};
use super::names::{check_kind, relations_of_view, view_text};
use super::search_path::SearchPath;
use super::sequences::rename_sequence;
use super::{Done, Outcome, QuerySession};
use crate::constraints::with_named_sequences;
use crate::error::{Dependency, QueryError, Result, TemporaryError};

impl QuerySession {
    /// The search path of the session.
    pub(super) fn search_path(&self) -> SearchPath {
        self.search_path.lock().clone()
    }

    /// Resolves the name of a relation in a statement: see [`SearchPath::name`].
    pub(super) fn name(&self, reference: &TableReference) -> Result<String> {
        self.search_path().name(&self.snapshot(), self.own_reference(reference)?.as_ref())
    }

    pub(super) fn names(&self, references: &[TableReference]) -> Result<Vec<String>> {
        references.iter().map(|reference| self.name(reference)).collect()
    }

    /// Resolves the name of a relation that a statement creates: see [`SearchPath::new_name`].
    pub(super) fn new_name(&self, reference: &TableReference, is_temporary: bool) -> Result<String> {
        self.search_path().new_name(&self.snapshot(), self.own_reference(reference)?.as_ref(), is_temporary)
    }

    /// Resolves the name of a view that a statement creates. A view that reads a temporary relation becomes temporary.
    /// The result then includes a notice, unless the statement has `TEMPORARY`.
    pub(super) fn new_view_name(
        &self,
        reference: &TableReference,
        is_temporary: bool,
        sql: &str,
    ) -> Result<(String, Option<String>)> {
        let reference = &*self.own_reference(reference)?;
        let (path, snapshot) = (self.search_path(), self.snapshot());
        let is_read = |relation: &TableReference| {
            let name = path.name(&snapshot, relation);
            name.is_ok_and(|name| is_temporary_relation(&name) && !snapshot.is_name_free(&name))
        };
        let reads_temporary = !is_temporary && taut_sql::relations_of(sql)?.iter().any(is_read);
        let name = path.new_name(&snapshot, reference, is_temporary || reads_temporary)?;
        let notice = || format!("view {:?} will be a temporary view", reference.table());
        Ok((name, reads_temporary.then(notice)))
    }

    /// Converts a relation name from the API to a reference. The name has the format of [`relation_name`], or the name
    /// of a database and a dot before a name with a schema.
    pub(super) fn reference(text: &str) -> TableReference {
        if let Some((database, relation)) = text.split_once('.').filter(|_| !text.starts_with('"')) {
            let (schema, name) = split_relation_name(relation);
            if name != relation {
                return TableReference::full(database, schema, name);
            }
        }
        let (schema, name) = split_relation_name(text);
        match name == text {
            true => TableReference::bare(text),
            false => TableReference::partial(schema, name),
        }
    }

    pub(super) fn create_schema(&self, name: &str, if_not_exists: bool) -> Result<Outcome> {
        let done = Done::with_tag("CREATE SCHEMA");
        if if_not_exists && self.snapshot().has_schema(name) {
            let notice = format!("schema {name:?} already exists, skipping");
            return Ok(Outcome::Done(Done { notices: vec![notice], ..done }));
        }
        self.check_schema_name(name)?;
        self.changes().commit_last(|edit| edit.create_schema(name))?;
        Ok(Outcome::Done(done))
    }

    /// Drops schemas, in the transaction in progress.
    pub(super) fn drop_schemas(&self, names: &[String], if_exists: bool, cascade: bool) -> Result<Outcome> {
        let (mut notices, mut dropped) = (Vec::new(), BTreeSet::new());
        for name in names {
            match self.snapshot().has_schema(name) {
                true if name == PUBLIC || name == TEMPORARY_SCHEMA => {
                    let allowed = "DROP TABLE and DROP VIEW drop what is in it";
                    return Err(QueryError::unsupported(format!("DROP SCHEMA {name}"), allowed));
                }
                true => drop(dropped.insert(name.as_str())),
                false if if_exists => notices.push(format!("schema {name:?} does not exist, skipping")),
                false => return Err(QueryError::no_schema(name)),
            }
        }
        let contents: Vec<_> = dropped.iter().flat_map(|schema| contents(&self.snapshot(), schema)).collect();
        if !cascade && !contents.is_empty() {
            let depends = |(kind, relation): &(ObjectKind, String)| Dependency {
                dependent: format!("{kind} {relation:?}"),
                on: format!("schema {:?}", split_relation_name(relation).0),
            };
            return Err(QueryError::Dependents {
                verb: "drop",
                object: Some(format!("schema {:?}", names[0])).filter(|_| names.len() == 1),
                dependencies: contents.iter().map(depends).collect(),
                hint: "Use DROP ... CASCADE to drop the dependent objects too.",
            });
        }
        for kind in [ObjectKind::View, ObjectKind::Function, ObjectKind::Table, ObjectKind::Sequence] {
            let of_kind = contents.iter().filter(|(other, _)| *other == kind).map(|(_, relation)| relation.clone());
            let relations: Vec<String> = of_kind.collect();
            notices.extend(relations.iter().map(|relation| format!("drop cascades to {kind} {relation:?}")));
            // An earlier drop may already have dropped some of these relations.
            let outcome = match kind {
                ObjectKind::Function => {
                    notices.extend(self.drop_named_functions(&relations, true)?);
                    continue;
                }
                ObjectKind::Sequence => self.drop_sequences(&relations, true, true)?,
                kind => self.drop_names(kind, &relations, true, true)?,
            };
            if let Outcome::Done(done) = outcome {
                let is_known = |notice: &String| notice.ends_with(", skipping") || notices.contains(notice);
                let others: Vec<String> = done.notices.into_iter().filter(|notice| !is_known(notice)).collect();
                notices.extend(others);
            }
        }
        self.changes().commit_last(|edit| dropped.iter().try_for_each(|schema| edit.drop_schema(schema)))?;
        Ok(Outcome::Done(Done { notices, ..Done::with_tag("DROP SCHEMA") }))
    }

    /// Renames a schema and all relations in it, in one commit.
    pub(super) fn rename_schema(&self, name: &str, new_name: &str) -> Result<Outcome> {
        let snapshot = self.snapshot();
        if !snapshot.has_schema(name) {
            return Err(QueryError::no_schema(name));
        }
        if name == PUBLIC || name == TEMPORARY_SCHEMA {
            return Err(QueryError::unsupported(format!("ALTER SCHEMA {name}"), "other schemas can be renamed"));
        }
        self.check_schema_name(new_name)?;
        let mut contents = contents(&snapshot, name);
        contents.retain(|(kind, _)| *kind != ObjectKind::Function);
        refuse_callers(&snapshot, name)?;
        let relations: BTreeSet<&str> = contents.iter().map(|(_, relation)| relation.as_str()).collect();
        refuse_readers(&snapshot, "rename", format!("schema {name:?}"), relations)?;
        let owned = snapshot.tables().flat_map(|table| owned_sequences(&snapshot, Some(table.id)));
        let owned = owned.filter(|sequence| split_relation_name(sequence).0 == name);
        let owned = owned.map(|sequence| (ObjectKind::Sequence, sequence));
        let moved: BTreeMap<String, ObjectKind> =
            contents.into_iter().chain(owned).map(|(kind, relation)| (relation, kind)).collect();
        let functions: Vec<&str> = snapshot.functions_of_schema(name).collect();
        self.changes().commit_last(|edit| {
            edit.create_schema(new_name)?;
            for (relation, kind) in &moved {
                move_relation(edit, *kind, relation, &relation_name(new_name, &unqualified_name(relation)))?;
            }
            for function in functions {
                move_function(edit, function, &relation_name(new_name, &unqualified_name(function)))?;
            }
            let on = |schema: &str| CommentTarget::Schema(schema.to_owned());
            if let Some(comment) = snapshot.comment(&on(name)) {
                edit.set_comment(on(new_name), Some(comment.to_owned()))?;
            }
            Ok::<_, QueryError>(edit.drop_schema(name)?)
        })?;
        Ok(Outcome::Done(Done::with_tag("ALTER SCHEMA")))
    }

    /// Moves a table, view or sequence to another schema. The sequences of a table's columns move with the table.
    pub(super) async fn set_schema(
        &self,
        kind: ObjectKind,
        reference: &TableReference,
        if_exists: bool,
        schema: &str,
    ) -> Result<Outcome> {
        let done = Done::with_tag(&format!("ALTER {}", kind.name().to_uppercase()));
        let _lock = match self.snapshot().table(&self.name(reference)?) {
            Some(table) => self.lock_for_maintenance(table.id).await,
            None => None,
        };
        let (name, snapshot) = (self.name(reference)?, self.snapshot());
        check_kind(&snapshot, kind, &name)?;
        let table = snapshot.table(&name);
        if table.is_none() && snapshot.view(&name).is_none() && snapshot.sequence(&name).is_none() {
            if if_exists {
                let notice = format!("relation {name:?} does not exist, skipping");
                return Ok(Outcome::Done(Done { notices: vec![notice], ..done }));
            }
            return Err(QueryError::no_relation(name));
        }
        if is_temporary_relation(&name) || schema == TEMPORARY_SCHEMA {
            return Err(TemporaryError::Moved.into());
        }
        if !snapshot.has_schema(schema) {
            return Err(QueryError::no_schema(schema));
        }
        let owned = owned_sequences(&snapshot, table.map(|table| table.id));
        if kind == ObjectKind::Sequence
            && let Some(owner) = owner_of(&snapshot, &name)
        {
            let allowed = format!("ALTER TABLE {owner} SET SCHEMA moves it with its table");
            return Err(QueryError::unsupported(format!("SET SCHEMA of sequence {name:?}"), allowed));
        }
        let moved = relation_name(schema, &unqualified_name(&name));
        if moved == name {
            return Ok(Outcome::Done(done));
        }
        let read = owned.iter().map(String::as_str).chain([name.as_str()]).collect();
        refuse_readers(&snapshot, "move", format!("{kind} {name:?}"), read)?;
        self.changes().commit_last(|edit| {
            move_relation(edit, kind, &name, &moved)?;
            owned.iter().try_for_each(|sequence| {
                move_relation(edit, ObjectKind::Sequence, sequence, &relation_name(schema, &unqualified_name(sequence)))
            })
        })?;
        Ok(Outcome::Done(done))
    }

    /// Returns the source of the columns of a new table `table`, with resolved names of relations.
    pub(super) fn named_source<'a>(&self, source: &'a TableSource, table: &str) -> Result<Cow<'a, TableSource>> {
        Ok(match source {
            TableSource::Columns { columns, declared } => {
                let declared = self.named_declaration(declared, table)?;
                Cow::Owned(TableSource::Columns { columns: columns.clone(), declared })
            }
            TableSource::Like { table, included } => {
                let table = qualified(&self.name(table)?);
                Cow::Owned(TableSource::Like { table, included: included.clone() })
            }
            TableSource::Query { .. } => Cow::Borrowed(source),
        })
    }

    /// Returns changes of a table, with resolved names of the relations that they refer to.
    pub(super) fn named_changes(&self, changes: &[SchemaChange], table: &str) -> Result<Vec<SchemaChange>> {
        let named = |change: &SchemaChange| {
            let mut change = change.clone();
            match &mut change {
                SchemaChange::Column(ColumnChange::Add { declared, .. }) => {
                    *declared = self.named_declaration(declared, table)?;
                }
                SchemaChange::Constraint(ConstraintChange::Add(constraint)) => self.name_parent(constraint, table)?,
                SchemaChange::Constraint(ConstraintChange::Default { value: Some(value), .. }) => {
                    **value = parse_expression(&self.named_default(&value.to_string())?)?;
                }
                _ => {}
            }
            Ok(change)
        };
        changes.iter().map(named).collect()
    }

    fn named_declaration(&self, declared: &Declared, table: &str) -> Result<Declared> {
        let mut declared = declared.clone();
        declared.constraints.iter_mut().try_for_each(|constraint| self.name_parent(constraint, table))?;
        for (_, default) in &mut declared.defaults {
            *default = parse_expression(&self.named_default(&default.to_string())?)?;
        }
        Ok(declared)
    }

    /// Adds the schema to the name of the table that a foreign key references. Table `table` declares the foreign key,
    /// and may not exist yet. Other constraints remain unchanged.
    fn name_parent(&self, constraint: &mut DeclaredConstraint, table: &str) -> Result<()> {
        if let DeclaredCondition::ForeignKey { table: parent, .. } = &mut constraint.rule {
            let own = self.own_reference_in_definition(parent)?;
            let name = self.search_path().name_beside(&self.snapshot(), &own, Some(table))?;
            let is_temporary = is_temporary_relation(table);
            if is_temporary_relation(&name) != is_temporary && (name == table || self.table(&name).is_ok()) {
                return Err(TemporaryError::ForeignKey { is_temporary }.into());
            }
            *parent = qualified(&name);
        }
        Ok(())
    }

    /// Adds schemas to the names of sequences in a default.
    fn named_default(&self, sql: &str) -> Result<String> {
        let mut error = None;
        let name = |reference: &TableReference| {
            let own = self.own_reference_in_definition(reference)?;
            self.search_path().name(&self.snapshot(), &own)
        };
        let named = with_named_sequences(sql, |reference| match name(reference) {
            Ok(name) => Some(name),
            Err(found) => {
                error = Some(found);
                None
            }
        });
        match error {
            Some(error) => Err(error),
            None => Ok(named),
        }
    }
}

/// Returns a reference to a relation that includes its schema.
fn qualified(relation: &str) -> TableReference {
    let (schema, name) = split_relation_name(relation);
    TableReference::partial(schema, name)
}

/// Returns the tables, views, sequences and functions of a schema, with their kinds. Omits sequences that columns of
/// these tables own.
fn contents(catalog: &Catalog, schema: &str) -> Vec<(ObjectKind, String)> {
    let is_inside = |name: &str| split_relation_name(name).0 == schema;
    let owner_is_inside =
        |sequence: &Sequence| owner_of(catalog, &sequence.name).is_some_and(|owner| is_inside(&owner));
    let tables = catalog.tables().map(|table| (ObjectKind::Table, table.name.clone()));
    let views = catalog.views().map(|view| (ObjectKind::View, view.name.clone()));
    let sequences = catalog.sequences().filter(|sequence| !owner_is_inside(sequence));
    let sequences = sequences.map(|sequence| (ObjectKind::Sequence, sequence.name.clone()));
    let functions = catalog.functions().map(|function| (ObjectKind::Function, function.name.clone()));
    tables.chain(views).chain(sequences).chain(functions).filter(|(_, name)| is_inside(name)).collect()
}

/// Returns the name of the table with the column that owns a sequence. Returns `None` if no column owns it.
fn owner_of(catalog: &Catalog, sequence: &str) -> Option<String> {
    let id = catalog.sequence(sequence)?.id;
    let owns = |table: &&Arc<taut_store::Table>| table.constraints.sequences.values().any(|owned| owned.sequence == id);
    catalog.tables().find(owns).map(|table| table.name.clone())
}

/// Returns the names of the sequences that columns of a table own.
pub(super) fn owned_sequences(catalog: &Catalog, table: Option<TableId>) -> Vec<String> {
    let table = table.and_then(|table| catalog.table_of(table));
    let owned = table.into_iter().flat_map(|table| table.constraints.sequences.values());
    owned.filter_map(|owned| Some(catalog.sequence_of(owned.sequence)?.name.clone())).collect()
}

/// Checks that no view reads any of the relations.
///
/// # Errors
/// If a view reads one of the relations, because the SQL text of the view contains its name.
pub(super) fn refuse_readers(
    catalog: &Catalog,
    verb: &'static str,
    object: String,
    relations: BTreeSet<&str>,
) -> Result<()> {
    let read = |view: &View| relations_of_view(view).into_iter().find(|name| relations.contains(name.as_str()));
    let dependencies = catalog.views().filter_map(|view| {
        Some(Dependency { dependent: view_text(&view.name), on: format!("relation {:?}", read(view)?) })
    });
    let dependencies: Vec<Dependency> = dependencies.collect();
    match dependencies.is_empty() {
        true => Ok(()),
        false => Err(QueryError::Dependents {
            verb,
            object: Some(object),
            dependencies,
            hint: "Drop the views first, and create them again afterwards.",
        }),
    }
}

/// Checks that no view calls a function of a schema.
///
/// # Errors
/// If a view calls one, because the SQL text of the view contains its name.
fn refuse_callers(catalog: &Catalog, schema: &str) -> Result<()> {
    let functions: Vec<String> = catalog.functions_of_schema(schema).map(str::to_owned).collect();
    let calls = views_with_functions(catalog, &functions).into_iter();
    let dependencies: Vec<Dependency> =
        calls.map(|(view, on)| Dependency { dependent: view_text(&view), on }).collect();
    match dependencies.is_empty() {
        true => Ok(()),
        false => Err(QueryError::Dependents {
            verb: "rename",
            object: Some(format!("schema {schema:?}")),
            dependencies,
            hint: "Drop the views first, and create them again afterwards.",
        }),
    }
}

/// Renames a relation, possibly to a name in another schema.
fn move_relation(edit: &mut CatalogEdit, kind: ObjectKind, name: &str, new_name: &str) -> Result<()> {
    match kind {
        ObjectKind::Sequence => {
            let sequence = edit.catalog().sequence(name).cloned().ok_or_else(|| QueryError::no_relation(name))?;
            rename_sequence(edit, sequence, new_name)
        }
        ObjectKind::View => {
            let view = edit.catalog().view(name).cloned().ok_or_else(|| QueryError::no_relation(name))?;
            let comments = comments_of_view(edit.catalog(), name, new_name);
            edit.drop_view(name)?;
            edit.create_view(View { name: new_name.to_owned(), ..view }, false)?;
            Ok(set_comments(edit, comments)?)
        }
        _ => {
            let table = edit.catalog().table(name).map(|table| table.id);
            let table = table.ok_or_else(|| QueryError::no_relation(name))?;
            check_index_names(edit.catalog(), table, new_name)?;
            Ok(edit.rename_table(table, new_name)?)
        }
    }
}

/// Checks that the names of the indexes of a moved table are free in its new schema.
///
/// # Errors
/// If a relation in the new schema has the name of one of the indexes.
fn check_index_names(catalog: &Catalog, table: TableId, new_name: &str) -> std::result::Result<(), CommitError> {
    let Some(table) = catalog.table_of(table) else { return Ok(()) };
    let schema = split_relation_name(new_name).0;
    if schema == split_relation_name(&table.name).0 {
        return Ok(());
    }
    let names = table.design.indexes.iter().map(|index| relation_name(&schema, &index.name));
    match names.into_iter().find(|name| !catalog.is_name_free(name)) {
        Some(name) => Err(CommitError::NameTaken { name }),
        None => Ok(()),
    }
}
