//! The schema `information_schema`, as in the SQL standard: tables, views, columns, constraints and sequences.
//! DataFusion provides its tables of settings and functions.
//!
//! DataFusion's own tables of columns and views fail if any view cannot be planned, for example because it reads a
//! missing file. Here such a view has no columns.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, Int32Array, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema as ArrowSchema};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::information_schema::InformationSchemaProvider;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::common::Result;
use datafusion::datasource::MemTable;
use taut_sql::{CATALOG, INFORMATION_SCHEMA, SYSTEM, SYSTEM_SCHEMAS, type_name};
use taut_store::{Catalog, Constraints, Identity, ReferentialAction, Table, TableId};
use taut_types::{ColumnIndex, LogicalType, is_temporary_relation, split_relation_name, unqualified_name};

use super::catalog::StatementCatalog;
use super::system_tables::SystemTable;

/// A nullable value in a row.
#[derive(Clone)]
enum Cell {
    Text(Option<String>),
    Number(Option<i32>),
}

type Row = Vec<Cell>;

/// Declaration of a table of `information_schema`. A `#` before a column name marks an integer column; other columns
/// are text.
struct StandardTable {
    name: &'static str,
    columns: &'static [&'static str],
}

const TABLES: [StandardTable; 9] = [
    StandardTable {
        name: "check_constraints",
        columns: &["constraint_catalog", "constraint_schema", "constraint_name", "check_clause"],
    },
    StandardTable {
        name: "columns",
        columns: &[
            "table_catalog",
            "table_schema",
            "table_name",
            "column_name",
            "#ordinal_position",
            "column_default",
            "is_nullable",
            "data_type",
            "#character_maximum_length",
            "#numeric_precision",
            "#numeric_precision_radix",
            "#numeric_scale",
            "#datetime_precision",
            "is_identity",
            "identity_generation",
            "identity_start",
            "identity_increment",
            "identity_maximum",
            "identity_minimum",
            "identity_cycle",
            "is_generated",
            "generation_expression",
            "is_updatable",
        ],
    },
    StandardTable {
        name: "key_column_usage",
        columns: &[
            "constraint_catalog",
            "constraint_schema",
            "constraint_name",
            "table_catalog",
            "table_schema",
            "table_name",
            "column_name",
            "#ordinal_position",
            "#position_in_unique_constraint",
        ],
    },
    StandardTable {
        name: "referential_constraints",
        columns: &[
            "constraint_catalog",
            "constraint_schema",
            "constraint_name",
            "unique_constraint_catalog",
            "unique_constraint_schema",
            "unique_constraint_name",
            "match_option",
            "update_rule",
            "delete_rule",
        ],
    },
    StandardTable { name: "schemata", columns: &["catalog_name", "schema_name", "schema_owner"] },
    StandardTable {
        name: "sequences",
        columns: &[
            "sequence_catalog",
            "sequence_schema",
            "sequence_name",
            "data_type",
            "#numeric_precision",
            "#numeric_precision_radix",
            "#numeric_scale",
            "start_value",
            "minimum_value",
            "maximum_value",
            "increment",
            "cycle_option",
        ],
    },
    StandardTable {
        name: "table_constraints",
        columns: &[
            "constraint_catalog",
            "constraint_schema",
            "constraint_name",
            "table_catalog",
            "table_schema",
            "table_name",
            "constraint_type",
            "is_deferrable",
            "initially_deferred",
            "enforced",
        ],
    },
    StandardTable {
        name: "tables",
        columns: &["table_catalog", "table_schema", "table_name", "table_type", "is_insertable_into"],
    },
    StandardTable {
        name: "views",
        columns: &["table_catalog", "table_schema", "table_name", "view_definition", "check_option", "is_updatable"],
    },
];

/// The schema `information_schema`, with the relations that one statement can read.
#[derive(Debug)]
pub struct InformationSchema {
    catalog: StatementCatalog,
    engine: InformationSchemaProvider,
}

