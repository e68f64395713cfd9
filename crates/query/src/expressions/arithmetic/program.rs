//! Deeply nested arithmetic as one function.
//!
//! The engine infers the type of a function from the functions inside it, and builds its name from theirs, at every
//! level. So the time to plan nested functions grows with the square of the depth. This function holds the operations
//! in postfix order, and takes the operands as arguments:
//!
//! ```text
//!   nested functions             one function              its operations
//!   add(add(add(a, b), c), d)    arithmetic(a, b, c, d)    a b + c + d +
//! ```

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::{BinaryFunction, Negate, Operation, kernels};

/// Instruction of a stack machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Instruction {
    /// Pushes the next argument.
    Argument,
    /// Replaces the two values on top of the stack by the result of the operation.
    Combine(Operation),
    /// Replaces the value on top by its negation.
    Negate,
}

/// The function `arithmetic`, which runs instructions.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Program {
    instructions: Vec<Instruction>,
    /// A name with a hash of the instructions and arguments, so that equal calls have equal names.
    schema_name: String,
    signature: Signature,
}

impl Program {
    /// Returns nested checked functions as one call.
    pub fn of(nested: Expr) -> Expr {
        let (mut instructions, mut arguments) = (Vec::new(), Vec::new());
        flatten(nested, &mut instructions, &mut arguments);
        let mut hasher = DefaultHasher::new();
        (&instructions, &arguments).hash(&mut hasher);
        let schema_name = format!("arithmetic_{:x}", hasher.finish());
        let signature = Signature::variadic_any(Volatility::Immutable);
        ScalarUDF::new_from_impl(Self { instructions, schema_name, signature }).call(arguments)
    }

    /// Runs the instructions on the values of the arguments.
    fn run<T>(
        &self,
        arguments: impl IntoIterator<Item = T>,
        combine: impl Fn(Operation, T, T) -> Result<T>,
        negate: impl Fn(T) -> Result<T>,
    ) -> Result<T> {
        let (mut arguments, mut stack) = (arguments.into_iter(), Vec::new());
        for instruction in &self.instructions {
            let value = match instruction {
                Instruction::Argument => arguments.next(),
                Instruction::Combine(operation) => match (stack.pop(), stack.pop()) {
                    (Some(right), Some(left)) => Some(combine(*operation, left, right)?),
                    _ => None,
                },
                Instruction::Negate => stack.pop().map(&negate).transpose()?,
            };
            match value {
                Some(value) => stack.push(value),
                None => return internal_err!("{} has too few arguments", self.schema_name),
            }
        }
        match stack.pop() {
            Some(result) => Ok(result),
            None => internal_err!("{} has no instructions", self.schema_name),
        }
    }
}

/// Appends the instructions and arguments of a call.
fn flatten(nested: Expr, instructions: &mut Vec<Instruction>, arguments: &mut Vec<Expr>) {
    match nested {
        Expr::ScalarFunction(ScalarFunction { func, args }) => {
            let inner = func.inner();
            if let Some(program) = inner.downcast_ref::<Program>() {
                instructions.extend(&program.instructions);
                arguments.extend(args);
            } else if let Some(function) = inner.downcast_ref::<BinaryFunction>() {
                args.into_iter().for_each(|operand| flatten(operand, instructions, arguments));
                instructions.push(Instruction::Combine(function.operation));
            } else if inner.downcast_ref::<Negate>().is_some() {
                args.into_iter().for_each(|operand| flatten(operand, instructions, arguments));
                instructions.push(Instruction::Negate);
            } else {
                instructions.push(Instruction::Argument);
                arguments.push(Expr::ScalarFunction(ScalarFunction { func, args }));
            }
        }
        other => {
            instructions.push(Instruction::Argument);
            arguments.push(other);
        }
    }
}

impl ScalarUDFImpl for Program {
    fn name(&self) -> &'static str {
        "arithmetic"
    }

    fn schema_name(&self, _arguments: &[Expr]) -> Result<String> {
        Ok(self.schema_name.clone())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.run(types.iter().cloned(), |operation, left, right| operation.result_type(&left, &right), Ok)
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
        let rows = args.number_rows;
        self.run(
            args.args,
            |operation, left, right| kernels::combine(operation, &left, &right, rows),
            |operand| kernels::negate(&operand),
        )
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::col;

    use super::super::NEGATE;
    use super::*;

    #[test]
    fn nested_calls_become_one() {
        let add = |left, right| Operation::Add.function().call(vec![left, right]);
        let nested = add(NEGATE.call(vec![add(col("a"), col("b"))]), col("c"));
        let inner = Program::of(nested);
        let outer = Program::of(Operation::Subtract.function().call(vec![col("d"), inner]));
        let Expr::ScalarFunction(call) = outer else { panic!("not a call") };
        let program = call.func.inner().downcast_ref::<Program>().unwrap();
        assert_eq!(call.args, [col("d"), col("a"), col("b"), col("c")]);
        let run = |numbers: [i64; 4]| {
            let combine = |operation, left: i64, right: i64| {
                Ok(match operation {
                    Operation::Add => left + right,
                    Operation::Subtract => left - right,
                    Operation::Multiply => left * right,
                })
            };
            program.run(numbers, combine, |number| Ok(-number)).unwrap()
        };
        assert_eq!(run([100, 1, 2, 10]), 100 - (-(1 + 2) + 10));
    }
}
