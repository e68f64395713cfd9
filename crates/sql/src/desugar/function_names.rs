//! Replaces aliases of functions with their canonical names, in arguments of other functions.
//!
//! If a function is called by an alias, the planner names the result after the text of its arguments, and repeats these
//! names at every level. Each level of nested calls then doubles the text. The name of a result that is only an
//! argument is not visible, so the canonical name of the function can replace the alias there.

use datafusion_sql::sqlparser::ast::{Function, Ident, ObjectNamePart};

/// Aliases and canonical names of functions that are often nested.
const NAMES: [(&str, &str); 2] = [("ifnull", "nvl"), ("pow", "power")];

/// Replaces an alias of a function with its canonical name.
pub(super) fn use_canonical_name(function: &mut Function) {
    if let [ObjectNamePart::Identifier(name)] = function.name.0.as_mut_slice()
        && let Some((_, canonical)) = NAMES.iter().find(|(alias, _)| name.value.eq_ignore_ascii_case(alias))
    {
        *name = Ident::new(*canonical);
    }
}
