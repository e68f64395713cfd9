//! Relations with the same name from different schemas in one query, and columns qualified by a schema: `sales.t.a`.
//!
//! The planner ignores the schema if only one of two relation names has one. So `t.a` also matches `sales.t`, and
//! `sales.t.a` matches any relation `t`. Therefore a statement with such names is planned in another form, in which
//! each relation has a distinct alias:
//!
//! ```text
//!   written    SELECT sales.t.a, public.t.a FROM sales.t, t
//!   planned    SELECT "sales.t".a, "public.t".a FROM sales.t AS "sales.t", t AS "public.t"
//! ```
//!
//! A name is resolved as in PostgreSQL, in the innermost query that has a relation with this name. `t.a` is ambiguous
//! if several relations of that query have the name. `sales.t.a` needs a relation without an alias.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::ControlFlow;

use datafusion_sql::parser::Statement as PlannerStatement;
use datafusion_sql::sqlparser::ast::{
    Expr, Ident, ObjectName, ObjectNamePart, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr,
    Statement as Ast, TableAlias, TableFactor, TableWithJoins, Visit, VisitMut, Visitor, VisitorMut,
};
use taut_types::relation_name;

use crate::desugar::make_names_distinct;
use crate::error::{ObjectKind, Result, SqlError};
use crate::identifiers::{CATALOG, PUBLIC, UNQUALIFIED, normalize};
use crate::mutation::{TARGET, WRITTEN};
use crate::syntax::quoted;

/// A schema, and the name of a relation in it.
pub type QualifiedName = (String, String);

/// Returns the form of a statement in which no two relations have the same name. Returns `None` if the statement needs
/// no other form. `resolve` returns the relation to which a name without a schema refers.
///
/// # Errors
/// If a name is ambiguous or specified twice, or if it refers to a relation that is not visible there.
pub fn with_distinct_relations(
    statement: &PlannerStatement,
    resolve: &dyn Fn(&str) -> Option<QualifiedName>,
) -> Result<Option<PlannerStatement>> {
    match statement {
        PlannerStatement::Statement(ast) if needs_distinct_relations(ast) => {
            let mut ast = ast.clone();
            let mut names = NameCollector::default();
            let _: ControlFlow<()> = ast.visit(&mut names);
            match VisitMut::visit(&mut ast, &mut RelationRewriter::new(resolve, names.0)) {
                ControlFlow::Continue(()) => Ok(Some(PlannerStatement::Statement(ast))),
                ControlFlow::Break(error) => Err(error),
            }
        }
        PlannerStatement::Explain(explain) => {
            let Some(statement) = with_distinct_relations(&explain.statement, resolve)? else { return Ok(None) };
            let mut explain = explain.clone();
            explain.statement = Box::new(statement);
            Ok(Some(PlannerStatement::Explain(explain)))
        }
        _ => Ok(None),
    }
}

/// Whether a statement names a column with a schema, or relations of one name with and without their schema.
fn needs_distinct_relations(ast: &Ast) -> bool {
    let mut finder = SchemaFinder::default();
    ast.visit(&mut finder).is_break() || finder.names.values().any(|schemas| schemas.len() > 1)
}

/// Visitor that stops at a column with a schema, and collects the schemas of relations by relation name.
#[derive(Default)]
struct SchemaFinder {
    names: BTreeMap<String, BTreeSet<Option<String>>>,
}

