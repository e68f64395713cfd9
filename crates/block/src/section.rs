//! Sections: the parts of a block that are read and checked as a whole.

use arrow_buffer::Buffer;
use taut_encoding::Extreme;

use crate::SectionError;

/// Sections begin at multiples of this in a file, and in memory.
pub const SECTION_ALIGNMENT: u64 = 64;

/// Where a section lies, and what its bytes hash to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionEntry {
    /// Offset in the file, a multiple of [`SECTION_ALIGNMENT`].
    pub offset: u64,
    /// Bytes, without the zeros up to the next section.
    pub length: u64,
    /// [`checksum`] of the bytes.
    pub checksum: u64,
}

/// How the sections of one block reach it.
pub trait Sections: Send + Sync {
    /// The bytes of a section, as long as its entry says, 64-byte aligned, and checked by [`SectionEntry::verify`].
    ///
    /// # Errors
    /// When they cannot be read, or are not those that were written.
    fn section(&self, index: u32) -> Result<Buffer, SectionError>;

    /// The extremes of the numbers of a section, one column, where they are kept. Who keeps none need not write this.
    fn extremes(&self, _index: u32, _extreme: Extreme) -> Beside {
        Beside::Nothing
    }

    /// Takes extremes to keep, where [`Sections::extremes`] said [`Beside::Missed`]. It need not.
    fn keep_extremes(&self, _index: u32, _extreme: Extreme, _extremes: Buffer) {}
}

/// What is kept beside a section.
#[derive(Clone, Debug)]
pub enum Beside {
    /// What was made of it.
    Kept(Buffer),
    /// Nothing yet, and the section is read again and again: what is made of it will be of use.
    Missed,
    /// Nothing, and nothing is wanted.
    Nothing,
}

/// The hash that guards headers and sections: XXH3, 64 bits.
pub fn checksum(bytes: &[u8]) -> u64 {
    twox_hash::XxHash3_64::oneshot(bytes)
}

impl SectionEntry {
    /// Checks the bytes of section `index` against this entry.
    ///
    /// # Errors
    /// When length or checksum differ.
    pub fn verify(&self, index: u32, bytes: &[u8]) -> Result<(), SectionError> {
        let expected = if bytes.len() as u64 != self.length {
            "as many bytes as the header says"
        } else if checksum(bytes) != self.checksum {
            "the checksum that the header says"
        } else {
            return Ok(());
        };
        Err(SectionError::Corrupt { section: index, expected })
    }
}

/// The next multiple of [`SECTION_ALIGNMENT`].
pub(crate) fn aligned(offset: u64) -> u64 {
    offset.next_multiple_of(SECTION_ALIGNMENT)
}
