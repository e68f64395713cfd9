//! Arguments of the command line. clap prints the docs of most items here as help texts.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use taut::reference::TableDesign;
use taut::{Database, FileFormat, Settings};

use crate::output::Format;
use crate::units::ByteSize;

/// An analytical database in which the physical form of every table is declared, visible and changeable.
#[derive(Debug, Parser)]
#[command(name = "taut", version, propagate_version = true, after_help = EXAMPLES)]
pub struct Arguments {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "Examples:
  taut demo                                  see what it does, on data it makes itself
  taut load shop.taut orders orders.parquet  make a table of a file
  taut sql shop.taut                         open the shell
  taut sql shop.taut -c 'select count(*) from orders'
  taut inspect shop.taut orders              see how the table is stored
  taut backup shop.taut /backups/shop        back it up";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run SQL: the shell, statements, a file, or standard input
    #[command(after_help = SQL_EXAMPLES)]
    Sql(SqlArguments),
    /// Load Parquet, CSV or JSON files into a table
    #[command(after_help = load_examples())]
    Load(LoadArguments),
    /// Show how tables are stored
    #[command(after_help = INSPECT_EXAMPLES)]
    Inspect(InspectArguments),
    /// Read and check every byte, and name what is damaged
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(VerifyArguments),
    /// Salvage everything readable from a damaged database into a new one
    #[command(after_help = REPAIR_EXAMPLES)]
    Repair(RepairArguments),
    /// Back up a database; later backups to the same directory copy only what is new
    #[command(after_help = BACKUP_EXAMPLES)]
    Backup(BackupArguments),
    /// Restore a database from a backup, as of the backup or of a point in time
    #[command(after_help = RESTORE_EXAMPLES)]
    Restore(RestoreArguments),
    /// Compare the layouts on generated TPC-H data; needs no network
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoArguments),
    /// Print the completion script of a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArguments),
    /// Write the manual pages to an existing directory
    Man(ManArguments),
}

const COMPLETIONS_EXAMPLES: &str = "Examples:
  taut completions bash > ~/.local/share/bash-completion/completions/taut
  taut completions zsh > ~/.zfunc/_taut                  a directory of $fpath
  taut completions fish > ~/.config/fish/completions/taut.fish";

/// Arguments of `taut completions`.
#[derive(Debug, Args)]
pub struct CompletionsArguments {
    /// The shell
    pub shell: Shell,
}

/// Arguments of `taut man`.
#[derive(Debug, Args)]
pub struct ManArguments {
    /// An existing directory
    pub directory: PathBuf,
}

const SQL_EXAMPLES: &str = "Examples:
  taut sql shop.taut                                    the shell; .help there says more
  taut sql shop.taut -c 'show tables'                   one statement
  taut sql shop.taut -f report.sql --format csv         a file, answers as CSV
  taut sql --readonly shop.taut                         read a database that another process writes
  taut sql :memory: -c \"select * from 'orders.parquet'\" a file, without a database
  echo 'select 1;' | taut sql :memory:                  statements as they arrive

-c and -f may be combined: the statements of -c run first. The first error ends the run with status 1.";

fn load_examples() -> String {
    let options = TableDesign::OPTIONS.map(|option| option.name).join(", ");
    format!(
        "{LOAD_EXAMPLES}\n\nThe options of --with are those of CREATE TABLE ... WITH (...): {options}.\nThey apply to a \
             table that the load makes. A load is all or nothing."
    )
}

const LOAD_EXAMPLES: &str = "Examples:
  taut load shop.taut orders orders.parquet
  taut load shop.taut events 2024-*.csv --with \"layout=packed_row, sort_by='day, id desc'\"
  taut load shop.taut wide wide.json --with \"layout=groups, groups='(a,b),(c)'\"";

const INSPECT_EXAMPLES: &str = "Examples:
  taut inspect shop.taut          every table
  taut inspect shop.taut orders   one table
  taut inspect --readonly shop.taut   while another process has it open

The same facts are in the tables taut.tables, taut.blocks, taut.columns and taut.partitions, for use in SQL.";

const VERIFY_EXAMPLES: &str = "Examples:
  taut verify shop.taut   ends with status 1 when anything is damaged
  taut verify /mnt/backups/shop   check the backups in a directory
  taut verify --readonly shop.taut   while another process writes it: what is committed now";

