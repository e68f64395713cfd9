//! Exact sums of integers and decimals.
//!
//! Sums are computed in 128 bits. A sum that its type cannot hold is an error; DataFusion's own `sum` wraps. Partial
//! sums are decimals of scale 0, or of the scale of the values, whatever the type of the result:
//!
//! ```text
//!   sum(bigint)           bigint                partial sums decimal(38, 0)
//!   sum(decimal(p, s))    decimal(p + 10, s)    partial sums decimal(38, s)
//! ```
//!
//! The engine computes sums of other types. A sum of floating-point numbers that overflows is an error, see
//! [`super::finite`].

use std::mem::size_of_val;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Decimal128Array, PrimitiveArray,
};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, Int64Type, UInt64Type};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::functions_aggregate::sum::Sum as EngineSum;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, SetMonotonicity, Signature,
};

use super::division::PRECISION;
use super::finite::{FiniteAccumulator, FiniteGroups};
use super::kernels::{DECIMAL_MAX, overflow};

/// The function that replaces DataFusion's `sum`.
pub fn sum() -> AggregateUDF {
    AggregateUDF::new_from_impl(Sum { engine: EngineSum::new() })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Sum {
    engine: EngineSum,
}

impl AggregateUDFImpl for Sum {
    fn name(&self) -> &str {
        self.engine.name()
    }

    fn signature(&self) -> &Signature {
        self.engine.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.engine.return_type(types)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        match SumType::of(args.return_type()) {
            Some(sum_type) if !args.is_distinct => {
                let field = Field::new(format_state_name(args.name, "sum"), sum_type.state(), true);
                Ok(vec![Arc::new(field)])
            }
            _ => self.engine.state_fields(args),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let sum_type = SumType::of(args.return_type());
        Ok(match (sum_type, args.is_distinct) {
            (None, is_distinct) => Box::new(FiniteAccumulator::new(self.engine.accumulator(args)?, is_distinct)),
            (Some(sum_type), false) => Box::new(ExactSum::new(sum_type)),
            (Some(sum_type), true) => Box::new(DistinctSum { engine: self.engine.accumulator(args)?, sum_type }),
        })
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.engine.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(match SumType::of(args.return_type()) {
            Some(sum_type) => {
                Box::new(ExactSums { sum_type, sums: Vec::new(), has_values: None, has_overflowed: false })
            }
            None => Box::new(FiniteGroups::new(self.engine.create_groups_accumulator(args)?)),
        })
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(match SumType::of(args.return_type()) {
            Some(sum_type) if !args.is_distinct => Box::new(ExactSum::new(sum_type)),
            _ => self.engine.create_sliding_accumulator(args)?,
        })
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.engine.order_sensitivity()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.engine.reverse_expr()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.engine.set_monotonicity(data_type)
    }
}

/// Type of an exact sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SumType {
    Int64,
    UInt64,
    Decimal { precision: u8, scale: i8 },
}

impl SumType {
    /// Returns `None` for types that DataFusion sums.
    fn of(data_type: &DataType) -> Option<Self> {
        match data_type {
            DataType::Int64 => Some(Self::Int64),
            DataType::UInt64 => Some(Self::UInt64),
            DataType::Decimal128(precision, scale) => Some(Self::Decimal { precision: *precision, scale: *scale }),
            _ => None,
        }
    }

    fn result(self) -> DataType {
        match self {
            Self::Int64 => DataType::Int64,
            Self::UInt64 => DataType::UInt64,
            Self::Decimal { precision, scale } => DataType::Decimal128(precision, scale),
        }
    }

    /// Type of partial sums.
    fn state(self) -> DataType {
        match self {
            Self::Decimal { scale, .. } => DataType::Decimal128(PRECISION, scale),
            Self::Int64 | Self::UInt64 => DataType::Decimal128(PRECISION, 0),
        }
    }

    /// Passes the values of an array to `add`. They are partial sums, or numbers of the result's type.
    fn read(self, values: &ArrayRef, add: &mut impl AddValues) -> Result<()> {
        match values.data_type() {
            DataType::Int64 => add.add::<Int64Type>(values.as_primitive()),
            DataType::UInt64 => add.add::<UInt64Type>(values.as_primitive()),
            DataType::Decimal128(..) => add.add::<Decimal128Type>(values.as_primitive()),
            other => return internal_err!("sum of {other}"),
        }
        Ok(())
    }

    /// Array of partial sums.
    fn states(self, sums: Vec<i128>, nulls: Option<NullBuffer>) -> ArrayRef {
        Arc::new(Decimal128Array::new(sums.into(), nulls).with_data_type(self.state()))
    }

    /// Array of results.
    ///
    /// # Errors
    /// If the type cannot hold a sum.
    fn results(self, sums: Vec<i128>, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
        let is_null = |row: usize| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
        let bounds = match self {
            Self::Int64 => (i64::MIN.into(), i64::MAX.into()),
            Self::UInt64 => (0, u64::MAX.into()),
            Self::Decimal { precision: PRECISION.., .. } => (-DECIMAL_MAX, DECIMAL_MAX),
            Self::Decimal { precision, .. } => {
                let greatest = 10_i128.pow(precision.into()) - 1;
                (-greatest, greatest)
            }
        };
        let is_outside = |sum: i128| sum < bounds.0 || sum > bounds.1;
        if sums.iter().enumerate().any(|(row, sum)| is_outside(*sum) && !is_null(row)) {
            return Err(overflow(&self.result()).into());
        }
        Ok(match self {
            Self::Int64 => {
                let sums: Vec<i64> = sums.into_iter().map(|sum| sum as i64).collect();
                Arc::new(PrimitiveArray::<Int64Type>::new(sums.into(), nulls))
            }
            Self::UInt64 => {
                let sums: Vec<u64> = sums.into_iter().map(|sum| sum as u64).collect();
                Arc::new(PrimitiveArray::<UInt64Type>::new(sums.into(), nulls))
            }
            Self::Decimal { .. } => Arc::new(Decimal128Array::new(sums.into(), nulls).with_data_type(self.result())),
        })
    }
}

/// Sums to which the values of an array are added. The values have one of three types, see [`SumType::read`].
trait AddValues {
    fn add<T: ArrowPrimitiveType>(&mut self, values: &PrimitiveArray<T>)
    where
        T::Native: Into<i128>;
}

/// Accumulator of one sum.
#[derive(Debug)]
struct ExactSum {
    sum_type: SumType,
    sum: i128,
    /// Number of values and partial sums that are not null.
    count: u64,
    has_overflowed: bool,
}

impl ExactSum {
    fn new(sum_type: SumType) -> Self {
        Self { sum_type, sum: 0, count: 0, has_overflowed: false }
    }

    fn nulls(&self) -> Option<NullBuffer> {
        (self.count == 0).then(|| NullBuffer::new_null(1))
    }

    fn check(&self) -> Result<()> {
        if self.has_overflowed { Err(overflow(&self.sum_type.result()).into()) } else { Ok(()) }
    }
}

/// Sum and count of the values of some arrays.
#[derive(Default)]
struct Total {
    sum: i128,
    count: u64,
    has_overflowed: bool,
}

impl AddValues for Total {
    fn add<T: ArrowPrimitiveType>(&mut self, values: &PrimitiveArray<T>)
    where
        T::Native: Into<i128>,
    {
        let mut add = |value: T::Native| {
            let (sum, has_overflowed) = self.sum.overflowing_add(value.into());
            self.sum = sum;
            self.has_overflowed |= has_overflowed;
        };
        match values.null_count() {
            0 => values.values().iter().for_each(|value| add(*value)),
            _ => values.iter().flatten().for_each(add),
        }
        self.count += (values.len() - values.null_count()) as u64;
    }
}

impl Accumulator for ExactSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let mut total = Total::default();
        self.sum_type.read(&values[0], &mut total)?;
        let (sum, has_overflowed) = self.sum.overflowing_add(total.sum);
        self.sum = sum;
        self.count += total.count;
        self.has_overflowed |= total.has_overflowed || has_overflowed;
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let mut total = Total::default();
        self.sum_type.read(&values[0], &mut total)?;
        let (sum, has_overflowed) = self.sum.overflowing_sub(total.sum);
        self.sum = sum;
        self.count -= total.count;
        self.has_overflowed |= total.has_overflowed || has_overflowed;
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.check()?;
        Ok(vec![ScalarValue::try_from_array(&self.sum_type.states(vec![self.sum], self.nulls()), 0)?])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.check()?;
        ScalarValue::try_from_array(&self.sum_type.results(vec![self.sum], self.nulls())?, 0)
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// Accumulator of `sum(DISTINCT ...)`. The engine collects the values.
#[derive(Debug)]
struct DistinctSum {
    engine: Box<dyn Accumulator>,
    sum_type: SumType,
}

impl Accumulator for DistinctSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.engine.update_batch(values)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.engine.merge_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.engine.state()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        match self.engine.state()?.as_slice() {
            [ScalarValue::List(values)] => {
                let mut sum = ExactSum::new(self.sum_type);
                sum.update_batch(&[Arc::clone(values.values())])?;
                sum.evaluate()
            }
            states => internal_err!("sum(DISTINCT ...) has {} states", states.len()),
        }
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.engine.size()
    }
}

