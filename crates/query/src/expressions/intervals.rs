//! Comparison of intervals by their length. As in PostgreSQL, a month has 30 days and a day 24 hours. DataFusion
//! compares months, then days, then nanoseconds, and would treat a day as longer than 25 hours.
//!
//! Comparisons and sorts therefore compare the lengths in nanoseconds:
//!
//! ```text
//!   a > interval '1 day'    interval_length(a) > 86400000000000
//! ```

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, PrimitiveArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::compute::kernels::zip::zip;
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Field, FieldRef, Int64Type, IntervalDayTimeType, IntervalMonthDayNanoType, IntervalUnit,
    IntervalYearMonthType, TimeUnit,
};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

const NANOSECONDS_PER_DAY: i128 = 86_400_000_000_000;
const NANOSECONDS_PER_MONTH: i128 = 30 * NANOSECONDS_PER_DAY;
const LENGTH: DataType = DataType::Decimal128(38, 0);

/// Whether a type is an interval, or a difference of timestamps.
pub(super) fn is_interval(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(_) | DataType::Duration(_))
}

/// Returns a call of the function `interval_length`, which computes the length of an interval in nanoseconds. With
/// `keeps_name`, the call has the column name of its argument.
pub fn interval_length(interval: Expr, keeps_name: bool) -> Expr {
    let signature = Signature::any(1, Volatility::Immutable);
    ScalarUDF::new_from_impl(IntervalLength { keeps_name, signature }).call(vec![interval])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct IntervalLength {
    keeps_name: bool,
    signature: Signature,
}

impl ScalarUDFImpl for IntervalLength {
    fn name(&self) -> &'static str {
        "interval_length"
    }

    fn schema_name(&self, intervals: &[Expr]) -> Result<String> {
        let interval = intervals[0].schema_name();
        Ok(if self.keeps_name { interval.to_string() } else { format!("{}({interval})", self.name()) })
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(LENGTH)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(self.name(), LENGTH, args.arg_fields[0].is_nullable())))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(match &args.args[0] {
            ColumnarValue::Array(array) => ColumnarValue::Array(lengths(array)?),
            ColumnarValue::Scalar(scalar) => {
                ColumnarValue::Scalar(ScalarValue::try_from_array(&lengths(&scalar.to_array()?)?, 0)?)
            }
        })
    }

    fn output_ordering(&self, intervals: &[ExprProperties]) -> Result<SortProperties> {
        Ok(match intervals[0].sort_properties {
            SortProperties::Singleton => SortProperties::Singleton,
            _ => SortProperties::Unordered,
        })
    }
}

/// Computes the lengths of intervals in nanoseconds, as decimals. A month has 30 days.
pub(super) fn lengths(intervals: &ArrayRef) -> Result<ArrayRef> {
    let lengths: Decimal128Array = match intervals.data_type() {
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let intervals: &PrimitiveArray<IntervalMonthDayNanoType> = intervals.as_primitive();
            intervals.unary(|interval| {
                i128::from(interval.months) * NANOSECONDS_PER_MONTH
                    + i128::from(interval.days) * NANOSECONDS_PER_DAY
                    + i128::from(interval.nanoseconds)
            })
        }
        DataType::Interval(IntervalUnit::DayTime) => {
            let intervals: &PrimitiveArray<IntervalDayTimeType> = intervals.as_primitive();
            intervals.unary(|interval| {
                i128::from(interval.days) * NANOSECONDS_PER_DAY + i128::from(interval.milliseconds) * 1_000_000
            })
        }
        DataType::Interval(IntervalUnit::YearMonth) => {
            let intervals: &PrimitiveArray<IntervalYearMonthType> = intervals.as_primitive();
            intervals.unary(|months| i128::from(months) * NANOSECONDS_PER_MONTH)
        }
        DataType::Duration(unit) => {
            let (ticks, nanoseconds) = (cast(intervals, &DataType::Int64)?, nanoseconds(*unit));
            ticks.as_primitive::<Int64Type>().unary(|ticks| i128::from(ticks) * nanoseconds)
        }
        other => return internal_err!("interval_length of {other}"),
    };
    Ok(Arc::new(lengths.with_data_type(LENGTH)))
}

/// Number of nanoseconds in one tick of a unit.
fn nanoseconds(unit: TimeUnit) -> i128 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}

/// Returns the function `greatest` or `least` of intervals, which compares their lengths. It ignores nulls.
pub(super) fn extreme_interval(is_greatest: bool) -> ScalarUDF {
    ScalarUDF::new_from_impl(ExtremeInterval { is_greatest, signature: Signature::variadic_any(Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ExtremeInterval {
    is_greatest: bool,
    signature: Signature,
}

impl ScalarUDFImpl for ExtremeInterval {
    fn name(&self) -> &str {
        if self.is_greatest { "greatest" } else { "least" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let mut arrays = ColumnarValue::values_to_arrays(&args.args)?.into_iter();
        let Some(mut extreme) = arrays.next() else { return internal_err!("{} of no intervals", self.name()) };
        for next in arrays {
            let (known, new) = (lengths(&extreme)?, lengths(&next)?);
            let (known, new) = (known.as_primitive::<Decimal128Type>(), new.as_primitive::<Decimal128Type>());
            let is_new = known.iter().zip(new).map(|(known, new)| match (known, new) {
                (_, None) => false,
                (None, _) => true,
                (Some(known), Some(new)) => {
                    if self.is_greatest {
                        new > known
                    } else {
                        new < known
                    }
                }
            });
            extreme = zip(&is_new.map(Some).collect::<BooleanArray>(), &next, &extreme)?;
        }
        Ok(ColumnarValue::Array(extreme))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{DurationSecondArray, IntervalMonthDayNanoArray};
    use datafusion::arrow::datatypes::{Decimal128Type, IntervalMonthDayNano};

    use super::*;

    #[test]
    fn a_month_has_30_days_and_a_day_24_hours() {
        let interval = IntervalMonthDayNano::new;
        let hours = |hours: i64| hours * 3_600_000_000_000;
        let intervals = [interval(1, 0, 0), interval(0, 29, hours(24)), interval(0, 1, 0), interval(0, 0, hours(25))];
        let intervals: ArrayRef = Arc::new(IntervalMonthDayNanoArray::from(intervals.to_vec()));
        let found = lengths(&intervals).unwrap();
        let found = found.as_primitive::<Decimal128Type>().values();
        assert_eq!(found[0], found[1]);
        assert!(found[2] < found[3]);
        let day: ArrayRef = Arc::new(DurationSecondArray::from(vec![86_400]));
        assert_eq!(lengths(&day).unwrap().as_primitive::<Decimal128Type>().value(0), found[2]);
    }
}
