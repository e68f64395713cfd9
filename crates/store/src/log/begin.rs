//! Begins a log file: writes and syncs it under a temporary name, and renames it into place. Then closes the files
//! before it. Readers conclude from a closed file that its successor exists.

use super::format::{HEAD_BYTES, Head, RECORD_BYTES, frame, seal};
use crate::disk::{Disk, WriteFile};
use crate::error::FileError;
use crate::files::{LOG, closed_log_name, file_error, list, log_name, new_log_name, parse_open_log_name};

/// A log file that is written and synced, but not valid before [`publish`].
#[derive(Debug)]
pub(super) struct PreparedLogFile {
    pub head: Head,
    pub file: Box<dyn WriteFile>,
}

/// Writes a file that begins with records carried over from the previous one. Their sequence numbers follow
/// `head.last_sequence`. Sets `initial_bytes` of the head.
///
/// # Errors
/// If the file cannot be written. No valid file has changed then.
pub(super) fn prepare(disk: &dyn Disk, mut head: Head, carried: &[Vec<u8>]) -> Result<PreparedLogFile, FileError> {
    let records: usize = carried.iter().map(|payload| RECORD_BYTES + payload.len()).sum();
    head.initial_bytes = (HEAD_BYTES + records) as u64;
    let mut bytes = Vec::with_capacity(HEAD_BYTES + records);
    bytes.extend_from_slice(&head.to_bytes());
    let mut sequence = head.last_sequence;
    for payload in carried {
        sequence += 1;
        frame(&mut bytes, sequence, &[payload]);
    }
    seal(&mut bytes[HEAD_BYTES..], 0, head.seed());
    let name = new_log_name(head.number);
    let mut file = disk.create(&name).map_err(|source| file_error(disk, "create", &name, source))?;
    file.write_all(&bytes).map_err(|source| file_error(disk, "write", &name, source))?;
    file.sync().map_err(|source| file_error(disk, "sync", &name, source))?;
    Ok(PreparedLogFile { head, file })
}

/// Renames a prepared file into place, durably, and then closes all files before it, durably.
///
/// # Errors
/// If the file system returns an error. The file may then be valid or not. No record in it may be acknowledged before
/// this succeeds: until then, a loss of the file would not be detected.
pub(super) fn publish(disk: &dyn Disk, number: u64) -> Result<(), FileError> {
    let name = new_log_name(number);
    disk.rename(&name, &log_name(number)).map_err(|source| file_error(disk, "rename", &name, source))?;
    // Readers conclude from a closed file that its successor exists, so the successor must not be lost after this.
    disk.sync_directory(LOG).map_err(|source| file_error(disk, "sync", LOG, source))?;
    close_before(disk, number)
}

/// Closes all files with smaller numbers. Several may be open after a crash.
fn close_before(disk: &dyn Disk, number: u64) -> Result<(), FileError> {
    let entries = list(disk, LOG)?;
    let mut open =
        entries.iter().filter_map(|entry| parse_open_log_name(&entry.name)).filter(|old| *old < number).peekable();
    if open.peek().is_none() {
        return Ok(());
    }
    for old in open {
        let name = log_name(old);
        disk.rename(&name, &closed_log_name(old)).map_err(|source| file_error(disk, "rename", &name, source))?;
    }
    disk.sync_directory(LOG).map_err(|source| file_error(disk, "sync", LOG, source))
}
