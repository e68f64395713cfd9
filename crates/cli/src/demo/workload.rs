//! A small mixed workload and its measurement.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_cast::display::ArrayFormatter;
use taut::Session;

use super::data::order_keys;
use crate::failure::Failure;
use crate::output::format_options;
use crate::system_tables::Records;
use crate::units::count_text;

/// Number of orders that are looked up one at a time. Scales below `SCALE_SMALL` use fewer.
const LOOKUPS: usize = 1_000;
const LOOKUPS_SMALL: usize = 100;
const SCALE_SMALL: f64 = 0.1;
/// Number of runs of a single query. The result is the median of their times.
const RUNS: usize = 3;

/// Item of the workload. Each item runs on each layout.
pub struct WorkloadItem {
    /// Name of the item.
    pub name: String,
    /// Statements that run in sequence. `{table}` is replaced by the name of the table.
    statements: Vec<String>,
    /// Runs of all statements. An item of many statements needs only one.
    runs: usize,
    /// Sampling interval: the bytes read are measured for the first of every `sample_interval` statements.
    sample_interval: usize,
}

/// Cost of an item.
#[derive(Clone, Copy, Debug)]
pub struct Measurement {
    /// Median time.
    pub time: Duration,
    /// Bytes that the scans read. `None` if the plan does not report them.
    pub bytes_read: Option<u64>,
}

/// Digest of the result of an item, independent of the order of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResultDigest {
    /// Count of rows.
    pub rows: u64,
    hash: u64,
}

/// Items of the workload for a scale factor.
pub fn workload_items(scale: f64) -> Vec<WorkloadItem> {
    let query = |number: usize| super::queries::QUERIES[number - 1].sql.replace("lineitem", "{table}");
    let single_query = |name: &str, sql: String| WorkloadItem {
        name: name.to_owned(),
        statements: vec![sql],
        runs: RUNS,
        sample_interval: 1,
    };
    let lookup = |key: i64| format!("select * from {{table}} where l_orderkey = {key}");
    let lookups = if scale < SCALE_SMALL { LOOKUPS_SMALL } else { LOOKUPS };
    vec![
        single_query("Q1: sums over nearly all rows", query(1)),
        single_query("Q6: one sum over 2 % of the rows", query(6)),
        WorkloadItem {
            name: format!("{} orders by key, all columns", count_text(lookups as u64)),
            statements: order_keys(scale, lookups).into_iter().map(lookup).collect(),
            runs: 1,
            sample_interval: lookups / 10,
        },
        single_query("one day, all columns", "select * from {table} where l_shipdate = date '1995-06-17'".to_owned()),
        single_query("count(*) with a filter", "select count(*) from {table} where l_quantity < 10".to_owned()),
    ]
}

impl WorkloadItem {
    /// Runs the item on a table. Returns its cost and the digest of its result.
    pub fn measure(&self, session: &Session, table: &str) -> Result<(Measurement, ResultDigest), Failure> {
        let statements: Vec<_> = self.statements.iter().map(|sql| sql.replace("{table}", table)).collect();
        let mut times = Vec::with_capacity(self.runs);
        let mut digest = ResultDigest::default();
        for _ in 0..self.runs {
            let start = Instant::now();
            let mut batches = Vec::new();
            for sql in &statements {
                batches.extend(session.query(sql)?.collect::<Result<Vec<_>, _>>()?);
            }
            times.push(start.elapsed());
            digest = ResultDigest::from_batches(&batches)?;
        }
        times.sort_unstable();
        let bytes_read = self.bytes_read(session, &statements)?;
        Ok((Measurement { time: times[self.runs / 2], bytes_read }, digest))
    }

    /// Bytes that all statements read, estimated from a sample. Returns `None` if a plan does not report them.
    fn bytes_read(&self, session: &Session, statements: &[String]) -> Result<Option<u64>, Failure> {
        let mut sum = 0;
        for sql in statements.iter().step_by(self.sample_interval) {
            let plan = Records::query(session, &format!("explain analyze {sql}"))?;
            let text: String = plan.rows.into_iter().flatten().flatten().collect();
            match bytes_read_in(&text) {
                Some(bytes) => sum += bytes,
                None => return Ok(None),
            }
        }
        Ok(Some(sum * self.sample_interval as u64))
    }
}

impl ResultDigest {
    fn from_batches(batches: &[RecordBatch]) -> Result<Self, Failure> {
        let options = format_options("NULL");
        let mut digest = Self::default();
        for batch in batches {
            let columns = batch.columns().iter().map(|column| ArrayFormatter::try_new(column.as_ref(), &options));
            let columns = columns.collect::<Result<Vec<_>, _>>()?;
            for row in 0..batch.num_rows() {
                let mut hasher = DefaultHasher::new();
                for column in &columns {
                    column.value(row).try_to_string()?.hash(&mut hasher);
                }
                digest.hash = digest.hash.wrapping_add(hasher.finish());
            }
            digest.rows += batch.num_rows() as u64;
        }
        Ok(digest)
    }
}

impl std::fmt::Display for ResultDigest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} rows with checksum {:016x}", self.rows, self.hash)
    }
}

/// Sum of `bytes_read_from_disk=...` and `bytes_read_from_cache=...` in the text of a plan with metrics. Numbers may
/// have a unit (`12.5 K`, `3.1 MB`).
fn bytes_read_in(plan: &str) -> Option<u64> {
    let mut sum = None;
    for part in plan.split("bytes_read_from_").skip(1) {
        let (_, value) = part.split_once('=')?;
        let value = value.split([',', ']', '\n']).next().unwrap_or_default().trim();
        let digits = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
        let number: f64 = value[..digits].parse().ok()?;
        let unit = match value[digits..].trim() {
            "" | "B" => 1.0,
            "K" => 1e3,
            "M" => 1e6,
            "G" => 1e9,
            "KB" => 1024.0,
            "MB" => 1024.0 * 1024.0,
            "GB" => 1024.0 * 1024.0 * 1024.0,
            _ => return None,
        };
        sum = Some(sum.unwrap_or(0) + (number * unit) as u64);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_from_plans() {
        let plan = "A: metrics=[output_rows=4, bytes_read_from_disk=1200, bytes_read_from_cache=0, x=1]\n  \
                    B: metrics=[bytes_read_from_disk=1.5 K]";
        assert_eq!(bytes_read_in(plan), Some(2700));
        assert_eq!(bytes_read_in("nothing"), None);
    }

    #[test]
    fn every_item_names_its_table() {
        for item in workload_items(0.01) {
            assert!(item.statements.iter().all(|sql| sql.contains("{table}")), "{}", item.name);
        }
    }
}
