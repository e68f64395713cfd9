//! Rules of expressions that queries, check conditions and defaults share: checked arithmetic, types of operands, and
//! options of the parser.

mod arithmetic;
mod intervals;
mod operand_types;
mod options;
mod similar_to;

pub use arithmetic::{CheckedArithmetic, Operation, overflow, with_checked_arithmetic, with_exact_functions};
pub use operand_types::{OperandTypes, coerce_operands};
pub use options::set_parser_options;
