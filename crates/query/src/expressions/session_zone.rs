//! Conversions in the time zone of the session.
//!
//! The type `timestamptz` is an instant in UTC, in tables and in plans. Where PostgreSQL uses the zone of the session,
//! the rule here writes it into the expression, so that the result depends on no setting when it is computed:
//!
//! ```text
//!   timestamp::timestamptz       timezone(zone, timestamp)
//!   timestamptz::date            timezone(zone, timestamptz)::date
//!   '2024-07-01 10:00'::timestamptz, timestamptz::text    by way of the type timestamp in the zone, which casts use
//!   timestamptz + interval       shift_instant(zone, timestamptz, interval)
//!   extract(hour from timestamptz), date_trunc   of timezone(zone, timestamptz)
//!   to_char(timestamptz, pattern)   to_char(timestamptz in the zone, pattern)
//!   to_timestamp(text, pattern)   to_timestamp(text, pattern, zone)
//! ```
//!
//! Check conditions, generated columns and expressions of indexes are planned without the rule, in UTC: rows that are
//! stored must not depend on the session that reads them.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::compute;
use datafusion::arrow::datatypes::{DataType, IntervalUnit, Schema, SchemaRef, TimeUnit};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Operator, ScalarUDF, TryCast, cast, lit, try_cast,
};
use datafusion::optimizer::AnalyzerRule;
use taut_types::LogicalType;

use crate::runtime::session_value::session_value;

use super::arithmetic::input_schema;
use super::casts::cast_of;
use super::dates::{date_part, instants_of_local_times, is_text, read, shift_instant, timezone, zone};
use super::functions::now;

/// The zone of new sessions.
const UTC: &str = "UTC";

static TIMEZONE: LazyLock<ScalarUDF> = LazyLock::new(timezone);
static ADD: LazyLock<ScalarUDF> = LazyLock::new(|| shift_instant(false));
static SUBTRACT: LazyLock<ScalarUDF> = LazyLock::new(|| shift_instant(true));

/// Rule that writes the zone of the session into expressions. It runs when operands have been cast to common types.
#[derive(Debug, Default)]
pub struct SessionZone;

impl AnalyzerRule for SessionZone {
    fn name(&self) -> &str {
        "taut_session_zone"
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        let Some(zone) = session_zone(config) else { return Ok(plan) };
        let changed = plan.transform_up_with_subqueries(|node| {
            let schema = input_schema(&node)?;
            let names = NamePreserver::new(&node);
            node.map_expressions(|expression| {
                let name = names.save(&expression);
                Ok(in_zone(expression, &schema, &zone)?.update_data(|zoned| name.restore(zoned)))
            })
        })?;
        Ok(changed.data)
    }
}

/// The zone of the session. `None` if it is UTC.
pub fn session_zone(config: &ConfigOptions) -> Option<Zone> {
    let TimeZone(name) = config.extensions.get::<TimeZone>()?;
    (name != UTC).then(|| Zone::new(name))
}

/// The name of the session's zone, stored in its configuration: of a region, or an offset from UTC such as `+02:00`.
#[derive(Clone, Debug)]
pub struct TimeZone(pub String);

impl Default for TimeZone {
    fn default() -> Self {
        Self(UTC.to_owned())
    }
}

session_value!(TimeZone, "zone");

/// Name of the zone that a value of the setting `timezone` means: a number of hours east of UTC, the name of a region,
/// or an offset with minutes. As in PostgreSQL, the offset has the sign of POSIX. `None` if there is no such zone.
pub fn zone_name(value: &str) -> Option<String> {
    let value = value.trim();
    if let Ok(hours) = value.parse::<f64>() {
        let minutes = (hours.abs() * 60.0).round();
        let sign = if hours < 0.0 { '-' } else { '+' };
        let name = format!("{sign}{:02}:{:02}", (minutes / 60.0).floor(), minutes % 60.0);
        return zone(&name).map(|_| name);
    }
    match value.as_bytes().first()? {
        b'+' | b'-' => zone(&inverted(value)).map(|zone| zone.to_string()),
        _ if value.eq_ignore_ascii_case(UTC) || value.eq_ignore_ascii_case("GMT") => Some(UTC.to_owned()),
        _ => [value.to_owned(), capitalized(value)].into_iter().find(|name| zone(name).is_some()),
    }
}

