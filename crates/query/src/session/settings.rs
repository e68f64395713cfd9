//! `SET` and `SHOW` of the settings of Taut.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use datafusion::common::config::ConfigOptions;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use taut_sql::{IsolationLevel, Setting, SettingValue, SqlError, format_timeout, on_or_off, synchronous_name};
use taut_store::Synchronous;
use taut_types::quote_identifier;

use super::queries::SPILL_SETTINGS;
use super::search_path::SearchPath;
use super::{Done, Outcome, QuerySession, ddl};
use crate::error::{QueryError, Result};
use crate::expressions::{TimeZone, rows_in_zone, schema_in_zone, session_zone, zone_name};
use crate::plan::engine::TautOptions;

/// Values of all settings in a session.
#[derive(Clone, Debug)]
pub struct SettingValues {
    pub synchronous: Synchronous,
    pub mover: bool,
    pub temp_directory: PathBuf,
    pub statement_timeout: Option<Duration>,
    pub preserve_insertion_order: bool,
    pub search_path: SearchPath,
    pub time_zone: String,
    pub default_transaction_isolation: IsolationLevel,
    pub default_transaction_read_only: bool,
    pub transaction_isolation: IsolationLevel,
    pub transaction_read_only: bool,
}

impl SettingValues {
    /// Value of a setting, as `SHOW` returns it.
    pub fn value(&self, setting: Setting) -> String {
        match setting {
            Setting::Synchronous => synchronous_name(self.synchronous).to_owned(),
            Setting::Mover => on_or_off(self.mover).to_owned(),
            Setting::TempDirectory => self.temp_directory.display().to_string(),
            Setting::StatementTimeout => format_timeout(self.statement_timeout),
            Setting::PreserveInsertionOrder => on_or_off(self.preserve_insertion_order).to_owned(),
            Setting::SearchPath => search_path_text(&self.search_path),
            Setting::TimeZone => self.time_zone.clone(),
            Setting::DefaultTransactionIsolation => self.default_transaction_isolation.name().to_owned(),
            Setting::DefaultTransactionReadOnly => on_or_off(self.default_transaction_read_only).to_owned(),
            Setting::TransactionIsolation => self.transaction_isolation.name().to_owned(),
            Setting::TransactionReadOnly => on_or_off(self.transaction_read_only).to_owned(),
        }
    }
}

/// A search path as `SHOW` returns it.
fn search_path_text(path: &SearchPath) -> String {
    match path.schemas() {
        [] => "\"\"".to_owned(),
        schemas => schemas.iter().map(|schema| quote_identifier(schema)).collect::<Vec<_>>().join(", "),
    }
}

impl QuerySession {
    /// Time limit of each statement of this session. Returns `None` if there is no limit.
    pub fn statement_timeout(&self) -> Option<Duration> {
        *self.statement_timeout.lock()
    }

    /// Current values of all settings.
    pub(super) fn setting_values(&self) -> SettingValues {
        let (defaults, current, synchronous) = {
            let transactions = self.transactions.lock();
            (transactions.default_modes(), transactions.modes(), transactions.synchronous)
        };
        let is_read_only = self.store.is_read_only();
        SettingValues {
            synchronous,
            mover: self.mover.shared().is_on(),
            temp_directory: self.mover.engine().spill_directory().path(),
            statement_timeout: self.statement_timeout(),
            preserve_insertion_order: self.preserves_insertion_order(),
            search_path: self.search_path(),
            time_zone: self.time_zone(),
            default_transaction_isolation: defaults.isolation,
            default_transaction_read_only: is_read_only || defaults.read_only,
            transaction_isolation: current.isolation,
            transaction_read_only: is_read_only || current.read_only,
        }
    }

    /// Runs `SET` of a setting of Taut.
    pub(super) fn set(&self, value: &SettingValue) -> Result<Outcome> {
        self.apply_setting(value)?;
        self.local_settings.lock().forget(value.setting());
        Ok(Outcome::Done(Done::with_tag("SET")))
    }

