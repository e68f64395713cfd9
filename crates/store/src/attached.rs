//! Databases that are attached to an open one, under names by which its queries read them.
//!
//! They belong to the open database, so all its handles see them. They are open read-only: each shows its last commit
//! as of the time when it was attached, or of the last [`Store::refresh_attached`]
//! (docs/adr/0047-attached-databases.md).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;

use crate::error::OpenError;
use crate::{Catalog, OpenOptions, Store};

/// The attached databases of a store, ordered by name.
#[derive(Debug, Default)]
pub(crate) struct AttachedDatabases(RwLock<Vec<Attached>>);

#[derive(Debug)]
struct Attached {
    name: Arc<str>,
    store: Arc<Store>,
}

/// An attached database as one statement or transaction sees it. It stays open and readable after it was detached.
#[derive(Clone, Debug)]
pub struct AttachedSnapshot {
    /// Name under which it is attached.
    pub name: Arc<str>,
    /// The database.
    pub store: Arc<Store>,
    /// What is read of it.
    pub catalog: Arc<Catalog>,
}

/// Reason why a database cannot be attached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// A database is attached under the name.
    #[error("database {name:?} already exists")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// The database is attached under another name.
    #[error("database {} is already attached as {name:?}", path.display())]
    AlreadyAttached {
        /// Path of the database.
        path: PathBuf,
        /// Name under which it is attached.
        name: String,
    },
    /// The database is the one that it would be attached to.
    #[error("database {} cannot be attached to itself", path.display())]
    Itself {
        /// Path of the database.
        path: PathBuf,
    },
    /// The database cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl Store {
    /// Attaches the database in a directory under a name, read-only.
    ///
    /// # Errors
    /// If the name is taken, the database is attached already or is this one, or it cannot be opened read-only.
    pub fn attach(&self, name: &str, path: &Path) -> Result<(), AttachError> {
        // Held while the database opens, so that it is not opened twice.
        let attached = &mut *self.inner.attached.0.write();
        let index = match attached.binary_search_by(|other| other.name.as_ref().cmp(name)) {
            Ok(_) => return Err(AttachError::NameTaken { name: name.to_owned() }),
            Err(index) => index,
        };
        if is_same_directory(&self.path(), path) {
            return Err(AttachError::Itself { path: path.to_owned() });
        }
        if let Some(other) = attached.iter().find(|other| is_same_directory(&other.store.path(), path)) {
            return Err(AttachError::AlreadyAttached { path: path.to_owned(), name: other.name.as_ref().to_owned() });
        }
        let cache_bytes = Some(self.cache_statistics().limit);
        let options = OpenOptions { read_only: true, cache_bytes, ..OpenOptions::default() };
        let store = Arc::new(Self::open(path, options)?);
        attached.insert(index, Attached { name: name.into(), store });
        Ok(())
    }

    /// Removes an attached database. It closes when the last statement and transaction that read it end. Returns
    /// whether there was one.
    pub fn detach(&self, name: &str) -> bool {
        let attached = &mut *self.inner.attached.0.write();
        let before = attached.len();
        attached.retain(|other| *other.name != *name);
        attached.len() < before
    }

    /// The attached databases with their newest states, ordered by name.
    pub fn attached(&self) -> Arc<[AttachedSnapshot]> {
        let snapshot = |Attached { name, store }: &Attached| AttachedSnapshot {
            name: Arc::clone(name),
            store: Arc::clone(store),
            catalog: store.snapshot(),
        };
        self.inner.attached.0.read().iter().map(snapshot).collect()
    }

    /// Updates each attached database to its last commit, as [`Store::refresh`] does. Returns whether one of them has a
    /// newer commit.
    ///
    /// # Errors
    /// If one of them cannot be read.
    pub fn refresh_attached(&self) -> Result<bool, OpenError> {
        let attached = self.attached();
        let mut is_newer = false;
        for database in attached.iter() {
            is_newer |= database.store.refresh()?;
        }
        Ok(is_newer)
    }
}

/// Whether two paths lead to the same directory. Paths that do not exist do not.
fn is_same_directory(one: &Path, other: &Path) -> bool {
    let canonical = |path: &Path| std::fs::canonicalize(path).ok();
    canonical(one).is_some_and(|one| canonical(other) == Some(one))
}
