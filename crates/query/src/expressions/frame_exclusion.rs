//! Window frames with `EXCLUDE`, which the engine's frames do not have, and frames whose start moves, for aggregates
//! that the engine cannot compute over them, such as `string_agg`. Also `nth_value` with a position that is not
//! constant. A window function wraps the aggregate, or `first_value`, `last_value` or `nth_value`, and leaves out the
//! excluded rows of each frame:
//!
//! ```text
//!   frame of row 5:   2   3  |  4   5   6  |  7   8      4, 5 and 6 are peers
//!   EXCLUDE CURRENT ROW      before 2-4     after 6-8
//!   EXCLUDE GROUP            before 2-3     after 7-8
//!   EXCLUDE TIES             before 2-3     row 5, after 7-8
//! ```
//!
//! The rows before and after are frames too, whose starts and ends only move forward. So most aggregates take linear
//! time: each row enters and leaves both frames once. Aggregates that depend on the order of rows, or that keep a list
//! of values, are computed again for each row.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use datafusion::arrow::compute::{filter, is_not_null, partition, prep_null_mask_filter};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type, Schema};
use datafusion::common::{Result, ScalarValue, exec_err, not_impl_err};
use datafusion::logical_expr::function::{
    AccumulatorArgs, PartitionEvaluatorArgs, StateFieldsArgs, WindowUDFFieldArgs,
};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawWindowExpr};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, COUNT_STAR_EXPANSION};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, Expr, LimitEffect, PartitionEvaluator, Signature, Volatility, WindowFunctionDefinition,
    WindowUDF, WindowUDFImpl,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use taut_sql::FrameExclusion;

use super::arithmetic::SlidingAccumulator;

/// Functions that read one row of the frame.
const POSITIONS: [&str; 3] = ["first_value", "last_value", "nth_value"];

/// Aggregates from which the engine cannot remove the rows that leave a frame.
const NOT_SLIDING: [&str; 10] = [
    "any_value",
    "approx_distinct",
    "approx_median",
    "approx_percentile_cont",
    "approx_percentile_cont_with_weight",
    "entropy",
    "mode",
    "percentile_cont",
    "percentile_disc",
    "string_agg",
];

/// Planner that wraps functions whose frames exclude rows.
#[derive(Debug)]
pub struct FrameExclusions;

impl ExprPlanner for FrameExclusions {
    fn plan_window(&self, mut raw: RawWindowExpr) -> Result<PlannerResult<RawWindowExpr>> {
        let is_aggregate = matches!(raw.func_def, WindowFunctionDefinition::AggregateUDF(_));
        let exclusion = take_exclusion(&mut raw.partition_by).or_else(|| {
            let slides = is_aggregate && !raw.window_frame.is_ever_expanding();
            let is_wrapped = slides && !raw.distinct && NOT_SLIDING.contains(&raw.func_def.name());
            is_wrapped.then_some(FrameExclusion::NoOthers)
        });
        let Some(exclusion) = exclusion else { return Ok(PlannerResult::Original(raw)) };
        if !is_aggregate && !POSITIONS.contains(&raw.func_def.name()) {
            // Other window functions do not read the frame.
            return Ok(PlannerResult::Original(raw));
        }
        if raw.distinct {
            return not_impl_err!("DISTINCT is not implemented for window functions");
        }
        if !is_aggregate && raw.filter.is_some() {
            return not_impl_err!("FILTER is not implemented for non-aggregate window functions");
        }
        #[expect(deprecated, reason = "the engine's parser produces it")]
        let counts_rows = matches!(raw.args.as_slice(), [] | [Expr::Wildcard { .. }]);
        if raw.func_def.name() == "count" && counts_rows {
            raw.args = vec![Expr::Literal(COUNT_STAR_EXPANSION, None)];
        }
        let filter = raw.filter.take();
        let function = Excluding::new(raw.func_def, exclusion, filter.is_some());
        raw.args.extend(filter.map(|filter| *filter));
        raw.func_def = WindowFunctionDefinition::WindowUDF(Arc::new(WindowUDF::new_from_impl(function)));
        Ok(PlannerResult::Original(raw))
    }
}

