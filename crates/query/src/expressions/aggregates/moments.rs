//! DuckDB's aggregates of double precision numbers that are computed from a few sums: skewness, kurtosis, the standard
//! error of the mean, products and geometric means.
//!
//! The moments are sums of powers of the distance from the average. Two groups are merged with the formulas of Pébay,
//! which do not lose digits when the average is large.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};

use super::super::arithmetic::sliding;

/// The aggregates of this module.
pub(super) fn aggregates() -> impl Iterator<Item = AggregateUDF> {
    AGGREGATES.iter().map(|declaration| {
        let aliases = declaration.aliases.iter().map(|alias| (*alias).to_owned()).collect();
        let signature = Signature::exact(vec![DataType::Float64], Volatility::Immutable);
        sliding(AggregateUDF::new_from_impl(PowerSumAggregate { declaration, aliases, signature }))
    })
}

/// State of an aggregate: the count of the numbers, then the sums or moments that the aggregate needs.
type PowerSums = [f64; 5];

/// An aggregate that is computed from sums.
#[derive(Debug)]
struct Declaration {
    name: &'static str,
    aliases: &'static [&'static str],
    /// State for no numbers.
    empty: PowerSums,
    /// State for one number.
    of_one: fn(f64) -> PowerSums,
    /// Combines the states of two groups of numbers. Neither is empty.
    merge: fn(&PowerSums, &PowerSums) -> PowerSums,
    /// Computes the result from a state. Returns `None` for null.
    result: fn(&PowerSums) -> Option<f64>,
}

const AGGREGATES: [Declaration; 6] = [
    of_moments("skewness", &[], skewness),
    of_moments("kurtosis", &[], kurtosis),
    of_moments("kurtosis_pop", &[], kurtosis_of_population),
    of_moments("sem", &[], standard_error),
    Declaration {
        name: "product",
        aliases: &[],
        empty: [0.0, 1.0, 0.0, 0.0, 0.0],
        of_one: |number| [1.0, number, 0.0, 0.0, 0.0],
        merge: |left, right| [left[0] + right[0], left[1] * right[1], 0.0, 0.0, 0.0],
        result: |sums| (sums[0] > 0.0).then_some(sums[1]),
    },
    Declaration {
        name: "geomean",
        aliases: &["geometric_mean"],
        empty: [0.0; 5],
        of_one: |number| [1.0, number.ln(), 0.0, 0.0, 0.0],
        merge: |left, right| [left[0] + right[0], left[1] + right[1], 0.0, 0.0, 0.0],
        result: |sums| (sums[0] > 0.0).then(|| (sums[1] / sums[0]).exp()),
    },
];

/// An aggregate of the count, the average, and the second to fourth moment.
const fn of_moments(
    name: &'static str,
    aliases: &'static [&'static str],
    result: fn(&PowerSums) -> Option<f64>,
) -> Declaration {
    Declaration {
        name,
        aliases,
        empty: [0.0; 5],
        of_one: |number| [1.0, number, 0.0, 0.0, 0.0],
        merge: merged_moments,
        result,
    }
}

fn merged_moments(left: &PowerSums, right: &PowerSums) -> PowerSums {
    let ([n1, mean1, square1, cube1, fourth1], [n2, mean2, square2, cube2, fourth2]) = (*left, *right);
    let (n, delta) = (n1 + n2, mean2 - mean1);
    let share = delta / n;
    let square = square1 + square2 + delta * share * n1 * n2;
    let cube =
        cube1 + cube2 + delta * share * share * n1 * n2 * (n1 - n2) + 3.0 * share * (n1 * square2 - n2 * square1);
    let fourth = fourth1
        + fourth2
        + delta * share.powi(3) * n1 * n2 * (n1 * n1 - n1 * n2 + n2 * n2)
        + 6.0 * share * share * (n1 * n1 * square2 + n2 * n2 * square1)
        + 4.0 * share * (n1 * cube2 - n2 * cube1);
    [n, mean1 + share * n2, square, cube, fourth]
}

