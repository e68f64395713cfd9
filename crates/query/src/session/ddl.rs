//! Statements that change or describe the schema: `ALTER TABLE ... SET`, `CREATE VIEW`, `DESCRIBE`, `SHOW TABLES`.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Fields, Schema as ArrowSchema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::default_table_source::provider_as_source;
use datafusion::common::TableReference;
use datafusion::logical_expr::LogicalPlanBuilder;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement as PlannerStatement;
use taut_sql::{ObjectKind, Parameters, SqlError, Statement, type_name};
use taut_store::{Catalog, CommentTarget, View};
use taut_types::unqualified_name;

use super::index_columns::with_hidden_groups;
use super::names::{check_kind, dependent_views, view_text};
use super::{Done, Outcome, QuerySession, option_pairs};
use crate::constraints::{add_key_indexes, query_with_named_sequences};
use crate::error::{Dependency, QueryError, Result};
use crate::exec::insert::Target;
use crate::exec::reads::withdraw_reads;
use crate::exec::scan::TautTable;
use crate::plan::parameters::BindParameters;
use crate::plan::statement_to_plan;
use crate::write::changes::Changes;
use crate::write::commit::partitioning_of;
use crate::write::repartition::{choose_partitioning, complete_partitions, repartition};
use crate::write::rewrite::rewrite_blocks;

impl QuerySession {
    pub(super) async fn alter_table(&self, name: &str, options: &[(String, String)]) -> Result<Outcome> {
        let _lock = self.lock_for_maintenance(self.table(name)?.id).await;
        let table = self.table(name)?;
        let options = &with_hidden_groups(options, &table);
        let mut design = table.design.with_options(option_pairs(options), &table.schema)?;
        add_key_indexes((name, &mut design), &table.constraints, &self.snapshot())?;
        let design = Arc::new(design);
        let sets_partition_by = options.iter().any(|(option, _)| option.eq_ignore_ascii_case("partition_by"));
        let partitioning = match design.partition_by {
            // A statement that sets `partition_by` chooses the boundaries of range partitions again.
            Some(by) if sets_partition_by => choose_partitioning(&table, by).await?,
            _ => partitioning_of(&table).filter(|known| design.partition_by == Some(known.design())),
        };
        let is_repartitioned = design.partition_by.is_some() != table.design.partition_by.is_some()
            || sets_partition_by && partitioning != partitioning_of(&table);
        let is_resorted = !design.sort_by.is_empty() && (design.sort_by != table.design.sort_by || is_repartitioned);
        let operation = format!("rewrite {name}");
        let progress = || self.progress_counter(&operation, Some(table.rows()));
        let rows = if is_resorted {
            let whole = TautTable::whole(Arc::clone(self.store()), Arc::clone(&table));
            let scan = LogicalPlanBuilder::scan(name, provider_as_source(Arc::new(whole)), None)?.build()?;
            let rows_total = Some(table.rows());
            self.fill(name, Target::Sorted { table, design, partitioning }, scan, rows_total).await?
        } else if is_repartitioned {
            repartition(&self.changes(), &table, &design, partitioning, self.threads, progress()).await?
        } else {
            let rows = rewrite_blocks(&self.changes(), &table, design, self.threads, progress()).await?;
            complete_partitions(&self.changes(), table.id, self.threads).await?;
            rows
        };
        Ok(Outcome::Done(Done { rows: Some(rows), ..Done::with_tag("ALTER TABLE") }))
    }

    pub(super) async fn create_view(
        &self,
        name: &str,
        or_replace: bool,
        columns: &[String],
        sql: &str,
    ) -> Result<Outcome> {
        let created = self.in_transaction(async |target: Changes| {
            let sql = match columns {
                [] => sql.to_owned(),
                columns => self.with_column_names(&target, name, columns, sql).await?,
            };
            self.define_view(&target, name, or_replace, sql).await
        });
        created.await?;
        Ok(Outcome::Done(Done::with_tag("CREATE VIEW")))
    }