impl Visitor for SchemaFinder {
    type Break = ();

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        let is_long = |item: &SelectItem| matches!(item, SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) if name.0.len() > 1);
        if select.projection.iter().any(is_long) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        if let Some((name, written)) = reference_name(factor) {
            // Another relation has the name of the table that the statement changes.
            if name == TARGET {
                return ControlFlow::Break(());
            }
            self.names.entry(name).or_default().insert(written.and_then(|name| name.schema));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        match expression {
            Expr::CompoundIdentifier(parts) if parts.len() > 2 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Visitor that collects the names of all relations.
#[derive(Default)]
struct NameCollector(BTreeSet<String>);

impl Visitor for NameCollector {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        self.0.extend(reference_name(factor).map(|(name, _)| name));
        ControlFlow::Continue(())
    }
}

/// Name of a table as a statement writes it.
struct WrittenName {
    schema: Option<String>,
    name: String,
}

/// Returns the name that qualifies the columns of a factor, and the name of the table if the factor has no alias.
fn reference_name(factor: &TableFactor) -> Option<(String, Option<WrittenName>)> {
    match factor {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::TableFunction { alias: Some(alias), .. }
        | TableFactor::Function { alias: Some(alias), .. }
        | TableFactor::UNNEST { alias: Some(alias), .. }
        | TableFactor::NestedJoin { alias: Some(alias), .. } => Some((normalize(&alias.name), None)),
        TableFactor::Table { name, args: None, .. } => {
            let written = written_name(name)?;
            Some((written.name.clone(), Some(written)))
        }
        _ => None,
    }
}

fn written_name(name: &ObjectName) -> Option<WrittenName> {
    let parts: Vec<String> = name.0.iter().map(|part| part.as_ident().map(normalize)).collect::<Option<_>>()?;
    match parts.as_slice() {
        [name] => Some(WrittenName { schema: None, name: name.clone() }),
        [schema, name] => Some(WrittenName { schema: Some(schema.clone()), name: name.clone() }),
        [catalog, schema, name] if catalog == CATALOG => {
            Some(WrittenName { schema: Some(schema.clone()), name: name.clone() })
        }
        [catalog, schema, name] => {
            Some(WrittenName { schema: Some(schema_in_database(catalog, schema)), name: name.clone() })
        }
        _ => None,
    }
}

/// Returns the name that stands for a schema of another database. For schema `public` of database `a`, it is `a`,
/// because `a.t` refers to a table in that schema.
pub fn schema_in_database(database: &str, schema: &str) -> String {
    match schema == PUBLIC {
        true => database.to_owned(),
        false => relation_name(database, schema),
    }
}

/// A relation of a `FROM` clause.
struct Binding {
    /// Name that qualifies the columns of the relation.
    name: String,
    /// The relation, if it has no alias.
    relation: Option<QualifiedName>,
    /// Whether the statement writes the schema of the relation.
    has_schema: bool,
    /// Alias that the relation has in the rewritten statement.
    alias: Option<String>,
}

/// The relations of a query, or of an operand of a `UNION`.
#[derive(Default)]
struct FromScope {
    bindings: Vec<Binding>,
    /// Number of queries around the visited part that cannot reference these relations: queries in `WITH` and `FROM`.
    hidden: usize,
    /// Names of the queries in `WITH`.
    with: Vec<String>,
}

struct RelationRewriter<'a> {
    resolve: &'a dyn Fn(&str) -> Option<QualifiedName>,
    /// Names that qualify columns in the statement.
    names: BTreeSet<String>,
    scopes: Vec<FromScope>,
    /// Queries in the `WITH` clauses around the visited part.
    with_queries: HashSet<*const Query>,
    /// `SELECT`s that share the scope of their query, in which `ORDER BY` resolves names too.
    bodies: HashSet<*const Select>,
}

impl<'a> RelationRewriter<'a> {
    fn new(resolve: &'a dyn Fn(&str) -> Option<QualifiedName>, names: BTreeSet<String>) -> Self {
        Self { resolve, names, scopes: Vec::new(), with_queries: HashSet::new(), bodies: HashSet::new() }
    }

    /// Alias for a relation. No relation of the statement has this name.
    fn alias(&self, (schema, name): &QualifiedName) -> String {
        let mut alias = format!("{schema}.{name}");
        while self.names.contains(&alias) {
            alias.push('.');
        }
        alias
    }