/// Removes the exclusion from the `PARTITION BY` of a window, where desugaring has put it.
fn take_exclusion(partition_by: &mut Vec<Expr>) -> Option<FrameExclusion> {
    let exclusion = partition_by.iter().enumerate().find_map(|(index, key)| match key {
        Expr::Literal(ScalarValue::Utf8(Some(text)), _) => Some((index, FrameExclusion::from_partition_key(text)?)),
        _ => None,
    });
    let (index, exclusion) = exclusion?;
    partition_by.remove(index);
    Some(exclusion)
}

/// Name of a window function without the clause of its frame.
pub fn name_of_function(function: &WindowFunctionDefinition) -> &str {
    let name = function.name();
    name.split_once(" EXCLUDE ").map_or(name, |(function, _)| function)
}

/// Splits off the last argument of a window function if it is the condition of `FILTER`.
pub fn split_filter<'a>(
    function: &WindowFunctionDefinition,
    arguments: &'a mut [Expr],
) -> Option<(&'a mut [Expr], &'a Expr)> {
    let WindowFunctionDefinition::WindowUDF(function) = function else { return None };
    let is_filtered = function.inner().downcast_ref::<Excluding>().is_some_and(|function| function.is_filtered);
    match arguments.split_last_mut() {
        Some((filter, arguments)) if is_filtered => Some((arguments, filter)),
        _ => None,
    }
}

/// A function that skips the excluded rows of its frames. With `FILTER`, its last argument is the condition.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Excluding {
    function: WindowFunctionDefinition,
    exclusion: FrameExclusion,
    is_filtered: bool,
    name: String,
    signature: Signature,
}

impl Excluding {
    fn new(function: WindowFunctionDefinition, exclusion: FrameExclusion, is_filtered: bool) -> Self {
        let name = format!("{} {exclusion}", function.name());
        let signature = Signature::user_defined(Volatility::Immutable);
        Self { function, exclusion, is_filtered, name, signature }
    }

    /// Removes the condition of `FILTER` from arguments.
    fn own<'a, T>(&self, arguments: &'a [T]) -> &'a [T] {
        &arguments[..arguments.len() - usize::from(self.is_filtered)]
    }
}

impl WindowUDFImpl for Excluding {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let fields: Vec<FieldRef> =
            self.own(types).iter().map(|data_type| Arc::new(Field::new("", data_type.clone(), true))).collect();
        let coerced = match &self.function {
            WindowFunctionDefinition::AggregateUDF(function) => fields_with_udf(&fields, function.as_ref())?,
            WindowFunctionDefinition::WindowUDF(function) => fields_with_udf(&fields, function.as_ref())?,
        };
        let filter = self.is_filtered.then_some(DataType::Boolean);
        Ok(coerced.iter().map(|field| field.data_type().clone()).chain(filter).collect())
    }

    fn field(&self, args: WindowUDFFieldArgs<'_>) -> Result<FieldRef> {
        let field = self.function.return_field(self.own(args.input_fields()), args.name())?;
        Ok(Arc::new(field.as_ref().clone().with_name(args.name())))
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs<'_>) -> Result<Box<dyn PartitionEvaluator>> {
        let (exprs, fields) = (self.own(args.input_exprs()), self.own(args.input_fields()));
        let function = match &self.function {
            WindowFunctionDefinition::AggregateUDF(function) => {
                FrameFunction::Aggregate(Box::new(Aggregate::new(function, exprs, fields, args.ignore_nulls())?))
            }
            WindowFunctionDefinition::WindowUDF(function) => {
                let nth = position(function.name(), exprs)?;
                if nth.is_some() {
                    // The engine's own function checks the arguments.
                    function.partition_evaluator_factory(PartitionEvaluatorArgs::new(
                        exprs,
                        fields,
                        false,
                        args.ignore_nulls(),
                    ))?;
                }
                FrameFunction::Position { nth, skips_nulls: args.ignore_nulls() }
            }
        };
        let (exclusion, arguments, is_filtered) = (self.exclusion, exprs.len(), self.is_filtered);
        Ok(Box::new(ExcludingEvaluator { function, exclusion, arguments, is_filtered, partition: None, row: 0 }))
    }

    fn limit_effect(&self, _args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        LimitEffect::Unknown
    }
}

