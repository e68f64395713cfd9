//! The memory that queries share, with errors that say what needs it.

use std::fmt::{self, Display, Formatter};

use datafusion::common::DataFusionError;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{
    FairSpillPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation, human_readable_size,
};

/// Memory that all queries of a database share: operators that can write to spill files get equal parts of what the others
/// leave.
#[derive(Debug)]
pub(crate) struct QueryMemory {
    pool: FairSpillPool,
    bytes: usize,
}

impl QueryMemory {
    pub fn new(bytes: usize) -> Self {
        Self { pool: FairSpillPool::new(bytes), bytes }
    }
}

impl Display for QueryMemory {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(&self.pool, formatter)
    }
}

impl MemoryPool for QueryMemory {
    fn name(&self) -> &str {
        self.pool.name()
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.pool.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.pool.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.pool.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, bytes: usize) {
        self.pool.shrink(reservation, bytes);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        // Operators spill on this kind of error, so the kind has to stay.
        self.pool.try_grow(reservation, additional).map_err(|error| match error {
            DataFusionError::ResourcesExhausted(_) => DataFusionError::ResourcesExhausted(format!(
                "out of memory: {} needs {} more than the {} that it has, and queries may use {} together; more is given \
                 when the database is opened (--memory; in Python, memory=)",
                operation(reservation.consumer().name()),
                human_readable_size(additional),
                human_readable_size(reservation.size()),
                human_readable_size(self.bytes),
            )),
            other => other,
        })
    }

    fn reserved(&self) -> usize {
        self.pool.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.pool.memory_limit()
    }
}

/// What an operator does, by the name under which the engine has it ask for memory.
fn operation(consumer: &str) -> &'static str {
    const OPERATIONS: &[(&str, &str)] = &[
        ("HashJoin", "the hash table of a join"),
        ("NestedLoopJoin", "the inner side of a nested loop"),
        ("CrossJoin", "one side of a cross join"),
        ("SMJ", "a merge join"),
        ("PiecewiseMergeJoin", "a merge join"),
        ("SymmetricHashJoin", "the hash table of a join"),
        ("ExternalSorter", "a sort"),
        ("SortPreservingMerge", "the merge of sorted rows"),
        ("TopK", "ORDER BY with LIMIT"),
        ("PartitionedTopK", "the first rows of each group"),
        ("Repartition", "the exchange of rows between threads"),
        ("RecursiveQuery", "WITH RECURSIVE"),
        ("ParquetSink", "the writing of a Parquet file"),
    ];
    let known = OPERATIONS.iter().find(|(name, _)| consumer.starts_with(name));
    match known {
        Some((_, operation)) => operation,
        None if consumer.contains("Aggregate") || consumer.contains("Group") => "an aggregation",
        None => "the statement",
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn errors_name_the_operation_and_no_type_of_the_engine() {
        for (consumer, operation) in [
            ("HashJoinInput[0]", "the hash table of a join"),
            ("FinalHashAggregateStream[1]", "an aggregation"),
            ("ExternalSorterMerge[1]", "a sort"),
            ("Whatever", "the statement"),
        ] {
            let pool: Arc<dyn MemoryPool> = Arc::new(QueryMemory::new(1 << 20));
            let reservation = MemoryConsumer::new(consumer).register(&pool);
            let DataFusionError::ResourcesExhausted(message) = reservation.try_grow(5 << 20).unwrap_err() else {
                panic!("operators spill on another kind of error");
            };
            assert!(message.contains(operation) && message.contains("5.0 MB"), "{message}");
            assert!(!message.contains(consumer), "{message}");
        }
    }
}
