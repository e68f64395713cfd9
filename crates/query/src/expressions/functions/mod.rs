//! Functions of PostgreSQL and DuckDB that DataFusion lacks or computes differently. If both systems have a function of
//! one name, this module implements PostgreSQL's.
//!
//! Each file declares the functions of one topic as constants of [`definition::Definition`].

mod buckets;
mod byte_strings;
mod calendar;
mod concat;
mod date_patterns;
mod definition;
mod degrees;
mod encoding;
mod encodings;
mod format;
mod found_relation;
mod identifiers;
mod instants;
mod intervals;
mod lists;
mod normalization;
mod now;
mod number_patterns;
mod numbers;
mod overlaps;
mod overloads;
mod patterns;
mod pg_types;
mod random;
mod regex;
mod regex_syntax;
mod sleep;
mod strftime;
mod strptime;
mod substring;
mod text;
mod thresholds;
mod to_char;
mod to_number;
mod truncation;
mod type_names;
mod untyped_literals;
mod users;
mod version;

use std::sync::Arc;

use datafusion::execution::SessionStateBuilder;

pub use self::now::now;
pub use self::pg_types::{PgType, TYPES, find_type};
pub use self::sleep::pg_sleep;
pub use self::type_names::name_in_postgres;

use self::definition::Definition;
use crate::runtime::cancellation::Cancellation;

static FORMAT: [Definition; 1] = [format::FORMAT];
static PATTERNS: [Definition; 2] = to_char::FUNCTIONS;
static ENCODING: [Definition; 2] = encoding::FUNCTIONS;
static DEGREES: [Definition; 8] = degrees::FUNCTIONS;
static NUMBERS: [Definition; 13] = numbers::FUNCTIONS;
static TEXT: [Definition; 15] = text::FUNCTIONS;
static ENCODINGS: [Definition; 1] = encodings::FUNCTIONS;
static IDENTIFIERS: [Definition; 1] = identifiers::FUNCTIONS;
static NORMALIZATION: [Definition; 2] = normalization::FUNCTIONS;
static BYTE_STRINGS: [Definition; 4] = byte_strings::FUNCTIONS;
static REGEX: [Definition; 11] = regex::FUNCTIONS;
static INTERVALS: [Definition; 5] = intervals::FUNCTIONS;
static CALENDAR: [Definition; 7] = calendar::FUNCTIONS;
static BUCKETS: [Definition; 2] = buckets::FUNCTIONS;
static STRPTIME: [Definition; 2] = strptime::FUNCTIONS;
static LISTS: [Definition; 4] = lists::FUNCTIONS;
static OVERLAPS: [Definition; 1] = overlaps::FUNCTIONS;
static PG_TYPES: [Definition; 1] = pg_types::FUNCTIONS;

fn definitions() -> impl Iterator<Item = &'static Definition> {
    let topics: [&'static [Definition]; 18] = [
        &FORMAT,
        &PATTERNS,
        &ENCODING,
        &DEGREES,
        &NUMBERS,
        &TEXT,
        &REGEX,
        &INTERVALS,
        &CALENDAR,
        &BUCKETS,
        &STRPTIME,
        &LISTS,
        &OVERLAPS,
        &PG_TYPES,
        &ENCODINGS,
        &IDENTIFIERS,
        &NORMALIZATION,
        &BYTE_STRINGS,
    ];
    topics.into_iter().flatten()
}

/// Adds the functions to a session state.
pub fn with_functions(mut state: SessionStateBuilder) -> SessionStateBuilder {
    let functions = state.scalar_functions().get_or_insert_default();
    let added: Vec<_> = definitions().map(|definition| definition.udf(functions)).collect();
    functions.extend(added);
    functions.extend(type_names::functions());
    functions.push(truncation::date_trunc());
    functions.push(instants::to_timestamp());
    functions.push(strftime::strftime());
    functions.push(to_number::to_number());
    functions.push(concat::concat());
    functions.push(now());
    functions.push(now::clock_timestamp());
    functions.push(version::version());
    functions.push(found_relation::found_relation());
    functions.extend(random::functions());
    functions.push(pg_sleep(Cancellation::default()));
    functions.extend(users::functions());
    untyped_literals::replace(functions);
    let syntax = overloads::replace(functions);
    state.expr_planners().get_or_insert_default().insert(0, Arc::new(syntax));
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_function_has_the_name_of_an_alias() {
        let mut state = SessionStateBuilder::new().with_default_features();
        let engine = state.scalar_functions().take().unwrap();
        for definition in definitions() {
            let of = engine.iter().find(|function| function.aliases().iter().any(|alias| alias == definition.name));
            assert_eq!(of.map(|function| function.name()), None, "{} is an alias", definition.name);
        }
    }
}
