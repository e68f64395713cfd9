//! Whether the backups in a directory are of this database, and not of a copy that has other commits.

use super::directory::BackupDirectory;
use super::error::BackupError;
use crate::Store;

impl Store {
    /// Checks that the commits of all backups in a directory are commits of this database.
    ///
    /// # Errors
    /// If a backup is of another database, or of a copy of this one that has other commits.
    pub(super) fn check_history(&self, directory: &BackupDirectory) -> Result<(), BackupError> {
        let (snapshot, path) = (self.snapshot(), || directory.path());
        for manifest in directory.manifests.values() {
            if manifest.database != snapshot.database {
                return Err(BackupError::OtherDatabase { path: path() });
            }
            // A process that only reads may show an earlier commit than the last backup.
            let is_later = manifest.commit > snapshot.version && !self.is_read_only();
            let known = snapshot.timelines.of_version(manifest.commit.min(snapshot.version));
            let is_other = match (manifest.timeline, known) {
                (Some(found), Some(known)) => found != known && found.0 <= snapshot.version,
                _ => false,
            };
            if is_later || is_other {
                return Err(BackupError::Diverged { path: path(), number: manifest.number, commit: manifest.commit });
            }
        }
        Ok(())
    }
}
