//! `INSERT` with `ON CONFLICT`, `RETURNING` or `DEFAULT`, which DataFusion does not plan.

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    Assignment, ConflictTarget as AstConflictTarget, Expr, Insert as Ast, JoinConstraint, JoinOperator, ObjectName,
    OnConflict, OnConflictAction, OnInsert, Parens, Query, SelectItem, SetExpr, TableFactor, TableObject,
    visit_expressions_mut,
};

use super::assign::values_of;
use super::qualify::qualified;
use super::target::Target;
use super::update::Update;
use super::{ACTION, Action, MutationQuery, Outputs, Parts, ROW, TargetColumn, refuse};
use crate::desugar::values_with_queries;
use crate::error::{ObjectKind, Result, SqlError};
use crate::identifiers::{local_name, normalize};
use crate::parameters::{literal, parameter};
use crate::syntax::{
    self, all_of, alone, any_of, case, column, derived, equal, is_default, is_null, item, joined, nested, select,
};

/// Relation name of the rows to insert.
const EXCLUDED: &str = "excluded";

/// The parts of an `INSERT`.
#[derive(Clone, Debug)]
pub(super) struct Insert {
    columns: Vec<ObjectName>,
    /// `None` for `DEFAULT VALUES`.
    source: Option<Box<Query>>,
    pub conflict: Option<Conflict>,
}

/// Rows of an `INSERT ... VALUES`.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// Columns that the values are for. Empty means all columns of the table.
    pub columns: &'a [ObjectName],
    /// Rows of values.
    pub rows: &'a [Parens<Vec<Expr>>],
}

/// An `ON CONFLICT` clause.
#[derive(Clone, Debug)]
pub struct Conflict {
    /// Conflicts that the clause handles. `None` means all.
    pub target: Option<ConflictTarget>,
    action: OnConflictAction,
}

/// Key or constraint whose conflicts `ON CONFLICT` handles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConflictTarget {
    /// A key over these columns.
    Columns(Vec<String>),
    /// The constraint of this name.
    Constraint(String),
}

impl Conflict {
    /// Whether conflicts update the existing rows. Otherwise the new rows that conflict are skipped.
    pub fn updates(&self) -> bool {
        matches!(self.action, OnConflictAction::DoUpdate(_))
    }

    fn of(conflict: OnConflict) -> Result<Self> {
        let target = match conflict.conflict_target {
            None => None,
            Some(AstConflictTarget::Columns(columns)) => {
                Some(ConflictTarget::Columns(columns.iter().map(normalize).collect()))
            }
            Some(AstConflictTarget::OnConstraint(name)) => Some(ConflictTarget::Constraint(local_name(&name)?)),
        };
        if target.is_none() && matches!(conflict.action, OnConflictAction::DoUpdate(_)) {
            let message = "ON CONFLICT DO UPDATE requires inference specification or constraint name: \
                           ON CONFLICT (columns) DO UPDATE or ON CONFLICT ON CONSTRAINT name DO UPDATE";
            return Err(SqlError::syntax(message));
        }
        Ok(Self { target, action: conflict.action })
    }
}

/// Whether an `INSERT` has a part that DataFusion does not plan, so that it becomes a mutation.
pub(super) fn is_ours(insert: &Ast) -> bool {
    insert.on.is_some()
        || insert.returning.is_some()
        || insert.table_alias.is_some()
        || insert.source.as_deref().is_none_or(|source| match source.body.as_ref() {
            SetExpr::Values(values) => values.rows.iter().flat_map(|row| &row.content).any(is_default),
            _ => false,
        })
}

