//! Names of functions that have two.
//!
//! The planner names the result of a function that is called by its second name after the text of its arguments, and
//! repeats these names at every level. Nested in each other, such calls double the text each time. In arguments of
//! functions nobody sees that name, so the first name of the function does as well.

use datafusion_sql::sqlparser::ast::{Function, Ident, ObjectNamePart};

/// Second and first names of functions that are often nested.
const NAMES: [(&str, &str); 2] = [("ifnull", "nvl"), ("pow", "power")];

/// Calls a function by its first name.
pub(super) fn use_first_name(function: &mut Function) {
    if let [ObjectNamePart::Identifier(name)] = function.name.0.as_mut_slice()
        && let Some((_, first)) = NAMES.iter().find(|(second, _)| name.value.eq_ignore_ascii_case(second))
    {
        *name = Ident::new(*first);
    }
}
