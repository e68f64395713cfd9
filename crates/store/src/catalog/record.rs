//! Encoding of changes. A log record contains the changes of one commit. A delta file contains changes that restore all
//! rows outside of blocks and all deletions.
//!
//! ```text
//! offset   size   field
//! 0        4      length of the JSON
//! 4        ...    JSON: the changes, in order
//!          ...    rows and sets of rows, end to end; their lengths are in the JSON
//! ```
//!
//! The JSON of a commit begins with its stamp, `{"commit":{"time":...}}`. In the first commit of a timeline, the stamp
//! has `"begins_timeline":true`. Delta files, and commits of earlier versions of Taut, have no stamp.
//!
//! Rows are encoded by [`taut_block::rows`]. Sets of rows are serialized by `roaring` (RoaringFormatSpec).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use taut_block::{ColumnMap, rows};
use taut_types::{Column, ColumnIndex, ColumnStatistics, Datum, LogicalType, Partitioning, Schema, TableDesign};

use super::change::{Change, OldRows};
use super::{
    BlockEntry, BlockId, Catalog, CommentTarget, Constraints, Function, RowOrder, Sequence, SequenceId, TableId, View,
};
use crate::delta::ContainerId;
use crate::directory::Directory;
use crate::error::CommitError;
use crate::{BlockFile, NewBlock};

/// When a commit was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommitStamp {
    /// Time of the commit, in microseconds since 1970 in UTC.
    pub time: i64,
    /// Whether it is the first commit since the database was opened for writing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub begins_timeline: bool,
}

/// Current time, in microseconds since 1970 in UTC.
pub(crate) fn now_in_micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// JSON form of a change. The rows of a change follow the JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum ChangeJson<'a> {
    /// The stamp of the commit, which is not a change.
    Commit(CommitStamp),
    CreateSchema {
        name: Cow<'a, str>,
    },
    DropSchema {
        name: Cow<'a, str>,
    },
    CreateTable {
        table: TableId,
        name: Cow<'a, str>,
        schema: Cow<'a, Schema>,
        design: Cow<'a, TableDesign>,
    },
    DropTable {
        table: TableId,
    },
    RenameTable {
        table: TableId,
        name: Cow<'a, str>,
    },
    Truncate {
        table: TableId,
    },
    AppendBlocks {
        table: TableId,
        blocks: Vec<NewBlockJson<'a>>,
    },
    ReplaceRows {
        table: TableId,
        blocks: Cow<'a, [BlockId]>,
        #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
        pages: Cow<'a, [(ContainerId, u32)]>,
        #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
        nulls: Cow<'a, [u64]>,
        new: Vec<NewBlockJson<'a>>,
        order: RowOrder,
    },
    SetDesign {
        table: TableId,
        design: Cow<'a, TableDesign>,
    },
    SetPartitioning {
        table: TableId,
        partitioning: Cow<'a, Partitioning>,
    },
    SetConstraints {
        table: TableId,
        constraints: Cow<'a, Constraints>,
    },
    SetNullable {
        table: TableId,
        column: ColumnIndex,
        nullable: bool,
    },
    AddColumn {
        table: TableId,
        column: Cow<'a, Column>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<Cow<'a, Datum>>,
    },
    DropColumn {
        table: TableId,
        column: ColumnIndex,
    },
    RenameColumn {
        table: TableId,
        column: ColumnIndex,
        name: Cow<'a, str>,
    },
    SetType {
        table: TableId,
        column: ColumnIndex,
        #[serde(rename = "type")]
        logical_type: LogicalType,
    },
    CreateView {
        name: Cow<'a, str>,
        sql: Cow<'a, str>,
        #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
        search_path: Cow<'a, [String]>,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        relations: Cow<'a, BTreeMap<String, Vec<String>>>,
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        functions: Cow<'a, BTreeSet<String>>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        replaces: bool,
    },
    DropView {
        name: Cow<'a, str>,
    },
    CreateFunction {
        function: Cow<'a, Function>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        replaces: bool,
    },
    DropFunction {
        name: Cow<'a, str>,
    },
    CreateSequence {
        sequence: Cow<'a, Sequence>,
    },
    DropSequence {
        sequence: SequenceId,
    },
    AlterSequence {
        sequence: Cow<'a, Sequence>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        restarts: bool,
    },
    AdvanceSequence {
        sequence: SequenceId,
        last: i64,
        is_called: bool,
    },
    SetComment {
        on: Cow<'a, CommentTarget>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        comment: Option<Cow<'a, str>>,
    },
    InsertRows {
        table: TableId,
        page: ContainerId,
        first: u32,
        bytes: usize,
    },
    DeleteRows {
        table: TableId,
        #[serde(rename = "unit")]
        container: ContainerId,
        segment: u16,
        bytes: usize,
    },
}

