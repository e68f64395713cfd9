//! `INSERT` with `ON CONFLICT`, `RETURNING` or `DEFAULT`, which DataFusion does not plan.

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    Assignment, AssignmentTarget, ConflictTarget as AstConflictTarget, DoUpdate, Expr, Insert as Ast, JoinConstraint,
    JoinOperator, ObjectName, OnConflict, OnConflictAction, OnInsert, Parens, Query, SelectItem, SetExpr,
    SqliteOnConflict, TableFactor, TableObject, WildcardAdditionalOptions, visit_expressions_mut,
};

use super::assign::assigned_values;
use super::conflict_target::inferred_target;
use super::insert_modifiers::{Modifiers, Overriding};
use super::qualify::qualify_columns;
use super::target::Target;
use super::update::Update;
use super::{ACTION, Action, CHECK_ROW, HiddenColumns, MutationQuery, Outputs, Parts, ROW, TargetColumn, reject_parts};
use crate::desugar::rewrite_values_with_queries;
use crate::error::{ObjectKind, Result, SqlError};
use crate::identifiers::{normalize, single_name};
use crate::index_part::IndexPart;
use crate::parameters::{literal, parameter};
use crate::syntax::{
    self, aliased, all_of, any_of, case, column, derived_table, equal, is_default, is_null, null, parenthesized,
    select, with_join, without_joins,
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
    modifiers: Modifiers,
}

/// Rows of an `INSERT ... VALUES`.
#[derive(Clone, Copy, Debug)]
pub struct ListedRows<'a> {
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
    action: ConflictAction,
}

#[derive(Clone, Debug)]
enum ConflictAction {
    DoNothing,
    DoUpdate(Box<DoUpdate>),
    /// `INSERT OR IGNORE`.
    Ignore,
    /// `INSERT OR REPLACE`: the columns of the statement get the new values.
    Replace,
}

/// Key or constraint whose conflicts `ON CONFLICT` handles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConflictTarget {
    /// A key over these columns.
    Columns(Vec<String>),
    /// A unique index on these parts. If the index is partial, `predicate` implies its predicate.
    Parts {
        /// Columns and expressions, in any order.
        parts: Vec<IndexPart>,
        /// Condition after `WHERE`.
        predicate: Option<Box<Expr>>,
    },
    /// The constraint with this name.
    Constraint(String),
}

impl Conflict {
    /// Whether conflicts update the existing rows. Otherwise the new rows that conflict are skipped.
    pub fn is_do_update(&self) -> bool {
        matches!(self.action, ConflictAction::DoUpdate(_) | ConflictAction::Replace)
    }

    /// Returns the name of an `INSERT OR REPLACE` or `INSERT OR IGNORE`, which need a key of the table. Returns `None`
    /// for `ON CONFLICT`.
    pub fn insert_or(&self) -> Option<&'static str> {
        match self.action {
            ConflictAction::Ignore => Some("INSERT OR IGNORE"),
            ConflictAction::Replace => Some("INSERT OR REPLACE"),
            ConflictAction::DoNothing | ConflictAction::DoUpdate(_) => None,
        }
    }

    fn from_ast(conflict: OnConflict) -> Result<Self> {
        let target = match conflict.conflict_target {
            None => None,
            Some(AstConflictTarget::Columns(columns)) => Some(match columns.as_slice() {
                [name] if let Some(target) = inferred_target(name)? => target,
                columns => ConflictTarget::Columns(columns.iter().map(normalize).collect()),
            }),
            Some(AstConflictTarget::OnConstraint(name)) => Some(ConflictTarget::Constraint(single_name(&name)?)),
        };
        let action = match conflict.action {
            OnConflictAction::DoNothing => ConflictAction::DoNothing,
            OnConflictAction::DoUpdate(update) => ConflictAction::DoUpdate(Box::new(update)),
        };
        if target.is_none() && matches!(action, ConflictAction::DoUpdate(_)) {
            let message = "ON CONFLICT DO UPDATE requires inference specification or constraint name: \
                           ON CONFLICT (columns) DO UPDATE or ON CONFLICT ON CONSTRAINT name DO UPDATE";
            return Err(SqlError::syntax(message));
        }
        Ok(Self { target, action })
    }
}

