//! Number and length of a run in one word: a layout of `run_length`.
//!
//! ```text
//! part: runs * 4 or 8   words, little-endian:
//!         bits 0 .. width    number - base
//!         bits width ..      rows of the run - 1
//! ```
//!
//! The head holds `base`, the least number, `width`, and in `entries` the bits of a word: 32, or 64 if the number needs
//! them. A run too long for the remaining bits is continued by a word with the same number. `parse` sums up the ends of
//! runs once.

use std::ops::Range;

use arrow_buffer::{ScalarBuffer, ToByteSlice};
use taut_types::Encoding;

use crate::head::{CorruptChunk, Head, Parts, Writer, padded};
use crate::kernels::Native;
use crate::numbers::delta::step;
use crate::packed;
use crate::run_ends::RunEnds;

/// Bits of the shorter words.
const SHORT_WORD_BITS: usize = 32;
const LONG_WORD_BITS: usize = 64;
/// Maximum bits of the length of a run. A chunk has at most 2^16 rows.
const RUN_BITS_MAX: usize = 16;

/// Numbers of runs, in the low bits of words.
#[derive(Clone, Debug)]
pub(crate) struct RunWords {
    base: i128,
    width: usize,
    words: PackedWords,
}

#[derive(Clone, Debug)]
enum PackedWords {
    Short(ScalarBuffer<u32>),
    Long(ScalarBuffer<u64>),
}

/// Layout of runs in words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunWordsPlan {
    width: usize,
    word_bits: usize,
    run_bits: usize,
    words: usize,
}

impl RunWordsPlan {
    /// Plan with the fewest bytes for runs that begin at these rows. Returns `None` if the numbers leave no bits for
    /// lengths.
    pub(crate) fn for_runs<N: Native>(starts: &[usize], rows: usize, (min, max): (N, N)) -> Option<Self> {
        let width = packed::width_of(min, max)?;
        let plan = |word_bits: usize| {
            let run_bits = word_bits.checked_sub(width)?.min(RUN_BITS_MAX);
            let ends = starts.iter().skip(1).copied().chain([rows]);
            let words = ends.zip(starts).map(|(end, start)| ((end - start - 1) >> run_bits) + 1).sum();
            (run_bits > 0).then_some(Self { width, word_bits, run_bits, words })
        };
        [SHORT_WORD_BITS, LONG_WORD_BITS].into_iter().filter_map(plan).min_by_key(Self::bytes)
    }

    /// Bytes of the part.
    pub(crate) fn bytes(&self) -> usize {
        padded(self.words * self.word_bits / 8)
    }
}

/// Lower bound of the bytes of `runs` runs.
pub(crate) fn bytes_least(runs: usize) -> usize {
    padded(runs * SHORT_WORD_BITS / 8)
}

/// Writes numbers whose runs begin at these rows as one part, as planned, and sets the head fields that describe it.
pub(crate) fn write<N: Native>(
    values: &[N],
    min: N,
    starts: &[usize],
    plan: RunWordsPlan,
    head: &mut Head,
    writer: &mut Writer,
) {
    (head.inner, head.base, head.width) = (Some(Encoding::RunLength), min.to_number(), plan.width);
    (head.entries, head.runs) = (plan.word_bits, plan.words);
    let mut words: Vec<u64> = Vec::with_capacity(plan.words);
    for (index, start) in starts.iter().enumerate() {
        let (mut row, end) = (*start, starts.get(index + 1).copied().unwrap_or(values.len()));
        while row < end {
            let rows = (end - row).min(1 << plan.run_bits);
            words.push(step(min, values[row]) as u64 | (rows as u64 - 1) << plan.width);
            row += rows;
        }
    }
    if plan.word_bits == SHORT_WORD_BITS {
        // `RunWordsPlan::for_runs` keeps all bits of a word within 32.
        let words: Vec<u32> = words.iter().map(|word| *word as u32).collect();
        writer.push_part(words.as_slice().to_byte_slice());
    } else {
        writer.push_part(words.as_slice().to_byte_slice());
    }
}

impl RunWords {
    /// Reads the words, and sums up the ends of their runs.
    pub(crate) fn parse(head: &Head, parts: &mut Parts) -> Result<(RunEnds, Self), CorruptChunk> {
        let at = parts.at();
        let words = match head.entries {
            SHORT_WORD_BITS => PackedWords::Short(ScalarBuffer::from(parts.read_part(4 * head.runs, "words of runs")?)),
            LONG_WORD_BITS => PackedWords::Long(ScalarBuffer::from(parts.read_part(8 * head.runs, "words of runs")?)),
            _ => return Err(CorruptChunk { at: 12, expected: "words of 32 or 64 bits" }),
        };
        if head.width >= head.entries {
            return Err(CorruptChunk { at: 2, expected: "words with bits left for the rows of a run" });
        }
        let width = head.width;
        let ends = match &words {
            PackedWords::Short(words) => {
                RunEnds::from_lengths(words.iter().map(|word| u64::from(*word >> width)), head.rows)
            }
            PackedWords::Long(words) => RunEnds::from_lengths(words.iter().map(|word| *word >> width), head.rows),
        };
        let ends = ends.ok_or(CorruptChunk { at, expected: "runs whose lengths add up to the number of rows" })?;
        Ok((ends, Self { base: head.base, width, words }))
    }

    /// Bits of a word.
    pub(crate) fn word_bits(&self) -> usize {
        match self.words {
            PackedWords::Short(_) => SHORT_WORD_BITS,
            PackedWords::Long(_) => LONG_WORD_BITS,
        }
    }

    /// Number of a run.
    pub(crate) fn value(&self, run: usize) -> i128 {
        let word = match &self.words {
            PackedWords::Short(words) => words[run].into(),
            PackedWords::Long(words) => words[run],
        };
        self.base.wrapping_add((word & ((1 << self.width) - 1)).into())
    }

    /// Appends the numbers of a range of runs.
    pub(crate) fn append<O: Native>(&self, runs: Range<usize>, out: &mut Vec<O>) {
        let (base, mask) = (O::from_number(self.base), (1_u64 << self.width) - 1);
        match &self.words {
            PackedWords::Short(words) => out.extend(words[runs].iter().map(|word| base.plus(u64::from(*word) & mask))),
            PackedWords::Long(words) => out.extend(words[runs].iter().map(|word| base.plus(*word & mask))),
        }
    }
}
