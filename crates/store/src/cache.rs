//! Verified sections of block files in memory, up to a limit of bytes.
//!
//! ```text
//!   key -> shard -> index -> slot      slots of a shard: | a* | b | c* | d |      * read since the hand passed
//!                                                               ^ hand
//! ```
//!
//! What was made of a section may be kept beside it, in the same shard and within the same limit: extremes.
//!
//! Each shard is a clock: the hand spares a section once if it was read since the hand last passed it. Room is
//! reserved before a section enters, so that the limit holds at every moment. A section that readers still hold
//! after it was thrown out lives on with them and is no longer counted; one larger than the limit never enters.

use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_buffer::Buffer;
use hashbrown::HashMap;
use parking_lot::Mutex;
use taut_block::{Beside, Extreme};

use crate::BlockId;

const SHARDS: usize = 32;

/// A section: its block, and its number there; or extremes of it.
type Key = (BlockId, u32, Option<Extreme>);

/// A cache of sections, shared by all threads.
#[derive(Debug)]
pub struct Cache {
    shards: [Mutex<Shard>; SHARDS],
    limit: usize,
    used: AtomicUsize,
    next_victim: AtomicUsize,
}

#[derive(Debug, Default)]
struct Shard {
    index: HashMap<Key, usize>,
    slots: Vec<Slot>,
    hand: usize,
    hits: u64,
    misses: u64,
}

#[derive(Debug)]
struct Slot {
    key: Key,
    buffer: Buffer,
    was_read: bool,
}

/// What a cache did so far, and holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStatistics {
    /// Sections found.
    pub hits: u64,
    /// Sections not found.
    pub misses: u64,
    /// Sections held.
    pub sections: usize,
    /// Bytes held, with those of what is kept beside sections.
    pub bytes: usize,
    /// The most bytes it may hold.
    pub limit: usize,
}