    /// Returns the text of a view with new names for its first columns. The other columns keep their names.
    async fn with_column_names(&self, target: &Changes, view: &str, names: &[String], sql: &str) -> Result<String> {
        let state = self.own_state_on(target.snapshot());
        let Some(Statement::Planned { statement, .. }) = taut_sql::parse(sql)?.pop() else { return Ok(sql.to_owned()) };
        let plan = statement_to_plan(&state, &statement).await?;
        withdraw_reads(&state);
        let columns: Vec<String> = plan.schema().fields().iter().map(|field| field.name().clone()).collect();
        if names.len() > columns.len() {
            let message = "CREATE VIEW specifies more column names than columns".to_owned();
            return Err(SqlError::Syntax { message, expected: None, position: None }.into());
        }
        let names: Vec<&String> = names.iter().chain(&columns[names.len()..]).collect();
        let mut distinct = HashSet::new();
        if let Some(twice) = names.iter().find(|name| !distinct.insert(**name)) {
            return Err(QueryError::Duplicate { name: (*twice).clone() });
        }
        Ok(named_columns(sql, view, &names))
    }

    async fn define_view(&self, target: &Changes, name: &str, or_replace: bool, sql: String) -> Result<()> {
        let snapshot = target.snapshot();
        if snapshot.table(name).is_some() || (snapshot.view(name).is_some() && !or_replace) {
            return Err(QueryError::relation_exists(name));
        }
        let dependents = dependent_views(&snapshot, ObjectKind::View, [name].into());
        let state = || self.own_state_on(Arc::clone(&snapshot));
        let mut relations = BTreeMap::new();
        let search_path = self.search_path();
        for reference in taut_sql::relations_of(&sql)? {
            // A name without a schema may be a file, even if no schema of the path exists.
            let Ok(relation) = search_path.name(&snapshot, &reference) else { continue };
            if relation == name || dependents.iter().any(|(view, _)| *view == relation) {
                let what = format!("view {name:?}, which would read itself,");
                return Err(QueryError::unsupported(what, "a view reads tables and other views"));
            }
            // Files and registered batches are not recorded.
            if snapshot.table(&relation).is_some() || snapshot.view(&relation).is_some() {
                let state = state();
                let provider = SessionContext::new_with_state(state.clone()).table_provider(reference).await;
                withdraw_reads(&state);
                let columns = provider?.schema().fields().iter().map(|field| field.name().clone()).collect();
                relations.insert(relation, columns);
            }
        }
        let (mut columns, mut functions) = (HashSet::new(), BTreeSet::new());
        let mut sql = sql;
        // Rejects a view that cannot be planned now.
        for statement in taut_sql::parse(&sql)? {
            match statement {
                Statement::Planned { statement, .. } => {
                    if let PlannerStatement::Statement(ast) = statement.as_ref() {
                        let (mut ast, mut names_sequence) = (ast.as_ref().clone(), false);
                        // The view uses the sequences that these names refer to now.
                        query_with_named_sequences(&mut ast, |reference| {
                            let sequence = search_path.name(&snapshot, reference)?;
                            if snapshot.sequence(&sequence).is_none() {
                                check_kind(&snapshot, ObjectKind::Sequence, &sequence)?;
                                return Err(QueryError::no_relation(reference.to_string()));
                            }
                            relations.insert(sequence.clone(), Vec::new());
                            names_sequence = true;
                            Ok(sequence)
                        })?;
                        if names_sequence {
                            sql = ast.to_string();
                        }
                    }
                    let catalog = self.catalog(Arc::clone(&snapshot), None);
                    let called = taut_sql::called_functions(&statement);
                    for (found, function) in called.iter().filter_map(|name| catalog.find_function(name)) {
                        if let Some(database) = found.database {
                            let what = format!("a view that calls a function of attached database {database:?}");
                            return Err(QueryError::unsupported(what, "a view in that database is"));
                        }
                        functions.insert(function.name);
                    }
                    let state = state();
                    let plan = statement_to_plan(&state, &statement).await?;
                    withdraw_reads(&state);
                    // Rejects parameters, because no reader of the view could set their values.
                    let plan = Parameters::default().bind(plan)?;
                    let names = plan.schema().fields().iter().map(|field| field.name().clone());
                    if let Some(twice) = names.into_iter().find(|name| !columns.insert(name.clone())) {
                        return Err(QueryError::Duplicate { name: twice });
                    }
                }
                _ => return Err(QueryError::unsupported("a view of this statement", "a view is a query")),
            }
        }
        let view = View { name: name.to_owned(), sql, search_path: search_path.to_stored(name), relations, functions };
        let is_gone = |on: &CommentTarget| match on {
            CommentTarget::ViewColumn(view, column) => view == name && !columns.contains(column),
            _ => false,
        };
        let gone: Vec<CommentTarget> =
            snapshot.comments().map(|(on, _)| on).filter(|on| is_gone(on)).cloned().collect();
        target.commit(|edit| {
            edit.create_view(view, or_replace)?;
            gone.into_iter().try_for_each(|on| edit.set_comment(on, None))
        })?;
        self.check_dependent_views((&snapshot, &target.snapshot()), &dependents, &view_text(name)).await
    }

