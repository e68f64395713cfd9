//! `COPY ... TO` of CSV and JSON files: DataFusion's formats, but Taut writes the text of the rows.

use std::collections::HashMap;
use std::fmt::{self, Formatter};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::Session;
use datafusion::common::{GetExt, Result, Statistics, internal_err};
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::json::JsonFormat;
use datafusion::datasource::file_format::write::BatchSerializer;
use datafusion::datasource::file_format::write::demux::DemuxedStreamReceiver;
use datafusion::datasource::file_format::write::orchestration::spawn_writer_tasks_and_join;
use datafusion::datasource::file_format::{FileFormat, FileFormatFactory};
use datafusion::datasource::physical_plan::{FileScanConfig, FileSink, FileSinkConfig, FileSource};
use datafusion::datasource::sink::{DataSink, DataSinkExec};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::{SendableRecordBatchStream, SessionStateBuilder, TaskContext};
use datafusion::object_store::{ObjectMeta, ObjectStore};
use datafusion::physical_expr::LexRequirement;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan};
use datafusion_common_runtime::SpawnedTask;

use super::csv_writer::CsvWriter;
use super::json_writer::write_json_lines;

/// Replaces DataFusion's formats for CSV and JSON.
pub fn with_text_formats(mut state: SessionStateBuilder) -> SessionStateBuilder {
    for format in state.file_formats().get_or_insert_default() {
        if matches!(format.get_ext().as_str(), "csv" | "json") {
            *format = Arc::new(TextFormatFactory(Arc::clone(format)));
        }
    }
    state
}

/// Factory of DataFusion's formats in which Taut writes the text of the rows.
#[derive(Debug)]
struct TextFormatFactory(Arc<dyn FileFormatFactory>);

impl GetExt for TextFormatFactory {
    fn get_ext(&self) -> String {
        self.0.get_ext()
    }
}

impl FileFormatFactory for TextFormatFactory {
    fn create(&self, state: &dyn Session, options: &HashMap<String, String>) -> Result<Arc<dyn FileFormat>> {
        Ok(Arc::new(TextFormat(self.0.create(state, options)?)))
    }

    fn default(&self) -> Arc<dyn FileFormat> {
        Arc::new(TextFormat(self.0.default()))
    }
}

#[derive(Debug)]
struct TextFormat(Arc<dyn FileFormat>);

impl TextFormat {
    /// Returns the writer of the rows, and the compression of the file with its level.
    fn writer(&self, state: &dyn Session) -> Result<(RowWriter, FileCompressionType, Option<u32>)> {
        if let Some(csv) = self.0.downcast_ref::<CsvFormat>() {
            let options = csv.options();
            let (delimiter, quote) = (options.delimiter, options.quote);
            let null = options.null_value.clone().unwrap_or_default();
            let has_header = options.has_header.unwrap_or_else(|| state.config_options().catalog.has_header);
            let writer = CsvWriter { delimiter, quote, escape: options.escape.unwrap_or(quote), null };
            return Ok((RowWriter::Csv { writer, has_header }, options.compression.into(), options.compression_level));
        }
        match self.0.downcast_ref::<JsonFormat>() {
            Some(json) => {
                let options = json.options();
                Ok((RowWriter::Json, options.compression.into(), options.compression_level))
            }
            None => internal_err!("{:?} is not a text format", self.0),
        }
    }
}

#[async_trait]
impl FileFormat for TextFormat {
    fn get_ext(&self) -> String {
        self.0.get_ext()
    }

    fn get_ext_with_compression(&self, compression: &FileCompressionType) -> Result<String> {
        self.0.get_ext_with_compression(compression)
    }

    fn compression_type(&self) -> Option<FileCompressionType> {
        self.0.compression_type()
    }

    async fn infer_schema(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        objects: &[ObjectMeta],
    ) -> Result<SchemaRef> {
        self.0.infer_schema(state, store, objects).await
    }

    async fn infer_stats(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        table_schema: SchemaRef,
        object: &ObjectMeta,
    ) -> Result<Statistics> {
        self.0.infer_stats(state, store, table_schema, object).await
    }

    async fn create_physical_plan(
        &self,
        state: &dyn Session,
        config: FileScanConfig,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.0.create_physical_plan(state, config).await
    }

    async fn create_writer_physical_plan(
        &self,
        input: Arc<dyn ExecutionPlan>,
        state: &dyn Session,
        config: FileSinkConfig,
        order: Option<LexRequirement>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (writer, compression, compression_level) = self.writer(state)?;
        let sink = TextSink { config, writer: Arc::new(writer), compression, compression_level };
        Ok(Arc::new(DataSinkExec::new(input, Arc::new(sink), order)))
    }

    fn file_source(&self, table_schema: TableSchema) -> Arc<dyn FileSource> {
        self.0.file_source(table_schema)
    }
}

/// Writes batches as text.
#[derive(Clone, Debug)]
enum RowWriter {
    Csv { writer: CsvWriter, has_header: bool },
    Json,
}

impl BatchSerializer for RowWriter {
    fn serialize(&self, batch: RecordBatch, initial: bool) -> Result<Bytes> {
        let mut out = Vec::with_capacity(batch.get_array_memory_size() / 2);
        match self {
            Self::Csv { writer, has_header } => {
                if *has_header && initial {
                    writer.write_header(&batch.schema(), &mut out);
                }
                writer.write_rows(&batch, &mut out)?;
            }
            Self::Json => write_json_lines(&batch, &mut out)?,
        }
        Ok(out.into())
    }
}

/// Writes rows to files.
#[derive(Debug)]
struct TextSink {
    config: FileSinkConfig,
    writer: Arc<RowWriter>,
    compression: FileCompressionType,
    compression_level: Option<u32>,
}

impl DisplayAs for TextSink {
    fn fmt_as(&self, _format: DisplayFormatType, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self.writer.as_ref() {
            RowWriter::Csv { .. } => write!(formatter, "CsvSink"),
            RowWriter::Json => write!(formatter, "JsonSink"),
        }
    }
}

#[async_trait]
impl FileSink for TextSink {
    fn config(&self) -> &FileSinkConfig {
        &self.config
    }

    async fn spawn_writer_tasks_and_join(
        &self,
        context: &Arc<TaskContext>,
        demux_task: SpawnedTask<Result<()>>,
        files: DemuxedStreamReceiver,
        store: Arc<dyn ObjectStore>,
    ) -> Result<u64> {
        let writer = Arc::clone(&self.writer) as Arc<dyn BatchSerializer>;
        let (compression, level) = (self.compression, self.compression_level);
        spawn_writer_tasks_and_join(context, writer, compression, level, store, demux_task, files).await
    }
}

#[async_trait]
impl DataSink for TextSink {
    fn schema(&self) -> &SchemaRef {
        self.config.output_schema()
    }

    async fn write_all(&self, rows: SendableRecordBatchStream, context: &Arc<TaskContext>) -> Result<u64> {
        FileSink::write_all(self, rows, context).await
    }
}