    /// Assigns aliases to the relations of a `SELECT`.
    fn bind(&self, select: &mut Select) -> Result<Vec<Binding>> {
        let mut bindings = Vec::new();
        select.from.iter_mut().try_for_each(|from| self.bind_joined(from, &mut bindings))?;
        Ok(bindings)
    }

    fn bind_joined(&self, from: &mut TableWithJoins, bindings: &mut Vec<Binding>) -> Result<()> {
        let joined = from.joins.iter_mut().map(|join| &mut join.relation);
        for factor in std::iter::once(&mut from.relation).chain(joined) {
            if let TableFactor::NestedJoin { table_with_joins, alias: None } = factor {
                self.bind_joined(table_with_joins, bindings)?;
                continue;
            }
            let Some(binding) = self.binding(factor) else { continue };
            let conflicts = |other: &Binding| {
                let are_different = binding.relation.as_ref().zip(other.relation.as_ref()).is_some_and(|(a, b)| a != b);
                binding.name == other.name && !are_different
            };
            if bindings.iter().any(conflicts) {
                return Err(SqlError::Duplicate { kind: ObjectKind::TableName, name: binding.name });
            }
            bindings.push(binding);
        }
        Ok(())
    }

    /// Returns the binding of a factor, and sets the alias of the factor.
    fn binding(&self, factor: &mut TableFactor) -> Option<Binding> {
        let (name, written) = reference_name(factor)?;
        let TableFactor::Table { name: table, alias, .. } = factor else {
            return Some(Binding { name, relation: None, has_schema: false, alias: None });
        };
        let Some(written) = written else {
            let changed = written_name(table).filter(|table| [TARGET, WRITTEN].contains(&table.name.as_str()));
            let relation = changed.and_then(|table| (self.resolve)(&table.name));
            // The table that a statement changes has its name as the alias, unless another relation has this name.
            return Some(match relation {
                Some(relation) if name == TARGET => {
                    Binding { name: relation.1.clone(), relation: Some(relation), has_schema: false, alias: Some(name) }
                }
                relation => {
                    let relation = relation.filter(|(_, table)| *table == name);
                    Binding { name, relation, has_schema: false, alias: None }
                }
            });
        };
        let is_with = || self.scopes.iter().any(|scope| scope.with.contains(&name));
        let has_schema = written.schema.is_some();
        let relation = match written.schema {
            Some(schema) => Some((schema, written.name)),
            None if is_with() => None,
            None => (self.resolve)(&name),
        };
        let new_alias = relation.as_ref().map(|relation| self.alias(relation));
        if let Some(new_alias) = &new_alias {
            *alias = Some(TableAlias { explicit: true, name: quoted(new_alias), columns: Vec::new(), at: None });
        }
        Some(Binding { name, relation, has_schema, alias: new_alias })
    }

    /// Returns the alias of the relation `parts`: a name, or a schema and a name. Returns `None` if there is no such
    /// relation, or if the rewrite gives it no alias.
    fn replaced(&self, parts: &[String]) -> Result<Option<String>> {
        let visible = || self.scopes.iter().rev().filter(|scope| scope.hidden == 0).map(|scope| &scope.bindings);
        let named = |name: &String| {
            visible().find_map(|bindings| {
                let found: Vec<&Binding> = bindings.iter().filter(|binding| binding.name == *name).collect();
                (!found.is_empty()).then_some(found)
            })
        };
        match parts {
            [name] => match named(name).as_deref() {
                Some([binding]) => Ok(binding.alias.clone()),
                Some(_) => Err(SqlError::AmbiguousTable { name: name.clone() }),
                None => Ok(None),
            },
            [schema, name] => {
                let is_meant = |binding: &&Binding| match schema == UNQUALIFIED {
                    true => !binding.has_schema && binding.name == *name,
                    false => {
                        binding.relation.as_ref().is_some_and(|relation| relation.0 == *schema && relation.1 == *name)
                    }
                };
                match visible().find_map(|bindings| bindings.iter().find(is_meant)) {
                    Some(binding) => Ok(Some(binding.alias.clone().unwrap_or_else(|| binding.name.clone()))),
                    None if named(name).is_some() => Err(SqlError::HiddenTable { table: name.clone() }),
                    None => Ok(None),
                }
            }
            [database, schema, name] => self.replaced(&[schema_in_database(database, schema), name.clone()]),
            _ => Ok(None),
        }
    }

