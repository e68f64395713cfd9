//! Regular expression functions with PostgreSQL's syntax, flags and replacement strings.
//!
//! ```text
//!   PostgreSQL              crate `regex`
//!   a.b                     (?s)a.b, because a dot also matches a line feed
//!   \y \m \M \Y \Z          \b \b{start} \b{end} \B \z
//!   [a[b]                   [a\[b]
//! ```
//!
//! The flags are `i` and `c` for matching without and with case, `x` for patterns with spaces and comments, `q` for
//! literal text, and, in `regexp_replace`, `g` to replace all matches. These flags set how line feeds match:
//!
//! ```text
//!   s       a dot matches a line feed; ^ and $ match only at the start and the end of the text (default)
//!   n, m    a dot does not match a line feed; ^ and $ also match at line feeds
//!   p       a dot does not match a line feed
//!   w       ^ and $ also match at line feeds
//! ```
//!
//! Back references and lookaround assertions are errors.
//!
//! `regexp_matches`, `regexp_full_match` and `regexp_extract_all` are functions of DuckDB. By default, their dot does
//! not match a line feed. PostgreSQL's `regexp_matches`, which returns rows, is `taut_regexp_matches` here.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, AsArray, BooleanArray, Int64Array, ListBuilder, StringViewArray, StringViewBuilder,
};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type};
use datafusion::common::{Result, exec_err};
use regex::{Captures, Regex, RegexBuilder};

use super::definition::ArgumentType::{Integer, Text};
use super::definition::{Definition, complete_rows, result, texts};
use super::regex_syntax::translated;

/// Function that returns all matches. `taut_sql` unnests it for `regexp_matches` in `FROM` or with the flag `g`.
const ALL_MATCHES: &str = "taut_regexp_matches";

pub(super) const FUNCTIONS: [Definition; 11] = [
    Definition {
        name: "regexp_match",
        arguments: &[&[Text, Text], &[Text, Text, Text]],
        result: result::texts,
        compute: first_match,
    },
    Definition {
        name: "regexp_like",
        arguments: &[&[Text, Text], &[Text, Text, Text]],
        result: result::boolean,
        compute: |arguments| matching(arguments, "regexp_like"),
    },
    Definition {
        name: "regexp_matches",
        arguments: &[&[Text, Text], &[Text, Text, Text]],
        result: result::boolean,
        compute: |arguments| matching(arguments, "regexp_matches"),
    },
    Definition {
        name: ALL_MATCHES,
        arguments: &[&[Text, Text], &[Text, Text, Text]],
        result: |types| DataType::List(Arc::new(Field::new_list_field(result::texts(types), true))),
        compute: groups_of_matches,
    },
    Definition {
        name: "regexp_full_match",
        arguments: &[&[Text, Text], &[Text, Text, Text]],
        result: result::boolean,
        compute: |arguments| matching(arguments, "regexp_full_match"),
    },
    Definition {
        name: "regexp_extract_all",
        arguments: &[&[Text, Text], &[Text, Text, Integer], &[Text, Text, Integer, Text]],
        result: result::texts,
        compute: all_matches,
    },
    Definition {
        name: "regexp_split_to_array",
        arguments: &[&[Text, Text], &[Text, Text, Text]],
        result: result::texts,
        compute: split,
    },
    Definition {
        name: "regexp_count",
        arguments: &[&[Text, Text], &[Text, Text, Integer], &[Text, Text, Integer, Text]],
        result: result::integer,
        compute: count,
    },
    Definition {
        name: "regexp_replace",
        arguments: &[
            &[Text, Text, Text],
            &[Text, Text, Text, Text],
            &[Text, Text, Text, Integer],
            &[Text, Text, Text, Integer, Integer],
            &[Text, Text, Text, Integer, Integer, Text],
        ],
        result: result::text,
        compute: replace,
    },
    Definition {
        name: "regexp_instr",
        arguments: &[
            &[Text, Text],
            &[Text, Text, Integer],
            &[Text, Text, Integer, Integer],
            &[Text, Text, Integer, Integer, Integer],
            &[Text, Text, Integer, Integer, Integer, Text],
            &[Text, Text, Integer, Integer, Integer, Text, Integer],
        ],
        result: result::integer,
        compute: position,
    },
    Definition {
        name: "regexp_substr",
        arguments: &[
            &[Text, Text],
            &[Text, Text, Integer],
            &[Text, Text, Integer, Integer],
            &[Text, Text, Integer, Integer, Text],
            &[Text, Text, Integer, Integer, Text, Integer],
        ],
        result: result::text,
        compute: part,
    },
];

