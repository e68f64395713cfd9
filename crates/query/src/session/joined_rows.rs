//! `RETURNING` with columns of the other relations of an `UPDATE ... FROM` or `DELETE ... USING`.
//!
//! The query of the changes returns these columns behind those of the table. The query of `RETURNING` is planned over
//! the relations of the statement. Then a scan of the returned rows, whose columns have the names of the relations,
//! replaces the plan of its `FROM`:
//!
//! ```text
//!   Projection: t.a, u.b              Projection: t.a, u.b
//!     Cross Join              =>        Projection: a AS t.a, "taut joined 0" AS u.a, "taut joined 1" AS u.b
//!       t: taut written                   TableScan: taut written
//!       u
//! ```

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, TableReference, internal_err};
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use taut_sql::WRITTEN;

/// Adds the columns of all relations except `target` to a query.
pub(super) fn with_joined_columns(query: LogicalPlan, target: &str) -> Result<LogicalPlan> {
    let LogicalPlan::Projection(projection) = query else { return internal_err!("a query without a select list") };
    let target = TableReference::bare(target);
    let fields = projection.input.schema().iter();
    let joined = fields.filter(|(relation, _)| *relation != Some(&target)).enumerate();
    let joined = joined.map(|(index, field)| Expr::from(field).alias(format!("taut joined {index}")));
    let columns: Vec<Expr> = projection.expr.iter().cloned().chain(joined).collect();
    LogicalPlanBuilder::from(Arc::unwrap_or_clone(projection.input)).project(columns)?.build()
}

/// Makes a query of `RETURNING` read the rows of `written` instead of its relations.
pub(super) fn read_joined_rows(query: LogicalPlan, written: &Arc<dyn TableProvider>) -> Result<LogicalPlan> {
    let replaced = query.transform_down(|node| {
        if !matches!(node, LogicalPlan::Join(_)) {
            return Ok(Transformed::no(node));
        }
        let scan = LogicalPlanBuilder::scan(WRITTEN, provider_as_source(Arc::clone(written)), None)?;
        let columns = scan.schema().columns();
        let fields = node.schema();
        if columns.len() != fields.fields().len() {
            return internal_err!("{} returned columns for {}", columns.len(), fields.fields().len());
        }
        let named = columns
            .into_iter()
            .zip(fields.iter())
            .map(|(column, (relation, field))| Expr::Column(column).alias_qualified(relation.cloned(), field.name()));
        let rows = scan.project(named.collect::<Vec<_>>())?.build()?;
        Ok(Transformed::new(rows, true, TreeNodeRecursion::Stop))
    })?;
    // Columns of an outer join may have become nullable.
    let recomputed = replaced.data.transform_up(|node| Ok(Transformed::yes(node.recompute_schema()?)))?;
    Ok(recomputed.data)
}
