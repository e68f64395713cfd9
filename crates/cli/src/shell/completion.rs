//! Completion of SQL keywords, tables, columns and commands.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use reedline::{Completer, CompletionResult, Span, Suggestion};
use taut::reference::{STATEMENT_OPTIONS, Setting, TableDesign};
use taut::{PUBLIC_SCHEMA, Session, TEMPORARY_SCHEMA, relation_name, relation_sql};

use super::commands::COMMANDS;
use crate::system_tables::{Records, identifier};

/// Names of tables and views with their columns, as of the last refresh.
#[derive(Clone, Default)]
pub struct Names {
    shared: Arc<Mutex<BTreeMap<String, Vec<String>>>>,
}

impl Names {
    /// Reads the names of tables and columns from the database. Keeps the old names if that fails.
    pub fn refresh(&self, session: &Session) {
        const COLUMNS: &str = "select table_schema, table_name, column_name from information_schema.columns \
                               where table_schema <> 'information_schema' order by ordinal_position";
        let Ok(records) = Records::query(session, COLUMNS) else { return };
        let mut tables: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let is_temporary = |row: &usize| records.text(*row, "table_schema") == TEMPORARY_SCHEMA;
        let temporary: BTreeSet<String> =
            (0..records.rows.len()).filter(is_temporary).map(|row| records.text(row, "table_name")).collect();
        for row in 0..records.rows.len() {
            let (mut schema, table) = (records.text(row, "table_schema"), records.text(row, "table_name"));
            match temporary.contains(&table) {
                // A temporary relation needs no schema, and hides the relation of the same name in `public`.
                true if is_temporary(&row) => PUBLIC_SCHEMA.clone_into(&mut schema),
                true if schema == PUBLIC_SCHEMA => continue,
                _ => {}
            }
            let name = relation_sql(&relation_name(&schema, &table));
            tables.entry(name).or_default().push(identifier(&records.text(row, "column_name")));
        }
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = tables;
    }

    fn tables(&self) -> BTreeMap<String, Vec<String>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Completer of the word before the cursor.
pub struct SqlCompleter {
    names: Names,
}

impl SqlCompleter {
    /// Creates a completer for these names.
    pub fn new(names: Names) -> Self {
        Self { names }
    }
}

impl Completer for SqlCompleter {
    fn complete(&mut self, line: &str, cursor: usize) -> CompletionResult {
        let before = line.get(..cursor).unwrap_or(line);
        let start = before
            .rfind(|c: char| !(c.is_alphanumeric() || "_.\"\\".contains(c)))
            .map_or(0, |space| space + before[space..].chars().next().map_or(1, char::len_utf8));
        let suggestion = |(value, description): (String, &'static str)| Suggestion {
            value,
            description: Some(description.to_owned()),
            span: Span::new(start, cursor.max(start)),
            append_whitespace: true,
            ..Suggestion::default()
        };
        let found = candidates(&before[start..], line, &before[..start], &self.names.tables());
        CompletionResult::fresh(found.into_iter().map(suggestion).collect::<Vec<_>>())
    }
}

/// Completions of a word. At the start of a line, a word that begins with a dot or backslash is completed to a command.
/// After a table and a dot, it is completed to columns of that table. Otherwise the completions are columns of the
/// tables that the line names, tables, SQL keywords, table options and settings, in this order.
fn candidates(
    word: &str,
    line: &str,
    before: &str,
    tables: &BTreeMap<String, Vec<String>>,
) -> Vec<(String, &'static str)> {
    let is_first = before.trim().is_empty();
    if is_first && word.starts_with(['.', '\\']) {
        let commands = COMMANDS.iter().map(|command| command.name);
        return commands.filter(|name| name.starts_with(word)).map(|name| (name.to_owned(), "command")).collect();
    }
    if word.is_empty() {
        return Vec::new();
    }
    // After `table.` or `alias.`, complete the columns of that table.
    if let Some((qualifier, part)) = word.rsplit_once('.')
        && let Some(columns) = tables.get(&table_of(qualifier, line, tables))
    {
        let columns = columns.iter().filter(|name| starts_with(name, part));
        return columns.map(|name| (format!("{qualifier}.{name}"), "column")).collect();
    }
    let words: Vec<_> = words_of(line).collect();
    let mut found: Vec<(String, &'static str)> = Vec::new();
    let named = tables.iter().filter(|(name, _)| words.contains(&name.as_str()));
    let mut columns: Vec<_> = named.flat_map(|(_, columns)| columns).filter(|name| starts_with(name, word)).collect();
    columns.sort();
    columns.dedup();
    found.extend(columns.into_iter().map(|name| (name.clone(), "column")));
    found.extend(tables.keys().filter(|name| starts_with(name, word)).map(|name| (name.clone(), "table")));
    let is_upper = word.chars().any(|c| c.is_ascii_uppercase()) && !word.chars().any(|c| c.is_ascii_lowercase());
    let cased = |name: &&str| if is_upper { name.to_uppercase() } else { (*name).to_owned() };
    found.extend(KEYWORDS.iter().filter(|name| starts_with(name, word)).map(|name| (cased(name), "SQL")));
    let options = TableDesign::OPTIONS.iter().chain(&STATEMENT_OPTIONS).map(|option| (option.name, "table option"));
    let names = options.chain(Setting::ALL.into_iter().map(|setting| (setting.name(), "setting")));
    found.extend(names.filter(|(name, _)| starts_with(name, word)).map(|(name, kind)| (name.to_owned(), kind)));
    found
}

/// Table to which a qualifier refers: the table with this name, or the table with this alias.
fn table_of(qualifier: &str, line: &str, tables: &BTreeMap<String, Vec<String>>) -> String {
    if tables.contains_key(qualifier) {
        return qualifier.to_owned();
    }
    let words: Vec<_> = words_of(line).filter(|word| !word.eq_ignore_ascii_case("as")).collect();
    let pair = words.windows(2).find(|pair| pair[1] == qualifier && tables.contains_key(pair[0]));
    pair.map_or_else(|| qualifier.to_owned(), |pair| pair[0].to_owned())
}

fn words_of(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !(c.is_alphanumeric() || "_.\"".contains(c))).filter(|word| !word.is_empty())
}

fn starts_with(name: &str, start: &str) -> bool {
    name.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start))
}

