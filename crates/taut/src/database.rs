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

/// Options for opening a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Threads that a query uses. Default: the number of processors.
    pub threads: usize,
    /// Bytes of block sections that the cache holds. Default: a quarter of `memory_bytes` or, without it, of the
    /// machine's memory, at most 1 GiB.
    pub cache_bytes: Option<usize>,
    /// Bytes of memory that all running queries may use together before they spill to disk. Default: half of the
    /// machine's memory.
    pub memory_bytes: Option<usize>,
    /// Whether a database that does not exist is created. A read-only open never creates one.
    pub create: bool,
    /// Whether the database is opened read-only. Other processes may read it at the same time, and one may write it.
    /// Statements read the state at the time of opening or of the last [`Database::refresh`].
    pub read_only: bool,
    /// When the mover moves rows to blocks in the background.
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
    /// Whether a caller that asks for these settings can share a database that was opened with the settings `open`.
    fn can_share(&self, open: &Self) -> bool {
        let equals_except_create = |other: &Self| *self == Self { create: self.create, ..other.clone() };
        equals_except_create(open) || equals_except_create(&Self { read_only: self.read_only, ..Self::default() })
    }

    fn for_store(&self) -> OpenOptions {
        OpenOptions {
            create: self.create,
            read_only: self.read_only,
            cache_bytes: self.cache_bytes.or_else(|| self.memory_bytes.map(default_cache_bytes)),
            ..OpenOptions::default()
        }
    }

    /// Directory that queries spill to. A read-only database writes nothing to its own directory.
    fn spill_directory(&self, path: &Path) -> SpillDirectory {
        SpillDirectory::new((!self.read_only).then_some(path))
    }
}

/// Default size of the cache in bytes, if `memory_bytes` is set.
fn default_cache_bytes(memory_bytes: usize) -> usize {
    (memory_bytes / 4).min(taut_store::Cache::default_limit())
}

/// An open database. Clones share it. It closes when the last clone, the last session and the last unfinished
/// [`Rows`](crate::Rows) are dropped.
#[derive(Clone, Debug)]
pub struct Database {
    store: Arc<Store>,
    mover: Arc<Mover>,
    runtime: Arc<Background>,
}

/// Databases that this process has opened by [`Database::open_shared`], keyed by path and read-only mode. A store may
/// outlive its database, because unfinished rows hold it.
static SHARED: Mutex<Option<HashMap<(PathBuf, bool), SharedDatabase>>> = Mutex::new(None);

struct SharedDatabase {
    store: Weak<Store>,
    mover: Weak<Mover>,
    runtime: Weak<Background>,
    settings: Settings,
    identity: Identity,
}

/// Identity of an open database: its directory, and the process that opened it. A directory may be deleted and created
/// again, and threads do not survive a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    process: u32,
    /// Device and inode, on systems that have them.
    directory: Option<(u64, u64)>,
}

impl Identity {
    fn for_path(path: &Path) -> Self {
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

impl SharedDatabase {
    fn database(&self) -> Option<Database> {
        let (store, mover, runtime) = (self.store.upgrade()?, self.mover.upgrade()?, self.runtime.upgrade()?);
        Some(Database { store, mover, runtime })
    }
}

/// Runtime with the threads of a database. Its drop stops the threads without waiting for them, so that any thread may
/// drop it, even a thread of an asynchronous runtime. [`Database::close`] waits.
#[derive(Debug)]
pub(crate) struct Background(Option<Runtime>);

impl Background {
    pub fn handle(&self) -> Result<Handle, Error> {
        self.0.as_ref().map(|runtime| runtime.handle().clone()).ok_or_else(Error::closed)
    }

    /// Runs a future on this thread until it is ready, or until `next` returns [`Next::Stop`].
    ///
    /// # Errors
    /// If this thread is already waiting, which is the case in a callback, or the database is closed.
    pub fn wait<T>(&self, future: impl Future<Output = T>, next: impl FnMut() -> Next) -> Result<Option<T>, Error> {
        let runtime = self.0.as_ref().ok_or_else(Error::closed)?;
        let _waiting = WaitGuard::begin()?;
        let _entered = runtime.enter();
        Ok(waiting::wait(future, next))
    }

    /// Stops the threads and waits until they have ended. Does not wait if this thread is already waiting for a
    /// statement, or belongs to an asynchronous runtime.
    fn shut_down(mut self) {
        let may_wait = !IS_WAITING.get() && Handle::try_current().is_err();
        if let Some(runtime) = may_wait.then(|| self.0.take()).flatten() {
            runtime.shutdown_timeout(END_WAIT);
        }
    }
}

thread_local! {
    static IS_WAITING: Cell<bool> = const { Cell::new(false) };
}

/// Guard that marks this thread as waiting for a future.
struct WaitGuard;

impl WaitGuard {
    fn begin() -> Result<Self, Error> {
        if IS_WAITING.replace(true) { Err(Error::nested()) } else { Ok(Self) }
    }
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        IS_WAITING.set(false);
    }
}

/// Polls a future on a large stack if `needs_large_stack`. Callbacks run between polls, on the thread's own stack: an
/// interpreter such as Python's measures that stack, and would not recognize another one.
pub(crate) async fn poll_with_stack<T>(needs_large_stack: bool, future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| match needs_large_stack {
        true => on_large_stack(|| future.as_mut().poll(context)),
        false => future.as_mut().poll(context),
    })
    .await
}

