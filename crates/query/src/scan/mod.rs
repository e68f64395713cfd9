//! Scanning a table: what is asked of it, who does which part, and what is reported.
//!
//! ```text
//! TautTable ── scan ──> DataSourceExec(ScanSource)        filters, dynamic filters, order, limit, projection
//!                          │ open(partition)
//!                          ▼
//!                       WorkQueue ──> ScanStream          one segment at a time, whoever is free takes the next
//!                                        │ filter, project
//!                                        ▼
//!                                     taut_block::Block   decides how; says what it chose
//! ```

mod aggregate;
mod metrics;
mod order;
mod predicate;
mod source;
mod stream;

pub use aggregate::TautAggregateExec;
pub use predicate::{comparison, key_of, list_test, map_columns, translate};
pub use source::{ScanSource, batch_rows_of, rows_of};
pub use stream::block_error;
