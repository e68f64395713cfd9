//! Generator of the TPC-H tables. Each table is generated in consecutive parts, by several threads.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use taut::Batches;
use tpchgen::generators as rows;
use tpchgen_arrow as arrow;
use tpchgen_arrow::RecordBatchIterator;

/// A table of TPC-H.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    Region,
    Nation,
    Supplier,
    Customer,
    Part,
    PartSupp,
    Orders,
    LineItem,
}

/// The tables that are loaded once, with the default layout and sort order.
pub const PLAIN_TABLES: [Table; 7] =
    [Table::Region, Table::Nation, Table::Supplier, Table::Customer, Table::Part, Table::PartSupp, Table::Orders];

impl Table {
    /// Name of the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Region => "region",
            Self::Nation => "nation",
            Self::Supplier => "supplier",
            Self::Customer => "customer",
            Self::Part => "part",
            Self::PartSupp => "partsupp",
            Self::Orders => "orders",
            Self::LineItem => "lineitem",
        }
    }

    /// Approximate number of rows at a scale factor.
    pub fn rows(self, scale: f64) -> u64 {
        let rows_at_one = match self {
            Self::Region => return 5,
            Self::Nation => return 25,
            Self::Supplier => 10_000.0,
            Self::Customer => 150_000.0,
            Self::Part => 200_000.0,
            Self::PartSupp => 800_000.0,
            Self::Orders => 1_500_000.0,
            Self::LineItem => 6_001_215.0,
        };
        (rows_at_one * scale) as u64
    }

    /// Schema and rows of the table at a scale factor. The rows are in consecutive parts, at most one per thread.
    pub fn generate(self, scale: f64, threads: usize) -> (SchemaRef, Vec<Batches>) {
        const ROWS_PER_PART_MIN: u64 = 10_000;
        let parts_max = self.rows(scale).div_ceil(ROWS_PER_PART_MIN).max(1);
        let parts = i32::try_from(parts_max.min(threads as u64)).unwrap_or(i32::MAX);
        let batches = |part| Box::new(self.part(scale, part, parts).map(Ok)) as Batches;
        (Arc::clone(self.part(scale, 1, parts).schema()), (1..=parts).map(batches).collect())
    }

    fn part(self, scale: f64, part: i32, parts: i32) -> Box<dyn RecordBatchIterator> {
        const BATCH_ROWS: usize = 8_192;
        macro_rules! generator {
            ($arrow:ident, $rows:ident) => {
                Box::new(arrow::$arrow::new(rows::$rows::new(scale, part, parts)).with_batch_size(BATCH_ROWS))
            };
        }
        match self {
            Self::Region => generator!(RegionArrow, RegionGenerator),
            Self::Nation => generator!(NationArrow, NationGenerator),
            Self::Supplier => generator!(SupplierArrow, SupplierGenerator),
            Self::Customer => generator!(CustomerArrow, CustomerGenerator),
            Self::Part => generator!(PartArrow, PartGenerator),
            Self::PartSupp => generator!(PartSuppArrow, PartSuppGenerator),
            Self::Orders => generator!(OrderArrow, OrderGenerator),
            Self::LineItem => generator!(LineItemArrow, LineItemGenerator),
        }
    }
}

/// Generates the text pool from which all comments are taken. Otherwise loading the first table would generate the
/// pool, and the measured time of that table would be too long.
pub fn prepare() {
    let _ = tpchgen::text::TextPool::get_or_init_default();
}

/// Keys of existing orders, spread over the table. Every run returns the same keys.
pub fn order_keys(scale: f64, count: usize) -> Vec<i64> {
    const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
    let orders = Table::Orders.rows(scale).max(1);
    let key = |number: u64| {
        let order = 1 + (number.wrapping_mul(STEP) >> 16) % orders;
        rows::OrderGenerator::make_order_key(i64::try_from(order).unwrap_or(1))
    };
    (0..count as u64).map(key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;

    #[test]
    fn parts_follow_each_other() {
        let (schema, parts) = Table::Orders.generate(0.04, 3);
        assert_eq!(parts.len(), 3);
        let mut keys: Vec<i64> = Vec::new();
        for batch in parts.into_iter().flatten() {
            let batch = batch.unwrap();
            assert_eq!(batch.schema(), schema);
            keys.extend(batch.column(0).as_primitive::<Int64Type>().values());
        }
        assert_eq!(keys.len() as u64, Table::Orders.rows(0.04));
        assert!(keys.is_sorted());
        for key in order_keys(0.04, 100) {
            assert!(keys.binary_search(&key).is_ok(), "{key}");
        }
    }

    #[test]
    fn small_tables_come_in_one_part() {
        assert_eq!(Table::Nation.generate(100.0, 8).1.len(), 1);
    }
}
