//! Assigns rows to partitions, and finds the partitions whose rows may pass a predicate.
//!
//! ```text
//!   range(c, n)   partition 0   c < b0      partition 1   b0 <= c < b1     ...   partition k   b(k-1) <= c
//!   hash(c, n)    partition XXH3(datum of c) mod n
//!   both          partition n   c is null
//! ```
//!
//! The last range partition is `k`, at most `n - 1`. It is less than `n - 1` if too few values differ.
//!
//! Values are compared and hashed as [`Datum`], so that the partition of a value does not depend on how a block stores
//! it.

use std::ops::{Bound, RangeInclusive};

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::datum::{f32_to_ordered, f64_to_ordered};
use crate::{
    ColumnIndex, ColumnPredicate, Datum, DatumPredicate, LogicalType, PARTITIONS_MAX, PartitionDesign, PartitionMethod,
    SortColumn,
};

/// Maximum bytes of a boundary. A boundary is shorter if fewer bytes separate the values on its sides.
const BOUNDARY_BYTES_MAX: usize = 1024;

/// Partitions of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Partitioning {
    design: PartitionDesign,
    /// For a range: the inclusive lower bound of each partition except the first, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    boundaries: Vec<Datum>,
}

impl Partitioning {
    /// Partitions of a [`PartitionDesign`] with method `hash`. Returns `None` for a range, which needs boundaries.
    pub fn without_boundaries(design: PartitionDesign) -> Option<Self> {
        match design.method {
            PartitionMethod::Hash => Some(Self { design, boundaries: Vec::new() }),
            PartitionMethod::Range => None,
        }
    }

    /// Partitions of a design. Boundaries of range partitions are quantiles of a sample of the column's values.
    ///
    /// A boundary never divides equal values, so there may be fewer partitions than the design asks for. If it asks
    /// for several partitions, and the sample has two different values, there are at least two partitions. A text
    /// boundary is the shortest text that separates its neighbours in the sample (Bayer and Unterauer, 1977). Returns
    /// `None` for range partitions with an empty sample.
    pub fn from_sample(design: PartitionDesign, logical: LogicalType, mut sample: Vec<Datum>) -> Option<Self> {
        if design.method == PartitionMethod::Hash {
            return Self::without_boundaries(design);
        }
        sample.sort_unstable();
        let mut boundaries: Vec<Datum> = Vec::new();
        let least = sample.first()?;
        let quantiles = (1..design.count as usize).map(|quantile| quantile * sample.len() / design.count as usize);
        // If most values equal the least one, all quantiles may equal it too. The first greater value is then the only
        // boundary.
        let second = (design.count > 1).then(|| sample.partition_point(|datum| datum == least));
        for index in quantiles.chain(second) {
            let Some(quantile) = sample.get(index).filter(|_| boundaries.is_empty() || Some(index) != second) else {
                continue;
            };
            let below = sample.partition_point(|datum| datum < quantile);
            let Some(before) = below.checked_sub(1).map(|index| &sample[index]) else { continue };
            let boundary = match (before, quantile) {
                (Datum::Bytes(before), Datum::Bytes(quantile)) => Datum::Bytes(separator(before, quantile)),
                // -0.0 and 0.0 are equal, so a boundary at 0.0 moves to -0.0.
                (_, Datum::Number(0)) if is_floating(logical) => Datum::Number(-1),
                _ => quantile.clone(),
            };
            if boundary > *boundaries.last().unwrap_or(least) {
                boundaries.push(boundary);
            }
        }
        Some(Self { design, boundaries })
    }

    /// The same partitions by the column with the index `column`, after the column has moved in its table.
    #[must_use]
    pub fn with_column(&self, column: ColumnIndex) -> Self {
        Self { design: PartitionDesign { column, ..self.design }, boundaries: self.boundaries.clone() }
    }

    /// Design of these partitions.
    pub fn design(&self) -> PartitionDesign {
        self.design
    }

