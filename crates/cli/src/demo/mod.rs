//! `taut demo`: runs the same workload on one table in four layouts and compares them. Then runs TPC-H on tables with
//! the default layout and sort order.

mod data;
mod queries;
mod report;
mod workload;

use std::path::Path;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use taut::Session;

use crate::args::{DemoArguments, ReadOnly};
use crate::failure::Failure;
use crate::interrupt::{InterruptGuard, Interrupts};
use crate::output::Output;
use crate::progress::{ProgressDisplay, spinner};
use crate::system_tables;
use crate::units::{bytes_text, count_text, duration_text};
use data::{PLAIN_TABLES, Table};
use report::{Comparison, QueryResult};

/// Table `lineitem` in one layout.
pub struct Variant {
    /// Name of the layout.
    pub name: &'static str,
    table: &'static str,
    with: &'static [(&'static str, &'static str)],
}

/// Column groups: one for each column that the aggregations read, and one for all other columns, which are read only
/// with whole rows.
const GROUPS: &str = "(l_orderkey), (l_quantity), (l_extendedprice), (l_discount), (l_tax), (l_returnflag), \
                      (l_linestatus), (l_shipdate), (l_partkey, l_suppkey, l_linenumber, l_commitdate, \
                      l_receiptdate, l_shipinstruct, l_shipmode, l_comment)";

/// The layouts that are compared.
pub const VARIANTS: [Variant; 4] = [
    Variant { name: "row", table: "lineitem_row", with: &[("layout", "row"), ("sort_by", "l_orderkey")] },
    Variant {
        name: "packed_row",
        table: "lineitem_packed_row",
        with: &[("layout", "packed_row"), ("sort_by", "l_orderkey")],
    },
    Variant { name: "column", table: "lineitem", with: &[("layout", "column"), ("sort_by", "l_orderkey")] },
    Variant {
        name: "groups",
        table: "lineitem_groups",
        with: &[("layout", "groups"), ("groups", GROUPS), ("sort_by", "l_orderkey")],
    },
];

/// Runs `taut demo`.
pub fn run(arguments: &DemoArguments, output: Output) -> Result<(), Failure> {
    match &arguments.directory {
        Some(directory) => run_in(directory, arguments, output),
        None => {
            let directory = tempfile::Builder::new().prefix("taut-demo-").tempdir()?;
            run_in(directory.path(), arguments, output)
        }
    }
}

fn run_in(directory: &Path, arguments: &DemoArguments, output: Output) -> Result<(), Failure> {
    let name = directory.to_string_lossy();
    let database = arguments.settings.open(&name, true, ReadOnly::default())?;
    let session = database.session();
    if !system_tables::tables(&session, None)?.is_empty() {
        return Err(Failure::InvalidArgument(format!(
            "{name} has tables already; the demo needs a directory of its own"
        )));
    }
    let cores = available_parallelism().map_or(2, usize::from);
    let threads = arguments.settings.threads.map_or(cores, usize::from);
    let progress = ProgressDisplay::attach(&session, "");
    let watch = Interrupts::install().watch(&session);
    let mut demo = Demo { session, output, progress, watch, scale: arguments.scale, threads };
    let start = Instant::now();
    let result = demo.run(&name);
    demo.progress.clear();
    match result {
        Err(_) if demo.watch.was_interrupted() => return Err(Failure::Interrupted),
        result => result?,
    }
    demo.output.write_line(format!("\nDone in {}.", duration_text(start.elapsed())))?;
    if arguments.directory.is_some() {
        demo.output.write_line(format!("The database is kept. Go on with: taut sql {name}"))?;
    } else {
        demo.output.write_line("The database is removed; taut demo --directory DIR keeps it.")?;
    }
    demo.output.finish()
}

struct Demo {
    session: Session,
    output: Output,
    progress: ProgressDisplay,
    watch: InterruptGuard,
    scale: f64,
    threads: usize,
}