impl InformationSchema {
    pub fn new(catalog: &StatementCatalog) -> Self {
        Self { catalog: catalog.clone(), engine: InformationSchemaProvider::new(Arc::new(catalog.clone())) }
    }

    async fn rows(&self, table: &str) -> Vec<Row> {
        let snapshot = &self.catalog.snapshot;
        match table {
            "check_constraints" => snapshot.tables().flat_map(|table| check_constraints(table)).collect(),
            "columns" => self.columns().await,
            "key_column_usage" => snapshot.tables().flat_map(|table| key_columns(table, snapshot)).collect(),
            "referential_constraints" => snapshot.tables().flat_map(|table| references(table, snapshot)).collect(),
            "schemata" => {
                let schema = |name: &str| vec![text(CATALOG), text(name), text(CATALOG)];
                SYSTEM_SCHEMAS.into_iter().chain(snapshot.schemas()).map(schema).collect()
            }
            "sequences" => sequences(snapshot),
            "table_constraints" => snapshot.tables().flat_map(|table| table_constraints(table)).collect(),
            "tables" => self.tables(),
            _ => {
                let view = |name: &str, sql: &str| {
                    [of_relation(name), vec![text(sql), text("NONE"), text("NO")]].concat_rows()
                };
                snapshot.views().map(|defined| view(&defined.name, &defined.sql)).collect()
            }
        }
    }

    fn tables(&self) -> Vec<Row> {
        let snapshot = &self.catalog.snapshot;
        let row = |relation: Row, kind: &str, is_changed: bool| {
            [relation, vec![text(kind), yes_no(is_changed)]].concat_rows()
        };
        let kind = |id: TableId| if id.is_temporary() { "LOCAL TEMPORARY" } else { "BASE TABLE" };
        let tables = snapshot.tables().map(|table| row(of_relation(&table.name), kind(table.id), true));
        let kind = |view: &str| if is_temporary_relation(view) { "LOCAL TEMPORARY" } else { "VIEW" };
        let views = snapshot.views().map(|view| row(of_relation(&view.name), kind(&view.name), false));
        let system = SystemTable::ALL.iter().map(|table| row(of(SYSTEM, table.name), "VIEW", false));
        let own = TABLES.iter().map(|table| row(of(INFORMATION_SCHEMA, table.name), "VIEW", false));
        tables.chain(views).chain(system).chain(own).collect()
    }

    async fn columns(&self) -> Vec<Row> {
        let snapshot = &self.catalog.snapshot;
        let mut rows: Vec<Row> = snapshot.tables().flat_map(|table| columns_of_table(table, snapshot)).collect();
        for view in snapshot.views() {
            // A view that cannot be planned has no columns.
            let Some(arrow) = self.catalog.columns_of_view(&view.name).await else { continue };
            rows.extend(columns_of_query(&of_relation(&view.name), &arrow));
        }
        let Some(system) = self.catalog.schema(SYSTEM) else { return rows };
        for name in system.table_names() {
            let Ok(Some(table)) = system.table(&name).await else { continue };
            rows.extend(columns_of_query(&of(SYSTEM, &name), &table.schema()));
        }
        rows
    }
}

#[async_trait]
impl SchemaProvider for InformationSchema {
    fn table_names(&self) -> Vec<String> {
        let own = TABLES.iter().map(|table| table.name.to_owned());
        let is_own = |name: &String| TABLES.iter().any(|table| table.name == name);
        own.chain(self.engine.table_names().into_iter().filter(|name| !is_own(name))).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let Some(shape) = TABLES.iter().find(|table| table.name == name) else { return self.engine.table(name).await };
        let batch = shape.batch(self.rows(name).await)?;
        Ok(Some(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?)))
    }

    fn table_exist(&self, name: &str) -> bool {
        TABLES.iter().any(|table| table.name == name) || self.engine.table_exist(name)
    }
}

