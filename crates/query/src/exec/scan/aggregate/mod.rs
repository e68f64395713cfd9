//! Aggregation inside the scan: on codes, runs and 64-bit numbers instead of decoded rows.
//!
//! ```text
//! AggregateExec(Final)                        unchanged
//!   TautAggregate                             the same groups and partial states as AggregateExec(Partial)
//!     │ takes segments from the WorkQueue, as a scan does
//!     │ keys      row -> group                codes of dictionaries and runs, distances of numbers, or hashed values
//!     │ segment   arguments of each batch     `arithmetic` in 64 bits, codes of text, or DataFusion's
//!     │                                       expressions on arrays
//!     │ states    groups and arguments        `sums`, or DataFusion's own accumulators
//!     DataSourceExec(ScanSource)              columns and conditions of the scan; never opened itself
//! ```
//!
//! The rows in delta pages are aggregated by the operator that this one replaces. Its partial states are returned after
//! the partial states of the blocks.
//!
//! If there are about as many groups as rows, this operator is not used. DataFusion is then faster, because it can stop
//! partial aggregation.

mod arithmetic;
mod deleted;
mod exec;
mod keys;
mod plan;
mod segment;
mod states;
mod stream;
mod sums;

pub use exec::TautAggregateExec;
