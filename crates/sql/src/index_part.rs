//! Parts of an index: columns and expressions.

use std::fmt::{self, Display, Formatter};

use datafusion_sql::sqlparser::ast::{CastKind, Expr};

use crate::identifiers::normalize;

/// A part of an index, or of the target of `ON CONFLICT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexPart {
    /// A column, by its name.
    Column(String),
    /// An expression over the columns of the table.
    Expression(Box<Expr>),
}

impl Display for IndexPart {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Column(name) => formatter.write_str(name),
            Self::Expression(expression) => expression.fmt(formatter),
        }
    }
}

impl IndexPart {
    /// Name of the part in the generated name of an index: the name of the column or of the called function, as in
    /// PostgreSQL.
    pub(crate) fn name(&self) -> String {
        fn name_of(expression: &Expr) -> Option<String> {
            match expression {
                Expr::Identifier(name) => Some(normalize(name)),
                Expr::CompoundIdentifier(names) => names.last().map(normalize),
                Expr::Function(function) => function.name.0.last()?.as_ident().map(normalize),
                Expr::Cast { expr, .. } | Expr::Nested(expr) => name_of(expr),
                Expr::Case { else_result, .. } => {
                    Some(else_result.as_deref().and_then(name_of).unwrap_or_else(|| "case".to_owned()))
                }
                Expr::Extract { .. } => Some("extract".to_owned()),
                Expr::Ceil { .. } => Some("ceil".to_owned()),
                Expr::Floor { .. } => Some("floor".to_owned()),
                Expr::Position { .. } => Some("position".to_owned()),
                Expr::Substring { .. } => Some("substring".to_owned()),
                Expr::Trim { .. } => Some("btrim".to_owned()),
                Expr::Overlay { .. } => Some("overlay".to_owned()),
                _ => None,
            }
        }
        match self {
            Self::Column(name) => name.clone(),
            Self::Expression(expression) => name_of(expression).unwrap_or_else(|| "expr".to_owned()),
        }
    }

    /// Converts an expression. The name of a column, also in parentheses, becomes a column.
    pub(crate) fn from_expression(mut expression: Expr) -> Self {
        while let Expr::Nested(inner) = expression {
            expression = *inner;
        }
        match expression {
            Expr::Identifier(name) => Self::Column(normalize(&name)),
            expression => Self::Expression(Box::new(expression)),
        }
    }
}

/// Whether PostgreSQL's grammar allows an expression in an index as it is written. It allows column names, calls of
/// functions and expressions in parentheses.
pub fn is_index_part(expression: &Expr) -> bool {
    matches!(
        expression,
        Expr::Identifier(_)
            | Expr::Nested(_)
            | Expr::Function(_)
            | Expr::Cast { kind: CastKind::Cast, .. }
            | Expr::Extract { .. }
            | Expr::Ceil { .. }
            | Expr::Floor { .. }
            | Expr::Position { .. }
            | Expr::Substring { .. }
            | Expr::Trim { .. }
            | Expr::Overlay { .. }
    )
}
