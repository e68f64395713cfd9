//! `taut.databases`: the database of the session and the attached ones.

use std::sync::Arc;

use datafusion::arrow::array::BooleanArray;
use taut_sql::CATALOG;
use taut_store::Store;

use super::{SystemColumn, SystemRows, SystemState, SystemTable, texts};

pub(super) const TABLE: SystemTable = SystemTable {
    name: "databases",
    description: "The database of the session, named `taut`, and the databases that `ATTACH` attached to it.",
    columns: &[
        SystemColumn::text("database_name", "Name of the database in statements."),
        SystemColumn::text("path", "Path of its directory; null for a database in memory."),
        SystemColumn::boolean("read_only", "Whether the database is read-only."),
    ],
    rows,
};

fn rows(state: &SystemState) -> SystemRows {
    let attached = state.store.attached();
    let own = std::iter::once((CATALOG, &state.store));
    let databases: Vec<_> = own.chain(attached.iter().map(|database| (&*database.name, &database.store))).collect();
    let columns = Ok(vec![
        texts(databases.iter().map(|(name, _)| Some((*name).to_owned()))),
        texts(databases.iter().map(|(_, store)| path(store))),
        Arc::new(databases.iter().map(|(_, store)| Some(store.is_read_only())).collect::<BooleanArray>()) as _,
    ]);
    Box::new(std::iter::once(columns))
}

fn path(store: &Store) -> Option<String> {
    let path = store.path();
    path.is_dir().then(|| path.display().to_string())
}
