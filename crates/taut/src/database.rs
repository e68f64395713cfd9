//! A database that is open in this process.

use std::cell::Cell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use taut_query::{Engine, Mover, MoverOptions, SpillDirectory};
use taut_store::disk::Disk;
use taut_store::{OpenOptions, Store};
use tokio::runtime::{Handle, Runtime};

use crate::waiting::{self, Next};
use crate::{Error, ExternalTable, Session};

/// How a database is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Threads that a query uses; as many as there are processors.
    pub threads: usize,
    /// Bytes of block sections kept in memory; where not given, a quarter of `memory_bytes`, or else of the machine's memory,
    /// at most 1 GiB.
    pub cache_bytes: Option<usize>,
    /// Bytes that running queries may take together before they spill to disk; where not given, half of the machine's
    /// memory.
    pub memory_bytes: Option<usize>,
    /// Whether a database that does not exist is created. One that is opened read-only never is.
    pub create: bool,
    /// Whether the database is only read. Other processes may read it at the same time, and one may write it. The database
    /// is shown as it was when it was opened or last refreshed; see [`Database::refresh`].
    pub read_only: bool,
    /// When rows are moved to blocks in the background.
    pub mover: MoverOptions,
}

impl Default for Settings {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            threads,
            cache_bytes: None,
            memory_bytes: None,
            create: true,
            read_only: false,
            mover: MoverOptions::default(),
        }
    }
}

impl Settings {
    /// Whether who asks for these settings can have a database that was opened with others.
    fn suit(&self, open: &Self) -> bool {
        let like = |other: &Self| *self == Self { create: self.create, ..other.clone() };
        like(open) || like(&Self { read_only: self.read_only, ..Self::default() })
    }

    fn for_store(&self) -> OpenOptions {
        OpenOptions {
            create: self.create,
            read_only: self.read_only,
            cache_bytes: self.cache_bytes.or_else(|| self.memory_bytes.map(cache_beside)),
            ..OpenOptions::default()
        }
    }

    /// Where queries of a database spill: who only reads it writes nothing to its directory.
    fn spills(&self, path: &Path) -> SpillDirectory {
        SpillDirectory::new((!self.read_only).then_some(path))
    }
}

/// The default size of the cache, in bytes, where `memory_bytes` is given for queries.
fn cache_beside(memory_bytes: usize) -> usize {
    (memory_bytes / 4).min(taut_store::Cache::default_limit())
}

/// An open database. Clones are the same database; it closes with the last of them, of their sessions and of rows that are
/// still read.
#[derive(Clone, Debug)]
pub struct Database {
    store: Arc<Store>,
    mover: Arc<Mover>,
    runtime: Arc<Background>,
}

/// What this process has opened by [`Database::open_shared`], by its path and whether it is read-only. Storage may outlive its database: rows that
/// are still read hold it.
static SHARED: Mutex<Option<HashMap<(PathBuf, bool), Shared>>> = Mutex::new(None);

struct Shared {
    store: Weak<Store>,
    mover: Weak<Mover>,
    runtime: Weak<Background>,
    settings: Settings,
    identity: Identity,
}

/// What a path led to, in which process: a directory may be made anew, and threads do not survive a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    process: u32,
    /// Device and inode, where there are such.
    directory: Option<(u64, u64)>,
}

impl Identity {
    fn of(path: &Path) -> Self {
        #[cfg(unix)]
        let directory = {
            use std::os::unix::fs::MetadataExt;
            std::fs::metadata(path).ok().map(|directory| (directory.dev(), directory.ino()))
        };
        #[cfg(not(unix))]
        let directory = None;
        Self { process: std::process::id(), directory }
    }
}

impl Shared {
    fn database(&self) -> Option<Database> {
        let (store, mover, runtime) = (self.store.upgrade()?, self.mover.upgrade()?, self.runtime.upgrade()?);
        Some(Database { store, mover, runtime })
    }
}

/// The threads of a database. They are told to stop when it is dropped, and not waited for, so that it can be dropped on
/// any thread, also on one of an asynchronous runtime. [`Database::close`] waits.
#[derive(Debug)]
pub(crate) struct Background(Option<Runtime>);

impl Background {
    pub fn handle(&self) -> Result<Handle, Error> {
        self.0.as_ref().map(|runtime| runtime.handle().clone()).ok_or_else(Error::closed)
    }

    /// Runs a future on this thread, as long as `next` says so.
    ///
    /// # Errors
    /// When this thread waits for another already, and runs this one by a callback of that.
    pub fn wait<T>(&self, future: impl Future<Output = T>, next: impl FnMut() -> Next) -> Result<Option<T>, Error> {
        let runtime = self.0.as_ref().ok_or_else(Error::closed)?;
        let _waiting = Waiting::begin()?;
        let _entered = runtime.enter();
        Ok(waiting::wait(future, next))
    }

