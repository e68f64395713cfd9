//! Generator of tables from a seed, with every type, the row counts at which storage splits rows, and the shapes that
//! encodings detect.

use arrow_array::RecordBatch;
use rand::Rng;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use taut_types::{Column, Datum, LogicalType, Schema, f32_to_ordered, f64_to_ordered};

use crate::array_of;

/// A generated table, split into batches of unequal sizes that share their buffers.
#[derive(Clone, Debug)]
pub struct TestTable {
    /// Description of the table, for messages of failed tests.
    pub name: String,
    /// Columns of the table.
    pub schema: Schema,
    /// Rows of the table.
    pub batches: Vec<RecordBatch>,
}

/// All logical types, with decimals of each plain width and at the limits of precision and scale.
pub const TYPES: [LogicalType; 16] = [
    LogicalType::Boolean,
    LogicalType::SmallInt,
    LogicalType::Integer,
    LogicalType::BigInt,
    LogicalType::Real,
    LogicalType::Double,
    LogicalType::Decimal { precision: 1, scale: 1 },
    LogicalType::Decimal { precision: 9, scale: 2 },
    LogicalType::Decimal { precision: 15, scale: 2 },
    LogicalType::Decimal { precision: 38, scale: 0 },
    LogicalType::Decimal { precision: 38, scale: 38 },
    LogicalType::Date,
    LogicalType::Timestamp,
    LogicalType::TimestampTz,
    LogicalType::Varchar,
    LogicalType::Bytea,
];

/// Row counts at and around the sizes of a vector, a zone and a segment.
pub const SIZES: [usize; 7] = [1, 2, 1023, 1024, 1025, 8192, 70_000];

/// Distribution of the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Anywhere in the domain.
    Random,
    /// Small and not negative.
    Small,
    /// Close together, far from zero.
    Narrow,
    /// Ascending, with repetitions.
    Sorted,
    /// Descending.
    Descending,
    /// Ascending without repetitions, where the domain is large enough.
    Unique,
    /// One of five values.
    Few,
    /// Long runs of equal values.
    Runs,
    /// Ends of the domain, and values next to them.
    Extreme,
    /// One value everywhere.
    Constant,
}

impl Shape {
    /// All shapes.
    pub const ALL: [Self; 10] = [
        Self::Random,
        Self::Small,
        Self::Narrow,
        Self::Sorted,
        Self::Descending,
        Self::Unique,
        Self::Few,
        Self::Runs,
        Self::Extreme,
        Self::Constant,
    ];
}

/// Share of the rows of a column that are null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nulls {
    /// No row.
    None,
    /// About one row in five, some of them in runs.
    Some,
    /// All rows.
    All,
}

/// Generates tables of every type, size and shape. Equal seeds generate equal tables.
pub fn tables(seed: u64) -> Vec<TestTable> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut tables = vec![];
    for (index, shape) in Shape::ALL.into_iter().enumerate() {
        tables.push(table(format!("{shape:?}"), &|_| shape, index, 1300 + index, &mut random));
    }
    for (index, rows) in SIZES.into_iter().enumerate() {
        let shape = |column: usize| Shape::ALL[(column + index) % Shape::ALL.len()];
        tables.push(table(format!("{rows} rows"), &shape, index, rows, &mut random));
    }
    tables.push(long_value_table(&mut random));
    tables.push(skewed_table(&mut random));
    tables.push(local_table(&mut random));
    tables
}

/// Skewed numbers in random order: `n` has a probability of about `1 / (n * (n + 1))`.
fn skewed_table(random: &mut StdRng) -> TestTable {
    let number = |_, random: &mut StdRng| u64::from(u32::MAX) / u64::from(random.random::<u32>() | 1);
    number_table("skewed", 16_000, number, random)
}

/// At most 30 distinct numbers in each 1,500 rows, and partly different ones in the next 1,500. Fills several pages of
/// packed rows.
fn local_table(random: &mut StdRng) -> TestTable {
    number_table("local", 20_000, |row, random| row / 1_500 * 9 + random.random_range(0..30), random)
}

/// Table of numbers in several types. Every second column has some nulls.
fn number_table(name: &str, rows: u64, number: impl Fn(u64, &mut StdRng) -> u64, random: &mut StdRng) -> TestTable {
    let decimal = LogicalType::Decimal { precision: 15, scale: 2 };
    let types = [LogicalType::Integer, LogicalType::BigInt, LogicalType::Date, LogicalType::Double, decimal];
    let mut columns = vec![];
    let mut values = vec![];
    for (index, logical) in types.into_iter().enumerate() {
        let datum = |row| {
            // The number fits all of these types.
            let number = number(row, random).min(i32::MAX as u64) as i32;
            let is_null = index % 2 == 1 && random.random_bool(0.1);
            let datum =
                if logical == LogicalType::Double { f64_to_ordered(number.into()).into() } else { i128::from(number) };
            (!is_null).then_some(Datum::Number(datum))
        };
        values.push((0..rows).map(datum).collect::<Vec<_>>());
        columns.push(Column::new(format!("n{index}"), logical, index % 2 == 1));
    }
    split_into_batches(name.to_owned(), columns, &values, random)
}

