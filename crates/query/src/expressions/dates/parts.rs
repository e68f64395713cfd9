//! `EXTRACT` and `date_part`: fields of dates, times, timestamps and intervals.
//!
//! DataFusion drops the fractions of seconds and milliseconds, and computes the fields of an interval from its
//! nanoseconds alone. It does not support centuries and decades. The fields have these types here:
//!
//! ```text
//!   second                        decimal(16, 6)
//!   milliseconds                  decimal(16, 3)
//!   microseconds                  bigint
//!   epoch                         double precision
//!   julian                        double precision, days since 4714-11-24 BC with a fraction for the time
//!   century, decade, millennium   integer, computed from the year
//!   timezone                      integer, 0 because instants are shown in UTC
//!   others                        integer
//! ```
//!
//! An interval consists of months, days and a time. Each field is computed from one of the three, but `epoch` from all
//! of them. A difference of timestamps consists of days and a time.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{
    ArrayRef, AsArray, Decimal128Array, Float64Array, Int32Array, Int64Array, PrimitiveArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, DurationMicrosecondType, Field, FieldRef, Float64Type, Int32Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use datafusion::common::{Result, ScalarValue, internal_err, plan_datafusion_err, plan_err};
use datafusion::functions::datetime::date_part as engine_date_part;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

/// Returns the function that replaces DataFusion's `date_part`. It treats a date as midnight of that day, as PostgreSQL
/// does.
pub fn date_part() -> Arc<ScalarUDF> {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| DatePart::udf(false));
    Arc::clone(&FUNCTION)
}

/// Returns the function that computes `EXTRACT`. Fields of a time, such as hours, are an error for a date.
pub fn extract() -> Arc<ScalarUDF> {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| DatePart::udf(true));
    Arc::clone(&FUNCTION)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DatePart {
    engine: Arc<ScalarUDF>,
    is_extract: bool,
}

/// A field that this module computes, because DataFusion lacks it, or returns another type or another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DateField {
    Microseconds,
    Milliseconds,
    Seconds,
    Minute,
    Hour,
    Day,
    Month,
    Quarter,
    Year,
    Decade,
    Century,
    Millennium,
    Epoch,
    Julian,
    Zone,
}

impl DateField {
    fn parse(name: &str) -> Option<Self> {
        Some(match name.trim_matches(['\'', '"']).to_ascii_lowercase().as_str() {
            "microsecond" | "microseconds" | "usec" | "usecs" | "us" => Self::Microseconds,
            "millisecond" | "milliseconds" | "msec" | "msecs" | "ms" => Self::Milliseconds,
            "second" | "seconds" | "sec" | "secs" | "s" => Self::Seconds,
            "minute" | "minutes" | "min" | "mins" | "m" => Self::Minute,
            "hour" | "hours" | "hr" | "hrs" | "h" => Self::Hour,
            "day" | "days" | "d" => Self::Day,
            "month" | "months" | "mon" | "mons" => Self::Month,
            "quarter" | "qtr" => Self::Quarter,
            "year" | "years" | "yr" | "yrs" | "y" => Self::Year,
            "decade" | "decades" | "dec" | "decs" => Self::Decade,
            "century" | "centuries" | "cent" | "c" => Self::Century,
            "millennium" | "millennia" | "mil" | "mils" => Self::Millennium,
            "epoch" => Self::Epoch,
            "julian" => Self::Julian,
            "timezone" | "timezone_hour" | "timezone_minute" => Self::Zone,
            _ => return None,
        })
    }

