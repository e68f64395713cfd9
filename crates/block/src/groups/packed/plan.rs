//! Chooses the kind and width of the field of each column, from the data of the segment or as the design of the table
//! ([`TableDesign`](taut_types::TableDesign)) demands.

use arrow_array::{Array, ArrayRef, BinaryViewArray, UInt32Array};
use arrow_select::take::take;
use fsst::Compressor;
use taut_encoding::{Choice, encode};
use taut_types::{Encoding, LogicalType};

use super::bits::width_of;
use super::dictionary::{Distinct, Limits, distinct};
use super::field::{FieldKind, NULLABLE, OVERFLOW, PLAIN, Record};
use super::symbols;
use crate::groups::pages::INLINE_BYTES_MAX;
use crate::values::{ColumnValues, Datums};
use crate::{BuildError, PAGE_BYTES};

/// Maximum bytes of the dictionaries of one piece (one column group of one segment), without compression. Keeps the
/// head of the piece about as short as a page.
pub(crate) const DICTIONARY_BYTES_MAX: usize = 32 << 10;
const DICTIONARY_ENTRIES_MAX: usize = 4096;
/// Minimum width in bits of numbers for which a dictionary is considered.
const DICTIONARY_WIDTH_MIN: u32 = 6;
/// Approximate number of values in the sample on which a symbol table is trained and judged.
const SAMPLE_VALUES: usize = 512;
const SAMPLE_BYTES: usize = 32 << 10;

/// Plan for storing one column of a piece.
pub(crate) struct FieldPlan {
    pub record: Record,
    /// Table of the field in the head.
    pub table: Vec<u8>,
    pub source: Source,
    /// Distinct values of a number field whose dictionary would save too little.
    distinct_without_dictionary: Option<Distinct>,
}

/// Source of the values of a field.
pub(crate) enum Source {
    /// Numbers of the column minus the base.
    Numbers,
    /// Codes of the column's dictionary.
    Codes(Distinct),
    /// Codes of dictionaries of pages. `set` is the ordinal of a set of columns, and `member` the ordinal of this
    /// column in the set (see `sharing`).
    PageCodes { set: usize, member: usize },
    /// Bytes of the values, compressed if there is a compressor.
    Inline(Option<Box<Compressor>>),
    /// No values, because every row is null.
    Nulls,
}

impl FieldPlan {
    /// A plan without a table. Its flags follow from the data.
    pub fn new(values: &ColumnValues, kind: FieldKind, width: u32, source: Source) -> Self {
        let flags = if values.nulls().is_some() { NULLABLE } else { 0 };
        let record =
            Record { kind, width, flags, bit: 0, base: 0, entries: 0, table_at: 0, table_length: 0, stored_bytes: 0 };
        Self { record, table: vec![], source, distinct_without_dictionary: None }
    }

    /// Distinct values of the column. Returns `None` if they were not collected, or if there are too many.
    pub fn distinct(&self) -> Option<&Distinct> {
        match &self.source {
            Source::Codes(distinct) => Some(distinct),
            _ => self.distinct_without_dictionary.as_ref(),
        }
    }

    fn number(values: &ColumnValues, base: i128, width: u32) -> Self {
        let mut plan = Self::new(values, FieldKind::Number, width, Source::Numbers);
        plan.record.base = base;
        plan
    }

    fn nulls(values: &ColumnValues) -> Self {
        let mut plan = Self::new(values, FieldKind::Nulls, 0, Source::Nulls);
        plan.record.flags = 0;
        plan
    }

    fn inline(values: &ColumnValues, views: &BinaryViewArray, compressor: Option<Box<Compressor>>) -> Self {
        let kind = if compressor.is_some() { FieldKind::InlineFsst } else { FieldKind::Inline };
        let table = compressor.as_deref().map(symbols::encode_table).unwrap_or_default();
        // The width is set when the page size is known.
        let mut plan = Self::new(values, kind, 0, Source::Inline(compressor));
        plan.table = table;
        let is_long = |row| !views.is_null(row) && views.views()[row] as u32 as usize > INLINE_BYTES_MAX;
        if (0..views.len()).any(is_long) {
            plan.record.flags |= OVERFLOW;
        }
        plan
    }

