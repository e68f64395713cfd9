//! Random steps of several transactions. After each step, every open transaction and a new snapshot must agree with the
//! model.

use std::collections::{BTreeMap, BTreeSet};
use std::task::{Context, Poll, Waker};

use taut_store::disk::SimulatedDisk;
use taut_store::{
    BlockId, Catalog, CommitError, ContainerId, RowId, RowOrder, RowSet, Store, Synchronous, TableId, Transaction,
    TransactionError, verify,
};
use taut_testkit::{Random, number_from_environment};

use crate::common::{Relocation, all_old_rows, batch, design, open, rows_with_ids, schema, write};
use crate::model::{Change, Database, ModelTransaction, Rejection};

/// Number of seeds. Nightly tests use more.
const SEEDS: u64 = 12;
const SEEDS_VARIABLE: &str = "TAUT_TRANSACTION_SEEDS";
const STEPS: usize = 300;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// A transaction, its model, and the model at each savepoint.
struct OpenTransaction {
    transaction: Transaction,
    model: ModelTransaction,
    savepoints: Vec<(String, ModelTransaction)>,
    /// Rows that the transaction has locked, as tables and row ids. Relocations add the new ids of these rows.
    locked: BTreeSet<(u64, RowId)>,
}

/// A database and its model.
struct World {
    disk: SimulatedDisk,
    store: Option<Store>,
    random: Random,
    /// Committed states, newest last.
    committed: Vec<Database>,
    open: Vec<OpenTransaction>,
    next_value: i64,
    /// A relocation that has read rows and written a block, but has not been committed.
    relocation: Option<Relocation>,
    /// New row ids of relocated rows, by table and old row id.
    new_row_ids: BTreeMap<(u64, RowId), RowId>,
    /// Durability of the last commit.
    last_synchronous: Synchronous,
    context: String,
    /// Number of occurrences of each case that the test must reach.
    seen: BTreeMap<&'static str, u32>,
}

fn rejection_of(error: &CommitError) -> Rejection {
    match error {
        CommitError::NoTable { .. } => Rejection::NoTable,
        CommitError::NameTaken { .. } => Rejection::NameTaken,
        CommitError::RowsChanged { .. } => Rejection::RowsChanged,
        error => panic!("unexpected: {error}"),
    }
}

