//! Lookups: queries that select rows of one table by comparisons with values. They run on the calling thread, without
//! a planner.
//!
//! Such a query often returns a handful of rows. A sorted column or an index finds them in less time than planning and
//! starting a query takes. The number of rows is known only when the query runs, so the lookup is tried first. If it
//! finds too many rows, it gives up and the query is planned.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::{Column, DFSchema, Result, ScalarValue};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, FetchType, LogicalPlan, Operator, SkipType, TableScan};
use taut_block::{PredicateHistory, PrunedSegments, SEGMENT_ROWS, ScanReport, Selection};
use taut_sql::parameter_index;
use taut_store::{Catalog, ContainerId, DeltaPage, KeySearch, ReadCounters, Table, TableId, Transaction};
use taut_types::{ColumnIndex, ColumnPredicate, Predicate};

use super::TableShape;
use crate::exec::scan::{
    Output, PageReader, Reader, add_predicate, block_error, comparison, list_predicate, open_block_that_may_match,
};
use crate::write::blocks::string_bytes;

/// Maximum number of values that a lookup may compare.
const COMPARED_VALUES_MAX: u64 = SEGMENT_ROWS as u64;
/// Maximum number of values in the result, rows times columns. Reading one value takes 0.1 us if the values are far
/// apart in memory. For more than 8,192 values, the threads of a planned query save more time than planning takes.
const VALUES_MAX: u64 = 8_192;
/// Maximum number of delta rows that a lookup may read.
const PAGE_ROWS_MAX: usize = SEGMENT_ROWS;
/// Maximum number of segments that a lookup may search. Each takes some microseconds.
const SEARCHED_SEGMENTS_MAX: u64 = 64;
/// Maximum number of segments that a lookup may check against zone maps and indexes. Also the maximum number of blocks
/// that it may open.
const CHECKED_SEGMENTS_MAX: u64 = 1_024;
/// Maximum bytes that a lookup may read from disk, on one thread.
const READ_BYTES_MAX: u64 = 32 << 20;
/// Maximum bytes of text in the result.
const TEXT_BYTES_MAX: u64 = 16 << 20;
/// Number of successive failures after which a lookup is tried only in one of [`RETRY_EVERY`] executions.
const FAILURES_MAX: u32 = 4;
/// Number of executions per attempt, after too many failures.
const RETRY_EVERY: u32 = 64;

/// A query that can run as a lookup.
#[derive(Debug)]
pub struct Lookup {
    table: TableId,
    output: Output,
    conditions: Vec<Condition>,
    /// Columns of the conditions, if each condition is `column = value` and no column occurs twice.
    equality_columns: Option<Vec<usize>>,
    limit: usize,
    /// Failures since the last success, and executions that skipped the lookup because of them.
    failures: AtomicU32,
}

/// `column operator value`, or `column IN (values)`.
#[derive(Debug)]
struct Condition {
    column: ColumnIndex,
    /// `None` for a list.
    operator: Option<Operator>,
    operands: Vec<Operand>,
}

#[derive(Debug)]
enum Operand {
    Value(ScalarValue),
    /// Index of a parameter.
    Parameter(usize),
}

impl Lookup {
    /// Converts a cached plan to a lookup. Returns `None` if the plan does anything but compare columns with values,
    /// select columns and limit the rows.
    pub fn from_plan(plan: &LogicalPlan) -> Option<Self> {
        let mut limit = usize::MAX;
        let (scan, columns) = projected_scan(plan, &mut limit)?;
        let shape = TableShape::from_source(&scan.source)?;
        let schema = DFSchema::try_from(Arc::clone(&shape.schema)).ok()?;
        let conditions = scan.filters.iter().flat_map(split_conjunction);
        let conditions: Vec<_> =
            conditions.map(|condition| condition_of(condition, &schema, shape)).collect::<Option<_>>()?;
        if conditions.is_empty() || columns.is_empty() {
            return None;
        }
        let output = Output::new(&columns, shape.table_columns, Arc::clone(plan.schema().inner()));
        let equality_columns = equality_columns_of(&conditions);
        Some(Self { table: shape.id, output, conditions, equality_columns, limit, failures: AtomicU32::new(0) })
    }

    /// Schema of the result.
    pub fn output(&self) -> &SchemaRef {
        self.output.schema()
    }