    /// Whether there are as many partitions as the design asks for.
    pub fn is_complete(&self) -> bool {
        self.value_partitions() == self.design.count
    }

    /// Whether values are divided into at least two partitions.
    pub fn is_divided(&self) -> bool {
        self.value_partitions() > 1
    }

    /// Number of partitions that contain values, not nulls. Their ordinals begin at 0.
    pub fn value_partitions(&self) -> u32 {
        match self.design.method {
            PartitionMethod::Hash => self.design.count,
            PartitionMethod::Range => self.boundaries.len() as u32 + 1,
        }
    }

    /// Ordinal of the partition of nulls.
    pub fn null_partition(&self) -> u32 {
        self.design.count
    }

    /// Bounds of a range partition: inclusive lower, exclusive upper. `None` means unbounded. Hash partitions and the
    /// partition of nulls are unbounded.
    pub fn bounds(&self, partition: u32) -> (Option<&Datum>, Option<&Datum>) {
        let index = partition as usize;
        if self.design.method == PartitionMethod::Hash || partition >= self.value_partitions() {
            return (None, None);
        }
        (index.checked_sub(1).and_then(|index| self.boundaries.get(index)), self.boundaries.get(index))
    }

    /// Checks the partitions against the type of their column.
    ///
    /// # Errors
    /// If the count of partitions or of boundaries is out of bounds, or the boundaries are not ascending datums of the
    /// type. The error is a phrase for what was expected.
    pub fn check(&self, logical: LogicalType) -> Result<(), String> {
        let PartitionDesign { method, count, .. } = self.design;
        if !(1..=PARTITIONS_MAX).contains(&count) {
            return Err(format!("1 to {PARTITIONS_MAX} partitions"));
        }
        let boundaries_max = if method == PartitionMethod::Hash { 0 } else { count as usize - 1 };
        let fit = |datum: &Datum| datum.bytes().is_some() == logical.is_bytes();
        let ascend = self.boundaries.windows(2).all(|pair| pair[0] < pair[1]);
        if self.boundaries.len() > boundaries_max || !ascend || !self.boundaries.iter().all(fit) {
            return Err(format!("at most {boundaries_max} ascending boundaries of partitions"));
        }
        Ok(())
    }

    /// Partition of each row. `array` has the values of the partition column.
    ///
    /// # Panics
    /// If the array does not have the Arrow type of `logical`.
    pub fn partitions_of_rows(&self, array: &ArrayRef, logical: LogicalType) -> Vec<u32> {
        let null_partition = self.null_partition();
        let partition_of_bytes =
            |bytes: Option<&[u8]>| bytes.map_or(null_partition, |bytes| self.partition_of_bytes(bytes));
        match logical {
            LogicalType::Varchar => {
                array.as_string_view().iter().map(|text| partition_of_bytes(text.map(str::as_bytes))).collect()
            }
            LogicalType::Bytea => array.as_binary_view().iter().map(partition_of_bytes).collect(),
            _ => numbers(array, logical)
                .map(|number| number.map_or(null_partition, |number| self.partition_of_number(number, logical)))
                .collect(),
        }
    }

    /// Partition of a datum. `None` is null.
    pub fn partition_of(&self, datum: Option<&Datum>, logical: LogicalType) -> u32 {
        match datum {
            None => self.null_partition(),
            Some(Datum::Number(number)) => self.partition_of_number(*number, logical),
            Some(Datum::Bytes(bytes)) => self.partition_of_bytes(bytes),
        }
    }

    fn partition_of_number(&self, number: i128, logical: LogicalType) -> u32 {
        match self.design.method {
            PartitionMethod::Hash => self.hash_partition(&canonical_number(number, logical).to_le_bytes()),
            PartitionMethod::Range => {
                self.boundaries.partition_point(|boundary| boundary.number().is_some_and(|least| least <= number))
                    as u32
            }
        }
    }

