//! Rows and blocks on their way into a table: conversion to the types of the table, partitioning, blocks, and rewriting
//! of blocks that are there.

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
