//! Commands of the shell that are not SQL: `.tables`, `\d`, `.format` and others.

use std::path::Path;

use clap::ValueEnum;
use taut::{relation_name, relation_sql};

use crate::execute::Executor;
use crate::failure::Failure;
use crate::inspect;
use crate::output::Format;
use crate::output::grid::{Alignment, Grid};
use crate::script;
use crate::statement_splitter::{Position, StatementText};
use crate::system_tables::{self, Records, identifier};
use crate::units::{bytes_text, count_text};

/// Next step of the shell after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// The shell reads the next line.
    ReadLine,
    /// The shell ends.
    Exit,
}

/// Command of the shell, with its help text.
pub struct ShellCommand {
    /// Name of the command, with its dot or backslash.
    pub name: &'static str,
    arguments: &'static str,
    help: &'static str,
}

/// All commands that `.help` lists. [`run`] also accepts `.exit` for `.quit`, and `\dt` for `\d` without a table.
pub const COMMANDS: [ShellCommand; 13] = [
    ShellCommand { name: ".tables", arguments: "", help: "tables and views, with their design and size" },
    ShellCommand {
        name: ".schema",
        arguments: "[TABLE]",
        help: "CREATE statements, without keys, checks, defaults and indexes",
    },
    ShellCommand { name: ".layout", arguments: "[TABLE]", help: "how tables are stored, as taut inspect shows it" },
    ShellCommand { name: ".format", arguments: "table|csv|json|markdown", help: "how results are written" },
    ShellCommand { name: ".max-rows", arguments: "COUNT|all", help: "maximum rows of a result that are shown" },
    ShellCommand { name: ".timing", arguments: "on|off", help: "whether the time of each statement is shown" },
    ShellCommand { name: ".read", arguments: "FILE", help: "run the statements of a file" },
    ShellCommand {
        name: ".refresh",
        arguments: "",
        help: "make newer commits visible, in a database that is open --readonly",
    },
    ShellCommand { name: ".help", arguments: "", help: "this list" },
    ShellCommand { name: ".quit", arguments: "", help: "end; so does Ctrl-D" },
    ShellCommand { name: "\\d", arguments: "[TABLE]", help: "as .tables, or the columns of one table or view" },
    ShellCommand { name: "\\q", arguments: "", help: "as .quit" },
    ShellCommand { name: "\\?", arguments: "", help: "as .help" },
];

/// Runs a command.
pub fn run(executor: &mut Executor, line: &str) -> Result<NextStep, Failure> {
    let line = line.trim_end_matches(';');
    let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let argument = argument.trim();
    match (name, argument) {
        (".quit" | ".exit" | "\\q", _) => return Ok(NextStep::Exit),
        (".help" | "\\?", _) => help(executor)?,
        (".tables" | "\\d" | "\\dt", "") => tables(executor)?,
        ("\\d", table) => describe(executor, table)?,
        (".schema", table) => schema(executor, unquoted_name(table))?,
        (".layout", table) => layout(executor, unquoted_name(table))?,
        (".format", format) => match Format::from_str(format, true) {
            Ok(format) => executor.format = format,
            Err(_) => return Err(usage_error(".format", format)),
        },
        (".timing", "on") => executor.timing = true,
        (".timing", "off") => executor.timing = false,
        (".max-rows", "all" | "0") => executor.rows_max = None,
        (".max-rows", count) => {
            executor.rows_max = Some(count.parse().map_err(|_| usage_error(".max-rows", count))?);
        }
        (".refresh", "") => refresh(executor)?,
        (".read", file) if !file.is_empty() => script::run_file(executor, Path::new(file))?,
        (name, argument) => return Err(usage_error(name, argument)),
    }
    executor.output.finish()?;
    Ok(NextStep::ReadLine)
}

fn usage_error(name: &str, argument: &str) -> Failure {
    Failure::InvalidArgument(match COMMANDS.iter().find(|command| command.name == name) {
        Some(command) => format!("{name} takes {}, not {argument:?}", command.arguments),
        None => format!("there is no command {name}; .help lists them"),
    })
}

/// Name that SQL reads from a text: the text inside double quotes, or else the text in lower case. Returns `None` for
/// an empty text.
fn unquoted_name(text: &str) -> Option<String> {
    match text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        _ if text.is_empty() => None,
        Some(quoted) => Some(quoted.replace("\"\"", "\"")),
        None => Some(text.to_lowercase()),
    }
}