    fn partition_of_bytes(&self, bytes: &[u8]) -> u32 {
        match self.design.method {
            PartitionMethod::Hash => self.hash_partition(bytes),
            PartitionMethod::Range => {
                self.boundaries.partition_point(|boundary| boundary.bytes().is_some_and(|least| least <= bytes)) as u32
            }
        }
    }

    fn hash_partition(&self, bytes: &[u8]) -> u32 {
        (XxHash3_64::oneshot(bytes) % u64::from(self.design.count)) as u32
    }

    /// Returns for each partition whether it may contain a row that passes all predicates. The partition of nulls is
    /// last. Predicates on other columns are ignored.
    pub fn admitted(&self, predicates: &[ColumnPredicate], logical: LogicalType) -> Vec<bool> {
        let mut admitted = vec![true; self.null_partition() as usize + 1];
        for predicate in predicates.iter().filter(|predicate| predicate.column == self.design.column) {
            let values = self.admitted_values(predicate, logical);
            for (ordinal, admits) in admitted.iter_mut().enumerate() {
                *admits &= match ordinal == self.null_partition() as usize {
                    true => predicate.admits(None),
                    false => values.as_ref().is_none_or(|values| values[ordinal]),
                };
            }
        }
        admitted
    }

    /// Returns for each partition, except the partition of nulls, whether it may contain a value that passes a
    /// predicate. `None` means that every partition may.
    fn admitted_values(&self, predicate: &ColumnPredicate, logical: LogicalType) -> Option<Vec<bool>> {
        /// Maximum count of numbers in a range predicate that are hashed one by one.
        const ENUMERATED_MAX: i128 = 2 * PARTITIONS_MAX as i128;
        if predicate.negated {
            return None;
        }
        let mut admitted = vec![false; self.design.count as usize];
        let is_range = self.design.method == PartitionMethod::Range;
        match &predicate.condition {
            DatumPredicate::Null => {}
            DatumPredicate::OneOf(list) => list.iter().for_each(|number| {
                admitted[self.partition_of_number(*number, logical) as usize] = true;
            }),
            DatumPredicate::BytesOneOf(list) => list.iter().for_each(|bytes| {
                admitted[self.partition_of_bytes(bytes) as usize] = true;
            }),
            DatumPredicate::Range { low, high } if low > high => {}
            DatumPredicate::Range { low, high } if is_range => {
                self.set_all(
                    &mut admitted,
                    self.partition_of_number(*low, logical)..=self.partition_of_number(*high, logical),
                );
            }
            DatumPredicate::Range { low, high } => {
                if high.checked_sub(*low).is_none_or(|length| length >= ENUMERATED_MAX) {
                    return None;
                }
                (*low..=*high).for_each(|number| admitted[self.partition_of_number(number, logical) as usize] = true);
            }
            DatumPredicate::BytesRange { low, high } if is_range => {
                let first = match low {
                    Bound::Included(low) | Bound::Excluded(low) => self.partition_of_bytes(low),
                    Bound::Unbounded => 0,
                };
                let last = match high {
                    Bound::Included(high) => self.partition_of_bytes(high),
                    Bound::Excluded(high) => self
                        .boundaries
                        .partition_point(|boundary| boundary.bytes().is_some_and(|least| least < &**high))
                        as u32,
                    Bound::Unbounded => self.value_partitions() - 1,
                };
                self.set_all(&mut admitted, first..=last);
            }
            DatumPredicate::BytesRange { low: Bound::Included(low), high: Bound::Included(high) } if low == high => {
                admitted[self.partition_of_bytes(low) as usize] = true;
            }
            DatumPredicate::BytesRange { .. } => return None,
        }
        Some(admitted)
    }

    fn set_all(&self, admitted: &mut [bool], partitions: RangeInclusive<u32>) {
        partitions.for_each(|partition| admitted[partition as usize] = true);
    }