fn assert_sees(catalog: &Catalog, expected: &Database, context: &str) {
    let found: Vec<u64> = catalog.tables().map(|table| table.id.0).collect::<BTreeSet<_>>().into_iter().collect();
    assert_eq!(found, expected.keys().copied().collect::<Vec<_>>(), "{context}: tables");
    for (id, (name, rows)) in expected {
        let table = catalog.table_of(TableId(*id)).unwrap();
        assert_eq!(table.name, *name, "{context}");
        let mut found: Vec<i64> = rows_with_ids(table).unwrap().into_iter().map(|(_, value)| value).collect();
        found.sort_unstable();
        let is_same = found.iter().eq(rows.keys());
        assert!(is_same, "{context}: {} rows of {name:?}, expected {}", found.len(), rows.len());
        let counted_rows = table.statistics[0].rows;
        assert_eq!(counted_rows, table.block_rows(), "{context}: statistics of {name:?}");
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let disk = SimulatedDisk::new();
        let store = Some(open(&disk).unwrap());
        Self {
            disk,
            store,
            random: Random(seed),
            committed: vec![Database::new()],
            open: Vec::new(),
            next_value: 0,
            relocation: None,
            new_row_ids: BTreeMap::new(),
            last_synchronous: Synchronous::Full,
            context: String::new(),
            seen: BTreeMap::new(),
        }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn newest(&self) -> &Database {
        self.committed.last().unwrap()
    }

    fn saw(&mut self, event: &'static str) {
        *self.seen.entry(event).or_default() += 1;
    }

    fn check(&self) {
        assert_sees(&self.store().snapshot(), self.newest(), &self.context);
        for (number, open) in self.open.iter().enumerate() {
            let context = format!("{}, transaction {number}", self.context);
            assert_sees(&open.transaction.snapshot(), &open.model.view, &context);
        }
    }

    fn values(&mut self) -> Vec<i64> {
        let count = match self.random.below(100) {
            0..50 => 1,
            50..80 => 100,
            80..99 => 2_000,
            _ => 70_000,
        };
        self.next_value += count;
        (self.next_value - count..self.next_value).collect()
    }

    /// Begins a transaction, runs a step of an open one, or runs a checkpoint, a rewrite, a relocation or a restart.
    fn step(&mut self) {
        if self.open.is_empty() || (self.open.len() < 4 && self.random.below(6) == 0) {
            let (transaction, model) = (self.store().begin(), ModelTransaction::starting_from(self.newest().clone()));
            self.open.push(OpenTransaction { transaction, model, savepoints: vec![], locked: BTreeSet::new() });
            return;
        }
        let number = self.random.below(self.open.len());
        let tables: Vec<u64> = self.open[number].model.view.keys().copied().collect();
        let choice = self.random.below(100);
        self.context = format!("{}, {choice} on {number}", self.context);
        match (choice, &tables[..]) {
            (0..6, _) | (0..60, []) => self.change(number, &tables),
            (6..30, _) => self.insert(number, &tables),
            (30..55, _) => self.delete(number, &tables),
            (55..60, _) => self.change(number, &tables),
            (60..70, _) => self.savepoint(number),
            (70..76, _) => self.refresh(number),
            (76..90, _) => self.commit(number),
            (90..93, _) => drop(self.open.remove(number)),
            (93..95, _) => {
                self.store().checkpoint().unwrap();
                self.last_synchronous = Synchronous::Full;
            }
            (95, _) => self.rewrite(),
            (96..99, _) => self.relocate_rows(),
            _ => self.reopen(),
        }
    }

    fn change(&mut self, number: usize, tables: &[u64]) {
        let name = self.random.pick(&NAMES);
        let choice = if tables.is_empty() { 0 } else { self.random.below(9) };
        let table = if tables.is_empty() { 0 } else { self.random.pick(tables) };
        let values = if choice >= 5 { self.values() } else { vec![] };
        let OpenTransaction { transaction, model, .. } = &mut self.open[number];
        let id = TableId(table);
        let (change, result) = match choice {
            0 | 1 => {
                let created = transaction.change(|edit| edit.create_table(name, schema(), design("column")));
                let id = created.as_ref().map_or(0, |id: &TableId| id.0);
                (Change::Create(id, name.to_owned()), created.map(drop))
            }
            2 => (Change::Drop(table), transaction.change(|edit| edit.drop_table(id))),
            3 => (Change::Rename(table, name.to_owned()), transaction.change(|edit| edit.rename_table(id, name))),
            4 => (Change::Truncate(table), transaction.change(|edit| edit.truncate(id))),
            _ => {
                let blocks = vec![write(self.store.as_ref().unwrap(), &values, "column").unwrap()];
                (Change::Append(table, values), transaction.change(|edit| edit.append_blocks(id, blocks)))
            }
        };
        let expected = model.change(&change);
        assert_eq!(result.map_err(|error| rejection_of(&error)), expected, "{}: {change:?}", self.context);
    }

    fn insert(&mut self, number: usize, tables: &[u64]) {
        let (values, table) = (self.values(), self.random.pick(tables));
        let OpenTransaction { transaction, model, .. } = &mut self.open[number];
        transaction.insert_rows(TableId(table), &batch(&values)).unwrap();
        model.insert(table, &values);
    }

    fn delete(&mut self, number: usize, tables: &[u64]) {
        let table = self.random.pick(tables);
        let snapshot = self.open[number].transaction.snapshot();
        let rows = rows_with_ids(snapshot.table_of(TableId(table)).unwrap()).unwrap();
        if rows.is_empty() {
            return;
        }
        let wanted: BTreeMap<RowId, i64> = match self.random.below(8) {
            0 => rows.into_iter().collect(),
            count => (0..count * count).map(|_| self.random.pick(&rows)).collect(),
        };
        let model = &self.open[number].model;
        let foreign: Vec<(RowId, i64)> = wanted
            .iter()
            .filter(|(_, value)| !model.is_own(table, **value))
            .map(|(row, value)| (*row, *value))
            .collect();
        let row_ids: Vec<(u64, RowId)> = foreign.iter().flat_map(|(row, _)| self.row_ids(table, *row)).collect();
        let mut others = self.open.iter().enumerate().filter(|(other, _)| *other != number);
        let must_wait = others.any(|(_, open)| row_ids.iter().any(|row| open.locked.contains(row)));
        let has_conflict = self.newest().get(&table).is_some_and(|(_, newest)| {
            foreign.iter().any(|(_, value)| newest.get(value) != model.view[&table].1.get(value))
        });
        let set: RowSet = wanted.keys().copied().collect();
        let result = {
            let future = self.open[number].transaction.delete_rows(TableId(table), &set);
            std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop()))
        };
        let context = format!("{}: {} rows of {table}, {} of others", self.context, wanted.len(), foreign.len());
        if must_wait {
            assert!(result.is_pending(), "{context}: did not wait");
            self.saw("waiting");
            return;
        }
        let open = &mut self.open[number];
        open.locked.extend(row_ids);
        match result {
            Poll::Ready(Ok(())) if !has_conflict => {
                open.model.delete(table, &wanted.values().copied().collect::<Vec<_>>());
                self.saw(if foreign.is_empty() { "own rows deleted" } else { "rows deleted" });
            }
            Poll::Ready(Err(TransactionError::Commit(CommitError::RowsChanged { .. }))) if has_conflict => {
                self.saw("delete conflict");
            }
            result => panic!("{context}: {result:?}, conflict: {has_conflict}"),
        }
    }

    /// A row id, and all later row ids of the same row.
    fn row_ids(&self, table: u64, row: RowId) -> Vec<(u64, RowId)> {
        let next = |row: &RowId| self.new_row_ids.get(&(table, *row)).copied();
        std::iter::successors(Some(row), next).map(|row| (table, row)).collect()
    }

    fn savepoint(&mut self, number: usize) {
        let (name, choice) = (self.random.pick(&["x", "x", "y"]), self.random.below(4));
        let OpenTransaction { transaction, model, savepoints, .. } = &mut self.open[number];
        let index = savepoints.iter().rposition(|(other, _)| other == name);
        let result = match choice {
            0 | 1 => {
                transaction.savepoint(name);
                savepoints.push((name.to_owned(), model.clone()));
                return;
            }
            2 => transaction.roll_back_to(name),
            _ => transaction.release(name),
        };
        assert_eq!(result.is_ok(), index.is_some(), "{}", self.context);
        let Some(index) = index else {
            assert!(matches!(result, Err(TransactionError::NoSavepoint { name: found }) if found == name));
            return;
        };
        if choice == 2 {
            savepoints.truncate(index + 1);
            *model = savepoints[index].1.clone();
        } else {
            savepoints.truncate(index);
        }
        self.saw("savepoint used");
    }

    fn refresh(&mut self, number: usize) {
        let newest = self.newest().clone();
        let OpenTransaction { transaction, model, .. } = &mut self.open[number];
        let result = transaction.refresh().map_err(|error| rejection_of(&error));
        match model.redo(&newest) {
            Ok(view) => {
                assert_eq!(result, Ok(()), "{}: refresh", self.context);
                model.view = view;
            }
            Err(rejection) => {
                assert_eq!(result, Err(rejection), "{}: refresh", self.context);
                self.saw("refresh rejected");
            }
        }
    }

    fn commit(&mut self, number: usize) {
        let OpenTransaction { transaction, model, .. } = self.open.remove(number);
        let synchronous = self.random.pick(&[Synchronous::Full, Synchronous::Normal, Synchronous::Off]);
        let expected = model.redo(self.newest());
        let is_empty = transaction.is_read_only();
        let result = transaction.commit(synchronous).map_err(|error| rejection_of(&error));
        assert_eq!(result, expected.clone().map(drop), "{}: commit", self.context);
        match expected {
            Ok(database) => {
                if !is_empty {
                    // Changes that cancel out leave nothing to make durable.
                    self.last_synchronous = if *self.newest() == database { Synchronous::Off } else { synchronous };
                }
                self.committed.push(database);
                self.saw("committed");
            }
            Err(Rejection::RowsChanged) => self.saw("commit conflict"),
            Err(_) => self.saw("commit rejected"),
        }
    }

    /// Rewrites all rows of a table into one block without recording row relocations, so transactions that began before
    /// can no longer delete these rows.
    fn rewrite(&mut self) {
        let tables: Vec<u64> = self.newest().keys().copied().collect();
        if tables.is_empty() {
            return;
        }
        let id = self.random.pick(&tables);
        let snapshot = self.store().snapshot();
        let table = snapshot.table_of(TableId(id)).unwrap();
        let old = all_old_rows(table);
        let containers: BTreeSet<ContainerId> = old.blocks.iter().filter_map(|block| ContainerId::of(*block)).collect();
        let containers: BTreeSet<ContainerId> =
            containers.into_iter().chain(old.pages.iter().map(|(page, _)| *page)).collect();
        let is_locked = self
            .open
            .iter()
            .flat_map(|open| &open.locked)
            .any(|(table, row)| *table == id && containers.contains(&row.container()));
        let values: Vec<i64> = rows_with_ids(table).unwrap().into_iter().map(|(_, value)| value).collect();
        let new = if values.is_empty() { vec![] } else { vec![write(self.store(), &values, "packed_row").unwrap()] };
        let result =
            self.store().commit::<_, CommitError>(|edit| edit.replace_rows(TableId(id), old, new, RowOrder::Sorted));
        if is_locked {
            assert!(matches!(result, Err(CommitError::RowsLocked)), "{}: {result:?}", self.context);
            self.saw("rewrite rejected");
            return;
        }
        result.unwrap_or_else(|error| panic!("{}: {error}", self.context));
        let mut database = self.newest().clone();
        database.get_mut(&id).unwrap().1.values_mut().for_each(|rewrites| *rewrites += 1);
        self.committed.push(database);
        self.last_synchronous = Synchronous::Full;
        self.saw("rewritten");
    }

    /// Reads and writes the rows of a relocation, or commits the relocation that an earlier step has written.
    fn relocate_rows(&mut self) {
        let tables: Vec<u64> = self.newest().keys().copied().collect();
        let snapshot = self.store().snapshot();
        let Some(relocation) = self.relocation.take() else {
            if !tables.is_empty() {
                let table = TableId(self.random.pick(&tables));
                let store = self.store.as_ref().unwrap();
                self.relocation =
                    Some(Relocation::read(store, snapshot.table_of(table).unwrap(), &mut self.random).unwrap());
            }
            return;
        };
        let id = relocation.table;
        let is_current = snapshot.table_of(id).is_some_and(|table| {
            let blocks: BTreeSet<BlockId> = table.blocks.iter().map(|block| block.id()).collect();
            let rows = |page| table.delta.page(page).map(|page| page.rows() as u32);
            relocation.old.blocks.iter().all(|block| blocks.contains(block))
                && relocation.old.pages.iter().all(|(page, count)| rows(*page) == Some(*count))
        });
        let (old, new) = (relocation.rows.clone(), relocation.new.first().map(|block| block.entry().id));
        let deleted = |catalog: &Catalog| catalog.table_of(id).unwrap().delta.all_deleted().count();
        let has_new_deletions = is_current && relocation.old.omitted.as_ref().unwrap().len() < deleted(&snapshot);
        let result = relocation.commit(self.store());
        assert_eq!(result.is_ok(), is_current, "{}: {result:?}", self.context);
        if result.is_err() {
            return self.saw("relocation rejected");
        }
        if has_new_deletions {
            self.saw("relocated rows deleted since");
        }
        let container = new.map_or(ContainerId(0), |block| ContainerId::of(block).unwrap());
        for (index, old) in old.into_iter().enumerate() {
            let new = RowId::new(container, (index / 65_536) as u16, (index % 65_536) as u16);
            self.new_row_ids.insert((id.0, old), new);
            let holder = self.open.iter_mut().find(|open| open.locked.contains(&(id.0, old)));
            if let Some(holder) = holder {
                holder.locked.insert((id.0, new));
                *self.seen.entry("relocated locked rows").or_default() += 1;
            }
        }
        self.committed.push(self.newest().clone());
        self.last_synchronous = Synchronous::Full;
        self.saw("relocated");
    }

    /// Opens the database again after it was closed, after a kill or after a power loss. Open transactions are lost.
    fn reopen(&mut self) {
        let is_killed = self.last_synchronous != Synchronous::Off && self.random.below(2) == 0;
        let has_power_loss = is_killed && self.last_synchronous == Synchronous::Full && self.random.below(2) == 0;
        if has_power_loss {
            self.disk = self.disk.after_power_loss(self.random.number());
        } else if is_killed {
            self.disk = self.disk.after_kill();
        }
        self.open.clear();
        self.relocation = None;
        self.store = None;
        self.store = Some(open(&self.disk).unwrap_or_else(|error| panic!("{}: {error}", self.context)));
        self.last_synchronous = Synchronous::Full;
        let findings: Vec<String> = verify(self.store()).iter().map(ToString::to_string).collect();
        assert!(findings.is_empty(), "{}: {findings:?}", self.context);
        self.saw(if has_power_loss {
            "power lost"
        } else if is_killed {
            "killed"
        } else {
            "closed"
        });
    }
}

#[test]
fn random_transactions_agree_with_the_model() {
    let mut seen = BTreeMap::<_, u32>::new();
    for seed in 0..number_from_environment(SEEDS_VARIABLE).unwrap_or(SEEDS) {
        let mut world = World::new(seed);
        for step in 0..STEPS {
            world.context = format!("seed {seed}, step {step}");
            world.step();
            world.check();
        }
        world.context = format!("seed {seed}, at the end");
        world.reopen();
        world.check();
        world.seen.into_iter().for_each(|(event, times)| *seen.entry(event).or_default() += times);
    }
    for event in ["waiting", "rows deleted", "own rows deleted", "delete conflict", "committed", "commit conflict"] {
        assert!(seen.contains_key(event), "never {event}: {seen:?}");
    }
    for event in ["relocated", "relocated locked rows", "relocated rows deleted since", "relocation rejected"] {
        assert!(seen.contains_key(event), "never {event}: {seen:?}");
    }
    for event in
        ["savepoint used", "refresh rejected", "rewritten", "rewrite rejected", "closed", "killed", "power lost"]
    {
        assert!(seen.contains_key(event), "never {event}: {seen:?}");
    }
}