    /// Checks that views still have the same columns, after a table or view that they read was replaced. `versions` are
    /// the catalogs before and after the replacement.
    pub(super) async fn check_dependent_views(
        &self,
        (before, after): (&Arc<Catalog>, &Arc<Catalog>),
        views: &[(String, String)],
        replaced: &str,
    ) -> Result<()> {
        for (view, on) in views {
            let columns = async |version: &Arc<Catalog>| {
                let plan = self.plan_of_view(version, view).await.ok()?;
                // A numeric type may become another numeric type.
                let kind = |data_type: &DataType| match data_type {
                    number if number.is_numeric() => std::mem::discriminant(&DataType::Int64),
                    other => std::mem::discriminant(other),
                };
                let fields = plan.schema().fields().iter();
                Some(fields.map(|field| (field.name().clone(), kind(field.data_type()))).collect::<Vec<_>>())
            };
            let (before, after) = (columns(before).await, columns(after).await);
            // A view that cannot be planned here, for example because it reads a missing file, may use any column.
            if before.is_none() || before != after {
                return Err(QueryError::Dependents {
                    verb: "replace",
                    object: Some(replaced.to_owned()),
                    dependencies: vec![Dependency { dependent: view_text(view), on: on.clone() }],
                    hint: "Drop the dependent views first, and create them again afterwards.",
                });
            }
        }
        Ok(())
    }

    pub(super) async fn describe(&self, name: &TableReference) -> Result<Outcome> {
        let context = SessionContext::new_with_state(self.state(None));
        let provider = context.table_provider(name.clone()).await?;
        describe_columns(provider.schema().fields())
    }

    /// Describes the columns of a query without running it.
    pub(super) async fn describe_query(&self, query: &PlannerStatement) -> Result<Outcome> {
        let state = self.state(None);
        let planned = statement_to_plan(&state, query).await;
        withdraw_reads(&state);
        describe_columns(planned?.schema().fields())
    }

    pub(super) fn show_tables(&self) -> Result<Outcome> {
        let snapshot = self.snapshot();
        let tables = snapshot.tables().map(|table| (table.name.clone(), "table", table.design.layout.name()));
        let views = snapshot.views().map(|view| (view.name.clone(), "view", ""));
        let mut all: Vec<_> = tables.chain(views).collect();
        all.sort();
        text_rows(&[
            ("table_name", all.iter().map(|(name, ..)| name.clone()).collect()),
            ("table_type", all.iter().map(|(_, kind, _)| (*kind).to_owned()).collect()),
            ("layout", all.iter().map(|(.., layout)| (*layout).to_owned()).collect()),
        ])
    }
}

fn describe_columns(fields: &Fields) -> Result<Outcome> {
    let yes_no = |field: &Arc<Field>| if field.is_nullable() { "YES" } else { "NO" };
    text_rows(&[
        ("column_name", fields.iter().map(|field| field.name().clone()).collect()),
        ("data_type", fields.iter().map(|field| type_name(field.data_type())).collect()),
        ("is_nullable", fields.iter().map(|field| yes_no(field).to_owned()).collect()),
    ])
}

/// Returns the text of a query with other names for all of its columns.
pub(super) fn named_columns(sql: &str, view: &str, columns: &[&String]) -> String {
    let quote = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let names: Vec<_> = columns.iter().map(|name| quote(name)).collect();
    format!("SELECT * FROM ({sql}) AS {}({})", quote(&unqualified_name(view)), names.join(", "))
}

/// Result of a statement whose columns are all text. Each column has a name and its values.
pub(super) fn text_rows(columns: &[(&str, Vec<String>)]) -> Result<Outcome> {
    let fields: Vec<_> = columns.iter().map(|(name, _)| Field::new(*name, DataType::Utf8, false)).collect();
    let schema: SchemaRef = Arc::new(ArrowSchema::new(fields));
    let arrays = columns.iter().map(|(_, values)| Arc::new(StringArray::from(values.clone())) as ArrayRef).collect();
    let batch = RecordBatch::try_new(Arc::clone(&schema), arrays).map_err(datafusion::common::DataFusionError::from)?;
    let stream = futures::stream::once(async move { Ok(batch) });
    Ok(Outcome::Rows(Box::pin(RecordBatchStreamAdapter::new(schema, stream))))
}
