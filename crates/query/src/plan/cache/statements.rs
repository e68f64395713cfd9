//! Cache of parsed statements by text. A repeated text is not parsed again and finds its cached plan.

use std::collections::HashMap;

use parking_lot::Mutex;
use taut_sql::{Statement, is_query};

/// Maximum number of cached texts.
const TEXTS_MAX: usize = 64;
/// Maximum length of a cached text in bytes.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// Recent statement texts of a session that are likely to be repeated.
#[derive(Debug, Default)]
pub struct StatementCache(Mutex<CachedTexts>);

#[derive(Debug, Default)]
struct CachedTexts {
    /// Statement and time of its last use, by text.
    statements: HashMap<String, (Statement, u64)>,
    /// Number of lookups so far. It is the clock for the last use of entries.
    lookups: u64,
}

impl StatementCache {
    /// Returns the statement that a text was parsed to, if it is cached.
    pub fn get(&self, text: &str) -> Option<Statement> {
        let mut cache = self.0.lock();
        cache.lookups += 1;
        let now = cache.lookups;
        let (statement, last_use) = cache.statements.get_mut(text)?;
        *last_use = now;
        Some(statement.clone())
    }

    /// Caches the statement of a text if it is a query or may have parameters. Other texts contain literals and are
    /// hardly ever repeated. Replaces the least recently used entry if the cache is full.
    pub fn insert(&self, text: &str, statements: &[Statement]) {
        let [statement] = statements else { return };
        let is_likely_repeated = match statement {
            Statement::Planned { statement, .. } => is_query(statement) || text.contains(['?', '$']),
            Statement::Mutation { explain: None, .. } => text.contains(['?', '$']),
            _ => false,
        };
        if text.len() > TEXT_BYTES_MAX || !is_likely_repeated {
            return;
        }
        let mut all = self.0.lock();
        if all.statements.len() >= TEXTS_MAX
            && let Some(oldest) = all.statements.iter().min_by_key(|(_, (_, last_use))| *last_use)
        {
            let oldest = oldest.0.clone();
            all.statements.remove(&oldest);
        }
        let now = all.lookups;
        all.statements.insert(text.to_owned(), (statement.clone(), now));
    }
}