/// JSON form of a new block: its entry in the catalog, its statistics, its partition and its map of columns.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewBlockJson<'a> {
    entry: Cow<'a, BlockEntry>,
    statistics: Cow<'a, [ColumnStatistics]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    partition: Option<(Cow<'a, Partitioning>, u32)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    columns: Option<Cow<'a, ColumnMap>>,
}

impl<'a> NewBlockJson<'a> {
    fn of(block: &'a NewBlock) -> Self {
        let partition = block.partition.as_ref();
        Self {
            entry: Cow::Borrowed(block.entry()),
            statistics: Cow::Borrowed(&block.statistics),
            partition: partition.map(|(partitioning, number)| (Cow::Borrowed(partitioning.as_ref()), *number)),
            columns: block.file.columns().map(|map| Cow::Borrowed(map.as_ref())),
        }
    }

    fn into_block(self, directory: &Arc<Directory>) -> NewBlock {
        let partition = self.partition.map(|(partitioning, number)| (Arc::new(partitioning.into_owned()), number));
        let map = self.columns.map(|map| Arc::new(map.into_owned()));
        let file = Arc::new(BlockFile::new(Arc::clone(directory), self.entry.into_owned()).with_map(map));
        NewBlock { file, statistics: self.statistics.into_owned(), partition }
    }
}

/// Encodes changes, after the stamp of their commit if one is given. `after` is the catalog after the changes.
///
/// # Errors
/// If the table of a change is not in `after`, a value does not fit its column, or the changes are too large.
pub(crate) fn to_bytes(
    changes: &[Change],
    after: &Catalog,
    stamp: Option<CommitStamp>,
) -> Result<Vec<u8>, CommitError> {
    let (mut json_changes, mut row_bytes) = (Vec::with_capacity(changes.len() + 1), Vec::new());
    json_changes.extend(stamp.map(ChangeJson::Commit));
    for change in changes {
        json_changes.push(encode_change(change, after, &mut row_bytes)?);
    }
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, &json_changes)?;
    let length = u32::try_from(bytes.len() - 4).map_err(|_| CommitError::TooLarge)?;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes.append(&mut row_bytes);
    Ok(bytes)
}

