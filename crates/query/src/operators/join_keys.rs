//! The integer keys on the build side of a hash join, which scans of its probe side test.
//!
//! A hash join hands these scans a dynamic filter: bounds of its keys, and a lookup in its hash table. A lookup hashes a
//! key and misses the cache. So the build side of each join also collects its integer keys in a bitmap
//!
//! ```text
//!   keys 3, 4, 9 of a build side       bit  0 1 2 3 4 5 6 7 8 9      of 64 from `base` on
//!                                           0 0 0 1 1 0 0 0 0 1
//! ```
//!
//! and scans look at one bit in place of the lookup. A key of several columns has a bitmap for each of its columns; what
//! passes them is looked up.
//!
//! A bitmap belongs to its join by the identifier of the dynamic filter.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use datafusion::arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::compute::{max, min};
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

/// The widest bitmap, in bits: 128 MiB.
const BITS_MAX: u64 = 1 << 30;

/// Integers, one bit each from the least on.
#[derive(Debug, Default)]
pub struct KeySet {
    /// The integer of the first bit.
    base: i64,
    words: Vec<u64>,
    reserved: Option<MemoryReservation>,
    density: OnceLock<f64>,
}

impl KeySet {
    /// An empty set, whose memory is taken from a pool.
    fn new(pool: &Arc<dyn MemoryPool>) -> Self {
        let reserved = MemoryConsumer::new("HashJoinKeys").register(pool);
        Self { reserved: Some(reserved), ..Self::default() }
    }

    /// The share of the integers between the least and the greatest that the set has; 1 for an empty set. It is counted
    /// when it is first asked for.
    pub fn density(&self) -> f64 {
        *self.density.get_or_init(|| self.counted_density())
    }

    fn counted_density(&self) -> f64 {
        let first = self.words.iter().position(|word| *word != 0);
        let last = self.words.iter().rposition(|word| *word != 0);
        let (Some(first), Some(last)) = (first, last) else { return 1.0 };
        let words = &self.words[first..=last];
        let unused = words[0].trailing_zeros() + words[words.len() - 1].leading_zeros();
        let held: u64 = words.iter().map(|word| u64::from(word.count_ones())).sum();
        held as f64 / (64 * words.len() as u64 - u64::from(unused)) as f64
    }

    /// For each value of an array of integers whether it is in the set; null where the value is. `None` for another type.
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
            // Past either end, the difference is past the last bit.
            let bit = value.wrapping_sub(base) as u64;
            words.get((bit / 64) as usize).is_some_and(|word| word >> (bit % 64) & 1 != 0)
        })
    }

    /// Adds the values of an array. `false` where they are no integers, lie too far apart, or there is no memory for them.
    fn add(&mut self, values: &ArrayRef) -> bool {
        match values.data_type() {
            DataType::Int16 => self.add_integers::<Int16Type>(values),
            DataType::Int32 => self.add_integers::<Int32Type>(values),
            DataType::Int64 => self.add_integers::<Int64Type>(values),
            DataType::Date32 => self.add_integers::<Date32Type>(values),
            _ => false,
        }
    }

    fn add_integers<T>(&mut self, values: &ArrayRef) -> bool
    where
        T: ArrowPrimitiveType<Native: Into<i64>> + datafusion::arrow::datatypes::ArrowNumericType,
    {
        let values = values.as_primitive::<T>();
        let (Some(least), Some(greatest)) = (min(values), max(values)) else { return true };
        if !self.make_room(least.into(), greatest.into()) {
            return false;
        }
        let (words, base) = (&mut self.words, self.base);
        let mut set = |value: T::Native| {
            let bit = value.into().wrapping_sub(base) as u64;
            words[(bit / 64) as usize] |= 1 << (bit % 64);
        };
        match values.null_count() {
            0 => values.values().iter().for_each(|value| set(*value)),
            _ => values.iter().flatten().for_each(set),
        }
        true
    }

    /// Adds what another set has. `false` as for [`KeySet::add`].
    fn unite(&mut self, other: &Self) -> bool {
        let Some(last) = other.words.len().checked_sub(1) else { return true };
        let greatest = i128::from(other.base) + 64 * last as i128 + 63;
        if !self.make_room(other.base, greatest.min(i128::from(i64::MAX)) as i64) {
            return false;
        }
        // Both begin with a multiple of 64.
        let first = (other.base.wrapping_sub(self.base) as u64 / 64) as usize;
        self.words[first..].iter_mut().zip(&other.words).for_each(|(word, other)| *word |= other);
        true
    }

    /// Makes bits for all integers from `least` to `greatest`.
    fn make_room(&mut self, least: i64, greatest: i64) -> bool {
        // The words of both ends, as multiples of 64.
        let (mut first, mut last) = (least.div_euclid(64), greatest.div_euclid(64));
        if !self.words.is_empty() {
            let base = self.base.div_euclid(64);
            let end = base + self.words.len() as i64 - 1;
            if first >= base && last <= end {
                return true;
            }
            // Keys that descend or ascend would have all bits copied for each batch.
            let spare = self.words.len() as i64 / 2;
            first = if first < base { first.saturating_sub(spare).max(i64::MIN.div_euclid(64)) } else { base };
            last = if last > end { last.saturating_add(spare).min(i64::MAX.div_euclid(64)) } else { end };
        }
        let wide = (last.wrapping_sub(first) as u64).saturating_add(1);
        if wide > BITS_MAX / 64 {
            return false;
        }
        // At most 2^24 words.
        let count = wide as usize;
        if let Some(reserved) = &self.reserved
            && reserved.try_resize(8 * count).is_err()
        {
            return false;
        }
        let mut words = vec![0; count];
        if !self.words.is_empty() {
            let at = (self.base.div_euclid(64) - first) as usize;
            words[at..at + self.words.len()].copy_from_slice(&self.words);
        }
        (self.base, self.words) = (first * 64, words);
        true
    }
}

