//! Builds the sections of a packed piece (one column group of one segment).

use std::ops::Range;

use taut_encoding::Choice;

use super::PAGE_HEAD_BYTES;
use super::arrangement::{Arrangement, Heap, PageGeometry, arrange, fill_pages};
use super::bits::{PADDING, write_bits, write_wide_bits};
use super::field::{FIELD_BYTES, LENGTHS, NULLABLE, OVERFLOW};
use super::plan::{DICTIONARY_BYTES_MAX, FieldPlan, Source, plan_field};
use super::sharing::{PageDictionaries, Sharing};
use crate::BuildError;
use crate::groups::pages::{Directory, HEAD_BYTES, Overflow};
use crate::values::{ColumnValues, Datums};

/// Builds a piece of packed rows. Returns its sections, and the end row (exclusive) of each page. `columns` are the
/// values, encoding choice and name of each column.
pub(crate) fn build(
    columns: &[(&ColumnValues, Choice, &str)],
    rows: usize,
) -> Result<(Vec<Vec<u8>>, Vec<u32>), BuildError> {
    let mut budget = DICTIONARY_BYTES_MAX;
    let mut plans = columns
        .iter()
        .map(|(values, choice, name)| plan_field(values, *choice, name, &mut budget))
        .collect::<Result<Vec<_>, _>>()?;
    let mut overflow = Overflow::default();
    let mut heaps: Vec<Option<Heap>> = vec![];
    for (plan, (values, ..)) in plans.iter_mut().zip(columns) {
        let heap = match (&plan.source, &values.datums) {
            (Source::Inline(compressor), Datums::Bytes(views)) => {
                Some(Heap::build(views, compressor.as_deref(), plan.record.flags & NULLABLE != 0, &mut overflow)?)
            }
            _ => None,
        };
        plan.record.stored_bytes = heap.as_ref().map_or(0, |heap| heap.stored_bytes);
        heaps.push(heap);
    }
    let geometry = arrange(&mut plans, &heaps, rows);
    let mut arrangement = Arrangement { geometry, page_ends: fill_pages(geometry, &heaps, rows) };
    let sharing = Sharing::choose(columns, &mut plans, &heaps, &mut arrangement);
    let Arrangement { geometry, page_ends } = arrangement;
    // The head is the first section. It is written when the pages are known.
    let mut sections = vec![vec![]];
    let mut first = 0;
    for (number, end) in page_ends.iter().enumerate() {
        let rows = first..*end as usize;
        sections.push(build_page(columns, &plans, &heaps, rows, geometry, &sharing.page_dictionaries(number)));
        first = *end as usize;
    }
    let directory = Directory {
        page_bytes: geometry.page_bytes,
        page_ends: page_ends.clone(),
        overflows: overflow.sections.len(),
        tuple_bits: geometry.tuple_bits,
        fields: 0..0,
        tables_at: 0,
    };
    sections[0] = build_head(&directory, plans, rows)?;
    sections.append(&mut overflow.sections);
    Ok((sections, page_ends))
}

