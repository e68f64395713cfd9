//! Arguments of `nth_value`, `ntile`, `lag` and `lead`.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, ScalarValue, exec_err, not_impl_err};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{Expr, cast, lit};

use super::constant;
use crate::expressions::{name_of_function, nth_of_each_row, shift_of_each_row};

/// Offset of `lag` and `lead` that is larger than any partition.
const BEYOND: i64 = 1 << 60;

/// Computes the constant arguments of a call. Other arguments need other functions. Returns whether it changed the
/// call.
///
/// # Errors
/// If the function does not accept the value of an argument.
pub(super) fn replace(function: &mut WindowFunction, config: &ConfigOptions) -> Result<bool> {
    let name = name_of_function(&function.fun).to_owned();
    let arguments = &mut function.params.args;
    let first = match name.as_str() {
        "ntile" => 0,
        "nth_value" | "lag" | "lead" => 1,
        _ => return Ok(false),
    };
    let given = arguments.clone();
    for argument in arguments.iter_mut().skip(first) {
        if let Some(value) = constant(argument.clone(), config)? {
            let is_integer = value.data_type().is_integer();
            *argument = Expr::Literal(if is_integer { value.cast_to(&DataType::Int64)? } else { value }, None);
        }
    }
    if !arguments.iter().skip(first).all(|argument| matches!(argument, Expr::Literal(..))) {
        return of_each_row(function, &name);
    }
    let Some(Expr::Literal(number, _)) = arguments.get_mut(first) else { return Ok(false) };
    match (name.as_str(), number) {
        ("lag" | "lead", ScalarValue::Int64(Some(offset))) => *offset = (*offset).clamp(-BEYOND, BEYOND),
        ("lag" | "lead", number) if number.is_null() => {
            // The result is null, not the default.
            arguments.truncate(first);
            arguments.push(lit(BEYOND));
        }
        ("nth_value", number) if number.is_null() => *number = ScalarValue::Int64(Some(i64::MAX)),
        ("nth_value" | "ntile", ScalarValue::Int64(None | Some(..=0))) => {
            return exec_err!("argument of {name} must be greater than zero");
        }
        _ => {}
    }
    Ok(*arguments != given)
}

/// Replaces a function by one whose arguments may depend on the row. Returns true.
fn of_each_row(function: &mut WindowFunction, name: &str) -> Result<bool> {
    if name == "ntile" {
        return not_impl_err!("an argument of ntile that is not constant is not supported");
    }
    let fun = &mut function.fun;
    if name == "nth_value" {
        if fun.name() == name {
            *fun = nth_of_each_row(fun.clone());
        }
    } else {
        *fun = shift_of_each_row(name == "lead");
    }
    let offset = std::mem::take(&mut function.params.args[1]);
    function.params.args[1] = cast(offset, DataType::Int64);
    Ok(true)
}
