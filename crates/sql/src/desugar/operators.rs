//! Replaces operators and functions that the planner does not support or interprets differently from PostgreSQL.
//!
//! ```text
//!   x LIKE '50#%' ESCAPE '#'      x LIKE '50\%'
//!   x LIKE y ESCAPE '#'           x LIKE like_escape(y, '#')
//!   x = ANY (ARRAY[a, b])         x IN (a, b)
//!   x <> ALL (ARRAY[a, b])        x NOT IN (a, b)
//!   x ^@ 'ab'                     starts_with(x, 'ab')
//!   -2 ^ 2                        (-2) ^ 2
//!   2>-1                          2 > -1
//!   every(x)                      bool_and(x)
//!   mod(x, 3)                     (x % 3)
//!   convert_from(x, 'UTF8')       arrow_cast(x, 'Utf8View')
//!   interval '01:30'              cast('01:30' AS interval)
//!   -interval '1 day 2 hours'     (interval '1 day 2 hours' * -1)
//!   x::varchar(3)                 left(x::text, 3)
//!   ARRAY[a, b]                   make_array(a, b)
//!   a && b                        array_has_any(a, b)
//!   a[:2], a[2:]                  a[1:2], a[2:cardinality(a)]
//!   x ~ 'a.b'                     x ~ '(?s)a.b'
//!   x !~ '\\ma'                    NOT regexp_like(x, '\\ma')
//!   |/ x, ||/ x, @ x              sqrt(x), cbrt(x), abs(x)
//!   ~ x                           ((x) # -1)
//!   substring(x FROM 'a.b')       (regexp_match(x, 'a.b'))[1]
//!   normalize(x, NFD)             normalize(x, 'NFD')
//!   x IS NOT NFD NORMALIZED       (NOT is_normalized(x, 'NFD'))
//!   trim_scale(1.50)              trim_scale(1.5)
//!   U&'d\0061ta'                  'data'
//!   localtimestamp                cast(now() AS timestamp)
//!   current_timestamp(0)          cast(date_bin(interval '1000000 microseconds', ...) AS timestamptz)
//!   x AT TIME ZONE 'UTC'          timezone('UTC', x)
//! ```

use datafusion_sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, CastKind, CharacterLength, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, Ident, Interval, ObjectNamePart, Subscript, TimezoneInfo, UnaryOperator, Value,
};

use super::patterns::{RegexOperator, escape_pattern};
use crate::dialect::parse_expression;
use crate::syntax;

/// Functions of PostgreSQL and DuckDB, each with its name in DataFusion.
const SYNONYMS: [(&str, &str); 27] = [
    ("approx_quantile", "approx_percentile_cont"),
    ("arbitrary", "any_value"),
    ("array_replace", "array_replace_all"),
    ("date_format", "strftime"),
    ("every", "bool_and"),
    ("first", "first_value"),
    ("gen_random_uuid", "uuid"),
    ("get_current_timestamp", "now"),
    ("group_concat", "string_agg"),
    ("last", "last_value"),
    ("lcase", "lower"),
    ("len", "length"),
    ("list", "array_agg"),
    ("list_min", "array_min"),
    ("list_value", "make_array"),
    ("listagg", "string_agg"),
    ("ord", "unicode"),
    ("prefix", "starts_with"),
    ("split", "string_split"),
    ("statement_timestamp", "now"),
    ("stddev_samp", "stddev"),
    ("str_split", "string_split"),
    ("string_split_regex", "regexp_split_to_array"),
    ("suffix", "ends_with"),
    ("transaction_timestamp", "now"),
    ("ucase", "upper"),
    ("variance", "var_samp"),
];

/// Replaces the name of a function by its name in DataFusion, if the two differ.
pub(super) fn use_datafusion_name(function: &mut Function) {
    if let [ObjectNamePart::Identifier(name)] = function.name.0.as_mut_slice()
        && let Some((_, engine)) = SYNONYMS.iter().find(|(synonym, _)| name.value.eq_ignore_ascii_case(synonym))
    {
        *name = Ident::new(*engine);
    }
}

