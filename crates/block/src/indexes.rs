//! Index sections: one for each index and segment. A scan uses them to find rows, or to skip a segment, without
//! evaluating predicates on all rows.
//!
//! ```text
//! section of a CSB+-tree index
//! offset  size  field
//! 0       1     columns     1 or 2
//! 1       1     cut         number of low bits that are cut off the joined numbers
//! 2       62    zero
//! 64      32    first codec: how a value of the first column becomes a number
//! 96      32    second codec: the same for the second column; zero if there is one column
//! 128     ...   tree        as in `taut_index::csb_tree`
//!
//! codec
//! 0       1     kind        1 number, 2 code, 3 prefix
//! 1       1     width       bits of the numbers, 1 ..= 64
//! 2       1     shift       number of low bits that are cut off distances
//! 3       1     nulls       1 if 0 stands for null and all other numbers are greater by one
//! 4       1     shared      prefix: length of the prefix that all values share, at most 16
//! 5       11    zero
//! 16      16    base        number: the least value; prefix: the shared prefix, then zeros
//! ```
//!
//! Keys of the tree are numbers. A number becomes its distance from the least number of the segment. Text with a
//! dictionary becomes its code. Other text becomes the eight bytes that follow the shared prefix. The numbers of two
//! columns are joined, with the first column in the high bits. If bits are cut off, or text becomes a prefix, some of
//! the rows found may fail the predicate.
//!
//! The section of a Bloom filter index is a filter as in `taut_index::bloom`, over the values that are not null.

use std::ops::{Bound, Range};

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryViewArray};
use arrow_buffer::Buffer;
use hashbrown::HashMap;
use taut_index::{Bloom, CorruptIndex, CsbTree, bloom_hash};
use taut_types::{ColumnIndex, Datum, DatumPredicate, IndexKind, LogicalType};

use crate::error::Corrupt;
use crate::groups::Piece;
use crate::selection::Rows;
use crate::values::{ColumnValues, Datums};
use crate::{Block, BlockError, Sections};

/// Offset of the tree in its section.
const HEAD_BYTES: usize = 128;
const CODECS_AT: usize = 64;
const CODEC_BYTES: usize = 32;
const SHARED_BYTES_MAX: usize = 16;
/// Maximum bits of the numbers of a codec, including the number for null.
const CODEC_BITS: u32 = 64;
/// Maximum number of keys, or ranges of keys, in a search.
pub(crate) const INTERVALS_MAX: usize = 2048;
/// Maximum length of a list that is checked against a Bloom filter. In a longer list, a false positive is likely.
const BLOOM_LIST_MAX: usize = 64;

/// Builds the index sections of all segments of a block, in the order of the header.
pub(crate) fn build(block: &Block, sections: &dyn Sections) -> Result<Vec<Vec<u8>>, BlockError> {
    let mut built = vec![];
    for segment in 0..block.segments() {
        for index in 0..block.header.indexes() {
            built.push(build_index_section(block, sections, segment, index)?);
        }
    }
    Ok(built)
}

/// Builds the section of one index in one segment.
pub(crate) fn build_index_section(
    block: &Block,
    sections: &dyn Sections,
    segment: usize,
    index: usize,
) -> Result<Vec<u8>, BlockError> {
    let (kind, columns) = block.header.index(index);
    let rows = block.segment_rows(segment);
    let indexed_columns: Vec<IndexedColumn> = columns
        .iter()
        .map(|column| IndexedColumn::read(block, sections, segment, *column))
        .collect::<Result<_, _>>()?;
    match (kind, indexed_columns.as_slice()) {
        (IndexKind::Bloom, [column, ..]) => Ok(Bloom::build(&column.hashes(rows))),
        _ => Ok(build_tree(&indexed_columns, rows)),
    }
}