/// Functions of DuckDB, in which a dot matches a line feed only with the flag `s` or `w`.
const OF_DUCKDB: [&str; 3] = ["regexp_matches", "regexp_full_match", "regexp_extract_all"];

/// Cache of the regular expressions that one call of a function compiles.
struct Patterns {
    function: &'static str,
    /// Compiled patterns, by pattern and flags.
    compiled: HashMap<(String, String), Pattern>,
    /// Pattern and flags of the last row, with the compiled pattern. Usually all rows have the same pattern.
    last: Option<(String, String, Pattern)>,
}

/// A compiled pattern. `is_global` is the flag `g`.
#[derive(Clone)]
struct Pattern {
    regex: Regex,
    is_global: bool,
}

impl Patterns {
    fn new(function: &'static str) -> Self {
        Self { function, compiled: HashMap::new(), last: None }
    }

    /// Returns the compiled pattern. Compiles it if it is new. Returns a reference, because a clone would build its
    /// caches again.
    fn get(&mut self, pattern: &str, flags: &str) -> Result<&Pattern> {
        let is_last =
            |(last_pattern, last_flags, _): &(String, String, Pattern)| last_pattern == pattern && last_flags == flags;
        let last = match self.last.take().filter(is_last) {
            Some(last) => last,
            None => {
                let key = (pattern.to_owned(), flags.to_owned());
                let compiled = match self.compiled.get(&key) {
                    Some(compiled) => compiled.clone(),
                    None => compile(self.function, pattern, flags)?,
                };
                self.compiled.insert(key.clone(), compiled.clone());
                (key.0, key.1, compiled)
            }
        };
        Ok(&self.last.insert(last).2)
    }
}

fn compile(function: &'static str, pattern: &str, flags: &str) -> Result<Pattern> {
    let (mut is_global, mut is_literal, mut ignores_case, mut is_extended) = (false, false, false, false);
    let (mut dot_matches_line, mut has_line_anchors) = (!OF_DUCKDB.contains(&function), false);
    for flag in flags.chars() {
        match flag {
            'g' if ["regexp_replace", ALL_MATCHES].contains(&function) => is_global = true,
            'g' => return exec_err!("{function}() does not support the \"global\" option"),
            'i' => ignores_case = true,
            'c' => ignores_case = false,
            'n' | 'm' => (dot_matches_line, has_line_anchors) = (false, true),
            'p' => (dot_matches_line, has_line_anchors) = (false, false),
            'w' => (dot_matches_line, has_line_anchors) = (true, true),
            's' => (dot_matches_line, has_line_anchors) = (true, false),
            'x' => is_extended = true,
            'q' | 'l' => is_literal = true,
            'e' | 't' => {}
            _ => return exec_err!("invalid regular expression option: \"{flag}\""),
        }
    }
    let pattern = if is_literal { regex::escape(pattern) } else { translated(pattern) };
    let pattern = if function == "regexp_full_match" { format!("\\A(?:{pattern})\\z") } else { pattern };
    let regex = RegexBuilder::new(&pattern)
        .case_insensitive(ignores_case)
        .dot_matches_new_line(dot_matches_line)
        .multi_line(has_line_anchors)
        .ignore_whitespace(is_extended)
        .build();
    match regex {
        Ok(regex) => Ok(Pattern { regex, is_global }),
        Err(error) => {
            let reason = error.to_string();
            exec_err!("invalid regular expression: {}", reason.lines().last().unwrap_or_default().trim())
        }
    }
}

/// A search in one text.
struct Search<'a> {
    regex: &'a Regex,
    text: &'a str,
}

impl<'a> Search<'a> {
    /// Iterates over the matches that start at the byte offset `from` or later. Unlike in the crate `regex`, an empty
    /// match may directly follow another match.
    fn matches(&self, from: usize) -> impl Iterator<Item = Captures<'a>> {
        let mut at = Some(from);
        std::iter::from_fn(move || {
            let found = self.regex.captures_at(self.text, at?)?;
            let whole = found.get(0)?;
            at = match whole.is_empty() {
                true => self.text[whole.end()..].chars().next().map(|next| whole.end() + next.len_utf8()),
                false => Some(whole.end()),
            };
            Some(found)
        })
    }
}

