//! `MERGE INTO t USING u ON ... WHEN ... THEN ...`.

use datafusion_sql::sqlparser::ast::{
    Assignment, Expr, JoinConstraint, JoinOperator, Merge as Ast, MergeAction, MergeClause, MergeClauseKind,
    MergeInsertExpr, MergeInsertKind, ObjectName, OutputClause, SelectItem, TableFactor, WildcardAdditionalOptions,
};

use super::assign::assigned_values;
use super::do_nothing::is_do_nothing;
use super::qualify::{qualify_columns, refers_to};
use super::target::Target;
use super::{ACTION, Action, HiddenColumns, MutationQuery, Outputs, Parts, ROW, TargetColumn, reject_parts};
use crate::error::{ObjectKind, Result, SqlError};
use crate::syntax::{
    aliased, all_of, any_of, case, column, derived_table, false_literal, integer, is_not_null, is_null, parenthesized,
    relation_name, select, with_join, without_joins,
};

/// Marker column of the source. It is null in rows of the join that have no source row.
const SOURCE: &str = "taut source";

/// The parts of a `MERGE`.
#[derive(Clone, Debug)]
pub(super) struct Merge {
    source: TableFactor,
    on: Expr,
    clauses: Vec<Clause>,
}

/// One `WHEN` clause.
#[derive(Clone, Debug)]
struct Clause {
    when: When,
    predicate: Option<Expr>,
    then: ClauseAction,
}

/// Rows of the join that a clause applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Matched,
    /// Rows of the source without a matching target row.
    NotMatched,
    /// Rows of the target without a matching source row.
    NotMatchedBySource,
}

#[derive(Clone, Debug)]
enum ClauseAction {
    Insert { columns: Vec<ObjectName>, values: Vec<Expr> },
    Update(Vec<Assignment>),
    Delete,
    Nothing,
}

pub(super) fn split(merge: Ast) -> Result<(Target, Parts, Option<Vec<SelectItem>>)> {
    let target = Target::from_table_factor(&merge.table)?;
    target.check_name(&merge.source)?;
    let returning = match merge.output {
        None => None,
        Some(OutputClause::Returning { select_items, .. }) => Some(select_items),
        Some(OutputClause::Output { .. }) => {
            return Err(SqlError::unsupported("OUTPUT in MERGE", "RETURNING is"));
        }
    };
    let clauses = merge.clauses.into_iter().map(Clause::from_ast).collect::<Result<Vec<_>>>()?;
    if clauses.is_empty() {
        let message = "syntax error: MERGE has no WHEN clause";
        return Err(SqlError::syntax(message));
    }
    let parts = Merge { source: merge.source, on: *merge.on, clauses };
    Ok((target, Parts::Merge(Box::new(parts)), returning))
}

impl Clause {
    fn from_ast(clause: MergeClause) -> Result<Self> {
        let allowed = "WHEN ... AND condition THEN is";
        let when = match clause.clause_kind {
            MergeClauseKind::Matched => When::Matched,
            MergeClauseKind::NotMatched | MergeClauseKind::NotMatchedByTarget => When::NotMatched,
            MergeClauseKind::NotMatchedBySource => When::NotMatchedBySource,
        };
        let then = match clause.action {
            action if is_do_nothing(&action) => ClauseAction::Nothing,
            MergeAction::Insert(insert) => {
                reject_parts(&[(insert.insert_predicate.is_some(), "INSERT ... WHERE in MERGE")], allowed)?;
                let values = one_row(&insert)?;
                ClauseAction::Insert { columns: insert.columns, values }
            }
            MergeAction::Update(update) => {
                reject_parts(
                    &[
                        (update.update_predicate.is_some(), "UPDATE ... WHERE in MERGE"),
                        (update.delete_predicate.is_some(), "DELETE WHERE in MERGE"),
                    ],
                    allowed,
                )?;
                ClauseAction::Update(update.assignments)
            }
            MergeAction::Delete { .. } => ClauseAction::Delete,
        };
        Ok(Self { when, predicate: clause.predicate, then })
    }

    /// The condition of the clause, and the values that it assigns.
    fn expressions(&self) -> impl Iterator<Item = &Expr> {
        let (values, assignments): (&[Expr], &[Assignment]) = match &self.then {
            ClauseAction::Insert { values, .. } => (values, &[]),
            ClauseAction::Update(assignments) => (&[], assignments),
            ClauseAction::Delete | ClauseAction::Nothing => (&[], &[]),
        };
        self.predicate.iter().chain(values).chain(assignments.iter().map(|assignment| &assignment.value))
    }

    fn action(&self) -> Action {
        match self.then {
            ClauseAction::Insert { .. } => Action::Insert,
            ClauseAction::Update(_) => Action::Update,
            ClauseAction::Delete => Action::Delete,
            ClauseAction::Nothing => Action::Nothing,
        }
    }
}

