//! Statements that add rows to a table: `CREATE TABLE`, `COPY ... FROM`, and loads of files and batches.

use std::path::PathBuf;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema as ArrowSchema, SchemaRef};
use datafusion::catalog::default_table_source::provider_as_source;
use datafusion::common::{Column, TableReference};
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};
use datafusion::scalar::ScalarValue;
use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::{Query, Statement as Ast};
use taut_sql::{Declared, FileFormat, Parameters, SqlError, TableSource, name_of_reference};
use taut_store::{Catalog, Table};
use taut_types::{ColumnIndex, Schema, TableDesign, TableOption};

use super::like::{Copied, copy_of};
use super::{Done, QuerySession, option_pairs, start_write, sum_counts};
use crate::constraints::default_expression;
use crate::error::{GeneratedColumnError, QueryError, Result};
use crate::exec::batches::Batches;
use crate::exec::insert::{Target, TargetTable};
use crate::plan::files::{self, FileColumns, ReadOptions};
use crate::plan::parameters::BindParameters;
use crate::plan::rules::implicit_sort;
use crate::plan::statement_to_plan;
use crate::write::changes::Changes;
use crate::write::repartition::complete_partitions;
use crate::write::rewrite::rebuild_indexes;

/// Option of `CREATE TABLE ... AS` that sorts the rows of a join by columns that foreign keys imply.
const IMPLICIT_SORT: &str = "implicit_sort";
/// Options of single statements. They are not part of a table's design.
pub const STATEMENT_OPTIONS: [TableOption; 1] = [TableOption {
    name: IMPLICIT_SORT,
    values: "`true` or `false`",
    default: "false",
    description: "Only for `CREATE TABLE ... AS`: adds the sort order that foreign keys imply.",
}];

impl QuerySession {
    /// Loads files into a table. Creates the table with the columns of the first file if it does not exist. Returns the
    /// number of loaded rows.
    ///
    /// # Errors
    /// If the load fails; see [`QuerySession::run`].
    pub async fn load_files(
        &self,
        name: &str,
        files: &[PathBuf],
        options: &ReadOptions,
        design_options: &[(String, String)],
    ) -> Result<u64> {
        let load = async |session: Arc<Self>| Box::pin(session.load_files(name, files, options, design_options)).await;
        if let Some(rows) = self.in_attached(self.changed_database(&[Self::reference(name)]), load).await? {
            return Ok(rows);
        }
        self.begin_load(name, "COPY FROM")?;
        let loaded = self.load_files_into(name, files, options, design_options).await;
        self.end_load(loaded)
    }

    /// Prepares for a load through the API. Loads follow the same transaction rules as statements.
    fn begin_load(&self, table: &str, statement: &str) -> Result<()> {
        self.begin_statement()?;
        match self.name(&Self::reference(table)) {
            Ok(name) => self.check_may_change(&name, statement),
            Err(_) => self.check_may_write(statement),
        }
    }

    /// Finishes a load: runs `ON COMMIT` actions, or marks the transaction in progress as failed.
    fn end_load(&self, loaded: Result<u64>) -> Result<u64> {
        self.mover.wake();
        let loaded = loaded.and_then(|rows| self.apply_on_commit().map(|()| rows));
        loaded.inspect_err(|_| self.mark_transaction_failed())
    }

    async fn load_files_into(
        &self,
        name: &str,
        files: &[PathBuf],
        options: &ReadOptions,
        design_options: &[(String, String)],
    ) -> Result<u64> {
        let (reference, snapshot) = (Self::reference(name), self.snapshot());
        if let Some(table) = snapshot.table(&self.name(&reference)?) {
            if !design_options.is_empty() {
                return Err(options_of_existing(name));
            }
            return self.load(&Arc::clone(table), &[], files, options).await;
        }
        let (_, frame) = files::read(&self.context, files, options, None).await?;
        self.fill_new_table(&self.new_name(&reference, false)?, frame.into_unoptimized_plan(), design_options).await
    }