/// Returns which row of a frame a function reads: 1 is the first, -1 the last, 0 none. `None` if it depends on the row.
fn position(function: &str, exprs: &[Arc<dyn PhysicalExpr>]) -> Result<Option<i64>> {
    match (function, exprs.get(1).and_then(|nth| nth.downcast_ref::<Literal>()).map(Literal::value)) {
        ("first_value", _) => Ok(Some(1)),
        ("last_value", _) => Ok(Some(-1)),
        (_, Some(ScalarValue::Int64(nth))) => Ok(Some(nth.unwrap_or(0))),
        (_, None) if exprs.len() == 2 => Ok(None),
        _ => exec_err!("the second argument of nth_value must be an integer"),
    }
}

/// Returns `nth_value` for a second argument that depends on the row.
pub fn nth_of_each_row(nth_value: WindowFunctionDefinition) -> WindowFunctionDefinition {
    let function = Excluding::new(nth_value, FrameExclusion::NoOthers, false);
    WindowFunctionDefinition::WindowUDF(Arc::new(WindowUDF::new_from_impl(function)))
}

/// The second argument of `nth_value` in a row.
fn nth_in_row(nths: &ArrayRef, row: usize) -> Result<i64> {
    let nths = nths.as_primitive::<Int64Type>();
    match nths.is_valid(row).then(|| nths.value(row)) {
        Some(..=0) => exec_err!("argument of nth_value must be greater than zero"),
        nth => Ok(nth.unwrap_or(0)),
    }
}

#[derive(Debug)]
struct ExcludingEvaluator {
    function: FrameFunction,
    exclusion: FrameExclusion,
    /// Number of arguments of the function.
    arguments: usize,
    is_filtered: bool,
    /// Set by the first row.
    partition: Option<Partition>,
    /// The next row.
    row: usize,
}

#[derive(Debug)]
enum FrameFunction {
    Aggregate(Box<Aggregate>),
    /// Reads one row. `nth` is `None` if the second argument is not a literal.
    Position {
        nth: Option<i64>,
        skips_nulls: bool,
    },
}

/// The rows of a partition.
#[derive(Debug)]
struct Partition {
    /// Arguments of the rows that the function can read: those that pass its filter.
    arguments: Vec<ArrayRef>,
    /// For each row, the number of rows before it that the function can read. `None` if it can read all.
    readable_before: Option<Vec<usize>>,
    /// Rows with equal order, in order. `None` if the window has no order, so that all rows are peers.
    peers: Option<Vec<Range<usize>>>,
    /// Index of the peers of the current row.
    current_peers: usize,
}

impl Partition {
    fn new(arguments: &[ArrayRef], mask: Option<&BooleanArray>, order: &[ArrayRef]) -> Result<Self> {
        let peers = if order.is_empty() { None } else { Some(partition(order)?.ranges()) };
        let (mut read, mut readable_before) = (arguments.to_vec(), None);
        if let Some(mask) = mask {
            let mask = if mask.null_count() > 0 { prep_null_mask_filter(mask) } else { mask.clone() };
            read = arguments.iter().map(|values| filter(values, &mask)).collect::<Result<_, _>>()?;
            let mut count = 0;
            let mut before = Vec::with_capacity(mask.len() + 1);
            before.push(0);
            before.extend(mask.values().iter().map(|is_readable| {
                count += usize::from(is_readable);
                count
            }));
            readable_before = Some(before);
        }
        Ok(Self { arguments: read, readable_before, peers, current_peers: 0 })
    }

