//! Replaces aliases of functions by their canonical names in arguments of other functions. Also removes the cast from
//! the name of a sequence in calls such as `nextval('s'::regclass)`.
//!
//! If a function is called by an alias, the planner names the result after the text of its arguments. It repeats these
//! names at every level, so that each level of nested calls doubles the text. In an argument of another function, the
//! name of the result is not visible. The canonical name of the function can therefore replace the alias there.

use datafusion_sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectNamePart,
};

use crate::identifiers::FOUND_RELATION;

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

/// Removes the cast from `nextval('s'::regclass)`, and from the first argument of `currval` and `setval`. PostgreSQL
/// prints column defaults with this cast.
pub(super) fn name_sequence(function: &mut Function) {
    let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else { return };
    let FunctionArguments::List(arguments) = &mut function.args else { return };
    if ["nextval", "currval", "setval"].iter().any(|known| name.value.eq_ignore_ascii_case(known))
        && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))) = arguments.args.first_mut()
        && let Some(name) = checked_name(argument)
    {
        *argument = name.clone();
    }
}

/// Returns `'s'` for `'s'::regclass`, which `system_catalogs.rs` has already replaced by a call of [`FOUND_RELATION`].
fn checked_name(expression: &Expr) -> Option<&Expr> {
    let Expr::Function(function) = expression else { return None };
    let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else { return None };
    let FunctionArguments::List(arguments) = &function.args else { return None };
    match arguments.args.as_slice() {
        [_, FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))] if name.value == FOUND_RELATION => Some(argument),
        _ => None,
    }
}
