//! `min` and `max` of floating-point numbers, in PostgreSQL's order: NaN is greater than infinity, and all NaN are
//! equal.
//!
//! The engine's functions initialize a group with the greatest or least finite number, so a group of infinities gets a
//! wrong result. Their result for NaN depends on the order of rows. Here, DataFusion's functions aggregate integer keys
//! instead, which sort like the numbers:
//!
//! ```text
//!   -inf < -1.0 < -0.0 < 0.0 < 1.0 < inf < NaN
//!   key = the bits if the sign bit is 0, otherwise the bits with all but the sign bit inverted
//! ```
//!
//! Intervals are compared by their length, with 30 days in a month. The engine would compare months, then days, then
//! the time. Other types are left to DataFusion's functions.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, BooleanArray};
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Field, Float32Type, Float64Type, Int32Type, Int64Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType, IntervalUnit,
};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::functions_aggregate::min_max::{Max, Min};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, Expr, GroupsAccumulator, ReversedUDAF, SetMonotonicity,
    Signature, StatisticsArgs,
};

use super::super::intervals::lengths as interval_lengths;
use super::sliding::sliding_accumulator;

/// The `min` and `max` that replace those of DataFusion.
pub fn extrema() -> [AggregateUDF; 2] {
    [
        AggregateUDF::new_from_impl(Extremum { engine: Min::new() }),
        AggregateUDF::new_from_impl(Extremum { engine: Max::new() }),
    ]
}

/// `min` of an expression.
pub fn minimum(argument: Expr) -> Expr {
    let [min, _] = extrema();
    min.call(vec![argument])
}

/// `max` of an expression.
pub fn maximum(argument: Expr) -> Expr {
    let [_, max] = extrema();
    max.call(vec![argument])
}

/// `min` or `max`, based on DataFusion's function.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Extremum<Engine> {
    engine: Engine,
}

/// Type of the keys for a floating-point type. Returns `None` for other types.
fn key_type(data_type: &DataType) -> Option<DataType> {
    match data_type {
        DataType::Float32 => Some(DataType::Int32),
        DataType::Float64 => Some(DataType::Int64),
        _ => None,
    }
}

impl<Engine: AggregateUDFImpl + Eq + std::hash::Hash> AggregateUDFImpl for Extremum<Engine> {
    fn name(&self) -> &str {
        self.engine.name()
    }

