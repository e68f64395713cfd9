//! Window frames: reports invalid ones with PostgreSQL's messages, and rewrites empty ones that the planner rejects.

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    Expr, Interval, UnaryOperator, Value, WindowFrame, WindowFrameBound as Bound, WindowFrameUnits, WindowSpec,
};

use crate::error::SqlError;

/// Row offset that is larger than any partition.
const BEYOND: &str = "1000000000000000";

/// Checks the frame of a window. A frame that ends before it starts, such as `2 FOLLOWING AND 1 FOLLOWING`, has no
/// rows. It is replaced by a frame past the end of the partition.
pub(super) fn rewrite(window: &mut WindowSpec) -> ControlFlow<SqlError> {
    let Some(frame) = &mut window.window_frame else { return ControlFlow::Continue(()) };
    if let Some(message) = refused(frame) {
        return ControlFlow::Break(SqlError::Window { message: message.to_owned() });
    }
    for (bound, side) in [(Some(&frame.start_bound), "starting"), (frame.end_bound.as_ref(), "ending")] {
        let offset = bound.and_then(offset);
        if offset.is_some_and(|(offset, _)| is_negative(offset)) {
            return ControlFlow::Break(SqlError::FrameOffset { side });
        }
    }
    if has_no_rows(frame) {
        let beyond = || Some(Box::new(Expr::value(Value::Number(BEYOND.to_owned(), false))));
        let (start_bound, end_bound) = (Bound::Following(beyond()), Some(Bound::Following(beyond())));
        *frame = WindowFrame { units: WindowFrameUnits::Rows, start_bound, end_bound };
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

/// Returns the offset of a frame bound, and whether the bound is `PRECEDING`. Returns `None` for bounds without offset.
fn offset(bound: &Bound) -> Option<(&Expr, bool)> {
    match bound {
        Bound::Preceding(Some(offset)) => Some((offset, true)),
        Bound::Following(Some(offset)) => Some((offset, false)),
        _ => None,
    }
}

/// Whether a frame ends before it starts. Returns false unless both offsets are numbers.
fn has_no_rows(frame: &WindowFrame) -> bool {
    let bounds = offset(&frame.start_bound).zip(frame.end_bound.as_ref().and_then(offset));
    let Some(((start, starts_before), (end, ends_before))) = bounds else { return false };
    let Some((start, end)) = number(start).zip(number(end)) else { return false };
    match (starts_before, ends_before) {
        (true, true) => start < end,
        (false, false) => start > end,
        _ => false,
    }
}

fn number(expression: &Expr) -> Option<f64> {
    match expression {
        Expr::Value(value) => match &value.value {
            Value::Number(number, _) => number.parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

/// Whether an offset is a number or an interval with a minus sign.
fn is_negative(expression: &Expr) -> bool {
    match expression {
        Expr::UnaryOp { op: UnaryOperator::Minus, .. } => true,
        Expr::Interval(Interval { value, .. }) => is_negative(value),
        Expr::Value(value) => {
            matches!(&value.value, Value::SingleQuotedString(text) if text.trim_start().starts_with('-'))
        }
        _ => false,
    }
}
