//! Functions of PostgreSQL and DuckDB that are short expressions over other functions.
//!
//! ```text
//!   year(d)                          CAST(extract(year FROM d) AS bigint)
//!   date_diff('month', a, b)         12 * (year of b - year of a) + (month of b - month of a)
//!   arg_max(x, y)                    first_value(x ORDER BY y DESC) FILTER (WHERE x IS NOT NULL AND y IS NOT NULL)
//! ```

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use datafusion_sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments, Ident,
    ObjectName, OrderByExpr, OrderByOptions, Value, visit_expressions_mut,
};

use crate::dialect::parse_expression;

/// Functions with the number of their arguments, and what they stand for. `$1` is the first argument.
const MACROS: [(&str, usize, &str); 22] = [
    ("div", 2, "trunc(CAST($1 AS numeric) / $2)"),
    ("year", 1, "CAST(extract(year FROM $1) AS bigint)"),
    ("quarter", 1, "CAST(extract(quarter FROM $1) AS bigint)"),
    ("month", 1, "CAST(extract(month FROM $1) AS bigint)"),
    ("week", 1, "CAST(extract(week FROM $1) AS bigint)"),
    ("weekofyear", 1, "CAST(extract(week FROM $1) AS bigint)"),
    ("day", 1, "CAST(extract(day FROM $1) AS bigint)"),
    ("dayofmonth", 1, "CAST(extract(day FROM $1) AS bigint)"),
    ("dayofweek", 1, "CAST(extract(dow FROM $1) AS bigint)"),
    ("dayofyear", 1, "CAST(extract(doy FROM $1) AS bigint)"),
    ("hour", 1, "CAST(extract(hour FROM $1) AS bigint)"),
    ("minute", 1, "CAST(extract(minute FROM $1) AS bigint)"),
    ("epoch", 1, "CAST(extract(epoch FROM $1) AS double precision)"),
    ("monthname", 1, "to_char($1, '%B')"),
    ("dayname", 1, "to_char($1, '%A')"),
    ("last_day", 1, "CAST(date_trunc('month', $1) + interval '1 month' - interval '1 day' AS date)"),
    (
        "make_timestamp",
        6,
        "CAST(make_date($1, $2, $3) AS timestamp) + interval '1 hour' * $4 + interval '1 minute' * $5 \
         + interval '1 second' * $6",
    ),
    ("quote_literal", 1, "'''' || replace($1, '''', '''''') || ''''"),
    ("regexp_substr", 2, "(regexp_match($1, '(' || $2 || ')'))[1]"),
    ("regexp_extract", 2, "coalesce((regexp_match($1, '(' || $2 || ')'))[1], '')"),
    ("regexp_extract", 3, "coalesce((regexp_match($1, '(' || $2 || ')'))[1 + $3], '')"),
    ("approx_count_distinct", 1, "approx_distinct($1)"),
];

/// Units of `date_diff`, and the number of boundaries between two moments; weeks are whole weeks.
const DIFFERENCES: [(&str, &str); 8] = [
    ("year", "CAST(extract(year FROM $2) - extract(year FROM $1) AS bigint)"),
    (
        "quarter",
        "CAST(4 * (extract(year FROM $2) - extract(year FROM $1)) + extract(quarter FROM $2) \
         - extract(quarter FROM $1) AS bigint)",
    ),
    (
        "month",
        "CAST(12 * (extract(year FROM $2) - extract(year FROM $1)) + extract(month FROM $2) \
         - extract(month FROM $1) AS bigint)",
    ),
    ("week", "CAST((CAST($2 AS date) - CAST($1 AS date)) / 7 AS bigint)"),
    ("day", "CAST(CAST($2 AS date) - CAST($1 AS date) AS bigint)"),
    (
        "hour",
        "CAST((extract(epoch FROM date_trunc('hour', $2)) - extract(epoch FROM date_trunc('hour', $1))) / 3600 AS bigint)",
    ),
    (
        "minute",
        "CAST((extract(epoch FROM date_trunc('minute', $2)) - extract(epoch FROM date_trunc('minute', $1))) / 60 AS bigint)",
    ),
    (
        "second",
        "CAST(extract(epoch FROM date_trunc('second', $2)) - extract(epoch FROM date_trunc('second', $1)) AS bigint)",
    ),
];

