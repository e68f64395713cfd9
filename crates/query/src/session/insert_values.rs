//! `INSERT INTO t VALUES (...)` without a planner, for values that need no computation. Planning takes longer than the
//! insert.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema as ArrowSchema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::TableProvider;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{DataFusionError, ScalarValue};
use datafusion::datasource::MemTable;
use datafusion::logical_expr::{Expr, ScalarUDF};
use datafusion::physical_plan::execute_stream;
use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::{self, ObjectName, Parens, SetExpr, Statement as Ast, TableObject};
use parking_lot::Mutex;
use taut_sql::{ListedRows, Parameters, Value, literal, normalize, parameter, parse_expression, relation_reference};
use taut_store::{Constraints, Table, TableId};
use taut_types::{ColumnIndex, Schema};

use super::{QuerySession, sum_counts};
use crate::constraints::{DefaultValues, default_expression};
use crate::error::Result;
use crate::exec::insert::InsertExec;
use crate::plan::cache::convert_exactly;
use crate::plan::row_check::RowCheck;
use crate::write::changes::{Changes, WrittenRows};
use crate::write::coerce::Coercion;
use crate::write::commit::check_constraints;

/// Maximum number of rows that always go to the delta. More rows may be written as blocks.
const ROWS_MAX: usize = 256;
/// Maximum number of cached [`InsertTarget`]s.
const TARGETS_MAX: usize = 64;

impl QuerySession {
    /// Inserts the rows of a statement that lists values, if [`convert_value`] accepts each value. Returns the number
    /// of rows. Returns `None` if the statement must be planned; planning then reports any errors.
    pub(super) async fn insert_values(
        &self,
        statement: &PlannerStatement,
        parameters: &Parameters,
    ) -> Result<Option<u64>> {
        let Parameters::Positional(values) = parameters else { return Ok(None) };
        let snapshot = self.snapshot();
        let named = |name| self.name(&relation_reference(name).ok()?).ok();
        let found = listed_values(statement).and_then(|(name, listed)| Some((snapshot.table(&named(name)?)?, listed)));
        let Some((table, listed)) = found else { return Ok(None) };
        let target = self.insert_targets.get(table)?;
        // More values than parameters are an error. Planning reports it.
        let columns = target.listed_columns(table, listed, values).filter(|columns| columns.parameters == values.len());
        let Some(columns) = columns else { return Ok(None) };
        self.check_may_change(&table.name, "INSERT")?;
        let rows = columns.rows(&target, self.planning.state(&self.context).config_options())?;
        if rows.num_rows() > ROWS_MAX {
            return Ok(Some(self.insert_as_load(table, rows).await?));
        }
        let inserted = self.in_transaction(async |changes: Changes| {
            check_constraints(table, &changes.snapshot())?;
            if let Some(transaction) = changes.transaction() {
                transaction.insert_rows(table.id, &rows)?;
            }
            changes.record_written(table, WrittenRows::New(rows.clone()));
            Ok(rows.num_rows() as u64)
        });
        Ok(Some(inserted.await?))
    }

    /// Inserts more than [`ROWS_MAX`] rows, which may be written as blocks.
    async fn insert_as_load(&self, table: &Arc<Table>, rows: RecordBatch) -> Result<u64> {
        let batch_rows = self.planning.state(&self.context).config().batch_size();
        let starts = (0..rows.num_rows()).step_by(batch_rows);
        let batches = starts.map(|start| rows.slice(start, batch_rows.min(rows.num_rows() - start))).collect();
        let rows = MemTable::try_new(rows.schema(), vec![batches])?;
        let inserted = self.in_transaction(async |changes: Changes| {
            check_constraints(table, &changes.snapshot())?;
            let mut state = self.context.state();
            state.config_mut().set_extension(Arc::new(changes));
            let rows = rows.scan(&state, None, &[], None).await?;
            let insert = InsertExec::from_physical_plan(Arc::clone(self.store()), Arc::clone(table), rows, false);
            sum_counts(execute_stream(Arc::new(insert), state.task_ctx())?).await
        });
        let count = inserted.await?;
        self.complete_after_load(table).await;
        Ok(count)
    }
}

/// Cache of insert targets, by table.
#[derive(Debug, Default)]
pub(super) struct InsertTargets(Mutex<HashMap<TableId, Arc<InsertTarget>>>);

/// Converts listed values to rows of a table. Valid for these columns and constraints only.
#[derive(Debug)]
pub(super) struct InsertTarget {
    schema: Arc<Schema>,
    constraints: Arc<Constraints>,
    types: Vec<DataType>,
    /// Values of the columns that a statement omits. `None` for a default that must be planned.
    defaults: Vec<Option<Column>>,
    /// Schema of the table with all columns nullable.
    nullable: SchemaRef,
    coercion: Arc<Coercion>,
}