    /// Loads batches into a table. Creates the table from their schema if it does not exist. Returns the number of
    /// loaded rows.
    ///
    /// Each iterator runs on its own thread. The rows of an iterator follow the rows of the previous iterator. Columns
    /// are matched by name with the columns of an existing table, as for Parquet files.
    ///
    /// # Errors
    /// If the load fails; see [`QuerySession::run`].
    pub async fn load_batches(
        &self,
        name: &str,
        schema: SchemaRef,
        partitions: Vec<Batches>,
        design_options: &[(String, String)],
    ) -> Result<u64> {
        let target = self.changed_database(&[Self::reference(name)]);
        if !matches!(target, Ok(None)) {
            let load = async |session: Arc<Self>| {
                Box::pin(session.load_batches(name, schema, partitions, design_options)).await
            };
            return Ok(self.in_attached(target, load).await?.unwrap_or_default());
        }
        self.begin_load(name, "INSERT")?;
        let rows = crate::exec::batches::scan_batches(schema, partitions)?;
        let loaded = self.load_rows(name, rows, design_options).await;
        self.end_load(loaded)
    }

    async fn load_rows(&self, name: &str, rows: LogicalPlan, design_options: &[(String, String)]) -> Result<u64> {
        let reference = Self::reference(name);
        match self.snapshot().table(&self.name(&reference)?) {
            Some(table) if design_options.is_empty() => {
                check_no_generated(table, &rows)?;
                let rows = map_to_columns(table, &table.schema, "the data", true, rows)?;
                self.fill(name, Target::Table(Arc::clone(table)), rows, None).await
            }
            Some(_) => Err(options_of_existing(name)),
            None => self.fill_new_table(&self.new_name(&reference, false)?, rows, design_options).await,
        }
    }

    pub(super) async fn create_table(
        &self,
        name: &str,
        source: &TableSource,
        options: &[(String, String)],
        parameters: &Parameters,
    ) -> Result<Done> {
        match source {
            TableSource::Query { query, names } => {
                self.create_table_as(&self.changes(), name, (query, names), options, parameters).await
            }
            TableSource::Columns { .. } | TableSource::Like { .. } => {
                let (schema, design, declared) = self.declared_table(&self.snapshot(), name, source, options)?;
                self.changes().commit_last(|edit| Self::define_table(edit, name, &schema, design, &declared))?;
                Ok(Done::with_tag("CREATE TABLE"))
            }
        }
    }

    /// Creates a table with the columns and the rows of a query. The first columns get other names.
    pub(super) async fn create_table_as(
        &self,
        target: &Changes,
        name: &str,
        (query, names): (&Query, &[String]),
        options: &[(String, String)],
        parameters: &Parameters,
    ) -> Result<Done> {
        let statement = Ast::Query(Box::new(query.clone()));
        let mut state = self.state_on(target.snapshot(), None);
        state.config_mut().set_extension(Arc::new(target.clone()));
        let plan = statement_to_plan(&state, &PlannerStatement::Statement(Box::new(statement))).await?;
        let plan = with_names(parameters.bind(plan)?, names)?;
        let mut options = options.to_vec();
        let notices = Vec::from_iter(take_implicit_sort(&plan, &mut options)?);
        // The types of the columns are known only after type coercion.
        let typed = state.analyzer().execute_and_check(plan.clone(), state.config_options(), |_, _| ())?;
        let target = new_table(name, &typed, &options)?;
        let progress = self.progress_counter(&format!("load {name}"), None);
        let rows = sum_counts(start_write(state, self.insert_plan(name, target, plan)?, progress).await?).await?;
        Ok(Done { rows: Some(rows), notices, ..Done::with_tag("CREATE TABLE") })
    }