const REPAIR_EXAMPLES: &str = "Example:
  taut repair shop.taut salvaged.taut   ends with status 1 when anything is lost

Nothing is written to the damaged database, which need not open: a log file or a block file may be damaged or missing. No
process may have it open. The new one keeps all that can be read: tables and views, rows of whole blocks, whole segments of
damaged ones, and commits in the log up to the first damage. What is lost of each table is printed.";

const BACKUP_EXAMPLES: &str = "Examples:
  taut backup shop.taut /backups/shop             one more backup; shares blocks with those before
  taut backup shop.taut /backups/shop --log       also every commit since the last one, for points in time
  taut backup shop.taut /backups/shop --keep 7    then removes all but the last 7
  taut backup --list /backups/shop

With --log, the database keeps its log and the blocks that were replaced until the next backup. A backup without --log
to the same directory ends that, and so does taut backup shop.taut --stop-log.

A database that another process has open is backed up all the same, as of its last commit, but without --log: with the log
that process backs it up, by BACKUP DATABASE TO '/backups/shop' WITH (log, keep = 7) in SQL, or
connection.backup('/backups/shop', log=True) in Python.
Files that queries read directly, such as 'orders.parquet', are not part of a database or its backups.";

const RESTORE_EXAMPLES: &str = "Examples:
  taut restore /backups/shop shop.taut                                the last backup
  taut restore /backups/shop shop.taut --backup 3
  taut restore /backups/shop shop.taut --time '2026-11-27 13:36:16'   the last commit at or before that time

Nothing is overwritten: the new database is made in a directory that does not exist, or is empty. Points in time between
two backups need the log: see taut backup --help. Times are precise to the microsecond.";

const DEMO_EXAMPLES: &str = "Examples:
  taut demo                                  6 million rows in four layouts, then the 22 queries of TPC-H
  taut demo --scale 0.1                      a tenth of that
  taut demo --directory tpch.taut            keep the database";

/// Memory and threads of a database.
#[derive(Clone, Debug, Default, Args)]
pub struct SettingsArguments {
    /// Threads that run queries [default: one per core]
    #[arg(long, value_name = "COUNT")]
    pub threads: Option<NonZeroUsize>,
    /// Memory for queries, such as 4GiB; queries that need more use temporary files [default: half of the machine's]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<ByteSize>,
    /// Memory of the block cache, such as 512MiB [default: a quarter of --memory, or of the machine's memory if
    /// --memory is not given; at most 1GiB]
    #[arg(long, value_name = "SIZE")]
    pub cache: Option<ByteSize>,
}

impl SettingsArguments {
    /// Opens a database with these settings. The database `:memory:` exists until the process ends.
    pub fn open(&self, path: &str, create: bool, access: ReadOnly) -> Result<Database, taut::Error> {
        let defaults = Settings::default();
        let settings = Settings {
            threads: self.threads.map_or(defaults.threads, NonZeroUsize::get),
            memory_bytes: self.memory.map(ByteSize::as_usize).or(defaults.memory_bytes),
            cache_bytes: self.cache.map(ByteSize::as_usize).or(defaults.cache_bytes),
            create,
            read_only: access.read_only,
            mover: defaults.mover,
        };
        let database = Database::open_with(path, &settings)?;
        if let Some(notice) = database.recovery_notice() {
            crate::failure::print_stderr(format!("note: {notice}"));
        }
        Ok(database)
    }
}

/// Option `--readonly`.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct ReadOnly {
    /// Only read the database, even while another process writes it; reads the last commit before it was opened
    #[arg(long = "readonly", visible_alias = "read-only")]
    pub read_only: bool,
}

/// Arguments of `taut sql`.
#[derive(Debug, Args)]
pub struct SqlArguments {
    /// Directory of the database, created if it does not exist, or :memory:
    #[arg(value_name = "DB")]
    pub database: String,
    /// Run these statements; may be given several times
    #[arg(short = 'c', long = "command", value_name = "SQL", allow_hyphen_values = true)]
    pub commands: Vec<String>,
    /// Run the statements of this file, or of standard input if it is -
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Output format of results
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Show at most this many rows of a result table; 0 shows all [default: all; 100 in the shell]
    #[arg(long, value_name = "COUNT")]
    pub max_rows: Option<usize>,
    /// Show how long each statement takes
    #[arg(long)]
    pub timing: bool,
    /// Read-only access.
    #[command(flatten)]
    pub access: ReadOnly,
    /// Memory and threads.
    #[command(flatten)]
    pub settings: SettingsArguments,
}

