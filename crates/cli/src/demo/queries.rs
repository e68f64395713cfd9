//! The 22 queries of TPC-H, with the validation parameters of the specification.

/// TPC-H query.
pub struct Query {
    /// Title of the query.
    pub title: &'static str,
    /// SQL text.
    pub sql: &'static str,
}

macro_rules! query {
    ($number:literal, $title:literal) => {
        Query { title: $title, sql: include_str!(concat!("../../../../bench/tpch/queries/q", $number, ".sql")) }
    };
}

/// All queries, Q1 to Q22.
pub const QUERIES: [Query; 22] = [
    query!("01", "pricing summary report"),
    query!("02", "minimum cost supplier"),
    query!("03", "shipping priority"),
    query!("04", "order priority checking"),
    query!("05", "local supplier volume"),
    query!("06", "forecasting revenue change"),
    query!("07", "volume shipping"),
    query!("08", "national market share"),
    query!("09", "product type profit measure"),
    query!("10", "returned item reporting"),
    query!("11", "important stock identification"),
    query!("12", "shipping modes and order priority"),
    query!("13", "customer distribution"),
    query!("14", "promotion effect"),
    query!("15", "top supplier"),
    query!("16", "parts/supplier relationship"),
    query!("17", "small-quantity-order revenue"),
    query!("18", "large volume customer"),
    query!("19", "discounted revenue"),
    query!("20", "potential part promotion"),
    query!("21", "suppliers who kept orders waiting"),
    query!("22", "global sales opportunity"),
];
