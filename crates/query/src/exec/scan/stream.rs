//! Stream of the rows of one partition of a scan.

use std::sync::Arc;

use async_stream::try_stream;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::RecordOutput;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;

use super::driver::{Candidate, CandidateRows, Conditions, ScanDriver, ScanStep, SlicePace};
use super::morsels::WorkQueue;
use super::output_batches::OutputBatches;
use super::page::PageReader;
use super::reader::{Output, Reader};
use super::source::ScanSource;

/// Opens the stream of one partition. The stream reads nothing before it is polled, not even dynamic filters.
pub fn open(
    source: &ScanSource,
    queue: Arc<WorkQueue>,
    partition: usize,
    context: Arc<TaskContext>,
) -> SendableRecordBatchStream {
    let schema = Arc::clone(&source.output);
    let source = source.clone();
    let stream = try_stream! {
        let (table, config) = (source.table().stored(), context.session_config());
        let batch_rows = config.batch_size();
        let mut driver = ScanDriver::new(&source, queue, partition, config)?;
        let baseline = driver.metrics().baseline.clone();
        let output = Output::for_scan(&source);
        let mut rows_left = source.limit.unwrap_or(usize::MAX);
        let mut batches = OutputBatches::new(&source.output, output.types(&table.schema), batch_rows);
        let mut pace = SlicePace::new(config);
        while rows_left > 0 {
            pace.yield_if_over().await;
            let mut running = baseline.elapsed_compute().timer();
            let Some(step) = driver.step()? else { break };
            let ScanStep::Candidate(Candidate { rows, conditions, metrics, remaining_morsels }) = step else { continue };
            let mut reader = match rows {
                CandidateRows::Segment(block, segment) => {
                    Reader::Segment(block, segment, table.open_segment(block, segment))
                }
                CandidateRows::Page(page) => Reader::Page(PageReader::new(table, page)),
            };
            let Conditions { predicate, history, .. } = conditions;
            let selection = reader.filter(predicate, history, metrics.report())?;
            let selected = selection.len().min(rows_left);
            rows_left -= selected;
            let mut row = 0;
            while row < selected {
                let rows = row..selected.min(row + batch_rows);
                row = rows.end;
                let remaining_estimate = selected.saturating_mul(remaining_morsels).min(rows_left);
                let append = |arrays: &mut _| {
                    reader.append(&selection, rows.clone(), &output, arrays, metrics.report())
                };
                if !batches.append(rows.len(), remaining_estimate, append)? {
                    batches.push(reader.batch(&selection, rows, &output, metrics.report())?)?;
                }
                while let Some(batch) = batches.next() {
                    running.stop();
                    yield batch.record_output(&baseline);
                    pace.restart();
                    running.restart();
                }
            }
        }
        driver.publish();
        batches.finish()?;
        while let Some(batch) = batches.next() {
            yield batch.record_output(&baseline);
        }
    };
    Box::pin(RecordBatchStreamAdapter::new(schema, stream))
}