    /// Waits until the threads have ended, but where this is one of theirs, or of another runtime.
    fn end(mut self) {
        let may_wait = !IS_WAITING.get() && Handle::try_current().is_err();
        if let Some(runtime) = may_wait.then(|| self.0.take()).flatten() {
            runtime.shutdown_timeout(END_WAIT);
        }
    }
}

thread_local! {
    static IS_WAITING: Cell<bool> = const { Cell::new(false) };
}

/// That this thread waits for a future.
struct Waiting;

impl Waiting {
    fn begin() -> Result<Self, Error> {
        if IS_WAITING.replace(true) { Err(Error::nested()) } else { Ok(Self) }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        IS_WAITING.set(false);
    }
}

/// A future that is polled where there is stack for any statement. What else its thread does meanwhile runs on the stack
/// that the thread has: interpreters that measure theirs would not know another.
pub(crate) async fn with_stack<T>(may_be_deep: bool, future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| match may_be_deep {
        true => on_large_stack(|| future.as_mut().poll(context)),
        false => future.as_mut().poll(context),
    })
    .await
}

/// What is waited at most for threads to end. A thread looks after that where it awaits something, and between batches.
const END_WAIT: Duration = Duration::from_secs(10);

/// Bytes of stack for the deepest expression that the parser lets through, in an unoptimized build too. Pages that are
/// not touched are never there.
const STACK_BYTES: usize = 64 << 20;

