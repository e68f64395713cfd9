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

use datafusion_sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion_sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments,
    Ident, ObjectName, OrderByExpr, OrderByOptions, Value, visit_expressions_mut,
};

use crate::dialect::parse_expression;
use crate::syntax;

use super::hypothetical_ranks;
use super::operators::use_datafusion_name;

/// Name of a function, number of its arguments, and the expression that replaces a call. `$1` is the first argument.
/// Columns in a subquery have names that no argument contains, so they do not capture its columns.
const MACROS: [(&str, usize, &str); 78] = [
    ("age", 1, "age(CAST(current_date AS timestamp), $1)"),
    ("approx_count_distinct", 1, "approx_distinct($1)"),
    ("array_dims", 1, "'[1:' || array_to_string(array_dims($1), '][1:') || ']'"),
    ("array_distinct", 1, "array_distinct(array_compact($1))"),
    ("array_first", 1, "array_element($1, 1)"),
    ("array_last", 1, "array_element($1, -1)"),
    ("array_lower", 2, "CASE WHEN array_length($1, $2) IS NOT NULL THEN 1 END"),
    ("array_reverse_sort", 1, "array_sort($1, 'DESC', 'NULLS FIRST')"),
    ("array_sort", 1, "array_sort($1, 'ASC', 'NULLS LAST')"),
    ("array_unique", 1, "cardinality(array_distinct(array_compact($1)))"),
    ("array_upper", 2, "array_length($1, $2)"),
    ("century", 1, "CAST(extract(century FROM $1) AS bigint)"),
    ("current_database", 0, "'taut'"),
    ("date_add", 2, "$1 + $2"),
    ("day", 1, "CAST(extract(day FROM $1) AS bigint)"),
    ("dayname", 1, "strftime($1, '%A')"),
    ("dayofmonth", 1, "CAST(extract(day FROM $1) AS bigint)"),
    ("dayofweek", 1, "CAST(extract(dow FROM $1) AS bigint)"),
    ("dayofyear", 1, "CAST(extract(doy FROM $1) AS bigint)"),
    ("decade", 1, "CAST(extract(decade FROM $1) AS bigint)"),
    ("div", 2, "trunc(CAST($1 AS numeric) / $2)"),
    ("epoch", 1, "CAST(extract(epoch FROM $1) AS double precision)"),
    ("getdatabaseencoding", 0, "'UTF8'"),
    ("hour", 1, "CAST(extract(hour FROM $1) AS bigint)"),
    ("if", 3, "CASE WHEN $1 THEN $2 ELSE $3 END"),
    ("isodow", 1, "CAST(extract(isodow FROM $1) AS bigint)"),
    ("isoyear", 1, "CAST(extract(isoyear FROM $1) AS bigint)"),
    ("last_day", 1, "CAST(date_trunc('month', $1) + interval '1 month' - interval '1 day' AS date)"),
    ("list_count", 1, "cardinality(array_compact($1))"),
    ("list_distinct", 1, "array_distinct(array_compact($1))"),
    ("list_first", 1, "array_element($1, 1)"),
    ("list_last", 1, "array_element($1, -1)"),
    ("list_reverse_sort", 1, "array_sort($1, 'DESC', 'NULLS FIRST')"),
    ("list_sort", 1, "array_sort($1, 'ASC', 'NULLS LAST')"),
    ("list_string_agg", 1, "array_to_string($1, ',')"),
    ("list_string_agg", 2, "array_to_string($1, $2)"),
    ("list_unique", 1, "cardinality(array_distinct(array_compact($1)))"),
    ("microsecond", 1, "CAST(extract(microseconds FROM $1) AS bigint)"),
    ("millennium", 1, "CAST(extract(millennium FROM $1) AS bigint)"),
    ("millisecond", 1, "CAST(trunc(extract(milliseconds FROM $1)) AS bigint)"),
    ("minute", 1, "CAST(extract(minute FROM $1) AS bigint)"),
    ("month", 1, "CAST(extract(month FROM $1) AS bigint)"),
    ("monthname", 1, "strftime($1, '%B')"),
    (
        "col_description",
        2,
        "(SELECT \"taut comment\" FROM pg_catalog.\"taut comments\" WHERE \"taut object\" = $1 AND \"taut column\" = $2)",
    ),
    (
        "obj_description",
        1,
        "(SELECT \"taut comment\" FROM pg_catalog.\"taut comments\" WHERE \"taut column\" = 0 AND \"taut object\" = $1)",
    ),
    (
        "obj_description",
        2,
        "(SELECT \"taut comment\" FROM pg_catalog.\"taut comments\" WHERE \"taut column\" = 0 AND \"taut object\" = $1 AND $2 = 'pg_class')",
    ),
    ("pg_client_encoding", 0, "'UTF8'"),
    (
        "pg_get_constraintdef",
        1,
        "(SELECT \"taut definition\" FROM pg_catalog.\"taut object definitions\" WHERE \"taut kind\" = 'constraint' AND \"taut object\" = $1)",
    ),
    (
        "pg_get_constraintdef",
        2,
        "(SELECT \"taut definition\" FROM pg_catalog.\"taut object definitions\" WHERE \"taut kind\" = 'constraint' AND \"taut object\" = $1 AND $2 IS NOT NULL)",
    ),
    ("pg_get_expr", 2, "CASE WHEN $2 IS NOT NULL THEN $1 END"),
    (
        "pg_get_indexdef",
        1,
        "(SELECT \"taut definition\" FROM pg_catalog.\"taut object definitions\" WHERE \"taut kind\" = 'index' AND \"taut object\" = $1)",
    ),
    ("pg_get_userbyid", 1, "(SELECT rolname FROM pg_catalog.pg_roles AS \"taut roles\" WHERE \"taut roles\".oid = $1)"),
    (
        "pg_get_viewdef",
        1,
        "(SELECT \"taut definition\" FROM pg_catalog.\"taut object definitions\" WHERE \"taut kind\" = 'view' AND \"taut object\" = $1)",
    ),
    (
        "pg_get_viewdef",
        2,
        "(SELECT \"taut definition\" FROM pg_catalog.\"taut object definitions\" WHERE \"taut kind\" = 'view' AND \"taut object\" = $1 AND $2 IS NOT NULL)",
    ),
    ("pg_sleep_for", 1, "pg_sleep(CAST(extract(epoch FROM CAST($1 AS interval)) AS double precision))"),
    (
        "pg_sleep_until",
        1,
        "pg_sleep(CAST(extract(epoch FROM CAST($1 AS timestamptz)) - extract(epoch FROM clock_timestamp()) AS double precision))",
    ),
    (
        "pg_table_is_visible",
        1,
        "(SELECT bool_or(\"taut is visible\") FROM pg_catalog.\"taut object names\" WHERE \"taut object\" = $1)",
    ),
    ("shobj_description", 2, "CASE WHEN $1 IS NULL AND $2 IS NULL THEN NULL END"),
    ("quarter", 1, "CAST(extract(quarter FROM $1) AS bigint)"),
    ("regexp_extract", 2, "coalesce((regexp_match($1, '(' || $2 || ')', 'p'))[1], '')"),
    ("regexp_extract", 3, "coalesce((regexp_match($1, '(' || $2 || ')', 'p'))[1 + $3], '')"),
    ("second", 1, "CAST(trunc(extract(second FROM $1)) AS bigint)"),
    ("timeofday", 0, "to_char(clock_timestamp(), 'Dy Mon DD HH24:MI:SS.US YYYY TZ')"),
    ("to_days", 1, "interval '1 day' * $1"),
    ("to_hours", 1, "interval '1 hour' * $1"),
    ("to_microseconds", 1, "interval '1 microsecond' * $1"),
    ("to_milliseconds", 1, "interval '1 millisecond' * $1"),
    ("to_minutes", 1, "interval '1 minute' * $1"),
    ("to_months", 1, "interval '1 month' * $1"),
    ("to_quarters", 1, "interval '3 months' * $1"),
    ("to_seconds", 1, "interval '1 second' * $1"),
    ("to_weeks", 1, "interval '7 days' * $1"),
    ("to_years", 1, "interval '1 year' * $1"),
    ("week", 1, "CAST(extract(week FROM $1) AS bigint)"),
    ("weekday", 1, "CAST(extract(dow FROM $1) AS bigint)"),
    ("weekofyear", 1, "CAST(extract(week FROM $1) AS bigint)"),
    ("xor", 2, "$1 # $2"),
    ("year", 1, "CAST(extract(year FROM $1) AS bigint)"),
];