    /// Ordinals of the result's columns in the table, and the schema of the result. `None` if the query has a limit.
    pub fn columns(&self) -> Option<(Vec<usize>, &SchemaRef)> {
        let indexes = self.output.indexes().filter(|_| self.limit == usize::MAX)?;
        Some((indexes, self.output.schema()))
    }

    /// Runs the lookup in a snapshot, with values for the parameters. Returns `None` if it gives up.
    ///
    /// # Errors
    /// If a block cannot be read.
    pub fn run(&self, snapshot: &Catalog, values: &[ScalarValue]) -> Result<Option<Vec<RecordBatch>>> {
        let failures = self.failures.load(Ordering::Relaxed);
        if failures >= FAILURES_MAX && !failures.is_multiple_of(RETRY_EVERY) {
            self.failures.fetch_add(1, Ordering::Relaxed);
            return Ok(None);
        }
        let Some(table) = snapshot.table_of(self.table) else { return Ok(None) };
        let Some(column_predicates) = self.predicates(table, values) else { return Ok(None) };
        let found = self.find_rows(table, &Predicate { column_predicates, row_predicates: Vec::new() }, values)?;
        match found {
            Some(_) => self.failures.store(0, Ordering::Relaxed),
            None => drop(self.failures.fetch_add(1, Ordering::Relaxed)),
        }
        Ok(found)
    }

    /// Adds the predicates of the lookup to the read set of a serializable transaction.
    pub fn record_reads(&self, transaction: &Transaction, snapshot: &Catalog, values: &[ScalarValue]) {
        if transaction.is_serializable() {
            let predicates = snapshot.table_of(self.table).and_then(|table| self.predicates(table, values));
            // Without predicates, the whole table is recorded as read.
            transaction.record_reads_where(self.table, predicates.unwrap_or_default());
        }
    }

    /// Predicates of the lookup. `None` if a value cannot be used in a predicate.
    fn predicates(&self, table: &Table, values: &[ScalarValue]) -> Option<Vec<ColumnPredicate>> {
        let mut predicates = Vec::new();
        for condition in &self.conditions {
            add_predicate(&mut predicates, condition.predicate(values, table)?);
        }
        Some(predicates)
    }

    /// Returns at most one batch, because processing a batch costs the caller more than processing a row.
    fn find_rows(
        &self,
        table: &Table,
        predicate: &Predicate,
        values: &[ScalarValue],
    ) -> Result<Option<Vec<RecordBatch>>> {
        let Some(batches) = self.matching_batches(table, predicate, values)? else { return Ok(None) };
        match batches.len() {
            0 | 1 => Ok(Some(batches)),
            _ => Ok(Some(vec![concat_batches(self.output.schema(), &batches)?])),
        }
    }

    fn matching_batches(
        &self,
        table: &Table,
        predicate: &Predicate,
        values: &[ScalarValue],
    ) -> Result<Option<Vec<RecordBatch>>> {
        let counters = ReadCounters::new();
        let (mut report, mut history) = (ScanReport::default(), PredicateHistory::default());
        let (mut result, mut opened, mut pruned_segments) =
            (LookupResult { rows_left: self.limit, ..LookupResult::default() }, 0, 0);
        for index in table.blocks_that_may_match(&predicate.column_predicates) {
            opened += 1;
            if opened > CHECKED_SEGMENTS_MAX {
                return Ok(None);
            }
            let file = &table.blocks[index];
            let Some(block) = open_block_that_may_match(file, &predicate.column_predicates, &counters)? else {
                continue;
            };
            let segments: Vec<usize> = (0..block.block().segments()).collect();
            for group in segments.chunks(PrunedSegments::SEGMENTS_MAX) {
                let pruned = block.block().prune(&block, &predicate.column_predicates, group.iter().copied());
                let pruned = pruned.map_err(|error| block_error(&block, error))?;
                pruned_segments += pruned.ruled_out_count() as u64;
                if pruned_segments > CHECKED_SEGMENTS_MAX || counters.disk_bytes() > READ_BYTES_MAX {
                    return Ok(None);
                }
                for segment in pruned.remaining() {
                    let reader = Reader::Segment(&block, segment, table.open_segment(&block, segment));
                    if !self.read_matching(reader, predicate, &mut history, (&mut result, &mut report))? {
                        return Ok(None);
                    }
                    if result.rows_left == 0 {
                        return Ok(Some(result.batches));
                    }
                }
            }
        }
        if let Some(rows) = self.rows_by_key(table, values)? {
            for (page, rows) in rows {
                let mut reader = Reader::Page(PageReader::new(table, page));
                let selection = Selection::Positions(rows);
                let Some(rows) = result.reserve_rows(&selection, self.output.schema().fields().len()) else {
                    return Ok(None);
                };
                if !result.add(reader.batch(&selection, 0..rows, &self.output, &mut report)?) {
                    return Ok(None);
                }
            }
            return Ok(Some(result.batches));
        }
        let mut page_rows = 0;
        for page in table.delta.pages() {
            if result.rows_left == 0 {
                break;
            }
            page_rows += page.rows();
            let reader = Reader::Page(PageReader::new(table, page));
            if page_rows > PAGE_ROWS_MAX
                || !self.read_matching(reader, predicate, &mut history, (&mut result, &mut report))?
            {
                return Ok(None);
            }
        }
        Ok(Some(result.batches))
    }

