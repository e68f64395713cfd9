//! Design of a table as text: the options of `WITH (...)` and `SET (...)`.
//!
//! ```text
//!   layout = 'groups'   groups = '(a, b), ("C c")'   sort_by = 'a, b desc nulls last'
//!   compression = 'auto'   encoding = 'c = dictionary'   block_size = '16MiB'   abstraction = 'auto'
//!   partition_by = 'hash(a, 16)'
//! ```
//!
//! This file parses all options except `abstraction`, which `abstraction.rs` parses.

use std::collections::BTreeMap;

use super::{
    BLOCK_BYTES_MIN, BlockSize, Compression, DesignError, Encoding, Layout, PARTITIONS_MAX, PartitionDesign,
    PartitionMethod, SortColumn, TableDesign, abstraction,
};
use crate::{ColumnIndex, Schema};

/// Declaration of a table option. All fields are Markdown without links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableOption {
    /// Name in `WITH (...)` and `SET (...)`.
    pub name: &'static str,
    /// Allowed values.
    pub values: &'static str,
    /// Default value; empty for an empty list.
    pub default: &'static str,
    /// Effect of the option.
    pub description: &'static str,
}

impl TableDesign {
    /// Declarations of all options.
    pub const OPTIONS: [TableOption; 8] = [
        TableOption {
            name: "layout",
            values: "`row`, `packed_row`, `column` or `groups`",
            default: "column",
            description: "Form of the rows: slotted pages, bit-aligned rows, one encoded chunk per column, or the column \
                          groups of option `groups`.",
        },
        TableOption {
            name: "groups",
            values: "a list of column groups, such as `'(a,b),(c)'`",
            default: "",
            description: "Columns that are stored together. A group of one column is stored as a column, a larger group as \
                          packed rows.",
        },
        TableOption {
            name: "sort_by",
            values: "a list of columns, such as `'a, b desc nulls last'`",
            default: "",
            description: "Sort order inside blocks and across a load.",
        },
        TableOption {
            name: "compression",
            values: "`auto` or `none`",
            default: "auto",
            description: "Whether encodings are chosen by the data. `none` stores plain values.",
        },
        TableOption {
            name: "encoding",
            values: "a list of columns and encodings, such as `'c=dictionary, d=auto'`",
            default: "auto",
            description: "Encodings of columns.",
        },
        TableOption {
            name: "block_size",
            values: "`auto`, `file`, or a size from `'128KiB'` such as `'16MiB'`",
            default: "auto",
            description: "Plain bytes per block. `auto` is 16 MiB and at least 65,536 rows, up to 256 MiB; `file` is one \
                          block per load and partition.",
        },
        TableOption {
            name: "abstraction",
            values: "`auto`, or a number of columns",
            default: "auto for packed rows, else 0",
            description: "Number of leading columns of `sort_by` that are stored once per run of equal values instead of in \
                          every row. `auto` decides by the data of each segment.",
        },
        TableOption {
            name: "partition_by",
            values: "`'range(a, 16)'`, `'hash(a, 16)'` or `none`",
            default: "none",
            description: "Partitioning of rows. Each block contains rows of one partition. A table has up to 1,024 \
                          partitions, and one more for nulls.",
        },
    ];
    const LAYOUTS: &'static str = "'row', 'packed_row', 'column' or 'groups'";

