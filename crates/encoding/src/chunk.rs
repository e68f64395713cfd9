//! A parsed chunk: what can be asked of an encoded column, whatever its encoding.

mod aggregate;

use std::ops::Range;

use arrow_array::ArrayRef;
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use taut_types::{ColumnTest, Encoding, LogicalType, Test};

use crate::arrays::{ArrayBuilder, Entries, InRuns, Positions, Rows, Selected, Source, array_of, array_of_buffer};
use crate::bytes::Bytes;
use crate::codes::Codes;
use crate::head::{CorruptChunk, Head};
use crate::numbers::{Extreme, Nesting, Numbers};
use crate::search;
use crate::{Bitmap, SelectedRuns};

pub use aggregate::NullableNumbers;

/// An encoded column of a segment, ready to be read. Clones share the bytes.
///
/// Parsing checks the frame and touches no row. Rows are checked as they are read: bytes that were damaged, and
/// yet have the right checksum, can read as wrong values (text that is not UTF-8 reads as the empty string), but
/// never as anything that Arrow must not see. [`Chunk::check`] looks at all rows.
#[derive(Clone, Debug)]
pub struct Chunk {
    logical: LogicalType,
    encoding: Encoding,
    rows: usize,
    nulls: usize,
    /// Set where a row is not null; absent where all rows are alike.
    validity: Option<BooleanBuffer>,
    values: Values,
}

#[derive(Clone, Debug)]
enum Values {
    /// All rows are null.
    Null,
    Numbers(Numbers),
    Bytes(Bytes),
}

impl Chunk {
    /// Checks the bytes of a chunk. Bytes that are not aligned to 16 are copied.
    ///
    /// # Errors
    /// When they are no chunk of this type and number of rows.
    pub fn parse(bytes: Buffer, logical: LogicalType, rows: usize) -> Result<Self, CorruptChunk> {
        let (head, mut parts) = Head::parse(bytes, logical.plain_bytes().unwrap_or(0), rows)?;
        let validity = if head.nulls > 0 && head.nulls < rows {
            let bits = BooleanBuffer::new(parts.take(rows.div_ceil(8), "validity")?, 0, rows);
            if bits.count_set_bits() != rows - head.nulls {
                return Err(CorruptChunk { at: 8, expected: "the number of nulls in the validity" });
            }
            Some(bits)
        } else {
            None
        };
        let is_float = matches!(logical, LogicalType::Real | LogicalType::Double);
        let values = if head.nulls == rows {
            if head.encoding != Encoding::Constant {
                return Err(CorruptChunk { at: 0, expected: "encoding constant where all rows are null" });
            }
            Values::Null
        } else if logical.is_bytes() {
            Values::Bytes(Bytes::parse(&head, logical == LogicalType::Varchar, &mut parts)?)
        } else {
            Values::Numbers(Numbers::parse(&head, Nesting::of_column(is_float), &mut parts)?)
        };
        parts.finish()?;
        Ok(Self { logical, encoding: head.encoding, rows, nulls: head.nulls, validity, values })
    }

    /// The outermost encoding.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// The encodings as a person reads them: `dictionary(1234) of bit_packed(11)`.
    pub fn description(&self) -> String {
        match &self.values {
            Values::Null => "constant".to_owned(),
            Values::Numbers(numbers) => numbers.description(),
            Values::Bytes(bytes) => bytes.description(),
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How many of them are null.
    pub fn nulls(&self) -> usize {
        self.nulls
    }

    /// Bytes of a decoded row, about.
    pub fn decoded_bytes_per_row(&self) -> usize {
        match &self.values {
            Values::Bytes(bytes) => bytes.row_bytes(self.rows),
            _ => self.logical.arrow().primitive_width().unwrap_or(1),
        }
    }

    /// The values of a range of rows, in the Arrow type of the column.
    ///
    /// # Panics
    /// When the range reaches outside.
    pub fn decode(&self, rows: Range<usize>) -> ArrayRef {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "rows {rows:?} of {}", self.rows);
        let nulls = self.nulls_of(&rows);
        match &self.values {
            Values::Null => arrow_array::new_null_array(&self.logical.arrow(), rows.len()),
            Values::Bytes(bytes) => bytes.views(rows).into_array(nulls),
            Values::Numbers(numbers) => match self.shared(numbers, &rows) {
                Some(buffer) => array_of_buffer(self.logical, buffer, rows.len(), nulls),
                None => array_of(self.logical, &Rows(numbers, rows), nulls),
            },
        }
    }

    /// Appends what [`Chunk::decode`] gives.
    ///
    /// # Panics
    /// As there, or when the array is one of another type.
    pub fn append(&self, rows: Range<usize>, array: &mut ArrayBuilder) {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "rows {rows:?} of {}", self.rows);
        let nulls = self.nulls_of(&rows);
        self.append_from(array, rows.len(), nulls.as_ref(), |numbers| Rows(numbers, rows));
    }