/// One row of arguments without nulls.
struct RegexRow<'a> {
    arguments: &'a [ArrayRef],
    row: usize,
}

impl<'a> RegexRow<'a> {
    /// Iterates over the rows of the arguments. Returns `None` for a row with a null.
    fn all(arguments: &'a [ArrayRef]) -> impl Iterator<Item = Option<Self>> {
        complete_rows(arguments).map(move |row| row.map(|row| Self { arguments, row }))
    }

    fn text(&self, index: usize) -> &'a str {
        self.arguments.get(index).map_or("", |argument| texts(argument).value(self.row))
    }

    /// Returns the integer argument at `index`, or `default` if the call has fewer arguments. An integer below
    /// `minimum` is an error that contains `name`.
    fn integer(&self, index: usize, name: &str, minimum: i64, default: i64) -> Result<i64> {
        let number = self.arguments.get(index).map(|argument| argument.as_primitive::<Int64Type>().value(self.row));
        match number {
            Some(number) if number < minimum => {
                exec_err!("invalid value for parameter \"{name}\": {number}")
            }
            number => Ok(number.unwrap_or(default)),
        }
    }

    /// Returns the byte offset at which a search starts. The argument at `index` is its 1-based position in characters.
    /// Returns `None` if the position is beyond the end of the text.
    fn start(&self, index: usize) -> Result<Option<usize>> {
        let start = self.integer(index, "start", 1, 1)?;
        let text = self.text(0);
        let mut positions = text.char_indices().map(|(at, _)| at).chain([text.len()]);
        Ok(usize::try_from(start - 1).ok().and_then(|start| positions.nth(start)))
    }
}

fn matching(arguments: &[ArrayRef], name: &'static str) -> Result<ArrayRef> {
    let mut patterns = Patterns::new(name);
    let answers = RegexRow::all(arguments).map(|row| {
        let Some(row) = row else { return Ok(None) };
        let pattern = patterns.get(row.text(1), row.text(2))?;
        Ok(Some(pattern.regex.is_match(row.text(0))))
    });
    Ok(Arc::new(answers.collect::<Result<BooleanArray>>()?))
}

/// Returns the groups of the first match, or the whole match if the pattern has no groups.
fn first_match(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let mut patterns = Patterns::new("regexp_match");
    let mut lists = ListBuilder::new(StringViewBuilder::new());
    for row in RegexRow::all(arguments) {
        let found = match &row {
            Some(row) => patterns.get(row.text(1), row.text(2))?.regex.captures(row.text(0)),
            None => None,
        };
        match found {
            Some(groups) => lists.append_value(returned_groups(&groups)),
            None => lists.append_null(),
        }
    }
    Ok(Arc::new(lists.finish()))
}

/// Returns the groups of a match, or the whole match if the pattern has no groups.
fn returned_groups<'a>(found: &Captures<'a>) -> Vec<Option<&'a str>> {
    let skipped = usize::from(found.len() > 1);
    found.iter().skip(skipped).map(|group| group.map(|group| group.as_str())).collect()
}

/// Returns the groups of each match, without the flag `g` only those of the first.
fn groups_of_matches(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let mut patterns = Patterns::new(ALL_MATCHES);
    let mut lists = ListBuilder::new(ListBuilder::new(StringViewBuilder::new()));
    for row in RegexRow::all(arguments) {
        let Some(row) = row else {
            lists.append_null();
            continue;
        };
        let Pattern { regex, is_global } = patterns.get(row.text(1), row.text(2))?;
        let search = Search { regex, text: row.text(0) };
        for found in search.matches(0).take(if *is_global { usize::MAX } else { 1 }) {
            lists.values().append_value(returned_groups(&found));
        }
        lists.append(true);
    }
    Ok(Arc::new(lists.finish()))
}

/// Returns the first group of the first match, or the whole match if the pattern has no groups.
pub(super) fn first_parts(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let mut patterns = Patterns::new("substring");
    let parts = RegexRow::all(arguments).map(|row| {
        let Some(row) = row else { return Ok(None) };
        let found = patterns.get(row.text(1), "")?.regex.captures(row.text(0));
        Ok(found.and_then(|groups| returned_groups(&groups)[0]))
    });
    Ok(Arc::new(parts.collect::<Result<StringViewArray>>()?))
}

