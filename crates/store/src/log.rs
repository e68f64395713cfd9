//! The log: opaque records in numbered files, appended in groups and replayed after a crash.
//!
//! ```text
//!   log/...05.closed.log   | head | record 11 | record 12 | record 13 |     closed: file 06 continues it
//!   log/...06.log          | head | record 14 | record 15 | recor | zeros   last file: may have a torn tail and zeros
//!   log/...07.log.new                                                       begun, not valid yet
//!
//!   head     | magic 8 | database 8 | number 8 | last_sequence 8 | previous_bytes 8 | initial_bytes 8 | checksum 8 |
//!   record   | magic 4 | zero 4 | length 8 | sequence 8 | durable 8 | checksum 8 | payload: length bytes |
//! ```
//!
//! - `last_sequence`: sequence number of the last record before this file.
//! - `previous_bytes`: number of valid bytes in the previous file. The bytes after them are ignored.
//! - `initial_bytes`: length of this file when it was renamed into place: its head, and records carried over.
//! - `sequence`: one more than the sequence number of the previous record.
//! - `durable`: number of bytes of this file that were synced before the record was written.
//! - The checksum of a head covers the 48 bytes before it. The checksum of a record covers the 32 bytes before it and
//!   the payload. Its seed is the checksum of the file's head, so a record that was copied from another file is
//!   rejected.
//!
//! All numbers are little-endian. Checksums are 64-bit XXH3.
//!
//! # New files are complete
//!
//! A new file is begun once all valid bytes of the previous file are durable. It is written and synced as `.new`. Then
//! it is renamed, and the directory is synced. So a head is never torn, and a file that has a successor has no torn
//! tail. A leftover `.new` file is overwritten when a file with this number is begun again.
//!
//! # A missing file is detected
//!
//! Once a file is begun, all files before it are closed: they are renamed from `.log` to `.closed.log`, and the
//! directory is synced. Only then are records of the new file acknowledged. So a closed file without a successor is an
//! error: acknowledged records may be missing. The catalog names the first file.
//!
//! If a crash undoes the closing rename, the new file follows a file that is not closed. The new file is still read,
//! although none of its own records was acknowledged. Files that a crash or an earlier version of Taut left open are
//! closed when the next file is begun.
//!
//! # Zeros at the end
//!
//! A sync that must also make a new length durable takes 1.5 times as long. So most groups are written within the
//! length of the file. Before a group that does not fit, the file is extended to the next multiple of
//! [`Disk::extension_step`]. Bytes not written yet read as zeros. A crash may keep the new length without the group, or
//! the group without the new length. `previous_bytes`, `initial_bytes` and `durable` do not count the zeros. A new file
//! is extended when its first group is written. So the file that a checkpoint begins has no zeros at first, and a
//! closed database has none.
//!
//! # Damage and torn tails
//!
//! Power loss may lose any part of what was not synced. Let P be the offset of the first invalid record in a file.
//! Bytes that were durable are damaged, which is an error, if
//! - the next file counts them as valid (P < `previous_bytes`), or
//! - they were in this file when it was renamed into place (P < `initial_bytes`), or
//! - a later valid record of this file states that they were durable (P < `durable`).
//!
//! A valid record whose numbers contradict its position in the file is an error, too. Otherwise, if there are only
//! zeros from P to the end of the file, the log ends at P. Other bytes from P on are a torn tail, which may never have
//! been acknowledged. It is ignored, and [`LogEnd::torn_tail`] reports it up to its last byte that is not zero. Damage
//! of the group that was synced last looks like a torn tail, until another record is written or another file is begun.
//!
//! # Resuming
//!
//! Records that a killed process wrote can be read, but may not be durable, and only the writer of a file can sync it.
//! So [`Log::resume`] begins a new file. In its head, `previous_bytes` counts only the bytes of the previous file that
//! are known to be durable. The records after these bytes are carried over: they are written to the new file again.
//!
//! ```text
//!   05.log   | head | 11 | 12 | 13 | 14 | torn        record 14 states that 12 is durable
//!   06.log   | head | 13 | 14 |                       previous_bytes: the end of 12; initial_bytes: the end of 14
//! ```
//!
//! [`Log::restart`] resumes a log that failed in the same way. It carries over the records that are not synced but that
//! readers have seen.

mod begin;
mod format;
mod replay;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use replay::{LogEnd, Record, TornTail, open_file, records_past_damage, replay, sync_file};
pub(crate) use writer::{Durability, Log, Position};

use self::format::HEAD_BYTES;
use crate::disk::Disk;
use crate::error::FileError;
use crate::files::{LOG, file_error, list, log_name, new_log_name, parse_log_name};

/// The number of the first log file.
pub(crate) const FIRST_LOG: u64 = 1;

/// Finds evidence of commits: a file in `log` that an interrupted creation of the database does not leave. Returns its
/// name. The creation begins the log file with number `first`, and appends no record.
pub(crate) fn find_commits(disk: &dyn Disk, first: u64) -> Result<Option<String>, FileError> {
    for entry in list(disk, LOG)? {
        let name = format!("{LOG}/{}", entry.name);
        let is_from_creation = [log_name(first), new_log_name(first)].contains(&name) && !entry.is_directory;
        let length = |name| disk.open(name)?.length();
        if !is_from_creation
            || length(&name).map_err(|source| file_error(disk, "measure", &name, source))? > HEAD_BYTES as u64
        {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Removes the log files with numbers less than `number`, which no catalog needs any more. If this is interrupted by a
/// crash, some of them remain.
///
/// # Errors
/// If a file cannot be removed, or the removal cannot be made durable.
pub(crate) fn remove_before(disk: &dyn Disk, number: u64) -> Result<(), FileError> {
    let entries = list(disk, LOG)?;
    let mut old = entries.iter().filter(|entry| parse_log_name(&entry.name).is_some_and(|old| old < number)).peekable();
    if old.peek().is_none() {
        return Ok(());
    }
    for entry in old {
        let name = format!("{LOG}/{}", entry.name);
        disk.remove(&name).map_err(|source| file_error(disk, "remove", &name, source))?;
    }
    disk.sync_directory(LOG).map_err(|source| file_error(disk, "sync", LOG, source))
}
