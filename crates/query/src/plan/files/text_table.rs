//! CSV and JSON files as a table of the planner.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result as EngineResult;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use taut_sql::FileFormat;
use taut_types::Schema;

use super::csv_file::CsvFile;
use super::json_file::{self, JsonFile};
use super::{FileColumns, ReadOptions, message_error};
use crate::error::Result;

/// Files with the same columns. Each one is a partition.
#[derive(Debug)]
pub(super) struct TextTable {
    schema: SchemaRef,
    files: Files,
}

#[derive(Debug)]
enum Files {
    Csv(Vec<CsvFile>),
    Json(Vec<JsonFile>),
}

impl TextTable {
    /// Describes files for reading. All have the columns of the table, or of the first file.
    ///
    /// # Errors
    /// If a file cannot be read, or its columns do not fit the columns of the table or of the first file.
    pub fn open(
        paths: &[PathBuf],
        format: FileFormat,
        options: &ReadOptions,
        columns: Option<&FileColumns>,
    ) -> Result<Self> {
        match format {
            FileFormat::Json => Self::open_json(paths, columns),
            FileFormat::Csv | FileFormat::Parquet => Self::open_csv(paths, options, columns),
        }
    }

    fn open_json(paths: &[PathBuf], columns: Option<&FileColumns>) -> Result<Self> {
        let schema = match columns {
            Some(columns) => json_file::schema_for(&paths[0], columns)?,
            None => json_file::infer_schema(paths)?,
        };
        if schema.fields().is_empty() {
            return Err(message_error(&paths[0], "it has no columns".to_owned()));
        }
        let schema = Arc::new(schema);
        let file = |path: &PathBuf| JsonFile::new(path, Arc::clone(&schema), columns.is_none());
        Ok(Self { files: Files::Json(paths.iter().map(file).collect()), schema })
    }

    fn open_csv(paths: &[PathBuf], options: &ReadOptions, columns: Option<&FileColumns>) -> Result<Self> {
        let Some(columns) = columns else {
            let files = CsvFile::infer(paths, options)?;
            return Ok(Self { schema: Arc::clone(files[0].full_schema()), files: Files::Csv(files) });
        };
        let first = CsvFile::new(&paths[0], options, columns)?;
        let schema = Arc::clone(first.full_schema());
        let columns = FileColumns { schema: Schema::from_arrow(&schema)?, are_listed: true, have_defaults: Vec::new() };
        let mut files = vec![first];
        for path in &paths[1..] {
            files.push(CsvFile::new(path, options, &columns)?);
        }
        Ok(Self { schema, files: Files::Csv(files) })
    }
}

#[async_trait]
impl TableProvider for TextTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        let (partitions, schema, projection) = match (&self.files, projection) {
            // CSV fields of other columns are not parsed.
            (Files::Csv(files), Some(columns)) if columns.is_sorted() => {
                let schema = Arc::new(self.schema.project(columns)?);
                let files = files.iter().map(|file| file.with_columns(columns)).collect::<EngineResult<Vec<_>>>()?;
                (partitions(files), schema, None)
            }
            (Files::Csv(files), _) => (partitions(files.clone()), Arc::clone(&self.schema), projection),
            (Files::Json(files), _) => (partitions(files.clone()), Arc::clone(&self.schema), projection),
        };
        let scan = StreamingTableExec::try_new(schema, partitions, projection, None, false, limit)?;
        Ok(Arc::new(scan))
    }
}

fn partitions<T: PartitionStream + 'static>(files: Vec<T>) -> Vec<Arc<dyn PartitionStream>> {
    files.into_iter().map(|file| Arc::new(file) as Arc<dyn PartitionStream>).collect()
}
