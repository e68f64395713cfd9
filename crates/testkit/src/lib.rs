//! Generators, the dumb model and agreement checks for the tests of every room.
//!
//! [`tables`] makes tables of every type, size and shape from a seed; [`Model`] holds the same rows as plain
//! vectors and answers tests by their definition; [`agree`] compares what storage returns with what the model
//! says, value by value; [`tests_for`] draws tests from the data of a model. [`Random`] makes choices that a seed repeats.
//!
//! ```
//! use rand::SeedableRng;
//! let table = &taut_testkit::tables(7)[0];
//! let model = taut_testkit::Model::of(table);
//! let mut random = rand::rngs::StdRng::seed_from_u64(7);
//! for test in taut_testkit::tests_for(&model, &mut random) {
//!     assert!(model.filter(&[test]).len() <= model.rows.len());
//! }
//! ```
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod arrays;
mod column_tests;
mod generate;
mod model;
mod random;

pub use arrays::array_of;
pub use column_tests::tests_for;
pub use generate::{Nulls, SIZES, Shape, TYPES, TestTable, keys, tables};
pub use model::{Model, agree, disagreement};
pub use random::{Random, from_environment};