/// Replaces an expression as in the list at the top of this file.
pub(super) fn rewrite(expression: &mut Expr) {
    match expression {
        Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. } => {
            if let Some(escape) = escape_char
                && let Value::SingleQuotedString(character) = &escape.value
            {
                escape_pattern(pattern, character);
                *escape_char = None;
            }
        }
        Expr::BinaryOp { op: op @ BinaryOperator::Custom(_), right, .. } => {
            if let BinaryOperator::Custom(text) = op
                && let Some((operator, sign)) = with_sign(text)
            {
                *op = operator;
                let operand = std::mem::replace(right.as_mut(), syntax::null());
                **right = Expr::UnaryOp { op: sign, expr: Box::new(operand) };
            }
        }
        Expr::BinaryOp { left, op: BinaryOperator::PGStartsWith, right } => {
            *expression = syntax::call("starts_with", vec![left.as_ref().clone(), right.as_ref().clone()]);
        }
        Expr::BinaryOp { left, op: BinaryOperator::PGOverlap, right } => {
            *expression = syntax::call("array_has_any", vec![left.as_ref().clone(), right.as_ref().clone()]);
        }
        Expr::BinaryOp { left, op, right } if let Some(regex) = RegexOperator::of(op) => {
            if let Some(call) = regex.call(left, right) {
                *expression = call;
            }
        }
        Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, .. } => {
            if let Some(list) = elements(right) {
                *expression = Expr::InList { expr: left.clone(), list, negated: false };
            }
        }
        Expr::AllOp { left, compare_op: BinaryOperator::NotEq, right } => {
            if let Some(list) = elements(right) {
                *expression = Expr::InList { expr: left.clone(), list, negated: true };
            }
        }
        Expr::UnaryOp { op, expr } if let Some(replacement) = prefix_operator(op, expr) => *expression = replacement,
        Expr::Substring { expr, substring_from: Some(pattern), substring_for: None, .. } if matches!(pattern.as_ref(), Expr::Value(value) if matches!(value.value, Value::SingleQuotedString(_))) =>
        {
            *expression = first_match(expr, pattern);
        }
        Expr::Interval(Interval { value, leading_field: None, last_field: None, .. }) => {
            if let Expr::Value(literal) = value.as_ref()
                && let Value::SingleQuotedString(text) = &literal.value
                && !has_only_units(text)
            {
                *expression = Expr::Cast {
                    kind: CastKind::Cast,
                    expr: value.clone(),
                    data_type: DataType::Interval { fields: None, precision: None },
                    array: false,
                    format: None,
                };
            }
        }
        Expr::Value(literal) => {
            if let Value::UnicodeStringLiteral(text) = &mut literal.value {
                literal.value = Value::SingleQuotedString(std::mem::take(text));
            }
        }
        Expr::IsNormalized { expr, form, negated } => {
            let mut arguments = vec![expr.as_ref().clone()];
            arguments.extend(form.map(|form| text_literal(&form.to_string())));
            let call = Box::new(syntax::call("is_normalized", arguments));
            *expression = match negated {
                true => Expr::Nested(Box::new(Expr::UnaryOp { op: UnaryOperator::Not, expr: call })),
                false => *call,
            };
        }
        Expr::Function(function) => {
            name_form(function);
            trim_literal(function);
            let other = remainder(function).or_else(|| converted(function)).or_else(|| local_now(function));
            if let Some(other) = other {
                *expression = other;
            }
        }
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } if matches!(expr.as_ref(), Expr::Interval(_)) => {
            let minus = Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(syntax::integer(1)) };
            let product = Expr::BinaryOp { left: expr.clone(), op: BinaryOperator::Multiply, right: Box::new(minus) };
            *expression = Expr::Nested(Box::new(product));
        }
        // The planner does not resolve outer columns in an array literal.
        Expr::Array(array) if !array.elem.is_empty() => {
            *expression = syntax::call("make_array", std::mem::take(&mut array.elem));
        }
        Expr::CompoundFieldAccess { root, access_chain } => complete_slice(root, access_chain),
        Expr::AtTimeZone { timestamp, time_zone } => {
            *expression = syntax::call("timezone", vec![time_zone.as_ref().clone(), timestamp.as_ref().clone()]);
        }
        Expr::Cast { data_type, .. } => {
            if let Some(length) = length_of(data_type) {
                *data_type = DataType::Text;
                let length = Expr::value(Value::Number(length.to_string(), false));
                *expression = syntax::call("left", vec![expression.clone(), length]);
            }
        }
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => negate_base(expr).map_or((), |power| *expression = power),
        _ => {}
    }
}

