//! `taut repair`: copies everything that can be read from a damaged database into a new one.

use taut_store::RepairedTable;

use crate::args::RepairArguments;
use crate::failure::Failure;
use crate::output::Output;
use crate::progress::spinner;
use crate::units::count_text;

/// Runs `taut repair`.
pub fn run(arguments: &RepairArguments, mut output: Output) -> Result<(), Failure> {
    let spinner = spinner("reading and copying what can be read");
    let result = taut_store::repair(&arguments.database, &arguments.new_database);
    spinner.finish_and_clear();
    let report = result?;
    if let Some(torn_tail) = &report.torn_tail {
        output.write_line(format!("note: {torn_tail}"))?;
    }
    if report.retained_log {
        let (old, new) = (arguments.database.display(), arguments.new_database.display());
        output.write_line(format!(
            "note: {old} keeps its log for the next backup, and {new} does not continue it: its backups go to another directory"
        ))?;
    }
    for loss in &report.losses {
        output.write_line(format!("lost: {loss}"))?;
    }
    for table in &report.tables {
        output.write_line(summary(table))?;
        for damaged in &table.without_loss {
            output.write_line(format!("note: {}: {damaged}", table.name))?;
        }
        for loss in &table.losses {
            output.write_line(format!("lost: {}: {loss}", table.name))?;
        }
    }
    let (tables, rows) = (report.tables.len(), report.tables.iter().map(|table| table.rows).sum());
    let new = arguments.new_database.display();
    let text = format!("{tables} table{}, {} rows in {new}", plural(tables), count_text(rows));
    if report.is_complete() {
        output.write_line(format!("everything was salvaged: {text}"))?;
        return output.finish();
    }
    output.write_line(format!("salvaged: {text}"))?;
    output.finish()?;
    let damaged = report.tables.iter().filter(|table| !table.losses.is_empty()).count();
    Err(Failure::Lost { database: !report.losses.is_empty(), tables: damaged })
}

fn summary(table: &RepairedTable) -> String {
    let RepairedTable { name, rows, copied_blocks, rewritten_blocks, .. } = table;
    let mut text =
        format!("{name}: {} rows, {copied_blocks} block{} copied", count_text(*rows), plural(*copied_blocks));
    if *rewritten_blocks > 0 {
        text += &format!(", {rewritten_blocks} rewritten");
    }
    text
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}
