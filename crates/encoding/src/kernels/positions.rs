//! Converts one bit per row to the positions of the rows whose bit is set.

#[cfg(target_arch = "x86_64")]
use arrow_buffer::ToByteSlice;

#[cfg(target_arch = "x86_64")]
use crate::kernels::InstructionSet;

/// Appends the positions of the set bits, ascending and counted from `first`.
pub(crate) fn append_positions(words: &[u64], first: u32, positions: &mut Vec<u32>) {
    #[cfg(target_arch = "x86_64")]
    match InstructionSet::current() {
        InstructionSet::Portable => {}
        // SAFETY: the machine has the instructions of the current set.
        InstructionSet::Avx2 => return unsafe { append_with_avx2(words, first, positions) },
        // SAFETY: as above.
        InstructionSet::Avx512 => return unsafe { append_with_avx512(words, first, positions) },
    }
    positions.reserve(words.iter().map(|word| word.count_ones() as usize).sum());
    for (word, base) in words.iter().zip((first..).step_by(64)) {
        let mut word = *word;
        while word != 0 {
            positions.push(base + word.trailing_zeros());
            word &= word - 1;
        }
    }
}

/// Words of a line: 64 bytes that are read together.
#[cfg(target_arch = "x86_64")]
const LINE_WORDS: usize = 8;
/// Maximum nonzero bytes of a line that are found one by one. With more, converting all bytes takes less time.
#[cfg(target_arch = "x86_64")]
const SPARSE_BYTES_MAX: u32 = 44;

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,popcnt")]
fn append_with_avx2(words: &[u64], first: u32, positions: &mut Vec<u32>) {
    let (lines, rest) = words.as_chunks::<LINE_WORDS>();
    for (line, first) in lines.iter().zip((first..).step_by(64 * LINE_WORDS)) {
        append_line(line, first, positions);
    }
    if !rest.is_empty() {
        let mut line = [0; LINE_WORDS];
        line[..rest.len()].copy_from_slice(rest);
        append_line(&line, first + 64 * (words.len() - rest.len()) as u32, positions);
    }
}

/// Looks up the positions of the set bits of each nonzero byte, and widens them. Writes whole registers: the positions
/// of the next byte overwrite the surplus cells.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2,bmi1,popcnt")]
fn append_line(line: &[u64; LINE_WORDS], first: u32, positions: &mut Vec<u32>) {
    use std::arch::x86_64::*;

    let zeros = |half: usize| {
        // SAFETY: a half has the 32 bytes that are loaded; the load needs no alignment.
        let bytes = unsafe { _mm256_loadu_si256(line.as_ptr().cast::<__m256i>().add(half)) };
        _mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, _mm256_setzero_si256())) as u32
    };
    let mut remaining = !(u64::from(zeros(0)) | u64::from(zeros(1)) << 32);
    if remaining == 0 {
        return;
    }
    positions.reserve(64 * LINE_WORDS + 8);
    let spare = positions.spare_capacity_mut();
    let mut written = 0;
    let mut write = |byte: u8, base: u32| {
        let offsets = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(BIT_POSITIONS[byte as usize] as i64));
        let rows = _mm256_add_epi32(offsets, _mm256_set1_epi32(base as i32));
        let cells = &mut spare[written..written + 8];
        // SAFETY: the slice has the 32 bytes that are written; the store needs no alignment.
        unsafe { _mm256_storeu_si256(cells.as_mut_ptr().cast(), rows) };
        written += byte.count_ones() as usize;
    };
    let bytes = line.to_byte_slice();
    if remaining.count_ones() > SPARSE_BYTES_MAX {
        for (byte, base) in bytes.iter().zip((first..).step_by(8)) {
            write(*byte, base);
        }
    } else {
        while remaining != 0 {
            let index = remaining.trailing_zeros();
            write(bytes[index as usize], first + 8 * index);
            remaining &= remaining - 1;
        }
    }
    // SAFETY: as many positions were written one after the other as there are bits, all in the spare capacity.
    unsafe { positions.set_len(positions.len() + written) };
}

