//! Constants of windows: the offsets of frames, and arguments of window functions. DataFusion takes only literals. This
//! rule computes other expressions, checks the values as PostgreSQL does, and replaces frames that DataFusion refuses
//! or computes differently.
//!
//! ```text
//!   ntile(1 + 1) OVER (ORDER BY k ROWS 1 + 1 PRECEDING)     ntile(2) OVER (ORDER BY k ROWS 2 PRECEDING)
//!   sum(x) OVER (ORDER BY k RANGE 3 PRECEDING)              sum(x) OVER (ORDER BY k::bigint RANGE 3 PRECEDING)
//! ```

mod arguments;
mod interval_offsets;
mod range_frames;

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, DataFusionError, Result, ScalarValue, exec_err, not_impl_err, plan_err};
use datafusion::logical_expr::expr::{WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::generate_sort_key;
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Window, WindowFrame, WindowFrameBound, WindowFrameUnits, cast,
};
use datafusion::optimizer::AnalyzerRule;
use taut_sql::{FRAME_END, FRAME_START};

use crate::constraints::DefaultValues;
use crate::expressions::{has_interval, interval_length, name_in_postgres, statement_cast};

/// Offset of a frame of rows or groups that is larger than any partition.
const BEYOND: u64 = 1 << 60;

/// Rule that computes the constants of windows. It runs before types are coerced.
#[derive(Debug, Default)]
pub struct WindowConstants;

impl AnalyzerRule for WindowConstants {
    fn name(&self) -> &str {
        "taut_window_constants"
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Window(window) => with_constants(window, config),
            node => Ok(Transformed::no(node)),
        })?;
        Ok(changed.data)
    }
}

/// Computes the constants of the functions of a window. Functions whose keys then differ get windows of their own. Of
/// equal functions, only the first is computed: DataFusion would not support the window that it derives from them.
fn with_constants(window: Window, config: &ConfigOptions) -> Result<Transformed<LogicalPlan>> {
    let schema = window.input.schema();
    let mut is_changed = false;
    let mut by_keys: Vec<(_, Vec<Expr>)> = Vec::new();
    let mut functions: Vec<(Expr, String)> = Vec::new();
    let mut below = window.input.as_ref();
    while let LogicalPlan::Window(window) = below {
        functions
            .extend(window.window_expr.iter().map(|known| (known.clone().unalias(), known.schema_name().to_string())));
        below = window.input.as_ref();
    }
    let mut equal: Vec<(String, String)> = Vec::new();
    for expression in &window.window_expr {
        let name = NamePreserver::new_for_projection().save(expression);
        let mut keys = Vec::new();
        let replaced = expression.clone().transform_up(|part| match part {
            Expr::WindowFunction(mut function) => {
                let is_changed = replace_constants(&mut function, schema, config)?;
                keys = generate_sort_key(&function.params.partition_by, &function.params.order_by)?;
                let function = Expr::WindowFunction(function);
                Ok(if is_changed { Transformed::yes(function) } else { Transformed::no(function) })
            }
            part => Ok(Transformed::no(part)),
        })?;
        is_changed |= replaced.transformed;
        let (function, expression) = (replaced.data.clone().unalias(), name.restore(replaced.data));
        let column = expression.schema_name().to_string();
        if let Some((_, first)) = functions.iter().find(|(other, _)| *other == function) {
            equal.push((column, first.clone()));
            continue;
        }
        functions.push((function, column));
        match by_keys.iter_mut().find(|(other, _)| *other == keys) {
            Some((_, expressions)) => expressions.push(expression),
            None => by_keys.push((keys, vec![expression])),
        }
    }
    if !is_changed && equal.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Window(window)));
    }
    let (is_split, columns) = (by_keys.len() > 1, window.schema.columns());
    let mut plan = LogicalPlanBuilder::from(Arc::unwrap_or_clone(window.input));
    for (_, expressions) in by_keys {
        plan = plan.window(expressions)?;
    }
    if is_split || !equal.is_empty() {
        let computed =
            |column: Column| match equal.iter().find(|(name, _)| column.relation.is_none() && *name == column.name) {
                Some((name, first)) => Expr::Column(Column::from_name(first)).alias(name),
                None => Expr::Column(column),
            };
        plan = plan.project(columns.into_iter().map(computed))?;
    }
    Ok(Transformed::yes(plan.build()?))
}

/// Computes the constants of one call. Returns whether it changed the call. Calls with parameters are not changed: the
/// plan cache analyzes statements before their parameters have values.
fn replace_constants(function: &mut WindowFunction, schema: &DFSchema, config: &ConfigOptions) -> Result<bool> {
    let has_parameter = |part: &Expr| Ok(matches!(part, Expr::Placeholder(_)));
    for part in function.params.args.iter().chain(&function.params.partition_by) {
        if part.exists(has_parameter)? {
            return Ok(false);
        }
    }
    let computes = take_offsets(function, schema, config)?;
    let params = &mut function.params;
    let reorders = match params.window_frame.units {
        WindowFrameUnits::Range => range_frames::replace(params, schema, config)? | sort_by_length(params, schema)?,
        WindowFrameUnits::Rows | WindowFrameUnits::Groups => replace_empty(&mut params.window_frame),
    };
    Ok(arguments::replace(function, config)? | computes | reorders)
}

