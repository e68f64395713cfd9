//! Intervals as offsets of frames. Months have 28 to 31 days, so the order of two intervals may depend on the key.

use datafusion::arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::WindowFrameBound;

use super::cast_literal;

const DAY_NANOSECONDS: i64 = 86_400_000_000_000;
/// Years that may be added to any date of the engine's calendar.
const YEARS_MAX: i32 = 250_000;

/// Reads an offset. Days are as large as possible, and less than a day is in nanoseconds. Returns `None` if the offset
/// is not an interval.
///
/// # Errors
/// If the text of the offset is not an interval, or the interval leads out of all timestamps.
pub(super) fn offset(offset: &ScalarValue, config: &ConfigOptions) -> Result<Option<IntervalMonthDayNano>> {
    let interval = match offset {
        ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)) if is_number(text) => return Ok(None),
        ScalarValue::Utf8(_) | ScalarValue::Utf8View(_) => {
            cast_literal(offset.clone(), DataType::Interval(IntervalUnit::MonthDayNano), config)?
        }
        offset => offset.clone(),
    };
    let ScalarValue::IntervalMonthDayNano(Some(interval)) = interval else { return Ok(None) };
    let IntervalMonthDayNano { months, days, nanoseconds } = interval;
    let more_days = i32::try_from(nanoseconds.div_euclid(DAY_NANOSECONDS)).unwrap_or(i32::MAX);
    let days = days.saturating_add(more_days);
    if months.abs() / 12 > YEARS_MAX || days.abs() / 365 > YEARS_MAX {
        return exec_err!("timestamp out of range");
    }
    Ok(Some(IntervalMonthDayNano::new(months, days, nanoseconds.rem_euclid(DAY_NANOSECONDS))))
}

/// Whether an offset is a number without a unit, as in `RANGE 1 PRECEDING`.
fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// Whether an interval is less than zero. A month has 30 days.
pub(super) fn is_negative(interval: IntervalMonthDayNano) -> bool {
    let days = i64::from(interval.months) * 30 + i64::from(interval.days);
    nanoseconds(days, interval) < 0
}

/// Nanoseconds of some days and of the part of an interval that is less than a day.
fn nanoseconds(days: i64, interval: IntervalMonthDayNano) -> i128 {
    i128::from(days) * i128::from(DAY_NANOSECONDS) + i128::from(interval.nanoseconds)
}

/// Order of the start and the end of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BoundOrder {
    /// No frame ends before it starts.
    Ascending,
    /// All frames end before they start.
    Descending,
    /// DataFusion cannot compute the frame, or its order depends on the key.
    Varying,
}

/// Order of the bounds of a frame with the given offsets. `None` is the offset of an unbounded frame or `CURRENT ROW`.
pub(super) fn order(
    start_bound: &WindowFrameBound,
    start: Option<IntervalMonthDayNano>,
    end_bound: &WindowFrameBound,
    end: Option<IntervalMonthDayNano>,
) -> BoundOrder {
    if start_bound.is_unbounded() || end_bound.is_unbounded() {
        return BoundOrder::Ascending;
    }
    let (start_months, start_rest) = distance(start_bound, start);
    let (end_months, end_rest) = distance(end_bound, end);
    let (months, rest) = (end_months - start_months, end_rest - start_rest);
    // A day more or less at each end of a month that has no such day, as in January 31 plus one month.
    let shortest = days_of(months, 28, -3) + rest;
    let longest = days_of(months, 31, 3) + rest;
    let is_accepted = match (start_bound, end_bound) {
        (WindowFrameBound::Preceding(_), WindowFrameBound::Preceding(_)) => start >= end,
        (WindowFrameBound::Following(_), WindowFrameBound::Following(_)) => start <= end,
        _ => true,
    };
    match (shortest.min(longest), shortest.max(longest)) {
        (low, _) if low >= 0 && is_accepted => BoundOrder::Ascending,
        (_, high) if high < 0 => BoundOrder::Descending,
        _ => BoundOrder::Varying,
    }
}

/// Nanoseconds of some months with the given number of days, and of some days more. No nanoseconds if there is no
/// month.
fn days_of(months: i64, days: i64, more: i64) -> i128 {
    i128::from(months * days + months.signum() * more) * i128::from(DAY_NANOSECONDS)
}

/// Months and nanoseconds from the current row to a bound. Negative before the current row.
fn distance(bound: &WindowFrameBound, offset: Option<IntervalMonthDayNano>) -> (i64, i128) {
    let Some(offset) = offset else { return (0, 0) };
    let (months, rest) = (i64::from(offset.months), nanoseconds(i64::from(offset.days), offset));
    match bound {
        WindowFrameBound::Preceding(_) => (-months, -rest),
        _ => (months, rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(months: i32, days: i32, hours: i64) -> IntervalMonthDayNano {
        IntervalMonthDayNano::new(months, days, hours * 3_600_000_000_000)
    }

    fn following(offset: IntervalMonthDayNano) -> WindowFrameBound {
        WindowFrameBound::Following(ScalarValue::IntervalMonthDayNano(Some(offset)))
    }

    fn preceding(offset: IntervalMonthDayNano) -> WindowFrameBound {
        WindowFrameBound::Preceding(ScalarValue::IntervalMonthDayNano(Some(offset)))
    }

    #[test]
    fn the_order_of_months_and_days_may_depend_on_the_key() {
        for (start, end, expected) in [
            (interval(0, 1, 0), interval(0, 1, 0), BoundOrder::Ascending),
            (interval(0, 1, 0), interval(1, 0, 0), BoundOrder::Ascending),
            (interval(0, 29, 0), interval(1, 0, 0), BoundOrder::Varying),
            (interval(0, 40, 0), interval(1, 0, 0), BoundOrder::Descending),
            (interval(1, 0, 0), interval(0, 40, 0), BoundOrder::Varying),
            (interval(1, 0, 0), interval(0, 20, 0), BoundOrder::Descending),
            (interval(0, 1, 1), interval(0, 1, 0), BoundOrder::Descending),
        ] {
            assert_eq!(
                order(&following(start), Some(start), &following(end), Some(end)),
                expected,
                "{start:?} {end:?}"
            );
            assert_eq!(
                order(&preceding(end), Some(end), &preceding(start), Some(start)),
                expected,
                "{start:?} {end:?}"
            );
        }
        let mixed = interval(1, -29, 0);
        assert_eq!(order(&WindowFrameBound::CurrentRow, None, &following(mixed), Some(mixed)), BoundOrder::Varying);
        assert_eq!(order(&preceding(mixed), Some(mixed), &following(mixed), Some(mixed)), BoundOrder::Varying);
        let month = interval(1, 0, 0);
        assert_eq!(order(&preceding(month), Some(month), &following(month), Some(month)), BoundOrder::Ascending);
    }
}
