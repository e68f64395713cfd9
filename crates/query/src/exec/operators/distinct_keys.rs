//! Drops duplicate keys from the inner side of a semi, anti or mark join: the side that the join does not return.
//!
//! Such a join only needs to know whether a key occurs, but DataFusion's hash join visits every pair of rows with equal
//! keys. With ten distinct keys, 200,000 rows on each side make 4 billion pairs. Without the duplicates of one side,
//! there is at most one pair for each row of the other side. If the join has a condition on pairs of rows, the columns
//! that the condition reads belong to the key. The key of a nested loop join consists only of such columns.
//!
//! A set of bounded size holds the keys that were seen. A full set is emptied, so a key may pass again. If few rows of
//! a sample are duplicates, the next batches pass unchecked.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::array::{ArrayRef, BooleanArray};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::{JoinSide, JoinType, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec};
use futures::{Stream, StreamExt};

/// Number of keys in the set at which it is emptied.
const KEYS_MAX: usize = 1 << 17;
/// Size of the set in bytes at which it is emptied.
const SET_BYTES_MAX: usize = 8 << 20;
/// Rows of a sample.
const SAMPLE_ROWS: usize = 1 << 14;
/// If a sample has less than one duplicate in this many rows, the next batches pass unchecked.
const ROWS_PER_DUPLICATE: usize = 8;
/// Number of batches that pass unchecked after the first sample with few duplicates. It doubles with each such sample,
/// up to [`UNCHECKED_MAX`]. A sample with more duplicates resets it.
const UNCHECKED_MIN: usize = 64;
const UNCHECKED_MAX: usize = 1_024;

/// The key expressions on the inner side of a join.
#[derive(Debug)]
pub(super) struct DistinctKeys {
    expressions: Vec<Arc<dyn PhysicalExpr>>,
    /// One column for each expression.
    schema: SchemaRef,
}

impl DistinctKeys {
    /// Returns the inner side of a semi, anti or mark join, and the keys of that side. Returns `None` for other joins,
    /// for volatile conditions, and for types whose equality in joins and in groups may differ.
    pub fn from_join(plan: &Arc<dyn ExecutionPlan>) -> Option<(JoinSide, Arc<Self>)> {
        if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
            let side = inner_side(*join.join_type())?;
            let (input, keys) = match side {
                JoinSide::Left => (join.left(), join.on().iter().map(|(left, _)| Arc::clone(left)).collect()),
                _ => (join.right(), join.on().iter().map(|(_, right)| Arc::clone(right)).collect()),
            };
            return Some((side, Self::for_side(&input.schema(), keys, join.filter(), side)?));
        }
        let join = plan.downcast_ref::<NestedLoopJoinExec>()?;
        let side = inner_side(*join.join_type())?;
        let input = if side == JoinSide::Left { join.left() } else { join.right() };
        Some((side, Self::for_side(&input.schema(), Vec::new(), join.filter(), side)?))
    }

    fn for_side(
        schema: &SchemaRef,
        mut keys: Vec<Arc<dyn PhysicalExpr>>,
        filter: Option<&JoinFilter>,
        side: JoinSide,
    ) -> Option<Arc<Self>> {
        if let Some(filter) = filter {
            if is_volatile(filter.expression()) {
                return None;
            }
            let columns = filter.column_indices().iter().filter(|column| column.side == side);
            keys.extend(columns.map(|column| column_at(schema, column.index)));
        }
        let fields = keys.iter().map(|key| {
            let data_type = key.data_type(schema).ok().filter(is_exact)?;
            Some(Field::new("key", data_type, true))
        });
        let schema = Arc::new(Schema::new(fields.collect::<Option<Vec<_>>>()?));
        (!keys.is_empty()).then(|| Arc::new(Self { expressions: keys, schema }))
    }

    /// Drops most duplicates from the rows of one partition of the inner side.
    pub fn drop_duplicates(
        self: &Arc<Self>,
        rows: SendableRecordBatchStream,
        pool: &Arc<dyn MemoryPool>,
    ) -> SendableRecordBatchStream {
        let reservation = MemoryConsumer::new("DistinctJoinKeys").register(pool);
        Box::pin(DistinctStream {
            rows,
            filter: DuplicateFilter {
                keys: Arc::clone(self),
                seen: None,
                groups: Vec::new(),
                sample: Sample::default(),
                unchecked_left: 0,
                unchecked_next: UNCHECKED_MIN,
                reservation,
            },
        })
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        self.expressions.iter().map(|key| key.evaluate(batch)?.into_array(batch.num_rows())).collect()
    }
}

