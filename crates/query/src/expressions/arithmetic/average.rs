//! `avg` of decimals, with as many digits as a quotient of decimals.
//!
//! The engine computes the sum and the count. Its own `avg` divides them with four digits more than the values have;
//! here they are divided like any two decimals, see [`super::division`]:
//!
//! ```text
//!   avg(decimal(p, s))    decimal(38, scale), where the scale allows for p - s integer digits
//! ```
//!
//! The engine averages integers and floating-point numbers in double precision. An average that overflows is an error,
//! see [`super::finite`]. Intervals are averaged by [`super::interval_average`].

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Decimal128Builder};
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Decimal256Type, Field, FieldRef, UInt64Type, i256};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::functions_aggregate::average::Avg;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Coercion, EmitTo, GroupsAccumulator, ReversedUDAF, Signature,
    TypeSignature, TypeSignatureClass,
};

use super::division::{PRECISION, Quotient, quotient_scale};
use super::finite::{FiniteAccumulator, FiniteGroups};
use super::interval_average::{INTERVAL, IntervalAverage, state_fields};

/// The function that replaces DataFusion's `avg`.
pub fn average() -> AggregateUDF {
    let engine = Avg::new();
    let Signature { type_signature, volatility, .. } = engine.signature().clone();
    let of_intervals = TypeSignature::Coercible(vec![Coercion::new_exact(TypeSignatureClass::Interval)]);
    let signature = Signature::one_of(vec![type_signature, of_intervals], volatility);
    AggregateUDF::new_from_impl(Average { engine, signature })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Average {
    engine: Avg,
    signature: Signature,
}

impl Average {
    /// Accumulator arguments with the return type of DataFusion's `avg`.
    fn engine_args<'a>(&self, args: &AccumulatorArgs<'a>) -> Result<AccumulatorArgs<'a>> {
        let types: Vec<_> = args.expr_fields.iter().map(|field| field.data_type().clone()).collect();
        let return_field = Field::new(args.return_field.name(), self.engine.return_type(&types)?, true);
        Ok(AccumulatorArgs { return_field: Arc::new(return_field), ..args.clone() })
    }
}

impl AggregateUDFImpl for Average {
    fn name(&self) -> &str {
        self.engine.name()
    }

    fn aliases(&self) -> &[String] {
        self.engine.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [INTERVAL] => Ok(INTERVAL),
            [DataType::Decimal128(precision, scale)] => {
                let integer_digits = i16::from(*precision) - i16::from(*scale);
                Ok(DataType::Decimal128(PRECISION, quotient_scale(integer_digits, *scale)))
            }
            types => self.engine.return_type(types),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        match args.input_fields[0].data_type() {
            &INTERVAL => Ok(state_fields(args.name)),
            _ => self.engine.state_fields(args),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if args.return_type() == &INTERVAL {
            return Ok(Box::new(IntervalAverage::default()));
        }
        let engine = self.engine.accumulator(self.engine_args(&args)?)?;
        Ok(match (args.expr_fields[0].data_type(), args.return_type()) {
            (DataType::Decimal128(_, scale), DataType::Decimal128(_, quotient_scale)) => {
                Box::new(DecimalAverage { engine, division: Division::new(*scale, *quotient_scale) })
            }
            _ => Box::new(FiniteAccumulator::new(engine, args.is_distinct)),
        })
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        args.return_type() != &INTERVAL
            && self.engine_args(&args).is_ok_and(|args| self.engine.groups_accumulator_supported(args))
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        let engine = self.engine.create_groups_accumulator(self.engine_args(&args)?)?;
        Ok(match (args.expr_fields[0].data_type(), args.return_type()) {
            (DataType::Decimal128(_, scale), DataType::Decimal128(_, quotient_scale)) => {
                Box::new(DecimalAverages { engine, division: Division::new(*scale, *quotient_scale) })
            }
            _ => Box::new(FiniteGroups::new(engine)),
        })
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.engine.reverse_expr()
    }
}

/// Division of a sum by a count.
#[derive(Clone, Copy, Debug)]
struct Division {
    quotient: Quotient,
    scale: i8,
}

impl Division {
    fn new(sum_scale: i8, scale: i8) -> Self {
        Self { quotient: Quotient::with_factor((scale - sum_scale).unsigned_abs().into()), scale }
    }

    /// Computes averages from DataFusion's states: counts, then sums. Null for a count of zero or a sum of null.
    fn averages(&self, states: &[ArrayRef]) -> Result<ArrayRef> {
        let [counts, sums] = states else { return internal_err!("avg has {} states", states.len()) };
        let counts = counts.as_primitive::<UInt64Type>();
        let mut averages =
            Decimal128Builder::with_capacity(counts.len()).with_precision_and_scale(PRECISION, self.scale)?;
        for (row, count) in counts.iter().enumerate() {
            let count = i128::from(count.unwrap_or(0));
            let average = match sums.data_type() {
                _ if count == 0 || sums.is_null(row) => None,
                DataType::Decimal128(..) => {
                    Some(self.quotient.of(sums.as_primitive::<Decimal128Type>().value(row), count)?)
                }
                DataType::Decimal256(..) => {
                    let sum = sums.as_primitive::<Decimal256Type>().value(row);
                    Some(self.quotient.of_wide(sum, i256::from_i128(count))?)
                }
                other => return internal_err!("avg has a sum of {other}"),
            };
            averages.append_option(average);
        }
        Ok(Arc::new(averages.finish()))
    }

    /// Average of distinct values.
    fn average_of(&self, values: &ArrayRef) -> Result<ScalarValue> {
        let values = values.as_primitive::<Decimal128Type>();
        let add = |sum: i256, value| sum.wrapping_add(i256::from_i128(value));
        let (sum, count) =
            values.iter().flatten().fold((i256::ZERO, 0), |(sum, count), value| (add(sum, value), count + 1));
        let average = match count {
            0 => None,
            count => Some(self.quotient.of_wide(sum, i256::from_i128(count))?),
        };
        Ok(ScalarValue::Decimal128(average, PRECISION, self.scale))
    }
}

/// Accumulator of one average.
#[derive(Debug)]
struct DecimalAverage {
    engine: Box<dyn Accumulator>,
    division: Division,
}

impl Accumulator for DecimalAverage {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.engine.update_batch(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let states = self.engine.state()?;
        // The state of `avg(DISTINCT ...)` is the list of values.
        if let [ScalarValue::List(values)] = states.as_slice() {
            return self.division.average_of(values.values());
        }
        let states = states.iter().map(ScalarValue::to_array).collect::<Result<Vec<_>>>()?;
        ScalarValue::try_from_array(&self.division.averages(&states)?, 0)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.engine.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.engine.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.engine.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.engine.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.engine.supports_retract_batch()
    }
}

/// Accumulator of one average for each group.
struct DecimalAverages {
    engine: Box<dyn GroupsAccumulator>,
    division: Division,
}

impl GroupsAccumulator for DecimalAverages {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        groups: usize,
    ) -> Result<()> {
        self.engine.update_batch(values, group_indices, filter, groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        self.division.averages(&self.engine.state(emit_to)?)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.engine.state(emit_to)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], group_indices: &[usize], groups: usize) -> Result<()> {
        self.engine.merge_batch(states, group_indices, groups)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        self.engine.convert_to_state(values, filter)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.engine.size()
    }
}