    fn signature(&self) -> &Signature {
        self.engine.signature()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.engine.coerce_types(types)
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.engine.return_type(types)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if is_interval(args.return_type()) {
            return Ok(Box::new(IntervalExtremum { is_maximum: self.name() == "max", best: None }));
        }
        match key_type(args.return_type()) {
            Some(key_type) => Ok(Box::new(ByKey { engine: self.engine.accumulator(with_type(args, key_type))? })),
            None => self.engine.accumulator(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        !is_interval(args.return_type()) && self.engine.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        match key_type(args.return_type()) {
            Some(key_type) => {
                Ok(Box::new(ByKey { engine: self.engine.create_groups_accumulator(with_type(args, key_type))? }))
            }
            None => self.engine.create_groups_accumulator(args),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if is_interval(args.return_type()) {
            let [min, max] = extrema();
            return sliding_accumulator(if self.name() == "max" { max } else { min }, &args);
        }
        match key_type(args.return_type()) {
            Some(key_type) => {
                Ok(Box::new(ByKey { engine: self.engine.create_sliding_accumulator(with_type(args, key_type))? }))
            }
            None => self.engine.create_sliding_accumulator(args),
        }
    }

    fn is_descending(&self) -> Option<bool> {
        self.engine.is_descending()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.engine.order_sensitivity()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.engine.reverse_expr()
    }

    fn value_from_stats(&self, args: &StatisticsArgs<'_>) -> Option<ScalarValue> {
        self.engine.value_from_stats(args)
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.engine.set_monotonicity(data_type)
    }
}

fn is_interval(data_type: &DataType) -> bool {
    *data_type == DataType::Interval(IntervalUnit::MonthDayNano)
}

/// Accumulator for the shortest or longest interval.
#[derive(Debug)]
struct IntervalExtremum {
    is_maximum: bool,
    /// Length in nanoseconds of the shortest or longest interval so far, and the interval.
    best: Option<(i128, IntervalMonthDayNano)>,
}

impl Accumulator for IntervalExtremum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let lengths = interval_lengths(&values[0])?;
        let intervals = values[0].as_primitive::<IntervalMonthDayNanoType>();
        for (length, interval) in lengths.as_primitive::<Decimal128Type>().iter().zip(intervals) {
            let Some((length, interval)) = length.zip(interval) else { continue };
            let is_better = self.best.is_none_or(|(best_length, _)| match self.is_maximum {
                true => length > best_length,
                false => length < best_length,
            });
            if is_better {
                self.best = Some((length, interval));
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::IntervalMonthDayNano(self.best.map(|(_, interval)| interval)))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// Returns the accumulator arguments with another result type.
fn with_type(args: AccumulatorArgs<'_>, data_type: DataType) -> AccumulatorArgs<'_> {
    AccumulatorArgs { return_field: Arc::new(Field::new(args.return_field.name(), data_type, true)), ..args }
}

/// Accumulator of floating-point numbers. An accumulator of DataFusion aggregates their integer keys.
#[derive(Debug)]
struct ByKey<Engine> {
    engine: Engine,
}

impl Accumulator for ByKey<Box<dyn Accumulator>> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.engine.update_batch(&keys(values)?)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.engine.merge_batch(&keys(states)?)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.engine.retract_batch(&keys(values)?)
    }

    fn supports_retract_batch(&self) -> bool {
        self.engine.supports_retract_batch()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.engine.state()?.iter().map(number).collect()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        number(&self.engine.evaluate()?)
    }

    fn size(&self) -> usize {
        self.engine.size()
    }
}

impl GroupsAccumulator for ByKey<Box<dyn GroupsAccumulator>> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.engine.update_batch(&keys(values)?, groups, filter, total)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.engine.merge_batch(&keys(states)?, groups, total)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        numbers(&self.engine.evaluate(emit_to)?)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.engine.state(emit_to)?.iter().map(numbers).collect()
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        self.engine.convert_to_state(&keys(values)?, filter)?.iter().map(numbers).collect()
    }

    fn size(&self) -> usize {
        self.engine.size()
    }
}

fn key_of_f32(number: f32) -> i32 {
    let bits = if number.is_nan() { f32::NAN } else { number }.to_bits().cast_signed();
    if bits < 0 { bits ^ i32::MAX } else { bits }
}

fn key_of_f64(number: f64) -> i64 {
    let bits = if number.is_nan() { f64::NAN } else { number }.to_bits().cast_signed();
    if bits < 0 { bits ^ i64::MAX } else { bits }
}

fn f32_of_key(key: i32) -> f32 {
    f32::from_bits(if key < 0 { key ^ i32::MAX } else { key }.cast_unsigned())
}

fn f64_of_key(key: i64) -> f64 {
    f64::from_bits(if key < 0 { key ^ i64::MAX } else { key }.cast_unsigned())
}

/// Converts columns of numbers to keys.
fn keys(columns: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
    let key = |column: &ArrayRef| match column.data_type() {
        DataType::Float32 => Ok(Arc::new(column.as_primitive::<Float32Type>().unary::<_, Int32Type>(key_of_f32)) as _),
        DataType::Float64 => Ok(Arc::new(column.as_primitive::<Float64Type>().unary::<_, Int64Type>(key_of_f64)) as _),
        other => internal_err!("min or max: expected floating-point numbers, found {other}"),
    };
    columns.iter().map(key).collect()
}

/// Converts a column of keys to numbers.
fn numbers(column: &ArrayRef) -> Result<ArrayRef> {
    match column.data_type() {
        DataType::Int32 => Ok(Arc::new(column.as_primitive::<Int32Type>().unary::<_, Float32Type>(f32_of_key))),
        DataType::Int64 => Ok(Arc::new(column.as_primitive::<Int64Type>().unary::<_, Float64Type>(f64_of_key))),
        other => internal_err!("min or max: expected keys, found {other}"),
    }
}

/// Converts a key to a number.
fn number(value: &ScalarValue) -> Result<ScalarValue> {
    match value {
        ScalarValue::Int32(key) => Ok(ScalarValue::Float32(key.map(f32_of_key))),
        ScalarValue::Int64(key) => Ok(ScalarValue::Float64(key.map(f64_of_key))),
        other => internal_err!("min or max: expected a key, found {}", other.data_type()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_order_of_numbers() {
        let numbers = [f64::NEG_INFINITY, f64::MIN, -1.0, -0.0, 0.0, 1e-300, 1.0, f64::MAX, f64::INFINITY, f64::NAN];
        assert!(numbers.windows(2).all(|pair| key_of_f64(pair[0]) < key_of_f64(pair[1])));
        assert!(numbers.iter().all(|number| f64_of_key(key_of_f64(*number)).to_bits() == number.to_bits()));
        assert_eq!(key_of_f64(f64::NAN), key_of_f64(-f64::NAN));
        let numbers = [f32::NEG_INFINITY, f32::MIN, -1.0, -0.0, 0.0, 1.0, f32::MAX, f32::INFINITY, f32::NAN];
        assert!(numbers.windows(2).all(|pair| key_of_f32(pair[0]) < key_of_f32(pair[1])));
        assert!(numbers.iter().all(|number| f32_of_key(key_of_f32(*number)).to_bits() == number.to_bits()));
    }
}
