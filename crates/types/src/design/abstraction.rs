//! Column abstraction: leading sort columns that are stored separately, as levels.
//!
//! Sorted rows repeat the values of their leading sort columns. A *level* stores such a column once per run of equal
//! values, or as small differences if it ascends, instead of once per row (Halverson et al., 2006, section 2.2;
//! Holloway and DeWitt, 2008, section 4.2).

use serde::{Deserialize, Serialize};

use super::{Compression, DesignError, Group, GroupKind, TableDesign};
use crate::ColumnIndex;

/// Number of leading sort columns that are levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Abstraction {
    /// Same as [`Abstraction::Auto`] for packed rows, else no levels.
    #[default]
    ByLayout,
    /// As many as pay off, decided from the data of each segment.
    Auto,
    /// The given number, regardless of the data.
    Levels(u16),
}

/// Columns of a group that may become levels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LevelColumns {
    /// Ordinals of the columns in the group, in the order of the sort columns.
    pub ordinals: Vec<usize>,
    /// Whether all of the columns are levels, regardless of the data.
    pub forced: bool,
}

impl TableDesign {
    /// Columns of a group that may or must become levels.
    ///
    /// If the data determines the levels, these are the sort columns without a forced encoding, or no columns if
    /// compression is off.
    pub fn levels(&self, group: &Group) -> LevelColumns {
        let forced = match self.abstraction {
            Abstraction::Levels(levels) => Some(usize::from(levels)),
            Abstraction::ByLayout if group.kind != GroupKind::PackedRows => Some(0),
            Abstraction::ByLayout | Abstraction::Auto if self.compression == Compression::None => Some(0),
            Abstraction::ByLayout | Abstraction::Auto => None,
        };
        let ordinal_of = |column: ColumnIndex| group.columns.iter().position(|member| *member == column);
        let columns = self.sort_by.iter().map(|sort| sort.column).take(forced.unwrap_or(usize::MAX));
        let columns = columns.filter(|column| forced.is_some() || !self.encodings.contains_key(column));
        LevelColumns { ordinals: columns.filter_map(ordinal_of).collect(), forced: forced.is_some() }
    }

    /// Whether a column is a level regardless of the data.
    pub(crate) fn is_forced_level(&self, column: ColumnIndex) -> bool {
        let Abstraction::Levels(levels) = self.abstraction else { return false };
        self.sort_by.iter().take(usize::from(levels)).any(|sort| sort.column == column)
    }

    /// Lowers the number of abstraction levels to the number of sort columns, for a design that lost sort columns.
    pub fn limit_abstraction(&mut self) {
        let columns = self.sort_by.len();
        match self.abstraction {
            Abstraction::Auto if columns == 0 => self.abstraction = Abstraction::default(),
            // A table has at most 16,384 columns.
            Abstraction::Levels(levels) => self.abstraction = Abstraction::Levels(levels.min(columns as u16)),
            _ => {}
        }
    }

    /// Checks the levels against the sort columns.
    ///
    /// # Errors
    /// If there are fewer sort columns than levels, or levels are chosen automatically without any sort column.
    pub fn check_abstraction(&self) -> Result<(), DesignError> {
        let columns = self.sort_by.len();
        let found = match self.abstraction {
            Abstraction::Auto if columns == 0 => "auto".to_owned(),
            Abstraction::Levels(levels) if usize::from(levels) > columns => levels.to_string(),
            _ => return Ok(()),
        };
        let allowed = match columns {
            0 => "0, because levels are leading columns of sort_by, which names none".to_owned(),
            columns => format!("'auto' or 0 to {columns}, the number of columns of sort_by"),
        };
        Err(DesignError::Value { option: "abstraction", found, allowed })
    }
}

/// Parses the value of option `abstraction`.
pub(super) fn parse(value: &str) -> Result<Abstraction, DesignError> {
    let text = value.trim();
    if text.eq_ignore_ascii_case("auto") {
        return Ok(Abstraction::Auto);
    }
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number).map(Abstraction::Levels).ok_or_else(|| DesignError::Value {
        option: "abstraction",
        found: value.to_owned(),
        allowed: "'auto', or a number of leading columns of sort_by".to_owned(),
    })
}

/// Option `abstraction` for a design, or `None` for the default.
pub(super) fn option(abstraction: Abstraction) -> Option<(&'static str, String)> {
    let value = match abstraction {
        Abstraction::ByLayout => return None,
        Abstraction::Auto => "auto".to_owned(),
        Abstraction::Levels(levels) => levels.to_string(),
    };
    Some(("abstraction", value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Column, LogicalType, Schema};

    /// For each column group of a design: the ordinals of the columns that may become levels, and whether they must.
    fn level_ordinals(options: &[(&str, &str)]) -> Vec<(Vec<usize>, bool)> {
        let column = |name| Column::new(name, LogicalType::Integer, false);
        let schema = Schema::new(["a", "b", "c", "d"].map(column).to_vec()).unwrap();
        let design = TableDesign::from_options(options.iter().copied(), &schema).unwrap();
        let levels = |group: &Group| {
            let levels = design.levels(group);
            (levels.ordinals, levels.forced)
        };
        design.groups(&schema).iter().map(levels).collect()
    }

    #[test]
    fn levels_are_the_leading_sort_columns_of_each_group() {
        let sorted = ("sort_by", "c, a, b");
        let two = ("abstraction", "2");
        assert_eq!(level_ordinals(&[("layout", "row"), sorted]), [(vec![], true)]);
        assert_eq!(level_ordinals(&[("layout", "row"), sorted, two]), [(vec![2, 0], true)]);
        assert_eq!(level_ordinals(&[("layout", "row"), sorted, ("abstraction", "auto")]), [(vec![2, 0, 1], false)]);
        assert_eq!(level_ordinals(&[("layout", "packed_row"), sorted]), [(vec![2, 0, 1], false)]);
        assert_eq!(level_ordinals(&[("layout", "packed_row"), sorted, ("abstraction", "0")]), [(vec![], true)]);
        assert_eq!(level_ordinals(&[("layout", "packed_row"), sorted, ("compression", "none")]), [(vec![], true)]);
        assert_eq!(level_ordinals(&[("layout", "packed_row"), sorted, ("encoding", "a=plain")]), [(vec![2, 1], false)]);
        assert_eq!(level_ordinals(&[("layout", "packed_row"), ("encoding", "a=plain")]), [(vec![], false)]);
        let columns = [(vec![0], true), (vec![], true), (vec![0], true), (vec![], true)];
        assert_eq!(level_ordinals(&[sorted, two]), columns);
        let columns = [(vec![0], false), (vec![0], false), (vec![0], false), (vec![], false)];
        assert_eq!(level_ordinals(&[sorted, ("abstraction", "auto")]), columns);
        assert!(level_ordinals(&[sorted]).iter().all(|(ordinals, _)| ordinals.is_empty()));
        let groups = ("groups", "(b,a),(d),(c)");
        assert_eq!(level_ordinals(&[groups, sorted, two]), [(vec![1], true), (vec![], true), (vec![0], true)]);
        assert_eq!(level_ordinals(&[groups, sorted]), [(vec![1, 0], false), (vec![], true), (vec![], true)]);
    }
}
