//! Timelines of a database, which distinguish its commits from those of a copy of its directory.
//!
//! A timeline begins with the first commit after the database was opened for writing. Its identity is the version and
//! the time of that commit. Two copies of a directory that both continue to commit have the same timelines up to the
//! copy, and different ones after it:
//!
//! ```text
//!   version      1  2  3 | 4  5 | 6  7  8         the database, opened three times
//!   a copy       1  2  3 | 4  5 | 6  7            version 6 has another time
//! ```
//!
//! So two databases with the same id have the same commits up to a version if that version is in the same timeline in
//! both.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Maximum number of timelines in a catalog. Older timelines are removed, and versions in them cannot be compared.
const TIMELINES_MAX: usize = 256;

/// The beginning of a timeline: version and time of its first commit, in microseconds since 1970 in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Timeline(pub u64, pub i64);

/// The last timelines of a database, in ascending order of their versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timelines(Arc<Vec<Timeline>>);

impl Timelines {
    /// The timelines in a checked catalog file.
    pub fn of_file(file: Cow<'_, [Timeline]>) -> Self {
        Self(Arc::new(file.into_owned()))
    }

    /// The timelines, as stored in the catalog file.
    pub fn as_slice(&self) -> &[Timeline] {
        &self.0
    }

    /// Begins a timeline with the commit of a version.
    #[must_use]
    pub fn with(&self, version: u64, time: i64) -> Self {
        let forgotten = (self.0.len() + 1).saturating_sub(TIMELINES_MAX);
        let timelines = self.0[forgotten..].iter().copied();
        Self(Arc::new(timelines.chain([Timeline(version, time)]).collect()))
    }

    /// The timeline that a version belongs to. `None` if it was removed, or if no timeline begins at or before the
    /// version.
    pub fn of_version(&self, version: u64) -> Option<Timeline> {
        let after = self.0.partition_point(|timeline| timeline.0 <= version);
        Some(self.0[after.checked_sub(1)?])
    }
}

/// Whether timelines ascend and begin at or before a version.
pub(super) fn are_ordered(timelines: &[Timeline], version: u64) -> bool {
    timelines.is_sorted_by(|left, right| left.0 < right.0) && timelines.iter().all(|timeline| timeline.0 <= version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_belongs_to_the_last_timeline_that_begins_before_it() {
        let timelines = Timelines::default().with(1, 10).with(4, 40);
        let found: Vec<_> = (0..6).map(|version| timelines.of_version(version).map(|Timeline(_, time)| time)).collect();
        assert_eq!(found, [None, Some(10), Some(10), Some(10), Some(40), Some(40)]);
        assert!(are_ordered(timelines.as_slice(), 4) && !are_ordered(timelines.as_slice(), 3));
        assert!(!are_ordered(&[Timeline(2, 0), Timeline(2, 1)], 9));
    }

    #[test]
    fn the_oldest_timelines_are_forgotten() {
        let last = TIMELINES_MAX as u64 + 3;
        let timelines = (1..=last).fold(Timelines::default(), |timelines, version| timelines.with(version, 0));
        assert_eq!(timelines.as_slice().len(), TIMELINES_MAX);
        assert_eq!((timelines.of_version(3), timelines.of_version(4)), (None, Some(Timeline(4, 0))));
    }
}
