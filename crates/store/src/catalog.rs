//! The contents of a database: schemas with tables, views, sequences and functions, and the blocks of the tables.
//!
//! A [`Catalog`] never changes; a commit publishes another one. The blocks of a catalog stay readable as long as it is
//! held: a block file is removed only when the last catalog that references it is dropped.

pub(crate) mod change;
pub(crate) mod check;
pub(crate) mod columns;
mod comments;
mod constraints;
mod edit;
pub(crate) mod file;
pub(crate) mod format;
pub(crate) mod record;
mod schemas;
mod sequence;
mod sparse_index;
mod table_blocks;
mod tables;
mod timeline;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::sync::{Arc, OnceLock};

use roaring::RoaringBitmap;
use rpds::{RedBlackTreeMapSync, RedBlackTreeSetSync};
use serde::{Deserialize, Serialize, Serializer};
use taut_block::SegmentReader;
use taut_types::{ColumnIndex, ColumnPredicate, ColumnStatistics, Partitioning, Schema, TableDesign};

use crate::delta::{ContainerId, Delta, DeltaPage};
use crate::relocations::RelocationsSince;
use crate::{BlockFile, OpenBlock};

pub use change::OldRows;
pub use comments::CommentTarget;
pub(crate) use comments::Comments;
pub use constraints::{Check, Constraints, ForeignKey, IndexColumn, ReferentialAction, UniqueKey};
pub(crate) use edit::{AppliedEdit, split_at};
pub use edit::{CatalogEdit, RowOrder};
pub use sequence::{Identity, OwnedSequence, Sequence, SequenceId};
use sparse_index::BoundsOfBlock;
pub use sparse_index::SortBounds;
pub(crate) use sparse_index::SparseIndex;
use tables::Tables;
pub(crate) use timeline::{Timeline, Timelines};

/// Permanent id of a block: the number in the name of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BlockId(pub u64);

/// Permanent id of a table. A table that is dropped and created again under the same name gets another id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TableId(pub u64);

impl Display for BlockId {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

/// The contents of a database at one moment.
#[derive(Clone, Debug)]
pub struct Catalog {
    pub(crate) database: u64,
    pub(crate) version: u64,
    /// Timelines of the commits up to this version.
    pub(crate) timelines: Timelines,
    /// Identifies the meaning of all names; see [`Catalog::definitions_id()`]. Not stored.
    pub(crate) definitions_id: u64,
    /// Row relocations that follow this version. Not stored.
    pub(crate) relocations: RelocationsSince,
    /// Names of the schemas except `public`, which always exists.
    pub(crate) schemas: RedBlackTreeSetSync<String>,
    pub(crate) tables: Tables,
    /// Views by name. Versions of a catalog share the parts of the map that did not change.
    pub(crate) views: RedBlackTreeMapSync<String, View>,
    pub(crate) sequences: RedBlackTreeMapSync<SequenceId, Sequence>,
    /// Functions by name.
    pub(crate) functions: RedBlackTreeMapSync<String, Function>,
    pub(crate) comments: Comments,
}

/// A table of one catalog.
#[derive(Clone, Debug)]
pub struct Table {
    /// Permanent id of the table.
    pub id: TableId,
    /// Name of the table, with its schema if that is not `public`: see [`relation_name`](taut_types::relation_name).
    pub name: String,
    /// Columns of the table.
    pub schema: Arc<Schema>,
    /// Design of new blocks. Each block has the design with which it was written.
    pub design: Arc<TableDesign>,
    /// Blocks of the table, in order. Some of their rows may be deleted.
    pub blocks: Arc<Vec<Arc<BlockFile>>>,
    /// Indexes in `blocks` where sort runs begin, ascending from 0. A run consists of blocks of one load. Each block
    /// continues the sort order of the one before it.
    pub runs: Arc<Vec<usize>>,
    /// Partitions of the table. `None` if its design has none, or if a range has no boundaries yet.
    pub partitions: Option<Arc<TablePartitions>>,
    /// Statistics of each column over all loads, without the rows that are in no block.
    pub statistics: Arc<Vec<ColumnStatistics>>,
    /// Constraints on the rows, and default values of columns.
    pub constraints: Arc<Constraints>,
    /// Rows in no block, and deleted rows.
    pub delta: Delta,
    /// Increases with every change of rows, but not if rows are only relocated. Not stored.
    pub(crate) content_version: u64,
    /// Sparse index of the blocks, built on first use.
    pub(crate) sparse_index: Arc<OnceLock<SparseIndex>>,
}

/// Partitions of a table, and which of its blocks belong to them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TablePartitions {
    /// Maps a row to its partition.
    pub partitioning: Partitioning,
    /// For each block, the partition that contains all its rows. `None` for a block that was written before these
    /// partitions existed.
    pub of_blocks: Vec<Option<u32>>,
}