/// Units of `date_diff`, and the number of unit boundaries between the timestamps `$1` and `$2`. Weeks are counted as
/// whole periods of seven days.
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

/// Functions that [`expand`] and other rewrites replace and that are not in [`MACROS`].
const REWRITTEN: [&str; 21] = [
    "arg_max",
    "max_by",
    "arg_min",
    "min_by",
    "count_if",
    "countif",
    "string_agg",
    "make_interval",
    "date_diff",
    "datediff",
    "list_aggregate",
    "list_aggr",
    "array_aggregate",
    "array_aggr",
    "list_sort",
    "array_sort",
    "date_trunc",
    "regexp_split_to_table",
    "string_to_table",
    "to_regclass",
    "unnest",
];

/// Whether calls of a function are replaced by expressions over other functions.
pub fn is_rewritten_function(name: &str) -> bool {
    REWRITTEN.contains(&name) || MACROS.iter().any(|(known, ..)| *known == name)
}

/// Replaces a call of a macro by its expression.
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
    match name.as_str() {
        "arg_max" | "max_by" | "arg_min" | "min_by" => return extreme_row(function, name.contains("max")),
        "count_if" | "countif" => return count_if(function),
        "string_agg" => return with_separator(function),
        "make_interval" => return with_all_parts(function),
        _ => {}
    }
    if let Some(counts) = hypothetical_ranks::replaced(function, &name) {
        *expression = counts;
        return;
    }
    let Some(arguments) = plain_arguments(function) else { return };
    let (template, arguments) = match (name.as_str(), arguments.as_slice()) {
        ("date_diff" | "datediff", [unit, from, to]) => {
            (text_of(unit).and_then(|unit| DIFFERENCE_TEMPLATES.get(unit.as_str())), vec![from.clone(), to.clone()])
        }
        ("list_aggregate" | "list_aggr" | "array_aggregate" | "array_aggr", [list, aggregate, others @ ..]) => {
            let Some(aggregate) = text_of(aggregate) else { return };
            *expression = syntax::call(&format!("list_{aggregate}"), [std::slice::from_ref(list), others].concat());
            if let Expr::Function(function) = expression {
                use_datafusion_name(function);
            }
            return expand(expression);
        }
        // As in ORDER BY, nulls are last in ascending and first in descending order.
        ("list_sort" | "array_sort", [list, order]) => {
            let Some(direction) = text_of(order) else { return };
            let nulls = if direction == "desc" { "NULLS FIRST" } else { "NULLS LAST" };
            let nulls = Expr::value(Value::SingleQuotedString(nulls.to_owned()));
            *expression = syntax::call("array_sort", vec![list.clone(), order.clone(), nulls]);
            return;
        }
        // The zone is computed twice, so it must be a literal.
        ("date_trunc" | "datetrunc", [field, instant, zone @ Expr::Value(_)]) => {
            let local = syntax::call("timezone", vec![zone.clone(), instant.clone()]);
            let truncated = syntax::call("date_trunc", vec![field.clone(), local]);
            *expression = syntax::call("timezone", vec![zone.clone(), truncated]);
            return;
        }
        (name, arguments) => (TEMPLATES.get(&(name, arguments.len())), arguments.to_vec()),
    };
    if let Some(template) = template {
        *expression = Expr::Nested(Box::new(with_arguments(template, &arguments)));
    }
}

