//! Deleted rows of a segment, which are aggregated with the other rows and then subtracted.

use std::ops::Range;

use datafusion::arrow::array::BooleanBufferBuilder;
use datafusion::arrow::buffer::NullBuffer;
use datafusion::common::{Result, internal_err};

use super::arithmetic::{Bounds, Numbers};
use super::states::{States, Values};
use super::sums::Groups;

/// Values of one argument, as [`Values::Numbers`].
struct Argument {
    numbers: Vec<i64>,
    /// Validity of the numbers. `None` before the first batch that has nulls.
    valid: Option<BooleanBufferBuilder>,
    bounds: Bounds,
}

/// Groups and arguments of the deleted rows of a segment. A batch has few of them, so they are collected over all
/// batches.
pub struct DeletedRows<'a> {
    /// Deleted rows that are not added yet, as ordinals in the selection, ascending.
    remaining: &'a [u32],
    groups: Vec<u32>,
    arguments: Vec<Argument>,
}

impl<'a> DeletedRows<'a> {
    /// Creates a collection without rows. `indexes` are the ordinals of the deleted rows in the selection, ascending.
    pub fn new(indexes: &'a [u32]) -> Self {
        Self { remaining: indexes, groups: Vec::with_capacity(indexes.len()), arguments: Vec::new() }
    }

    /// Adds the deleted rows of the next batch. `rows` are the ordinals of the batch's rows in the selection. `values`
    /// has one entry per argument.
    ///
    /// # Errors
    /// If an argument is not [`Values::Numbers`].
    pub fn add(&mut self, rows: &Range<usize>, groups: Groups<'_>, values: &[Values<'_>]) -> Result<()> {
        let count = self.remaining.partition_point(|index| (*index as usize) < rows.end);
        if count == 0 {
            return Ok(());
        }
        let (in_batch, later) = self.remaining.split_at(count);
        self.remaining = later;
        let indexes = in_batch.iter().map(|index| *index as usize - rows.start);
        match groups {
            Groups::Rows(groups) => self.groups.extend(indexes.clone().map(|index| groups[index])),
            Groups::Runs([(group, _)]) => self.groups.resize(self.groups.len() + count, *group),
            Groups::Runs(runs) => {
                let mut ends = runs.iter().scan(0, |end, (group, rows)| {
                    *end += rows;
                    Some((*end, *group))
                });
                let mut run = ends.next();
                for index in indexes.clone() {
                    while let Some((end, _)) = run
                        && end <= index
                    {
                        run = ends.next();
                    }
                    self.groups.extend(run.map(|(_, group)| group));
                }
            }
        }
        let before = self.groups.len() - count;
        for (argument, values) in values.iter().enumerate() {
            let Values::Numbers { numbers, nulls, bounds } = values else {
                return internal_err!("arguments of deleted rows are not computed in 64 bits");
            };
            if argument == self.arguments.len() {
                let numbers = Vec::with_capacity(self.groups.capacity());
                self.arguments.push(Argument { numbers, valid: None, bounds: *bounds });
            }
            let argument = &mut self.arguments[argument];
            match numbers.slice() {
                Some(numbers) => argument.numbers.extend(indexes.clone().map(|index| numbers[index])),
                None => argument.numbers.extend(indexes.clone().map(|index| numbers.value(index))),
            }
            if nulls.is_some() && argument.valid.is_none() {
                let mut valid = BooleanBufferBuilder::new(self.groups.capacity());
                valid.append_n(before, true);
                argument.valid = Some(valid);
            }
            match (&mut argument.valid, nulls) {
                (Some(valid), Some(nulls)) => indexes.clone().for_each(|index| valid.append(nulls.is_valid(index))),
                (Some(valid), None) => valid.append_n(count, true),
                (None, _) => {}
            }
        }
        Ok(())
    }

    /// Adds the deleted rows to `states`, which have `group_count` groups.
    ///
    /// # Errors
    /// If [`States::update`] fails.
    pub fn finish(self, states: &mut States, group_count: usize) -> Result<()> {
        if self.groups.is_empty() {
            return Ok(());
        }
        let values = self.arguments.into_iter().map(|Argument { numbers, valid, bounds }| {
            let nulls = valid.map(|mut valid| NullBuffer::new(valid.finish()));
            Values::Numbers { numbers: Numbers::Computed(numbers), nulls, bounds }
        });
        states.update(Groups::Rows(&self.groups), group_count, &values.collect::<Vec<_>>())
    }
}
