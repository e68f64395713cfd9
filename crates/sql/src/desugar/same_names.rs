//! Relations of one name from different schemas in one query.
//!
//! The planner takes `t.a` for a column of `sales.t` too, and `sales.t.a` for one of a relation `t`. So it would
//! confuse them in a `FROM` clause, and in a subquery and the queries around it. Aliases tell them apart.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    Expr, ObjectName, Select, SelectItem, SelectItemQualifiedWildcardKind, Statement, TableFactor, Visit, Visitor,
};

use crate::error::SqlError;
use crate::identifiers::normalize;

/// Refuses a statement that reads relations of one name which the planner could confuse.
pub(super) fn check(statement: &Statement) -> Result<(), SqlError> {
    let mut scopes = Scopes { open: vec![Scope::default()] };
    let found = match statement.visit(&mut scopes) {
        ControlFlow::Continue(()) => scopes.close(),
        found => found,
    };
    match found {
        ControlFlow::Break(name) => Err(SqlError::AmbiguousTable { name }),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Where the relations of one name come from.
#[derive(Clone, Default)]
struct Sources {
    /// The schemas of those that are named with their schema and have no alias.
    schemas: BTreeSet<String>,
    /// Whether a relation has the name as its alias, or without a schema.
    is_unqualified: bool,
}

/// The relations of a `SELECT`, or of a statement outside of any.
#[derive(Default)]
struct Scope {
    own: BTreeMap<String, Sources>,
    /// Those of the subqueries.
    inner: BTreeMap<String, Sources>,
    /// Names before the dot of a column, as in `t.a` and `t.*`, here or in a subquery.
    qualifiers: BTreeSet<String>,
}

impl Scope {
    /// A name whose relations could be confused. Relations of two subqueries beside each other cannot.
    fn ambiguous_name(&self) -> Option<&String> {
        let nothing = Sources::default();
        let is_ambiguous = |name: &String, own: &Sources| {
            let inner = self.inner.get(name).unwrap_or(&nothing);
            let schemas = own.schemas.union(&inner.schemas).count();
            let is_unqualified = own.is_unqualified || inner.is_unqualified;
            schemas > 0 && is_unqualified || schemas > 1 && self.qualifiers.contains(name)
        };
        self.own.iter().find(|(name, own)| is_ambiguous(name, own)).map(|(name, _)| name)
    }
}

struct Scopes {
    open: Vec<Scope>,
}

impl Scopes {
    /// Ends the innermost scope. Its relations become those of a subquery of the scope around it.
    fn close(&mut self) -> ControlFlow<String> {
        let Some(closed) = self.open.pop() else { return ControlFlow::Continue(()) };
        if let Some(name) = closed.ambiguous_name() {
            return ControlFlow::Break(name.clone());
        }
        if let Some(outer) = self.open.last_mut() {
            for (name, sources) in closed.own.into_iter().chain(closed.inner) {
                let known = outer.inner.entry(name).or_default();
                known.schemas.extend(sources.schemas);
                known.is_unqualified |= sources.is_unqualified;
            }
            outer.qualifiers.extend(closed.qualifiers);
        }
        ControlFlow::Continue(())
    }

    fn sources(&mut self, name: String) -> Option<&mut Sources> {
        self.open.last_mut().map(|scope| scope.own.entry(name).or_default())
    }

    fn add_qualifier(&mut self, name: String) {
        if let Some(scope) = self.open.last_mut() {
            scope.qualifiers.insert(name);
        }
    }
}

impl Visitor for Scopes {
    type Break = String;

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<String> {
        self.open.push(Scope::default());
        for item in &select.projection {
            if let SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) = item
                && let [relation] = parts(name).as_slice()
            {
                self.add_qualifier(relation.clone());
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, _select: &Select) -> ControlFlow<String> {
        self.close()
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<String> {
        let alias = match factor {
            TableFactor::Table { alias, .. }
            | TableFactor::Derived { alias, .. }
            | TableFactor::TableFunction { alias, .. }
            | TableFactor::Function { alias, .. }
            | TableFactor::UNNEST { alias, .. }
            | TableFactor::NestedJoin { alias, .. } => alias.as_ref(),
            _ => None,
        };
        let (name, schema) = match (alias, factor) {
            (Some(alias), _) => (normalize(&alias.name), None),
            (None, TableFactor::Table { name, .. }) => match parts(name).as_slice() {
                [.., schema, name] => (name.clone(), Some(schema.clone())),
                [name] => (name.clone(), None),
                [] => return ControlFlow::Continue(()),
            },
            _ => return ControlFlow::Continue(()),
        };
        if let Some(sources) = self.sources(name) {
            sources.is_unqualified |= schema.is_none();
            sources.schemas.extend(schema);
        }
        if is_separate(factor) {
            self.open.push(Scope::default());
        }
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<String> {
        if is_separate(factor) {
            self.open.pop();
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<String> {
        if let Expr::CompoundIdentifier(names) = expression
            && let [relation, _] = names.as_slice()
        {
            self.add_qualifier(normalize(relation));
        }
        ControlFlow::Continue(())
    }
}

/// Whether a factor is a query that sees no relations around it. They see its columns under its alias alone.
fn is_separate(factor: &TableFactor) -> bool {
    matches!(factor, TableFactor::Derived { lateral: false, alias: Some(_), .. })
}

/// Writes `sales.t.*` for `t.*`, which the planner does not find, if `FROM` has `sales.t`.
pub(super) fn qualify_wildcards(select: &mut Select) {
    let factors = select
        .from
        .iter()
        .flat_map(|from| std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation)));
    let qualified: Vec<ObjectName> = factors
        .filter_map(|factor| match factor {
            TableFactor::Table { name, alias: None, .. } if name.0.len() > 1 => Some(name.clone()),
            _ => None,
        })
        .collect();
    for item in &mut select.projection {
        if let SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) = item
            && let [relation] = parts(name).as_slice()
            && let Some(known) = qualified.iter().find(|known| parts(known).last() == Some(relation))
        {
            *name = known.clone();
        }
    }
}

fn parts(name: &ObjectName) -> Vec<String> {
    name.0.iter().filter_map(|part| part.as_ident().map(normalize)).collect()
}
