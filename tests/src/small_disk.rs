//! A small file system, for tests of a full disk.

use std::path::Path;
use std::process::Command;

/// A file system of 1 MB, mounted until the value is dropped.
#[derive(Debug)]
pub struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// Mounts a file system. Returns `None` if this user has no permission to mount.
    pub fn new() -> Option<Self> {
        let disk = Self(tempfile::tempdir().ok()?);
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(disk.path());
        mount.status().is_ok_and(|status| status.success()).then_some(disk)
    }

    /// Directory at which the file system is mounted.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}