/// Runs a function where there is stack for any statement, whoever calls.
pub(crate) fn on_large_stack<T>(run: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(STACK_BYTES / 2, STACK_BYTES, run)
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Database {
    /// Opens the database in a directory, or creates it there.
    ///
    /// # Errors
    /// When it is open elsewhere, is no database, or is damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_with(path, &Settings::default())
    }

    /// Opens the database in a directory to read it, also while another process has it open for writing. Nothing is created
    /// but a file that tells the writer which other files to keep, and that goes when the database is closed.
    ///
    /// # Errors
    /// When there is no database, it is damaged, or it is open for writing elsewhere and this process has no right to create
    /// that file.
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_with(path, &Settings { read_only: true, ..Settings::default() })
    }

    /// Opens a database with settings of one's own. The path `:memory:` is a database in memory.
    ///
    /// # Errors
    /// As [`Database::open`].
    pub fn open_with(path: impl AsRef<Path>, settings: &Settings) -> Result<Self, Error> {
        if path.as_ref() == Path::new(":memory:") {
            return Self::in_memory_with(settings);
        }
        let path = path.as_ref();
        Self::on(Arc::new(Store::open(path, settings.for_store())?), settings, settings.spills(path))
    }

    /// Opens a database on a disk of one's own, such as one that fails.
    ///
    /// # Errors
    /// As [`Database::open`].
    pub fn open_on(disk: Arc<dyn Disk>, settings: &Settings) -> Result<Self, Error> {
        Self::new(Store::open_on(disk, settings.for_store())?, settings)
    }

    /// Has a database that is open read-only show the last commit, and returns whether there is a newer one than before.
    /// Statements that begin afterwards see it, in all sessions; transactions that have run a statement do not. A database
    /// that is open for writing always shows the last commit.
    ///
    /// # Errors
    /// When the database cannot be read, or the path leads to another one; it is shown as before then.
    pub fn refresh(&self) -> Result<bool, Error> {
        Ok(self.store.refresh()?)
    }

    /// Whether it is open read-only.
    pub fn is_read_only(&self) -> bool {
        self.store.is_read_only()
    }

    /// What was found wrong when the database was opened: a damaged end of the log, whose commits are lost, and tables
    /// with missing block files.
    pub fn recovery_notice(&self) -> Option<String> {
        const MISSING_MAX: usize = 3;
        let recovery = self.store.recovery();
        let mut notices: Vec<String> = recovery.cut.iter().map(ToString::to_string).collect();
        notices.extend(recovery.missing_blocks.iter().take(MISSING_MAX).map(ToString::to_string));
        if let Some(more @ 1..) = recovery.missing_blocks.len().checked_sub(MISSING_MAX) {
            notices.push(format!("{more} more block files are missing"));
        }
        (!notices.is_empty()).then(|| notices.join("; "))
    }

    /// Opens a database like [`Database::open_with`], or gives the one that this process has opened by this function and
    /// still holds. For drivers, whose users connect to a path again and again. `:memory:` is a new one each time. A database
    /// that is opened read-only is apart from the same one that is open for writing; opening it again refreshes it.
    ///
    /// # Errors
    /// As [`Database::open`], and when it is open with other settings than these. The default settings take it as it is.
    pub fn open_shared(path: impl AsRef<Path>, settings: &Settings) -> Result<Self, Error> {
        let path = path.as_ref();
        if path == Path::new(":memory:") {
            return Self::in_memory_with(settings);
        }
        // Held while the database opens, so that two threads do not open it at once.
        let mut shared = SHARED.lock();
        let shared = shared.get_or_insert_default();
        shared.retain(|_, open| open.store.strong_count() > 0);
        // Only what exists has a canonical path, and only what exists can be open.
        let open = std::fs::canonicalize(path).ok().and_then(|canonical| shared.get(&(canonical, settings.read_only)));
        let mut settings = settings.clone();
        let database = match open.filter(|open| open.identity == Identity::of(path)) {
            Some(open) => match (open.database(), open.store.upgrade()) {
                (Some(database), _) if settings.suit(&open.settings) => {
                    database.refresh()?;
                    return Ok(database);
                }
                (Some(_), _) => return Err(Error::other_settings(path, &open.settings)),
                (None, Some(_))
                    if settings.cache_bytes.is_some_and(|bytes| open.settings.cache_bytes != Some(bytes)) =>
                {
                    return Err(Error::other_settings(path, &open.settings));
                }
                (None, Some(store)) => {
                    settings.cache_bytes = open.settings.cache_bytes;
                    store.refresh()?;
                    Self::on(store, &settings, settings.spills(path))?
                }
                (None, None) => Self::open_with(path, &settings)?,
            },
            None => Self::open_with(path, &settings)?,
        };
        if let Ok(canonical) = std::fs::canonicalize(path) {
            let Self { store, mover, runtime } = &database;
            let (store, mover, runtime) = (Arc::downgrade(store), Arc::downgrade(mover), Arc::downgrade(runtime));
            let identity = Identity::of(path);
            shared.insert((canonical, settings.read_only), Shared { store, mover, runtime, settings, identity });
        }
        Ok(database)
    }

    /// A database that lives as long as this process keeps it.
    ///
    /// # Errors
    /// When the machine gives no threads.
    pub fn in_memory() -> Result<Self, Error> {
        Self::in_memory_with(&Settings::default())
    }

    /// A database in memory with settings of one's own.
    ///
    /// # Errors
    /// As [`Database::in_memory`], and when they are read-only: nobody could fill it.
    pub fn in_memory_with(settings: &Settings) -> Result<Self, Error> {
        if settings.read_only {
            return Err(Error::in_memory_read_only());
        }
        Self::new(Store::in_memory()?, settings)
    }

    fn new(store: Store, settings: &Settings) -> Result<Self, Error> {
        Self::on(Arc::new(store), settings, SpillDirectory::new(None))
    }

    fn on(store: Arc<Store>, settings: &Settings, spills: SpillDirectory) -> Result<Self, Error> {
        let memory_bytes = settings.memory_bytes.unwrap_or_else(default_memory);
        let engine = Engine::new(settings.threads, memory_bytes, spills).map_err(taut_query::QueryError::from)?;
        let (parked, unparked) = (Arc::clone(engine.workers()), Arc::clone(engine.workers()));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(settings.threads.max(1))
            .thread_name("taut")
            .on_thread_park(move || parked.park())
            .on_thread_unpark(move || unparked.unpark())
            .thread_stack_size(STACK_BYTES)
            .enable_all()
            .build()
            .map_err(Error::threads)?;
        let mover = Arc::new(Mover::new(&store, engine, settings.mover.clone().within(memory_bytes)));
        Ok(Self { store, mover, runtime: Arc::new(Background(Some(runtime))) })
    }

    /// A session. Sessions of one database run side by side.
    pub fn session(&self) -> Session {
        Session::new(Arc::clone(&self.store), Arc::clone(&self.mover), Arc::clone(&self.runtime))
    }

    /// A table for a DataFusion that the caller runs.
    ///
    /// # Errors
    /// When there is no table of that name.
    pub fn external_table(&self, name: &str) -> Result<ExternalTable, Error> {
        ExternalTable::new(self.session(), name, self.runtime.handle()?)
    }

    /// Closes the database, and waits until its threads have ended: the directory can be opened again, moved or removed
    /// then. Other copies of this one, sessions, and rows that are not read to their end keep it open until they are
    /// dropped. Dropping does not wait: a thread that still computes rows that nobody wants may hold the directory for
    /// a moment.
    pub fn close(self) {
        let Self { store, mover, runtime } = self;
        drop((store, mover));
        if let Some(runtime) = Arc::into_inner(runtime) {
            runtime.end();
        }
    }

    /// The storage below.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }
}

/// Half of the machine's memory, or 4 GiB where the operating system does not tell.
fn default_memory() -> usize {
    const UNKNOWN: usize = 4 << 30;
    let half = |bytes: u64| usize::try_from(bytes / 2).unwrap_or(usize::MAX);
    taut_store::disk::physical_memory().map_or(UNKNOWN, half)
}