fn text_literal(text: &str) -> Expr {
    Expr::value(Value::SingleQuotedString(text.to_owned()))
}

/// Turns the form of `normalize(x, NFD)`, which the parser reads as a column, into a string.
fn name_form(function: &mut Function) {
    if let Some([_, FunctionArg::Unnamed(FunctionArgExpr::Expr(form))]) = arguments_mut(function, "normalize")
        && let Expr::Identifier(name) = form
        && name.quote_style.is_none()
        && ["nfc", "nfd", "nfkc", "nfkd"].contains(&name.value.to_ascii_lowercase().as_str())
    {
        *form = text_literal(&name.value);
    }
}

/// Removes the zeros at the end of the number in `trim_scale(1.50)`. The type of a literal depends on its digits, so
/// the function itself cannot remove them.
fn trim_literal(function: &mut Function) {
    let Some([FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))]) = arguments_mut(function, "trim_scale") else {
        return;
    };
    let literal = match argument {
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => expr.as_mut(),
        other => other,
    };
    if let Expr::Value(value) = literal
        && let Value::Number(number, _) = &mut value.value
        && number.contains('.')
        && !number.contains(['e', 'E'])
    {
        let trimmed = number.trim_end_matches('0').trim_end_matches('.');
        *number = if trimmed.is_empty() { "0".to_owned() } else { trimmed.to_owned() };
    }
}

/// Arguments of a call of the function `name`. Returns `None` for other functions.
fn arguments_mut<'a>(function: &'a mut Function, name: &str) -> Option<&'a mut [FunctionArg]> {
    let [ObjectNamePart::Identifier(called)] = function.name.0.as_slice() else { return None };
    let FunctionArguments::List(list) = &mut function.args else { return None };
    called.value.eq_ignore_ascii_case(name).then_some(list.args.as_mut_slice())
}

/// Converts `localtimestamp`, `localtime` or `current_time` without parentheses to a cast of `now()`, and these and
/// `current_timestamp` with a number of fractional digits to a rounded `now()`. Returns `None` for other functions.
fn local_now(function: &Function) -> Option<Expr> {
    let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else { return None };
    let target = match name.value.to_ascii_lowercase().as_str() {
        "current_timestamp" => DataType::Timestamp(None, TimezoneInfo::WithTimeZone),
        "localtimestamp" => DataType::Timestamp(None, TimezoneInfo::None),
        "localtime" | "current_time" => DataType::Time(None, TimezoneInfo::None),
        _ => return None,
    };
    let now = match &function.args {
        FunctionArguments::None if !matches!(target, DataType::Timestamp(_, TimezoneInfo::WithTimeZone)) => {
            syntax::call("now", Vec::new())
        }
        FunctionArguments::List(list) => match list.args.as_slice() {
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(digits)))] => match &digits.value {
                Value::Number(digits, _) => rounded_now(digits.parse().ok()?)?,
                _ => return None,
            },
            _ => return None,
        },
        _ => return None,
    };
    Some(Expr::Cast { kind: CastKind::Cast, expr: Box::new(now), data_type: target, array: false, format: None })
}