    /// Name of the DataFusion field from which this field is computed.
    fn engine_name(self) -> &'static str {
        match self {
            Self::Microseconds | Self::Milliseconds | Self::Seconds => "microsecond",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Month => "month",
            Self::Quarter => "quarter",
            Self::Year | Self::Decade | Self::Century | Self::Millennium => "year",
            Self::Epoch | Self::Julian | Self::Zone => "epoch",
        }
    }

    fn result_type(self) -> DataType {
        match self {
            Self::Microseconds => DataType::Int64,
            Self::Milliseconds => DataType::Decimal128(16, 3),
            Self::Seconds => DataType::Decimal128(16, 6),
            Self::Epoch | Self::Julian => DataType::Float64,
            _ => DataType::Int32,
        }
    }

    /// Converts microseconds since the full minute to values of the field.
    fn of_micros(self, micros: Int64Array) -> Result<ArrayRef> {
        Ok(match self.result_type() {
            // The integers do not change: the scale of the decimals makes them seconds or milliseconds.
            DataType::Decimal128(precision, scale) => {
                let (_, values, nulls) = micros.into_parts();
                let decimals: Vec<i128> = values.iter().map(|micros| i128::from(*micros)).collect();
                Arc::new(Decimal128Array::new(decimals.into(), nulls).with_precision_and_scale(precision, scale)?)
            }
            _ => Arc::new(micros),
        })
    }

    /// Computes the field from a year in which 0 is the year before 1, as in DataFusion. In PostgreSQL there is no year
    /// 0: the year before 1 is -1.
    fn of_year(self, year: i32) -> i32 {
        let year = if year <= 0 { year - 1 } else { year };
        let rounded_up = |unit: i32| if year > 0 { (year + unit - 1) / unit } else { (year - unit + 1) / unit };
        match self {
            Self::Decade if year >= 0 => year / 10,
            Self::Decade => (year - 8) / 10,
            Self::Century => rounded_up(100),
            Self::Millennium => rounded_up(1_000),
            _ => year,
        }
    }

    /// Computes the field of an interval as an integer. Seconds and milliseconds are returned in microseconds.
    fn of_interval(self, interval: IntervalMonthDayNano) -> i64 {
        let IntervalMonthDayNano { months, days, nanoseconds } = interval;
        let micros = nanoseconds / 1_000;
        match self {
            Self::Microseconds | Self::Milliseconds | Self::Seconds => micros % 60_000_000,
            Self::Minute => micros / 60_000_000 % 60,
            Self::Hour => micros / 3_600_000_000,
            Self::Day => days.into(),
            Self::Month => (months % 12).into(),
            Self::Quarter => (months % 12 / 3 + 1).into(),
            Self::Decade => (months / 12 / 10).into(),
            Self::Century => (months / 12 / 100).into(),
            Self::Millennium => (months / 12 / 1_000).into(),
            Self::Year | Self::Epoch | Self::Julian | Self::Zone => (months / 12).into(),
        }
    }
}

/// Returns the length of an interval in seconds. Twelve months have 365.25 days, and each remaining month has 30 days.
fn seconds(interval: IntervalMonthDayNano) -> f64 {
    let IntervalMonthDayNano { months, days, nanoseconds } = interval;
    let quarter_days = i64::from(months / 12) * 1_461 + i64::from(months % 12) * 120 + i64::from(days) * 4;
    let micros = i128::from(quarter_days) * 21_600_000_000 + i128::from(nanoseconds / 1_000);
    micros as f64 / 1e6
}

impl DatePart {
    fn udf(is_extract: bool) -> Arc<ScalarUDF> {
        Arc::new(ScalarUDF::new_from_impl(Self { engine: engine_date_part(), is_extract }))
    }