/// Builds one page. Its tuples are written field by field.
fn build_page(
    columns: &[(&ColumnValues, Choice, &str)],
    plans: &[FieldPlan],
    heaps: &[Option<Heap>],
    rows: Range<usize>,
    geometry: PageGeometry,
    dictionaries: &PageDictionaries<'_>,
) -> Vec<u8> {
    let tuple_bits = geometry.tuple_bits;
    let tuples_at = PAGE_HEAD_BYTES + dictionaries.bytes.len();
    let tuples_bytes = (rows.len() * tuple_bits).div_ceil(8);
    let heap_bytes: usize = heaps.iter().flatten().map(|heap| heap.ends[rows.end - 1] - heap.start(rows.start)).sum();
    let mut bytes = vec![0; tuples_at + tuples_bytes + PADDING];
    bytes.reserve(heap_bytes + geometry.bytes_for(rows.len()) - tuples_bytes);
    bytes[..4].copy_from_slice(&(rows.len() as u32).to_le_bytes());
    // Dictionaries are shorter than a page, so their length fits 32 bits.
    bytes[4..8].copy_from_slice(&(dictionaries.bytes.len() as u32).to_le_bytes());
    bytes[PAGE_HEAD_BYTES..tuples_at].copy_from_slice(&dictionaries.bytes);
    let tuples = &mut bytes[tuples_at..];
    let (ends, starts) = heap_ends(heaps, &rows);
    for (ordinal, plan) in plans.iter().enumerate() {
        let (values, ..) = columns[ordinal];
        let record = &plan.record;
        let value_bit = record.bit as usize + record.bits() - record.width as usize;
        // Values of null rows stay zero.
        let nulls = if record.flags & NULLABLE != 0 { values.nulls() } else { None };
        // Sets the null bits of this field. Calls `put_value` with the tuples, the bit of the field and the row for
        // each row that is not null.
        let mut fill = |put_value: &mut dyn FnMut(&mut [u8], usize, usize)| {
            for row in rows.clone() {
                let tuple = (row - rows.start) * tuple_bits;
                if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                    write_bits(tuples, tuple + record.bit as usize, 1);
                } else {
                    put_value(tuples, tuple + value_bit, row);
                }
            }
        };
        match (&plan.source, &values.datums) {
            (Source::Numbers, Datums::Narrow(numbers)) => {
                let base = record.base as i64;
                if nulls.is_none() {
                    write_field(tuples, &numbers[rows.clone()], value_bit, tuple_bits, |number| {
                        number.wrapping_sub(base) as u64
                    });
                } else {
                    fill(&mut |tuples, bit, row| write_bits(tuples, bit, numbers[row].wrapping_sub(base) as u64));
                }
            }
            (Source::Numbers, Datums::Wide(numbers)) => {
                fill(&mut |tuples, bit, row| {
                    write_wide_bits(tuples, bit, numbers[row].wrapping_sub(record.base) as u128)
                });
            }
            (Source::Codes(distinct), _) if nulls.is_none() => {
                write_field(tuples, &distinct.codes[rows.clone()], value_bit, tuple_bits, u64::from);
            }
            (Source::Codes(distinct), _) => {
                fill(&mut |tuples, bit, row| write_bits(tuples, bit, u64::from(distinct.codes[row])));
            }
            (Source::PageCodes { set, member }, _) => {
                let (page_codes, piece_codes) = dictionaries.codes(*set, *member);
                if nulls.is_none() {
                    write_field(tuples, &piece_codes[rows.clone()], value_bit, tuple_bits, |code| {
                        page_codes[code as usize].into()
                    });
                } else {
                    fill(&mut |tuples, bit, row| write_bits(tuples, bit, page_codes[piece_codes[row] as usize].into()));
                }
            }
            (Source::Inline(_), _) => {
                // Null rows store an end, because the next value begins there, or a length, which is zero.
                for row in rows.clone() {
                    let tuple = (row - rows.start) * tuple_bits;
                    if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                        write_bits(tuples, tuple + record.bit as usize, 1);
                    }
                    let number = match &heaps[ordinal] {
                        // The base is the least length, so the difference is not negative.
                        Some(heap) if record.flags & LENGTHS != 0 => heap.length(row) - record.base as usize,
                        _ => ends[ordinal].get(row - rows.start).copied().unwrap_or(0),
                    };
                    write_bits(tuples, tuple + value_bit, number as u64);
                }
                if record.flags & OVERFLOW != 0 {
                    let overflow_rows = heaps[ordinal].iter().flat_map(|heap| &heap.overflow_rows);
                    for row in overflow_rows.map(|row| *row as usize).filter(|row| rows.contains(row)) {
                        write_bits(tuples, (row - rows.start) * tuple_bits + value_bit - 1, 1);
                    }
                }
            }
            _ => {}
        }
    }
    bytes.truncate(tuples_at + tuples_bytes);
    if let Some(anchors) = geometry.anchors {
        anchors.write(&starts, &mut bytes);
    }
    let heaps: Vec<&Heap> = heaps.iter().flatten().collect();
    for row in rows {
        for heap in &heaps {
            bytes.extend_from_slice(&heap.bytes[heap.start(row)..heap.ends[row]]);
        }
    }
    bytes.resize(bytes.len() + PADDING, 0);
    bytes
}

/// Offsets in the heap of a page: the ends of the values of each inline field, and the start of the values of each
/// tuple.
fn heap_ends(heaps: &[Option<Heap>], rows: &Range<usize>) -> (Vec<Vec<usize>>, Vec<usize>) {
    let (mut ends, mut starts) = (vec![vec![]; heaps.len()], Vec::with_capacity(rows.len()));
    let mut end = 0;
    for row in rows.clone() {
        starts.push(end);
        for (heap, ends) in heaps.iter().zip(&mut ends) {
            if let Some(heap) = heap {
                end += heap.length(row);
                ends.push(end);
            }
        }
    }
    (ends, starts)
}

/// Writes a field of consecutive tuples: at `first_bit` and every `stride` bits after it.
#[inline(always)]
fn write_field<T: Copy>(tuples: &mut [u8], values: &[T], first_bit: usize, stride: usize, number: impl Fn(T) -> u64) {
    let mut bit = first_bit;
    for value in values {
        write_bits(tuples, bit, number(*value));
        bit += stride;
    }
}

/// Builds the head of a piece: its directory, then the dictionaries and symbol tables of its fields.
fn build_head(directory: &Directory, plans: Vec<FieldPlan>, rows: usize) -> Result<Vec<u8>, BuildError> {
    let tables_at = (HEAD_BYTES + plans.len() * FIELD_BYTES + 4 * directory.page_ends.len()).next_multiple_of(64);
    let (mut fields, mut tables) = (vec![], vec![]);
    for mut plan in plans {
        if !plan.table.is_empty() {
            let too_large = |_| BuildError::TooLarge { what: "bytes of dictionaries", found: tables.len() as u64 };
            plan.record.table_at = u32::try_from(tables_at + tables.len()).map_err(too_large)?;
            plan.record.table_length = u32::try_from(plan.table.len()).map_err(too_large)?;
            tables.append(&mut plan.table);
            tables.resize(tables.len().next_multiple_of(64), 0);
        }
        plan.record.write(&mut fields);
    }
    let mut head = directory.write(rows, &fields, FIELD_BYTES);
    head.append(&mut tables);
    Ok(head)
}
