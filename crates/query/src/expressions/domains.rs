//! Floating-point functions that check their arguments and results. If an argument or a result is out of range,
//! DataFusion returns infinity, NaN or zero. These functions return PostgreSQL's errors instead:
//!
//! ```text
//!   ln(0)       cannot take logarithm of zero
//!   sqrt(-1)    cannot take square root of a negative number
//!   asin(2)     input is out of range
//!   exp(1000)   value out of range: overflow
//!   exp(-1000)  value out of range: underflow
//! ```

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, FieldRef, Float64Type};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{Result, internal_err};
use datafusion::execution::SessionStateBuilder;
use datafusion::functions::math;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

/// Replaces the functions in a session state by checked functions.
pub fn with_domains(mut state: SessionStateBuilder) -> SessionStateBuilder {
    let functions = [
        math::acos(),
        math::acosh(),
        math::asin(),
        math::atanh(),
        math::cos(),
        math::degrees(),
        math::exp(),
        math::ln(),
        math::log(),
        math::log10(),
        math::log2(),
        math::power(),
        math::radians(),
        math::sin(),
        math::sqrt(),
        math::tan(),
    ];
    let functions = functions.map(|engine| Arc::new(ScalarUDF::new_from_impl(WithDomain { engine })));
    state.scalar_functions().get_or_insert_default().extend(functions);
    state
}

/// Whether a function is a checked function of this module, which may fail.
pub(super) fn has_domain(function: &ScalarUDF) -> bool {
    function.inner().is::<WithDomain>()
}