impl StandardTable {
    fn batch(&self, rows: Vec<Row>) -> Result<RecordBatch> {
        let mut columns: Vec<Vec<Cell>> = self.columns.iter().map(|_| Vec::with_capacity(rows.len())).collect();
        for row in rows {
            columns.iter_mut().zip(row).for_each(|(column, cell)| column.push(cell));
        }
        let (mut fields, mut arrays): (Vec<Field>, Vec<ArrayRef>) = (Vec::new(), Vec::new());
        for (name, cells) in self.columns.iter().zip(columns) {
            let (name, is_number) = name.strip_prefix('#').map_or((*name, false), |name| (name, true));
            let (data_type, array): (_, ArrayRef) = match is_number {
                true => {
                    let numbers =
                        cells.into_iter().map(|cell| if let Cell::Number(number) = cell { number } else { None });
                    (DataType::Int32, Arc::new(numbers.collect::<Int32Array>()))
                }
                false => {
                    let texts = cells.into_iter().map(|cell| if let Cell::Text(text) = cell { text } else { None });
                    (DataType::Utf8, Arc::new(texts.collect::<StringArray>()))
                }
            };
            fields.push(Field::new(name, data_type, true));
            arrays.push(array);
        }
        Ok(RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), arrays)?)
    }
}

/// Concatenates parts of a row.
trait ConcatRows {
    fn concat_rows(self) -> Row;
}

impl<const N: usize> ConcatRows for [Row; N] {
    fn concat_rows(self) -> Row {
        self.into_iter().flatten().collect()
    }
}

fn text(value: impl Into<String>) -> Cell {
    Cell::Text(Some(value.into()))
}

fn number(value: usize) -> Cell {
    Cell::Number(i32::try_from(value).ok())
}

fn yes_no(value: bool) -> Cell {
    text(if value { "YES" } else { "NO" })
}

/// The three columns that identify an object of a schema: catalog, schema and name.
fn of(schema: &str, name: &str) -> Row {
    vec![text(CATALOG), text(schema), text(name)]
}

/// The three columns that identify a relation.
fn of_relation(relation: &str) -> Row {
    let (schema, name) = split_relation_name(relation);
    of(&schema, &name)
}

/// The three columns that identify a constraint, which is in the schema of its table.
fn of_constraint(table: &Table, name: &str) -> Row {
    of(&split_relation_name(&table.name).0, name)
}

/// Name of a type in the SQL standard.
fn standard_name(logical: LogicalType) -> String {
    match logical {
        LogicalType::Decimal { .. } => "numeric".to_owned(),
        LogicalType::Timestamp => "timestamp without time zone".to_owned(),
        LogicalType::TimestampTz => "timestamp with time zone".to_owned(),
        LogicalType::Varchar => "character varying".to_owned(),
        other => other.sql_name(),
    }
}

/// Precision, radix and scale of a numeric type; nulls for other types.
fn precision(logical: LogicalType) -> [Cell; 3] {
    let (precision, radix, scale) = match logical {
        LogicalType::SmallInt => (Some(16), Some(2), Some(0)),
        LogicalType::Integer => (Some(32), Some(2), Some(0)),
        LogicalType::BigInt => (Some(64), Some(2), Some(0)),
        LogicalType::Real => (Some(24), Some(2), None),
        LogicalType::Double => (Some(53), Some(2), None),
        LogicalType::Decimal { precision, scale } => (Some(precision.into()), Some(10), Some(scale.into())),
        _ => (None, None, None),
    };
    [precision, radix, scale].map(Cell::Number)
}

/// A column of a table or view.
struct ColumnRow<'a> {
    name: &'a str,
    is_nullable: bool,
    name_of_type: String,
    /// `None` if no table can store the type.
    logical: Option<LogicalType>,
}

/// Source of a column's values in an `INSERT` that omits the column.
#[derive(Default)]
struct ColumnSource<'a> {
    default: Option<String>,
    identity: Option<(Identity, &'a taut_store::Sequence)>,
    /// Expression of a generated column.
    generated: Option<&'a String>,
}

