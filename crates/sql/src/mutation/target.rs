//! The table that a statement changes, and its columns.

use datafusion_common::TableReference;
use datafusion_sql::sqlparser::ast::{
    CastKind, Expr, Ident, Join, JoinConstraint, JoinOperator, ObjectName, TableFactor, TableWithJoins, Value,
};
use taut_types::LogicalType;

use super::qualify::refers_to;
use super::{ROW, TARGET};
use crate::error::{ObjectKind, Result, SqlError};
use crate::identifiers::{normalize, relation_reference};
use crate::syntax::{call, column, is_default, null, relation_name, table};
use crate::types::sql_type;

/// A column of the table that a statement changes.
#[derive(Clone, Copy, Debug)]
pub struct TargetColumn<'a> {
    /// Name of the column.
    pub name: &'a str,
    /// Default value of the column. `None` means null.
    pub default: Option<&'a Expr>,
    /// Type to which values are cast. `ON CONFLICT` and `MERGE` choose the value of a column by a `CASE`. Without the
    /// cast, its branches would get a common type, which may be narrower than the type of the column. Parameters need
    /// the cast because the planner cannot know their type. `None` leaves values as they are.
    pub logical_type: Option<LogicalType>,
    /// Source of the values if the column is `GENERATED ALWAYS`. Statements can assign only `DEFAULT` to such a column.
    /// `None` for other columns.
    pub generated: Option<GeneratedAlways<'a>>,
    /// Whether the column is an identity column, `GENERATED ALWAYS` or `BY DEFAULT`.
    pub is_identity: bool,
}

/// Source of the values of a column that is `GENERATED ALWAYS`.
#[derive(Clone, Copy, Debug)]
pub enum GeneratedAlways<'a> {
    /// The next number of its sequence, which is its default.
    Identity,
    /// The value of an expression over the other columns. The query of a statement needs the value only if the
    /// statement compares or reads the row before it writes it. The value is computed again when the row is written.
    Expression(&'a Expr),
    /// The value of the expression of an index, in a hidden column. Statements cannot name the column.
    IndexExpression(&'a Expr),
}

impl TargetColumn<'_> {
    /// The value of `DEFAULT` in this column.
    pub(super) fn default(&self) -> Expr {
        self.default.cloned().unwrap_or_else(null)
    }

    /// Casts an expression to the type of the column.
    pub(super) fn cast(&self, expression: Expr) -> Expr {
        if let Some(function) = self.logical_type.and_then(assignment_function) {
            return call(function, vec![expression]);
        }
        match self.logical_type.and_then(sql_type) {
            Some(data_type) => {
                Expr::Cast { kind: CastKind::Cast, expr: Box::new(expression), data_type, array: false, format: None }
            }
            None => expression,
        }
    }

    /// Converts a value of an `INSERT`: replaces `DEFAULT`, and casts a parameter to the type of the column.
    ///
    /// # Errors
    /// If the column is `GENERATED ALWAYS`, and the value is not `DEFAULT`.
    pub(super) fn inserted_value(&self, expression: &Expr) -> Result<Expr> {
        self.check_inserted(is_default(expression))?;
        Ok(self.value(expression))
    }

    /// # Errors
    /// If the column is `GENERATED ALWAYS`, and an `INSERT` gives it a value other than `DEFAULT`.
    pub(super) fn check_inserted(&self, is_default: bool) -> Result<()> {
        self.check_given(is_default, false)
    }

    fn check_given(&self, is_default: bool, is_update: bool) -> Result<()> {
        match self.generated {
            Some(generated) if !is_default => {
                let is_identity = matches!(generated, GeneratedAlways::Identity);
                Err(SqlError::GeneratedAlways { column: self.name.to_owned(), is_update, is_identity })
            }
            _ => Ok(()),
        }
    }

    /// The expression of a generated column. `None` for other columns.
    pub(super) fn expression(&self) -> Option<&Expr> {
        match self.generated {
            Some(GeneratedAlways::Expression(expression) | GeneratedAlways::IndexExpression(expression)) => {
                Some(expression)
            }
            _ => None,
        }
    }

    /// Whether the column is hidden from statements.
    pub(super) fn is_hidden(&self) -> bool {
        matches!(self.generated, Some(GeneratedAlways::IndexExpression(_)))
    }

    /// Converts a value of a `SET`: replaces `DEFAULT`, and casts a parameter to the type of the column.
    ///
    /// # Errors
    /// If the column is `GENERATED ALWAYS`, and the value is not `DEFAULT`.
    pub(super) fn assigned_value(&self, expression: &Expr) -> Result<Expr> {
        self.check_given(is_default(expression), true)?;
        Ok(self.value(expression))
    }

    /// Converts a value of the statement: replaces `DEFAULT`, and casts a parameter to the type of the column.
    fn value(&self, expression: &Expr) -> Expr {
        match expression {
            _ if is_default(expression) => self.default(),
            Expr::Value(value) if matches!(value.value, Value::Placeholder(_)) => self.cast(expression.clone()),
            other => other.clone(),
        }
    }
}

/// The table that a statement changes, and the name by which the statement refers to its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub table: TableReference,
    pub alias: String,
}

