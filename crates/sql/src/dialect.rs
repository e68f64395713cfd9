//! The SQL dialect of statements and expressions.

mod in_lists;
mod string_calls;

use std::any::TypeId;

use datafusion_sql::sqlparser::ast::{BinaryOperator, Expr};
use datafusion_sql::sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::parser::{Parser, ParserError};
use datafusion_sql::sqlparser::tokenizer::Token;

use crate::error::SqlError;

/// PostgreSQL's dialect with syntax of DuckDB: `FROM` before `SELECT`, `* EXCLUDE`, `* REPLACE`, `ORDER BY ALL`, `//`,
/// and a comma after the last item of a list.
///
/// The name of a named argument must be an identifier: `f(x => 1)` is accepted, `f('x' : 1)` is not.
///
/// If any expression were accepted as a name, the parser would read each argument of a function twice: as a name and as
/// a value. The time for `abs(abs(abs(...)))` would double with each level.
#[derive(Debug)]
pub(crate) struct Grammar;

/// Methods that return what PostgreSQL's dialect returns, where it differs from the default.
macro_rules! as_postgresql {
    ($($method:ident),* $(,)?) => {
        $(fn $method(&self) -> bool {
            PostgreSqlDialect {}.$method()
        })*
    };
}

impl Dialect for Grammar {
    fn dialect(&self) -> TypeId {
        PostgreSqlDialect {}.dialect()
    }

    fn supports_named_fn_args_with_expr_name(&self) -> bool {
        false
    }

    /// `f(x := 1)`, PostgreSQL's older form of `f(x => 1)`.
    fn supports_named_fn_args_with_assignment_operator(&self) -> bool {
        true
    }

    fn supports_from_first_select(&self) -> bool {
        true
    }

    fn supports_select_wildcard_exclude(&self) -> bool {
        true
    }

    fn supports_select_wildcard_replace(&self) -> bool {
        true
    }

    fn supports_order_by_all(&self) -> bool {
        true
    }

    fn supports_projection_trailing_commas(&self) -> bool {
        true
    }

    fn supports_from_trailing_commas(&self) -> bool {
        true
    }

    fn supports_column_definition_trailing_commas(&self) -> bool {
        true
    }

    /// Excludes `ON`, which is not an alias in `INSERT INTO t SELECT a ON CONFLICT DO NOTHING`.
    fn is_column_alias(&self, keyword: &Keyword, parser: &mut Parser<'_>) -> bool {
        *keyword != Keyword::ON && PostgreSqlDialect {}.is_column_alias(keyword, parser)
    }

    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        PostgreSqlDialect {}.identifier_quote_style(identifier)
    }

    fn is_delimited_identifier_start(&self, first: char) -> bool {
        PostgreSqlDialect {}.is_delimited_identifier_start(first)
    }

    fn is_identifier_start(&self, first: char) -> bool {
        PostgreSqlDialect {}.is_identifier_start(first)
    }

    fn is_identifier_part(&self, part: char) -> bool {
        PostgreSqlDialect {}.is_identifier_part(part)
    }

    fn is_custom_operator_part(&self, part: char) -> bool {
        PostgreSqlDialect {}.is_custom_operator_part(part)
    }

    fn is_reserved_for_identifier(&self, keyword: Keyword) -> bool {
        PostgreSqlDialect {}.is_reserved_for_identifier(keyword)
    }

    fn parse_prefix(&self, parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
        string_calls::parse(parser)
    }

    fn get_next_precedence(&self, parser: &Parser<'_>) -> Option<Result<u8, ParserError>> {
        match string_calls::is_separator(parser) {
            true => Some(Ok(self.prec_unknown())),
            false => PostgreSqlDialect {}.get_next_precedence(parser),
        }
    }

    /// Parses DuckDB's `a // b` as `a / b`, which divides integers without a remainder, and lists of subqueries.
    fn parse_infix(&self, parser: &mut Parser<'_>, left: &Expr, precedence: u8) -> Option<Result<Expr, ParserError>> {
        if let Some(list) = in_lists::parse(parser, left) {
            return Some(list);
        }
        let [first, second] = parser.peek_tokens_with_location();
        let is_operator = first.token == Token::Div && second.token == Token::Div;
        if !is_operator || first.span.end != second.span.start {
            return PostgreSqlDialect {}.parse_infix(parser, left, precedence);
        }
        parser.advance_token();
        parser.advance_token();
        Some(parser.parse_subexpr(precedence).map(|right| Expr::BinaryOp {
            left: Box::new(left.clone()),
            op: BinaryOperator::Divide,
            right: Box::new(right),
        }))
    }

    fn prec_value(&self, precedence: Precedence) -> u8 {
        PostgreSqlDialect {}.prec_value(precedence)
    }

    as_postgresql!(
        supports_unicode_string_literal,
        supports_filter_during_aggregation,
        supports_group_by_expr,
        allow_extract_custom,
        allow_extract_single_quotes,
        supports_create_index_with_clause,
        supports_explain_with_utility_options,
        supports_listen_notify,
        supports_factorial_operator,
        supports_bitwise_shift_operators,
        supports_comment_on,
        supports_load_extension,
        supports_named_fn_args_with_colon_operator,
        supports_empty_projections,
        supports_nested_comments,
        supports_string_escape_constant,
        supports_numeric_literal_underscores,
        supports_array_typedef_with_brackets,
        supports_geometric_types,
        supports_set_names,
        supports_alter_column_type_using,
        supports_notnull_operator,
        supports_interval_options,
        supports_insert_table_alias,
        supports_create_table_like_parenthesized,
        supports_select_wildcard_with_alias,
        supports_comma_separated_trim,
        supports_xml_expressions,
        supports_comment_optimizer_hint,
    );
}

/// Parses an expression, such as a default or the condition of a check. Ignores text after the expression.
///
/// # Errors
/// If the text does not begin with an expression.
pub fn parse_expression(sql: &str) -> Result<Expr, SqlError> {
    Ok(Parser::new(&Grammar).try_with_sql(sql)?.parse_expr()?)
}