/// Writes the first letter of each part of `europe/berlin` or `america/new_york` as a capital.
fn capitalized(name: &str) -> String {
    let mut starts = true;
    let letter = |letter: char| {
        let capital = if starts { letter.to_ascii_uppercase() } else { letter.to_ascii_lowercase() };
        starts = !letter.is_ascii_alphanumeric();
        capital
    };
    name.chars().map(letter).collect()
}

/// Inverts the sign of an offset.
fn inverted(offset: &str) -> String {
    match offset.strip_prefix('+') {
        Some(digits) => format!("-{digits}"),
        None => format!("+{}", offset.trim_start_matches('-')),
    }
}

/// A time zone other than UTC.
#[derive(Debug)]
pub struct Zone {
    name: String,
    /// The zone as the function `timezone` takes it.
    argument: Expr,
    /// The type `timestamptz` in this zone. Results have this type, so that clients show local times.
    data_type: DataType,
}

impl Zone {
    fn new(name: &str) -> Self {
        let argument = if name.starts_with(['+', '-']) { inverted(name) } else { name.to_owned() };
        let data_type = DataType::Timestamp(TimeUnit::Microsecond, Some(name.into()));
        Self { name: name.to_owned(), argument: lit(ScalarValue::Utf8View(Some(argument))), data_type }
    }

    /// Converts text, timestamps without time zone and dates to instants. Returns other arrays unchanged.
    ///
    /// # Errors
    /// If a text is no timestamp, or a value is out of range.
    pub fn instants(&self, array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        match array.data_type() {
            text if is_text(text) => read(array, &self.data_type, false),
            DataType::Timestamp(_, None) | DataType::Date32 => {
                let local = compute::cast(array, &LogicalType::Timestamp.arrow())?;
                let zone = zone(&self.name).ok_or_else(|| ArrowError::ParseError(self.name.clone()))?;
                instants_of_local_times(&local, &zone)
            }
            _ => Ok(Arc::clone(array)),
        }
    }

    /// Converts an instant to the local time, or a local time to the instant.
    fn convert(&self, time: Expr) -> Expr {
        TIMEZONE.call(vec![self.argument.clone(), time])
    }
}

/// Writes a zone into an expression.
///
/// # Errors
/// If a type cannot be determined.
pub fn in_zone(expression: Expr, schema: &DFSchema, zone: &Zone) -> Result<Transformed<Expr>> {
    expression.transform_up(|part| match part {
        Expr::Cast(Cast { expr, field }) => zoned_cast(*expr, field.data_type(), false, schema, zone),
        Expr::TryCast(TryCast { expr, field }) => zoned_cast(*expr, field.data_type(), true, schema, zone),
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Plus | Operator::Minus), right }) => {
            let is_shift = |instant: &Expr, interval: &Expr| -> Result<bool> {
                let is_interval = matches!(interval.get_type(schema)?, DataType::Interval(_));
                Ok(is_interval && is_instant(&instant.get_type(schema)?))
            };
            let (time, interval) = match () {
                () if is_shift(&left, &right)? => (*left, *right),
                () if op == Operator::Plus && is_shift(&right, &left)? => (*right, *left),
                () => return Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right }))),
            };
            let shift = if op == Operator::Minus { &*SUBTRACT } else { &*ADD };
            Ok(Transformed::yes(shift.call(vec![zone.argument.clone(), instant(time, schema)?, interval])))
        }
        Expr::ScalarFunction(call) => zoned_call(call, schema, zone),
        other => Ok(Transformed::no(other)),
    })
}