/// Arguments of `taut load`.
#[derive(Debug, Args)]
pub struct LoadArguments {
    /// Directory of the database, created if it does not exist
    #[arg(value_name = "DB")]
    pub database: String,
    /// The table, created with the schema of the first file if it does not exist
    pub table: String,
    /// Files to load
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Design of a new table, such as "layout=column, sort_by='a, b desc'"
    #[arg(long, value_name = "OPTIONS")]
    pub with: Option<String>,
    /// Format of the files [default: from their names]
    #[arg(long, value_enum)]
    pub format: Option<LoadFormat>,
    /// Memory and threads.
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
    /// Read-only access.
    #[command(flatten)]
    pub access: ReadOnly,
    /// Memory and threads.
    #[command(flatten)]
    pub settings: SettingsArguments,
}

/// Arguments of `taut verify`.
#[derive(Debug, Args)]
pub struct VerifyArguments {
    /// Directory of the database or of its backups
    #[arg(value_name = "DB")]
    pub database: PathBuf,
    /// Read-only access.
    #[command(flatten)]
    pub access: ReadOnly,
}

/// Arguments of `taut repair`.
#[derive(Debug, Args)]
pub struct RepairArguments {
    /// Directory of the damaged database
    #[arg(value_name = "DATABASE")]
    pub database: PathBuf,
    /// Directory of the new database, which must be empty or must not exist
    #[arg(value_name = "NEW_DATABASE")]
    pub new_database: PathBuf,
}

/// Arguments of `taut backup`.
#[derive(Debug, Args)]
pub struct BackupArguments {
    /// Directory of the database
    #[arg(value_name = "DB", required_unless_present = "list")]
    pub database: Option<PathBuf>,
    /// Directory of the backups, created if it does not exist
    #[arg(value_name = "BACKUP_DIR", required_unless_present_any = ["list", "stop_log"])]
    pub directory: Option<PathBuf>,
    /// Archive the commits since the last backup, and retain later commits for the next backup
    #[arg(long, conflicts_with = "read_only")]
    pub log: bool,
    /// Keep only this many newest backups, this one included, and remove the others
    #[arg(long, value_name = "COUNT")]
    pub keep: Option<NonZeroUsize>,
    /// List the backups in a directory
    #[arg(long, value_name = "BACKUP_DIR", conflicts_with_all = ["database", "directory", "log", "keep", "stop_log"])]
    pub list: Option<PathBuf>,
    /// Stop retaining the log for the next backup
    #[arg(long, conflicts_with_all = ["directory", "log", "keep", "read_only"])]
    pub stop_log: bool,
    #[command(flatten)]
    pub access: ReadOnly,
}

/// Arguments of `taut restore`.
#[derive(Debug, Args)]
pub struct RestoreArguments {
    /// Directory of the backups
    #[arg(value_name = "BACKUP_DIR")]
    pub directory: PathBuf,
    /// Directory of the new database, which must be empty or must not exist
    #[arg(value_name = "NEW_DB")]
    pub database: PathBuf,
    /// The backup, by its number [default: the last one]
    #[arg(long, value_name = "NUMBER")]
    pub backup: Option<u64>,
    /// Point in time, as 'YYYY-MM-DD HH:MM:SS', in UTC unless it has an offset: the last commit at or before it
    #[arg(long, value_name = "TIME")]
    pub time: Option<String>,
}

/// Arguments of `taut demo`.
#[derive(Debug, Args)]
pub struct DemoArguments {
    /// Scale factor of TPC-H: 1 is 6 million rows of lineitem
    #[arg(long, default_value_t = 1.0, value_parser = parse_scale)]
    pub scale: f64,
    /// Create the database in this directory and keep it [default: a temporary one, removed at the end]
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Memory and threads.
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
