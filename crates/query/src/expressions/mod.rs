//! Expressions of queries, check conditions and defaults: checked arithmetic, casts, functions, aggregates, types of
//! operands and results, operands that are computed only if they are needed, and options of the parser.
//!
//! Most files replace functions and operators of DataFusion that differ from PostgreSQL's. "The engine" is DataFusion.

mod aggregate_names;
mod aggregates;
mod arithmetic;
mod arrays;
mod bytes;
mod casts;
mod dates;
mod domains;
mod exponents;
mod floats;
mod frame_exclusion;
mod functions;
mod guards;
mod intervals;
mod named_cast;
mod operand_types;
mod options;
mod schemas;
mod sequences;
mod session_zone;
mod shifts;
mod signed_results;
mod similar_to;
mod single_row;
mod texts;
mod zeros;

use std::sync::Arc;

use datafusion::execution::SessionStateBuilder;

pub use arithmetic::{CheckedArithmetic, Operation, maximum, minimum, overflow, with_checked_arithmetic};
pub use bytes::{is_bytes, read as read_bytes};
pub use casts::{statement_cast, with_statement_casts};
pub use dates::{is_difference, is_temporal, read as read_dates};
pub use floats::{is_float, narrowing_error, parse_float, read as read_floats};
pub use frame_exclusion::{name_of_function, nth_of_each_row};
pub use functions::{PgType, TYPES, find_type, name_in_postgres, pg_sleep};
pub use guards::{Guards, guarded};
pub use intervals::{has_interval, interval_length};
pub use operand_types::{OperandTypes, coerce_operands};
pub use options::set_parser_options;
pub use schemas::{SchemaAccess, Schemas};
pub use sequences::{SequenceAccess, SequenceUse, Sequences, sequence_use};
pub use session_zone::{SessionZone, TimeZone, Zone, in_zone, rows_in_zone, schema_in_zone, session_zone, zone_name};
pub use shifts::shift_of_each_row;
pub use single_row::{is_single_row, single_row};
pub use texts::{with_written_intervals, write_texts, write_value};

/// Returns the builder of a session state with the functions, operators and types of statements, check conditions and
/// defaults.
pub fn session_state() -> SessionStateBuilder {
    let engine = SessionStateBuilder::new().with_default_features();
    let replaced = signed_results::with_signed_results(arithmetic::with_exact_functions(engine));
    let mut replaced = dates::with_dates(domains::with_domains(replaced));
    replaced.expr_planners().get_or_insert_default().insert(0, Arc::new(operand_types::TypedLiterals));
    let functions = functions::with_functions(aggregates::with_aggregates(replaced));
    schemas::with_schemas(sequences::with_sequences(functions))
}
