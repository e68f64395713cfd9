//! Rewrites joins with `USING`, which merge columns of two tables. The planner reads a merged column from the left
//! table, where it is null for an unmatched row of the right table. The planner also fails to resolve the merged column
//! in some clauses. The rewrite replaces `USING` by `ON`, and each merged column by an expression:
//!
//! ```text
//! written    SELECT k, x, y FROM a FULL JOIN b USING (k)
//! planned    SELECT coalesce(a.k, b.k) AS k, x, y FROM a FULL JOIN b ON a.k = b.k
//!
//! written    SELECT * FROM a RIGHT JOIN b USING (k)
//! planned    SELECT b.k AS k, a.* EXCLUDE (k), b.* EXCLUDE (k) FROM a RIGHT JOIN b ON a.k = b.k
//! ```

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, Ident, JoinConstraint, JoinOperator, ObjectName, ObjectNamePart, OrderBy, OrderByKind,
    Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableFactor, TableWithJoins, VisitMut,
    VisitorMut, WildcardAdditionalOptions,
};

use crate::error::SqlError;
use crate::identifiers::{UNQUALIFIED, normalize};
use crate::syntax;

/// Rewrites the joins and merged columns of a query, including its `ORDER BY`.
pub(super) fn rewrite_in_query(query: &mut Query) -> ControlFlow<SqlError> {
    let Query { body, order_by, .. } = query;
    let SetExpr::Select(select) = body.as_mut() else { return ControlFlow::Continue(()) };
    let Some(mut merged) = rewrite_joins(select)? else { return ControlFlow::Continue(()) };
    if let Some(OrderBy { kind: OrderByKind::Expressions(order), .. }) = order_by {
        // An alias of the select list takes precedence in `ORDER BY`, and its value is already rewritten.
        for order in order.iter_mut().filter(|order| !is_output(select, &order.expr)) {
            order.visit(&mut merged)?;
        }
    }
    ControlFlow::Continue(())
}

/// Rewrites the joins and the merged columns of a `SELECT`.
pub(super) fn rewrite_in_select(select: &mut Select) -> ControlFlow<SqlError> {
    rewrite_joins(select)?;
    ControlFlow::Continue(())
}

/// Expands `*` over an item of `FROM` whose joins may merge columns. Also returns the item with its joins rewritten.
/// Returns `None` if the item cannot be rewritten.
pub(crate) fn expand_wildcard(from: &TableWithJoins) -> Option<(TableWithJoins, Vec<SelectItem>)> {
    let (mut merged, mut from) = (Merged::default(), from.clone());
    match merged.add(&mut from) {
        ControlFlow::Continue(()) => Some((from, merged.all_columns_but(WildcardAdditionalOptions::default())?)),
        ControlFlow::Break(_) => None,
    }
}

/// Whether a join of an item of `FROM` merges columns by `USING`.
pub(crate) fn merges_columns(from: &TableWithJoins) -> bool {
    let mut joins = from.joins.iter().map(|join| &join.join_operator);
    joins.any(|join| is_using(join) || merges_nullable_columns(join))
}

fn is_output(select: &Select, expression: &Expr) -> bool {
    let Expr::Identifier(name) = expression else { return false };
    select.projection.iter().any(|item| match item {
        SelectItem::ExprWithAlias { alias, .. } => normalize(alias) == normalize(name),
        _ => false,
    })
}

/// Replaces a join in parentheses by a subquery if the join has an alias. The alias hides the names of the joined
/// tables.
pub(super) fn rewrite_nested(table: &mut TableFactor) -> ControlFlow<SqlError> {
    let TableFactor::NestedJoin { table_with_joins, alias } = table else { return ControlFlow::Continue(()) };
    match alias.take() {
        Some(alias) => {
            let all = vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())];
            let subquery = syntax::select(all, vec![table_with_joins.as_ref().clone()], None);
            *table = TableFactor::Derived { lateral: false, subquery, alias: Some(alias), sample: None };
            ControlFlow::Continue(())
        }
        None if table_with_joins.joins.iter().any(|join| merges_nullable_columns(&join.join_operator)) => {
            unsupported("RIGHT or FULL JOIN USING in parentheses", "a join with ON is")
        }
        None => ControlFlow::Continue(()),
    }
}

