//! Loops over numbers by group: sums, counts, minima and maxima.
//!
//! A sum of 64-bit numbers stays in 64 bits as long as the bounds of the added numbers prove that it fits. Before it
//! might overflow, it moves into 128 bits. Neighbouring rows are often in the same group, and a processor stalls when
//! it reads a sum that it has just written. Therefore four arrays, the lanes, each hold a part of the sum of each
//! group, and rows are added to them in rotation.

/// Group of each row of a batch.
#[derive(Clone, Copy, Debug)]
pub enum Groups<'a> {
    /// Runs of rows: a group, and the number of consecutive rows in it.
    Runs(&'a [(u32, usize)]),
    /// A group for each row.
    Rows(&'a [u32]),
}

impl Groups<'_> {
    /// Returns the group of each row, one entry per row, for DataFusion's accumulators.
    pub fn indices(self) -> Vec<usize> {
        match self {
            Self::Runs(runs) => {
                runs.iter().flat_map(|(group, rows)| std::iter::repeat_n(*group as usize, *rows)).collect()
            }
            Self::Rows(groups) => groups.iter().map(|group| *group as usize).collect(),
        }
    }

    /// Calls `visit` with each group and its rows, which are consecutive.
    #[inline]
    pub fn for_each_run(self, mut visit: impl FnMut(usize, std::ops::Range<usize>)) {
        match self {
            Self::Runs(runs) => {
                let mut start = 0;
                for (group, rows) in runs {
                    visit(*group as usize, start..start + rows);
                    start += rows;
                }
            }
            Self::Rows(groups) => {
                groups.iter().enumerate().for_each(|(row, group)| visit(*group as usize, row..row + 1));
            }
        }
    }
}

const LANES: usize = 4;
/// Maximum groups for four lanes. With more groups there is one lane: neighbouring rows are seldom of one group, and
/// four lanes would not fit in the cache.
const LANED_GROUPS_MAX: usize = 4096;

/// Wrapping 64-bit sum of each group.
#[derive(Debug, Default)]
pub struct Lanes {
    lanes: [Vec<i64>; LANES],
    groups: usize,
}

impl Lanes {
    /// Grows to at least `groups` groups.
    pub fn resize(&mut self, groups: usize) {
        if groups > LANED_GROUPS_MAX && self.groups <= LANED_GROUPS_MAX {
            let [first, others @ ..] = &mut self.lanes;
            for lane in others {
                first.iter_mut().zip(lane.iter()).for_each(|(sum, part)| *sum = sum.wrapping_add(*part));
                *lane = Vec::new();
            }
        }
        self.groups = self.groups.max(groups);
        let lanes = if self.groups > LANED_GROUPS_MAX { 1 } else { LANES };
        self.lanes[..lanes].iter_mut().for_each(|lane| lane.resize(self.groups, 0));
    }

    /// Whether there are no groups.
    pub fn is_empty(&self) -> bool {
        self.groups == 0
    }

    /// Adds a number for each row.
    pub fn add_rows(&mut self, groups: &[u32], numbers: &[i64]) {
        if self.groups > LANED_GROUPS_MAX {
            let lane = &mut self.lanes[0];
            for (group, number) in groups.iter().zip(numbers) {
                let sum = &mut lane[*group as usize];
                *sum = sum.wrapping_add(*number);
            }
            return;
        }
        let [a, b, c, d] = self.slices();
        let add = |lane: &mut [i64], group: u32, number: i64| {
            let sum = &mut lane[group as usize];
            *sum = sum.wrapping_add(number);
        };
        let (groups, rest) = groups.as_chunks::<LANES>();
        let (numbers, rest_numbers) = numbers.as_chunks::<LANES>();
        for (groups, numbers) in groups.iter().zip(numbers) {
            add(a, groups[0], numbers[0]);
            add(b, groups[1], numbers[1]);
            add(c, groups[2], numbers[2]);
            add(d, groups[3], numbers[3]);
        }
        rest.iter().zip(rest_numbers).for_each(|(group, number)| add(a, *group, *number));
    }

