//! Comments on tables, views, sequences, columns, schemas and functions.

use rpds::RedBlackTreeMapSync;
use serde::{Deserialize, Serialize};
use taut_types::ColumnIndex;

use super::{Catalog, SequenceId, TableId};

/// An object with a comment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommentTarget {
    /// A table.
    Table(TableId),
    /// A column of a table.
    Column(TableId, ColumnIndex),
    /// A view.
    View(String),
    /// A column of a view, by the names of both.
    ViewColumn(String, String),
    /// A sequence.
    Sequence(SequenceId),
    /// A schema.
    Schema(String),
    /// A function.
    Function(String),
}

/// The comments of a catalog. Versions of a catalog share the parts of the map that did not change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Comments(RedBlackTreeMapSync<CommentTarget, String>);

impl CommentTarget {
    /// The table, if the object is a table or a column of one.
    pub(crate) fn table(&self) -> Option<TableId> {
        match self {
            Self::Table(table) | Self::Column(table, _) => Some(*table),
            Self::View(_) | Self::ViewColumn(..) | Self::Sequence(_) | Self::Schema(_) | Self::Function(_) => None,
        }
    }

    /// The view, if the object is a view or a column of one.
    pub(crate) fn view(&self) -> Option<&str> {
        match self {
            Self::View(view) | Self::ViewColumn(view, _) => Some(view),
            _ => None,
        }
    }

    /// Upgrades the name of a view: see [`Catalog::upgraded_name`].
    pub(crate) fn with_upgraded_name(self, catalog: &Catalog) -> Self {
        match self {
            Self::View(view) => Self::View(catalog.upgraded_name(&view)),
            Self::ViewColumn(view, column) => Self::ViewColumn(catalog.upgraded_name(&view), column),
            other => other,
        }
    }

    /// Whether a catalog contains the object. For a column of a view, only the view is checked.
    pub(crate) fn exists(&self, catalog: &Catalog) -> bool {
        match self {
            Self::Table(table) => catalog.table_of(*table).is_some(),
            Self::Column(table, column) => {
                catalog.table_of(*table).is_some_and(|table| column.index() < table.schema.len())
            }
            Self::View(view) | Self::ViewColumn(view, _) => catalog.view(view).is_some(),
            Self::Sequence(sequence) => catalog.sequence_of(*sequence).is_some(),
            Self::Schema(schema) => catalog.has_schema(schema),
            Self::Function(function) => catalog.function(function).is_some(),
        }
    }
}

impl Comments {
    pub fn get(&self, on: &CommentTarget) -> Option<&str> {
        self.0.get(on).map(String::as_str)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&CommentTarget, &str)> {
        self.0.iter().map(|(on, comment)| (on, comment.as_str()))
    }

    /// Sets or, if `comment` is `None`, removes a comment.
    pub fn set(&mut self, on: &CommentTarget, comment: Option<&str>) {
        match comment {
            Some(comment) => self.0.insert_mut(on.clone(), comment.to_owned()),
            None => {
                self.0.remove_mut(on);
            }
        }
    }

    /// Removes the comments on objects for which `is_removed` returns true.
    pub fn remove_if(&mut self, is_removed: impl Fn(&CommentTarget) -> bool) {
        let removed: Vec<CommentTarget> = self.0.keys().filter(|on| is_removed(on)).cloned().collect();
        for on in &removed {
            self.0.remove_mut(on);
        }
    }

    /// Removes the comment on a dropped column. The indexes of the columns after it decrease by one.
    pub fn drop_column(&mut self, table: TableId, dropped: ColumnIndex) {
        let is_of_table = |on: &&CommentTarget| matches!(on, CommentTarget::Column(other, _) if *other == table);
        let of_table: Vec<CommentTarget> = self.0.keys().filter(is_of_table).cloned().collect();
        for on in of_table {
            let (CommentTarget::Column(_, column), Some(comment)) = (&on, self.0.get(&on).cloned()) else { continue };
            self.0.remove_mut(&on);
            if let Some(column) = column.after_drop(dropped) {
                self.0.insert_mut(CommentTarget::Column(table, column), comment);
            }
        }
    }
}

impl FromIterator<(CommentTarget, String)> for Comments {
    fn from_iter<I: IntoIterator<Item = (CommentTarget, String)>>(comments: I) -> Self {
        Self(comments.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_after_a_dropped_one_keep_their_comments() {
        let (table, other) = (TableId(1), TableId(2));
        let column = |table, index| CommentTarget::Column(table, ColumnIndex::from(index));
        let on = [column(table, 0), column(table, 1), column(table, 2), column(table, 3), column(other, 1)];
        let mut comments: Comments = on.iter().map(|on| (on.clone(), format!("{on:?}"))).collect();
        comments.drop_column(table, ColumnIndex::from(1));
        let expected = [(0, &on[0]), (1, &on[2]), (2, &on[3])];
        for (index, before) in expected {
            assert_eq!(comments.get(&column(table, index)), Some(format!("{before:?}").as_str()));
        }
        assert_eq!(comments.get(&column(table, 3)), None);
        assert_eq!(comments.iter().count(), 4);
    }
}
