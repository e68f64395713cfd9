//! Partial states of all groups of a partition.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Int64Array, PrimitiveArray, UInt32Array, UInt64Array,
};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};

use super::arithmetic::{Bounds, Numbers};
use super::plan::{AggregatePlan, Function};
use super::sums::{Extremes, Groups, Lanes, Sums};
use crate::expressions::overflow;

/// Values of an argument for the rows of a batch.
#[derive(Clone, Debug)]
pub enum Values<'a> {
    /// Numbers within 64-bit bounds. `nulls` marks the null rows.
    Numbers {
        numbers: Numbers<'a>,
        nulls: Option<NullBuffer>,
        bounds: Bounds,
    },
    /// Codes of text or bytes. Codes below `entries` are in the order of their values; others are null.
    Codes {
        codes: Vec<u16>,
        entries: usize,
    },
    Array(ArrayRef),
}

impl Values<'_> {
    fn nulls(&self) -> Option<NullBuffer> {
        match self {
            Self::Numbers { nulls, .. } => nulls.clone(),
            Self::Codes { codes, entries } => {
                let nulls = NullBuffer::from_iter(codes.iter().map(|code| usize::from(*code) < *entries));
                (nulls.null_count() > 0).then_some(nulls)
            }
            Self::Array(array) => array.logical_nulls().filter(|nulls| nulls.null_count() > 0),
        }
    }
}

/// Summary of an argument over all rows of a segment.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    /// Rows in which the argument is null.
    pub nulls: u64,
    /// Minimum and maximum. `None` if all rows are null.
    pub bounds: Option<(i128, i128)>,
    /// Sum of the numbers, if a sum is needed.
    pub sum: Option<i128>,
}

/// States of one argument, by group.
#[derive(Debug, Default)]
struct ArgumentState {
    /// Whether the scan, and not DataFusion, counts, sums or compares the argument for some function.
    is_computed_by_scan: bool,
    sums: Option<Sums>,
    least: Option<Extremes>,
    greatest: Option<Extremes>,
    /// Null rows of each group. Groups beyond the end of the list had no nulls.
    nulls: Vec<i64>,
}

/// State of a function that DataFusion computes.
enum EngineState {
    Grouped(Box<dyn GroupsAccumulator>),
    Single(Box<dyn Accumulator>),
}

/// Partial states of all groups.
pub struct States {
    plan: Arc<AggregatePlan>,
    /// Number of rows of each group.
    rows: Lanes,
    inputs: Vec<ArgumentState>,
    /// State of each function. `None` for functions that the scan computes.
    engine_states: Vec<Option<EngineState>>,
    /// Extremes of the codes of a segment, for each function on text. They become values at the end of the segment.
    code_extremes: Vec<Option<Extremes>>,
}

impl States {
    /// Creates states without groups.
    pub fn new(plan: Arc<AggregatePlan>) -> Result<Self> {
        let mut inputs: Vec<ArgumentState> = plan.inputs.iter().map(|_| ArgumentState::default()).collect();
        for function in &plan.functions {
            match function {
                Function::CountRows | Function::ExtremeText { .. } | Function::Engine { .. } => {}
                Function::Count { input } => inputs[*input].is_computed_by_scan = true,
                Function::Sum { input, .. } | Function::Average { input, .. } => {
                    (inputs[*input].is_computed_by_scan, inputs[*input].sums) = (true, Some(Sums::default()));
                }
                Function::Extreme { input, is_greatest, .. } => {
                    let state = &mut inputs[*input];
                    state.is_computed_by_scan = true;
                    let side = if *is_greatest { &mut state.greatest } else { &mut state.least };
                    *side = Some(Extremes::new(*is_greatest));
                }
            }
        }
        let is_grouped = !plan.keys.is_empty();
        let engine = plan.functions.iter().map(|function| match function.engine_function() {
            Some(function) if is_grouped => Ok(Some(EngineState::Grouped(function.create_groups_accumulator()?))),
            Some(function) => Ok(Some(EngineState::Single(function.create_accumulator()?))),
            None => Ok(None),
        });
        let engine_states = engine.collect::<Result<_>>()?;
        let code_extremes = plan.functions.iter().map(|function| match function {
            Function::ExtremeText { is_greatest, .. } => Some(Extremes::new(*is_greatest)),
            _ => None,
        });
        let code_extremes = code_extremes.collect();
        Ok(Self { plan, rows: Lanes::default(), inputs, engine_states, code_extremes })
    }