fn build_tree(columns: &[IndexedColumn], rows: usize) -> Vec<u8> {
    let codecs: Vec<KeyColumnCodec> = columns.iter().map(IndexedColumn::codec).collect();
    let bits: u32 = codecs.iter().map(|codec| codec.width).sum();
    let cut = bits.saturating_sub(u64::BITS);
    let mut bytes = vec![0; HEAD_BYTES];
    bytes[0] = codecs.len() as u8;
    bytes[1] = cut as u8;
    for (ordinal, codec) in codecs.iter().enumerate() {
        codec.write(&mut bytes[CODECS_AT + ordinal * CODEC_BYTES..][..CODEC_BYTES]);
    }
    let numbers: Vec<Vec<u64>> = columns.iter().zip(&codecs).map(|(column, codec)| column.numbers(codec)).collect();
    let keys: Vec<u64> = match (numbers.as_slice(), codecs.as_slice()) {
        ([first, second], [_, codec]) => {
            (0..rows).map(|row| join_numbers(first[row], second[row], codec.width, cut)).collect()
        }
        _ => numbers.into_iter().next().unwrap_or_default(),
    };
    bytes.append(&mut CsbTree::build(&keys));
    bytes
}

/// Joins two numbers into one and cuts off its lowest `cut` bits.
fn join_numbers(first: u64, second: u64, second_width: u32, cut: u32) -> u64 {
    // The joined number has at most 128 bits. At most 64 bits are left after the cut.
    ((u128::from(first) << second_width | u128::from(second)) >> cut) as u64
}

/// One indexed column of a segment.
struct IndexedColumn {
    values: ColumnValues,
    /// For text with a dictionary: the code of each row, and the number of entries.
    codes: Option<(Vec<u64>, usize)>,
}

impl IndexedColumn {
    fn read(block: &Block, sections: &dyn Sections, segment: usize, column: ColumnIndex) -> Result<Self, BlockError> {
        let (group, ordinal) = block.header.group_and_ordinal(column.index());
        let logical = block.column_type(column);
        let mut piece = block.open_piece(sections, segment, group)?;
        let array = piece.read(&[ordinal], &Rows::Range(0..block.segment_rows(segment)))?.swap_remove(0);
        let dictionary = if logical.is_bytes() { piece.dictionary(ordinal) } else { None };
        let out_of_range = |_| {
            Corrupt { at: 0, expected: "values of the column's type" }
                .in_section(block.header.piece_sections(segment, group).start)
        };
        let values = ColumnValues::new(array, logical).map_err(out_of_range)?;
        let codes = dictionary.map(|entries| (row_codes(&values, &binary_views(&entries, logical)), entries.len()));
        Ok(Self { values, codes })
    }

    fn hashes(&self, rows: usize) -> Vec<u64> {
        let datum = |row: usize| match &self.values.datums {
            Datums::Narrow(numbers) => Datum::Number(numbers[row].into()),
            Datums::Wide(numbers) => Datum::Number(numbers[row]),
            Datums::Bytes(views) => Datum::Bytes(views.value(row).into()),
        };
        (0..rows).filter(|row| !self.values.is_null(*row)).map(|row| bloom_hash(&datum(row))).collect()
    }

    /// Chooses the mapping from the values of this column to numbers.
    fn codec(&self) -> KeyColumnCodec {
        let has_nulls = self.values.nulls().is_some();
        let codec_of = |kind, span: u128, base| {
            let bits = u128::BITS - span.leading_zeros();
            // If there are nulls, null takes the number 0, and the other numbers increase by one. One bit is reserved
            // for this increase.
            let shift = bits.saturating_sub(CODEC_BITS - u32::from(has_nulls));
            let greatest = (span >> shift) as u64;
            let width = (u64::BITS - greatest.saturating_add(u64::from(has_nulls)).leading_zeros()).max(1);
            KeyColumnCodec { kind, width, shift, has_nulls, base, shared_prefix: vec![] }
        };
        match (&self.codes, &self.values.datums) {
            (Some((_, entries)), _) => codec_of(KeyColumnKind::Code, entries.saturating_sub(1) as u128, 0),
            (None, Datums::Bytes(views)) => {
                let shared_prefix = shared_prefix(views);
                KeyColumnCodec { shared_prefix, ..codec_of(KeyColumnKind::Prefix, u64::MAX.into(), 0) }
            }
            _ => {
                let (min, max) = self.values.number_bounds(0..self.values.rows()).unwrap_or((0, 0));
                codec_of(KeyColumnKind::Number, max.wrapping_sub(min) as u128, min)
            }
        }
    }

