//! Builds and recognizes nodes of syntax trees. Names in built nodes are quoted, which preserves their case.

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion_sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments,
    GroupByExpr, Ident, Join, JoinOperator, ObjectName, ObjectNamePart, Query, Select, SelectFlavor, SelectItem,
    SetExpr, TableAlias, TableAliasColumnDef, TableFactor, TableFunctionArgs, TableWithJoins, Value, Visit, Visitor,
    WildcardAdditionalOptions,
};

use crate::identifiers::normalize;

/// An identifier in double quotes.
pub fn quoted(name: &str) -> Ident {
    Ident::with_quote('"', name)
}

/// A column qualified with the name of its relation.
pub fn column(relation: &str, name: &str) -> Expr {
    Expr::CompoundIdentifier(vec![quoted(relation), quoted(name)])
}

/// A call of a function.
pub fn call(function: &str, arguments: Vec<Expr>) -> Expr {
    let args = arguments.into_iter().map(|value| FunctionArg::Unnamed(FunctionArgExpr::Expr(value))).collect();
    Expr::Function(Function {
        name: ObjectName(vec![ObjectNamePart::Identifier(quoted(function))]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList { duplicate_treatment: None, args, clauses: Vec::new() }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// An integer literal.
pub fn integer(number: u8) -> Expr {
    Expr::value(Value::Number(number.to_string(), false))
}

/// The literal `NULL`.
pub fn null() -> Expr {
    Expr::value(Value::Null)
}

/// The literal `FALSE`.
pub fn false_literal() -> Expr {
    Expr::value(Value::Boolean(false))
}

pub fn is_null(expression: Expr) -> Expr {
    Expr::IsNull(Box::new(expression))
}

pub fn is_not_null(expression: Expr) -> Expr {
    Expr::IsNotNull(Box::new(expression))
}

pub fn equal(left: Expr, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op: BinaryOperator::Eq, right: Box::new(right) }
}

/// The conjunction of the conditions. `None` if there are no conditions.
pub fn all_of(conditions: impl IntoIterator<Item = Expr>) -> Option<Expr> {
    combine(conditions, &BinaryOperator::And)
}

/// The disjunction of the conditions. `None` if there are no conditions.
pub fn any_of(conditions: impl IntoIterator<Item = Expr>) -> Option<Expr> {
    combine(conditions, &BinaryOperator::Or)
}

fn combine(conditions: impl IntoIterator<Item = Expr>, op: &BinaryOperator) -> Option<Expr> {
    let combine_two = |left, right| Expr::BinaryOp { left: Box::new(left), op: op.clone(), right: Box::new(right) };
    conditions.into_iter().reduce(combine_two)
}

/// Wraps an expression in parentheses if it needs them as an operand of another expression.
pub fn parenthesized(expression: Expr) -> Expr {
    match expression {
        Expr::BinaryOp { .. } | Expr::UnaryOp { .. } | Expr::Between { .. } | Expr::InList { .. } => {
            Expr::Nested(Box::new(expression))
        }
        other => other,
    }
}

/// `CASE WHEN condition THEN value ... ELSE otherwise END`. Returns `otherwise` if there are no branches.
pub fn case(branches: Vec<(Expr, Expr)>, otherwise: Expr) -> Expr {
    if branches.is_empty() {
        return otherwise;
    }
    Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: branches.into_iter().map(|(condition, result)| CaseWhen { condition, result }).collect(),
        else_result: Some(Box::new(otherwise)),
    }
}

/// An output column with an alias.
pub fn aliased(expr: Expr, name: &str) -> SelectItem {
    SelectItem::ExprWithAlias { expr, alias: quoted(name) }
}

/// An alias of a relation. `columns` renames its columns unless it is empty.
pub fn alias_of(name: &str, columns: &[&str]) -> TableAlias {
    let columns = columns.iter().map(|column| TableAliasColumnDef { name: quoted(column), data_type: None });
    TableAlias { explicit: true, name: quoted(name), columns: columns.collect(), at: None }
}

/// A table of the catalog with an alias.
pub fn table(name: &str, alias: &str) -> TableFactor {
    let name = ObjectName(vec![ObjectNamePart::Identifier(quoted(name))]);
    table_factor(name, None, false, Some(alias_of(alias, &[])))
}

/// A table in `FROM`, or a call of a table function if it has arguments.
pub fn table_factor(
    name: ObjectName,
    args: Option<TableFunctionArgs>,
    with_ordinality: bool,
    alias: Option<TableAlias>,
) -> TableFactor {
    TableFactor::Table {
        name,
        alias,
        args,
        with_hints: Vec::new(),
        version: None,
        with_ordinality,
        partitions: Vec::new(),
        json_path: None,
        sample: None,
        index_hints: Vec::new(),
    }
}

/// A subquery in `FROM`. `columns` renames its columns unless it is empty.
pub fn derived_table(subquery: Box<Query>, alias: &str, columns: &[&str]) -> TableFactor {
    TableFactor::Derived { lateral: false, subquery, alias: Some(alias_of(alias, columns)), sample: None }
}

/// An item of a `FROM` clause: a relation without joins.
pub fn without_joins(relation: TableFactor) -> TableWithJoins {
    TableWithJoins { relation, joins: Vec::new() }
}

/// An item of a `FROM` clause: a relation joined with another.
pub fn with_join(relation: TableFactor, join_operator: JoinOperator, other: TableFactor) -> TableWithJoins {
    TableWithJoins { relation, joins: vec![Join { relation: other, global: false, join_operator }] }
}

/// `SELECT projection FROM from WHERE selection`.
pub fn select(projection: Vec<SelectItem>, from: Vec<TableWithJoins>, selection: Option<Expr>) -> Box<Query> {
    query(SetExpr::Select(Box::new(Select {
        select_token: AttachedToken::empty(),
        optimizer_hints: Vec::new(),
        distinct: None,
        select_modifiers: None,
        top: None,
        top_before_distinct: false,
        projection,
        exclude: None,
        into: None,
        from,
        lateral_views: Vec::new(),
        prewhere: None,
        selection,
        connect_by: Vec::new(),
        group_by: GroupByExpr::Expressions(Vec::new(), Vec::new()),
        cluster_by: Vec::new(),
        distribute_by: Vec::new(),
        sort_by: Vec::new(),
        having: None,
        named_window: Vec::new(),
        qualify: None,
        window_before_qualify: false,
        value_table_mode: None,
        flavor: SelectFlavor::Standard,
    })))
}

fn query(body: SetExpr) -> Box<Query> {
    Box::new(Query {
        with: None,
        body: Box::new(body),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: Vec::new(),
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: Vec::new(),
    })
}

/// Whether an expression is the keyword `DEFAULT`.
pub fn is_default(expression: &Expr) -> bool {
    let Expr::Identifier(name) = expression else { return false };
    name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default")
}

/// Name that qualifies the columns of a relation. Returns `None` if a relation has no name.
pub fn relation_name(factor: &TableFactor) -> Option<String> {
    match factor {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::TableFunction { alias: Some(alias), .. }
        | TableFactor::Function { alias: Some(alias), .. }
        | TableFactor::UNNEST { alias: Some(alias), .. }
        | TableFactor::NestedJoin { alias: Some(alias), .. } => Some(normalize(&alias.name)),
        TableFactor::Table { name, .. } => name.0.last()?.as_ident().map(normalize),
        _ => None,
    }
}

/// The options of a wildcard, such as `EXCLUDE (a)` in `t.* EXCLUDE (a)`. Returns `None` for other items.
pub fn wildcard_options(item: &mut SelectItem) -> Option<&mut WildcardAdditionalOptions> {
    match item {
        SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) => Some(options),
        _ => None,
    }
}

/// Whether an expression contains a query.
pub fn has_query(expression: &Expr) -> bool {
    struct QueryFinder;
    impl Visitor for QueryFinder {
        type Break = ();

        fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
            ControlFlow::Break(())
        }
    }
    expression.visit(&mut QueryFinder).is_break()
}