    /// Design that the options describe. Omitted options have their defaults.
    ///
    /// # Errors
    /// If an option or value is unknown or does not fit the schema. The message lists what is allowed.
    pub fn from_options<'a>(
        options: impl IntoIterator<Item = (&'a str, &'a str)>,
        schema: &Schema,
    ) -> Result<Self, DesignError> {
        Self::default().with_options(options, schema)
    }

    /// This design with some options changed, as by `ALTER TABLE ... SET`.
    ///
    /// # Errors
    /// If an option or value is unknown or does not fit the schema. The message lists what is allowed.
    pub fn with_options<'a>(
        &self,
        options: impl IntoIterator<Item = (&'a str, &'a str)>,
        schema: &Schema,
    ) -> Result<Self, DesignError> {
        let mut design = self.clone();
        let (mut layout, mut groups) = (None, None);
        for (name, value) in options {
            match name.to_ascii_lowercase().as_str() {
                "layout" => layout = Some(value),
                "groups" => groups = Some(parse_groups(value, schema)?),
                "sort_by" => design.sort_by = parse_sort_by(value, schema)?,
                "compression" => design.compression = parse_compression(value)?,
                "encoding" => design.encodings = parse_encodings(value, schema)?,
                "block_size" => design.block_size = parse_block_size(value)?,
                "abstraction" => design.abstraction = abstraction::parse(value)?,
                "partition_by" => design.partition_by = parse_partition_by(value, schema)?,
                _ => return Err(DesignError::UnknownOption { name: name.to_owned() }),
            }
        }
        design.layout = match (layout.map(str::to_ascii_lowercase).as_deref(), groups, &self.layout) {
            (Some("row"), None, _) => Layout::Row,
            (Some("packed_row"), None, _) => Layout::PackedRow,
            (Some("column"), None, _) => Layout::Column,
            (Some("groups") | None, Some(groups), _) => Layout::Groups(groups),
            (Some("groups"), None, Layout::Groups(groups)) => Layout::Groups(groups.clone()),
            (Some("groups"), None, _) => {
                return Err(DesignError::GroupsWithoutLayout { missing: "option groups is not given" });
            }
            (Some("row" | "packed_row" | "column"), Some(_), _) => {
                return Err(DesignError::GroupsWithoutLayout { missing: "the layout is not 'groups'" });
            }
            (Some(_), _, _) => {
                let found = layout.unwrap_or_default().to_owned();
                return Err(DesignError::Value { option: "layout", found, allowed: Self::LAYOUTS.to_owned() });
            }
            (None, None, layout) => layout.clone(),
        };
        design.check_abstraction()?;
        design.check_encodings(schema)?;
        Ok(design)
    }

    /// Options that [`TableDesign::from_options`] parses back to this design. Options at their default are omitted,
    /// except the layout.
    pub fn to_options(&self, schema: &Schema) -> Vec<(&'static str, String)> {
        let name = |column: ColumnIndex| quote_identifier(&schema.column(column).name);
        let mut options = vec![("layout", self.layout.name().to_owned())];
        if let Layout::Groups(groups) = &self.layout {
            let group = |columns: &Vec<ColumnIndex>| {
                format!("({})", columns.iter().map(|column| name(*column)).collect::<Vec<_>>().join(","))
            };
            options.push(("groups", groups.iter().map(group).collect::<Vec<_>>().join(",")));
        }
        if !self.sort_by.is_empty() {
            let term = |sort: &SortColumn| {
                let direction = if sort.descending { " desc" } else { "" };
                let nulls = match sort.nulls_first {
                    _ if sort.nulls_first == sort.descending => "",
                    true => " nulls first",
                    false => " nulls last",
                };
                format!("{}{direction}{nulls}", name(sort.column))
            };
            options.push(("sort_by", self.sort_by.iter().map(term).collect::<Vec<_>>().join(", ")));
        }
        if self.compression == Compression::None {
            options.push(("compression", "none".to_owned()));
        }
        if !self.encodings.is_empty() {
            let pair = |(column, encoding): (&ColumnIndex, &Encoding)| format!("{}={}", name(*column), encoding.name());
            options.push(("encoding", self.encodings.iter().map(pair).collect::<Vec<_>>().join(", ")));
        }
        match self.block_size {
            BlockSize::Auto => {}
            BlockSize::Bytes(bytes) => options.push(("block_size", bytes.to_string())),
            BlockSize::File => options.push(("block_size", "file".to_owned())),
        }
        options.extend(abstraction::option(self.abstraction));
        if let Some(PartitionDesign { method, column, count }) = self.partition_by {
            options.push(("partition_by", format!("{}({}, {count})", method.name(), name(column))));
        }
        options
    }
}

