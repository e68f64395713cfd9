//! Views of text and bytes: Arrow's 16-byte representation of a value of a `Utf8View` or `BinaryView`.
//!
//! ```text
//! bits of the view   up to 12 bytes long        longer
//! 0..32              length                     length
//! 32..64             the bytes,                 the first four bytes
//! 64..96               padded by zeros          index of the heap, here always 0
//! 96..128                                       offset in the heap
//! ```
//!
//! [`Views`] holds the invariant that Arrow's unchecked constructors require. The value of every view lies in the heap,
//! and is UTF-8 if the column is text. Bytes from disk are checked when a view is made. A value that breaks the
//! invariant becomes the empty string.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryViewArray, StringViewArray};
use arrow_buffer::{Buffer, NullBuffer, ScalarBuffer};

use crate::SelectedRuns;

const INLINE_BYTES_MAX: usize = 12;

/// Checked views of values in one heap.
#[derive(Clone, Debug)]
pub(crate) struct Views {
    views: Vec<u128>,
    heap: Buffer,
    is_text: bool,
}

impl Views {
    /// Creates an empty list of views into a heap. Views cannot refer to values past 2 GiB in the heap.
    pub(crate) fn new(heap: Buffer, is_text: bool, capacity: usize) -> Self {
        Self { views: Vec::with_capacity(capacity), heap, is_text }
    }

    /// Empty list of views into the same heap.
    pub(crate) fn empty_like(&self, capacity: usize) -> Self {
        Self::new(self.heap.clone(), self.is_text, capacity)
    }

    /// Appends views of values that lie end to end in the heap from `start`. Ends before the previous end, or past the
    /// heap, are clamped. Returns true if all values were valid.
    pub(crate) fn append(&mut self, start: u32, ends: &[u32]) -> bool {
        let bound = self.heap.len().min(i32::MAX as usize);
        let heap = &self.heap.as_slice()[..bound];
        let start = (start as usize).min(bound);
        let end = ends.last().map_or(start, |end| (*end as usize).clamp(start, bound));
        let (views, values) = (&mut self.views, &heap[start..end]);
        if !self.is_text || values.is_ascii() {
            append_views(views, heap, start..end, ends, |_| true)
        } else if str::from_utf8(values).is_ok() {
            append_views(views, heap, start..end, ends, |value| {
                is_char_boundary(heap, value.start) && is_char_boundary(heap, value.end)
            })
        } else {
            append_views(views, heap, start..end, ends, |value| str::from_utf8(&heap[value]).is_ok())
        }
    }

    /// Appends a view of one value. Appends the empty string if the value is not UTF-8 or not within the heap. Returns
    /// true if the value was valid.
    pub(crate) fn push(&mut self, value: Range<usize>) -> bool {
        let bound = self.heap.len().min(i32::MAX as usize);
        let heap = &self.heap.as_slice()[..bound];
        let is_valid = heap.get(value.clone()).is_some_and(|bytes| !self.is_text || str::from_utf8(bytes).is_ok());
        self.views.push(if is_valid { view(heap, value) } else { 0 });
        is_valid
    }

    /// Appends the views of `table` at these indexes. `table` must have the same heap. For an index past its last view,
    /// appends the empty string.
    pub(crate) fn append_from(&mut self, table: &Self, indexes: &[u16]) {
        assert!(
            self.heap.as_ptr() == table.heap.as_ptr()
                && self.heap.len() == table.heap.len()
                && self.is_text == table.is_text,
            "both lists of views have the same heap"
        );
        let view = |index: &u16| table.views.get(usize::from(*index)).copied().unwrap_or(0);
        self.views.extend(indexes.iter().map(view));
    }

    /// Repeats the last view until there are `count` views in all.
    pub(crate) fn repeat_last(&mut self, count: usize) {
        let last = self.views.last().copied().unwrap_or(0);
        self.views.resize(count, last);
    }

    /// Removes the views of unselected rows. There must be one view per row of the span of the runs.
    pub(crate) fn close_gaps(&mut self, runs: &SelectedRuns<'_>) {
        let count = runs.close_gaps(&mut self.views);
        self.views.truncate(count);
    }

    /// Arrow array of the values.
    ///
    /// # Panics
    /// If `nulls` has another length.
    pub(crate) fn into_array(self, nulls: Option<NullBuffer>) -> ArrayRef {
        assert!(nulls.as_ref().is_none_or(|nulls| nulls.len() == self.views.len()), "one null bit per view");
        let (views, heaps) = (ScalarBuffer::from(self.views), vec![self.heap]);
        if self.is_text {
            // SAFETY: every view lies in heap 0 and is UTF-8, by the invariant of this type.
            Arc::new(unsafe { StringViewArray::new_unchecked(views, heaps, nulls) })
        } else {
            // SAFETY: every view lies in heap 0, by the invariant of this type.
            Arc::new(unsafe { BinaryViewArray::new_unchecked(views, heaps, nulls) })
        }
    }
}