/// Skewness of a sample. Null for fewer than three numbers, or if all are equal.
fn skewness([n, _, square, cube, _]: &PowerSums) -> Option<f64> {
    let correction = (n * (n - 1.0)).sqrt() / (n - 2.0);
    (*n > 2.0 && *square != 0.0).then(|| correction * (cube / n) / (square / n).powf(1.5))
}

/// Excess kurtosis of a sample. Null for fewer than four numbers, or if all are equal.
fn kurtosis(sums: &PowerSums) -> Option<f64> {
    let n = sums[0];
    let of_population = kurtosis_of_population(sums).filter(|_| n > 3.0)?;
    Some((n - 1.0) / ((n - 2.0) * (n - 3.0)) * ((n + 1.0) * of_population + 6.0))
}

/// Excess kurtosis of a population. Null for fewer than two numbers, or if all are equal.
fn kurtosis_of_population([n, _, square, _, fourth]: &PowerSums) -> Option<f64> {
    (*n > 1.0 && *square != 0.0).then(|| n * fourth / (square * square) - 3.0)
}

/// Standard error of the mean.
fn standard_error([n, _, square, _, _]: &PowerSums) -> Option<f64> {
    (*n > 0.0).then(|| (square / n).sqrt() / n.sqrt())
}

#[derive(Debug)]
struct PowerSumAggregate {
    declaration: &'static Declaration,
    aliases: Vec<String>,
    signature: Signature,
}

impl PartialEq for PowerSumAggregate {
    fn eq(&self, other: &Self) -> bool {
        self.declaration.name == other.declaration.name
    }
}

impl Eq for PowerSumAggregate {}

impl Hash for PowerSumAggregate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.declaration.name.hash(state);
    }
}

impl AggregateUDFImpl for PowerSumAggregate {
    fn name(&self) -> &str {
        self.declaration.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let field = |index: usize| {
            let name = format_state_name(args.name, &format!("sum_{index}"));
            Arc::new(Field::new(name, DataType::Float64, true))
        };
        Ok((0..self.declaration.empty.len()).map(field).collect())
    }

    fn accumulator(&self, _args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(SumsAccumulator { declaration: self.declaration, sums: self.declaration.empty }))
    }
}

#[derive(Debug)]
struct SumsAccumulator {
    declaration: &'static Declaration,
    sums: PowerSums,
}

impl SumsAccumulator {
    fn add(&mut self, sums: &PowerSums) {
        self.sums = match (self.sums[0] > 0.0, sums[0] > 0.0) {
            (true, true) => (self.declaration.merge)(&self.sums, sums),
            (false, true) => *sums,
            (_, false) => return,
        };
    }
}

impl Accumulator for SumsAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for number in values[0].as_primitive::<Float64Type>().iter().flatten() {
            self.add(&(self.declaration.of_one)(number));
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for row in 0..states[0].len() {
            let mut sums = self.declaration.empty;
            for (sum, state) in sums.iter_mut().zip(states) {
                *sum = state.as_primitive::<Float64Type>().value(row);
            }
            self.add(&sums);
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(self.sums.iter().map(|sum| ScalarValue::Float64(Some(*sum))).collect())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64((self.declaration.result)(&self.sums)))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_moments_equal_moments_of_all_numbers() {
        let sums = |numbers: &[f64]| {
            let one = |number: &f64| [1.0, *number, 0.0, 0.0, 0.0];
            numbers.iter().map(one).reduce(|left, right| merged_moments(&left, &right)).unwrap()
        };
        let numbers = [1.0, 2.0, 4.0, 10.0, -3.0, 0.5];
        let (all, halves) = (sums(&numbers), merged_moments(&sums(&numbers[..2]), &sums(&numbers[2..])));
        assert!(all.iter().zip(halves).all(|(all, merged)| (all - merged).abs() < 1e-9), "{all:?} {halves:?}");
        let of_four = sums(&numbers[..4]);
        assert!((skewness(&of_four).unwrap() - 1.469_334_548_210_62).abs() < 1e-9);
        assert!((kurtosis(&of_four).unwrap() - 2.030_769_230_769_23).abs() < 1e-9);
        assert!((kurtosis_of_population(&of_four).unwrap() + 0.929_230_769_230_77).abs() < 1e-9);
    }
}
