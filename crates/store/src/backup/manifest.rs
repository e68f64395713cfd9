//! The manifest of a backup: its state, and its files with their checksums. It is written last.

use serde::{Deserialize, Serialize};

use crate::catalog::Timeline;
use crate::document;
use crate::{BlockEntry, BlockId, TableId};

const MAGIC: &str = "taut-backup";
const VERSION: u64 = 1;

/// The manifest of one backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    /// Number of the backup, which is in the names of its files.
    pub number: u64,
    /// Id of the database, a random number chosen when the database was created.
    pub database: u64,
    /// Version of the last commit in the backup.
    pub commit: u64,
    /// Time of the state in the backup, in microseconds since 1970 in UTC. Commits in the backup have this time or an
    /// earlier one, all others a later one.
    pub time: i64,
    /// Timeline of the last commit. `None` if there is no commit, or an earlier version of Taut took the backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
    /// Bytes that were written for this backup, without its manifest.
    pub written_bytes: u64,
    /// Length and checksum of the catalog file.
    pub catalog: FileChecksum,
    /// Length and checksum of the delta file: rows that are in no block, and deleted rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta: Option<FileChecksum>,
    /// The blocks of each table.
    pub tables: Vec<TableManifest>,
    /// Random number that identifies this backup, if the database retains its log for the next one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// The archived commits since the previous backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogManifest>,
}

/// Length and checksum of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileChecksum {
    /// Bytes of the file.
    pub bytes: u64,
    /// XXH3 of the whole file.
    pub xxh3: u64,
}

/// The blocks of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TableManifest {
    /// Id of the table.
    pub id: TableId,
    /// Name of the table.
    pub name: String,
    /// Blocks of the table.
    pub blocks: Vec<BlockChecksum>,
}

/// A block: id, bytes, XXH3 of its header, and XXH3 of the whole file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BlockChecksum(pub BlockId, pub u64, pub u64, pub u64);

/// The archived commits of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogManifest {
    /// Number of the earlier backup whose state these commits continue.
    pub base: u64,
    /// Number of commits.
    pub commits: u64,
    /// Length and checksum of the file of commits.
    pub file: FileChecksum,
    /// Blocks that the commits added and that were replaced before this backup.
    pub tables: Vec<TableManifest>,
}

/// Identifies a block among all backups. A block with the same id in a copy of the database has another header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BlockKey {
    /// Id of the block.
    pub id: BlockId,
    /// Checksum of the header, which has the checksums of all sections.
    pub header: u64,
}

impl BlockKey {
    /// The key of a block of a catalog.
    pub fn of(entry: &BlockEntry) -> Self {
        Self { id: entry.id, header: entry.header_checksum }
    }
}

impl BlockChecksum {
    /// Key of the block.
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
    /// Encodes the manifest file.
    ///
    /// # Errors
    /// If the manifest cannot be encoded as JSON, which does not happen.
    pub fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        document::to_bytes((MAGIC, VERSION), self)
    }

    /// Decodes the manifest of backup `number`.
    ///
    /// # Errors
    /// If the bytes are invalid, or belong to another backup. The error names what was expected.
    pub fn parse(number: u64, bytes: &[u8]) -> Result<Self, String> {
        let manifest: Self = document::parse((MAGIC, VERSION), bytes)?;
        if manifest.number != number {
            return Err(format!("the manifest of backup {number}, found that of {}", manifest.number));
        }
        Ok(manifest)
    }

    /// All blocks that the backup needs, each with the name of its table.
    pub fn blocks(&self) -> impl Iterator<Item = (&str, &BlockChecksum)> {
        let tables = self.tables.iter().chain(self.log.iter().flat_map(|log| log.tables.iter()));
        tables.flat_map(|table| table.blocks.iter().map(|block| (table.name.as_str(), block)))
    }

    /// Bytes of all files that the backup needs, without its manifest.
    pub fn bytes(&self) -> u64 {
        let blocks: u64 = self.blocks().map(|(_, block)| block.bytes()).sum();
        let log = self.log.as_ref().map_or(0, |log| log.file.bytes);
        blocks + self.catalog.bytes + self.delta.map_or(0, |delta| delta.bytes) + log
    }
}
