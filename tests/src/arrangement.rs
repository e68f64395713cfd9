//! Adds layout options to `CREATE TABLE` statements without a layout, so one test file covers every layout.
//!
//! ```text
//! CREATE TABLE t (a int, b int, c int)   in arrangement "groups"
//!   -> CREATE TABLE t (a int, b int, c int) WITH (layout = 'groups', groups = '("a","b"),("c")')
//! ```
//!
//! A statement that names a layout, groups or encodings stays unchanged, because its options may not fit another
//! layout.

use datafusion::sql::sqlparser::ast::{CreateTable, CreateTableOptions, Expr, Ident, SqlOption, Statement, Value};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use taut::{Outcome, Session};

use crate::RunError;

/// Layout that the test runner chooses for tables without layout options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Arrangement {
    /// The default layout of Taut. Rows of small inserts stay in the delta.
    #[default]
    Default,
    /// Slotted rows, in blocks of the minimum size.
    Row,
    /// Packed rows.
    PackedRow,
    /// Uncompressed columns, in blocks of the minimum size.
    Column,
    /// Column groups that have two columns and one column alternately, in blocks of the minimum size.
    Groups,
}

impl Arrangement {
    /// All arrangements except the default. The default layout of Taut is one of these layouts.
    pub const ALL: [Self; 4] = [Self::Row, Self::PackedRow, Self::Column, Self::Groups];

    /// Value of option `layout`, or `default` if Taut chooses.
    pub fn layout(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Row => "row",
            Self::PackedRow => "packed_row",
            Self::Column => "column",
            Self::Groups => "groups",
        }
    }

    /// Whether the runner runs `VACUUM` after a statement. `VACUUM` moves inserted rows into blocks, which have the
    /// layout.
    pub(crate) fn seals(self, sql: &str) -> bool {
        let verb = sql.trim_start().get(..6).unwrap_or_default();
        self != Self::Default && verb.eq_ignore_ascii_case("insert")
    }

    /// SQL to run instead of `sql`. A single CREATE TABLE without a layout gets one; other SQL is unchanged.
    pub(crate) fn statements(self, sql: &str) -> Vec<String> {
        match self.created(sql) {
            Some(create) if !(self == Self::Groups && create.columns.is_empty()) => vec![self.arranged(create)],
            _ => vec![sql.to_owned()],
        }
    }

    /// Sets the column groups of a table after `CREATE TABLE AS`, which determines its columns.
    pub(crate) fn arrange_created(self, session: &Session, sql: &str) -> Result<(), RunError> {
        let Some(create) = self.created(sql) else { return Ok(()) };
        if self != Self::Groups || !create.columns.is_empty() {
            return Ok(());
        }
        let name = &create.name;
        for outcome in session.execute(&format!("SELECT * FROM {name} LIMIT 0"))? {
            let Outcome::Rows(rows) = outcome else { continue };
            let names = rows.schema().fields().iter().map(|field| field.name().clone()).collect();
            let groups = groups(names).replace('\'', "''");
            session.execute(&format!("ALTER TABLE {name} SET (layout = 'groups', groups = '{groups}')"))?;
        }
        Ok(())
    }

    /// Returns the statement if `sql` is a single CREATE TABLE whose layout this arrangement may choose.
    fn created(self, sql: &str) -> Option<CreateTable> {
        if self == Self::Default {
            return None;
        }
        let statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).ok()?;
        let [Statement::CreateTable(create)] = <[Statement; 1]>::try_from(statements).ok()? else { return None };
        let is_free = match &create.table_options {
            CreateTableOptions::None => true,
            CreateTableOptions::With(options) => options.iter().all(|option| match option {
                SqlOption::KeyValue { key, .. } => {
                    !["layout", "groups", "encoding"].contains(&key.value.to_ascii_lowercase().as_str())
                }
                _ => false,
            }),
            _ => false,
        };
        is_free.then_some(create)
    }

    fn arranged(self, mut create: CreateTable) -> String {
        let mut options = match std::mem::take(&mut create.table_options) {
            CreateTableOptions::With(options) => options,
            _ => Vec::new(),
        };
        let mut set = |key: &str, value: String| {
            let is_set = |option: &SqlOption| matches!(option, SqlOption::KeyValue { key: set, .. } if set.value.eq_ignore_ascii_case(key));
            if !options.iter().any(is_set) {
                let value = Expr::Value(Value::SingleQuotedString(value).into());
                options.push(SqlOption::KeyValue { key: Ident::new(key), value });
            }
        };
        set("layout", self.layout().to_owned());
        match self {
            Self::Default | Self::PackedRow => {}
            Self::Row => set("block_size", "128KiB".to_owned()),
            Self::Column => {
                set("block_size", "128KiB".to_owned());
                set("compression", "none".to_owned());
            }
            Self::Groups => {
                set("block_size", "128KiB".to_owned());
                let name = |ident: &Ident| match ident.quote_style {
                    Some(_) => ident.value.clone(),
                    None => ident.value.to_ascii_lowercase(),
                };
                set("groups", groups(create.columns.iter().map(|column| name(&column.name)).collect()));
            }
        }
        create.table_options = CreateTableOptions::With(options);
        Statement::CreateTable(create).to_string()
    }
}

/// Value of option `groups`: two columns and one column alternately.
fn groups(names: Vec<String>) -> String {
    let mut groups = Vec::new();
    let mut names = names.iter().map(|name| format!("\"{}\"", name.replace('"', "\"\"")));
    while let Some(first) = names.next() {
        match names.next() {
            Some(second) => groups.push(format!("({first},{second})")),
            None => groups.push(format!("({first})")),
        }
        groups.extend(names.next().map(|single| format!("({single})")));
    }
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tables_without_a_layout_are_arranged() {
        let arranged = |sql| Arrangement::Row.statements(sql).join(";");
        assert_eq!(
            arranged("create table t (a int)"),
            "CREATE TABLE t (a INT) WITH (layout = 'row', block_size = '128KiB')"
        );
        for kept in [
            "create table t (a int) with (layout = 'column')",
            "create table t (a int) with (encoding = 'a=plain')",
            "select 1",
            "create table t (a int); drop table t",
            "create tabel",
        ] {
            assert_eq!(arranged(kept), kept);
            assert_eq!(Arrangement::Default.statements(kept), [kept]);
        }
        assert!(arranged("create table t with (sort_by = 'a') as select 1 a").contains("layout = 'row'"));
    }

    #[test]
    fn groups_alternate_pairs_and_singles() {
        let names = |count: usize| (0..count).map(|index| index.to_string()).collect();
        assert_eq!(groups(names(1)), r#"("0")"#);
        assert_eq!(groups(names(4)), r#"("0","1"),("2"),("3")"#);
        assert_eq!(groups(names(5)), r#"("0","1"),("2"),("3","4")"#);
        assert_eq!(groups(vec!["a\"b".to_owned()]), r#"("a""b")"#);
    }
}
