//! Trigonometric functions of angles in degrees. Results are exact for multiples of 30 and 45 degrees where the exact
//! value is a simple fraction, such as `sind(30) = 0.5`.
//!
//! An angle is first reduced to an angle in the first quadrant and a sign. There, each function is scaled so that its
//! value at 30, 45 or 60 degrees is exact.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Float64Array};
use datafusion::arrow::compute::kernels::arity::{try_binary, try_unary};
use datafusion::arrow::datatypes::Float64Type;
use datafusion::arrow::error::ArrowError;
use datafusion::common::Result;

use super::definition::ArgumentType::Double;
use super::definition::{Definition, result};

pub(super) const FUNCTIONS: [Definition; 8] = [
    angle("sind", |angles| computed(angles, |angle| periodic(angle, sine))),
    angle("cosd", |angles| computed(angles, |angle| periodic(angle, cosine))),
    angle("tand", |angles| computed(angles, |angle| periodic(angle, tangent))),
    angle("cotd", |angles| computed(angles, |angle| periodic(angle, cotangent))),
    angle("asind", |numbers| computed(numbers, |number| inverse(number, arc_sine))),
    angle("acosd", |numbers| computed(numbers, |number| inverse(number, arc_cosine))),
    angle("atand", |numbers| computed(numbers, |number| Ok(number.atan() / 1_f64.atan() * 45.0))),
    Definition { name: "atan2d", arguments: &[&[Double, Double]], result: result::double, compute: arc_tangents },
];

const fn angle(name: &'static str, compute: fn(&[ArrayRef]) -> Result<ArrayRef>) -> Definition {
    Definition { name, arguments: &[&[Double]], result: result::double, compute }
}

fn computed(numbers: &[ArrayRef], compute: impl Fn(f64) -> Result<f64, ArrowError>) -> Result<ArrayRef> {
    let results: Float64Array = try_unary(numbers[0].as_primitive::<Float64Type>(), compute)?;
    Ok(Arc::new(results))
}

fn arc_tangents(numbers: &[ArrayRef]) -> Result<ArrayRef> {
    let (left, right) = (numbers[0].as_primitive::<Float64Type>(), numbers[1].as_primitive::<Float64Type>());
    let results: Float64Array = try_binary(left, right, |y: f64, x: f64| Ok(y.atan2(x) / 1_f64.atan() * 45.0))?;
    Ok(Arc::new(results))
}

fn out_of_range() -> ArrowError {
    ArrowError::ArithmeticOverflow("input is out of range".to_owned())
}

/// Applies a function to an angle. An infinite angle is an error.
fn periodic(angle: f64, function: fn(f64) -> f64) -> Result<f64, ArrowError> {
    match angle {
        _ if angle.is_nan() => Ok(f64::NAN),
        _ if angle.is_infinite() => Err(out_of_range()),
        // Adding 0.0 changes -0.0 to 0.0.
        _ => Ok(function(angle % 360.0) + 0.0),
    }
}

/// Applies a function to a number. A number outside of -1 to 1 is an error.
fn inverse(number: f64, function: fn(f64) -> f64) -> Result<f64, ArrowError> {
    match number {
        _ if number.is_nan() => Ok(f64::NAN),
        _ if number.abs() > 1.0 => Err(out_of_range()),
        _ => Ok(function(number)),
    }
}

/// The sine of an angle between -360 and 360 degrees.
fn sine(angle: f64) -> f64 {
    let (angle, sign) = if angle < 0.0 { (-angle, -1.0) } else { (angle, 1.0) };
    let (angle, sign) = if angle > 180.0 { (360.0 - angle, -sign) } else { (angle, sign) };
    sign * sine_of_quadrant(if angle > 90.0 { 180.0 - angle } else { angle })
}

fn cosine(angle: f64) -> f64 {
    let angle = angle.abs();
    let angle = if angle > 180.0 { 360.0 - angle } else { angle };
    if angle > 90.0 { -cosine_of_quadrant(180.0 - angle) } else { cosine_of_quadrant(angle) }
}

