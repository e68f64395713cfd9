//! Integer keys on the build side of a hash join, for scans of its probe side.
//!
//! A hash join passes a dynamic filter to these scans: the bounds of its keys, and a lookup in its hash table. A lookup
//! hashes the key and often misses the CPU cache. Therefore the build side of a join also collects its integer keys in
//! a bitmap:
//!
//! ```text
//!   keys 3, 4, 9 of a build side       integer  3 4 5 6 7 8 9        the first bit stands for the least key, `base`
//!                                      bit      1 1 0 0 0 0 1
//! ```
//!
//! Scans test one bit instead of a lookup. Keys that are too sparse get no bitmap. A key of several columns has a
//! bitmap for each column; rows that pass all of them are still looked up.
//!
//! The identifier of the dynamic filter connects a bitmap with its join.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};

use datafusion::arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::datatypes::{DataType, Date32Type, Int16Type, Int32Type, Int64Type, Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{NullEquality, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::{Stream, StreamExt};
use parking_lot::Mutex;

/// Maximum number of values in the list that a join passes to the scan of its probe side. Indexes, zone maps and Bloom
/// filters can use such a list. An index never searches for more values than this.
pub const JOIN_VALUES_MAX: usize = 2048;
/// Maximum bits of a bitmap, which then takes 128 MiB.
const BITS_MAX: u64 = 1 << 30;
/// Maximum bits of a bitmap for each key. With more, the bitmap takes more memory than the join's hash table.
const BITS_PER_KEY: u64 = 256;

/// Set of integers, as a bitmap that begins with the smallest one.
#[derive(Debug, Default)]
pub struct KeySet {
    /// The integer of the first bit.
    base: i64,
    words: Vec<u64>,
    /// Share of the integers between the least and the greatest that are in the set.
    density: f64,
    _reservation: Option<MemoryReservation>,
}

impl KeySet {
    /// Builds a set of the integers in `keys`, with memory from a pool. Returns `None` if they are too sparse or the
    /// pool has no memory left.
    fn build(keys: &[Vec<i64>], pool: &Arc<dyn MemoryPool>) -> Option<Self> {
        let all = || keys.iter().flatten().copied();
        let (least, greatest) = (all().min()?, all().max()?);
        let count: usize = keys.iter().map(Vec::len).sum();
        let range = u64::try_from(i128::from(greatest) - i128::from(least)).ok()?;
        if range >= BITS_MAX.min(BITS_PER_KEY.saturating_mul(count as u64)) {
            return None;
        }
        let words = (range / 64 + 1) as usize;
        let reservation = MemoryConsumer::new("HashJoinKeys").register(pool);
        reservation.try_grow(8 * words).ok()?;
        let mut words = vec![0_u64; words];
        for key in all() {
            let bit = key.wrapping_sub(least) as u64;
            words[(bit / 64) as usize] |= 1 << (bit % 64);
        }
        let set_bits: u64 = words.iter().map(|word| u64::from(word.count_ones())).sum();
        Some(Self {
            base: least,
            words,
            density: set_bits as f64 / (range + 1) as f64,
            _reservation: Some(reservation),
        })
    }

    /// Share of the integers between the least and the greatest that are in the set.
    pub fn density(&self) -> f64 {
        self.density
    }

    /// Returns for each value of an array of integers whether it is in the set, and null for null. Returns `None` for
    /// other types.
    pub fn contains(&self, values: &ArrayRef) -> Option<BooleanArray> {
        let found = match values.data_type() {
            DataType::Int16 => self.find::<Int16Type>(values),
            DataType::Int32 => self.find::<Int32Type>(values),
            DataType::Int64 => self.find::<Int64Type>(values),
            DataType::Date32 => self.find::<Date32Type>(values),
            _ => return None,
        };
        Some(BooleanArray::new(found, values.nulls().cloned()))
    }

    fn find<T: ArrowPrimitiveType<Native: Into<i64>>>(&self, values: &ArrayRef) -> BooleanBuffer {
        let (values, words, base) = (values.as_primitive::<T>().values(), self.words.as_slice(), self.base);
        BooleanBuffer::collect_bool(values.len(), |row| {
            let value: i64 = values[row].into();
            // For a value below `base`, the difference wraps around and is beyond the last bit.
            let bit = value.wrapping_sub(base) as u64;
            words.get((bit / 64) as usize).is_some_and(|word| word >> (bit % 64) & 1 != 0)
        })
    }
}

/// Appends the values of an array of integers that are not null. Returns false for other types.
fn add_integers(values: &ArrayRef, keys: &mut Vec<i64>) -> bool {
    fn add<T: ArrowPrimitiveType<Native: Into<i64>>>(values: &ArrayRef, keys: &mut Vec<i64>) {
        let values = values.as_primitive::<T>();
        match values.null_count() {
            0 => keys.extend(values.values().iter().map(|value| (*value).into())),
            _ => keys.extend(values.iter().flatten().map(Into::<i64>::into)),
        }
    }
    match values.data_type() {
        DataType::Int16 => add::<Int16Type>(values, keys),
        DataType::Int32 => add::<Int32Type>(values, keys),
        DataType::Int64 => add::<Int64Type>(values, keys),
        DataType::Date32 => add::<Date32Type>(values, keys),
        _ => return false,
    }
    true
}

/// Keys of a build side, one entry per column of the key. `None` for a column without a bitmap.
pub type BuildKeys = Vec<Option<Arc<KeySet>>>;

/// Keys of the hash joins of a statement, by the identifier of the join's dynamic filter. A join is added when its
/// build side has been read completely. Its keys are dropped when all rows of the join are read.
#[derive(Debug, Default)]
pub struct JoinKeys(Mutex<HashMap<u64, Weak<BuildKeys>>>);

impl JoinKeys {
    /// Returns the keys of the join that filled a dynamic filter. Returns `None` if the build side is not read
    /// completely, or if no rows of the join are read any more.
    pub fn get(&self, filter: &dyn PhysicalExpr) -> Option<Arc<BuildKeys>> {
        self.0.lock().get(&filter.expression_id()?)?.upgrade()
    }
}

/// Collects and holds the keys of one join.
#[derive(Debug)]
pub(super) struct KeyCollector {
    filter: u64,
    /// Indexes of the build side's columns that make up the key.
    columns: Vec<usize>,
    join_keys: Arc<JoinKeys>,
    collected: Mutex<CollectedKeys>,
    keys: OnceLock<Arc<BuildKeys>>,
}

#[derive(Debug)]
struct CollectedKeys {
    /// Partitions that are not yet read completely.
    partitions: usize,
    /// Integers of each partition, one entry per column of the key. `None` for a column without a bitmap.
    keys: Vec<Option<Vec<Vec<i64>>>>,
    reservations: Vec<MemoryReservation>,
}

/// Keys of one partition of a build side.
struct PartitionKeys {
    keys: Vec<Option<Vec<i64>>>,
    reservation: MemoryReservation,
}

impl PartitionKeys {
    fn add(&mut self, batch: &RecordBatch, columns: &[usize]) {
        for (keys, column) in self.keys.iter_mut().zip(columns) {
            let is_collected = keys.as_mut().is_some_and(|keys| {
                let is_reserved = self.reservation.try_grow(8 * batch.num_rows()).is_ok();
                is_reserved && add_integers(batch.column(*column), keys)
            });
            if !is_collected {
                *keys = None;
            }
        }
    }
}

impl KeyCollector {
    /// Returns the collector of a join if a scan uses the join's dynamic filter and its keys are integers.
    ///
    /// # Errors
    /// If the expressions of the probe side cannot be visited.
    pub fn for_join(join: &HashJoinExec, join_keys: &Arc<JoinKeys>) -> Result<Option<Arc<Self>>> {
        // If null equals null, or if a null changes the join's result, a set without nulls does not decide which rows
        // match.
        if join.null_equality() != NullEquality::NullEqualsNothing || join.null_aware {
            return Ok(None);
        }
        let filters = join.dynamic_expressions_produced();
        let Some(filter) = filters.iter().find_map(|filter| filter.expression_id()) else { return Ok(None) };
        let columns = join.on().iter().map(|(key, _)| Some(key.downcast_ref::<Column>()?.index()));
        let Some(columns) = columns.collect::<Option<Vec<_>>>() else { return Ok(None) };
        let schema = join.left().schema();
        if !columns.iter().any(|column| is_integer(&schema, *column)) || !has_expression(join.right(), filter)? {
            return Ok(None);
        }
        let partitions = join.left().output_partitioning().partition_count();
        let keys = columns.iter().map(|column| is_integer(&schema, *column).then(Vec::new)).collect();
        let collected = Mutex::new(CollectedKeys { partitions, keys, reservations: Vec::new() });
        Ok(Some(Arc::new(Self { filter, columns, join_keys: Arc::clone(join_keys), collected, keys: OnceLock::new() })))
    }

    /// Wraps a partition of the build side to collect its keys while it is read.
    pub fn collect_from(
        self: &Arc<Self>,
        rows: SendableRecordBatchStream,
        pool: &Arc<dyn MemoryPool>,
    ) -> SendableRecordBatchStream {
        let reservation = MemoryConsumer::new("HashJoinKeys").register(pool);
        let schema = rows.schema();
        let keys = self.columns.iter().map(|column| is_integer(&schema, *column).then(Vec::new)).collect();
        let keys = Some(PartitionKeys { keys, reservation });
        Box::pin(KeyCollectingStream { rows, keys, collector: Arc::clone(self), pool: Arc::clone(pool) })
    }

    /// Adds the keys of a partition that has been read completely.
    fn finish_partition(&self, partition: PartitionKeys, pool: &Arc<dyn MemoryPool>) {
        let mut collected = self.collected.lock();
        let Some(partitions) = collected.partitions.checked_sub(1) else { return };
        collected.partitions = partitions;
        for (all, keys) in collected.keys.iter_mut().zip(partition.keys) {
            match (all.as_mut(), keys) {
                (Some(all), Some(keys)) => all.push(keys),
                _ => *all = None,
            }
        }
        collected.reservations.push(partition.reservation);
        if partitions > 0 {
            return;
        }
        let columns = std::mem::take(&mut collected.keys);
        let set = |keys: Option<Vec<Vec<i64>>>| {
            // With fewer keys, the dynamic filter of the join is a list of them.
            let keys = keys.filter(|keys| keys.iter().map(Vec::len).sum::<usize>() > JOIN_VALUES_MAX)?;
            KeySet::build(&keys, pool).map(Arc::new)
        };
        let keys = self.keys.get_or_init(|| Arc::new(columns.into_iter().map(set).collect()));
        collected.reservations.clear();
        self.join_keys.0.lock().insert(self.filter, Arc::downgrade(keys));
    }
}

/// Whether an operator of a plan has an expression with this identifier.
fn has_expression(plan: &Arc<dyn ExecutionPlan>, expression: u64) -> Result<bool> {
    plan.exists(|node| {
        let mut is_used = false;
        node.apply_expressions(&mut |root| {
            is_used |= root.exists(|part| Ok(part.expression_id() == Some(expression)))?;
            Ok(if is_used { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        Ok(is_used)
    })
}

fn is_integer(schema: &Schema, column: usize) -> bool {
    matches!(schema.field(column).data_type(), DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::Date32)
}

struct KeyCollectingStream {
    rows: SendableRecordBatchStream,
    /// Collected keys. `None` after the last row.
    keys: Option<PartitionKeys>,
    collector: Arc<KeyCollector>,
    pool: Arc<dyn MemoryPool>,
}

impl Stream for KeyCollectingStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.rows.poll_next_unpin(context);
        let Self { keys, collector, pool, .. } = &mut *self;
        match &next {
            Poll::Ready(Some(Ok(batch))) => {
                if let Some(keys) = keys {
                    keys.add(batch, &collector.columns);
                }
            }
            Poll::Ready(None) => {
                if let Some(keys) = keys.take() {
                    collector.finish_partition(keys, pool);
                }
            }
            Poll::Ready(Some(Err(_))) | Poll::Pending => {}
        }
        next
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.rows.size_hint()
    }
}

impl RecordBatchStream for KeyCollectingStream {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use datafusion::arrow::array::{Int32Array, Int64Array, StringViewArray};
    use datafusion::execution::memory_pool::{GreedyMemoryPool, UnboundedMemoryPool};

    use super::*;

    fn set(keys: &[Vec<i64>]) -> Option<KeySet> {
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        KeySet::build(keys, &pool)
    }

    fn contains_each(set: &KeySet, values: &[i64]) -> Vec<bool> {
        let values: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
        set.contains(&values).into_iter().flat_map(|found| found.values().iter().collect::<Vec<_>>()).collect()
    }

    #[test]
    fn a_set_has_its_keys_and_no_others() {
        let keys: Vec<Vec<i64>> =
            vec![vec![100, 130, -70], vec![], (400..440).collect(), vec![-64, -1, 0, 100, 63, 64]];
        let set = set(&keys).unwrap_or_default();
        let expected: BTreeSet<i64> = keys.iter().flatten().copied().collect();
        let asked: Vec<i64> = (-300..700).chain([i64::MIN, i64::MAX]).collect();
        assert_eq!(contains_each(&set, &asked), asked.iter().map(|value| expected.contains(value)).collect::<Vec<_>>());
        // There are 510 integers from -70 to 439.
        assert!((set.density() - expected.len() as f64 / 510.0).abs() < 1e-9, "{}", set.density());
    }

    #[test]
    fn least_and_greatest_integers_are_found() {
        for ends in [[i64::MAX - 3, i64::MAX], [i64::MIN, i64::MIN + 3]] {
            let set = set(&[ends.to_vec()]).unwrap_or_default();
            assert_eq!(
                contains_each(&set, &[ends[0], ends[0] + 1, ends[1], 0, i64::MIN / 2]),
                [true, false, true, false, false]
            );
        }
    }

    #[test]
    fn sparse_keys_get_no_bitmap() {
        assert!(set(&[vec![i64::MIN, i64::MAX]]).is_none());
        // A bitmap of two keys has at most 512 bits.
        assert!(set(&[vec![0, 512]]).is_none() && set(&[vec![0, 511]]).is_some());
        assert!(set(&[]).is_none() && set(&[vec![]]).is_none());
        // The smallest bitmap takes 8 bytes.
        let little: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(7));
        assert!(KeySet::build(&[vec![1, 2]], &little).is_none());
    }

    #[test]
    fn nulls_and_other_types_are_not_collected() {
        let mut keys = vec![];
        assert!(add_integers(&(Arc::new(Int32Array::from(vec![Some(7), None])) as ArrayRef), &mut keys));
        assert!(!add_integers(&(Arc::new(StringViewArray::from(vec!["a"])) as ArrayRef), &mut keys));
        assert_eq!(keys, [7]);
        let set = set(&[keys]).unwrap_or_default();
        let asked: ArrayRef = Arc::new(Int32Array::from(vec![Some(7), None, Some(0)]));
        let found = set.contains(&asked).map(|found| found.iter().collect::<Vec<_>>());
        assert_eq!(found, Some(vec![Some(true), None, Some(false)]));
    }
}