    /// Returns the delta rows that a key index in memory finds, by page. Returns `None` if the conditions are not
    /// equalities on the columns of such an index.
    fn rows_by_key<'a>(&self, table: &'a Table, values: &[ScalarValue]) -> Result<Option<Vec<RowsOfPage<'a>>>> {
        let Some(columns) = self.equality_columns.as_ref().filter(|_| !table.delta.has_no_pages()) else {
            return Ok(None);
        };
        let mut keys = Vec::with_capacity(columns.len());
        for (condition, column) in self.conditions.iter().zip(columns) {
            let value = condition.operands.first().and_then(|operand| operand.value(values));
            let arrow = table.schema.column(ColumnIndex::from(*column)).logical_type.arrow();
            // A literal may have another type. Because of NaN and signed zeros, floating-point numbers are compared row
            // by row.
            match value.filter(|value| value.data_type() == arrow && !value.is_null() && !arrow.is_floating()) {
                Some(value) => keys.push(value.to_array()?),
                None => return Ok(None),
            }
        }
        let Some(found) = KeySearch::new(table, columns).find_outside_of_blocks(&keys) else { return Ok(None) };
        let mut pages: BTreeMap<ContainerId, Vec<u32>> = BTreeMap::new();
        for (_, row) in found {
            pages.entry(row.container()).or_default().push(row.row().into());
        }
        Ok(Some(pages.into_iter().filter_map(|(container, rows)| Some((table.delta.page(container)?, rows))).collect()))
    }

    /// Adds the matching rows of one segment or page. Returns false if the lookup must give up.
    fn read_matching(
        &self,
        mut reader: Reader<'_>,
        predicate: &Predicate,
        history: &mut PredicateHistory,
        (result, report): (&mut LookupResult, &mut ScanReport),
    ) -> Result<bool> {
        let selection = reader.filter(predicate, history, report)?;
        let Some(rows) = result
            .reserve_rows(&selection, self.output.schema().fields().len())
            .filter(|_| !exceeds_planning_cost(report))
        else {
            return Ok(false);
        };
        Ok(rows == 0 || result.add(reader.batch(&selection, 0..rows, &self.output, report)?))
    }
}

/// A page, and positions of rows in it, ascending.
type RowsOfPage<'a> = (&'a DeltaPage, Vec<u32>);

/// Result of a lookup so far.
#[derive(Default)]
struct LookupResult {
    batches: Vec<RecordBatch>,
    /// Number of rows still to return.
    rows_left: usize,
    /// Number of values so far, rows times columns.
    values: u64,
    /// Bytes of text so far.
    bytes: u64,
}

impl LookupResult {
    /// Counts the selected rows, at most `rows_left`, as part of the result and returns their number. Returns `None` if
    /// the result would be too large.
    fn reserve_rows(&mut self, selection: &Selection, columns: usize) -> Option<usize> {
        let rows = selection.len().min(self.rows_left);
        self.values += (rows * columns) as u64;
        self.rows_left -= rows;
        (self.values <= VALUES_MAX).then_some(rows)
    }

