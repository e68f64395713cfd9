//! What can stand on the command line.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use taut::{Database, FileFormat, Settings};

use crate::output::Format;
use crate::units::ByteSize;

/// An analytical database in which the physical form of every table is declared, visible and changeable.
#[derive(Debug, Parser)]
#[command(name = "taut", version, propagate_version = true, after_help = EXAMPLES)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "Examples:
  taut demo                                  see what it does, on data it makes itself
  taut load shop.taut orders orders.parquet  make a table of a file
  taut sql shop.taut                         open the shell
  taut sql shop.taut -c 'select count(*) from orders'
  taut inspect shop.taut orders              see how the table is stored";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run SQL: the shell, statements, a file, or standard input
    #[command(after_help = SQL_EXAMPLES)]
    Sql(SqlArguments),
    /// Load Parquet, CSV or JSON files into a table
    #[command(after_help = LOAD_EXAMPLES)]
    Load(LoadArguments),
    /// Draw how tables are stored
    #[command(after_help = INSPECT_EXAMPLES)]
    Inspect(InspectArguments),
    /// Read and check every byte, and name what is damaged
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(VerifyArguments),
    /// Compare the layouts on TPC-H data that is made here; needs no network
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoArguments),
}

const SQL_EXAMPLES: &str = "Examples:
  taut sql shop.taut                                    the shell; .help there says more
  taut sql shop.taut -c 'show tables'                   one statement
  taut sql shop.taut -f report.sql --format csv         a file, answers as CSV
  taut sql --readonly shop.taut                         read a database that another process writes
  taut sql :memory: -c \"select * from 'orders.parquet'\" a file, without a database
  echo 'select 1;' | taut sql :memory:                  statements as they arrive

-c and -f may be combined: the statements of -c run first. The first error ends the run with status 1.";

const LOAD_EXAMPLES: &str = "Examples:
  taut load shop.taut orders orders.parquet
  taut load shop.taut events 2024-*.csv --with \"layout=packed_row, sort_by='day, id desc'\"
  taut load shop.taut wide wide.json --with \"layout=groups, groups='(a,b),(c)'\"

The options of --with are those of CREATE TABLE ... WITH (...): layout, groups, sort_by, compression, encoding,
block_size, abstraction, partition_by. They apply to a table that the load makes. A load is all or nothing.";

const INSPECT_EXAMPLES: &str = "Examples:
  taut inspect shop.taut          every table
  taut inspect shop.taut orders   one table
  taut inspect --readonly shop.taut   while another process has it open

The same facts are in the tables taut.tables, taut.blocks, taut.columns and taut.partitions, for use in SQL.";

const VERIFY_EXAMPLES: &str = "Examples:
  taut verify shop.taut   ends with status 1 when anything is damaged
  taut verify --readonly shop.taut   while another process writes it: what is committed now";

const DEMO_EXAMPLES: &str = "Examples:
  taut demo                                  6 million rows in four layouts, then the 22 queries of TPC-H
  taut demo --scale 0.1                      a tenth of that
  taut demo --directory tpch.taut            keep the database";

/// Resources of the database.
#[derive(Clone, Debug, Default, Args)]
pub struct SettingsArguments {
    /// Threads that run queries [default: one per core]
    #[arg(long, value_name = "COUNT")]
    pub threads: Option<NonZeroUsize>,
    /// Memory for queries; what needs more goes to temporary files, such as 4GiB [default: half of the machine's]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<ByteSize>,
    /// Memory that keeps blocks between queries, such as 512MiB [default: a quarter of the machine's, at most 1GiB]
    #[arg(long, value_name = "SIZE")]
    pub cache: Option<ByteSize>,
}