impl Cache {
    /// An empty cache for so many bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            limit,
            used: AtomicUsize::new(0),
            next_victim: AtomicUsize::new(0),
        }
    }

    /// The limit where none is asked for: a quarter of the physical memory, but at most 1 GiB.
    pub fn default_limit() -> usize {
        const LIMIT_MAX: usize = 1 << 30;
        match crate::disk::physical_memory() {
            Some(bytes) => usize::try_from(bytes / 4).map_or(LIMIT_MAX, |quarter| quarter.min(LIMIT_MAX)),
            None => LIMIT_MAX,
        }
    }

    /// A section, where it is here.
    pub fn get(&self, block: BlockId, section: u32) -> Option<Buffer> {
        let key = (block, section, None);
        let shard = &mut *self.shards[shard_of(key)].lock();
        match shard.index.get(&key) {
            Some(slot) => {
                shard.hits += 1;
                let slot = &mut shard.slots[*slot];
                slot.was_read = true;
                Some(slot.buffer.clone())
            }
            None => {
                shard.misses += 1;
                None
            }
        }
    }

    /// The extremes of a section, where they are here; missed where the section is, and was found here before.
    pub fn extremes(&self, block: BlockId, section: u32, extreme: Extreme) -> Beside {
        let key = (block, section, None);
        let shard = &mut *self.shards[shard_of(key)].lock();
        if let Some(slot) = shard.index.get(&(block, section, Some(extreme))) {
            let slot = &mut shard.slots[*slot];
            slot.was_read = true;
            return Beside::Kept(slot.buffer.clone());
        }
        match shard.index.get(&key) {
            Some(slot) if shard.slots[*slot].was_read => Beside::Missed,
            _ => Beside::Nothing,
        }
    }

    /// Takes in the extremes of a section.
    pub fn keep_extremes(&self, block: BlockId, section: u32, extreme: Extreme, extremes: Buffer) {
        self.enter((block, section, Some(extreme)), extremes);
    }

    /// Takes in a section, throwing out others where there is no room, and returns it; or the one that another
    /// thread put in place meanwhile.
    pub fn insert(&self, block: BlockId, section: u32, buffer: Buffer) -> Buffer {
        self.enter((block, section, None), buffer)
    }

    fn enter(&self, key: Key, buffer: Buffer) -> Buffer {
        let bytes = buffer.len();
        if bytes > self.limit {
            return buffer;
        }
        self.used.fetch_add(bytes, Ordering::Relaxed);
        while self.used.load(Ordering::Relaxed) > self.limit {
            if !self.throw_one_out() {
                // All room is reserved by other threads that have not entered theirs yet.
                self.used.fetch_sub(bytes, Ordering::Relaxed);
                return buffer;
            }
        }
        let shard = &mut *self.shards[shard_of(key)].lock();
        if let Some(slot) = shard.index.get(&key) {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            return shard.slots[*slot].buffer.clone();
        }
        shard.index.insert(key, shard.slots.len());
        shard.slots.push(Slot { key, buffer: buffer.clone(), was_read: false });
        buffer
    }

    /// Forgets a section, such as one of a block that is gone, and what is kept beside it.
    pub fn remove(&self, block: BlockId, section: u32) {
        let shard = &mut *self.shards[shard_of((block, section, None))].lock();
        for beside in [None, Some(Extreme::Least), Some(Extreme::Greatest)] {
            if let Some(slot) = shard.index.get(&(block, section, beside)).copied() {
                self.used.fetch_sub(shard.take(slot), Ordering::Relaxed);
            }
        }
    }

    /// What the cache did so far, and holds now.
    pub fn statistics(&self) -> CacheStatistics {
        let mut sum = CacheStatistics { limit: self.limit, ..CacheStatistics::default() };
        // All locks together, for else a section that moves from one shard to another would count twice.
        let shards: Vec<_> = self.shards.iter().map(Mutex::lock).collect();
        for shard in &shards {
            sum.hits += shard.hits;
            sum.misses += shard.misses;
            sum.sections += shard.slots.iter().filter(|slot| slot.key.2.is_none()).count();
            sum.bytes += shard.slots.iter().map(|slot| slot.buffer.len()).sum::<usize>();
        }
        sum
    }

    /// Throws out one section, of the shards in turn; false when none holds any.
    fn throw_one_out(&self) -> bool {
        // In the first round, all sections of a shard may have been read.
        (0..2 * SHARDS).any(|_| {
            let shard = self.next_victim.fetch_add(1, Ordering::Relaxed) % SHARDS;
            let freed = self.shards[shard].lock().throw_one_out();
            freed.map(|bytes| self.used.fetch_sub(bytes, Ordering::Relaxed)).is_some()
        })
    }
}

impl Shard {
    /// Moves the hand once around, to a section that was not read since it last passed, and frees it.
    fn throw_one_out(&mut self) -> Option<usize> {
        for _ in 0..self.slots.len() {
            self.hand %= self.slots.len();
            let slot = &mut self.slots[self.hand];
            if !std::mem::replace(&mut slot.was_read, false) {
                return Some(self.take(self.hand));
            }
            self.hand += 1;
        }
        None
    }

    /// Frees a slot, which the last one then fills, and tells its bytes.
    fn take(&mut self, slot: usize) -> usize {
        let taken = self.slots.swap_remove(slot);
        self.index.remove(&taken.key);
        if let Some(moved) = self.slots.get(slot) {
            self.index.insert(moved.key, slot);
        }
        taken.buffer.len()
    }
}

