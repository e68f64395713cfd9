//! Division of decimals and of floating-point numbers. A floating-point quotient that overflows is an error.
//!
//! PostgreSQL chooses the digits of each quotient by its value, and shows at least 16 significant ones. Here, the types
//! of the operands determine them: a quotient has 38 digits, and its scale, the number of digits behind the decimal
//! point, is 16 to 20. Within these limits, the scale allows for the greatest possible quotient. It exceeds 20 if the
//! scale of an operand does:
//!
//! ```text
//!   decimal(p1, s1) / decimal(p2, s2)    integer digits   p1 - s1 + s2 at most
//!                                        scale            max(s1, s2, clamp(38 - integer digits, 16, 20))
//!   1.0 / 3                              0.33333333333333333333
//!   decimal(38, 2) / decimal(38, 2)      scale 16; a quotient of more than 22 integer digits is an error
//! ```
//!
//! Quotients are rounded half away from zero. The engine's own division truncates them to four more digits than the
//! scale of the dividend.

use std::cmp::Ordering;
use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{ArrayRef, AsArray, Decimal128Array};
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, i256};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{DFSchema, Result, ScalarValue, internal_err};
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::Operation;
use super::kernels::{DECIMAL_MAX, divide_floats, has_rounded_product, overflow};

/// Maximum number of digits of a decimal.
pub(super) const PRECISION: u8 = 38;
/// Least and greatest scale of a quotient, unless an operand has a greater one.
const SCALES: (i16, i16) = (16, 20);

static DIVIDE: LazyLock<ScalarUDF> =
    LazyLock::new(|| ScalarUDF::new_from_impl(Divide { signature: Signature::user_defined(Volatility::Immutable) }));

/// Plans `/` with a decimal operand, and `*` of decimals whose scales add up to more than 38, as calls of functions.
/// The functions return other types than DataFusion's operators, so the planner itself plans them, before type
/// coercion.
#[derive(Debug)]
pub struct DecimalOperators;

impl ExprPlanner for DecimalOperators {
    fn plan_binary_op(&self, raw: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        if !matches!(raw.op, BinaryOperator::Divide | BinaryOperator::Multiply) {
            return Ok(PlannerResult::Original(raw));
        }
        let (Ok(left_type), Ok(right_type)) = (raw.left.get_type(schema), raw.right.get_type(schema)) else {
            return Ok(PlannerResult::Original(raw));
        };
        let RawBinaryExpr { left, right, op } = raw;
        if op == BinaryOperator::Multiply {
            return Ok(match (&left_type, &right_type) {
                (DataType::Decimal128(_, left_scale), DataType::Decimal128(_, right_scale))
                    if has_rounded_product(*left_scale, *right_scale) =>
                {
                    PlannerResult::Planned(Operation::Multiply.function().call(vec![left, right]))
                }
                _ => PlannerResult::Original(RawBinaryExpr { left, right, op }),
            });
        }
        // As for other operators, a parameter takes the type of the other operand.
        let (left, left_type) = with_type(left, left_type, &right_type);
        let (right, right_type) = with_type(right, right_type, &left_type);
        Ok(match is_divided(&left_type, &right_type) {
            true => PlannerResult::Planned(DIVIDE.call(vec![exact_literal(left), exact_literal(right)])),
            false => PlannerResult::Original(RawBinaryExpr { left, right, op }),
        })
    }
}

/// Returns a call of `divide`. Returns `None` if DataFusion's operator can divide these types.
pub(super) fn division(left: &Expr, right: &Expr, schema: &DFSchema) -> Result<Option<Expr>> {
    let (left_type, right_type) = (left.get_type(schema)?, right.get_type(schema)?);
    let needs_function = is_divided(&left_type, &right_type) || are_floats(&left_type, &right_type);
    Ok(needs_function.then(|| DIVIDE.call(vec![left.clone(), right.clone()])))
}

/// Whether both types are the same type of floating-point numbers.
pub(super) fn are_floats(left: &DataType, right: &DataType) -> bool {
    left == right && matches!(left, DataType::Float32 | DataType::Float64)
}

/// Whether a function is `divide`.
pub(super) fn is_division(function: &dyn ScalarUDFImpl) -> bool {
    function.is::<Divide>()
}

/// Whether one operand is a decimal, and the other a decimal or an integer.
fn is_divided(left: &DataType, right: &DataType) -> bool {
    let is_decimal = |data_type: &DataType| matches!(data_type, DataType::Decimal128(..));
    let is_number = |data_type: &DataType| is_decimal(data_type) || data_type.is_integer();
    (is_decimal(left) && is_number(right)) || (is_number(left) && is_decimal(right))
}