/// Values of a column.
#[derive(Clone, Debug)]
enum Column {
    /// One value for each row.
    Values(Vec<ScalarValue>),
    /// The same value for all rows.
    Value(ScalarValue),
    /// A default that must be computed.
    Computed(Expr),
}

impl InsertTargets {
    /// Returns the target of a table. Creates it if the table is new or has changed.
    ///
    /// # Errors
    /// If a check constraint can no longer be planned.
    pub fn get(&self, table: &Table) -> Result<Arc<InsertTarget>> {
        if let Some(known) = self.0.lock().get(&table.id)
            && Arc::ptr_eq(&known.schema, &table.schema)
            && Arc::ptr_eq(&known.constraints, &table.constraints)
        {
            return Ok(Arc::clone(known));
        }
        let target = Arc::new(InsertTarget::new(table)?);
        let mut targets = self.0.lock();
        if targets.len() >= TARGETS_MAX {
            targets.clear();
        }
        targets.insert(table.id, Arc::clone(&target));
        Ok(target)
    }
}

impl InsertTarget {
    fn new(table: &Table) -> Result<Self> {
        let arrow = table.schema.arrow();
        let nullable = arrow.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
        let nullable = Arc::new(ArrowSchema::new(nullable.collect::<Vec<_>>()));
        let types: Vec<DataType> = arrow.fields().iter().map(|field| field.data_type().clone()).collect();
        let default = |index: usize| match table.constraints.defaults.get(&ColumnIndex::from(index)) {
            None => ScalarValue::try_from(&types[index]).ok().map(Column::Value),
            Some(sql) => {
                let value =
                    literal(&parse_expression(sql).ok()?).and_then(|value| convert_exactly(&value, &types[index]));
                let computed = || default_expression(sql, table.schema.column(ColumnIndex::from(index)).logical_type);
                value.map(Column::Value).or_else(|| computed().ok().map(Column::Computed))
            }
        };
        Ok(Self {
            schema: Arc::clone(&table.schema),
            constraints: Arc::clone(&table.constraints),
            defaults: (0..types.len()).map(default).collect(),
            types,
            coercion: Arc::new(Coercion::for_table(&(Arc::clone(&nullable) as SchemaRef), table)?),
            nullable,
        })
    }

    /// The function that checks the rows of an `INSERT ... ON CONFLICT`: see [`taut_sql::CHECK_ROW`].
    pub(super) fn row_check(&self) -> ScalarUDF {
        RowCheck::udf(Arc::clone(&self.nullable), Arc::clone(&self.coercion))
    }

    /// Converts listed rows to values for each column of the table. Returns `None` if the statement must be planned.
    /// For example, a value is neither a literal nor a parameter, or cannot be converted to the type of its column
    /// exactly.
    pub(super) fn listed_columns(
        &self,
        table: &Table,
        listed: ListedRows<'_>,
        values: &[Value],
    ) -> Option<ListedColumns> {
        let ListedRows { columns: named, rows } = listed;
        if !table.design.encodings.is_empty() {
            return None;
        }
        let index = |name: &ObjectName| match name.0.as_slice() {
            [ast::ObjectNamePart::Identifier(name)] => Some(table.schema.index_of(&normalize(name))?.index()),
            _ => None,
        };
        let indexes: Vec<usize> = match named {
            // If a row has fewer values than the table has columns, they are for the first columns.
            [] => table.visible_columns().map(ColumnIndex::index).take(rows.first()?.content.len()).collect(),
            named => named.iter().map(index).collect::<Option<_>>()?,
        };
        if indexes.iter().collect::<HashSet<_>>().len() != indexes.len() {
            return None;
        }
        // Planning reports the error.
        if indexes.iter().any(|index| self.constraints.is_always_generated(ColumnIndex::from(*index))) {
            return None;
        }
        if rows.iter().any(|row| row.content.len() != indexes.len()) {
            return None;
        }
        let mut used = 0;
        let mut columns: Vec<Option<Column>> = vec![None; self.types.len()];
        for (position, index) in indexes.iter().enumerate() {
            let value = |row: &Parens<Vec<ast::Expr>>| match parameter(&row.content[position]) {
                Some(parameter) => {
                    used = used.max(parameter + 1);
                    convert_value(values.get(parameter)?, &self.types[*index])
                }
                None => convert_value(&literal(&row.content[position])?, &self.types[*index]),
            };
            columns[*index] = Some(Column::Values(rows.iter().map(value).collect::<Option<_>>()?));
        }
        let with_defaults = columns.into_iter().zip(&self.defaults);
        let columns =
            with_defaults.map(|(column, default)| column.or_else(|| default.clone())).collect::<Option<_>>()?;
        Some(ListedColumns { columns, rows: rows.len(), parameters: used })
    }
}

