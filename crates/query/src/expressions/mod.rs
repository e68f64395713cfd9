//! Types of expressions, and how their text is parsed: the same in queries, check conditions and defaults.

mod floating_point;
mod options;

pub use floating_point::{FloatingPoint, meeting as floating_point_meets};
pub use options::set_parser_options;
