//! SQLSTATE codes: five characters that identify a kind of error in the SQL standard and in PostgreSQL.

use std::io::{self, ErrorKind};

use datafusion::arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use taut_block::BuildError;
use taut_sql::ObjectKind;
use taut_store::CommitError;
use taut_store::backup::BackupError;

use crate::error::QueryError;
use crate::runtime::spill::SpillError;

impl QueryError {
    /// Returns the SQLSTATE of this error, from the list in PostgreSQL's documentation.
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Self::Sql(error) => error.sqlstate(),
            Self::NotFound { kind, .. } => match kind {
                ObjectKind::Column => "42703",
                ObjectKind::Constraint | ObjectKind::Index => "42704",
                ObjectKind::PreparedStatement => "26000",
                ObjectKind::File => "58P01",
                ObjectKind::Schema => "3F000",
                _ => "42P01",
            },
            Self::NoCurrentSchema => "3F000",
            Self::NotInSource { .. } => "42703",
            Self::NoPrimaryKey { .. } => "42704",
            Self::Exists { kind: ObjectKind::PreparedStatement, .. } => "42P05",
            Self::Exists { kind: ObjectKind::Constraint, .. } => "42710",
            Self::Exists { kind: ObjectKind::Column, .. } => "42701",
            Self::Exists { .. } => "42P07",
            Self::SecondPrimaryKey { .. } => "42P16",
            Self::NotATable { .. } | Self::NotAView { .. } => "42809",
            Self::Sequence(error) => error.sqlstate(),
            Self::Function(error) => error.sqlstate(),
            Self::Generated(error) => error.sqlstate(),
            Self::Temporary(error) => error.sqlstate(),
            Self::Attach(error) => error.sqlstate(),
            Self::Index(error) => error.sqlstate(),
            Self::NoAutomaticCast { .. } | Self::NoCastOfDefault { .. } | Self::ArrayTypes { .. } => "42804",
            Self::Retype { cause, .. } => cause.sqlstate(),
            Self::Duplicate { .. } => "42701",
            Self::WriteFile { source, .. } => io_state(source),
            Self::Design(_) => "22023",
            Self::Schema(_) => "42611",
            Self::Commit(error) => commit_state(error),
            Self::Backup(error) => backup_state(error),
            Self::Transaction { sqlstate, .. } | Self::File { sqlstate, .. } => sqlstate,
            Self::Dependents { .. } => "2BP01",
            Self::Cardinality { .. } => "21000",
            Self::NoConflictKey { .. } => "42P10",
            Self::Deadlock => "40P01",
            Self::Write(_) => "58030",
            Self::Read(_) | Self::Block(_) => "XX001",
            Self::Build(error) => build_state(error),
            Self::Constraint(violation) => violation.sqlstate(),
            Self::Cast { is_text: true, .. } => self.implied_sqlstate().unwrap_or("22P02"),
            Self::Cast { .. } => self.implied_sqlstate().unwrap_or("22003"),
            Self::Engine(error) => self.implied_sqlstate().unwrap_or_else(|| engine_state(error)),
            Self::Cancelled | Self::Timeout => "57014",
        }
    }
}

fn backup_state(error: &BackupError) -> &'static str {
    match error {
        BackupError::Missing { .. } => "58P01",
        BackupError::Exists { .. } => "58P02",
        BackupError::InUse { .. } => "55006",
        BackupError::NoBackups { .. } | BackupError::NoSuchBackup { .. } => "42704",
        BackupError::Overlaps { .. }
        | BackupError::Foreign { .. }
        | BackupError::NotADirectory { .. }
        | BackupError::NotCovered { .. }
        | BackupError::KeepsNone => "22023",
        BackupError::OtherDatabase { .. } | BackupError::NotRemoved { .. } => "55000",
        BackupError::Damaged { .. } | BackupError::Source { .. } | BackupError::Open(_) => "XX001",
        BackupError::ReadOnly => "25006",
        BackupError::Cancelled => "57014",
        BackupError::Commit(error) => commit_state(error),
        BackupError::File(error) if error.source.kind() == std::io::ErrorKind::StorageFull => "53100",
        _ => "58030",
    }
}

