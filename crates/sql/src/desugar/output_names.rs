//! Names of the output columns of a query. The planner rejects two columns with the same name.

use datafusion_sql::sqlparser::ast::{
    Expr, Ident, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, WildcardAdditionalOptions,
};

use crate::identifiers::normalize;
use crate::syntax::has_query;

/// Renames each output column that has the name of an earlier column: `id, id` becomes `id, id AS id_1`.
pub(crate) fn make_names_distinct(items: &mut [SelectItem]) {
    let names = items.iter().filter_map(Name::of_item).collect();
    rename_repeated(items, names);
}

/// Renames output columns of the first query of a set operation. The planner gives its names, without relations, to the
/// columns of the other queries: `t.id, u.id` becomes `t.id, u.id AS id_1`.
pub(super) fn make_names_of_union_distinct(body: &mut SetExpr) {
    match body {
        SetExpr::SetOperation { left, .. } => make_names_of_union_distinct(left),
        SetExpr::Query(query) => make_names_of_union_distinct(&mut query.body),
        SetExpr::Select(select) if select.projection.len() > 1 => {
            let is_wildcard =
                |item: &SelectItem| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
            if !select.projection.iter().any(is_wildcard) {
                let names = select.projection.iter().filter_map(Name::of_item);
                let names = names.map(|name| Name::Alias(name.text().to_owned())).collect();
                rename_repeated(&mut select.projection, names);
            }
        }
        _ => {}
    }
}

/// Gives aliases to the items whose names are among those of earlier items.
fn rename_repeated(items: &mut [SelectItem], mut names: Vec<Name>) {
    if !(1..names.len()).any(|index| names[index].is_among(&names[..index])) {
        return;
    }
    let mut index = 0;
    for item in items {
        if Name::of_item(item).is_none() {
            continue;
        }
        let name = names[index].clone();
        if name.is_among(&names[..index])
            && let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = &*item
        {
            let other = (1..).map(|number| Name::Alias(format!("{}_{number}", name.text())));
            if let Some(Name::Alias(alias)) = other.into_iter().find(|other| !other.is_among(&names)) {
                names[index] = Name::Alias(alias.clone());
                *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', alias) };
            }
        }
        index += 1;
    }
}

/// Name that the planner gives an output column of a query.
#[derive(Clone, Debug)]
enum Name {
    /// An alias, or the text of an expression.
    Alias(String),
    /// A column, with its relation if the item names it.
    Column(Option<String>, String),
    /// The text of an expression with a subquery. The planner leaves the subquery out of the name.
    Query(String),
    /// All columns of all relations, or of one.
    All(Option<String>),
}

impl Name {
    /// Returns the name of an item of the select list. Returns `None` if it has several names or unknown ones.
    fn of_item(item: &SelectItem) -> Option<Self> {
        let is_plain = |options: &WildcardAdditionalOptions| {
            let WildcardAdditionalOptions { opt_exclude, opt_except, opt_replace, opt_rename, opt_ilike, .. } = options;
            opt_exclude.is_none()
                && opt_except.is_none()
                && opt_replace.is_none()
                && opt_rename.is_none()
                && opt_ilike.is_none()
        };
        Some(match item {
            SelectItem::ExprWithAlias { alias, .. } => Self::Alias(normalize(alias)),
            SelectItem::UnnamedExpr(expression) => Self::of_expression(expression)?,
            SelectItem::Wildcard(options) if is_plain(options) => Self::All(None),
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options)
                if is_plain(options) =>
            {
                let parts = name.0.iter().map(|part| part.as_ident().map(normalize));
                Self::All(Some(parts.collect::<Option<Vec<_>>>()?.join(".")))
            }
            _ => return None,
        })
    }

    fn of_expression(expression: &Expr) -> Option<Self> {
        Some(match expression {
            Expr::Identifier(name) => Self::Column(None, normalize(name)),
            Expr::CompoundIdentifier(names) => match names.as_slice() {
                [relation @ .., name] => {
                    let relation: Vec<String> = relation.iter().map(normalize).collect();
                    Self::Column(Some(relation.join(".")), normalize(name))
                }
                [] => return None,
            },
            // The planner leaves casts and parentheses out of names.
            Expr::Cast { expr, .. } | Expr::Nested(expr) => Self::of_expression(expr)?,
            Expr::Subquery(_) => Self::Alias(expression.to_string()),
            _ if has_query(expression) => Self::Query(expression.to_string()),
            _ => Self::Alias(expression.to_string()),
        })
    }

    fn text(&self) -> &str {
        match self {
            Self::Alias(name) | Self::Column(_, name) | Self::Query(name) => name,
            Self::All(_) => "*",
        }
    }

    /// Whether the planner considers this name equal to one of `others`.
    fn is_among(&self, others: &[Self]) -> bool {
        others.iter().any(|other| match (self, other) {
            (Self::Column(Some(own), name), Self::Column(Some(other), other_name)) => {
                own == other && name == other_name
            }
            (Self::Column(..), Self::All(None)) => true,
            (Self::Column(Some(own), _), Self::All(Some(other))) => own == other,
            (Self::Query(_), Self::Query(_)) => true,
            (Self::All(_), _) | (_, Self::All(_)) => false,
            _ => self.text() == other.text(),
        })
    }
}
