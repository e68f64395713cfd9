//! Errors about sequences and identity columns.

/// Reason why a statement cannot define, drop or use a sequence.
#[derive(Debug, thiserror::Error)]
pub enum SequenceError {
    /// The definition of a sequence that is invalid.
    #[error("{message}")]
    Invalid {
        /// What is wrong, such as `INCREMENT must not be zero`.
        message: String,
    },
    /// A sequence that an identity column needs.
    #[error("cannot drop sequence {sequence:?} because column {column:?} of table {table:?} requires it")]
    Required {
        /// The sequence.
        sequence: String,
        /// Name of the table.
        table: String,
        /// Name of the column.
        column: String,
    },
    /// A number that is not within the limits of a sequence.
    #[error("setval: value {value} is out of bounds for sequence {sequence:?} ({min}..{max})")]
    OutOfBounds {
        /// The sequence.
        sequence: String,
        /// The number.
        value: i64,
        /// The smallest number of the sequence.
        min: i64,
        /// The greatest number of the sequence.
        max: i64,
    },
    /// `currval` or `lastval` before the session has called `nextval`.
    #[error("{}", no_current_value(.sequence))]
    NoCurrentValue {
        /// The sequence of `currval`. `None` for `lastval`.
        sequence: Option<String>,
    },
    /// A table or view where a sequence is expected.
    #[error("{name:?} is not a sequence")]
    NotASequence {
        /// Name of the table or view.
        name: String,
    },
    /// A column that cannot become an identity column, or is not one.
    #[error("column {column:?} of relation {table:?} {problem}")]
    Identity {
        /// Name of the table.
        table: String,
        /// Name of the column.
        column: String,
        /// What is wrong, such as `is not an identity column`.
        problem: &'static str,
    },
}

impl SequenceError {
    /// Detail of the error, as a sentence, if there is one.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Required { table, column, .. } => {
                Some(format!("Column {column:?} of table {table:?} is an identity column."))
            }
            _ => None,
        }
    }

    /// SQLSTATE of this error, from the list in PostgreSQL's documentation.
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "22023",
            Self::Required { .. } => "2BP01",
            Self::OutOfBounds { .. } => "22003",
            Self::NoCurrentValue { .. } | Self::Identity { .. } => "55000",
            Self::NotASequence { .. } => "42809",
        }
    }
}

fn no_current_value(sequence: &Option<String>) -> String {
    match sequence {
        Some(sequence) => format!("currval of sequence {sequence:?} is not yet defined in this session"),
        None => "lastval is not yet defined in this session".to_owned(),
    }
}
