//! `taut load`: loads files into a table.

use std::path::Path;
use std::time::Instant;

use taut::{LoadOptions, ReadOptions};

use crate::args::{LoadArguments, ReadOnly};
use crate::failure::Failure;
use crate::interrupt::Interrupts;
use crate::options::parse_options;
use crate::output::Output;
use crate::progress::ProgressDisplay;
use crate::system_tables;
use crate::units::{bytes_text, count_text, duration_text, rate_text, ratio_text};

/// Runs `taut load`.
pub fn run(arguments: &LoadArguments, mut output: Output) -> Result<(), Failure> {
    let with = parse_options(arguments.with.as_deref().unwrap_or_default())?;
    let database = arguments.settings.open(&arguments.database, true, ReadOnly::default())?;
    let session = database.session();
    let read: u64 = arguments.files.iter().map(|path| file_bytes(path)).sum();
    let progress = ProgressDisplay::attach(&session, &format!("from {}", bytes_text(read)));
    let interrupts = Interrupts::install();
    let watch = interrupts.watch(&session);
    let read_options = ReadOptions { format: arguments.format.map(Into::into), ..ReadOptions::default() };
    let options = LoadOptions { read: read_options, design: with };
    let start = Instant::now();
    let loaded = session.load(&arguments.table, &arguments.files, &options);
    let duration = start.elapsed();
    progress.clear();
    let rows = match loaded {
        Err(_) if watch.was_interrupted() => return Err(Failure::Interrupted),
        loaded => loaded?,
    };
    drop(watch);
    output.write_line(format!(
        "{}: {} rows from {} in {}, {}",
        arguments.table,
        count_text(rows),
        bytes_text(read),
        duration_text(duration),
        rate_text(rows, duration),
    ))?;
    let table = system_tables::table(&session, &arguments.table)?;
    output.write_line(format!(
        "{}: {} rows in {} block{}, {} stored, {} plain ({})",
        table.name,
        count_text(table.rows),
        count_text(table.blocks),
        if table.blocks == 1 { "" } else { "s" },
        bytes_text(table.bytes),
        bytes_text(table.plain_bytes),
        ratio_text(table.bytes, table.plain_bytes),
    ))?;
    output.finish()
}

/// Bytes of a file, or zero if they cannot be determined. The load then reports the error.
fn file_bytes(path: &Path) -> u64 {
    path.metadata().map_or(0, |metadata| metadata.len())
}