    /// The peers of a row, itself included. Rows must be given in order.
    fn peers_of(&mut self, row: usize) -> Range<usize> {
        let Some(peers) = &self.peers else { return 0..usize::MAX };
        while peers.get(self.current_peers).is_some_and(|peers| peers.end <= row) {
            self.current_peers += 1;
        }
        peers.get(self.current_peers).cloned().unwrap_or(row..row + 1)
    }

    /// Converts rows to positions in `arguments`.
    fn readable(&self, rows: Range<usize>) -> Range<usize> {
        match &self.readable_before {
            Some(before) => before[rows.start]..before[rows.end],
            None => rows,
        }
    }
}

impl PartitionEvaluator for ExcludingEvaluator {
    fn evaluate(&mut self, values: &[ArrayRef], frame: &Range<usize>) -> Result<ScalarValue> {
        let row = self.row;
        self.row += 1;
        let partition = match &mut self.partition {
            Some(partition) => partition,
            none => {
                let (arguments, rest) = values.split_at(self.arguments);
                let (filter, order) = rest.split_at(usize::from(self.is_filtered));
                let is_set = match &self.function {
                    FrameFunction::Position { skips_nulls: true, .. } => Some(is_not_null(&arguments[0])?),
                    _ => None,
                };
                let mask = filter.first().map(|filter| filter.as_boolean()).or(is_set.as_ref());
                none.insert(Partition::new(arguments, mask, order)?)
            }
        };
        let excluded = match self.exclusion {
            FrameExclusion::NoOthers => row..row,
            FrameExclusion::CurrentRow => row..row + 1,
            FrameExclusion::Group | FrameExclusion::Ties => partition.peers_of(row),
        };
        // A frame may end before it starts.
        let frame = frame.start..frame.end.max(frame.start);
        let within = |row: usize| row.clamp(frame.start, frame.end);
        let before = partition.readable(frame.start..within(excluded.start));
        let after = partition.readable(within(excluded.end)..frame.end);
        let keeps_row = self.exclusion == FrameExclusion::Ties && frame.contains(&row);
        let current = if keeps_row { partition.readable(row..row + 1) } else { 0..0 };
        match &mut self.function {
            FrameFunction::Aggregate(aggregate) => aggregate.evaluate(&partition.arguments, before, current, after),
            FrameFunction::Position { nth, .. } => {
                let nth = nth.map_or_else(|| nth_in_row(&values[1], row), Ok)?;
                let values = &partition.arguments[0];
                match nth_of([before, current, after], nth) {
                    Some(index) => ScalarValue::try_from_array(values, index),
                    None => ScalarValue::try_from(values.data_type()),
                }
            }
        }
    }

    fn uses_window_frame(&self) -> bool {
        true
    }
}

/// Returns position `nth` of the given ranges: 1 is the first, -1 the last.
fn nth_of(ranges: [Range<usize>; 3], nth: i64) -> Option<usize> {
    let mut rest = usize::try_from(nth.unsigned_abs()).ok()?.checked_sub(1)?;
    let mut in_range = |range: &Range<usize>| {
        let index = (rest < range.len()).then(|| if nth > 0 { range.start + rest } else { range.end - 1 - rest });
        rest = rest.saturating_sub(range.len());
        index
    };
    match nth > 0 {
        true => ranges.iter().find_map(&mut in_range),
        false => ranges.iter().rev().find_map(&mut in_range),
    }
}

/// An aggregate over the rows of a frame that are not excluded.
#[derive(Debug)]
struct Aggregate {
    /// The rows before and after the excluded ones. Their accumulators also create those of the results.
    before: SlidingRows,
    after: SlidingRows,
    /// Whether each frame is computed from its rows.
    recomputes: bool,
}

/// A frame whose start and end only move forward.
#[derive(Debug)]
struct SlidingRows {
    rows: Range<usize>,
    accumulator: SlidingAccumulator,
}

