//! Model of a database and of the changes of a transaction, as plain maps.

use std::collections::{BTreeMap, BTreeSet};

/// Rows of a table by their distinct values, with the number of times that each was rewritten without a row relocation.
pub type Rows = BTreeMap<i64, u32>;

/// Name and rows of each table, by table id.
pub type Database = BTreeMap<u64, (String, Rows)>;

/// Reason why a change is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    NoTable,
    NameTaken,
    RowsChanged,
}

#[derive(Clone, Debug)]
pub enum Change {
    Create(u64, String),
    Drop(u64),
    Rename(u64, String),
    Truncate(u64),
    Append(u64, Vec<i64>),
}

impl Change {
    fn table(&self) -> u64 {
        match self {
            Self::Create(table, _) | Self::Drop(table) | Self::Rename(table, _) => *table,
            Self::Truncate(table) | Self::Append(table, _) => *table,
        }
    }

    pub fn apply(&self, database: &mut Database) -> Result<(), Rejection> {
        let table = self.table();
        if let Self::Create(_, name) | Self::Rename(_, name) = self
            && database.values().any(|(taken, _)| taken == name)
        {
            return Err(Rejection::NameTaken);
        }
        match self {
            Self::Create(_, name) => drop(database.insert(table, (name.clone(), Rows::new()))),
            Self::Drop(_) => drop(database.remove(&table).ok_or(Rejection::NoTable)?),
            Self::Rename(_, name) => database.get_mut(&table).ok_or(Rejection::NoTable)?.0.clone_from(name),
            Self::Truncate(_) => database.get_mut(&table).ok_or(Rejection::NoTable)?.1.clear(),
            Self::Append(_, values) => {
                let rows = &mut database.get_mut(&table).ok_or(Rejection::NoTable)?.1;
                rows.extend(values.iter().map(|value| (*value, 0)));
            }
        }
        Ok(())
    }
}

/// Model of a transaction: its changes, and the contents that it sees.
#[derive(Clone, Debug, Default)]
pub struct ModelTransaction {
    pub view: Database,
    pub changes: Vec<Change>,
    /// Inserted rows that are in no block, for each table whose rows the transaction changed.
    pub inserted: BTreeMap<u64, BTreeSet<i64>>,
    /// Deleted rows that existed before the transaction, or that it appended in blocks.
    pub deleted: BTreeMap<u64, Rows>,
}

impl ModelTransaction {
    pub fn starting_from(view: Database) -> Self {
        Self { view, ..Self::default() }
    }

    pub fn change(&mut self, change: &Change) -> Result<(), Rejection> {
        change.apply(&mut self.view)?;
        if let Change::Truncate(table) = change {
            if let Some(inserted) = self.inserted.get_mut(table) {
                inserted.clear();
            }
            self.deleted.remove(table);
        }
        self.changes.push(change.clone());
        Ok(())
    }

    pub fn insert(&mut self, table: u64, values: &[i64]) {
        self.inserted.entry(table).or_default().extend(values);
        self.view.get_mut(&table).unwrap().1.extend(values.iter().map(|value| (*value, 0)));
    }

    pub fn delete(&mut self, table: u64, values: &[i64]) {
        let inserted = self.inserted.entry(table).or_default();
        for value in values {
            let rewrites = self.view.get_mut(&table).unwrap().1.remove(value).unwrap();
            if !inserted.remove(value) {
                self.deleted.entry(table).or_default().insert(*value, rewrites);
            }
        }
    }

    /// Whether the transaction wrote a row, so that no other transaction sees it.
    pub fn is_own(&self, table: u64, value: i64) -> bool {
        let is_appended =
            |change: &Change| matches!(change, Change::Append(to, values) if *to == table && values.contains(&value));
        self.inserted.get(&table).is_some_and(|rows| rows.contains(&value)) || self.changes.iter().any(is_appended)
    }

    /// State after the same changes are made to another state: first `changes`, then the rows of each table.
    pub fn redo(&self, newest: &Database) -> Result<Database, Rejection> {
        let mut database = newest.clone();
        self.changes.iter().try_for_each(|change| change.apply(&mut database))?;
        for (table, inserted) in &self.inserted {
            if !self.view.contains_key(table) {
                continue;
            }
            let rows = &mut database.get_mut(table).ok_or(Rejection::NoTable)?.1;
            for (value, rewrites) in self.deleted.get(table).into_iter().flatten() {
                if rows.remove(value) != Some(*rewrites) {
                    return Err(Rejection::RowsChanged);
                }
            }
            rows.extend(inserted.iter().map(|value| (*value, 0)));
        }
        Ok(database)
    }
}
