//! The log: opaque records in numbered files, appended in groups and replayed after a crash.
//!
//! ```text
//!   log/...05.closed.log   | head | record 11 | record 12 | record 13 |     closed: the next file continues it
//!   log/...06.log          | head | record 14 | record 15 | recor | zeros   the last may end in a torn tail and zeros
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
//! - The checksum of a head covers the 48 bytes before it. The checksum of a record covers the 32 bytes before it and
//!   the payload, seeded with the checksum of the file's head. So a record of another file is rejected, even if it was
//!   copied.
//!
//! All numbers are little-endian. Checksums are 64-bit XXH3.
//!
//! # New files are complete
//!
//! A file is written and synced as `.new`, once all valid bytes of the previous file are durable. Then it is renamed,
//! and the directory is synced. So a head is never torn, and neither is a file that has a successor. A leftover `.new`
//! file is replaced when the file of that number is begun again.
//!
//! # A missing file is detected
//!
//! Once a file is begun, the files before it are closed: renamed from `.log` to `.closed.log`, and the directory is
//! synced. No record of the new file is acknowledged before that. So a closed file without a successor means that
//! acknowledged records are missing, and is an error. The catalog names the first file.
//!
//! A crash before the closing rename is durable leaves the new file after a file that is not closed. The new file is
//! still read; none of its own records was acknowledged then. Files that a crash or an earlier version of Taut left
//! open are closed when the next file is begun.
//!
//! # Zeros at the end
//!
//! A sync that must also make a new length durable takes 1.5 times as long. So a file is extended by a step of the
//! disk before a group is written that would not fit. Bytes not written yet read as zeros. A crash may keep the new
//! length without the group, or the group without the new length. None of the numbers above includes the zeros. A file
//! is extended when its first group is written, not when it begins. So there are no zeros after a checkpoint, and
//! therefore in a closed database.
//!
//! # Damage and torn tails
//!
//! Power loss may lose any part of what was not synced. So the first invalid record, at offset P of a file, is damage
//! of durable bytes, and an error, if
//! - the next file counts it as valid (P < `previous_bytes`), or
//! - it was there when this file was renamed into place (P < `initial_bytes`), or
//! - a later valid record of this file states that it was durable (P < `durable`).
//!
//! A valid record that contradicts its position is an error, too. Otherwise, if only zeros follow from P to the end of
//! the file, they are the end of the log. Everything else is a tail that may never have been acknowledged. It is cut
//! off, and [`LogEnd::torn_tail`] reports it up to its last byte that is not zero. Damage of the group that was synced
//! last cannot be distinguished from such a tail, until another record is written or another file is begun.
//!
//! # Resuming
//!
//! Records that a killed process wrote can be read, but may not be durable, and only the writer of a file can sync it.
//! So [`Log::resume`] begins a file that counts only the known durable bytes of the previous file, and carries over the
//! later records:
//!
//! ```text
//!   05.log   | head | 11 | 12 | 13 | 14 | torn        record 14 states that 12 is durable
//!   06.log   | head | 13 | 14 |                       previous_bytes: the end of 12; initial_bytes: the end of 14
//! ```
//!
//! A log that failed is resumed in the same way. It carries over the records that are not synced but that readers have
//! seen.

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

/// Finds evidence of commits: a name in `log` that an interrupted creation of the database cannot have left. The first
/// log file of the new database has the number `first`.
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

/// Removes the log files before file `number`, which no catalog needs any more. A crash may leave some of them.
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
