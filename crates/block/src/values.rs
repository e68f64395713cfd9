//! Values of one column of a segment as datums, and the bounds and counts that a block stores for them.

use std::cmp::Ordering;
use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef, BinaryViewArray};
use arrow_buffer::NullBuffer;
use taut_index::{Zone, lower_prefix, upper_prefix};
use taut_types::{Column, Datum, DistinctSketch, LogicalType, f32_to_ordered, f64_to_ordered};

use crate::BuildError;

/// Maximum length of a minimum or maximum of text or bytes that the statistics of a block store whole.
const EXACT_BYTES_MAX: usize = 1024;

/// Values of one column of a segment.
pub(crate) struct ColumnValues {
    pub logical: LogicalType,
    pub array: ArrayRef,
    pub datums: Datums,
}

/// Datums of a column. The numbers of null rows have no meaning.
pub(crate) enum Datums {
    /// Values of types of at most 64 bits.
    Narrow(Vec<i64>),
    /// Decimals of more than 18 digits.
    Wide(Vec<i128>),
    /// Text and bytes.
    Bytes(BinaryViewArray),
}

/// Bounds of a column over a whole block, as its statistics store them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ColumnBounds {
    pub min: Option<Datum>,
    pub max: Option<Datum>,
    pub is_inexact: bool,
}

impl ColumnValues {
    /// Converts an array in the Arrow type of `column`.
    pub fn for_column(array: ArrayRef, column: &Column) -> Result<Self, BuildError> {
        Self::new(array, column.logical_type).map_err(|value| BuildError::Range {
            column: column.name.clone(),
            logical_type: column.logical_type.sql_name(),
            value,
        })
    }

    /// Converts an array in the Arrow type of `logical`. The error is the first decimal with too many digits.
    pub fn new(array: ArrayRef, logical: LogicalType) -> Result<Self, i128> {
        let narrow = |numbers| Datums::Narrow(numbers);
        let datums = match logical {
            LogicalType::Boolean => narrow(array.as_boolean().values().iter().map(i64::from).collect()),
            LogicalType::SmallInt => narrow(map_values::<Int16Type, _>(&array, i64::from)),
            LogicalType::Integer => narrow(map_values::<Int32Type, _>(&array, i64::from)),
            LogicalType::Date => narrow(map_values::<Date32Type, _>(&array, i64::from)),
            LogicalType::Real => narrow(map_values::<Float32Type, _>(&array, |value| i64::from(f32_to_ordered(value)))),
            LogicalType::Double => narrow(map_values::<Float64Type, _>(&array, f64_to_ordered)),
            LogicalType::BigInt => narrow(map_values::<Int64Type, _>(&array, |value| value)),
            LogicalType::Timestamp | LogicalType::TimestampTz => {
                narrow(map_values::<TimestampMicrosecondType, _>(&array, |value| value))
            }
            LogicalType::Decimal { precision, .. } => {
                check_digits(&array, precision)?;
                if precision <= 18 {
                    // The check of digits ensures that values fit 64 bits, except values of null rows.
                    narrow(map_values::<Decimal128Type, _>(&array, |value| value as i64))
                } else {
                    Datums::Wide(array.as_primitive::<Decimal128Type>().values().to_vec())
                }
            }
            LogicalType::Varchar => Datums::Bytes(array.as_string_view().clone().to_binary_view()),
            LogicalType::Bytea => Datums::Bytes(array.as_binary_view().clone()),
        };
        Ok(Self { logical, array, datums })
    }

    pub fn rows(&self) -> usize {
        self.array.len()
    }

    /// Null rows of the column. Returns `None` if there are none.
    pub fn nulls(&self) -> Option<&NullBuffer> {
        self.array.nulls().filter(|nulls| nulls.null_count() > 0)
    }

    pub fn is_null(&self, row: usize) -> bool {
        self.nulls().is_some_and(|nulls| nulls.is_null(row))
    }

    /// Bytes of the unencoded values. For text and bytes, this is the sum of the lengths. For other types, it is the
    /// width of the type times the number of rows.
    pub fn plain_bytes(&self) -> u64 {
        match (&self.datums, self.logical.plain_bytes()) {
            (Datums::Bytes(views), _) => {
                let length = |row| if views.is_null(row) { 0 } else { u64::from(views.views()[row] as u32) };
                (0..views.len()).map(length).sum()
            }
            (_, width) => (width.unwrap_or(0) * self.rows()) as u64,
        }
    }