    /// Number of each row. The number of null is zero.
    fn numbers(&self, codec: &KeyColumnCodec) -> Vec<u64> {
        let number = |row: usize| match (&self.codes, &self.values.datums) {
            (Some((codes, _)), _) => codec.number(codes[row].into()),
            (None, Datums::Narrow(numbers)) => codec.number(i128::from(numbers[row]).wrapping_sub(codec.base) as u128),
            (None, Datums::Wide(numbers)) => codec.number(numbers[row].wrapping_sub(codec.base) as u128),
            (None, Datums::Bytes(views)) => {
                codec.number(prefix_number(&views.value(row)[codec.shared_prefix.len()..]).into())
            }
        };
        (0..self.values.rows()).map(|row| if self.values.is_null(row) { 0 } else { number(row) }).collect()
    }
}

fn binary_views(array: &ArrayRef, logical: LogicalType) -> BinaryViewArray {
    match logical {
        LogicalType::Varchar => array.as_string_view().clone().to_binary_view(),
        _ => array.as_binary_view().clone(),
    }
}

/// Dictionary code of each row. Codes of null rows have no meaning.
fn row_codes(values: &ColumnValues, entries: &BinaryViewArray) -> Vec<u64> {
    let codes: HashMap<&[u8], u64> = (0..entries.len()).map(|code| (entries.value(code), code as u64)).collect();
    match &values.datums {
        Datums::Bytes(views) => {
            let code =
                |row: usize| if values.is_null(row) { 0 } else { codes.get(views.value(row)).copied().unwrap_or(0) };
            (0..views.len()).map(code).collect()
        }
        _ => vec![],
    }
}

/// The prefix that all values share, cut to the length that a codec can hold.
fn shared_prefix(views: &BinaryViewArray) -> Vec<u8> {
    let mut present = views.iter().flatten();
    let Some(first) = present.next() else { return vec![] };
    let first = &first[..first.len().min(SHARED_BYTES_MAX)];
    let shared_length = |length: usize, value: &[u8]| {
        first[..length].iter().zip(value).take_while(|(left, right)| left == right).count()
    };
    first[..present.fold(first.len(), shared_length)].to_vec()
}

/// Returns the first eight bytes, padded with zeros, as a number. Numbers sort like these bytes.
fn prefix_number(bytes: &[u8]) -> u64 {
    let mut first = [0; 8];
    let length = bytes.len().min(8);
    first[..length].copy_from_slice(&bytes[..length]);
    u64::from_be_bytes(first)
}

/// Mapping from the values of one column to numbers that sort like the values.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyColumnCodec {
    kind: KeyColumnKind,
    width: u32,
    shift: u32,
    has_nulls: bool,
    base: i128,
    shared_prefix: Vec<u8>,
}

/// Meaning of the numbers of a codec. The discriminants are stored in files and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum KeyColumnKind {
    Number = 1,
    Code = 2,
    Prefix = 3,
}

/// Range of numbers, both ends included.
pub(crate) type Interval = (u64, u64);

impl KeyColumnCodec {
    /// Number of the value with this distance from the base. Drops the low bits of the distance, and adds one if 0
    /// stands for null.
    fn number(&self, distance: u128) -> u64 {
        ((distance >> self.shift) as u64).wrapping_add(self.has_nulls.into())
    }

    /// The greatest number that fits the width.
    fn greatest(&self) -> u64 {
        u64::MAX >> (u64::BITS - self.width)
    }

    /// Whether values with the same number are always equal.
    fn is_exact(&self) -> bool {
        self.shift == 0 && self.kind != KeyColumnKind::Prefix
    }

