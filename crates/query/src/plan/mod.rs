//! From a statement to a physical plan: the engine's configuration, planning rules, tables and files as DataFusion sees
//! them, values of parameters, and cached plans.

pub mod assignment_cast;
pub mod cache;
pub mod engine;
pub mod files;
pub mod parameters;
pub mod rules;
pub mod table;
