//! Copies strings out of large or numerous buffers, so that batches hold only the memory that they need.
//!
//! An array of string views refers to the buffers with its longer strings. Every array that is copied from it refers to
//! the same buffers:
//!
//! ```text
//!   build side of a join, one buffer for each of its batches      [b0] [b1] [b2] ... [b468]
//!   each batch that the join returns                        views -> all 469 buffers
//!   build side of the next join, 469 such batches           views -> 469 * 469 buffers
//! ```
//!
//! With each join, the buffers of a batch would multiply by the number of batches. The time to gather and concatenate
//! rows, and to count memory, would multiply too. Therefore, if a column refers to too many buffers or bytes, its
//! strings are copied into new buffers.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, GenericByteViewArray};
use datafusion::arrow::datatypes::{BinaryViewType, ByteViewType, DataType, StringViewType};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::Result;

/// An array with at most this many buffers, and at most [`BYTES_MAX`] bytes in them, is never copied.
const BUFFERS_MAX: usize = 4;
/// Bytes in the buffers up to which an array is never copied if it has at most [`BUFFERS_MAX`] buffers.
const BYTES_MAX: usize = 1 << 20;
/// An array with at most [`BUFFERS_MAX`] buffers is copied if they have more than this many bytes for each byte that it
/// needs.
const BUFFER_BYTES_PER_USED_BYTE: usize = 4;

/// Copies the strings of columns that refer to too many buffers or bytes into new buffers.
///
/// # Errors
/// If Arrow rejects the batch with the new columns.
pub(super) fn compact(batch: RecordBatch) -> Result<RecordBatch> {
    if !batch.columns().iter().any(needs_copy) {
        return Ok(batch);
    }
    let columns = batch.columns().iter().map(|column| match needs_copy(column) {
        true => copy_strings(column),
        false => Arc::clone(column),
    });
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(batch.schema(), columns.collect(), &options)?)
}

fn needs_copy(column: &ArrayRef) -> bool {
    match column.data_type() {
        DataType::Utf8View => wastes_memory(column.as_string_view()),
        DataType::BinaryView => wastes_memory(column.as_binary_view()),
        _ => false,
    }
}

fn wastes_memory<T: ByteViewType + ?Sized>(views: &GenericByteViewArray<T>) -> bool {
    let buffers = views.data_buffers();
    let bytes: usize = buffers.iter().map(|buffer| buffer.len()).sum();
    if buffers.len() <= BUFFERS_MAX && bytes <= BYTES_MAX {
        return false;
    }
    // Counts a string once for each view that refers to it, because each view would get a copy. Rows with equal values
    // often share a string, for example one of a dictionary.
    let needed = views.total_buffer_bytes_used();
    match buffers.len() > BUFFERS_MAX {
        true => needed <= bytes.max(BYTES_MAX),
        false => needed < bytes / BUFFER_BYTES_PER_USED_BYTE,
    }
}

fn copy_strings(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Utf8View => Arc::new(column.as_byte_view::<StringViewType>().gc()),
        DataType::BinaryView => Arc::new(column.as_byte_view::<BinaryViewType>().gc()),
        _ => Arc::clone(column),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use datafusion::arrow::array::{Int64Array, StringViewArray};
    use datafusion::arrow::compute::{concat, take};

    use super::*;

    fn long_text(number: usize) -> String {
        format!("a string that is too long for its view: {number}")
    }

    fn batch(column: ArrayRef) -> RecordBatch {
        RecordBatch::try_from_iter([("column", column)]).unwrap()
    }

    #[test]
    fn rows_gathered_from_many_batches_refer_to_one_buffer() {
        let parts: Vec<_> = (0..100).map(|part| StringViewArray::from_iter([Some(long_text(part)), None])).collect();
        let parts: Vec<&dyn Array> = parts.iter().map(|part| part as &dyn Array).collect();
        let all = concat(&parts).unwrap();
        let some = take(&all, &Int64Array::from(vec![198, 3, 0, 2]), None).unwrap();
        assert_eq!(some.as_string_view().data_buffers().len(), 100, "otherwise there is nothing to test");
        let compacted = compact(batch(some)).unwrap();
        let found = compacted.column(0).as_string_view();
        assert_eq!(found.data_buffers().len(), 1);
        assert_eq!(
            found.iter().collect::<Vec<_>>(),
            [Some(&*long_text(99)), None, Some(&*long_text(0)), Some(&*long_text(1))]
        );
    }

    #[test]
    fn few_rows_of_a_large_batch_do_not_hold_its_memory() {
        let all = StringViewArray::from_iter_values((0..50_000).map(long_text));
        let few = batch(Arc::new(all.slice(7, 1)));
        let compacted = compact(few).unwrap();
        let found = compacted.column(0).as_string_view();
        assert_eq!(found.iter().collect::<Vec<_>>(), [Some(&*long_text(7))]);
        assert!(found.get_buffer_memory_size() < 1000, "{}", found.get_buffer_memory_size());
    }

    #[test]
    fn long_strings_that_many_rows_share_are_not_copied() {
        let parts: Vec<_> = (0..10).map(|_| StringViewArray::from_iter_values(["x".repeat(10_000)])).collect();
        let parts: Vec<&dyn Array> = parts.iter().map(|part| part as &dyn Array).collect();
        let rows = Int64Array::from_iter_values((0..8_192).map(|row| row % 10));
        let shared = take(&concat(&parts).unwrap(), &rows, None).unwrap();
        let compacted = compact(batch(shared)).unwrap();
        assert_eq!(compacted.column(0).as_string_view().data_buffers().len(), 10);
    }

    #[test]
    fn batches_without_strings_keep_their_rows() {
        let options = RecordBatchOptions::new().with_row_count(Some(3));
        let empty = Arc::new(datafusion::arrow::datatypes::Schema::empty());
        let batch = RecordBatch::try_new_with_options(empty, Vec::new(), &options).unwrap();
        assert_eq!(compact(batch).unwrap().num_rows(), 3);
    }
}
