//! Tests that old block files stay readable. The files `golden/*.block` were written once and never change.
//!
//! A new block of the same rows must equal its golden file byte for byte. Every format change therefore fails a test.
//! If bytes change on purpose: raise the version in the header if old readers cannot read them, document it in
//! `docs/format.md`, and add a new golden file under a new name. The old file stays and must still be readable. Run
//! this test: it writes the new block to the temporary directory and names the file to copy.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::path::PathBuf;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use common::{CountedSections, build};
use taut_block::{Block, ScanReport, Selection};
use taut_testkit::{Model, TYPES, agree, array_of};
use taut_types::{
    Abstraction, BlockSize, Column, ColumnIndex, Compression, Datum, Encoding, GroupKind, IndexDesign, IndexKind,
    Layout, LogicalType, Schema, SortColumn, TableDesign,
};

const ROWS: usize = 150;

/// Deterministic rows of every type. Every second column has a null in every fifth row. One value is long.
fn table() -> (Schema, RecordBatch) {
    let nullable = |index: usize| index % 2 == 1;
    let columns =
        TYPES.iter().enumerate().map(|(index, logical)| Column::new(format!("c{index}"), *logical, nullable(index)));
    let schema = Schema::new(columns.collect()).unwrap();
    let arrays = TYPES.iter().enumerate().map(|(index, logical)| {
        let values: Vec<Option<Datum>> =
            (0..ROWS).map(|row| (!nullable(index) || row % 5 != index % 5).then(|| value(*logical, row))).collect();
        array_of(&values, *logical)
    });
    let batch = RecordBatch::try_new(schema.arrow(), arrays.collect()).unwrap();
    (schema, batch)
}

fn value(logical: LogicalType, row: usize) -> Datum {
    let number = row as i128;
    match logical {
        LogicalType::Boolean => Datum::Number(number % 2),
        LogicalType::Decimal { precision: 1, .. } => Datum::Number(number % 19 - 9),
        LogicalType::Decimal { precision: 38, .. } => Datum::Number((number % 7) * 10_i128.pow(30) - number),
        LogicalType::Varchar if row == 77 => Datum::Bytes("long, länger, ".repeat(700).into_bytes().into()),
        LogicalType::Varchar => Datum::Bytes(format!("row {} of the golden table", row % 40).into_bytes().into()),
        LogicalType::Bytea => Datum::Bytes((0..row % 20).map(|byte| (byte * 13) as u8).collect()),
        _ => Datum::Number(number * 37 % 1009 - 300),
    }
}

/// Block size of the golden files.
const BLOCK_SIZE: BlockSize = BlockSize::Bytes(16 << 20);

