//! Table scans: planning, access to blocks and delta pages, and metrics.
//!
//! ```text
//! TautTable ── scan ──> DataSourceExec(ScanSource)        filters, dynamic filters, order, limit, projection
//!                          │ open(partition)
//!                          ▼
//!                       WorkQueue ──> ScanDriver          takes one segment or page at a time, or several
//!                                        │                   if indexes rule out most of them
//!                                        │ filter, project
//!                                        ├─> taut_block::Block   chooses the access path and reports it
//!                                        └─> PageReader          delta pages: the same predicate on Arrow arrays
//! ```

mod aggregate;
mod driver;
mod index_columns;
mod metrics;
mod morsels;
mod order;
mod output_batches;
mod page;
mod predicate;
mod reader;
mod runs;
mod size;
mod source;
mod stream;
mod table;
#[cfg(test)]
pub mod tests;

pub use aggregate::TautAggregateExec;
pub use driver::{TimeSlice, block_error, open_block_that_may_match};
pub use index_columns::{IndexedConditions, implies_all};
pub use page::PageReader;
pub use predicate::{add_predicate, comparison, list_predicate, literal_datum, translate};
pub use reader::{Output, Reader};
pub use runs::ScanRuns;
pub use size::{scanned_rows, suitable_batch_rows};
pub use source::{ScanSource, scan_source};
pub use table::TautTable;