/// Returns the arguments of a call. Returns `None` if the call has a clause, such as `OVER` or `FILTER`, or if an
/// argument is named or is a `*`.
pub(super) fn plain_arguments(function: &Function) -> Option<Vec<Expr>> {
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

/// Returns a template with `$1`, `$2`, ... replaced by `arguments`. Placeholders within `arguments` are not changed.
pub(super) fn with_arguments(template: &Expr, arguments: &[Expr]) -> Expr {
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

/// Turns `count_if(x)` into `count(CASE WHEN x THEN 1 END)`.
fn count_if(function: &mut Function) {
    let FunctionArguments::List(list) = &mut function.args else { return };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(condition))] = list.args.as_mut_slice() else { return };
    let when = CaseWhen { condition: std::mem::replace(condition, syntax::null()), result: syntax::integer(1) };
    *condition = Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![when],
        else_result: None,
    };
    function.name = ObjectName::from(vec![Ident::new("count")]);
}

/// Adds the separator to `string_agg(x)`. DuckDB's default separator is a comma.
fn with_separator(function: &mut Function) {
    let FunctionArguments::List(list) = &mut function.args else { return };
    if let [FunctionArg::Unnamed(FunctionArgExpr::Expr(_))] = list.args.as_slice() {
        let comma = Expr::value(Value::SingleQuotedString(",".to_owned()));
        list.args.push(FunctionArg::Unnamed(FunctionArgExpr::Expr(comma)));
    }
}

/// Names of the arguments of `make_interval`. All are optional.
const PARTS_OF_INTERVALS: [&str; 7] = ["years", "months", "weeks", "days", "hours", "mins", "secs"];

/// Adds all arguments of `make_interval` in order. A missing argument becomes 0.
fn with_all_parts(function: &mut Function) {
    let FunctionArguments::List(list) = &mut function.args else { return };
    let mut parts = vec![syntax::integer(0); PARTS_OF_INTERVALS.len()];
    for (index, argument) in list.args.iter().enumerate() {
        let (index, value) = match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => (Some(index), value),
            FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } => {
                (PARTS_OF_INTERVALS.iter().position(|part| name.value.eq_ignore_ascii_case(part)), value)
            }
            _ => return,
        };
        // The planner reports an unknown argument.
        let Some(part) = index.and_then(|index| parts.get_mut(index)) else { return };
        *part = value.clone();
    }
    list.args = parts.into_iter().map(|part| FunctionArg::Unnamed(FunctionArgExpr::Expr(part))).collect();
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
        assert_eq!(expanded("count_if(x > 1) FILTER (WHERE y)"), "count(CASE WHEN x > 1 THEN 1 END) FILTER (WHERE y)");
        assert_eq!(expanded("string_agg(x ORDER BY y)"), "string_agg(x, ',' ORDER BY y)");
        assert_eq!(expanded("make_interval(1, days => 3)"), "make_interval(1, 0, 0, 3, 0, 0, 0)");
        assert_eq!(expanded("list_aggregate(l, 'count')"), "(cardinality(array_compact((l))))");
        assert_eq!(
            expanded("date_trunc('day', t, 'UTC')"),
            r#""timezone"('UTC', "date_trunc"('day', "timezone"('UTC', t)))"#
        );
        for other in ["year(a, b)", "div(a)", "arg_max(x)", "sum(x)", "date_diff('eon', a, b)", "s.year(d)"] {
            assert_eq!(expanded(other), other);
        }
    }
}
