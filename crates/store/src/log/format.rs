//! Encoding of heads and records. See the docs of the module `log` for the layout.

use std::hash::Hasher;

use twox_hash::XxHash3_64;

/// Bytes of the head of a file.
pub(super) const HEAD_BYTES: usize = 56;
/// Bytes of the header of a record, before its payload.
pub(super) const RECORD_BYTES: usize = 40;

pub(super) const RECORD_MAGIC: [u8; 4] = [0xd7, b'r', b'e', b'c'];

const HEAD_MAGIC: [u8; 8] = *b"TAUTLOG1";
const HEAD_CHECKSUM_AT: usize = 48;
const RECORD_DURABLE_AT: usize = 24;
const RECORD_CHECKSUM_AT: usize = 32;

// Offsets of the fields of a head, also used in messages.
pub(super) const DATABASE_AT: usize = 8;
pub(super) const NUMBER_AT: usize = 16;
pub(super) const LAST_SEQUENCE_AT: usize = 24;
pub(super) const PREVIOUS_BYTES_AT: usize = 32;
const INITIAL_BYTES_AT: usize = 40;

/// The head of a log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Id of the database.
    pub database: u64,
    /// Number of the file.
    pub number: u64,
    /// Sequence number of the last record before this file.
    pub last_sequence: u64,
    /// Number of valid bytes in the previous file.
    pub previous_bytes: u64,
    /// Length of this file when it was renamed into place.
    pub initial_bytes: u64,
}

impl Head {
    /// Encodes the head.
    pub fn to_bytes(self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(&HEAD_MAGIC);
        let fields = [self.database, self.number, self.last_sequence, self.previous_bytes, self.initial_bytes];
        for (field, to) in fields.into_iter().zip(bytes[8..HEAD_CHECKSUM_AT].chunks_exact_mut(8)) {
            to.copy_from_slice(&field.to_le_bytes());
        }
        let checksum = XxHash3_64::oneshot(&bytes[..HEAD_CHECKSUM_AT]);
        bytes[HEAD_CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes a head. On failure, returns an offset and what was expected there.
    pub fn parse(bytes: &[u8; HEAD_BYTES]) -> Result<Self, (usize, &'static str)> {
        if bytes[..8] != HEAD_MAGIC {
            return Err((0, "\"TAUTLOG1\""));
        }
        if number_at(bytes, HEAD_CHECKSUM_AT) != XxHash3_64::oneshot(&bytes[..HEAD_CHECKSUM_AT]) {
            return Err((0, "the head of a log file, with the right checksum"));
        }
        let head = Self {
            database: number_at(bytes, DATABASE_AT),
            number: number_at(bytes, NUMBER_AT),
            last_sequence: number_at(bytes, LAST_SEQUENCE_AT),
            previous_bytes: number_at(bytes, PREVIOUS_BYTES_AT),
            initial_bytes: number_at(bytes, INITIAL_BYTES_AT),
        };
        if head.initial_bytes < HEAD_BYTES as u64 {
            return Err((INITIAL_BYTES_AT, "a length that includes the head"));
        }
        Ok(head)
    }

    /// The seed of the checksums of the file's records.
    pub fn seed(self) -> u64 {
        number_at(&self.to_bytes(), HEAD_CHECKSUM_AT)
    }
}

/// Appends a record whose fields `durable` (see [`ParsedRecord::durable`]) and `checksum` are zero until [`seal`] fills
/// them in. The payload is the concatenation of the parts.
pub(super) fn frame(into: &mut Vec<u8>, sequence: u64, payload: &[&[u8]]) {
    let length: usize = payload.iter().map(|part| part.len()).sum();
    into.reserve(RECORD_BYTES + length);
    into.extend_from_slice(&RECORD_MAGIC);
    into.extend_from_slice(&[0; 4]);
    into.extend_from_slice(&(length as u64).to_le_bytes());
    into.extend_from_slice(&sequence.to_le_bytes());
    into.extend_from_slice(&[0; RECORD_BYTES - RECORD_DURABLE_AT]);
    payload.iter().for_each(|part| into.extend_from_slice(part));
}

/// Fills in `durable` and the checksum of each record in `framed`.
pub(super) fn seal(mut framed: &mut [u8], durable: u64, seed: u64) {
    while !framed.is_empty() {
        // The length is right: `frame` wrote it from a slice in memory.
        let length = number_at(framed, 8) as usize;
        let (record, rest) = framed.split_at_mut(RECORD_BYTES + length);
        record[RECORD_DURABLE_AT..RECORD_CHECKSUM_AT].copy_from_slice(&durable.to_le_bytes());
        let checksum = checksum(record, seed);
        record[RECORD_CHECKSUM_AT..RECORD_BYTES].copy_from_slice(&checksum.to_le_bytes());
        framed = rest;
    }
}

/// Payloads of records that [`frame`] wrote.
pub(super) fn payloads(mut framed: &[u8]) -> Vec<&[u8]> {
    let mut payloads = Vec::new();
    while !framed.is_empty() {
        let (record, rest) = framed.split_at(RECORD_BYTES + number_at(framed, 8) as usize);
        payloads.push(&record[RECORD_BYTES..]);
        framed = rest;
    }
    payloads
}

/// A record with a valid checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ParsedRecord<'a> {
    /// Sequence number of the record.
    pub sequence: u64,
    /// Number of bytes of the file that were synced before the record was written.
    pub durable: u64,
    /// The bytes that were appended.
    pub payload: &'a [u8],
}

impl<'a> ParsedRecord<'a> {
    /// Parses the record at the start of the bytes. On failure, returns what was expected there.
    pub fn parse(bytes: &'a [u8], seed: u64) -> Result<Self, &'static str> {
        if bytes.len() < RECORD_BYTES {
            return Err("a whole record");
        }
        if bytes[..4] != RECORD_MAGIC {
            return Err("the magic number of a record");
        }
        if bytes[4..8] != [0; 4] {
            return Err("a record with zeros after its magic number");
        }
        let length = usize::try_from(number_at(bytes, 8)).ok();
        let record = length.and_then(|length| bytes.get(..length.checked_add(RECORD_BYTES)?));
        let record = record.ok_or("a record that ends within the file")?;
        if number_at(record, RECORD_CHECKSUM_AT) != checksum(record, seed) {
            return Err("a record with the right checksum");
        }
        let (sequence, durable) = (number_at(record, 16), number_at(record, RECORD_DURABLE_AT));
        Ok(Self { sequence, durable, payload: &record[RECORD_BYTES..] })
    }
}

/// The `durable` field of a record, unchecked. `None` if there are too few bytes.
pub(super) fn peek_durable(bytes: &[u8]) -> Option<u64> {
    (bytes.len() >= RECORD_BYTES).then(|| number_at(bytes, RECORD_DURABLE_AT))
}

fn checksum(record: &[u8], seed: u64) -> u64 {
    let mut hasher = XxHash3_64::with_seed(seed);
    hasher.write(&record[..RECORD_CHECKSUM_AT]);
    hasher.write(&record[RECORD_BYTES..]);
    hasher.finish()
}

/// The number at an offset. Panics with fewer than eight bytes.
fn number_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}
