//! Schemas: the columns of tables.

use std::cmp::Ordering;
use std::sync::{Arc, OnceLock};

use arrow_schema::{Field, SchemaRef};
use serde::{Deserialize, Serialize};

use crate::logical_type::shown_type;
use crate::{LogicalType, UnsupportedType};

/// Index of a column in the schema of its table, counted from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ColumnIndex(pub u32);

impl ColumnIndex {
    /// The index as a `usize`, for slices with one element per column.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// Index of the same column after another column is dropped. Returns `None` for the dropped column.
    pub fn after_drop(self, dropped: Self) -> Option<Self> {
        match self.cmp(&dropped) {
            Ordering::Less => Some(self),
            Ordering::Equal => None,
            Ordering::Greater => Some(Self(self.0 - 1)),
        }
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
    /// Name of the column, unique in the table.
    pub name: String,
    /// Type of the values.
    #[serde(rename = "type")]
    pub logical_type: LogicalType,
    /// Whether values may be null.
    pub nullable: bool,
}

impl Column {
    /// Column with the given name, type and nullability.
    pub fn new(name: impl Into<String>, logical_type: LogicalType, nullable: bool) -> Self {
        Self { name: name.into(), logical_type, nullable }
    }
}

/// Columns of a table, in order.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Schema {
    columns: Vec<Column>,
    /// Arrow form of the schema, created on first use. A statement reads it several times, and tables can have
    /// thousands of columns.
    #[serde(skip)]
    arrow: OnceLock<SchemaRef>,
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        self.columns == other.columns
    }
}

impl Eq for Schema {}

/// Error: columns do not form a valid schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// A table has at least one column.
    #[error("a table needs at least one column")]
    NoColumns,
    /// A table has at most [`Schema::COLUMNS_MAX`] columns.
    #[error("a table has at most {} columns, found {found}", Schema::COLUMNS_MAX)]
    TooManyColumns {
        /// Number of columns given.
        found: usize,
    },
    /// Two columns have the same name.
    #[error("column {name:?} specified more than once")]
    DuplicateName {
        /// The duplicate name.
        name: String,
    },
    /// A column has a type that is not stored.
    #[error(transparent)]
    Unsupported(#[from] UnsupportedType),
}

impl Schema {
    /// Maximum number of columns of a table.
    pub const COLUMNS_MAX: usize = 16_384;

    /// Schema with the given columns.
    ///
    /// # Errors
    /// If there are no columns or too many, or two have the same name.
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

    /// Schema that can store the columns of an Arrow schema.
    ///
    /// # Errors
    /// If a type is not stored, or the columns do not form a valid schema.
    pub fn from_arrow(arrow: &arrow_schema::Schema) -> Result<Self, SchemaError> {
        let column = |field: &Arc<Field>| match LogicalType::from_arrow(field.data_type()) {
            Some(logical_type) => Ok(Column::new(field.name(), logical_type, field.is_nullable())),
            None => Err(UnsupportedType { column: field.name().clone(), found: shown_type(field.data_type()) }),
        };
        Self::new(arrow.fields().iter().map(column).collect::<Result<_, _>>()?)
    }

    /// Arrow schema of batches that are passed to storage and read from it.
    pub fn arrow(&self) -> SchemaRef {
        let field = |column: &Column| Field::new(&column.name, column.logical_type.arrow(), column.nullable);
        let make = || Arc::new(arrow_schema::Schema::new(self.columns.iter().map(field).collect::<Vec<_>>()));
        Arc::clone(self.arrow.get_or_init(make))
    }

    /// Columns of the schema, in order.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Column at an index.
    ///
    /// # Panics
    /// If the index is out of bounds.
    pub fn column(&self, index: ColumnIndex) -> &Column {
        &self.columns[index.index()]
    }

    /// Index of the column whose name equals `name`, or `None`.
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
