//! The tables of a catalog, by number and by name. Versions of a catalog share what they have in common.

use std::sync::Arc;

use rpds::RedBlackTreeMapSync;

use super::{Table, TableId};

/// Tables, each with a name of its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables {
    by_id: RedBlackTreeMapSync<TableId, Arc<Table>>,
    ids: RedBlackTreeMapSync<String, TableId>,
}

impl Tables {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_id.size()
    }

    /// A table, by its exact name.
    pub fn named(&self, name: &str) -> Option<&Arc<Table>> {
        self.by_id.get(self.ids.get(name)?)
    }

    /// A table, by its name for ever.
    pub fn get(&self, id: TableId) -> Option<&Arc<Table>> {
        self.by_id.get(&id)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.ids.values().filter_map(|id| self.by_id.get(id))
    }

    /// Adds a table, or puts it in the place of the version of it that is there.
    pub fn insert(&mut self, table: Arc<Table>) {
        let before = self.by_id.get(&table.id);
        if before.is_none_or(|before| before.name != table.name) {
            if let Some(before) = before {
                self.ids.remove_mut(&before.name);
            }
            self.ids.insert_mut(table.name.clone(), table.id);
        }
        self.by_id.insert_mut(table.id, table);
    }

    /// Removes a table.
    pub fn remove(&mut self, id: TableId) {
        if let Some(before) = self.by_id.get(&id) {
            self.ids.remove_mut(&before.name);
            self.by_id.remove_mut(&id);
        }
    }
}

impl FromIterator<Arc<Table>> for Tables {
    fn from_iter<I: IntoIterator<Item = Arc<Table>>>(tables: I) -> Self {
        let mut all = Self::default();
        tables.into_iter().for_each(|table| all.insert(table));
        all
    }
}
