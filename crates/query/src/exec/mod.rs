//! Physical operators, and what they share: scans of tables, inserts, and operators around those of DataFusion.

pub mod batches;
pub mod insert;
pub mod mutation;
pub mod operators;
pub mod reads;
pub mod scan;
