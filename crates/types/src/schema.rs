//! The columns of a table.

use std::sync::{Arc, OnceLock};

use arrow_schema::{Field, SchemaRef};
use serde::{Deserialize, Serialize};

use crate::{LogicalType, UnsupportedType};

/// The place of a column in its table's schema, counted from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ColumnIndex(pub u32);

impl ColumnIndex {
    /// As an index into a slice with one element per column.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl From<usize> for ColumnIndex {
    fn from(index: usize) -> Self {
        Self(index as u32)
    }
}

/// A column: name, type, and whether it may hold nulls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Name, unique in the table.
    pub name: String,
    /// Type of the values.
    #[serde(rename = "type")]
    pub logical_type: LogicalType,
    /// Whether values may be null.
    pub nullable: bool,
}

impl Column {
    /// A column.
    pub fn new(name: impl Into<String>, logical_type: LogicalType, nullable: bool) -> Self {
        Self { name: name.into(), logical_type, nullable }
    }
}

/// The columns of a table, in order.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Schema {
    columns: Vec<Column>,
    /// Made when it is first asked for: a statement asks several times, and tables can have thousands of columns.
    #[serde(skip)]
    arrow: OnceLock<SchemaRef>,
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        self.columns == other.columns
    }
}

impl Eq for Schema {}

/// Why columns make no schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// A table has at least one column.
    #[error("a table needs at least one column")]
    NoColumns,
    /// A table has at most [`Schema::COLUMNS_MAX`] columns.
    #[error("a table has at most {} columns, here are {found}", Schema::COLUMNS_MAX)]
    TooManyColumns {
        /// How many were given.
        found: usize,
    },
    /// Two columns share a name.
    #[error("column {name:?} is named twice")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// A type that is not stored.
    #[error(transparent)]
    Unsupported(#[from] UnsupportedType),
}

impl Schema {
    /// The most columns a table can have.
    pub const COLUMNS_MAX: usize = 16_384;

    /// A schema of these columns.
    ///
    /// # Errors
    /// When there are none or too many, or two share a name.
    pub fn new(columns: Vec<Column>) -> Result<Self, SchemaError> {
        if columns.is_empty() {
            return Err(SchemaError::NoColumns);
        }
        if columns.len() > Self::COLUMNS_MAX {
            return Err(SchemaError::TooManyColumns { found: columns.len() });
        }
        let mut names = std::collections::HashSet::new();
        if let Some(twice) = columns.iter().find(|column| !names.insert(column.name.as_str())) {
            return Err(SchemaError::DuplicateName { name: twice.name.clone() });
        }
        Ok(Self { columns, arrow: OnceLock::new() })
    }

    /// The schema that stores what an Arrow schema describes.
    ///
    /// # Errors
    /// When a type is not stored, or the columns make no schema.
    pub fn from_arrow(arrow: &arrow_schema::Schema) -> Result<Self, SchemaError> {
        let column = |field: &Arc<Field>| match LogicalType::from_arrow(field.data_type()) {
            Some(logical_type) => Ok(Column::new(field.name(), logical_type, field.is_nullable())),
            None => Err(UnsupportedType { column: field.name().clone(), found: field.data_type().to_string() }),
        };
        Self::new(arrow.fields().iter().map(column).collect::<Result<_, _>>()?)
    }

    /// The Arrow schema in which batches of this table enter and leave the storage rooms.
    pub fn arrow(&self) -> SchemaRef {
        let field = |column: &Column| Field::new(&column.name, column.logical_type.arrow(), column.nullable);
        let make = || Arc::new(arrow_schema::Schema::new(self.columns.iter().map(field).collect::<Vec<_>>()));
        Arc::clone(self.arrow.get_or_init(make))
    }

    /// The columns in order.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// One column.
    ///
    /// # Panics
    /// When the index lies outside the schema.
    pub fn column(&self, index: ColumnIndex) -> &Column {
        &self.columns[index.index()]
    }

    /// The place of a column, by its exact name.
    pub fn index_of(&self, name: &str) -> Option<ColumnIndex> {
        self.columns.iter().position(|column| column.name == name).map(ColumnIndex::from)
    }

    /// Number of columns.
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Never true: a table has at least one column.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }
}