    /// Adds rows. Returns false if the result is too large.
    fn add(&mut self, batch: RecordBatch) -> bool {
        self.bytes += batch.columns().iter().map(string_bytes).sum::<u64>();
        self.batches.push(batch);
        self.bytes <= TEXT_BYTES_MAX
    }
}

/// Whether the work so far exceeds the limits above which planning the query is faster.
fn exceeds_planning_cost(report: &ScanReport) -> bool {
    let searched = report.segments - report.segments_skipped - report.segments_skipped_by_bloom;
    report.values_tested > COMPARED_VALUES_MAX
        || searched > SEARCHED_SEGMENTS_MAX
        || report.segments > CHECKED_SEGMENTS_MAX
}

impl Operand {
    fn value<'a>(&'a self, values: &'a [ScalarValue]) -> Option<&'a ScalarValue> {
        match self {
            Self::Parameter(index) => values.get(*index),
            Self::Value(value) => Some(value),
        }
    }
}

impl Condition {
    fn predicate(&self, values: &[ScalarValue], table: &Table) -> Option<ColumnPredicate> {
        let mut values = self.operands.iter().map(|operand| operand.value(values));
        match self.operator {
            Some(operator) => comparison(self.column, operator, values.next()??, &table.schema),
            None => list_predicate(self.column, values, false, &table.schema),
        }
    }
}

/// The scan of a plan that only scans a table, selects columns and limits the rows. Also returns the ordinals of the
/// selected columns in the stored table, and lowers `limit` to the limit of the plan.
fn projected_scan<'a>(plan: &'a LogicalPlan, limit: &mut usize) -> Option<(&'a TableScan, Vec<usize>)> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            *limit = scan.fetch.unwrap_or(usize::MAX).min(*limit);
            let visible = &TableShape::from_source(&scan.source)?.visible;
            let columns = match &scan.projection {
                Some(indexes) => indexes.iter().map(|index| visible.get(*index).copied()).collect::<Option<_>>()?,
                None => visible.clone(),
            };
            Some((scan, columns))
        }
        LogicalPlan::SubqueryAlias(alias) => projected_scan(&alias.input, limit),
        LogicalPlan::Projection(projection) => {
            let (scan, columns) = projected_scan(&projection.input, limit)?;
            let index = |expression: &Expr| {
                let Expr::Column(column) = expression.clone().unalias() else { return None };
                columns.get(projection.input.schema().index_of_column(&column).ok()?).copied()
            };
            let columns = projection.expr.iter().map(index).collect::<Option<_>>()?;
            Some((scan, columns))
        }
        LogicalPlan::Limit(rows) => {
            let (SkipType::Literal(0), FetchType::Literal(fetch)) =
                (rows.get_skip_type().ok()?, rows.get_fetch_type().ok()?)
            else {
                return None;
            };
            *limit = fetch.unwrap_or(usize::MAX).min(*limit);
            projected_scan(&rows.input, limit)
        }
        _ => None,
    }
}

fn condition_of(condition: &Expr, schema: &DFSchema, shape: &TableShape) -> Option<Condition> {
    let index = |column: &Column| {
        let index = *shape.visible.get(schema.index_of_column_by_name(None, &column.name)?)?;
        (index < shape.table_columns).then(|| ColumnIndex::from(index))
    };
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let (column, operator, operand) = match (left.as_ref(), right.as_ref()) {
                (Expr::Column(column), operand) => (column, *op, operand),
                (operand, Expr::Column(column)) => (column, op.swap()?, operand),
                _ => return None,
            };
            let operands = vec![operand_of(operand)?];
            Some(Condition { column: index(column)?, operator: Some(operator), operands })
        }
        Expr::InList(list) if !list.negated => {
            let Expr::Column(column) = list.expr.as_ref() else { return None };
            let operands = list.list.iter().map(operand_of).collect::<Option<_>>()?;
            Some(Condition { column: index(column)?, operator: None, operands })
        }
        _ => None,
    }
}

/// Columns of conditions, if each condition is `column = value` and no column occurs twice.
fn equality_columns_of(conditions: &[Condition]) -> Option<Vec<usize>> {
    let column = |condition: &Condition| (condition.operator == Some(Operator::Eq)).then(|| condition.column.index());
    let columns: Vec<usize> = conditions.iter().map(column).collect::<Option<_>>()?;
    let distinct: BTreeSet<&usize> = columns.iter().collect();
    (distinct.len() == columns.len()).then_some(columns)
}

