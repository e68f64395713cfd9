//! SQL on Taut: runs the statements of `taut-sql` with DataFusion's planner and operators, and Taut's own scans, loads
//! and table rewrites on top of the storage crates.

mod assign;
mod batches;
mod catalog;
mod changes;
mod conform;
mod constraints;
mod error;
mod files;
mod kept;
mod live;
mod load;
mod memory;
mod mover;
mod mutation;
mod operators;
mod parameters;
mod prepared;
mod progress;
mod reads;
mod repartition;
mod rewrite;
mod rules;
mod scan;
mod session;
mod settings;
mod spill;
mod sqlstate;
mod system_tables;
mod table;
mod workers;

pub use batches::Batches;
pub use error::{QueryError, Result, Violation, with_causes};
pub use files::ReadOptions;
pub use mover::{Mover, MoverOptions};
pub use progress::{Progress, ProgressCallback};
pub use session::{Done, Outcome, QuerySession};
pub use settings::Engine;
pub use spill::SpillDirectory;
pub use taut_sql::{FileFormat, Parameters, SqlError, Statement, Value, is_long, type_name};
pub use workers::Workers;