    /// Adds the rows of a batch. `values` has one entry per argument.
    pub fn update(&mut self, groups: Groups<'_>, group_count: usize, values: &[Values<'_>]) -> Result<()> {
        self.rows.resize(group_count);
        match groups {
            Groups::Rows(rows) => self.rows.count_rows(rows),
            Groups::Runs(runs) => runs.iter().for_each(|(group, rows)| self.rows.add(*group as usize, *rows as i64)),
        }
        for (state, values) in self.inputs.iter_mut().zip(values) {
            if state.is_computed_by_scan {
                state.update(groups, group_count, values)?;
            }
        }
        let mut indices = None;
        for (index, function) in self.plan.functions.iter().enumerate() {
            let (inputs, condition) = match function {
                Function::Engine { inputs, condition, .. } => (inputs.as_slice(), *condition),
                Function::ExtremeText { input, .. } => (std::slice::from_ref(input), None),
                _ => continue,
            };
            if let (Some(extremes), [input]) = (&mut self.code_extremes[index], inputs)
                && let Values::Codes { codes, entries } = &values[*input]
            {
                extremes.add_codes(groups, group_count, codes, *entries);
                continue;
            }
            let Some(engine) = &mut self.engine_states[index] else { continue };
            let arrays = inputs.iter().map(|input| as_array(&values[*input])).collect::<Result<Vec<_>>>()?;
            match engine {
                EngineState::Single(accumulator) => accumulator.update_batch(&arrays)?,
                EngineState::Grouped(accumulator) => {
                    let indices = indices.get_or_insert_with(|| groups.indices());
                    let condition = condition.map(|condition| as_condition(&values[condition])).transpose()?;
                    accumulator.update_batch(&arrays, indices, condition.as_ref(), group_count)?;
                }
            }
        }
        Ok(())
    }

    /// Ends a segment: converts the extreme codes to values. `dictionaries` has the dictionary of each argument that
    /// was read as codes.
    pub fn end_segment(&mut self, group_count: usize, dictionaries: &[Option<ArrayRef>]) -> Result<()> {
        for (index, function) in self.plan.functions.iter().enumerate() {
            let Function::ExtremeText { input, .. } = function else { continue };
            let (Some(dictionary), Some(extremes)) = (&dictionaries[*input], &mut self.code_extremes[index]) else {
                continue;
            };
            let found = extremes.take_extremes(group_count);
            let code = |number: i128| u32::try_from(number).ok().filter(|code| (*code as usize) < dictionary.len());
            let (groups, codes): (Vec<usize>, Vec<u32>) =
                found.into_iter().enumerate().filter_map(|(group, number)| Some((group, code(number)?))).unzip();
            let values = [take(dictionary, &UInt32Array::from(codes), None)?];
            match &mut self.engine_states[index] {
                Some(EngineState::Single(accumulator)) => accumulator.update_batch(&values)?,
                Some(EngineState::Grouped(accumulator)) => {
                    accumulator.update_batch(&values, &groups, None, group_count)?;
                }
                None => return internal_err!("an extreme of text has no state"),
            }
        }
        Ok(())
    }

    /// Adds all rows of a segment to the only group, from summaries of each argument.
    pub fn add_summaries(&mut self, rows: usize, summaries: &[Summary]) {
        self.rows.resize(1);
        // A segment has at most 65,536 rows.
        self.rows.add(0, rows as i64);
        for (state, summary) in self.inputs.iter_mut().zip(summaries) {
            if state.is_computed_by_scan {
                state.add_summary(summary);
            }
        }
    }

    /// Subtracts `subtrahend`, the states of deleted rows, from the first `group_count` groups, and resets it. Both
    /// must be of the same plan, for which [`AggregatePlan::can_subtract`] is true. Returns which groups have rows
    /// left, or `None` if all groups have.
    pub fn subtract(&mut self, subtrahend: &mut Self, group_count: usize) -> Option<BooleanArray> {
        if subtrahend.rows.is_empty() {
            return None;
        }
        self.rows.resize(group_count);
        let removed = std::mem::take(&mut subtrahend.rows);
        (0..group_count).for_each(|group| self.rows.add(group, -removed.sum(group)));
        for (state, other) in self.inputs.iter_mut().zip(&mut subtrahend.inputs) {
            state.subtract(other, group_count);
        }
        let has_rows = BooleanArray::from_iter((0..group_count).map(|group| Some(self.rows.sum(group) > 0)));
        (has_rows.true_count() < group_count).then_some(has_rows)
    }

    /// Returns the states of `group_count` groups, and removes the groups. The arrays have the order of the columns
    /// that follow the keys in the schema.
    pub fn emit_all(&mut self, group_count: usize) -> Result<Vec<ArrayRef>> {
        if self.inputs.iter().any(|input| input.sums.as_ref().is_some_and(Sums::has_overflowed)) {
            return Err(overflow(&DataType::Decimal128(38, 0)).into());
        }
        let rows: Vec<i64> = (0..group_count).map(|group| self.rows.sum(group)).collect();
        self.rows = Lanes::default();
        let results: Vec<GroupResults> = self.inputs.iter_mut().map(|input| input.take_results(&rows)).collect();
        let mut arrays: Vec<ArrayRef> = Vec::new();
        for (function, engine) in self.plan.functions.iter().zip(&mut self.engine_states) {
            match function {
                Function::CountRows => arrays.push(Arc::new(Int64Array::from(rows.clone()))),
                Function::Count { input } => arrays.push(Arc::new(Int64Array::from(results[*input].counts.clone()))),
                Function::Sum { input, data_type } => {
                    arrays.push(numbers_array(&results[*input].sums, results[*input].validity(), data_type)?);
                }
                Function::Average { input, data_type } => {
                    let GroupResults { counts, sums, .. } = &results[*input];
                    let valid = results[*input].validity();
                    let counts = counts.iter().map(|count| count.unsigned_abs()).collect::<Vec<_>>();
                    arrays.push(Arc::new(UInt64Array::new(counts.into(), valid.clone())));
                    arrays.push(numbers_array(sums, valid, data_type)?);
                }
                Function::Extreme { input, is_greatest, data_type } => {
                    let GroupResults { least, greatest, .. } = &results[*input];
                    let found = if *is_greatest { greatest } else { least };
                    arrays.push(numbers_array(found, results[*input].validity(), data_type)?);
                }
                Function::Engine { function, .. } | Function::ExtremeText { function, .. } => match engine {
                    Some(EngineState::Grouped(accumulator)) => arrays.extend(accumulator.state(EmitTo::All)?),
                    Some(EngineState::Single(accumulator)) => {
                        for value in accumulator.state()? {
                            arrays.push(value.to_array()?);
                        }
                        *engine = Some(EngineState::Single(function.create_accumulator()?));
                    }
                    None => return internal_err!("{} has no state", function.name()),
                },
            }
        }
        Ok(arrays)
    }

    /// Size in memory, in bytes.
    pub fn bytes(&self) -> usize {
        let engine = self.engine_states.iter().flatten().map(|state| match state {
            EngineState::Grouped(accumulator) => accumulator.size(),
            EngineState::Single(accumulator) => accumulator.size(),
        });
        let codes = self.code_extremes.iter().flatten().map(Extremes::bytes).sum::<usize>();
        self.rows.bytes() + self.inputs.iter().map(ArgumentState::bytes).sum::<usize>() + engine.sum::<usize>() + codes
    }
}

