//! Backups while the database is in use.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::arrow::array::{ArrayRef, Int64Array, StringArray, TimestampMicrosecondArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::error::DataFusionError;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_common_runtime::SpawnedTask;
use taut_store::backup::{BackupError, BackupLog, BackupOptions, BackupReport};

use super::{Done, Outcome, QuerySession};
use crate::error::{QueryError, Result};

const ZONE: &str = "+00:00";

impl QuerySession {
    /// Backs up the database to a directory. The backup contains all commits so far, but no changes of transactions in
    /// progress.
    ///
    /// # Errors
    /// If a transaction is in progress, or the directory cannot be used. Earlier backups stay intact.
    pub async fn backup(&self, directory: &Path, options: BackupOptions) -> Result<BackupReport> {
        if self.is_in_transaction() {
            return Err(QueryError::Transaction {
                message: "BACKUP DATABASE cannot run inside a transaction block".to_owned(),
                hint: None,
                sqlstate: "25001",
            });
        }
        let is_dropped = Arc::new(AtomicBool::new(false));
        let _guard = CancelOnDrop(Arc::clone(&is_dropped));
        let (store, directory): (_, PathBuf) = (Arc::clone(&self.store), directory.to_owned());
        let task = SpawnedTask::spawn_blocking(move || {
            store.backup(directory, options, &mut |_| match is_dropped.load(Ordering::Relaxed) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
        });
        match task.join().await {
            Err(_) | Ok(Err(BackupError::Cancelled)) => Err(QueryError::Cancelled),
            Ok(result) => Ok(result?),
        }
    }

    pub(super) async fn run_backup(&self, directory: &str, options: BackupOptions) -> Result<Outcome> {
        let report = self.backup(Path::new(directory), options).await?;
        let batch = report_batch(&report).map_err(DataFusionError::from)?;
        let stream = RecordBatchStreamAdapter::new(batch.schema(), futures::stream::once(async move { Ok(batch) }));
        Ok(Outcome::Rows(Box::pin(stream)))
    }

    pub(super) fn stop_log_retention(&self) -> Result<Outcome> {
        self.store.stop_log_retention()?;
        Ok(Outcome::Done(Done::with_tag("BACKUP DATABASE STOP LOG")))
    }
}

/// Drop guard: cancels the backup if the future of its statement is dropped.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Builds the row that `BACKUP DATABASE` returns. Its column `log` states whether the commits after the backup are
/// archived, for restores to a point in time.
fn report_batch(report: &BackupReport) -> datafusion::arrow::error::Result<RecordBatch> {
    let number = |name: &str, value: u64| {
        let array: ArrayRef = Arc::new(Int64Array::from(vec![i64::try_from(value).unwrap_or(i64::MAX)]));
        (Field::new(name, DataType::Int64, false), array)
    };
    let time: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![report.time]).with_timezone(ZONE));
    let log = match report.log {
        BackupLog::None => "none".to_owned(),
        BackupLog::Begun => "started".to_owned(),
        BackupLog::Continued { base, commits } => format!("{commits} commits since backup {base}"),
    };
    let log: ArrayRef = Arc::new(StringArray::from(vec![log]));
    let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = [
        number("backup", report.number),
        number("commit", report.commit),
        (Field::new("time", DataType::Timestamp(TimeUnit::Microsecond, Some(ZONE.into())), false), time),
        number("bytes", report.bytes),
        number("written_bytes", report.written_bytes),
        number("copied_blocks", report.copied_blocks),
        number("shared_blocks", report.shared_blocks),
        (Field::new("log", DataType::Utf8, false), log),
        number("removed_backups", report.removed.len() as u64),
    ]
    .into_iter()
    .unzip();
    let schema: SchemaRef = Arc::new(Schema::new(fields));
    RecordBatch::try_new(schema, arrays)
}
