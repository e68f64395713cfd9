//! Catalogs about the server, and empty catalogs for kinds of objects that Taut does not have.

use datafusion::common::ScalarValue;
use taut_sql::{CATALOG, FunctionDefinition, FunctionResult, Setting, Volatility};
use taut_store::Function;
use taut_types::unqualified_name;

use super::objects::Objects;
use super::{CatalogRow, CatalogType, SystemCatalog, flag, integer, oid, optional_text, small, text, text_list};

/// Name of the owner of all objects.
pub const OWNER: &str = CATALOG;
/// Oid of the owner of all objects. PostgreSQL's first superuser has the same oid.
pub const OWNER_OID: i64 = 10;
/// Oid of the catalog `pg_class`, which identifies relations in `pg_description`.
pub const PG_CLASS_OID: i64 = 1259;
/// Oid of the catalog `pg_proc`, which identifies functions in `pg_description`.
pub const PG_PROC_OID: i64 = 1255;
/// Oid of the catalog `pg_namespace`, which identifies schemas in `pg_description`.
pub const PG_NAMESPACE_OID: i64 = 2615;
/// Oid of the language SQL, as in PostgreSQL.
const SQL_LANGUAGE_OID: i64 = 14;
/// Oid of the collation of text.
pub const COLLATION_OID: i64 = 100;
/// Oid of the access method of tables.
pub const TABLE_METHOD_OID: i64 = 2;
const DATABASE_OID: i64 = 5;
/// Access methods of indexes, with their oids.
const INDEX_METHODS: [(&str, i64); 2] = [("csb", 16_000), ("bloom", 16_001)];
/// The rows of an empty catalog.
pub const NO_ROWS: fn(&Objects<'_>) -> Vec<CatalogRow> = |_| Vec::new();

/// Oid of an access method of indexes. Returns 0 if the name is unknown.
pub fn index_method_oid(name: &str) -> i64 {
    INDEX_METHODS.iter().find(|(known, _)| *known == name).map_or(0, |(_, oid)| *oid)
}

pub const PG_NAMESPACE: SystemCatalog = SystemCatalog {
    name: "pg_namespace",
    columns: &[
        ("oid", CatalogType::BigInt),
        ("nspname", CatalogType::Text),
        ("nspowner", CatalogType::BigInt),
        ("nspacl", CatalogType::Texts),
    ],
    rows: |objects| {
        let row = |(name, schema): (&String, &i64)| vec![oid(*schema), text(name), oid(OWNER_OID), ScalarValue::Null];
        objects.schemas.iter().map(row).collect()
    },
};

pub const PG_DATABASE: SystemCatalog = SystemCatalog {
    name: "pg_database",
    columns: &[
        ("oid", CatalogType::BigInt),
        ("datname", CatalogType::Text),
        ("datdba", CatalogType::BigInt),
        ("encoding", CatalogType::Integer),
        ("datcollate", CatalogType::Text),
        ("datctype", CatalogType::Text),
        ("datistemplate", CatalogType::Boolean),
        ("datallowconn", CatalogType::Boolean),
        ("datconnlimit", CatalogType::Integer),
    ],
    rows: |_| {
        // Encoding 6 is UTF-8.
        let locale = [integer(6), text("C"), text("C")];
        let flags = [flag(false), flag(true), integer(-1)];
        vec![[vec![oid(DATABASE_OID), text(CATALOG), oid(OWNER_OID)], locale.into(), flags.into()].concat()]
    },
};

pub const PG_ROLES: SystemCatalog = SystemCatalog {
    name: "pg_roles",
    columns: &[
        ("rolname", CatalogType::Text),
        ("rolsuper", CatalogType::Boolean),
        ("rolinherit", CatalogType::Boolean),
        ("rolcreaterole", CatalogType::Boolean),
        ("rolcreatedb", CatalogType::Boolean),
        ("rolcanlogin", CatalogType::Boolean),
        ("oid", CatalogType::BigInt),
    ],
    rows: |_| vec![vec![text(OWNER), flag(true), flag(true), flag(true), flag(true), flag(true), oid(OWNER_OID)]],
};

pub const PG_USER: SystemCatalog = SystemCatalog {
    name: "pg_user",
    columns: &[("usename", CatalogType::Text), ("usesysid", CatalogType::BigInt), ("usesuper", CatalogType::Boolean)],
    rows: |_| vec![vec![text(OWNER), oid(OWNER_OID), flag(true)]],
};

pub const PG_AM: SystemCatalog = SystemCatalog {
    name: "pg_am",
    columns: &[("oid", CatalogType::BigInt), ("amname", CatalogType::Text), ("amtype", CatalogType::Text)],
    rows: |_| {
        let indexes = INDEX_METHODS.iter().map(|(name, method)| vec![oid(*method), text(*name), text("i")]);
        [vec![oid(TABLE_METHOD_OID), text(CATALOG), text("t")]].into_iter().chain(indexes).collect()
    },
};

pub const PG_PROC: SystemCatalog = SystemCatalog {
    name: "pg_proc",
    columns: &[
        ("oid", CatalogType::BigInt),
        ("proname", CatalogType::Text),
        ("pronamespace", CatalogType::BigInt),
        ("proowner", CatalogType::BigInt),
        ("prolang", CatalogType::BigInt),
        ("prokind", CatalogType::Text),
        ("proisstrict", CatalogType::Boolean),
        ("proretset", CatalogType::Boolean),
        ("provolatile", CatalogType::Text),
        ("pronargs", CatalogType::SmallInt),
        ("pronargdefaults", CatalogType::SmallInt),
        ("proargnames", CatalogType::Texts),
        ("prosrc", CatalogType::Text),
    ],
    rows: |objects| {
        let row = |function: &Function| {
            let definition = FunctionDefinition::parse(&function.definition).ok()?;
            let volatility = match definition.volatility {
                Volatility::Immutable => "i",
                Volatility::Stable => "s",
                Volatility::Volatile => "v",
            };
            let names: Vec<String> =
                definition.parameters.iter().map(|parameter| parameter.name.clone().unwrap_or_default()).collect();
            let count = |count: usize| i16::try_from(count).map_or(ScalarValue::Null, small);
            let defaults = definition.parameters.iter().filter(|parameter| parameter.default.is_some()).count();
            Some(vec![
                oid(objects.function_oid(&function.name)),
                text(unqualified_name(&function.name)),
                oid(objects.schema_oid(&function.name)),
                oid(OWNER_OID),
                oid(SQL_LANGUAGE_OID),
                text("f"),
                flag(definition.is_strict),
                flag(!matches!(definition.returns, FunctionResult::Value(_))),
                text(volatility),
                count(definition.parameters.len()),
                count(defaults),
                text_list(&names),
                text(definition.body),
            ])
        };
        objects.catalog.functions().filter_map(row).collect()
    },
};

pub const PG_SETTINGS: SystemCatalog = SystemCatalog {
    name: "pg_settings",
    columns: &[
        ("name", CatalogType::Text),
        ("setting", CatalogType::Text),
        ("short_desc", CatalogType::Text),
        ("reset_val", CatalogType::Text),
    ],
    rows: |objects| {
        let row = |setting: Setting| {
            let info = setting.info();
            let value = text(objects.settings.value(setting));
            vec![text(setting.name()), value, text(info.description), optional_text(info.default)]
        };
        Setting::ALL.into_iter().map(row).collect()
    },
};

pub const PG_COLLATION: SystemCatalog = SystemCatalog {
    name: "pg_collation",
    columns: &[("oid", CatalogType::BigInt), ("collname", CatalogType::Text), ("collnamespace", CatalogType::BigInt)],
    rows: |_| vec![vec![oid(COLLATION_OID), text("default"), oid(super::objects::PG_CATALOG_OID)]],
};

pub const PG_DEPEND: SystemCatalog = SystemCatalog {
    name: "pg_depend",
    columns: &[
        ("classid", CatalogType::BigInt),
        ("objid", CatalogType::BigInt),
        ("objsubid", CatalogType::Integer),
        ("refclassid", CatalogType::BigInt),
        ("refobjid", CatalogType::BigInt),
        ("refobjsubid", CatalogType::Integer),
        ("deptype", CatalogType::Text),
    ],
    rows: |objects| {
        // One row for each sequence that a column owns.
        let owned = objects.tables().flat_map(|(table_oid, table)| {
            let sequences = table.constraints.sequences.iter();
            sequences.filter_map(move |(column, owned)| {
                let sequence = objects.catalog.sequence_of(owned.sequence)?;
                Some(vec![
                    oid(PG_CLASS_OID),
                    oid(objects.relation_oid(&sequence.name)),
                    integer(0),
                    oid(PG_CLASS_OID),
                    oid(table_oid),
                    integer(super::objects::column_number(table, *column).into()),
                    text(if owned.identity.is_some() { "i" } else { "a" }),
                ])
            })
        });
        owned.collect()
    },
};

pub const PG_ENUM: SystemCatalog = SystemCatalog {
    name: "pg_enum",
    columns: &[
        ("oid", CatalogType::BigInt),
        ("enumtypid", CatalogType::BigInt),
        ("enumsortorder", CatalogType::Real),
        ("enumlabel", CatalogType::Text),
    ],
    rows: NO_ROWS,
};

pub const PG_EXTENSION: SystemCatalog = SystemCatalog {
    name: "pg_extension",
    columns: &[
        ("oid", CatalogType::BigInt),
        ("extname", CatalogType::Text),
        ("extnamespace", CatalogType::BigInt),
        ("extversion", CatalogType::Text),
    ],
    rows: NO_ROWS,
};

pub const PG_INHERITS: SystemCatalog = SystemCatalog {
    name: "pg_inherits",
    columns: &[
        ("inhrelid", CatalogType::BigInt),
        ("inhparent", CatalogType::BigInt),
        ("inhseqno", CatalogType::Integer),
    ],
    rows: NO_ROWS,
};

pub const PG_TRIGGER: SystemCatalog = SystemCatalog {
    name: "pg_trigger",
    columns: &[
        ("oid", CatalogType::BigInt),
        ("tgrelid", CatalogType::BigInt),
        ("tgname", CatalogType::Text),
        ("tgisinternal", CatalogType::Boolean),
    ],
    rows: NO_ROWS,
};
