//! Rewrites `t.*` if `FROM` contains `t` with its schema, as in `SELECT t.* FROM sales.t`.

use datafusion_sql::sqlparser::ast::{ObjectName, Select, SelectItem, SelectItemQualifiedWildcardKind, TableFactor};

use crate::identifiers::normalize;
use crate::syntax::relation_name;

/// Replaces `t.*` by `sales.t.*` if `FROM` contains `sales.t`, because the planner does not resolve `t.*`.
pub(super) fn qualify(select: &mut Select) {
    let factors = select
        .from
        .iter()
        .flat_map(|from| std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation)));
    let named =
        |relation: &String| factors.clone().filter(|factor| relation_name(factor).as_ref() == Some(relation)).count();
    let qualified: Vec<ObjectName> = factors
        .clone()
        .filter_map(|factor| match factor {
            TableFactor::Table { name, alias: None, .. } if name.0.len() > 1 => Some(name.clone()),
            _ => None,
        })
        .collect();
    for item in &mut select.projection {
        if let SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) = item
            && let [relation] = parts(name).as_slice()
            && named(relation) == 1
            && let Some(known) = qualified.iter().find(|known| parts(known).last() == Some(relation))
        {
            *name = known.clone();
        }
    }
}

fn parts(name: &ObjectName) -> Vec<String> {
    name.0.iter().filter_map(|part| part.as_ident().map(normalize)).collect()
}