/// Maximum wait for threads to end. A thread notices the shutdown at its next await point or between batches.
const END_WAIT: Duration = Duration::from_secs(10);

/// Bytes of stack for the deepest expression that the parser accepts, in an unoptimized build too. Pages that are never
/// touched take no memory.
const STACK_BYTES: usize = 64 << 20;

/// Runs a function with enough stack for any statement, on any thread.
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
    /// If the database is open elsewhere or damaged, or the directory holds other files but no database.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_with(path, &Settings::default())
    }

    /// Opens the database in a directory read-only, even while another process has it open for writing. Creates a
    /// single file, which makes the writer keep the files that this reader needs. Closing the database removes that
    /// file.
    ///
    /// # Errors
    /// If there is no database, or it is damaged. Also if another process has it open for writing, and this process has
    /// no permission to create that file.
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_with(path, &Settings { read_only: true, ..Settings::default() })
    }

    /// Opens a database with the given settings. The path `:memory:` opens a new database in memory.
    ///
    /// # Errors
    /// If [`Database::open`] would fail. Also if there is no database and the settings do not create one, or if
    /// `:memory:` is opened read-only.
    pub fn open_with(path: impl AsRef<Path>, settings: &Settings) -> Result<Self, Error> {
        if path.as_ref() == Path::new(":memory:") {
            return Self::in_memory_with(settings);
        }
        let path = path.as_ref();
        Self::from_store(Arc::new(Store::open(path, settings.for_store())?), settings, settings.spill_directory(path))
    }

    /// Opens a database on the given [`Disk`], for example one that simulates failures.
    ///
    /// # Errors
    /// If [`Database::open`] would fail.
    pub fn open_on(disk: Arc<dyn Disk>, settings: &Settings) -> Result<Self, Error> {
        Self::new(Store::open_on(disk, settings.for_store())?, settings)
    }

    /// Advances a read-only database to the last commit. Returns true if there was a newer commit. In all sessions,
    /// statements that begin afterwards read the new state. A transaction that has already run a statement keeps its
    /// snapshot. A database that is open for writing is always at the last commit.
    ///
    /// # Errors
    /// If the database cannot be read, or the path now leads to another one. The state then does not change.
    pub fn refresh(&self) -> Result<bool, Error> {
        Ok(self.store.refresh()? | self.store.refresh_attached()?)
    }

    /// Whether the database is open read-only.
    pub fn is_read_only(&self) -> bool {
        self.store.is_read_only()
    }

    /// Damage found when the database was opened: a damaged end of the log, whose commits are lost, and tables with
    /// missing block files. `None` if there was no damage.
    pub fn recovery_notice(&self) -> Option<String> {
        const MISSING_MAX: usize = 3;
        let recovery = self.store.recovery();
        let mut notices: Vec<String> = recovery.torn_tail.iter().map(ToString::to_string).collect();
        notices.extend(recovery.missing_blocks.iter().take(MISSING_MAX).map(ToString::to_string));
        if let Some(more @ 1..) = recovery.missing_blocks.len().checked_sub(MISSING_MAX) {
            notices.push(format!("{more} more block files are missing"));
        }
        (!notices.is_empty()).then(|| notices.join("; "))
    }

    /// Opens a database like [`Database::open_with`], or returns it if this function has opened it before and this
    /// process still holds it. It is for drivers, whose users connect to one path repeatedly. `:memory:` is a new
    /// database each time. Read-only and writable opens of one path are not shared. Opening a read-only database again
    /// refreshes it.
    ///
    /// # Errors
    /// If [`Database::open`] would fail, or the database is open with other settings. The default settings match any
    /// settings.
    pub fn open_shared(path: impl AsRef<Path>, settings: &Settings) -> Result<Self, Error> {
        let path = path.as_ref();
        if path == Path::new(":memory:") {
            return Self::in_memory_with(settings);
        }
        // Held while the database opens, so that two threads do not open it at the same time.
        let mut shared = SHARED.lock();
        let shared = shared.get_or_insert_default();
        shared.retain(|_, open| open.store.strong_count() > 0);
        // Only an existing path has a canonical form, and only an existing database can be open.
        let open = std::fs::canonicalize(path).ok().and_then(|canonical| shared.get(&(canonical, settings.read_only)));
        let mut settings = settings.clone();
        let database = match open.filter(|open| open.identity == Identity::for_path(path)) {
            Some(open) => match (open.database(), open.store.upgrade()) {
                (Some(database), _) if settings.can_share(&open.settings) => {
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
                    Self::from_store(store, &settings, settings.spill_directory(path))?
                }
                (None, None) => Self::open_with(path, &settings)?,
            },
            None => Self::open_with(path, &settings)?,
        };
        if let Ok(canonical) = std::fs::canonicalize(path) {
            let Self { store, mover, runtime } = &database;
            let (store, mover, runtime) = (Arc::downgrade(store), Arc::downgrade(mover), Arc::downgrade(runtime));
            let identity = Identity::for_path(path);
            shared
                .insert((canonical, settings.read_only), SharedDatabase { store, mover, runtime, settings, identity });
        }
        Ok(database)
    }

    /// Opens a new database in memory. Closing it discards its data.
    ///
    /// # Errors
    /// If the operating system cannot start threads.
    pub fn in_memory() -> Result<Self, Error> {
        Self::in_memory_with(&Settings::default())
    }

    /// Opens a new database in memory with the given settings.
    ///
    /// # Errors
    /// If [`Database::in_memory`] would fail, or the settings are read-only, because such a database would stay empty.
    pub fn in_memory_with(settings: &Settings) -> Result<Self, Error> {
        if settings.read_only {
            return Err(Error::in_memory_read_only());
        }
        Self::new(Store::in_memory()?, settings)
    }

    fn new(store: Store, settings: &Settings) -> Result<Self, Error> {
        Self::from_store(Arc::new(store), settings, SpillDirectory::new(None))
    }

    fn from_store(store: Arc<Store>, settings: &Settings, spills: SpillDirectory) -> Result<Self, Error> {
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
        let mover = Arc::new(Mover::new(&store, engine, settings.mover.clone().limited_to_memory(memory_bytes)));
        Ok(Self { store, mover, runtime: Arc::new(Background(Some(runtime))) })
    }

    /// Starts a session. Sessions of one database run concurrently.
    pub fn session(&self) -> Session {
        Session::new(Arc::clone(&self.store), Arc::clone(&self.mover), Arc::clone(&self.runtime))
    }

    /// Returns a table as a provider for a DataFusion instance that the caller runs.
    ///
    /// # Errors
    /// If there is no table with the name.
    pub fn external_table(&self, name: &str) -> Result<ExternalTable, Error> {
        ExternalTable::new(self.session(), name, self.runtime.handle()?)
    }

    /// Closes the database and waits until its threads have ended. The directory can then be opened again, moved or
    /// removed. Clones, sessions and unfinished [`Rows`](crate::Rows) keep the database open until they are dropped.
    /// Dropping does not wait: a thread that still computes unread rows may keep the directory locked for a moment.
    pub fn close(self) {
        let Self { store, mover, runtime } = self;
        drop((store, mover));
        if let Some(runtime) = Arc::into_inner(runtime) {
            runtime.shut_down();
        }
    }

    /// The storage layer of the database.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }
}

/// Half of the machine's memory in bytes, or 4 GiB if the operating system does not report it.
fn default_memory() -> usize {
    const UNKNOWN: usize = 4 << 30;
    let half = |bytes: u64| usize::try_from(bytes / 2).unwrap_or(usize::MAX);
    taut_store::disk::physical_memory().map_or(UNKNOWN, half)
}
