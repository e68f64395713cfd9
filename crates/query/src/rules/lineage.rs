//! Which stored column an output column of a plan is.

use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::common::Column;
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan, TableScan};
use taut_store::ForeignKey;
use taut_types::{ColumnIndex, LogicalType};

use crate::table::TautTable;

/// A column of a table, at one of the places where a plan reads that table.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// Where the plan reads it.
    pub scan: &'a TableScan,
    /// The column in the stored table.
    pub column: ColumnIndex,
}

impl Origin<'_> {
    /// Whether both are read at the same place: columns of one output row are then values of one row of the table, or
    /// all null below an outer join.
    pub fn is_beside(&self, other: &Self) -> bool {
        std::ptr::eq(self.scan, other.scan)
    }
}

/// The stored column whose values, unchanged, an output column of a plan has; nulls may be among them that an outer join
/// adds. `None` for what is computed, and for what is not stored.
pub fn origin<'a>(plan: &'a LogicalPlan, column: &Column) -> Option<Origin<'a>> {
    let place = plan.schema().maybe_index_of_column(column)?;
    let at = |input: &'a LogicalPlan, place: usize| origin(input, &Column::from(input.schema().qualified_field(place)));
    match plan {
        LogicalPlan::TableScan(scan) => Some(Origin { scan, column: column_of(scan, column.name())? }),
        LogicalPlan::SubqueryAlias(alias) => at(&alias.input, place),
        LogicalPlan::Projection(projection) => match unaliased(projection.expr.get(place)?) {
            Expr::Column(inner) => origin(&projection.input, inner),
            _ => None,
        },
        LogicalPlan::Filter(filter) => at(&filter.input, place),
        LogicalPlan::Sort(sort) => at(&sort.input, place),
        LogicalPlan::Limit(limit) => at(&limit.input, place),
        LogicalPlan::Repartition(repartition) => at(&repartition.input, place),
        LogicalPlan::Distinct(Distinct::All(input)) => at(input, place),
        LogicalPlan::Aggregate(aggregate) => match aggregate.group_expr.get(place)? {
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

/// The foreign key that makes a row of one table have just one partner in the other with these columns equal, unless one
/// of its own is null. Other columns may be equal beside those of the key.
pub fn foreign_key_of(from: &TableScan, to: &TableScan, equal: &[(ColumnIndex, ColumnIndex)]) -> Option<ForeignKey> {
    let parent = with_table(to, |table| table.obeys_keys().then(|| table.stored().id))??;
    with_table(from, |table| {
        let stored = table.stored();
        // Floating-point numbers that are equal need not be the same.
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

/// The column of a name in a table that a plan reads.
pub fn column_of(scan: &TableScan, name: &str) -> Option<ColumnIndex> {
    with_table(scan, |table| table.stored().schema.index_of(name))?
}

/// How many rows a table has where a plan reads it.
pub fn rows_of(scan: &TableScan) -> Option<u64> {
    with_table(scan, TautTable::rows)
}

fn with_table<T>(scan: &TableScan, see: impl FnOnce(&TautTable) -> T) -> Option<T> {
    let provider = source_as_provider(&scan.source).ok()?;
    provider.downcast_ref::<TautTable>().map(see)
}

fn unaliased(expression: &Expr) -> &Expr {
    match expression {
        Expr::Alias(alias) => unaliased(&alias.expr),
        other => other,
    }
}
