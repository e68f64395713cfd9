//! `WHEN ... THEN DO NOTHING` in `MERGE`, which the parser does not accept.

use datafusion_sql::sqlparser::ast::{Assignment, AssignmentTarget, MergeAction, ObjectName};
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::dialect::Grammar;

/// Marker column: a clause that writes to it is a `DO NOTHING`.
const NOTHING: &str = "taut nothing";

/// Replaces `DO NOTHING` in clauses of `MERGE` with a write to the column [`NOTHING`], and returns the tokens of the
/// new statement. Returns `None` if it has no such clause.
pub fn replace_do_nothing(sql: &str) -> Option<Vec<TokenWithSpan>> {
    let contains =
        |word: &str| sql.as_bytes().windows(word.len()).any(|window| window.eq_ignore_ascii_case(word.as_bytes()));
    if !contains("matched") || !contains("nothing") {
        return None;
    }
    // The parser reports a better error for invalid tokens.
    let tokens = Tokenizer::new(&Grammar, sql).tokenize_with_location().ok()?;
    let mut words = tokens.into_iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).peekable();
    let mut is_replaced = false;
    let mut output: Vec<TokenWithSpan> = Vec::new();
    while let Some(token) = words.next() {
        let is_then = output.last().is_some_and(|last| is_word(last, Keyword::THEN));
        let is_do_nothing =
            is_then && is_word(&token, Keyword::DO) && words.next_if(|next| is_word(next, Keyword::NOTHING)).is_some();
        match is_do_nothing.then(|| replacement(&output)).flatten() {
            Some(replacement) => {
                is_replaced = true;
                let span = token.span;
                output.extend(replacement.into_iter().map(|token| TokenWithSpan { token, span }));
            }
            None => output.push(token),
        }
    }
    is_replaced.then_some(output)
}

/// Whether an action is the replacement of `DO NOTHING`.
pub(super) fn is_do_nothing(action: &MergeAction) -> bool {
    let is_nothing_column = |name: &ObjectName| match name.0.as_slice() {
        [part] => part.as_ident().is_some_and(|part| part.value == NOTHING),
        _ => false,
    };
    match action {
        MergeAction::Insert(insert) => matches!(insert.columns.as_slice(), [name] if is_nothing_column(name)),
        MergeAction::Update(update) => matches!(
            update.assignments.as_slice(),
            [Assignment { target: AssignmentTarget::ColumnName(name), .. }] if is_nothing_column(name)
        ),
        MergeAction::Delete { .. } => false,
    }
}

/// Returns the replacement of `DO NOTHING` for the clause at the end of `tokens`. A clause for source rows without a
/// match can only insert; the others update.
fn replacement(tokens: &[TokenWithSpan]) -> Option<Vec<Token>> {
    // A CASE in the condition has other words after WHEN.
    let is_clause = |words: &[TokenWithSpan]| match is_word(&words[1], Keyword::NOT) {
        true => is_word(&words[0], Keyword::WHEN) && is_word(&words[2], Keyword::MATCHED),
        false => is_word(&words[0], Keyword::WHEN) && is_word(&words[1], Keyword::MATCHED),
    };
    let clause = tokens.windows(3).rposition(is_clause)?;
    let next_is = |index: usize, keyword| tokens.get(clause + index).is_some_and(|token| is_word(token, keyword));
    let is_not = next_is(1, Keyword::NOT);
    let is_by_source = next_is(3, Keyword::BY) && next_is(4, Keyword::SOURCE);
    let text = match is_not && !is_by_source {
        true => format!("INSERT (\"{NOTHING}\") VALUES (NULL)"),
        false => format!("UPDATE SET \"{NOTHING}\" = NULL"),
    };
    Tokenizer::new(&Grammar, &text).tokenize().ok()
}

fn is_word(token: &TokenWithSpan, keyword: Keyword) -> bool {
    matches!(&token.token, Token::Word(word) if word.keyword == keyword)
}