impl Aggregate {
    fn new(
        function: &Arc<AggregateUDF>,
        exprs: &[Arc<dyn PhysicalExpr>],
        fields: &[FieldRef],
        ignore_nulls: bool,
    ) -> Result<Self> {
        // The arguments are columns of a schema of their own. Functions read the values of literals.
        let named = fields.iter().enumerate().map(|(index, field)| field.as_ref().clone().with_name(index.to_string()));
        let schema = Schema::new(named.collect::<Vec<_>>());
        let column = |(index, expr): (usize, &Arc<dyn PhysicalExpr>)| match expr.downcast_ref::<Literal>() {
            Some(_) => Arc::clone(expr),
            None => Arc::new(Column::new(&index.to_string(), index)) as Arc<dyn PhysicalExpr>,
        };
        let exprs: Vec<Arc<dyn PhysicalExpr>> = exprs.iter().enumerate().map(column).collect();
        let return_field = function.return_field(fields)?;
        let name = function.name();
        let state = function.state_fields(StateFieldsArgs {
            name,
            input_fields: fields,
            return_field: Arc::clone(&return_field),
            ordering_fields: &[],
            is_distinct: false,
        })?;
        let args = AccumulatorArgs {
            return_field,
            schema: &schema,
            ignore_nulls,
            order_bys: &[],
            is_reversed: false,
            name,
            is_distinct: false,
            exprs: &exprs,
            expr_fields: fields,
        };
        let frame = || {
            let accumulator = SlidingAccumulator::new(function.as_ref().clone(), &args)?;
            Ok::<_, datafusion::error::DataFusionError>(SlidingRows { rows: 0..0, accumulator })
        };
        // A list of values is copied or moved by each call of `state`.
        let recomputes = function.order_sensitivity() != AggregateOrderSensitivity::Insensitive
            || state.iter().any(|field| field.data_type().is_nested());
        Ok(Self { before: frame()?, after: frame()?, recomputes })
    }

    fn evaluate(
        &mut self,
        arguments: &[ArrayRef],
        before: Range<usize>,
        current: Range<usize>,
        after: Range<usize>,
    ) -> Result<ScalarValue> {
        let mut result = self.before.accumulator.create()?;
        if self.recomputes {
            for rows in [before, current, after] {
                update(result.as_mut(), arguments, rows)?;
            }
            return result.evaluate();
        }
        self.before.move_to(before, arguments)?;
        self.after.move_to(after, arguments)?;
        self.before.accumulator.merge_into(result.as_mut())?;
        update(result.as_mut(), arguments, current)?;
        self.after.accumulator.merge_into(result.as_mut())?;
        result.evaluate()
    }
}

impl SlidingRows {
    fn move_to(&mut self, rows: Range<usize>, arguments: &[ArrayRef]) -> Result<()> {
        let moves_forward = rows.start >= self.rows.start && rows.end >= self.rows.end;
        let (kept_from, enters_from) = match moves_forward {
            true => (rows.start.min(self.rows.end), rows.start.max(self.rows.end)),
            false => (self.rows.end, rows.start),
        };
        self.accumulator.leave(kept_from - self.rows.start)?;
        update(&mut self.accumulator, arguments, enters_from..rows.end)?;
        self.rows = rows;
        Ok(())
    }
}

fn update(accumulator: &mut dyn Accumulator, arguments: &[ArrayRef], rows: Range<usize>) -> Result<()> {
    match rows.is_empty() {
        true => Ok(()),
        false => {
            let values: Vec<ArrayRef> = arguments.iter().map(|values| values.slice(rows.start, rows.len())).collect();
            accumulator.update_batch(&values)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_from_both_ends() {
        let ranges = || [0..2, 4..5, 7..9];
        let found: Vec<_> = [1, 2, 3, 4, 5, 6].map(|nth| nth_of(ranges(), nth)).to_vec();
        assert_eq!(found, [Some(0), Some(1), Some(4), Some(7), Some(8), None]);
        let found: Vec<_> = [-1, -2, -3, -4, -5, -6, 0].map(|nth| nth_of(ranges(), nth)).to_vec();
        assert_eq!(found, [Some(8), Some(7), Some(4), Some(1), Some(0), None, None]);
        assert_eq!(nth_of([0..0, 0..0, 3..4], 1), Some(3));
    }
}