/// Accumulator of one sum for each group.
struct ExactSums {
    sum_type: SumType,
    sums: Vec<i128>,
    /// Whether each group has a value that is not null. `None` if all groups have one.
    has_values: Option<Vec<bool>>,
    has_overflowed: bool,
}

/// Adds the rows of a batch to the sums of their groups.
struct GroupedRows<'a> {
    sums: &'a mut ExactSums,
    groups: &'a [usize],
    filter: Option<&'a BooleanArray>,
}

impl AddValues for GroupedRows<'_> {
    fn add<T: ArrowPrimitiveType>(&mut self, values: &PrimitiveArray<T>)
    where
        T::Native: Into<i128>,
    {
        let ExactSums { sums, has_values, has_overflowed, .. } = &mut *self.sums;
        let mut any = false;
        let mut add = |group: usize, value: T::Native| {
            let (sum, overflows) = sums[group].overflowing_add(value.into());
            sums[group] = sum;
            any |= overflows;
        };
        let passes = |row: usize| self.filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
        match has_values {
            None => self.groups.iter().zip(values.values()).for_each(|(group, value)| add(*group, *value)),
            Some(has_values) => {
                for (row, (group, value)) in self.groups.iter().zip(values.values()).enumerate() {
                    if values.is_valid(row) && passes(row) {
                        has_values[*group] = true;
                        add(*group, *value);
                    }
                }
            }
        }
        *has_overflowed |= any;
    }
}