/// Appends a view per end. The values lie end to end in `values`. Returns true if all ends and values were valid.
#[inline(always)]
fn append_views(
    views: &mut Vec<u128>,
    heap: &[u8],
    values: Range<usize>,
    ends: &[u32],
    is_valid: impl Fn(Range<usize>) -> bool,
) -> bool {
    let mut start = values.start;
    let mut all_valid = true;
    views.extend(ends.iter().map(|end| {
        let value = start..(*end as usize).clamp(start, values.end);
        let valid = is_valid(value.clone());
        all_valid &= valid && value.end == *end as usize;
        start = value.end;
        if valid { view(heap, value) } else { 0 }
    }));
    all_valid
}

/// Whether no character of valid UTF-8 spans this offset.
#[inline(always)]
fn is_char_boundary(heap: &[u8], at: usize) -> bool {
    heap.get(at).is_none_or(|byte| byte & 0b1100_0000 != 0b1000_0000)
}

/// View of bytes in heap 0. The bytes must lie inside it and below 2 GiB.
#[inline(always)]
fn view(heap: &[u8], value: Range<usize>) -> u128 {
    let length = value.len();
    if length > INLINE_BYTES_MAX {
        let prefix = heap[value.clone()].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        return length as u128 | u128::from(prefix) << 32 | (value.start as u128) << 96;
    }
    // Loads 16 bytes if the heap has them, which is nearly always, and masks the bytes after the value.
    let bytes = match heap[value.start..].first_chunk() {
        Some(bytes) => u128::from_le_bytes(*bytes) & ((1 << (8 * length)) - 1),
        None => {
            let mut bytes = [0; 16];
            bytes[..length].copy_from_slice(&heap[value]);
            u128::from_le_bytes(bytes)
        }
    };
    bytes << 32 | length as u128
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::cast::AsArray;

    /// Strings that `ends` delimit in a heap, validated by Arrow, and whether all values were valid.
    fn texts(heap: &[u8], start: u32, ends: &[u32]) -> (Vec<String>, bool) {
        let mut views = Views::new(Buffer::from(heap), true, 0);
        let valid = views.append(start, ends);
        let array = views.into_array(None);
        let array = array.as_string_view();
        StringViewArray::try_new(array.views().clone(), array.data_buffers().to_vec(), None).unwrap();
        (array.iter().map(|text| text.unwrap().to_owned()).collect(), valid)
    }

    #[test]
    fn valid_values_are_unchanged() {
        let heap = "shortexactly12bytthirteen byteswith naïve→ characters".as_bytes();
        let ends = [0, 5, 17, 31, 31, heap.len() as u32];
        let (texts, valid) = texts(heap, 0, &ends);
        assert!(valid);
        assert_eq!(texts, ["", "short", "exactly12byt", "thirteen bytes", "", "with naïve→ characters"]);
    }

    #[test]
    fn invalid_values_become_empty() {
        let cut = "aé".as_bytes();
        assert_eq!(texts(cut, 0, &[2, 3]), (vec![String::new(), String::new()], false));
        assert_eq!(texts(b"ab\xffcd", 0, &[2, 3, 5]), (vec!["ab".into(), String::new(), "cd".into()], false));
        assert_eq!(texts(b"abc", 0, &[2, 1, 9]), (vec!["ab".into(), String::new(), "c".into()], false));
        assert_eq!(texts(b"abc", 9, &[1]), (vec![String::new()], false));
        for first in 0..=255_u8 {
            for ends in [[0, 1, 2], [1, 2, 3], [3, 0, 1], [1, 1, 3]] {
                texts(&[first, 0xc3, 0xa9], 0, &ends);
                texts(&[0xf0, 0x9f, first, 0x80], 1, &ends);
            }
        }
    }

    #[test]
    fn pushed_values_are_checked_one_by_one() {
        let mut views = Views::new(Buffer::from("aéb".as_bytes()), true, 0);
        assert!(views.push(0..1) && views.push(1..3) && !views.push(0..2) && !views.push(3..9));
        #[expect(clippy::reversed_empty_ranges, reason = "hostile")]
        let reversed = 3..1;
        assert!(!views.push(reversed));
        let mut repeated = views.empty_like(0);
        repeated.append_from(&views, &[1, 0, 77]);
        repeated.repeat_last(4);
        let array = repeated.into_array(None);
        assert_eq!(array.as_string_view().iter().flatten().collect::<Vec<_>>(), ["é", "a", "", ""]);
    }
}
