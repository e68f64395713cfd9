//! Window frames: reports invalid ones with PostgreSQL's messages. The planner accepts only literals as offsets.
//! Another offset becomes a key of `PARTITION BY`, after a key that names its bound. A rule of the planner computes it.
//!
//! ```text
//!   OVER (ORDER BY b ROWS 1 + $1 PRECEDING)
//!   OVER (PARTITION BY ('taut frame start 1 + $1'), (1 + $1) ORDER BY b ROWS 0 PRECEDING)
//! ```

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    CastKind, DataType, Expr, Interval, Value, WindowFrame, WindowFrameBound as Bound, WindowFrameUnits, WindowSpec,
};

use crate::error::SqlError;
use crate::syntax;

/// Prefix of the key of `PARTITION BY` before the offset of the start of a frame.
pub const FRAME_START: &str = "taut frame start";
/// Prefix of the key of `PARTITION BY` before the offset of the end of a frame.
pub const FRAME_END: &str = "taut frame end";

/// Checks the frame of a window, and moves offsets that are not literals to `PARTITION BY`.
pub(super) fn rewrite(window: &mut WindowSpec) -> ControlFlow<SqlError> {
    let WindowSpec { partition_by, window_frame: Some(frame), .. } = window else { return ControlFlow::Continue(()) };
    if let Some(message) = refused(frame) {
        return ControlFlow::Break(SqlError::Window { message: message.to_owned() });
    }
    let WindowFrame { units, start_bound, end_bound } = frame;
    for (bound, marker) in [(Some(start_bound), FRAME_START), (end_bound.as_mut(), FRAME_END)] {
        let Some(Bound::Preceding(Some(offset)) | Bound::Following(Some(offset))) = bound else { continue };
        let moved = match units {
            WindowFrameUnits::Range => expression_of_range(offset),
            WindowFrameUnits::Rows | WindowFrameUnits::Groups => expression_of_rows(offset),
        };
        if let Some(expression) = moved {
            **offset = syntax::integer(0);
            // In parentheses, because the planner ignores literals in PARTITION BY. The planner leaves casts out of the
            // names of columns, so the text of the offset tells two windows apart.
            let marker = Expr::value(Value::SingleQuotedString(format!("{marker} {expression}")));
            partition_by.extend([marker, expression].map(|key| Expr::Nested(Box::new(key))));
        }
    }
    ControlFlow::Continue(())
}

/// Returns PostgreSQL's error message for an invalid frame. Returns `None` for a valid one.
fn refused(frame: &WindowFrame) -> Option<&'static str> {
    let end = frame.end_bound.as_ref().unwrap_or(&Bound::CurrentRow);
    match (&frame.start_bound, end) {
        (Bound::Following(None), _) => Some("frame start cannot be UNBOUNDED FOLLOWING"),
        (_, Bound::Preceding(None)) => Some("frame end cannot be UNBOUNDED PRECEDING"),
        (Bound::CurrentRow, Bound::Preceding(_)) => Some("frame starting from current row cannot have preceding rows"),
        (Bound::Following(_), Bound::Preceding(_)) => {
            Some("frame starting from following row cannot have preceding rows")
        }
        (Bound::Following(_), Bound::CurrentRow) if frame.end_bound.is_none() => {
            Some("frame starting from following row cannot end with current row")
        }
        (Bound::Following(_), Bound::CurrentRow) => {
            Some("frame starting from following row cannot have preceding rows")
        }
        _ => None,
    }
}

/// Returns the offset of a `ROWS` or `GROUPS` frame if it is not a literal that the planner accepts.
fn expression_of_rows(offset: &Expr) -> Option<Expr> {
    let is_count = matches!(offset, Expr::Value(value) if matches!(&value.value, Value::Number(number, _) if number.parse::<i64>().is_ok()));
    if is_count {
        return None;
    }
    Some(string(offset).map_or_else(|| offset.clone(), |text| Expr::value(Value::SingleQuotedString(text))))
}

/// Returns the offset of a `RANGE` frame if it is not a literal that the planner accepts. Turns a string into one.
fn expression_of_range(offset: &mut Expr) -> Option<Expr> {
    if let Some(text) = string(offset) {
        let value = Box::new(Expr::value(Value::SingleQuotedString(text)));
        *offset = Expr::Interval(Interval {
            value,
            leading_field: None,
            leading_precision: None,
            last_field: None,
            fractional_seconds_precision: None,
        });
        return None;
    }
    match offset {
        Expr::Value(value) if matches!(value.value, Value::Number(..)) => None,
        _ => Some(offset.clone()),
    }
}

/// Text of an offset that is a string. The parser reads it as an interval, which may have become a cast since.
fn string(offset: &Expr) -> Option<String> {
    let (Expr::Interval(Interval { value: literal, leading_field: None, last_field: None, .. })
    | Expr::Cast { kind: CastKind::Cast, expr: literal, data_type: DataType::Interval { .. }, .. }) = offset
    else {
        return None;
    };
    match literal.as_ref() {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    }
}
