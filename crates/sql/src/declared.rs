//! Constraints and defaults that a statement declares or changes. Names in them are not resolved yet.

use datafusion_common::TableReference;
use datafusion_sql::sqlparser::ast::Expr;
use taut_store::{Identity, ReferentialAction};
use taut_types::{Column, LogicalType};

/// Constraints, defaults, generated columns and sequences of a table that a statement creates or extends.
#[derive(Clone, Debug, Default)]
pub struct Declared {
    /// Constraints in the order of the statement.
    pub constraints: Vec<DeclaredConstraint>,
    /// Names of columns with the expressions of their defaults.
    pub defaults: Vec<(String, Expr)>,
    /// Names of generated columns with the expressions that compute their values.
    pub generated: Vec<(String, Expr)>,
    /// `SERIAL` and identity columns.
    pub sequences: Vec<DeclaredSequence>,
    /// Names of columns with their comments, which `LIKE` copies from another table.
    pub comments: Vec<(String, String)>,
}

/// A `SERIAL` or identity column. Its default is the next number of a sequence that belongs to the column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredSequence {
    /// Name of the column.
    pub column: String,
    /// `ALWAYS` or `BY DEFAULT` of an identity column. `None` for `SERIAL`.
    pub identity: Option<Identity>,
    /// Options of the sequence.
    pub options: SequenceOptions,
}

/// Options of a sequence. An option is `None` if the statement does not contain it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SequenceOptions {
    /// `AS`: type of the numbers.
    pub logical_type: Option<LogicalType>,
    /// `INCREMENT BY`
    pub increment: Option<i64>,
    /// `MINVALUE`, or `Some(None)` for `NO MINVALUE`.
    pub min: Option<Option<i64>>,
    /// `MAXVALUE`, or `Some(None)` for `NO MAXVALUE`.
    pub max: Option<Option<i64>>,
    /// `START WITH`
    pub start: Option<i64>,
    /// `RESTART`, with a number if one is given.
    pub restart: Option<Option<i64>>,
    /// `CYCLE` or `NO CYCLE`
    pub cycles: Option<bool>,
    /// `OWNED BY` a column of a table, or `Some(None)` for `OWNED BY NONE`.
    pub owned_by: Option<Option<(TableReference, String)>>,
}

/// A constraint that a statement declares.
#[derive(Clone, Debug)]
pub struct DeclaredConstraint {
    /// Name of the constraint, if one is given.
    pub name: Option<String>,
    /// The condition that rows must satisfy.
    pub rule: DeclaredCondition,
}

/// The condition that a constraint imposes on rows.
#[derive(Clone, Debug)]
pub enum DeclaredCondition {
    /// `PRIMARY KEY` or `UNIQUE`.
    Key {
        /// Columns of the key.
        columns: Vec<String>,
        /// True for `PRIMARY KEY`, false for `UNIQUE`.
        is_primary: bool,
    },
    /// `CREATE UNIQUE INDEX`.
    UniqueIndex {
        /// Columns of the index.
        columns: Vec<String>,
    },
    /// `CHECK`.
    Check {
        /// Condition of the check.
        condition: Box<Expr>,
    },
    /// `FOREIGN KEY`.
    ForeignKey {
        /// Columns that reference the other table.
        columns: Vec<String>,
        /// The referenced table.
        table: TableReference,
        /// Columns of the referenced table. Empty means its primary key.
        referenced: Vec<String>,
        /// Action on rows whose referenced row is deleted.
        on_delete: ReferentialAction,
    },
}

/// A change of the schema of a table.
#[derive(Clone, Debug)]
pub enum SchemaChange {
    /// A change of its columns.
    Column(ColumnChange),
    /// A change of its constraints or defaults.
    Constraint(ConstraintChange),
    /// A change of its identity columns.
    Identity(IdentityChange),
}

/// A change of the columns of a table.
#[derive(Clone, Debug)]
pub enum ColumnChange {
    /// `ADD COLUMN`
    Add {
        /// The new column.
        column: Column,
        /// Its constraints and its default.
        declared: Declared,
        /// Whether the statement has no effect, instead of an error, if the column exists.
        if_not_exists: bool,
    },
    /// `DROP COLUMN`
    Drop {
        /// Name of the column.
        column: String,
        /// Whether a missing column is ignored.
        if_exists: bool,
        /// Whether to drop dependent objects too.
        cascade: bool,
    },
    /// `RENAME COLUMN`
    Rename {
        /// Name of the column.
        column: String,
        /// The new name.
        name: String,
    },
    /// `ALTER COLUMN ... TYPE`
    SetType {
        /// Name of the column.
        column: String,
        /// The new type.
        logical_type: LogicalType,
        /// Expression over the old row that computes the new value. `None` casts the old value of the column.
        using: Option<Box<Expr>>,
    },
}

/// A change of the constraints of a table.
#[derive(Clone, Debug)]
pub enum ConstraintChange {
    /// `ADD CONSTRAINT`
    Add(DeclaredConstraint),
    /// `DROP CONSTRAINT`
    Drop {
        /// Name of the constraint.
        name: String,
        /// Whether a missing constraint is ignored.
        if_exists: bool,
    },
    /// `ALTER COLUMN ... SET NOT NULL` and `DROP NOT NULL`
    Nullable {
        /// Name of the column.
        column: String,
        /// Whether the column may hold nulls.
        nullable: bool,
    },
    /// `ALTER COLUMN ... SET DEFAULT` and `DROP DEFAULT`
    Default {
        /// Name of the column.
        column: String,
        /// The default expression. `None` means null.
        value: Option<Box<Expr>>,
    },
    /// `ALTER COLUMN ... DROP EXPRESSION`: a generated column keeps its values and becomes a plain column.
    DropExpression {
        /// Name of the column.
        column: String,
        /// Whether a column that is not generated is ignored.
        if_exists: bool,
    },
}

/// A change of the identity of a column.
#[derive(Clone, Debug)]
pub enum IdentityChange {
    /// `ALTER COLUMN ... ADD GENERATED ... AS IDENTITY`
    Add(DeclaredSequence),
    /// `ALTER COLUMN ... SET GENERATED`
    Set {
        /// Name of the column.
        column: String,
        /// The new kind of identity: `ALWAYS` or `BY DEFAULT`.
        identity: Identity,
    },
    /// `ALTER COLUMN ... RESTART`
    Alter {
        /// Name of the column.
        column: String,
        /// Options of its sequence to change.
        options: SequenceOptions,
    },
    /// `ALTER COLUMN ... DROP IDENTITY`
    Drop {
        /// Name of the column.
        column: String,
        /// Whether a column without identity is ignored.
        if_exists: bool,
    },
}
