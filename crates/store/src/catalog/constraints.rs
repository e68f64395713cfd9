//! Constraints on the rows of a table, apart from column types and `NOT NULL`.
//!
//! The store only records the constraints. For keys and foreign keys, it also maintains an index of the rows that are
//! in no block (`delta/keys.rs`). `taut-query` enforces the constraints, because only it can evaluate expressions.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use taut_types::{ColumnIndex, Schema};

use super::{Catalog, Identity, OwnedSequence, TableId};

/// The constraints of a table, and the default and generated values of its columns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Constraints {
    /// `PRIMARY KEY`, `UNIQUE` and unique indexes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<UniqueKey>,
    /// `CHECK`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
    /// `FOREIGN KEY`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub foreign_keys: Vec<ForeignKey>,
    /// `DEFAULT` of columns: SQL expressions without column references.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub defaults: BTreeMap<ColumnIndex, String>,
    /// Generated columns: SQL expressions over other columns, which compute the value of each row.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub generated: BTreeMap<ColumnIndex, String>,
    /// Hidden generated columns, which hold the computed parts of indexes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub index_columns: BTreeMap<ColumnIndex, IndexColumn>,
    /// Sequences that columns own. The default of a `SERIAL` or identity column takes numbers of its sequence.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sequences: BTreeMap<ColumnIndex, OwnedSequence>,
    /// The tables with a foreign key to this one, perhaps this table itself. A statement that changes rows of this
    /// table finds the foreign keys through this set. A new foreign key changes the set, so the statement that adds it
    /// conflicts with concurrent transactions that change rows of this table without checking that foreign key.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub referenced_by: BTreeSet<TableId>,
}

/// A hidden generated column for a computed part of an index. The part is an expression or, in a partial index, a
/// column or expression whose value is null in rows outside of the index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndexColumn {
    /// The indexed expression in SQL, over columns of the table.
    pub expression: String,
    /// The predicate of a partial index in SQL. The column is null in rows for which it is not true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicate: Option<String>,
}

/// A set of columns whose values are distinct in all rows without a null in these columns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UniqueKey {
    /// Name of the key, unique among the constraints of the table.
    pub name: String,
    /// The columns, in declaration order.
    pub columns: Vec<ColumnIndex>,
    /// Whether it is the `PRIMARY KEY` of the table, whose columns hold no nulls.
    pub is_primary: bool,
    /// Whether `CREATE UNIQUE INDEX` created it. It is then dropped as an index, and not listed as a constraint.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_index: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// A condition that is true or null for every row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Name of the check, unique among the constraints of the table.
    pub name: String,
    /// The condition in SQL, over columns of the table.
    pub condition: String,
}

/// Columns whose values equal a key of some row of the referenced table, unless one of them is null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForeignKey {
    /// Name of the foreign key, unique among the constraints of the table.
    pub name: String,
    /// The referencing columns.
    pub columns: Vec<ColumnIndex>,
    /// The referenced table.
    pub table: TableId,
    /// The referenced key columns, one for each of `columns`, of the same type.
    pub referenced: Vec<ColumnIndex>,
    /// Action on a row when the row that it references is deleted.
    pub on_delete: ReferentialAction,
}

/// Action on rows whose referenced row is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReferentialAction {
    /// A statement fails if it leaves a row without the row it references.
    #[default]
    NoAction,
    /// The rows are deleted too.
    Cascade,
    /// The referencing columns are set to null.
    SetNull,
}

impl Constraints {
    /// Whether there are no constraints and no defaults.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether these constraints differ from `other`, and all rows that `other` allows satisfy them. Defaults and
    /// sequences may differ in any way.
    pub(crate) fn is_weaker_than(&self, other: &Self) -> bool {
        self != other
            && self.keys.iter().all(|key| other.keys.contains(key))
            && self.checks.iter().all(|check| other.checks.contains(check))
            && self.foreign_keys.iter().all(|key| other.foreign_keys.contains(key))
            && self.referenced_by.is_subset(&other.referenced_by)
            && self.generated == other.generated
            && self.index_columns == other.index_columns
    }

    /// Whether a column is hidden: statements do not see it and cannot name it.
    pub fn is_hidden(&self, column: ColumnIndex) -> bool {
        self.index_columns.contains_key(&column)
    }

    /// The primary key.
    pub fn primary_key(&self) -> Option<&UniqueKey> {
        self.keys.iter().find(|key| key.is_primary)
    }