    /// Adds one for each row.
    pub fn count_rows(&mut self, groups: &[u32]) {
        if self.groups > LANED_GROUPS_MAX {
            let lane = &mut self.lanes[0];
            groups.iter().for_each(|group| lane[*group as usize] += 1);
            return;
        }
        let [a, b, c, d] = self.slices();
        let (groups, rest) = groups.as_chunks::<LANES>();
        for groups in groups {
            a[groups[0] as usize] += 1;
            b[groups[1] as usize] += 1;
            c[groups[2] as usize] += 1;
            d[groups[3] as usize] += 1;
        }
        rest.iter().for_each(|group| a[*group as usize] += 1);
    }

    /// Adds a number to a group.
    pub fn add(&mut self, group: usize, number: i64) {
        let sum = &mut self.lanes[0][group];
        *sum = sum.wrapping_add(number);
    }

    fn slices(&mut self) -> [&mut [i64]; LANES] {
        let groups = self.groups;
        self.lanes.each_mut().map(|lane| &mut lane[..groups])
    }

    /// Sum of a group.
    pub fn sum(&self, group: usize) -> i64 {
        self.lanes.iter().filter_map(|lane| lane.get(group)).fold(0, |sum, part| sum.wrapping_add(*part))
    }

    fn clear(&mut self) {
        self.lanes.iter_mut().for_each(|lane| lane.fill(0));
    }

    /// Size in memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.lanes.iter().map(|lane| lane.capacity() * size_of::<i64>()).sum()
    }
}

/// Exact 128-bit sum of each group.
#[derive(Debug, Default)]
pub struct Sums {
    lanes: Lanes,
    /// Upper bound of the absolute values of the sums in `lanes`.
    magnitude_bound: u128,
    totals: Vec<i128>,
    /// Whether a total did not fit in 128 bits. Only sums of decimals of more than 64 bits can overflow.
    has_overflowed: bool,
}

impl Sums {
    /// Adds numbers whose absolute values are at most `magnitude`.
    pub fn add(&mut self, groups: Groups<'_>, group_count: usize, numbers: &[i64], magnitude: u64) {
        let greatest = self.magnitude_bound + u128::from(magnitude) * numbers.len() as u128;
        if greatest <= i64::MAX as u128 {
            self.magnitude_bound = greatest;
        } else {
            self.flush();
            let greatest = u128::from(magnitude) * numbers.len() as u128;
            if greatest > i64::MAX as u128 {
                return self.add_wide(groups, group_count, numbers.iter().map(|number| i128::from(*number)));
            }
            self.magnitude_bound = greatest;
        }
        self.lanes.resize(group_count);
        match groups {
            Groups::Rows(groups) => self.lanes.add_rows(groups, numbers),
            Groups::Runs(_) => {
                let sum = |numbers: &[i64]| numbers.iter().fold(0_i64, |sum, number| sum.wrapping_add(*number));
                groups.for_each_run(|group, rows| self.lanes.add(group, sum(&numbers[rows])));
            }
        }
    }

    /// Adds `number` once for each row.
    pub fn add_constant(&mut self, groups: Groups<'_>, group_count: usize, number: i64) {
        self.resize(group_count);
        groups.for_each_run(|group, rows| {
            let product = i128::from(number) * rows.len() as i128;
            self.has_overflowed |= add_to_total(&mut self.totals[group], product);
        });
    }

    /// Adds numbers of up to 128 bits.
    pub fn add_wide(&mut self, groups: Groups<'_>, group_count: usize, numbers: impl Iterator<Item = i128>) {
        self.resize(group_count);
        let mut numbers = numbers;
        groups.for_each_run(|group, rows| {
            let total = &mut self.totals[group];
            numbers.by_ref().take(rows.len()).for_each(|number| {
                self.has_overflowed |= add_to_total(total, number);
            });
        });
    }

    /// Subtracts the sums of the first `group_count` groups of `subtrahend`, and resets `subtrahend` to zero.
    pub fn subtract(&mut self, subtrahend: &mut Self, group_count: usize) {
        self.has_overflowed |= subtrahend.has_overflowed;
        let groups: Vec<(u32, usize)> = (0..group_count as u32).map(|group| (group, 1)).collect();
        let negative = subtrahend.take_sums(group_count).into_iter().map(i128::wrapping_neg);
        self.add_wide(Groups::Runs(&groups), group_count, negative);
    }

    /// Whether a sum is wrong, because a total did not fit in 128 bits.
    pub fn has_overflowed(&self) -> bool {
        self.has_overflowed
    }

    fn resize(&mut self, groups: usize) {
        let groups = groups.max(self.totals.len());
        self.totals.resize(groups, 0);
    }