    fn append_from<'a, S: Source>(
        &'a self,
        array: &mut ArrayBuilder,
        rows: usize,
        nulls: Option<&NullBuffer>,
        source: impl FnOnce(&'a Numbers) -> S,
    ) {
        assert_eq!(array.logical(), self.logical, "the type of the array");
        match &self.values {
            Values::Null => array.append_nulls(rows),
            Values::Numbers(numbers) => array.append(&source(numbers), nulls),
            // There is no builder of these.
            Values::Bytes(_) => {}
        }
    }

    /// Whether [`Chunk::decode`] hands out the bytes of the chunk as they are.
    pub fn is_decoded(&self) -> bool {
        matches!(&self.values, Values::Numbers(numbers) if self.shared(numbers, &(0..0)).is_some())
    }

    /// Where rows of a range are null; `None` where none is, or all rows of the chunk are alike.
    fn nulls_of(&self, rows: &Range<usize>) -> Option<NullBuffer> {
        let nulls = self.validity.as_ref().map(|bits| NullBuffer::new(bits.slice(rows.start, rows.len())));
        nulls.filter(|nulls| nulls.null_count() > 0)
    }

    /// The values of rows in runs: those between the first and the last are decoded, of which most should be wanted.
    ///
    /// # Panics
    /// When a run reaches outside.
    pub fn decode_runs(&self, runs: &SelectedRuns<'_>) -> ArrayRef {
        let rows = runs.span();
        assert!(rows.end <= self.rows, "rows {rows:?} of {}", self.rows);
        let nulls = runs.nulls(self.nulls_of(&rows));
        match &self.values {
            Values::Null => arrow_array::new_null_array(&self.logical.arrow(), runs.len()),
            Values::Bytes(bytes) => {
                let mut views = bytes.views(rows);
                views.close_gaps(runs);
                views.into_array(nulls)
            }
            Values::Numbers(numbers) => array_of(self.logical, &InRuns(numbers, runs), nulls),
        }
    }

    /// Appends what [`Chunk::decode_runs`] gives.
    ///
    /// # Panics
    /// As there, or when the array is one of another type.
    pub fn append_runs(&self, runs: &SelectedRuns<'_>, array: &mut ArrayBuilder) {
        let rows = runs.span();
        assert!(rows.end <= self.rows, "rows {rows:?} of {}", self.rows);
        let nulls = runs.nulls(self.nulls_of(&rows));
        self.append_from(array, runs.len(), nulls.as_ref(), |numbers| InRuns(numbers, runs));
    }

    /// The bytes of plain numbers that are laid out as Arrow's.
    fn shared(&self, numbers: &Numbers, rows: &Range<usize>) -> Option<Buffer> {
        let width = self.logical.arrow().primitive_width()?;
        let buffer = numbers.plain_buffer().filter(|_| self.logical.plain_bytes() == Some(width))?;
        Some(buffer.slice_with_length(rows.start * width, rows.len() * width))
    }

    /// The values at ascending positions.
    ///
    /// # Panics
    /// When a position lies outside.
    pub fn gather(&self, positions: &[u32]) -> ArrayRef {
        let nulls = self.nulls_at(positions);
        match &self.values {
            Values::Null => arrow_array::new_null_array(&self.logical.arrow(), positions.len()),
            Values::Bytes(bytes) => bytes.views_at(positions).into_array(nulls),
            Values::Numbers(numbers) => array_of(self.logical, &Positions(numbers, positions), nulls),
        }
    }

    /// Appends what [`Chunk::gather`] gives.
    ///
    /// # Panics
    /// As there, or when the array is one of another type.
    pub fn append_at(&self, positions: &[u32], array: &mut ArrayBuilder) {
        let nulls = self.nulls_at(positions);
        self.append_from(array, positions.len(), nulls.as_ref(), |numbers| Positions(numbers, positions));
    }

