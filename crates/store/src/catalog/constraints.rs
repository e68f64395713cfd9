//! What the rows of a table must obey, beside the types and nulls of its columns.
//!
//! The store keeps constraints, and keeps entries of the rows in no block for those that are looked up
//! (`delta/keys.rs`); they are enforced where statements are run, which alone know what an expression means.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use taut_types::{ColumnIndex, Schema};

use super::{Catalog, TableId};

/// The constraints of a table, and the values of columns that a row does not give.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Constraints {
    /// `PRIMARY KEY` and `UNIQUE`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<UniqueKey>,
    /// `CHECK`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
    /// `FOREIGN KEY`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub foreign_keys: Vec<ForeignKey>,
    /// `DEFAULT`: an expression in SQL without columns.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub defaults: BTreeMap<ColumnIndex, String>,
    /// The tables that have a foreign key to this one, itself too. Kept beside those keys, so that who changes rows here
    /// finds them, and a change of either table excludes what did not know of the other.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub referenced_by: BTreeSet<TableId>,
}

/// Columns whose values no two rows share, those with a null aside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UniqueKey {
    /// Its name, unique among the constraints of the table.
    pub name: String,
    /// The columns, in the order in which they were declared.
    pub columns: Vec<ColumnIndex>,
    /// Whether it is the table's `PRIMARY KEY`, whose columns hold no nulls.
    pub is_primary: bool,
}

/// A condition that is not false for any row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Its name, unique among the constraints of the table.
    pub name: String,
    /// The condition in SQL, over columns of the table.
    pub condition: String,
}

/// Columns whose values are those of a key of some row of another table, unless one of them is null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForeignKey {
    /// Its name, unique among the constraints of the table.
    pub name: String,
    /// The columns.
    pub columns: Vec<ColumnIndex>,
    /// The table that is referenced.
    pub table: TableId,
    /// Columns of a key of that table, one for each of `columns`, of the same type.
    pub referenced: Vec<ColumnIndex>,
    /// What becomes of a row when the row it references is deleted.
    pub on_delete: ReferentialAction,
}

/// What becomes of rows whose referenced row is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReferentialAction {
    /// The statement fails that leaves a row without the one that it references.
    #[default]
    NoAction,
    /// They are deleted too.
    Cascade,
    /// Their columns become null.
    SetNull,
}

impl Constraints {
    /// Whether there is nothing to keep, nor to enforce.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The primary key.
    pub fn primary_key(&self) -> Option<&UniqueKey> {
        self.keys.iter().find(|key| key.is_primary)
    }