    /// Least and greatest number of some rows. Returns `None` if all are null, or if the column is text or bytes.
    pub fn number_bounds(&self, rows: Range<usize>) -> Option<(i128, i128)> {
        let nulls = self.nulls();
        match &self.datums {
            Datums::Narrow(numbers) => slice_bounds(numbers, rows, nulls).map(|(min, max)| (min.into(), max.into())),
            Datums::Wide(numbers) => slice_bounds(numbers, rows, nulls),
            Datums::Bytes(_) => None,
        }
    }

    /// Returns the zones that end at the rows `ends`, exclusive. Extends `column_bounds` to the values of all zones.
    pub fn zones(&self, ends: &[u32], column_bounds: &mut ColumnBounds) -> Vec<Zone> {
        let mut start = 0;
        let mut zones = Vec::with_capacity(ends.len());
        for end in ends {
            let rows = start as usize..*end as usize;
            let nulls = self.nulls().map_or(0, |nulls| nulls.slice(rows.start, rows.len()).null_count() as u32);
            let bounds = match &self.datums {
                Datums::Bytes(views) => bytes_bounds(views, rows).map(|(min, max)| {
                    column_bounds.extend_bytes(min, max);
                    (Datum::Bytes(lower_prefix(min).into()), upper_prefix(max).map(Datum::Bytes))
                }),
                _ => self.number_bounds(rows).map(|(min, max)| {
                    column_bounds.extend_numbers(min, max);
                    (Datum::Number(min), Some(Datum::Number(max)))
                }),
            };
            let is_ascending = nulls == 0 && self.is_ascending(start as usize..*end as usize);
            zones.push(Zone { rows_end: *end, nulls, bounds, is_ascending });
            start = *end;
        }
        zones
    }

    /// Whether the values of some rows ascend and are not all equal. None of the rows may be null.
    fn is_ascending(&self, rows: Range<usize>) -> bool {
        fn ascends<T: Ord>(numbers: &[T]) -> bool {
            numbers.first() < numbers.last() && numbers.is_sorted()
        }
        match &self.datums {
            Datums::Narrow(numbers) => ascends(&numbers[rows]),
            Datums::Wide(numbers) => ascends(&numbers[rows]),
            Datums::Bytes(views) => {
                let last = rows.end - 1;
                compare_rows(views, rows.start, last).is_lt()
                    && (rows.start..last).all(|row| compare_rows(views, row, row + 1).is_le())
            }
        }
    }

    /// Inserts every value into a sketch. May skip a value that equals the previous one.
    pub fn sketch(&self, sketch: &mut DistinctSketch) {
        match &self.datums {
            Datums::Narrow(numbers) => {
                let mut last = None;
                for (row, number) in numbers.iter().enumerate() {
                    if last != Some(*number) && !self.is_null(row) {
                        sketch.insert_number(*number as u64);
                        last = Some(*number);
                    }
                }
            }
            Datums::Wide(numbers) => {
                for (row, number) in numbers.iter().enumerate() {
                    if !self.is_null(row) {
                        insert_wide(sketch, *number as u128);
                    }
                }
            }
            Datums::Bytes(views) => sketch_bytes(views, sketch),
        }
    }
}

impl ColumnBounds {
    fn extend_numbers(&mut self, min: i128, max: i128) {
        self.extend(Datum::Number(min), Datum::Number(max));
    }

    fn extend_bytes(&mut self, min: &[u8], max: &[u8]) {
        if self.min.as_ref().is_none_or(|current| Some(min) < current.bytes()) {
            self.min = Some(Datum::Bytes(min.into()));
        }
        if self.max.as_ref().is_none_or(|current| Some(max) > current.bytes()) {
            self.max = Some(Datum::Bytes(max.into()));
        }
    }

    fn extend(&mut self, min: Datum, max: Datum) {
        self.min = Some(self.min.take().map_or(min.clone(), |current| current.min(min)));
        self.max = Some(self.max.take().map_or(max.clone(), |current| current.max(max)));
    }

