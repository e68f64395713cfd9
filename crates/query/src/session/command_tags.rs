//! Command names of statements, as the messages about them and PostgreSQL's command tags have them.

use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{LogicalPlan, WriteOp};
use taut_sql::{ObjectKind, SettingValue, Statement, TableSource};

use crate::error::{QueryError, Result};

/// Command name of a statement that changes definitions or loads a file, if this crate plans it; `None` for other
/// statements.
pub fn ddl_tag(statement: &Statement) -> Option<&'static str> {
    Some(match statement {
        Statement::CreateTable { source: TableSource::Query(_), .. } => "CREATE TABLE AS",
        Statement::CreateTable { .. } => "CREATE TABLE",
        Statement::CreateIndex(_) => "CREATE INDEX",
        Statement::Drop { kind: ObjectKind::View, .. } => "DROP VIEW",
        Statement::Drop { kind: ObjectKind::Index, .. } => "DROP INDEX",
        Statement::Drop { .. } => "DROP TABLE",
        Statement::AlterTable { .. } | Statement::AlterConstraints { .. } => "ALTER TABLE",
        Statement::CopyFrom { .. } => "COPY FROM",
        Statement::CreateView { .. } => "CREATE VIEW",
        _ => return None,
    })
}

/// Command name of a statement that changes how the database is stored but not its contents; `None` for other
/// statements.
pub fn maintenance_tag(statement: &Statement) -> Option<&'static str> {
    Some(match statement {
        Statement::Checkpoint => "CHECKPOINT",
        Statement::Vacuum { .. } => "VACUUM",
        Statement::StopLogRetention => "BACKUP DATABASE STOP LOG",
        Statement::Set(SettingValue::Mover(true)) => "SET mover = on",
        _ => return None,
    })
}

/// Verb of a plan that writes rows; `None` for a query.
///
/// # Errors
/// If the statement is not supported.
pub fn verb_of(plan: &LogicalPlan) -> Result<Option<&'static str>> {
    match plan {
        LogicalPlan::Ddl(ddl) => {
            Err(QueryError::unsupported(ddl.name(), "tables and views can be created, altered and dropped"))
        }
        LogicalPlan::Dml(dml) if matches!(dml.op, WriteOp::Insert(InsertOp::Append)) => Ok(Some("INSERT")),
        LogicalPlan::Dml(dml) => Err(QueryError::unsupported(
            dml.op.name(),
            "INSERT, UPDATE, DELETE and MERGE as statements of their own are",
        )),
        LogicalPlan::Copy(_) => Ok(Some("COPY")),
        _ => Ok(None),
    }
}
