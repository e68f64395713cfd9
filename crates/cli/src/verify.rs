//! `taut verify`: reads every byte of a database or a backup directory, and lists the damage.

use std::collections::BTreeSet;
use std::path::Path;

use taut_store::backup::{Backups, is_backup_directory};
use taut_store::{Finding, OpenError, OpenOptions, Store};

use crate::args::VerifyArguments;
use crate::failure::Failure;
use crate::output::Output;
use crate::progress::spinner;
use crate::units::{bytes_text, count_text};

/// Runs `taut verify`.
pub fn run(arguments: &VerifyArguments, mut output: Output) -> Result<(), Failure> {
    if is_backup_directory(&arguments.database) {
        return verify_backups(&arguments.database, output);
    }
    let options = OpenOptions { inspect: true, read_only: arguments.access.read_only, ..OpenOptions::default() };
    let store = match Store::open(&arguments.database, options) {
        Err(error @ (OpenError::Corrupt { .. } | OpenError::MissingLog { .. } | OpenError::MissingDelta { .. })) => {
            output.write_line(format!("damaged: {error}"))?;
            output.finish()?;
            return Err(Failure::Damaged { places: 1, files: 1 });
        }
        opened => opened?,
    };
    let spinner = spinner("reading every byte");
    let found = taut_store::verify(&store);
    spinner.finish_and_clear();
    // Damage to the last group of commits that were synced together cannot be distinguished from a torn tail: see
    // docs/adr/0017-commits-go-to-a-log.md.
    if let Some(torn_tail) = &store.recovery().torn_tail {
        output.write_line(format!("note: {torn_tail}"))?;
    }
    print_findings(found, &mut output)?;
    let snapshot = store.snapshot();
    let (mut tables, mut blocks, mut bytes) = (0, 0, 0);
    for table in snapshot.tables() {
        tables += 1;
        blocks += table.blocks.len() as u64;
        bytes += table.blocks.iter().map(|block| block.entry().file_bytes).sum::<u64>();
    }
    let (blocks, bytes) = (count_text(blocks), bytes_text(bytes));
    output.write_line(format!("no damage: {tables} tables, {blocks} blocks, {bytes}"))?;
    output.finish()
}

/// Verifies all backups in a directory.
fn verify_backups(directory: &Path, mut output: Output) -> Result<(), Failure> {
    let backups = Backups::open(directory)?;
    let spinner = spinner("reading every byte");
    let found = backups.verify();
    spinner.finish_and_clear();
    print_findings(found.findings, &mut output)?;
    let (blocks, bytes) = (count_text(found.blocks), bytes_text(found.block_bytes));
    output.write_line(format!("no damage: {} backups, {blocks} blocks, {bytes}", found.backups))?;
    output.finish()
}

/// Prints damage, and prints harmless problems as notes. Fails if there is any damage.
fn print_findings(findings: Vec<Finding>, output: &mut Output) -> Result<(), Failure> {
    let (notes, damage): (Vec<_>, Vec<_>) = findings.into_iter().partition(|finding| !finding.problem.is_damage());
    for finding in &notes {
        output.write_line(format!("note: {finding}"))?;
    }
    for finding in &damage {
        output.write_line(format!("damaged: {finding}"))?;
    }
    if damage.is_empty() {
        return Ok(());
    }
    output.finish()?;
    let files: BTreeSet<_> = damage.iter().map(|finding| &finding.path).collect();
    Err(Failure::Damaged { places: damage.len(), files: files.len() })
}