pub(super) fn parts(insert: Ast) -> Result<(Target, Parts, Option<Vec<SelectItem>>)> {
    refuse(
        &[
            (insert.or.is_some(), "INSERT OR"),
            (insert.ignore, "INSERT IGNORE"),
            (insert.overwrite, "INSERT OVERWRITE"),
            (insert.replace_into, "REPLACE INTO"),
            (!insert.assignments.is_empty(), "INSERT ... SET"),
            (insert.partitioned.is_some() || !insert.after_columns.is_empty(), "PARTITION in INSERT"),
            (insert.output.is_some(), "OUTPUT in INSERT"),
            (insert.insert_alias.is_some(), "a name for the rows of VALUES"),
            (insert.format_clause.is_some() || insert.settings.is_some(), "FORMAT or SETTINGS in INSERT"),
            (insert.multi_table_insert_type.is_some(), "INSERT into several tables"),
            (matches!(insert.on, Some(OnInsert::DuplicateKeyUpdate(_))), "ON DUPLICATE KEY UPDATE"),
        ],
        "INSERT INTO t (a, b) VALUES (1, 2) ON CONFLICT (a) DO UPDATE SET b = excluded.b RETURNING a is",
    )?;
    let TableObject::TableName(name) = &insert.table else {
        return Err(SqlError::unsupported(format!("INSERT INTO {}", insert.table), "the name of a table is"));
    };
    let target = Target::new(name, insert.table_alias.as_ref().map(|alias| &alias.alias))?;
    let conflict = match insert.on {
        Some(OnInsert::OnConflict(conflict)) => Some(Conflict::of(conflict)?),
        _ => None,
    };
    if conflict.is_some() && target.alias == EXCLUDED {
        return Err(SqlError::Duplicate { kind: ObjectKind::TableName, name: target.alias });
    }
    let parts = Insert { columns: insert.columns, source: insert.source, conflict };
    Ok((target, Parts::Insert(parts), insert.returning))
}

impl Insert {
    pub fn query(
        &self,
        target: &Target,
        columns: &[TargetColumn<'_>],
        conflict_keys: &[Vec<String>],
    ) -> Result<MutationQuery> {
        let (source, values) = self.source(target, columns)?;
        let Some(conflict) = &self.conflict else { return Ok(inserting(columns, source, values)) };
        // In `excluded`, a column without a given value has its default.
        let values = columns.iter().zip(values).map(|(column, value)| item(column.cast(value), column.name));
        let rows = derived(select(values.collect(), vec![alone(source)], None), EXCLUDED, &[]);
        let excluded = |column: &TargetColumn<'_>| syntax::column(EXCLUDED, column.name);
        let matches =
            |names: &Vec<String>| all_of(names.iter().map(|name| equal(target.column(name), column(EXCLUDED, name))));
        let matches: Vec<Expr> = conflict_keys.iter().filter_map(matches).collect();
        let is_new = is_null(target.row());
        let (from, action, values, selection) = match (&conflict.action, matches.as_slice()) {
            (OnConflictAction::DoNothing, keys) => {
                // One `NOT EXISTS` per key: a join on the disjunction of the keys would compare every new row with
                // every existing row.
                let is_new = keys.iter().map(|matches| not_exists(target, matches.clone()));
                let values = columns.iter().map(excluded).collect();
                let query = inserting(columns, rows, values);
                return Ok(MutationQuery { query: filtered(query.query, all_of(is_new)), ..query });
            }
            (OnConflictAction::DoUpdate(_), []) => {
                let allowed = "a key of the table, over columns that ON CONFLICT names, is";
                return Err(SqlError::unsupported("ON CONFLICT DO UPDATE without a key", allowed));
            }
            (OnConflictAction::DoUpdate(update), [matches, ..]) => {
                let from = joined(rows, JoinOperator::Left(JoinConstraint::On(matches.clone())), target.relation());
                let action = case(vec![(is_new.clone(), Action::Insert.code())], Action::Update.code());
                let set = values_of(&update.assignments, target, columns)?;
                let value = |(column, set): (&TargetColumn<'_>, Option<Expr>)| {
                    let old = target.column(column.name);
                    let set = set.map(|set| column.cast(qualified(&set, columns, &target.alias)));
                    case(vec![(is_new.clone(), excluded(column))], set.unwrap_or(old))
                };
                let values: Vec<Expr> = columns.iter().zip(set).map(value).collect();
                let condition = update.selection.as_ref().map(|condition| {
                    let condition = nested(qualified(condition, columns, &target.alias));
                    any_of([is_new.clone(), condition])
                });
                (from, action, values, condition.flatten())
            }
        };
        let mut projection = vec![item(target.row(), ROW), item(action, ACTION)];
        projection.extend(columns.iter().zip(values).map(|(column, value)| item(value, column.name)));
        let query = select(projection, vec![from], selection);
        Ok(MutationQuery { query, outputs: Outputs::new(true, true, columns.len()) })
    }

    /// Named columns and rows of an `INSERT ... VALUES`. `None` if the source is anything else.
    pub fn listed(&self) -> Option<Listed<'_>> {
        let source = self.source.as_deref()?;
        let is_whole = source.with.is_none()
            && source.order_by.is_none()
            && source.limit_clause.is_none()
            && source.fetch.is_none();
        match source.body.as_ref() {
            SetExpr::Values(values) if is_whole => Some(Listed { columns: &self.columns, rows: &values.rows }),
            _ => None,
        }
    }