fn tangent(angle: f64) -> f64 {
    let (angle, sign) = in_first_quadrant(angle);
    sign * (sine_of_quadrant(angle) / cosine_of_quadrant(angle)) / tangent_of_45()
}

fn cotangent(angle: f64) -> f64 {
    let (angle, sign) = in_first_quadrant(angle);
    sign * (cosine_of_quadrant(angle) / sine_of_quadrant(angle)) * tangent_of_45()
}

/// Returns the angle in the first quadrant whose tangent has the same absolute value, and the sign of the tangent.
fn in_first_quadrant(angle: f64) -> (f64, f64) {
    let (angle, sign) = if angle < 0.0 { (-angle, -1.0) } else { (angle, 1.0) };
    let (angle, sign) = if angle > 180.0 { (360.0 - angle, -sign) } else { (angle, sign) };
    if angle > 90.0 { (180.0 - angle, -sign) } else { (angle, sign) }
}

fn tangent_of_45() -> f64 {
    sine_of_quadrant(45.0) / cosine_of_quadrant(45.0)
}

fn sine_of_quadrant(angle: f64) -> f64 {
    if angle <= 30.0 { sine_to_30(angle) } else { cosine_to_60(90.0 - angle) }
}

fn cosine_of_quadrant(angle: f64) -> f64 {
    if angle <= 60.0 { cosine_to_60(angle) } else { sine_to_30(90.0 - angle) }
}

/// The sine of an angle up to 30 degrees, where it is exactly 0.5.
fn sine_to_30(angle: f64) -> f64 {
    angle.to_radians().sin() / 30_f64.to_radians().sin() / 2.0
}

/// The cosine of an angle up to 60 degrees, where it is exactly 0.5.
fn cosine_to_60(angle: f64) -> f64 {
    1.0 - (1.0 - angle.to_radians().cos()) / (1.0 - 60_f64.to_radians().cos()) / 2.0
}

fn arc_sine(number: f64) -> f64 {
    if number < 0.0 { -arc_sine_of_positive(-number) } else { arc_sine_of_positive(number) }
}

fn arc_cosine(number: f64) -> f64 {
    if number < 0.0 { 90.0 + arc_sine_of_positive(-number) } else { arc_cosine_of_positive(number) }
}

fn arc_sine_of_positive(number: f64) -> f64 {
    if number <= 0.5 { number.asin() / 0.5_f64.asin() * 30.0 } else { 90.0 - number.acos() / 0.5_f64.acos() * 60.0 }
}

fn arc_cosine_of_positive(number: f64) -> f64 {
    if number <= 0.5 { 90.0 - number.asin() / 0.5_f64.asin() * 30.0 } else { number.acos() / 0.5_f64.acos() * 60.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn angles_of_simple_fractions_are_exact() {
        let value = |angle, function| periodic(angle, function).unwrap();
        assert_eq!([30.0, 90.0, 180.0, -30.0, 390.0].map(|angle| value(angle, sine)), [0.5, 1.0, 0.0, -0.5, 0.5]);
        assert_eq!([60.0, 90.0, -60.0, 120.0, 180.0].map(|angle| value(angle, cosine)), [0.5, 0.0, 0.5, -0.5, -1.0]);
        assert_eq!([45.0, 135.0, 0.0].map(|angle| value(angle, tangent)), [1.0, -1.0, 0.0]);
        assert_eq!([90.0, 270.0].map(|angle| value(angle, tangent)), [f64::INFINITY, f64::NEG_INFINITY]);
        assert_eq!([45.0, 90.0].map(|angle| value(angle, cotangent)), [1.0, 0.0]);
        assert_eq!([0.5, 1.0, -0.5].map(arc_sine), [30.0, 90.0, -30.0]);
        assert_eq!([0.5, 0.0, -1.0].map(arc_cosine), [60.0, 90.0, 180.0]);
        assert!(periodic(f64::INFINITY, sine).is_err() && inverse(2.0, arc_sine).is_err());
    }
}