impl SettingsArguments {
    /// Opens a database; `:memory:` is one that lives as long as the process.
    pub fn open(&self, path: &str, create: bool, access: ReadOnly) -> Result<Database, taut::Error> {
        let defaults = Settings::default();
        let settings = Settings {
            threads: self.threads.map_or(defaults.threads, NonZeroUsize::get),
            memory_bytes: self.memory.map(ByteSize::in_memory).or(defaults.memory_bytes),
            cache_bytes: self.cache.map(ByteSize::in_memory).or(defaults.cache_bytes),
            create,
            read_only: access.read_only,
            mover: defaults.mover,
        };
        let database = Database::open_with(path, &settings)?;
        if let Some(notice) = database.recovery_notice() {
            crate::failure::say(format!("note: {notice}"));
        }
        Ok(database)
    }
}

/// Whether a command changes the database.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct ReadOnly {
    /// Only read the database, also while another process writes it; shows the last commit of when it was opened
    #[arg(long = "readonly", visible_alias = "read-only")]
    pub read_only: bool,
}

/// Arguments of `taut sql`.
#[derive(Debug, Args)]
pub struct SqlArguments {
    /// Directory of the database, made where it does not exist, or :memory:
    #[arg(value_name = "DB")]
    pub database: String,
    /// Run these statements; may be given several times
    #[arg(short = 'c', long = "command", value_name = "SQL")]
    pub commands: Vec<String>,
    /// Run the statements of this file; - is standard input
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// How results are written
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Show at most so many rows of a table; 0 for all [default: all, in the shell 100]
    #[arg(long, value_name = "COUNT")]
    pub max_rows: Option<usize>,
    /// Say how long each statement takes
    #[arg(long)]
    pub timing: bool,
    /// Access.
    #[command(flatten)]
    pub access: ReadOnly,
    /// Resources.
    #[command(flatten)]
    pub settings: SettingsArguments,
}

/// Arguments of `taut load`.
#[derive(Debug, Args)]
pub struct LoadArguments {
    /// Directory of the database, made where it does not exist
    #[arg(value_name = "DB")]
    pub database: String,
    /// The table, made from the schema of the first file where it does not exist
    pub table: String,
    /// Files to load
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Design of a new table, such as "layout=column, sort_by='a, b desc'"
    #[arg(long, value_name = "OPTIONS")]
    pub with: Option<String>,
    /// Format of the files [default: by their names]
    #[arg(long, value_enum)]
    pub format: Option<LoadFormat>,
    /// Resources.
    #[command(flatten)]
    pub settings: SettingsArguments,
}

/// Formats that can be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LoadFormat {
    /// Apache Parquet.
    Parquet,
    /// Comma-separated values with a header line; types are inferred.
    Csv,
    /// One JSON object per line.
    Json,
}

impl From<LoadFormat> for FileFormat {
    fn from(format: LoadFormat) -> Self {
        match format {
            LoadFormat::Parquet => Self::Parquet,
            LoadFormat::Csv => Self::Csv,
            LoadFormat::Json => Self::Json,
        }
    }
}

/// Arguments of `taut inspect`.
#[derive(Debug, Args)]
pub struct InspectArguments {
    /// Directory of the database
    #[arg(value_name = "DB")]
    pub database: String,
    /// The table [default: all]
    pub table: Option<String>,
    /// Access.
    #[command(flatten)]
    pub access: ReadOnly,
    /// Resources.
    #[command(flatten)]
    pub settings: SettingsArguments,
}

/// Arguments of `taut verify`.
#[derive(Debug, Args)]
pub struct VerifyArguments {
    /// Directory of the database
    #[arg(value_name = "DB")]
    pub database: PathBuf,
    /// Access.
    #[command(flatten)]
    pub access: ReadOnly,
}

/// Arguments of `taut demo`.
#[derive(Debug, Args)]
pub struct DemoArguments {
    /// Scale factor of TPC-H: 1 is 6 million rows of lineitem
    #[arg(long, default_value_t = 1.0, value_parser = parse_scale)]
    pub scale: f64,
    /// Make the database in this directory and keep it [default: a temporary one, removed at the end]
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Resources.
    #[command(flatten)]
    pub settings: SettingsArguments,
}

fn parse_scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(scale) if (0.001..=1000.0).contains(&scale) => Ok(scale),
        _ => Err("a scale lies between 0.001 and 1000".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }
}