fn is_instant(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(_, Some(_)))
}

/// An instant in microseconds: those of `now()` and of files may have nanoseconds.
fn instant(value: Expr, schema: &DFSchema) -> Result<Expr> {
    let target = LogicalType::TimestampTz.arrow();
    Ok(if value.get_type(schema)? == target { value } else { cast(value, target) })
}

fn zoned_cast(
    value: Expr,
    target: &DataType,
    is_try: bool,
    schema: &DFSchema,
    zone: &Zone,
) -> Result<Transformed<Expr>> {
    let from = value.get_type(schema)?;
    let cast_to = |value: Expr, target: &DataType| match is_try {
        true => try_cast(value, target.clone()),
        false => cast(value, target.clone()),
    };
    let local = LogicalType::Timestamp.arrow();
    Ok(Transformed::yes(match (&from, target) {
        (from, target) if is_text(from) && is_instant(target) => cast_to(cast_to(value, &zone.data_type), target),
        (from, target) if is_instant(from) && is_text(target) => cast_to(cast_to(value, &zone.data_type), target),
        (DataType::Timestamp(_, None) | DataType::Date32, target) if is_instant(target) => {
            let local = if from == local { value } else { cast_to(value, &local) };
            cast_to(zone.convert(local), target)
        }
        (from, DataType::Timestamp(_, None) | DataType::Date32 | DataType::Time64(_)) if is_instant(from) => {
            cast_to(zone.convert(instant(value, schema)?), target)
        }
        _ => return Ok(Transformed::no(cast_to(value, target))),
    }))
}

fn zoned_call(mut call: ScalarFunction, schema: &DFSchema, zone: &Zone) -> Result<Transformed<Expr>> {
    let is_instant_at = |call: &ScalarFunction, index: usize| -> Result<bool> {
        call.args.get(index).map_or(Ok(false), |argument| Ok(is_instant(&argument.get_type(schema)?)))
    };
    let now = || now().call(Vec::new());
    if let (Some((target, is_try)), [value]) = (cast_of(&call), call.args.as_slice()) {
        return match is_instant(&target) || is_instant(&value.get_type(schema)?) {
            true => zoned_cast(value.clone(), &target, is_try, schema, zone),
            false => Ok(Transformed::no(Expr::ScalarFunction(call))),
        };
    }
    match call.func.name() {
        "current_date" => return Ok(Transformed::yes(cast(zone.convert(now()), DataType::Date32))),
        "current_time" => {
            return Ok(Transformed::yes(cast(zone.convert(now()), DataType::Time64(TimeUnit::Microsecond))));
        }
        // Both read a time in UTC. `to_timestamp` with a pattern of `strftime` is a call of the second function.
        "make_timestamptz" | "to_timestamp_micros" if call.args.len() > 1 => {
            let utc = instant(Expr::ScalarFunction(call), schema)?;
            let local = TIMEZONE.call(vec![lit(UTC), utc]);
            return Ok(Transformed::yes(zone.convert(local)));
        }
        // The text may have an offset, so the function itself applies the zone.
        "to_timestamp" if call.args.len() == 2 => call.args.push(zone.argument.clone()),
        "to_char" if is_instant_at(&call, 0)? => {
            call.args[0] = cast(std::mem::take(&mut call.args[0]), zone.data_type.clone());
        }
        "strftime" if is_instant_at(&call, 0)? => {
            call.args[0] = zone.convert(instant(call.args[0].clone(), schema)?);
        }
        "concat" | "concat_ws" | "format" => {
            for argument in &mut call.args {
                if is_instant(&argument.get_type(schema)?) {
                    *argument = cast(std::mem::take(argument), zone.data_type.clone());
                }
            }
        }
        "date_trunc" if is_instant_at(&call, 1)? => return truncated(call, schema, zone),
        "date_part" | "extract" if is_instant_at(&call, 1)? => return part(call, schema, zone),
        _ => return Ok(Transformed::no(Expr::ScalarFunction(call))),
    }
    Ok(Transformed::yes(Expr::ScalarFunction(call)))
}