/// Neighbouring sections, which a scan asks for at the same time, lie in different shards.
fn shard_of((block, section, _): Key) -> usize {
    (block.0.wrapping_mul(7).wrapping_add(u64::from(section)) % SHARDS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(bytes: usize, fill: u8) -> Buffer {
        Buffer::from(vec![fill; bytes])
    }

    #[test]
    fn holds_what_it_was_given_and_never_more_than_its_limit() {
        let cache = Cache::new(10_000);
        for round in 0..2_000_u32 {
            // Every third access goes to one of a few blocks; all others go around.
            let number = if round % 3 == 0 { round % 4 } else { round % 37 };
            let (block, section) = (BlockId(u64::from(number)), number % 11);
            let fill = number as u8;
            let found = cache
                .get(block, section)
                .unwrap_or_else(|| cache.insert(block, section, buffer(1 + (fill as usize * 37) % 3_000, fill)));
            assert!(found.iter().all(|byte| *byte == fill), "{block} {section}");
            let now = cache.statistics();
            assert!(now.bytes <= 10_000 && now.bytes == cache.used.load(Ordering::Relaxed), "{now:?}");
        }
        let end = cache.statistics();
        assert_eq!(end.hits + end.misses, 2_000);
        assert!(end.hits > 0 && end.bytes > 5_000, "{end:?}");
    }

    #[test]
    fn a_section_larger_than_the_limit_passes_by() {
        let cache = Cache::new(100);
        cache.insert(BlockId(1), 0, buffer(60, 1));
        assert_eq!(cache.insert(BlockId(2), 0, buffer(101, 2)).len(), 101);
        assert!(cache.get(BlockId(2), 0).is_none());
        assert!(cache.get(BlockId(1), 0).is_some());
    }

    #[test]
    fn a_section_read_again_outlives_those_read_once() {
        let cache = Cache::new(100 * SHARDS);
        cache.insert(BlockId(0), 0, buffer(50, 0));
        for number in 1..1_000 {
            assert!(cache.get(BlockId(0), 0).is_some(), "thrown out by block {number}");
            cache.insert(BlockId(number), 0, buffer(50, 1));
        }
    }

    #[test]
    fn a_removed_section_gives_its_room_back() {
        let cache = Cache::new(100);
        for section in 0..3 {
            cache.insert(BlockId(1), section, buffer(30, 0));
        }
        cache.remove(BlockId(1), 0);
        cache.remove(BlockId(1), 0);
        assert!(cache.get(BlockId(1), 0).is_none() && cache.get(BlockId(1), 2).is_some());
        assert_eq!((cache.statistics().bytes, cache.used.load(Ordering::Relaxed)), (60, 60));
    }

    #[test]
    fn extremes_are_kept_beside_sections_that_are_read_again() {
        let (cache, extremes) = (Cache::new(100), |cache: &Cache| cache.extremes(BlockId(1), 0, Extreme::Least));
        assert!(matches!(extremes(&cache), Beside::Nothing));
        cache.insert(BlockId(1), 0, buffer(30, 0));
        assert!(matches!(extremes(&cache), Beside::Nothing));
        cache.get(BlockId(1), 0);
        assert!(matches!(extremes(&cache), Beside::Missed));
        cache.keep_extremes(BlockId(1), 0, Extreme::Least, buffer(20, 7));
        assert!(matches!(extremes(&cache), Beside::Kept(found) if found.as_slice() == [7; 20]));
        assert!(matches!(cache.extremes(BlockId(1), 0, Extreme::Greatest), Beside::Missed));
        assert_eq!((cache.statistics().bytes, cache.statistics().sections, cache.statistics().hits), (50, 1, 1));
        // They count, and may be thrown out, as sections may.
        (1..4).for_each(|section| drop(cache.insert(BlockId(1), section, buffer(30, 0))));
        assert!(cache.statistics().bytes <= 100);
        cache.keep_extremes(BlockId(1), 0, Extreme::Least, buffer(20, 7));
        cache.remove(BlockId(1), 0);
        assert!(matches!(extremes(&cache), Beside::Nothing));
        (1..4).for_each(|section| cache.remove(BlockId(1), section));
        assert_eq!((cache.statistics().bytes, cache.used.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn the_limit_holds_with_many_threads() {
        let cache = Cache::new(4_000);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let cache = &cache;
                scope.spawn(move || {
                    for round in 0..5_000_u64 {
                        let block = BlockId((round * (thread + 3)) % 101);
                        let found = cache.get(block, 0);
                        let found = found.unwrap_or_else(|| cache.insert(block, 0, buffer(100, block.0 as u8)));
                        assert_eq!(found[0], block.0 as u8);
                        if round % 50 == 0 {
                            assert!(cache.statistics().bytes <= 4_000);
                        }
                    }
                });
            }
        });
        assert_eq!(cache.statistics().bytes, cache.used.load(Ordering::Relaxed));
    }
}
