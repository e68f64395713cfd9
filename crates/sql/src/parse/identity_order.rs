//! Sorts the options of an identity column, such as `GENERATED ... AS IDENTITY (START 5 INCREMENT 2)`, into the only
//! order that the parser accepts.

use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::dialect::Grammar;

/// First words of the options, in the order that the parser requires.
const ORDER: [&str; 6] = ["increment", "minvalue", "maxvalue", "start", "cache", "cycle"];

/// Sorts the options of identity columns into the order of [`ORDER`] and returns the rewritten tokens. `tokens` is the
/// result of an earlier rewrite of `sql`, if any. Returns `tokens` if the text does not contain `identity`.
pub(super) fn order_identity_options(sql: &str, tokens: Option<Vec<TokenWithSpan>>) -> Option<Vec<TokenWithSpan>> {
    let word = b"identity";
    if !sql.as_bytes().windows(word.len()).any(|window| window.eq_ignore_ascii_case(word)) {
        return tokens;
    }
    // The parser reports a better error for invalid tokens.
    let mut tokens = tokens.or_else(|| Tokenizer::new(&Grammar, sql).tokenize_with_location().ok())?;
    tokens.retain(|token| !matches!(token.token, Token::Whitespace(_)));
    let mut start = 0;
    while let Some(found) = tokens[start..].windows(4).position(is_list) {
        let first = start + found + 4;
        let length = tokens[first..].iter().position(|token| token.token == Token::RParen).unwrap_or(0);
        if let Some(ordered) = in_order(&tokens[first..first + length]) {
            tokens[first..first + length].clone_from_slice(&ordered);
        }
        start = first;
    }
    Some(tokens)
}

/// Whether tokens are `ALWAYS AS IDENTITY (` or `DEFAULT AS IDENTITY (`.
fn is_list(tokens: &[TokenWithSpan]) -> bool {
    (is_word(&tokens[0], "always") || is_word(&tokens[0], "default"))
        && is_word(&tokens[1], "as")
        && is_word(&tokens[2], "identity")
        && tokens[3].token == Token::LParen
}

/// Sorts the tokens of options into the order of [`ORDER`]. Returns `None` if the first option is unknown.
fn in_order(tokens: &[TokenWithSpan]) -> Option<Vec<TokenWithSpan>> {
    let mut options: Vec<(usize, Vec<TokenWithSpan>)> = Vec::new();
    for token in tokens {
        let rank = ORDER.iter().position(|option| is_word(token, option));
        let follows_no = matches!(options.last(), Some((_, option)) if option.len() == 1 && is_word(&option[0], "no"));
        match (rank, options.last_mut()) {
            (Some(rank), Some((last, option))) if follows_no => {
                *last = rank;
                option.push(token.clone());
            }
            (Some(rank), _) => options.push((rank, vec![token.clone()])),
            (None, _) if is_word(token, "no") => options.push((ORDER.len(), vec![token.clone()])),
            (None, Some((_, option))) => option.push(token.clone()),
            (None, None) => return None,
        }
    }
    options.sort_by_key(|(rank, _)| *rank);
    Some(options.into_iter().flat_map(|(_, option)| option).collect())
}

fn is_word(token: &TokenWithSpan, expected: &str) -> bool {
    matches!(
        &token.token,
        Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(expected)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(sql: &str) -> Option<String> {
        let tokens = order_identity_options(sql, None)?;
        Some(tokens.iter().map(|token| token.token.to_string()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn options_get_the_order_of_the_parser() {
        let sql = "create table t (a int generated always as identity (no cycle start with -5 cache 1 no minvalue \
                   increment by -2), \"identity\" int)";
        let expected = "create table t ( a int generated always as identity ( increment by - 2 no minvalue start with \
                        - 5 cache 1 no cycle ) , \"identity\" int )";
        assert_eq!(ordered(sql).unwrap(), expected);
        assert_eq!(ordered("select 1"), None);
        for unknown in ["identity (cycle, start)", "always as identity (", "identity", "default as identity ()"] {
            assert_eq!(ordered(unknown).unwrap().replace(' ', ""), unknown.replace(' ', ""));
        }
        assert!(ordered("default as identity (start 1").is_some());
    }
}
