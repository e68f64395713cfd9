//! Check that directories do not contain each other.

use std::io;
use std::path::{Path, PathBuf};

use super::error::BackupError;

/// Returns an error if the backup directory equals, contains or is inside the database directory.
pub(super) fn check_overlap(backups: &Path, database: &Path) -> Result<(), BackupError> {
    let (backups_path, database_path) = (real_path(backups), real_path(database));
    if backups_path.starts_with(&database_path) || database_path.starts_with(&backups_path) {
        return Err(BackupError::Overlaps { path: backups.to_owned(), database: database.to_owned() });
    }
    Ok(())
}

/// The absolute path, with symbolic links resolved in the part that exists.
fn real_path(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut missing_names = Vec::new();
    let mut existing = absolute.as_path();
    loop {
        match existing.canonicalize() {
            Ok(resolved) => return missing_names.iter().rev().fold(resolved, |path: PathBuf, name| path.join(name)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => return absolute,
        }
        let (Some(parent), Some(name)) = (existing.parent(), existing.file_name()) else { return absolute };
        missing_names.push(name);
        existing = parent;
    }
}