    fn flush(&mut self) {
        self.resize(self.lanes.groups);
        for (group, total) in self.totals.iter_mut().enumerate() {
            self.has_overflowed |= add_to_total(total, i128::from(self.lanes.sum(group)));
        }
        self.lanes.clear();
        self.magnitude_bound = 0;
    }

    /// Returns the sums of `groups` groups, and resets all sums to zero.
    pub fn take_sums(&mut self, groups: usize) -> Vec<i128> {
        self.flush();
        self.resize(groups);
        self.lanes = Lanes::default();
        std::mem::take(&mut self.totals)
    }

    /// Size in memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.lanes.bytes() + self.totals.capacity() * size_of::<i128>()
    }
}

/// Adds a number to a total. Returns whether the total has overflowed.
fn add_to_total(total: &mut i128, number: i128) -> bool {
    let (sum, has_overflowed) = total.overflowing_add(number);
    *total = sum;
    has_overflowed
}

/// Minimum or maximum of each group.
#[derive(Debug)]
pub struct Extremes {
    is_greatest: bool,
    /// Extremes of 64-bit numbers, the common case.
    narrow: Vec<i64>,
    wide: Vec<i128>,
}

impl Extremes {
    /// Creates extremes without numbers.
    pub fn new(is_greatest: bool) -> Self {
        Self { is_greatest, narrow: Vec::new(), wide: Vec::new() }
    }

    /// Adds numbers between `low` and `high`, one for each row. Returns false and adds nothing if this range includes
    /// the sentinel for no number.
    pub fn add_narrow(
        &mut self,
        groups: Groups<'_>,
        group_count: usize,
        numbers: &[i64],
        (low, high): (i128, i128),
    ) -> bool {
        if low <= i64::MIN.into() || high >= i64::MAX.into() {
            return false;
        }
        self.narrow.resize(group_count.max(self.narrow.len()), self.narrow_sentinel());
        let found = self.narrow.as_mut_slice();
        match (groups, self.is_greatest) {
            (Groups::Rows(groups), false) => update_extremes(found, groups, numbers, |number, best| number < best),
            (Groups::Rows(groups), true) => update_extremes(found, groups, numbers, |number, best| number > best),
            (Groups::Runs(_), false) => {
                groups.for_each_run(|group, rows| {
                    found[group] = numbers[rows].iter().fold(found[group], |a, b| a.min(*b))
                });
            }
            (Groups::Runs(_), true) => {
                groups.for_each_run(|group, rows| {
                    found[group] = numbers[rows].iter().fold(found[group], |a, b| a.max(*b))
                });
            }
        }
        true
    }

    /// Adds codes, one for each row. Codes from `end` on are null.
    pub fn add_codes(&mut self, groups: Groups<'_>, group_count: usize, codes: &[u16], end: usize) {
        let none = self.narrow_sentinel();
        let number = |code: &u16| if usize::from(*code) < end { i64::from(*code) } else { none };
        let numbers: Vec<i64> = codes.iter().map(number).collect();
        self.add_narrow(groups, group_count, &numbers, (0, u16::MAX.into()));
    }

    /// Adds numbers, one for each row. `None` is null.
    pub fn add(&mut self, groups: Groups<'_>, group_count: usize, numbers: impl Iterator<Item = Option<i128>>) {
        self.wide.resize(group_count.max(self.wide.len()), self.wide_sentinel());
        let mut numbers = numbers;
        let is_greatest = self.is_greatest;
        groups.for_each_run(|group, rows| {
            let mut best = self.wide[group];
            for number in numbers.by_ref().take(rows.len()).flatten() {
                best = if is_greatest { best.max(number) } else { best.min(number) };
            }
            self.wide[group] = best;
        });
    }

    fn wide_sentinel(&self) -> i128 {
        if self.is_greatest { i128::MIN } else { i128::MAX }
    }

    fn narrow_sentinel(&self) -> i64 {
        if self.is_greatest { i64::MIN } else { i64::MAX }
    }

    /// Returns the extremes of `groups` groups, and removes all numbers.
    pub fn take_extremes(&mut self, groups: usize) -> Vec<i128> {
        self.wide.resize(groups, self.wide_sentinel());
        let none = self.narrow_sentinel();
        let narrow = std::mem::take(&mut self.narrow);
        for (best, number) in self.wide.iter_mut().zip(narrow).filter(|(_, number)| *number != none) {
            let number = i128::from(number);
            *best = if self.is_greatest { number.max(*best) } else { number.min(*best) };
        }
        std::mem::take(&mut self.wide)
    }

