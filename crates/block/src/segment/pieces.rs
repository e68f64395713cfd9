//! The pieces of a segment that a reader has open. Pieces are opened on first use, and stay open as long as the reader
//! exists.

use hashbrown::hash_map::Entry;
use taut_encoding::prefetch;
use taut_types::{ColumnIndex, GroupKind};

use super::SegmentReader;
use crate::BlockError;
use crate::groups::Piece;

impl<'a> SegmentReader<'a> {
    /// Opens the pieces of those groups that store a single column. The first cache line of each is prefetched before
    /// any is parsed. If no cache holds them, reading one row of ten columns takes 4 % less time.
    pub(super) fn open_columns(&mut self, groups: &[usize]) -> Result<(), BlockError> {
        let header = &self.block.header;
        let mut read = Vec::with_capacity(groups.len());
        for group in groups {
            if header.kind(*group) == GroupKind::Column && !self.pieces.contains_key(group) {
                let section = header.piece(self.segment, *group).start;
                read.push((*group, section, self.sections.section(section)?));
            }
        }
        read.iter().for_each(|(.., bytes)| prefetch(bytes.get(..1).unwrap_or_default()));
        self.pieces.reserve(read.len());
        for (group, section, bytes) in read {
            let logical = self.block.column_type(header.first_column(group));
            self.pieces.insert(group, Piece::open_column(section, bytes, logical, self.rows)?);
        }
        Ok(())
    }

    pub(crate) fn piece(&mut self, column: ColumnIndex) -> Result<(&mut Piece<'a>, usize), BlockError> {
        let (group, ordinal) = self.block.header.group_and_ordinal(column.index());
        Ok((self.piece_of(group)?, ordinal))
    }

    pub(super) fn piece_of(&mut self, group: usize) -> Result<&mut Piece<'a>, BlockError> {
        match self.pieces.entry(group) {
            Entry::Occupied(piece) => Ok(piece.into_mut()),
            Entry::Vacant(entry) => Ok(entry.insert(self.block.open_piece(self.sections, self.segment, group)?)),
        }
    }
}