impl ExactSums {
    /// Adds the values of a batch. As long as no batch has nulls or a filter, each group has a value, and `has_values`
    /// stays `None`.
    fn add(
        &mut self,
        values: &ArrayRef,
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        groups: usize,
    ) -> Result<()> {
        if self.has_values.is_none() && (filter.is_some() || values.null_count() > 0) {
            self.has_values = Some(vec![true; self.sums.len()]);
        }
        self.sums.resize(groups, 0);
        if let Some(has_values) = &mut self.has_values {
            has_values.resize(groups, false);
        }
        let sum_type = self.sum_type;
        sum_type.read(values, &mut GroupedRows { sums: self, groups: group_indices, filter })
    }

    /// Removes the sums of the emitted groups. Returns them, with null for groups without values.
    fn take(&mut self, emit_to: EmitTo) -> Result<(Vec<i128>, Option<NullBuffer>)> {
        if self.has_overflowed {
            return Err(overflow(&self.sum_type.result()).into());
        }
        let sums = emit_to.take_needed(&mut self.sums);
        let has_values = self.has_values.as_mut().map(|has_values| emit_to.take_needed(has_values));
        Ok((sums, has_values.map(NullBuffer::from).filter(|nulls| nulls.null_count() > 0)))
    }
}

impl GroupsAccumulator for ExactSums {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        groups: usize,
    ) -> Result<()> {
        self.add(&values[0], group_indices, filter, groups)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], group_indices: &[usize], groups: usize) -> Result<()> {
        self.add(&states[0], group_indices, None, groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (sums, nulls) = self.take(emit_to)?;
        self.sum_type.results(sums, nulls)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let (sums, nulls) = self.take(emit_to)?;
        Ok(vec![self.sum_type.states(sums, nulls)])
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let rows = values[0].len();
        let mut sums = Self { sum_type: self.sum_type, sums: Vec::new(), has_values: None, has_overflowed: false };
        let groups: Vec<usize> = (0..rows).collect();
        sums.add(&values[0], &groups, filter, rows)?;
        sums.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.sums.capacity() * size_of::<i128>() + self.has_values.as_ref().map_or(0, Vec::capacity)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Int64Array;

    use super::*;

    fn array(values: &[Option<i64>]) -> ArrayRef {
        Arc::new(Int64Array::from(values.to_vec()))
    }

    #[test]
    fn a_partial_sum_may_exceed_the_range_of_the_result() {
        let mut sum = ExactSum::new(SumType::Int64);
        sum.update_batch(&[array(&[Some(i64::MAX), Some(1), None])]).unwrap();
        assert!(sum.evaluate().unwrap_err().to_string().contains("bigint out of range"));
        let state = sum.state().unwrap()[0].to_array().unwrap();
        let mut merged = ExactSum::new(SumType::Int64);
        merged.merge_batch(&[state]).unwrap();
        merged.update_batch(&[array(&[Some(-2)])]).unwrap();
        assert_eq!(merged.evaluate().unwrap(), ScalarValue::Int64(Some(i64::MAX - 1)));
        sum.retract_batch(&[array(&[Some(i64::MAX), None])]).unwrap();
        assert_eq!(sum.evaluate().unwrap(), ScalarValue::Int64(Some(1)));
        sum.retract_batch(&[array(&[Some(1)])]).unwrap();
        assert_eq!(sum.evaluate().unwrap(), ScalarValue::Int64(None));
    }

    #[test]
    fn sums_of_decimals_have_at_most_38_digits() {
        let decimals = |values: &[i128]| -> ArrayRef { Arc::new(Decimal128Array::from(values.to_vec())) };
        let sum_type = SumType::Decimal { precision: PRECISION, scale: 10 };
        let mut sum = ExactSum::new(sum_type);
        sum.update_batch(&[decimals(&[DECIMAL_MAX, 1])]).unwrap();
        assert!(sum.evaluate().unwrap_err().to_string().contains("value overflows numeric format"));
        sum.update_batch(&[decimals(&[DECIMAL_MAX])]).unwrap();
        assert!(sum.state().unwrap_err().to_string().contains("value overflows numeric format"));
    }

    #[test]
    fn groups_without_values_are_null() {
        let new = || ExactSums { sum_type: SumType::Int64, sums: Vec::new(), has_values: None, has_overflowed: false };
        let mut sums = new();
        sums.update_batch(&[array(&[Some(1), Some(2)])], &[0, 1], None, 2).unwrap();
        sums.update_batch(&[array(&[None, Some(4), Some(5)])], &[2, 3, 0], None, 4).unwrap();
        let filter = BooleanArray::from(vec![Some(false), None, Some(true)]);
        sums.update_batch(&[array(&[Some(7), Some(8), Some(9)])], &[4, 4, 1], Some(&filter), 5).unwrap();
        let first = sums.evaluate(EmitTo::First(1)).unwrap();
        assert_eq!(first.as_primitive::<Int64Type>(), &Int64Array::from(vec![6]));
        let states = sums.state(EmitTo::All).unwrap();
        let mut merged = new();
        merged.merge_batch(&states, &[0, 1, 2, 3], 4).unwrap();
        let results = merged.evaluate(EmitTo::All).unwrap();
        assert_eq!(results.as_primitive::<Int64Type>(), &Int64Array::from(vec![Some(11), None, Some(4), None]));
        let converted = new().convert_to_state(&[array(&[Some(1), None])], None).unwrap();
        assert_eq!(converted[0].as_primitive::<Decimal128Type>().iter().collect::<Vec<_>>(), [Some(1), None]);
    }
}