/// Table with a column of every type. `rotation` selects the columns that hold nulls.
fn table(name: String, shape: &dyn Fn(usize) -> Shape, rotation: usize, rows: usize, random: &mut StdRng) -> TestTable {
    let mut columns = vec![];
    let mut values = vec![];
    for (index, logical) in TYPES.into_iter().enumerate() {
        let nulls = match (index + rotation) % 8 {
            0 | 2 | 5 => Nulls::Some,
            7 => Nulls::All,
            _ => Nulls::None,
        };
        columns.push(Column::new(format!("{index}_{}", logical.sql_name()), logical, nulls != Nulls::None));
        values.push(column_values(logical, shape(index), nulls, rows, random));
    }
    split_into_batches(name, columns, &values, random)
}

fn long_value_table(random: &mut StdRng) -> TestTable {
    let mut value = |row: usize, logical| {
        let length = [0, 12, 13, 100, 5_000, 100_000][row % 6];
        let bytes = match logical {
            LogicalType::Varchar => "Ünï→🦀x".chars().cycle().skip(row).take(length).collect::<String>().into_bytes(),
            _ => (0..length).map(|_| random.random()).collect(),
        };
        (row % 7 != 3).then(|| Datum::Bytes(bytes.into()))
    };
    let values: Vec<Vec<_>> = [LogicalType::Varchar, LogicalType::Bytea]
        .into_iter()
        .map(|logical| (0..31).map(|row| value(row, logical)).collect())
        .chain([(0..31).map(|row| Some(Datum::Number(row))).collect()])
        .collect();
    let columns = vec![
        Column::new("text", LogicalType::Varchar, true),
        Column::new("bytes", LogicalType::Bytea, true),
        Column::new("id", LogicalType::Integer, false),
    ];
    split_into_batches("long values".to_owned(), columns, &values, random)
}

fn split_into_batches(
    name: String,
    columns: Vec<Column>,
    values: &[Vec<Option<Datum>>],
    random: &mut StdRng,
) -> TestTable {
    let rows = values[0].len();
    let schema = Schema::new(columns).unwrap();
    let arrays = schema.columns().iter().zip(values).map(|(column, values)| array_of(values, column.logical_type));
    let whole = RecordBatch::try_new(schema.arrow(), arrays.collect()).unwrap();
    let mut batches = vec![];
    let mut row = 0;
    while row < rows {
        let length = random.random_range(1..=rows.min(20_000)).max(rows / 20).min(rows - row);
        batches.push(whole.slice(row, length));
        row += length;
    }
    TestTable { name, schema, batches }
}

/// Values of one column.
pub fn column_values(
    logical: LogicalType,
    shape: Shape,
    nulls: Nulls,
    rows: usize,
    random: &mut impl Rng,
) -> Vec<Option<Datum>> {
    let mut values = values(logical, shape, rows, random);
    match shape {
        Shape::Sorted | Shape::Unique => values.sort_unstable(),
        Shape::Descending => values.sort_unstable_by(|left, right| right.cmp(left)),
        _ => {}
    }
    let mut is_null = nulls == Nulls::All;
    let null = |_| {
        if nulls == Nulls::Some && random.random_bool(0.4) {
            is_null = random.random_bool(0.2);
        }
        is_null
    };
    let is_null: Vec<bool> = (0..rows).map(null).collect();
    values.into_iter().zip(is_null).map(|(value, is_null)| (!is_null).then_some(value)).collect()
}

fn values(logical: LogicalType, shape: Shape, rows: usize, random: &mut impl Rng) -> Vec<Datum> {
    let count = match shape {
        Shape::Few => 5,
        Shape::Constant => 1,
        _ => rows,
    };
    let mut values: Vec<Datum> = (0..count).map(|index| value(logical, shape, index, random)).collect();
    match shape {
        Shape::Few => (0..rows).map(|_| values.choose(random).unwrap().clone()).collect(),
        Shape::Constant => vec![values.remove(0); rows],
        Shape::Runs => {
            for row in 1..rows {
                if random.random_bool(0.97) {
                    values[row] = values[row - 1].clone();
                }
            }
            values
        }
        _ => values,
    }
}

