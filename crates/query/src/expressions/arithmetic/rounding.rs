//! `round`, `trunc`, `ceil` and `floor` of decimals. They are exact, and the number of digits in the statement is the
//! scale of the result, as in PostgreSQL:
//!
//! ```text
//!   round(2.345, 2)        2.35      round(1.5, 3)          1.500
//!   round(1234.5, -2)      1200      ceil(1.2)              2
//!   round(decimal(12, 3), column)    decimal(13, 3), because the type cannot depend on a row
//! ```
//!
//! The engine's functions keep the scale of the operand, truncate decimals as double precision numbers, or fail when a
//! carry needs another digit. Its `round` has one type while a statement is planned and another when constants have
//! been folded. Here [`Rounding::with_fixed_type`] fixes the type before constants are folded. Other operand
//! types keep DataFusion's functions.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Decimal128Array, Float64Array};
use datafusion::arrow::compute::kernels::arity::try_binary;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, Float64Type, Int64Type};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{DFSchema, Result, ScalarValue, internal_err};
use datafusion::functions::math;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::division::PRECISION;
use super::kernels::DECIMAL_MAX;
use super::overflow;

/// The functions that replace DataFusion's.
pub fn functions() -> [ScalarUDF; 4] {
    [
        (Direction::Nearest, math::round()),
        (Direction::TowardsZero, math::trunc()),
        (Direction::Up, math::ceil()),
        (Direction::Down, math::floor()),
    ]
    .map(|(direction, engine)| ScalarUDF::new_from_impl(Rounding::new(direction, engine, None)))
}

/// Direction in which numbers are rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Direction {
    /// To the nearest result. A tie rounds away from zero for decimals, and to the even result for double precision.
    Nearest,
    TowardsZero,
    Up,
    Down,
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Rounding {
    direction: Direction,
    /// The function for types other than decimals.
    engine: Arc<ScalarUDF>,
    /// Type of the result. `None` if it is not fixed yet and depends on the operands.
    result: Option<DataType>,
    aliases: Vec<String>,
    signature: Signature,
}

impl Rounding {
    fn new(direction: Direction, engine: Arc<ScalarUDF>, result: Option<DataType>) -> Self {
        let mut aliases = engine.aliases().to_vec();
        if direction == Direction::Up {
            aliases.push("ceiling".to_owned());
        }
        Self { direction, engine, result, aliases, signature: Signature::user_defined(Volatility::Immutable) }
    }

    /// Fixes the result type of a call, so that it no longer depends on which operands are literals.
    pub fn with_fixed_type(call: ScalarFunction, schema: &DFSchema) -> Result<Expr> {
        let Some(Self { direction, engine, result: None, .. }) = call.func.inner().downcast_ref() else {
            return Ok(Expr::ScalarFunction(call));
        };
        let (direction, engine) = (*direction, Arc::clone(engine));
        let expression = Expr::ScalarFunction(call);
        let result = expression.get_type(schema)?;
        let Expr::ScalarFunction(call) = expression else { return internal_err!("{} is not a call", engine.name()) };
        Ok(ScalarUDF::new_from_impl(Self::new(direction, engine, Some(result))).call(call.args))
    }

    /// Type of the result for a decimal. `digits` is the requested scale, `None` if it differs by row.
    fn decimal_type(&self, precision: u8, scale: i8, digits: Option<i64>) -> DataType {
        let integer_digits = i64::from(precision) - i64::from(scale);
        let carry = i64::from(self.direction != Direction::TowardsZero);
        let digits = digits.unwrap_or_else(|| scale.into()).max(0);
        // Digits beyond the operand's scale are zeros. The result has fewer of them if the precision is needed for
        // integer digits.
        let scale = digits.min((i64::from(PRECISION) - integer_digits - carry).max(scale.into()));
        DataType::Decimal128((integer_digits + carry + scale).clamp(1, PRECISION.into()) as u8, scale as i8)
    }
}

/// Whether a call with operands of these types is computed here. The engine computes all others.
fn is_exact(types: &[DataType]) -> bool {
    match types {
        [DataType::Decimal128(_, scale)] => *scale >= 0,
        [DataType::Decimal128(_, scale), digits] => *scale >= 0 && digits.is_integer(),
        _ => false,
    }
}

