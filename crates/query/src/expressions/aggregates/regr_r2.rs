//! `regr_r2`, which is 1 if all values of the dependent variable are equal. The engine returns null there. As in
//! PostgreSQL, the result is null if all values of the independent variable are equal.

use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_aggregate::regr;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature};

use super::super::arithmetic::sliding;

/// The function that replaces DataFusion's `regr_r2`.
pub(super) fn regr_r2() -> AggregateUDF {
    sliding(AggregateUDF::new_from_impl(RegrR2 { engine: regr::regr_r2_udaf() }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct RegrR2 {
    engine: Arc<AggregateUDF>,
}

impl AggregateUDFImpl for RegrR2 {
    fn name(&self) -> &str {
        self.engine.name()
    }

    fn signature(&self) -> &Signature {
        self.engine.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.engine.return_type(types)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.engine.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(DeterminationAccumulator { engine: self.engine.accumulator(args)? }))
    }
}

#[derive(Debug)]
struct DeterminationAccumulator {
    engine: Box<dyn Accumulator>,
}

impl Accumulator for DeterminationAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.engine.update_batch(values)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.engine.merge_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.engine.state()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        // The state is the count, both averages, and the sums of squares of the independent and dependent variable.
        let state = self.engine.state()?;
        let sum_of_squares = |index: usize| match state.get(index) {
            Some(ScalarValue::Float64(Some(sum))) => *sum,
            _ => f64::NAN,
        };
        if sum_of_squares(3) > 0.0 && sum_of_squares(4) == 0.0 {
            return Ok(ScalarValue::Float64(Some(1.0)));
        }
        self.engine.evaluate()
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.engine.size()
    }
}
