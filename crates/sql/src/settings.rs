//! Settings of a session: name, values, default and meaning of each. `SET`, `RESET`, `SHOW`, `taut.settings`,
//! completion and the reference use this list.

use std::time::Duration;

use taut_store::Synchronous;
use taut_types::PUBLIC_SCHEMA;

/// A setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Kinds of failure that a commit survives.
    Synchronous,
    /// Whether the mover compacts in the background.
    Mover,
    /// Directory of spill files.
    TempDirectory,
    /// Time limit of each statement.
    StatementTimeout,
    /// Whether queries without `ORDER BY` return rows in the order of the table.
    PreserveInsertionOrder,
    /// Schemas in which names without a schema are looked up.
    SearchPath,
    /// Time zone of conversions between instants and local times.
    TimeZone,
    /// Isolation level of transactions that do not specify one.
    DefaultTransactionIsolation,
    /// Whether transactions are read-only unless they specify a mode.
    DefaultTransactionReadOnly,
    /// Isolation level of the current transaction.
    TransactionIsolation,
    /// Whether the current transaction is read-only.
    TransactionReadOnly,
}

/// Declaration of a setting, in Markdown without links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettingInfo {
    /// Name in `SET` and `SHOW`.
    pub name: &'static str,
    /// Values that `SET` accepts.
    pub values: &'static str,
    /// Value in a new session, which `RESET` restores. `None` if the setting cannot be reset.
    pub default: Option<&'static str>,
    /// What the value applies to: `session`, `transaction` or `database`.
    pub scope: &'static str,
    /// Meaning, one sentence.
    pub description: &'static str,
}

impl Setting {
    /// All settings, ordered by name.
    pub const ALL: [Self; 11] = [
        Self::DefaultTransactionIsolation,
        Self::DefaultTransactionReadOnly,
        Self::Mover,
        Self::PreserveInsertionOrder,
        Self::SearchPath,
        Self::StatementTimeout,
        Self::Synchronous,
        Self::TempDirectory,
        Self::TimeZone,
        Self::TransactionIsolation,
        Self::TransactionReadOnly,
    ];

    /// The declaration of the setting.
    pub fn info(self) -> SettingInfo {
        const LEVELS: &str = "`'read committed'`, `'repeatable read'` or `serializable`";
        let (name, values, default, scope, description) = match self {
            Self::Synchronous => (
                "synchronous",
                "`full`, `normal` or `off`",
                Some("full"),
                "session",
                "Durability of commits: they survive any crash (`full`), the end of the process (`normal`), or neither (`off`).",
            ),
            Self::Mover => (
                "mover",
                "`on` or `off`",
                Some("on"),
                "database",
                "Whether the tuple mover compacts tables in the background.",
            ),
            Self::TempDirectory => (
                "temp_directory",
                "a directory in quotes",
                Some("the directory of the database"),
                "database",
                "Directory of the spill files of statements that exceed their memory.",
            ),
            Self::StatementTimeout => (
                "statement_timeout",
                "milliseconds, or a quoted number with `us`, `ms`, `s`, `min`, `h` or `d`, at most 24 days; `0` for no limit",
                Some("0"),
                "session",
                "Ends statements that take longer, with SQLSTATE 57014.",
            ),
            Self::PreserveInsertionOrder => (
                "preserve_insertion_order",
                "`on` or `off`",
                Some("on"),
                "session",
                "Whether queries without `ORDER BY` return rows in the order of the table or the files.",
            ),
            Self::SearchPath => (
                "search_path",
                "names of schemas, separated by commas",
                Some(PUBLIC_SCHEMA),
                "session",
                "Schemas in which names without a schema are looked up, in order. New relations are created in the first one that exists.",
            ),
            Self::TimeZone => (
                "timezone",
                "a region such as `'Europe/Zurich'`, hours east of UTC such as `2`, or `'UTC'`; `SET TIME ZONE` without `=`",
                Some("UTC"),
                "session",
                "Time zone for output of `timestamptz`, and for conversions between `timestamptz` and local times.",
            ),
            Self::DefaultTransactionIsolation => (
                "default_transaction_isolation",
                LEVELS,
                Some("repeatable read"),
                "session",
                "Isolation level of transactions that do not specify one.",
            ),
            Self::DefaultTransactionReadOnly => (
                "default_transaction_read_only",
                "`on` or `off`",
                Some("off"),
                "session",
                "Whether transactions that specify no access mode are read-only.",
            ),
            Self::TransactionIsolation => (
                "transaction_isolation",
                LEVELS,
                None,
                "transaction",
                "Isolation level of the current transaction. Only the first statement of a transaction can set it.",
            ),
            Self::TransactionReadOnly => (
                "transaction_read_only",
                "`on` or `off`",
                None,
                "transaction",
                "Whether the current transaction is read-only.",
            ),
        };
        SettingInfo { name, values, default, scope, description }
    }

    /// Name of the setting.
    pub fn name(self) -> &'static str {
        self.info().name
    }
}

/// A setting with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingValue {
    /// Value of [`Setting::Synchronous`].
    Synchronous(Synchronous),
    /// Value of [`Setting::Mover`].
    Mover(bool),
    /// Value of [`Setting::TempDirectory`]; `None` for the default.
    TempDirectory(Option<String>),
    /// Value of [`Setting::StatementTimeout`]; `None` for no limit.
    StatementTimeout(Option<Duration>),
    /// Value of [`Setting::PreserveInsertionOrder`].
    PreserveInsertionOrder(bool),
    /// Value of [`Setting::SearchPath`].
    SearchPath(Vec<String>),
    /// Value of [`Setting::TimeZone`]: a region, a number of hours, or an offset. Not checked.
    TimeZone(String),
}

impl SettingValue {
    /// The setting.
    pub fn setting(&self) -> Setting {
        match self {
            Self::Synchronous(_) => Setting::Synchronous,
            Self::Mover(_) => Setting::Mover,
            Self::TempDirectory(_) => Setting::TempDirectory,
            Self::StatementTimeout(_) => Setting::StatementTimeout,
            Self::PreserveInsertionOrder(_) => Setting::PreserveInsertionOrder,
            Self::SearchPath(_) => Setting::SearchPath,
            Self::TimeZone(_) => Setting::TimeZone,
        }
    }
}

/// Isolation level of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IsolationLevel {
    /// Each statement sees what was committed when it began. `READ UNCOMMITTED` is the same, as in PostgreSQL.
    ReadCommitted,
    /// All statements see what was committed when the first began: `REPEATABLE READ`, or `SNAPSHOT`.
    #[default]
    Snapshot,
    /// Transactions behave as if they ran one after the other.
    Serializable,
}

impl IsolationLevel {
    /// Name in PostgreSQL's settings, such as `repeatable read`.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadCommitted => "read committed",
            Self::Snapshot => "repeatable read",
            Self::Serializable => "serializable",
        }
    }

    /// Returns the level with a name, ignoring case. Accepts the synonyms `snapshot` and `read uncommitted`. Returns
    /// `None` for other names.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "read committed" | "read uncommitted" => Some(Self::ReadCommitted),
            "repeatable read" | "snapshot" => Some(Self::Snapshot),
            "serializable" => Some(Self::Serializable),
            _ => None,
        }
    }
}

/// Formats the value of a setting that is `on` or `off`.
pub fn on_or_off(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

/// Formats the value of [`Setting::Synchronous`].
pub fn synchronous_name(synchronous: Synchronous) -> &'static str {
    match synchronous {
        Synchronous::Full => "full",
        Synchronous::Normal => "normal",
        Synchronous::Off => "off",
    }
}