fn column_at(schema: &Schema, index: usize) -> Arc<dyn PhysicalExpr> {
    Arc::new(Column::new(schema.field(index).name(), index))
}

/// Returns the inner side of a join, or `None` if the join returns rows of both sides.
fn inner_side(join_type: JoinType) -> Option<JoinSide> {
    match join_type {
        JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => Some(JoinSide::Right),
        JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => Some(JoinSide::Left),
        JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => None,
    }
}

/// Whether a join and a set of groups agree on which values of a type are equal. They may disagree about floating-point
/// numbers, because 0 equals -0.
fn is_exact(data_type: &DataType) -> bool {
    data_type.is_integer()
        || data_type.is_temporal()
        || data_type.is_decimal()
        || matches!(
            data_type,
            DataType::Boolean
                | DataType::Utf8
                | DataType::LargeUtf8
                | DataType::Utf8View
                | DataType::Binary
                | DataType::LargeBinary
                | DataType::BinaryView
        )
}

#[derive(Default)]
struct Sample {
    rows: usize,
    duplicates: usize,
}

/// Drops the rows of a partition whose key is already in the set.
struct DuplicateFilter {
    keys: Arc<DistinctKeys>,
    seen: Option<Box<dyn GroupValues>>,
    /// For each row of a batch, the index of its key in `seen`.
    groups: Vec<usize>,
    sample: Sample,
    /// Number of batches that pass unchecked from now on.
    unchecked_left: usize,
    /// Number of batches that pass unchecked after the next sample with few duplicates.
    unchecked_next: usize,
    reservation: MemoryReservation,
}

impl DuplicateFilter {
    fn apply(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        if self.unchecked_left > 0 {
            self.unchecked_left -= 1;
            return Ok(batch);
        }
        let keys = self.keys.evaluate(&batch)?;
        let seen = match &mut self.seen {
            Some(seen) => seen,
            None => self.seen.insert(new_group_values(Arc::clone(&self.keys.schema), &GroupOrdering::None)?),
        };
        let known_count = seen.len();
        seen.intern(&keys, &mut self.groups)?;
        let (new, bytes) = (seen.len() - known_count, seen.size());
        self.sample.rows += batch.num_rows();
        self.sample.duplicates += batch.num_rows() - new;
        // New keys have the indexes from `known_count` on, in any order.
        let mut is_found = vec![false; new];
        let is_first = |group: &usize| {
            let found = group.checked_sub(known_count).and_then(|number| is_found.get_mut(number));
            found.is_some_and(|found| !std::mem::replace(found, true))
        };
        let batch = match new == batch.num_rows() {
            true => batch,
            false => {
                let is_first: BooleanBuffer = self.groups.iter().map(is_first).collect();
                filter_record_batch(&batch, &BooleanArray::new(is_first, None))?
            }
        };
        if self.reservation.try_resize(bytes).is_err() || known_count + new >= KEYS_MAX || bytes >= SET_BYTES_MAX {
            self.clear_set();
        }
        if self.sample.rows >= SAMPLE_ROWS {
            let sample = std::mem::take(&mut self.sample);
            if sample.duplicates < sample.rows / ROWS_PER_DUPLICATE {
                self.clear_set();
                self.unchecked_left = self.unchecked_next;
                self.unchecked_next = (2 * self.unchecked_next).min(UNCHECKED_MAX);
            } else {
                self.unchecked_next = UNCHECKED_MIN;
            }
        }
        Ok(batch)
    }

    fn clear_set(&mut self) {
        self.seen = None;
        self.reservation.free();
    }
}

struct DistinctStream {
    rows: SendableRecordBatchStream,
    filter: DuplicateFilter,
}

impl Stream for DistinctStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let Some(batch) = ready!(self.rows.poll_next_unpin(context)) else { return Poll::Ready(None) };
            match batch.and_then(|batch| self.filter.apply(batch)) {
                Ok(batch) if batch.num_rows() == 0 => {}
                other => return Poll::Ready(Some(other)),
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, self.rows.size_hint().1)
    }
}

impl RecordBatchStream for DistinctStream {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use datafusion::arrow::array::{AsArray, Int64Array, StringViewArray};
    use datafusion::arrow::datatypes::Int64Type;
    use datafusion::execution::memory_pool::{GreedyMemoryPool, UnboundedMemoryPool};
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
    use futures::TryStreamExt;
    use futures::executor::block_on;

    use super::*;

