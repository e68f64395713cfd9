//! Wrappers of physical operators, added to every plan before it runs. Each operator ends when its statement is
//! cancelled. Strings in batches between operators hold only the memory that they need. Hash joins give scans the set
//! of their keys, and semi joins read each key of their inner side once. Another operator hides properties of the input
//! of grouping sets.
//!
//! Three are operators of their own: [`MaterializeExec`] computes rows once for several readers,
//! [`SequenceProjectionExec`] numbers rows in their order, and [`OrderedCollectExec`] returns rows in their order.

mod checked_filter;
mod distinct_keys;
mod grouping_input;
mod interruptible;
mod join_keys;
mod materialize;
mod ordered_collect;
mod sequence_projection;
mod string_views;

pub use grouping_input::GroupingInputExec;
pub use interruptible::{Interrupt, make_interruptible};
pub use join_keys::{BuildKeys, JOIN_VALUES_MAX, JoinKeys, KeySet};
pub use materialize::MaterializeExec;
pub use ordered_collect::OrderedCollectExec;
pub use sequence_projection::SequenceProjectionExec;