    /// Changes the value of a setting.
    pub(super) fn apply_setting(&self, value: &SettingValue) -> Result<()> {
        match value {
            SettingValue::Synchronous(synchronous) => self.transactions.lock().synchronous = *synchronous,
            SettingValue::Mover(is_on) => self.mover.set_on(*is_on),
            SettingValue::TempDirectory(directory) => {
                let chosen =
                    self.mover.engine().spill_directory().set_directory(directory.as_deref().map(PathBuf::from));
                chosen.map_err(|error| QueryError::Engine(error.into()))?;
            }
            SettingValue::StatementTimeout(limit) => *self.statement_timeout.lock() = *limit,
            SettingValue::PreserveInsertionOrder(is_on) => self.set_preserve_insertion_order(*is_on),
            SettingValue::TimeZone(zone) => {
                let invalid = || SqlError::SettingValue { setting: Setting::TimeZone, value: zone.clone() };
                let name = zone_name(zone).ok_or_else(invalid)?;
                self.change_options(|options| options.extensions.insert(TimeZone(name)));
            }
            SettingValue::SearchPath(schemas) => {
                *self.search_path.lock() = SearchPath::new(schemas);
                self.planning.invalidate_settings();
            }
        }
        Ok(())
    }

    pub(super) fn preserves_insertion_order(&self) -> bool {
        let state = self.context.state_ref();
        let state = state.read();
        state.config_options().extensions.get::<TautOptions>().is_none_or(|options| options.preserve_insertion_order)
    }

    /// The time zone: the name of a region, or an offset from UTC.
    pub(super) fn time_zone(&self) -> String {
        let state = self.context.state_ref();
        let zone = state.read().config_options().extensions.get::<TimeZone>().cloned();
        zone.unwrap_or_default().0
    }

    /// Gives instants in the rows of a result the type of the session's zone, in which clients show them.
    pub(super) fn in_session_zone(&self, rows: SendableRecordBatchStream) -> SendableRecordBatchStream {
        let zone = session_zone(self.context.state_ref().read().config_options());
        let Some(schema) =
            zone.map(|zone| schema_in_zone(&rows.schema(), &zone)).filter(|zoned| *zoned != rows.schema())
        else {
            return rows;
        };
        let zoned = {
            let schema = Arc::clone(&schema);
            rows.map(move |batch| rows_in_zone(&batch?, &schema))
        };
        Box::pin(RecordBatchStreamAdapter::new(schema, zoned))
    }

    fn set_preserve_insertion_order(&self, is_on: bool) {
        self.change_options(|options| {
            if let Some(options) = options.extensions.get_mut::<TautOptions>() {
                options.preserve_insertion_order = is_on;
            }
        });
    }

    /// Changes options that plans depend on.
    fn change_options(&self, change: impl FnOnce(&mut ConfigOptions)) {
        let state = self.context.state_ref();
        let mut state = state.write();
        change(state.config_mut().options_mut());
        drop(state);
        self.planning.invalidate_settings();
    }

    /// Runs `SHOW` of a setting of Taut.
    pub(super) fn show(&self, setting: Setting) -> Result<Outcome> {
        ddl::text_rows(&[(setting.name(), vec![self.setting_values().value(setting)])])
    }

    /// Returns the settings of Taut, and then the settings of DataFusion, with the columns of PostgreSQL's `SHOW ALL`.
    pub(super) fn show_all(&self) -> Result<Outcome> {
        let values = self.setting_values();
        let own = Setting::ALL.into_iter().map(|setting| {
            let description = setting.info().description.replace('`', "");
            (setting.name().to_owned(), values.value(setting), description)
        });
        let mut entries = self.context.state().config().options().entries();
        entries.retain(|entry| !SPILL_SETTINGS.contains(&entry.key.as_str()));
        entries.sort_by(|a, b| a.key.cmp(&b.key));
        let engine = entries.into_iter().map(|entry| {
            let value = entry.value.unwrap_or_default();
            (entry.key, value, entry.description.to_owned())
        });
        let (mut names, mut settings, mut descriptions) = (Vec::new(), Vec::new(), Vec::new());
        for (name, setting, description) in own.chain(engine) {
            names.push(name);
            settings.push(setting);
            descriptions.push(description);
        }
        ddl::text_rows(&[("name", names), ("setting", settings), ("description", descriptions)])
    }
}
