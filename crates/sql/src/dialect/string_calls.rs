//! Parsers of `substring` and `trim`, with the parts of PostgreSQL's grammar that the parser does not support.
//!
//! ```text
//!   substring(x SIMILAR p ESCAPE e)     parsed like substring(x FROM p FOR e)
//!   substring(x FOR n FROM m)           parsed like substring(x FROM m FOR n)
//!   trim(TRAILING FROM x)               parsed like trim(TRAILING x)
//!   trim(LEADING x, y)                  parsed like trim(LEADING y FROM x)
//! ```

use datafusion_sql::sqlparser::ast::Expr;
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::parser::{Parser, ParserError};
use datafusion_sql::sqlparser::tokenizer::Token;

/// Parses a call of `substring`, `substr` or `trim`. Returns `None` if another expression follows.
pub fn parse(parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
    let Token::Word(word) = &parser.peek_token_ref().token else { return None };
    let function = word.keyword;
    let is_known = matches!(function, Keyword::SUBSTRING | Keyword::SUBSTR | Keyword::TRIM);
    if !is_known || parser.peek_nth_token_ref(1).token != Token::LParen {
        return None;
    }
    parser.advance_token();
    parser.advance_token();
    Some(match function {
        Keyword::TRIM => parse_trim(parser),
        _ => parse_substring(parser, function == Keyword::SUBSTR),
    })
}

/// Whether the next words are `SIMILAR` without `TO`, which ends the first argument of `substring`.
pub fn is_separator(parser: &Parser<'_>) -> bool {
    let is = |index: usize, keyword: Keyword| matches!(&parser.peek_nth_token_ref(index).token, Token::Word(word) if word.keyword == keyword);
    is(0, Keyword::SIMILAR) && !is(1, Keyword::TO)
}

fn parse_substring(parser: &mut Parser<'_>, shorthand: bool) -> Result<Expr, ParserError> {
    let expr = Box::new(parser.parse_expr()?);
    let (mut from, mut length) = (None, None);
    let special = parser.consume_token(&Token::Comma);
    if special {
        from = Some(parser.parse_expr()?);
        if parser.consume_token(&Token::Comma) {
            length = Some(parser.parse_expr()?);
        }
    } else if parser.parse_keyword(Keyword::SIMILAR) {
        from = Some(parser.parse_expr()?);
        parser.expect_keyword_is(Keyword::ESCAPE)?;
        length = Some(parser.parse_expr()?);
    } else if parser.parse_keyword(Keyword::FROM) {
        from = Some(parser.parse_expr()?);
        if parser.parse_keyword(Keyword::FOR) {
            length = Some(parser.parse_expr()?);
        }
    } else if parser.parse_keyword(Keyword::FOR) {
        length = Some(parser.parse_expr()?);
        if parser.parse_keyword(Keyword::FROM) {
            from = Some(parser.parse_expr()?);
        }
    }
    parser.expect_token(&Token::RParen)?;
    let (substring_from, substring_for) = (from.map(Box::new), length.map(Box::new));
    Ok(Expr::Substring { expr, substring_from, substring_for, special, shorthand })
}

fn parse_trim(parser: &mut Parser<'_>) -> Result<Expr, ParserError> {
    let is_side = matches!(
        &parser.peek_token_ref().token,
        Token::Word(word) if matches!(word.keyword, Keyword::BOTH | Keyword::LEADING | Keyword::TRAILING)
    );
    let trim_where = if is_side { Some(parser.parse_trim_where()?) } else { None };
    let has_from = parser.parse_keyword(Keyword::FROM);
    let mut expr = parser.parse_expr()?;
    let (mut trim_what, mut trim_characters) = (None, None);
    if !has_from && parser.parse_keyword(Keyword::FROM) {
        trim_what = Some(Box::new(std::mem::replace(&mut expr, parser.parse_expr()?)));
    } else if parser.consume_token(&Token::Comma) {
        let characters = parser.parse_expr()?;
        match has_from || trim_where.is_some() {
            true => trim_what = Some(Box::new(characters)),
            false => trim_characters = Some(vec![characters]),
        }
    }
    parser.expect_token(&Token::RParen)?;
    Ok(Expr::Trim { expr: Box::new(expr), trim_where, trim_what, trim_characters })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::super::parse_expression;

    #[test]
    fn calls_are_those_of_postgresql() {
        for (sql, expected) in [
            ("substring(a SIMILAR b || 'x' ESCAPE '#')", "SUBSTRING(a FROM b || 'x' FOR '#')"),
            ("substring(a FOR 2 FROM 1)", "SUBSTRING(a FROM 1 FOR 2)"),
            ("substring(a FROM 2)", "SUBSTRING(a FROM 2)"),
            ("substring(a FOR 2)", "SUBSTRING(a FOR 2)"),
            ("substr(a SIMILAR TO b, 1)", "SUBSTR(a SIMILAR TO b, 1)"),
            ("substring(a, 2, 3)", "SUBSTRING(a, 2, 3)"),
            ("substring", "substring"),
            ("trim(TRAILING FROM a)", "TRIM(TRAILING a)"),
            ("trim(BOTH a)", "TRIM(BOTH a)"),
            ("trim(FROM a)", "TRIM(a)"),
            ("trim(LEADING a, 'x')", "TRIM(LEADING 'x' FROM a)"),
            ("trim(BOTH FROM a, 'x')", "TRIM(BOTH 'x' FROM a)"),
            ("trim('x' FROM a)", "TRIM('x' FROM a)"),
            ("trim(a, 'x')", "TRIM(a, 'x')"),
        ] {
            assert_eq!(parse_expression(sql).unwrap().to_string(), expected);
        }
        for sql in ["substring(a SIMILAR b)", "trim(BOTH 'x' FROM a, 'y')", "trim()"] {
            assert!(parse_expression(sql).is_err(), "{sql}");
        }
    }
}