const KEYWORDS: [&str; 81] = [
    "all",
    "alter",
    "analyze",
    "and",
    "as",
    "asc",
    "avg",
    "between",
    "bigint",
    "boolean",
    "by",
    "bytea",
    "case",
    "cast",
    "coalesce",
    "column",
    "comment",
    "copy",
    "count",
    "create",
    "cross",
    "date",
    "decimal",
    "desc",
    "describe",
    "distinct",
    "double",
    "drop",
    "else",
    "end",
    "except",
    "exists",
    "explain",
    "extract",
    "false",
    "fetch",
    "from",
    "full",
    "function",
    "generated",
    "group",
    "having",
    "identity",
    "in",
    "inner",
    "insert",
    "integer",
    "intersect",
    "interval",
    "into",
    "is",
    "join",
    "left",
    "like",
    "limit",
    "max",
    "min",
    "not",
    "null",
    "offset",
    "on",
    "or",
    "order",
    "over",
    "packed_row",
    "partition",
    "returns",
    "select",
    "sequence",
    "set",
    "show",
    "sum",
    "summarize",
    "table",
    "tables",
    "timestamp",
    "union",
    "values",
    "view",
    "where",
    "with",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(line: &str) -> Vec<String> {
        let mut tables = BTreeMap::new();
        tables.insert("orders".to_owned(), vec!["o_key".to_owned(), "o_date".to_owned()]);
        tables.insert("parts".to_owned(), vec!["p_key".to_owned()]);
        let names = Names { shared: Arc::new(Mutex::new(tables)) };
        let cursor = line.find('|').unwrap();
        let line = line.replace('|', "");
        let result = SqlCompleter::new(names).complete(&line, cursor);
        result.suggestions().iter().map(|found| found.value.clone()).collect()
    }

    #[test]
    fn words_are_completed_by_context() {
        assert_eq!(complete("sel|"), ["select"]);
        assert_eq!(complete("SEL|"), ["SELECT"]);
        assert_eq!(complete("select * from pa|"), ["parts", "packed_row", "partition", "partition_by"]);
        assert_eq!(complete("select o_| from orders"), ["o_date", "o_key"]);
        assert_eq!(complete("select o_| from parts"), [""; 0]);
        assert_eq!(complete("select orders.o_k|"), ["orders.o_key"]);
        assert_eq!(complete("select x.p| from parts as x"), ["x.p_key"]);
        assert_eq!(complete(".ta|"), [".tables"]);
        assert_eq!(complete("select 'é|"), [""; 0]);
    }
}
