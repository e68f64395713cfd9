//! `taut inspect`: shows how tables are stored.
//!
//! ```text
//! orders   layout='column', sort_by='o_orderkey'
//!   1,500,000 rows in 12 blocks, 36.1 MiB stored, 171.2 MiB plain (4.7x)
//!   [CCCCCCCCCCCC]  one letter per block: C column
//!
//!  group | kind   |  stored | share |       | columns
//! -------+--------+---------+-------+-------+------------
//!      1 | column | 1.2 MiB | 3.3 % | #     | o_orderkey
//!
//!  column     | type | group | encodings | stored | plain | ratio | min .. max | overlap
//! ```

mod overlap;
mod strip;

use std::collections::{BTreeMap, BTreeSet};

use taut::Session;

use crate::args::InspectArguments;
use crate::failure::Failure;
use crate::output::Output;
use crate::output::grid::{Alignment, Grid};
use crate::system_tables::{self, BlockInfo, ColumnInfo, TableInfo};
use crate::units::{bytes_text, count_text, ratio_text};
use overlap::Ranges;

/// Maximum characters of a column name or value that are shown.
const TEXT_CHARACTERS_MAX: usize = 24;

/// Runs `taut inspect`.
pub fn run(arguments: &InspectArguments, mut output: Output) -> Result<(), Failure> {
    let database = arguments.settings.open(&arguments.database, false, arguments.access)?;
    let session = database.session();
    match &arguments.table {
        Some(name) => inspect(&session, &system_tables::table(&session, name)?, &mut output)?,
        None => {
            let tables = system_tables::tables(&session, None)?;
            if tables.is_empty() {
                output.write_line("The database has no tables.")?;
            }
            for (index, table) in tables.iter().enumerate() {
                if index > 0 {
                    output.write_line("")?;
                }
                inspect(&session, table, &mut output)?;
            }
        }
    }
    output.finish()
}

/// Writes the report on one table.
pub fn inspect(session: &Session, table: &TableInfo, output: &mut Output) -> Result<(), Failure> {
    let blocks = system_tables::blocks(session, &table.name)?;
    let columns = system_tables::columns(session, &table.name)?;
    write_head(table, output)?;
    if blocks.is_empty() {
        return Ok(());
    }
    let width = output.width();
    for line in strip::lines(&blocks, width) {
        output.write_line(format!("  {line}"))?;
    }
    output.write_line("")?;
    let groups = sum_groups(&columns);
    for line in group_grid(&groups, width).text().lines() {
        output.write_line(line)?;
    }
    output.write_line("")?;
    let summaries = summarize_columns(&columns, &blocks, &groups);
    let wide = column_grid(&summaries, false).text();
    let fits = wide.lines().all(|line| console::measure_text_width(line) <= width);
    let text = if fits { wide } else { column_grid(&summaries, true).text() };
    output.write_line(text.trim_end())?;
    output.write_line("overlap: average number of blocks whose range min .. max contains a given value of the column")
}

fn write_head(table: &TableInfo, output: &mut Output) -> Result<(), Failure> {
    let name = console::style(&table.name).bold().force_styling(output.is_terminal() && console::colors_enabled());
    output.write_line(format!("{name}   {}", design_text(table)))?;
    let plural = if table.blocks == 1 { "" } else { "s" };
    output.write_line(format!(
        "  {} rows in {} block{plural}, {} stored, {} plain ({})",
        count_text(table.rows),
        count_text(table.blocks),
        bytes_text(table.bytes),
        bytes_text(table.plain_bytes),
        ratio_text(table.bytes, table.plain_bytes),
    ))
}

/// Text of a table's design: its options, or its layout and sort order if it has no options.
fn design_text(table: &TableInfo) -> String {
    if !table.options.is_empty() {
        return table.options.clone();
    }
    let sort_by = if table.sort_by.is_empty() { String::new() } else { format!(", sort_by='{}'", table.sort_by) };
    format!("layout='{}'{sort_by}", table.layout)
}

/// A column group, summed over all blocks that have a group of this kind with these columns.
struct GroupInfo {
    kind: String,
    columns: Vec<String>,
    bytes: u64,
}