/// Designs of the golden files. Encodings are forced, so that a change of the automatic choice changes no golden file.
/// Names end with the header version. Two kinds of files are only read: files of earlier versions, which have no such
/// suffix, and files of packed rows that locate text by its end.
fn designs(schema: &Schema) -> Vec<(&'static str, TableDesign)> {
    let columns = columns(schema);
    let groups = vec![columns[4..].to_vec(), vec![columns[0]], columns[1..4].to_vec()];
    let mut designs = vec![];
    for (name, layout) in [("packed_row_fsst_lengths_2", Layout::PackedRow), ("column_fsst_2", Layout::Column)] {
        let encodings = columns.iter().filter(|column| schema.column(**column).logical_type.is_bytes());
        let encodings = encodings.map(|column| (*column, Encoding::Fsst)).collect();
        designs.push((name, TableDesign { layout, encodings, block_size: BLOCK_SIZE, ..TableDesign::default() }));
    }
    for (name, numbers, floats, bytes) in [
        ("column_patched_2", Encoding::Patched, Encoding::Alp, Encoding::Plain),
        ("column_front_coded_2", Encoding::Plain, Encoding::Plain, Encoding::FrontCoded),
    ] {
        let encoding = |column: ColumnIndex| match schema.column(column).logical_type {
            LogicalType::Real | LogicalType::Double => floats,
            logical if logical.is_bytes() => bytes,
            _ => numbers,
        };
        let encodings = columns.iter().map(|column| (*column, encoding(*column))).collect();
        designs.push((name, TableDesign { encodings, block_size: BLOCK_SIZE, ..TableDesign::default() }));
    }
    for (name, layout, compression) in [
        ("row_2", Layout::Row, Compression::Auto),
        ("packed_row_lengths_2", Layout::PackedRow, Compression::Auto),
        ("packed_row_plain_lengths_2", Layout::PackedRow, Compression::None),
        ("column_2", Layout::Column, Compression::Auto),
        ("column_plain_2", Layout::Column, Compression::None),
        ("groups_lengths_2", Layout::Groups(groups), Compression::Auto),
    ] {
        let mut design = TableDesign { layout, compression, block_size: BLOCK_SIZE, ..TableDesign::default() };
        for group in design.groups(schema) {
            if group.kind == GroupKind::SlottedRows || design.compression == Compression::None {
                continue;
            }
            for column in group.columns {
                // Other encodings have files of their own. Chunks in `bit_packed` cannot store the negative numbers
                // here, and chunks in `frame_of_reference` cannot store the decimals more than 64 bits apart.
                let allowed: Vec<Encoding> = [Encoding::Plain, Encoding::Dictionary, Encoding::RunLength]
                    .into_iter()
                    .filter(|encoding| encoding.is_allowed(schema.column(column).logical_type, group.kind))
                    .collect();
                let encoding = match schema.column(column).logical_type {
                    LogicalType::Boolean => Encoding::BitPacked,
                    LogicalType::Integer | LogicalType::Double | LogicalType::Date => Encoding::FrameOfReference,
                    _ => allowed[column.index() % allowed.len()],
                };
                design.encodings.insert(column, encoding);
            }
        }
        if name == "column_2" {
            let index = |name: &str, kind, ordinals: &[usize]| IndexDesign {
                name: name.to_owned(),
                kind,
                columns: ordinals.iter().map(|ordinal| columns[*ordinal]).collect(),
            };
            let numbers = index("numbers", IndexKind::CsbTree, &[1, 2]);
            let texts = index("texts", IndexKind::CsbTree, &[columns.len() - 2]);
            let indexes = vec![numbers, texts, index("filter", IndexKind::Bloom, &[3])];
            designs.push(("column_indexed_2", TableDesign { indexes, ..design.clone() }));
        }
        designs.push((name, design));
    }
    designs
}

fn columns(schema: &Schema) -> Vec<ColumnIndex> {
    (0..schema.len()).map(ColumnIndex::from).collect()
}

/// Number of rows of `ordered_table` and `levels_table`: more than two vectors.
const ORDERED_ROWS: usize = 2_100;

/// Function from the index of a row to its value.
type NumberOf = fn(i128) -> i128;

/// A column for each encoding of ordered numbers, and for runs whose value and length share a word.
fn ordered_columns() -> Vec<(LogicalType, Encoding, NumberOf)> {
    let decimal = LogicalType::Decimal { precision: 38, scale: 2 };
    vec![
        (LogicalType::BigInt, Encoding::Bitmap, |row| 5_000_000_000 + row * 7 / 5),
        (LogicalType::Integer, Encoding::Bitmap, |row| row - 1_000),
        (LogicalType::Timestamp, Encoding::Delta, |row| row * 1_000_000 + row * 7_919 % 1_009),
        (decimal, Encoding::Delta, |row| 10_i128.pow(30) - row * row),
        (LogicalType::Double, Encoding::Delta, |row| (1 << 62) + row * 3),
        (LogicalType::BigInt, Encoding::RunLengthDelta, |row| row / 28 * 32 + row % 28 / 4),
        (decimal, Encoding::RunLengthDelta, |row| row / 300 * -9),
        (LogicalType::Date, Encoding::TwoByteDelta, |row| 10_000 - row * 31 % 2_557),
        (LogicalType::SmallInt, Encoding::RunLength, |row| row / 9 * 37 % 501),
        (LogicalType::BigInt, Encoding::RunLength, |row| (row / 700) << 40),
    ]
}