fn one_row(insert: &MergeInsertExpr) -> Result<Vec<Expr>> {
    if let MergeInsertKind::Values(values) = &insert.kind
        && let [row] = values.rows.as_slice()
    {
        return Ok(row.content.clone());
    }
    Err(SqlError::unsupported(format!("INSERT {} in MERGE", insert.kind), "INSERT (a, b) VALUES (1, 2) is"))
}

impl Merge {
    pub fn query(&self, target: &Target, columns: &[TargetColumn<'_>]) -> Result<MutationQuery> {
        self.check_references(target)?;
        let join = self.join();
        let (source, marker) = self.source(join)?;
        let conditions = self.clauses.iter().map(|clause| self.condition(clause, join, target, columns, &marker));
        let conditions: Vec<Option<Expr>> = conditions.collect();
        let values = self.clauses.iter().map(|clause| self.values(clause, target, columns));
        let values = values.collect::<Result<Vec<_>>>()?;

        let mut projection = vec![aliased(target.row_id(), ROW)];
        let actions = self.clauses.iter().map(|clause| clause.action().code()).collect();
        projection.push(aliased(first_that_holds(&conditions, actions, Action::Nothing.code()), ACTION));
        for (index, column) in columns.iter().enumerate() {
            let old = target.column(column.name);
            let values = values.iter().map(|values| values[index].clone().unwrap_or_else(|| old.clone())).collect();
            projection.push(aliased(first_that_holds(&conditions, values, old), column.name));
        }
        let constraint = JoinConstraint::On(self.on.clone());
        let operator = match join {
            Join::Inner => JoinOperator::Inner(constraint),
            Join::AllSources => JoinOperator::Left(constraint),
            Join::AllTargets => JoinOperator::Right(constraint),
            Join::Full => JoinOperator::FullOuter(constraint),
        };
        let from = with_join(source, operator, target.relation());
        let query = select(projection, vec![from], self.selection(join, conditions));
        Ok(MutationQuery { query, outputs: Outputs::new(HiddenColumns::RowAndAction, columns.len()) })
    }

    /// Returns an error if a clause refers to the relation that has no row for it: all columns of that relation would
    /// be null.
    fn check_references(&self, target: &Target) -> Result<()> {
        for clause in &self.clauses {
            let hidden = match clause.when {
                When::Matched => continue,
                When::NotMatched => Some(target.alias.clone()),
                When::NotMatchedBySource => relation_name(&self.source),
            };
            let Some(table) = hidden else { continue };
            if clause.expressions().any(|expression| refers_to(expression, &table)) {
                return Err(SqlError::HiddenTable { table });
            }
        }
        Ok(())
    }

    fn has_clause(&self, when: When) -> bool {
        self.clauses.iter().any(|clause| clause.when == when)
    }

    fn join(&self) -> Join {
        match (self.has_clause(When::NotMatched), self.has_clause(When::NotMatchedBySource)) {
            (false, false) => Join::Inner,
            (true, false) => Join::AllSources,
            (false, true) => Join::AllTargets,
            (true, true) => Join::Full,
        }
    }

    /// Returns the source relation and its marker column. The marker is null in rows without a source row; the relation
    /// has the column only if the join has such rows.
    fn source(&self, join: Join) -> Result<(TableFactor, Expr)> {
        let name = relation_name(&self.source);
        let relation = name.as_deref().unwrap_or(SOURCE);
        let marker = column(relation, SOURCE);
        if matches!(join, Join::Inner | Join::AllSources) {
            return Ok((self.source.clone(), marker));
        }
        if matches!(self.source, TableFactor::NestedJoin { alias: None, .. }) {
            return Err(SqlError::unsupported(
                "a join as the source of MERGE with WHEN NOT MATCHED BY SOURCE",
                "USING (SELECT ... FROM u JOIN v ON ...) AS s is",
            ));
        }
        let all = SelectItem::Wildcard(WildcardAdditionalOptions::default());
        let marked = select(vec![all, aliased(integer(1), SOURCE)], vec![without_joins(self.source.clone())], None);
        Ok((derived_table(marked, relation, &[]), marker))
    }

    /// Condition under which a clause applies to a row of the join. `None` if the clause applies to every row.
    fn condition(
        &self,
        clause: &Clause,
        join: Join,
        target: &Target,
        columns: &[TargetColumn<'_>],
        marker: &Expr,
    ) -> Option<Expr> {
        let has_target = (clause.when == When::Matched && matches!(join, Join::AllSources | Join::Full))
            .then(|| is_not_null(target.row_id()));
        let has_source = (clause.when == When::Matched && matches!(join, Join::AllTargets | Join::Full))
            .then(|| is_not_null(marker.clone()));
        let is_unmatched = match clause.when {
            When::Matched => None,
            When::NotMatched => Some(is_null(target.row_id())),
            When::NotMatchedBySource => Some(is_null(marker.clone())),
        };
        let predicate =
            clause.predicate.as_ref().map(|predicate| self.qualify_for_clause(clause, predicate, target, columns));
        all_of([has_target, has_source, is_unmatched, predicate.map(parenthesized)].into_iter().flatten())
    }

    /// Qualifies the unqualified columns of a clause with the one relation that the clause can refer to. A `WHEN
    /// MATCHED` clause can refer to both relations and stays unchanged.
    fn qualify_for_clause(
        &self,
        clause: &Clause,
        expression: &Expr,
        target: &Target,
        columns: &[TargetColumn<'_>],
    ) -> Expr {
        match (clause.when, relation_name(&self.source)) {
            (When::NotMatched, Some(source)) => qualify_columns(expression, columns, &source),
            (When::NotMatchedBySource, _) => qualify_columns(expression, columns, &target.alias),
            _ => expression.clone(),
        }
    }

    /// Values that a clause assigns, one per column. `None` for columns that the clause does not change.
    fn values(&self, clause: &Clause, target: &Target, columns: &[TargetColumn<'_>]) -> Result<Vec<Option<Expr>>> {
        let value = |column: &TargetColumn<'_>, value: &Expr| {
            column.cast(self.qualify_for_clause(clause, value, target, columns))
        };
        match &clause.then {
            ClauseAction::Delete | ClauseAction::Nothing => Ok(vec![None; columns.len()]),
            ClauseAction::Update(assignments) => {
                let set = assigned_values(assignments, target, columns)?;
                Ok(columns.iter().zip(set).map(|(column, set)| set.map(|set| value(column, &set))).collect())
            }
            ClauseAction::Insert { columns: names, values } => {
                let indexes = match names.as_slice() {
                    // As in PostgreSQL, fewer values than columns are assigned to the first columns.
                    [] => (0..columns.len()).filter(|index| !columns[*index].is_hidden()).take(values.len()).collect(),
                    names => names.iter().map(|name| target.index(name, columns)).collect::<Result<Vec<_>>>()?,
                };
                if indexes.len() != values.len() {
                    let (expected, given) = (indexes.len(), values.len());
                    let message = format!("INSERT in MERGE takes {expected} values, {given} are given");
                    return Err(SqlError::syntax(message));
                }
                let mut row = vec![None; columns.len()];
                for (index, given) in indexes.into_iter().zip(values) {
                    let column = &columns[index];
                    let given = value(column, &column.inserted_value(given)?);
                    if row[index].replace(given).is_some() {
                        return Err(SqlError::Duplicate { kind: ObjectKind::Column, name: column.name.to_owned() });
                    }
                }
                let value_or_default = |(column, value): (&TargetColumn<'_>, Option<Expr>)| {
                    Some(value.unwrap_or_else(|| column.cast(column.default())))
                };
                Ok(columns.iter().zip(row).map(value_or_default).collect())
            }
        }
    }

    /// Condition under which some clause changes a row. Returns `None` if every row of the join is changed.
    fn selection(&self, join: Join, conditions: Vec<Option<Expr>>) -> Option<Expr> {
        let has_unconditional_clause =
            |when| self.clauses.iter().any(|clause| clause.when == when && clause.predicate.is_none());
        let is_in_join = |when| match when {
            When::Matched => true,
            When::NotMatched => matches!(join, Join::AllSources | Join::Full),
            When::NotMatchedBySource => matches!(join, Join::AllTargets | Join::Full),
        };
        let all = [When::Matched, When::NotMatched, When::NotMatchedBySource];
        let all_change_rows = self.clauses.iter().all(|clause| clause.action() != Action::Nothing);
        if all_change_rows && all.into_iter().all(|when| !is_in_join(when) || has_unconditional_clause(when)) {
            return None;
        }
        let changes_rows = self.clauses.iter().map(|clause| clause.action() != Action::Nothing);
        let conditions =
            changes_rows.zip(conditions).filter_map(|(changes_rows, condition)| changes_rows.then_some(condition));
        // If a clause that changes rows has no condition, it applies to every row, and the result is `None`. If no
        // clause changes rows, the result is `FALSE`.
        let conditions: Option<Vec<Expr>> = conditions.collect();
        Some(any_of(conditions?.into_iter().map(parenthesized)).unwrap_or_else(false_literal))
    }
}

/// Kind of the join of source and target, by the rows without a match that it returns.
#[derive(Clone, Copy)]
enum Join {
    Inner,
    /// All rows of the source.
    AllSources,
    /// All rows of the target.
    AllTargets,
    Full,
}

/// Value of the first clause whose condition is true. The query returns only rows for which some condition is true, so
/// the last clause needs no condition here.
fn first_that_holds(conditions: &[Option<Expr>], mut values: Vec<Expr>, otherwise: Expr) -> Expr {
    let Some(last) = values.pop() else { return otherwise };
    let mut branches = Vec::new();
    for (condition, value) in conditions.iter().zip(values) {
        match condition {
            Some(condition) => branches.push((condition.clone(), value)),
            None => return shortened_case(branches, value),
        }
    }
    shortened_case(branches, last)
}

/// A `CASE` without trailing branches that have the same value as `last`.
fn shortened_case(mut branches: Vec<(Expr, Expr)>, last: Expr) -> Expr {
    while branches.last().is_some_and(|(_, value)| *value == last) {
        branches.pop();
    }
    case(branches, last)
}