fn commit_state(error: &CommitError) -> &'static str {
    match error {
        CommitError::SortOrder { .. }
        | CommitError::Design { .. }
        | CommitError::RowsChanged { .. }
        | CommitError::RowsLocked
        | CommitError::Serialization { .. }
        | CommitError::ConstraintsChanged { .. }
        | CommitError::NoBlock { .. }
        | CommitError::NotOneRun { .. }
        | CommitError::NoTable { .. } => "40001",
        CommitError::NameTaken { .. } => "42P07",
        CommitError::SchemaExists { .. } => "42P06",
        CommitError::NoSchema { .. } => "3F000",
        CommitError::Temporary { .. } => "0A000",
        CommitError::SchemaNotEmpty { .. } => "2BP01",
        CommitError::NoView { .. } => "42P01",
        CommitError::FunctionExists { .. } => "42723",
        CommitError::NoFunction { .. } => "42883",
        CommitError::ViewCalls { .. } => "2BP01",
        CommitError::FunctionChanged { .. } => "40001",
        CommitError::NoCommentedObject | CommitError::NoSequence { .. } | CommitError::SequenceChanged { .. } => {
            "40001"
        }
        CommitError::SequenceExhausted { .. } => "2200H",
        CommitError::Sequence { .. } => "22023",
        CommitError::Referenced { .. } | CommitError::ColumnInUse { .. } | CommitError::ViewDepends { .. } => "2BP01",
        CommitError::ViewChanged { .. } => "40001",
        CommitError::Schema { .. } => "42611",
        CommitError::MayHoldNulls { .. } => "55000",
        CommitError::OwnRows { .. } => "55006",
        CommitError::Constraints { .. } => "42830",
        CommitError::ReadOnly => "25006",
        CommitError::TooLarge => "54000",
        _ => "58030",
    }
}

fn build_state(error: &BuildError) -> &'static str {
    match error {
        BuildError::Null { .. } => "23502",
        BuildError::Range { .. } => "22003",
        BuildError::Mismatch { .. } => "42804",
        BuildError::TooLarge { .. } => "54000",
        _ => "22000",
    }
}

fn engine_state(error: &DataFusionError) -> &'static str {
    match error.find_root() {
        DataFusionError::SQL(..) => "42601",
        DataFusionError::NotImplemented(_) => "0A000",
        DataFusionError::SchemaError(..) => "42703",
        DataFusionError::Plan(_) => "42000",
        DataFusionError::ResourcesExhausted(_) => "53200",
        DataFusionError::IoError(error) => io_state(error),
        DataFusionError::ObjectStore(_) => "58030",
        DataFusionError::ArrowError(error, _) => arrow_state(error),
        DataFusionError::External(inner) => match inner.downcast_ref::<QueryError>() {
            Some(error) => error.sqlstate(),
            None => external_state(inner.as_ref()),
        },
        DataFusionError::Internal(_) => "XX000",
        _ => "22000",
    }
}

fn arrow_state(error: &ArrowError) -> &'static str {
    match error {
        ArrowError::DivideByZero => "22012",
        ArrowError::ArithmeticOverflow(_) => "22003",
        // Arrow reports a number out of range with this text.
        ArrowError::CastError(message) if message.starts_with("Can't cast value") => "22003",
        ArrowError::CastError(_) | ArrowError::ParseError(_) => "22P02",
        ArrowError::CsvError(_) | ArrowError::JsonError(_) | ArrowError::ParquetError(_) => "22P04",
        ArrowError::IoError(_, error) => io_state(error),
        ArrowError::NotYetImplemented(_) => "0A000",
        ArrowError::ExternalError(inner) => external_state(inner.as_ref()),
        _ => "22000",
    }
}

fn io_state(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "53100",
        _ => "58030",
    }
}

fn external_state(error: &(dyn std::error::Error + 'static)) -> &'static str {
    if let Some(error) = error.downcast_ref::<BuildError>() {
        return build_state(error);
    }
    if let Some(error) = error.downcast_ref::<CommitError>() {
        return commit_state(error);
    }
    if error.downcast_ref::<SpillError>().is_some_and(SpillError::is_full) {
        return "53100";
    }
    let is_storage = error.is::<taut_store::ReadError>() || error.is::<taut_block::BlockError>();
    let is_write = error.is::<taut_store::WriteError>();
    match (is_storage, is_write) {
        (true, _) => "XX001",
        (_, true) => "58030",
        _ => "22000",
    }
}