fn ordered_table() -> (Schema, TableDesign, RecordBatch) {
    let columns = ordered_columns();
    let schema =
        columns.iter().enumerate().map(|(index, (logical, ..))| Column::new(format!("c{index}"), *logical, false));
    let schema = Schema::new(schema.collect()).unwrap();
    let arrays = columns.iter().map(|(logical, _, number)| {
        let values: Vec<Option<Datum>> =
            (0..ORDERED_ROWS as i128).map(|row| Some(Datum::Number(number(row)))).collect();
        array_of(&values, *logical)
    });
    let batch = RecordBatch::try_new(schema.arrow(), arrays.collect()).unwrap();
    let encodings = columns.iter().enumerate().map(|(index, (_, encoding, _))| (ColumnIndex::from(index), *encoding));
    let encodings = encodings.collect();
    let design = TableDesign { layout: Layout::Column, encodings, block_size: BLOCK_SIZE, ..TableDesign::default() };
    (schema, design, batch)
}

/// Rows sorted by their first four columns, which are levels: runs with and without nulls, numbers that restart in each
/// run, and text.
fn levels_table() -> (Schema, RecordBatch) {
    let columns = [
        (LogicalType::Date, false),
        (LogicalType::SmallInt, true),
        (LogicalType::Integer, false),
        (LogicalType::Varchar, true),
        (LogicalType::Double, false),
        (LogicalType::Bytea, true),
    ];
    let schema = columns
        .iter()
        .enumerate()
        .map(|(index, (logical, nullable))| Column::new(format!("c{index}"), *logical, *nullable));
    let schema = Schema::new(schema.collect()).unwrap();
    let value = |index: usize, row: i128| match index {
        0 => Some(Datum::Number(10_000 + row / 300)),
        1 => Some(Datum::Number(row % 300 / 40)).filter(|key| *key < Datum::Number(6)),
        2 => Some(Datum::Number(row % 40 * 2 + row % 3)),
        3 if row % 11 == 5 => None,
        3 => Some(Datum::Bytes(format!("part {:05}", row / 2).into_bytes().into())),
        4 => Some(Datum::Number(row * 7_919 % 1_009)),
        _ => (row % 5 != 0).then(|| Datum::Bytes((0..row % 9).map(|byte| byte as u8).collect())),
    };
    let arrays = columns.iter().enumerate().map(|(index, (logical, _))| {
        array_of(&(0..ORDERED_ROWS as i128).map(|row| value(index, row)).collect::<Vec<_>>(), *logical)
    });
    let batch = RecordBatch::try_new(schema.arrow(), arrays.collect()).unwrap();
    (schema, batch)
}

/// Layouts whose first four columns are levels with forced encodings.
fn levels_designs(schema: &Schema) -> Vec<(&'static str, TableDesign)> {
    let columns = columns(schema);
    let sort_by = columns.iter().map(|column| SortColumn { column: *column, descending: false, nulls_first: false });
    let sort_by: Vec<SortColumn> = sort_by.collect();
    [
        ("levels/row", Layout::Row, Encoding::TwoByteDelta),
        ("levels/packed_row_delta", Layout::PackedRow, Encoding::Delta),
        ("levels/column_delta", Layout::Column, Encoding::Delta),
    ]
    .into_iter()
    .map(|(name, layout, third)| {
        let encodings = [Encoding::RunLength, Encoding::RunLengthDelta, third, Encoding::FrontCoded];
        let encodings = columns.iter().copied().zip(encodings.into_iter().chain([Encoding::Plain; 2])).collect();
        let abstraction = Abstraction::Levels(4);
        let (sort_by, block_size) = (sort_by.clone(), BLOCK_SIZE);
        (name, TableDesign { layout, sort_by, encodings, abstraction, block_size, ..TableDesign::default() })
    })
    .collect()
}