fn operand_of(expression: &Expr) -> Option<Operand> {
    match expression {
        Expr::Literal(value, _) => Some(Operand::Value(value.clone())),
        Expr::Placeholder(placeholder) => Some(Operand::Parameter(parameter_index(&placeholder.id)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::AsArray;
    use datafusion::arrow::datatypes::Int64Type;
    use taut_store::Store;

    use super::*;
    use crate::exec::scan::tests::{create, database, rows, stored};

    #[test]
    fn skipped_segments_count_as_checked_but_not_as_searched() {
        let report = |segments, segments_skipped| ScanReport { segments, segments_skipped, ..ScanReport::default() };
        assert!(!exceeds_planning_cost(&report(64, 0)) && exceeds_planning_cost(&report(65, 0)));
        assert!(!exceeds_planning_cost(&report(1_000, 999)) && exceeds_planning_cost(&report(1_025, 1_024)));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn rows_are_found_in_blocks_and_pages_unless_they_are_deleted() {
        let store = database(true).await;
        let table = stored(&store, "t");
        let column = |index: usize, operator| Condition {
            column: ColumnIndex::from(index),
            operator,
            operands: vec![Operand::Parameter(index)],
        };
        let output = Output::new(&[0], 3, Arc::new(table.schema.arrow().project(&[0]).unwrap()));
        let conditions = vec![column(0, Some(Operator::GtEq)), column(2, Some(Operator::Eq))];
        let mut lookup = Lookup {
            table: table.id,
            output,
            conditions,
            equality_columns: None,
            limit: 3,
            failures: AtomicU32::new(0),
        };
        let found = |lookup: &Lookup, id: i64, x: f64| {
            let (id, x) = (ScalarValue::Int64(Some(id)), ScalarValue::Float64(Some(x)));
            let batches = lookup.run(&store.snapshot(), &[id, ScalarValue::Null, x]).unwrap().unwrap();
            let values = |batch: &RecordBatch| batch.column(0).as_primitive::<Int64Type>().values().to_vec();
            batches.iter().flat_map(values).collect::<Vec<_>>()
        };
        // The column x has -0.0 if id % 9 is 0, 0.0 if it is 1, and NaN if it is 2. Zero matches zeros of both signs.
        // Multiples of 5 and the second block, ids 70,000 to 72,999, are deleted.
        assert_eq!(found(&lookup, 69_983, 0.0), [69_984, 69_993, 69_994]);
        assert_eq!(found(&lookup, 69_994, 0.0), [69_994, 73_008, 73_009]);
        assert_eq!(found(&lookup, 75_270, -0.0), [75_276, 75_277, 75_286]);
        assert_eq!(found(&lookup, 75_297, f64::NAN), Vec::<i64>::new());
        lookup.limit = usize::MAX;
        assert_eq!(found(&lookup, 75_270, f64::NAN), [75_278, 75_287, 75_296]);
    }

    #[test]
    fn a_lookup_stops_at_its_limit() {
        let store = Arc::new(Store::in_memory().unwrap());
        // Four segments of one block, no index.
        create(&store, "l", &[rows(0..4 * SEGMENT_ROWS as i64)]);
        let table = stored(&store, "l");
        let mut lookup = Lookup {
            table: table.id,
            output: Output::new(&[0], 3, Arc::new(table.schema.arrow().project(&[0]).unwrap())),
            conditions: vec![Condition {
                column: ColumnIndex(1),
                operator: Some(Operator::Eq),
                operands: vec![Operand::Value(ScalarValue::Int32(Some(3)))],
            }],
            equality_columns: None,
            limit: 1,
            failures: AtomicU32::new(0),
        };
        let mut found = |limit| {
            lookup.limit = limit;
            lookup.run(&store.snapshot(), &[]).unwrap().map(|batches| batches.iter().map(RecordBatch::num_rows).sum())
        };
        assert_eq!(found(1), Some(1));
        // Without a limit, the result has too many rows, so the lookup gives up.
        assert_eq!(found(usize::MAX), None::<usize>);
    }
}
