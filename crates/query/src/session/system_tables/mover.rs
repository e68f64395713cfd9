//! `taut.mover`: finished, running and failed compactions of the tuple mover. It has one row for each table and kind of
//! compaction, and one for checkpoints.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use datafusion::arrow::array::{ArrayRef, Float64Array, TimestampMicrosecondArray};
use taut_store::{Store, Table};

use super::{SystemColumn, SystemRows, SystemState, SystemTable, ZONE, numbers, texts};
use crate::mover::MoverState;
use crate::mover::policy::{CompactionKind, CompactionScope, next_compaction};
use crate::mover::status::JobStatistics;

pub(super) const TABLE: SystemTable = SystemTable {
    name: "mover",
    description: "Compactions of the tuple mover: one row for each table and kind, and one for checkpoints.",
    columns: &[
        SystemColumn::text("table_name", "Name of the table; null for checkpoints."),
        SystemColumn::text(
            "work",
            "`seal` (delta rows to blocks), `clean` (deleted rows out of blocks), `merge` (small blocks to larger ones) or `checkpoint`.",
        ),
        SystemColumn::text("state", "`running`, `failed`, `waiting`, `idle`, or `off`."),
        SystemColumn::text("doing", "Current step of a running compaction."),
        SystemColumn::number(
            "waiting_rows",
            "Rows to compact: delta rows (`seal`), deleted rows (`clean`) or rows to merge next (`merge`).",
        ),
        SystemColumn::number(
            "waiting_bytes",
            "Bytes of these rows, except for `clean`; bytes of the log for `checkpoint`.",
        ),
        SystemColumn::number("times", "Finished compactions since the database was opened."),
        SystemColumn::number("rows_in", "Rows read by these compactions."),
        SystemColumn::number("rows_out", "Rows written by these compactions."),
        SystemColumn::number("blocks_in", "Blocks replaced by these compactions."),
        SystemColumn::number("blocks_out", "Blocks written by these compactions."),
        SystemColumn::number("bytes_in", "Bytes replaced by these compactions."),
        SystemColumn::number("bytes_out", "Bytes written by these compactions."),
        SystemColumn::double("seconds", "Total duration in seconds."),
        SystemColumn::timestamp("last_done", "End of the last finished compaction."),
        SystemColumn::text("last_error", "Error of the last failure."),
        SystemColumn::timestamp("last_error_at", "Time of the last failure."),
    ],
    rows,
};

fn rows(state: &SystemState) -> SystemRows {
    let SystemState { store, snapshot, mover, .. } = state;
    let all = |table: &Arc<Table>| CompactionKind::ALL.map(|work| CompactionRow::new(mover, table, work));
    let mut rows: Vec<CompactionRow> = snapshot.tables().flat_map(all).collect();
    rows.push(CompactionRow::for_checkpoints(mover, store));
    Box::new(std::iter::once(Ok(columns(&rows, mover.is_on()))))
}

/// One row of `taut.mover`: a kind of compaction, the rows and bytes that wait for it, and its past runs.
struct CompactionRow {
    table: Option<String>,
    work: &'static str,
    waiting_rows: u64,
    waiting_bytes: u64,
    is_due: bool,
    record: JobStatistics,
}

impl CompactionRow {
    fn new(mover: &MoverState, table: &Table, work: CompactionKind) -> Self {
        let due = next_compaction(table, work, &mover.options, CompactionScope::Urgent);
        let (waiting_rows, waiting_bytes) = match (work, &due) {
            (CompactionKind::Seal, _) => (table.delta.rows(), table.delta.page_bytes() as u64),
            (CompactionKind::Clean, _) => (table.delta.deleted_block_rows(), 0),
            (CompactionKind::Merge, Some(compaction)) => {
                let entries = || compaction.blocks.iter().map(|index| table.blocks[*index].entry());
                (entries().map(|entry| entry.rows).sum(), entries().map(|entry| entry.file_bytes).sum())
            }
            (CompactionKind::Merge, None) => (0, 0),
        };
        let record = mover.status.lock().get(Some((table.id, work)));
        let (table, work, is_due) = (Some(table.name.clone()), work.name(), due.is_some());
        Self { table, work, waiting_rows, waiting_bytes, is_due, record }
    }

    fn for_checkpoints(mover: &MoverState, store: &Store) -> Self {
        let (log_bytes, record) = (store.log_bytes(), mover.status.lock().get(None));
        let is_due = log_bytes > mover.options.log_bytes;
        Self { table: None, work: "checkpoint", waiting_rows: 0, waiting_bytes: log_bytes, is_due, record }
    }

    fn state(&self, is_on: bool) -> &'static str {
        match (&self.record, self.is_due) {
            (JobStatistics { activity: Some(_), .. }, _) => "running",
            (JobStatistics { failures: 1.., .. }, _) => "failed",
            (_, true) if is_on => "waiting",
            _ if !is_on => "off",
            _ => "idle",
        }
    }
}

fn columns(rows: &[CompactionRow], is_on: bool) -> Vec<ArrayRef> {
    let text = |of: fn(&CompactionRow) -> Option<String>| texts(rows.iter().map(of));
    let number = |of: fn(&CompactionRow) -> u64| numbers(rows.iter().map(of));
    vec![
        text(|row| row.table.clone()),
        text(|row| Some(row.work.to_owned())),
        texts(rows.iter().map(|row| Some(row.state(is_on).to_owned()))),
        text(|row| row.record.activity.clone()),
        number(|row| row.waiting_rows),
        number(|row| row.waiting_bytes),
        number(|row| row.record.times),
        number(|row| row.record.before.rows),
        number(|row| row.record.after.rows),
        number(|row| row.record.before.blocks),
        number(|row| row.record.after.blocks),
        number(|row| row.record.before.bytes),
        number(|row| row.record.after.bytes),
        Arc::new(rows.iter().map(|row| Some(row.record.work_time.as_secs_f64())).collect::<Float64Array>()),
        timestamps(rows.iter().map(|row| row.record.done_at)),
        text(|row| row.record.error.as_ref().map(|(error, _)| error.clone())),
        timestamps(rows.iter().map(|row| row.record.error.as_ref().map(|(_, at)| *at))),
    ]
}

fn timestamps(values: impl Iterator<Item = Option<SystemTime>>) -> ArrayRef {
    let micros = |at: SystemTime| i64::try_from(at.duration_since(UNIX_EPOCH).ok()?.as_micros()).ok();
    let values = values.map(|at| at.and_then(micros));
    Arc::new(values.collect::<TimestampMicrosecondArray>().with_timezone(ZONE))
}