    /// Returns the columns, design, constraints and defaults of a table that a statement declares, or copies with
    /// `LIKE`.
    pub(super) fn declared_table(
        &self,
        snapshot: &Catalog,
        name: &str,
        source: &TableSource,
        options: &[(String, String)],
    ) -> Result<(Schema, TableDesign, Declared)> {
        let Copied { columns, declared, design } = match source {
            TableSource::Columns { columns, declared } => {
                Copied { columns: columns.clone(), declared: declared.clone(), ..Copied::default() }
            }
            TableSource::Like { table, included } => {
                let table = name_of_reference(table);
                let like = snapshot.table(&table).ok_or_else(|| QueryError::no_relation(table))?;
                copy_of(snapshot, like, included, name)?
            }
            TableSource::Query { .. } => Copied::default(),
        };
        let schema = Schema::new(columns)?;
        let design = design.with_options(option_pairs(options), &schema)?;
        Ok((schema, design, declared))
    }

    /// Creates a table with the columns and the rows of a plan. All columns are nullable.
    pub(super) async fn fill_new_table(
        &self,
        name: &str,
        rows: LogicalPlan,
        options: &[(String, String)],
    ) -> Result<u64> {
        let target = new_table(name, &rows, options)?;
        self.fill(name, target, rows, None).await
    }

    /// Returns a plan that writes the rows of another plan to a target.
    pub(super) fn insert_plan(&self, name: &str, target: Target, rows: LogicalPlan) -> Result<LogicalPlan> {
        let provider = TargetTable { store: Arc::clone(self.store()), target };
        let source = provider_as_source(Arc::new(provider));
        Ok(LogicalPlanBuilder::insert_into(rows, TableReference::bare(name), source, InsertOp::Append)?.build()?)
    }

    /// Runs a plan and writes its rows to a target. Returns their number. `rows_total` is the expected number of rows,
    /// for progress reports.
    pub(super) async fn fill(
        &self,
        name: &str,
        target: Target,
        rows: LogicalPlan,
        rows_total: Option<u64>,
    ) -> Result<u64> {
        let progress = self.progress_counter(&format!("load {name}"), rows_total);
        let keyed_table = match &target {
            Target::Table(table) if !table.constraints.lookup_columns().is_empty() => Some(Arc::clone(table)),
            _ => None,
        };
        let plan = self.insert_plan(name, target, rows)?;
        let Some(table) = keyed_table else {
            return sum_counts(start_write(self.state(None), plan, progress).await?).await;
        };
        let filled = self.in_transaction(async |changes: Changes| {
            let mut state = self.state(None);
            state.config_mut().set_extension(Arc::new(changes));
            sum_counts(start_write(state, plan, progress).await?).await
        });
        let rows = filled.await?;
        self.complete_after_load(&table).await;
        Ok(rows)
    }

    /// Completes the partitions and indexes of a table after a load, unless a transaction is in progress. Errors here
    /// are ignored, because the rows are already committed; see `InsertExec::execute`.
    pub(super) async fn complete_after_load(&self, table: &Table) {
        if self.is_in_transaction() {
            return;
        }
        let changes = Changes::autocommit(Arc::clone(&self.store));
        let completion = async {
            let _ = complete_partitions(&changes, table.id, self.threads).await;
            let newest = self.store.snapshot().table_of(table.id).map(|newest| newest.design.indexes.clone());
            if let Some(indexes) = newest.filter(|indexes| *indexes != table.design.indexes) {
                let _ = rebuild_indexes(&changes, table.id, &indexes, self.threads, None).await;
            }
        };
        self.interrupt().cancellation().run_after_commit(completion).await;
    }

    /// Loads files into an existing table. Without `columns`, the files contain all columns that are not generated.
    pub(super) async fn load(
        &self,
        table: &Arc<Table>,
        columns: &[String],
        files: &[PathBuf],
        options: &ReadOptions,
    ) -> Result<u64> {
        let file_columns = file_columns(table, columns)?;
        let (format, frame) = files::read(&self.context, files, options, Some(&file_columns)).await?;
        // A CSV file that lacks some columns is matched by the names in its header.
        let by_name = format == FileFormat::Parquet || frame.schema().fields().len() < file_columns.schema.len();
        let plan = map_to_columns(table, &file_columns.schema, "the file", by_name, frame.into_unoptimized_plan())?;
        self.fill(&table.name, Target::Table(Arc::clone(table)), plan, None).await
    }
}