    /// The names of all constraints.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let keys = self.keys.iter().map(|key| key.name.as_str());
        let checks = self.checks.iter().map(|check| check.name.as_str());
        keys.chain(checks).chain(self.foreign_keys.iter().map(|key| key.name.as_str()))
    }

    /// The lists of columns by which rows are looked up, each once.
    pub fn looked_up(&self) -> Vec<Box<[usize]>> {
        let keys = self.keys.iter().map(|key| &key.columns);
        let mut lists: Vec<Box<[usize]>> = Vec::new();
        for columns in keys.chain(self.foreign_keys.iter().map(|key| &key.columns)) {
            let columns: Box<[usize]> = columns.iter().map(|column| column.index()).collect();
            if !lists.contains(&columns) {
                lists.push(columns);
            }
        }
        lists
    }

    /// Whether they fit a table of a catalog: what is expected instead.
    pub(crate) fn check(&self, table: TableId, schema: &Schema, catalog: &Catalog) -> Result<(), String> {
        self.check_alone(schema)?;
        for key in &self.foreign_keys {
            let parent = catalog.table_of(key.table);
            let parent = parent.ok_or_else(|| format!("a table that foreign key {:?} references", key.name))?;
            let of_parent = if key.table == table { self } else { &*parent.constraints };
            if !key.references(schema, &parent.schema, of_parent) {
                return Err(format!("a key of table {:?} that foreign key {:?} references", parent.name, key.name));
            }
        }
        for child in &self.referenced_by {
            let is_child = |child: &super::Table| child.constraints.foreign_keys.iter().any(|key| key.table == table);
            if *child != table && !catalog.table_of(*child).is_some_and(|child| is_child(child)) {
                return Err(format!("a foreign key of table number {}", child.0));
            }
            let keys = catalog.table_of(*child).map(|child| child.constraints.foreign_keys.as_slice());
            let keys = if *child == table { &self.foreign_keys } else { keys.unwrap_or_default() };
            let lost = keys.iter().filter(|key| key.table == table).find(|key| !self.has_key(&key.referenced));
            if let Some(lost) = lost {
                return Err(format!("the key that foreign key {:?} references", lost.name));
            }
        }
        Ok(())
    }

    /// Whether they name columns and each other rightly, whatever other tables there are.
    pub(crate) fn check_alone(&self, schema: &Schema) -> Result<(), String> {
        let inside = |column: &ColumnIndex| column.index() < schema.len();
        let is_list = |columns: &[ColumnIndex]| {
            let distinct: BTreeSet<_> = columns.iter().collect();
            !columns.is_empty() && distinct.len() == columns.len() && columns.iter().all(inside)
        };
        let mut names = BTreeSet::new();
        if let Some(twice) = self.names().find(|name| !names.insert(*name)) {
            return Err(format!("one constraint named {twice:?}"));
        }
        if let Some(key) = self.keys.iter().find(|key| !is_list(&key.columns)) {
            return Err(format!("a key {:?} of some of its columns", key.name));
        }
        let primary: Vec<_> = self.keys.iter().filter(|key| key.is_primary).collect();
        let holds_nulls = |key: &&UniqueKey| key.columns.iter().any(|column| schema.column(*column).nullable);
        if primary.len() > 1 || primary.iter().any(holds_nulls) {
            return Err("one primary key, of columns without nulls".to_owned());
        }
        let is_whole = |key: &&ForeignKey| is_list(&key.columns) && key.referenced.len() == key.columns.len();
        if let Some(key) = self.foreign_keys.iter().find(|key| !is_whole(key)) {
            return Err(format!("a foreign key {:?} of some of its columns", key.name));
        }
        match self.defaults.keys().all(inside) {
            true => Ok(()),
            false => Err("defaults of its own columns".to_owned()),
        }
    }

    /// Whether there is a key of just these columns, in any order.
    pub fn has_key(&self, columns: &[ColumnIndex]) -> bool {
        self.key_of(columns).is_some()
    }

    fn key_of(&self, columns: &[ColumnIndex]) -> Option<&UniqueKey> {
        let wanted: BTreeSet<_> = columns.iter().collect();
        let is_it = |key: &&UniqueKey| {
            key.columns.len() == columns.len() && key.columns.iter().collect::<BTreeSet<_>>() == wanted
        };
        self.keys.iter().find(is_it)
    }
}

impl ForeignKey {
    /// Puts its columns in the order of the key that they reference, by which that is looked up and locked.
    pub fn arrange(&mut self, parent: &Constraints) {
        let Some(key) = parent.key_of(&self.referenced) else { return };
        let mut pairs: Vec<_> = std::mem::take(&mut self.columns).into_iter().zip(self.referenced.drain(..)).collect();
        pairs.sort_by_key(|(_, referenced)| key.columns.iter().position(|column| column == referenced));
        (self.columns, self.referenced) = pairs.into_iter().unzip();
    }

    /// Whether it references a key of another table, column by column of the same type.
    pub fn references(&self, own: &Schema, parent: &Schema, constraints: &Constraints) -> bool {
        let same = |(own_column, referenced): (&ColumnIndex, &ColumnIndex)| {
            referenced.index() < parent.len()
                && own.column(*own_column).logical_type == parent.column(*referenced).logical_type
        };
        self.columns.len() == self.referenced.len()
            && constraints.has_key(&self.referenced)
            && self.columns.iter().zip(&self.referenced).all(same)
    }
}