    /// Builds the update of the existing row with key `key`, for an insert of one row of literals and parameters.
    /// Returns `None` for other inserts.
    pub fn update(&self, target: &Target, columns: &[TargetColumn<'_>], key: &[String]) -> Result<Option<Update>> {
        let (Some(conflict), Some(Listed { rows: [row], .. })) = (&self.conflict, self.listed()) else {
            return Ok(None);
        };
        let assignments = match &conflict.action {
            OnConflictAction::DoNothing => &Vec::new(),
            OnConflictAction::DoUpdate(update) if update.selection.is_none() => &update.assignments,
            OnConflictAction::DoUpdate(_) => return Ok(None),
        };
        let given = self.given(target, columns, Some(row.content.len()))?;
        let mut proposed: Vec<Expr> = columns.iter().map(TargetColumn::default).collect();
        for (index, value) in given.iter().zip(&row.content) {
            if literal(value).is_none() && parameter(value).is_none() {
                return Ok(None);
            }
            proposed[*index] = value.clone();
        }
        let index_of = |name: &str| columns.iter().position(|column| column.name == name);
        let assignments = assignments.iter().map(|assignment| {
            let mut value = qualified(&assignment.value, columns, &target.alias);
            let _: ControlFlow<()> = visit_expressions_mut(&mut value, |part| {
                if let Expr::CompoundIdentifier(names) = part
                    && let [relation, name] = names.as_slice()
                    && normalize(relation) == EXCLUDED
                    && let Some(index) = index_of(&normalize(name))
                {
                    *part = columns[index].cast(proposed[index].clone());
                }
                ControlFlow::Continue(())
            });
            Assignment { target: assignment.target.clone(), value }
        });
        let assignments = assignments.collect();
        let is_key = |name: &String| Some(equal(target.column(name), proposed[index_of(name)?].clone()));
        let Some(is_key) = key.iter().map(is_key).collect::<Option<Vec<_>>>() else { return Ok(None) };
        Ok(Some(Update::of(assignments, all_of(is_key))))
    }

    /// The rows to insert as the statement lists them, and an expression over them for each column of the table.
    fn source(&self, target: &Target, columns: &[TargetColumn<'_>]) -> Result<(TableFactor, Vec<Expr>)> {
        let Some(source) = &self.source else {
            let defaults = columns.iter().map(|column| item(column.default(), column.name)).collect();
            let source = derived(select(defaults, Vec::new(), None), EXCLUDED, &[]);
            return Ok((source, columns.iter().map(|column| syntax::column(EXCLUDED, column.name)).collect()));
        };
        let given = self.given(target, columns, width_of(source)?)?;
        let names: Vec<&str> = given.iter().map(|index| columns[*index].name).collect();
        let source = derived(with_defaults(source, &given, columns), EXCLUDED, &names);
        let value = |(index, column): (usize, &TargetColumn<'_>)| match given.contains(&index) {
            true => syntax::column(EXCLUDED, column.name),
            false => column.default(),
        };
        Ok((source, columns.iter().enumerate().map(value).collect()))
    }

    /// Indexes of the columns that the statement gives values for. `width` is the number of values in a row, if it is
    /// known.
    fn given(&self, target: &Target, columns: &[TargetColumn<'_>], width: Option<usize>) -> Result<Vec<usize>> {
        let mut given = Vec::with_capacity(columns.len());
        for name in &self.columns {
            let index = target.index(name, columns)?;
            if given.contains(&index) {
                return Err(SqlError::Duplicate { kind: ObjectKind::Column, name: columns[index].name.to_owned() });
            }
            given.push(index);
        }
        let wanted = if given.is_empty() { columns.len() } else { given.len() };
        if width.is_some_and(|width| width > wanted || (width < wanted && !given.is_empty())) {
            let width = width.unwrap_or_default();
            let few_or_many = match width > wanted {
                true => "INSERT has more expressions than target columns",
                false => "INSERT has more target columns than expressions",
            };
            let message = format!("{few_or_many}: table {:?} takes {wanted} values, {width} are given", target.table);
            return Err(SqlError::syntax(message));
        }
        if given.is_empty() {
            // As in PostgreSQL, fewer values than columns are assigned to the first columns.
            given.extend(0..width.unwrap_or(wanted));
        }
        Ok(given)
    }
}

/// `NOT EXISTS` of a row of the table that meets a condition.
fn not_exists(target: &Target, condition: Expr) -> Expr {
    let one = item(Action::Insert.code(), ACTION);
    let subquery = select(vec![one], vec![alone(target.relation())], Some(condition));
    Expr::Exists { subquery, negated: true }
}

/// Sets the condition of a plain `SELECT`.
fn filtered(mut query: Box<Query>, condition: Option<Expr>) -> Box<Query> {
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.selection = condition;
    }
    query
}

/// Query of an insert whose rows are all inserted, so that it needs no row ids or actions.
fn inserting(columns: &[TargetColumn<'_>], source: TableFactor, values: Vec<Expr>) -> MutationQuery {
    let projection = columns.iter().zip(values).map(|(column, value)| item(value, column.name)).collect();
    let query = select(projection, vec![alone(source)], None);
    MutationQuery { query, outputs: Outputs::new(false, false, columns.len()) }
}

/// Number of columns of a query. `None` if it is known only after planning.
fn width_of(source: &Query) -> Result<Option<usize>> {
    match source.body.as_ref() {
        SetExpr::Values(values) => {
            let mut widths = values.rows.iter().map(|row| row.content.len());
            let first = widths.next();
            match widths.all(|width| Some(width) == first) {
                true => Ok(first),
                false => {
                    let message = "VALUES lists must all be the same length";
                    Err(SqlError::syntax(message))
                }
            }
        }
        SetExpr::Select(select) => {
            let is_one =
                |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
            Ok(select.projection.iter().all(is_one).then_some(select.projection.len()))
        }
        _ => Ok(None),
    }
}

/// Replaces `DEFAULT` in the rows of `VALUES` with the default of its column, and casts parameters to the type of their
/// column.
fn with_defaults(source: &Query, given: &[usize], columns: &[TargetColumn<'_>]) -> Box<Query> {
    let mut source = Box::new(source.clone());
    if let SetExpr::Values(values) = source.body.as_mut() {
        for row in &mut values.rows {
            for (value, index) in row.content.iter_mut().zip(given) {
                *value = columns[*index].value(value);
            }
        }
    }
    values_with_queries(&mut source.body);
    source
}
