//! The table that a statement changes, and its columns.

use datafusion::sql::sqlparser::ast::{
    DataType, ExactNumberInfo, Expr, Ident, ObjectName, TableFactor, TableWithJoins, TimezoneInfo, Value,
};
use taut_types::LogicalType;

use super::build::{call, column, null};
use super::{ROW, TARGET};
use crate::error::{QueryError, Result};
use crate::statement::{local_name, normalize};

/// A column of the table that is changed.
#[derive(Clone, Copy, Debug)]
pub struct TargetColumn<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it holds where a row says nothing of it; `None` for null.
    pub default: Option<&'a Expr>,
    /// Its type, to which values are cast where they meet others of the column in one `CASE`, which would else give all
    /// of them a common type that may be narrower; and parameters, whose type the planner cannot know. `None` leaves
    /// values as they are.
    pub logical_type: Option<LogicalType>,
}

impl TargetColumn<'_> {
    /// The value that stands for `DEFAULT`.
    pub(super) fn default(&self) -> Expr {
        self.default.cloned().unwrap_or_else(null)
    }

    /// An expression in the type of the column.
    pub(super) fn cast(&self, expression: Expr) -> Expr {
        if let Some(function) = self.logical_type.and_then(assignment_function) {
            return call(function, expression);
        }
        match self.logical_type.and_then(sql_type) {
            Some(data_type) => Expr::Cast {
                kind: datafusion::sql::sqlparser::ast::CastKind::Cast,
                expr: Box::new(expression),
                data_type,
                array: false,
                format: None,
            },
            None => expression,
        }
    }

    /// A value as it was written: `DEFAULT` replaced, and a parameter given the type of the column.
    pub(super) fn value(&self, expression: &Expr) -> Expr {
        match expression {
            _ if is_default(expression) => self.default(),
            Expr::Value(value) if matches!(value.value, Value::Placeholder(_)) => self.cast(expression.clone()),
            other => other.clone(),
        }
    }
}

/// The type by which a column's values are cast; `None` where the planner's type of that name is not the column's.
fn sql_type(logical: LogicalType) -> Option<DataType> {
    Some(match logical {
        LogicalType::Boolean => DataType::Boolean,
        LogicalType::Real => DataType::Real,
        LogicalType::Double => DataType::DoublePrecision,
        LogicalType::Decimal { precision, scale } => {
            DataType::Decimal(ExactNumberInfo::PrecisionAndScale(u64::from(precision), i64::from(scale)))
        }
        LogicalType::Date => DataType::Date,
        LogicalType::Timestamp => DataType::Timestamp(Some(6), TimezoneInfo::None),
        LogicalType::Varchar => DataType::Varchar(None),
        LogicalType::SmallInt | LogicalType::Integer | LogicalType::BigInt => return None,
        LogicalType::TimestampTz | LogicalType::Bytea => return None,
    })
}

/// Whether an expression is the word `DEFAULT`.
pub(in crate::statement) fn is_default(expression: &Expr) -> bool {
    matches!(expression, Expr::Identifier(Ident { value, quote_style: None, .. }) if value.eq_ignore_ascii_case("default"))
}

/// The table that is changed, and the name by which the statement means its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub table: String,
    pub alias: String,
}

impl Target {
    pub fn new(name: &ObjectName, alias: Option<&Ident>) -> Result<Self> {
        let table = local_name(name)?;
        let alias = alias.map_or_else(|| table.clone(), normalize);
        Ok(Self { table, alias })
    }

    /// The target of a statement that names it as a query would.
    pub fn of(factor: &TableFactor) -> Result<Self> {
        match factor {
            TableFactor::Table {
                name,
                alias,
                args: None,
                version: None,
                with_ordinality: false,
                json_path: None,
                sample: None,
                ..
            } if alias.as_ref().is_none_or(|alias| alias.columns.is_empty() && alias.at.is_none()) => {
                Self::new(name, alias.as_ref().map(|alias| &alias.name))
            }
            other => Err(QueryError::unsupported(
                format!("{other} as a table to change"),
                "the name of a table is, with another name after AS",
            )),
        }
    }

    /// The target of a statement that may join it, by other dialects, with more tables.
    pub fn alone(verb: &str, table: &TableWithJoins, instead: &str) -> Result<Self> {
        if table.joins.is_empty() {
            return Self::of(&table.relation);
        }
        Err(QueryError::unsupported(format!("{verb} of joined tables"), format!("{instead} joins others")))
    }

    /// The rows of the table with their ids.
    pub fn relation(&self) -> TableFactor {
        super::build::table(TARGET, &self.alias)
    }

    pub fn row(&self) -> Expr {
        column(&self.alias, ROW)
    }

    pub fn column(&self, name: &str) -> Expr {
        column(&self.alias, name)
    }

    /// The place of a column that a statement sets.
    pub fn place(&self, name: &ObjectName, columns: &[TargetColumn<'_>]) -> Result<usize> {
        let not_found = |name: String| QueryError::NotFound { kind: "column", name: format!("{}.{name}", self.table) };
        let parts: Option<Vec<&Ident>> = name.0.iter().map(|part| part.as_ident()).collect();
        let last = match parts.as_deref() {
            Some([last]) => last,
            Some([relation, last]) if normalize(relation) == self.alias => last,
            _ => {
                let allowed = format!("a statement sets columns of table {:?} only", self.table);
                return Err(QueryError::unsupported(format!("{name} as a column to set"), allowed));
            }
        };
        let last = normalize(last);
        columns.iter().position(|column| column.name == last).ok_or_else(|| not_found(last))
    }

    /// Refuses relations of which one goes by the name of the target.
    pub fn check_names<'a>(&self, relations: impl IntoIterator<Item = &'a TableWithJoins>) -> Result<()> {
        for relation in relations {
            self.check_name(&relation.relation)?;
            for join in &relation.joins {
                self.check_name(&join.relation)?;
            }
        }
        Ok(())
    }

    /// As [`Target::check_names`], of one.
    pub fn check_name(&self, factor: &TableFactor) -> Result<()> {
        if let TableFactor::NestedJoin { table_with_joins, alias: None } = factor {
            return self.check_names([table_with_joins.as_ref()]);
        }
        if name_of(factor).is_some_and(|name| name == self.alias) {
            return Err(QueryError::Duplicate { kind: "table name", name: self.alias.clone() });
        }
        Ok(())
    }
}

/// The name by which columns of a relation are qualified.
pub(super) fn name_of(factor: &TableFactor) -> Option<String> {
    match factor {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::TableFunction { alias: Some(alias), .. }
        | TableFactor::Function { alias: Some(alias), .. }
        | TableFactor::UNNEST { alias: Some(alias), .. }
        | TableFactor::NestedJoin { alias: Some(alias), .. } => Some(normalize(&alias.name)),
        TableFactor::Table { name, .. } => name.0.last()?.as_ident().map(normalize),
        _ => None,
    }
}

/// The function that makes a value one of an integer type; `None` for other types.
pub fn assignment_function(logical: LogicalType) -> Option<&'static str> {
    Some(match logical {
        LogicalType::SmallInt => "taut_assign_smallint",
        LogicalType::Integer => "taut_assign_integer",
        LogicalType::BigInt => "taut_assign_bigint",
        _ => return None,
    })
}