/// The keys of a build side, by the columns of the key; `None` for a column that has no set.
pub type BuildKeys = Vec<Option<Arc<KeySet>>>;

/// The build sides of a statement's joins that have been read to their ends, by the identifiers of the dynamic filters.
#[derive(Debug, Default)]
pub struct JoinKeys(Mutex<HashMap<u64, Arc<BuildKeys>>>);

impl JoinKeys {
    /// The keys of the join that has filled a dynamic filter.
    pub fn of(&self, filter: &dyn PhysicalExpr) -> Option<Arc<BuildKeys>> {
        self.0.lock().get(&filter.expression_id()?).cloned()
    }
}

/// Collects the keys of one join.
#[derive(Debug)]
pub(super) struct Collector {
    filter: u64,
    /// The columns of the build side that make up the key.
    columns: Vec<usize>,
    joins: Arc<JoinKeys>,
    collected: Mutex<Collected>,
}

#[derive(Debug)]
struct Collected {
    /// Partitions that are not read to their end.
    partitions: usize,
    keys: Vec<Option<KeySet>>,
}

impl Collector {
    /// The collector of a join that hands a filter to scans, if its keys are integers.
    ///
    /// # Errors
    /// When the expressions of the probe side cannot be visited.
    pub fn of(join: &HashJoinExec, joins: &Arc<JoinKeys>) -> Result<Option<Arc<Self>>> {
        // Where nulls match, or matter, the filter says more than which keys there are.
        if join.null_equality() != NullEquality::NullEqualsNothing || join.null_aware {
            return Ok(None);
        }
        let filters = join.dynamic_expressions_produced();
        let Some(filter) = filters.iter().find_map(|filter| filter.expression_id()) else { return Ok(None) };
        let columns = join.on().iter().map(|(key, _)| Some(key.downcast_ref::<Column>()?.index()));
        let Some(columns) = columns.collect::<Option<Vec<_>>>() else { return Ok(None) };
        let schema = join.left().schema();
        if !columns.iter().any(|column| is_integer(&schema, *column)) || !uses(join.right(), filter)? {
            return Ok(None);
        }
        let partitions = join.left().output_partitioning().partition_count();
        let collected = Mutex::new(Collected { partitions, keys: Vec::new() });
        Ok(Some(Arc::new(Self { filter, columns, joins: Arc::clone(joins), collected })))
    }

    /// A partition of the build side that collects its keys while it is read.
    pub fn collecting(
        self: &Arc<Self>,
        rows: SendableRecordBatchStream,
        pool: &Arc<dyn MemoryPool>,
    ) -> SendableRecordBatchStream {
        let schema = rows.schema();
        let set = |column: &usize| is_integer(&schema, *column).then(|| KeySet::new(pool));
        let keys = self.columns.iter().map(set).collect();
        Box::pin(Collecting { rows, keys, collector: Arc::clone(self), is_over: false })
    }

    /// Takes the keys of a partition that has been read to its end.
    fn take(&self, keys: Vec<Option<KeySet>>) {
        let mut collected = self.collected.lock();
        let Some(partitions) = collected.partitions.checked_sub(1) else { return };
        collected.partitions = partitions;
        if collected.keys.is_empty() {
            collected.keys = keys;
        } else {
            for (all, keys) in collected.keys.iter_mut().zip(keys) {
                let is_whole = match (all.as_mut(), keys) {
                    (Some(all), Some(keys)) => all.unite(&keys),
                    _ => false,
                };
                if !is_whole {
                    *all = None;
                }
            }
        }
        if partitions == 0 {
            let keys = std::mem::take(&mut collected.keys).into_iter().map(|set| set.map(Arc::new)).collect();
            self.joins.0.lock().insert(self.filter, Arc::new(keys));
        }
    }
}