/// Truncates an instant to the beginning of an hour, a day or a longer unit in the zone.
fn truncated(mut call: ScalarFunction, schema: &DFSchema, zone: &Zone) -> Result<Transformed<Expr>> {
    let instant = instant(call.args[1].clone(), schema)?;
    let local = zone.convert(instant.clone());
    let is_short = text_of(&call.args[0]).is_some_and(|unit| {
        ["microsecond", "millisecond", "second", "minute", "hour"].iter().any(|short| unit.starts_with(short))
    });
    call.args[1] = local.clone();
    let truncated = Expr::ScalarFunction(call);
    Ok(Transformed::yes(match is_short {
        // An hour that occurs twice in the zone stays the same one of both.
        true => SUBTRACT.call(vec![
            zone.argument.clone(),
            instant,
            cast(local - truncated, DataType::Interval(IntervalUnit::MonthDayNano)),
        ]),
        false => zone.convert(truncated),
    }))
}

/// The part of an instant in the zone. The epoch is the same in all zones.
fn part(mut call: ScalarFunction, schema: &DFSchema, zone: &Zone) -> Result<Transformed<Expr>> {
    let field = text_of(&call.args[0]).unwrap_or_default();
    let instant = instant(call.args[1].clone(), schema)?;
    if field == "epoch" {
        return Ok(Transformed::no(Expr::ScalarFunction(call)));
    }
    let local = zone.convert(instant.clone());
    if !field.starts_with("timezone") {
        call.args[1] = local;
        return Ok(Transformed::yes(Expr::ScalarFunction(call)));
    }
    let utc = TIMEZONE.call(vec![lit(UTC), instant]);
    let offset = |field: &str| date_part().call(vec![lit(field), local.clone() - utc.clone()]);
    Ok(Transformed::yes(match field.as_str() {
        "timezone_hour" => cast(offset("hour"), DataType::Int32),
        "timezone_minute" => cast(offset("minute"), DataType::Int32),
        _ => cast(offset("epoch"), DataType::Int32),
    }))
}

fn text_of(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Literal(value, _) => value.try_as_str().flatten().map(str::to_lowercase),
        Expr::Cast(Cast { expr, .. }) => text_of(expr),
        _ => None,
    }
}

/// Schema of rows whose instants have the type of a zone.
pub fn schema_in_zone(schema: &SchemaRef, zone: &Zone) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| match is_instant(field.data_type()) {
        true => Arc::new(field.as_ref().clone().with_data_type(zone.data_type.clone())),
        false => Arc::clone(field),
    });
    Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone()))
}

/// Casts the instants of rows to the types of [`schema_in_zone`]. Their values stay the same.
///
/// # Errors
/// If an instant in other units than microseconds does not fit.
pub fn rows_in_zone(rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = rows.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| Ok(compute::cast(column, field.data_type())?));
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns.collect::<Result<_>>()?, &options)?)
}

#[cfg(test)]
mod tests {
    use super::zone_name;

    #[test]
    fn names_of_zones() {
        for (value, name) in [
            ("Europe/Berlin", Some("Europe/Berlin")),
            ("europe/berlin", Some("Europe/Berlin")),
            ("america/new_york", Some("America/New_York")),
            ("utc", Some("UTC")),
            ("+02", Some("+02:00")),
            ("-3.5", Some("-03:30")),
            ("+02:00", Some("-02:00")),
            ("-03:30", Some("+03:30")),
            ("99", None),
            ("Nowhere/City", None),
            ("", None),
        ] {
            assert_eq!(zone_name(value).as_deref(), name, "{value}");
        }
    }
}
