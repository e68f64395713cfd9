//! Databases that are attached to an open one, under names that its statements use.
//!
//! They belong to the open database, so all its handles see them. One that is attached read-only shows its last commit
//! as of the time when it was attached, or of the last [`Store::refresh_attached`]
//! (docs/adr/0047-attached-databases.md).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use crate::error::OpenError;
use crate::{Catalog, OpenOptions, Store};

/// Path of a new database in memory.
const IN_MEMORY: &str = ":memory:";

/// The attached databases of a store.
#[derive(Debug, Default)]
pub(crate) struct AttachedDatabases {
    /// Ordered by name.
    databases: RwLock<Vec<Attached>>,
    /// Locked while a database opens, so that it is not opened twice. Statements do not wait for it.
    opening: Mutex<()>,
}

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
    /// Attaches the database in a directory under a name. A database that does not exist is created, unless it is
    /// attached read-only. The path `:memory:` is a new database in memory.
    ///
    /// # Errors
    /// If the name is taken, the database is attached already or is this one, or it cannot be opened.
    pub fn attach(&self, name: &str, path: &Path, read_only: bool) -> Result<Arc<Self>, AttachError> {
        let AttachedDatabases { databases, opening } = &self.inner.attached;
        let _opening = opening.lock();
        let attached = self.attached();
        if attached.iter().any(|other| *other.name == *name) {
            return Err(AttachError::NameTaken { name: name.to_owned() });
        }
        if is_same_directory(&self.path(), path) {
            return Err(AttachError::Itself { path: path.to_owned() });
        }
        if let Some(other) = attached.iter().find(|other| is_same_directory(&other.store.path(), path)) {
            return Err(AttachError::AlreadyAttached { path: path.to_owned(), name: other.name.as_ref().to_owned() });
        }
        let cache_bytes = Some(self.cache_statistics().limit);
        let options = OpenOptions { create: !read_only, read_only, cache_bytes, ..OpenOptions::default() };
        let store = Arc::new(match path == Path::new(IN_MEMORY) && !read_only {
            true => Self::in_memory()?,
            false => Self::open(path, options)?,
        });
        let databases = &mut *databases.write();
        let index = databases.partition_point(|other| *other.name < *name);
        databases.insert(index, Attached { name: name.into(), store: Arc::clone(&store) });
        Ok(store)
    }

    /// Removes an attached database and returns it. It closes when the last statement and transaction that use it end.
    /// Returns `None` if no database has this name.
    pub fn detach(&self, name: &str) -> Option<Arc<Self>> {
        let attached = &mut *self.inner.attached.databases.write();
        let index = attached.binary_search_by(|other| other.name.as_ref().cmp(name)).ok()?;
        Some(attached.remove(index).store)
    }

    /// Whether both are handles of one open database.
    pub fn is_same_database(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// The attached databases with their newest states, ordered by name.
    pub fn attached(&self) -> Arc<[AttachedSnapshot]> {
        let snapshot = |Attached { name, store }: &Attached| AttachedSnapshot {
            name: Arc::clone(name),
            store: Arc::clone(store),
            catalog: store.snapshot(),
        };
        self.inner.attached.databases.read().iter().map(snapshot).collect()
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
