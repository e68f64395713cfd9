//! Physical operators: table scans, aggregation in scans, inserts, and operators that wrap DataFusion's operators. Also
//! the read set of a statement, which is known once its physical plan is complete.

pub mod batches;
pub mod insert;
pub mod mutation;
pub mod operators;
pub mod reads;
pub mod scan;
