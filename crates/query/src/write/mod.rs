//! From rows to blocks: conversion to the types of the table, partitioning, building and writing of blocks, and
//! rewriting of existing blocks. `changes` sends the changes of a statement to its transaction or commits them.

pub mod blocks;
pub mod changes;
pub mod coerce;
pub mod commit;
pub mod live;
pub mod partitioner;
pub mod repartition;
pub mod rewrite;
pub mod row_ids;

use datafusion::common::DataFusionError;

/// Wraps an error of the storage crates.
pub(crate) fn external(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
