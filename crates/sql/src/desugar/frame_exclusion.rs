//! `EXCLUDE` of a window frame. Syntax trees have no place for it. Parsing writes it into the name of the window, and
//! the planner reads it from an additional key of `PARTITION BY`:
//!
//! ```text
//! parsed       OVER ("taut EXCLUDE TIES w" ORDER BY b ROWS 2 PRECEDING)
//! rewritten    OVER (PARTITION BY ..., ('taut EXCLUDE TIES') ORDER BY b ROWS 2 PRECEDING)
//! ```

use std::fmt::{self, Display, Formatter};

use datafusion_sql::sqlparser::ast::{Expr, Value, WindowSpec};

use crate::syntax::quoted;

const MARKER: &str = "taut ";

/// Rows that a window frame excludes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameExclusion {
    /// The current row.
    CurrentRow,
    /// The current row and its peers.
    Group,
    /// The peers of the current row.
    Ties,
    /// No row. Parsing removes this clause.
    NoOthers,
}

impl Display for FrameExclusion {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::CurrentRow => "EXCLUDE CURRENT ROW",
            Self::Group => "EXCLUDE GROUP",
            Self::Ties => "EXCLUDE TIES",
            Self::NoOthers => "EXCLUDE NO OTHERS",
        })
    }
}

impl FrameExclusion {
    /// Returns the name of a window with this exclusion. `base` is the window that it refines, if any.
    pub(crate) fn window_name(self, base: Option<&str>) -> String {
        base.map_or_else(|| format!("{MARKER}{self}"), |base| format!("{MARKER}{self} {base}"))
    }

    /// Splits the name of a window into an exclusion and the name of the window that it refines, if any.
    fn from_window_name(name: &str) -> Option<(Self, Option<&str>)> {
        let text = name.strip_prefix(MARKER)?;
        [Self::CurrentRow, Self::Group, Self::Ties].into_iter().find_map(|exclusion| {
            let rest = text.strip_prefix(&exclusion.to_string())?;
            Some((exclusion, rest.strip_prefix(' ')))
        })
    }

    /// Returns the exclusion that a key of `PARTITION BY` stands for. Returns `None` for other texts.
    pub fn from_partition_key(text: &str) -> Option<Self> {
        Self::from_window_name(text).map(|(exclusion, _)| exclusion)
    }

    /// Removes an exclusion from the name of a window.
    pub(super) fn take(window: &mut WindowSpec) -> Option<Self> {
        let name = window.window_name.take_if(|name| Self::from_window_name(&name.value).is_some())?;
        let (exclusion, base) = Self::from_window_name(&name.value)?;
        window.window_name = base.map(quoted);
        Some(exclusion)
    }

    /// The key of `PARTITION BY` that stands for this exclusion. In parentheses, because the planner ignores literals.
    pub(super) fn partition_key(self) -> Expr {
        Expr::Nested(Box::new(Expr::value(Value::SingleQuotedString(self.window_name(None)))))
    }
}