/// Enough rows for several pages of packed rows.
const SKEWED_ROWS: usize = 12_000;

/// Columns of skewed numbers, in files of their own. About one number in `n * (n + 1)` is `n`: half of the numbers are
/// 1, a sixth are 2.
fn skewed_table() -> (Schema, RecordBatch) {
    let types = [LogicalType::Integer, LogicalType::BigInt, LogicalType::Date, LogicalType::Double];
    let is_nullable = |index: usize| index == 1;
    let columns = types.iter().enumerate();
    let columns = columns.map(|(index, logical)| Column::new(format!("c{index}"), *logical, is_nullable(index)));
    let schema = Schema::new(columns.collect()).unwrap();
    let arrays = types.iter().enumerate().map(|(index, logical)| {
        let number = |row: usize| {
            let hash = (row as u32 + 1).wrapping_mul(0x9e37_79b1 + 2 * index as u32);
            let hash = (hash ^ hash >> 15).wrapping_mul(0x2c1b_3c6d);
            let number = i128::from(u32::MAX / (hash ^ hash >> 13 | 1));
            (!is_nullable(index) || row % 11 != 3).then_some(Datum::Number(number))
        };
        array_of(&(0..SKEWED_ROWS).map(number).collect::<Vec<_>>(), *logical)
    });
    let batch = RecordBatch::try_new(schema.arrow(), arrays.collect()).unwrap();
    (schema, batch)
}

/// Designs of the files in `golden/skewed`.
fn skewed_designs(schema: &Schema) -> Vec<(&'static str, TableDesign)> {
    let design = TableDesign { block_size: BLOCK_SIZE, ..TableDesign::default() };
    let encodings = columns(schema).into_iter().map(|column| (column, Encoding::Patched)).collect();
    let packed = TableDesign { layout: Layout::PackedRow, ..design.clone() };
    vec![("skewed/column_patched", TableDesign { encodings, ..design }), ("skewed/packed_row_page_dictionary", packed)]
}

/// Columns with one distinct value, which takes no bytes. The value is in all rows, in none, or in some.
fn constant_table() -> (Schema, RecordBatch) {
    let columns = TYPES.iter().enumerate();
    let columns = columns.map(|(index, logical)| Column::new(format!("c{index}"), *logical, index % 3 > 0));
    let schema = Schema::new(columns.collect()).unwrap();
    let arrays = TYPES.iter().enumerate().map(|(index, logical)| {
        let is_null = |row: usize| index % 3 == 1 || (index % 3 == 2 && row.is_multiple_of(5));
        array_of(&(0..ROWS).map(|row| (!is_null(row)).then(|| value(*logical, 9))).collect::<Vec<_>>(), *logical)
    });
    let batch = RecordBatch::try_new(schema.arrow(), arrays.collect()).unwrap();
    (schema, batch)
}

/// Designs of the files in `golden/constant`.
fn constant_designs() -> Vec<(&'static str, TableDesign)> {
    let layouts = [("constant/column", Layout::Column), ("constant/packed_row", Layout::PackedRow)];
    let design = |layout| TableDesign { layout, block_size: BLOCK_SIZE, ..TableDesign::default() };
    layouts.into_iter().map(|(name, layout)| (name, design(layout))).collect()
}

fn golden_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