/// A named query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct View {
    /// Name of the view, with its schema if that is not `public`.
    pub name: String,
    /// The query as the user wrote it.
    pub sql: String,
    /// Schemas in which the query looks up names without a schema, in order. Empty for `public` alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub search_path: Vec<String>,
    /// The tables and views that the query reads, by name, each with the columns that it had when the view was created.
    /// The view does not see columns that were added since then. Also the sequences that the query names, without
    /// columns. Such a relation can be neither dropped nor renamed. Empty for views from before format version 12,
    /// which see all columns.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub relations: BTreeMap<String, Vec<String>>,
    /// Names of the functions that the query calls. They cannot be dropped. Empty before format version 18, which
    /// introduced functions.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub functions: BTreeSet<String>,
}

/// A function in SQL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Function {
    /// Name of the function, with its schema if that is not `public`. Functions and relations have separate names.
    pub name: String,
    /// The part of `CREATE FUNCTION` after the name, such as `(a int) RETURNS int LANGUAGE SQL AS 'SELECT a + 1'`.
    pub definition: String,
}

/// The catalog's entry for a block file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "BlockRow")]
pub struct BlockEntry {
    /// Id of the block.
    pub id: BlockId,
    /// Bytes of the block file.
    pub file_bytes: u64,
    /// Bytes of the header of the block file.
    pub header_bytes: u64,
    /// XXH3 of the header, which identifies the block.
    pub header_checksum: u64,
    /// Rows of the block, deleted ones included.
    pub rows: u64,
    /// Bytes of all values before encoding.
    pub plain_bytes: u64,
    /// Number of segments. Each can be read separately.
    pub segments: u64,
    /// Name of the layout of the block.
    pub layout: Box<str>,
    /// Bounds of the sort columns, in the order of the sort. A column without bounds is left out.
    pub sort_bounds: Box<[SortBounds]>,
}

/// A block entry in the file: an array, because field names would double the size of a catalog of many blocks.
#[derive(Deserialize)]
struct BlockRow(BlockId, u64, u64, u64, u64, u64, u64, Box<str>, #[serde(default)] BoundsOfBlock);

impl Serialize for BlockEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { id, file_bytes, header_bytes, header_checksum, rows, plain_bytes, segments, layout, sort_bounds } =
            self;
        (id, file_bytes, header_bytes, header_checksum, rows, plain_bytes, segments, layout, sort_bounds)
            .serialize(serializer)
    }
}

impl From<BlockRow> for BlockEntry {
    fn from(row: BlockRow) -> Self {
        let BlockRow(id, file_bytes, header_bytes, header_checksum, rows, plain_bytes, segments, layout, bounds) = row;
        let sort_bounds = bounds.0;
        Self { id, file_bytes, header_bytes, header_checksum, rows, plain_bytes, segments, layout, sort_bounds }
    }
}

impl Catalog {
    /// The empty catalog of a new database.
    pub(crate) fn empty(database: u64) -> Self {
        Self {
            database,
            version: 0,
            timelines: Timelines::default(),
            definitions_id: 0,
            relocations: RelocationsSince::default(),
            schemas: RedBlackTreeSetSync::default(),
            tables: Tables::default(),
            views: RedBlackTreeMapSync::default(),
            sequences: RedBlackTreeMapSync::default(),
            functions: RedBlackTreeMapSync::default(),
            comments: Comments::default(),
        }
    }

    /// Permanent id of the database, a random number chosen when it was created.
    pub fn database_id(&self) -> u64 {
        self.database
    }

    /// Version of the catalog: the number of commits.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Identifies the meaning of all names. Catalogs with the same value have the same tables with the same columns,
    /// and the same views and functions. A plan made for one of them is valid for the others, although their rows may
    /// differ.
    pub fn definitions_id(&self) -> u64 {
        self.definitions_id
    }