impl ScalarUDFImpl for Rounding {
    fn name(&self) -> &str {
        self.engine.name()
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            // The engine would cast the digits, and they would no longer be a literal.
            [DataType::Decimal128(..), digits]
                if is_exact(types) && matches!(self.direction, Direction::Nearest | Direction::TowardsZero) =>
            {
                Ok(vec![types[0].clone(), digits.clone()])
            }
            // As in PostgreSQL, `round(integer)` returns double precision, and `round(integer, digits)` is exact.
            [number] if number.is_integer() || *number == DataType::Float32 => Ok(vec![DataType::Float64]),
            [number, digits]
                if number.is_integer()
                    && digits.is_integer()
                    && matches!(self.direction, Direction::Nearest | Direction::TowardsZero) =>
            {
                Ok(vec![DataType::Decimal128(integer_digits(number), 0), digits.clone()])
            }
            _ => {
                let operand = |data_type: &DataType| Arc::new(Field::new("operand", data_type.clone(), true));
                let fields = fields_with_udf(&types.iter().map(operand).collect::<Vec<_>>(), self.engine.as_ref())?;
                Ok(fields.iter().map(|field| field.data_type().clone()).collect())
            }
        }
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        internal_err!("the type of {} depends on its operands", self.name())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        let types: Vec<_> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let data_type = match (&self.result, types.as_slice()) {
            (Some(result), _) => result.clone(),
            (None, [DataType::Decimal128(precision, scale), ..]) if is_exact(&types) => {
                let digits = match args.scalar_arguments.get(1) {
                    None => Some(0),
                    Some(literal) => literal.and_then(integer),
                };
                self.decimal_type(*precision, *scale, digits)
            }
            _ => return self.engine.return_field_from_args(args),
        };
        Ok(Arc::new(Field::new(self.name(), data_type, is_nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let types: Vec<_> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let DataType::Decimal128(precision, scale) = *args.return_field.data_type() else {
            return match (self.direction, types.as_slice()) {
                (Direction::Nearest, [DataType::Float64]) => nearest_even(&args.args[0]),
                (_, [DataType::Float64, digits]) if digits.is_integer() => {
                    let (operands, rows) = (args.args.clone(), args.number_rows);
                    finite(self.engine.invoke_with_args(args)?, &operands, rows)
                }
                _ => self.engine.invoke_with_args(args),
            };
        };
        if !is_exact(&types) {
            return self.engine.invoke_with_args(args);
        }
        let is_scalar = args.args.iter().all(|operand| matches!(operand, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let numbers = args.args[0].to_array(rows)?;
        let numbers = numbers.as_primitive::<Decimal128Type>();
        let rounder = |digits| Rounder::new(self.direction, numbers.scale(), digits, scale);
        let rounded = match args.args.get(1) {
            None => rounded(numbers, rounder(0)?)?,
            Some(ColumnarValue::Scalar(digits)) => match integer(digits) {
                Some(digits) => rounded(numbers, rounder(digits)?)?,
                None => Decimal128Array::new_null(rows),
            },
            Some(ColumnarValue::Array(digits)) => {
                let digits = datafusion::arrow::compute::cast(digits, &DataType::Int64)?;
                try_binary(numbers, digits.as_primitive::<Int64Type>(), |number, digits| rounder(digits)?.of(number))?
            }
        };
        let rounded: ArrayRef = Arc::new(rounded.with_precision_and_scale(precision, scale)?);
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&rounded, 0)?),
            false => ColumnarValue::Array(rounded),
        })
    }

    fn evaluate_bounds(&self, operands: &[&Interval]) -> Result<Interval> {
        match self.result {
            Some(DataType::Decimal128(..)) => Interval::make_unbounded(&self.result.clone().unwrap_or(DataType::Null)),
            _ => self.engine.evaluate_bounds(operands),
        }
    }

    fn preimage(&self, operands: &[Expr], literal: &Expr, info: &SimplifyContext) -> Result<PreimageResult> {
        match self.result {
            Some(DataType::Decimal128(..)) => Ok(PreimageResult::None),
            _ => self.engine.preimage(operands, literal, info),
        }
    }

    /// Rounding to a constant number of digits preserves the order.
    fn output_ordering(&self, operands: &[ExprProperties]) -> Result<SortProperties> {
        Ok(match operands {
            [number] => number.sort_properties,
            [number, digits] if digits.sort_properties == SortProperties::Singleton => number.sort_properties,
            _ => SortProperties::Unordered,
        })
    }
}

