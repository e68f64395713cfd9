//! `tpch-parquet --scale 1 --output DIR`: generates the eight TPC-H tables, one Parquet file each.
//!
//! All systems of a comparison read the same files. The files are written like most files in practice: snappy, row
//! groups of about a million rows, and the writer's default dictionary pages and statistics.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use clap::Parser;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RecordBatchIterator, RegionArrow,
    SupplierArrow,
};

/// Rows of one row group.
const ROW_GROUP_ROWS: usize = 1 << 20;

/// Writes the TPC-H tables as Parquet files.
#[derive(Parser)]
struct Arguments {
    /// Scale factor: 1 is about a gigabyte of text.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Directory for the files, created if it does not exist.
    #[arg(long)]
    output: PathBuf,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    fs::create_dir_all(&arguments.output)?;
    for (table, batches) in tables(arguments.scale) {
        let rows = write(&arguments.output.join(format!("{table}.parquet")), batches)?;
        writeln!(io::stdout(), "{table}: {rows} rows")?;
    }
    Ok(())
}

fn tables(scale: f64) -> [(&'static str, Box<dyn RecordBatchIterator>); 8] {
    [
        ("region", Box::new(RegionArrow::new(RegionGenerator::new(scale, 1, 1)))),
        ("nation", Box::new(NationArrow::new(NationGenerator::new(scale, 1, 1)))),
        ("supplier", Box::new(SupplierArrow::new(SupplierGenerator::new(scale, 1, 1)))),
        ("customer", Box::new(CustomerArrow::new(CustomerGenerator::new(scale, 1, 1)))),
        ("part", Box::new(PartArrow::new(PartGenerator::new(scale, 1, 1)))),
        ("partsupp", Box::new(PartSuppArrow::new(PartSuppGenerator::new(scale, 1, 1)))),
        ("orders", Box::new(OrderArrow::new(OrderGenerator::new(scale, 1, 1)))),
        ("lineitem", Box::new(LineItemArrow::new(LineItemGenerator::new(scale, 1, 1)))),
    ]
}

/// Writes one table to a temporary name and then renames it, so that a file with the final name is complete.
fn write(path: &Path, batches: Box<dyn RecordBatchIterator>) -> Result<usize, Box<dyn std::error::Error>> {
    let unfinished = path.with_extension("unfinished");
    let schema: SchemaRef = batches.schema().clone();
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .build();
    let mut writer = ArrowWriter::try_new(File::create(&unfinished)?, schema, Some(properties))?;
    let mut rows = 0;
    for batch in batches {
        let batch: RecordBatch = batch;
        rows += batch.num_rows();
        writer.write(&batch)?;
    }
    writer.close()?;
    fs::rename(unfinished, path)?;
    Ok(rows)
}