/// Token of an option value: a name, quoted or not, or one of `( ) , =`.
#[derive(Debug, PartialEq)]
enum Token {
    Word { text: String, quoted: bool },
    Symbol(char),
}

/// Splits an option value into tokens. Names in double quotes keep their case and may contain any character. A doubled
/// quote stands for one quote.
fn tokens(option: &'static str, value: &str) -> Result<Vec<Token>, DesignError> {
    let mut tokens = Vec::new();
    let mut characters = value.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '(' | ')' | ',' | '=' => tokens.push(Token::Symbol(character)),
            '"' => {
                let mut text = String::new();
                loop {
                    match characters.next() {
                        Some('"') if characters.next_if_eq(&'"').is_some() => text.push('"'),
                        Some('"') => break,
                        Some(other) => text.push(other),
                        None => {
                            return Err(invalid_value_error(
                                option,
                                value,
                                "a closing double quote after each opening one",
                            ));
                        }
                    }
                }
                tokens.push(Token::Word { text, quoted: true });
            }
            character if character.is_whitespace() => {}
            character => {
                let mut text = String::from(character);
                while let Some(more) = characters.next_if(|c| !c.is_whitespace() && !"(),=\"".contains(*c)) {
                    text.push(more);
                }
                tokens.push(Token::Word { text, quoted: false });
            }
        }
    }
    Ok(tokens)
}

fn invalid_value_error(option: &'static str, found: &str, allowed: &str) -> DesignError {
    DesignError::Value { option, found: found.to_owned(), allowed: allowed.to_owned() }
}

/// Finds a column by name. An exact match wins. Otherwise an unquoted name matches regardless of case, unless several
/// columns match.
fn resolve_column(option: &'static str, text: &str, quoted: bool, schema: &Schema) -> Result<ColumnIndex, DesignError> {
    if let Some(index) = schema.index_of(text) {
        return Ok(index);
    }
    let same = |index: &usize| schema.columns()[*index].name.eq_ignore_ascii_case(text);
    let mut alike = (0..schema.len()).filter(same);
    match (alike.next(), alike.next()) {
        (Some(index), None) if !quoted => Ok(index.into()),
        _ => {
            const NAMES_MAX: usize = 20;
            let mut names: Vec<_> = schema.columns().iter().take(NAMES_MAX).map(|c| c.name.as_str()).collect();
            if schema.len() > NAMES_MAX {
                names.push("...");
            }
            Err(DesignError::UnknownColumn { option, column: text.to_owned(), columns: names.join(", ") })
        }
    }
}

