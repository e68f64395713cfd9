//! CSB+-trees: map ranges of keys to rows (Rao and Ross, 2000).
//!
//! A node has 64 bytes, one cache line, and holds only keys: the children of a node are adjacent. A tree is built as a
//! whole and never changes, so each level is a single node group. The position of a child is computed: child `c` of
//! node `n` is node `n * fanout + c` of the next level.
//!
//! ```text
//! offset  size             field
//! 0       4                rows        N, 1 ..= 65,536
//! 4       4                entries     K distinct keys, 1 ..= N
//! 8       1                key_bytes   2, 4 or 8: the narrowest that holds the greatest key
//! 9       55               zero
//! 64      64 per node      levels      root first, leaves last: keys
//!         K * 2            lasts       u16 each: the position in `rows` of the last row of each key; absent if K = N
//!         N * 2            rows        u16 each: all rows, by key and then by row
//!
//! a leaf holds keys; a node above the leaves holds the greatest key of each child's subtree; the last node of each
//! level is padded with the maximum of its key type, an unsigned integer of `key_bytes` bytes
//! ```
//!
//! Each part begins at a multiple of 64 bytes. It is padded with zeros to the next multiple of 64. Keys are numbers of
//! up to 64 bits. The caller maps values to keys in an order-preserving way.

use std::ops::Range;

use arrow_buffer::{ArrowNativeType, Buffer, ScalarBuffer, ToByteSlice};

use crate::little_endian::u32_at;

/// Bytes of a node, and alignment of the parts.
const NODE_BYTES: usize = 64;
/// Maximum rows of a tree, so that positions fit 16 bits.
const ROWS_MAX: usize = 1 << 16;
/// Number of ranges that are searched together, level by level, so that their reads of nodes overlap.
const BATCH_RANGES: usize = 16;

/// Error: the bytes of an index are malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {at}: expected {expected}")]
pub struct CorruptIndex {
    /// Offset in the bytes of the index.
    pub at: usize,
    /// What was expected at the offset.
    pub expected: &'static str,
}

/// Tree over the keys of a segment, read in place.
#[derive(Clone, Debug)]
pub struct CsbTree {
    keys: Keys,
    /// Position of the last row of each key. Absent if every key has one row.
    last_positions: Option<ScalarBuffer<u16>>,
    rows: ScalarBuffer<u16>,
}

#[derive(Clone, Debug)]
enum Keys {
    Narrow(Levels<u16>),
    Middle(Levels<u32>),
    Wide(Levels<u64>),
}

/// Size in bytes of the narrowest key type that holds `greatest`.
fn key_bytes(greatest: u64) -> usize {
    match greatest {
        0..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        _ => 8,
    }
}

impl CsbTree {
    /// Builds the bytes of a tree over the keys of the rows `0..keys.len()`.
    ///
    /// # Panics
    /// If there are no rows, or more than 65,536.
    pub fn build(keys: &[u64]) -> Vec<u8> {
        assert!((1..=ROWS_MAX).contains(&keys.len()), "a tree has 1 to 65,536 rows");
        let sorted = sorted_rows(keys);
        let (mut entries, mut last_positions) = (Vec::<u64>::new(), Vec::<u16>::new());
        for (position, (key, _)) in sorted.iter().enumerate() {
            if entries.last() != Some(key) {
                entries.push(*key);
                last_positions.push(0);
            }
            if let Some(last) = last_positions.last_mut() {
                // Fits 16 bits: a position among at most 2^16 rows.
                *last = position as u16;
            }
        }
        let rows: Vec<u16> = sorted.iter().map(|(_, row)| *row).collect();
        let width = key_bytes(entries.last().copied().unwrap_or(0));
        let mut bytes = vec![0; NODE_BYTES];
        bytes[..4].copy_from_slice(&(keys.len() as u32).to_le_bytes());
        bytes[4..8].copy_from_slice(&(entries.len() as u32).to_le_bytes());
        bytes[8] = width as u8;
        match width {
            2 => Levels::<u16>::write(&entries, &mut bytes),
            4 => Levels::<u32>::write(&entries, &mut bytes),
            _ => Levels::<u64>::write(&entries, &mut bytes),
        }
        if entries.len() < keys.len() {
            push_part(&last_positions, &mut bytes);
        }
        push_part(&rows, &mut bytes);
        bytes
    }

