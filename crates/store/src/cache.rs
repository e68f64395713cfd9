//! Verified sections of block files in memory, up to a limit in bytes.
//!
//! ```text
//!   an open block:   slots | a* |    | c  | d* |   one for each of its sections      * read since the hand passed
//!
//!   the ring:        block 7 -> block 9 -> block 4 -> ...   open blocks
//!                              ^ hand, at one of its slots
//! ```
//!
//! An open block has a slot for each section. A lookup locks only the slot of its section. The extremes (minima or
//! maxima) that a query derived from a section are cached too, within the same limit, and evicted with the section.
//!
//! Eviction follows the clock algorithm (second chance): the hand spares a section once if it was read since the hand
//! last passed it. Space is reserved before a section is inserted, so the cache never exceeds the limit. An evicted
//! section that readers still hold is no longer counted. A section larger than the limit is never inserted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arrow_buffer::Buffer;
use hashbrown::HashMap;
use parking_lot::Mutex;
use taut_block::{DerivedLookup, Extreme};

/// A cache of sections, shared by all threads.
#[derive(Debug)]
pub struct Cache {
    limit: usize,
    used: AtomicUsize,
    /// Lock order: the ring before a slot.
    ring: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    blocks: Vec<Arc<CachedSections>>,
    /// Position of the clock hand: index of a block, and of a slot in that block.
    hand: (usize, usize),
}

/// The cached sections of one block.
#[derive(Debug)]
pub(crate) struct CachedSections {
    slots: Box<[Mutex<Option<Buffer>>]>,
    /// Whether each slot was read since the hand last passed it. Stored apart from the slots, so that a slot stays
    /// small enough for two in a cache line.
    was_read: Box<[AtomicBool]>,
    /// Extremes of sections in slots. Lock order: a slot before this.
    extremes: Mutex<HashMap<(u32, Extreme), Buffer>>,
    /// Number of slots that hold a section. The hand skips the block if it is 0.
    cached_count: AtomicUsize,
}

/// Current contents of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStatistics {
    /// Number of sections held.
    pub sections: usize,
    /// Bytes held, including extremes.
    pub bytes: usize,
    /// Maximum bytes.
    pub limit: usize,
}