/// Whether a `RIGHT` or `FULL JOIN` merges columns. The left value of a merged column can be missing.
fn merges_nullable_columns(join: &JoinOperator) -> bool {
    match join {
        JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint) => {
            matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural)
        }
        _ => false,
    }
}

fn is_using(join: &JoinOperator) -> bool {
    matches!(
        join,
        JoinOperator::Join(JoinConstraint::Using(_))
            | JoinOperator::Inner(JoinConstraint::Using(_))
            | JoinOperator::Left(JoinConstraint::Using(_))
            | JoinOperator::LeftOuter(JoinConstraint::Using(_))
    )
}

/// Rewrites the joins and merged columns of a `SELECT`. A `RIGHT` or `FULL JOIN` that merges columns must be rewritten;
/// other joins with `USING` are rewritten if possible. Returns `None` if nothing changed.
fn rewrite_joins(select: &mut Select) -> ControlFlow<SqlError, Option<Merged>> {
    let joins = || select.from.iter().flat_map(|from| &from.joins).map(|join| &join.join_operator);
    let has_options = |item: &SelectItem| matches!(item, SelectItem::Wildcard(options) if *options != WildcardAdditionalOptions::default());
    let must_rewrite = joins().any(merges_nullable_columns);
    let may_rewrite = joins().any(is_using) && !select.projection.iter().any(has_options);
    if !must_rewrite && !may_rewrite {
        return ControlFlow::Continue(None);
    }
    let mut merged = Merged { shared: shared_names(&select.from), ..Merged::default() };
    let mut from = select.from.clone();
    match from.iter_mut().try_for_each(|from| merged.add(from)) {
        ControlFlow::Continue(()) => select.from = from,
        // The planner reads the left column, which is correct for inner and left joins.
        ControlFlow::Break(_) if !must_rewrite => return ControlFlow::Continue(None),
        ControlFlow::Break(error) => return ControlFlow::Break(error),
    }
    let items = std::mem::take(&mut select.projection);
    for item in items {
        match item {
            SelectItem::Wildcard(options) => match merged.all_columns_but(options) {
                Some(columns) => select.projection.extend(columns),
                None => {
                    return unsupported("these options of * with JOIN USING", "EXCLUDE and the names of columns are");
                }
            },
            SelectItem::UnnamedExpr(Expr::Identifier(name)) => select.projection.push(match merged.value(&name) {
                Some(expr) => SelectItem::ExprWithAlias { expr, alias: name },
                None => SelectItem::UnnamedExpr(Expr::Identifier(name)),
            }),
            mut item => {
                item.visit(&mut merged)?;
                select.projection.push(item);
            }
        }
    }
    let Select { distinct, selection, group_by, having, qualify, named_window, .. } = select;
    distinct.visit(&mut merged)?;
    selection.visit(&mut merged)?;
    group_by.visit(&mut merged)?;
    having.visit(&mut merged)?;
    qualify.visit(&mut merged)?;
    named_window.visit(&mut merged)?;
    ControlFlow::Continue(Some(merged))
}

/// Returns the names that several tables of a `FROM` clause have, in different schemas.
fn shared_names(from: &[TableWithJoins]) -> Vec<String> {
    let factors = from
        .iter()
        .flat_map(|from| std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation)));
    let names: Vec<String> = factors
        .filter_map(|factor| match factor {
            TableFactor::Table { name, alias: None, args: None, .. } => name.0.last()?.as_ident().map(normalize),
            _ => None,
        })
        .collect();
    (1..names.len())
        .filter(|index| names[..*index].contains(&names[*index]))
        .map(|index| names[index].clone())
        .collect()
}

