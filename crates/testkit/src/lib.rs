//! Generators, a simple model and comparisons for the tests of all crates.
//!
//! [`tables`] generates tables of every type, size and shape from a seed. [`Model`] holds the same rows as plain
//! vectors and evaluates predicates by their definition. [`agree`] compares what storage returns with the model, value
//! by value. [`predicates_for`] draws predicates from the data of a model. [`Random`] makes reproducible choices from a
//! seed. [`arguments`] and [`thread_time`] are for benchmarks.
//!
//! ```
//! use rand::SeedableRng;
//! let table = &taut_testkit::tables(7)[0];
//! let model = taut_testkit::Model::of(table);
//! let mut random = rand::rngs::StdRng::seed_from_u64(7);
//! for predicate in taut_testkit::predicates_for(&model, &mut random) {
//!     assert!(model.filter(&[predicate]).len() <= model.rows.len());
//! }
//! ```
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod arrays;
mod benchmark;
mod column_predicates;
mod generate;
mod model;
mod random;

pub use arrays::array_of;
pub use benchmark::{arguments, thread_time};
pub use column_predicates::predicates_for;
pub use generate::{Nulls, SIZES, Shape, TYPES, TestTable, column_values, tables};
pub use model::{Model, agree, disagreement};
pub use random::{Random, number_from_environment};