    /// Parses a tree over `rows` rows. Checks its head and length, but not its keys.
    ///
    /// # Errors
    /// If the head is invalid, or the length does not match its counts.
    pub fn parse(bytes: &Buffer, rows: usize) -> Result<Self, CorruptIndex> {
        let corrupt = |at, expected| CorruptIndex { at, expected };
        let Some(head) = bytes.first_chunk::<NODE_BYTES>() else {
            return Err(corrupt(0, "a head of 64 bytes"));
        };
        let (stored_rows, entries) = (u32_at(head, 0) as usize, u32_at(head, 4) as usize);
        if stored_rows != rows || !(1..=ROWS_MAX).contains(&rows) {
            return Err(corrupt(0, "as many rows as the segment has"));
        }
        if !(1..=rows).contains(&entries) {
            return Err(corrupt(4, "a number of keys from 1 to the number of rows"));
        }
        if head[9..].iter().any(|byte| *byte != 0) {
            return Err(corrupt(9, "zeros"));
        }
        let mut at = NODE_BYTES;
        let keys = match head[8] {
            2 => Keys::Narrow(Levels::parse(bytes, entries, &mut at)?),
            4 => Keys::Middle(Levels::parse(bytes, entries, &mut at)?),
            8 => Keys::Wide(Levels::parse(bytes, entries, &mut at)?),
            _ => return Err(corrupt(8, "keys of 2, 4 or 8 bytes")),
        };
        let last_positions = if entries < rows { Some(read_part(bytes, entries, &mut at)?) } else { None };
        let rows = read_part(bytes, rows, &mut at)?;
        if at != bytes.len() {
            return Err(corrupt(at, "the end of the tree"));
        }
        Ok(Self { keys, last_positions, rows })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Finds the rows whose keys are in each range, both ends included. Returns positions for [`CsbTree::rows_at`], so
    /// that the number of rows is known before any row is read.
    pub fn search(&self, ranges: &[(u64, u64)]) -> Vec<Range<u32>> {
        match &self.keys {
            Keys::Narrow(levels) => self.search_levels(levels, ranges),
            Keys::Middle(levels) => self.search_levels(levels, ranges),
            Keys::Wide(levels) => self.search_levels(levels, ranges),
        }
    }

    fn search_levels<K: NodeKey>(&self, levels: &Levels<K>, ranges: &[(u64, u64)]) -> Vec<Range<u32>> {
        let mut positions = Vec::with_capacity(ranges.len());
        for ranges in ranges.chunks(BATCH_RANGES) {
            // Two entries per range: the first entry in the range, and the first one after it.
            let (mut keys, mut entries) = ([None; 2 * BATCH_RANGES], [0; 2 * BATCH_RANGES]);
            for ((low, high), ends) in ranges.iter().zip(keys.as_chunks_mut::<2>().0) {
                let above = if low == high { None } else { high.checked_add(1) };
                *ends = [K::try_from(*low).ok(), above.and_then(|above| K::try_from(above).ok())];
            }
            levels.lower_bounds(&keys[..2 * ranges.len()], &mut entries);
            for ((low, high), [first, end]) in ranges.iter().zip(entries.as_chunks::<2>().0) {
                // A single key has at most one entry, because the keys of entries are distinct.
                let is_first = || levels.key(*first).is_some_and(|key| K::try_from(*low).is_ok_and(|low| low == key));
                let end = if low == high { first + usize::from(is_first()) } else { *end };
                // Both fit 32 bits: positions among at most 2^16 rows. The range is empty if `low > high`, or if
                // damaged bytes reverse its ends.
                let (start, end) = (self.first_position(*first) as u32, self.first_position(end) as u32);
                positions.push(start..end.max(start));
            }
        }
        positions
    }

    /// For each pair of a tree and a range of keys, whether the tree contains a key in the range, both ends included.
    /// All trees are searched level by level, so that their reads of nodes overlap.
    pub fn contain_keys(probes: &[(&Self, (u64, u64))]) -> Vec<bool> {
        // After the last level, these are indexes of entries instead of nodes.
        let mut nodes = vec![0; probes.len()];
        for level in 0..LEVELS_MAX {
            for ((tree, (low, _)), node) in probes.iter().zip(&mut nodes) {
                match &tree.keys {
                    Keys::Narrow(levels) => levels.descend(level, u16::try_from(*low).ok(), node),
                    Keys::Middle(levels) => levels.descend(level, u32::try_from(*low).ok(), node),
                    Keys::Wide(levels) => levels.descend(level, Some(*low), node),
                }
            }
        }
        let key_of = |tree: &Self, entry: usize| match &tree.keys {
            Keys::Narrow(levels) => levels.key(entry).map(u64::from),
            Keys::Middle(levels) => levels.key(entry).map(u64::from),
            Keys::Wide(levels) => levels.key(entry),
        };
        let has_key = |((tree, (_, high)), entry): (&(&Self, (u64, u64)), usize)| {
            key_of(tree, entry).is_some_and(|key| key <= *high)
        };
        probes.iter().zip(nodes).map(has_key).collect()
    }

    /// Rows at a range of positions, ordered by key and then by row. If the bytes are damaged, rows may be outside of
    /// the segment. Positions out of bounds have no rows.
    pub fn rows_at(&self, positions: &Range<u32>) -> &[u16] {
        self.rows.get(positions.start as usize..positions.end as usize).unwrap_or_default()
    }

    /// Position of the first row of an entry.
    fn first_position(&self, entry: usize) -> usize {
        match &self.last_positions {
            None => entry.min(self.rows.len()),
            Some(_) if entry == 0 => 0,
            Some(last_positions) => {
                last_positions.get(entry - 1).map_or(self.rows.len(), |last| usize::from(*last) + 1)
            }
        }
    }
}

/// Pairs of key and row, sorted by key and then by row.
fn sorted_rows(keys: &[u64]) -> Vec<(u64, u16)> {
    const ROW_BITS: u32 = 16;
    let greatest = keys.iter().copied().max().unwrap_or(0);
    if greatest >> (u64::BITS - ROW_BITS) == 0 {
        // One number for key and row sorts faster than a pair.
        let mut packed: Vec<u64> = keys.iter().zip(0..).map(|(key, row)| key << ROW_BITS | row).collect();
        packed.sort_unstable();
        return packed.into_iter().map(|packed| (packed >> ROW_BITS, packed as u16)).collect();
    }
    let mut pairs: Vec<(u64, u16)> = keys.iter().zip(0..=u16::MAX).map(|(key, row)| (*key, row)).collect();
    pairs.sort_unstable();
    pairs
}

/// Appends a part, padded to whole nodes.
fn push_part<T: ArrowNativeType>(part: &[T], bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(part.to_byte_slice());
    bytes.resize(bytes.len().next_multiple_of(NODE_BYTES), 0);
}

/// Reads `count` values of the part at offset `at`, and advances `at` to the next part.
fn read_part<T: ArrowNativeType>(
    bytes: &Buffer,
    count: usize,
    at: &mut usize,
) -> Result<ScalarBuffer<T>, CorruptIndex> {
    let length = count * size_of::<T>();
    let start = *at;
    *at = start + length.next_multiple_of(NODE_BYTES);
    if *at > bytes.len() {
        return Err(CorruptIndex { at: start, expected: "a part as long as the head says" });
    }
    Ok(ScalarBuffer::from(bytes.slice_with_length(start, length)))
}

/// Integer type of the keys in the nodes of a tree.
trait NodeKey: ArrowNativeType + Ord + TryFrom<u64> {
    const GREATEST: Self;
    /// Low bits of a key. A key that fits is unchanged.
    fn truncate(key: u64) -> Self;
}

macro_rules! node_key {
    ($native:ty) => {
        impl NodeKey for $native {
            const GREATEST: Self = <$native>::MAX;
            fn truncate(key: u64) -> Self {
                key as Self
            }
        }
    };
}
node_key!(u16);
node_key!(u32);
node_key!(u64);

/// Maximum number of levels of a tree: 8 keys per node, 65,536 keys.
const LEVELS_MAX: usize = 6;

#[derive(Clone, Debug)]
struct Levels<K: NodeKey> {
    keys: ScalarBuffer<K>,
    /// Start of each level in `keys`, root first. Only the first `height` are used.
    starts: [usize; LEVELS_MAX],
    height: usize,
    entries: usize,
}

impl<K: NodeKey> Levels<K> {
    const FANOUT: usize = NODE_BYTES / size_of::<K>();

