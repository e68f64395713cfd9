//! Aggregation of one segment: finds the groups of its rows, computes the arguments, and updates the states, batch by
//! batch.

use std::ops::Range;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::Result;
use roaring::RoaringBitmap;
use taut_block::{NullableNumbers, ScanReport, SegmentReader, Selection};

use super::arithmetic::Bounds;
use super::deleted::DeletedRows;
use super::keys::{AggregateError, BatchGroups, PartitionGroups, SegmentKeys};
use super::plan::{AggregatePlan, Function, Input};
use super::states::{States, Summary, Values};

/// Minimum number of selected rows per code, and per group found so far, for which codes are read instead of text.
const ROWS_MIN: usize = 4;

/// Rows of a batch. A few arrays of this length fit in the cache of a processor.
const BATCH_ROWS: usize = 4096;

/// Counts of segments by method.
#[derive(Clone, Copy, Debug, Default)]
pub struct SegmentCounts {
    /// Segments whose keys were codes or distances.
    pub indexed: usize,
    /// Segments in which at least one batch had its keys in runs.
    pub in_runs: usize,
    /// Segments whose keys were hashed values.
    pub hashed: usize,
    /// Segments in which all arguments were computed in 64 bits or were codes.
    pub narrow: usize,
    /// Segments in which DataFusion computed some argument on arrays.
    pub decoded: usize,
    /// Segments that were aggregated from statistics and runs alone.
    pub summarized: usize,
}

/// How the arguments are computed for one segment.
struct SegmentPlan {
    /// Bounds of each node of the arithmetic. `None` if it may not be computed in 64 bits.
    bounds: Vec<Option<Bounds>>,
    /// For each node of the arithmetic, whether it is computed.
    is_needed: Vec<bool>,
    /// For each column of the arithmetic, whether it is read.
    is_read: Vec<bool>,
    /// For each argument, whether it is computed in 64 bits.
    is_narrow: Vec<bool>,
    /// For each argument, the dictionary of its codes if it is read as codes.
    dictionaries: Vec<Option<ArrayRef>>,
}

/// If more than one in this many rows of a segment is deleted, the deleted rows are excluded instead of subtracted.
const DELETED_SHARE: u64 = 16;

/// Whether the deleted rows of a segment are aggregated with the other rows and then subtracted. True if no computation
/// can fail on them and they are few: excluding a few rows costs more than subtracting them.
pub fn should_subtract(
    plan: &AggregatePlan,
    reader: &SegmentReader<'_>,
    deleted: &RoaringBitmap,
) -> Result<bool, AggregateError> {
    let are_few = deleted.len() * DELETED_SHARE <= reader.rows() as u64;
    Ok(are_few && plan.can_subtract() && plan_segment(plan, reader)?.is_narrow.iter().all(|is_narrow| *is_narrow))
}

/// Groups and states that receive the selected rows of a segment.
pub struct Destination<'a> {
    pub keys: &'a mut PartitionGroups,
    pub states: &'a mut States,
    /// States of only the deleted rows. They are subtracted from `states` later: see [`should_subtract`].
    pub deleted: &'a mut States,
}