impl Cache {
    /// An empty cache with a limit in bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, used: AtomicUsize::new(0), ring: Mutex::default() }
    }

    /// Default limit in bytes: a quarter of the physical memory, but at most 1 GiB.
    pub fn default_limit() -> usize {
        const LIMIT_MAX: usize = 1 << 30;
        match crate::disk::physical_memory() {
            Some(bytes) => usize::try_from(bytes / 4).map_or(LIMIT_MAX, |quarter| quarter.min(LIMIT_MAX)),
            None => LIMIT_MAX,
        }
    }

    /// Registers a block with `sections` sections, until [`Cache::unregister`].
    pub(crate) fn register(&self, sections: u32) -> Arc<CachedSections> {
        let sections = Arc::new(CachedSections::new(sections as usize));
        self.ring.lock().blocks.push(Arc::clone(&sections));
        sections
    }

    /// Unregisters a block, and evicts all its sections and their extremes.
    pub(crate) fn unregister(&self, sections: &Arc<CachedSections>) {
        let ring = &mut *self.ring.lock();
        if let Some(index) = ring.blocks.iter().position(|other| Arc::ptr_eq(other, sections)) {
            ring.blocks.swap_remove(index);
            let freed = (0..sections.slots.len()).filter_map(|section| sections.evict(section)).sum();
            self.used.fetch_sub(freed, Ordering::Relaxed);
        }
    }

    /// Inserts a section, and evicts others to free space for it. Returns the section, as the buffer of another thread
    /// if that thread has inserted it meanwhile.
    pub(crate) fn insert(&self, sections: &CachedSections, section: u32, buffer: Buffer) -> Buffer {
        if !self.reserve(buffer.len()) {
            return buffer;
        }
        let slot = &mut *sections.slots[section as usize].lock();
        if let Some(existing) = slot {
            self.used.fetch_sub(buffer.len(), Ordering::Relaxed);
            return existing.clone();
        }
        sections.cached_count.fetch_add(1, Ordering::Relaxed);
        slot.insert(buffer).clone()
    }

    /// Inserts the extremes of a section that is cached.
    pub(crate) fn insert_extremes(&self, sections: &CachedSections, section: u32, extreme: Extreme, extremes: Buffer) {
        if !self.reserve(extremes.len()) {
            return;
        }
        let bytes = extremes.len();
        // The slot stays locked until the extremes are inserted: they must not outlive their section.
        let slot = sections.slots[section as usize].lock();
        let unused = match *slot {
            Some(_) => sections.extremes.lock().insert((section, extreme), extremes).map_or(0, |others| others.len()),
            None => bytes,
        };
        self.used.fetch_sub(unused, Ordering::Relaxed);
    }

    /// Current contents of the cache.
    pub fn statistics(&self) -> CacheStatistics {
        let mut sum = CacheStatistics { limit: self.limit, ..CacheStatistics::default() };
        // While the ring is locked, no section that was counted is evicted.
        for block in &self.ring.lock().blocks {
            for slot in &block.slots {
                let bytes = slot.lock().as_ref().map(Buffer::len);
                sum.sections += usize::from(bytes.is_some());
                sum.bytes += bytes.unwrap_or(0);
            }
            sum.bytes += block.extremes.lock().values().map(Buffer::len).sum::<usize>();
        }
        sum
    }

    /// Reserves `bytes` bytes, and evicts sections to free them. Returns false if that is impossible.
    fn reserve(&self, bytes: usize) -> bool {
        if bytes > self.limit {
            return false;
        }
        self.used.fetch_add(bytes, Ordering::Relaxed);
        while self.used.load(Ordering::Relaxed) > self.limit {
            let Some(freed) = self.ring.lock().evict_one() else {
                // All space is reserved by threads that have not inserted their sections yet.
                self.used.fetch_sub(bytes, Ordering::Relaxed);
                return false;
            };
            self.used.fetch_sub(freed, Ordering::Relaxed);
        }
        true
    }
}

impl Ring {
    /// Moves the hand to a section that was not read since it last passed, and evicts it. Returns the bytes freed, or
    /// `None` if no block holds a section.
    fn evict_one(&mut self) -> Option<usize> {
        // At most two rounds: if all sections were read, the first round only clears their flags. One more step because
        // the hand may start in the middle of a block, and two because it passes the end of the list in each round.
        for _ in 0..2 * self.blocks.len() + 3 {
            let Some(block) = self.blocks.get(self.hand.0) else {
                self.hand = (0, 0);
                continue;
            };
            let is_empty = block.cached_count.load(Ordering::Relaxed) == 0;
            let mut remaining_slots = if is_empty { 0..0 } else { self.hand.1..block.slots.len() };
            let freed = remaining_slots
                .find_map(|section| if block.take_read_flag(section) { None } else { block.evict(section) });
            self.hand.1 = remaining_slots.start;
            if freed.is_some() {
                return freed;
            }
            self.hand = (self.hand.0 + 1, 0);
        }
        None
    }
}

impl CachedSections {
    fn new(sections: usize) -> Self {
        Self {
            slots: (0..sections).map(|_| Mutex::default()).collect(),
            was_read: (0..sections).map(|_| AtomicBool::default()).collect(),
            extremes: Mutex::default(),
            cached_count: AtomicUsize::new(0),
        }
    }

    /// A section, if it is cached.
    pub(crate) fn get(&self, section: u32) -> Option<Buffer> {
        let section = section as usize;
        let buffer = self.slots.get(section)?.lock().clone()?;
        // Stores only a change, so that other processors keep their copies of the cache line.
        if !self.was_read[section].load(Ordering::Relaxed) {
            self.was_read[section].store(true, Ordering::Relaxed);
        }
        Some(buffer)
    }