/// One value. In a unique column `index` makes it distinct.
fn value(logical: LogicalType, shape: Shape, index: usize, random: &mut impl Rng) -> Datum {
    let Some((low, high)) = domain(logical) else {
        let text = text(shape, index, random);
        return match logical {
            LogicalType::Bytea if shape != Shape::Unique => Datum::Bytes(
                text.bytes().map(|byte| if random.random_bool(0.3) { random.random() } else { byte }).collect(),
            ),
            _ => Datum::Bytes(text.into_bytes().into()),
        };
    };
    let number = match shape {
        Shape::Small => random.random_range(0..=100.min(high)),
        Shape::Narrow => high / 3 + random.random_range(0..=(high / 3).min(1000)),
        Shape::Unique => (low / 3).saturating_add(index as i128 * 7).clamp(low, high),
        Shape::Extreme => match random.random_range(0..8) {
            0 => low,
            1 => high,
            2 => (low + 1).min(high),
            3 => high - 1,
            4 => 0,
            5 => (-1).max(low),
            6 => 1,
            _ => special(logical, random).clamp(low, high),
        },
        _ => match random.random_range(0..3) {
            0 => random.random_range(low..=high),
            1 => random.random_range(low / 1_000_000..=high / 1_000_000),
            _ => special(logical, random).clamp(low, high),
        },
    };
    Datum::Number(number)
}

/// Least and greatest number of a type, or `None` for bytes. Floating point includes NaNs of both signs.
fn domain(logical: LogicalType) -> Option<(i128, i128)> {
    Some(match logical {
        LogicalType::Boolean => (0, 1),
        LogicalType::SmallInt => (i16::MIN.into(), i16::MAX.into()),
        LogicalType::Integer | LogicalType::Date | LogicalType::Real => (i32::MIN.into(), i32::MAX.into()),
        LogicalType::BigInt | LogicalType::Timestamp | LogicalType::TimestampTz | LogicalType::Double => {
            (i64::MIN.into(), i64::MAX.into())
        }
        LogicalType::Decimal { precision, .. } => {
            let end = 10_i128.pow(precision.into()) - 1;
            (-end, end)
        }
        LogicalType::Varchar | LogicalType::Bytea => return None,
    })
}

/// Draws a decimal fraction or a special value such as NaN for floating point, and a small integer for other types.
fn special(logical: LogicalType, random: &mut impl Rng) -> i128 {
    const SPECIAL: [f64; 9] =
        [0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE, f64::MAX, 1.5, 0.1];
    let float = if random.random_bool(0.5) {
        *SPECIAL.choose(random).unwrap()
    } else {
        f64::from(random.random_range(-100_000..100_000)) / 100.0
    };
    match logical {
        LogicalType::Real => f32_to_ordered(float as f32).into(),
        LogicalType::Double => f64_to_ordered(float).into(),
        _ => random.random_range(-1000..1000),
    }
}

const WORDS: [&str; 12] = [
    "",
    "a",
    "AIR",
    "REG AIR",
    "DELIVER IN PERSON",
    "carefully final deposits",
    "naïve",
    "→",
    "日本語テキスト",
    "🦀🦀🦀🦀",
    "\0zero",
    "exactly12byt",
];

fn text(shape: Shape, index: usize, random: &mut impl Rng) -> String {
    match shape {
        Shape::Small => (*WORDS.choose(random).unwrap()).to_owned(),
        Shape::Narrow => format!("Customer#{:09}", random.random_range(0..100_000)),
        Shape::Unique => format!("https://example.org/résumé/{index:07}"),
        Shape::Extreme => match random.random_range(0..6) {
            0 => String::new(),
            1 => "\0".repeat(random.random_range(1..20)),
            2 => "\u{10ffff}".repeat(random.random_range(1..6)),
            3 => "x".repeat(random.random_range(0..300)),
            4 => "same prefix of sixteen".to_owned() + WORDS.choose(random).unwrap(),
            _ => "same prefix of sixteen\0".to_owned(),
        },
        _ => {
            let words = random.random_range(0..6);
            (0..words).map(|_| *WORDS.choose(random).unwrap()).collect::<Vec<_>>().join(" ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_reproducible_and_cover_all_sizes() {
        let (first, second) = (tables(3), tables(3));
        for (left, right) in first.iter().zip(&second) {
            assert_eq!(left.batches, right.batches, "{}", left.name);
        }
        let sizes: Vec<usize> =
            first.iter().map(|table| table.batches.iter().map(RecordBatch::num_rows).sum()).collect();
        assert!(SIZES.iter().all(|size| sizes.contains(size)), "{sizes:?}");
        let all_null = |table: &TestTable| {
            table
                .batches
                .iter()
                .any(|batch| batch.columns().iter().any(|column| column.null_count() == batch.num_rows()))
        };
        assert!(first.iter().any(all_null));
    }
}
