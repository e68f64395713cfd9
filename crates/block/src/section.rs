//! Sections: parts of a block. Each is read and verified as a whole.

use arrow_buffer::Buffer;
use taut_encoding::Extreme;

use crate::SectionError;

/// Alignment of sections, in a file and in memory.
pub const SECTION_ALIGNMENT: u64 = 64;

/// Offset, length and checksum of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionEntry {
    /// Offset in the file, a multiple of [`SECTION_ALIGNMENT`].
    pub offset: u64,
    /// Bytes of the section, without the zeros that pad it to the next one.
    pub length: u64,
    /// The [`checksum`] of these bytes.
    pub checksum: u64,
}

/// Access to the sections of one block.
pub trait Sections: Send + Sync {
    /// Returns the bytes of a section. They are aligned to 64 bytes, and [`SectionEntry::verify`] has verified them.
    ///
    /// # Errors
    /// If the section cannot be read, or its bytes differ from the bytes that were written.
    fn section(&self, index: u32) -> Result<Buffer, SectionError>;

    /// Looks up the extremes of a section in the cache. They summarize the least or the greatest numbers of each small
    /// group of consecutive rows (`numbers/extremes.rs` in `taut_encoding`). The section must contain a single column.
    /// The default is for implementations without a cache.
    fn extremes(&self, _index: u32, _extreme: Extreme) -> DerivedLookup {
        DerivedLookup::Bypass
    }

    /// Offers extremes to the cache after [`Sections::extremes`] returned [`DerivedLookup::Miss`]. The implementation
    /// may ignore them.
    fn cache_extremes(&self, _index: u32, _extreme: Extreme, _extremes: Buffer) {}
}

/// Sections in memory that their owner has verified, without a cache of extremes.
impl Sections for Vec<Buffer> {
    fn section(&self, index: u32) -> Result<Buffer, SectionError> {
        let missing = SectionError::Corrupt { section: index, expected: "a section with this number" };
        self.get(index as usize).cloned().ok_or(missing)
    }
}

/// Result of a cache lookup of data that is derived from a section and cached with it.
#[derive(Clone, Debug)]
pub enum DerivedLookup {
    /// The cached data.
    Hit(Buffer),
    /// Nothing is cached yet. The section is read often, so the caller should derive the data and offer it to the
    /// cache.
    Miss,
    /// Nothing is cached, and nothing should be offered.
    Bypass,
}

/// Checksum of a header or a section: XXH3, 64 bits.
pub fn checksum(bytes: &[u8]) -> u64 {
    twox_hash::XxHash3_64::oneshot(bytes)
}

impl SectionEntry {
    /// Verifies the bytes of section `index` against this entry.
    ///
    /// # Errors
    /// If the length or the checksum differs.
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

/// Rounds an offset up to a multiple of [`SECTION_ALIGNMENT`].
pub(crate) fn aligned(offset: u64) -> u64 {
    offset.next_multiple_of(SECTION_ALIGNMENT)
}
