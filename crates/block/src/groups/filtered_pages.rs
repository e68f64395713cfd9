//! Visits the pages of a row layout that a predicate must read: pages with rows that are still selected.

use std::ops::Range;

use taut_encoding::Bitmap;
use taut_index::RowRanges;

use super::pages::Directory;
use crate::BlockError;

/// Pages of a row layout, filtered one after the other. `P` is a checked page.
pub(crate) trait FilteredPages<P> {
    fn directory(&self) -> &Directory;

    /// Loads a page of `rows` rows. Checks the parts of it that a filter reads.
    fn load_page(&mut self, number: usize, rows: usize) -> Result<P, BlockError>;

    /// Splits `ranges` at page boundaries, and calls `visit` for each part with selected rows. The arguments of `visit`
    /// are `self`, the page, the rows of the part, the first row of the page, and the selection. Rows are positions in
    /// the segment.
    fn visit_selected_pages(
        &mut self,
        ranges: &RowRanges,
        selection: &mut Bitmap,
        mut visit: impl FnMut(&mut Self, &P, Range<usize>, usize, &mut Bitmap) -> Result<(), BlockError>,
    ) -> Result<(), BlockError> {
        for number in 0..self.directory().page_ends.len() {
            let rows = self.directory().page_rows(number);
            let mut loaded: Option<P> = None;
            for part in ranges.within(rows.start as u32..rows.end as u32) {
                let part = part.start as usize..part.end as usize;
                if selection.is_range_empty(part.clone()) {
                    continue;
                }
                let page = match loaded.take() {
                    Some(page) => page,
                    None => self.load_page(number, rows.len())?,
                };
                visit(self, &page, part, rows.start, selection)?;
                loaded = Some(page);
            }
        }
        Ok(())
    }

    /// Calls `admits` for each selected row in `ranges`, and deselects the rows for which it returns false. The
    /// arguments of `admits` are `self`, the page, and the row in the page.
    fn retain_selected(
        &mut self,
        ranges: &RowRanges,
        selection: &mut Bitmap,
        mut admits: impl FnMut(&mut Self, &P, usize) -> Result<bool, BlockError>,
    ) -> Result<(), BlockError> {
        let mut positions = vec![];
        self.visit_selected_pages(ranges, selection, |piece, page, rows, first, selection| {
            positions.clear();
            selection.append_positions(rows, &mut positions);
            for position in &positions {
                let row = *position as usize;
                if !admits(piece, page, row - first)? {
                    selection.clear(row);
                }
            }
            Ok(())
        })
    }
}
