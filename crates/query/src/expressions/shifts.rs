//! `lag` and `lead` with an offset or a default that is not constant, such as `lag(x, n, y)`. The engine's functions
//! take only literals.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, new_null_array};
use datafusion::arrow::compute::interleave;
use datafusion::arrow::datatypes::{DataType, FieldRef, Int64Type};
use datafusion::common::{Result, not_impl_err, plan_err};
use datafusion::logical_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::{
    LimitEffect, PartitionEvaluator, Signature, Volatility, WindowFunctionDefinition, WindowUDF, WindowUDFImpl,
};
use datafusion::physical_expr::PhysicalExpr;

/// Returns `lag`, or `lead` if `is_lead`, for arguments that depend on the row.
pub fn shift_of_each_row(is_lead: bool) -> WindowFunctionDefinition {
    let function = Shift { is_lead, signature: Signature::user_defined(Volatility::Immutable) };
    WindowFunctionDefinition::WindowUDF(Arc::new(WindowUDF::new_from_impl(function)))
}

/// The function `lag` or `lead`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Shift {
    is_lead: bool,
    signature: Signature,
}

impl WindowUDFImpl for Shift {
    fn name(&self) -> &str {
        if self.is_lead { "lead" } else { "lag" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [value, _] => Ok(vec![value.clone(), DataType::Int64]),
            [value, _, _] => Ok(vec![value.clone(), DataType::Int64, value.clone()]),
            _ => plan_err!("{} takes one to three arguments", self.name()),
        }
    }

    fn field(&self, args: WindowUDFFieldArgs<'_>) -> Result<FieldRef> {
        match args.input_fields() {
            [value, ..] => Ok(Arc::new(value.as_ref().clone().with_name(args.name()).with_nullable(true))),
            [] => plan_err!("{} takes one to three arguments", self.name()),
        }
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs<'_>) -> Result<Box<dyn PartitionEvaluator>> {
        if args.ignore_nulls() {
            return not_impl_err!(
                "IGNORE NULLS of {} with arguments that are not constant is not supported",
                self.name()
            );
        }
        Ok(Box::new(ShiftEvaluator { is_lead: self.is_lead }))
    }

    fn limit_effect(&self, _args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        LimitEffect::Unknown
    }
}

#[derive(Debug)]
struct ShiftEvaluator {
    is_lead: bool,
}

impl PartitionEvaluator for ShiftEvaluator {
    fn evaluate_all(&mut self, values: &[ArrayRef], num_rows: usize) -> Result<ArrayRef> {
        let offsets = values[1].as_primitive::<Int64Type>();
        let null = new_null_array(values[0].data_type(), 1);
        let source = |row: usize| {
            if offsets.is_null(row) {
                return (2, 0);
            }
            let distance = i128::from(offsets.value(row));
            let shifted = row as i128 + if self.is_lead { distance } else { -distance };
            match usize::try_from(shifted) {
                Ok(shifted) if shifted < num_rows => (0, shifted),
                _ if values.len() > 2 => (1, row),
                _ => (2, 0),
            }
        };
        let sources: Vec<(usize, usize)> = (0..num_rows).map(source).collect();
        let defaults = values.get(2).unwrap_or(&null);
        Ok(interleave(&[values[0].as_ref(), defaults.as_ref(), null.as_ref()], &sources)?)
    }
}