/// Whether an `INSERT` has a part that DataFusion does not plan, and therefore becomes a mutation.
pub(super) fn needs_mutation(insert: &Ast) -> bool {
    insert.on.is_some()
        || insert.or.is_some()
        || Modifiers::are_in(&insert.columns)
        || insert.returning.is_some()
        || insert.table_alias.is_some()
        || insert.source.as_deref().is_none_or(|source| match source.body.as_ref() {
            SetExpr::Values(values) => values.rows.iter().flat_map(|row| &row.content).any(is_default),
            _ => false,
        })
}

pub(super) fn split(mut insert: Ast) -> Result<(Target, Parts, Option<Vec<SelectItem>>)> {
    reject_parts(
        &[
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
    let insert_or = insert.or.map(insert_or).transpose()?;
    let conflict = match (insert.on, insert_or) {
        (Some(_), Some(_)) => {
            let message = "INSERT OR REPLACE and INSERT OR IGNORE have no ON CONFLICT clause";
            return Err(SqlError::syntax(message));
        }
        (Some(OnInsert::OnConflict(conflict)), None) => Some(Conflict::from_ast(conflict)?),
        (_, action) => action.map(|action| Conflict { target: None, action }),
    };
    let modifiers = Modifiers::take(&mut insert.columns);
    if modifiers.by_name {
        check_by_name(&insert.columns, insert.source.as_deref())?;
    }
    if conflict.is_some() && target.alias == EXCLUDED {
        return Err(SqlError::Duplicate { kind: ObjectKind::TableName, name: target.alias });
    }
    let parts = Insert { columns: insert.columns, source: insert.source, conflict, modifiers };
    Ok((target, Parts::Insert(parts), insert.returning))
}

/// Action of an `INSERT OR ...` on rows whose key exists.
fn insert_or(or: SqliteOnConflict) -> Result<ConflictAction> {
    match or {
        SqliteOnConflict::Ignore => Ok(ConflictAction::Ignore),
        SqliteOnConflict::Replace => Ok(ConflictAction::Replace),
        other => Err(SqlError::unsupported(format!("INSERT {other}"), "INSERT OR REPLACE and INSERT OR IGNORE are")),
    }
}

/// Checks the other parts of an `INSERT ... BY NAME`.
fn check_by_name(columns: &[ObjectName], source: Option<&Query>) -> Result<()> {
    if !columns.is_empty() {
        return Err(SqlError::syntax("INSERT BY NAME cannot be combined with an explicit column list"));
    }
    match source.map(|source| source.body.as_ref()) {
        None | Some(SetExpr::Values(_)) => {
            Err(SqlError::syntax("INSERT BY NAME can only be used when inserting from a SELECT statement"))
        }
        Some(_) => Ok(()),
    }
}

impl Insert {
    pub fn query(
        &self,
        target: &Target,
        columns: &[TargetColumn<'_>],
        conflict_keys: &[Vec<String>],
    ) -> Result<MutationQuery> {
        let (source, values) = self.source(target, columns)?;
        let Some(conflict) = &self.conflict else { return Ok(insert_query(columns, source, values)) };
        // In `excluded`, a column without a given value has its default.
        let values = columns.iter().zip(values).map(|(column, value)| aliased(column.cast(value), column.name));
        let rows = derived_table(select(values.collect(), vec![without_joins(source)], None), EXCLUDED, &[]);
        let rows = with_row_check(with_expressions(rows, columns), columns, conflict_keys);
        let excluded = |column: &TargetColumn<'_>| syntax::column(EXCLUDED, column.name);
        let matches =
            |names: &Vec<String>| all_of(names.iter().map(|name| equal(target.column(name), column(EXCLUDED, name))));
        let matches: Vec<Expr> = conflict_keys.iter().filter_map(matches).collect();
        let is_new = is_null(target.row_id());
        let (from, action, values, selection) = match (&conflict.action, matches.as_slice()) {
            (ConflictAction::DoNothing | ConflictAction::Ignore, keys) => {
                // One `NOT EXISTS` per key: a join on the disjunction of the keys would compare every new row with
                // every existing row.
                let is_new = keys.iter().map(|matches| not_exists(target, matches.clone()));
                let values = columns.iter().map(excluded).collect();
                let query = insert_query(columns, rows, values);
                return Ok(MutationQuery { query: with_condition(query.query, all_of(is_new)), ..query });
            }
            (ConflictAction::DoUpdate(_) | ConflictAction::Replace, []) => {
                let allowed = "a key of the table, over columns that ON CONFLICT names, is";
                return Err(SqlError::unsupported("ON CONFLICT DO UPDATE without a key", allowed));
            }
            (ConflictAction::DoUpdate(_) | ConflictAction::Replace, [matches, ..]) => {
                let update = match &conflict.action {
                    ConflictAction::DoUpdate(update) => update.as_ref(),
                    _ => &self.replacement(target, columns, &conflict_keys[0])?,
                };
                let from = with_join(rows, JoinOperator::Left(JoinConstraint::On(matches.clone())), target.relation());
                let action = case(vec![(is_new.clone(), Action::Insert.code())], Action::Update.code());
                let set = assigned_values(&update.assignments, target, columns)?;
                let value = |(column, set): (&TargetColumn<'_>, Option<Expr>)| {
                    let old = target.column(column.name);
                    let set = set.map(|set| column.cast(qualify_columns(&set, columns, &target.alias)));
                    case(vec![(is_new.clone(), excluded(column))], set.unwrap_or(old))
                };
                let values: Vec<Expr> = columns.iter().zip(set).map(value).collect();
                let condition = update.selection.as_ref().map(|condition| {
                    let condition = parenthesized(qualify_columns(condition, columns, &target.alias));
                    any_of([is_new.clone(), condition])
                });
                (from, action, values, condition.flatten())
            }
        };
        let mut projection = vec![aliased(target.row_id(), ROW), aliased(action, ACTION)];
        projection.extend(columns.iter().zip(values).map(|(column, value)| aliased(value, column.name)));
        let query = select(projection, vec![from], selection);
        Ok(MutationQuery { query, outputs: Outputs::new(HiddenColumns::RowAndAction, columns.len()) })
    }

    /// Named columns and rows of an `INSERT ... VALUES`. `None` if the source is anything else.
    pub fn listed_rows(&self) -> Option<ListedRows<'_>> {
        let source = self.source.as_deref().filter(|_| self.modifiers == Modifiers::default())?;
        let is_plain_values = source.with.is_none()
            && source.order_by.is_none()
            && source.limit_clause.is_none()
            && source.fetch.is_none();
        match source.body.as_ref() {
            SetExpr::Values(values) if is_plain_values => {
                Some(ListedRows { columns: &self.columns, rows: &values.rows })
            }
            _ => None,
        }
    }

    /// Builds the update that an insert of one row runs if a row with its value of `key` exists. The values must be
    /// literals or parameters. Returns `None` for inserts that one such update cannot express.
    pub fn update(&self, target: &Target, columns: &[TargetColumn<'_>], key: &[String]) -> Result<Option<Update>> {
        let (Some(conflict), Some(ListedRows { rows: [row], .. })) = (&self.conflict, self.listed_rows()) else {
            return Ok(None);
        };
        let assignments = match &conflict.action {
            ConflictAction::DoNothing | ConflictAction::Ignore => &Vec::new(),
            ConflictAction::DoUpdate(update) if update.selection.is_none() => &update.assignments,
            ConflictAction::DoUpdate(_) => return Ok(None),
            ConflictAction::Replace => match self.replacement(target, columns, key)?.assignments {
                // The statement counts the existing row as changed, although no column changes.
                assignments if assignments.is_empty() => return Ok(None),
                assignments => &{ assignments },
            },
        };
        if columns.iter().any(|column| column.expression().is_some()) {
            return Ok(None);
        }
        let indexes = self.columns_with_values(target, columns, Some(row.content.len()))?;
        let mut proposed: Vec<Expr> = columns.iter().map(TargetColumn::default).collect();
        for (index, value) in indexes.iter().zip(&row.content) {
            if literal(value).is_none() && parameter(value).is_none() {
                return Ok(None);
            }
            columns[*index].check_inserted(false)?;
            proposed[*index] = value.clone();
        }
        let index_of = |name: &str| columns.iter().position(|column| column.name == name);
        let assignments = assignments.iter().map(|assignment| {
            let mut value = qualify_columns(&assignment.value, columns, &target.alias);
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
        Ok(Some(Update::where_holds(assignments, all_of(is_key))))
    }

    /// Returns the rows of the statement as a relation, and for each column of the table an expression over this
    /// relation.
    fn source(&self, target: &Target, columns: &[TargetColumn<'_>]) -> Result<(TableFactor, Vec<Expr>)> {
        let Some(source) = &self.source else {
            let defaults = columns.iter().map(|column| aliased(column.default(), column.name)).collect();
            let source = derived_table(select(defaults, Vec::new(), None), EXCLUDED, &[]);
            return Ok((source, columns.iter().map(|column| syntax::column(EXCLUDED, column.name)).collect()));
        };
        let indexes = self.columns_with_values(target, columns, column_count(source)?)?;
        let names: Vec<&str> = indexes.iter().map(|index| columns[*index].name).collect();
        let source = derived_table(self.with_defaults(source, &indexes, columns)?, EXCLUDED, &names);
        let is_given = |index: usize| indexes.contains(&index) && !self.ignores_value(&columns[index]);
        let value = |(index, column): (usize, &TargetColumn<'_>)| match is_given(index) {
            true => syntax::column(EXCLUDED, column.name),
            false => column.default(),
        };
        Ok((source, columns.iter().enumerate().map(value).collect()))
    }

    /// Indexes of the columns that the statement gives values for. `width` is the number of values in a row, if it is
    /// known.
    fn columns_with_values(
        &self,
        target: &Target,
        columns: &[TargetColumn<'_>],
        width: Option<usize>,
    ) -> Result<Vec<usize>> {
        let mut indexes = Vec::with_capacity(columns.len());
        for name in &self.columns {
            let index = target.index(name, columns)?;
            if indexes.contains(&index) {
                return Err(SqlError::Duplicate { kind: ObjectKind::Column, name: columns[index].name.to_owned() });
            }
            indexes.push(index);
        }
        let visible = || columns.iter().enumerate().filter(|(_, column)| !column.is_hidden()).map(|(index, _)| index);
        let expected = if indexes.is_empty() { visible().count() } else { indexes.len() };
        if width.is_some_and(|width| width > expected || (width < expected && !indexes.is_empty())) {
            return Err(values_error(target.table.table(), expected, width.unwrap_or_default()));
        }
        if indexes.is_empty() {
            // As in PostgreSQL, fewer values than columns are assigned to the first columns.
            indexes.extend(visible().take(width.unwrap_or(expected)));
        }
        Ok(indexes)
    }

    /// Replaces `DEFAULT` in the rows of `VALUES` with the default of its column, and casts parameters to the type of
    /// their column.
    ///
    /// # Errors
    /// If a column that is `GENERATED ALWAYS` gets a value other than `DEFAULT`.
    fn with_defaults(&self, source: &Query, indexes: &[usize], columns: &[TargetColumn<'_>]) -> Result<Box<Query>> {
        let mut source = Box::new(source.clone());
        let columns: Vec<TargetColumn<'_>> = columns.iter().map(|column| self.overridden(column)).collect();
        if let SetExpr::Values(values) = source.body.as_mut() {
            for row in &mut values.rows {
                for (value, index) in row.content.iter_mut().zip(indexes) {
                    *value = match self.ignores_value(&columns[*index]) {
                        // The default is computed later for each row, so it must not be computed here too.
                        true => null(),
                        false => columns[*index].inserted_value(value)?,
                    };
                }
            }
        } else {
            indexes.iter().try_for_each(|index| columns[*index].check_inserted(false))?;
        }
        rewrite_values_with_queries(&mut source.body);
        Ok(source)
    }

    /// Returns the column with the effect of `OVERRIDING`: an identity column then accepts values.
    fn overridden<'a>(&self, column: &TargetColumn<'a>) -> TargetColumn<'a> {
        let is_overridden = column.is_identity && self.modifiers.overriding.is_some();
        TargetColumn { generated: column.generated.filter(|_| !is_overridden), ..*column }
    }

    /// Whether a column gets its default, whatever value the statement gives.
    fn ignores_value(&self, column: &TargetColumn<'_>) -> bool {
        column.is_identity && self.modifiers.overriding == Some(Overriding::UserValue)
    }

    /// The update of `INSERT OR REPLACE`: the columns of the statement that are not in the key get the new values.
    fn replacement(&self, target: &Target, columns: &[TargetColumn<'_>], key: &[String]) -> Result<DoUpdate> {
        let width = self.source.as_deref().map(column_count).transpose()?.flatten();
        let given = match self.source {
            Some(_) => self.columns_with_values(target, columns, width)?,
            None => (0..columns.len()).collect(),
        };
        let is_assigned =
            |column: &&TargetColumn<'_>| column.generated.is_none() && !key.iter().any(|key| key == column.name);
        let columns = given.into_iter().map(|index| &columns[index]).filter(is_assigned);
        let assignments = columns.map(|column| Assignment {
            target: AssignmentTarget::ColumnName(ObjectName::from(vec![syntax::quoted(column.name)])),
            value: syntax::column(EXCLUDED, column.name),
        });
        Ok(DoUpdate { assignments: assignments.collect(), selection: None })
    }

    /// Returns the query of an `INSERT ... BY NAME` whose columns are not known yet. Returns `None` for other
    /// statements.
    pub fn query_by_name(&self) -> Option<Box<Query>> {
        let source = self.source.clone().filter(|_| self.modifiers.by_name)?;
        let all = SelectItem::Wildcard(WildcardAdditionalOptions::default());
        Some(select(vec![all], vec![without_joins(derived_table(source, EXCLUDED, &[]))], None))
    }

    /// Sets the columns of an `INSERT ... BY NAME`.
    pub fn set_columns<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        self.columns = names.map(|name| ObjectName::from(vec![syntax::quoted(name)])).collect();
        self.modifiers.by_name = false;
    }
}

/// Computes the generated columns of the rows to insert. Hidden columns are computed last, because they may read the
/// other columns.
fn with_expressions(rows: TableFactor, columns: &[TargetColumn<'_>]) -> TableFactor {
    [false, true].into_iter().fold(rows, |rows, is_hidden| {
        let computed =
            |column: &TargetColumn<'_>| column.expression().cloned().filter(|_| column.is_hidden() == is_hidden);
        if columns.iter().all(|column| computed(column).is_none()) {
            return rows;
        }
        let value = |column: &TargetColumn<'_>| match computed(column) {
            Some(expression) => column.cast(parenthesized(expression)),
            None => syntax::column(EXCLUDED, column.name),
        };
        let values = columns.iter().map(|column| aliased(value(column), column.name));
        derived_table(select(values.collect(), vec![without_joins(rows)], None), EXCLUDED, &[])
    })
}

/// Checks the rows to insert by [`CHECK_ROW`], which returns its first argument. As in PostgreSQL, a row must not
/// violate NOT NULL or CHECK even if it conflicts with an existing row.
fn with_row_check(rows: TableFactor, columns: &[TargetColumn<'_>], conflict_keys: &[Vec<String>]) -> TableFactor {
    // The planner knows nothing about the result of a function, and joins the rows by the columns of the keys.
    let is_key = |column: &TargetColumn<'_>| conflict_keys.iter().flatten().any(|key| key == column.name);
    let checked = columns.iter().position(|column| !is_key(column)).unwrap_or_default();
    let excluded = |column: &TargetColumn<'_>| syntax::column(EXCLUDED, column.name);
    let value = |(index, column): (usize, &TargetColumn<'_>)| match index == checked {
        true => syntax::call(CHECK_ROW, [column].into_iter().chain(columns).map(excluded).collect()),
        false => excluded(column),
    };
    let values = columns.iter().enumerate().map(|(index, column)| aliased(value((index, column)), column.name));
    derived_table(select(values.collect(), vec![without_joins(rows)], None), EXCLUDED, &[])
}

/// Error about an `INSERT` with another number of values than it has columns to fill.
pub fn values_error(table: &str, columns: usize, values: usize) -> SqlError {
    let problem = match values > columns {
        true => "INSERT has more expressions than target columns",
        false => "INSERT has more target columns than expressions",
    };
    SqlError::syntax(format!("{problem}: table {table:?} takes {columns} values, {values} are given"))
}

/// `NOT EXISTS` of rows of the table for which a condition is true.
fn not_exists(target: &Target, condition: Expr) -> Expr {
    let one = aliased(Action::Insert.code(), ACTION);
    let subquery = select(vec![one], vec![without_joins(target.relation())], Some(condition));
    Expr::Exists { subquery, negated: true }
}

/// Sets the condition of a plain `SELECT`.
fn with_condition(mut query: Box<Query>, condition: Option<Expr>) -> Box<Query> {
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.selection = condition;
    }
    query
}

/// Query of an insert that never updates an existing row. All its rows are inserted, so it needs no row ids or actions.
fn insert_query(columns: &[TargetColumn<'_>], source: TableFactor, values: Vec<Expr>) -> MutationQuery {
    let projection = columns.iter().zip(values).map(|(column, value)| aliased(value, column.name)).collect();
    let query = select(projection, vec![without_joins(source)], None);
    MutationQuery { query, outputs: Outputs::new(HiddenColumns::None, columns.len()) }
}

/// Number of columns of a query. `None` if it is known only after planning.
pub fn column_count(source: &Query) -> Result<Option<usize>> {
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
            let is_one_column =
                |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
            Ok(select.projection.iter().all(is_one_column).then_some(select.projection.len()))
        }
        _ => Ok(None),
    }
}