    fn distinct(arrays: Vec<ArrayRef>, pool: Arc<dyn MemoryPool>) -> Vec<RecordBatch> {
        let schema = Arc::new(Schema::new(vec![Field::new("k", arrays[0].data_type().clone(), true)]));
        let batches: Vec<_> = arrays
            .into_iter()
            .map(|array| Ok(RecordBatch::try_new(Arc::clone(&schema), vec![array]).unwrap()))
            .collect();
        let rows = RecordBatchStreamAdapter::new(Arc::clone(&schema), futures::stream::iter(batches));
        let keys = DistinctKeys { expressions: vec![Arc::new(Column::new("k", 0))], schema };
        block_on(Arc::new(keys).drop_duplicates(Box::pin(rows), &pool).try_collect()).unwrap()
    }

    fn integers(batches: &[RecordBatch]) -> Vec<Option<i64>> {
        batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().iter()).collect()
    }

    fn unbounded() -> Arc<dyn MemoryPool> {
        Arc::new(UnboundedMemoryPool::default())
    }

    #[test]
    fn each_key_passes_once_and_so_does_null() {
        let first: ArrayRef = Arc::new(Int64Array::from(vec![Some(3), None, Some(3), Some(1), None]));
        let second: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), Some(3), None]));
        let third: ArrayRef = Arc::new(Int64Array::from(vec![Some(2), Some(1)]));
        let batches = distinct(vec![first, second, third], unbounded());
        assert_eq!(integers(&batches), [Some(3), None, Some(1), Some(2)]);
        assert_eq!(batches.len(), 2, "no empty batch");
        let texts: ArrayRef = Arc::new(StringViewArray::from(vec!["a", "a text of more than twelve bytes", "a"]));
        let batches = distinct(vec![Arc::clone(&texts), texts], unbounded());
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 2);
    }

    #[test]
    fn keys_of_several_columns_whose_hashes_are_equal_all_pass() {
        let schema = Arc::new(Schema::new(vec![
            Field::new("a", DataType::Int64, true),
            Field::new("b", DataType::Int64, true),
            Field::new("c", DataType::Int64, true),
        ]));
        let column = |values: [Option<i64>; 5]| Arc::new(Int64Array::from(values.to_vec())) as ArrayRef;
        // A null does not change the hash of a row, so the first two rows collide.
        let columns = vec![
            column([Some(1), Some(1), Some(2), Some(2), Some(1)]),
            column([Some(5), None, Some(2), Some(2), None]),
            column([None, Some(5), Some(2), Some(2), Some(5)]),
        ];
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
        let keys = ["a", "b", "c"].iter().enumerate().map(|(index, name)| Arc::new(Column::new(name, index)) as _);
        let keys = Arc::new(DistinctKeys { expressions: keys.collect(), schema: Arc::clone(&schema) });
        let rows = RecordBatchStreamAdapter::new(schema, futures::stream::iter([Ok(batch)]));
        let found: Vec<_> = block_on(keys.drop_duplicates(Box::pin(rows), &unbounded()).try_collect()).unwrap();
        let found = found.iter().map(|batch: &RecordBatch| batch.num_rows()).collect::<Vec<_>>();
        assert_eq!(found, [3]);
    }

    #[test]
    fn no_key_is_lost_when_the_set_is_full_or_memory_is_short() {
        // Each key is in two neighbouring rows.
        let distinct_keys = 3 * KEYS_MAX as i64;
        let batches = |from: i64| {
            let batch = |start: i64| Arc::new(Int64Array::from_iter_values((start..start + 8_192).map(|k| k / 2))) as _;
            (from..2 * distinct_keys).step_by(8_192).map(batch).collect::<Vec<ArrayRef>>()
        };
        for pool in [unbounded(), Arc::new(GreedyMemoryPool::new(1_000)) as _] {
            let mut found: Vec<_> = integers(&distinct(batches(0), pool)).into_iter().flatten().collect();
            // At least half of the duplicates are dropped.
            assert!(found.len() <= distinct_keys as usize * 3 / 2, "{}", found.len());
            found.dedup();
            assert_eq!(found, (0..distinct_keys).collect::<Vec<_>>());
        }
    }

    #[test]
    fn keys_that_are_all_distinct_pass_mostly_unchecked() {
        let batch = |start: i64| Arc::new(Int64Array::from_iter_values(start..start + 8_192)) as ArrayRef;
        let mut batches: Vec<_> = (0..64).map(|number| batch(number * 8_192)).collect();
        // Keys of the last batch again. They pass unchecked, because the sample had no duplicates.
        batches.push(batch(63 * 8_192));
        let rows: usize = distinct(batches, unbounded()).iter().map(RecordBatch::num_rows).sum();
        assert_eq!(rows, 65 * 8_192);
    }
}
