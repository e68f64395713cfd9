//! Aggregates of floating-point numbers over frames whose start moves, such as `sum(x) OVER (ROWS 3 PRECEDING)`.
//!
//! The engine subtracts the rows that leave a frame. That is wrong once a frame has held NaN or infinity, which no
//! subtraction removes, or a number so large that other numbers were rounded away. This implementation never subtracts.
//! The rows of a frame form a queue of two stacks, so each row is aggregated at most twice:
//!
//! ```text
//!   frame:      r1      r2     r3  |  r4  r5
//!   leaving:    r1-r3   r2-r3  r3     partial results; a row leaves by dropping the first
//!   entering:                         r4-r5, one partial result
//! ```
//!
//! Booleans and bits are aggregated in the same way, because DataFusion cannot remove them from a frame.
//!
//! When `leaving` has become empty, the rows of `entering` move there, aggregated from the last to the first.

use std::collections::VecDeque;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::{Result, ScalarValue, not_impl_err};
use datafusion::functions_aggregate::{bit_and_or_xor, bool_and_or, correlation, covariance, regr, stddev, variance};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, SetMonotonicity, Signature,
};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};

use super::finite::{FiniteAccumulator, FiniteGroups};

/// The engine's functions that subtract the rows leaving a frame, or cannot remove rows, wrapped by [`sliding`].
pub fn sliding_functions() -> impl Iterator<Item = AggregateUDF> {
    [
        bit_and_or_xor::bit_and_udaf(),
        bit_and_or_xor::bit_or_udaf(),
        bit_and_or_xor::bit_xor_udaf(),
        bool_and_or::bool_and_udaf(),
        bool_and_or::bool_or_udaf(),
        correlation::corr_udaf(),
        covariance::covar_pop_udaf(),
        covariance::covar_samp_udaf(),
        regr::regr_avgx_udaf(),
        regr::regr_avgy_udaf(),
        regr::regr_intercept_udaf(),
        regr::regr_r2_udaf(),
        regr::regr_slope_udaf(),
        regr::regr_sxx_udaf(),
        regr::regr_sxy_udaf(),
        regr::regr_syy_udaf(),
        stddev::stddev_pop_udaf(),
        stddev::stddev_udaf(),
        variance::var_pop_udaf(),
        variance::var_samp_udaf(),
    ]
    .into_iter()
    .map(|function| sliding(function.as_ref().clone()))
}

/// Wraps an aggregate function. In sliding frames of floating-point numbers, bits and booleans, it does not subtract
/// rows.
pub fn sliding(function: AggregateUDF) -> AggregateUDF {
    AggregateUDF::new_from_impl(Sliding { function })
}

