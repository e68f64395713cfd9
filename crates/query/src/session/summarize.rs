//! `SUMMARIZE`: a row of statistics for each column of a table or query, computed in one pass.
//!
//! ```text
//!   SELECT unnest(min) AS min, ...
//!   FROM (SELECT ARRAY[min(a)::text, min(b)::text] AS min, ... FROM (query)) AS summaries
//! ```

use datafusion::arrow::datatypes::{DataType, Field};
use taut_sql::{Parameters, Statement, type_name};

use super::constraints::quote_name;
use super::{Outcome, QuerySession};
use crate::error::{QueryError, Result};
use crate::exec::reads::withdraw_reads;
use crate::plan::statement_to_plan;

/// SQL expressions that summarize one column, each with the name of its result column.
type ColumnSummary = [(&'static str, String); 12];

impl QuerySession {
    /// Runs `SUMMARIZE` of a query.
    pub(super) async fn summarize(&self, query: &str) -> Result<Outcome> {
        let columns = self.columns_of(query).await?;
        let Some(text) = summary_query(query, &columns) else {
            return Err(QueryError::unsupported("SUMMARIZE of a query without columns", "a table or another query is"));
        };
        match taut_sql::parse(&text)?.pop() {
            Some(statement) => Box::pin(self.run_statement(&statement, &Parameters::default())).await,
            None => Err(no_query()),
        }
    }

    /// Plans a query and returns the summary expressions of its columns.
    async fn columns_of(&self, query: &str) -> Result<Vec<ColumnSummary>> {
        let Some(Statement::Planned { statement, .. }) = taut_sql::parse(query)?.pop() else {
            return Err(no_query());
        };
        let state = self.state(None);
        let planned = statement_to_plan(&state, &statement).await;
        // Planning reads no rows. The query that computes the summary records what it reads.
        withdraw_reads(&state);
        Ok(planned?.schema().fields().iter().enumerate().map(|(index, field)| column_summary(index, field)).collect())
    }
}

fn no_query() -> QueryError {
    QueryError::unsupported("SUMMARIZE of this statement", "a table or a query is")
}

/// Name of a column of the rows. Names of the query may be equal.
fn row_column(index: usize) -> String {
    quote_name(&format!("column {index}"))
}

fn column_summary(index: usize, field: &Field) -> ColumnSummary {
    let column = row_column(index);
    let data_type = field.data_type();
    let text = |name: &str| format!("'{}'", name.replace('\'', "''"));
    let if_text = |expression: String, of_type: &str| match has_text(data_type) {
        true => format!("({expression})::{of_type}"),
        false => format!("NULL::{of_type}"),
    };
    let deviation = match data_type.is_numeric() {
        true => format!("stddev({column}::double precision)::text"),
        false => "NULL::text".to_owned(),
    };
    let quantile = |fraction: &str| quantile(&column, data_type, fraction);
    let nulls = format!("round(100.0 * (count(*) - count({column})) / nullif(count(*), 0), 2)");
    [
        ("column_name", text(field.name())),
        ("column_type", text(&type_name(data_type))),
        ("min", if_text(format!("min({column})"), "text")),
        ("max", if_text(format!("max({column})"), "text")),
        ("approx_unique", if_text(format!("approx_count_distinct({column}::text)"), "bigint")),
        ("avg", average(&column, data_type)),
        ("std", deviation),
        ("q25", quantile("0.25")),
        ("q50", quantile("0.5")),
        ("q75", quantile("0.75")),
        ("count", "count(*)".to_owned()),
        ("null_percentage", format!("({nulls})::decimal(9, 2)")),
    ]
}

/// Whether values of a type can be compared and written as text. Structs, maps and unions in files cannot.
fn has_text(data_type: &DataType) -> bool {
    !matches!(data_type, DataType::Struct(_) | DataType::Map(..) | DataType::Union(..))
}

/// SQL expression for seconds since 1970, which double precision represents to the microsecond.
fn epoch(column: &str) -> String {
    format!("extract(epoch FROM {column})::double precision")
}

/// SQL expression that converts seconds since 1970 to a timestamp, as text.
fn point_in_time(seconds: &str, has_zone: bool) -> String {
    let start = if has_zone { "timestamptz '1970-01-01 00:00:00+00'" } else { "timestamp '1970-01-01'" };
    format!("({start} + {seconds} * interval '1 second')::text")
}

/// SQL expression for the average, as text.
fn average(column: &str, data_type: &DataType) -> String {
    match data_type {
        _ if data_type.is_numeric() => format!("avg({column}::double precision)::text"),
        DataType::Date32 => point_in_time(&format!("avg({})", epoch(column)), false),
        DataType::Timestamp(_, zone) => point_in_time(&format!("avg({})", epoch(column)), zone.is_some()),
        _ => "NULL::text".to_owned(),
    }
}

/// SQL expression for an estimated quantile, as text. Estimates of integers are rounded.
fn quantile(column: &str, data_type: &DataType, fraction: &str) -> String {
    let estimate = |value: String| format!("approx_quantile({value}, {fraction})");
    let of_number = estimate(format!("{column}::double precision"));
    let of_time = estimate(epoch(column));
    match data_type {
        // Double precision may round to a number that exceeds bigint.
        _ if data_type.is_integer() => format!("round({of_number})::decimal(20, 0)::text"),
        _ if data_type.is_numeric() => format!("{of_number}::text"),
        DataType::Date32 => format!("(date '1970-01-01' + round({of_time} / 86400)::integer)::text"),
        DataType::Timestamp(_, zone) => point_in_time(&of_time, zone.is_some()),
        _ => "NULL::text".to_owned(),
    }
}

/// Returns the query for the statistics of all columns. Returns `None` if there are no columns.
fn summary_query(query: &str, summaries: &[ColumnSummary]) -> Option<String> {
    let names: Vec<String> = summaries.first()?.iter().map(|(name, _)| quote_name(name)).collect();
    let array = |(index, name): (usize, &String)| {
        let values: Vec<&str> = summaries.iter().map(|summary| summary[index].1.as_str()).collect();
        format!("ARRAY[{}] AS {name}", values.join(", "))
    };
    let arrays: Vec<String> = names.iter().enumerate().map(array).collect();
    let columns: Vec<String> = names.iter().map(|name| format!("unnest(summaries.{name}) AS {name}")).collect();
    let (columns, arrays) = (columns.join(", "), arrays.join(", "));
    let rows = (0..summaries.len()).map(row_column).collect::<Vec<_>>().join(", ");
    Some(format!("SELECT {columns} FROM (SELECT {arrays} FROM ({query}) AS \"taut rows\" ({rows})) AS summaries"))
}