/// Whether an operator of a plan has an expression of an identifier.
fn uses(plan: &Arc<dyn ExecutionPlan>, expression: u64) -> Result<bool> {
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

struct Collecting {
    rows: SendableRecordBatchStream,
    keys: Vec<Option<KeySet>>,
    collector: Arc<Collector>,
    is_over: bool,
}

impl Stream for Collecting {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.rows.poll_next_unpin(context);
        let Self { keys, collector, is_over, .. } = &mut *self;
        match &next {
            Poll::Ready(Some(Ok(batch))) => {
                for (keys, column) in keys.iter_mut().zip(&collector.columns) {
                    if keys.as_mut().is_some_and(|keys| !keys.add(batch.column(*column))) {
                        *keys = None;
                    }
                }
            }
            Poll::Ready(None) if !*is_over => {
                *is_over = true;
                collector.take(std::mem::take(keys));
            }
            Poll::Ready(_) | Poll::Pending => {}
        }
        next
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.rows.size_hint()
    }
}

impl RecordBatchStream for Collecting {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use datafusion::arrow::array::{Int32Array, Int64Array, StringViewArray};
    use datafusion::execution::memory_pool::UnboundedMemoryPool;

    use super::*;

    fn set() -> KeySet {
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        KeySet::new(&pool)
    }

    fn has(set: &KeySet, values: &[i64]) -> Vec<bool> {
        let values: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
        set.contains(&values).into_iter().flat_map(|found| found.values().iter().collect::<Vec<_>>()).collect()
    }

    #[test]
    fn a_set_has_what_was_added_in_any_order() {
        let batches: [&[i64]; 6] = [&[100, 130], &[-70], &[5000, 4999, 5000], &[-64, -1, 0], &[], &[-3000]];
        for turn in 0..batches.len() {
            let (mut whole, mut halves) = (set(), (set(), set()));
            let mut expected = BTreeSet::new();
            for (place, batch) in batches.iter().cycle().skip(turn).take(batches.len()).enumerate() {
                let array: ArrayRef = Arc::new(Int64Array::from(batch.to_vec()));
                assert!(whole.add(&array));
                assert!(if place < 3 { halves.0.add(&array) } else { halves.1.add(&array) });
                expected.extend(batch.iter().copied());
            }
            assert!(halves.0.unite(&halves.1));
            let asked: Vec<i64> = (-3100..5200).chain([i64::MIN, i64::MAX]).collect();
            for set in [&whole, &halves.0] {
                let found: Vec<bool> = asked.iter().map(|value| expected.contains(value)).collect();
                assert_eq!(has(set, &asked), found);
                let share = expected.len() as f64 / 8001.0;
                assert!((set.density() - share).abs() < 1e-9, "{}", set.density());
            }
        }
    }

    #[test]
    fn the_ends_of_64_bits_have_their_places() {
        for ends in [[i64::MAX - 3, i64::MAX], [i64::MIN, i64::MIN + 3]] {
            let mut set = set();
            for end in ends {
                let array: ArrayRef = Arc::new(Int64Array::from(vec![end]));
                assert!(set.add(&array));
            }
            assert_eq!(has(&set, &[ends[0], ends[0] + 1, ends[1], 0, i64::MIN / 2]), [true, false, true, false, false]);
        }
    }

    #[test]
    fn integers_too_far_apart_and_other_types_have_no_set() {
        let mut wide = set();
        let both: ArrayRef = Arc::new(Int64Array::from(vec![0, 1 << 31]));
        let ends: ArrayRef = Arc::new(Int64Array::from(vec![i64::MIN, i64::MAX]));
        let text: ArrayRef = Arc::new(StringViewArray::from(vec!["a"]));
        assert!(!wide.add(&both) && !wide.add(&ends) && !wide.add(&text));
        assert!(wide.contains(&text).is_none());
    }

    #[test]
    fn nulls_are_not_in_a_set_and_stay_null() {
        let mut set = set();
        let keys: ArrayRef = Arc::new(Int32Array::from(vec![Some(7), None]));
        assert!(set.add(&keys));
        let asked: ArrayRef = Arc::new(Int32Array::from(vec![Some(7), None, Some(0)]));
        let found = set.contains(&asked).map(|found| found.iter().collect::<Vec<_>>());
        assert_eq!(found, Some(vec![Some(true), None, Some(false)]));
    }
}
