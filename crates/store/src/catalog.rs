//! What a database holds: tables with their blocks, and views.
//!
//! A [`Catalog`] never changes; a commit publishes another one. Whoever holds one can read all blocks it names,
//! however long: a block file is removed only when the last catalog that names it is gone.

pub(crate) mod change;
pub(crate) mod check;
mod constraints;
mod edit;
pub(crate) mod format;
pub(crate) mod record;
mod sparse_index;
mod table_blocks;
mod tables;

use std::fmt::{self, Display, Formatter};
use std::sync::{Arc, OnceLock};

use roaring::RoaringBitmap;
use rpds::RedBlackTreeMapSync;
use serde::{Deserialize, Serialize, Serializer};
use taut_block::SegmentReader;
use taut_types::{ColumnStatistics, ColumnTest, Partitioning, Schema, TableDesign};

use crate::delta::{Delta, DeltaPage, UnitId};
use crate::moves::MovesSince;
use crate::{BlockFile, OpenBlock};

pub use change::OldRows;
pub use constraints::{Check, Constraints, ForeignKey, ReferentialAction, UniqueKey};
pub use edit::{CatalogEdit, RowOrder};
pub(crate) use edit::{Changed, split_at};
pub use sparse_index::Lead;
pub(crate) use sparse_index::SparseIndex;
use tables::Tables;

/// Names a block for ever: the number in the name of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BlockId(pub u64);

/// Names a table for ever; one that is dropped and created again by the same name has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TableId(pub u64);

impl Display for BlockId {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

/// What a database holds at one moment.
#[derive(Clone, Debug)]
pub struct Catalog {
    pub(crate) database: u64,
    pub(crate) version: u64,
    /// The version in which a name last came to mean another table or view; not stored.
    pub(crate) definitions: u64,
    /// The rows that were moved since this version; not stored.
    pub(crate) moves: MovesSince,
    pub(crate) tables: Tables,
    /// By name. Versions of a catalog share what they have in common.
    pub(crate) views: RedBlackTreeMapSync<String, View>,
}

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its name for ever.
    pub id: TableId,
    /// Its name in SQL.
    pub name: String,
    /// Its columns.
    pub schema: Arc<Schema>,
    /// How new blocks are laid out; each block knows its own design.
    pub design: Arc<TableDesign>,
    /// Its sealed rows, in order; some of them may be deleted.
    pub blocks: Arc<Vec<Arc<BlockFile>>>,
    /// The places in `blocks` where a run begins: blocks of one load, each of which continues the sort order of the
    /// one before it. Ascending, from 0.
    pub runs: Arc<Vec<usize>>,
    /// How its rows are divided; `None` where its design does not say, and where a range has no boundaries yet.
    pub partitions: Option<Arc<TablePartitions>>,
    /// What is known of each column over all loads; not of rows that are in no block.
    pub statistics: Arc<Vec<ColumnStatistics>>,
    /// What its rows must obey, and what columns hold that a row does not give.
    pub constraints: Arc<Constraints>,
    /// Rows in no block, and deleted rows.
    pub delta: Delta,
    /// Counts the commits that changed its rows, and not those that only moved them; not stored.
    pub(crate) contents: u64,
    /// Made when it is first asked for.
    pub(crate) sparse_index: Arc<OnceLock<SparseIndex>>,
}

/// How the rows of a table are divided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TablePartitions {
    /// Which partition a row belongs to.
    pub partitioning: Partitioning,
    /// For each block of the table the partition that all its rows belong to, or `None` for one that was written before
    /// these partitions were known.
    pub of_blocks: Vec<Option<u32>>,
}

/// A named query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct View {
    /// Its name.
    pub name: String,
    /// The query, as it was written.
    pub sql: String,
}

/// What the catalog knows of a block file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "BlockRow")]
pub struct BlockEntry {
    /// Which block it is.
    pub id: BlockId,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of its header.
    pub header_bytes: u64,
    /// xxh3 of its header, which tells a block from any other.
    pub header_checksum: u64,
    /// Rows in it.
    pub rows: u64,
    /// Bytes of its values in their plain form.
    pub plain_bytes: u64,
    /// Segments in it, each of which can be read by itself.
    pub segments: u64,
    /// The name of its layout.
    pub layout: Box<str>,
    /// Bounds of the column by which its rows are sorted first; `None` where they are not sorted, or it has none.
    pub lead: Option<Lead>,
}