/// Values of each column of a table.
pub(super) struct ListedColumns {
    columns: Vec<Column>,
    rows: usize,
    /// Number of parameters that the values refer to.
    pub parameters: usize,
}

/// Table and listed values of a plain `INSERT ... VALUES`. Returns `None` for other statements.
fn listed_values(statement: &PlannerStatement) -> Option<(&ObjectName, ListedRows<'_>)> {
    let PlannerStatement::Statement(statement) = statement else { return None };
    let Ast::Insert(insert) = statement.as_ref() else { return None };
    let TableObject::TableName(name) = &insert.table else { return None };
    let is_plain = insert.or.is_none()
        && !insert.overwrite
        && !insert.replace_into
        && insert.table_alias.is_none()
        && insert.on.is_none()
        && insert.returning.is_none()
        && insert.output.is_none()
        && insert.assignments.is_empty()
        && insert.partitioned.is_none()
        && insert.after_columns.is_empty();
    let source = insert.source.as_deref().filter(|_| is_plain)?;
    let SetExpr::Values(values) = source.body.as_ref() else { return None };
    let is_whole =
        source.with.is_none() && source.order_by.is_none() && source.limit_clause.is_none() && source.fetch.is_none();
    let listed = ListedRows { columns: &insert.columns, rows: &values.rows };
    (is_whole && !listed.rows.is_empty()).then_some((name, listed))
}

/// Whether a list has at most [`ROWS_MAX`] rows, and at least one.
pub(super) fn is_small_list(listed: ListedRows<'_>) -> bool {
    (1..=ROWS_MAX).contains(&listed.rows.len())
}

/// Converts a value to the type of a column. Returns `None` if the conversion is neither exact nor a rounding to the
/// nearest floating-point number.
fn convert_value(value: &Value, wanted: &DataType) -> Option<ScalarValue> {
    convert_exactly(value, wanted).or_else(|| {
        let digits = match value {
            Value::Integer(number) => number.to_string(),
            Value::Decimal { unscaled, scale, .. } => format!("{unscaled}e{}", -i32::from(*scale)),
            _ => return None,
        };
        match wanted {
            DataType::Float64 => digits
                .parse()
                .ok()
                .filter(|number: &f64| number.is_finite())
                .map(|number| ScalarValue::Float64(Some(number))),
            DataType::Float32 => digits
                .parse()
                .ok()
                .filter(|number: &f32| number.is_finite())
                .map(|number| ScalarValue::Float32(Some(number))),
            _ => None,
        }
    })
}

impl ListedColumns {
    /// Builds the rows for a table.
    ///
    /// # Errors
    /// If a row does not meet the constraints of the table, such as NOT NULL.
    pub fn rows(self, target: &InsertTarget, settings: &Arc<ConfigOptions>) -> Result<RecordBatch> {
        let rows = self.rows;
        let mut defaults = None;
        let array = |column: Column| match column {
            Column::Values(values) => Ok(ScalarValue::iter_to_array(values)?),
            Column::Value(value) => Ok(value.to_array_of_size(rows)?),
            Column::Computed(default) => {
                defaults.get_or_insert_with(|| DefaultValues::at_current_time(settings)).evaluate(default, rows)
            }
        };
        let arrays = self.columns.into_iter().map(array).collect::<Result<_>>()?;
        let rows = RecordBatch::try_new(Arc::clone(&target.nullable), arrays).map_err(DataFusionError::from)?;
        Ok(target.coercion.coerce(&rows)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_become_the_nearest_number_of_a_floating_point_column() {
        let decimal = |unscaled, scale| Value::Decimal { unscaled, precision: 38, scale };
        let double = |number| Some(ScalarValue::Float64(Some(number)));
        assert_eq!(convert_value(&decimal(15, 1), &DataType::Float64), double(1.5));
        assert_eq!(convert_value(&decimal(-1, 1), &DataType::Float64), double(-0.1));
        assert_eq!(
            convert_value(&decimal(12_345_678_901_234_567_890, 20), &DataType::Float64),
            double(0.12345678901234568)
        );
        assert_eq!(convert_value(&Value::Integer(7), &DataType::Float32), Some(ScalarValue::Float32(Some(7.0))));
        assert_eq!(
            convert_value(&decimal(i128::MAX, 0), &DataType::Float32),
            Some(ScalarValue::Float32(Some(1.7014118e38)))
        );
        assert_eq!(convert_value(&decimal(15, 1), &DataType::Int64), None);
        assert_eq!(convert_value(&Value::Text("1".to_owned()), &DataType::Float64), None);
    }
}