/// Gives the first columns of a plan other names.
///
/// # Errors
/// If there are more names than columns.
fn with_names(plan: LogicalPlan, names: &[String]) -> Result<LogicalPlan> {
    if names.is_empty() {
        return Ok(plan);
    }
    let columns = plan.schema().columns();
    if names.len() > columns.len() {
        return Err(SqlError::syntax("too many column names were specified").into());
    }
    let mut names = names.iter();
    let named = columns.into_iter().map(|column| match names.next() {
        Some(name) => Expr::Column(column).alias(name),
        None => Expr::Column(column),
    });
    Ok(LogicalPlanBuilder::from(plan).project(named.collect::<Vec<_>>())?.build()?)
}

/// Returns a new table with the columns of a plan, all nullable.
fn new_table(name: &str, rows: &LogicalPlan, options: &[(String, String)]) -> Result<Target> {
    let schema = schema_of(rows)?;
    let design = TableDesign::from_options(option_pairs(options), &schema)?;
    Ok(Target::NewTable { name: name.to_owned(), schema: Arc::new(schema), design: Arc::new(design) })
}

/// Schema of a table for the rows of a plan. A column of untyped nulls becomes text, as in PostgreSQL.
fn schema_of(rows: &LogicalPlan) -> Result<Schema> {
    let fields = rows.schema().fields().iter().map(|field| match field.data_type() {
        DataType::Null => Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8)),
        _ => Arc::clone(field),
    });
    let columns = Schema::from_arrow(&ArrowSchema::new(fields.collect::<Vec<_>>()))?.columns().to_vec();
    let nullable = columns.into_iter().map(|column| taut_types::Column { nullable: true, ..column });
    Ok(Schema::new(nullable.collect())?)
}

/// Removes option `implicit_sort`. If its value is true, appends columns to option `sort_by`, and returns a notice for
/// the user. The columns are those that the foreign keys of a join imply.
fn take_implicit_sort(rows: &LogicalPlan, options: &mut Vec<(String, String)>) -> Result<Option<String>> {
    let Some(option_index) = options.iter().position(|(name, _)| name.eq_ignore_ascii_case(IMPLICIT_SORT)) else {
        return Ok(None);
    };
    let (_, value) = options.remove(option_index);
    if !value.eq_ignore_ascii_case("true") {
        return match value.eq_ignore_ascii_case("false") {
            true => Ok(None),
            false => Err(QueryError::unsupported(format!("{IMPLICIT_SORT} = '{value}'"), "true and false are")),
        };
    }
    let schema = schema_of(rows)?;
    // If `sort_by` is repeated, its last value is used.
    let sort_option = options.iter_mut().rev().find(|(name, _)| name.eq_ignore_ascii_case("sort_by"));
    let explicit =
        TableDesign::from_options(sort_option.iter().map(|(name, value)| (name.as_str(), value.as_str())), &schema)?;
    let is_explicit = |position: usize| explicit.sort_by.iter().any(|sort| sort.column.index() == position);
    let quoted = |position: usize| format!("\"{}\"", schema.columns()[position].name.replace('"', "\"\""));
    let implied: Vec<_> =
        implicit_sort(rows)?.into_iter().filter(|position| !is_explicit(*position)).map(quoted).collect();
    if implied.is_empty() {
        let why = "the foreign keys of the query imply no further column";
        return Ok(Some(format!("{IMPLICIT_SORT} adds nothing to sort_by: {why}")));
    }
    let implied = implied.join(", ");
    let notice = format!("{IMPLICIT_SORT} adds to sort_by: {implied}");
    match sort_option {
        Some((_, columns)) if !explicit.sort_by.is_empty() => *columns = format!("{columns}, {implied}"),
        Some((_, columns)) => *columns = implied,
        None => options.push(("sort_by".to_owned(), implied)),
    }
    Ok(Some(notice))
}

fn options_of_existing(name: &str) -> QueryError {
    let what = format!("a load with table options into the existing table {name:?}");
    QueryError::unsupported(what, "ALTER TABLE ... SET changes the options of a table")
}

