//! Tables with delta rows and deleted rows return the same results as tables that have the same rows in blocks.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringViewArray};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{Int64Type, UInt64Type};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::catalog::{
    CatalogProvider, MemoryCatalogProvider, MemorySchemaProvider, SchemaProvider, TableProvider,
};
use datafusion::prelude::SessionContext;
use taut_block::BlockBuilder;
use taut_sql::{CATALOG, UNQUALIFIED};
use taut_store::{CommitError, RowId, Store, Synchronous, Table};
use taut_types::{Column, LogicalType, Schema, TableDesign};

use crate::exec::scan::TautTable;
use crate::plan::engine::Engine;
use crate::runtime::spill::SpillDirectory;

/// Rows of the first block: two segments.
const FIRST: i64 = 70_000;
/// End of the second block. All of its rows are deleted.
const BLOCKS: i64 = 73_000;
/// End of the rows in delta pages. The first 2,000 are in one page; the last 300 are in a second one, to which later
/// inserts append.
const ROWS: i64 = 75_300;

fn schema() -> Schema {
    Schema::new(vec![
        Column::new("id", LogicalType::BigInt, false),
        Column::new("k", LogicalType::Integer, true),
        Column::new("x", LogicalType::Double, true),
        Column::new("s", LogicalType::Varchar, true),
    ])
    .unwrap()
}

pub fn rows(ids: impl Iterator<Item = i64>) -> RecordBatch {
    let ids: Vec<i64> = ids.collect();
    let double = |id: &i64| match id % 9 {
        0 => Some(-0.0),
        1 => Some(0.0),
        2 => Some(f64::NAN),
        3 => None,
        other => Some(other as f64 - 6.5),
    };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(ids.clone())),
        Arc::new(ids.iter().map(|id| (id % 11 != 0).then_some((id % 7) as i32)).collect::<Int32Array>()),
        Arc::new(ids.iter().map(double).collect::<Float64Array>()),
        Arc::new(ids.iter().map(|id| (id % 17 != 0).then(|| format!("s{}", id % 13))).collect::<StringViewArray>()),
    ];
    RecordBatch::try_new(schema().arrow(), columns).unwrap()
}

fn is_deleted(id: i64) -> bool {
    id % 5 == 0 || (FIRST..BLOCKS).contains(&id)
}

/// Creates a table with one block for each batch of rows.
pub fn create(store: &Store, name: &str, blocks: &[RecordBatch]) {
    create_in_layouts(store, name, blocks, &["column"]);
}

/// Like [`create`], with blocks in these layouts in rotation. The design of the table has the first layout.
fn create_in_layouts(store: &Store, name: &str, blocks: &[RecordBatch], layouts: &[&str]) {
    let schema = Arc::new(schema());
    let designs = layouts.iter().map(|layout| {
        let options = [("sort_by", "id"), ("layout", *layout)];
        Arc::new(TableDesign::from_options(options, &schema).unwrap())
    });
    let designs: Vec<_> = designs.collect();
    let design = Arc::clone(&designs[0]);
    let blocks = blocks.iter().zip(designs.iter().cycle()).map(|(rows, design)| {
        let mut builder = BlockBuilder::new(Arc::clone(&schema), Arc::clone(design));
        builder.push(rows).unwrap();
        store.write_block(&builder.finish().unwrap(), design).unwrap()
    });
    let blocks: Vec<_> = blocks.collect();
    let create = |edit: &mut taut_store::CatalogEdit| {
        let table = edit.create_table(name, schema.as_ref().clone(), design.as_ref().clone())?;
        edit.append_blocks(table, blocks)
    };
    store.commit::<_, CommitError>(create).unwrap();
}

/// The stored table with this name.
pub fn stored(store: &Store, name: &str) -> Arc<Table> {
    Arc::clone(store.snapshot().table(name).unwrap())
}

/// A session with all tables, and with row ids in table `t`.
pub fn session(store: &Arc<Store>) -> SessionContext {
    let context = Engine::new(2, 1 << 30, SpillDirectory::new(None)).unwrap().context();
    let public = MemorySchemaProvider::new();
    for table in store.snapshot().tables() {
        let (store, table) = (Arc::clone(store), Arc::clone(table));
        let name = table.name.clone();
        let provider: Arc<dyn TableProvider> = match name.as_str() {
            "t" => Arc::new(TautTable::with_row_ids(store, table)),
            _ => Arc::new(TautTable::new(store, table, None, None)),
        };
        public.register_table(name, provider).unwrap();
    }
    let catalog = MemoryCatalogProvider::new();
    catalog.register_schema(UNQUALIFIED, Arc::new(public)).unwrap();
    context.register_catalog(CATALOG, Arc::new(catalog));
    context
}

async fn run_query(context: &SessionContext, query: &str) -> Vec<RecordBatch> {
    let frame = context.sql(query).await.unwrap_or_else(|error| panic!("{query}: {error}"));
    frame.collect().await.unwrap_or_else(|error| panic!("{query}: {error}"))
}