    /// Size in memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.narrow.capacity() * size_of::<i64>() + self.wide.capacity() * size_of::<i128>()
    }
}

/// Replaces the extreme of a group by each better number. After some rows few numbers are better, so the branch is
/// predicted well and costs little more than reading.
fn update_extremes(found: &mut [i64], groups: &[u32], numbers: &[i64], is_better: impl Fn(i64, i64) -> bool) {
    for (group, number) in groups.iter().zip(numbers) {
        let best = &mut found[*group as usize];
        if is_better(*number, *best) {
            *best = *number;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_exact_whatever_the_magnitude() {
        for (magnitude, group_count) in [(3, 2), (i64::MAX as u64 / 100, 2), (i64::MAX as u64, 3), (1000, 5000)] {
            let numbers: Vec<i64> =
                (0..999_i64).map(|row| (row * 7919 - 400_000).clamp(-(magnitude as i64), magnitude as i64)).collect();
            let groups: Vec<u32> = (0..999).map(|row| row * 31 % group_count).collect();
            let runs: Vec<(u32, usize)> = (0..333).map(|run| (run % group_count, 3)).collect();
            let mut sums = Sums::default();
            let mut expected = vec![0_i128; group_count as usize];
            for _ in 0..5 {
                for groups in [Groups::Rows(&groups), Groups::Runs(&runs)] {
                    sums.add(groups, group_count as usize, &numbers, magnitude);
                    groups.for_each_run(|group, rows| {
                        expected[group] += numbers[rows].iter().map(|number| i128::from(*number)).sum::<i128>();
                    });
                }
            }
            assert_eq!(sums.take_sums(group_count as usize), expected, "{magnitude}");
            assert_eq!(sums.take_sums(1), [0]);
        }
    }

    #[test]
    fn counts_are_kept_when_growing_groups_leave_one_lane() {
        let mut counts = Lanes::default();
        counts.resize(3);
        counts.count_rows(&[0, 1, 2, 1, 1]);
        counts.resize(LANED_GROUPS_MAX + 1);
        counts.count_rows(&[1, 4096]);
        assert_eq!([0, 1, 2, 4096].map(|group| counts.sum(group)), [1, 4, 1, 1]);
    }

    #[test]
    fn extremes_of_numbers_narrow_and_wide_are_found() {
        let numbers: Vec<i64> = (0..300).map(|row| (row * 7919) % 1000 - 500).collect();
        let groups: Vec<u32> = (0..300).map(|row| row % 3).collect();
        let runs: Vec<(u32, usize)> = (0..60).map(|run| (run % 3, 5)).collect();
        for is_greatest in [false, true] {
            for groups in [Groups::Rows(&groups), Groups::Runs(&runs)] {
                let mut expected = [None; 3];
                groups.for_each_run(|group, rows| {
                    for number in &numbers[rows] {
                        let best = expected[group].unwrap_or(*number);
                        expected[group] = Some(if is_greatest { best.max(*number) } else { best.min(*number) });
                    }
                });
                let mut found = Extremes::new(is_greatest);
                assert!(!found.add_narrow(groups, 3, &numbers, (i64::MIN.into(), 0)));
                assert!(!found.add_narrow(groups, 3, &numbers, (0, i64::MAX.into())));
                assert!(found.add_narrow(groups, 3, &numbers, (-500, 500)));
                // Group 3 has only a wide number, so its extreme is that number.
                let far = i128::from(i64::MAX) * if is_greatest { -4 } else { 4 };
                found.add(Groups::Rows(&[0, 3]), 4, [Some(far), Some(far)].into_iter());
                let expected: Vec<i128> =
                    expected.iter().flatten().map(|number| (*number).into()).chain([far]).collect();
                assert_eq!(found.take_extremes(4), expected);
                assert_eq!(found.take_extremes(1), [found.wide_sentinel()]);
            }
        }
    }

    #[test]
    fn extremes_skip_null() {
        let mut least = Extremes::new(false);
        least.add(Groups::Rows(&[0, 1, 0]), 2, [Some(5), None, Some(-3)].into_iter());
        assert_eq!(least.take_extremes(2), [-3, i128::MAX]);
    }
}
