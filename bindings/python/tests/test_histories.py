"""Runs random transactions on lists, and checks that their isolation level allows what they read."""

import itertools
import os
import random
import threading
import time
from dataclasses import dataclass, field

import pytest
from histories import READ_COMMITTED, SERIALIZABLE, SNAPSHOT, Transaction, problems

import taut

#: Number of transactions by level. Half of them use cached plans, half of them do not.
TRANSACTIONS = {SERIALIZABLE: 2_000, SNAPSHOT: 1_000, READ_COMMITTED: 1_000}
PLANS = ["planned each time", "cached plans"]
THREADS = int(os.environ.get("HISTORY_THREADS", 4))
SEED = int(os.environ.get("HISTORY_SEED", time.time_ns() % 1_000_000))

#: Seconds without a new transaction after which all threads are assumed to wait for each other.
HANG_SECONDS = 60

#: Number of tables with a row per element, and of tables with a text per list. Several tables reduce the conflicts of
#: serializable transactions.
TABLES = 4
#: Number of active lists per table. A read returns a whole list, so a list of LENGTH_MAX elements is replaced.
LISTS_OF_TABLE = 2
LENGTH_MAX = 40


# A history is a string: "x+1" appends 1 to list x, "x=1,2" reads 1 and 2 from it, and "!" marks a transaction that is
# rolled back. Lists whose names begin with s are sets. The last transaction reads the final lists. The number of a
# history is the count of levels that forbid it: 1 is SERIALIZABLE, 2 also REPEATABLE READ, 3 also READ COMMITTED.
ALL, FROM_SNAPSHOT, ONLY_SERIALIZABLE = 3, 2, 1
HISTORIES = {
    "nothing": (["x=", "x="], 0),
    "one after the other": (["x= x+1 x=1", "x=1 x+2 y+3", "y=3 x=1,2", "x=1,2 y=3"], 0),
    "a list that nobody read meanwhile": (["x+1", "x+2", "!x+3", "x=2,1"], 0),
    "G0": (["x+1 y+2", "x+3 y+4", "x=1,3 y=4,2"], ALL),
    "G1a": (["!x+1", "x=1", "x="], ALL),
    "G1b": (["x+1 x+2", "x=1", "x=1,2"], ALL),
    "G1b of a set": (["s+1 s+2", "s=1", "s=1,2"], ALL),
    "G1c": (["x+1 y=2", "y+2 x=1", "x=1 y=2"], ALL),
    "G1c of sets": (["s+1 sets=2", "sets+2 s=1", "s=1 sets=2"], ALL),
    "G1c of three": (["x+1 z=3", "x=1 y+2", "y=2 z+3", "x=1 y=2 z=3"], ALL),
    "an element twice": (["x+1", "x=1,1", "x=1"], ALL),
    "an element of nobody": (["x+1", "x=1,7", "x=1"], ALL),
    "orders that differ": (["x+1", "x+2", "x=1", "x=2,1"], ALL),
    "a lost element": (["x+1", "x+2", "x=2"], ALL),
    "a lost list": (["x+1", "y="], ALL),
    "its own write unseen": (["x+1 x=", "x=1"], ALL),
    "a read that is not repeated": (["x= x=1", "x+1", "x=1"], FROM_SNAPSHOT),
    "G-single": (["x+1 y+2", "x=1 y=", "x=1 y=2"], FROM_SNAPSHOT),
    "G-single of sets": (["s+1 sets+2", "s=1 sets=", "s=1 sets=2"], FROM_SNAPSHOT),
    "a lost update": (["x= x+1", "x= x+2", "x=1,2"], FROM_SNAPSHOT),
    "a long fork": (["x+1", "y+2", "x=1 y=", "x= y=2", "x=1 y=2"], FROM_SNAPSHOT),
    "G2-item": (["x= y+1", "y= x+2", "x=2 y=1"], ONLY_SERIALIZABLE),
    "G2": (["s= s+1", "s= s+2", "s=1,2"], ONLY_SERIALIZABLE),
    "G2 of three": (["x= y= x+1", "y+2", "x= y=2", "x=1 y=2"], ONLY_SERIALIZABLE),
}  # fmt: skip


def parse(text):
    operations = []
    for word in text.strip("!").split():
        if "+" in word:
            key, element = word.split("+")
            operations.append(("append", key, int(element)))
        else:
            key, elements = word.split("=")
            operations.append(("read", key, tuple(int(element) for element in elements.split(",") if element)))
    return Transaction(operations, not text.startswith("!"))