/// Error for unsupported syntax. `allowed` completes "... is not supported; ".
fn unsupported<T>(what: &str, allowed: &str) -> ControlFlow<SqlError, T> {
    ControlFlow::Break(SqlError::unsupported(what, allowed))
}

/// A relation in the `FROM` clause.
struct Relation {
    name: ObjectName,
    /// Columns of this relation that `USING` merges.
    merged: Vec<Ident>,
}

/// Merged columns of a `SELECT`. As a visitor, it replaces their names outside of subqueries.
#[derive(Default)]
struct Merged {
    relations: Vec<Relation>,
    /// Name and value of each merged column, in the order of `*`.
    columns: Vec<(Ident, Expr)>,
    /// For each item of `FROM`, the number of its relations and of its merged columns.
    items: Vec<(usize, usize)>,
    /// Number of subqueries around the visited expression.
    depth: usize,
    /// Names that several tables have. Columns of a table without a schema are qualified by [`UNQUALIFIED`].
    shared: Vec<String>,
}

impl Merged {
    /// Adds the relations and merged columns of an item of `FROM`, and replaces its `USING` by `ON`.
    fn add(&mut self, from: &mut TableWithJoins) -> ControlFlow<SqlError> {
        let first = self.relations.len();
        // The joins of one item do not merge columns with another item.
        let of_others = std::mem::take(&mut self.columns);
        self.add_relation(&from.relation)?;
        for join in &mut from.joins {
            self.add_relation(&join.relation)?;
            let (is_left, is_right) = match &join.join_operator {
                JoinOperator::Right(_) | JoinOperator::RightOuter(_) => (false, true),
                JoinOperator::FullOuter(_) => (true, true),
                _ => (true, false),
            };
            let (JoinOperator::Join(constraint)
            | JoinOperator::Inner(constraint)
            | JoinOperator::Left(constraint)
            | JoinOperator::LeftOuter(constraint)
            | JoinOperator::Right(constraint)
            | JoinOperator::RightOuter(constraint)
            | JoinOperator::FullOuter(constraint)
            | JoinOperator::CrossJoin(constraint)) = &mut join.join_operator
            else {
                return unsupported("RIGHT or FULL JOIN USING together with a join of this kind", "a join with ON is");
            };
            let names = match constraint {
                JoinConstraint::Using(names) => names.clone(),
                JoinConstraint::Natural => {
                    return unsupported("NATURAL together with RIGHT or FULL JOIN", "a join with USING or ON is");
                }
                _ => continue,
            };
            let mut conditions = Vec::with_capacity(names.len());
            let mut columns = Vec::new();
            for name in &names {
                let [ObjectNamePart::Identifier(name)] = name.0.as_slice() else {
                    return unsupported("qualified names in USING", "names of columns are");
                };
                let right = self.column_of(self.relations.len() - 1, name);
                let left = match self.value(name) {
                    Some(value) => value,
                    None if self.relations.len() == first + 2 => self.column_of(first, name),
                    None => {
                        let what = format!("USING ({name}) after a join without it, together with RIGHT or FULL JOIN");
                        return unsupported(&what, "a join with ON is");
                    }
                };
                let value = match (is_left, is_right) {
                    (true, true) => syntax::call("coalesce", vec![left.clone(), right.clone()]),
                    (false, _) => right.clone(),
                    _ => left.clone(),
                };
                conditions.push(syntax::equal(left, right));
                self.columns.retain(|(known, _)| normalize(known) != normalize(name));
                columns.push((name.clone(), value));
            }
            self.columns.splice(0..0, columns);
            *constraint = match syntax::all_of(conditions) {
                Some(condition) => JoinConstraint::On(condition),
                None => return unsupported("USING without columns", "at least one column is"),
            };
        }
        self.items.push((self.relations.len() - first, self.columns.len()));
        self.columns.splice(0..0, of_others);
        ControlFlow::Continue(())
    }