/// Gives a parameter without a type the type of the other operand, if that is a decimal.
fn with_type(operand: Expr, data_type: DataType, other: &DataType) -> (Expr, DataType) {
    match operand {
        Expr::Placeholder(Placeholder { id, field: None }) if matches!(other, DataType::Decimal128(..)) => {
            let field = Some(Arc::new(Field::new(&id, other.clone(), true)));
            (Expr::Placeholder(Placeholder { id, field }), other.clone())
        }
        operand => (operand, data_type),
    }
}

/// Replaces an integer literal by a decimal with the same number of digits, which leaves more digits for the quotient.
fn exact_literal(expression: Expr) -> Expr {
    match &expression {
        Expr::Literal(ScalarValue::Int64(Some(number)), metadata) => {
            let digits = number.unsigned_abs().checked_ilog10().unwrap_or(0) as u8 + 1;
            Expr::Literal(ScalarValue::Decimal128(Some(i128::from(*number)), digits, 0), metadata.clone())
        }
        _ => expression,
    }
}

/// Scale of a quotient, given the greatest number of its integer digits and the greatest scale of its operands.
pub(super) fn quotient_scale(integer_digits: i16, scale: i8) -> i8 {
    let digits_left = (i16::from(PRECISION) - integer_digits).clamp(SCALES.0, SCALES.1);
    digits_left.max(i16::from(scale)) as i8
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Divide {
    signature: Signature,
}

impl ScalarUDFImpl for Divide {
    fn name(&self) -> &'static str {
        "divide"
    }

    fn schema_name(&self, operands: &[Expr]) -> Result<String> {
        Ok(format!("{} / {}", operands[0].schema_name(), operands[1].schema_name()))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let as_decimal = |data_type: &DataType| match data_type {
            DataType::Decimal128(..) | DataType::Float32 | DataType::Float64 => Ok(data_type.clone()),
            DataType::Int8 | DataType::UInt8 => Ok(DataType::Decimal128(3, 0)),
            DataType::Int16 | DataType::UInt16 => Ok(DataType::Decimal128(5, 0)),
            DataType::Int32 | DataType::UInt32 => Ok(DataType::Decimal128(10, 0)),
            DataType::Int64 | DataType::UInt64 => Ok(DataType::Decimal128(20, 0)),
            other => internal_err!("divide of {other}"),
        };
        types.iter().map(as_decimal).collect()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [DataType::Decimal128(precision, scale), DataType::Decimal128(_, divisor_scale)] => {
                let integer_digits = i16::from(*precision) - i16::from(*scale) + i16::from(*divisor_scale);
                Ok(DataType::Decimal128(PRECISION, quotient_scale(integer_digits, *scale.max(divisor_scale))))
            }
            [left, right] if are_floats(left, right) => Ok(left.clone()),
            _ => internal_err!("divide of {types:?}"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types: Vec<_> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.return_type(&types)?, is_nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let ([left, right], true) = (args.args.as_slice(), args.return_field.data_type().is_floating()) {
            return divide_floats(left, right, args.number_rows);
        }
        let (DataType::Decimal128(_, scale), [left, right]) = (args.return_field.data_type(), args.args.as_slice())
        else {
            return internal_err!("divide returns {}", args.return_field.data_type());
        };
        let is_scalar = matches!((left, right), (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let (left, right) = (left.to_array(rows)?, right.to_array(rows)?);
        let quotients: ArrayRef = Arc::new(quotients(left.as_primitive(), right.as_primitive(), *scale)?);
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&quotients, 0)?),
            false => ColumnarValue::Array(quotients),
        })
    }
}

/// Quotients of decimals, with the given scale.
fn quotients(left: &Decimal128Array, right: &Decimal128Array, scale: i8) -> Result<Decimal128Array> {
    // The quotient's scale is at least the scale of each operand, so this exponent is never negative.
    let digits = (scale - left.scale() + right.scale()).unsigned_abs();
    let quotient = Quotient::with_factor(digits.into());
    let divided = datafusion::arrow::compute::try_binary::<_, _, _, Decimal128Type>(left, right, |left, right| {
        quotient.of(left, right)
    })?;
    Ok(divided.with_precision_and_scale(PRECISION, scale)?)
}

/// Computes quotients of integers after multiplying the dividend by a power of ten.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quotient {
    /// The power of ten, if it fits in 128 bits.
    factor: Option<i128>,
    /// The power of ten, if it fits in 256 bits.
    wide_factor: Option<i256>,
}