/// Accumulator of a frame whose start moves, for a function that cannot remove rows.
pub(super) fn sliding_accumulator(function: AggregateUDF, args: &AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
    Ok(Box::new(SlidingAccumulator::new(function, args)?))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Sliding {
    function: AggregateUDF,
}

impl Sliding {
    /// Whether results must be checked for overflow here. Sums and averages check their results themselves.
    fn is_deviation(&self) -> bool {
        matches!(self.name(), "stddev" | "stddev_pop" | "var" | "var_pop")
    }
}

impl AggregateUDFImpl for Sliding {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn aliases(&self) -> &[String] {
        self.function.aliases()
    }

    fn signature(&self) -> &Signature {
        self.function.signature()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.function.coerce_types(types)
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.function.return_type(types)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.function.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let is_distinct = args.is_distinct;
        let accumulator = self.function.accumulator(args)?;
        Ok(match self.is_deviation() {
            true => Box::new(FiniteAccumulator::new(accumulator, is_distinct)),
            false => accumulator,
        })
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.function.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        let accumulator = self.function.create_groups_accumulator(args)?;
        Ok(if self.is_deviation() { Box::new(FiniteGroups::new(accumulator)) } else { accumulator })
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let is_floating = args.expr_fields.iter().any(|field| field.data_type().is_floating());
        // The engine's sliding `bit_xor` returns 0 for a frame without rows, instead of null.
        let is_logical = self.name().starts_with("bit_") || self.name().starts_with("bool_");
        if args.is_distinct || !(is_floating || is_logical) {
            return self.function.create_sliding_accumulator(args);
        }
        sliding_accumulator(self.function.clone(), &args)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.function.order_sensitivity()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.function.inner().reverse_expr()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.function.inner().set_monotonicity(data_type)
    }
}

/// Creates accumulators of one function with the same arguments.
#[derive(Debug)]
struct Factory {
    function: AggregateUDF,
    return_field: FieldRef,
    schema: Schema,
    ignore_nulls: bool,
    order_bys: Vec<PhysicalSortExpr>,
    is_reversed: bool,
    name: String,
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    expr_fields: Vec<FieldRef>,
}

impl Factory {
    fn accumulator(&self) -> Result<Box<dyn Accumulator>> {
        self.function.accumulator(AccumulatorArgs {
            return_field: Arc::clone(&self.return_field),
            schema: &self.schema,
            ignore_nulls: self.ignore_nulls,
            order_bys: &self.order_bys,
            is_reversed: self.is_reversed,
            name: &self.name,
            is_distinct: false,
            exprs: &self.exprs,
            expr_fields: &self.expr_fields,
        })
    }
}

/// Partial result of some rows: one array of length 1 for each state of the function.
type State = Vec<ArrayRef>;

fn state_of(accumulator: &mut dyn Accumulator) -> Result<State> {
    accumulator.state()?.iter().map(ScalarValue::to_array).collect()
}

/// Accumulator of a frame whose rows enter at the end and leave at the start.
#[derive(Debug)]
pub struct SlidingAccumulator {
    factory: Factory,
    /// For each row, the partial result of this row and all rows of `leaving` that leave after it. The last entry
    /// leaves next.
    leaving: Vec<State>,
    /// Arguments of the rows that are not in `leaving` yet, in batches.
    entering: VecDeque<Vec<ArrayRef>>,
    /// Partial result of the rows of `entering`.
    entering_result: Box<dyn Accumulator>,
}

impl SlidingAccumulator {
    /// Creates the accumulator of an empty frame.
    pub fn new(function: AggregateUDF, args: &AccumulatorArgs<'_>) -> Result<Self> {
        let factory = Factory {
            function,
            return_field: Arc::clone(&args.return_field),
            schema: args.schema.clone(),
            ignore_nulls: args.ignore_nulls,
            order_bys: args.order_bys.to_vec(),
            is_reversed: args.is_reversed,
            name: args.name.to_owned(),
            exprs: args.exprs.to_vec(),
            expr_fields: args.expr_fields.to_vec(),
        };
        let entering_result = factory.accumulator()?;
        Ok(Self { factory, leaving: Vec::new(), entering: VecDeque::new(), entering_result })
    }

    /// Creates an accumulator of the same function without rows.
    pub fn create(&self) -> Result<Box<dyn Accumulator>> {
        self.factory.accumulator()
    }

    /// Adds the rows of the frame to another accumulator of the same function.
    pub fn merge_into(&mut self, other: &mut dyn Accumulator) -> Result<()> {
        if let Some(left) = self.leaving.last() {
            other.merge_batch(left)?;
        }
        if !self.entering.is_empty() {
            other.merge_batch(&state_of(self.entering_result.as_mut())?)?;
        }
        Ok(())
    }

    /// Removes the first `rows` rows of the frame.
    pub fn leave(&mut self, rows: usize) -> Result<()> {
        match rows.checked_sub(self.leaving.len()) {
            None | Some(0) => self.leaving.truncate(self.leaving.len() - rows),
            Some(more) => {
                self.leaving.clear();
                self.move_entering(more)?;
            }
        }
        Ok(())
    }

    /// Drops the first `rows` rows of `entering` and moves the remaining rows to `leaving`, which must be empty.
    fn move_entering(&mut self, mut rows: usize) -> Result<()> {
        let mut suffix = self.factory.accumulator()?;
        while let Some(batch) = self.entering.front() {
            let length = batch[0].len();
            if rows < length {
                break;
            }
            rows -= length;
            self.entering.pop_front();
        }
        while let Some(batch) = self.entering.pop_back() {
            let first = if self.entering.is_empty() { rows } else { 0 };
            for row in (first..batch[0].len()).rev() {
                let values: Vec<_> = batch.iter().map(|values| values.slice(row, 1)).collect();
                suffix.update_batch(&values)?;
                self.leaving.push(state_of(suffix.as_mut())?);
            }
        }
        self.entering_result = self.factory.accumulator()?;
        Ok(())
    }
}

impl Accumulator for SlidingAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        if values[0].is_empty() {
            return Ok(());
        }
        self.entering_result.update_batch(values)?;
        self.entering.push_back(values.to_vec());
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.leave(values[0].len())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.leaving.is_empty() {
            return self.entering_result.evaluate();
        }
        let mut frame = self.create()?;
        self.merge_into(frame.as_mut())?;
        frame.evaluate()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        not_impl_err!("partial results of a sliding frame")
    }

    fn merge_batch(&mut self, _states: &[ArrayRef]) -> Result<()> {
        not_impl_err!("partial results of a sliding frame")
    }

    fn size(&self) -> usize {
        let arrays = self.leaving.iter().chain(&self.entering).flatten();
        size_of_val(self)
            + self.entering_result.size()
            + arrays.map(|array| array.to_data().get_slice_memory_size().unwrap_or(0)).sum::<usize>()
    }
}
