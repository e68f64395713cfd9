//! The symbol table of an `fsst` field: one to eight bytes for each of up to 255 codes.
//!
//! ```text
//! offset  size   field
//! 0       4      count       n, number of symbols, 0..=255
//! 4       n      lengths     of the symbols, 1..=8 bytes each
//! 4 + n   n * 8  symbols     bytes of each, padded with zeros
//! ```
//!
//! A compressed value is a sequence of codes. Code 255 is an escape: the byte after it is stored unchanged. `fsst-rs`
//! compresses values. This module decompresses them and never indexes out of bounds, even if bytes are corrupt.

use fsst::Compressor;

const ESCAPE: u8 = 255;
const SYMBOL_BYTES: usize = 8;

/// Symbol table for decompression.
#[derive(Debug)]
pub(crate) struct Symbols {
    bytes: Box<[[u8; SYMBOL_BYTES]; 256]>,
    lengths: Box<[u8; 256]>,
}

/// Encodes the symbol table of a compressor.
pub(crate) fn encode_table(compressor: &Compressor) -> Vec<u8> {
    let (symbols, lengths) = (compressor.symbol_table(), compressor.symbol_lengths());
    let count = symbols.len().min(lengths.len());
    let mut table = (count as u32).to_le_bytes().to_vec();
    table.extend_from_slice(&lengths[..count]);
    table.extend(symbols[..count].iter().flat_map(|symbol| symbol.to_u64().to_le_bytes()));
    table
}

impl Symbols {
    /// Parses an encoded symbol table. Returns `None` if it is corrupt.
    pub fn parse(table: &[u8]) -> Option<Self> {
        let (count, rest) = table.split_first_chunk::<4>()?;
        let count = u32::from_le_bytes(*count) as usize;
        if count > usize::from(ESCAPE) || rest.len() != count * (1 + SYMBOL_BYTES) {
            return None;
        }
        let (lengths, symbols) = rest.split_at(count);
        let mut parsed = Self { bytes: Box::new([[0; SYMBOL_BYTES]; 256]), lengths: Box::new([0; 256]) };
        for (code, (length, symbol)) in lengths.iter().zip(symbols.chunks_exact(SYMBOL_BYTES)).enumerate() {
            if !(1..=SYMBOL_BYTES as u8).contains(length) {
                return None;
            }
            parsed.lengths[code] = *length;
            parsed.bytes[code].copy_from_slice(symbol);
        }
        Some(parsed)
    }

    /// Maximum bytes of a value of `codes` codes.
    pub const fn bytes_max(codes: usize) -> usize {
        codes * SYMBOL_BYTES
    }

    /// Decompresses a value to the front of `output`, which has [`Symbols::bytes_max`] bytes. Returns the length of the
    /// value. A code without a symbol, or an escape at the end, yields no bytes.
    #[inline]
    pub fn decompress(&self, codes: &[u8], output: &mut [u8]) -> usize {
        let mut at = 0;
        let mut rest = codes;
        while let Some((code, tail)) = rest.split_first() {
            rest = tail;
            if *code == ESCAPE {
                let Some((byte, tail)) = rest.split_first() else { break };
                output[at] = *byte;
                (at, rest) = (at + 1, tail);
            } else {
                let code = usize::from(*code);
                output[at..at + SYMBOL_BYTES].copy_from_slice(&self.bytes[code]);
                at += usize::from(self.lengths[code]);
            }
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_round_trip() {
        let values: Vec<String> = (0..500).map(|n| format!("https://example.org/page/{n}/é\0{}", n * 7)).collect();
        let lines: Vec<&[u8]> = values.iter().map(|value| value.as_bytes()).collect();
        let compressor = Compressor::train(&lines);
        let symbols = Symbols::parse(&encode_table(&compressor)).unwrap();
        for value in &lines {
            let codes = compressor.compress(value);
            let mut output = vec![0; Symbols::bytes_max(codes.len())];
            let length = symbols.decompress(&codes, &mut output);
            assert_eq!(&output[..length], *value);
        }
    }

    #[test]
    fn hostile_tables_and_codes_never_panic() {
        assert!(Symbols::parse(&[]).is_none() && Symbols::parse(&[1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0]).is_none());
        let symbols = Symbols::parse(&[1, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        let mut output = [0; Symbols::bytes_max(5)];
        let length = symbols.decompress(&[0, 7, 255, 9, 255], &mut output);
        assert_eq!(output[..length], [1, 2, 3, 9]);
    }
}
