//! Constraints: their declarations, and check conditions, defaults and generated columns as expressions.
//!
//! ```text
//! CREATE TABLE, ALTER TABLE ── declare ──> Constraints in the catalog
//! rows of a statement ── write/coerce: generated columns, NOT NULL ── checks: CHECK ──> the table      batch by batch
//! end of the statement ── session/keys: keys and foreign keys of the written rows
//! ```

mod checks;
mod declare;
mod definitions;
mod expressions;
mod generated;
mod index_columns;
mod indexes;
mod sequence_names;

pub use checks::Checks;
pub use declare::{AlteredTable, apply_changes, declare_constraints};
pub use definitions::{check_definition, foreign_key_definition, index_definition, key_definition};
pub use expressions::{DefaultValues, compile_generated, default_expression, plan_index_clause};
pub use generated::GeneratedColumns;
pub use index_columns::{
    PlannedIndexColumn, index_column_of, plan_index_columns, plan_index_predicate, shown_name, type_of_index_column,
};
pub use indexes::add_key_indexes;
pub use sequence_names::{
    default_of_sequence, qualified_default, query_with_named_sequences, renamed_sequence, sequences_of_default,
    with_named_sequences,
};