    fn write(&self, bytes: &mut [u8]) {
        bytes[0] = self.kind as u8;
        bytes[1] = self.width as u8;
        bytes[2] = self.shift as u8;
        bytes[3] = self.has_nulls.into();
        bytes[4] = self.shared_prefix.len() as u8;
        bytes[16..32].copy_from_slice(&self.base.to_le_bytes());
        if self.kind == KeyColumnKind::Prefix {
            bytes[16..16 + self.shared_prefix.len()].copy_from_slice(&self.shared_prefix);
        }
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let kinds = [KeyColumnKind::Number, KeyColumnKind::Code, KeyColumnKind::Prefix];
        let kind = kinds.into_iter().find(|kind| *kind as u8 == bytes[0])?;
        let (width, shift, shared) = (u32::from(bytes[1]), u32::from(bytes[2]), usize::from(bytes[4]));
        let is_valid =
            (1..=CODEC_BITS).contains(&width) && shift <= CODEC_BITS + 1 && bytes[3] <= 1 && shared <= SHARED_BYTES_MAX;
        let mut base = [0; 16];
        base.copy_from_slice(&bytes[16..32]);
        let is_prefix = kind == KeyColumnKind::Prefix;
        (is_valid && bytes[5..16] == [0; 11] && (is_prefix || shared == 0)).then(|| Self {
            kind,
            width,
            shift,
            has_nulls: bytes[3] == 1,
            base: if is_prefix { 0 } else { i128::from_le_bytes(base) },
            shared_prefix: base[..shared].to_vec(),
        })
    }

    /// Ranges of numbers whose values may pass a predicate, ascending. Returns `None` if an index cannot search for the
    /// predicate, or if there are more than `limit` ranges. If the numbers are codes, `codes` contains the ranges of
    /// codes that pass the predicate.
    fn intervals(
        &self,
        predicate: &DatumPredicate,
        codes: Option<&[(u64, u64)]>,
        limit: usize,
    ) -> Option<Vec<Interval>> {
        let least = u64::from(self.has_nulls);
        let greatest_value =
            self.base.saturating_add_unsigned(u128::from(self.greatest() - least) << self.shift | low_bits(self.shift));
        let clamped = |low: i128, high: i128| {
            let (low, high) = (low.max(self.base), high.min(greatest_value));
            let distance = |number: i128| self.number(number.wrapping_sub(self.base) as u128);
            (low <= high).then(|| (distance(low), distance(high)))
        };
        Some(match (predicate, self.kind) {
            (DatumPredicate::Null, _) => {
                if self.has_nulls {
                    vec![(0, 0)]
                } else {
                    vec![]
                }
            }
            (DatumPredicate::Range { low, high }, KeyColumnKind::Number) => clamped(*low, *high).into_iter().collect(),
            (DatumPredicate::OneOf(numbers), KeyColumnKind::Number) => {
                // Numbers outside of the bounds of the segment do not count towards the limit. In most segments, most
                // numbers of a long list are outside.
                let first = numbers.partition_point(|number| *number < self.base);
                let end = numbers.partition_point(|number| *number <= greatest_value);
                let inside = numbers.get(first..end).filter(|inside| inside.len() <= limit)?;
                let mut points: Vec<Interval> = inside.iter().filter_map(|number| clamped(*number, *number)).collect();
                points.dedup();
                points
            }
            (_, KeyColumnKind::Code) => {
                let codes = codes.filter(|codes| codes.len() <= limit)?;
                codes.iter().map(|(low, high)| (low + least, high + least)).collect()
            }
            (DatumPredicate::BytesRange { low, high }, KeyColumnKind::Prefix) => {
                let low = match low {
                    Bound::Included(low) | Bound::Excluded(low) => self.text_number(low),
                    Bound::Unbounded => least,
                };
                let high = match high {
                    Bound::Included(high) | Bound::Excluded(high) if self.is_below(high) => return Some(vec![]),
                    Bound::Included(high) | Bound::Excluded(high) => self.text_number(high),
                    Bound::Unbounded => self.greatest(),
                };
                if low <= high { vec![(low, high)] } else { vec![] }
            }
            (DatumPredicate::BytesOneOf(list), KeyColumnKind::Prefix) if list.len() <= limit => {
                let inside = list.iter().filter(|value| value.starts_with(&self.shared_prefix));
                let mut points: Vec<Interval> =
                    inside.map(|value| self.text_number(value)).map(|number| (number, number)).collect();
                points.dedup();
                points
            }
            _ => return None,
        })
    }

    /// Whether `value` sorts before the shared prefix, and so before all values.
    fn is_below(&self, value: &[u8]) -> bool {
        !value.starts_with(&self.shared_prefix) && value < self.shared_prefix.as_slice()
    }