impl Quotient {
    /// `digits` is the exponent of the power of ten.
    pub fn with_factor(digits: u32) -> Self {
        let factor = 10_i128.checked_pow(digits);
        let wide_factor = (0..digits).try_fold(i256::ONE, |factor, _| factor.checked_mul(i256::from_i128(10)));
        Self { factor, wide_factor }
    }

    /// Multiplies the dividend by the factor and divides. Rounds half away from zero.
    ///
    /// # Errors
    /// If the divisor is zero, the quotient has more than 38 digits, or the multiplied dividend exceeds 256 bits.
    pub fn of(&self, dividend: i128, divisor: i128) -> Result<i128, ArrowError> {
        if divisor == 0 {
            return Err(ArrowError::DivideByZero);
        }
        match self.factor.and_then(|factor| dividend.checked_mul(factor)) {
            Some(dividend) => {
                let (quotient, remainder) = (dividend / divisor, dividend % divisor);
                let is_up = remainder.unsigned_abs() >= divisor.unsigned_abs() - remainder.unsigned_abs();
                let step = if (dividend < 0) == (divisor < 0) { 1 } else { -1 };
                within_digits(if is_up && remainder != 0 { quotient + step } else { quotient })
            }
            None => self.of_wide(i256::from_i128(dividend), i256::from_i128(divisor)),
        }
    }

    /// Like [`Quotient::of`], for integers of 256 bits.
    pub fn of_wide(&self, dividend: i256, divisor: i256) -> Result<i128, ArrowError> {
        let dividend = self.wide_factor.and_then(|factor| dividend.checked_mul(factor)).ok_or_else(too_long)?;
        let quotient = dividend.checked_div(divisor).ok_or(ArrowError::DivideByZero)?;
        let remainder = dividend.wrapping_rem(divisor).wrapping_abs();
        let divisor_size = divisor.wrapping_abs();
        let is_up = remainder.cmp(&divisor_size.wrapping_sub(remainder)) != Ordering::Less && remainder != i256::ZERO;
        let step = if dividend.is_negative() == divisor.is_negative() { i256::ONE } else { i256::MINUS_ONE };
        let quotient = if is_up { quotient.wrapping_add(step) } else { quotient };
        within_digits(quotient.to_i128().ok_or_else(too_long)?)
    }
}

fn within_digits(quotient: i128) -> Result<i128, ArrowError> {
    if quotient.unsigned_abs() <= DECIMAL_MAX.unsigned_abs() { Ok(quotient) } else { Err(too_long()) }
}

fn too_long() -> ArrowError {
    overflow(&DataType::Decimal128(PRECISION, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_rounded_half_away_from_zero() {
        let cases = [
            (1, 3, 4, 3_333),
            (2, 3, 4, 6_667),
            (-2, 3, 4, -6_667),
            (2, -3, 4, -6_667),
            (-1, -2, 0, 1),
            (1, 2, 0, 1),
            (-1, 2, 0, -1),
            (1, 4, 1, 3),
            (0, 7, 10, 0),
            (7, 7, 0, 1),
        ];
        for (dividend, divisor, digits, expected) in cases {
            let quotient = Quotient::with_factor(digits);
            assert_eq!(quotient.of(dividend, divisor).unwrap(), expected, "{dividend} / {divisor}");
            let wide = quotient.of_wide(i256::from_i128(dividend), i256::from_i128(divisor)).unwrap();
            assert_eq!(wide, expected, "{dividend} / {divisor}");
        }
    }

    #[test]
    fn dividends_may_need_more_than_128_bits() {
        let quotient = Quotient::with_factor(38);
        // (10^38 - 1) * 10^38 / (2^127 - 1)
        assert_eq!(quotient.of(DECIMAL_MAX, i128::MAX).unwrap(), 58_774_717_541_114_375_398_436_826_861_112_283_891);
        assert!(matches!(quotient.of(1, 0), Err(ArrowError::DivideByZero)));
        assert!(matches!(quotient.of(DECIMAL_MAX, 1), Err(ArrowError::ArithmeticOverflow(_))));
        assert!(matches!(Quotient::with_factor(90).of(1, 1), Err(ArrowError::ArithmeticOverflow(_))));
        assert!(matches!(Quotient::with_factor(76).of(i128::MIN, 1), Err(ArrowError::ArithmeticOverflow(_))));
    }

    #[test]
    fn scales_allow_for_all_integer_digits() {
        assert_eq!(quotient_scale(1, 1), 20);
        assert_eq!(quotient_scale(21, 1), 17);
        assert_eq!(quotient_scale(38, 2), 16);
        assert_eq!(quotient_scale(8, 30), 30);
    }
}