/// Positions of the set bits of each byte value, from the lowest on. A position takes one byte of the entry.
#[cfg(target_arch = "x86_64")]
pub(super) static BIT_POSITIONS: [u64; 256] = {
    let mut positions = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut bit, mut count) = (0, 0);
        while bit < 8 {
            if byte >> bit & 1 == 1 {
                positions[byte] |= bit << (8 * count);
                count += 1;
            }
            bit += 1;
        }
        byte += 1;
    }
    positions
};

/// Compacts the positions of the set bits of a word in a register of bytes, and widens them. Writes up to 64 cells: the
/// positions of the next word overwrite the surplus cells.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2,popcnt")]
fn append_with_avx512(words: &[u64], first: u32, positions: &mut Vec<u32>) {
    use std::arch::x86_64::*;

    /// Words that are checked for zero together.
    const CHECKED_WORDS: usize = 8;
    let all_bits: [u8; 64] = std::array::from_fn(|bit| bit as u8);
    // SAFETY: the array has the 64 bytes that are loaded; the load needs no alignment.
    let all_bits = unsafe { _mm512_loadu_si512(all_bits.as_ptr().cast()) };
    for (words, first) in words.chunks(CHECKED_WORDS).zip((first..).step_by(64 * CHECKED_WORDS)) {
        let used = u8::MAX >> (CHECKED_WORDS - words.len());
        // SAFETY: as many words are loaded as the slice has.
        let loaded = unsafe { _mm512_maskz_loadu_epi64(used, words.as_ptr().cast()) };
        let mut remaining = _mm512_test_epi64_mask(loaded, loaded);
        positions.reserve(if remaining == 0 { 0 } else { 64 * CHECKED_WORDS + 64 });
        let spare = positions.spare_capacity_mut();
        let mut written = 0;
        while remaining != 0 {
            let index = remaining.trailing_zeros();
            let word = words[index as usize];
            let base = _mm512_set1_epi32((first + 64 * index) as i32);
            let bit_offsets = _mm512_maskz_compress_epi8(word, all_bits);
            let cells = &mut spare[written..written + 64];
            let mut store = |part: usize, offsets| {
                let rows = _mm512_add_epi32(base, _mm512_cvtepu8_epi32(offsets));
                let cells = &mut cells[part * 16..part * 16 + 16];
                // SAFETY: the slice has the 64 bytes that are stored; the store needs no alignment.
                unsafe { _mm512_storeu_si512(cells.as_mut_ptr().cast(), rows) };
            };
            store(0, _mm512_castsi512_si128(bit_offsets));
            if word.count_ones() > 16 {
                store(1, _mm512_extracti32x4_epi32::<1>(bit_offsets));
                store(2, _mm512_extracti32x4_epi32::<2>(bit_offsets));
                store(3, _mm512_extracti32x4_epi32::<3>(bit_offsets));
            }
            written += word.count_ones() as usize;
            remaining &= remaining - 1;
        }
        // SAFETY: as many positions were written one after the other as there are bits, all in the spare capacity.
        unsafe { positions.set_len(positions.len() + written) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::InstructionSet;
    use taut_testkit::Random;

    #[test]
    fn positions_match_the_set_bits() {
        let mut random = Random(5);
        let mut next = || random.number();
        let mut words: Vec<u64> = (0..4)
            .flat_map(|_| [next(), next() & next() & next() & next(), next() | next() | next() | next(), 0, u64::MAX])
            .collect();
        words.extend([0; 9]);
        words.extend([1, 1 << 63, 0xffff, 0x1_ffff, 0, 0, 0, 1 << 17]);
        InstructionSet::for_each_available(|set| {
            for length in 0..=words.len() {
                for words in [&words[..length], &words[words.len() - length..]] {
                    let mut found = vec![7];
                    append_positions(words, 640, &mut found);
                    let is_set = |bit: &usize| words[bit / 64] >> (bit % 64) & 1 != 0;
                    let expected = (0..64 * length).filter(is_set).map(|bit| 640 + bit as u32);
                    assert_eq!(found, [7].into_iter().chain(expected).collect::<Vec<_>>(), "{set:?}, {length} words");
                }
            }
        });
    }
}
