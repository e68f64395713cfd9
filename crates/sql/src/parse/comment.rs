//! `COMMENT ON`.

use datafusion_sql::sqlparser::ast::{CommentObject, ObjectName, ObjectNamePart};

use crate::error::{ObjectKind, Result, SqlError};
use crate::identifiers::{normalize, qualified_schema, relation_reference};
use crate::statement::{CommentedObject, Statement};

pub(super) fn comment(object: CommentObject, name: ObjectName, comment: Option<String>) -> Result<Statement> {
    let relation = |kind| Ok::<_, SqlError>(CommentedObject::Relation { kind, name: relation_reference(&name)? });
    let on = match object {
        CommentObject::Table => relation(ObjectKind::Table)?,
        CommentObject::View => relation(ObjectKind::View)?,
        CommentObject::Sequence => relation(ObjectKind::Sequence)?,
        CommentObject::Column => column(name)?,
        CommentObject::Schema => {
            let (database, name) = qualified_schema(&name)?;
            CommentedObject::Schema { database, name }
        }
        other => {
            let allowed = "COMMENT ON TABLE, VIEW, COLUMN, SEQUENCE, SCHEMA and FUNCTION are";
            return Err(SqlError::unsupported(format!("COMMENT ON {other}"), allowed));
        }
    };
    Ok(Statement::Comment { on, comment })
}

/// Splits `t.c` into the relation `t` and its column `c`.
fn column(mut name: ObjectName) -> Result<CommentedObject> {
    match name.0.pop() {
        Some(ObjectNamePart::Identifier(column)) if !name.0.is_empty() => {
            Ok(CommentedObject::Column { relation: relation_reference(&name)?, column: normalize(&column) })
        }
        _ => Err(SqlError::syntax("column name must be qualified, such as COMMENT ON COLUMN t.c IS 'text'")),
    }
}