    fn dictionary(values: &ColumnValues, distinct: Distinct, name: &str) -> Result<Self, BuildError> {
        let entries: ArrayRef = take(&values.array, &UInt32Array::from(distinct.rows.clone()), None)
            .map_err(|_| unsupported_encoding(name, Encoding::Dictionary, "its distinct values cannot be copied"))?;
        let table = encode(&entries, values.logical, Choice::Plain)
            .map_err(|source| BuildError::Encode { column: name.to_owned(), source })?;
        let width = width_of(entries.len() as u128 - 1);
        let mut plan = Self::new(values, FieldKind::Dictionary, width, Source::Codes(distinct));
        plan.record.entries = entries.len() as u32;
        plan.table = table;
        Ok(plan)
    }
}

fn unsupported_encoding(name: &str, encoding: Encoding, reason: &'static str) -> BuildError {
    BuildError::Field { column: name.to_owned(), encoding: encoding.name(), reason }
}

/// Plans the field of one column. `budget` is the number of bytes left for dictionaries.
pub(crate) fn plan_field(
    values: &ColumnValues,
    choice: Choice,
    name: &str,
    budget: &mut usize,
) -> Result<FieldPlan, BuildError> {
    if values.nulls().is_some_and(|nulls| nulls.null_count() == values.rows()) {
        return Ok(FieldPlan::nulls(values));
    }
    if choice == Choice::Forced(Encoding::Dictionary) {
        let limits = Limits { entries: usize::MAX, bytes: usize::MAX, sample: false };
        return match distinct(values, limits) {
            Some(distinct) => FieldPlan::dictionary(values, distinct, name),
            None => Err(unsupported_encoding(name, Encoding::Dictionary, "it has too many distinct values")),
        };
    }
    match &values.datums {
        Datums::Bytes(views) => plan_bytes(values, views, choice, name, budget),
        _ => plan_numbers(values, choice, name, budget),
    }
}

/// Estimated bytes of a column that is stored as a field. Text is estimated from a sample. The estimate ignores
/// dictionaries of pages, because they are chosen later, for the columns that do not become levels.
pub(crate) fn field_bytes(values: &ColumnValues, choice: Choice, name: &str) -> Result<usize, BuildError> {
    let mut budget = DICTIONARY_BYTES_MAX;
    let plan = plan_field(values, choice, name, &mut budget)?;
    let (inline_bits, heap_bytes) = match (&plan.source, &values.datums) {
        (Source::Inline(compressor), Datums::Bytes(views)) => {
            let (before, after) = compressor.as_deref().map_or((1, 1), |compressor| sample_bytes(compressor, views));
            let stored = |plain: usize| plain.saturating_mul(after) / before.max(1);
            // Each row takes a length and about one bit of an anchor, or an end in the page.
            let longest = sample(views).iter().map(|value| value.len()).max().unwrap_or(0);
            let bits = (width_of(stored(longest) as u128) + 1).min(PAGE_BYTES.trailing_zeros());
            (bits as usize, stored(values.plain_bytes() as usize))
        }
        _ => (0, 0),
    };
    Ok((values.rows() * (plan.record.bits() + inline_bits)).div_ceil(8) + plan.table.len() + heap_bytes)
}

