//! Limits on the size of statements. Planning a deeper or longer statement would take too much time and stack.

pub(crate) mod chain;
pub(crate) mod subqueries;

/// Recursion limit of the parser. It counts at least one level for each parenthesis, CASE, function or subquery, and up
/// to three for some. The parser grows its stack as needed.
pub(crate) const RECURSION_MAX: usize = 3_000;

/// Length in bytes from which a text is treated as long.
const LONG_BYTES: usize = 512;

/// Whether a text may hold more operators than fit an ordinary thread stack. Most texts are short and do not need a
/// larger stack, whose pages would have to be mapped and cleared for each statement. With a large stack for every
/// statement, a lookup with a new text takes 15 % longer: see docs/adr/0037-large-stacks.md.
pub fn is_long(sql: &str) -> bool {
    sql.len() >= LONG_BYTES
}