/// Sorts by the lengths of intervals, whose order DataFusion does not know. Returns whether there are any.
fn sort_by_length(params: &mut WindowFunctionParams, schema: &DFSchema) -> Result<bool> {
    let mut is_changed = false;
    for sort in &mut params.order_by {
        if has_interval(&sort.expr.get_type(schema)?) {
            sort.expr = interval_length(std::mem::take(&mut sort.expr), true);
            is_changed = true;
        }
    }
    Ok(is_changed)
}

/// Moves offsets that are expressions from `PARTITION BY` to the frame. Returns whether there are any.
fn take_offsets(function: &mut WindowFunction, schema: &DFSchema, config: &ConfigOptions) -> Result<bool> {
    let params = &mut function.params;
    let mut is_changed = false;
    for (marker, side) in [(FRAME_START, "starting"), (FRAME_END, "ending")] {
        let is_marker =
            |key: &Expr| matches!(key, Expr::Literal(ScalarValue::Utf8(Some(text)), _) if text.starts_with(marker));
        let Some(at) = params.partition_by.iter().position(is_marker) else { continue };
        let Some(offset) = params.partition_by.drain(at..(at + 2).min(params.partition_by.len())).nth(1) else {
            continue;
        };
        let WindowFrame { units, start_bound, end_bound, .. } = &params.window_frame;
        let (mut start, mut end) = (start_bound.clone(), end_bound.clone());
        let value = offset_value(offset, *units, side, schema, config)?;
        let bound = if marker == FRAME_START { &mut start } else { &mut end };
        *bound = with_offset(bound, value);
        params.window_frame = WindowFrame::new_bounds(*units, start, end);
        is_changed = true;
    }
    Ok(is_changed)
}

/// Value of the offset of a frame.
///
/// # Errors
/// If the offset is not constant, is null, or is not a number of rows of a frame of rows or groups.
fn offset_value(
    offset: Expr,
    units: WindowFrameUnits,
    side: &str,
    schema: &DFSchema,
    config: &ConfigOptions,
) -> Result<ScalarValue> {
    let counts_rows = units != WindowFrameUnits::Range;
    let from = offset.get_type(schema)?;
    let is_untyped = matches!(offset, Expr::Literal(ScalarValue::Utf8(_) | ScalarValue::Null, _));
    if counts_rows && !is_untyped && !from.is_numeric() {
        return plan_err!("argument of {units} must be type bigint, not type {}", name_in_postgres(&from));
    }
    if offset.any_column_refs() {
        return plan_err!("argument of {units} must not contain variables");
    }
    let typed = if counts_rows { statement_cast(offset, &from, DataType::Int64) } else { offset };
    let Some(value) = constant(typed, config)? else {
        return not_impl_err!("a subquery as the offset of a window frame is not supported");
    };
    match value {
        value if value.is_null() => exec_err!("frame {side} offset must not be null"),
        ScalarValue::Int64(Some(rows)) if counts_rows => match u64::try_from(rows) {
            Ok(rows) => Ok(ScalarValue::UInt64(Some(rows))),
            Err(_) => exec_err!("frame {side} offset must not be negative"),
        },
        value => Ok(value),
    }
}

/// Returns a bound in the same direction with another offset.
fn with_offset(bound: &WindowFrameBound, offset: ScalarValue) -> WindowFrameBound {
    match bound {
        WindowFrameBound::Preceding(_) => WindowFrameBound::Preceding(offset),
        WindowFrameBound::Following(_) => WindowFrameBound::Following(offset),
        WindowFrameBound::CurrentRow => WindowFrameBound::CurrentRow,
    }
}

/// Replaces a frame of rows or groups that ends before it starts by one past the end of the partition, because
/// DataFusion refuses it. Returns whether it did.
fn replace_empty(frame: &mut WindowFrame) -> bool {
    use WindowFrameBound::{Following, Preceding};
    let is_empty = match (&frame.start_bound, &frame.end_bound) {
        (Preceding(start), Preceding(end)) => !start.is_null() && start < end,
        (Following(start), Following(end)) => !end.is_null() && start > end,
        _ => false,
    };
    if is_empty {
        let beyond = || Following(ScalarValue::UInt64(Some(BEYOND)));
        *frame = WindowFrame::new_bounds(WindowFrameUnits::Rows, beyond(), beyond());
    }
    is_empty
}

/// Value of an expression without columns. Returns `None` if the expression has columns or subqueries.
///
/// # Errors
/// If the expression cannot be computed, for example because it divides by zero.
fn constant(expression: Expr, config: &ConfigOptions) -> Result<Option<ScalarValue>> {
    if let Expr::Literal(value, _) = expression {
        return Ok(Some(value));
    }
    let varies = |part: &Expr| {
        let is_subquery =
            matches!(part, Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_));
        Ok(is_subquery || matches!(part, Expr::Column(_) | Expr::OuterReferenceColumn(..)))
    };
    if expression.exists(varies)? {
        return Ok(None);
    }
    let values = DefaultValues::at_current_time(&Arc::new(config.clone())).evaluate(expression, 1);
    let values = values.map_err(|error| DataFusionError::External(Box::new(error)))?;
    Ok(Some(ScalarValue::try_from_array(&values, 0)?))
}

/// Casts a literal, and returns its value.
fn cast_literal(value: ScalarValue, target: DataType, config: &ConfigOptions) -> Result<ScalarValue> {
    let cast = cast(Expr::Literal(value, None), target.clone());
    Ok(constant(cast, config)?.unwrap_or(ScalarValue::try_from(&target)?))
}