    /// Looks up a field by name. Returns `None` if DataFusion computes it.
    ///
    /// # Errors
    /// If the type does not have the field, such as hours of a date in `EXTRACT`.
    fn computed_field(&self, name: &str, data_type: &DataType) -> Result<Option<DateField>> {
        use DateField::{Hour, Microseconds, Milliseconds, Minute, Seconds};
        match (DateField::parse(name), data_type) {
            (Some(Microseconds | Milliseconds | Seconds | Minute | Hour), DataType::Date32) if self.is_extract => {
                plan_err!("unit \"{}\" not supported for type date", name.to_lowercase())
            }
            (Some(DateField::Julian), DataType::Interval(_) | DataType::Duration(_) | DataType::Time64(_)) => {
                plan_err!("unit \"{}\" not supported for type {}", name.to_lowercase(), short_name(data_type))
            }
            (Some(DateField::Zone), data_type) if !matches!(data_type, DataType::Timestamp(_, Some(_))) => {
                plan_err!("unit \"{}\" not supported for type {}", name.to_lowercase(), short_name(data_type))
            }
            (Some(field), _) => Ok(Some(field)),
            (None, DataType::Interval(_) | DataType::Duration(_)) => {
                plan_err!("unit \"{}\" not supported for type interval", name.to_lowercase())
            }
            (None, _) => Ok(None),
        }
    }

    /// Computes a field with DataFusion's function.
    fn engine_field(&self, name: &str, values: &ArrayRef) -> Result<ArrayRef> {
        let field = Arc::new(Field::new("part", DataType::Utf8, false));
        let value_field = Arc::new(Field::new("value", values.data_type().clone(), true));
        let name = ScalarValue::from(name);
        let scalars = [Some(&name), None];
        let arg_fields = vec![field, value_field];
        let return_field = self
            .engine
            .return_field_from_args(ReturnFieldArgs { arg_fields: &arg_fields, scalar_arguments: &scalars })?;
        let args = ScalarFunctionArgs {
            args: vec![ColumnarValue::Scalar(name), ColumnarValue::Array(Arc::clone(values))],
            arg_fields,
            number_rows: values.len(),
            return_field,
            config_options: Arc::default(),
        };
        self.engine.invoke_with_args(args)?.into_array(values.len())
    }

    fn field(&self, field: DateField, values: &ArrayRef) -> Result<ArrayRef> {
        if let DataType::Duration(_) | DataType::Interval(_) = values.data_type() {
            let intervals = as_intervals(values)?;
            let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
            return match field.result_type() {
                DataType::Float64 => Ok(Arc::new(intervals.unary::<_, _>(seconds) as Float64Array)),
                DataType::Int32 => {
                    let integer = |interval| field.of_interval(interval) as i32;
                    Ok(Arc::new(intervals.unary::<_, Int32Type>(integer)))
                }
                _ => field.of_micros(intervals.unary(|interval| field.of_interval(interval))),
            };
        }
        let values = self.engine_field(field.engine_name(), values)?;
        match field {
            DateField::Microseconds | DateField::Milliseconds | DateField::Seconds => {
                field.of_micros(cast(&values, &DataType::Int64)?.as_primitive().clone())
            }
            DateField::Julian => {
                let seconds: &Float64Array = values.as_primitive();
                Ok(Arc::new(seconds.unary::<_, Float64Type>(|seconds| seconds / 86_400.0 + JULIAN_DAY_OF_1970)))
            }
            DateField::Zone => {
                let seconds: &Float64Array = values.as_primitive();
                Ok(Arc::new(seconds.unary::<_, Int32Type>(|_| 0)))
            }
            DateField::Year | DateField::Decade | DateField::Century | DateField::Millennium => {
                let years: &Int32Array = values.as_primitive();
                Ok(Arc::new(years.unary::<_, Int32Type>(|year| field.of_year(year))))
            }
            _ => Ok(values),
        }
    }
}

/// Days from 4714-11-24 BC to 1970-01-01.
const JULIAN_DAY_OF_1970: f64 = 2_440_588.0;

/// PostgreSQL's name of a date, time or interval type, for an error.
fn short_name(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Interval(_) | DataType::Duration(_) => "interval",
        DataType::Time64(_) => "time without time zone",
        DataType::Date32 => "date",
        _ => "timestamp without time zone",
    }
}