/// Column groups in the order of their first appearance. While a table is rewritten, groups of both designs appear.
fn sum_groups(columns: &[ColumnInfo]) -> Vec<GroupInfo> {
    let mut per_block: BTreeMap<(&str, u64), GroupInfo> = BTreeMap::new();
    for column in columns {
        let Some(group) = column.group else { continue };
        let group = per_block.entry((&column.block, group)).or_insert_with(|| GroupInfo {
            kind: column.group_kind.clone(),
            columns: Vec::new(),
            bytes: 0,
        });
        group.columns.push(column.name.clone());
        group.bytes += column.bytes;
    }
    let mut indexes: BTreeMap<(String, Vec<String>), usize> = BTreeMap::new();
    let mut groups: Vec<GroupInfo> = Vec::new();
    for group in per_block.into_values() {
        let key = (group.kind.clone(), group.columns.clone());
        match indexes.get(&key) {
            Some(index) => groups[*index].bytes += group.bytes,
            None => {
                indexes.insert(key, groups.len());
                groups.push(group);
            }
        }
    }
    groups
}

fn group_grid(groups: &[GroupInfo], width: usize) -> Grid {
    const WITHOUT_COLUMNS: usize = 60;
    const BAR: usize = 20;
    let total: u64 = groups.iter().map(|group| group.bytes).sum();
    let mut grid = Grid::new([
        ("group", Alignment::Right),
        ("kind", Alignment::Left),
        ("stored", Alignment::Right),
        ("share", Alignment::Right),
        ("", Alignment::Left),
        ("columns", Alignment::Left),
    ]);
    for (index, group) in groups.iter().enumerate() {
        let share = group.bytes as f64 / total.max(1) as f64;
        let filled = ((share * BAR as f64).ceil() as usize).min(BAR);
        grid.push(vec![
            (index + 1).to_string(),
            group.kind.clone(),
            bytes_text(group.bytes),
            format!("{:.1} %", share * 100.0),
            format!("{:<BAR$}", "#".repeat(filled)),
            shorten(&group.columns.join(", "), width.saturating_sub(WITHOUT_COLUMNS).max(TEXT_CHARACTERS_MAX)),
        ]);
    }
    grid
}

/// Summary of a column over all blocks.
struct ColumnSummary {
    name: String,
    sql_type: String,
    groups: String,
    encodings: String,
    bytes: u64,
    plain_bytes: u64,
    min: Option<String>,
    max: Option<String>,
    nulls: u64,
    overlap: String,
}

fn summarize_columns(columns: &[ColumnInfo], blocks: &[BlockInfo], groups: &[GroupInfo]) -> Vec<ColumnSummary> {
    let rows_of: BTreeMap<&str, u64> = blocks.iter().map(|block| (block.id.as_str(), block.rows)).collect();
    let mut by_name: Vec<(&str, Vec<&ColumnInfo>)> = Vec::new();
    let mut indexes: BTreeMap<&str, usize> = BTreeMap::new();
    for column in columns {
        let index = *indexes.entry(&column.name).or_insert_with(|| {
            by_name.push((&column.name, Vec::new()));
            by_name.len() - 1
        });
        by_name[index].1.push(column);
    }
    let summary = |(name, parts): (&str, Vec<&ColumnInfo>)| {
        let sql_type = parts.first().map(|part| part.sql_type.clone()).unwrap_or_default();
        let numbers = groups.iter().enumerate().filter(|(_, group)| group.columns.iter().any(|found| found == name));
        let ranges = Ranges::new(&sql_type, &parts, |block| rows_of.get(block).copied().unwrap_or(0));
        let overlap = ranges.blocks_per_value().map(|depth| format!("{depth:.1} of {}", blocks.len()));
        let (min, max) = ranges.bounds();
        ColumnSummary {
            name: name.to_owned(),
            groups: numbers.map(|(index, _)| (index + 1).to_string()).collect::<Vec<_>>().join(","),
            encodings: encodings_text(&parts),
            bytes: parts.iter().map(|part| part.bytes).sum(),
            plain_bytes: parts.iter().map(|part| part.plain_bytes).sum(),
            min: min.map(str::to_owned),
            max: max.map(str::to_owned),
            nulls: parts.iter().map(|part| part.nulls).sum(),
            overlap: overlap.unwrap_or_default(),
            sql_type,
        }
    };
    by_name.into_iter().map(summary).collect()
}