@pytest.mark.parametrize("name", HISTORIES)
def test_the_checker_finds_each_anomaly(name):
    texts, levels = HISTORIES[name]
    history = [parse(text) for text in texts]
    for index, level in enumerate([SERIALIZABLE, SNAPSHOT, READ_COMMITTED]):
        found = problems(history, level, lambda key: key.startswith("s"))
        assert bool(found) == (index < levels), (level, found)


def test_the_checker_handles_long_histories():
    count = 5_000
    history = [Transaction([("append", number, 0), ("read", number + 1, (0,))]) for number in range(count)]
    history += [Transaction([("append", count, 0)]), Transaction([("read", number, (0,)) for number in range(count + 1)])]
    assert problems(history, SERIALIZABLE) == []
    # Now the last transaction reads what the first one appended, so all are in one cycle.
    history[count].operations.append(("read", 0, (0,)))
    assert len(problems(history, READ_COMMITTED)) == 1


@dataclass
class Lists:
    """Lists in a database. A list with an even number has a row per element. Other lists are a text in one row."""

    con: taut.Connection
    elements: itertools.count = field(default_factory=itertools.count)
    numbers: itertools.count = field(default_factory=itertools.count)
    lock: threading.Lock = field(default_factory=threading.Lock)
    lengths: dict = field(default_factory=dict)
    active: list = field(default_factory=list)

    def __post_init__(self):
        for table in range(TABLES):
            self.con.sql(f"CREATE TABLE lists_{table} (key bigint, position bigint, value bigint)")
            self.con.sql(f"CREATE TABLE texts_{table} (key bigint, value text)")
        for _ in range(2 * TABLES * LISTS_OF_TABLE):
            self.active.append(self.begin_list(self.con, next(self.numbers)))

    def begin_list(self, con, key):
        if not self.is_rows(key):
            con.sql(f"INSERT INTO {self.table(key)} VALUES ({key}, '')")
        self.lengths[key] = 0
        return key

    @staticmethod
    def is_rows(key):
        return key % 2 == 0

    @staticmethod
    def table(key):
        return f"{'lists' if Lists.is_rows(key) else 'texts'}_{key // 2 % TABLES}"

    def record_appends(self, con, transaction):
        """Counts committed appends, and replaces long lists by new ones in the same table."""
        for key, _ in transaction.appends():
            with self.lock:
                self.lengths[key] += 1
                is_full = self.lengths[key] == LENGTH_MAX
                stride = len(self.active)
            if is_full:
                self.active[key % stride] = self.begin_list(con, key + stride)


class Worker:
    """A thread with a connection, which runs transactions until all are done."""

    def __init__(self, lists, level, plans, seed):
        self.lists, self.level, self.avoids_cached_plans = lists, level, plans == "planned each time"
        self.con = lists.con.duplicate()
        self.random = random.Random(seed)
        self.history, self.refused, self.error = [], 0, None
        # Readers do not depend on the durability of commits.
        self.con.sql(f"SET synchronous = '{self.random.choice(['full', 'normal', 'off'])}'")

    def run(self, budget):
        try:
            while next(budget) is not None:
                self.run_transaction()
        except BaseException as error:
            self.error = error
        finally:
            # Closing releases locks that other workers wait for.
            self.con.close()

    def sql(self, text, *values):
        if self.avoids_cached_plans or self.random.random() < 0.2:
            # The text is unique, so it has no cached plan.
            text = f"/* {next(self.lists.elements)} */ {text}"
        return self.con.sql(text, values or None)

    def run_transaction(self):
        transaction = Transaction([], False)
        self.history.append(transaction)
        self.sql(f"BEGIN ISOLATION LEVEL {self.level}")
        try:
            for _ in range(self.random.randint(1, 4)):
                self.run_operation(transaction)
            if self.random.random() < 0.05:
                self.sql("ROLLBACK")
                return
            self.sql("COMMIT")
        except taut.OperationalError as error:
            if error.sqlstate not in ("40001", "40P01"):
                raise
            self.refused += 1
            self.sql("ROLLBACK")
            return
        transaction.is_committed = True
        self.lists.record_appends(self.con, transaction)

    def run_operation(self, transaction):
        key = self.random.choice(self.lists.active)
        what = self.random.random()
        if what < 0.5:
            transaction.operations.append(("read", key, self.read(key)))
        elif what < 0.95:
            transaction.operations += self.append(key)
        else:
            self.sql("SAVEPOINT undone")
            self.history.append(Transaction(self.append(key), False))
            self.sql("ROLLBACK TO SAVEPOINT undone")

    def read(self, key):
        table = self.lists.table(key)
        if not self.lists.is_rows(key):
            by_parameter = self.random.random() < 0.5
            condition, values = ("?", [key]) if by_parameter else (key, [])
            rows = self.sql(f"SELECT value FROM {table} WHERE key = {condition}", *values).fetchall()
            # A list created after the snapshot has no row in it. It is read as empty.
            return tuple(int(element) for (text,) in rows for element in text.split(",") if element)
        rows = sorted(self.sql(f"SELECT position, value FROM {table} WHERE key = ?", key).fetchall())
        if self.level == SERIALIZABLE:
            assert [position for position, _ in rows] == list(range(len(rows))), (key, rows)
        return tuple(value for _, value in rows)

    def append(self, key):
        """Appends an element. Returns the operations that it ran."""
        table, element = self.lists.table(key), next(self.lists.elements)
        operations = [("append", key, element)]
        if not self.lists.is_rows(key):
            done = self.sql(f"UPDATE {table} SET value = value || ',' || ? WHERE key = ?", str(element), key)
            return operations if done.row_count else []
        if self.random.random() < 0.5:
            elements = self.read(key)
            self.sql(f"INSERT INTO {table} VALUES (?, ?, ?)", key, len(elements), element)
            return [("read", key, elements), *operations]
        columns = f"{key} AS key, count(*) AS position, {element} AS value"
        self.sql(f"INSERT INTO {table} SELECT {columns} FROM {table} WHERE key = {key}")
        return operations


