//! Declarations of settings, table options, encodings, system tables and system catalogs. `docs/reference` is written
//! from them.

pub use taut_query::{
    Encoding, STATEMENT_OPTIONS, Setting, SettingInfo, SystemCatalog, SystemColumn, SystemTable, TableDesign,
    TableOption,
};