    /// Number of nodes of each level, leaves first.
    fn nodes(entries: usize) -> impl Iterator<Item = usize> {
        let leaves = entries.div_ceil(Self::FANOUT);
        std::iter::successors(Some(leaves), |nodes| (*nodes > 1).then(|| nodes.div_ceil(Self::FANOUT)))
    }

    /// Appends the bytes of all levels over ascending, distinct keys.
    fn write(entries: &[u64], bytes: &mut Vec<u8>) {
        let mut levels: Vec<Vec<K>> = vec![];
        for nodes in Self::nodes(entries.len()) {
            let mut keys: Vec<K> = match levels.last() {
                None => entries.iter().map(|key| K::truncate(*key)).collect(),
                Some(below) => below.chunks(Self::FANOUT).map(|node| node[node.len() - 1]).collect(),
            };
            keys.resize(nodes * Self::FANOUT, K::GREATEST);
            levels.push(keys);
        }
        levels.iter().rev().for_each(|level| push_part(level, bytes));
    }

    fn parse(bytes: &Buffer, entries: usize, at: &mut usize) -> Result<Self, CorruptIndex> {
        let nodes: Vec<usize> = Self::nodes(entries).collect();
        let mut starts = [0; LEVELS_MAX];
        let mut keys = 0;
        for (level, nodes) in nodes.iter().rev().enumerate() {
            // The tree has at most six levels: 65,536 keys, eight per node.
            starts[level] = keys;
            keys += nodes * Self::FANOUT;
        }
        Ok(Self { keys: read_part(bytes, keys, at)?, starts, height: nodes.len(), entries })
    }