/// A function of DataFusion with checked results.
#[derive(Debug, PartialEq, Eq, Hash)]
struct WithDomain {
    engine: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for WithDomain {
    fn name(&self) -> &str {
        self.engine.name()
    }

    fn aliases(&self) -> &[String] {
        self.engine.aliases()
    }

    fn signature(&self) -> &Signature {
        self.engine.signature()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.engine.coerce_types(types)
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.engine.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.engine.return_field_from_args(args)
    }

    fn is_strict(&self) -> bool {
        self.engine.is_strict()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (arguments, rows) = (args.args.clone(), args.number_rows);
        let results = self.engine.invoke_with_args(args)?;
        let ColumnarValue::Array(array) = &results else {
            let ColumnarValue::Scalar(result) = &results else { return internal_err!("{} has no result", self.name()) };
            self.check(&result.to_array()?, &arguments, 1)?;
            return Ok(results);
        };
        self.check(array, &arguments, rows)?;
        Ok(results)
    }

    fn evaluate_bounds(&self, operands: &[&Interval]) -> Result<Interval> {
        self.engine.evaluate_bounds(operands)
    }

    fn output_ordering(&self, operands: &[ExprProperties]) -> Result<SortProperties> {
        self.engine.output_ordering(operands)
    }
}

impl WithDomain {
    /// Checks the results that are infinite, NaN or zero. Returns an error if PostgreSQL returns one for the arguments
    /// of such a result.
    fn check(&self, results: &ArrayRef, arguments: &[ColumnarValue], rows: usize) -> Result<()> {
        if !results.data_type().is_floating() {
            return Ok(());
        }
        let results = cast(results, &DataType::Float64)?;
        let results = results.as_primitive::<Float64Type>();
        let can_underflow = matches!(self.name(), "degrees" | "exp" | "power" | "radians");
        let is_suspect = |row: &usize| {
            let result = results.value(*row);
            (!result.is_finite() || (can_underflow && result == 0.0)) && results.is_valid(*row)
        };
        let Some(first) = (0..results.len()).find(is_suspect) else { return Ok(()) };
        let arguments: Vec<ArrayRef> = arguments
            .iter()
            .map(|argument| Ok(cast(&argument.to_array(rows)?, &DataType::Float64)?))
            .collect::<Result<_>>()?;
        for row in (first..results.len()).filter(is_suspect) {
            let mut numbers = [0.0; 2];
            for (number, argument) in numbers.iter_mut().zip(&arguments) {
                *number = argument.as_primitive::<Float64Type>().value(row);
            }
            let numbers = &numbers[..arguments.len().min(numbers.len())];
            if let Some(error) = domain_error(self.name(), numbers, results.value(row)) {
                return Err(error.into());
            }
        }
        Ok(())
    }
}

/// Returns the error for a result that is infinite, NaN or, for some functions, zero. Returns `None` if PostgreSQL
/// returns the same result for the arguments, such as NaN for NaN.
fn domain_error(function: &str, arguments: &[f64], result: f64) -> Option<ArrowError> {
    if arguments.iter().any(|argument| argument.is_nan()) {
        return None;
    }
    let is_finite = arguments.iter().all(|argument| argument.is_finite());
    let out_of_range = |message: &str| Some(ArrowError::ArithmeticOverflow(message.to_owned()));
    let invalid = |message: &str| Some(ArrowError::InvalidArgumentError(message.to_owned()));
    match function {
        _ if result == 0.0 => {
            let has_underflowed = is_finite && arguments.first() != Some(&0.0);
            if has_underflowed { out_of_range("value out of range: underflow") } else { None }
        }
        "ln" | "log" | "log10" | "log2" if arguments.iter().any(|argument| *argument < 0.0) => {
            invalid("cannot take logarithm of a negative number")
        }
        "ln" | "log" | "log10" | "log2" if arguments.contains(&0.0) => invalid("cannot take logarithm of zero"),
        // The logarithm of the base is 0, because the base is 1.
        "log" if is_finite => Some(ArrowError::DivideByZero),
        "sqrt" if result.is_nan() => invalid("cannot take square root of a negative number"),
        "power" if result.is_nan() => {
            invalid("a negative number raised to a non-integer power yields a complex result")
        }
        "power" if arguments.first() == Some(&0.0) => invalid("zero raised to a negative power is undefined"),
        _ if result.is_nan() => out_of_range("input is out of range"),
        // The result is infinite for 1 and -1, as in PostgreSQL.
        "atanh" => None,
        _ if is_finite => out_of_range("value out of range: overflow"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::Field;
    use datafusion::common::ScalarValue;

    use super::*;

    /// Calls a function with scalar arguments.
    fn computed(function: &ScalarUDF, arguments: Vec<f64>) -> Result<f64> {
        let field = |_| Arc::new(Field::new("x", DataType::Float64, true));
        let result = function.invoke_with_args(ScalarFunctionArgs {
            arg_fields: arguments.iter().map(field).collect(),
            args: arguments
                .into_iter()
                .map(|number| ColumnarValue::Scalar(ScalarValue::Float64(Some(number))))
                .collect(),
            number_rows: 1,
            return_field: Arc::new(Field::new("y", DataType::Float64, true)),
            config_options: Arc::default(),
        })?;
        Ok(cast(&result.to_array(1)?, &DataType::Float64)?.as_primitive::<Float64Type>().value(0))
    }

    #[test]
    fn arguments_out_of_range_are_errors() {
        let cases = [
            (math::ln(), vec![0.0], "cannot take logarithm of zero"),
            (math::ln(), vec![-1.0], "cannot take logarithm of a negative number"),
            (math::sqrt(), vec![-1.0], "cannot take square root of a negative number"),
            (math::asin(), vec![2.0], "input is out of range"),
            (math::exp(), vec![1_000.0], "value out of range: overflow"),
            (math::power(), vec![-1.0, 0.5], "a negative number raised to a non-integer power"),
            (math::power(), vec![0.0, -1.0], "zero raised to a negative power is undefined"),
            (math::power(), vec![1e300, 2.0], "value out of range: overflow"),
            (math::power(), vec![1e-300, 2.0], "value out of range: underflow"),
            (math::exp(), vec![-1_000.0], "value out of range: underflow"),
            (math::degrees(), vec![1e308], "value out of range: overflow"),
            (math::radians(), vec![5e-324], "value out of range: underflow"),
            (math::sin(), vec![f64::INFINITY], "input is out of range"),
        ];
        for (engine, arguments, expected) in cases {
            let function = ScalarUDF::new_from_impl(WithDomain { engine });
            let error = computed(&function, arguments.clone()).unwrap_err().to_string();
            assert!(error.contains(expected), "{} of {arguments:?}: {error}", function.name());
        }
        for (engine, argument, expected) in [
            (math::exp(), f64::INFINITY, f64::INFINITY),
            (math::exp(), f64::NEG_INFINITY, 0.0),
            (math::radians(), 0.0, 0.0),
            (math::ln(), f64::INFINITY, f64::INFINITY),
            (math::sqrt(), 4.0, 2.0),
            (math::atanh(), 1.0, f64::INFINITY),
        ] {
            assert_eq!(computed(&ScalarUDF::new_from_impl(WithDomain { engine }), vec![argument]).unwrap(), expected);
        }
        let power = || ScalarUDF::new_from_impl(WithDomain { engine: math::power() });
        assert_eq!(computed(&power(), vec![0.0, 2.0]).unwrap(), 0.0);
        assert_eq!(computed(&power(), vec![0.5, f64::INFINITY]).unwrap(), 0.0);
        assert!(
            computed(&ScalarUDF::new_from_impl(WithDomain { engine: math::sin() }), vec![f64::NAN]).unwrap().is_nan()
        );
    }
}
