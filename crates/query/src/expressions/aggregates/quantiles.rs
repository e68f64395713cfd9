//! Aggregates that need all values in order: percentiles, the most frequent value, and entropy.
//!
//! ```text
//!   percentile_cont(0.5) WITHIN GROUP (ORDER BY x)    quantile_cont(x, 0.5)
//!   percentile_disc(0.5) WITHIN GROUP (ORDER BY x)    quantile_disc(x, 0.5), quantile(x, 0.5)
//!   mode() WITHIN GROUP (ORDER BY x)                  mode(x)
//!                                                     entropy(x)
//! ```
//!
//! The fraction can be an array; the result is then an array. The engine's `percentile_cont` uses only six digits of
//! the fraction, and accepts only numbers.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, IntervalMonthDayNanoArray, RecordBatch, TimestampMicrosecondArray,
    new_empty_array,
};
use datafusion::arrow::compute::{SortOptions, cast, concat, partition, sort, take};
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, Float64Type, Int64Type, IntervalMonthDayNanoType, IntervalUnit, UInt64Type,
};
use datafusion::arrow::error::ArrowError;
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, Signature, Volatility};
use taut_types::LogicalType;

use super::super::dates::{as_intervals, interpolated_interval};

/// The aggregates of this module.
pub(super) fn aggregates() -> impl Iterator<Item = AggregateUDF> {
    [
        ("percentile_cont", OrderedResult::Continuous, &["quantile_cont"][..]),
        ("percentile_disc", OrderedResult::Discrete, &["quantile_disc", "quantile"][..]),
        ("mode", OrderedResult::Mode, &[][..]),
        ("entropy", OrderedResult::Entropy, &[][..]),
    ]
    .into_iter()
    .map(|(name, kind, aliases)| {
        let aliases = aliases.iter().map(|alias| (*alias).to_owned()).collect();
        let signature = Signature::user_defined(Volatility::Immutable);
        AggregateUDF::new_from_impl(OrderedAggregate { name, kind, aliases, signature })
    })
}

/// Result that is computed from the sorted values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OrderedResult {
    /// The value at a fraction of the way from the first to the last value, interpolated between two values.
    Continuous,
    /// The first value whose cumulative share of the sorted values reaches the fraction.
    Discrete,
    /// The most frequent value; of several, the first in sort order.
    Mode,
    /// Shannon's entropy of the frequencies of the values, in bits.
    Entropy,
}

#[derive(Debug)]
struct OrderedAggregate {
    name: &'static str,
    kind: OrderedResult,
    aliases: Vec<String>,
    signature: Signature,
}

impl PartialEq for OrderedAggregate {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for OrderedAggregate {}

impl Hash for OrderedAggregate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl OrderedAggregate {
    /// Type to which values are cast before they are collected. Returns `None` for a type that is not accepted.
    fn stored_type(&self, data_type: &DataType) -> Option<DataType> {
        match data_type {
            DataType::Interval(_) | DataType::Duration(_) => Some(DataType::Interval(IntervalUnit::MonthDayNano)),
            DataType::Null if self.kind == OrderedResult::Continuous => Some(DataType::Float64),
            data_type if self.kind != OrderedResult::Continuous => Some(data_type.clone()),
            number if number.is_numeric() => Some(DataType::Float64),
            DataType::Date32 | DataType::Timestamp(_, None) => Some(LogicalType::Timestamp.arrow()),
            DataType::Timestamp(_, Some(_)) => Some(LogicalType::TimestampTz.arrow()),
            _ => None,
        }
    }

    fn takes_fraction(&self) -> bool {
        matches!(self.kind, OrderedResult::Continuous | OrderedResult::Discrete)
    }
}

fn list_of(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(item, true)))
}

