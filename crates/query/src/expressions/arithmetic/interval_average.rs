//! `avg` of intervals. Months, days and time are summed apart, and the sum is divided as an interval is divided by a
//! number.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Field, FieldRef, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Accumulator;
use datafusion::logical_expr::utils::format_state_name;

use super::super::dates::divided_interval;

pub(super) const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
/// The type of a sum of nanoseconds. More than 10^18 intervals fit.
const NANOSECONDS: DataType = DataType::Decimal128(38, 0);

/// Sum of some intervals, and their count.
#[derive(Debug, Default)]
pub(super) struct IntervalAverage {
    count: i64,
    months: i64,
    days: i64,
    nanoseconds: i128,
}

/// Fields of the state of an average called `name`: count, months, days, nanoseconds.
pub(super) fn state_fields(name: &str) -> Vec<FieldRef> {
    [("count", DataType::Int64), ("months", DataType::Int64), ("days", DataType::Int64), ("nanoseconds", NANOSECONDS)]
        .map(|(part, data_type)| Arc::new(Field::new(format_state_name(name, part), data_type, true)))
        .to_vec()
}

impl IntervalAverage {
    /// Adds intervals, each `sign` times.
    fn add(&mut self, intervals: &ArrayRef, sign: i64) {
        for interval in intervals.as_primitive::<IntervalMonthDayNanoType>().iter().flatten() {
            self.count += sign;
            self.months += sign * i64::from(interval.months);
            self.days += sign * i64::from(interval.days);
            self.nanoseconds += i128::from(sign) * i128::from(interval.nanoseconds);
        }
    }

    fn sum(&self) -> Option<IntervalMonthDayNano> {
        let (months, days) = (self.months.try_into().ok()?, self.days.try_into().ok()?);
        Some(IntervalMonthDayNano::new(months, days, self.nanoseconds.try_into().ok()?))
    }
}

impl Accumulator for IntervalAverage {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(&values[0], 1);
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.count == 0 {
            return Ok(ScalarValue::IntervalMonthDayNano(None));
        }
        let average = self.sum().and_then(|sum| divided_interval(sum, self.count as f64));
        match average {
            Some(average) => Ok(ScalarValue::IntervalMonthDayNano(Some(average))),
            None => Err(ArrowError::ArithmeticOverflow("interval out of range".to_owned()).into()),
        }
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let [count, months, days] = [self.count, self.months, self.days].map(|part| ScalarValue::Int64(Some(part)));
        Ok(vec![count, months, days, ScalarValue::Decimal128(Some(self.nanoseconds), 38, 0)])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let part = |state: usize, row: usize| states[state].as_primitive::<Int64Type>().value(row);
        for row in 0..states[0].len() {
            self.count += part(0, row);
            self.months += part(1, row);
            self.days += part(2, row);
            self.nanoseconds += states[3].as_primitive::<Decimal128Type>().value(row);
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(&values[0], -1);
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }
}
