//! The tables and views that a query reads.

use datafusion_common::TableReference;
use datafusion_sql::resolve::resolve_table_references;

use crate::error::Result;
use crate::identifiers::{CATALOG, SYSTEM_SCHEMAS};
use crate::parse::parse;
use crate::statement::Statement;

/// Names of the tables and views that a query reads, for example the query of a view. The names are as the query writes
/// them, without the name of the database `taut`. Names of `WITH` and of system tables are omitted. A view that the
/// query reads is named, and the tables under it are not.
///
/// # Errors
/// If the text is not a statement.
pub fn relations_of(sql: &str) -> Result<Vec<TableReference>> {
    let mut names = Vec::new();
    for statement in parse(sql)? {
        let Statement::Planned { statement, .. } = statement else { continue };
        let (tables, _) = resolve_table_references(&statement, true).unwrap_or_default();
        names.extend(tables.into_iter().filter_map(user_relation));
    }
    Ok(names)
}

/// A reference without the name of the database, unless it is in another database. `None` for system tables.
fn user_relation(reference: TableReference) -> Option<TableReference> {
    if let TableReference::Full { catalog, .. } = &reference
        && &**catalog != CATALOG
    {
        return Some(reference);
    }
    match reference {
        TableReference::Bare { table } => Some(TableReference::Bare { table }),
        TableReference::Partial { schema, table } | TableReference::Full { schema, table, .. } => {
            (!SYSTEM_SCHEMAS.contains(&&*schema)).then_some(TableReference::Partial { schema, table })
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn names_of_with_and_system_tables_are_left_out() {
        let sql = "WITH c AS (SELECT * FROM \"A\") SELECT * FROM c, public.b WHERE EXISTS (SELECT 1 FROM taut.tables) \
                   AND x IN (SELECT y FROM taut.sales.D) ORDER BY (SELECT max(z) FROM e)";
        let mut names: Vec<String> = relations_of(sql).unwrap().iter().map(ToString::to_string).collect();
        names.sort();
        assert_eq!(names, ["A", "e", "public.b", "sales.d"]);
    }
}