/// Rounds to the nearest integer, ties to even, as PostgreSQL rounds double precision.
fn nearest_even(numbers: &ColumnarValue) -> Result<ColumnarValue> {
    Ok(match numbers {
        ColumnarValue::Array(numbers) => ColumnarValue::Array(Arc::new(
            numbers.as_primitive::<Float64Type>().unary::<_, Float64Type>(f64::round_ties_even),
        )),
        ColumnarValue::Scalar(ScalarValue::Float64(number)) => {
            ColumnarValue::Scalar(ScalarValue::Float64(number.map(f64::round_ties_even)))
        }
        ColumnarValue::Scalar(other) => return internal_err!("round got {}", other.data_type()),
    })
}

/// Replaces results that are infinite or NaN because DataFusion's power of ten is out of range. The replacement is the
/// number itself if it is rounded behind the decimal point, otherwise 0.
fn finite(rounded: ColumnarValue, operands: &[ColumnarValue], rows: usize) -> Result<ColumnarValue> {
    let is_scalar = matches!(rounded, ColumnarValue::Scalar(_));
    let results = rounded.to_array(if is_scalar { 1 } else { rows })?;
    let results = results.as_primitive::<Float64Type>();
    if results.iter().flatten().all(f64::is_finite) {
        return Ok(rounded);
    }
    let (numbers, digits) = (operands[0].to_array(results.len())?, operands[1].to_array(results.len())?);
    let numbers = numbers.as_primitive::<Float64Type>();
    let digits = datafusion::arrow::compute::cast(&digits, &DataType::Int64)?;
    let digits = digits.as_primitive::<Int64Type>();
    let finite = results.iter().zip(numbers).zip(digits).map(|((result, number), digits)| match (result?, number?) {
        (result, number) if result.is_finite() || !number.is_finite() => Some(result),
        (_, number) => Some(if digits? > 0 { number } else { 0.0 }),
    });
    let finite: ArrayRef = Arc::new(finite.collect::<Float64Array>());
    Ok(match is_scalar {
        true => ColumnarValue::Scalar(ScalarValue::try_from_array(&finite, 0)?),
        false => ColumnarValue::Array(finite),
    })
}

/// Number of digits that an integer type can have.
fn integer_digits(data_type: &DataType) -> u8 {
    match data_type {
        DataType::Int8 | DataType::UInt8 => 3,
        DataType::Int16 | DataType::UInt16 => 5,
        DataType::Int32 | DataType::UInt32 => 10,
        _ => 20,
    }
}

/// Returns the value of an integer scalar. Returns `None` for null.
fn integer(literal: &ScalarValue) -> Option<i64> {
    match literal.cast_to(&DataType::Int64) {
        Ok(ScalarValue::Int64(number)) => number,
        _ => None,
    }
}

fn rounded(numbers: &Decimal128Array, rounder: Rounder) -> Result<Decimal128Array> {
    Ok(numbers.try_unary(|number| rounder.of(number))?)
}

/// Rounds decimals of one scale to a digit.
///
/// ```text
///   12345 (123.45) to one digit, scale 2:   12345 / divisor 10 = 1235 (rounded), * factor 10 = 12350 (123.50)
/// ```
#[derive(Clone, Copy, Debug)]
struct Rounder {
    direction: Direction,
    /// One unit of the last remaining digit, in units of the number: a power of ten. `None` if it exceeds every
    /// decimal.
    divisor: Option<i128>,
    /// One unit of the last remaining digit, in units of the result: a power of ten. `None` if it exceeds 128 bits.
    factor: Option<i128>,
}

impl Rounder {
    /// `scale` is the scale of the numbers, and `result_scale` the scale of the results. `digits` is the number of
    /// digits that remain behind the decimal point; it is negative to round before the point.
    fn new(direction: Direction, scale: i8, digits: i64, result_scale: i8) -> Result<Self, ArrowError> {
        let power = |exponent: i64| u32::try_from(exponent).ok().and_then(|exponent| 10_i128.checked_pow(exponent));
        // Rounding to more digits than the number has keeps all of its digits.
        let digits = digits.min(scale.into());
        let dropped = i64::from(scale).saturating_sub(digits);
        Ok(Self { direction, divisor: power(dropped), factor: power(i64::from(result_scale).saturating_sub(digits)) })
    }