/// Results of an argument, by group.
struct GroupResults {
    /// Rows in which the argument is not null.
    counts: Vec<i64>,
    sums: Vec<i128>,
    least: Vec<i128>,
    greatest: Vec<i128>,
}

impl GroupResults {
    /// Validity of sums, averages and extremes: null for a group in which all values are null.
    fn validity(&self) -> Option<NullBuffer> {
        let nulls = NullBuffer::from_iter(self.counts.iter().map(|count| *count > 0));
        (nulls.null_count() > 0).then_some(nulls)
    }
}

impl ArgumentState {
    fn update(&mut self, groups: Groups<'_>, group_count: usize, values: &Values<'_>) -> Result<()> {
        let nulls = values.nulls();
        if let Some(nulls) = &nulls {
            self.nulls.resize(group_count.max(self.nulls.len()), 0);
            groups
                .for_each_run(|group, rows| self.nulls[group] += rows.filter(|row| nulls.is_null(*row)).count() as i64);
        }
        match values {
            Values::Numbers { numbers, bounds, .. } => {
                self.add_numbers(groups, group_count, numbers, nulls.as_ref(), *bounds);
            }
            Values::Codes { .. } => {}
            Values::Array(array) => {
                if self.sums.is_some() || self.least.is_some() || self.greatest.is_some() {
                    let numbers = wide_numbers(array)?;
                    self.add_wide(groups, group_count, &numbers, nulls.as_ref());
                }
            }
        }
        Ok(())
    }

