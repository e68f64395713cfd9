//! Wrappers of physical operators, added to every plan before it runs. They end an operator when its statement is
//! cancelled, and copy strings out of buffers that hold much more memory. They pass the keys of hash joins to scans,
//! and drop duplicate keys from the inner side of semi joins.
//!
//! The other operators: [`GroupingInputExec`] hides properties of the input of grouping sets. [`MaterializeExec`]
//! computes rows once for several readers. [`SequenceProjectionExec`] numbers rows in their order.
//! [`OrderedCollectExec`] returns rows in the order of a table or of files.

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
