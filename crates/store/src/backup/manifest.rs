//! The manifest of a backup: which state it holds, and its files with their checksums. It is written last.

use serde::{Deserialize, Serialize};

use super::document;
use crate::{BlockEntry, BlockId, TableId};

const MAGIC: &str = "taut-backup";
const VERSION: u64 = 1;

/// A backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    /// Its number, which is in the names of its files.
    pub number: u64,
    /// The database, by the number that was drawn when it was created.
    pub database: u64,
    /// The last commit that it holds.
    pub commit: u64,
    /// When its state was fixed, in microseconds since 1970 in UTC: not earlier than the commits that it holds, and earlier
    /// than all others.
    pub time: i64,
    /// Bytes that this backup has written, its manifest aside.
    pub written_bytes: u64,
    /// The catalog.
    pub catalog: FileSum,
    /// Rows that are in no block, and deleted rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta: Option<FileSum>,
    /// The blocks of each table.
    pub tables: Vec<TableManifest>,
    /// A number drawn for this backup, if the database retains its log for the next one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// The commits since the backup before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogManifest>,
}

/// Length and checksum of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileSum {
    /// Bytes of the file.
    pub bytes: u64,
    /// XXH3 of all of them.
    pub xxh3: u64,
}

/// The blocks of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TableManifest {
    /// The number of the table.
    pub id: TableId,
    /// Its name.
    pub name: String,
    /// Its blocks.
    pub blocks: Vec<BlockSum>,
}

/// A block: number, bytes, xxh3 of its header, and of the whole file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BlockSum(pub BlockId, pub u64, pub u64, pub u64);

/// Commits that a backup has archived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogManifest {
    /// The number of the backup that they continue.
    pub base: u64,
    /// How many there are.
    pub commits: u64,
    /// Their file.
    pub file: FileSum,
    /// Blocks that they added and that were replaced before this backup.
    pub tables: Vec<TableManifest>,
}

/// Names a block among those of all backups. A block of the same number in a copy of the database has another header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BlockKey {
    /// The number of the block.
    pub id: BlockId,
    /// The checksum of its header, which has the checksums of all its sections.
    pub header: u64,
}

impl BlockKey {
    /// The key of a block of a catalog.
    pub fn of(entry: &BlockEntry) -> Self {
        Self { id: entry.id, header: entry.header_checksum }
    }
}

impl BlockSum {
    /// Names the block.
    pub fn key(&self) -> BlockKey {
        BlockKey { id: self.0, header: self.2 }
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.1
    }

    /// XXH3 of the whole file.
    pub fn xxh3(&self) -> u64 {
        self.3
    }
}

impl Manifest {
    /// The bytes of the file.
    ///
    /// # Errors
    /// If it has no JSON, which does not happen.
    pub fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        document::to_bytes((MAGIC, VERSION), self)
    }

    /// Reads the manifest of the backup with a number.
    ///
    /// # Errors
    /// What was expected.
    pub fn parse(number: u64, bytes: &[u8]) -> Result<Self, String> {
        let manifest: Self = document::parse((MAGIC, VERSION), bytes)?;
        if manifest.number != number {
            return Err(format!("the manifest of backup {number}, found that of {}", manifest.number));
        }
        Ok(manifest)
    }

    /// All blocks that it needs, each with the name of its table.
    pub fn blocks(&self) -> impl Iterator<Item = (&str, &BlockSum)> {
        let tables = self.tables.iter().chain(self.log.iter().flat_map(|log| log.tables.iter()));
        tables.flat_map(|table| table.blocks.iter().map(|block| (table.name.as_str(), block)))
    }

    /// Bytes of all files that it needs, its manifest aside.
    pub fn bytes(&self) -> u64 {
        let blocks: u64 = self.blocks().map(|(_, block)| block.bytes()).sum();
        let log = self.log.as_ref().map_or(0, |log| log.file.bytes);
        blocks + self.catalog.bytes + self.delta.map_or(0, |delta| delta.bytes) + log
    }
}
