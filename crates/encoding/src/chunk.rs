//! A parsed chunk: decoding, filtering and aggregation of one encoded column, whatever its encoding.

mod aggregate;

use std::ops::Range;

use arrow_array::ArrayRef;
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use taut_types::{ColumnPredicate, DatumPredicate, Encoding, LogicalType};

use crate::arrays::{
    ArrayBuilder, DictionaryNumbers, NumberSource, NumbersAtPositions, NumbersInRange, NumbersInRuns, SelectedNumbers,
    array_of, array_of_buffer,
};
use crate::bytes::Bytes;
use crate::codes::Codes;
use crate::head::{CorruptChunk, Head};
use crate::numbers::{Extreme, Nesting, Numbers};
use crate::search;
use crate::{Bitmap, SelectedRuns};

pub use aggregate::NullableNumbers;

/// An encoded column of a segment, ready to be read. Clones share the bytes.
///
/// Parsing checks the head and the lengths of the parts, and reads no rows. Rows are checked when they are read.
/// Damaged bytes with a correct checksum can decode to wrong values, but never to values that break an invariant of
/// Arrow. For example, text that is not UTF-8 decodes to the empty string. [`Chunk::check`] checks all rows.
#[derive(Clone, Debug)]
pub struct Chunk {
    logical: LogicalType,
    encoding: Encoding,
    rows: usize,
    nulls: usize,
    /// One bit per row, set if the row is not null. Absent if all rows are null or none is.
    validity: Option<BooleanBuffer>,
    values: ChunkValues,
}

/// Values of a chunk, by kind.
#[derive(Clone, Debug)]
enum ChunkValues {
    /// All rows are null.
    Null,
    Numbers(Numbers),
    Bytes(Bytes),
}

impl Chunk {
    /// Checks the head of a chunk and the lengths of its parts. Bytes that are not aligned to 16 are copied.
    ///
    /// # Errors
    /// If the bytes are not a chunk of this type and number of rows.
    pub fn parse(bytes: Buffer, logical: LogicalType, rows: usize) -> Result<Self, CorruptChunk> {
        let (head, mut parts) = Head::parse(bytes, logical.plain_bytes().unwrap_or(0), rows)?;
        let validity = if head.nulls > 0 && head.nulls < rows {
            let bits = BooleanBuffer::new(parts.read_part(rows.div_ceil(8), "validity")?, 0, rows);
            if bits.count_set_bits() != rows - head.nulls {
                return Err(CorruptChunk { at: 8, expected: "as many nulls as the validity has" });
            }
            Some(bits)
        } else {
            None
        };
        let is_float = matches!(logical, LogicalType::Real | LogicalType::Double);
        let values = if head.nulls == rows {
            if head.encoding != Encoding::Constant {
                return Err(CorruptChunk { at: 0, expected: "the constant encoding, because all rows are null" });
            }
            ChunkValues::Null
        } else if logical.is_bytes() {
            ChunkValues::Bytes(Bytes::parse(&head, logical == LogicalType::Varchar, &mut parts)?)
        } else {
            ChunkValues::Numbers(Numbers::parse(&head, Nesting::for_column(is_float), &mut parts)?)
        };
        parts.finish()?;
        Ok(Self { logical, encoding: head.encoding, rows, nulls: head.nulls, validity, values })
    }

    /// Outermost encoding of the chunk.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Readable name of the encodings, for example `dictionary(1234) of bit_packed(11)`.
    pub fn description(&self) -> String {
        match &self.values {
            ChunkValues::Null => "constant".to_owned(),
            ChunkValues::Numbers(numbers) => numbers.description(),
            ChunkValues::Bytes(bytes) => bytes.description(),
        }
    }

    /// Number of rows, nulls included.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of rows that are null.
    pub fn nulls(&self) -> usize {
        self.nulls
    }

    /// Approximate bytes of a decoded row.
    pub fn decoded_bytes_per_row(&self) -> usize {
        match &self.values {
            ChunkValues::Bytes(bytes) => bytes.row_bytes(self.rows),
            _ => self.logical.arrow().primitive_width().unwrap_or(1),
        }
    }