/// Returns `now()` rounded to a number of fractional digits of seconds. More than six are six, as in PostgreSQL.
fn rounded_now(digits: u32) -> Option<Expr> {
    let step = 10_u32.pow(6_u32.saturating_sub(digits));
    let half = step / 2;
    let sql = format!(
        "date_bin(interval '{step} microseconds', now() + interval '{half} microseconds', \
         timestamptz '1970-01-01 00:00:00+00')"
    );
    parse_expression(&sql).ok()
}

/// Adds the missing bounds of an array slice.
fn complete_slice(array: &Expr, access_chain: &mut [AccessExpr]) {
    if let [AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, .. })] = access_chain {
        lower_bound.get_or_insert_with(|| syntax::integer(1));
        upper_bound.get_or_insert_with(|| syntax::call("cardinality", vec![array.clone()]));
    }
}

/// Elements of an array literal, which has already been replaced by a call of `make_array`. Returns `None` for other
/// operands, and for nested arrays: PostgreSQL compares with their innermost elements.
fn elements(array: &Expr) -> Option<Vec<Expr>> {
    let array = if let Expr::Nested(inner) = array { inner.as_ref() } else { array };
    let elements = arguments_of(array, "make_array")?;
    let is_array = |element: &Expr| matches!(element, Expr::Array(_)) || arguments_of(element, "make_array").is_some();
    (!elements.is_empty() && !elements.iter().any(is_array)).then_some(elements)
}

/// Arguments of a call of the function `name`. Returns `None` for other expressions and for named arguments.
fn arguments_of(call: &Expr, name: &str) -> Option<Vec<Expr>> {
    let Expr::Function(function) = call else { return None };
    let [ObjectNamePart::Identifier(called)] = function.name.0.as_slice() else { return None };
    let FunctionArguments::List(list) = &function.args else { return None };
    let argument = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) => Some(argument.clone()),
        _ => None,
    };
    if called.value == name { list.args.iter().map(argument).collect() } else { None }
}

/// Replacement of a prefix operator with its operand. Returns `None` for operators that the planner supports.
fn prefix_operator(operator: &UnaryOperator, operand: &Expr) -> Option<Expr> {
    let function = match operator {
        UnaryOperator::PGSquareRoot => "sqrt",
        UnaryOperator::PGCubeRoot => "cbrt",
        UnaryOperator::PGAbs => "abs",
        UnaryOperator::BitwiseNot => {
            let operand = Box::new(Expr::Nested(Box::new(operand.clone())));
            let ones = Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(syntax::integer(1)) };
            let inverted = Expr::BinaryOp { left: operand, op: BinaryOperator::PGBitwiseXor, right: Box::new(ones) };
            return Some(Expr::Nested(Box::new(inverted)));
        }
        _ => return None,
    };
    Some(syntax::call(function, vec![operand.clone()]))
}

/// Substring that matches the first group of a pattern, or the whole pattern if it has no groups.
fn first_match(text: &Expr, pattern: &Expr) -> Expr {
    let groups = syntax::call("regexp_match", vec![text.clone(), pattern.clone()]);
    let first = Subscript::Index { index: syntax::integer(1) };
    Expr::CompoundFieldAccess {
        root: Box::new(Expr::Nested(Box::new(groups))),
        access_chain: vec![AccessExpr::Subscript(first)],
    }
}

/// Number of characters to which a cast truncates a string. Returns `None` for types without a length.
fn length_of(data_type: &DataType) -> Option<u64> {
    match data_type {
        DataType::Varchar(length) | DataType::CharVarying(length) | DataType::CharacterVarying(length) => {
            length.as_ref().and_then(characters)
        }
        DataType::Char(length) | DataType::Character(length) => length.as_ref().map_or(Some(1), characters),
        _ => None,
    }
}