/// Returns one group of every match.
fn all_matches(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let mut patterns = Patterns::new("regexp_extract_all");
    let mut lists = ListBuilder::new(StringViewBuilder::new());
    for row in RegexRow::all(arguments) {
        let Some(row) = row else {
            lists.append_null();
            continue;
        };
        let group = usize::try_from(row.integer(2, "group", 0, 0)?).unwrap_or(usize::MAX);
        let Pattern { regex, .. } = patterns.get(row.text(1), row.text(3))?;
        if group >= regex.captures_len() {
            return exec_err!("Pattern has {} groups. Cannot access group {group}", regex.captures_len() - 1);
        }
        lists.append_value(regex.captures_iter(row.text(0)).map(|groups| {
            // The value of a group without a match is an empty string.
            Some(groups.get(group).map_or("", |group| group.as_str()).to_owned())
        }));
    }
    Ok(Arc::new(lists.finish()))
}

/// Splits strings at matches. Empty matches at the start or the end of a text, or directly after another match, do not
/// split.
fn split(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let mut patterns = Patterns::new("regexp_split_to_array");
    let mut lists = ListBuilder::new(StringViewBuilder::new());
    for row in RegexRow::all(arguments) {
        let Some(row) = row else {
            lists.append_null();
            continue;
        };
        let text = row.text(0);
        let Pattern { regex, .. } = patterns.get(row.text(1), row.text(2))?;
        let search = Search { regex, text };
        let (mut parts, mut end) = (Vec::new(), 0);
        for found in search.matches(0).filter_map(|groups| groups.get(0)) {
            if found.start() < text.len() && found.end() > end {
                parts.push(Some(&text[end..found.start()]));
                end = found.end();
            }
        }
        parts.push(Some(&text[end..]));
        lists.append_value(parts);
    }
    Ok(Arc::new(lists.finish()))
}

fn count(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let mut patterns = Patterns::new("regexp_count");
    let counts = RegexRow::all(arguments).map(|row| {
        let Some(row) = row else { return Ok(None) };
        let Pattern { regex, .. } = patterns.get(row.text(1), row.text(3))?;
        let search = Search { regex, text: row.text(0) };
        Ok(Some(row.start(2)?.map_or(0, |start| search.matches(start).count() as i64)))
    });
    Ok(Arc::new(counts.collect::<Result<Int64Array>>()?))
}

/// Returns the n-th match. The argument at index `start` is the position at which the search starts. The argument at
/// index `number` is n, which is 1-based. Returns `None` if there is no such match.
fn nth_match<'a>(row: &RegexRow<'a>, regex: &'a Regex, start: usize, number: usize) -> Result<Option<Captures<'a>>> {
    let number_of_match = row.integer(number, "n", 1, 1)?;
    let Some(start) = row.start(start)? else { return Ok(None) };
    let search = Search { regex, text: row.text(0) };
    let index = usize::try_from(number_of_match - 1).unwrap_or(usize::MAX);
    let found = search.matches(start).nth(index);
    Ok(found)
}

fn group_index(row: &RegexRow<'_>, index: usize) -> Result<usize> {
    Ok(usize::try_from(row.integer(index, "subexpr", 0, 0)?).unwrap_or(usize::MAX))
}

/// Returns the 1-based character position at which a match starts, or the position after its end. Returns 0 if there is
/// no match.
fn position(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let mut patterns = Patterns::new("regexp_instr");
    let positions = RegexRow::all(arguments).map(|row| {
        let Some(row) = row else { return Ok(None) };
        let is_end = match row.integer(4, "endoption", 0, 0)? {
            0 => false,
            1 => true,
            other => return exec_err!("invalid value for parameter \"endoption\": {other}"),
        };
        let pattern = patterns.get(row.text(1), row.text(5))?;
        let found = nth_match(&row, &pattern.regex, 2, 3)?;
        let found = match &found {
            Some(groups) => groups.get(group_index(&row, 6)?),
            None => None,
        };
        Ok(Some(found.map_or(0, |found| {
            let at = if is_end { found.end() } else { found.start() };
            1 + row.text(0)[..at].chars().count() as i64
        })))
    });
    Ok(Arc::new(positions.collect::<Result<Int64Array>>()?))
}