    /// Decodes a range of rows, in the Arrow type of the column.
    ///
    /// # Panics
    /// If the range is not within the rows of the chunk.
    pub fn decode(&self, rows: Range<usize>) -> ArrayRef {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "rows {rows:?} of {}", self.rows);
        let nulls = self.nulls_of(&rows);
        match &self.values {
            ChunkValues::Null => arrow_array::new_null_array(&self.logical.arrow(), rows.len()),
            ChunkValues::Bytes(bytes) => bytes.views(rows).into_array(nulls),
            ChunkValues::Numbers(numbers) => match self.shared_buffer(numbers, &rows) {
                Some(buffer) => array_of_buffer(self.logical, buffer, rows.len(), nulls),
                None => array_of(self.logical, &NumbersInRange(numbers, rows), nulls),
            },
        }
    }

    /// Appends the values that [`Chunk::decode`] returns.
    ///
    /// # Panics
    /// If the range is not within the rows of the chunk, or the array has another type.
    pub fn append(&self, rows: Range<usize>, array: &mut ArrayBuilder) {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "rows {rows:?} of {}", self.rows);
        let nulls = self.nulls_of(&rows);
        self.append_from(array, rows.len(), nulls.as_ref(), |numbers| NumbersInRange(numbers, rows));
    }

    fn append_from<'a, S: NumberSource>(
        &'a self,
        array: &mut ArrayBuilder,
        rows: usize,
        nulls: Option<&NullBuffer>,
        source: impl FnOnce(&'a Numbers) -> S,
    ) {
        assert_eq!(array.logical(), self.logical, "the type of the array");
        match &self.values {
            ChunkValues::Null => array.append_nulls(rows),
            ChunkValues::Numbers(numbers) => array.append(&source(numbers), nulls),
            // No builder exists for text and bytes.
            ChunkValues::Bytes(_) => {}
        }
    }

    /// Whether [`Chunk::decode`] shares the bytes of the chunk instead of decoding them.
    pub fn is_decoded(&self) -> bool {
        matches!(&self.values, ChunkValues::Numbers(numbers) if self.shared_buffer(numbers, &(0..0)).is_some())
    }

    /// Validity of a range of rows. Returns `None` if none of the rows is null, or if all rows of the chunk are null.
    fn nulls_of(&self, rows: &Range<usize>) -> Option<NullBuffer> {
        let nulls = self.validity.as_ref().map(|bits| NullBuffer::new(bits.slice(rows.start, rows.len())));
        nulls.filter(|nulls| nulls.null_count() > 0)
    }

    /// Decodes the rows of selected runs. Except for plain numbers, all rows from the first to the last run are
    /// decoded, so most of them should be selected.
    ///
    /// # Panics
    /// If a run is not within the rows of the chunk.
    pub fn decode_runs(&self, runs: &SelectedRuns<'_>) -> ArrayRef {
        let rows = runs.span();
        assert!(rows.end <= self.rows, "rows {rows:?} of {}", self.rows);
        let nulls = runs.nulls(self.nulls_of(&rows));
        match &self.values {
            ChunkValues::Null => arrow_array::new_null_array(&self.logical.arrow(), runs.len()),
            ChunkValues::Bytes(bytes) => {
                let mut views = bytes.views(rows);
                views.close_gaps(runs);
                views.into_array(nulls)
            }
            ChunkValues::Numbers(numbers) => array_of(self.logical, &NumbersInRuns(numbers, runs), nulls),
        }
    }

    /// Appends the values that [`Chunk::decode_runs`] returns.
    ///
    /// # Panics
    /// If a run is not within the rows of the chunk, or the array has another type.
    pub fn append_runs(&self, runs: &SelectedRuns<'_>, array: &mut ArrayBuilder) {
        let rows = runs.span();
        assert!(rows.end <= self.rows, "rows {rows:?} of {}", self.rows);
        let nulls = runs.nulls(self.nulls_of(&rows));
        self.append_from(array, runs.len(), nulls.as_ref(), |numbers| NumbersInRuns(numbers, runs));
    }

    /// Bytes of plain numbers that already have the layout of the Arrow type, without a copy.
    fn shared_buffer(&self, numbers: &Numbers, rows: &Range<usize>) -> Option<Buffer> {
        let width = self.logical.arrow().primitive_width()?;
        let buffer = numbers.plain_buffer().filter(|_| self.logical.plain_bytes() == Some(width))?;
        Some(buffer.slice_with_length(rows.start * width, rows.len() * width))
    }

    /// Decodes the rows at ascending positions.
    ///
    /// # Panics
    /// If a position is not within the rows of the chunk.
    pub fn gather(&self, positions: &[u32]) -> ArrayRef {
        let nulls = self.nulls_at(positions);
        match &self.values {
            ChunkValues::Null => arrow_array::new_null_array(&self.logical.arrow(), positions.len()),
            ChunkValues::Bytes(bytes) => bytes.views_at(positions).into_array(nulls),
            ChunkValues::Numbers(numbers) => array_of(self.logical, &NumbersAtPositions(numbers, positions), nulls),
        }
    }

    /// Appends the values that [`Chunk::gather`] returns.
    ///
    /// # Panics
    /// If a position is not within the rows of the chunk, or the array has another type.
    pub fn append_at(&self, positions: &[u32], array: &mut ArrayBuilder) {
        let nulls = self.nulls_at(positions);
        self.append_from(array, positions.len(), nulls.as_ref(), |numbers| NumbersAtPositions(numbers, positions));
    }

    /// Validity of the rows at ascending positions. Returns `None` if all rows of the chunk are null or none is.
    fn nulls_at(&self, positions: &[u32]) -> Option<NullBuffer> {
        let last = positions.last().map_or(0, |last| *last as usize + 1);
        assert!(last <= self.rows, "row {last} of {}", self.rows);
        let is_valid = |bits: &BooleanBuffer| {
            BooleanBuffer::collect_bool(positions.len(), |index| bits.value(positions[index] as usize))
        };
        self.validity.as_ref().map(|bits| NullBuffer::new(is_valid(bits)))
    }

    /// Decodes the selected rows. `selected` is the number of selected rows. Returns `None` if [`Chunk::gather`] is
    /// faster, or if the chunk has nulls, text or bytes.
    ///
    /// # Panics
    /// If the length of the selection is not the number of rows of the chunk.
    pub fn select(&self, selection: &Bitmap, selected: usize) -> Option<ArrayRef> {
        let source = self.selection_source(selection, selected)?;
        Some(array_of(self.logical, &source, None))
    }

    /// Appends the values that [`Chunk::select`] returns. Returns `false` if [`Chunk::select`] returns `None`.
    ///
    /// # Panics
    /// If the length of the selection is not the number of rows of the chunk, or the array has another type.
    pub fn append_selected(&self, selection: &Bitmap, selected: usize, array: &mut ArrayBuilder) -> bool {
        let Some(source) = self.selection_source(selection, selected) else { return false };
        self.append_from(array, selected, None, |_| source);
        true
    }

    fn selection_source<'a>(&'a self, selection: &'a Bitmap, selected: usize) -> Option<SelectedNumbers<'a>> {
        assert_eq!(selection.len(), self.rows, "a selection has one bit per row of the chunk");
        let (ChunkValues::Numbers(numbers), None) = (&self.values, &self.validity) else { return None };
        let value_bytes = self.logical.arrow().primitive_width().unwrap_or(1);
        let is_fast = numbers.is_select_fast(selected, self.rows, value_bytes);
        is_fast.then_some(SelectedNumbers(numbers, selection, selected))
    }

    /// Clears the bits of rows in `rows` that fail the predicate. Bit `r` of `selection` is row `r` of the segment.
    /// Bits outside `rows` do not change.
    ///
    /// # Panics
    /// If the range is not within the rows of the chunk, or the selection has another length.
    pub fn filter(&self, predicate: &ColumnPredicate, rows: Range<usize>, selection: &mut Bitmap) {
        self.check_selection(&rows, selection);
        if predicate.condition == DatumPredicate::Null {
            return self.filter_nulls(!predicate.negated, rows, selection);
        }
        self.filter_nulls(false, rows.clone(), selection);
        match &self.values {
            ChunkValues::Null => {}
            ChunkValues::Numbers(numbers) => numbers.filter(&predicate.condition, predicate.negated, rows, selection),
            ChunkValues::Bytes(bytes) => bytes.filter(&predicate.condition, predicate.negated, rows, selection),
        }
    }

    /// Selects the rows that pass a predicate, and no others. Same result as [`Chunk::filter`] on a full selection, but
    /// faster. The previous content and length of the selection are overwritten.
    pub fn select_passing(&self, predicate: &ColumnPredicate, selection: &mut Bitmap) {
        let is_selected = match &self.values {
            _ if predicate.condition == DatumPredicate::Null => false,
            ChunkValues::Null => false,
            ChunkValues::Numbers(numbers) => {
                numbers.select(&predicate.condition, predicate.negated, self.rows, selection)
            }
            ChunkValues::Bytes(bytes) => bytes.select(&predicate.condition, predicate.negated, self.rows, selection),
        };
        if is_selected {
            self.filter_nulls(false, 0..self.rows, selection);
        } else {
            selection.set_all(self.rows);
            self.filter(predicate, 0..self.rows, selection);
        }
    }

    /// Evaluates a predicate on the selected rows one by one, which is fast for few rows. `selected` is the number of
    /// selected rows. The result equals the result of [`Chunk::filter`] on all rows. Returns `false`, and changes
    /// nothing, if the encoding gains nothing from reading rows one by one, or if the chunk has nulls, text or bytes.
    ///
    /// # Panics
    /// If the length of the selection is not the number of rows of the chunk.
    pub fn filter_selected(&self, predicate: &ColumnPredicate, selected: usize, selection: &mut Bitmap) -> bool {
        self.check_selection(&(0..self.rows), selection);
        let (ChunkValues::Numbers(numbers), None) = (&self.values, &self.validity) else { return false };
        predicate.condition != DatumPredicate::Null
            && numbers.filter_selected(&predicate.condition, predicate.negated, selected, selection)
    }

    /// The minimum of each group of neighbouring values, or the maximum if `extreme` is the maximum. They take about a
    /// twentieth of the chunk's bytes. With them, [`Chunk::find_by_extremes`] is faster than [`Chunk::filter`] if few
    /// rows pass and their values are at this end of the value range. Returns `None` if the encoding has no extremes.
    pub fn extremes(&self, extreme: Extreme) -> Option<Buffer> {
        match &self.values {
            ChunkValues::Numbers(numbers) => numbers.extremes(extreme),
            ChunkValues::Null | ChunkValues::Bytes(_) => None,
        }
    }

    /// Finds the rows of a range that pass a predicate, by the extremes of this chunk. Returns them ascending, with the
    /// number of rows that were read. Returns `None` if the predicate is not a range, or if [`Chunk::filter`] is as
    /// fast because many rows may pass.
    ///
    /// # Panics
    /// If the range is not within the rows of the chunk.
    pub fn find_by_extremes(
        &self,
        predicate: &ColumnPredicate,
        (extreme, extremes): (Extreme, &Buffer),
        rows: Range<usize>,
    ) -> Option<(Vec<u32>, usize)> {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "rows {rows:?} of {}", self.rows);
        let ChunkValues::Numbers(numbers) = &self.values else { return None };
        if predicate.negated {
            return None;
        }
        let (mut found, rows_read) = numbers.find_by_extremes(&predicate.condition, (extreme, extremes), rows)?;
        if let Some(validity) = &self.validity {
            found.retain(|row| validity.value(*row as usize));
        }
        Some((found, rows_read))
    }

    /// Finds the rows that pass a predicate by binary search, as ranges. The values of `rows` must ascend and not be
    /// null, and the predicate must not be [`DatumPredicate::Null`]. Returns `None` if there is no binary search for
    /// the encoding, or the predicate is a long list.
    ///
    /// # Panics
    /// If the range is not within the rows of the chunk.
    pub fn search(&self, predicate: &DatumPredicate, rows: Range<usize>) -> Option<Vec<Range<usize>>> {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "rows {rows:?} of {}", self.rows);
        match &self.values {
            ChunkValues::Null => None,
            ChunkValues::Numbers(numbers) => numbers.search(predicate, rows),
            ChunkValues::Bytes(bytes) => search::bytes(predicate, rows, |row| bytes.value(row)),
        }
    }

    /// Ascending ranges of codes whose entries in a dictionary of text or bytes pass a predicate. The predicate must
    /// not be [`DatumPredicate::Null`]. Returns `None` if the chunk has no such dictionary and is not constant.
    pub fn codes_that_pass(&self, predicate: &DatumPredicate) -> Option<Vec<Range<u32>>> {
        match &self.values {
            ChunkValues::Null => Some(vec![]),
            ChunkValues::Bytes(bytes) => bytes.codes_that_pass(predicate),
            ChunkValues::Numbers(_) => None,
        }
    }

    fn check_selection(&self, rows: &Range<usize>, selection: &Bitmap) {
        assert_eq!(selection.len(), self.rows, "a selection has one bit per row of the chunk");
        assert!(rows.start <= rows.end && rows.end <= self.rows, "rows {rows:?} of {}", self.rows);
    }

    /// Clears the rows of a range that are null, or if `keep_nulls` is true, the rows that are not null.
    fn filter_nulls(&self, keep_nulls: bool, rows: Range<usize>, selection: &mut Bitmap) {
        let Some(validity) = &self.validity else {
            if (self.nulls > 0) != keep_nulls {
                selection.clear_range(rows);
            }
            return;
        };
        if rows.is_empty() {
            return;
        }
        let chunks = validity.values().chunks(8).map(|bytes| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(word) ^ if keep_nulls { u64::MAX } else { 0 }
        });
        let first = rows.start / 64;
        for (index, word) in chunks.enumerate().skip(first).take(rows.end.div_ceil(64) - first) {
            selection.intersect_word(&rows, index, word);
        }
    }

    /// Distinct values of the chunk. Empty if all rows are null. Returns `None` if the chunk has no dictionary and is
    /// not constant.
    pub fn dictionary(&self) -> Option<ArrayRef> {
        match &self.values {
            ChunkValues::Null => Some(arrow_array::new_empty_array(&self.logical.arrow())),
            ChunkValues::Bytes(bytes) => Some(bytes.entries()?.into_array(None)),
            ChunkValues::Numbers(numbers) if !numbers.has_entries() => None,
            ChunkValues::Numbers(numbers) => Some(array_of(self.logical, &DictionaryNumbers(numbers), None)),
        }
    }

    /// Clears the rows of a range whose dictionary entry has a false flag in `entry_passes`, which has one flag per
    /// entry. Clears null rows if `null_passes` is false.
    ///
    /// # Panics
    /// If the chunk has no dictionary and is not constant, the range is not within its rows, or the selection has
    /// another length.
    pub fn filter_codes(
        &self,
        entry_passes: &BooleanBuffer,
        null_passes: bool,
        rows: Range<usize>,
        selection: &mut Bitmap,
    ) {
        self.check_selection(&rows, selection);
        let unfiltered = (null_passes && self.nulls > 0).then(|| selection.clone());
        match self.codes() {
            Some(codes) => codes.filter_flags(entry_passes.iter(), rows.clone(), selection),
            None => {
                assert!(self.encoding == Encoding::Constant, "a chunk without a dictionary must be constant");
                if !entry_passes.iter().next().unwrap_or(false) {
                    selection.clear_range(rows.clone());
                }
            }
        }
        self.filter_nulls(false, rows.clone(), selection);
        if let Some(mut nulls) = unfiltered {
            self.filter_nulls(true, rows.clone(), &mut nulls);
            selection.unite(rows, &nulls);
        }
    }

    fn codes(&self) -> Option<&Codes> {
        match &self.values {
            ChunkValues::Null => None,
            ChunkValues::Numbers(numbers) => numbers.codes(),
            ChunkValues::Bytes(bytes) => bytes.codes(),
        }
    }

    /// Checks the parts of the chunk that [`Chunk::parse`] does not check: that the end offsets of text and bytes
    /// ascend, and that text is UTF-8.
    ///
    /// # Errors
    /// If a row cannot be read as it was written.
    pub fn check(&self) -> Result<(), CorruptChunk> {
        match &self.values {
            ChunkValues::Bytes(bytes) if !bytes.is_valid(self.rows) => {
                Err(CorruptChunk { at: 64, expected: "ascending end offsets of values, and valid UTF-8 in text" })
            }
            _ => Ok(()),
        }
    }
}
