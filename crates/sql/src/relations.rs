//! The tables and views that a query reads.

use datafusion_sql::resolve::resolve_table_references;

use crate::error::Result;
use crate::identifiers::PUBLIC;
use crate::parse::parse;
use crate::statement::Statement;

/// Names of the tables and views in schema `public` that a query, such as that of a view, reads. Names of `WITH` are
/// left out. A view that the query reads is named, and the tables under it are not.
///
/// # Errors
/// If the text is not a statement.
pub fn relations_of(sql: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for statement in parse(sql)? {
        let Statement::Engine { statement, .. } = statement else { continue };
        let (tables, _) = resolve_table_references(&statement, true).unwrap_or_default();
        let local = tables.iter().filter(|table| table.schema().is_none_or(|schema| schema == PUBLIC));
        names.extend(local.map(|table| table.table().to_owned()));
    }
    Ok(names)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn names_of_with_and_other_schemas_are_left_out() {
        let sql = "WITH c AS (SELECT * FROM \"A\") SELECT * FROM c, public.b WHERE EXISTS (SELECT 1 FROM taut.tables) \
                   AND x IN (SELECT y FROM D) ORDER BY (SELECT max(z) FROM e)";
        let mut names = relations_of(sql).unwrap();
        names.sort();
        assert_eq!(names, ["A", "b", "d", "e"]);
    }
}