    /// Whether a column is `GENERATED ALWAYS`, as an identity or from an expression, so that a statement cannot give it
    /// a value.
    pub fn is_always_generated(&self, column: ColumnIndex) -> bool {
        let is_identity = |owned: &OwnedSequence| owned.identity == Some(Identity::Always);
        self.generated.contains_key(&column) || self.sequences.get(&column).is_some_and(is_identity)
    }

    /// The names of all constraints.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let keys = self.keys.iter().map(|key| key.name.as_str());
        let checks = self.checks.iter().map(|check| check.name.as_str());
        keys.chain(checks).chain(self.foreign_keys.iter().map(|key| key.name.as_str()))
    }

    /// The column lists by which rows are looked up: the columns of keys and of foreign keys, without duplicates.
    pub fn lookup_columns(&self) -> Vec<Box<[usize]>> {
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

    /// Returns the constraints as they are after a column of the table is dropped, without the default or expression of
    /// the column. Returns `None` if a key or foreign key uses the column.
    pub(crate) fn without_column(&self, dropped: ColumnIndex) -> Option<Self> {
        let mut constraints = self.clone();
        let keys = constraints.keys.iter_mut().flat_map(|key| &mut key.columns);
        let own_columns = constraints.foreign_keys.iter_mut().flat_map(|key| &mut key.columns);
        for column in keys.chain(own_columns) {
            *column = column.after_drop(dropped)?;
        }
        let defaults = self.defaults.iter();
        constraints.defaults =
            defaults.filter_map(|(column, sql)| Some((column.after_drop(dropped)?, sql.clone()))).collect();
        let generated = self.generated.iter();
        constraints.generated =
            generated.filter_map(|(column, sql)| Some((column.after_drop(dropped)?, sql.clone()))).collect();
        let index_columns = self.index_columns.iter();
        constraints.index_columns =
            index_columns.filter_map(|(column, part)| Some((column.after_drop(dropped)?, part.clone()))).collect();
        let sequences = self.sequences.iter();
        constraints.sequences =
            sequences.filter_map(|(column, owned)| Some((column.after_drop(dropped)?, *owned))).collect();
        Some(constraints)
    }

    /// Returns the constraints as they are after a column of table `parent` is dropped. Returns `None` if a foreign key
    /// references the column.
    pub(crate) fn without_referenced_column(&self, parent: TableId, dropped: ColumnIndex) -> Option<Self> {
        let mut constraints = self.clone();
        let keys = constraints.foreign_keys.iter_mut().filter(|key| key.table == parent);
        for column in keys.flat_map(|key| &mut key.referenced) {
            *column = column.after_drop(dropped)?;
        }
        Some(constraints)
    }

    /// Checks that the constraints fit a table and the tables that they refer to. The error is what was expected.
    pub(crate) fn check(&self, table: TableId, schema: &Schema, catalog: &Catalog) -> Result<(), String> {
        self.check_against_schema(schema)?;
        for key in &self.foreign_keys {
            let parent = catalog.table_of(key.table);
            let parent = parent.ok_or_else(|| format!("the table that foreign key {:?} references", key.name))?;
            if key.table.is_temporary() != table.is_temporary() {
                return Err(format!("foreign key {:?} to be one of two permanent or two temporary tables", key.name));
            }
            let parent_constraints = if key.table == table { self } else { &*parent.constraints };
            if !key.references(schema, &parent.schema, parent_constraints) {
                return Err(format!(
                    "a key of table {:?} with the columns and types that foreign key {:?} references",
                    parent.name, key.name
                ));
            }
        }
        for (column, owned) in &self.sequences {
            let is_other = |other: &&OwnedSequence| other.sequence == owned.sequence;
            let others = catalog.tables().filter(|other| other.id != table);
            let is_owned = others.flat_map(|other| other.constraints.sequences.values()).any(|other| is_other(&other))
                || self.sequences.range(..column).any(|(_, other)| is_other(&other));
            let is_other_kind = owned.sequence.is_temporary() != table.is_temporary();
            if is_owned || is_other_kind || catalog.sequence_of(owned.sequence).is_none() {
                return Err(format!("an existing sequence {} that only one column owns", owned.sequence.0));
            }
        }
        for child in &self.referenced_by {
            let is_child = |child: &super::Table| child.constraints.foreign_keys.iter().any(|key| key.table == table);
            if *child != table && !catalog.table_of(*child).is_some_and(|child| is_child(child)) {
                return Err(format!("a foreign key of table {} to this table", child.0));
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

    /// Checks column references and names, but not other tables. The error is what was expected.
    pub(crate) fn check_against_schema(&self, schema: &Schema) -> Result<(), String> {
        let inside = |column: &ColumnIndex| column.index() < schema.len();
        let are_distinct_columns = |columns: &[ColumnIndex]| {
            let distinct: BTreeSet<_> = columns.iter().collect();
            !columns.is_empty() && distinct.len() == columns.len() && columns.iter().all(inside)
        };
        let mut names = BTreeSet::new();
        if let Some(duplicate) = self.names().find(|name| !names.insert(*name)) {
            return Err(format!("only one constraint named {duplicate:?}"));
        }
        if let Some(key) = self.keys.iter().find(|key| !are_distinct_columns(&key.columns)) {
            return Err(format!("distinct existing columns in key {:?}", key.name));
        }
        let primary: Vec<_> = self.keys.iter().filter(|key| key.is_primary).collect();
        let holds_nulls = |key: &&UniqueKey| key.columns.iter().any(|column| schema.column(*column).nullable);
        if primary.len() > 1 || primary.iter().any(holds_nulls) {
            return Err("at most one primary key, on NOT NULL columns".to_owned());
        }
        let is_valid =
            |key: &&ForeignKey| are_distinct_columns(&key.columns) && key.referenced.len() == key.columns.len();
        if let Some(key) = self.foreign_keys.iter().find(|key| !is_valid(key)) {
            return Err(format!(
                "distinct existing columns in foreign key {:?}, one for each referenced column",
                key.name
            ));
        }
        if !self.sequences.keys().all(inside) {
            return Err("existing columns as owners of sequences".to_owned());
        }
        let has_other_value =
            |column: &ColumnIndex| self.defaults.contains_key(column) || self.sequences.contains_key(column);
        if !self.generated.keys().all(inside) || self.generated.keys().any(has_other_value) {
            return Err("generated columns that exist and have neither a default nor a sequence".to_owned());
        }
        if !self.index_columns.keys().all(|column| self.generated.contains_key(column)) {
            return Err("an expression for each hidden column".to_owned());
        }
        match self.defaults.keys().all(inside) {
            true => Ok(()),
            false => Err("defaults of existing columns".to_owned()),
        }
    }

    /// Whether there is a key on exactly these columns, in any order.
    pub fn has_key(&self, columns: &[ColumnIndex]) -> bool {
        self.key_on(columns).is_some()
    }

    fn key_on(&self, columns: &[ColumnIndex]) -> Option<&UniqueKey> {
        let wanted: BTreeSet<_> = columns.iter().collect();
        let has_these_columns = |key: &&UniqueKey| {
            key.columns.len() == columns.len() && key.columns.iter().collect::<BTreeSet<_>>() == wanted
        };
        self.keys.iter().find(has_these_columns)
    }
}

impl IndexColumn {
    /// The SQL expression that computes the column.
    pub fn generation_expression(&self) -> String {
        match &self.predicate {
            Some(predicate) => format!("CASE WHEN {predicate} THEN {} END", self.expression),
            None => self.expression.clone(),
        }
    }
}

impl ForeignKey {
    /// Orders the columns like those of the referenced key. Rows of the referenced table are looked up and locked by
    /// key values in this order.
    pub fn match_key_order(&mut self, parent: &Constraints) {
        let Some(key) = parent.key_on(&self.referenced) else { return };
        let mut pairs: Vec<_> = std::mem::take(&mut self.columns).into_iter().zip(self.referenced.drain(..)).collect();
        pairs.sort_by_key(|(_, referenced)| key.columns.iter().position(|column| column == referenced));
        (self.columns, self.referenced) = pairs.into_iter().unzip();
    }

    /// Whether the referenced columns are a key and have the types of the referencing columns. `parent` and
    /// `constraints` belong to the referenced table.
    pub fn references(&self, child: &Schema, parent: &Schema, constraints: &Constraints) -> bool {
        let same = |(own_column, referenced): (&ColumnIndex, &ColumnIndex)| {
            referenced.index() < parent.len()
                && child.column(*own_column).logical_type == parent.column(*referenced).logical_type
        };
        self.columns.len() == self.referenced.len()
            && constraints.has_key(&self.referenced)
            && self.columns.iter().zip(&self.referenced).all(same)
    }
}