fn characters(length: &CharacterLength) -> Option<u64> {
    match length {
        CharacterLength::IntegerLength { length, .. } => Some(*length),
        CharacterLength::Max => None,
    }
}

/// Splits an operator from the sign of its right operand: the parser reads `>-` in `2>-1` as one operator. Returns
/// `None` for other operators.
fn with_sign(text: &str) -> Option<(BinaryOperator, UnaryOperator)> {
    let sign = match text.chars().next_back()? {
        '-' => UnaryOperator::Minus,
        '+' => UnaryOperator::Plus,
        _ => return None,
    };
    let operator = match &text[..text.len() - 1] {
        "=" => BinaryOperator::Eq,
        "<" => BinaryOperator::Lt,
        ">" => BinaryOperator::Gt,
        "<=" => BinaryOperator::LtEq,
        ">=" => BinaryOperator::GtEq,
        "<>" | "!=" => BinaryOperator::NotEq,
        "+" => BinaryOperator::Plus,
        "*" => BinaryOperator::Multiply,
        "/" => BinaryOperator::Divide,
        _ => return None,
    };
    Some((operator, sign))
}

/// Converts `mod(a, b)` to `((a) % (b))`. Returns `None` for other functions.
fn remainder(function: &Function) -> Option<Expr> {
    let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else { return None };
    let FunctionArguments::List(list) = &function.args else { return None };
    let [left, right] = list.args.as_slice() else { return None };
    let operand = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(operand)) => Some(Box::new(Expr::Nested(Box::new(operand.clone())))),
        _ => None,
    };
    if !name.value.eq_ignore_ascii_case("mod") || function.over.is_some() {
        return None;
    }
    let (left, right) = (operand(left)?, operand(right)?);
    let remainder = Expr::BinaryOp { left, op: BinaryOperator::Modulo, right };
    Some(Expr::Nested(Box::new(remainder)))
}

/// Converts `convert_from(bytes, 'UTF8')` or `convert_to(text, 'UTF8')` to a cast that keeps the bytes. Returns `None`
/// for other functions and encodings.
fn converted(function: &Function) -> Option<Expr> {
    let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else { return None };
    let target = match name.value.to_lowercase().as_str() {
        "convert_from" => "Utf8View",
        "convert_to" => "BinaryView",
        _ => return None,
    };
    let FunctionArguments::List(list) = &function.args else { return None };
    let [
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(encoding))),
    ] = list.args.as_slice()
    else {
        return None;
    };
    let Value::SingleQuotedString(encoding) = &encoding.value else { return None };
    let is_utf8 = encoding.eq_ignore_ascii_case("utf8") || encoding.eq_ignore_ascii_case("utf-8");
    let target = Expr::value(Value::SingleQuotedString(target.to_owned()));
    is_utf8.then(|| syntax::call("arrow_cast", vec![value.clone(), target]))
}

/// Whether the text of an interval consists of integers with units, which the planner supports.
fn has_only_units(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let mut is_empty = true;
    while let Some(number) = words.next() {
        let is_unit = words.next().is_some_and(|unit| unit.bytes().all(|byte| byte.is_ascii_alphabetic()));
        if number.parse::<i32>().is_err() || !is_unit {
            return false;
        }
        is_empty = false;
    }
    !is_empty
}

/// Moves a minus sign from a power to its base: `-2 ^ 2` is `(-2) ^ 2` in PostgreSQL, but the parser reads `-(2 ^ 2)`.
/// Returns `None` if the operand is not a power.
fn negate_base(power: &Expr) -> Option<Expr> {
    let Expr::BinaryOp { left, op: op @ BinaryOperator::PGExp, right } = power else { return None };
    let base = negate_base(left)
        .unwrap_or_else(|| Expr::Nested(Box::new(Expr::UnaryOp { op: UnaryOperator::Minus, expr: left.clone() })));
    Some(Expr::BinaryOp { left: Box::new(base), op: op.clone(), right: right.clone() })
}
