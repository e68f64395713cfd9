//! Rules of expressions that queries, check conditions and defaults share: checked arithmetic, coercion to floating
//! point, and options of the parser.

mod arithmetic;
mod floating_point;
mod options;

pub use arithmetic::{CheckedArithmetic, Operation, overflow, with_checked_arithmetic, with_exact_functions};
pub use floating_point::{FloatingPoint, coerce_to_floating_point};
pub use options::set_parser_options;