#[test]
fn new_blocks_equal_the_golden_files() {
    let (schema, batch) = table();
    let mut changed = vec![];
    for (name, design) in designs(&schema) {
        // The trained compressor, the choice of exceptions and the choice of encoding may change. The old file need
        // only be readable.
        let is_pinned = !name.contains("_fsst") && name != "column_patched_2";
        changed.extend(changed_file(name, is_pinned, &schema, &design, &batch));
    }
    let (schema, batch) = skewed_table();
    for (name, design) in skewed_designs(&schema) {
        // The number of exceptions and the choice of dictionaries may change.
        changed.extend(changed_file(name, false, &schema, &design, &batch));
    }
    let (schema, design, batch) = ordered_table();
    changed.extend(changed_file("ordered/column", true, &schema, &design, &batch));
    let (schema, batch) = levels_table();
    for (name, design) in levels_designs(&schema) {
        // The choice of exceptions may change.
        changed.extend(changed_file(name, !name.ends_with("_delta"), &schema, &design, &batch));
    }
    let (schema, batch) = constant_table();
    for (name, design) in constant_designs() {
        changed.extend(changed_file(name, true, &schema, &design, &batch));
    }
    assert!(changed.is_empty(), "{}", changed.join("\n"));
}

/// Returns a message if a new block differs from a pinned golden file, or if there is no golden file.
fn changed_file(
    name: &str,
    is_pinned: bool,
    schema: &Schema,
    design: &TableDesign,
    batch: &RecordBatch,
) -> Option<String> {
    let image = build(schema, design, std::slice::from_ref(batch)).unwrap().remove(0);
    let mut bytes = vec![];
    image.write_to(&mut bytes).unwrap();
    assert_eq!(bytes.len() as u64, image.bytes());
    let path = golden_folder().join(format!("{name}.block"));
    if std::fs::read(&path).is_ok_and(|golden| golden == bytes || !is_pinned) {
        return None;
    }
    let written = std::env::temp_dir().join(format!("{}.block", name.replace('/', "_")));
    std::fs::write(&written, bytes).unwrap();
    Some(format!("{} differs from the new block, which is in {}", path.display(), written.display()))
}

#[test]
fn golden_files_are_read() {
    let (schema, batch) = table();
    let files = read_files(golden_folder(), &schema, batch);
    assert!(files >= designs(&schema).len());
    let (schema, batch) = skewed_table();
    assert!(read_files(golden_folder().join("skewed"), &schema, batch) >= skewed_designs(&schema).len());
    let (schema, batch) = constant_table();
    assert!(read_files(golden_folder().join("constant"), &schema, batch) >= constant_designs().len());
    let (schema, _, batch) = ordered_table();
    assert!(read_files(golden_folder().join("ordered"), &schema, batch) >= 1);
    let (schema, batch) = levels_table();
    assert!(read_files(golden_folder().join("levels"), &schema, batch) >= levels_designs(&schema).len());
}

/// Reads every file of a folder and compares its rows with `batch`. Returns the number of files.
fn read_files(folder: PathBuf, schema: &Schema, batch: RecordBatch) -> usize {
    let rows = batch.num_rows();
    let model = Model::from_batches(schema, &[batch]);
    let columns = columns(schema);
    let positions: Vec<usize> = (0..rows).collect();
    let mut files = 0;
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    for path in paths.filter(|path| path.is_file()) {
        let bytes = std::fs::read(&path).unwrap();
        let header_length = Block::header_length(&bytes[..64]).unwrap() as usize;
        let block = Block::parse(Buffer::from(&bytes[..header_length])).unwrap();
        let sections: Vec<Vec<u8>> = (0..block.section_count())
            .map(|index| block.section(index))
            .map(|entry| bytes[entry.offset as usize..(entry.offset + entry.length) as usize].to_vec())
            .collect();
        let sections = CountedSections::new(&block, &sections);
        block.check(&sections).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(block.description(&sections).unwrap().0, *schema);
        let mut reader = block.open_segment(&sections, 0);
        let arrays = reader.project(&Selection::All(rows), 0..rows, &columns, &mut ScanReport::default()).unwrap();
        agree(&model, &positions, &columns, &arrays);
        files += 1;
    }
    files
}