    fn of(self, number: i128) -> Result<i128, ArrowError> {
        let quotient = match self.divisor {
            Some(1) => number,
            Some(divisor) => self.quotient(number, divisor),
            None => i128::from(match self.direction {
                Direction::Up => number > 0,
                Direction::Down if number < 0 => return Err(too_long()),
                _ => false,
            }),
        };
        let result = match self.factor {
            Some(factor) => quotient.checked_mul(factor),
            None => (quotient == 0).then_some(0),
        };
        result.filter(|result| result.unsigned_abs() <= DECIMAL_MAX.unsigned_abs()).ok_or_else(too_long)
    }

    fn quotient(self, number: i128, divisor: i128) -> i128 {
        // A 64-bit division is several times faster than one of 128 bits.
        let (quotient, remainder) = match (i64::try_from(number), i64::try_from(divisor)) {
            (Ok(number), Ok(divisor)) => (i128::from(number / divisor), i128::from(number % divisor)),
            _ => (number / divisor, number % divisor),
        };
        let step = match self.direction {
            Direction::Nearest if remainder.abs() >= divisor - remainder.abs() => remainder.signum(),
            Direction::Up => i128::from(remainder > 0),
            Direction::Down => -i128::from(remainder < 0),
            _ => 0,
        };
        quotient + step
    }
}

fn too_long() -> ArrowError {
    overflow(&DataType::Decimal128(PRECISION, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_rounded_to_a_digit() {
        use Direction::{Down, Nearest, TowardsZero, Up};
        // Direction, number in thousandths, remaining fraction digits, scale of the result, result in units of that
        // scale.
        let cases = [
            (Nearest, 12_345, 2, 2, 1_235),
            (Nearest, -12_345, 2, 2, -1_235),
            (Nearest, 12_344, 2, 2, 1_234),
            (Nearest, 12_345, 1, 3, 12_300),
            (Nearest, 12_345, 9, 3, 12_345),
            (Nearest, 12_345, 9, 5, 1_234_500),
            (Nearest, 55_000, -2, 0, 100),
            (Nearest, 49_999, -2, 0, 0),
            (Nearest, 12_345, -60, 0, 0),
            (TowardsZero, -12_999, 0, 0, -12),
            (TowardsZero, 12_999, -1, 0, 10),
            (Up, 12_001, 0, 0, 13),
            (Up, -12_999, 0, 0, -12),
            (Down, 12_999, 0, 0, 12),
            (Down, -12_001, 0, 0, -13),
        ];
        for (direction, number, digits, result_scale, expected) in cases {
            let rounder = Rounder::new(direction, 3, digits, result_scale).unwrap();
            assert_eq!(rounder.of(number).unwrap(), expected, "{direction:?} {number} {digits}");
        }
        let rounder = Rounder::new(Nearest, 0, -38, 0).unwrap();
        assert!(matches!(rounder.of(DECIMAL_MAX), Err(ArrowError::ArithmeticOverflow(_))));
        assert_eq!(rounder.of(1).unwrap(), 0);
    }

    #[test]
    fn result_types_allow_for_a_carry() {
        let [round, trunc, ..] = [(Direction::Nearest, math::round()), (Direction::TowardsZero, math::trunc())]
            .map(|(direction, engine)| Rounding::new(direction, engine, None));
        let decimal = DataType::Decimal128;
        assert_eq!(round.decimal_type(12, 3, Some(2)), decimal(12, 2));
        assert_eq!(trunc.decimal_type(12, 3, Some(2)), decimal(11, 2));
        assert_eq!(round.decimal_type(12, 3, Some(5)), decimal(15, 5));
        assert_eq!(round.decimal_type(12, 3, Some(-4)), decimal(10, 0));
        assert_eq!(round.decimal_type(12, 3, None), decimal(13, 3));
        assert_eq!(round.decimal_type(38, 20, Some(30)), decimal(38, 20));
        assert_eq!(round.decimal_type(38, 2, Some(100)), decimal(38, 2));
        assert_eq!(trunc.decimal_type(1, 1, Some(0)), decimal(1, 0));
    }
}
