//! Tables in `FROM`: column names of table functions, samples, and sides of joins. The right column is the replacement:
//!
//! ```text
//!   FROM generate_series(1, 3) AS g        generate_series(1, 3) AS g (g)
//!   FROM generate_series(1, 3)             generate_series(1, 3) AS generate_series (generate_series)
//!   FROM t SEMI JOIN u ON ...              t LEFT SEMI JOIN u ON ...
//!   FROM t TABLESAMPLE BERNOULLI (10)      (SELECT * FROM t WHERE random() * 100 < 10) AS t
//! ```

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, JoinOperator, Select, SelectItem, TableAlias, TableAliasColumnDef, TableFactor,
    TableSample, TableSampleKind, TableSampleMethod, TableSampleQuantity, TableSampleUnit, WildcardAdditionalOptions,
};

use crate::error::SqlError;
use crate::syntax;

/// Table functions with one column.
const ONE_COLUMN: [&str; 2] = ["generate_series", "range"];

/// Names the column of a table function after its alias, or after the function if it has none.
pub(super) fn name_column(table: &mut TableFactor) {
    let (TableFactor::Table { name, alias, args: Some(_), .. } | TableFactor::Function { name, alias, .. }) = table
    else {
        return;
    };
    let [part] = name.0.as_slice() else { return };
    let Some(function) = part.as_ident().map(|ident| ident.value.to_lowercase()) else { return };
    if !ONE_COLUMN.contains(&function.as_str()) {
        return;
    }
    let alias = alias.get_or_insert_with(|| TableAlias {
        explicit: true,
        name: Ident::new(function),
        columns: Vec::new(),
        at: None,
    });
    if alias.columns.is_empty() {
        alias.columns.push(TableAliasColumnDef { name: alias.name.clone(), data_type: None });
    }
}

/// Names the side whose rows a `SEMI JOIN` or `ANTI JOIN` returns.
pub(super) fn name_sides(select: &mut Select) {
    for join in select.from.iter_mut().flat_map(|from| &mut from.joins) {
        match &join.join_operator {
            JoinOperator::Semi(constraint) => join.join_operator = JoinOperator::LeftSemi(constraint.clone()),
            JoinOperator::Anti(constraint) => join.join_operator = JoinOperator::LeftAnti(constraint.clone()),
            _ => {}
        }
    }
}

/// Replaces `TABLESAMPLE` by a subquery that selects each row at random.
pub(super) fn sample(table: &mut TableFactor) -> ControlFlow<SqlError> {
    if let TableFactor::Derived { sample: Some(_), .. } = table {
        return ControlFlow::Break(SqlError::unsupported("TABLESAMPLE of a subquery", "TABLESAMPLE of a table is"));
    }
    let TableFactor::Table { name, alias, sample, .. } = table else { return ControlFlow::Continue(()) };
    let Some(TableSampleKind::BeforeTableAlias(sample) | TableSampleKind::AfterTableAlias(sample)) = sample.take()
    else {
        return ControlFlow::Continue(());
    };
    let Some(percentage) = percentage(&sample) else {
        return ControlFlow::Break(SqlError::unsupported(
            sample.to_string().trim(),
            "TABLESAMPLE BERNOULLI (percentage) and SYSTEM (percentage) are",
        ));
    };
    let alias = alias.take().or_else(|| {
        let name = name.0.last()?.as_ident()?.clone();
        Some(TableAlias { explicit: true, name, columns: Vec::new(), at: None })
    });
    let chance = binary(syntax::call("random", Vec::new()), BinaryOperator::Multiply, syntax::integer(100));
    let is_chosen = binary(chance, BinaryOperator::Lt, Expr::Nested(Box::new(percentage)));
    let all = vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())];
    let subquery = syntax::select(all, vec![syntax::without_joins(table.clone())], Some(is_chosen));
    *table = TableFactor::Derived { lateral: false, subquery, alias, sample: None };
    ControlFlow::Continue(())
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

/// Returns the percentage of rows in a sample. Returns `None` if the sample is not supported.
fn percentage(sample: &TableSample) -> Option<Expr> {
    let TableSample { name, quantity, seed, bucket, offset, .. } = sample;
    let is_method = matches!(name, None | Some(TableSampleMethod::Bernoulli | TableSampleMethod::System));
    match quantity {
        Some(TableSampleQuantity { value, unit: None | Some(TableSampleUnit::Percent), .. })
            if is_method && seed.is_none() && bucket.is_none() && offset.is_none() =>
        {
            Some(value.clone())
        }
        _ => None,
    }
}
