//! The file `catalog`, which each checkpoint replaces as a whole (docs/adr/0002-catalog-is-replaced-whole.md).
//!
//! ```text
//!   taut-catalog 20 bytes=1234 xxh3=0123456789abcdef\n      one line: format version, length and checksum of the rest
//!   {"database":...,"version":...,"tables":[...],...}       1234 bytes of JSON
//! ```
//!
//! Every byte is covered: the line has exactly one valid spelling of its three numbers, and the checksum covers the
//! rest.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use taut_block::ColumnMap;
use taut_types::{ColumnStatistics, Schema, TableDesign};
use twox_hash::XxHash3_64;

use super::{
    BlockEntry, Catalog, CommentTarget, Constraints, Function, Sequence, TableId, TablePartitions, Timeline, View,
};

/// Format version of new files. No flipped bit turns it into another readable version.
const VERSION: u64 = 20;
/// The readable format versions.
pub(crate) const READABLE: [u64; 10] = [2, 4, 7, 8, 11, 12, 14, 17, 18, VERSION];

const MAGIC: &str = "taut-catalog ";
const HEADER_LINE_MAX: usize = 96;

/// Why bytes are not a readable catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    Version { found: u64 },
    Corrupt { at: u64, expected: String },
}

/// Content of the file, with blocks as entries. Borrowed when written, owned when read.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CatalogFile<'a> {
    pub database: u64,
    pub version: u64,
    pub next_block: u64,
    pub next_table: u64,
    /// Number of the first log file with commits after this version. `None` before format version 7, which introduced
    /// the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<u64>,
    /// The delta file of the same number as the log file, with the rows in no block and the deleted rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta: Option<DeltaFileEntry>,
    /// Empty before format version 11.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub timelines: Cow<'a, [Timeline]>,
    /// Names of the schemas except `public`. Empty before format version 17.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schemas: Vec<Cow<'a, str>>,
    pub tables: Vec<TableFile<'a>>,
    pub views: Vec<Cow<'a, View>>,
    /// Empty before format version 12.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sequences: Vec<Cow<'a, Sequence>>,
    /// Empty before format version 18.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<Cow<'a, Function>>,
    /// Empty before format version 14.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub comments: Vec<(Cow<'a, CommentTarget>, Cow<'a, str>)>,
}

/// The catalog's entry for the delta file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeltaFileEntry {
    /// Length of the file in bytes.
    pub bytes: u64,
    /// XXH3 of the whole file.
    pub checksum: u64,
}

/// A table in the catalog file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TableFile<'a> {
    pub id: TableId,
    pub name: Cow<'a, str>,
    pub schema: Cow<'a, Schema>,
    pub design: Cow<'a, TableDesign>,
    pub statistics: Cow<'a, [ColumnStatistics]>,
    /// Indexes in `blocks` where sort runs begin, ascending from 0.
    pub runs: Cow<'a, [usize]>,
    pub blocks: Vec<Cow<'a, BlockEntry>>,
    /// Distinct column maps of the blocks. Empty before format version 12, and if every block has exactly the columns
    /// of the table.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub column_maps: Vec<Cow<'a, ColumnMap>>,
    /// For each block, the index of its column map, or `None` if it has exactly the columns of the table. Empty if
    /// `column_maps` is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub map_of_blocks: Vec<Option<usize>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitions: Option<Cow<'a, TablePartitions>>,
    /// Empty before format version 8.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub constraints: Cow<'a, Constraints>,
}

/// Encodes the catalog file. It also holds the next block and table ids, the number of the log file that follows, and
/// the entry of the delta file.
pub(crate) fn to_bytes(
    catalog: &Catalog,
    (next_block, next_table): (u64, u64),
    log: u64,
    delta: Option<DeltaFileEntry>,
) -> Result<Vec<u8>, serde_json::Error> {
    let file = CatalogFile {
        database: catalog.database,
        version: catalog.version,
        next_block,
        next_table,
        log: Some(log),
        delta,
        timelines: Cow::Borrowed(catalog.timelines.as_slice()),
        schemas: catalog.schemas.iter().map(|name| Cow::Borrowed(name.as_str())).collect(),
        tables: catalog.tables.iter().map(|table| table_file(table)).collect(),
        views: catalog.views.values().map(Cow::Borrowed).collect(),
        sequences: catalog.sequences.values().map(Cow::Borrowed).collect(),
        functions: catalog.functions.values().map(Cow::Borrowed).collect(),
        comments: catalog.comments.iter().map(|(on, text)| (Cow::Borrowed(on), Cow::Borrowed(text))).collect(),
    };
    let json = serde_json::to_vec(&file)?;
    let mut bytes = header_line(VERSION, json.len() as u64, XxHash3_64::oneshot(&json)).into_bytes();
    bytes.extend_from_slice(&json);
    Ok(bytes)
}

