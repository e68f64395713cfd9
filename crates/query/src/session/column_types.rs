//! `ALTER TABLE ... ALTER COLUMN ... TYPE`: rewrites the rows of the table in the transaction of the statement.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use taut_sql::Statement;
use taut_store::Table;
use taut_types::{ColumnIndex, LogicalType, Schema, unqualified_name};

use super::columns::{TypeChange, column_text, generated_from};
use super::constraints::{ROWS, quote_name};
use super::keys::format_row;
use super::{QuerySession, start_write, sum_counts};
use crate::constraints::{DefaultValues, default_expression};
use crate::error::{Dependency, GeneratedColumnError, QueryError, Result, SequenceError};
use crate::exec::insert::Target;
use crate::exec::scan::TautTable;
use crate::plan::statement_to_plan;
use crate::write::changes::Changes;

impl TypeChange<'_> {
    /// SQL expression of the new value, before the cast to the new type.
    fn value(&self) -> String {
        self.using.map_or_else(|| quote_name(self.column), |using| format!("({using})"))
    }
}

impl QuerySession {
    /// Sets the types of columns. All new values are computed from the same old rows.
    pub(super) async fn set_column_types(
        &self,
        target: &Changes,
        name: &str,
        changes: &[TypeChange<'_>],
    ) -> Result<()> {
        let snapshot = target.snapshot();
        let table = snapshot.table(name).ok_or_else(|| QueryError::no_relation(name))?;
        let mut columns = table.schema.columns().to_vec();
        let mut changed: Vec<(ColumnIndex, &TypeChange<'_>)> = Vec::new();
        for change in changes {
            let TypeChange { column, logical_type, using } = change;
            let index = table.schema.index_of(column).ok_or_else(|| QueryError::no_column(name, column))?;
            if using.is_some() && table.constraints.generated.contains_key(&index) {
                return Err(GeneratedColumnError::Using { column: (*column).to_owned() }.into());
            }
            if changed.iter().any(|(other, _)| *other == index) {
                let what = format!("to alter the type of column {column:?} twice in one statement");
                return Err(QueryError::unsupported(what, "one type for each column is"));
            }
            if using.is_none() && table.schema.column(index).logical_type == *logical_type {
                continue;
            }
            self.check_type_change(target, table, index, change).await?;
            columns[index.index()].logical_type = *logical_type;
            changed.push((index, change));
        }
        if changed.is_empty() {
            return Ok(());
        }
        let schema = Arc::new(Schema::new(columns)?);
        // Rejects a forced encoding that the new type does not allow.
        table.design.with_options(std::iter::empty::<(&str, &str)>(), &schema)?;
        let values = table.schema.columns().iter().enumerate().map(|(position, column)| {
            let quoted = quote_name(&column.name);
            let generated = table.constraints.generated.get(&ColumnIndex::from(position));
            match changed.iter().find(|(index, _)| index.index() == position) {
                Some((_, change)) => {
                    let value = generated.map_or_else(|| change.value(), |expression| format!("({expression})"));
                    format!("CAST({value} AS {}) AS {quoted}", change.logical_type.sql_name())
                }
                None => quoted,
            }
        });
        let from = format!("FROM \"{ROWS}\" AS {}", quote_name(&unqualified_name(name)));
        let sql = format!("SELECT {} {from}", values.collect::<Vec<_>>().join(", "));
        let indexes = changed.iter().map(|(index, _)| *index).collect();
        match self.rewrite_with_types(target, table, (schema, indexes), &sql).await {
            Err(cause) if cause.sqlstate().starts_with("22") => {
                for (_, change) in &changed {
                    let (value, logical_type) = (change.value(), change.logical_type.sql_name());
                    let is_invalid = format!("TRY_CAST({value} AS {logical_type}) IS NULL");
                    let failing = format!("SELECT * {from} WHERE {value} IS NOT NULL AND {is_invalid} LIMIT 1");
                    // This fails if the value itself cannot be computed. The cause is then reported without a row.
                    let found = self.first_row(&snapshot, vec![(ROWS, Arc::clone(table))], &failing).await;
                    if let Ok(Some(row)) = found {
                        let row = format_row(table, &row)?;
                        return Err(QueryError::Retype { row, cause: Box::new(cause) });
                    }
                }
                Err(cause)
            }
            result => result,
        }
    }

    /// Checks that nothing depends on the old type of a column, and that its default fits the new type.
    async fn check_type_change(
        &self,
        target: &Changes,
        table: &Arc<Table>,
        index: ColumnIndex,
        change: &TypeChange<'_>,
    ) -> Result<()> {
        let TypeChange { column, logical_type, using } = change;
        if using.is_none() && !is_assignable(table.schema.column(index).logical_type, *logical_type) {
            return Err(QueryError::NoAutomaticCast {
                column: (*column).to_owned(),
                logical_type: logical_type.sql_name(),
            });
        }
        let owned = table.constraints.sequences.get(&index);
        if owned.is_some_and(|owned| owned.identity.is_some()) && logical_type.integer_range().is_none() {
            let message = "identity column type must be smallint, integer, or bigint".to_owned();
            return Err(SequenceError::Invalid { message }.into());
        }
        if let Some(generated) = generated_from(table, index)?.into_iter().next() {
            return Err(GeneratedColumnError::TypeInUse { column: (*column).to_owned(), generated }.into());
        }
        let dependents = self.dependents_of_column(target, table, index).await?;
        let is_group = |dependency: &Dependency| dependency.dependent.starts_with("option groups");
        let dependencies: Vec<_> =
            dependents.dependencies.into_iter().filter(|dependency| !is_group(dependency)).collect();
        if !dependencies.is_empty() {
            return Err(QueryError::Dependents {
                verb: "alter the type of",
                object: Some(column_text(table, column)),
                dependencies,
                hint: "Drop the dependent objects first, and create them again afterwards.",
            });
        }
        match table.constraints.defaults.get(&index) {
            Some(default) => self.check_default(default, column, *logical_type),
            None => Ok(()),
        }
    }

    /// Checks that the default of a column is a value of its new type.
    fn check_default(&self, default: &str, column: &str, logical_type: LogicalType) -> Result<()> {
        let settings = self.state(None).config_options().clone();
        let expression = default_expression(default, logical_type);
        // A volatile default is not evaluated: that would consume its values, such as numbers of a sequence.
        if expression.as_ref().is_ok_and(|expression| expression.is_volatile()) {
            return Ok(());
        }
        let value = expression.and_then(|value| DefaultValues::at_current_time(&settings).evaluate(value, 1));
        value.map(drop).map_err(|_| QueryError::NoCastOfDefault {
            column: column.to_owned(),
            logical_type: logical_type.sql_name(),
        })
    }

    /// Writes all rows of a table to new blocks. Rows that were deleted, which may hold nulls, are then gone.
    pub(super) async fn rewrite_rows(&self, target: &Changes, table: &Arc<Table>) -> Result<()> {
        let columns: Vec<String> = table.schema.columns().iter().map(|column| quote_name(&column.name)).collect();
        let sql = format!("SELECT {} FROM \"{ROWS}\"", columns.join(", "));
        self.rewrite_with_types(target, table, (Arc::clone(&table.schema), Vec::new()), &sql).await
    }

    /// Replaces all rows of a table by the rows of a query, in which some columns have other types.
    async fn rewrite_with_types(
        &self,
        target: &Changes,
        table: &Arc<Table>,
        (schema, columns): (Arc<Schema>, Vec<ColumnIndex>),
        sql: &str,
    ) -> Result<()> {
        let mut catalog = self.catalog(target.snapshot(), None);
        let rows = TautTable::whole(Arc::clone(self.store()), Arc::clone(table)).without_keys();
        catalog.relations.push((ROWS.into(), Arc::new(rows) as Arc<dyn TableProvider>));
        let mut state = catalog.state(self.context.state());
        state.config_mut().set_extension(Arc::new(target.clone()));
        let rows = match taut_sql::parse(sql)?.as_slice() {
            [Statement::Planned { statement, .. }] => statement_to_plan(&state, statement).await?,
            _ => return Err(QueryError::unsupported("this USING expression", "an expression over the row is")),
        };
        let retyped = Target::Retyped { table: Arc::clone(table), schema, columns };
        let plan = self.insert_plan(&table.name, retyped, rows)?;
        let progress = self.progress_counter(&format!("rewrite {}", table.name), Some(table.rows()));
        sum_counts(start_write(state, plan, progress).await?).await?;
        Ok(())
    }
}

/// Whether a type change works without `USING`, because PostgreSQL has an assignment cast between the types.
fn is_assignable(from: LogicalType, to: LogicalType) -> bool {
    let is_number = |logical: LogicalType| {
        matches!(
            logical,
            LogicalType::SmallInt
                | LogicalType::Integer
                | LogicalType::BigInt
                | LogicalType::Decimal { .. }
                | LogicalType::Real
                | LogicalType::Double
        )
    };
    let is_time =
        |logical: LogicalType| matches!(logical, LogicalType::Date | LogicalType::Timestamp | LogicalType::TimestampTz);
    from == to || to == LogicalType::Varchar || (is_number(from) && is_number(to)) || (is_time(from) && is_time(to))
}
