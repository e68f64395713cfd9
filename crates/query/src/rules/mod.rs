//! Planning rules that the storage pays for: estimates from the catalog's statistics, and the join order they give.

mod estimate;
mod join_order;

pub use estimate::selectivity;
pub use join_order::JoinOrder;