/// Converts differences of timestamps to intervals of days and times. Converts other intervals to months, days and
/// nanoseconds.
///
/// # Errors
/// If the values are neither intervals nor differences of timestamps.
pub fn as_intervals(values: &ArrayRef) -> Result<ArrayRef> {
    match values.data_type() {
        DataType::Duration(_) => days_and_times(values),
        _ => Ok(cast(values, &DataType::Interval(IntervalUnit::MonthDayNano))?),
    }
}

/// Converts differences of timestamps to intervals of days and times.
fn days_and_times(differences: &ArrayRef) -> Result<ArrayRef> {
    const MICROSECONDS_PER_DAY: i64 = 86_400_000_000;
    let micros = cast(differences, &DataType::Duration(TimeUnit::Microsecond))?;
    let interval = |micros: i64| {
        let days = i32::try_from(micros / MICROSECONDS_PER_DAY).unwrap_or(i32::MAX);
        IntervalMonthDayNano::new(0, days, micros % MICROSECONDS_PER_DAY * 1_000)
    };
    let intervals: PrimitiveArray<IntervalMonthDayNanoType> =
        micros.as_primitive::<DurationMicrosecondType>().unary(interval);
    Ok(Arc::new(intervals))
}

impl ScalarUDFImpl for DatePart {
    fn name(&self) -> &str {
        self.engine.name()
    }

    fn aliases(&self) -> &[String] {
        self.engine.aliases()
    }

    fn signature(&self) -> &Signature {
        self.engine.signature()
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        internal_err!("the type of date_part depends on its first argument")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let name = args.scalar_arguments.first().copied().flatten().and_then(|name| name.try_as_str().flatten());
        let name = name.ok_or_else(|| plan_datafusion_err!("the field of date_part must be a constant text"))?;
        match (self.computed_field(name, args.arg_fields[1].data_type())?, args.arg_fields) {
            (Some(field), [_, value]) => {
                Ok(Arc::new(Field::new(self.name(), field.result_type(), value.is_nullable())))
            }
            _ => self.engine.return_field_from_args(args),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [ColumnarValue::Scalar(name), value] = args.args.as_slice() else {
            return self.engine.invoke_with_args(args);
        };
        let field = match name.try_as_str().flatten() {
            Some(name) => self.computed_field(name, &value.data_type())?,
            None => None,
        };
        let Some(field) = field else { return self.engine.invoke_with_args(args) };
        match value {
            ColumnarValue::Array(values) => Ok(ColumnarValue::Array(self.field(field, values)?)),
            ColumnarValue::Scalar(value) => {
                let fields = self.field(field, &value.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&fields, 0)?))
            }
        }
    }

    fn preimage(&self, args: &[Expr], value: &Expr, info: &SimplifyContext) -> Result<PreimageResult> {
        match value {
            // DataFusion replaces a comparison with a year by a range of dates. It numbers the year before 1 as 0, so
            // the range would be wrong.
            Expr::Literal(ScalarValue::Int32(Some(year)), _) if *year <= 0 => Ok(PreimageResult::None),
            _ => self.engine.inner().preimage(args, value, info),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn years_have_no_zero() {
        // The arguments are DataFusion's years: year 0 is the year before 1.
        let centuries = [2001, 2000, 1, 0, -99, -100].map(|year| DateField::Century.of_year(year));
        assert_eq!(centuries, [21, 20, 1, -1, -1, -2]);
        let decades = [2019, 9, 0, -9, -10].map(|year| DateField::Decade.of_year(year));
        assert_eq!(decades, [201, 0, 0, -1, -1]);
    }

    #[test]
    fn fields_of_negative_intervals_are_negative() {
        // -2 years -1 month, -3 days, -01:01:01.5. The seconds are in microseconds.
        let interval = IntervalMonthDayNano::new(-25, -3, -3_661_500_000_000);
        let fields =
            [DateField::Year, DateField::Month, DateField::Day, DateField::Hour, DateField::Minute, DateField::Seconds];
        assert_eq!(fields.map(|field| field.of_interval(interval)), [-2, -1, -3, -1, -1, -1_500_000]);
    }
}
