//! Rules of expressions that queries, check conditions and defaults share: checked arithmetic, casts, dates as text,
//! operands that are computed only if they are needed, types of operands and results, and options of the parser.
//!
//! "The engine" is DataFusion. These files replace what it computes differently from PostgreSQL.

mod aggregate_names;
mod aggregates;
mod arithmetic;
mod bytes;
mod casts;
mod dates;
mod domains;
mod functions;
mod guards;
mod intervals;
mod named_cast;
mod operand_types;
mod options;
mod sequences;
mod signed_results;
mod similar_to;
mod single_row;
mod zeros;

pub use aggregates::with_aggregates;
pub use arithmetic::{
    CheckedArithmetic, Operation, maximum, minimum, overflow, with_checked_arithmetic, with_exact_functions,
};
pub use bytes::{is_bytes, read as read_bytes};
pub use casts::{statement_cast, with_statement_casts};
pub use dates::{read as read_dates, with_dates};
pub use domains::with_domains;
pub use functions::with_functions;
pub use guards::{Guards, guarded};
pub use operand_types::{OperandTypes, coerce_operands};
pub use options::set_parser_options;
pub use sequences::{SequenceAccess, Sequences, with_sequences};
pub use signed_results::with_signed_results;
pub use single_row::{is_single_row, single_row};
