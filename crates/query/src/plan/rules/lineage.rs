//! Origin of output columns: the stored column that an output column of a plan returns.

use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::common::Column;
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan, TableScan};
use taut_store::ForeignKey;
use taut_types::{ColumnIndex, LogicalType};

use crate::exec::scan::TautTable;

/// A column of a table in one scan of a plan. A plan may scan the same table several times.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// Scan that reads the column.
    pub scan: &'a TableScan,
    /// Index of the column in the stored table.
    pub column: ColumnIndex,
}

impl Origin<'_> {
    /// Whether both columns come from the same scan. In one output row they are then values of one row of the table, or
    /// all null below an outer join.
    pub fn is_in_same_scan(&self, other: &Self) -> bool {
        std::ptr::eq(self.scan, other.scan)
    }
}

/// Stored column that an output column of a plan returns unchanged, apart from nulls that an outer join adds. Returns
/// `None` for columns that are computed or not stored.
pub fn origin<'a>(plan: &'a LogicalPlan, column: &Column) -> Option<Origin<'a>> {
    let index = plan.schema().maybe_index_of_column(column)?;
    let at = |input: &'a LogicalPlan, index: usize| origin(input, &Column::from(input.schema().qualified_field(index)));
    match plan {
        LogicalPlan::TableScan(scan) => Some(Origin { scan, column: column_of(scan, column.name())? }),
        LogicalPlan::SubqueryAlias(alias) => at(&alias.input, index),
        LogicalPlan::Projection(projection) => match without_alias(projection.expr.get(index)?) {
            Expr::Column(inner) => origin(&projection.input, inner),
            _ => None,
        },
        LogicalPlan::Filter(filter) => at(&filter.input, index),
        LogicalPlan::Sort(sort) => at(&sort.input, index),
        LogicalPlan::Limit(limit) => at(&limit.input, index),
        LogicalPlan::Repartition(repartition) => at(&repartition.input, index),
        LogicalPlan::Distinct(Distinct::All(input)) => at(input, index),
        LogicalPlan::Aggregate(aggregate) => match aggregate.group_expr.get(index)? {
            Expr::Column(inner) => origin(&aggregate.input, inner),
            _ => None,
        },
        LogicalPlan::Join(join) => {
            let sides = [join.left.as_ref(), join.right.as_ref()];
            sides.into_iter().find(|side| side.schema().has_column(column)).and_then(|side| origin(side, column))
        }
        _ => None,
    }
}

/// Finds a foreign key of `from` that references `to` and whose pairs of columns are all in `equal`. Each row of `from`
/// then has exactly one partner in `to`, or none if a column of the key is null. `equal` may have more pairs.
pub fn foreign_key_of(from: &TableScan, to: &TableScan, equal: &[(ColumnIndex, ColumnIndex)]) -> Option<ForeignKey> {
    let parent = with_table(to, |table| table.obeys_keys().then(|| table.stored().id))??;
    with_table(from, |table| {
        let stored = table.stored();
        // Equal floating-point numbers need not be identical.
        let is_exact = |column: &ColumnIndex| {
            !matches!(stored.schema.column(*column).logical_type, LogicalType::Real | LogicalType::Double)
        };
        let joins = |key: &&ForeignKey| {
            let mut pairs = key.columns.iter().copied().zip(key.referenced.iter().copied());
            key.table == parent && key.columns.iter().all(is_exact) && pairs.all(|pair| equal.contains(&pair))
        };
        let keys = if table.obeys_keys() { stored.constraints.foreign_keys.as_slice() } else { &[] };
        keys.iter().find(joins).cloned()
    })?
}

/// Index of the column with this name in the table that a scan reads.
pub fn column_of(scan: &TableScan, name: &str) -> Option<ColumnIndex> {
    with_table(scan, |table| table.stored().schema.index_of(name))?
}

/// Number of rows of the table that a scan reads.
pub fn scanned_table_rows(scan: &TableScan) -> Option<u64> {
    with_table(scan, TautTable::rows)
}

fn with_table<T>(scan: &TableScan, visit: impl FnOnce(&TautTable) -> T) -> Option<T> {
    let provider = source_as_provider(&scan.source).ok()?;
    provider.downcast_ref::<TautTable>().map(visit)
}

fn without_alias(expression: &Expr) -> &Expr {
    match expression {
        Expr::Alias(alias) => without_alias(&alias.expr),
        other => other,
    }
}