/// Database with table `t`, which has deleted rows and optionally rows in delta pages, and table `m`, which has the
/// remaining rows in blocks.
pub async fn database(has_pages: bool) -> Arc<Store> {
    let store = Arc::new(Store::in_memory().unwrap());
    create(&store, "t", &[rows(0..FIRST), rows(FIRST..BLOCKS)]);
    let end = if has_pages { ROWS } else { BLOCKS };
    create(&store, "m", &[rows((0..end).filter(|id| !is_deleted(*id)))]);
    let transaction = store.begin();
    let id = stored(&store, "t").id;
    if has_pages {
        transaction.insert_rows(id, &rows(BLOCKS..ROWS - 300)).unwrap();
        transaction.insert_rows(id, &rows(ROWS - 300..ROWS)).unwrap();
    }
    transaction.commit(Synchronous::Off).unwrap();
    let found = run_query(&session(&store), r#"SELECT id, "taut row" FROM t"#).await;
    let mut deleted = Vec::new();
    for batch in &found {
        let (ids, row_ids) =
            (batch.column(0).as_primitive::<Int64Type>(), batch.column(1).as_primitive::<UInt64Type>());
        let deleted_ids = ids.values().iter().zip(row_ids.values()).filter(|(id, _)| is_deleted(**id));
        deleted.extend(deleted_ids.map(|(_, row_id)| RowId(*row_id)));
    }
    let transaction = store.begin();
    transaction.delete_rows(id, &deleted.into_iter().collect()).await.unwrap();
    transaction.commit(Synchronous::Off).unwrap();
    assert_eq!(stored(&store, "t").rows(), stored(&store, "m").rows());
    store
}

const QUERIES: &[&str] = &[
    "SELECT count(*) FROM t",
    "SELECT count(*), count(k), min(id), max(id) FROM t",
    "SELECT count(*), sum(id), min(k), max(s), avg(k), count(DISTINCT s) FROM t",
    "SELECT k, count(*), sum(id), max(s) FROM t GROUP BY k ORDER BY k",
    "SELECT s, k, count(*), min(id) FROM t WHERE id > 100 GROUP BY s, k ORDER BY s, k",
    "SELECT k, sum(id) FROM t WHERE id >= 72000 GROUP BY k ORDER BY k",
    "SELECT sum(id) FROM t WHERE id > 1000000",
    "SELECT id, k, x, s FROM t WHERE id IN (1, 4, 65535, 65536, 70001, 73001, 75000, 75001, 75299) ORDER BY id",
    "SELECT id, s FROM t ORDER BY id LIMIT 20",
    "SELECT id, s FROM t ORDER BY id DESC LIMIT 20",
    "SELECT s, id FROM t ORDER BY s, id DESC LIMIT 20",
    "SELECT count(*) FROM (SELECT id FROM t LIMIT 57000)",
    "SELECT count(*), sum(id) FROM t WHERE x = 0.0",
    "SELECT count(*), sum(id) FROM t WHERE x < 0.0",
    "SELECT count(*), sum(id) FROM t WHERE x >= '-0.0'::double precision",
    "SELECT count(*), sum(id) FROM t WHERE x = 'NaN'::double precision",
    "SELECT count(*), sum(id) FROM t WHERE NOT (x > 1.0)",
    "SELECT count(*), sum(id) FROM t WHERE x IS NULL AND s LIKE 's1%'",
    "SELECT count(*), sum(id) FROM t WHERE s NOT IN ('s1', 's2') AND k <> 3",
    "SELECT count(*), sum(id) FROM t WHERE s IN ('s1', 's2') OR k = 3",
    // The division would fail on rows that are deleted or that the first condition rules out.
    "SELECT count(*), sum(id) FROM t WHERE 100 / (id % 5) > 30",
    "SELECT count(*), sum(id) FROM t WHERE k > 2 AND 100 / k > 20",
    "SELECT count(*), sum(t.id) FROM t JOIN (SELECT id AS other FROM t WHERE id % 1000 = 1) u ON t.id = u.other",
    "SELECT count(*) FROM t WHERE k = (SELECT max(k) FROM t WHERE s = 's1')",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_are_the_same_as_with_blocks_only() {
    for has_pages in [false, true] {
        let store = database(has_pages).await;
        let context = session(&store);
        for query in QUERIES {
            let expected = run_query(&context, &query.replace("FROM t", "FROM m AS t")).await;
            let found = run_query(&context, query).await;
            let text = |batches: &[RecordBatch]| pretty_format_batches(batches).unwrap().to_string();
            assert_eq!(text(&found), text(&expected), "{query}, with pages: {has_pages}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_ids_address_their_rows() {
    let store = database(true).await;
    let (context, table) = (session(&store), stored(&store, "t"));
    let found = run_query(&context, r#"SELECT "taut row", id, "taut row" AS again FROM t WHERE x IS NOT NULL"#).await;
    let mut row_ids = BTreeSet::new();
    for batch in &found {
        let column = |index: usize| batch.column(index).as_primitive::<UInt64Type>().values();
        assert_eq!(column(0), column(2));
        for (row_id, id) in column(0).iter().zip(batch.column(1).as_primitive::<Int64Type>().values()) {
            let row_id = RowId(*row_id);
            let index = (row_id.segment() as i64) << 16 | i64::from(row_id.row());
            let first = match *id {
                ..FIRST => {
                    assert_eq!(u64::from(row_id.container().0), table.blocks[0].id().0);
                    0
                }
                _ if row_id.container() == table.delta.pages()[0].id() => BLOCKS,
                _ => ROWS - 300,
            };
            assert_eq!(first + index, *id, "{row_id}");
            row_ids.insert(row_id);
        }
    }
    assert_eq!(row_ids.len(), found.iter().map(RecordBatch::num_rows).sum::<usize>());
    let last = row_ids.last().unwrap().0;
    let one = run_query(&context, &format!(r#"SELECT count(*) FROM t WHERE "taut row" >= {last} AND id > 0"#)).await;
    assert_eq!(one[0].column(0).as_primitive::<Int64Type>().value(0), 1);
    let grouped =
        run_query(&context, r#"SELECT "taut row", count(*) FROM t WHERE id < 10 GROUP BY 1 ORDER BY 1"#).await;
    assert_eq!(grouped.iter().map(RecordBatch::num_rows).sum::<usize>(), 8);
}

/// Numbers in columnar blocks are appended, numbers in row layouts and pages are copied. Strings are always copied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_several_segments_share_batches_in_order() {
    const BLOCK: i64 = 140_000;
    let store = Arc::new(Store::in_memory().unwrap());
    let blocks: Vec<RecordBatch> = (0..5).map(|block| rows(block * BLOCK..(block + 1) * BLOCK)).collect();
    create_in_layouts(&store, "t", &blocks, &["column", "column", "packed_row", "column", "row"]);
    let transaction = store.begin();
    transaction.insert_rows(stored(&store, "t").id, &rows(5 * BLOCK..5 * BLOCK + 900)).unwrap();
    transaction.commit(Synchronous::Off).unwrap();
    let all = 0..5 * BLOCK + 900;
    for (condition, passes) in [
        ("id >= 0", (|_| true) as fn(i64) -> bool),
        ("id % 2 = 1", |id| id % 2 == 1),
        ("id % 1000 = 7", |id| id % 1000 == 7),
        ("id IN (3, 139999, 140000, 300000, 420001, 600000, 700899)", |id| {
            [3, 139_999, 140_000, 300_000, 420_001, 600_000, 700_899].contains(&id)
        }),
    ] {
        for (columns, batch_rows) in [("id, k, x", 300_000), ("id, k, x", 8_192), ("id, k", 1_000), ("id, s", 300_000)]
        {
            let context = session(&store);
            for setting in [format!("batch_size = {batch_rows}"), "target_partitions = 1".to_owned()] {
                run_query(&context, &format!("SET datafusion.execution.{setting}")).await;
            }
            let found = run_query(&context, &format!("SELECT {columns} FROM t WHERE {condition}")).await;
            let expected: Vec<i64> = all.clone().filter(|id| passes(*id)).collect();
            let expected = rows(expected.into_iter());
            let names: Vec<usize> = columns.split(", ").map(|name| schema().arrow().index_of(name).unwrap()).collect();
            let joined = concat_batches(&found[0].schema(), &found).unwrap();
            assert_eq!(joined.columns(), expected.project(&names).unwrap().columns(), "{columns} where {condition}");
            assert!(found.iter().all(|batch| (1..=batch_rows).contains(&batch.num_rows())));
            if batch_rows > 8_192 && columns == "id, k, x" {
                // The segments of columnar blocks share batches, so there are fewer batches than the 15 segments.
                assert!(found.iter().filter(|batch| batch.num_rows() > 0).count() <= 12, "{condition}");
            }
        }
    }
}

#[tokio::test]
async fn plans_show_delta_and_deleted_rows() {
    let store = database(true).await;
    let context = session(&store);
    let plan = pretty_format_batches(&run_query(&context, "EXPLAIN SELECT sum(id) FROM t WHERE k = 1").await).unwrap();
    let (plan, delta) = (plan.to_string(), &stored(&store, "t").delta);
    let expected = format!("blocks=2, delta_rows={}, deleted={}", delta.rows(), delta.deleted_block_rows());
    assert!(plan.contains(&expected) && plan.contains("TautAggregate"), "{plan}");
    let plan = pretty_format_batches(&run_query(&context, "EXPLAIN SELECT id FROM m").await).unwrap().to_string();
    assert!(!plan.contains("delta_rows") && !plan.contains("deleted"), "{plan}");
}
