//! Prepared statements, as they were written, and with the plans that are kept of them.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::sql::parser::Statement as EngineStatement;
use parking_lot::Mutex;

use crate::error::{QueryError, Result};
use crate::kept::Slot;
use crate::statement::Names;

/// A `PREPARE` that was run.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The whole statement.
    pub statement: Arc<EngineStatement>,
    /// The columns it can mean; `None` for all.
    pub names: Option<Arc<Names>>,
    /// Whether it comes from a long text.
    pub is_long: bool,
    /// Where its plan is kept.
    pub plan: Slot,
}

/// The prepared statements of a session, by name.
#[derive(Debug, Default)]
pub struct PreparedStatements(Mutex<HashMap<String, Prepared>>);

impl PreparedStatements {
    /// Keeps a statement.
    ///
    /// # Errors
    /// When there is one of that name.
    pub fn insert(&self, name: &str, prepared: Prepared) -> Result<()> {
        let mut all = self.0.lock();
        if all.contains_key(name) {
            return Err(QueryError::Exists { kind: "prepared statement", name: name.to_owned() });
        }
        all.insert(name.to_owned(), prepared);
        Ok(())
    }

    /// A statement.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn get(&self, name: &str) -> Result<Prepared> {
        self.0.lock().get(name).cloned().ok_or_else(|| missing(name))
    }

    /// Forgets a statement.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.0.lock().remove(name).map(drop).ok_or_else(|| missing(name))
    }

    /// Whether some statement comes from a long text.
    pub fn any_is_long(&self) -> bool {
        self.0.lock().values().any(|prepared| prepared.is_long)
    }
}

fn missing(name: &str) -> QueryError {
    QueryError::NotFound { kind: "prepared statement", name: name.to_owned() }
}
