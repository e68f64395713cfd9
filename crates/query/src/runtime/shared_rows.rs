//! Batches of one stream for several readers, in memory or in a spill file.

use std::fmt::{self, Debug, Formatter};
use std::io::Cursor;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use datafusion::arrow::ipc::reader::StreamReader;
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::utils::memory::get_record_batch_memory_size;
use datafusion::common::{DataFusionError, Result, internal_datafusion_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::EmptyRecordBatchStream;
use datafusion::physical_plan::metrics::Count;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use tokio::task::spawn_blocking;

use super::spill::{SpillDirectory, SpillRegion};

/// Name under which the rows of a `WITH` query are registered with the memory pool.
pub(super) const MATERIALIZED_ROWS: &str = "MaterializedRows";

/// Batches of a stream that several readers share.
#[derive(Default)]
pub struct SharedRows {
    state: Mutex<SharedState>,
    readers: Arc<Readers>,
}

/// A stored batch.
pub enum Fetched {
    /// The batch is in memory.
    Batch(RecordBatch),
    /// The batch is in the spill file, and is read by this future.
    Spilled(BoxFuture<'static, Result<RecordBatch>>),
}

#[derive(Default)]
struct SharedState {
    /// The stream, after the first reader has started it and before it ends.
    input: Option<SharedInput>,
    stored: Vec<Stored>,
    spill: Option<SpillRegion>,
    end: Option<InputEnd>,
}

struct SharedInput {
    batches: SendableRecordBatchStream,
    context: Arc<TaskContext>,
    memory: MemoryReservation,
}

enum Stored {
    Batch(RecordBatch),
    /// Bytes of the spill file.
    Spilled(Range<u64>),
}

/// How the stream has ended.
enum InputEnd {
    Finished,
    Failed(Arc<DataFusionError>),
}

/// Maximum number of registered wakers. A reader that is polled often while it waits registers each time.
const WAKERS_MAX: usize = 256;

/// Wakers of the readers that wait.
#[derive(Default)]
struct Readers {
    /// Wakers of readers that wait for a batch. The stream wakes all of them, because the reader that polled last may
    /// have been dropped.
    waiting: Mutex<Vec<Waker>>,
    /// Wakers of readers that found the state locked. The reader that unlocks the state wakes them, even if it has got
    /// no batch: it may be dropped before it is polled again.
    locked_out: Mutex<Vec<Waker>>,
}

impl Wake for Readers {
    fn wake(self: Arc<Self>) {
        self.wake_others(None);
    }
}

impl Readers {
    /// Wakes all waiting readers except for one registration of `own`, whose reader is running.
    fn wake_others(&self, own: Option<&Waker>) {
        let mut waiting = std::mem::take(&mut *self.waiting.lock());
        if let Some(index) = own.and_then(|own| waiting.iter().rposition(|waker| waker.will_wake(own))) {
            waiting.swap_remove(index);
        }
        waiting.into_iter().for_each(Waker::wake);
    }

    fn wake_locked_out(&self) {
        let locked_out = std::mem::take(&mut *self.locked_out.lock());
        locked_out.into_iter().for_each(Waker::wake);
    }

    fn register(&self, waker: &Waker) {
        let mut waiting = self.waiting.lock();
        waiting.push(waker.clone());
        if waiting.len() > WAKERS_MAX {
            let all = std::mem::take(&mut *waiting);
            drop(waiting);
            all.into_iter().for_each(Waker::wake);
        }
    }
}

impl Debug for SharedRows {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("SharedRows")
    }
}

impl SharedRows {
    /// Whether the stream has failed.
    pub fn has_failed(&self) -> bool {
        matches!(self.state.lock().end, Some(InputEnd::Failed(_)))
    }

    /// Drops all batches. The next reader restarts the stream. No reader may be in use.
    pub fn reset(&self) {
        *self.state.lock() = SharedState::default();
    }

    /// Returns the batch with ordinal `index`. Returns `None` after the last one. Reads batches that are not stored yet
    /// from the stream; the first reader calls `start` to open the stream.
    ///
    /// # Errors
    /// If the stream has failed for this or another reader, or if the spill file cannot be written.
    pub fn poll_batch(
        self: &Arc<Self>,
        index: usize,
        task: &mut Context<'_>,
        start: impl FnOnce() -> Result<(SendableRecordBatchStream, Arc<TaskContext>)>,
        spilled_bytes: &Count,
    ) -> Poll<Result<Option<Fetched>>> {
        let mut is_registered = false;
        let mut register = || {
            if !std::mem::replace(&mut is_registered, true) {
                self.readers.register(task.waker());
            }
        };
        // Retried after registration, because the other reader may have woken the waiting readers in between.
        let locked = self.state.try_lock().or_else(|| {
            self.readers.locked_out.lock().push(task.waker().clone());
            self.state.try_lock()
        });
        let Some(mut state) = locked else { return Poll::Pending };
        let mut start = Some(start);
        let fetched = loop {
            if let Some(fetched) = state.fetch(index) {
                break fetched;
            }
            if let Some(start) = start.take()
                && state.input.is_none()
            {
                state.start(start());
                continue;
            }
            register();
            let waker = Waker::from(Arc::clone(&self.readers));
            if state.poll_input(&mut Context::from_waker(&waker), spilled_bytes).is_pending() {
                drop(state);
                self.readers.wake_locked_out();
                return Poll::Pending;
            }
        };
        drop(state);
        self.readers.wake_locked_out();
        self.readers.wake_others(is_registered.then_some(task.waker()));
        Poll::Ready(fetched)
    }
}

impl SharedState {
    /// Returns the stored batch, the end, or the error of the stream. `None` if the stream must be polled.
    fn fetch(&self, index: usize) -> Option<Result<Option<Fetched>>> {
        match (self.stored.get(index), &self.end) {
            (Some(Stored::Batch(batch)), _) => Some(Ok(Some(Fetched::Batch(batch.clone())))),
            (Some(Stored::Spilled(bytes)), _) => Some(self.read(bytes.clone()).map(Some)),
            (None, Some(InputEnd::Finished)) => Some(Ok(None)),
            (None, Some(InputEnd::Failed(error))) => Some(Err(DataFusionError::Shared(Arc::clone(error)))),
            (None, None) => None,
        }
    }

    fn start(&mut self, started: Result<(SendableRecordBatchStream, Arc<TaskContext>)>) {
        match started {
            Ok((batches, context)) => {
                let memory =
                    MemoryConsumer::new(MATERIALIZED_ROWS).with_can_spill(true).register(context.memory_pool());
                self.input = Some(SharedInput { batches, context, memory });
            }
            Err(error) => self.end = Some(InputEnd::Failed(Arc::new(error))),
        }
    }

    /// Stores the next batch of the stream, or its end.
    fn poll_input(&mut self, task: &mut Context<'_>, spilled_bytes: &Count) -> Poll<()> {
        let Some(input) = &mut self.input else {
            let error = internal_datafusion_err!("shared rows are read before they are started");
            self.end = Some(InputEnd::Failed(Arc::new(error)));
            return Poll::Ready(());
        };
        let stored = match input.batches.poll_next_unpin(task) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(batch)) => batch.and_then(|batch| self.store(batch, spilled_bytes)),
            Poll::Ready(None) => {
                self.end = Some(InputEnd::Finished);
                // Drops the operators of the stream. The batches still need the reservation.
                input.batches = Box::pin(EmptyRecordBatchStream::new(input.batches.schema()));
                return Poll::Ready(());
            }
        };
        if let Err(error) = stored {
            self.end = Some(InputEnd::Failed(Arc::new(error)));
        }
        Poll::Ready(())
    }

    fn store(&mut self, batch: RecordBatch, spilled_bytes: &Count) -> Result<()> {
        let Some(input) = &self.input else { return Ok(()) };
        let grown = input.memory.try_grow(get_record_batch_memory_size(&batch));
        self.stored.push(Stored::Batch(batch));
        match grown {
            Err(DataFusionError::ResourcesExhausted(_)) => self.spill(spilled_bytes),
            grown => grown,
        }
    }

    /// Moves all batches in memory to the spill file.
    fn spill(&mut self, spilled_bytes: &Count) -> Result<()> {
        let Some(input) = &self.input else { return Ok(()) };
        let file = match &self.spill {
            Some(file) => file,
            None => {
                let directory = input.context.session_config().get_extension::<SpillDirectory>();
                let directory =
                    directory.ok_or_else(|| internal_datafusion_err!("a query without a directory for spill files"))?;
                self.spill.insert(directory.create_region()?)
            }
        };
        for stored in &mut self.stored {
            let Stored::Batch(batch) = stored else { continue };
            let bytes = file.append(&encode(batch)?)?;
            spilled_bytes.add((bytes.end - bytes.start) as usize);
            *stored = Stored::Spilled(bytes);
        }
        input.memory.free();
        Ok(())
    }

    fn read(&self, bytes: Range<u64>) -> Result<Fetched> {
        let file = self.spill.clone().ok_or_else(|| internal_datafusion_err!("spilled rows without a file"))?;
        let read = spawn_blocking(move || decode(&file.read(bytes)?));
        let read = read.map(|batch| batch.map_err(|error| DataFusionError::External(Box::new(error)))?);
        Ok(Fetched::Spilled(read.boxed()))
    }
}

