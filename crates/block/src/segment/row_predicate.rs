//! Evaluates one row predicate: once per dictionary entry if its only column has a small enough dictionary, else on
//! decoded rows.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray, new_null_array};
use arrow_buffer::BooleanBuffer;
use taut_encoding::Bitmap;
use taut_index::RowRanges;
use taut_types::RowPredicate;

use super::SegmentReader;
use crate::{AccessPaths, BlockError, ScanReport, Selection};

/// Maximum number of decoded rows on which a row predicate is evaluated at a time.
const BATCH_ROWS: usize = 8192;

impl SegmentReader<'_> {
    /// Deselects rows that fail a row predicate.
    pub(super) fn evaluate_on_rows(
        &mut self,
        predicate: &Arc<dyn RowPredicate>,
        ranges: &RowRanges,
        selection: &mut Bitmap,
        report: &mut ScanReport,
    ) -> Result<(), BlockError> {
        if let [column] = predicate.columns() {
            let selected = selection.count();
            let (piece, ordinal) = self.piece(*column)?;
            if let Some(dictionary) = piece.dictionary(ordinal)
                && dictionary.len() <= selected
                && let Some((flags, null_passes)) = evaluate_on_entries(predicate, &dictionary)
            {
                report.dictionary_predicates += 1;
                report.paths |= AccessPaths::DICTIONARY;
                return piece.filter_codes(ordinal, &flags, null_passes, ranges, selection);
            }
        }
        report.row_predicates += 1;
        report.paths |= AccessPaths::DECODED_SCAN;
        let columns = predicate.columns().to_vec();
        let selected = Selection::from_bitmap(selection.clone());
        for first in (0..selected.len()).step_by(BATCH_ROWS) {
            let rows = selected.slice(first..selected.len().min(first + BATCH_ROWS));
            let arrays = self.read(&rows, &columns)?;
            let results = predicate.evaluate(&arrays, rows.len())?;
            let passes = match results.nulls() {
                Some(validity) => results.values() & validity.inner(),
                None => results.values().clone(),
            };
            rows.deselect_failing(&passes, selection);
        }
        Ok(())
    }
}

fn is_true(results: &BooleanArray, row: usize) -> bool {
    results.is_valid(row) && results.value(row)
}

/// Results of a row predicate for each entry of a dictionary, and for null. Returns `None` if the predicate returns an
/// error. The error may concern an entry that no selected row has, so it is not returned.
fn evaluate_on_entries(predicate: &Arc<dyn RowPredicate>, dictionary: &ArrayRef) -> Option<(BooleanBuffer, bool)> {
    let results = predicate.evaluate(std::slice::from_ref(dictionary), dictionary.len()).ok()?;
    let null = predicate.evaluate(&[new_null_array(dictionary.data_type(), 1)], 1).ok()?;
    let flags = BooleanBuffer::collect_bool(dictionary.len(), |entry| is_true(&results, entry));
    Some((flags, is_true(&null, 0)))
}