    /// Where rows at ascending positions are null; `None` where all rows of the chunk are alike.
    fn nulls_at(&self, positions: &[u32]) -> Option<NullBuffer> {
        let last = positions.last().map_or(0, |last| *last as usize + 1);
        assert!(last <= self.rows, "row {last} of {}", self.rows);
        let is_valid = |bits: &BooleanBuffer| {
            BooleanBuffer::collect_bool(positions.len(), |index| bits.value(positions[index] as usize))
        };
        self.validity.as_ref().map(|bits| NullBuffer::new(is_valid(bits)))
    }

    /// The values of selected rows, of which there are so many. `None` where [`Chunk::gather`] is faster.
    ///
    /// # Panics
    /// When the selection is not one of the chunk's rows.
    pub fn select(&self, selection: &Bitmap, selected: usize) -> Option<ArrayRef> {
        let source = self.selected(selection, selected)?;
        Some(array_of(self.logical, &source, None))
    }

    /// Appends what [`Chunk::select`] gives; `false` where that is nothing.
    ///
    /// # Panics
    /// As there, or when the array is one of another type.
    pub fn append_selected(&self, selection: &Bitmap, selected: usize, array: &mut ArrayBuilder) -> bool {
        let Some(source) = self.selected(selection, selected) else { return false };
        self.append_from(array, selected, None, |_| source);
        true
    }

    fn selected<'a>(&'a self, selection: &'a Bitmap, selected: usize) -> Option<Selected<'a>> {
        assert_eq!(selection.len(), self.rows, "a selection has one bit per row of the chunk");
        let (Values::Numbers(numbers), None) = (&self.values, &self.validity) else { return None };
        let value_bytes = self.logical.arrow().primitive_width().unwrap_or(1);
        let is_fast = numbers.selects_fast(selected, self.rows, value_bytes);
        is_fast.then_some(Selected(numbers, selection, selected))
    }

    /// Clears the bits of rows in `rows` that fail the test. Bit `r` of `selection` is row `r` of the segment;
    /// rows outside `rows` stay as they are.
    ///
    /// # Panics
    /// When the range reaches outside, or the selection is not one of the chunk's rows.
    pub fn filter(&self, test: &ColumnTest, rows: Range<usize>, selection: &mut Bitmap) {
        self.check_selection(&rows, selection);
        if test.test == Test::Null {
            return self.filter_nulls(!test.negated, rows, selection);
        }
        self.filter_nulls(false, rows.clone(), selection);
        match &self.values {
            Values::Null => {}
            Values::Numbers(numbers) => numbers.filter(&test.test, test.negated, rows, selection),
            Values::Bytes(bytes) => bytes.filter(&test.test, test.negated, rows, selection),
        }
    }

    /// Selects the rows that pass a test, and no others: what [`Chunk::filter`] leaves of all, and faster. Whatever the
    /// selection was before, it is one of the chunk's rows then.
    pub fn select_passing(&self, test: &ColumnTest, selection: &mut Bitmap) {
        let is_selected = match &self.values {
            _ if test.test == Test::Null => false,
            Values::Null => false,
            Values::Numbers(numbers) => numbers.select(&test.test, test.negated, self.rows, selection),
            Values::Bytes(bytes) => bytes.select(&test.test, test.negated, self.rows, selection),
        };
        if is_selected {
            self.filter_nulls(false, 0..self.rows, selection);
        } else {
            selection.set_all(self.rows);
            self.filter(test, 0..self.rows, selection);
        }
    }

    /// Does as [`Chunk::filter`] for all rows, of which so many are selected, taking each by itself: for few rows. `false`,
    /// with nothing done, where the encoding gains nothing by that.
    ///
    /// # Panics
    /// When the selection is not one of the chunk's rows.
    pub fn filter_selected(&self, test: &ColumnTest, selected: usize, selection: &mut Bitmap) -> bool {
        self.check_selection(&(0..self.rows), selection);
        let (Values::Numbers(numbers), None) = (&self.values, &self.validity) else { return false };
        test.test != Test::Null && numbers.filter_selected(&test.test, test.negated, selected, selection)
    }

    /// The extremes of a few neighbouring values each, with which [`Chunk::find_by_extremes`] is faster than
    /// [`Chunk::filter`] where few rows pass that lie at this end of all: a twentieth of the chunk's bytes, about. `None`
    /// where the encoding has none.
    pub fn extremes(&self, extreme: Extreme) -> Option<Buffer> {
        match &self.values {
            Values::Numbers(numbers) => numbers.extremes(extreme),
            Values::Null | Values::Bytes(_) => None,
        }
    }

