//! Planning rules: estimates from the catalog's statistics, the join order they give, and how types meet.

mod estimate;
mod floating_point;
mod join_order;

pub use estimate::selectivity;
pub use floating_point::FloatingPoint;
pub use join_order::JoinOrder;
