//! What texts were parsed to, so that one which comes again is not parsed again and finds its plan.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::statement::{Statement, is_query};

/// Texts that are remembered.
const TEXTS_MAX: usize = 64;
/// Longer ones are not.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// The texts that a session was given last and that are likely to come again.
#[derive(Debug, Default)]
pub struct Texts(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    statements: HashMap<String, (Statement, u64)>,
    /// Counts the uses, by which the statements are aged.
    uses: u64,
}

impl Texts {
    /// What a text was parsed to.
    pub fn get(&self, text: &str) -> Option<Statement> {
        let mut known = self.0.lock();
        known.uses += 1;
        let now = known.uses;
        let (statement, used) = known.statements.get_mut(text)?;
        *used = now;
        Some(statement.clone())
    }

    /// Remembers what a text was parsed to, if it is a query, or may have parameters: one that writes literals hardly ever
    /// comes again. It takes the place of the one that was used longest ago.
    pub fn insert(&self, text: &str, statements: &[Statement]) {
        let [known] = statements else { return };
        let may_come_again = match known {
            Statement::Engine { statement, .. } => is_query(statement) || text.contains(['?', '$']),
            Statement::Mutation { explain: None, .. } => text.contains(['?', '$']),
            _ => false,
        };
        if text.len() > TEXT_BYTES_MAX || !may_come_again {
            return;
        }
        let mut all = self.0.lock();
        if all.statements.len() >= TEXTS_MAX
            && let Some(oldest) = all.statements.iter().min_by_key(|(_, (_, used))| *used)
        {
            let oldest = oldest.0.clone();
            all.statements.remove(&oldest);
        }
        let now = all.uses;
        all.statements.insert(text.to_owned(), (known.clone(), now));
    }
}