/// A block entry in the file: an array, since names of fields would double a catalog of many blocks.
#[derive(Deserialize)]
struct BlockRow(BlockId, u64, u64, u64, u64, u64, u64, Box<str>, #[serde(default)] Option<Lead>);

impl Serialize for BlockEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { id, file_bytes, header_bytes, header_checksum, rows, plain_bytes, segments, layout, lead } = self;
        (id, file_bytes, header_bytes, header_checksum, rows, plain_bytes, segments, layout, lead).serialize(serializer)
    }
}

impl From<BlockRow> for BlockEntry {
    fn from(row: BlockRow) -> Self {
        let BlockRow(id, file_bytes, header_bytes, header_checksum, rows, plain_bytes, segments, layout, lead) = row;
        Self { id, file_bytes, header_bytes, header_checksum, rows, plain_bytes, segments, layout, lead }
    }
}

impl Catalog {
    /// The catalog of a new database: nothing.
    pub(crate) fn empty(database: u64) -> Self {
        Self {
            database,
            version: 0,
            definitions: 0,
            moves: MovesSince::default(),
            tables: Tables::default(),
            views: RedBlackTreeMapSync::default(),
        }
    }

    /// A number that this database has for ever, drawn when it was created.
    pub fn database(&self) -> u64 {
        self.database
    }

    /// Counts the commits.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The version since which every name means the same table, with the same columns, or the same view. What was
    /// planned then still holds, of other rows.
    pub fn definitions(&self) -> u64 {
        self.definitions
    }

    /// Whether names mean the same here and there.
    pub(crate) fn defines_like(&self, other: &Self) -> bool {
        let same = |(mine, theirs): (&Arc<Table>, &Arc<Table>)| {
            Arc::ptr_eq(mine, theirs)
                || mine.id == theirs.id
                    && mine.name == theirs.name
                    && mine.schema == theirs.schema
                    && mine.constraints == theirs.constraints
        };
        self.tables.len() == other.tables.len()
            && self.tables.iter().zip(other.tables.iter()).all(same)
            && self.views == other.views
    }

    /// A table, by its exact name.
    pub fn table(&self, name: &str) -> Option<&Arc<Table>> {
        self.tables.named(name)
    }

    /// A table, by its name for ever.
    pub fn table_of(&self, id: TableId) -> Option<&Arc<Table>> {
        self.tables.get(id)
    }

    /// Rows of all tables that are in no block, deleted ones too, and bytes of them, about: no table has more.
    pub fn pages(&self) -> (u64, u64) {
        self.tables.pages()
    }

    /// All tables, by name.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.tables.iter()
    }

    /// A view, by its exact name.
    pub fn view(&self, name: &str) -> Option<&View> {
        self.views.get(name)
    }

    /// All views, by name.
    pub fn views(&self) -> impl Iterator<Item = &View> {
        self.views.values()
    }

    /// The blocks of all tables.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &Arc<BlockFile>> {
        self.tables.iter().flat_map(|table| table.blocks.iter())
    }
}

impl Table {
    /// A table without rows, and without partitions.
    pub(crate) fn empty(id: TableId, name: &str, schema: Arc<Schema>, design: Arc<TableDesign>) -> Self {
        Self {
            id,
            name: name.to_owned(),
            statistics: Arc::new(vec![ColumnStatistics::empty(); schema.len()]),
            schema,
            design,
            blocks: Arc::default(),
            runs: Arc::default(),
            partitions: None,
            constraints: Arc::default(),
            delta: Delta::default(),
            contents: 0,
            sparse_index: Arc::default(),
        }
    }

