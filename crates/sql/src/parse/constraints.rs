//! Constraints and defaults of `CREATE TABLE` and `ALTER TABLE`.

use datafusion_sql::sqlparser::ast::{
    AlterColumnOperation, AlterTableOperation, CheckConstraint, ColumnOption, ConstraintCharacteristics,
    DeferrableInitial, DropBehavior, Expr, ForeignKeyConstraint, Ident, IndexColumn, NullsDistinctOption, OrderByExpr,
    OrderByOptions, PrimaryKeyConstraint, ReferentialAction as AstAction, TableConstraint, UniqueConstraint,
};
use taut_store::ReferentialAction;

use crate::declared::{ConstraintChange, Declared, DeclaredCondition, DeclaredConstraint};
use crate::error::{Result, SqlError};
use crate::identifiers::{normalize, relation_reference};

impl Declared {
    /// Adds an option of a column. Returns `None` if the option is not a constraint or a default.
    pub(super) fn add_column_option(
        &mut self,
        column: &str,
        name: Option<&Ident>,
        option: &ColumnOption,
    ) -> Result<Option<()>> {
        let columns = || vec![column.to_owned()];
        let rule = match option {
            ColumnOption::Default(value) => {
                self.defaults.push((column.to_owned(), value.clone()));
                return Ok(Some(()));
            }
            ColumnOption::PrimaryKey(key) => {
                check_characteristics(&key.characteristics)?;
                DeclaredCondition::Key { columns: columns(), is_primary: true }
            }
            ColumnOption::Unique(key) => {
                check_unique(key)?;
                DeclaredCondition::Key { columns: columns(), is_primary: false }
            }
            ColumnOption::Check(check) => check_rule(check)?,
            ColumnOption::ForeignKey(key) => foreign_key(key, columns())?,
            _ => return Ok(None),
        };
        self.constraints.push(DeclaredConstraint { name: name.map(normalize), rule });
        Ok(Some(()))
    }

    /// Whether a column is part of the primary key.
    pub(super) fn is_primary(&self, column: &str) -> bool {
        self.constraints.iter().any(|constraint| match &constraint.rule {
            DeclaredCondition::Key { columns, is_primary: true } => columns.iter().any(|name| name == column),
            _ => false,
        })
    }
}

/// Converts a table constraint.
///
/// # Errors
/// If the constraint is not supported, for example because it is deferrable.
pub fn table_constraint(constraint: TableConstraint) -> Result<DeclaredConstraint> {
    let (name, rule) = match &constraint {
        TableConstraint::PrimaryKey(PrimaryKeyConstraint { name, columns, characteristics, .. }) => {
            check_characteristics(characteristics)?;
            (name, DeclaredCondition::Key { columns: key_columns(columns)?, is_primary: true })
        }
        TableConstraint::Unique(key) => {
            check_unique(key)?;
            (&key.name, DeclaredCondition::Key { columns: key_columns(&key.columns)?, is_primary: false })
        }
        TableConstraint::Check(check) => (&check.name, check_rule(check)?),
        TableConstraint::ForeignKey(key) => (&key.name, foreign_key(key, key.columns.iter().map(normalize).collect())?),
        other => {
            let allowed = "PRIMARY KEY, UNIQUE, CHECK and FOREIGN KEY are";
            return Err(SqlError::unsupported(format!("table constraint {other}"), allowed));
        }
    };
    Ok(DeclaredConstraint { name: name.as_ref().map(normalize), rule })
}

/// Converts a change of constraints or defaults. Returns `None` for other changes of a table.
///
/// # Errors
/// If the constraint is `NOT VALID` or not supported.
pub fn constraint_change(operation: &AlterTableOperation) -> Result<Option<ConstraintChange>> {
    Ok(Some(match operation {
        AlterTableOperation::AddConstraint { constraint, not_valid: false } => {
            ConstraintChange::Add(table_constraint(constraint.clone())?)
        }
        AlterTableOperation::AddConstraint { .. } => {
            return Err(SqlError::unsupported("NOT VALID", "a constraint holds for all rows of its table"));
        }
        AlterTableOperation::DropConstraint { if_exists, name, drop_behavior: None | Some(DropBehavior::Restrict) } => {
            ConstraintChange::Drop { name: normalize(name), if_exists: *if_exists }
        }
        AlterTableOperation::AlterColumn { column_name, op: AlterColumnOperation::SetDefault { value } } => {
            ConstraintChange::Default { column: normalize(column_name), value: Some(Box::new(value.clone())) }
        }
        AlterTableOperation::AlterColumn { column_name, op: AlterColumnOperation::DropDefault } => {
            ConstraintChange::Default { column: normalize(column_name), value: None }
        }
        AlterTableOperation::AlterColumn { column_name, op: AlterColumnOperation::SetNotNull } => {
            ConstraintChange::Nullable { column: normalize(column_name), nullable: false }
        }
        AlterTableOperation::AlterColumn { column_name, op: AlterColumnOperation::DropNotNull } => {
            ConstraintChange::Nullable { column: normalize(column_name), nullable: true }
        }
        _ => return Ok(None),
    }))
}

