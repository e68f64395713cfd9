//! `INSERT INTO t VALUES (...)` of values that need no computing: around the planner, which takes longer than the insert.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::Schema as ArrowSchema;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::{DataFusionError, ScalarValue};
use datafusion::sql::parser::Statement as EngineStatement;
use datafusion::sql::sqlparser::ast::{self, ObjectName, SetExpr, Statement as Ast, TableObject};
use taut_store::Table;
use taut_types::ColumnIndex;

use super::QuerySession;
use crate::changes::{Changes, WrittenRows};
use crate::conform::Conform;
use crate::constraints::default_syntax;
use crate::error::Result;
use crate::kept::exact;
use crate::load::check_constraints;
use crate::parameters::{Parameters, Value};
use crate::statement::{Listed, literal, local_name, normalize, parameter};

/// More rows than these are planned: they may be worth blocks.
const ROWS_MAX: usize = 256;

impl QuerySession {
    /// Inserts the rows of a statement that lists values, which are those of the columns as they are; returns how many.
    /// `None` for all others, which are planned, and which then also say what is wrong with them.
    pub(super) async fn insert_values(
        &self,
        statement: &EngineStatement,
        parameters: &Parameters,
    ) -> Result<Option<u64>> {
        let Parameters::Positional(values) = parameters else { return Ok(None) };
        let snapshot = self.snapshot();
        let found = listed(statement).and_then(|(name, listed)| {
            let table = snapshot.table(&local_name(name).ok()?)?;
            let given = listed.values(table, values)?;
            // Values that no parameter stands for are an error.
            (given.parameters == values.len()).then_some((table, given))
        });
        let Some((table, given)) = found else { return Ok(None) };
        self.check_may_write("INSERT")?;
        let rows = given.rows(table)?;
        let inserted = self.in_transaction(async |changes: Changes| {
            check_constraints(table, &changes.snapshot())?;
            if let Some(transaction) = changes.transaction() {
                transaction.insert_rows(table.id, &rows)?;
            }
            changes.wrote(table, WrittenRows::New(rows.clone()));
            Ok(rows.num_rows() as u64)
        });
        Ok(Some(inserted.await?))
    }
}

/// The values of each column of a table.
pub(super) struct Given {
    columns: Vec<Vec<ScalarValue>>,
    /// How many parameters there are.
    pub parameters: usize,
}

/// The table of an insert that lists values, and these.
fn listed(statement: &EngineStatement) -> Option<(&ObjectName, Listed<'_>)> {
    let EngineStatement::Statement(statement) = statement else { return None };
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
    let listed = Listed { columns: &insert.columns, rows: &values.rows };
    (is_whole && (1..=ROWS_MAX).contains(&listed.rows.len())).then_some((name, listed))
}

impl Listed<'_> {
    /// The values of each column of a table, where all are known and exactly of its type.
    pub(super) fn values(&self, table: &Table, values: &[Value]) -> Option<Given> {
        let Listed { columns: named, rows } = self;
        if !table.design.encodings.is_empty() {
            return None;
        }
        let place = |name: &ObjectName| match name.0.as_slice() {
            [ast::ObjectNamePart::Identifier(name)] => Some(table.schema.index_of(&normalize(name))?.index()),
            _ => None,
        };
        let places: Vec<usize> = match *named {
            [] => (0..table.schema.len()).collect(),
            named => named.iter().map(place).collect::<Option<_>>()?,
        };
        if places.iter().collect::<HashSet<_>>().len() != places.len() {
            return None;
        }
        let mut used = 0;
        let types: Vec<_> = table.schema.columns().iter().map(|column| column.logical_type.arrow()).collect();
        let default = |place: usize| match table.constraints.defaults.get(&ColumnIndex::from(place)) {
            Some(sql) if !places.contains(&place) => exact(&literal(&default_syntax(sql).ok()?)?, &types[place]),
            _ => ScalarValue::try_from(&types[place]).ok(),
        };
        let defaults: Vec<ScalarValue> = (0..types.len()).map(default).collect::<Option<_>>()?;
        let mut columns: Vec<Vec<ScalarValue>> = defaults.iter().map(|value| vec![value.clone(); rows.len()]).collect();
        for (number, row) in rows.iter().enumerate() {
            if row.content.len() != places.len() {
                return None;
            }
            for (expression, place) in row.content.iter().zip(&places) {
                let value = match parameter(expression) {
                    Some(parameter) => {
                        used = used.max(parameter + 1);
                        values.get(parameter)?.clone()
                    }
                    None => literal(expression)?,
                };
                columns[*place][number] = exact(&value, &types[*place])?;
            }
        }
        Some(Given { columns, parameters: used })
    }
}

impl Given {
    /// The rows of a table.
    ///
    /// # Errors
    /// When one does not meet what the table demands, such as where a null must not be.
    pub fn rows(self, table: &Table) -> Result<RecordBatch> {
        let arrays = self.columns.into_iter().map(ScalarValue::iter_to_array);
        let arrays = arrays.collect::<datafusion::common::Result<Vec<_>>>()?;
        let arrow = table.schema.arrow();
        let nullable = arrow.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
        let nullable = Arc::new(ArrowSchema::new(nullable.collect::<Vec<_>>()));
        let rows = RecordBatch::try_new(nullable, arrays).map_err(DataFusionError::from)?;
        Ok(Conform::of_table(&rows.schema(), table)?.batch(&rows)?)
    }
}
