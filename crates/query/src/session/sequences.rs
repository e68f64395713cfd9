//! Sequences: `CREATE`, `ALTER` and `DROP SEQUENCE`, and the numbers that a session takes from them with `nextval`.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::common::{DataFusionError, TableReference};
use parking_lot::Mutex;
use taut_sql::{DeclaredSequence, IdentityChange, ObjectKind, SequenceChange, SequenceOptions};
use taut_store::{
    Catalog, CatalogEdit, CommitError, Constraints, OwnedSequence, Sequence, SequenceId, Store, Table, TableId,
};
use taut_types::{ColumnIndex, LogicalType, Schema, sibling_name, unqualified_name};

use super::constraints::set_constraints;
use super::names::{check_kind, dependent_views, drop_dependents, drop_views, view_text};
use super::schemas::refuse_readers;
use super::search_path::SearchPath;
use super::transactions::Transactions;
use super::{Done, Outcome, QuerySession};
use crate::constraints::{default_of_sequence, renamed_sequence, sequences_of_default};
use crate::error::{Dependency, QueryError, Result, SequenceError, TemporaryError};
use crate::expressions::{Schemas, Sequences};
use crate::write::changes::Changes;

/// The sequences and schemas that SQL functions of a session read, and the numbers that the session has taken from
/// sequences.
#[derive(Debug)]
pub(super) struct SessionObjects {
    store: Arc<Store>,
    transactions: Arc<Mutex<Transactions>>,
    search_path: Arc<Mutex<SearchPath>>,
    taken: Mutex<LastNumbers>,
}

/// The last number that a session has taken from each sequence, and from any sequence.
#[derive(Debug, Default)]
struct LastNumbers {
    by_sequence: BTreeMap<SequenceId, i64>,
    last: Option<SequenceId>,
}

impl SessionObjects {
    pub fn new(store: Arc<Store>, transactions: Arc<Mutex<Transactions>>, search_path: Arc<Mutex<SearchPath>>) -> Self {
        Self { store, transactions, search_path, taken: Mutex::default() }
    }

    fn snapshot(&self) -> Arc<Catalog> {
        match self.transactions.lock().transaction() {
            Some(transaction) => transaction.snapshot(),
            None => self.store.snapshot(),
        }
    }

    /// Looks up a sequence by the argument of `nextval`: an identifier with or without a schema.
    fn find(&self, name: &str) -> Result<Sequence> {
        let snapshot = self.snapshot();
        let relation = self.search_path.lock().name(&snapshot, &TableReference::parse_str(name))?;
        match snapshot.sequence(&relation) {
            Some(sequence) => Ok(sequence.clone()),
            None if snapshot.is_name_free(&relation) => Err(QueryError::no_relation(name)),
            None => Err(SequenceError::NotASequence { name: relation }.into()),
        }
    }

    /// Rejects changes of a sequence in a read-only transaction, unless the sequence is temporary.
    fn check_may_write(&self, sequence: SequenceId, function: &str) -> Result<()> {
        let is_read_only = self.store.is_read_only() || self.transactions.lock().modes().read_only;
        match is_read_only && !sequence.is_temporary() {
            true => Err(QueryError::Transaction {
                message: format!("cannot execute {function}() in a read-only transaction"),
                hint: None,
                sqlstate: "25006",
            }),
            false => Ok(()),
        }
    }

    fn record(&self, sequence: SequenceId, number: i64) {
        let taken = &mut *self.taken.lock();
        taken.by_sequence.insert(sequence, number);
        taken.last = Some(sequence);
    }

    fn take(&self, name: &str, count: usize) -> Result<Vec<i64>> {
        let sequence = self.find(name)?;
        self.check_may_write(sequence.id, "nextval")?;
        let transaction = self.transactions.lock().transaction();
        let numbers = match transaction {
            Some(transaction) => transaction.next_values(sequence.id, count)?,
            None => self.store.next_values(sequence.id, count)?,
        };
        if let Some(last) = numbers.last() {
            self.record(sequence.id, *last);
        }
        Ok(numbers)
    }

