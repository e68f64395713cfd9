//! The archived log of a backup: a file of the commits since the previous backup.
//!
//! ```text
//!   offset   size   field
//!   0        8      magic: TAUTCMT1
//!   8        8      id of the database
//!   16              commits: sequence u64, length u64, then the payload as in the log (crate::catalog::record)
//! ```
//!
//! The manifest contains the length and checksum of the file.

use std::io::{self, Write};

use twox_hash::XxHash3_64;

use super::directory::{BackupDirectory, BackupFileKind, backup_file_name};
use super::error::BackupError;
use super::manifest::LogManifest;
use crate::disk::ReadFile;
use crate::files::file_error;

const MAGIC: [u8; 8] = *b"TAUTCMT1";
const HEADER_BYTES: u64 = 16;
const COMMIT_BYTES: u64 = 16;
const BUFFER_BYTES: usize = 1 << 20;

/// Writes the header of the file.
pub(super) fn write_header(to: &mut dyn Write, database: u64) -> io::Result<()> {
    to.write_all(&MAGIC)?;
    to.write_all(&database.to_le_bytes())
}

/// Writes a commit.
pub(super) fn write_commit(to: &mut dyn Write, sequence: u64, payload: &[u8]) -> io::Result<()> {
    to.write_all(&sequence.to_le_bytes())?;
    to.write_all(&(payload.len() as u64).to_le_bytes())?;
    to.write_all(payload)
}

/// Calls `visit` with the sequence number and payload of each commit of a backup, in order, until it returns false. Its
/// error is an offset in the payload, and what was expected there.
pub(super) fn read_commits(
    directory: &BackupDirectory,
    number: u64,
    log: &LogManifest,
    database: u64,
    mut visit: impl FnMut(u64, &[u8]) -> Result<bool, (u64, String)>,
) -> Result<(), BackupError> {
    let disk = &*directory.disk;
    let name = backup_file_name(number, BackupFileKind::Log);
    let damaged = |expected: String| BackupError::Damaged { path: disk.path(&name), table: None, expected };
    let failed = |operation| {
        let name = name.clone();
        move |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => BackupError::Damaged {
                path: disk.path(&name),
                table: None,
                expected: "a file, which is missing".to_owned(),
            },
            _ => file_error(disk, operation, &name, source).into(),
        }
    };
    let file = disk.open(&name).map_err(failed("open"))?;
    let bytes = file.length().map_err(failed("read"))?;
    if bytes != log.file.bytes {
        return Err(damaged(format!("{} bytes, found {bytes}", log.file.bytes)));
    }
    let found = checksum_of(&*file, bytes).map_err(failed("read"))?;
    if found != log.file.xxh3 {
        return Err(damaged(format!("content with checksum {:016x}, found {found:016x}", log.file.xxh3)));
    }
    let mut header = [0; HEADER_BYTES as usize];
    if bytes < HEADER_BYTES {
        return Err(damaged("a header".to_owned()));
    }
    file.read_at(0, &mut header).map_err(failed("read"))?;
    if header != *[MAGIC, database.to_le_bytes()].as_flattened() {
        return Err(damaged("the log of the database of the manifest".to_owned()));
    }
    let mut offset = HEADER_BYTES;
    while offset < bytes {
        let mut header = [0; COMMIT_BYTES as usize];
        if bytes - offset < COMMIT_BYTES {
            return Err(damaged(format!("a commit at byte {offset}")));
        }
        file.read_at(offset, &mut header).map_err(failed("read"))?;
        let (numbers, _) = header.as_chunks();
        let (sequence, length) = (u64::from_le_bytes(numbers[0]), u64::from_le_bytes(numbers[1]));
        offset += COMMIT_BYTES;
        if length > bytes - offset {
            return Err(damaged(format!("{length} bytes of a commit from byte {offset} on")));
        }
        let mut payload = vec![0; usize::try_from(length).map_err(|_| damaged("a shorter commit".to_owned()))?];
        file.read_at(offset, &mut payload).map_err(failed("read"))?;
        let continues = visit(sequence, &payload);
        if !continues
            .map_err(|(payload_offset, expected)| damaged(format!("{expected} at byte {}", offset + payload_offset)))?
        {
            return Ok(());
        }
        offset += length;
    }
    Ok(())
}

/// XXH3 of the first `bytes` bytes of a file.
pub(super) fn checksum_of(file: &dyn ReadFile, bytes: u64) -> io::Result<u64> {
    use std::hash::Hasher;
    let (mut hasher, mut buffer, mut offset) = (XxHash3_64::new(), vec![0; BUFFER_BYTES], 0);
    while offset < bytes {
        let count = (bytes - offset).min(BUFFER_BYTES as u64) as usize;
        file.read_at(offset, &mut buffer[..count])?;
        hasher.write(&buffer[..count]);
        offset += count as u64;
    }
    Ok(hasher.finish())
}