impl ColumnRow<'_> {
    fn row(self, table: Row, index: usize, values: ColumnSource<'_>, is_updatable: bool) -> Row {
        let ColumnSource { default, identity, generated } = values;
        let [precision, radix, scale] = self.logical.map_or([(); 3].map(|()| Cell::Number(None)), precision);
        let datetime = match self.logical {
            Some(LogicalType::Date) => Some(0),
            Some(LogicalType::Timestamp | LogicalType::TimestampTz) => Some(6),
            _ => None,
        };
        let generation = identity.map(|(identity, _)| match identity {
            Identity::Always => "ALWAYS".to_owned(),
            Identity::ByDefault => "BY DEFAULT".to_owned(),
        });
        let of_sequence =
            |value: fn(&taut_store::Sequence) -> String| Cell::Text(identity.map(|(_, sequence)| value(sequence)));
        let column = vec![
            text(self.name),
            number(index + 1),
            Cell::Text(default),
            yes_no(self.is_nullable),
            text(self.name_of_type),
            Cell::Number(None),
            precision,
            radix,
            scale,
            Cell::Number(datetime),
            yes_no(identity.is_some()),
            Cell::Text(generation),
            of_sequence(|sequence| sequence.start.to_string()),
            of_sequence(|sequence| sequence.increment.to_string()),
            of_sequence(|sequence| sequence.max.to_string()),
            of_sequence(|sequence| sequence.min.to_string()),
            yes_no(identity.is_some_and(|(_, sequence)| sequence.cycles)),
            text(if generated.is_some() { "ALWAYS" } else { "NEVER" }),
            Cell::Text(generated.cloned()),
            yes_no(is_updatable),
        ];
        [table, column].concat_rows()
    }
}

/// The columns of a view or system table.
fn columns_of_query(relation: &[Cell], arrow: &ArrowSchema) -> Vec<Row> {
    let row = |(index, field): (usize, &Arc<Field>)| {
        let logical = LogicalType::from_arrow(field.data_type());
        let name_of_type = logical.map_or_else(|| type_name(field.data_type()), standard_name);
        let column = ColumnRow { name: field.name(), is_nullable: true, name_of_type, logical };
        column.row(relation.to_vec(), index, ColumnSource::default(), false)
    };
    arrow.fields().iter().enumerate().map(row).collect()
}

fn columns_of_table(table: &Table, catalog: &Catalog) -> Vec<Row> {
    let constraints = &table.constraints;
    let row = |(index, position): (usize, ColumnIndex)| {
        let column = table.schema.column(position);
        let owned = constraints.sequences.get(&position);
        let identity = owned.and_then(|owned| Some((owned.identity?, catalog.sequence_of(owned.sequence)?)));
        let default = constraints.defaults.get(&position).filter(|_| identity.is_none()).cloned();
        let shown = ColumnRow {
            name: &column.name,
            is_nullable: column.nullable,
            name_of_type: standard_name(column.logical_type),
            logical: Some(column.logical_type),
        };
        let values = ColumnSource { default, identity, generated: constraints.generated.get(&position) };
        shown.row(of_relation(&table.name), index, values, true)
    };
    table.visible_columns().enumerate().map(row).collect()
}

fn table_constraints(table: &Table) -> Vec<Row> {
    let constraints = &table.constraints;
    let row = |name: &str, kind: &str| {
        let flags = vec![text(kind), text("NO"), text("NO"), text("YES")];
        [of_constraint(table, name), of_relation(&table.name), flags].concat_rows()
    };
    let keys = constraints.keys.iter().filter(|key| !key.is_index);
    let keys = keys.map(|key| row(&key.name, if key.is_primary { "PRIMARY KEY" } else { "UNIQUE" }));
    let checks = constraints.checks.iter().map(|check| row(&check.name, "CHECK"));
    let not_null = not_null_names(table).into_iter().map(|(name, _)| row(&name, "CHECK"));
    let foreign = constraints.foreign_keys.iter().map(|key| row(&key.name, "FOREIGN KEY"));
    keys.chain(checks).chain(not_null).chain(foreign).collect()
}