    fn set(&self, name: &str, value: i64, is_called: bool) -> Result<()> {
        let sequence = self.find(name)?;
        self.check_may_write(sequence.id, "setval")?;
        if !(sequence.min..=sequence.max).contains(&value) {
            return Err(SequenceError::OutOfBounds {
                sequence: sequence.name,
                value,
                min: sequence.min,
                max: sequence.max,
            }
            .into());
        }
        let transaction = self.transactions.lock().transaction();
        match transaction {
            Some(transaction) => transaction.set_value(sequence.id, value, is_called)?,
            None => self.store.set_value(sequence.id, value, is_called)?,
        }
        if is_called {
            self.record(sequence.id, value);
        }
        Ok(())
    }

    fn current(&self, name: &str) -> Result<i64> {
        let sequence = self.find(name)?;
        let number = self.taken.lock().by_sequence.get(&sequence.id).copied();
        number.ok_or_else(|| SequenceError::NoCurrentValue { sequence: Some(sequence.name) }.into())
    }

    fn last(&self) -> Result<i64> {
        let taken = self.taken.lock();
        let number = taken.last.and_then(|sequence| taken.by_sequence.get(&sequence).copied());
        number.ok_or_else(|| SequenceError::NoCurrentValue { sequence: None }.into())
    }
}

