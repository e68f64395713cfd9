//! The tables of a catalog, by id and by name. Versions of a catalog share the parts of the maps that did not change.

use std::sync::Arc;

use rpds::RedBlackTreeMapSync;

use super::{Table, TableId};

/// Tables with unique names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables {
    by_id: RedBlackTreeMapSync<TableId, Arc<Table>>,
    ids_by_name: RedBlackTreeMapSync<String, TableId>,
    /// Delta rows of all tables, deleted ones included, and their bytes.
    page_rows: u64,
    page_bytes: u64,
}

impl Tables {
    /// Number of tables.
    pub fn len(&self) -> usize {
        self.by_id.size()
    }

    /// The table with exactly this name.
    pub fn named(&self, name: &str) -> Option<&Arc<Table>> {
        self.by_id.get(self.ids_by_name.get(name)?)
    }

    /// The table with this id.
    pub fn get(&self, id: TableId) -> Option<&Arc<Table>> {
        self.by_id.get(&id)
    }

    /// The tables with this id or a larger one.
    pub fn with_ids_from(&self, first: TableId) -> impl Iterator<Item = &Arc<Table>> {
        self.by_id.range(first..).map(|(_, table)| table)
    }

    /// All tables, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.ids_by_name.values().filter_map(|id| self.by_id.get(id))
    }

    /// Delta rows of all tables together, deleted ones included, and their bytes. This is an upper bound for each
    /// table.
    pub fn delta_rows_and_bytes(&self) -> (u64, u64) {
        (self.page_rows, self.page_bytes)
    }

    /// Adds a table, or replaces another version of it.
    pub fn insert(&mut self, table: Arc<Table>) {
        let before = self.by_id.get(&table.id);
        if before.is_none_or(|before| before.name != table.name) {
            if let Some(before) = before {
                self.ids_by_name.remove_mut(&before.name);
            }
            self.ids_by_name.insert_mut(table.name.clone(), table.id);
        }
        let (rows, bytes) = before.map_or((0, 0), |before| delta_size(before));
        let (new_rows, new_bytes) = delta_size(&table);
        self.page_rows = self.page_rows - rows + new_rows;
        self.page_bytes = self.page_bytes - bytes + new_bytes;
        self.by_id.insert_mut(table.id, table);
    }

    /// Removes a table.
    pub fn remove(&mut self, id: TableId) {
        if let Some(before) = self.by_id.get(&id) {
            let (rows, bytes) = delta_size(before);
            (self.page_rows, self.page_bytes) = (self.page_rows - rows, self.page_bytes - bytes);
            self.ids_by_name.remove_mut(&before.name);
            self.by_id.remove_mut(&id);
        }
    }
}

fn delta_size(table: &Table) -> (u64, u64) {
    (table.delta.page_rows(), table.delta.page_bytes() as u64)
}

impl FromIterator<Arc<Table>> for Tables {
    fn from_iter<I: IntoIterator<Item = Arc<Table>>>(tables: I) -> Self {
        let mut all = Self::default();
        tables.into_iter().for_each(|table| all.insert(table));
        all
    }
}
