//! `x IN ((SELECT 1), (SELECT 2))`: a list whose first item is a subquery. The parser reads `IN ((SELECT 1` as the
//! start of a query, and rejects the comma.

use datafusion_sql::sqlparser::ast::Expr;
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::parser::{Parser, ParserError};
use datafusion_sql::sqlparser::tokenizer::Token;

/// Parses `[NOT] IN` and a list, if the first item is in parentheses and another item follows. Returns `None` if the
/// next tokens are something else.
pub(super) fn parse(parser: &mut Parser<'_>, left: &Expr) -> Option<Result<Expr, ParserError>> {
    let is_keyword = |index: usize, keyword: Keyword| matches!(&parser.peek_nth_token_ref(index).token, Token::Word(word) if word.keyword == keyword);
    let negated = is_keyword(0, Keyword::NOT);
    let keyword = usize::from(negated);
    let opens = |index: usize| parser.peek_nth_token_ref(index).token == Token::LParen;
    if !is_keyword(keyword, Keyword::IN) || !opens(keyword + 1) || !opens(keyword + 2) || !is_list(parser) {
        return None;
    }
    for _ in 0..keyword + 2 {
        parser.next_token();
    }
    let list = parser.parse_comma_separated(Parser::parse_expr);
    Some(list.and_then(|list| {
        parser.expect_token(&Token::RParen)?;
        Ok(Expr::InList { expr: Box::new(left.clone()), list, negated })
    }))
}

/// Whether a comma follows the item that the second of the next parentheses opens. Walks over the tokens once, as long
/// subqueries have many.
fn is_list(parser: &Parser<'_>) -> bool {
    let mut depth = 0_usize;
    for index in parser.index().. {
        match parser.token_at(index).token {
            Token::LParen => depth += 1,
            Token::RParen if depth == 2 => {
                let is_space = |index: &usize| matches!(parser.token_at(*index).token, Token::Whitespace(_));
                let next = (index + 1..).find(|index| !is_space(index));
                return next.is_some_and(|next| parser.token_at(next).token == Token::Comma);
            }
            Token::RParen => depth = depth.saturating_sub(1),
            Token::EOF => return false,
            _ => {}
        }
    }
    false
}