fn external(error: QueryError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

impl Schemas for SessionObjects {
    fn searched(&self) -> Vec<String> {
        let (path, snapshot) = (self.search_path.lock().clone(), self.snapshot());
        path.schemas().iter().filter(|schema| snapshot.has_schema(schema)).cloned().collect()
    }
}

impl Sequences for SessionObjects {
    fn next_values(&self, name: &str, count: usize) -> datafusion::common::Result<Vec<i64>> {
        self.take(name, count).map_err(external)
    }

    fn current_value(&self, name: &str) -> datafusion::common::Result<i64> {
        self.current(name).map_err(external)
    }

    fn last_value(&self) -> datafusion::common::Result<i64> {
        self.last().map_err(external)
    }

    fn set_value(&self, name: &str, value: i64, is_called: bool) -> datafusion::common::Result<()> {
        self.set(name, value, is_called).map_err(external)
    }
}

impl QuerySession {
    pub(super) fn create_sequence(
        &self,
        name: &str,
        if_not_exists: bool,
        options: &SequenceOptions,
    ) -> Result<Outcome> {
        let snapshot = self.snapshot();
        let is_taken = !snapshot.is_name_free(name);
        if is_taken && if_not_exists {
            let notice = format!("relation {name:?} already exists, skipping");
            return Ok(Outcome::Done(Done { notices: vec![notice], ..Done::with_tag("CREATE SEQUENCE") }));
        }
        if is_taken {
            return Err(QueryError::relation_exists(name));
        }
        let sequence = new_sequence(name, options, LogicalType::BigInt)?;
        let owner = self.named_owner(options)?;
        self.changes().commit_last(|edit| {
            let id = edit.create_sequence(sequence)?;
            set_owner(edit, id, owner.as_ref())
        })?;
        Ok(Outcome::Done(Done::with_tag("CREATE SEQUENCE")))
    }

    pub(super) fn alter_sequence(&self, name: &str, if_exists: bool, change: &SequenceChange) -> Result<Outcome> {
        if if_exists && self.snapshot().sequence(name).is_none() {
            let notice = format!("relation {name:?} does not exist, skipping");
            return Ok(Outcome::Done(Done { notices: vec![notice], ..Done::with_tag("ALTER SEQUENCE") }));
        }
        let owner = match change {
            SequenceChange::Options(options) => self.named_owner(options)?,
            SequenceChange::Rename(_) => {
                refuse_readers(&self.snapshot(), "rename", format!("sequence {name:?}"), [name].into())?;
                None
            }
        };
        if let SequenceChange::Options(_) = change
            && let Some((transaction, _)) = self.transaction()
            && let Some(sequence) = self.snapshot().sequence(name)
        {
            transaction.alter_own_sequence(sequence.id)?;
        }
        self.changes().commit_last(|edit| {
            let sequence = edit.catalog().sequence(name).cloned().ok_or_else(|| QueryError::no_relation(name))?;
            match change {
                SequenceChange::Rename(new_name) => rename_sequence(edit, sequence, &sibling_name(name, new_name)),
                SequenceChange::Options(options) => {
                    let id = sequence.id;
                    edit.alter_sequence(altered_sequence(&sequence, options)?, options.restart.is_some())?;
                    set_owner(edit, id, owner.as_ref())
                }
            }
        })?;
        Ok(Outcome::Done(Done::with_tag("ALTER SEQUENCE")))
    }

    /// Returns the table and the column of `OWNED BY`: `Some(None)` for `OWNED BY NONE`, and `None` without `OWNED BY`.
    fn named_owner(&self, options: &SequenceOptions) -> Result<Option<Option<(String, String)>>> {
        let named = |owner: &Option<(TableReference, String)>| {
            let named = owner.as_ref().map(|(table, column)| Ok((self.name(table)?, column.clone())));
            named.transpose()
        };
        options.owned_by.as_ref().map(named).transpose()
    }

    pub(super) fn drop_sequences(&self, names: &[String], if_exists: bool, cascade: bool) -> Result<Outcome> {
        let snapshot = self.snapshot();
        let (mut notices, mut dropped) = (Vec::new(), BTreeMap::new());
        for name in names {
            check_kind(&snapshot, ObjectKind::Sequence, name)?;
            match snapshot.sequence(name) {
                Some(sequence) => drop(dropped.insert(name.as_str(), sequence.id)),
                None if if_exists => notices.push(format!("sequence {name:?} does not exist, skipping")),
                None => {
                    let kind = ObjectKind::Sequence;
                    return Err(QueryError::NotFound { kind, name: name.clone(), relation: None });
                }
            }
        }
        if let Some((table, column, name)) = identity_of(&snapshot, &dropped) {
            return Err(SequenceError::Required { sequence: name, table, column }.into());
        }
        let uses = uses_in_defaults(&snapshot, |name| dropped.contains_key(name));
        let views = dependent_views(&snapshot, ObjectKind::Sequence, dropped.keys().copied().collect());
        let of_views = views.iter().map(|(view, on)| Dependency { dependent: view_text(view), on: on.clone() });
        let dependencies = uses.iter().map(DefaultUse::dependency).chain(of_views);
        notices.extend(drop_dependents(ObjectKind::Sequence, names, dependencies.collect(), cascade)?);
        self.changes().commit_last(|edit| {
            drop_views(edit, views.iter().map(|(view, _)| view.as_str()).collect())?;
            let uses = uses_in_defaults(edit.catalog(), |name| dropped.contains_key(name));
            drop_defaults(edit, &uses)?;
            for sequence in dropped.values() {
                clear_owner(edit, *sequence)?;
                edit.drop_sequence(*sequence)?;
            }
            Ok::<_, CommitError>(())
        })?;
        Ok(Outcome::Done(Done { notices, ..Done::with_tag("DROP SEQUENCE") }))
    }
}

/// Creates the sequence of a column. Adds the sequence and the default of the column to `constraints`, which the caller
/// stores. Returns the sequence.
pub(super) fn create_owned_sequence(
    edit: &mut CatalogEdit,
    (table, schema): (&str, &Schema),
    declared: &DeclaredSequence,
    constraints: &mut Constraints,
) -> Result<Sequence> {
    let DeclaredSequence { column: column_name, identity, options } = declared;
    let column = schema.index_of(column_name).ok_or_else(|| QueryError::no_column(table, column_name))?;
    let problem =
        |problem| Err(SequenceError::Identity { table: table.to_owned(), column: column_name.clone(), problem }.into());
    if constraints.defaults.contains_key(&column) {
        return problem("already has a default value");
    }
    let logical_type = schema.column(column).logical_type;
    if logical_type.integer_range().is_none() {
        let message = "identity column type must be smallint, integer, or bigint".to_owned();
        return Err(SequenceError::Invalid { message }.into());
    }
    let base = format!("{}_{column_name}_seq", unqualified_name(table));
    let is_free = |name: &String| edit.catalog().is_name_free(name);
    let mut numbered = (1..).map(|number| sibling_name(table, &format!("{base}{number}")));
    let base = sibling_name(table, &base);
    let name = Some(base.clone()).filter(is_free).or_else(|| numbered.find(is_free)).unwrap_or(base);
    // The old sequence is dropped if no default uses it, for example if a `SERIAL` column has lost its default.
    if let Some(old) = constraints.sequences.get(&column).copied() {
        let used = defaults_on(edit.catalog(), &[old.sequence]);
        if let Some(usage) = used.first() {
            let what = format!("a second sequence of column {column_name:?} of table {table:?}");
            return Err(QueryError::unsupported(what, format!("drop the {} first", usage.dependency().dependent)));
        }
        clear_owner(edit, old.sequence)?;
        edit.drop_sequence(old.sequence)?;
    }
    let new = new_sequence(&name, options, logical_type)?;
    let id = edit.create_sequence(new.clone())?;
    constraints.defaults.insert(column, default_of_sequence(&name));
    constraints.sequences.insert(column, OwnedSequence { sequence: id, identity: *identity });
    Ok(Sequence { id, ..new })
}

impl QuerySession {
    /// Adds, changes or drops the identity of a column, in a transaction.
    pub(super) fn change_identity(&self, target: &Changes, name: &str, change: &IdentityChange) -> Result<()> {
        let snapshot = target.snapshot();
        let table = snapshot.table(name).ok_or_else(|| QueryError::no_relation(name))?;
        let (IdentityChange::Add(DeclaredSequence { column, .. })
        | IdentityChange::Set { column, .. }
        | IdentityChange::Alter { column, .. }
        | IdentityChange::Drop { column, .. }) = change;
        let index = table.schema.index_of(column).ok_or_else(|| QueryError::no_column(name, column))?;
        let problem =
            |problem| Err(SequenceError::Identity { table: name.to_owned(), column: column.clone(), problem }.into());
        let owned = table.constraints.sequences.get(&index).copied();
        let Some(OwnedSequence { sequence, .. }) = owned.filter(|owned| owned.identity.is_some()) else {
            return match change {
                IdentityChange::Drop { if_exists: true, .. } => Ok(()),
                IdentityChange::Add(_) if table.schema.column(index).nullable => {
                    problem("must be declared NOT NULL before identity can be added")
                }
                IdentityChange::Add(declared) => target.commit(|edit| {
                    let mut constraints = table.constraints.as_ref().clone();
                    create_owned_sequence(edit, (name, &table.schema), declared, &mut constraints)?;
                    Ok(set_constraints(edit, table.id, constraints)?)
                }),
                _ => problem("is not an identity column"),
            };
        };
        target.commit(|edit| match change {
            IdentityChange::Add(_) => problem("is already an identity column"),
            IdentityChange::Set { identity, .. } => Ok(change_constraints(edit, table.id, |constraints| {
                constraints.sequences.insert(index, OwnedSequence { sequence, identity: Some(*identity) });
            })?),
            IdentityChange::Alter { options, .. } => alter_owned(edit, sequence, options),
            IdentityChange::Drop { .. } => {
                let uses = defaults_on(edit.catalog(), &[sequence]);
                let is_other = |usage: &&DefaultUse| (usage.table, usage.column) != (table.id, index);
                if let Some(usage) = uses.iter().find(is_other) {
                    return Err(QueryError::Dependents {
                        verb: "drop",
                        object: Some(format!("sequence {:?}", usage.sequence)),
                        dependencies: vec![usage.dependency()],
                        hint: "Drop the defaults first.",
                    });
                }
                change_constraints(edit, table.id, |constraints| {
                    constraints.sequences.remove(&index);
                    constraints.defaults.remove(&index);
                })?;
                Ok(edit.drop_sequence(sequence)?)
            }
        })
    }
}

/// Returns a sequence as `CREATE SEQUENCE` declares it. Its numbers have type `default_type`, unless the options
/// specify another type.
pub(super) fn new_sequence(name: &str, options: &SequenceOptions, default_type: LogicalType) -> Result<Sequence> {
    let template = Sequence {
        id: SequenceId(0),
        name: name.to_owned(),
        logical_type: default_type,
        start: 0,
        increment: 1,
        min: 0,
        max: 0,
        cycles: false,
        last: 0,
        is_called: false,
    };
    let sequence = with_options(&template, options, true)?;
    Ok(Sequence { last: sequence.start, ..sequence })
}

/// Returns a sequence with changed options.
fn altered_sequence(sequence: &Sequence, options: &SequenceOptions) -> Result<Sequence> {
    let altered = with_options(sequence, options, false)?;
    if let Some(restart) = options.restart {
        let last = restart.unwrap_or(altered.start);
        check_bounds("RESTART", last, &altered)?;
        return Ok(Sequence { last, is_called: false, ..altered });
    }
    check_bounds("RESTART", altered.last, &altered)?;
    Ok(altered)
}

/// Returns a sequence with the given options. Omitted options have their defaults in a new sequence, and their old
/// values otherwise.
fn with_options(sequence: &Sequence, options: &SequenceOptions, is_new: bool) -> Result<Sequence> {
    let logical_type = options.logical_type.unwrap_or(sequence.logical_type);
    let increment = options.increment.unwrap_or(sequence.increment);
    let invalid = |message: String| Err(SequenceError::Invalid { message }.into());
    if increment == 0 {
        return invalid("INCREMENT must not be zero".to_owned());
    }
    let Some(range) = logical_type.integer_range() else {
        return invalid("sequence type must be smallint, integer, or bigint".to_owned());
    };
    let (least, greatest) = if increment > 0 { (1, *range.end()) } else { (*range.start(), -1) };
    // With a new type, a limit that is a bound of the old type is replaced by the default of the new type.
    let old_range = sequence.logical_type.integer_range();
    let is_default =
        |limit: i64| old_range.as_ref().is_some_and(|range| [range.start(), range.end()].contains(&&limit));
    let limit = |option: Option<Option<i64>>, old: i64, default: i64| match option {
        Some(given) => given.unwrap_or(default),
        None if is_new || (options.logical_type.is_some() && is_default(old)) => default,
        None => old,
    };
    let (min, max) = (limit(options.min, sequence.min, least), limit(options.max, sequence.max, greatest));
    for (name, limit) in [("MINVALUE", min), ("MAXVALUE", max)] {
        if !range.contains(&limit) {
            let sql_type = logical_type.sql_name();
            return invalid(format!("{name} ({limit}) is out of range for sequence data type {sql_type}"));
        }
    }
    if min >= max {
        return invalid(format!("MINVALUE ({min}) must be less than MAXVALUE ({max})"));
    }
    let first = if increment > 0 { min } else { max };
    let start = options.start.unwrap_or(if is_new { first } else { sequence.start });
    let cycles = options.cycles.unwrap_or(sequence.cycles);
    let changed = Sequence { logical_type, increment, min, max, start, cycles, ..sequence.clone() };
    check_bounds("START", start, &changed)?;
    Ok(changed)
}

fn check_bounds(option: &str, number: i64, sequence: &Sequence) -> Result<()> {
    let problem = match number {
        _ if number < sequence.min => format!("less than MINVALUE ({})", sequence.min),
        _ if number > sequence.max => format!("greater than MAXVALUE ({})", sequence.max),
        _ => return Ok(()),
    };
    Err(SequenceError::Invalid { message: format!("{option} value ({number}) cannot be {problem}") }.into())
}

/// Restarts the sequences that columns of a table own.
pub(super) fn restart_owned(edit: &mut CatalogEdit, table: TableId) -> Result<(), CommitError> {
    let owned = edit.catalog().table_of(table).map(|table| Arc::clone(&table.constraints)).unwrap_or_default();
    for owned in owned.sequences.values() {
        if let Some(sequence) = edit.catalog().sequence_of(owned.sequence).cloned() {
            edit.alter_sequence(Sequence { last: sequence.start, is_called: false, ..sequence }, true)?;
        }
    }
    Ok(())
}

/// Skips the first `count` numbers of a new sequence, because the caller assigns them to existing rows.
pub(super) fn skip_numbers(edit: &mut CatalogEdit, sequence: Sequence, count: u64) -> Result<()> {
    let nth = |index: u64| {
        let offset = i64::try_from(index).ok().and_then(|index| index.checked_mul(sequence.increment));
        offset.and_then(|offset| sequence.start.checked_add(offset))
    };
    let Some(index) = count.checked_sub(1) else { return Ok(()) };
    match nth(index).filter(|number| (sequence.min..=sequence.max).contains(number)) {
        Some(last) => Ok(edit.alter_sequence(Sequence { last, is_called: true, ..sequence }, true)?),
        None => {
            let ascends = sequence.increment > 0;
            let limit = if ascends { sequence.max } else { sequence.min };
            Err(CommitError::SequenceExhausted { sequence: sequence.name, limit, ascends }.into())
        }
    }
}

/// Changes the sequence of an identity column.
pub(super) fn alter_owned(edit: &mut CatalogEdit, sequence: SequenceId, options: &SequenceOptions) -> Result<()> {
    let old = edit.catalog().sequence_of(sequence).cloned().ok_or(CommitError::NoSequence { sequence })?;
    Ok(edit.alter_sequence(altered_sequence(&old, options)?, options.restart.is_some())?)
}

/// Makes a column, given by its table and name, the owner of a sequence. `Some(None)` removes the owner. `None` changes
/// nothing.
fn set_owner(edit: &mut CatalogEdit, sequence: SequenceId, owner: Option<&Option<(String, String)>>) -> Result<()> {
    let Some(owner) = owner else { return Ok(()) };
    let is_identity = |table: &Arc<Table>| {
        let mut owned = table.constraints.sequences.values();
        owned.any(|owned| owned.sequence == sequence && owned.identity.is_some())
    };
    if edit.catalog().tables().any(is_identity) {
        let message = "cannot change ownership of identity sequence".to_owned();
        return Err(SequenceError::Invalid { message }.into());
    }
    clear_owner(edit, sequence)?;
    let Some((table_name, column_name)) = owner else { return Ok(()) };
    let table = edit.catalog().table(table_name).ok_or_else(|| QueryError::no_relation(table_name))?;
    if table.id.is_temporary() != sequence.is_temporary() {
        return Err(TemporaryError::Owner.into());
    }
    let column = table.visible_column(column_name).ok_or_else(|| QueryError::no_column(table_name, column_name))?;
    if table.constraints.sequences.contains_key(&column) {
        let what = format!("a second sequence of column {column_name:?} of table {table_name:?}");
        return Err(QueryError::unsupported(what, "a column owns one sequence"));
    }
    let owned = OwnedSequence { sequence, identity: None };
    Ok(change_constraints(edit, table.id, |constraints| {
        constraints.sequences.insert(column, owned);
    })?)
}

/// Removes the owner of a sequence.
fn clear_owner(edit: &mut CatalogEdit, sequence: SequenceId) -> Result<(), CommitError> {
    let owns = |table: &&Arc<Table>| table.constraints.sequences.values().any(|owned| owned.sequence == sequence);
    let owners: Vec<TableId> = edit.catalog().tables().filter(owns).map(|table| table.id).collect();
    let forget = |constraints: &mut Constraints| constraints.sequences.retain(|_, owned| owned.sequence != sequence);
    owners.into_iter().try_for_each(|table| change_constraints(edit, table, forget))
}

fn change_constraints(
    edit: &mut CatalogEdit,
    table: TableId,
    change: impl FnOnce(&mut Constraints),
) -> Result<(), CommitError> {
    let stored = edit.catalog().table_of(table).ok_or(CommitError::NoTable { table })?;
    let mut constraints = stored.constraints.as_ref().clone();
    change(&mut constraints);
    set_constraints(edit, table, constraints)
}

/// Finds the first of the given sequences that belongs to an identity column. Returns the names of the table, the
/// column and the sequence.
fn identity_of(catalog: &Catalog, sequences: &BTreeMap<&str, SequenceId>) -> Option<(String, String, String)> {
    let owned = catalog.tables().flat_map(|table| {
        let owned = table.constraints.sequences.iter();
        owned.filter(|(_, owned)| owned.identity.is_some()).map(move |(column, owned)| (table, column, owned.sequence))
    });
    let name_of = |id: SequenceId| sequences.iter().find(|(_, sequence)| **sequence == id).map(|(name, _)| *name);
    let mut found = owned.filter_map(|(table, column, id)| Some((table, column, name_of(id)?)));
    let (table, column, name) = found.next()?;
    Some((table.name.clone(), table.schema.column(*column).name.clone(), name.to_owned()))
}

/// A column default that uses a sequence.
pub(super) struct DefaultUse {
    table: TableId,
    table_name: String,
    column: ColumnIndex,
    column_name: String,
    sequence: String,
}

impl DefaultUse {
    /// Describes the dependency of the default on its sequence.
    pub fn dependency(&self) -> Dependency {
        Dependency {
            dependent: format!("default value for column {:?} of table {:?}", self.column_name, self.table_name),
            on: format!("sequence {:?}", self.sequence),
        }
    }
}

/// Removes the given defaults from their columns.
pub(super) fn drop_defaults(edit: &mut CatalogEdit, uses: &[DefaultUse]) -> Result<(), CommitError> {
    let mut uses = uses.iter();
    uses.try_for_each(|usage| {
        change_constraints(edit, usage.table, |constraints| {
            constraints.defaults.remove(&usage.column);
        })
    })
}

/// Returns the defaults that use the given sequences.
pub(super) fn defaults_on(catalog: &Catalog, sequences: &[SequenceId]) -> Vec<DefaultUse> {
    let names: Vec<&str> = sequences.iter().filter_map(|id| Some(catalog.sequence_of(*id)?.name.as_str())).collect();
    match names.is_empty() {
        true => Vec::new(),
        false => uses_in_defaults(catalog, |name| names.contains(&name)),
    }
}

/// Returns the defaults of other tables that use sequences owned by columns of the given tables.
pub(super) fn uses_of_owned(catalog: &Catalog, tables: &[TableId]) -> Vec<DefaultUse> {
    let owners = tables.iter().filter_map(|table| catalog.table_of(*table));
    let owned: Vec<_> =
        owners.flat_map(|table| table.constraints.sequences.values()).map(|owned| owned.sequence).collect();
    let mut uses = defaults_on(catalog, &owned);
    uses.retain(|usage| !tables.contains(&usage.table));
    uses
}

/// Returns the defaults of other columns that use the sequence owned by a column.
pub(super) fn uses_of_column(catalog: &Catalog, table: &Table, column: ColumnIndex) -> Vec<DefaultUse> {
    let Some(owned) = table.constraints.sequences.get(&column) else { return Vec::new() };
    let mut uses = defaults_on(catalog, &[owned.sequence]);
    uses.retain(|usage| (usage.table, usage.column) != (table.id, column));
    uses
}

/// Returns the defaults that use a sequence whose name satisfies `is_used`.
fn uses_in_defaults(catalog: &Catalog, is_used: impl Fn(&str) -> bool) -> Vec<DefaultUse> {
    let mut uses = Vec::new();
    for table in catalog.tables() {
        for (column, default) in &table.constraints.defaults {
            let used = sequences_of_default(default).into_iter().find(|name| is_used(name));
            uses.extend(used.map(|sequence| DefaultUse {
                table: table.id,
                table_name: table.name.clone(),
                column: *column,
                column_name: table.schema.column(*column).name.clone(),
                sequence,
            }));
        }
    }
    uses
}

/// Renames a sequence, and replaces its name in the defaults that use it.
pub(super) fn rename_sequence(edit: &mut CatalogEdit, sequence: Sequence, new_name: &str) -> Result<()> {
    let name = sequence.name.clone();
    edit.alter_sequence(Sequence { name: new_name.to_owned(), ..sequence }, false)?;
    rename_in_defaults(edit, &name, new_name)
}

fn rename_in_defaults(edit: &mut CatalogEdit, name: &str, new_name: &str) -> Result<()> {
    for usage in uses_in_defaults(edit.catalog(), |used| used == name) {
        change_constraints(edit, usage.table, |constraints| {
            if let Some(default) = constraints.defaults.get_mut(&usage.column) {
                *default = renamed_sequence(default, name, new_name);
            }
        })?;
    }
    Ok(())
}