    /// Number of a value, from the eight bytes after the shared prefix. A value without that prefix gets the least
    /// number if it sorts before the prefix, else the greatest.
    fn text_number(&self, value: &[u8]) -> u64 {
        match value.strip_prefix(self.shared_prefix.as_slice()) {
            Some(rest) => self.number(prefix_number(rest).into()),
            None if self.is_below(value) => self.has_nulls.into(),
            None => self.greatest(),
        }
    }
}

/// Mask of the low `count` bits.
fn low_bits(count: u32) -> u128 {
    (1 << count) - 1
}

/// A parsed CSB+-tree index of one segment.
pub(crate) struct TreeIndex {
    codecs: Vec<KeyColumnCodec>,
    cut: u32,
    tree: CsbTree,
}

/// Keys to search for. Every row with another key fails one of the column predicates.
pub(crate) struct KeySearch {
    /// Ranges of keys, ascending.
    pub keys: Vec<Interval>,
    /// Whether all rows with these keys pass the first column predicate.
    first_is_exact: bool,
    /// Whether all rows with these keys pass the second column predicate. `None` if the keys ignore it.
    second_is_exact: Option<bool>,
}

/// Result of a search in an index for one or two column predicates.
pub(crate) struct IndexMatches {
    /// For each key or range of keys, its range of positions in the tree.
    positions: Vec<Range<u32>>,
    /// Number of rows found.
    pub rows: usize,
    /// Whether all rows found pass the first column predicate.
    pub first_is_exact: bool,
    /// Whether all rows found pass the second column predicate. `None` if the search ignored it.
    pub second_is_exact: Option<bool>,
}

impl IndexMatches {
    /// Number of keys, or ranges of keys, that were searched for.
    pub fn intervals(&self) -> usize {
        self.positions.len()
    }
}

impl TreeIndex {
    /// Parses and checks the section of an index over `rows` rows.
    pub fn parse(bytes: &Buffer, rows: usize, columns: usize) -> Result<Self, Corrupt> {
        let corrupt = |at, expected| Corrupt { at, expected };
        if bytes.len() < HEAD_BYTES {
            return Err(corrupt(0, "a head of 128 bytes"));
        }
        let cut = u32::from(bytes[1]);
        if usize::from(bytes[0]) != columns || cut > u64::BITS || bytes[2..CODECS_AT].iter().any(|byte| *byte != 0) {
            return Err(corrupt(0, "as many columns as the header says"));
        }
        let codec = |ordinal: usize| {
            let at = CODECS_AT + ordinal * CODEC_BYTES;
            KeyColumnCodec::parse(&bytes[at..at + CODEC_BYTES]).ok_or(corrupt(at, "a codec of a key column"))
        };
        let codecs: Vec<KeyColumnCodec> = (0..columns).map(codec).collect::<Result<_, _>>()?;
        let bits: u32 = codecs.iter().map(|codec| codec.width).sum();
        if cut != bits.saturating_sub(u64::BITS) {
            return Err(corrupt(1, "keys of at most 64 bits"));
        }
        let tree = CsbTree::parse(&bytes.slice(HEAD_BYTES), rows)
            .map_err(|corrupt| Corrupt::from(corrupt).shifted_by(HEAD_BYTES))?;
        Ok(Self { codecs, cut, tree })
    }

    /// Whether the keys hold dictionary codes of the column with this ordinal in the index. A search for a predicate on
    /// this column then needs the codes that pass the predicate.
    pub fn has_code_keys(&self, ordinal: usize) -> bool {
        self.codecs[ordinal].kind == KeyColumnKind::Code
    }

    /// Searches for the rows that may pass a predicate on the first column of the index, and optionally a predicate on
    /// the second. Returns `None` if the index cannot search for the predicate on the first column. Also if it would
    /// search for more than `limit` keys or ranges of keys. If [`TreeIndex::has_code_keys`] is true for a column, the
    /// [`ProbePredicate`] must contain codes.
    pub fn search(
        &self,
        first: ProbePredicate<'_>,
        second: Option<ProbePredicate<'_>>,
        limit: usize,
    ) -> Option<IndexMatches> {
        let KeySearch { keys, first_is_exact, second_is_exact } = self.plan_search(first, second, limit)?;
        let positions = self.tree.search(&keys);
        let rows = positions.iter().map(|positions| self.tree.rows_at(positions).len()).sum();
        Some(IndexMatches { positions, rows, first_is_exact, second_is_exact })
    }

