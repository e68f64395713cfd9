//! Column names in `* EXCLUDE` and `* REPLACE`. The planner compares them without folding their case.

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{ExcludeSelectItem, Ident, ObjectNamePart, Select, WildcardAdditionalOptions};

use crate::error::SqlError;
use crate::identifiers::normalize;
use crate::syntax::{quoted, wildcard_options};

/// Converts unquoted names to lower case. Returns an error if a name occurs twice in one wildcard.
pub(super) fn normalize_names(select: &mut Select) -> ControlFlow<SqlError> {
    select.projection.iter_mut().filter_map(wildcard_options).try_for_each(normalize_options)
}

fn normalize_options(options: &mut WildcardAdditionalOptions) -> ControlFlow<SqlError> {
    let mut excluded: Vec<String> = Vec::new();
    for name in excluded_names(options) {
        *name = quoted(&normalize(name));
        excluded.push(name.value.clone());
    }
    let mut replaced: Vec<&str> = Vec::new();
    for item in options.opt_replace.iter_mut().flat_map(|replace| &mut replace.items) {
        item.column_name = quoted(&normalize(&item.column_name));
        let name = item.column_name.value.as_str();
        if excluded.iter().any(|excluded| excluded == name) {
            let message = format!("column {name:?} cannot occur in both EXCLUDE and REPLACE list");
            return ControlFlow::Break(SqlError::syntax(message));
        }
        if replaced.contains(&name) {
            return ControlFlow::Break(SqlError::syntax(format!("duplicate entry {name:?} in REPLACE list")));
        }
        replaced.push(name);
    }
    ControlFlow::Continue(())
}

/// Returns the columns that a wildcard excludes. Qualified names are not returned, because the planner rejects them.
fn excluded_names(options: &mut WildcardAdditionalOptions) -> impl Iterator<Item = &mut Ident> {
    let names = match &mut options.opt_exclude {
        None => &mut [],
        Some(ExcludeSelectItem::Single(name)) => std::slice::from_mut(name),
        Some(ExcludeSelectItem::Multiple(names)) => names.as_mut_slice(),
    };
    names.iter_mut().filter_map(|name| match name.0.as_mut_slice() {
        [ObjectNamePart::Identifier(identifier)] => Some(identifier),
        _ => None,
    })
}