fn encode(batch: &RecordBatch) -> Result<Vec<u8>> {
    let mut writer = StreamWriter::try_new(Vec::new(), batch.schema_ref())?;
    writer.write(batch)?;
    Ok(writer.into_inner()?)
}

fn decode(bytes: &[u8]) -> Result<RecordBatch> {
    let mut reader = StreamReader::try_new(Cursor::new(bytes), None)?;
    let batch = reader.next().transpose()?;
    batch.ok_or_else(|| internal_datafusion_err!("a spilled batch is missing"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::future::poll_fn;

    use datafusion::arrow::array::{AsArray, Int64Array};
    use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
    use datafusion::prelude::SessionConfig;

    use super::*;
    use crate::runtime::memory::QueryMemory;

    const BATCHES: i64 = 40;

    /// Stream of batches with one number each. It is pending once before every other batch.
    fn numbers(end: Option<&'static str>) -> SendableRecordBatchStream {
        let schema = Arc::new(Schema::new(vec![Field::new("number", DataType::Int64, false)]));
        let of_batches = Arc::clone(&schema);
        let batches = async_stream::try_stream! {
            for number in 0..BATCHES {
                if number % 2 == 0 {
                    tokio::task::yield_now().await;
                }
                let column = Arc::new(Int64Array::from(vec![number; 1_000]));
                yield RecordBatch::try_new(Arc::clone(&of_batches), vec![column])?;
            }
            if let Some(message) = end {
                Err(DataFusionError::Execution(message.to_owned()))?;
            }
        };
        Box::pin(RecordBatchStreamAdapter::new(schema, batches))
    }

    fn context(memory_bytes: usize) -> Arc<TaskContext> {
        let pool = Arc::new(QueryMemory::new(memory_bytes));
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc().unwrap();
        let config = SessionConfig::new().with_extension(Arc::new(SpillDirectory::new(None)));
        Arc::new(TaskContext::default().with_session_config(config).with_runtime(runtime))
    }

    async fn read(rows: Arc<SharedRows>, context: Arc<TaskContext>, end: Option<&'static str>) -> Result<Vec<i64>> {
        let (mut found, spilled_bytes) = (Vec::new(), Count::new());
        loop {
            let start = || Ok((numbers(end), Arc::clone(&context)));
            let batch = match poll_fn(|task| rows.poll_batch(found.len(), task, start, &spilled_bytes)).await? {
                Some(Fetched::Batch(batch)) => batch,
                Some(Fetched::Spilled(read)) => read.await?,
                None => return Ok(found),
            };
            assert_eq!(batch.num_rows(), 1_000);
            found.push(batch.column(0).as_primitive::<Int64Type>().value(999));
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn readers_at_once_and_after_each_other_get_all_batches() {
        // Eight batches fit in 64 KiB.
        for memory_bytes in [1 << 30, 64 << 10] {
            let (rows, context) = (Arc::new(SharedRows::default()), context(memory_bytes));
            for _ in 0..2 {
                let readers: Vec<_> =
                    (0..4).map(|_| tokio::spawn(read(Arc::clone(&rows), Arc::clone(&context), None))).collect();
                for reader in readers {
                    assert_eq!(reader.await.unwrap().unwrap(), (0..BATCHES).collect::<Vec<_>>());
                }
            }
            assert_eq!(rows.state.lock().spill.is_some(), memory_bytes < 1 << 20);
        }
    }

    #[tokio::test]
    async fn all_readers_get_the_error_of_the_stream() {
        let (rows, context) = (Arc::new(SharedRows::default()), context(1 << 30));
        for _ in 0..2 {
            let error = read(Arc::clone(&rows), Arc::clone(&context), Some("the error")).await.unwrap_err();
            assert!(error.to_string().contains("the error"), "{error}");
        }
        assert!(rows.has_failed());
    }
}
