//! Memory pool that all queries share, with errors that name the operation that ran out of memory.

use std::fmt::{self, Display, Formatter};

use datafusion::common::DataFusionError;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation, human_readable_size,
};
use parking_lot::Mutex;

/// Bytes that other operators leave to each operator that can spill: some batches.
const SPILLING_BYTES_MIN: usize = 4 << 20;

/// Share of the memory, in sixteenths, that operators that can spill and the merges of sorts may use together.
const SORTS_AND_MERGES_SHARE: usize = 13;

/// Name under which DataFusion registers the merge of a sort's batches or runs.
const MERGE_OF_SORT: &str = "ExternalSorterMerge";

/// Memory pool of a database.
///
/// Operators that can spill share three quarters of the memory equally, or what the other operators leave if that is
/// less. The last quarter is reserved for operators that cannot spill, such as the merge of sorted runs. Without it,
/// operators that use all memory before they spill would leave nothing for the merge.
///
/// Operators that cannot spill leave [`SPILLING_BYTES_MIN`] to each running operator that can spill, together at most
/// an eighth of the memory. Without it, the merge of one partition could take all memory while another partition is
/// still sorting, and a sort needs at least one batch. If they left much more, merges would have to read their runs in
/// several passes.
///
/// A sort that spills merges its batches and collects the merged rows. The batches move from the sort to its merge, so
/// they no longer count against the share of the sort. Operators that can spill therefore stop growing beyond
/// [`SPILLING_BYTES_MIN`] when they and the merges of sorts hold [`SORTS_AND_MERGES_SHARE`] sixteenths of what the
/// other operators leave. Without this limit, the sort of one thread could take memory that the merge of another thread
/// needs next.
#[derive(Debug)]
pub(crate) struct QueryMemory {
    bytes: usize,
    state: Mutex<PoolState>,
}

#[derive(Debug, Default)]
struct PoolState {
    /// Number of operators that can spill.
    spilling_operators: usize,
    /// Bytes held by operators that can spill.
    spillable_bytes: usize,
    /// Bytes held by the merges of sorts, which cannot spill.
    merge_bytes: usize,
    /// Bytes held by other operators that cannot spill.
    unspillable_bytes: usize,
}

impl PoolState {
    fn held_bytes(&mut self, reservation: &MemoryReservation) -> &mut usize {
        match reservation.consumer() {
            consumer if consumer.can_spill() => &mut self.spillable_bytes,
            consumer if consumer.name().starts_with(MERGE_OF_SORT) => &mut self.merge_bytes,
            _ => &mut self.unspillable_bytes,
        }
    }
}

impl QueryMemory {
    pub fn new(bytes: usize) -> Self {
        Self { bytes, state: Mutex::default() }
    }
}

impl Display for QueryMemory {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}(pool_size: {})", self.name(), human_readable_size(self.bytes))
    }
}

impl MemoryPool for QueryMemory {
    fn name(&self) -> &str {
        "taut"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.state.lock().spilling_operators += usize::from(consumer.can_spill());
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.state.lock().spilling_operators -= usize::from(consumer.can_spill());
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        *self.state.lock().held_bytes(reservation) += additional;
    }

