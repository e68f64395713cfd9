//! `SET LOCAL`: settings whose earlier values are restored when the transaction ends, or when it is rolled back to an
//! earlier savepoint.

use taut_sql::{Setting, SettingValue, Statement};

use super::{Done, Outcome, QuerySession};
use crate::error::{QueryError, Result};

/// Values that `SET LOCAL` has replaced in the transaction in progress, and the savepoints, in order.
#[derive(Debug, Default)]
pub(super) struct LocalSettings(Vec<Entry>);

#[derive(Debug)]
enum Entry {
    /// Value of a setting before a `SET LOCAL`.
    Earlier(SettingValue),
    /// A savepoint of this name.
    Savepoint(String),
}

impl LocalSettings {
    /// Forgets the earlier values of a setting after a `SET`, so that the end of the transaction does not restore them.
    pub fn forget(&mut self, setting: Setting) {
        self.0.retain(|entry| !matches!(entry, Entry::Earlier(earlier) if earlier.setting() == setting));
    }

    /// Removes and returns the values that were replaced after a savepoint, or all values. The last one comes first.
    fn take_after(&mut self, savepoint: Option<&str>) -> Vec<SettingValue> {
        let start = savepoint.and_then(|name| self.position(name)).map_or(0, |position| position + 1);
        let earlier = |entry| match entry {
            Entry::Earlier(value) => Some(value),
            Entry::Savepoint(_) => None,
        };
        self.0.drain(start..).rev().filter_map(earlier).collect()
    }

    /// Ends a savepoint and all later savepoints.
    fn release(&mut self, savepoint: &str) {
        let Some(start) = self.position(savepoint) else { return };
        let mut position = 0;
        self.0.retain(|entry| {
            position += 1;
            position <= start || matches!(entry, Entry::Earlier(_))
        });
    }

    fn position(&self, savepoint: &str) -> Option<usize> {
        self.0.iter().rposition(|entry| matches!(entry, Entry::Savepoint(name) if name == savepoint))
    }
}

impl QuerySession {
    /// Sets a setting until the transaction ends.
    pub(super) fn set_local(&self, value: &SettingValue) -> Result<Outcome> {
        let Some(earlier) = self.session_value(value.setting()) else {
            let what = format!("SET LOCAL {}", value.setting().name());
            return Err(QueryError::unsupported(what, "the setting applies to the whole database; SET is"));
        };
        if !self.is_in_transaction() {
            let notice = "SET LOCAL can only be used in transaction blocks".to_owned();
            return Ok(Outcome::Done(Done { notices: vec![notice], ..Done::with_tag("SET") }));
        }
        self.apply_setting(value)?;
        self.local_settings.lock().0.push(Entry::Earlier(earlier));
        Ok(Outcome::Done(Done::with_tag("SET")))
    }

    /// Restores local settings after a statement that controls transactions, which may have failed.
    pub(super) fn restore_local_settings(&self, statement: &Statement, has_succeeded: bool) -> Result<()> {
        let replaced = {
            let mut local = self.local_settings.lock();
            match statement {
                _ if !self.is_in_transaction() => local.take_after(None),
                _ if !has_succeeded => return Ok(()),
                Statement::Rollback { savepoint: Some(name) } => local.take_after(Some(name)),
                Statement::Savepoint { name } => {
                    local.0.push(Entry::Savepoint(name.clone()));
                    return Ok(());
                }
                Statement::Release { name } => {
                    local.release(name);
                    return Ok(());
                }
                _ => return Ok(()),
            }
        };
        replaced.iter().try_for_each(|value| self.apply_setting(value))
    }

    /// Value of a setting of the session. Returns `None` for other settings.
    fn session_value(&self, setting: Setting) -> Option<SettingValue> {
        Some(match setting {
            Setting::Synchronous => SettingValue::Synchronous(self.transactions.lock().synchronous),
            Setting::StatementTimeout => SettingValue::StatementTimeout(self.statement_timeout()),
            Setting::PreserveInsertionOrder => SettingValue::PreserveInsertionOrder(self.preserves_insertion_order()),
            Setting::TimeZone => SettingValue::TimeZone(self.time_zone()),
            Setting::SearchPath => SettingValue::SearchPath(self.search_path().schemas().to_vec()),
            Setting::Mover
            | Setting::TempDirectory
            | Setting::DefaultTransactionIsolation
            | Setting::DefaultTransactionReadOnly
            | Setting::TransactionIsolation
            | Setting::TransactionReadOnly => return None,
        })
    }
}