class Maintenance(threading.Thread):
    """Rewrites tables while the workers run. Conflicts (40001) are not errors."""

    def __init__(self, lists, seed):
        super().__init__(daemon=True)
        self.con, self.random, self.is_stopped = lists.con.duplicate(), random.Random(seed), threading.Event()
        self.error = None

    def run(self):
        while not self.is_stopped.wait(0.2):
            table = f"{self.random.choice(['lists', 'texts'])}_{self.random.randrange(TABLES)}"
            layout = self.random.choice(["row", "column", "packed_row"])
            move = self.random.choice([f"VACUUM {table}", f"ALTER TABLE {table} SET (layout = '{layout}')"])
            try:
                self.con.sql(self.random.choice(["CHECKPOINT", f"VACUUM FULL {table}", move]))
            except BaseException as error:
                is_busy = isinstance(error, taut.OperationalError) and error.sqlstate == "40001"
                self.error = self.error if is_busy else error


@pytest.mark.parametrize("plans", PLANS)
@pytest.mark.parametrize("level", TRANSACTIONS)
def test_transactions_read_what_their_isolation_level_allows(tmp_path, level, plans):
    count = int(os.environ.get("HISTORY_TRANSACTIONS", TRANSACTIONS[level] // len(PLANS)))
    con = taut.connect(tmp_path / "lists", threads=2)
    lists = Lists(con)
    workers = [Worker(lists, level, plans, f"{SEED} {number}") for number in range(THREADS)]
    # The threads share this iterator, whose `next` is atomic. It yields None when all transactions have begun.
    budget = itertools.chain(iter(range(count)), itertools.repeat(None))
    maintenance, began = Maintenance(lists, SEED), time.monotonic()
    maintenance.start()
    threads = [threading.Thread(target=worker.run, args=(budget,), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            done = sum(len(worker.history) for worker in workers)
            thread.join(HANG_SECONDS)
            assert not thread.is_alive() or done < sum(len(worker.history) for worker in workers), f"hangs, {SEED=}"
    maintenance.is_stopped.set()
    maintenance.join()
    seconds = time.monotonic() - began
    for error in [maintenance.error, *(worker.error for worker in workers)]:
        assert error is None, f"HISTORY_SEED={SEED}: {error!r}"

    history = [transaction for worker in workers for transaction in worker.history]
    final = Worker(lists, level, plans, SEED)
    history.append(Transaction([("read", key, final.read(key)) for key in lists.lengths]))
    # Below SERIALIZABLE, two transactions may insert at one position. The order of rows is then unknown.
    is_set = lambda key: level != SERIALIZABLE and lists.is_rows(key)  # noqa: E731
    found = problems(history, level, is_set)
    committed, refused = sum(each.is_committed for each in history), sum(worker.refused for worker in workers)
    print(
        f"{level}, {plans}: {count} transactions in {THREADS} threads, {committed} committed, {refused} refused, "
        f"{seconds:.1f} s, {len(found)} problems; HISTORY_SEED={SEED}"
    )
    assert not found, f"{len(found)} problems, HISTORY_SEED={SEED}\n" + "\n".join(found[:5])
    assert committed > count / 10, "more than a tenth of the transactions must commit"