fn table_file(table: &super::Table) -> TableFile<'_> {
    let mut column_maps: Vec<Cow<'_, ColumnMap>> = Vec::new();
    let mut index_of = |map: &'_ ColumnMap| {
        // Blocks with equal maps are mostly neighbours.
        column_maps.iter().rposition(|other| other.as_ref() == map).unwrap_or_else(|| {
            column_maps.push(Cow::Owned(map.clone()));
            column_maps.len() - 1
        })
    };
    let map_of_blocks: Vec<Option<usize>> =
        table.blocks.iter().map(|block| block.columns().map(|map| index_of(map))).collect();
    TableFile {
        id: table.id,
        name: Cow::Borrowed(&table.name),
        schema: Cow::Borrowed(&table.schema),
        design: Cow::Borrowed(&table.design),
        statistics: Cow::Borrowed(table.statistics.as_slice()),
        runs: Cow::Borrowed(table.runs.as_slice()),
        blocks: table.blocks.iter().map(|block| Cow::Borrowed(block.entry())).collect(),
        map_of_blocks: if column_maps.is_empty() { Vec::new() } else { map_of_blocks },
        column_maps,
        partitions: table.partitions.as_deref().map(Cow::Borrowed),
        constraints: Cow::Borrowed(&table.constraints),
    }
}

fn is_empty(constraints: &Constraints) -> bool {
    constraints.is_empty()
}

/// Decodes the file. [`super::check`] then checks its content.
pub(crate) fn parse(bytes: &[u8]) -> Result<CatalogFile<'static>, Unreadable> {
    let json_offset = check_header_line(bytes)?;
    let json = &bytes[json_offset..];
    serde_json::from_slice(json).map_err(|error| Unreadable::Corrupt {
        // The JSON is one line, so the column is the offset.
        at: (json_offset + error.column().saturating_sub(1)) as u64,
        expected: format!("the content of a catalog: {error}"),
    })
}

fn header_line(version: u64, bytes: u64, checksum: u64) -> String {
    format!("{MAGIC}{version} bytes={bytes} xxh3={checksum:016x}\n")
}