    /// The cached extremes of a section. If there are none, returns `Miss` if the section was read from the cache since
    /// the hand last passed it, because its extremes are then worth caching. Otherwise returns `Bypass`.
    pub(crate) fn extremes(&self, section: u32, extreme: Extreme) -> DerivedLookup {
        if let Some(extremes) = self.extremes.lock().get(&(section, extreme)) {
            return DerivedLookup::Hit(extremes.clone());
        }
        match self.was_read.get(section as usize) {
            Some(was_read) if was_read.load(Ordering::Relaxed) => DerivedLookup::Miss,
            _ => DerivedLookup::Bypass,
        }
    }

    /// Clears the flag that a section was read. Returns its previous value.
    fn take_read_flag(&self, section: usize) -> bool {
        self.was_read[section].load(Ordering::Relaxed) && self.was_read[section].swap(false, Ordering::Relaxed)
    }

    /// Empties a slot. Returns the bytes freed.
    fn evict(&self, section: usize) -> Option<usize> {
        let slot = &mut *self.slots[section].lock();
        let buffer = slot.take()?;
        self.cached_count.fetch_sub(1, Ordering::Relaxed);
        let extremes = &mut *self.extremes.lock();
        let mut bytes = buffer.len();
        for extreme in [Extreme::Least, Extreme::Greatest] {
            // A block has at most `u32::MAX` sections.
            bytes += extremes.remove(&(section as u32, extreme)).map_or(0, |extremes| extremes.len());
        }
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(bytes: usize, fill: u8) -> Buffer {
        Buffer::from(vec![fill; bytes])
    }

    fn used(cache: &Cache) -> usize {
        cache.used.load(Ordering::Relaxed)
    }

    #[test]
    fn the_cache_returns_inserted_sections_and_stays_within_its_limit() {
        let cache = Cache::new(10_000);
        let blocks: Vec<_> = (0..37).map(|_| cache.register(11)).collect();
        let mut hits = 0;
        for round in 0..2_000_u32 {
            // Every third access reads one of four blocks. The others cycle through all blocks.
            let number = if round % 3 == 0 { round % 4 } else { round % 37 };
            let (block, section, fill) = (&blocks[number as usize], number % 11, number as u8);
            let found = block.get(section);
            hits += u32::from(found.is_some());
            let found =
                found.unwrap_or_else(|| cache.insert(block, section, buffer(1 + (fill as usize * 37) % 3_000, fill)));
            assert!(found.iter().all(|byte| *byte == fill), "{number} {section}");
            let now = cache.statistics();
            assert!(now.bytes <= 10_000 && now.bytes == used(&cache), "{now:?}");
        }
        let end = cache.statistics();
        assert!(hits > 200 && end.bytes > 5_000 && end.sections > 3, "{hits} {end:?}");
    }

    #[test]
    fn a_section_larger_than_the_limit_is_not_cached() {
        let cache = Cache::new(100);
        let block = cache.register(3);
        cache.insert(&block, 0, buffer(60, 1));
        assert_eq!(cache.insert(&block, 1, buffer(101, 2)).len(), 101);
        assert!(block.get(1).is_none() && block.get(0).is_some());
        assert!(block.get(3).is_none(), "there is no such section");
    }

    #[test]
    fn a_section_read_again_outlives_those_read_once() {
        let cache = Cache::new(3_200);
        let blocks: Vec<_> = (0..1_000).map(|_| cache.register(1)).collect();
        cache.insert(&blocks[0], 0, buffer(50, 0));
        for (number, block) in blocks.iter().enumerate().skip(1) {
            assert!(blocks[0].get(0).is_some(), "evicted by block {number}");
            cache.insert(block, 0, buffer(50, 1));
        }
        assert_eq!((cache.statistics().sections, cache.statistics().bytes), (64, 3_200));
    }

    #[test]
    fn a_section_is_evicted_even_if_all_were_read() {
        let cache = Cache::new(100);
        let blocks = [cache.register(2), cache.register(0), cache.register(2)];
        for block in [&blocks[0], &blocks[2]] {
            (0..2).for_each(|section| drop(cache.insert(block, section, buffer(25, 0))));
            (0..2).for_each(|section| assert!(block.get(section).is_some()));
        }
        cache.ring.lock().hand = (2, 1);
        assert_eq!(cache.insert(&cache.register(1), 0, buffer(100, 0)).len(), 100);
        assert_eq!((cache.statistics().bytes, cache.statistics().sections, used(&cache)), (100, 1, 100));
    }

    #[test]
    fn the_clock_hand_returns_to_sections_behind_it() {
        let cache = Cache::new(100);
        let block = cache.register(3);
        for section in [0, 1, 2, 0, 1] {
            cache.insert(&block, section, buffer(50, 0));
        }
        (0..2).for_each(|section| assert!(block.get(section).is_some()));
        cache.insert(&block, 2, buffer(50, 0));
        assert!(block.get(2).is_some());
    }

    #[test]
    fn a_removed_block_frees_its_bytes() {
        let cache = Cache::new(100);
        let (first, second) = (cache.register(2), cache.register(1));
        (0..2).for_each(|section| drop(cache.insert(&first, section, buffer(30, 0))));
        cache.insert(&second, 0, buffer(30, 0));
        cache.unregister(&first);
        cache.unregister(&first);
        assert!(first.get(0).is_none() && second.get(0).is_some());
        assert_eq!((cache.statistics().bytes, used(&cache)), (30, 30));
        cache.unregister(&second);
        assert_eq!((cache.statistics().bytes, used(&cache)), (0, 0));
        assert!(cache.ring.lock().evict_one().is_none());
    }

    #[test]
    fn extremes_are_cached_only_for_sections_that_are_read_again() {
        let cache = Cache::new(100);
        let block = cache.register(4);
        let extremes = || block.extremes(0, Extreme::Least);
        assert!(matches!(extremes(), DerivedLookup::Bypass));
        cache.insert_extremes(&block, 0, Extreme::Least, buffer(20, 7));
        assert_eq!(used(&cache), 0, "the section is not cached, so its extremes are not cached either");
        cache.insert(&block, 0, buffer(30, 0));
        assert!(matches!(extremes(), DerivedLookup::Bypass));
        block.get(0);
        assert!(matches!(extremes(), DerivedLookup::Miss));
        for bytes in [10, 20] {
            cache.insert_extremes(&block, 0, Extreme::Least, buffer(bytes, 7));
        }
        assert!(matches!(extremes(), DerivedLookup::Hit(found) if found.as_slice() == [7; 20]));
        assert!(matches!(block.extremes(0, Extreme::Greatest), DerivedLookup::Miss));
        assert_eq!((cache.statistics().bytes, cache.statistics().sections, used(&cache)), (50, 1, 50));
        // Extremes count towards the limit, and are evicted with their section.
        (1..4).for_each(|section| drop(cache.insert(&block, section, buffer(30, 0))));
        cache.insert(&cache.register(1), 0, buffer(90, 0));
        assert!(matches!(extremes(), DerivedLookup::Bypass));
        assert_eq!((cache.statistics().bytes, used(&cache)), (90, 90));
    }

    #[test]
    fn the_limit_holds_with_many_threads() {
        let cache = Cache::new(4_000);
        let blocks: Vec<_> = (0..101).map(|_| cache.register(1)).collect();
        std::thread::scope(|scope| {
            for thread in 0..4_usize {
                let (cache, blocks) = (&cache, &blocks);
                scope.spawn(move || {
                    for round in 0..5_000 {
                        let number = (round * (thread + 3)) % 101;
                        let block = &blocks[number];
                        let found = block.get(0);
                        let found = found.unwrap_or_else(|| cache.insert(block, 0, buffer(100, number as u8)));
                        assert_eq!(found[0], number as u8);
                        if round % 10 == 0 {
                            cache.insert_extremes(block, 0, Extreme::Least, buffer(10, 0));
                        }
                        if round % 50 == 0 {
                            assert!(cache.statistics().bytes <= 4_000);
                        }
                        if round % 500 == 0 {
                            let short_lived = cache.register(3);
                            cache.insert(&short_lived, 1, buffer(100, 0));
                            cache.unregister(&short_lived);
                        }
                    }
                });
            }
        });
        assert_eq!(cache.statistics().bytes, used(&cache));
        blocks.iter().for_each(|block| cache.unregister(block));
        assert_eq!((cache.statistics().bytes, used(&cache)), (0, 0));
    }
}