    /// Sets `entries` to the number of entries less than each key. `None` is a key greater than all entries.
    fn lower_bounds(&self, keys: &[Option<K>], entries: &mut [usize]) {
        for level in 0..self.height {
            keys.iter().zip(&mut *entries).for_each(|(key, node)| self.descend(level, *key, node));
        }
        entries.iter_mut().for_each(|entry| *entry = self.entries.min(*entry));
    }

    /// Moves from a node to its child that contains the first entry not less than `key`. At the lowest level the result
    /// is the index of that entry. Does nothing if the tree does not have the level.
    fn descend(&self, level: usize, key: Option<K>, node: &mut usize) {
        let Some(start) = self.starts[..self.height].get(level) else { return };
        let first = start.saturating_add(node.saturating_mul(Self::FANOUT));
        *node = match (key, self.keys.get(first..first.saturating_add(Self::FANOUT))) {
            (Some(key), Some(keys)) => {
                let lesser_keys: usize = keys.iter().map(|other| usize::from(*other < key)).sum();
                *node * Self::FANOUT + lesser_keys
            }
            // Past all entries: there is no key, or every entry is less than it.
            _ => usize::MAX,
        };
    }

    /// Key of an entry.
    fn key(&self, entry: usize) -> Option<K> {
        let leaves = self.starts[self.height - 1];
        if entry < self.entries { self.keys.get(leaves + entry).copied() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Compares searches for ranges with a scan of all keys.
    fn check(keys: &[u64], bounds: &[(u64, u64)]) {
        let bytes = Buffer::from(CsbTree::build(keys));
        let tree = CsbTree::parse(&bytes, keys.len()).unwrap();
        assert_eq!(tree.rows(), keys.len());
        for ((low, high), positions) in bounds.iter().zip(tree.search(bounds)) {
            let mut expected: Vec<(u64, u16)> = keys.iter().copied().zip(0..=u16::MAX).collect();
            expected.retain(|(key, _)| (low..=high).contains(&key));
            expected.sort_unstable();
            let expected: Vec<u16> = expected.into_iter().map(|(_, row)| row).collect();
            assert_eq!(tree.rows_at(&positions), expected, "{low}..={high} of {} keys", keys.len());
            // Searches for the range in this tree and in a tree with a single key, whose keys may be narrower or wider.
            let other = Buffer::from(CsbTree::build(&[*low]));
            let other = CsbTree::parse(&other, 1).unwrap();
            let found =
                CsbTree::contain_keys(&[(&tree, (*low, *high)), (&other, (*low, *high)), (&tree, (*low, *high))]);
            assert_eq!(found, [!expected.is_empty(), low <= high, !expected.is_empty()], "{low}..={high}");
        }
    }

    proptest! {
        #[test]
        fn searches_for_ranges_agree_with_a_scan(
            keys in proptest::collection::vec(0_u64..500, 1..700),
            shift in 0_u32..56,
            bounds in proptest::collection::vec((0_u64..510, 0_u64..510), 1..20),
        ) {
            let keys: Vec<u64> = keys.iter().map(|key| key << shift).collect();
            let bounds: Vec<(u64, u64)> = bounds.iter().map(|(low, high)| (low << shift, high << shift)).collect();
            check(&keys, &bounds);
        }
    }

    #[test]
    fn searches_work_at_the_edges_of_nodes_and_numbers() {
        let everything = (0, u64::MAX);
        for count in [1, 7, 8, 9, 31, 32, 33, 64, 65, 1024, 1025, 4097] {
            for top in [0xffff_u64, 0x1_0000, u64::from(u32::MAX), 1 << 32, u64::MAX] {
                let step = (top / count as u64).max(1);
                let keys: Vec<u64> = (0..count).map(|row| top - (row as u64 * step).min(top)).collect();
                let bounds =
                    [everything, (top, top), (top, u64::MAX), (0, 0), (0, top - 1), (step, 3 * step.min(1 << 60))];
                check(&keys, &bounds);
            }
        }
        let rows: Vec<u64> = (0..65_536).map(|row| row * 40_503 % 65_536).collect();
        check(&rows, &[everything, (5, 5), (65_535, 65_535), (65_536, 70_000), (3, 2)]);
        check(&vec![9; 65_536], &[everything, (9, 9), (8, 8), (10, 10)]);
    }

    #[test]
    fn hostile_bytes_are_rejected_or_harmless() {
        let good = CsbTree::build(&(0..300).map(|row| row % 70 * 1000).collect::<Vec<_>>());
        for length in 0..good.len() {
            assert!(CsbTree::parse(&Buffer::from(&good[..length]), 300).is_err());
        }
        for at in 0..good.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bytes = good.clone();
                bytes[at] = value;
                if let Ok(tree) = CsbTree::parse(&Buffer::from(bytes), 300) {
                    for positions in tree.search(&[(0, u64::MAX), (5_000, 9_000), (69_000, 69_000), (3, 2)]) {
                        assert!(tree.rows_at(&positions).len() <= 300);
                    }
                }
            }
        }
    }
}
