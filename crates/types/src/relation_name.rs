//! Names of relations in a database with schemas.
//!
//! Tables, views, sequences and indexes share one space of names in each schema. One string identifies a relation: the
//! name alone in schema `public`, otherwise the schema and the name with a dot between them.
//!
//! ```text
//! schema    name    string
//! public    t       t
//! sales     t       sales.t
//! sales     a.b     sales."a.b"
//! public    a.b     public."a.b"
//! ```
//!
//! A schema or a name is quoted if it contains a dot or begins with a quote. No two relations have the same string.

use std::borrow::Cow;

use crate::quote_identifier;

/// Name of the schema of relations that are created without one.
pub const PUBLIC_SCHEMA: &str = "public";

/// Name of the schema of temporary relations. Each session has its own schema with this name.
pub const TEMPORARY_SCHEMA: &str = "pg_temp";

/// Returns the string that identifies a relation, for example `sales.t` for relation `t` in schema `sales`.
pub fn relation_name(schema: &str, name: &str) -> String {
    match schema == PUBLIC_SCHEMA && !name.contains('.') {
        true => name.to_owned(),
        false => format!("{}.{}", quoted(schema), quoted(name)),
    }
}

/// Splits the string that identifies a relation into schema and name. Inverse of [`relation_name`].
pub fn split_relation_name(relation: &str) -> (Cow<'_, str>, Cow<'_, str>) {
    let split = || {
        let (schema, rest) = part(relation)?;
        let (name, end) = part(rest.strip_prefix('.')?)?;
        end.is_empty().then_some((schema, name))
    };
    split().unwrap_or((Cow::Borrowed(PUBLIC_SCHEMA), Cow::Borrowed(relation)))
}

/// Whether the string `relation` identifies a temporary relation.
pub fn is_temporary_relation(relation: &str) -> bool {
    relation.strip_prefix(TEMPORARY_SCHEMA).is_some_and(|rest| rest.starts_with('.'))
}

/// The name of a relation without its schema.
pub fn unqualified_name(relation: &str) -> Cow<'_, str> {
    split_relation_name(relation).1
}

/// Returns the string that identifies relation `name` in the schema of `relation`.
pub fn sibling_name(relation: &str, name: &str) -> String {
    relation_name(&split_relation_name(relation).0, name)
}

/// Returns the name of a relation for SQL: quoted where necessary, and with the schema unless it is `public`.
pub fn relation_sql(relation: &str) -> String {
    let (schema, name) = split_relation_name(relation);
    match schema == PUBLIC_SCHEMA {
        true => quote_identifier(&name),
        false => format!("{}.{}", quote_identifier(&schema), quote_identifier(&name)),
    }
}

fn quoted(part: &str) -> Cow<'_, str> {
    match part.contains('.') || part.starts_with('"') {
        true => Cow::Owned(format!("\"{}\"", part.replace('"', "\"\""))),
        false => Cow::Borrowed(part),
    }
}

/// Splits off the first part of a name, unquoted, and returns it with the rest. `None` if a closing quote is missing.
fn part(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let Some(inside) = text.strip_prefix('"') else {
        let (part, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
        return Some((Cow::Borrowed(part), rest));
    };
    let mut part = String::new();
    let mut rest = inside;
    loop {
        let (before, after) = rest.split_once('"')?;
        part.push_str(before);
        match after.strip_prefix('"') {
            Some(after) => {
                part.push('"');
                rest = after;
            }
            None => return Some((Cow::Owned(part), after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_and_differ() {
        let parts = ["t", "public", "a.b", "\"", "\"a\"", "a\"b", ".", "\".\"", "a.b.c", "T t", ""];
        let mut texts = std::collections::HashSet::new();
        for schema in parts {
            for name in parts {
                let text = relation_name(schema, name);
                assert_eq!(split_relation_name(&text), (schema.into(), name.into()), "{text}");
                assert!(texts.insert(text.clone()), "{text}");
            }
        }
    }

    #[test]
    fn relations_of_the_temporary_schema_are_temporary() {
        for name in ["t", "a.b", "\""] {
            assert!(is_temporary_relation(&relation_name(TEMPORARY_SCHEMA, name)), "{name}");
        }
        for (schema, name) in [("public", "pg_temp"), ("public", "pg_temp.t"), ("pg_temp2", "t"), ("a", "pg_temp.t")] {
            assert!(!is_temporary_relation(&relation_name(schema, name)), "{schema} {name}");
        }
    }

    #[test]
    fn relations_of_public_are_known_by_their_name_alone() {
        assert_eq!(relation_name("public", "t"), "t");
        assert_eq!(relation_name("sales", "t"), "sales.t");
        assert_eq!(sibling_name("sales.t", "t_a_seq"), "sales.t_a_seq");
        assert_eq!((relation_sql("a b"), relation_sql("sales.T")), ("\"a b\"".into(), "sales.\"T\"".into()));
        assert_eq!(unqualified_name("sales.\"a.b\""), "a.b");
    }
}