/// A name as an SQL identifier: in double quotes, unless it has only lower case letters, digits and underscores.
pub fn quote_identifier(name: &str) -> String {
    let plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_') && !name.is_empty();
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

fn parse_groups(value: &str, schema: &Schema) -> Result<Vec<Vec<ColumnIndex>>, DesignError> {
    const ALLOWED: &str = "a list of groups such as '(a,b),(c)'";
    let mut groups: Vec<Vec<ColumnIndex>> = Vec::new();
    let mut seen = vec![false; schema.len()];
    let mut tokens = tokens("groups", value)?.into_iter();
    loop {
        let Some(Token::Symbol('(')) = tokens.next() else { return Err(invalid_value_error("groups", value, ALLOWED)) };
        let mut group = Vec::new();
        loop {
            let Some(Token::Word { text, quoted }) = tokens.next() else {
                return Err(invalid_value_error("groups", value, ALLOWED));
            };
            let column = resolve_column("groups", &text, quoted, schema)?;
            if std::mem::replace(&mut seen[column.index()], true) {
                return Err(DesignError::DuplicateColumn { option: "groups", column: text });
            }
            group.push(column);
            match tokens.next() {
                Some(Token::Symbol(',')) => {}
                Some(Token::Symbol(')')) => break,
                _ => return Err(invalid_value_error("groups", value, ALLOWED)),
            }
        }
        groups.push(group);
        match tokens.next() {
            Some(Token::Symbol(',')) => {}
            None => break,
            _ => return Err(invalid_value_error("groups", value, ALLOWED)),
        }
    }
    match seen.iter().position(|seen| !seen) {
        Some(left) => Err(DesignError::UngroupedColumn { column: schema.columns()[left].name.clone() }),
        None => Ok(groups),
    }
}

fn parse_sort_by(value: &str, schema: &Schema) -> Result<Vec<SortColumn>, DesignError> {
    const ALLOWED: &str = "a list of columns such as 'a, b desc', each with asc or desc, nulls first or nulls last";
    let tokens = tokens("sort_by", value)?;
    let mut sort_by: Vec<SortColumn> = Vec::new();
    if tokens.is_empty() {
        return Ok(sort_by);
    }
    for item in tokens.split(|token| *token == Token::Symbol(',')) {
        let Some((Token::Word { text, quoted }, rest)) = item.split_first() else {
            return Err(invalid_value_error("sort_by", value, ALLOWED));
        };
        let words = rest
            .iter()
            .map(|token| match token {
                Token::Word { text, quoted: false } => Ok(text.to_ascii_lowercase()),
                _ => Err(invalid_value_error("sort_by", value, ALLOWED)),
            })
            .collect::<Result<Vec<_>, _>>()?;
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let (descending, rest) = match words.as_slice() {
            ["asc", rest @ ..] => (false, rest),
            ["desc", rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        let nulls_first = match rest {
            [] => descending,
            ["nulls", "first"] => true,
            ["nulls", "last"] => false,
            _ => return Err(invalid_value_error("sort_by", value, ALLOWED)),
        };
        let column = resolve_column("sort_by", text, *quoted, schema)?;
        if sort_by.iter().any(|sort| sort.column == column) {
            return Err(DesignError::DuplicateColumn { option: "sort_by", column: text.clone() });
        }
        sort_by.push(SortColumn { column, descending, nulls_first });
    }
    Ok(sort_by)
}

fn parse_compression(value: &str) -> Result<Compression, DesignError> {
    match value.to_ascii_lowercase().as_str() {
        "auto" => Ok(Compression::Auto),
        "none" => Ok(Compression::None),
        _ => Err(invalid_value_error("compression", value, "'auto' or 'none'")),
    }
}

fn parse_encodings(value: &str, schema: &Schema) -> Result<BTreeMap<ColumnIndex, Encoding>, DesignError> {
    let names: Vec<_> = Encoding::ALL.into_iter().map(Encoding::name).collect();
    let allowed = || format!("a list such as 'c=dictionary, d=auto' of auto, {}", names.join(", "));
    let tokens = tokens("encoding", value)?;
    let mut encodings = BTreeMap::new();
    if tokens.is_empty() {
        return Ok(encodings);
    }
    let mut seen = Vec::new();
    for item in tokens.split(|token| *token == Token::Symbol(',')) {
        let [Token::Word { text, quoted }, Token::Symbol('='), Token::Word { text: name, quoted: false }] = item else {
            return Err(invalid_value_error("encoding", value, &allowed()));
        };
        let column = resolve_column("encoding", text, *quoted, schema)?;
        if seen.contains(&column) {
            return Err(DesignError::DuplicateColumn { option: "encoding", column: text.clone() });
        }
        seen.push(column);
        let name = name.to_ascii_lowercase();
        match Encoding::ALL.into_iter().find(|encoding| encoding.name() == name) {
            Some(encoding) => drop(encodings.insert(column, encoding)),
            None if name == "auto" => {}
            None => return Err(invalid_value_error("encoding", &name, &allowed())),
        }
    }
    Ok(encodings)
}

fn parse_block_size(value: &str) -> Result<BlockSize, DesignError> {
    let text = value.trim().to_ascii_lowercase();
    let invalid_value = || {
        invalid_value_error("block_size", value, "'auto', 'file', or a size from 128KiB such as '16MiB' or 16777216")
    };
    match text.as_str() {
        "auto" => return Ok(BlockSize::Auto),
        "file" => return Ok(BlockSize::File),
        _ => {}
    }
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().map_err(|_| invalid_value())?;
    let unit: u64 = match text[digits..].trim() {
        "" | "b" => 1,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        _ => return Err(invalid_value()),
    };
    match number.checked_mul(unit) {
        Some(bytes) if bytes >= BLOCK_BYTES_MIN => Ok(BlockSize::Bytes(bytes)),
        _ => Err(invalid_value()),
    }
}

fn parse_partition_by(value: &str, schema: &Schema) -> Result<Option<PartitionDesign>, DesignError> {
    let invalid_value = || {
        let allowed = format!("'range(column, n)' or 'hash(column, n)' with n from 1 to {PARTITIONS_MAX}, or 'none'");
        invalid_value_error("partition_by", value, &allowed)
    };
    let tokens = tokens("partition_by", value)?;
    let (method, text, quoted, count) = match tokens.as_slice() {
        [] => return Ok(None),
        [Token::Word { text, quoted: false }] if text.eq_ignore_ascii_case("none") => return Ok(None),
        [
            Token::Word { text: method, quoted: false },
            Token::Symbol('('),
            Token::Word { text, quoted },
            Token::Symbol(','),
            Token::Word { text: count, quoted: false },
            Token::Symbol(')'),
        ] => (method, text, *quoted, count),
        _ => return Err(invalid_value()),
    };
    let methods = [PartitionMethod::Range, PartitionMethod::Hash];
    let method =
        methods.into_iter().find(|known| known.name().eq_ignore_ascii_case(method)).ok_or_else(invalid_value)?;
    let count = count.parse().ok().filter(|count| (1..=PARTITIONS_MAX).contains(count)).ok_or_else(invalid_value)?;
    Ok(Some(PartitionDesign { method, column: resolve_column("partition_by", text, quoted, schema)?, count }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Column, LogicalType};

    fn schema() -> Schema {
        Schema::new(vec![
            Column::new("a", LogicalType::Integer, false),
            Column::new("B b", LogicalType::Varchar, true),
            Column::new("c", LogicalType::Double, true),
        ])
        .unwrap()
    }

    #[test]
    fn options_round_trip() {
        let cases: [&[(&str, &str)]; 14] = [
            &[],
            &[("LAYOUT", "Packed_Row"), ("sort_by", "a desc, \"B b\" nulls first, C")],
            &[("groups", "(a, c), (\"B b\")"), ("encoding", "\"B b\"=fsst, a = auto")],
            &[("layout", "row"), ("compression", "none"), ("block_size", "file")],
            &[("block_size", "128 KiB"), ("encoding", "a=run_length")],
            &[("block_size", "16MiB")],
            &[("block_size", "Auto")],
            &[("abstraction", "0")],
            &[("abstraction", "AUTO"), ("sort_by", "c")],
            &[("sort_by", "a, c"), ("layout", "row"), ("abstraction", "2")],
            &[("sort_by", "a"), ("layout", "row"), ("abstraction", "1"), ("encoding", "a=run_length_delta")],
            &[("partition_by", "range(A, 12)")],
            &[("Partition_By", "HASH( \"B b\" ,1024)")],
            &[("partition_by", "None")],
        ];
        for options in cases {
            let design = TableDesign::from_options(options.iter().copied(), &schema()).unwrap();
            let written = design.to_options(&schema());
            let again = written.iter().map(|(name, value)| (*name, value.as_str()));
            assert_eq!(TableDesign::from_options(again, &schema()).unwrap(), design, "{written:?}");
        }
    }

    #[test]
    fn wrong_options_are_reported_with_the_allowed_values() {
        let cases = [
            ("layot", "row", "unknown table option \"layot\"; allowed are layout, groups"),
            ("layout", "rows", "'row', 'packed_row', 'column' or 'groups'"),
            ("layout", "groups", "option groups is not given"),
            ("groups", "(a,c)", "column \"B b\" is in no group"),
            ("groups", "(a,c),(a)", "specified more than once"),
            ("groups", "a,c", "a list of groups such as"),
            ("groups", "", "a list of groups such as"),
            ("sort_by", "d", "no column \"d\"; it has a, B b, c"),
            ("sort_by", "a sideways", "asc or desc"),
            ("sort_by", "a,a", "specified more than once"),
            ("compression", "zip", "'auto' or 'none'"),
            (
                "encoding",
                "a=fsst",
                "dictionary, run_length, constant, delta, run_length_delta, bitmap, two_byte_delta, patched for columns of type integer in column",
            ),
            ("encoding", "a=zstd", "auto, plain"),
            ("encoding", "\"a=plain", "closing double quote"),
            ("block_size", "1KiB", "from 128KiB"),
            ("block_size", "99999999999GiB", "from 128KiB"),
            ("block_size", "é", "from 128KiB"),
            ("abstraction", "-1", "'auto', or a number"),
            ("abstraction", "+1", "'auto', or a number"),
            ("abstraction", "", "'auto', or a number"),
            ("abstraction", "99999", "'auto', or a number"),
            ("abstraction", "1", "allowed is 0, because levels are leading columns of sort_by, which names none"),
            ("abstraction", "auto", "allowed is 0, because"),
            ("partition_by", "a", "'range(column, n)' or 'hash(column, n)' with n from 1 to 1024, or 'none'"),
            ("partition_by", "list(a, 3)", "'range(column, n)'"),
            ("partition_by", "hash(a)", "'range(column, n)'"),
            ("partition_by", "hash(a, 0)", "from 1 to 1024"),
            ("partition_by", "hash(a, -1)", "from 1 to 1024"),
            ("partition_by", "hash(a, 1025)", "from 1 to 1024"),
            ("partition_by", "range(a, 3) (", "'range(column, n)'"),
            ("partition_by", "range(d, 3)", "no column \"d\"; it has a, B b, c"),
        ];
        for (name, value, message) in cases {
            let error = TableDesign::from_options([(name, value)], &schema()).unwrap_err().to_string();
            assert!(error.contains(message), "{name}={value}: {error}");
        }
    }

    #[test]
    fn levels_are_checked_against_the_sort_columns_and_their_encodings() {
        let sorted = TableDesign::from_options([("sort_by", "a, c"), ("abstraction", "2")], &schema()).unwrap();
        let error = sorted.with_options([("abstraction", "3")], &schema()).unwrap_err().to_string();
        assert!(error.contains("\"3\" is not allowed; allowed is 'auto' or 0 to 2"), "{error}");
        let error = sorted.with_options([("sort_by", "a")], &schema()).unwrap_err().to_string();
        assert!(error.contains("0 to 1, the number of columns of sort_by"), "{error}");
        // In a row layout, columns in abstraction levels can have the encodings of columns. The other columns can have
        // only the encodings of rows.
        let rows = sorted.with_options([("layout", "row"), ("encoding", "c=delta")], &schema()).unwrap();
        assert!(rows.with_options([("abstraction", "1")], &schema()).is_err());
        assert!(rows.with_options([("abstraction", "auto")], &schema()).is_err());
    }

    #[test]
    fn a_change_of_layout_checks_forced_encodings_again() {
        let design = TableDesign::from_options([("encoding", "a=run_length")], &schema()).unwrap();
        let error = design.with_options([("layout", "packed_row")], &schema()).unwrap_err().to_string();
        assert!(error.contains("in packed_rows"), "{error}");
        assert!(design.with_options([("layout", "packed_row"), ("encoding", "")], &schema()).is_ok());
    }
}