    /// The rows of a range that pass a test, ascending, found by extremes of this chunk, and how many rows it looked at.
    /// `None` where the test is not one on a range, or too many rows may pass for that to be faster than
    /// [`Chunk::filter`].
    ///
    /// # Panics
    /// When the range reaches outside.
    pub fn find_by_extremes(
        &self,
        test: &ColumnTest,
        (extreme, extremes): (Extreme, &Buffer),
        rows: Range<usize>,
    ) -> Option<(Vec<u32>, usize)> {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "rows {rows:?} of {}", self.rows);
        let Values::Numbers(numbers) = &self.values else { return None };
        if test.negated {
            return None;
        }
        let (mut found, looked_at) = numbers.find_by_extremes(&test.test, (extreme, extremes), rows)?;
        if let Some(validity) = &self.validity {
            found.retain(|row| validity.value(*row as usize));
        }
        Some((found, looked_at))
    }

    /// Of rows whose values ascend and among which none is null, those that pass a test that is not one for nulls: by
    /// binary search, as ranges. `None` where that is not worth it: for a long list, or by the encoding.
    ///
    /// # Panics
    /// When the range reaches outside.
    pub fn search(&self, test: &Test, rows: Range<usize>) -> Option<Vec<Range<usize>>> {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "rows {rows:?} of {}", self.rows);
        match &self.values {
            Values::Null => None,
            Values::Numbers(numbers) => numbers.search(test, rows),
            Values::Bytes(bytes) => search::bytes(test, rows, |row| bytes.value(row)),
        }
    }

    /// The codes of the dictionary whose entries pass a test that is not one for nulls, ascending. `None` where there
    /// is no dictionary of text or bytes.
    pub fn codes_that_pass(&self, test: &Test) -> Option<Vec<Range<u32>>> {
        match &self.values {
            Values::Null => Some(vec![]),
            Values::Bytes(bytes) => bytes.codes_that_pass(test),
            Values::Numbers(_) => None,
        }
    }

    fn check_selection(&self, rows: &Range<usize>, selection: &Bitmap) {
        assert_eq!(selection.len(), self.rows, "a selection has one bit per row of the chunk");
        assert!(rows.start <= rows.end && rows.end <= self.rows, "rows {rows:?} of {}", self.rows);
    }

    /// Keeps the rows of a range that are null, or those that are not.
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

    /// The distinct values, where the chunk has a dictionary or is constant; a chunk of nulls has none of them.
    pub fn dictionary(&self) -> Option<ArrayRef> {
        match &self.values {
            Values::Null => Some(arrow_array::new_empty_array(&self.logical.arrow())),
            Values::Bytes(bytes) => Some(bytes.entries()?.into_array(None)),
            Values::Numbers(numbers) if !numbers.has_entries() => None,
            Values::Numbers(numbers) => Some(array_of(self.logical, &Entries(numbers), None)),
        }
    }

    /// Clears rows whose dictionary entry's flag is false; null rows stay iff `null_passes`.
    ///
    /// # Panics
    /// When the chunk has no dictionary, the range reaches outside, or the selection is not one of its rows.
    pub fn filter_codes(&self, entries: &BooleanBuffer, null_passes: bool, rows: Range<usize>, selection: &mut Bitmap) {
        self.check_selection(&rows, selection);
        let before = (null_passes && self.nulls > 0).then(|| selection.clone());
        match self.codes() {
            Some(codes) => codes.filter_flags(entries.iter(), rows.clone(), selection),
            None => {
                assert!(self.encoding == Encoding::Constant, "the chunk has a dictionary");
                if !entries.iter().next().unwrap_or(false) {
                    selection.clear_range(rows.clone());
                }
            }
        }
        self.filter_nulls(false, rows.clone(), selection);
        if let Some(mut nulls) = before {
            self.filter_nulls(true, rows.clone(), &mut nulls);
            selection.unite(rows, &nulls);
        }
    }

    fn codes(&self) -> Option<&Codes> {
        match &self.values {
            Values::Null => None,
            Values::Numbers(numbers) => numbers.codes(),
            Values::Bytes(bytes) => bytes.codes(),
        }
    }

    /// Checks what [`Chunk::parse`] leaves to the moment of reading: that text is UTF-8, and that its ends ascend.
    ///
    /// # Errors
    /// When a row cannot be read as it was written.
    pub fn check(&self) -> Result<(), CorruptChunk> {
        match &self.values {
            Values::Bytes(bytes) if !bytes.is_good(self.rows) => {
                Err(CorruptChunk { at: 64, expected: "values that end in order and are UTF-8 where they are text" })
            }
            _ => Ok(()),
        }
    }
}
