//! The log: opaque records in numbered files, appended by groups, and read again after a crash.
//!
//! ```text
//!   log/...05.closed.log   | head | record 11 | record 12 | record 13 |     closed: the next file exists, and continues it
//!   log/...06.log          | head | record 14 | record 15 | recor | zeros   the last may end in a torn tail, and in zeros
//!   log/...07.log.new                                                       begun, but does not count yet
//!
//!   head     | magic 8 | database 8 | number 8 | last_sequence 8 | before_bytes 8 | begun_bytes 8 | checksum 8 |
//!   record   | magic 4 | zero 4 | length 8 | sequence 8 | durable 8 | checksum 8 | payload: length bytes |
//! ```
//!
//! - `last_sequence`: of the last record before this file.
//! - `before_bytes`: how much of the file before counts. What is behind it is ignored.
//! - `begun_bytes`: the length with which the file got its name: its head, and records carried over.
//! - `sequence`: one more than that of the record before.
//! - `durable`: how many bytes of this file were synced when the record was handed to the file system.
//! - The checksum of a head is that of the 48 bytes before it. The one of a record is that of the 32 bytes before it and
//!   the payload, with the checksum of the file's head as seed: no record of another file passes, nor a copy of one.
//!
//! All numbers are little-endian, checksums XXH3 of 64 bits.
//!
//! # Files begin whole
//!
//! A file is written and synced as `.new`, and then renamed and the directory synced, once all that counts of the file
//! before is durable. So a head is never torn, and neither is a file with a file after it. What is left of a `.new` is
//! replaced when the file of that number is begun again.
//!
//! # No file is missed
//!
//! Once a file is begun, those before it are closed: renamed from `.log` to `.closed.log`, and the directory is synced.
//! No record of the new file is acknowledged before. So a closed file without a next one means that acknowledged records
//! are missing, and is an error; the catalog names the first file. A crash before the rename is durable leaves the new
//! file behind one that is not closed, which is read all the same; then none of the new file's own records was
//! acknowledged. Files that a crash, or an earlier version of this program, left open are closed with the next file begun.
//!
//! # Zeros at the end
//!
//! A sync that must also make a new length durable takes much longer. So before a group is written that would not fit,
//! the file is extended, by a step of the disk; what is not written yet reads as zeros. A crash may keep the new length
//! without the group, or the group without the new length. No number above ever counts the zeros. A file is extended
//! when the first group is written, not when it begins: after a checkpoint, and so in a closed database, there are none.
//!
//! # Damage and torn tails
//!
//! Power loss may take any part of what was not synced. So the first bad record, at offset P of a file, is damage of
//! what was durable, and an error, if
//! - the file after this one counts it (P < `before_bytes`), or
//! - it was there when this file got its name (P < `begun_bytes`), or
//! - a later record of this file passes and says that it was durable (P < `durable`).
//!
//! A record that passes but contradicts its place is an error, too. Otherwise zeros from P up to the end of the file are
//! the end of the log, and everything else is a tail that may never have been acknowledged: it is cut off, and
//! [`End::cut`] reports it, up to its last byte that is not zero. Damage of the group that was synced last cannot be told
//! from these, until a record is written or a file begun after it.
//!
//! # Going on
//!
//! What a killed process wrote can be read, but need not be durable, and only who writes a file can sync it. So
//! [`Log::resume`] begins a file that counts of the one before only what is known to be durable, and carries over the
//! records after that:
//!
//! ```text
//!   05.log   | head | 11 | 12 | 13 | 14 | torn        record 14 says that 12 is durable
//!   06.log   | head | 13 | 14 |                       before_bytes: the end of 12; begun_bytes: the end of 14
//! ```
//!
//! A log that failed goes on in the same way, and carries over what somebody has seen of the records that are not synced.

mod begin;
mod format;
mod replay;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use replay::{Cut, End, Record, open_file, records_behind, replay, sync_file};
pub(crate) use writer::{Durability, Log, Position};

use self::format::HEAD_BYTES;
use crate::directory::{LOG, log_name, log_of, new_log_name};
use crate::disk::Disk;
use crate::error::FileError;
use crate::open::{file_error, list};

/// A name in `log` that an interrupted creation of the database, whose first log file has this number, did not leave.
pub(crate) fn find_commits(disk: &dyn Disk, first: u64) -> Result<Option<String>, FileError> {
    for entry in list(disk, LOG)? {
        let name = format!("{LOG}/{}", entry.name);
        let is_ours = [log_name(first), new_log_name(first)].contains(&name) && !entry.is_directory;
        let length = |name| disk.open(name)?.length();
        if !is_ours || length(&name).map_err(|source| file_error(disk, "measure", &name, source))? > HEAD_BYTES as u64 {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Removes the log files with smaller numbers, which no catalog may count any more. A crash may leave some of them.
///
/// # Errors
/// When one cannot be removed, or the removal not be made durable.
pub(crate) fn remove_before(disk: &dyn Disk, number: u64) -> Result<(), FileError> {
    let entries = list(disk, LOG)?;
    let mut old = entries.iter().filter(|entry| log_of(&entry.name).is_some_and(|old| old < number)).peekable();
    if old.peek().is_none() {
        return Ok(());
    }
    for entry in old {
        let name = format!("{LOG}/{}", entry.name);
        disk.remove(&name).map_err(|source| file_error(disk, "remove", &name, source))?;
    }
    disk.sync_directory(LOG).map_err(|source| file_error(disk, "sync", LOG, source))
}