fn encode_change<'a>(
    change: &'a Change,
    after: &Catalog,
    row_bytes: &mut Vec<u8>,
) -> Result<ChangeJson<'a>, CommitError> {
    let start = row_bytes.len();
    Ok(match change {
        Change::CreateSchema { name } => ChangeJson::CreateSchema { name: name.into() },
        Change::DropSchema { name } => ChangeJson::DropSchema { name: name.into() },
        Change::CreateTable { table, name, schema, design } => ChangeJson::CreateTable {
            table: *table,
            name: name.into(),
            schema: Cow::Borrowed(schema),
            design: Cow::Borrowed(design),
        },
        Change::DropTable { table } => ChangeJson::DropTable { table: *table },
        Change::RenameTable { table, name } => ChangeJson::RenameTable { table: *table, name: name.into() },
        Change::Truncate { table } => ChangeJson::Truncate { table: *table },
        Change::AppendBlocks { table, blocks } => {
            ChangeJson::AppendBlocks { table: *table, blocks: blocks.iter().map(NewBlockJson::of).collect() }
        }
        Change::ReplaceRows { table, old, new, order } => ChangeJson::ReplaceRows {
            table: *table,
            blocks: Cow::Borrowed(&old.blocks),
            pages: Cow::Borrowed(&old.pages),
            nulls: Cow::Borrowed(&old.nulls),
            new: new.iter().map(NewBlockJson::of).collect(),
            order: *order,
        },
        Change::SetDesign { table, design } => ChangeJson::SetDesign { table: *table, design: Cow::Borrowed(design) },
        Change::SetPartitioning { table, partitioning } => {
            ChangeJson::SetPartitioning { table: *table, partitioning: Cow::Borrowed(partitioning) }
        }
        Change::SetConstraints { table, constraints } => {
            ChangeJson::SetConstraints { table: *table, constraints: Cow::Borrowed(constraints) }
        }
        Change::SetNullable { table, column, nullable } => {
            ChangeJson::SetNullable { table: *table, column: *column, nullable: *nullable }
        }
        Change::AddColumn { table, column, value } => ChangeJson::AddColumn {
            table: *table,
            column: Cow::Borrowed(column),
            value: value.as_ref().map(Cow::Borrowed),
        },
        Change::DropColumn { table, column } => ChangeJson::DropColumn { table: *table, column: *column },
        Change::RenameColumn { table, column, name } => {
            ChangeJson::RenameColumn { table: *table, column: *column, name: name.into() }
        }
        Change::SetType { table, column, logical_type } => {
            ChangeJson::SetType { table: *table, column: *column, logical_type: *logical_type }
        }
        Change::CreateView { view: View { name, sql, search_path, relations, functions }, replaces } => {
            ChangeJson::CreateView {
                name: name.into(),
                sql: sql.into(),
                search_path: Cow::Borrowed(search_path),
                relations: Cow::Borrowed(relations),
                functions: Cow::Borrowed(functions),
                replaces: *replaces,
            }
        }
        Change::DropView { name } => ChangeJson::DropView { name: name.into() },
        Change::CreateFunction { function, replaces } => {
            ChangeJson::CreateFunction { function: Cow::Borrowed(function), replaces: *replaces }
        }
        Change::DropFunction { name } => ChangeJson::DropFunction { name: name.into() },
        Change::CreateSequence { sequence } => ChangeJson::CreateSequence { sequence: Cow::Borrowed(sequence) },
        Change::DropSequence { sequence } => ChangeJson::DropSequence { sequence: *sequence },
        Change::AlterSequence { sequence, restarts } => {
            ChangeJson::AlterSequence { sequence: Cow::Borrowed(sequence), restarts: *restarts }
        }
        Change::AdvanceSequence { sequence, last, is_called } => {
            ChangeJson::AdvanceSequence { sequence: *sequence, last: *last, is_called: *is_called }
        }
        Change::SetComment { on, comment } => {
            ChangeJson::SetComment { on: Cow::Borrowed(on), comment: comment.as_deref().map(Cow::Borrowed) }
        }
        Change::InsertRows { table, page, first, rows: batch } => {
            let stored = after.table_of(*table).ok_or(CommitError::NoTable { table: *table })?;
            rows::encode(&stored.schema, batch, row_bytes)?;
            ChangeJson::InsertRows { table: *table, page: *page, first: *first, bytes: row_bytes.len() - start }
        }
        Change::DeleteRows { table, container, segment, rows } => {
            rows.serialize_into(&mut *row_bytes).map_err(|_| CommitError::TooLarge)?;
            ChangeJson::DeleteRows {
                table: *table,
                container: *container,
                segment: *segment,
                bytes: row_bytes.len() - start,
            }
        }
    })
}

/// A change with parsed JSON, and its encoded rows.
pub(crate) struct ParsedChange<'a> {
    json: ChangeJson<'static>,
    bytes: &'a [u8],
}

/// Parsed content of a commit record or a delta file.
pub(crate) struct ParsedChanges<'a> {
    /// When the commit was made, if known.
    pub stamp: Option<CommitStamp>,
    /// The changes, in order.
    pub changes: Vec<ParsedChange<'a>>,
}

