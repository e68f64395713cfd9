//! References to PostgreSQL's system catalogs: `pg_catalog.f(x)`, `x::pg_catalog.text`, `'t'::regclass`, and functions
//! on oids.
//!
//! ```text
//!   pg_get_constraintdef(x)   (SELECT definition FROM definitions WHERE object = x)
//!   to_regclass('t')          (SELECT object FROM names WHERE name = 't')
//!   't'::regclass             the same, and an error if there is no t
//!   x::regclass               (SELECT shortest_name FROM names WHERE object = x)
//! ```

use datafusion_sql::sqlparser::ast::{CastKind, DataType, Expr, Function, ObjectName, ObjectNamePart, Value};
use taut_types::quote_identifier;

use crate::dialect::parse_expression;
use crate::identifiers::{FOUND_RELATION, PG_CATALOG, normalize};
use crate::syntax;

use super::function_macros::{plain_arguments, with_arguments};

/// Removes the schema from a call of `pg_catalog.f`. All functions are in this schema.
pub(super) fn remove_schema(function: &mut Function) {
    remove_catalog(&mut function.name);
}

fn remove_catalog(name: &mut ObjectName) {
    if let [ObjectNamePart::Identifier(schema), _] = name.0.as_slice()
        && normalize(schema) == PG_CATALOG
    {
        name.0.remove(0);
    }
}

/// Rewrites a cast to `regclass` or to a type in schema `pg_catalog`.
pub(super) fn rewrite_cast(expression: &mut Expr) {
    let Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr, data_type, .. } = expression else { return };
    match data_type {
        DataType::Regclass => *expression = relation_of(expr),
        DataType::Custom(name, modifiers) => {
            remove_catalog(name);
            let [ObjectNamePart::Identifier(type_name)] = name.0.as_slice() else { return };
            match normalize(type_name).as_str() {
                "regclass" => *expression = relation_of(expr),
                "oid" => *data_type = DataType::BigInt(None),
                "name" => *data_type = DataType::Text,
                // The parser does not recognize built-in type names after a schema, so the name is parsed without it.
                plain if modifiers.is_empty() => {
                    if let Ok(Expr::Cast { data_type: known, .. }) = parse_expression(&format!("CAST(x AS {plain})")) {
                        *data_type = known;
                    }
                }
                _ => {}
            }
        }
        _ => {}
    }
}

/// Rewrites a cast to `regclass`. A string literal is the name of a relation, and becomes its oid. Any other value is
/// an oid, and becomes the name of the relation.
fn relation_of(value: &Expr) -> Expr {
    let Some(name) = text_of(value) else {
        return template(NAME_OF_OID, std::slice::from_ref(value));
    };
    let oid = template(OID_OF_NAME, &[normalized_name(&name)]);
    syntax::call(FOUND_RELATION, vec![oid, Expr::value(Value::SingleQuotedString(name))])
}

/// Subquery that returns the name of the relation with oid `$1`.
const NAME_OF_OID: &str =
    "(SELECT max(\"taut shortest name\") FROM pg_catalog.\"taut object names\" WHERE \"taut object\" = $1)";
/// Subquery that returns the oid of the relation with name `$1`.
const OID_OF_NAME: &str = "(SELECT \"taut object\" FROM pg_catalog.\"taut object names\" WHERE \"taut name\" = $1)";

/// Replaces `to_regclass('t')`, which is null if there is no relation `t`.
pub(super) fn rewrite_call(expression: &mut Expr) {
    if let Expr::Function(function) = expression
        && let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice()
        && normalize(name) == "to_regclass"
        && let Some([argument]) = plain_arguments(function).as_deref()
    {
        let name = text_of(argument).map_or_else(|| argument.clone(), |name| normalized_name(&name));
        *expression = template(OID_OF_NAME, &[name]);
    }
}

/// Parses a template, and replaces `$1` and `$2` by the arguments.
fn template(sql: &str, arguments: &[Expr]) -> Expr {
    match parse_expression(sql) {
        Ok(parsed) => Expr::Nested(Box::new(with_arguments(&parsed, arguments))),
        // The templates above are valid.
        Err(_) => syntax::null(),
    }
}

/// Returns a relation name as a string literal, quoted and normalized like the column `taut name`.
fn normalized_name(name: &str) -> Expr {
    let normalized = match parse_expression(name) {
        Ok(Expr::Identifier(name)) => quote_identifier(&normalize(&name)),
        Ok(Expr::CompoundIdentifier(parts)) => {
            parts.iter().map(|part| quote_identifier(&normalize(part))).collect::<Vec<_>>().join(".")
        }
        _ => name.to_owned(),
    };
    Expr::value(Value::SingleQuotedString(normalized))
}

fn text_of(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn templates_are_valid_and_names_are_normalized() {
        for sql in [OID_OF_NAME, NAME_OF_OID] {
            assert!(parse_expression(sql).is_ok(), "{sql}");
        }
        let mut cast = parse_expression("'S.\"T\"'::regclass").unwrap();
        rewrite_cast(&mut cast);
        assert!(cast.to_string().contains("= ('s.\"T\"')"), "{cast}");
        let mut cast = parse_expression("x::pg_catalog.regclass").unwrap();
        rewrite_cast(&mut cast);
        assert!(cast.to_string().contains("\"taut object\" = (x)"), "{cast}");
    }
}
