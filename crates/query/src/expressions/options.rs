//! Options of DataFusion's SQL parser.

use datafusion::common::config::{ConfigOptions, Dialect};

/// Sets PostgreSQL's grammar, exact decimal literals, timestamps with time zone, the order of subqueries, and positions
/// in error messages.
pub fn set_parser_options(options: &mut ConfigOptions) {
    options.sql_parser.dialect = Dialect::PostgreSQL;
    // The literal 0.05 is an exact decimal, so comparisons with decimal columns are exact.
    options.sql_parser.parse_float_as_decimal = true;
    // A timestamp with time zone is an instant, shown in UTC. Without this setting it would be a timestamp without time
    // zone.
    options.execution.time_zone = Some("+00:00".to_owned());
    // Keeps ORDER BY in subqueries, because an outer LIMIT or string_agg depends on it.
    options.sql_parser.enable_subquery_sort_elimination = false;
    // Spans give the position of an unknown name in error messages.
    options.sql_parser.collect_spans = true;
}