/// Parses a record or a delta file. Rows stay encoded.
///
/// # Errors
/// If the bytes are invalid. The error is the offset, and what was expected there.
pub(crate) fn parse(bytes: &[u8]) -> Result<ParsedChanges<'_>, (usize, String)> {
    let length = bytes.first_chunk::<4>().map(|length| u32::from_le_bytes(*length) as usize);
    let length = length.ok_or_else(|| (0, "the length of JSON".to_owned()))?;
    let json = bytes.get(4..4 + length).ok_or_else(|| (0, format!("{length} bytes of JSON")))?;
    let json_changes: Vec<ChangeJson<'static>> =
        serde_json::from_slice(json).map_err(|error| (4 + error.column().saturating_sub(1), error.to_string()))?;
    let mut offset = 4 + length;
    let mut changes = Vec::with_capacity(json_changes.len());
    let mut stamp = None;
    for (index, json) in json_changes.into_iter().enumerate() {
        if let ChangeJson::Commit(found) = json {
            if index > 0 {
                return Err((4, "the time of the commit before its changes".to_owned()));
            }
            stamp = Some(found);
            continue;
        }
        let length_of_rows = match json {
            ChangeJson::InsertRows { bytes, .. } | ChangeJson::DeleteRows { bytes, .. } => bytes,
            _ => 0,
        };
        let end = offset.checked_add(length_of_rows).filter(|end| *end <= bytes.len());
        let end = end.ok_or_else(|| (offset, format!("{length_of_rows} bytes of rows")))?;
        changes.push(ParsedChange { json, bytes: &bytes[offset..end] });
        offset = end;
    }
    match offset == bytes.len() {
        true => Ok(ParsedChanges { stamp, changes }),
        false => Err((offset, "the end of the changes".to_owned())),
    }
}