/// Checks that rows have no values for generated columns.
fn check_no_generated(table: &Table, rows: &LogicalPlan) -> Result<()> {
    let fields = rows.schema().fields();
    let is_given =
        |column: &&ColumnIndex| fields.iter().any(|field| *field.name() == table.schema.column(**column).name);
    match table.constraints.generated.keys().find(is_given) {
        Some(column) => {
            let column = table.schema.column(*column).name.clone();
            Err(SqlError::GeneratedAlways { column, is_update: false, is_identity: false }.into())
        }
        None => Ok(()),
    }
}

/// Returns the columns of a table that a file holds, in the order of the file. Without `names`, these are all columns
/// that are not generated.
fn file_columns(table: &Table, names: &[String]) -> Result<FileColumns> {
    let is_generated = |column: ColumnIndex| table.constraints.generated.contains_key(&column);
    let column = |name: &String| match table.schema.index_of(name) {
        Some(index) if is_generated(index) => Err(GeneratedColumnError::Copied { column: name.clone() }.into()),
        Some(index) => Ok(table.schema.column(index).clone()),
        None => Err(QueryError::no_column(&table.name, name)),
    };
    let schema = match names {
        [] => {
            let given = table.schema.columns().iter().enumerate();
            let given = given.filter(|(index, _)| !is_generated(ColumnIndex::from(*index)));
            Schema::new(given.map(|(_, column)| column.clone()).collect())?
        }
        names => Schema::new(names.iter().map(column).collect::<Result<_>>()?)?,
    };
    let has_default =
        |name: &str| table.schema.index_of(name).is_some_and(|column| table.constraints.defaults.contains_key(&column));
    let have_defaults = schema.columns().iter().map(|column| has_default(&column.name)).collect();
    Ok(FileColumns { schema, are_listed: !names.is_empty(), have_defaults })
}

/// Maps the rows of a source to the columns of a table. CSV columns match by ordinal, others by name,
/// case-insensitively if no name matches exactly. A column that the source lacks has its default, or null without one.
fn map_to_columns(
    table: &Table,
    source_schema: &Schema,
    source: &str,
    by_name: bool,
    rows: LogicalPlan,
) -> Result<LogicalPlan> {
    let source_names: Vec<String> = rows.schema().fields().iter().map(|field| field.name().clone()).collect();
    let index_of = |name: &str| {
        let exact = source_names.iter().position(|other| other == name);
        exact.or_else(|| source_names.iter().position(|other| other.eq_ignore_ascii_case(name)))
    };
    if by_name
        && let Some(extra) =
            source_names.iter().find(|name| !source_schema.columns().iter().any(|c| c.name.eq_ignore_ascii_case(name)))
    {
        let generated = table.constraints.generated.keys().map(|column| &table.schema.column(*column).name);
        return match generated.into_iter().find(|name| name.eq_ignore_ascii_case(extra)) {
            Some(column) => Err(GeneratedColumnError::Copied { column: column.clone() }.into()),
            None => Err(QueryError::no_column(&table.name, extra)),
        };
    }
    let default_of = |name: &str| table.constraints.defaults.get(&table.schema.index_of(name)?);
    let is_generated = |name: &str| {
        table.schema.index_of(name).is_some_and(|column| table.constraints.generated.contains_key(&column))
    };
    let mut expressions = Vec::with_capacity(table.schema.len());
    for column in table.schema.columns() {
        let position = if source_schema.index_of(&column.name).is_some() { index_of(&column.name) } else { None };
        expressions.push(match position {
            Some(position) => Expr::Column(Column::from(rows.schema().qualified_field(position))).alias(&column.name),
            None if let Some(sql) = default_of(&column.name) => {
                default_expression(sql, column.logical_type)?.alias(&column.name)
            }
            None if by_name && !column.nullable && !is_generated(&column.name) => {
                return Err(QueryError::NotInSource { column: column.name.clone(), source_name: source.to_string() });
            }
            None => lit(ScalarValue::try_from(&column.logical_type.arrow())?).alias(&column.name),
        });
    }
    Ok(LogicalPlanBuilder::from(rows).project(expressions)?.build()?)
}
