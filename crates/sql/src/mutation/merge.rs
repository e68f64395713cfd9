//! `MERGE INTO t USING u ON ... WHEN ... THEN ...`.

use datafusion_sql::sqlparser::ast::{
    Assignment, Expr, JoinConstraint, JoinOperator, Merge as Ast, MergeAction, MergeClause, MergeClauseKind,
    MergeInsertExpr, MergeInsertKind, ObjectName, OutputClause, SelectItem, TableFactor, WildcardAdditionalOptions,
};

use super::assign::values_of;
use super::nothing::is_nothing;
use super::qualify::qualified;
use super::target::{Target, name_of};
use super::{ACTION, Action, MutationQuery, Outputs, Parts, ROW, TargetColumn, refuse};
use crate::error::{ObjectKind, Result, SqlError};
use crate::syntax::{
    all_of, alone, any_of, case, column, derived, integer, is_not_null, is_null, item, joined, nested, never, select,
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
    then: Then,
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
enum Then {
    Insert { columns: Vec<ObjectName>, values: Vec<Expr> },
    Update(Vec<Assignment>),
    Delete,
    Nothing,
}

pub(super) fn parts(merge: Ast) -> Result<(Target, Parts, Option<Vec<SelectItem>>)> {
    let target = Target::of(&merge.table)?;
    target.check_name(&merge.source)?;
    let returning = match merge.output {
        None => None,
        Some(OutputClause::Returning { select_items, .. }) => Some(select_items),
        Some(OutputClause::Output { .. }) => {
            return Err(SqlError::unsupported("OUTPUT in MERGE", "RETURNING is"));
        }
    };
    let clauses = merge.clauses.into_iter().map(Clause::of).collect::<Result<Vec<_>>>()?;
    if clauses.is_empty() {
        let message = "syntax error: MERGE has no WHEN clause";
        return Err(SqlError::syntax(message));
    }
    let parts = Merge { source: merge.source, on: *merge.on, clauses };
    Ok((target, Parts::Merge(Box::new(parts)), returning))
}

impl Clause {
    fn of(clause: MergeClause) -> Result<Self> {
        let allowed = "WHEN ... AND condition THEN is";
        let when = match clause.clause_kind {
            MergeClauseKind::Matched => When::Matched,
            MergeClauseKind::NotMatched | MergeClauseKind::NotMatchedByTarget => When::NotMatched,
            MergeClauseKind::NotMatchedBySource => When::NotMatchedBySource,
        };
        let then = match clause.action {
            action if is_nothing(&action) => Then::Nothing,
            MergeAction::Insert(insert) => {
                refuse(&[(insert.insert_predicate.is_some(), "INSERT ... WHERE in MERGE")], allowed)?;
                let values = one_row(&insert)?;
                Then::Insert { columns: insert.columns, values }
            }
            MergeAction::Update(update) => {
                refuse(
                    &[
                        (update.update_predicate.is_some(), "UPDATE ... WHERE in MERGE"),
                        (update.delete_predicate.is_some(), "DELETE WHERE in MERGE"),
                    ],
                    allowed,
                )?;
                Then::Update(update.assignments)
            }
            MergeAction::Delete { .. } => Then::Delete,
        };
        Ok(Self { when, predicate: clause.predicate, then })
    }

    fn action(&self) -> Action {
        match self.then {
            Then::Insert { .. } => Action::Insert,
            Then::Update(_) => Action::Update,
            Then::Delete => Action::Delete,
            Then::Nothing => Action::Nothing,
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
        let join = self.join();
        let (source, marker) = self.source(join)?;
        let conditions = self.clauses.iter().map(|clause| self.condition(clause, join, target, columns, &marker));
        let conditions: Vec<Option<Expr>> = conditions.collect();
        let values = self.clauses.iter().map(|clause| self.values(clause, target, columns));
        let values = values.collect::<Result<Vec<_>>>()?;

        let mut projection = vec![item(target.row(), ROW)];
        let actions = self.clauses.iter().map(|clause| clause.action().code()).collect();
        projection.push(item(first_that_holds(&conditions, actions, Action::Nothing.code()), ACTION));
        for (index, column) in columns.iter().enumerate() {
            let old = target.column(column.name);
            let values = values.iter().map(|values| values[index].clone().unwrap_or_else(|| old.clone())).collect();
            projection.push(item(first_that_holds(&conditions, values, old), column.name));
        }
        let constraint = JoinConstraint::On(self.on.clone());
        let operator = match join {
            Join::Matches => JoinOperator::Inner(constraint),
            Join::Sources => JoinOperator::Left(constraint),
            Join::Targets => JoinOperator::Right(constraint),
            Join::Both => JoinOperator::FullOuter(constraint),
        };
        let from = joined(source, operator, target.relation());
        let query = select(projection, vec![from], self.selection(join, conditions));
        Ok(MutationQuery { query, outputs: Outputs::new(true, true, columns.len()) })
    }

    fn has(&self, when: When) -> bool {
        self.clauses.iter().any(|clause| clause.when == when)
    }

    fn join(&self) -> Join {
        match (self.has(When::NotMatched), self.has(When::NotMatchedBySource)) {
            (false, false) => Join::Matches,
            (true, false) => Join::Sources,
            (false, true) => Join::Targets,
            (true, true) => Join::Both,
        }
    }

    /// Returns the source relation and its marker column. The marker is null in rows without a source row; the relation
    /// has the column only if the join has such rows.
    fn source(&self, join: Join) -> Result<(TableFactor, Expr)> {
        let name = name_of(&self.source);
        let relation = name.as_deref().unwrap_or(SOURCE);
        let marker = column(relation, SOURCE);
        if matches!(join, Join::Matches | Join::Sources) {
            return Ok((self.source.clone(), marker));
        }
        if matches!(self.source, TableFactor::NestedJoin { alias: None, .. }) {
            return Err(SqlError::unsupported(
                "a join as the source of MERGE with WHEN NOT MATCHED BY SOURCE",
                "USING (SELECT ... FROM u JOIN v ON ...) AS s is",
            ));
        }
        let all = SelectItem::Wildcard(WildcardAdditionalOptions::default());
        let marked = select(vec![all, item(integer(1), SOURCE)], vec![alone(self.source.clone())], None);
        Ok((derived(marked, relation, &[]), marker))
    }

    /// Condition on a row of the join for a clause to apply. `None` if the clause applies to every row.
    fn condition(
        &self,
        clause: &Clause,
        join: Join,
        target: &Target,
        columns: &[TargetColumn<'_>],
        marker: &Expr,
    ) -> Option<Expr> {
        let has_target = (clause.when == When::Matched && matches!(join, Join::Sources | Join::Both))
            .then(|| is_not_null(target.row()));
        let has_source = (clause.when == When::Matched && matches!(join, Join::Targets | Join::Both))
            .then(|| is_not_null(marker.clone()));
        let has_none = match clause.when {
            When::Matched => None,
            When::NotMatched => Some(is_null(target.row())),
            When::NotMatchedBySource => Some(is_null(marker.clone())),
        };
        let predicate = clause.predicate.as_ref().map(|predicate| self.visible(clause, predicate, target, columns));
        all_of([has_target, has_source, has_none, predicate.map(nested)].into_iter().flatten())
    }

    /// Qualifies the unqualified columns of a clause with the one relation that the clause can refer to. A clause for
    /// matches can refer to both relations and stays as it is.
    fn visible(&self, clause: &Clause, expression: &Expr, target: &Target, columns: &[TargetColumn<'_>]) -> Expr {
        match (clause.when, name_of(&self.source)) {
            (When::NotMatched, Some(source)) => qualified(expression, columns, &source),
            (When::NotMatchedBySource, _) => qualified(expression, columns, &target.alias),
            _ => expression.clone(),
        }
    }

    /// Values that a clause assigns, one per column. `None` for columns that it leaves unchanged.
    fn values(&self, clause: &Clause, target: &Target, columns: &[TargetColumn<'_>]) -> Result<Vec<Option<Expr>>> {
        let value = |column: &TargetColumn<'_>, value: &Expr| column.cast(self.visible(clause, value, target, columns));
        match &clause.then {
            Then::Delete | Then::Nothing => Ok(vec![None; columns.len()]),
            Then::Update(assignments) => {
                let set = values_of(assignments, target, columns)?;
                Ok(columns.iter().zip(set).map(|(column, set)| set.map(|set| value(column, &set))).collect())
            }
            Then::Insert { columns: names, values } => {
                let indexes = match names.as_slice() {
                    // As in PostgreSQL, fewer values than columns are assigned to the first columns.
                    [] => (0..values.len().min(columns.len())).collect(),
                    names => names.iter().map(|name| target.index(name, columns)).collect::<Result<Vec<_>>>()?,
                };
                if indexes.len() != values.len() {
                    let (wanted, given) = (indexes.len(), values.len());
                    let message = format!("INSERT in MERGE takes {wanted} values, {given} are given");
                    return Err(SqlError::syntax(message));
                }
                let mut row = vec![None; columns.len()];
                for (index, given) in indexes.into_iter().zip(values) {
                    let column = &columns[index];
                    let given = value(column, &column.value(given));
                    if row[index].replace(given).is_some() {
                        return Err(SqlError::Duplicate { kind: ObjectKind::Column, name: column.name.to_owned() });
                    }
                }
                let rest = |(column, value): (&TargetColumn<'_>, Option<Expr>)| {
                    Some(value.unwrap_or_else(|| column.cast(column.default())))
                };
                Ok(columns.iter().zip(row).map(rest).collect())
            }
        }
    }

    /// Condition that some clause changes a row. `None` if every row of the join is changed.
    fn selection(&self, join: Join, conditions: Vec<Option<Expr>>) -> Option<Expr> {
        let covers = |when| self.clauses.iter().any(|clause| clause.when == when && clause.predicate.is_none());
        let is_in_join = |when| match when {
            When::Matched => true,
            When::NotMatched => matches!(join, Join::Sources | Join::Both),
            When::NotMatchedBySource => matches!(join, Join::Targets | Join::Both),
        };
        let all = [When::Matched, When::NotMatched, When::NotMatchedBySource];
        let does_all = self.clauses.iter().all(|clause| clause.action() != Action::Nothing);
        if does_all && all.into_iter().all(|when| !is_in_join(when) || covers(when)) {
            return None;
        }
        let does = self.clauses.iter().map(|clause| clause.action() != Action::Nothing);
        let conditions = does.zip(conditions).filter_map(|(does, condition)| does.then_some(condition));
        // A clause without a condition applies to every row. If no clause changes anything, no row is needed.
        let conditions: Option<Vec<Expr>> = conditions.collect();
        Some(any_of(conditions?.into_iter().map(nested)).unwrap_or_else(never))
    }
}

/// Rows that the join of source and target must keep.
#[derive(Clone, Copy)]
enum Join {
    Matches,
    /// All rows of the source.
    Sources,
    /// All rows of the target.
    Targets,
    Both,
}

/// Value of the first clause whose condition holds. The query keeps only rows for which some condition holds, so the
/// last clause needs no condition here.
fn first_that_holds(conditions: &[Option<Expr>], mut values: Vec<Expr>, otherwise: Expr) -> Expr {
    let Some(last) = values.pop() else { return otherwise };
    let mut branches = Vec::new();
    for (condition, value) in conditions.iter().zip(values) {
        match condition {
            Some(condition) => branches.push((condition.clone(), value)),
            None => return shortest(branches, value),
        }
    }
    shortest(branches, last)
}

/// A `CASE` without trailing branches that have the same value as `last`.
fn shortest(mut branches: Vec<(Expr, Expr)>, last: Expr) -> Expr {
    while branches.last().is_some_and(|(_, value)| *value == last) {
        branches.pop();
    }
    case(branches, last)
}