impl ParsedChange<'_> {
    /// Converts to a change, and decodes its rows. `catalog` is the catalog before this change.
    ///
    /// # Errors
    /// If the change is invalid. The error names what was expected.
    pub fn into_change(self, catalog: &Catalog, directory: &Arc<Directory>) -> Result<Change, String> {
        let blocks =
            |blocks: Vec<NewBlockJson<'_>>| blocks.into_iter().map(|block| block.into_block(directory)).collect();
        Ok(match self.json {
            ChangeJson::Commit(_) => return Err("a change".to_owned()),
            ChangeJson::CreateSchema { name } => Change::CreateSchema { name: name.into_owned() },
            ChangeJson::DropSchema { name } => Change::DropSchema { name: name.into_owned() },
            ChangeJson::CreateTable { table, name, schema, design } => Change::CreateTable {
                table,
                name: name.into_owned(),
                schema: Arc::new(schema.into_owned()),
                design: Arc::new(design.into_owned()),
            },
            ChangeJson::DropTable { table } => Change::DropTable { table },
            ChangeJson::RenameTable { table, name } => Change::RenameTable { table, name: name.into_owned() },
            ChangeJson::Truncate { table } => Change::Truncate { table },
            ChangeJson::AppendBlocks { table, blocks: new } => Change::AppendBlocks { table, blocks: blocks(new) },
            ChangeJson::ReplaceRows { table, blocks: old, pages, nulls, new, order } => {
                let (old, pages, nulls) = (old.into_owned(), pages.into_owned(), nulls.into_owned());
                let old = OldRows { blocks: old, pages, nulls, omitted: None, relocations: None };
                Change::ReplaceRows { table, old, new: blocks(new), order }
            }
            ChangeJson::SetDesign { table, design } => {
                Change::SetDesign { table, design: Arc::new(design.into_owned()) }
            }
            ChangeJson::SetPartitioning { table, partitioning } => {
                Change::SetPartitioning { table, partitioning: Arc::new(partitioning.into_owned()) }
            }
            ChangeJson::SetConstraints { table, constraints } => {
                Change::SetConstraints { table, constraints: Arc::new(constraints.into_owned()) }
            }
            ChangeJson::SetNullable { table, column, nullable } => Change::SetNullable { table, column, nullable },
            ChangeJson::AddColumn { table, column, value } => {
                Change::AddColumn { table, column: column.into_owned(), value: value.map(Cow::into_owned) }
            }
            ChangeJson::DropColumn { table, column } => Change::DropColumn { table, column },
            ChangeJson::RenameColumn { table, column, name } => {
                Change::RenameColumn { table, column, name: name.into_owned() }
            }
            ChangeJson::SetType { table, column, logical_type } => Change::SetType { table, column, logical_type },
            ChangeJson::CreateView { name, sql, search_path, relations, functions, replaces } => {
                let (search_path, relations) = (search_path.into_owned(), relations.into_owned());
                let (name, sql, functions) = (name.into_owned(), sql.into_owned(), functions.into_owned());
                let view = View { name, sql, search_path, relations, functions };
                Change::CreateView { view, replaces }
            }
            ChangeJson::DropView { name } => Change::DropView { name: name.into_owned() },
            ChangeJson::CreateFunction { function, replaces } => {
                Change::CreateFunction { function: function.into_owned(), replaces }
            }
            ChangeJson::DropFunction { name } => Change::DropFunction { name: name.into_owned() },
            ChangeJson::CreateSequence { sequence } => Change::CreateSequence { sequence: sequence.into_owned() },
            ChangeJson::DropSequence { sequence } => Change::DropSequence { sequence },
            ChangeJson::AlterSequence { sequence, restarts } => {
                Change::AlterSequence { sequence: sequence.into_owned(), restarts }
            }
            ChangeJson::AdvanceSequence { sequence, last, is_called } => {
                Change::AdvanceSequence { sequence, last, is_called }
            }
            ChangeJson::SetComment { on, comment } => {
                Change::SetComment { on: on.into_owned(), comment: comment.map(Cow::into_owned) }
            }
            ChangeJson::InsertRows { table, page, first, .. } => {
                let stored = catalog.table_of(table).ok_or_else(|| format!("a table with number {}", table.0))?;
                let rows = rows::decode(&stored.schema, self.bytes).map_err(|error| error.to_string())?;
                Change::InsertRows { table, page, first, rows }
            }
            ChangeJson::DeleteRows { table, container, segment, .. } => {
                let rows = RoaringBitmap::deserialize_from(self.bytes).map_err(|error| error.to_string())?;
                Change::DeleteRows { table, container, segment, rows }
            }
        })
    }

    /// Entries of the blocks that the change adds, each with the id of its table.
    pub fn new_blocks(&self) -> Vec<(TableId, BlockEntry)> {
        let with_table = |table: TableId, blocks: &[NewBlockJson<'_>]| {
            blocks.iter().map(|block| (table, block.entry.as_ref().clone())).collect()
        };
        match &self.json {
            ChangeJson::AppendBlocks { table, blocks } => with_table(*table, blocks),
            ChangeJson::ReplaceRows { table, new, .. } => with_table(*table, new),
            _ => Vec::new(),
        }
    }

    /// The table that the change creates or renames, and its new name.
    pub fn named_table(&self) -> Option<(TableId, &str)> {
        match &self.json {
            ChangeJson::CreateTable { table, name, .. } | ChangeJson::RenameTable { table, name } => {
                Some((*table, name))
            }
            _ => None,
        }
    }

    /// One more than the greatest block or page id that the change introduces, and the same for table ids. A number is
    /// zero if the change introduces none.
    pub fn next_ids(&self) -> (u64, u64) {
        let next_block =
            |blocks: &[NewBlockJson<'_>]| blocks.iter().map(|block| block.entry.id.0 + 1).max().unwrap_or(0);
        match &self.json {
            ChangeJson::CreateTable { table, .. } => (0, table.0 + 1),
            ChangeJson::CreateSequence { sequence } => (0, sequence.id.0 + 1),
            ChangeJson::AppendBlocks { blocks, .. } => (next_block(blocks), 0),
            ChangeJson::ReplaceRows { new, .. } => (next_block(new), 0),
            ChangeJson::InsertRows { page, .. } => (u64::from(page.0) + 1, 0),
            _ => (0, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stamp_of_a_commit_is_optional_and_precedes_its_changes() {
        let changes = [Change::DropView { name: "v".to_owned() }];
        let catalog = Catalog::empty(7);
        for time in [None, Some(1_764_250_000_123_456), Some(-1)] {
            for begins_timeline in [false, true] {
                let stamp = time.map(|time| CommitStamp { time, begins_timeline });
                let bytes = to_bytes(&changes, &catalog, stamp).unwrap();
                let parsed = parse(&bytes).unwrap();
                assert_eq!((parsed.stamp, parsed.changes.len()), (stamp, 1));
            }
        }
        let json = br#"[{"drop_view":{"name":"v"}},{"commit":{"time":1}}]"#;
        let bytes = [&(json.len() as u32).to_le_bytes()[..], json].concat();
        assert!(parse(&bytes).is_err_and(|(_, expected)| expected.contains("before its changes")));
    }
}