/// Aggregates the selected rows of a segment. `deleted` lists the deleted rows, as ordinals in the selection.
pub fn aggregate(
    plan: &AggregatePlan,
    reader: &mut SegmentReader<'_>,
    (selection, deleted): (&Selection, &[u32]),
    destination: Destination<'_>,
    (report, counts): (&mut ScanReport, &mut SegmentCounts),
) -> Result<(), AggregateError> {
    if selection.is_empty() {
        return Ok(());
    }
    let Destination { keys, states, deleted: deleted_states } = destination;
    let segment_keys = keys.begin_segment(reader)?;
    let mut segment_plan = plan_segment(plan, reader)?;
    let are_few = |count: usize| count * ROWS_MIN <= selection.len();
    for (input, dictionary) in plan.inputs.iter().zip(&mut segment_plan.dictionaries) {
        let Some(column) = input.codes_of.filter(|_| are_few(keys.count())) else { continue };
        if reader.code_count(column)?.is_some_and(are_few) {
            *dictionary = reader.values_of_codes(column)?;
        }
    }
    let mut groups = BatchGroups::default();
    if let Some(summaries) = summarize_arguments(plan, &segment_plan, reader, selection)? {
        counts.summarized += 1;
        keys.find_groups(&segment_keys, reader, (selection, 0..selection.len()), &mut groups, report)?;
        states.add_summaries(selection.len(), &summaries);
        if !deleted.is_empty() {
            // All rows are selected, so ordinals are positions.
            let deleted_rows = Selection::Positions(deleted.to_vec());
            let rows = 0..deleted_rows.len();
            keys.find_groups(&segment_keys, reader, (&deleted_rows, rows.clone()), &mut groups, report)?;
            let update = |values: &[Values<'_>]| deleted_states.update(groups.get(), keys.count(), values);
            with_values(plan, &segment_plan, reader, (&deleted_rows, rows), report, update)?;
        }
        return Ok(());
    }
    match segment_keys {
        SegmentKeys::None => {}
        SegmentKeys::Indexed { .. } => counts.indexed += 1,
        SegmentKeys::Hashed => counts.hashed += 1,
    }
    if !plan.inputs.is_empty() {
        let mut read = segment_plan.is_narrow.iter().zip(&segment_plan.dictionaries);
        let is_narrow = read.all(|(is_narrow, dictionary)| *is_narrow || dictionary.is_some());
        *(if is_narrow { &mut counts.narrow } else { &mut counts.decoded }) += 1;
    }
    let (mut row, mut in_runs, mut deleted) = (0, false, DeletedRows::new(deleted));
    while row < selection.len() {
        let rows = selection.batch(row, BATCH_ROWS);
        row = rows.end;
        keys.find_groups(&segment_keys, reader, (selection, rows.clone()), &mut groups, report)?;
        in_runs |= segment_keys != SegmentKeys::None && groups.is_in_runs();
        with_values(plan, &segment_plan, reader, (selection, rows.clone()), report, |values| {
            states.update(groups.get(), keys.count(), values)?;
            deleted.add(&rows, groups.get(), values)
        })?;
    }
    deleted.finish(deleted_states, keys.count())?;
    states.end_segment(keys.count(), &segment_plan.dictionaries)?;
    counts.in_runs += usize::from(in_runs);
    Ok(())
}

/// Summarizes each argument without reading rows. Returns `None` unless there is one group with all rows of the
/// segment, and the functions need no more than the summaries.
fn summarize_arguments(
    plan: &AggregatePlan,
    segment_plan: &SegmentPlan,
    reader: &mut SegmentReader<'_>,
    selection: &Selection,
) -> Result<Option<Vec<Summary>>, AggregateError> {
    let has_engine_function = plan.functions.iter().any(|function| function.engine_function().is_some());
    if !plan.keys.is_empty() || !matches!(selection, Selection::All(_)) || has_engine_function {
        return Ok(None);
    }
    let mut summaries = Vec::with_capacity(plan.inputs.len());
    for (index, argument) in plan.inputs.iter().enumerate() {
        let node = argument.node.filter(|_| segment_plan.is_narrow[index]);
        let Some(column) = node.and_then(|node| plan.arithmetic.column_of(node)) else { return Ok(None) };
        let Some(known) = reader.number_summary(column)? else { return Ok(None) };
        let is_summed = |function: &Function| matches!(function, Function::Sum { input, .. } | Function::Average { input, .. } if *input == index);
        let sum = match plan.functions.iter().any(is_summed) {
            false => None,
            true => match reader.sum_of_runs(column)? {
                None => return Ok(None),
                sum => sum,
            },
        };
        summaries.push(Summary { nulls: known.nulls, bounds: known.bounds, sum });
    }
    Ok(Some(summaries))
}

fn plan_segment(plan: &AggregatePlan, reader: &SegmentReader<'_>) -> Result<SegmentPlan, AggregateError> {
    let mut columns = Vec::with_capacity(plan.arithmetic.columns.len());
    for column in &plan.arithmetic.columns {
        // If all rows are null, any bounds are correct.
        columns.push(reader.number_summary(*column)?.map(|known| known.bounds.unwrap_or((0, 0))));
    }
    let bounds = plan.arithmetic.bounds(&columns);
    let is_narrow: Vec<bool> =
        plan.inputs.iter().map(|input| input.node.is_some_and(|node| bounds[node].is_some())).collect();
    let narrow = plan.inputs.iter().zip(&is_narrow).filter(|(_, is_narrow)| **is_narrow);
    let nodes: Vec<usize> = narrow.filter_map(|(input, _)| input.node).collect();
    let mut is_read = vec![false; columns.len()];
    for node in &nodes {
        plan.arithmetic.columns_of(*node).into_iter().for_each(|index| is_read[index] = true);
    }
    let (is_needed, dictionaries) = (plan.arithmetic.needed_nodes(nodes.into_iter()), vec![None; plan.inputs.len()]);
    Ok(SegmentPlan { bounds, is_needed, is_read, is_narrow, dictionaries })
}

/// Computes the arguments for some selected rows and passes them to `consume`.
fn with_values(
    plan: &AggregatePlan,
    segment_plan: &SegmentPlan,
    reader: &mut SegmentReader<'_>,
    (selection, rows): (&Selection, Range<usize>),
    report: &mut ScanReport,
    consume: impl FnOnce(&[Values<'_>]) -> Result<()>,
) -> Result<(), AggregateError> {
    let mut columns: Vec<NullableNumbers> = Vec::with_capacity(plan.arithmetic.columns.len());
    for (column, is_read) in plan.arithmetic.columns.iter().zip(&segment_plan.is_read) {
        let numbers = if *is_read { reader.numbers(selection, rows.clone(), *column)? } else { None };
        report.bytes_decoded += numbers.as_ref().map_or(0, |(numbers, _)| size_of_val(numbers.as_slice()) as u64);
        columns.push(numbers.unwrap_or_default());
    }
    let slices: Vec<&[i64]> = columns.iter().map(|(numbers, _)| numbers.as_slice()).collect();
    let numbers = plan.arithmetic.evaluate(&slices, &segment_plan.is_needed);
    let mut values = Vec::with_capacity(plan.inputs.len());
    for (index, input) in plan.inputs.iter().enumerate() {
        if let (Some(column), Some(dictionary)) = (input.codes_of, &segment_plan.dictionaries[index])
            && let Some(codes) = reader.codes(selection, rows.clone(), column)?
        {
            report.bytes_decoded += size_of_val(codes.as_slice()) as u64;
            values.push(Values::Codes { codes, entries: dictionary.len() });
            continue;
        }
        values.push(match (input.node, segment_plan.is_narrow[index]) {
            (Some(node), true) => {
                let indexes = plan.arithmetic.columns_of(node).into_iter();
                let nulls =
                    indexes.fold(None, |nulls, index| NullBuffer::union(nulls.as_ref(), columns[index].1.as_ref()));
                let bounds = segment_plan.bounds[node].unwrap_or_default();
                Values::Numbers { numbers: numbers[node].clone(), nulls, bounds }
            }
            _ => Values::Array(evaluate(input, reader, (selection, rows.clone()), report)?),
        });
    }
    Ok(consume(&values)?)
}

/// Computes an argument with DataFusion's expression.
fn evaluate(
    input: &Input,
    reader: &mut SegmentReader<'_>,
    (selection, rows): (&Selection, Range<usize>),
    report: &mut ScanReport,
) -> Result<ArrayRef, AggregateError> {
    let count = rows.len();
    let arrays = reader.project(selection, rows, &input.columns, report)?;
    let options = RecordBatchOptions::new().with_row_count(Some(count));
    let batch = RecordBatch::try_new_with_options(input.schema.clone(), arrays, &options)
        .map_err(datafusion::common::DataFusionError::from)?;
    Ok(input.expression.evaluate(&batch)?.into_array(count)?)
}