    /// Whether both catalogs have the same schemas, the same tables with the same columns and constraints, and the same
    /// views and functions.
    pub(crate) fn has_same_definitions(&self, other: &Self) -> bool {
        let same = |(own, other): (&Arc<Table>, &Arc<Table>)| {
            Arc::ptr_eq(own, other)
                || own.id == other.id
                    && own.name == other.name
                    && own.schema == other.schema
                    && own.constraints == other.constraints
        };
        self.tables.len() == other.tables.len()
            && self.tables.iter().zip(other.tables.iter()).all(same)
            && self.views == other.views
            && self.functions == other.functions
            && self.schemas == other.schemas
    }

    /// The table with exactly this name.
    pub fn table(&self, name: &str) -> Option<&Arc<Table>> {
        self.tables.named(name)
    }

    /// The table with this id.
    pub fn table_of(&self, id: TableId) -> Option<&Arc<Table>> {
        self.tables.get(id)
    }

    /// Number of delta rows of all tables together, deleted ones included, and their approximate bytes. Each is an
    /// upper bound for a single table.
    pub fn delta_rows_and_bytes(&self) -> (u64, u64) {
        self.tables.delta_rows_and_bytes()
    }

    /// All tables, ordered by name.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.tables.iter()
    }

    /// The view with exactly this name.
    pub fn view(&self, name: &str) -> Option<&View> {
        self.views.get(name)
    }

    /// All views, ordered by name.
    pub fn views(&self) -> impl Iterator<Item = &View> {
        self.views.values()
    }

    /// The sequence with exactly this name.
    pub fn sequence(&self, name: &str) -> Option<&Sequence> {
        self.sequences().find(|sequence| sequence.name == name)
    }

    /// The sequence with this id.
    pub fn sequence_of(&self, id: SequenceId) -> Option<&Sequence> {
        self.sequences.get(&id)
    }

    /// All sequences, ordered by id.
    pub fn sequences(&self) -> impl Iterator<Item = &Sequence> {
        self.sequences.values()
    }

    /// The function with exactly this name.
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.get(name)
    }

    /// All functions, ordered by name.
    pub fn functions(&self) -> impl Iterator<Item = &Function> {
        self.functions.values()
    }

    /// The comment on an object.
    pub fn comment(&self, on: &CommentTarget) -> Option<&str> {
        self.comments.get(on)
    }

    /// All comments.
    pub fn comments(&self) -> impl Iterator<Item = (&CommentTarget, &str)> {
        self.comments.iter()
    }

    /// The views that read a table or view.
    pub(crate) fn views_on<'a>(&'a self, relation: &'a str) -> impl Iterator<Item = &'a View> {
        self.views().filter(move |view| view.relations.contains_key(relation))
    }

    /// The views whose query calls a function.
    pub(crate) fn views_with_function<'a>(&'a self, function: &'a str) -> impl Iterator<Item = &'a View> {
        self.views().filter(move |view| view.functions.contains(function))
    }

    /// The blocks of all tables.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &Arc<BlockFile>> {
        self.tables.iter().flat_map(|table| table.blocks.iter())
    }
}