    fn add_numbers(
        &mut self,
        groups: Groups<'_>,
        group_count: usize,
        numbers: &Numbers<'_>,
        nulls: Option<&NullBuffer>,
        (low, high): Bounds,
    ) {
        if let Some(sums) = &mut self.sums {
            // Bounds have at most 64 bits.
            let magnitude = low.unsigned_abs().max(high.unsigned_abs()) as u64;
            match (numbers, nulls) {
                (Numbers::Constant(number), None) => sums.add_constant(groups, group_count, *number),
                (numbers, None) => sums.add(groups, group_count, numbers.slice().unwrap_or_default(), magnitude),
                (numbers, Some(nulls)) => {
                    let numbers =
                        nulls.iter().enumerate().map(|(row, is_valid)| if is_valid { numbers.value(row) } else { 0 });
                    sums.add(groups, group_count, &numbers.collect::<Vec<_>>(), magnitude);
                }
            }
        }
        let rows = match groups {
            Groups::Rows(groups) => groups.len(),
            Groups::Runs(runs) => runs.iter().map(|(_, rows)| rows).sum(),
        };
        for extremes in self.least.iter_mut().chain(&mut self.greatest) {
            if let (Some(numbers), None) = (numbers.slice(), nulls)
                && extremes.add_narrow(groups, group_count, numbers, (low, high))
            {
                continue;
            }
            let number =
                |row: usize| nulls.is_none_or(|nulls| nulls.is_valid(row)).then(|| i128::from(numbers.value(row)));
            extremes.add(groups, group_count, (0..rows).map(number));
        }
    }

    fn add_summary(&mut self, summary: &Summary) {
        // The summary is added as if the segment had one row.
        let group = Groups::Runs(&[(0, 1)]);
        self.nulls.resize(self.nulls.len().max(1), 0);
        self.nulls[0] += summary.nulls as i64;
        if let Some(sums) = &mut self.sums {
            sums.add_wide(group, 1, summary.sum.into_iter());
        }
        let (least, greatest) = summary.bounds.unzip();
        for (extremes, number) in [(&mut self.least, least), (&mut self.greatest, greatest)] {
            if let Some(extremes) = extremes {
                extremes.add(group, 1, std::iter::once(number));
            }
        }
    }

    fn subtract(&mut self, other: &mut Self, group_count: usize) {
        let nulls = std::mem::take(&mut other.nulls);
        self.nulls.resize(self.nulls.len().max(nulls.len()), 0);
        self.nulls.iter_mut().zip(&nulls).for_each(|(rows, removed)| *rows -= removed);
        if let (Some(sums), Some(removed)) = (&mut self.sums, &mut other.sums) {
            sums.subtract(removed, group_count);
        }
    }

    fn add_wide(&mut self, groups: Groups<'_>, group_count: usize, numbers: &[i128], nulls: Option<&NullBuffer>) {
        let number = |row: usize| nulls.is_none_or(|nulls| nulls.is_valid(row)).then(|| numbers[row]);
        if let Some(sums) = &mut self.sums {
            sums.add_wide(groups, group_count, (0..numbers.len()).map(|row| number(row).unwrap_or(0)));
        }
        for extremes in self.least.iter_mut().chain(&mut self.greatest) {
            extremes.add(groups, group_count, (0..numbers.len()).map(number));
        }
    }

