//! The file that `COPY ... TO` writes.
//!
//! Rows go to a new file in the directory of the target. It takes the target's name only when it is complete, so that a
//! statement that fails or is cancelled leaves the file that was there as it was.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::logical_expr::LogicalPlan;

use crate::error::{QueryError, Result};

/// A file that is written beside its target. Dropping it removes it, unless it was published.
pub(super) struct StagedFile {
    staged: PathBuf,
    target: PathBuf,
}

impl StagedFile {
    /// Points a `COPY ... TO`, also one below `EXPLAIN ANALYZE`, to a staged file. Returns `None` for plans that write
    /// no single regular file: other statements, directories, devices and URLs.
    ///
    /// # Errors
    /// If a symbolic link cannot be resolved.
    pub fn redirect(plan: &mut LogicalPlan) -> Result<Option<Self>> {
        let copy = match plan {
            LogicalPlan::Copy(copy) => copy,
            LogicalPlan::Analyze(analyze) => {
                let mut input = analyze.input.as_ref().clone();
                let staged = Self::redirect(&mut input)?;
                if staged.is_some() {
                    analyze.input = input.into();
                }
                return Ok(staged);
            }
            _ => return Ok(None),
        };
        let Some(staged) = Self::beside(&copy.output_url)? else { return Ok(None) };
        let Some(url) = staged.staged.to_str().map(str::to_owned) else { return Ok(None) };
        copy.output_url = url;
        Ok(Some(staged))
    }

    fn beside(target: &str) -> Result<Option<Self>> {
        static STAGED: AtomicU64 = AtomicU64::new(0);
        // A name without an extension is a directory for the writer, and so is one that ends with a slash.
        if target.contains("://") || target.ends_with('/') || Path::new(target).extension().is_none() {
            return Ok(None);
        }
        let target = match fs::symlink_metadata(target) {
            // The link stays, and its file is replaced.
            Ok(metadata) if metadata.is_symlink() => {
                fs::canonicalize(target).map_err(|error| file_error(Path::new(target), "resolve link", &error))?
            }
            _ => PathBuf::from(target),
        };
        if fs::metadata(&target).is_ok_and(|metadata| !metadata.is_file()) {
            return Ok(None);
        }
        let Some(name) = target.file_name().and_then(|name| name.to_str()) else { return Ok(None) };
        let number = STAGED.fetch_add(1, Ordering::Relaxed);
        // The extensions stay at the end: they name the format and the compression.
        let staged = target.with_file_name(format!(".taut-{}-{number}-{name}", std::process::id()));
        Ok(Some(Self { staged, target }))
    }

    /// Gives the complete file its name and the permissions of the file that it replaces.
    ///
    /// # Errors
    /// If the file cannot be synced or renamed. The target is then as it was.
    pub fn publish(self) -> Result<()> {
        if let Ok(replaced) = fs::metadata(&self.target) {
            let outcome = fs::set_permissions(&self.staged, replaced.permissions());
            outcome.map_err(|error| self.failed("set permissions", &error))?;
        }
        let outcome = fs::File::open(&self.staged).and_then(|file| file.sync_all());
        outcome.map_err(|error| self.failed("sync", &error))?;
        fs::rename(&self.staged, &self.target).map_err(|error| self.failed("rename", &error))
    }

    fn failed(&self, what: &str, error: &std::io::Error) -> QueryError {
        file_error(&self.target, what, error)
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        // Absent if it was published, or if nothing was written.
        let _ = fs::remove_file(&self.staged);
    }
}

fn file_error(path: &Path, what: &str, error: &std::io::Error) -> QueryError {
    QueryError::File { path: path.display().to_string(), message: format!("could not {what}: {error}") }
}
