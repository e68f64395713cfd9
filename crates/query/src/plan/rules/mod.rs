//! Planning rules. They estimate cardinalities from the catalog's statistics, order joins by the estimates, and
//! eliminate joins that foreign keys make redundant. They join correlated subqueries, and rewrite `ANY`, `ALL`, set
//! operations and `NOT IN` without nulls. They compare dates with the days of timestamps, and compute the constants of
//! windows. They order the input of aggregates and remove repetitions from that order. They speed up type inference for
//! deeply nested expressions, and compute the rows of `WITH` queries once. They number and return rows in the order of
//! the table, and let scans aggregate. All rules end when their statement is cancelled.

mod aggregate;
mod aggregate_order;
mod cancellable;
mod computed_keys;
mod condition_columns;
mod correlated;
mod date_comparisons;
mod estimate;
mod filter_pushdown;
mod functional_dependencies;
mod group_conditions;
mod grouping_sets;
mod implicit_sort;
mod in_lists;
mod insertion_order;
mod interval_keys;
mod join_elimination;
mod join_order;
mod late_volatile;
mod lineage;
mod literal_statistics;
mod long_expressions;
mod materialized;
mod nested_coalesce;
mod not_in;
mod repeated_order;
mod sequence_calls;
mod set_comparisons;
mod set_operations;
mod subqueries;
mod union_order;
mod window_order;
mod windows;

pub use aggregate::AggregateInScan;
pub use aggregate_order::AggregateOrder;
pub use cancellable::{analyzer_rules, optimizer_rules, physical_rules, set_interrupt};
pub use computed_keys::ComputedKeys;
pub use condition_columns::ConditionColumns;
pub use correlated::CorrelatedSubqueries;
pub use date_comparisons::DateComparisons;
pub use estimate::selectivity;
pub use filter_pushdown::UnambiguousFilterPushdown;
pub use functional_dependencies::CorrectDependencies;
pub use group_conditions::GroupConditions;
pub use grouping_sets::GroupingSets;
pub use implicit_sort::implicit_sort;
pub use in_lists::UnmergedInLists;
pub use insertion_order::{InsertionOrder, with_insertion_order};
pub use interval_keys::IntervalKeys;
pub use join_elimination::JoinElimination;
pub use join_order::JoinOrder;
pub use late_volatile::LateVolatile;
pub use literal_statistics::StatisticsWithoutLiterals;
pub use long_expressions::LongExpressions;
pub use materialized::{MaterializingPlanner, calls_volatile, with_materialized_rows, with_own_rows};
pub use nested_coalesce::NestedCoalesce;
pub use not_in::NotIn;
pub use repeated_order::RepeatedOrder;
pub use sequence_calls::SequenceCalls;
pub use set_comparisons::SetComparisons;
pub use set_operations::SetOperations;
pub use subqueries::{Subqueries, recompute_schema};
pub use union_order::UnionOrder;
pub use window_order::WindowOrder;
pub use windows::WindowConstants;