    fn add_relation(&mut self, table: &TableFactor) -> ControlFlow<SqlError> {
        let alias = match table {
            TableFactor::Table { alias, .. }
            | TableFactor::Derived { alias, .. }
            | TableFactor::TableFunction { alias, .. }
            | TableFactor::Function { alias, .. }
            | TableFactor::UNNEST { alias, .. } => alias,
            _ => {
                return unsupported(
                    "a join in parentheses together with RIGHT or FULL JOIN USING",
                    "a join with ON is",
                );
            }
        };
        let name = match (alias, table) {
            (Some(alias), _) => ObjectName::from(alias.name.clone()),
            (None, TableFactor::Table { name, .. }) => match name.0.as_slice() {
                [ObjectNamePart::Identifier(table)] if self.shared.contains(&normalize(table)) => {
                    ObjectName::from(vec![syntax::quoted(UNQUALIFIED), table.clone()])
                }
                _ => name.clone(),
            },
            _ => return unsupported("a subquery without alias together with RIGHT or FULL JOIN USING", "an alias is"),
        };
        self.relations.push(Relation { name, merged: Vec::new() });
        ControlFlow::Continue(())
    }

    /// Records that `USING` merges a column of a relation, and returns the qualified column.
    fn column_of(&mut self, relation: usize, column: &Ident) -> Expr {
        let relation = &mut self.relations[relation];
        relation.merged.push(column.clone());
        let mut parts: Vec<Ident> = relation.name.0.iter().filter_map(|part| part.as_ident().cloned()).collect();
        parts.push(column.clone());
        Expr::CompoundIdentifier(parts)
    }

    fn value(&self, name: &Ident) -> Option<Expr> {
        let found = self.columns.iter().find(|(known, _)| normalize(known) == normalize(name));
        found.map(|(_, value)| value.clone())
    }

    /// Expands `*` to the merged columns of each item of `FROM`, followed by the other columns of its relations.
    /// Returns `None` if the options do more than exclude merged columns.
    fn all_columns_but(&self, options: WildcardAdditionalOptions) -> Option<Vec<SelectItem>> {
        let excluded = match options.opt_exclude {
            None => Vec::new(),
            Some(ExcludeSelectItem::Single(ref name)) => vec![name.clone()],
            Some(ExcludeSelectItem::Multiple(ref names)) => names.clone(),
        };
        let others = WildcardAdditionalOptions { opt_exclude: None, ..options };
        let merged_names: Vec<ObjectName> =
            self.columns.iter().map(|(name, _)| ObjectName::from(name.clone())).collect();
        if others != WildcardAdditionalOptions::default() || !excluded.iter().all(|name| merged_names.contains(name)) {
            return None;
        }
        let merged = |(name, value): &(Ident, Expr)| {
            let is_excluded = excluded.contains(&ObjectName::from(name.clone()));
            (!is_excluded).then(|| SelectItem::ExprWithAlias { expr: value.clone(), alias: name.clone() })
        };
        let others = |relation: &Relation| {
            let merged: Vec<ObjectName> = relation.merged.iter().cloned().map(ObjectName::from).collect();
            let exclude = (!merged.is_empty()).then_some(ExcludeSelectItem::Multiple(merged));
            let options = WildcardAdditionalOptions { opt_exclude: exclude, ..WildcardAdditionalOptions::default() };
            let name = SelectItemQualifiedWildcardKind::ObjectName(relation.name.clone());
            SelectItem::QualifiedWildcard(name, options)
        };
        let (mut relations, mut columns) = (self.relations.iter(), self.columns.iter());
        let mut all = Vec::new();
        for (relation_count, column_count) in &self.items {
            all.extend(columns.by_ref().take(*column_count).filter_map(merged));
            all.extend(relations.by_ref().take(*relation_count).map(others));
        }
        Some(all)
    }
}

impl VisitorMut for Merged {
    type Break = SqlError;

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<SqlError> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<SqlError> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<SqlError> {
        if self.depth == 0
            && let Expr::Identifier(name) = expression
            && let Some(value) = self.value(name)
        {
            *expression = value;
        }
        ControlFlow::Continue(())
    }
}