    /// Returns the keys that [`TreeIndex::search`] looks up in the tree. Returns `None` in the same cases.
    pub fn plan_search(
        &self,
        first: ProbePredicate<'_>,
        second: Option<ProbePredicate<'_>>,
        limit: usize,
    ) -> Option<KeySearch> {
        let first_intervals = self.codecs[0].intervals(first.predicate, first.codes, limit)?;
        if first_intervals.len() > limit {
            return None;
        }
        let Some(codec) = self.codecs.get(1) else {
            return Some(KeySearch {
                keys: first_intervals,
                first_is_exact: self.codecs[0].is_exact(),
                second_is_exact: None,
            });
        };
        let second_intervals = second.and_then(|second| codec.intervals(second.predicate, second.codes, limit));
        let are_points = first_intervals.iter().all(|(low, high)| low == high);
        let second_intervals =
            second_intervals.filter(|second| are_points && second.len() * first_intervals.len() <= limit);
        let any_number = [(0, codec.greatest())];
        // The cut removes bits of the second column first. The first column loses bits only if the cut has more bits
        // than the second column.
        let first_is_exact = self.codecs[0].is_exact() && self.cut <= codec.width;
        let second_is_exact = second_intervals.as_ref().map(|_| codec.is_exact() && self.cut == 0);
        let mut keys = vec![];
        for (low, high) in first_intervals {
            for (second_low, second_high) in second_intervals.as_deref().unwrap_or(&any_number) {
                let first_key = join_numbers(low, *second_low, codec.width, self.cut);
                let last_key = join_numbers(high, *second_high, codec.width, self.cut);
                keys.push((first_key, last_key));
            }
        }
        Some(KeySearch { keys, first_is_exact, second_is_exact })
    }

    /// The tree over the keys of the rows.
    pub fn tree(&self) -> &CsbTree {
        &self.tree
    }

    /// Calls `visit` with each row of `matches`, in any order. Skips rows outside of the segment, which only a corrupt
    /// tree contains.
    pub fn visit_rows(&self, matches: &IndexMatches, mut visit: impl FnMut(u32)) {
        for positions in &matches.positions {
            let rows = self.tree.rows_at(positions).iter().map(|row| u32::from(*row));
            rows.filter(|row| (*row as usize) < self.tree.rows()).for_each(&mut visit);
        }
    }
}

/// A predicate, and the codes that pass it if the keys of the index hold codes.
#[derive(Clone, Copy)]
pub(crate) struct ProbePredicate<'a> {
    pub predicate: &'a DatumPredicate,
    pub codes: Option<&'a [(u64, u64)]>,
}

/// Whether the Bloom filter of a segment proves that no value passes a predicate.
pub(crate) fn bloom_rules_out(bytes: &Buffer, predicate: &DatumPredicate) -> Result<bool, CorruptIndex> {
    let filter = Bloom::parse(bytes)?;
    let has = |datum: Datum| filter.may_contain(bloom_hash(&datum));
    Ok(match predicate {
        DatumPredicate::Range { low, high } if low == high => !has(Datum::Number(*low)),
        DatumPredicate::OneOf(numbers) if numbers.len() <= BLOOM_LIST_MAX => {
            !numbers.iter().any(|number| has(Datum::Number(*number)))
        }
        DatumPredicate::BytesRange { low: Bound::Included(low), high: Bound::Included(high) } if low == high => {
            !has(Datum::Bytes(low.clone()))
        }
        DatumPredicate::BytesOneOf(list) if list.len() <= BLOOM_LIST_MAX => {
            !list.iter().any(|value| has(Datum::Bytes(value.clone())))
        }
        _ => false,
    })
}

/// Ranges of the dictionary codes of a column that pass a predicate. Returns `None` if the column has no dictionary.
pub(crate) fn codes_that_pass(piece: &Piece<'_>, ordinal: usize, predicate: &DatumPredicate) -> Option<Vec<Interval>> {
    piece.codes_that_pass(ordinal, predicate).map(|ranges| {
        ranges
            .into_iter()
            .filter(|codes| !codes.is_empty())
            .map(|codes| (codes.start as u64, codes.end as u64 - 1))
            .collect()
    })
}