    /// Shortens bounds that are too long for statistics. The bounds are then inexact.
    pub fn shorten(mut self) -> Self {
        if let Some(Datum::Bytes(min)) = &self.min
            && min.len() > EXACT_BYTES_MAX
        {
            self.min = Some(Datum::Bytes(lower_prefix(min).into()));
            self.is_inexact = true;
        }
        if let Some(Datum::Bytes(max)) = &self.max
            && max.len() > EXACT_BYTES_MAX
        {
            self.max = upper_prefix(max).map(Datum::Bytes);
            self.is_inexact = true;
        }
        self
    }
}

fn map_values<T: ArrowPrimitiveType, K>(array: &ArrayRef, key: impl Fn(T::Native) -> K) -> Vec<K> {
    array.as_primitive::<T>().values().iter().map(|value| key(*value)).collect()
}

/// Checks that all decimals have at most `precision` digits. The error is the first decimal with more.
fn check_digits(array: &ArrayRef, precision: u8) -> Result<(), i128> {
    let limit = 10_i128.pow(u32::from(precision.min(38)));
    let numbers = array.as_primitive::<Decimal128Type>();
    let fits = |value: &i128| -limit < *value && *value < limit;
    if numbers.values().iter().all(fits) {
        return Ok(());
    }
    // The numbers of null rows are arbitrary.
    numbers.iter().flatten().find(|value| !fits(value)).map_or(Ok(()), Err)
}

fn slice_bounds<T: Copy + Ord>(numbers: &[T], rows: Range<usize>, nulls: Option<&NullBuffer>) -> Option<(T, T)> {
    let Some(nulls) = nulls else {
        let numbers = &numbers[rows];
        let first = *numbers.first()?;
        return Some(numbers.iter().fold((first, first), |(min, max), value| (min.min(*value), max.max(*value))));
    };
    let mut bounds: Option<(T, T)> = None;
    for row in rows.filter(|row| nulls.is_valid(*row)) {
        let value = numbers[row];
        bounds = Some(bounds.map_or((value, value), |(min, max)| (min.min(value), max.max(value))));
    }
    bounds
}

/// The first four bytes of a value, from its view, as a number. The numbers have the order of the bytes.
fn view_prefix(view: u128) -> u32 {
    ((view >> 32) as u32).swap_bytes()
}

fn compare_rows(views: &BinaryViewArray, left: usize, right: usize) -> Ordering {
    let (left_view, right_view) = (views.views()[left], views.views()[right]);
    let by_prefix = view_prefix(left_view).cmp(&view_prefix(right_view));
    // Equal values of at most 12 bytes have equal views.
    if by_prefix.is_ne() || (left_view == right_view && left_view as u32 <= 12) {
        return by_prefix;
    }
    views.value(left).cmp(views.value(right))
}

fn bytes_bounds(views: &BinaryViewArray, rows: Range<usize>) -> Option<(&[u8], &[u8])> {
    let mut non_null_rows = rows.filter(|row| !views.is_null(*row));
    let first = non_null_rows.next()?;
    let (mut min, mut max) = (first, first);
    for row in non_null_rows {
        match compare_rows(views, row, min) {
            Ordering::Less => min = row,
            Ordering::Equal => {}
            Ordering::Greater => {
                if compare_rows(views, row, max).is_gt() {
                    max = row;
                }
            }
        }
    }
    Some((views.value(min), views.value(max)))
}

fn insert_wide(sketch: &mut DistinctSketch, number: u128) {
    let (low, high) = (number as u64, (number >> 64) as u64);
    sketch.insert_number(low ^ high.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32));
}

fn sketch_bytes(views: &BinaryViewArray, sketch: &mut DistinctSketch) {
    let mut last = None;
    for (row, view) in views.views().iter().enumerate() {
        if last == Some(*view) || views.is_null(row) {
            continue;
        }
        last = Some(*view);
        // Equal values of at most 12 bytes have equal views, so the view is inserted. Longer values are hashed.
        match *view as u32 {
            ..=12 => insert_wide(sketch, *view),
            _ => sketch.insert(twox_hash::XxHash3_64::oneshot(views.value(row))),
        }
    }
}
