//! SQL on Taut: runs the statements of `taut-sql` with DataFusion's planner and operators, and Taut's own scans, loads
//! and table rewrites on top of the storage crates.
//!
//! ```text
//! session       runs the statements of a user; transactions, the catalog that a statement sees, system tables
//! mover         compaction in the background
//! plan          from a statement to a physical plan: rules, tables as DataFusion sees them, cached plans, files
//! exec          physical operators: scans, aggregation in scans, inserts, operators around DataFusion's own
//! write         from rows to blocks: conversion to column types, partitions, rewriting of blocks
//! constraints   declarations, check conditions, defaults
//! expressions   arithmetic and types of expressions, options of the parser
//! runtime       memory, threads, spill files, progress, cancellation
//! error         errors; the SQLSTATE of each is in sqlstate.rs
//! ```
//!
//! A folder imports only folders below it. `tests/structure.py` checks this.

mod constraints;
mod error;
mod exec;
mod expressions;
mod mover;
mod plan;
mod runtime;
mod session;
mod sqlstate;
mod write;

pub use error::{Dependency, QueryError, Result, Violation, open_state, with_causes};
pub use exec::batches::Batches;
pub use expressions::with_written_intervals;
pub use mover::{Mover, MoverOptions};
pub use plan::engine::Engine;
pub use plan::files::{CsvWriter, ReadOptions, write_json_lines};
pub use runtime::progress::{Progress, ProgressCallback};
pub use runtime::spill::SpillDirectory;
pub use runtime::workers::Workers;
pub use session::{Done, Outcome, QuerySession, STATEMENT_OPTIONS, SystemCatalog, SystemColumn, SystemTable};
pub use taut_sql::{FileFormat, Parameters, Setting, SettingInfo, SqlError, Statement, Value, is_long, type_name};
pub use taut_types::{
    Encoding, PUBLIC_SCHEMA, TEMPORARY_SCHEMA, TableDesign, TableOption, relation_name, relation_sql,
    split_relation_name,
};