impl Table {
    /// A table without rows or partitions.
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
            content_version: 0,
            sparse_index: Arc::default(),
        }
    }

    /// The table restricted to the blocks at the ascending indexes `indexes`, and to its first `pages` delta pages, for
    /// reading. Blocks of one run stay in one run.
    #[must_use]
    pub fn restricted_to(&self, indexes: &[usize], pages: usize) -> Self {
        let blocks: Vec<_> = indexes.iter().filter_map(|index| self.blocks.get(*index)).map(Arc::clone).collect();
        let run_of = |at: usize| self.runs.partition_point(|start| *start <= indexes[at]);
        let runs = (0..blocks.len()).filter(|at| *at == 0 || run_of(at - 1) != run_of(*at)).collect();
        let partitions = self.partitions.as_ref().map(|partitions| {
            let of_blocks = indexes.iter().map(|index| self.partition_of(*index)).collect();
            Arc::new(TablePartitions { of_blocks, partitioning: partitions.partitioning.clone() })
        });
        let mut delta = self.delta.clone();
        delta.forget_blocks_except(&blocks);
        delta.set_keys([]);
        let excluded_pages: Vec<ContainerId> = delta.pages().iter().skip(pages).map(DeltaPage::id).collect();
        delta.remove_pages(|page| excluded_pages.contains(&page));
        let (blocks, runs) = (Arc::new(blocks), Arc::new(runs));
        Self { blocks, runs, partitions, delta, sparse_index: Arc::default(), ..self.clone() }
    }

    /// Splits the table in two: `blocks` without delta pages, and the other blocks with all delta pages.
    pub fn split_by_blocks(&self, blocks: &[Arc<BlockFile>]) -> (Self, Self) {
        let is_chosen = |index: &usize| blocks.iter().any(|chosen| chosen.id() == self.blocks[*index].id());
        let (chosen, rest): (Vec<usize>, Vec<usize>) = (0..self.blocks.len()).partition(is_chosen);
        (self.restricted_to(&chosen, 0), self.restricted_to(&rest, usize::MAX))
    }

    /// Opens a segment of one of the table's blocks. Deleted rows are excluded from its selections.
    pub fn open_segment<'b>(&'b self, block: &'b OpenBlock, segment: usize) -> SegmentReader<'b> {
        let mut reader = block.block().open_segment(block, segment);
        if let Some(rows) = self.deleted_of_segment(block, segment) {
            reader.exclude(rows);
        }
        reader
    }

    /// The deleted rows of a segment of one of the table's blocks. `None` if there are none.
    pub fn deleted_of_segment(&self, block: &OpenBlock, segment: usize) -> Option<&RoaringBitmap> {
        self.delta.deleted_of_block(block.file().id())?.segment(segment).map(AsRef::as_ref)
    }

    /// Whether a container belongs to the table.
    pub(crate) fn has_container(&self, container: ContainerId) -> bool {
        self.delta.page(container).is_some()
            || self.delta.deleted(container).is_some()
            || self.blocks.iter().any(|block| block.id().0 == u64::from(container.0))
    }

    /// The columns that statements see, in order, without the hidden columns of indexes.
    pub fn visible_columns(&self) -> impl Iterator<Item = ColumnIndex> {
        (0..self.schema.len()).map(ColumnIndex::from).filter(|column| !self.constraints.is_hidden(*column))
    }

    /// The visible column with this name.
    pub fn visible_column(&self, name: &str) -> Option<ColumnIndex> {
        self.schema.index_of(name).filter(|column| !self.constraints.is_hidden(*column))
    }

    /// Live rows of the table, in blocks and pages.
    pub fn rows(&self) -> u64 {
        self.block_rows() - self.delta.deleted_block_rows() + self.delta.rows()
    }

    /// Rows in all blocks, deleted ones included.
    pub fn block_rows(&self) -> u64 {
        self.blocks.iter().map(|block| block.entry().rows).sum()
    }

    /// Bytes of all block files.
    pub fn file_bytes(&self) -> u64 {
        self.blocks.iter().map(|block| block.entry().file_bytes).sum()
    }

    /// Bytes of all values of blocks before encoding.
    pub fn plain_bytes(&self) -> u64 {
        self.blocks.iter().map(|block| block.entry().plain_bytes).sum()
    }

    /// Partition of the block at an index. `None` if there are no partitions, or its rows may belong to several.
    pub fn partition_of(&self, block: usize) -> Option<u32> {
        self.partitions.as_ref().and_then(|partitions| partitions.of_blocks.get(block).copied().flatten())
    }

    /// For each partition, whether its rows may pass all of `predicates`. `None` if there are no partitions.
    pub fn admitted_partitions(&self, predicates: &[ColumnPredicate]) -> Option<Vec<bool>> {
        let partitioning = &self.partitions.as_ref()?.partitioning;
        let logical_type = self.schema.column(partitioning.design().column).logical_type;
        Some(partitioning.admitted(predicates, logical_type))
    }

    /// The blocks of each sort run.
    pub fn runs(&self) -> impl Iterator<Item = &[Arc<BlockFile>]> {
        self.runs.iter().enumerate().map(|(run, start)| {
            let end = self.runs.get(run + 1).copied().unwrap_or(self.blocks.len());
            &self.blocks[*start..end]
        })
    }
}
