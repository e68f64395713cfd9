//! Overflow checks for sums, averages and deviations of floating-point numbers. The engine returns infinity if a result
//! overflows. Here that is an error, unless one of the numbers is infinite or NaN.
//!
//! A partial result that overflows is an error too, because a merge would mistake it for an infinite number.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};

use super::kernels::float_error;

/// Indexes of the rows of a double precision array that are infinite or NaN. Empty for other types.
fn infinite_rows(numbers: &ArrayRef) -> impl Iterator<Item = usize> + '_ {
    let numbers = numbers.as_primitive_opt::<Float64Type>();
    // A loop without branches. Most batches have no such number, and end here.
    let has_infinite = |any, number: &f64| any | !number.is_finite();
    let any = numbers.filter(|numbers| numbers.values().iter().fold(false, has_infinite));
    any.into_iter()
        .flat_map(|numbers| (0..numbers.len()).filter(|row| numbers.is_valid(*row) && !numbers.value(*row).is_finite()))
}

fn has_infinite(numbers: &ArrayRef) -> bool {
    match numbers.data_type() {
        // The distinct values of a partial aggregate.
        DataType::List(_) => has_infinite(numbers.as_list::<i32>().values()),
        _ => infinite_rows(numbers).next().is_some(),
    }
}

fn check(is_finite: bool) -> Result<()> {
    float_error(!is_finite, false).map_or(Ok(()), |error| Err(error.into()))
}

/// Accumulator that checks one result.
#[derive(Debug)]
pub(super) struct FiniteAccumulator {
    engine: Box<dyn Accumulator>,
    /// Whether DataFusion collects distinct values, and computes the result at the end.
    is_distinct: bool,
    has_infinite: bool,
}

impl FiniteAccumulator {
    pub fn new(engine: Box<dyn Accumulator>, is_distinct: bool) -> Self {
        Self { engine, is_distinct, has_infinite: false }
    }

    /// Records whether the added numbers include an infinite one or NaN. Reads them only if the partial result is
    /// infinite, or if the aggregate is distinct.
    fn observe(&mut self, arrays: &[ArrayRef]) -> Result<()> {
        if self.has_infinite || (!self.is_distinct && self.engine.state()?.iter().all(is_finite)) {
            return Ok(());
        }
        self.has_infinite = arrays.iter().any(has_infinite);
        check(self.is_distinct || self.has_infinite)
    }
}

fn is_finite(result: &ScalarValue) -> bool {
    match result {
        ScalarValue::Float64(Some(number)) => number.is_finite(),
        _ => true,
    }
}

impl Accumulator for FiniteAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.engine.update_batch(values)?;
        self.observe(values)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.engine.merge_batch(states)?;
        self.observe(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let result = self.engine.evaluate()?;
        check(self.has_infinite || is_finite(&result))?;
        Ok(result)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.engine.state()
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.engine.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.engine.supports_retract_batch()
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.engine.size()
    }
}

/// Accumulator that checks the result of each group.
pub(super) struct FiniteGroups {
    engine: Box<dyn GroupsAccumulator>,
    groups: usize,
    /// Whether each group has an infinite number or NaN, by group index. Groups beyond the end have none.
    have_infinite: Vec<bool>,
}

impl FiniteGroups {
    pub fn new(engine: Box<dyn GroupsAccumulator>) -> Self {
        Self { engine, groups: 0, have_infinite: Vec::new() }
    }

    fn observe(&mut self, arrays: &[ArrayRef], group_indices: &[usize], filter: Option<&BooleanArray>, groups: usize) {
        self.groups = groups;
        for row in arrays.iter().flat_map(infinite_rows) {
            if filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row)) {
                self.have_infinite.resize(groups, false);
                self.have_infinite[group_indices[row]] = true;
            }
        }
    }

    /// Checks the results, final or partial, of the emitted groups.
    fn check(&mut self, results: &[ArrayRef], emit_to: EmitTo) -> Result<()> {
        let emitted = match emit_to {
            EmitTo::All => self.groups,
            EmitTo::First(count) => count,
        };
        self.groups -= emitted.min(self.groups);
        let known = emitted.min(self.have_infinite.len());
        let have_infinite: Vec<bool> = self.have_infinite.drain(..known).collect();
        let mut rows = results.iter().flat_map(infinite_rows);
        check(rows.all(|group| have_infinite.get(group) == Some(&true)))
    }
}

impl GroupsAccumulator for FiniteGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        groups: usize,
    ) -> Result<()> {
        self.observe(values, group_indices, filter, groups);
        self.engine.update_batch(values, group_indices, filter, groups)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], group_indices: &[usize], groups: usize) -> Result<()> {
        self.observe(states, group_indices, None, groups);
        self.engine.merge_batch(states, group_indices, groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let results = self.engine.evaluate(emit_to)?;
        self.check(std::slice::from_ref(&results), emit_to)?;
        Ok(results)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let states = self.engine.state(emit_to)?;
        self.check(&states, emit_to)?;
        Ok(states)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        self.engine.convert_to_state(values, filter)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.engine.size() + self.have_infinite.capacity()
    }
}