fn key_columns(columns: &[IndexColumn]) -> Result<Vec<String>> {
    let name = |column: &IndexColumn| match &column.column {
        OrderByExpr { expr: Expr::Identifier(name), options, with_fill: None }
            if column.operator_class.is_none() && *options == OrderByOptions::default() =>
        {
            Ok(normalize(name))
        }
        _ => Err(SqlError::unsupported(format!("{column} in a key"), "names of columns are")),
    };
    columns.iter().map(name).collect()
}

fn check_unique(key: &UniqueConstraint) -> Result<()> {
    check_characteristics(&key.characteristics)?;
    match key.nulls_distinct {
        NullsDistinctOption::NotDistinct => {
            Err(SqlError::unsupported("UNIQUE NULLS NOT DISTINCT", "rows with a null in a key are all distinct"))
        }
        _ => Ok(()),
    }
}

fn check_rule(check: &CheckConstraint) -> Result<DeclaredCondition> {
    match check.enforced {
        Some(false) => Err(not_enforced()),
        _ => Ok(DeclaredCondition::Check { condition: check.expr.clone() }),
    }
}

fn foreign_key(key: &ForeignKeyConstraint, columns: Vec<String>) -> Result<DeclaredCondition> {
    check_characteristics(&key.characteristics)?;
    let allowed = "FOREIGN KEY (a) REFERENCES t (b) ON DELETE NO ACTION, RESTRICT, CASCADE or SET NULL is";
    if let Some(kind) = &key.match_kind
        && kind.to_string() != "MATCH SIMPLE"
    {
        return Err(SqlError::unsupported(kind.to_string(), allowed));
    }
    let on_delete = match key.on_delete {
        None | Some(AstAction::NoAction | AstAction::Restrict) => ReferentialAction::NoAction,
        Some(AstAction::Cascade) => ReferentialAction::Cascade,
        Some(AstAction::SetNull) => ReferentialAction::SetNull,
        Some(AstAction::SetDefault) => return Err(SqlError::unsupported("ON DELETE SET DEFAULT", allowed)),
    };
    if let Some(action @ (AstAction::Cascade | AstAction::SetNull | AstAction::SetDefault)) = &key.on_update {
        return Err(SqlError::unsupported(format!("ON UPDATE {action}"), "ON UPDATE NO ACTION and RESTRICT are"));
    }
    let referenced = key.referred_columns.iter().map(normalize).collect();
    Ok(DeclaredCondition::ForeignKey { columns, table: relation_reference(&key.foreign_table)?, referenced, on_delete })
}

/// Returns an error for constraints that are deferrable, deferred or not enforced: Taut checks every constraint at the
/// end of each statement.
fn check_characteristics(characteristics: &Option<ConstraintCharacteristics>) -> Result<()> {
    match characteristics {
        Some(ConstraintCharacteristics { enforced: Some(false), .. }) => Err(not_enforced()),
        Some(ConstraintCharacteristics { deferrable: Some(true), .. }) => {
            Err(SqlError::unsupported("DEFERRABLE", "constraints hold at the end of each statement"))
        }
        Some(ConstraintCharacteristics { initially: Some(DeferrableInitial::Deferred), .. }) => {
            Err(SqlError::unsupported("INITIALLY DEFERRED", "constraints hold at the end of each statement"))
        }
        _ => Ok(()),
    }
}

fn not_enforced() -> SqlError {
    SqlError::unsupported("NOT ENFORCED", "a constraint holds for all rows of its table")
}
