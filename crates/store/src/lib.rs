//! The database directory: its catalog, its block files, and the cache of their sections.
//!
//! A [`Store`] is an open database. A reader takes a [`Store::snapshot`], which never changes, and opens blocks of its
//! tables. Blocks that are replaced or dropped meanwhile stay until the snapshot is dropped. A writer writes each block
//! to a new file with [`Store::write_block`], and publishes all of them with one [`Store::commit`]. A commit is atomic,
//! even if the machine stops at any moment.
//!
//! Another process can have the database open read-only at the same time, and see newer commits after
//! [`Store::refresh`].
//!
//! This is the only crate that opens files, and it does so only through [`disk::Disk`].
//!
//! ```
//! use taut_store::{CommitError, Store};
//! use taut_types::{Column, LogicalType, Schema, TableDesign};
//!
//! let store = Store::in_memory().unwrap();
//! let schema = Schema::new(vec![Column::new("id", LogicalType::BigInt, false)]).unwrap();
//! store.commit::<_, CommitError>(|edit| edit.create_table("numbers", schema, TableDesign::default())).unwrap();
//! assert_eq!(store.snapshot().table("numbers").unwrap().rows(), 0);
//! ```

mod attached;
pub mod backup;
mod block_file;
mod cache;
mod catalog;
mod checkpoint;
mod delta;
mod directory;
pub mod disk;
mod document;
mod error;
mod files;
mod find;
mod incomplete;
mod keys;
mod locks;
mod log;
mod open;
mod read_only;
mod readers;
mod refresh;
mod relocations;
mod repair;
mod retention;
mod root;
mod store;
mod temporary;
mod transaction;
mod verify;

pub use attached::{AttachError, AttachedSnapshot};
pub(crate) use block_file::WeakBlockFile;
pub use block_file::{BlockFile, NewBlock, OpenBlock, ReadCounters};
pub use cache::{Cache, CacheStatistics};
pub use catalog::{
    BlockEntry, BlockId, Catalog, CatalogEdit, Check, CommentTarget, Constraints, ForeignKey, Function, Identity,
    IndexColumn, OldRows, OwnedSequence, ReferentialAction, RowOrder, Sequence, SequenceId, SortBounds, Table, TableId,
    TablePartitions, UniqueKey, View,
};
pub use delta::{ContainerId, DeletedRows, Delta, DeltaPage, RowId, RowSet};
pub use error::{CommitError, FileError, LogFailed, OpenError, ReadError, TransactionError, WriteError};
pub use find::KeySearch;
pub use keys::key_hashes;
pub use locks::KeyMode;
pub use open::{MissingBlock, OpenOptions, Recovery, TornLogTail};
pub use relocations::RowRelocations;
pub use repair::{DamagedBlock, DatabaseLoss, RepairError, RepairReport, RepairedTable, TableLoss, repair, repair_on};
pub use store::{Store, Synchronous};
pub use transaction::{SavepointState, Transaction};
pub use verify::{Finding, Problem, verify};