    /// Replaces the qualifier of a column by the alias of its relation.
    fn replace_in_column(&self, parts: &mut Vec<Ident>) -> Result<()> {
        let names: Vec<String> = parts.iter().map(normalize).collect();
        let relation = match names.as_slice() {
            [catalog, relation @ .., _] if catalog == CATALOG && relation.len() == 2 => relation,
            [relation @ .., _] => relation,
            [] => return Ok(()),
        };
        if let Some(alias) = self.replaced(relation)? {
            let column = parts.pop();
            *parts = std::iter::once(quoted(&alias)).chain(column).collect();
        }
        Ok(())
    }

    fn replace_in_wildcards(&self, select: &mut Select) -> Result<()> {
        for item in &mut select.projection {
            if let SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) = item {
                let parts: Option<Vec<String>> = name.0.iter().map(|part| part.as_ident().map(normalize)).collect();
                if let Some(alias) = self.replaced(&parts.unwrap_or_default())? {
                    name.0 = vec![ObjectNamePart::Identifier(quoted(&alias))];
                }
            }
        }
        Ok(())
    }

    /// Adds the relations of a `SELECT` to the innermost scope, and replaces the qualifiers of its wildcards.
    fn fill_scope(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        let bound = self.bind(select).and_then(|bindings| {
            if let Some(scope) = self.scopes.last_mut() {
                scope.bindings = bindings;
            }
            self.replace_in_wildcards(select)
        });
        bound.map_or_else(ControlFlow::Break, ControlFlow::Continue)
    }

    fn hide(&mut self, is_hidden: bool) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.hidden = if is_hidden { scope.hidden + 1 } else { scope.hidden - 1 };
        }
    }
}

impl VisitorMut for RelationRewriter<'_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        if self.with_queries.contains(&std::ptr::from_ref(query)) {
            self.hide(true);
        }
        let mut scope = FromScope::default();
        for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
            scope.with.push(normalize(&cte.alias.name));
            self.with_queries.insert(std::ptr::from_ref(cte.query.as_ref()));
        }
        self.scopes.push(scope);
        match query.body.as_mut() {
            SetExpr::Select(select) => {
                self.bodies.insert(std::ptr::from_ref(select.as_ref()));
                self.fill_scope(select)
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        self.scopes.pop();
        if self.with_queries.contains(&std::ptr::from_ref(query)) {
            self.hide(false);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        if self.bodies.contains(&std::ptr::from_ref(select)) {
            return ControlFlow::Continue(());
        }
        self.scopes.push(FromScope::default());
        self.fill_scope(select)
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        // `t.a` and `public.t.a` are now the same name.
        make_names_distinct(&mut select.projection);
        if !self.bodies.contains(&std::ptr::from_ref(select)) {
            self.scopes.pop();
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<SqlError> {
        if is_separate(factor) {
            self.hide(true);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<SqlError> {
        if is_separate(factor) {
            self.hide(false);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<SqlError> {
        match expression {
            Expr::CompoundIdentifier(parts) => {
                self.replace_in_column(parts).map_or_else(ControlFlow::Break, ControlFlow::Continue)
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Whether a factor is a subquery without `LATERAL`, which cannot reference other relations of the same `FROM`.
fn is_separate(factor: &TableFactor) -> bool {
    matches!(factor, TableFactor::Derived { lateral: false, .. })
}