fn plan_numbers(
    values: &ColumnValues,
    choice: Choice,
    name: &str,
    budget: &mut usize,
) -> Result<FieldPlan, BuildError> {
    let (min, max) = values.number_bounds(0..values.rows()).unwrap_or((0, 0));
    // The difference of two 128-bit numbers, as an unsigned number.
    let width = width_of(max.wrapping_sub(min) as u128);
    match choice {
        Choice::Plain | Choice::Forced(Encoding::Plain) => {
            let width = 8 * values.logical.plain_bytes().unwrap_or(16) as u32;
            let base = if values.logical == LogicalType::Boolean { 0 } else { i128::MIN >> (128 - width) };
            let mut plan = FieldPlan::number(values, base, width);
            plan.record.flags |= PLAIN;
            Ok(plan)
        }
        Choice::Forced(Encoding::BitPacked) if min < 0 => {
            Err(unsupported_encoding(name, Encoding::BitPacked, "it has negative numbers"))
        }
        Choice::Forced(Encoding::BitPacked) => Ok(FieldPlan::number(values, 0, width_of(max as u128))),
        Choice::Auto | Choice::Ordered if width >= DICTIONARY_WIDTH_MIN => {
            let limits = Limits { entries: DICTIONARY_ENTRIES_MAX, bytes: *budget, sample: true };
            let Some(distinct) = distinct(values, limits) else { return Ok(FieldPlan::number(values, min, width)) };
            let mut plan = FieldPlan::dictionary(values, distinct, name)?;
            let table_bits = 8 * plan.table.len();
            let saved = (width.saturating_sub(plan.record.width)) as usize * values.rows();
            // Reading a code takes one more step than reading a distance. So codes must save the bits of the table and
            // a quarter of the bits of the numbers.
            if saved < table_bits + (width as usize * values.rows()) / 4 {
                let mut number = FieldPlan::number(values, min, width);
                if let Source::Codes(distinct) = std::mem::replace(&mut plan.source, Source::Nulls) {
                    number.distinct_without_dictionary = Some(distinct);
                }
                return Ok(number);
            }
            *budget = budget.saturating_sub(plan.table.len());
            Ok(plan)
        }
        Choice::Auto | Choice::Ordered | Choice::Forced(Encoding::FrameOfReference) => {
            Ok(FieldPlan::number(values, min, width))
        }
        Choice::Forced(encoding) => Err(unsupported_encoding(name, encoding, "packed rows do not have this encoding")),
    }
}

fn plan_bytes(
    values: &ColumnValues,
    views: &BinaryViewArray,
    choice: Choice,
    name: &str,
    budget: &mut usize,
) -> Result<FieldPlan, BuildError> {
    match choice {
        Choice::Plain | Choice::Forced(Encoding::Plain) => Ok(FieldPlan::inline(values, views, None)),
        Choice::Forced(Encoding::Fsst) => Ok(FieldPlan::inline(values, views, Some(train_compressor(views).0))),
        Choice::Auto | Choice::Ordered => {
            let limits = Limits { entries: DICTIONARY_ENTRIES_MAX, bytes: *budget, sample: true };
            if let Some(distinct) = distinct(values, limits) {
                let entries: usize = distinct.rows.iter().map(|row| views.value(*row as usize).len() + 4).sum();
                let codes = width_of(distinct.rows.len() as u128) as usize * views.len() / 8;
                let stored = (entries + codes) as u64;
                if stored < values.plain_bytes() + 2 * views.len() as u64 {
                    let plan = FieldPlan::dictionary(values, distinct, name)?;
                    *budget = budget.saturating_sub(plan.table.len());
                    return Ok(plan);
                }
            }
            let (compressor, before, after) = train_compressor(views);
            // Reads must decompress the values, so compression must save a quarter of the bytes.
            let is_worthwhile = after + before / 4 <= before && before >= 1024;
            Ok(FieldPlan::inline(values, views, is_worthwhile.then_some(compressor)))
        }
        Choice::Forced(encoding) => Err(unsupported_encoding(name, encoding, "packed rows do not have this encoding")),
    }
}

/// A compressor trained on a sample of the values, and the bytes of the sample before and after compression.
fn train_compressor(views: &BinaryViewArray) -> (Box<Compressor>, usize, usize) {
    let compressor = Box::new(Compressor::train(&sample(views)));
    let (before, after) = sample_bytes(&compressor, views);
    (compressor, before, after)
}

/// Bytes of a sample of the values before and after compression.
fn sample_bytes(compressor: &Compressor, views: &BinaryViewArray) -> (usize, usize) {
    let sample = sample(views);
    let before = sample.iter().map(|value| value.len()).sum();
    (before, sample.iter().map(|value| compressor.compress(value).len()).sum())
}

/// Evenly spread values that are neither null nor long.
fn sample(views: &BinaryViewArray) -> Vec<&[u8]> {
    let step = (views.len() / SAMPLE_VALUES).max(1);
    let mut bytes = 0;
    (0..views.len())
        .step_by(step)
        .filter(|row| !views.is_null(*row))
        .map(|row| views.value(row))
        .filter(|value| value.len() <= INLINE_BYTES_MAX)
        .take_while(|value| {
            bytes += value.len();
            bytes <= SAMPLE_BYTES
        })
        .collect()
}