    fn shrink(&self, reservation: &MemoryReservation, bytes: usize) {
        *self.state.lock().held_bytes(reservation) -= bytes;
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let mut state = self.state.lock();
        let reserved = (self.bytes / 8).min(state.spilling_operators * SPILLING_BYTES_MIN);
        let held = state.merge_bytes + state.unspillable_bytes;
        let fits = match reservation.consumer().can_spill() {
            true => {
                let operators = state.spilling_operators.max(1);
                let shared = (self.bytes / 4 * 3).min(self.bytes.saturating_sub(held));
                let left = self.bytes.saturating_sub(state.unspillable_bytes) / 16 * SORTS_AND_MERGES_SHARE;
                let size = reservation.size() + additional;
                size <= shared / operators
                    && (size <= reserved / operators || state.spillable_bytes + state.merge_bytes + additional <= left)
            }
            false => held + additional + reserved.max(state.spillable_bytes) <= self.bytes,
        };
        if fits {
            *state.held_bytes(reservation) += additional;
            return Ok(());
        }
        drop(state);
        // Operators spill only if the error has this type.
        Err(DataFusionError::ResourcesExhausted(format!(
            "out of memory: {} needs {} more than the {} that it has, and queries may use {} together; more is given when \
             the database is opened (--memory; in Python, memory=)",
            describe_operator(reservation.consumer().name()),
            human_readable_size(additional),
            human_readable_size(reservation.size()),
            human_readable_size(self.bytes),
        )))
    }

    fn reserved(&self) -> usize {
        let state = self.state.lock();
        state.spillable_bytes + state.merge_bytes + state.unspillable_bytes
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.bytes)
    }
}

/// Describes an operator, from the name under which DataFusion registers it with the memory pool.
fn describe_operator(consumer: &str) -> &'static str {
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
        (super::shared_rows::MATERIALIZED_ROWS, "the rows of a WITH query"),
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

    /// A sort is registered, so the merge must leave it an eighth of the memory, 8 KiB, until the sort is dropped.
    #[test]
    fn merges_leave_memory_to_operators_that_sort() {
        let pool: Arc<dyn MemoryPool> = Arc::new(QueryMemory::new(64 << 10));
        let merge = MemoryConsumer::new("ExternalSorterMerge[0]").register(&pool);
        let sort = MemoryConsumer::new("ExternalSorter[1]").with_can_spill(true).register(&pool);
        merge.try_grow(64 << 10).unwrap_err();
        merge.try_grow(56 << 10).unwrap();
        sort.try_grow(8 << 10).unwrap();
        merge.try_grow(1).unwrap_err();
        sort.free();
        merge.try_grow(1).unwrap_err();
        drop(sort);
        merge.try_grow(8 << 10).unwrap();
        assert_eq!(pool.reserved(), 64 << 10);
    }

    /// Two sorts and a merge may hold 13 sixteenths of the 64 KiB together: 52 KiB. Beyond that, a sort gets only its
    /// half of the eighth that merges leave: 4 KiB.
    #[test]
    fn sorts_leave_memory_to_merges_of_other_sorts() {
        let pool: Arc<dyn MemoryPool> = Arc::new(QueryMemory::new(64 << 10));
        let merge = MemoryConsumer::new("ExternalSorterMerge[0]").register(&pool);
        let sorts = [0, 1].map(|partition| {
            MemoryConsumer::new(format!("ExternalSorter[{partition}]")).with_can_spill(true).register(&pool)
        });
        merge.try_grow(24 << 10).unwrap();
        sorts[0].try_grow(18 << 10).unwrap();
        // 10 KiB are left of the 52 KiB.
        sorts[1].try_grow(11 << 10).unwrap_err();
        sorts[1].try_grow(10 << 10).unwrap();
        sorts[1].free();
        // The merge and the first sort now hold 58 KiB.
        merge.try_grow(16 << 10).unwrap();
        sorts[1].try_grow(5 << 10).unwrap_err();
        sorts[1].try_grow(4 << 10).unwrap();
        sorts[1].free();
        let other = MemoryConsumer::new("HashJoinInput[0]").register(&pool);
        merge.free();
        sorts[0].free();
        // The sorts share equally the 32 KiB that a join leaves.
        other.try_grow(32 << 10).unwrap();
        sorts[0].try_grow(17 << 10).unwrap_err();
        sorts[0].try_grow(16 << 10).unwrap();
    }

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
                panic!("operators would not spill on this error");
            };
            assert!(message.contains(operation) && message.contains("5.0 MB"), "{message}");
            assert!(!message.contains(consumer), "{message}");
        }
    }
}