    /// The same table with some of its blocks alone, by their places in order, and the first of its pages: to read these.
    /// Blocks of one run still continue each other.
    #[must_use]
    pub fn part(&self, places: &[usize], pages: usize) -> Self {
        let blocks: Vec<_> = places.iter().filter_map(|place| self.blocks.get(*place)).map(Arc::clone).collect();
        let run_of = |at: usize| self.runs.partition_point(|start| *start <= places[at]);
        let runs = (0..blocks.len()).filter(|at| *at == 0 || run_of(at - 1) != run_of(*at)).collect();
        let partitions = self.partitions.as_ref().map(|partitions| {
            let of_blocks = places.iter().map(|place| self.partition_of(*place)).collect();
            Arc::new(TablePartitions { of_blocks, partitioning: partitions.partitioning.clone() })
        });
        let mut delta = self.delta.clone();
        delta.keep_deleted(&blocks);
        delta.set_keys([]);
        let left_out: Vec<UnitId> = delta.pages().iter().skip(pages).map(DeltaPage::id).collect();
        delta.remove_pages(|page| left_out.contains(&page));
        let (blocks, runs) = (Arc::new(blocks), Arc::new(runs));
        Self { blocks, runs, partitions, delta, sparse_index: Arc::default(), ..self.clone() }
    }

    /// The same table with some of its blocks alone, and with all but them.
    pub fn divided(&self, blocks: &[Arc<BlockFile>]) -> (Self, Self) {
        let is_chosen = |place: &usize| blocks.iter().any(|chosen| chosen.id() == self.blocks[*place].id());
        let (chosen, rest): (Vec<usize>, Vec<usize>) = (0..self.blocks.len()).partition(is_chosen);
        (self.part(&chosen, 0), self.part(&rest, usize::MAX))
    }

    /// Opens a segment of one of its blocks, whose deleted rows no filter selects.
    pub fn open_segment<'b>(&'b self, block: &'b OpenBlock, segment: usize) -> SegmentReader<'b> {
        let mut reader = block.block().open_segment(block, segment);
        if let Some(rows) = self.deleted_of_segment(block, segment) {
            reader.exclude(rows);
        }
        reader
    }

    /// The deleted rows of a segment of one of its blocks; `None` where there are none.
    pub fn deleted_of_segment(&self, block: &OpenBlock, segment: usize) -> Option<&RoaringBitmap> {
        self.delta.deleted_of_block(block.file().id())?.segment(segment).map(AsRef::as_ref)
    }

    /// Whether a block or page of that name belongs to it.
    pub(crate) fn has_unit(&self, unit: UnitId) -> bool {
        self.delta.page(unit).is_some()
            || self.delta.deleted(unit).is_some()
            || self.blocks.iter().any(|block| block.id().0 == u64::from(unit.0))
    }

    /// Its rows: those of blocks that are not deleted, and those that are in none.
    pub fn rows(&self) -> u64 {
        self.block_rows() - self.delta.deleted_block_rows() + self.delta.rows()
    }

    /// Rows in all blocks, deleted ones too.
    pub fn block_rows(&self) -> u64 {
        self.blocks.iter().map(|block| block.entry().rows).sum()
    }

    /// Bytes of all block files.
    pub fn file_bytes(&self) -> u64 {
        self.blocks.iter().map(|block| block.entry().file_bytes).sum()
    }

    /// Bytes of all values in their plain form.
    pub fn plain_bytes(&self) -> u64 {
        self.blocks.iter().map(|block| block.entry().plain_bytes).sum()
    }

    /// The partition of a block by its place, where it holds rows of one only.
    pub fn partition_of(&self, block: usize) -> Option<u32> {
        self.partitions.as_ref().and_then(|partitions| partitions.of_blocks.get(block).copied().flatten())
    }

    /// For each partition, whether rows in it may pass all of some tests; `None` where there are no partitions.
    pub fn admitted_partitions(&self, tests: &[ColumnTest]) -> Option<Vec<bool>> {
        let partitioning = &self.partitions.as_ref()?.partitioning;
        let logical_type = self.schema.column(partitioning.design().column).logical_type;
        Some(partitioning.admitted(tests, logical_type))
    }

    /// The blocks of each run.
    pub fn runs(&self) -> impl Iterator<Item = &[Arc<BlockFile>]> {
        self.runs.iter().enumerate().map(|(run, start)| {
            let end = self.runs.get(run + 1).copied().unwrap_or(self.blocks.len());
            &self.blocks[*start..end]
        })
    }
}
