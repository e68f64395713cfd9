//! Taut: an embedded analytical database in which the physical form of a table is declared, visible and changeable.
//!
//! ```
//! let database = taut::Database::in_memory()?;
//! let session = database.session();
//! session.execute(
//!     "CREATE TABLE point (x int, y int) WITH (layout = 'packed_row', sort_by = 'x');
//!      INSERT INTO point VALUES (2, 20), (1, 10)",
//! )?;
//! let rows: usize = session
//!     .query("SELECT y FROM point WHERE x = 1")?
//!     .map(|batch| batch.map(|batch| batch.num_rows()))
//!     .sum::<Result<usize, taut::Error>>()?;
//! assert_eq!(rows, 1);
//! # Ok::<(), taut::Error>(())
//! ```

mod backup;
mod database;
mod error;
mod external;
pub mod reference;
mod rows;
mod session;
mod waiting;

pub use backup::{
    BackupInfo, BackupLog, BackupOptions, BackupProgress, BackupReport, RestoreOptions, RestoreReport, backups,
    format_time, parse_time, restore,
};
pub use database::{Database, Settings};
pub use error::Error;
pub use external::ExternalTable;
pub use rows::{CancelHandle, Rows, WaitCallback};
pub use session::{LoadOptions, Outcome, Session};
pub use taut_query::with_causes;
pub use taut_query::{
    Batches, CsvWriter, Done, FileFormat, MoverOptions, PUBLIC_SCHEMA, Parameters, Progress, ProgressCallback,
    ReadOptions, Statement, TEMPORARY_SCHEMA, Value, relation_name, relation_sql, split_relation_name, type_name,
    with_written_intervals, write_json_lines,
};
