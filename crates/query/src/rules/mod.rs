//! Planning rules: estimates from the catalog's statistics, the join order they give, how types meet, and which
//! aggregations scans compute.

mod aggregate;
mod estimate;
mod floating_point;
mod join_order;

pub use aggregate::AggregateInScan;
pub use estimate::selectivity;
pub use floating_point::{FloatingPoint, meeting as floating_point_meets};
pub use join_order::JoinOrder;