/// Checks the first line, and the rest against it. Returns the offset of the rest.
fn check_header_line(bytes: &[u8]) -> Result<usize, Unreadable> {
    let corrupt = |at: usize, expected: &str| Unreadable::Corrupt { at: at as u64, expected: expected.to_owned() };
    let end = bytes.iter().take(HEADER_LINE_MAX).position(|byte| *byte == b'\n');
    let end = end.ok_or_else(|| corrupt(0, "a first line"))?;
    let text = std::str::from_utf8(&bytes[..end]).map_err(|error| corrupt(error.valid_up_to(), "text"))?;
    let fields = text.strip_prefix(MAGIC).ok_or_else(|| corrupt(0, "\"taut-catalog \""))?;
    let (version, fields) = fields.split_once(' ').unwrap_or((fields, ""));
    let version: u64 = version.parse().map_err(|_| corrupt(MAGIC.len(), "a format version"))?;
    if !READABLE.contains(&version) {
        return Err(Unreadable::Version { found: version });
    }
    let numbers = fields
        .strip_prefix("bytes=")
        .and_then(|rest| rest.split_once(" xxh3="))
        .and_then(|(length, checksum)| Some((length.parse::<u64>().ok()?, u64::from_str_radix(checksum, 16).ok()?)));
    let fields_offset = end - fields.len();
    let (length, checksum) = numbers.ok_or_else(|| corrupt(fields_offset, "\"bytes=<number> xxh3=<16 digits>\""))?;
    let canonical = header_line(version, length, checksum);
    if canonical.as_bytes() != &bytes[..=end] {
        let at = canonical.bytes().zip(bytes).position(|(left, right)| left != *right).unwrap_or(fields_offset);
        return Err(corrupt(at, "numbers in their only spelling"));
    }
    let json = &bytes[end + 1..];
    if json.len() as u64 != length {
        let at = bytes.len().min(end + 1 + usize::try_from(length).unwrap_or(usize::MAX - end - 1));
        return Err(corrupt(at, &format!("{length} bytes after the first line, found {}", json.len())));
    }
    let found = XxHash3_64::oneshot(json);
    if found != checksum {
        return Err(corrupt(end + 1, &format!("content with checksum {checksum:016x}, found {found:016x}")));
    }
    Ok(end + 1)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use taut_types::{Column, Datum, LogicalType, Partitioning};

    use super::*;
    use crate::Table;

    fn catalog() -> Catalog {
        let mut catalog = Catalog::empty(7);
        catalog.views.insert_mut(
            "v".into(),
            View {
                name: "v".into(),
                sql: "select 'é\n'".into(),
                search_path: vec!["s".into()],
                relations: [("t".into(), vec!["a".into()])].into(),
                functions: ["f".into()].into(),
            },
        );
        catalog
    }

    fn bytes_of(catalog: &Catalog) -> Vec<u8> {
        to_bytes(catalog, (1, 1), 1, None).unwrap()
    }

    #[test]
    fn designs_and_statistics_round_trip() {
        let columns = ["a", "b", "c"].map(|name| Column::new(name, LogicalType::Varchar, true)).to_vec();
        let schema = Arc::new(Schema::new(columns).unwrap());
        let options = [("groups", "(a,c),(b)"), ("sort_by", "b desc"), ("encoding", "b=fsst"), ("block_size", "file")];
        let options = options.into_iter().chain([("partition_by", "range(b, 3)")]);
        let design = Arc::new(TableDesign::from_options(options, &schema).unwrap());
        let sample = ["x", "y", "z"].map(|text| Datum::Bytes(text.as_bytes().into())).to_vec();
        let partitioning =
            Partitioning::from_sample(design.partition_by.unwrap(), LogicalType::Varchar, sample).unwrap();
        let partitions = Some(Arc::new(TablePartitions { partitioning, of_blocks: vec![] }));
        let statistics = |min, max| ColumnStatistics { min, max, rows: u64::MAX, ..ColumnStatistics::empty() };
        let mut statistics = vec![
            statistics(Some(Datum::Number(i128::MIN)), Some(Datum::Number(i128::MAX))),
            statistics(Some(Datum::Bytes([0, 255].into())), None),
        ];
        statistics[0].distinct.insert_number(1);
        let mut catalog = catalog();
        let statistics = Arc::new(statistics);
        let table = Table { partitions, statistics, ..Table::empty(TableId(1), "\"T\"", schema, design) };
        catalog.tables.insert(Arc::new(table.clone()));
        let bytes = bytes_of(&catalog);
        let read = &parse(&bytes).unwrap().tables[0];
        assert_eq!((&*read.name, &*read.schema, &*read.design), (&*table.name, &*table.schema, &*table.design));
        assert_eq!(read.statistics.as_ref(), table.statistics.as_slice());
        assert_eq!(read.partitions.as_deref(), table.partitions.as_deref());
    }

    #[test]
    fn a_catalog_round_trips() {
        let bytes = bytes_of(&catalog());
        assert!(bytes.starts_with(b"taut-catalog 20 bytes="), "{}", String::from_utf8_lossy(&bytes));
        let file = parse(&bytes).unwrap();
        assert_eq!((file.database, file.version, file.next_block, file.views.len()), (7, 0, 1, 1));
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_is_detected() {
        let bytes = bytes_of(&catalog());
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                assert!(parse(&flipped).is_err(), "byte {at}, bit {bit}");
            }
            assert!(parse(&bytes[..at]).is_err(), "cut at {at}");
        }
        assert!(parse(&[&bytes[..], b" "].concat()).is_err());
    }

    #[test]
    fn another_version_is_distinguished_from_damage() {
        let bytes = bytes_of(&catalog());
        let text = String::from_utf8(bytes).unwrap().replacen("taut-catalog 20", "taut-catalog 3", 1);
        assert_eq!(parse(text.as_bytes()).unwrap_err(), Unreadable::Version { found: 3 });
    }

    #[test]
    fn errors_of_wrong_fields_name_the_byte_despite_a_valid_checksum() {
        let json = br#"{"database":7,"version":0,"surprise":1}"#;
        let header = header_line(VERSION, json.len() as u64, XxHash3_64::oneshot(json));
        let Unreadable::Corrupt { at, expected } = parse(&[header.as_bytes(), json].concat()).unwrap_err() else {
            panic!("an unknown version instead of damage");
        };
        assert!(at > header.len() as u64 && expected.contains("surprise"), "{at}: {expected}");
    }
}