fn check_constraints(table: &Table) -> Vec<Row> {
    let row = |name: &str, clause: String| [of_constraint(table, name), vec![text(clause)]].concat_rows();
    let checks = table.constraints.checks.iter().map(|check| row(&check.name, check.condition.clone()));
    let not_null = not_null_names(table).into_iter().map(|(name, column)| row(&name, format!("{column} IS NOT NULL")));
    checks.chain(not_null).collect()
}

/// Returns a generated name and the column of each `NOT NULL` constraint. These constraints have no stored names.
fn not_null_names(table: &Table) -> Vec<(String, String)> {
    let columns = table.schema.columns().iter().filter(|column| !column.nullable);
    columns
        .map(|column| (format!("{}_{}_not_null", unqualified_name(&table.name), column.name), column.name.clone()))
        .collect()
}

fn key_columns(table: &Table, catalog: &Catalog) -> Vec<Row> {
    let row = |name: &str, column: ColumnIndex, index: usize, referenced: Option<usize>| {
        let column = vec![
            text(&table.schema.column(column).name),
            number(index + 1),
            Cell::Number(referenced.and_then(|position| i32::try_from(position + 1).ok())),
        ];
        [of_constraint(table, name), of_relation(&table.name), column].concat_rows()
    };
    let mut rows = Vec::new();
    for key in table.constraints.keys.iter().filter(|key| !key.is_index) {
        rows.extend(key.columns.iter().enumerate().map(|(index, column)| row(&key.name, *column, index, None)));
    }
    for key in &table.constraints.foreign_keys {
        let parent = catalog.table_of(key.table);
        let unique = parent.and_then(|parent| referenced_key(&parent.constraints, &key.referenced));
        for (index, column) in key.columns.iter().enumerate() {
            let position =
                unique.and_then(|unique| unique.columns.iter().position(|other| *other == key.referenced[index]));
            rows.push(row(&key.name, *column, index, position));
        }
    }
    rows
}

/// Returns the key on exactly the given columns, in any order.
pub fn referenced_key<'a>(constraints: &'a Constraints, columns: &[ColumnIndex]) -> Option<&'a taut_store::UniqueKey> {
    let mut keys = constraints.keys.iter();
    keys.find(|key| key.columns.len() == columns.len() && key.columns.iter().all(|column| columns.contains(column)))
}

fn references(table: &Table, catalog: &Catalog) -> Vec<Row> {
    let row = |key: &taut_store::ForeignKey| {
        let parent = catalog.table_of(key.table);
        let unique = parent.and_then(|parent| referenced_key(&parent.constraints, &key.referenced));
        let action = match key.on_delete {
            ReferentialAction::NoAction => "NO ACTION",
            ReferentialAction::Cascade => "CASCADE",
            ReferentialAction::SetNull => "SET NULL",
        };
        let rules = vec![text("NONE"), text("NO ACTION"), text(action)];
        let referenced = of_constraint(parent.map_or(table, AsRef::as_ref), unique.map_or("", |unique| &unique.name));
        [of_constraint(table, &key.name), referenced, rules].concat_rows()
    };
    table.constraints.foreign_keys.iter().map(row).collect()
}

fn sequences(catalog: &Catalog) -> Vec<Row> {
    // As in PostgreSQL, the sequences of identity columns are omitted.
    let is_identity = |sequence: &&taut_store::Sequence| {
        let mut owned = catalog.tables().flat_map(|table| table.constraints.sequences.values());
        owned.any(|owned| owned.sequence == sequence.id && owned.identity.is_some())
    };
    let row = |sequence: &taut_store::Sequence| {
        let numbers = vec![
            text(sequence.start.to_string()),
            text(sequence.min.to_string()),
            text(sequence.max.to_string()),
            text(sequence.increment.to_string()),
            yes_no(sequence.cycles),
        ];
        let name_of_type = vec![text(standard_name(sequence.logical_type))];
        [of_relation(&sequence.name), name_of_type, precision(sequence.logical_type).into(), numbers].concat_rows()
    };
    catalog.sequences().filter(|sequence| !is_identity(sequence)).map(row).collect()
}