impl Target {
    pub fn new(name: &ObjectName, alias: Option<&Ident>) -> Result<Self> {
        let table = relation_reference(name)?;
        let alias = alias.map_or_else(|| table.table().to_owned(), normalize);
        Ok(Self { table, alias })
    }

    /// Converts a table reference as it is written in `FROM`.
    pub fn from_table_factor(factor: &TableFactor) -> Result<Self> {
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
            other => Err(SqlError::unsupported(
                format!("{other} as a table to change"),
                "the name of a table is, with another name after AS",
            )),
        }
    }

    /// Converts the table of an `UPDATE` or `DELETE`. Returns an error for joins, which other dialects allow there.
    pub fn single_table(verb: &str, table: &TableWithJoins, instead: &str) -> Result<Self> {
        if table.joins.is_empty() {
            return Self::from_table_factor(&table.relation);
        }
        Err(SqlError::unsupported(format!("{verb} of joined tables"), format!("{instead} joins others")))
    }

    /// The table as a relation of the query, with its row ids.
    pub fn relation(&self) -> TableFactor {
        table(TARGET, &self.alias)
    }

    /// The hidden column with the row id.
    pub fn row_id(&self) -> Expr {
        column(&self.alias, ROW)
    }

    pub fn column(&self, name: &str) -> Expr {
        column(&self.alias, name)
    }

    /// Index of a column that a statement assigns to.
    pub fn index(&self, name: &ObjectName, columns: &[TargetColumn<'_>]) -> Result<usize> {
        let not_found = |name: String| SqlError::NoColumn { name, relation: self.table.table().to_owned() };
        let parts: Option<Vec<&Ident>> = name.0.iter().map(|part| part.as_ident()).collect();
        let last = match parts.as_deref() {
            Some([last]) => last,
            Some([relation, last]) if normalize(relation) == self.alias => last,
            _ => {
                let allowed = format!("a statement sets columns of table {:?} only", self.table.table());
                return Err(SqlError::unsupported(format!("{name} as a column to set"), allowed));
            }
        };
        let last = normalize(last);
        let is_named = |column: &TargetColumn<'_>| column.name == last && !column.is_hidden();
        columns.iter().position(is_named).ok_or_else(|| not_found(last))
    }

    /// Gives the target an internal name if another relation of the statement has its name in another schema, as in
    /// `UPDATE t ... FROM sales.t`. The planner compares the schemas.
    ///
    /// # Errors
    /// If a relation has the same name, and can be no table of another schema. If the condition of a join refers to the
    /// target.
    pub fn set_apart_from(&mut self, relations: &[TableWithJoins]) -> Result<()> {
        let mut has_namesake = false;
        for relation in relations {
            let joined = relation.joins.iter().map(|join| &join.relation);
            for factor in std::iter::once(&relation.relation).chain(joined) {
                match factor {
                    TableFactor::NestedJoin { table_with_joins, alias: None } => {
                        let mut inner = self.clone();
                        inner.set_apart_from(std::slice::from_ref(table_with_joins))?;
                        has_namesake |= inner.alias != self.alias;
                    }
                    TableFactor::Table { name, alias: None, args: None, .. }
                        if name.0.len() > 1 || self.table.schema().is_some() =>
                    {
                        let is_unaliased = self.alias == self.table.table();
                        has_namesake |= is_unaliased && relation_name(factor).is_some_and(|name| name == self.alias);
                        if !is_unaliased {
                            self.check_name(factor)?;
                        }
                    }
                    other => self.check_name(other)?,
                }
            }
        }
        if has_namesake {
            TARGET.clone_into(&mut self.alias);
            return Ok(());
        }
        let conditions = relations.iter().flat_map(|relation| &relation.joins).filter_map(condition);
        match conditions.into_iter().any(|condition| refers_to(condition, &self.alias)) {
            true => Err(SqlError::HiddenTable { table: self.alias.clone() }),
            false => Ok(()),
        }
    }

    /// Returns an error if a relation has the same name as the target.
    pub fn check_name(&self, factor: &TableFactor) -> Result<()> {
        if relation_name(factor).is_some_and(|name| name == self.alias) {
            return Err(SqlError::Duplicate { kind: ObjectKind::TableName, name: self.alias.clone() });
        }
        Ok(())
    }
}

/// The condition of a join with `ON`.
fn condition(join: &Join) -> Option<&Expr> {
    match &join.join_operator {
        JoinOperator::Join(JoinConstraint::On(condition))
        | JoinOperator::Inner(JoinConstraint::On(condition))
        | JoinOperator::Left(JoinConstraint::On(condition))
        | JoinOperator::LeftOuter(JoinConstraint::On(condition))
        | JoinOperator::Right(JoinConstraint::On(condition))
        | JoinOperator::RightOuter(JoinConstraint::On(condition))
        | JoinOperator::FullOuter(JoinConstraint::On(condition)) => Some(condition),
        _ => None,
    }
}

/// Name of the function that casts a value to an integer type on assignment. `None` for other types.
pub fn assignment_function(logical: LogicalType) -> Option<&'static str> {
    Some(match logical {
        LogicalType::SmallInt => "taut_assign_smallint",
        LogicalType::Integer => "taut_assign_integer",
        LogicalType::BigInt => "taut_assign_bigint",
        _ => return None,
    })
}
