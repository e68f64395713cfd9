//! Checks that the backups in a directory belong to this database, and not to a copy that has other commits.

use super::directory::BackupDirectory;
use super::error::BackupError;
use crate::Store;

impl Store {
    /// Checks that the commits of all backups in a directory are commits of this database.
    ///
    /// # Errors
    /// If a backup belongs to another database, or to a copy of this one that has other commits.
    pub(super) fn check_history(&self, directory: &BackupDirectory) -> Result<(), BackupError> {
        let (snapshot, path) = (self.snapshot(), || directory.path());
        for manifest in directory.manifests.values() {
            if manifest.database != snapshot.database {
                return Err(BackupError::OtherDatabase { path: path() });
            }
            // A read-only process may have a snapshot from before the last backup.
            let is_later = manifest.commit > snapshot.version && !self.is_read_only();
            let own_timeline = snapshot.timelines.of_version(manifest.commit.min(snapshot.version));
            // A timeline that begins after the version of the snapshot is unknown to the snapshot, so it is not
            // compared.
            let is_other_timeline = match (manifest.timeline, own_timeline) {
                (Some(backup_timeline), Some(own_timeline)) => {
                    backup_timeline != own_timeline && backup_timeline.0 <= snapshot.version
                }
                _ => false,
            };
            if is_later || is_other_timeline {
                return Err(BackupError::Diverged { path: path(), number: manifest.number, commit: manifest.commit });
            }
        }
        Ok(())
    }
}
