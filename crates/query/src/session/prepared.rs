//! Prepared statements of a session. Each holds the cache entry of its plan.

use std::collections::HashMap;

use parking_lot::Mutex;
use taut_sql::{ObjectKind, Statement};

use crate::error::{QueryError, Result};

/// The prepared statements of a session, by name.
#[derive(Debug, Default)]
pub struct PreparedStatements(Mutex<HashMap<String, Statement>>);

impl PreparedStatements {
    /// Stores a prepared statement. For a query, `prepared` is the whole `PREPARE` statement. For a statement that
    /// changes rows, it is only the part after `PREPARE name AS`.
    ///
    /// # Errors
    /// If the name is already used.
    pub fn insert(&self, name: &str, prepared: Statement) -> Result<()> {
        let mut all = self.0.lock();
        if all.contains_key(name) {
            return Err(QueryError::Exists {
                kind: ObjectKind::PreparedStatement,
                name: name.to_owned(),
                relation: None,
            });
        }
        all.insert(name.to_owned(), prepared);
        Ok(())
    }

    /// Returns a prepared statement.
    ///
    /// # Errors
    /// If no prepared statement has this name.
    pub fn get(&self, name: &str) -> Result<Statement> {
        self.0.lock().get(name).cloned().ok_or_else(|| not_found(name))
    }

    /// Removes a prepared statement.
    ///
    /// # Errors
    /// If no prepared statement has this name.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.0.lock().remove(name).map(drop).ok_or_else(|| not_found(name))
    }

    /// Removes all prepared statements.
    pub fn clear(&self) {
        self.0.lock().clear();
    }

    /// Whether any prepared statement has a text so long that it may need a large stack: see
    /// [`taut_sql::is_long`].
    pub fn any_is_long(&self) -> bool {
        self.0.lock().values().any(Statement::is_long)
    }
}

fn not_found(name: &str) -> QueryError {
    QueryError::NotFound { kind: ObjectKind::PreparedStatement, name: name.to_owned(), relation: None }
}
