//! `CREATE FUNCTION` and `DROP FUNCTION`, and the lookup of functions in SQL.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, Result as PlanResult, TableReference};
use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement as PlannerStatement;
use taut_sql::{CATALOG, FunctionDefinition, ObjectKind, Statement, type_name};
use taut_store::{Catalog, CatalogEdit, CommentTarget, CommitError, Function};
use taut_types::{PUBLIC_SCHEMA, relation_name, unqualified_name};

use super::catalog::{StatementCatalog, VIEW_DEPTH_MAX};
use super::names::{dependent_views, drop_dependents, drop_views, view_text};
use super::{Done, Outcome, QuerySession};
use crate::error::{Dependency, FunctionError, QueryError, Result};
use crate::exec::reads::withdraw_reads;
use crate::plan::functions::{PlannedFunction, planned_function, with_bodies};
use crate::plan::{statement_to_plan, unmaterialized_plan};
use crate::write::changes::Changes;

impl QuerySession {
    /// Creates or replaces a function, after its body was planned.
    pub(super) async fn create_function(
        &self,
        reference: &TableReference,
        or_replace: bool,
        definition: &FunctionDefinition,
    ) -> Result<Outcome> {
        let created = self.in_transaction(async |target: Changes| {
            let snapshot = target.snapshot();
            let name = self.new_name(reference, false)?;
            if self.is_built_in(reference.table()) {
                return Err(FunctionError::BuiltIn { name: reference.table().to_owned() }.into());
            }
            let function = Function { name: name.clone(), definition: definition.to_string() };
            let catalog = self.catalog(Arc::clone(&snapshot), None);
            catalog.planned(&function).await?;
            let state = self.own_state_on(Arc::clone(&snapshot));
            if let Some(existing) = snapshot.function(&name) {
                let existing = FunctionDefinition::parse(&existing.definition)?;
                if types_of(&state, &existing.types()).await? != types_of(&state, &definition.types()).await? {
                    return Err(FunctionError::Overloaded { name: unqualified_name(&name).into_owned() }.into());
                }
                if !or_replace {
                    return Err(FunctionError::Exists { name: unqualified_name(&name).into_owned() }.into());
                }
                let (before, after) = (&existing.returns, &definition.returns);
                if std::mem::discriminant(before) != std::mem::discriminant(after)
                    || types_of(&state, &before.types()).await? != types_of(&state, &after.types()).await?
                {
                    return Err(FunctionError::Returns.into());
                }
            }
            withdraw_reads(&state);
            Ok(target.commit(|edit| edit.create_function(function, or_replace))?)
        });
        created.await?;
        Ok(Outcome::Done(Done::with_tag("CREATE FUNCTION")))
    }

    /// Drops functions and, with `cascade`, the views that call them.
    pub(super) async fn drop_functions(
        &self,
        functions: &[(TableReference, Option<Vec<String>>)],
        if_exists: bool,
        cascade: bool,
    ) -> Result<Outcome> {
        let (mut names, mut notices) = (Vec::new(), Vec::new());
        for (reference, types) in functions {
            match self.function_named(reference, types.as_deref()).await? {
                Some(name) if names.contains(&name) => {}
                Some(name) => names.push(name),
                None if if_exists => {
                    notices.push(format!("function {} does not exist, skipping", written(reference, types.as_deref())));
                }
                None => return Err(not_found(reference, types.as_deref())),
            }
        }
        notices.extend(self.drop_named_functions(&names, cascade)?);
        Ok(Outcome::Done(Done { notices, ..Done::with_tag("DROP FUNCTION") }))
    }

    /// Drops functions that exist. Returns notices about the views that are dropped too.
    pub(super) fn drop_named_functions(&self, names: &[String], cascade: bool) -> Result<Vec<String>> {
        let snapshot = self.snapshot();
        let calls = views_with_functions(&snapshot, names);
        let callers: BTreeSet<&str> = calls.iter().map(|(view, _)| view.as_str()).collect();
        let readers = dependent_views(&snapshot, ObjectKind::View, callers);
        let views: Vec<(String, String)> = calls.into_iter().chain(readers).collect();
        let dependency = |(view, on): &(String, String)| Dependency { dependent: view_text(view), on: on.clone() };
        let dependencies = views.iter().map(dependency).collect();
        let notices = drop_dependents(ObjectKind::Function, names, dependencies, cascade)?;
        self.changes().commit_last(|edit| {
            drop_views(edit, views.iter().map(|(view, _)| view.as_str()).collect())?;
            names.iter().try_for_each(|name| edit.drop_function(name))
        })?;
        Ok(notices)
    }

    /// The function of a comment.
    pub(super) async fn commented_function(
        &self,
        reference: &TableReference,
        types: Option<&[String]>,
    ) -> Result<CommentTarget> {
        match self.function_named(reference, types).await? {
            Some(name) => Ok(CommentTarget::Function(name)),
            None => Err(not_found(reference, types)),
        }
    }

    /// Returns the name of the function with this name, with its schema. If types are given, its parameters have these.
    /// `None` if no such function exists.
    async fn function_named(&self, reference: &TableReference, types: Option<&[String]>) -> Result<Option<String>> {
        let (snapshot, own) = (self.snapshot(), self.own_reference(reference)?);
        let parts: Vec<String> = own.schema().into_iter().chain([own.table()]).map(str::to_owned).collect();
        let catalog = self.catalog(Arc::clone(&snapshot), None);
        let Some((_, function)) = catalog.find_function(&parts) else { return Ok(None) };
        if let Some(types) = types {
            let state = self.own_state_on(snapshot);
            let definition = FunctionDefinition::parse(&function.definition)?;
            let is_same = types_of(&state, &definition.types()).await? == types_of(&state, types).await?;
            withdraw_reads(&state);
            if !is_same {
                return Ok(None);
            }
        }
        Ok(Some(function.name))
    }