static TEMPLATES: LazyLock<HashMap<(&str, usize), Expr>> = LazyLock::new(|| {
    let template = |(name, count, sql): (&'static str, usize, &str)| Some(((name, count), parse_expression(sql).ok()?));
    MACROS.into_iter().filter_map(template).collect()
});

static DIFFERENCE_TEMPLATES: LazyLock<HashMap<&str, Expr>> = LazyLock::new(|| {
    DIFFERENCES.into_iter().filter_map(|(unit, sql)| Some((unit, parse_expression(sql).ok()?))).collect()
});

/// Replaces a call of one of the functions by the expression that it stands for.
pub(super) fn expand(expression: &mut Expr) {
    let Expr::Function(function) = expression else { return };
    let Some(name) =
        function.name.0.as_slice().first().and_then(|part| part.as_ident()).map(|name| name.value.to_lowercase())
    else {
        return;
    };
    if function.name.0.len() != 1 {
        return;
    }
    if matches!(name.as_str(), "arg_max" | "max_by" | "arg_min" | "min_by") {
        extreme_row(function, name.contains("max"));
        return;
    }
    let Some(arguments) = plain_arguments(function) else { return };
    let (template, arguments) = match (name.as_str(), arguments.as_slice()) {
        ("date_diff" | "datediff", [unit, from, to]) => {
            (text_of(unit).and_then(|unit| DIFFERENCE_TEMPLATES.get(unit.as_str())), vec![from.clone(), to.clone()])
        }
        (name, arguments) => (TEMPLATES.get(&(name, arguments.len())), arguments.to_vec()),
    };
    if let Some(template) = template {
        *expression = Expr::Nested(Box::new(with_arguments(template, &arguments)));
    }
}

/// The arguments of a call that is neither an aggregate with clauses nor a window function.
fn plain_arguments(function: &Function) -> Option<Vec<Expr>> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let is_plain = function.over.is_none()
        && function.filter.is_none()
        && function.within_group.is_empty()
        && list.clauses.is_empty()
        && list.duplicate_treatment.is_none();
    let argument = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) => Some(argument.clone()),
        _ => None,
    };
    if is_plain { list.args.iter().map(argument).collect() } else { None }
}

fn text_of(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.to_lowercase()),
            _ => None,
        },
        _ => None,
    }
}

/// The expression of a template with these arguments. Placeholders of the arguments are not touched.
fn with_arguments(template: &Expr, arguments: &[Expr]) -> Expr {
    let mut expanded = template.clone();
    let _: ControlFlow<()> = visit_expressions_mut(&mut expanded, |part| {
        if let Expr::Value(value) = part
            && let Value::Placeholder(name) = &value.value
            && let Some(argument) = name.trim_start_matches('$').parse().ok().and_then(|n: usize| arguments.get(n - 1))
        {
            *part = Expr::Nested(Box::new(argument.clone()));
        }
        ControlFlow::Continue(())
    });
    expanded
}

/// Turns `arg_max(x, y)` into `first_value(x ORDER BY y DESC)` over the rows in which neither is null.
fn extreme_row(function: &mut Function, is_max: bool) {
    let FunctionArguments::List(list) = &mut function.args else { return };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(value)), FunctionArg::Unnamed(FunctionArgExpr::Expr(by))] =
        list.args.as_slice()
    else {
        return;
    };
    if function.over.is_some() || !list.clauses.is_empty() || list.duplicate_treatment.is_some() {
        return;
    }
    let (value, by) = (value.clone(), by.clone());
    let is_not_null = |part: &Expr| Expr::IsNotNull(Box::new(Expr::Nested(Box::new(part.clone()))));
    let and = |left: Expr, right: Expr| Expr::BinaryOp {
        left: Box::new(left),
        op: BinaryOperator::And,
        right: Box::new(right),
    };
    let rows = and(is_not_null(&value), is_not_null(&by));
    function.filter = Some(Box::new(match function.filter.take() {
        Some(filter) => and(Expr::Nested(filter), rows),
        None => rows,
    }));
    let options = OrderByOptions { asc: Some(!is_max), nulls_first: None };
    list.clauses = vec![FunctionArgumentClause::OrderBy(vec![OrderByExpr { expr: by, options, with_fill: None }])];
    list.args.truncate(1);
    function.name = ObjectName::from(vec![Ident::new("first_value")]);
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn expanded(sql: &str) -> String {
        let mut expression = parse_expression(sql).unwrap();
        expand(&mut expression);
        expression.to_string()
    }

    #[test]
    fn every_template_is_valid_and_uses_its_arguments() {
        assert_eq!((TEMPLATES.len(), DIFFERENCE_TEMPLATES.len()), (MACROS.len(), DIFFERENCES.len()));
        for (name, count, sql) in MACROS {
            for argument in 1..=count {
                assert_eq!(sql.matches(&format!("${argument}")).count(), 1, "{name} computes each argument once");
            }
            assert!(!sql.contains(&format!("${}", count + 1)), "{name}");
        }
    }

    #[test]
    fn calls_are_expanded_and_other_calls_stay() {
        assert_eq!(expanded("YEAR(d + 1)"), "(CAST(EXTRACT(YEAR FROM (d + 1)) AS BIGINT))");
        assert_eq!(expanded("div(a, $1)"), "(trunc(CAST((a) AS NUMERIC) / ($1)))");
        assert_eq!(
            expanded("arg_max(x, y) FILTER (WHERE z)"),
            "first_value(x ORDER BY y DESC) FILTER (WHERE (z) AND (x) IS NOT NULL AND (y) IS NOT NULL)"
        );
        for other in ["year(a, b)", "div(a)", "arg_max(x)", "sum(x)", "date_diff('eon', a, b)", "s.year(d)"] {
            assert_eq!(expanded(other), other);
        }
    }
}
