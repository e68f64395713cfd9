//! `taut backup` and `taut restore`: back up a database, list backups, restore a backup.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use taut_store::backup::{
    BackupError, BackupInfo, BackupLog, BackupOptions, BackupProgress, BackupReport, Backups, RestoreOptions,
    format_time, parse_time,
};
use taut_store::{OpenError, OpenOptions, Store};

use crate::args::{BackupArguments, RestoreArguments};
use crate::failure::{Failure, print_stderr};
use crate::output::Output;
use crate::progress::BytesDisplay;
use crate::units::{bytes_text, count_text};

/// Runs `taut backup`.
pub fn run(arguments: &BackupArguments, mut output: Output) -> Result<(), Failure> {
    if let Some(directory) = &arguments.list {
        list(directory, &mut output)?;
        return output.finish();
    }
    // The command line parser requires a database unless `--list` is given.
    let Some(database) = &arguments.database else {
        return Err(Failure::InvalidArgument("which database?".to_owned()));
    };
    let store = open(database, arguments)?;
    if arguments.stop_log {
        store.stop_log_retention()?;
        output.write_line(format!("{} keeps no log for a next backup any more", database.display()))?;
        return output.finish();
    }
    let Some(directory) = &arguments.directory else {
        return Err(Failure::InvalidArgument("which backup directory?".to_owned()));
    };
    let options = BackupOptions { log: arguments.log, keep: arguments.keep.map(std::num::NonZeroUsize::get) };
    let mut progress = Progress::begin("backing up");
    let report = store.backup(directory, options, &mut |step| progress.update(step));
    progress.end();
    let report = report.map_err(to_failure)?;
    print(&report, directory, &mut output)?;
    output.finish()
}

/// Opens the database to back up, read-only if another process writes it. Fails in this case with `--log` and
/// `--stop-log`, because only the writer can retain log files.
fn open(database: &Path, arguments: &BackupArguments) -> Result<Store, Failure> {
    let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
    let options = if arguments.access.read_only { read_only } else { OpenOptions::default() };
    let store = match (Store::open(database, options), &arguments.directory) {
        (Err(error @ OpenError::Locked { .. }), Some(directory)) if arguments.log => {
            let directory = directory.display().to_string();
            return Err(Failure::InvalidArgument(format!(
                "{error}, and backed up without --log; with the log, that process backs it up while it is in use, by \
                 BACKUP DATABASE TO '{directory}' WITH (log) in SQL or connection.backup({directory:?}, log=True) in Python"
            )));
        }
        (Err(error @ OpenError::Locked { .. }), _) if arguments.stop_log => {
            return Err(Failure::InvalidArgument(format!(
                "{error}; that process ends the log, by BACKUP DATABASE STOP LOG in SQL"
            )));
        }
        (Err(OpenError::Locked { .. }), _) => Store::open(database, read_only)?,
        (opened, _) => opened?,
    };
    if let Some(torn_tail) = &store.recovery().torn_tail {
        print_stderr(format!("note: {torn_tail}"));
    }
    Ok(store)
}

fn print(report: &BackupReport, directory: &Path, output: &mut Output) -> Result<(), Failure> {
    let BackupReport { number, commit, time, bytes, written_bytes, copied_blocks, shared_blocks, log, removed } =
        report;
    output.write_line(format!(
        "backup {number} in {}: commit {commit}, {}",
        directory.display(),
        format_time(*time)
    ))?;
    output.write_line(format!(
        "  {} in all; {} written; {} blocks copied, {} shared with earlier backups",
        bytes_text(*bytes),
        bytes_text(*written_bytes),
        count_text(*copied_blocks),
        count_text(*shared_blocks)
    ))?;
    match log {
        BackupLog::None => {}
        BackupLog::Begun => {
            output.write_line("  the log is kept from here on, for points in time up to the next backup")?
        }
        BackupLog::Continued { base, commits } => {
            output.write_line(format!("  with {} commits since backup {base}", count_text(*commits)))?;
        }
    }
    if !removed.is_empty() {
        let removed: Vec<String> = removed.iter().map(u64::to_string).collect();
        output.write_line(format!("  removed: {}", removed.join(", ")))?;
    }
    Ok(())
}

fn list(directory: &Path, output: &mut Output) -> Result<(), Failure> {
    let backups = Backups::open(directory)?;
    for BackupInfo { number, commit, time, tables, bytes, written_bytes, log_since } in backups.list() {
        let log = log_since.map_or_else(String::new, |base| format!(", every commit since backup {base}"));
        output.write_line(format!(
            "{number:>4}  {}  commit {commit}, {tables} tables, {}, {} written{log}",
            format_time(time),
            bytes_text(bytes),
            bytes_text(written_bytes)
        ))?;
    }
    let damaged = backups.damaged();
    for (number, damage) in &damaged {
        output.write_line(format!("{number:>4}  damaged: {damage}"))?;
    }
    match damaged.len() {
        0 => Ok(()),
        places => {
            output.finish()?;
            Err(Failure::Damaged { places, files: places })
        }
    }
}

/// Runs `taut restore`.
pub fn run_restore(arguments: &RestoreArguments, mut output: Output) -> Result<(), Failure> {
    let time = arguments.time.as_deref().map(|text| {
        parse_time(text).ok_or_else(|| {
            Failure::InvalidArgument(format!(
                "--time: {text:?} is not a time; write for example '2026-11-27 13:36:16', in UTC, or with an offset \
                 '2026-11-27 13:36:16.5+02:00'"
            ))
        })
    });
    let options = RestoreOptions { backup: arguments.backup, time: time.transpose()? };
    let mut progress = Progress::begin("restoring");
    let restored = Backups::open(&arguments.directory)
        .and_then(|backups| backups.restore(&arguments.database, options, &mut |step| progress.update(step)));
    progress.end();
    let report = restored.map_err(to_failure)?;
    output.write_line(format!(
        "{}: commit {} of {}, {}",
        arguments.database.display(),
        report.commit,
        format_time(report.time),
        bytes_text(report.bytes)
    ))?;
    let replayed = match report.replayed_commits {
        0 => String::new(),
        1 => ", and 1 commit after it".to_owned(),
        commits => format!(", and {} commits after it", count_text(commits)),
    };
    output.write_line(format!("  from backup {}{replayed}", report.backup))?;
    output.finish()
}

fn to_failure(error: BackupError) -> Failure {
    match error {
        BackupError::Cancelled => Failure::Interrupted,
        error => error.into(),
    }
}

/// Progress bar that also cancels the operation after Ctrl-C.
struct Progress {
    display: BytesDisplay,
    is_interrupted: Arc<AtomicBool>,
}

impl Progress {
    fn begin(operation: &'static str) -> Self {
        let is_interrupted = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_interrupted);
        crate::interrupt::on_interrupt(move || flag.store(true, Ordering::SeqCst));
        Self { display: BytesDisplay::new(operation), is_interrupted }
    }

    fn update(&mut self, step: BackupProgress) -> ControlFlow<()> {
        self.display.update(step.done_bytes, step.total_bytes);
        match self.is_interrupted.load(Ordering::SeqCst) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn end(&mut self) {
        self.display.clear();
    }
}
