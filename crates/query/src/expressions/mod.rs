//! Rules of expressions that queries, check conditions and defaults share: coercion to floating point, and options of
//! the parser.

mod floating_point;
mod options;

pub use floating_point::{FloatingPoint, coerce_to_floating_point};
pub use options::set_parser_options;