    /// Whether a name without a schema is that of a built-in function.
    fn is_built_in(&self, name: &str) -> bool {
        let state = self.context.state();
        taut_sql::is_rewritten_function(name)
            || state.scalar_functions().contains_key(name)
            || state.aggregate_functions().contains_key(name)
            || state.window_functions().contains_key(name)
            || state.table_functions().contains_key(name)
    }
}

impl StatementCatalog {
    /// Returns the function with this name, with its schema and database if it has several parts. Also returns the
    /// catalog that contains it.
    pub fn find_function(&self, name: &[String]) -> Option<(Self, Function)> {
        let own = |function: Option<&Function>| Some((self.clone(), function?.clone()));
        let in_database = |database: &str, schema: &str, name: &str| {
            let catalog = self.attached(database)?;
            let function = catalog.snapshot.function(&relation_name(schema, name))?.clone();
            Some((catalog, function))
        };
        match name {
            [name] => {
                let mut candidates = self.search_path.candidates(&self.snapshot, name);
                own(candidates.find_map(|candidate| self.snapshot.function(&candidate)))
            }
            [schema, name] if self.snapshot.has_schema(schema) => {
                own(self.snapshot.function(&relation_name(schema, name)))
            }
            [database, name] => in_database(database, PUBLIC_SCHEMA, name),
            [database, schema, name] if database == CATALOG => {
                own(self.snapshot.function(&relation_name(schema, name)))
            }
            [database, schema, name] => in_database(database, schema, name),
            _ => None,
        }
    }

    /// Whether the database or an attached one has a function in SQL.
    pub fn has_any_function(&self) -> bool {
        let mut catalogs = std::iter::once(&self.snapshot).chain(self.attached.iter().map(|other| &other.catalog));
        catalogs.any(|catalog| catalog.functions().next().is_some())
    }

    /// Plans the body of a function of this catalog.
    ///
    /// # Errors
    /// If the body cannot be planned.
    pub async fn planned(&self, function: &Function) -> PlanResult<PlannedFunction> {
        let external = |error: QueryError| DataFusionError::External(Box::new(error));
        if self.view_depth >= VIEW_DEPTH_MAX {
            return Err(external(FunctionError::Depth { depth: VIEW_DEPTH_MAX }.into()));
        }
        let name = unqualified_name(&function.name);
        let definition = FunctionDefinition::parse(&function.definition).map_err(|error| external(error.into()))?;
        let query = definition.query(&name).map_err(|error| external(error.into()))?;
        let Some(session) = self.session.upgrade() else {
            return datafusion::common::internal_err!("function {name} is called without a session");
        };
        let session = session.read().clone();
        let view_depth = self.view_depth + 1;
        let catalog =
            Self { names: None, visible: None, relations: Vec::new(), changed: None, view_depth, ..self.clone() };
        let plan = with_bodies(Box::pin(unmaterialized_plan(&catalog.state(session), &query)).await?)?;
        let bytes = [self.database.as_deref().unwrap_or_default().as_bytes(), b".", function.name.as_bytes()].concat();
        let unique_name = bytes.iter().fold("pg_function_".to_owned(), |name, byte| name + &format!("{byte:02x}"));
        planned_function(&unique_name, &name, &definition, &plan)
    }
}

/// Returns the views that call one of the functions, each with such a function.
pub(super) fn views_with_functions(catalog: &Catalog, functions: &[String]) -> Vec<(String, String)> {
    let called = |function: &&String| functions.contains(function);
    let calls = catalog.views().filter_map(|view| {
        let function = view.functions.iter().find(called)?;
        Some((view.name.clone(), format!("function {function:?}")))
    });
    calls.collect()
}

/// Renames a function, possibly to a name in another schema.
pub(super) fn move_function(
    edit: &mut CatalogEdit,
    name: &str,
    new_name: &str,
) -> std::result::Result<(), CommitError> {
    let on = |name: &str| CommentTarget::Function(name.to_owned());
    let function = edit.catalog().function(name).cloned();
    let function = function.ok_or_else(|| CommitError::NoFunction { name: name.to_owned() })?;
    let comment = edit.catalog().comment(&on(name)).map(str::to_owned);
    edit.drop_function(name)?;
    edit.create_function(Function { name: new_name.to_owned(), ..function }, false)?;
    match comment {
        Some(comment) => edit.set_comment(on(new_name), Some(comment)),
        None => Ok(()),
    }
}

/// Returns the types with these SQL names. As in PostgreSQL, the precision and scale of a decimal do not matter.
async fn types_of(state: &SessionState, names: &[String]) -> Result<Vec<String>> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let casts: Vec<String> = names.iter().map(|name| format!("CAST(NULL AS {name})")).collect();
    let query = format!("SELECT {}", casts.join(", "));
    let mut statements = taut_sql::parse(&query)?;
    let Some(Statement::Planned { statement, .. }) = statements.pop() else {
        return Ok(Vec::new());
    };
    let statement: &PlannerStatement = &statement;
    let plan = statement_to_plan(state, statement).await?;
    let name = |data_type: &DataType| match data_type.is_decimal() {
        true => "numeric".to_owned(),
        false => type_name(data_type),
    };
    Ok(plan.schema().fields().iter().map(|field| name(field.data_type())).collect())
}

/// A function as a statement names it.
fn written(reference: &TableReference, types: Option<&[String]>) -> String {
    format!("{reference}({})", types.unwrap_or_default().join(", ").to_lowercase())
}

fn not_found(reference: &TableReference, types: Option<&[String]>) -> QueryError {
    FunctionError::NotFound { name: written(reference, types) }.into()
}