    fn take_results(&mut self, rows: &[i64]) -> GroupResults {
        let nulls = std::mem::take(&mut self.nulls);
        let count = |(group, rows): (usize, &i64)| rows - nulls.get(group).copied().unwrap_or(0);
        let groups = rows.len();
        GroupResults {
            counts: rows.iter().enumerate().map(count).collect(),
            sums: self.sums.as_mut().map(|sums| sums.take_sums(groups)).unwrap_or_default(),
            least: self.least.as_mut().map(|least| least.take_extremes(groups)).unwrap_or_default(),
            greatest: self.greatest.as_mut().map(|greatest| greatest.take_extremes(groups)).unwrap_or_default(),
        }
    }

    fn bytes(&self) -> usize {
        self.sums.as_ref().map_or(0, Sums::bytes)
            + self.least.iter().chain(&self.greatest).map(Extremes::bytes).sum::<usize>()
            + self.nulls.capacity() * size_of::<i64>()
    }
}

fn as_array(values: &Values<'_>) -> Result<ArrayRef> {
    match values {
        Values::Array(array) => Ok(Arc::clone(array)),
        Values::Numbers { .. } | Values::Codes { .. } => {
            internal_err!("an argument of DataFusion's function is an array")
        }
    }
}

fn as_condition(values: &Values<'_>) -> Result<BooleanArray> {
    let array = as_array(values)?;
    match array.as_boolean_opt() {
        Some(flags) => Ok(flags.clone()),
        None => internal_err!("a condition of type {}", array.data_type()),
    }
}

/// Widens the values of an array of integers, decimals, days or microseconds.
fn wide_numbers(array: &ArrayRef) -> Result<Vec<i128>> {
    fn widened<T: ArrowPrimitiveType>(array: &ArrayRef) -> Vec<i128>
    where
        T::Native: Into<i128>,
    {
        array.as_primitive::<T>().values().iter().map(|number| (*number).into()).collect()
    }
    Ok(match array.data_type() {
        DataType::Int16 => widened::<Int16Type>(array),
        DataType::Int32 => widened::<Int32Type>(array),
        DataType::Int64 => widened::<Int64Type>(array),
        DataType::Date32 => widened::<Date32Type>(array),
        DataType::Timestamp(..) => widened::<TimestampMicrosecondType>(array),
        DataType::Decimal128(..) => widened::<Decimal128Type>(array),
        other => return internal_err!("numbers of type {other}"),
    })
}

/// Converts numbers to an array of a type. Numbers that do not fit wrap, as DataFusion's sums do.
fn numbers_array(numbers: &[i128], nulls: Option<NullBuffer>, data_type: &DataType) -> Result<ArrayRef> {
    fn array<T: ArrowPrimitiveType>(
        numbers: &[i128],
        nulls: Option<NullBuffer>,
        data_type: &DataType,
        narrow: impl Fn(i128) -> T::Native,
    ) -> ArrayRef {
        let numbers: Vec<T::Native> = numbers.iter().map(|number| narrow(*number)).collect();
        Arc::new(PrimitiveArray::<T>::new(numbers.into(), nulls).with_data_type(data_type.clone()))
    }
    Ok(match data_type {
        DataType::Int16 => array::<Int16Type>(numbers, nulls, data_type, |number| number as i16),
        DataType::Int32 => array::<Int32Type>(numbers, nulls, data_type, |number| number as i32),
        DataType::Int64 => array::<Int64Type>(numbers, nulls, data_type, |number| number as i64),
        DataType::Date32 => array::<Date32Type>(numbers, nulls, data_type, |number| number as i32),
        DataType::Timestamp(..) => array::<TimestampMicrosecondType>(numbers, nulls, data_type, |number| number as i64),
        DataType::Decimal128(..) => array::<Decimal128Type>(numbers, nulls, data_type, |number| number),
        other => return internal_err!("a partial state of type {other}"),
    })
}