fn refresh(executor: &mut Executor) -> Result<(), Failure> {
    let line = match executor.session.refresh()? {
        true => "There are newer commits, which statements see from now on.",
        false if executor.session.is_read_only() => "Nothing was committed since.",
        false => "The database is open for writing, and always shows the last commit.",
    };
    executor.output.write_line(line)
}

fn help(executor: &mut Executor) -> Result<(), Failure> {
    executor.output.write_line("SQL statements end with a semicolon and may take several lines; Tab completes.")?;
    for command in &COMMANDS {
        let usage = format!("{} {}", command.name, command.arguments);
        executor.output.write_line(format!("  {usage:<33} {}", command.help))?;
    }
    Ok(())
}

fn tables(executor: &mut Executor) -> Result<(), Failure> {
    let mut grid = Grid::new([
        ("name", Alignment::Left),
        ("rows", Alignment::Right),
        ("blocks", Alignment::Right),
        ("stored", Alignment::Right),
        ("plain", Alignment::Right),
        ("design", Alignment::Left),
    ]);
    for table in system_tables::tables(&executor.session, None)? {
        grid.push(vec![
            table.name,
            count_text(table.rows),
            count_text(table.blocks),
            bytes_text(table.bytes),
            bytes_text(table.plain_bytes),
            table.options,
        ]);
    }
    for (name, _) in views(executor)? {
        grid.push(vec![name, String::new(), String::new(), String::new(), String::new(), "view".to_owned()]);
    }
    if grid.len() == 0 {
        return executor.output.write_line("The database has no tables.");
    }
    executor.output.write_line(grid.text().trim_end())
}

/// Names and queries of all views.
fn views(executor: &Executor) -> Result<Vec<(String, String)>, Failure> {
    const VIEWS: &str = "select table_schema, table_name, view_definition from information_schema.views \
                         order by table_schema, table_name";
    let records = Records::query(&executor.session, VIEWS)?;
    let name = |row| relation_name(&records.text(row, "table_schema"), &records.text(row, "table_name"));
    let view = |row| (name(row), records.text(row, "view_definition"));
    Ok((0..records.rows.len()).map(view).collect())
}

fn describe(executor: &mut Executor, table: &str) -> Result<(), Failure> {
    let start = Position { line: 1, column: 1 };
    executor.run(&StatementText { text: format!("describe {table}"), start }, "\\d")?;
    let name = unquoted_name(table).unwrap_or_default();
    match system_tables::tables(&executor.session, Some(&name))?.first() {
        Some(table) => executor.output.write_line(format!("design: {}", table.options)),
        None => Ok(()),
    }
}

fn schema(executor: &mut Executor, name: Option<String>) -> Result<(), Failure> {
    let tables = match &name {
        Some(name) => system_tables::tables(&executor.session, Some(name))?,
        None => system_tables::tables(&executor.session, None)?,
    };
    let mut has_written = false;
    for table in tables {
        let statement = create_statement(executor, &table)?;
        executor.output.write_line(statement)?;
        has_written = true;
    }
    for (view, definition) in views(executor)? {
        if name.as_ref().is_none_or(|name| *name == view) {
            let query = definition.trim_end_matches(';');
            executor.output.write_line(format!("create view {} as {query};", relation_sql(&view)))?;
            has_written = true;
        }
    }
    match name {
        Some(name) if !has_written => system_tables::table(&executor.session, &name).map(drop),
        _ => Ok(()),
    }
}

/// `CREATE TABLE` statement for a table with the same columns and design (options of `WITH`), but without keys, checks,
/// defaults and indexes.
fn create_statement(executor: &Executor, table: &system_tables::TableInfo) -> Result<String, Failure> {
    let columns = Records::query(&executor.session, &format!("describe {}", relation_sql(&table.name)))?;
    let column = |row| {
        let not_null = if columns.text(row, "is_nullable") == "NO" { " not null" } else { "" };
        format!("    {} {}{not_null}", identifier(&columns.text(row, "column_name")), columns.text(row, "data_type"))
    };
    let columns: Vec<_> = (0..columns.rows.len()).map(column).collect();
    let with = if table.options.is_empty() { String::new() } else { format!(" with ({})", table.options) };
    Ok(format!("create table {} (\n{}\n){with};", relation_sql(&table.name), columns.join(",\n")))
}

fn layout(executor: &mut Executor, name: Option<String>) -> Result<(), Failure> {
    let tables = match name {
        Some(name) => vec![system_tables::table(&executor.session, &name)?],
        None => system_tables::tables(&executor.session, None)?,
    };
    for table in &tables {
        inspect::inspect(&executor.session, table, &mut executor.output)?;
    }
    Ok(())
}