impl AggregateUDFImpl for OrderedAggregate {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let fraction = |data_type: &DataType| match data_type {
            DataType::List(item) if item.data_type().is_numeric() => Some(list_of(DataType::Float64)),
            DataType::Null => Some(DataType::Float64),
            number if number.is_numeric() => Some(DataType::Float64),
            _ => None,
        };
        let coerced = match types {
            [value] if !self.takes_fraction() => self.stored_type(value).map(|value| vec![value]),
            [value, share] if self.takes_fraction() => {
                self.stored_type(value).zip(fraction(share)).map(|(value, share)| vec![value, share])
            }
            _ => None,
        };
        match coerced {
            Some(coerced) => Ok(coerced),
            None => {
                let types: Vec<String> = types.iter().map(ToString::to_string).collect();
                plan_err!(
                    "No function matches the given name and argument types '{}({})'.",
                    self.name,
                    types.join(", ")
                )
            }
        }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let value = match self.kind {
            OrderedResult::Entropy => DataType::Float64,
            _ => types[0].clone(),
        };
        Ok(match types.get(1) {
            Some(DataType::List(_)) => list_of(value),
            _ => value,
        })
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let values = list_of(args.input_fields[0].data_type().clone());
        Ok(vec![Arc::new(Field::new(format_state_name(args.name, "values"), values, true))])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let fraction = match args.exprs.get(1) {
            Some(fraction) if self.takes_fraction() => {
                let no_rows = RecordBatch::new_empty(Arc::new(args.schema.clone()));
                match fraction.evaluate(&no_rows)? {
                    ColumnarValue::Scalar(fraction) => Some(fraction),
                    ColumnarValue::Array(_) => return plan_err!("the fraction of {} must be a constant", self.name),
                }
            }
            _ => None,
        };
        Ok(Box::new(OrderedValues {
            kind: self.kind,
            fraction,
            is_descending: args.order_bys.first().is_some_and(|order| order.options.descending),
            is_distinct: args.is_distinct,
            data_type: args.expr_fields[0].data_type().clone(),
            return_type: args.return_field.data_type().clone(),
            values: Vec::new(),
        }))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn supports_within_group_clause(&self) -> bool {
        true
    }
}

/// Maximum number of small arrays of a group. One more array concatenates them, because many small arrays waste memory.
const ARRAYS_MAX: usize = 16;

/// Collects values, and sorts them at the end.
#[derive(Debug)]
struct OrderedValues {
    kind: OrderedResult,
    fraction: Option<ScalarValue>,
    is_descending: bool,
    is_distinct: bool,
    data_type: DataType,
    return_type: DataType,
    values: Vec<ArrayRef>,
}

impl OrderedValues {
    fn add(&mut self, values: &ArrayRef) -> Result<()> {
        if values.len() == values.null_count() {
            return Ok(());
        }
        self.values.push(Arc::clone(values));
        if self.values.len() > ARRAYS_MAX && self.values.iter().map(Array::len).sum::<usize>() < 1 << 16 {
            self.values = vec![self.joined()?];
        }
        Ok(())
    }

    fn joined(&self) -> Result<ArrayRef> {
        let arrays: Vec<&dyn Array> = self.values.iter().map(AsRef::as_ref).collect();
        match arrays.as_slice() {
            [] => Ok(new_empty_array(&self.data_type)),
            arrays => Ok(concat(arrays)?),
        }
    }

    /// The values in order, without nulls.
    fn sorted(&self) -> Result<ArrayRef> {
        let options = SortOptions { descending: self.is_descending, nulls_first: false };
        let joined = self.joined()?;
        let sorted = match joined.data_type() {
            // Intervals sort by length. Arrow would compare months, then days, then the time.
            DataType::Interval(_) => sorted_intervals(&joined, options)?,
            _ => sort(&joined, Some(options))?,
        };
        let sorted = sorted.slice(0, sorted.len() - joined.null_count());
        if !self.is_distinct {
            return Ok(sorted);
        }
        let firsts = ranges(&sorted)?.into_iter().map(|range| range.start as u64);
        let firsts = datafusion::arrow::array::UInt64Array::from_iter_values(firsts);
        Ok(take(&sorted, &firsts, None)?)
    }

    /// Values at the given fractions of the sorted values. Null for a null fraction, or if there are no values.
    fn at_fractions(&self, sorted: &ArrayRef, fractions: &Float64Array) -> Result<ArrayRef> {
        for fraction in fractions.iter().flatten() {
            if !(0.0..=1.0).contains(&fraction) {
                let message = format!("percentile value {fraction} is not between 0 and 1");
                return Err(ArrowError::ArithmeticOverflow(message).into());
            }
        }
        let fractions = fractions.iter().map(|fraction| fraction.filter(|_| !sorted.is_empty()));
        if self.kind == OrderedResult::Continuous {
            return interpolated(sorted, fractions);
        }
        let index = |fraction: f64| ((fraction * sorted.len() as f64).ceil() as u64).saturating_sub(1);
        let indices = fractions.map(|fraction| fraction.map(index));
        let indices: datafusion::arrow::array::PrimitiveArray<UInt64Type> = indices.collect();
        Ok(take(sorted, &indices, None)?)
    }