impl Demo {
    fn run(&mut self, directory: &str) -> Result<(), Failure> {
        let scale = self.scale;
        self.print(format!("TPC-H at scale {scale} in {directory}, {} threads\n", self.threads))?;
        let spinner = spinner("preparing the texts of TPC-H");
        data::prepare();
        spinner.finish_and_clear();
        for table in PLAIN_TABLES {
            self.load(table, table.name(), &[])?;
        }
        let mut comparison = Comparison::default();
        let mut loads = [Duration::ZERO; VARIANTS.len()];
        let mut sizes = [0; VARIANTS.len()];
        for (index, variant) in VARIANTS.iter().enumerate() {
            (loads[index], sizes[index]) = self.load(Table::LineItem, variant.table, variant.with)?;
        }
        self.measure(&mut comparison)?;
        comparison.push_sizes("stored", &sizes);
        comparison.push_times("loaded, with generation", &loads);
        self.print("\nlineitem in four layouts: time / bytes that scans read from disk or cache; * wins\n")?;
        self.print(comparison.text())?;
        let results = self.run_queries()?;
        self.print("The 22 queries of TPC-H on the default design\n")?;
        self.print(report::queries_text(&results).trim_end())
    }

    fn print(&mut self, line: impl std::fmt::Display) -> Result<(), Failure> {
        if self.watch.was_interrupted() {
            return Err(Failure::Interrupted);
        }
        self.output.write_line(line)?;
        self.output.finish()
    }

    /// Generates and loads a table. Returns the time and the stored bytes.
    fn load(&mut self, table: Table, name: &str, with: &[(&str, &str)]) -> Result<(Duration, u64), Failure> {
        let with: Vec<_> = with.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.progress.expect_rows(table.rows(self.scale));
        let start = Instant::now();
        let (schema, parts) = table.generate(self.scale, self.threads);
        let rows = self.session.load_batches(name, schema, parts, &with)?;
        let time = start.elapsed();
        self.progress.clear();
        let info = system_tables::table(&self.session, name)?;
        let (rows, duration) = (count_text(rows), duration_text(time));
        let (bytes, plain) = (bytes_text(info.bytes), bytes_text(info.plain_bytes));
        self.print(format!("  {name:<20} {rows:>11} rows {duration:>9}  {bytes:>10} stored {plain:>10} plain"))?;
        Ok((time, info.bytes))
    }

    /// Runs the workload on each layout. Fails if the layouts return different results.
    fn measure(&mut self, comparison: &mut Comparison) -> Result<(), Failure> {
        for item in workload::workload_items(self.scale) {
            let mut expected = None;
            let mut measured = Vec::with_capacity(VARIANTS.len());
            for variant in &VARIANTS {
                let spinner = spinner(format!("{} on {}", item.name, variant.table));
                let result = item.measure(&self.session, variant.table);
                spinner.finish_and_clear();
                let (measurement, digest) = result?;
                let expected = *expected.get_or_insert(digest);
                if digest != expected {
                    return Err(Failure::Disagreement {
                        item: item.name.clone(),
                        layout: variant.name,
                        found: digest.to_string(),
                        expected: expected.to_string(),
                    });
                }
                measured.push(measurement);
            }
            if let Ok(measured) = measured.try_into() {
                comparison.push_measurements(&item.name, &measured);
            }
        }
        Ok(())
    }

    fn run_queries(&self) -> Result<Vec<QueryResult>, Failure> {
        let mut results = Vec::with_capacity(queries::QUERIES.len());
        for (index, query) in queries::QUERIES.iter().enumerate() {
            let spinner = spinner(format!("Q{} of 22", index + 1));
            let start = Instant::now();
            let rows = self.session.query(query.sql).and_then(|mut rows| {
                rows.try_fold(0, |count, batch| batch.map(|batch| count + batch.num_rows() as u64))
            });
            spinner.finish_and_clear();
            results.push(QueryResult { title: query.title, time: start.elapsed(), rows: rows? });
        }
        Ok(results)
    }
}