    /// Whether sorting rows by `sort_by` also orders them by partition, in the order of
    /// [`Partitioning::load_position`].
    pub fn follows_sort_order(&self, sort_by: &[SortColumn]) -> bool {
        let leading = sort_by.first().map(|sort| sort.column);
        self.design.method == PartitionMethod::Range && leading == Some(self.design.column)
    }

    /// Position of a partition in the order in which a load writes partitions. This is the sort order if
    /// [`Partitioning::follows_sort_order`], else the order of ordinals.
    pub fn load_position(&self, partition: u32, sort_by: &[SortColumn]) -> u32 {
        match sort_by.first() {
            Some(sort) if self.follows_sort_order(sort_by) => match (partition == self.null_partition(), sort) {
                (true, SortColumn { nulls_first: true, .. }) => 0,
                (true, _) => self.null_partition() + 1,
                (false, SortColumn { descending: true, .. }) => self.null_partition() - partition,
                (false, _) => partition + 1,
            },
            _ => partition,
        }
    }
}

fn is_floating(logical: LogicalType) -> bool {
    matches!(logical, LogicalType::Real | LogicalType::Double)
}

/// Maps equal numbers to one number: both zeros to 0.0, and all NaNs to one NaN.
fn canonical_number(number: i128, logical: LogicalType) -> i128 {
    let (infinity, nan) = match logical {
        LogicalType::Real => (f32_to_ordered(f32::INFINITY).into(), f32_to_ordered(f32::from_bits(0x7fc0_0000)).into()),
        LogicalType::Double => {
            (f64_to_ordered(f64::INFINITY).into(), f64_to_ordered(f64::from_bits(0x7ff8_0000_0000_0000)).into())
        }
        _ => return number,
    };
    match number {
        // In total order, -0.0 is -1 and 0.0 is 0. Negative numbers mirror positive ones, so negative infinity is `-1 -
        // infinity`.
        -1 => 0,
        number if number > infinity || number < -1 - infinity => nan,
        number => number,
    }
}

/// Shortest prefix of `upper` that is greater than `lower`, cut to [`BOUNDARY_BYTES_MAX`] bytes. `lower` must be less
/// than `upper`.
fn separator(lower: &[u8], upper: &[u8]) -> Box<[u8]> {
    let shared = lower.iter().zip(upper).take_while(|(left, right)| left == right).count();
    upper[..upper.len().min(shared + 1).min(BOUNDARY_BYTES_MAX)].into()
}

/// Numbers of the datums in an array. Yields nothing for text and bytes.
fn numbers<'a>(array: &'a ArrayRef, logical: LogicalType) -> Box<dyn Iterator<Item = Option<i128>> + 'a> {
    macro_rules! primitive {
        ($type:ty, $key:expr) => {
            Box::new(array.as_primitive::<$type>().iter().map(|value| value.map($key)))
        };
    }
    match logical {
        LogicalType::Boolean => Box::new(array.as_boolean().iter().map(|value| value.map(i128::from))),
        LogicalType::SmallInt => primitive!(Int16Type, i128::from),
        LogicalType::Integer => primitive!(Int32Type, i128::from),
        LogicalType::BigInt => primitive!(Int64Type, i128::from),
        LogicalType::Real => primitive!(Float32Type, |value| i128::from(f32_to_ordered(value))),
        LogicalType::Double => primitive!(Float64Type, |value| i128::from(f64_to_ordered(value))),
        LogicalType::Decimal { .. } => primitive!(Decimal128Type, i128::from),
        LogicalType::Date => primitive!(Date32Type, i128::from),
        LogicalType::Timestamp | LogicalType::TimestampTz => primitive!(TimestampMicrosecondType, i128::from),
        // Datums of these types are bytes.
        LogicalType::Varchar | LogicalType::Bytea => Box::new(std::iter::empty()),
    }
}

#[cfg(test)]
mod tests;