    fn percentiles(&self, sorted: &ArrayRef) -> Result<ScalarValue> {
        match &self.fraction {
            Some(ScalarValue::List(list)) if list.is_null(0) => Ok(ScalarValue::try_from(&self.return_type)?),
            // Without rows the result is null, not an array of nulls.
            Some(ScalarValue::List(_)) if sorted.is_empty() => Ok(ScalarValue::try_from(&self.return_type)?),
            Some(ScalarValue::List(list)) => {
                let fractions = cast(&list.value(0), &DataType::Float64)?;
                let values = self.at_fractions(sorted, fractions.as_primitive::<Float64Type>())?;
                Ok(SingleRowListArrayBuilder::new(values).build_list_scalar())
            }
            Some(ScalarValue::Float64(fraction)) => {
                let values = self.at_fractions(sorted, &Float64Array::from(vec![*fraction]))?;
                ScalarValue::try_from_array(&values, 0)
            }
            other => exec_err!("{other:?} is not a fraction"),
        }
    }
}

/// Index ranges of equal values.
fn ranges(sorted: &ArrayRef) -> Result<Vec<std::ops::Range<usize>>> {
    if sorted.is_empty() {
        return Ok(Vec::new());
    }
    let compared = super::super::intervals::lengths(sorted)?;
    Ok(partition(&[compared])?.ranges())
}

fn sorted_intervals(intervals: &ArrayRef, options: SortOptions) -> Result<ArrayRef> {
    let lengths = super::super::intervals::lengths(intervals)?;
    let indices = datafusion::arrow::compute::sort_to_indices(&lengths, Some(options), None)?;
    Ok(take(intervals, &indices, None)?)
}

/// Values at the given fractions of the way from the first to the last value, linearly interpolated.
fn interpolated(sorted: &ArrayRef, fractions: impl Iterator<Item = Option<f64>>) -> Result<ArrayRef> {
    let last = sorted.len().saturating_sub(1);
    // Index of the value before the position, index of the value after it, and the fraction of the distance between
    // them.
    let positions = fractions.map(|fraction| {
        let position = fraction? * last as f64;
        Some((position.floor() as usize, position.ceil() as usize, position - position.floor()))
    });
    let between = |low: f64, high: f64, part: f64| low + part * (high - low);
    Ok(match sorted.data_type() {
        DataType::Float64 => {
            let numbers = sorted.as_primitive::<Float64Type>();
            let number = |(low, high, part): (usize, usize, f64)| match low == high {
                true => numbers.value(low),
                false => between(numbers.value(low), numbers.value(high), part),
            };
            Arc::new(positions.map(|position| position.map(number)).collect::<Float64Array>())
        }
        DataType::Timestamp(..) => {
            let micros = cast(sorted, &DataType::Int64)?;
            let micros = micros.as_primitive::<Int64Type>();
            let moment = |(low, high, part): (usize, usize, f64)| {
                let (low, high) = (micros.value(low), micros.value(high));
                low + (part * high.saturating_sub(low) as f64) as i64
            };
            let moments: TimestampMicrosecondArray = positions.map(|position| position.map(moment)).collect();
            Arc::new(moments.with_data_type(sorted.data_type().clone()))
        }
        _ => {
            let intervals = as_intervals(sorted)?;
            let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
            let interval = |(low, high, part): (usize, usize, f64)| {
                interpolated_interval(intervals.value(low), intervals.value(high), part)
                    .ok_or_else(|| ArrowError::ComputeError("interval out of range".to_owned()))
            };
            let positions = positions.map(|position| position.map(interval).transpose());
            Arc::new(positions.collect::<Result<IntervalMonthDayNanoArray, _>>()?)
        }
    })
}

impl Accumulator for OrderedValues {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(&values[0])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for values in states[0].as_list::<i32>().iter().flatten() {
            self.add(&values)?;
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![SingleRowListArrayBuilder::new(self.joined()?).build_list_scalar()])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let sorted = self.sorted()?;
        match self.kind {
            OrderedResult::Continuous | OrderedResult::Discrete => self.percentiles(&sorted),
            OrderedResult::Mode => {
                // The first of the longest ranges.
                let longest = ranges(&sorted)?.into_iter().rev().max_by_key(std::iter::ExactSizeIterator::len);
                match longest {
                    Some(range) => ScalarValue::try_from_array(&sorted, range.start),
                    None => Ok(ScalarValue::try_from(&self.return_type)?),
                }
            }
            OrderedResult::Entropy => {
                let total = sorted.len() as f64;
                let of_share = |share: f64| -share * share.log2();
                let entropy: f64 = ranges(&sorted)?.into_iter().map(|range| of_share(range.len() as f64 / total)).sum();
                // No negative zero.
                Ok(ScalarValue::Float64(Some(entropy + 0.0)))
            }
        }
    }

    fn size(&self) -> usize {
        let bytes = |array: &ArrayRef| array.to_data().get_slice_memory_size().unwrap_or(0);
        size_of_val(self) + self.values.iter().map(bytes).sum::<usize>()
    }
}