/// Grid with a row per column. The compact grid, for narrow terminals, omits types and shortens encodings and values.
fn column_grid(columns: &[ColumnSummary], is_compact: bool) -> Grid {
    const COMPACT_CHARACTERS_MAX: usize = 10;
    let characters_max = if is_compact { COMPACT_CHARACTERS_MAX } else { TEXT_CHARACTERS_MAX };
    let mut header = vec![
        ("column", Alignment::Left),
        ("type", Alignment::Left),
        ("group", Alignment::Right),
        ("encodings", Alignment::Left),
        ("stored", Alignment::Right),
        ("plain", Alignment::Right),
        ("ratio", Alignment::Right),
        ("min .. max", Alignment::Left),
        ("overlap", Alignment::Right),
    ];
    if is_compact {
        header.remove(1);
    }
    let mut grid = Grid::new(header);
    for column in columns {
        let mut cells = vec![
            shorten(&column.name, TEXT_CHARACTERS_MAX),
            column.sql_type.clone(),
            column.groups.clone(),
            if is_compact { shorten(&column.encodings, 2 * COMPACT_CHARACTERS_MAX) } else { column.encodings.clone() },
            bytes_text(column.bytes),
            bytes_text(column.plain_bytes),
            ratio_text(column.bytes, column.plain_bytes),
            range_text(column, characters_max),
            column.overlap.clone(),
        ];
        if is_compact {
            cells.remove(1);
        }
        grid.push(cells);
    }
    grid
}

/// The two most frequent encodings of a column. If there are several, each has its number of blocks.
fn encodings_text(parts: &[&ColumnInfo]) -> String {
    const SHOWN_MAX: usize = 2;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for part in parts {
        let distinct: BTreeSet<_> = part.encoding.split(" | ").map(without_numbers).collect();
        for encoding in distinct {
            *counts.entry(encoding).or_default() += 1;
        }
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    if let [(encoding, _)] = counts.as_slice() {
        return encoding.clone();
    }
    let shown = counts.iter().take(SHOWN_MAX).map(|(encoding, count)| format!("{encoding} ({count})"));
    let more = if counts.len() > SHOWN_MAX { ", ..." } else { "" };
    shown.collect::<Vec<_>>().join(", ") + more
}

/// Removes the parameters of an encoding, which differ between blocks: `dictionary(12) of bit_packed(4)` becomes
/// `dictionary of bit_packed`.
fn without_numbers(encoding: &str) -> String {
    let mut depth = 0_u32;
    let outside = |character: &char| match character {
        '(' => {
            depth += 1;
            false
        }
        ')' => {
            depth = depth.saturating_sub(1);
            false
        }
        _ => depth == 0,
    };
    encoding.chars().filter(outside).collect()
}

fn range_text(column: &ColumnSummary, characters_max: usize) -> String {
    let nulls = match column.nulls {
        0 => String::new(),
        1 => ", 1 null".to_owned(),
        nulls => format!(", {} nulls", count_text(nulls)),
    };
    let text = |value: &str| shorten(value, characters_max);
    match (&column.min, &column.max) {
        (None, _) => format!("no values{nulls}"),
        (Some(min), None) => format!("{} .. ?{nulls}", text(min)),
        (Some(min), Some(max)) => format!("{} .. {}{nulls}", text(min), text(max)),
    }
}

fn shorten(text: &str, characters_max: usize) -> String {
    if text.chars().count() <= characters_max {
        return text.to_owned();
    }
    text.chars().take(characters_max.saturating_sub(3)).chain("...".chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_are_shown_without_parameters() {
        assert_eq!(without_numbers("dictionary(12) of bit_packed(4)"), "dictionary of bit_packed");
        assert_eq!(without_numbers("plain"), "plain");
    }

    #[test]
    fn long_texts_are_shortened() {
        assert_eq!(shorten("abcdef", 6), "abcdef");
        assert_eq!(shorten("abcdefé", 6), "abc...");
    }
}