/// Returns the n-th match, or one of its groups.
fn part(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let mut patterns = Patterns::new("regexp_substr");
    let parts = RegexRow::all(arguments).map(|row| {
        let Some(row) = row else { return Ok(None) };
        let pattern = patterns.get(row.text(1), row.text(4))?;
        let found = nth_match(&row, &pattern.regex, 2, 3)?;
        let group = group_index(&row, 5)?;
        Ok(found.and_then(|groups| groups.get(group).map(|group| group.as_str().to_owned())))
    });
    Ok(Arc::new(parts.collect::<Result<StringViewArray>>()?))
}

fn replace(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let mut patterns = Patterns::new("regexp_replace");
    // The fourth argument is the flags, or the position at which the search starts.
    let has_start = arguments.get(3).is_some_and(|argument| argument.as_primitive_opt::<Int64Type>().is_some());
    let flags_index = if has_start { 5 } else { 3 };
    let replaced = RegexRow::all(arguments).map(|row| {
        let Some(row) = row else { return Ok(None) };
        let pattern = patterns.get(row.text(1), row.text(flags_index))?;
        let start = if has_start { row.start(3)? } else { Some(0) };
        // Ordinal of the match to replace, or 0 for all matches.
        let number = match arguments.len() > 4 {
            true => row.integer(4, "n", 0, 1)?,
            false => i64::from(!pattern.is_global),
        };
        Ok(Some(match start {
            Some(start) => replaced(pattern, &row, start, number),
            None => row.text(0).to_owned(),
        }))
    });
    Ok(Arc::new(replaced.collect::<Result<StringViewArray>>()?))
}

fn replaced(pattern: &Pattern, row: &RegexRow<'_>, start: usize, number: i64) -> String {
    let text = row.text(0);
    let (mut replaced, mut end) = (String::with_capacity(text.len()), 0);
    for (index, groups) in (1..).zip(Search { regex: &pattern.regex, text }.matches(start)) {
        if number != 0 && index != number {
            continue;
        }
        let Some(whole) = groups.get(0) else { break };
        replaced.push_str(&text[end..whole.start()]);
        append_replacement(&mut replaced, row.text(2), &groups);
        end = whole.end();
        if index == number {
            break;
        }
    }
    replaced + &text[end..]
}

/// Appends a replacement, in which `\1` to `\9` stand for groups, `\&` for the whole match, and `\\` for a backslash.
fn append_replacement(replaced: &mut String, replacement: &str, groups: &Captures<'_>) {
    let mut rest = replacement;
    while let Some((before, escape)) = rest.split_once('\\') {
        replaced.push_str(before);
        let group = |index: usize| groups.get(index).map_or("", |group| group.as_str());
        let (part, length) = match escape.as_bytes().first() {
            Some(digit @ b'1'..=b'9') => (group(usize::from(digit - b'0')), 1),
            Some(b'&') => (group(0), 1),
            Some(b'\\') => ("\\", 1),
            _ => ("\\", 0),
        };
        replaced.push_str(part);
        rest = &escape[length..];
    }
    replaced.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(texts: &[&str]) -> Vec<ArrayRef> {
        texts.iter().map(|text| Arc::new(StringViewArray::from(vec![*text])) as ArrayRef).collect()
    }

    fn replacement(arguments: &[&str]) -> String {
        replace(&array(arguments)).unwrap().as_string_view().value(0).to_owned()
    }

    #[test]
    fn replacements_are_those_of_postgresql() {
        assert_eq!(replacement(&["abcabc", "(b)", "[\\1]", "g"]), "a[b]ca[b]c");
        assert_eq!(replacement(&["abcabc", "b", "<\\&>$1\\\\"]), "a<b>$1\\cabc");
        assert_eq!(replacement(&["foobar", "o*", "x", "g"]), "xfxxbxaxrx");
        assert_eq!(replacement(&["a\nb", "a.b", "x"]), "x");
        assert_eq!(replacement(&["a\nb", "a.b", "x", "n"]), "a\nb");
        assert_eq!(replacement(&["a.b", ".", "x", "q"]), "axb");
    }

    #[test]
    fn unknown_flags_and_patterns_are_errors() {
        for arguments in [["a", "(", "x", ""], ["a", "a", "x", "z"], ["a", "(?=a)", "x", ""]] {
            assert!(replace(&array(&arguments)).is_err(), "{arguments:?}");
        }
        assert!(first_match(&array(&["a", "a", "g"])).is_err());
    }
}
