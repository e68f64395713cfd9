//! Declarations of settings, table options, encodings and system tables. `docs/reference` is written from them.

pub use taut_query::{
    Encoding, STATEMENT_OPTIONS, Setting, SettingInfo, SystemColumn, SystemTable, TableDesign, TableOption,
};
