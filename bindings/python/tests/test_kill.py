"""Repeatedly kills a process that changes a database. No acknowledged commit may be lost.

Run as a program, this file is that process. It prints the rows that it finds, then each change before and after it:

    ["found", owner, [[table, key, value], ...]]     all rows of an owner
    ["begin", owner, [[table, key, value], ...]]     what a commit will change; null deletes the row
    ["done", owner]  or  ["undone", owner]

Each owner is a thread that changes only its own rows, one commit after the other. The rows that the next process finds
therefore contain all commits that were done, and a commit that was only begun completely or not at all. Owners also
move money between shared accounts; the balances are checked.
"""

import itertools
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

import taut

ROUNDS = int(os.environ.get("KILL_ROUNDS", 15))
SEED = int(os.environ.get("KILL_SEED", time.time_ns() % 1_000_000))
#: Path of the command `taut`. If it is set, the command verifies every byte after the last round.
PROGRAM = os.environ.get("TAUT")

OWNERS = ["one", "two", "three"]
ACCOUNTS = 5
BALANCE = 1_000
BULK_ROWS = 3_000
#: Share of rounds in which the process is killed while it may still be opening the database.
OPENING_SHARE = 0.2


# The process that is killed


class Printer:
    """Prints lines. Lines of several threads do not mix."""

    def __init__(self):
        self._lock = threading.Lock()

    def __call__(self, *words):
        line = memoryview(json.dumps(words).encode() + b"\n")
        with self._lock:
            while line:
                line = line[os.write(1, line) :]


def prepare(con):
    # In one transaction, so that a kill leaves all of it or nothing.
    con.sql("BEGIN")
    con.sql("CREATE TABLE texts (owner text, key bigint, value text)")
    con.sql("CREATE TABLE numbers (owner text, key bigint, value bigint) WITH (layout = 'packed_row', sort_by = 'key')")
    con.sql("CREATE TABLE transfers (owner text, key bigint, source bigint, target bigint, amount bigint)")
    con.sql("CREATE TABLE accounts (id bigint, balance bigint)")
    con.sql(f"INSERT INTO accounts SELECT i, {BALANCE} FROM generate_series(1, {ACCOUNTS}) AS g(i)")
    con.sql("COMMIT")


def rows_of(con, owner):
    found = []
    for table, columns in {"texts": "value", "numbers": "value", "transfers": "source, target, amount"}.items():
        rows = con.sql(f"SELECT key, {columns} FROM {table} WHERE owner = ?", [owner]).fetchall()
        found += [[table, key, value if len(value) > 1 else value[0]] for key, *value in rows]
    return found


def tables_of(con):
    copies = [table for table in con.tables() if table.startswith("copy_")]
    return [["copies", table, list(con.sql(f"SELECT count(*), sum(i) FROM {table}").fetchone())] for table in copies]


def check_money(con):
    balances = dict(con.sql("SELECT id, balance FROM accounts").fetchall())
    expected = dict.fromkeys(range(1, ACCOUNTS + 1), BALANCE)
    for source, target, amount in con.sql("SELECT source, target, amount FROM transfers").fetchall():
        expected[source] -= amount
        expected[target] += amount
    assert balances == expected, f"money was lost or made: {balances}, {expected}"


class Owner:
    """A thread that changes only its own rows."""

    def __init__(self, con, name, rows, report, seed):
        self.con, self.name, self.report, self.random = con, name, report, random.Random(seed)
        self.keys = {table: [key for of, key, _ in rows if of == table] for table in ("texts", "numbers")}
        self.numbers = itertools.count(1 + max([key for _, key, _ in rows], default=0))

    def run(self):
        while True:
            choice = self.random.random()
            if choice < 0.02:
                self.insert_many()
            elif choice < 0.3:
                self.transfer()
            elif choice < 0.6:
                self.run_changes([self.change()], begin=None)
            else:
                # One change per row, because the effect of a second one depends on the first.
                changes = [self.change() for _ in range(self.random.randint(2, 5))]
                changes = list({tuple(row[:2]): (statement, row) for statement, row in changes}.values())
                level = self.random.choice(["READ COMMITTED", "REPEATABLE READ"])
                end = "ROLLBACK" if self.random.random() < 0.1 else "COMMIT"
                self.run_changes(changes, begin=f"BEGIN ISOLATION LEVEL {level}", end=end)

    def change(self):
        """Returns a statement, and the changed row. The value of a deleted row is None."""
        table = self.random.choice(["texts", "numbers"])
        keys, what = self.keys[table], self.random.random()
        value = self.random.randrange(1_000_000)
        value = str(value) * self.random.randint(1, 50) if table == "texts" else value
        literal = f"'{value}'" if table == "texts" else str(value)
        if what < 0.5 or not keys:
            key = next(self.numbers)
            return f"INSERT INTO {table} VALUES ('{self.name}', {key}, {literal})", [table, key, value]
        key, of_row = self.random.choice(keys), f"owner = '{self.name}' AND key ="
        if what < 0.75:
            return f"UPDATE {table} SET value = {literal} WHERE {of_row} {key}", [table, key, value]
        return f"DELETE FROM {table} WHERE {of_row} {key}", [table, key, None]

    def insert_many(self):
        keys = [next(self.numbers) for _ in range(BULK_ROWS)]
        query = f"SELECT '{self.name}', i, i * 2 FROM generate_series({keys[0]}, {keys[-1]}) AS g(i)"
        self.commit([f"INSERT INTO numbers {query}"], [["numbers", key, key * 2] for key in keys])
        # Deletes them, so that the list of found rows stays short.
        remove = f"DELETE FROM numbers WHERE owner = '{self.name}' AND key >= {keys[0]}"
        self.commit([remove], [["numbers", key, None] for key in keys])

    def transfer(self):
        source, target = self.random.sample(range(1, ACCOUNTS + 1), 2)
        amount, key = self.random.randint(1, 100), next(self.numbers)
        statements = [
            "BEGIN ISOLATION LEVEL READ COMMITTED",
            f"UPDATE accounts SET balance = balance - {amount} WHERE id = {source}",
            f"UPDATE accounts SET balance = balance + {amount} WHERE id = {target}",
            f"INSERT INTO transfers VALUES ('{self.name}', {key}, {source}, {target}, {amount})",
            "COMMIT",
        ]
        self.commit(statements, [["transfers", key, [source, target, amount]]])

    def run_changes(self, changes, begin, end="COMMIT"):
        statements = [statement for statement, _ in changes]
        statements = [begin, *statements, end] if begin else statements
        effects = [row for _, row in changes] if end == "COMMIT" else []
        if self.commit(statements, effects):
            for table, key, value in effects:
                if value is None and key in self.keys[table]:
                    self.keys[table].remove(key)
                elif value is not None and key not in self.keys[table]:
                    self.keys[table].append(key)

    def commit(self, statements, effects):
        self.report("begin", self.name, effects)
        try:
            for statement in statements:
                self.con.sql(statement)
        except taut.OperationalError as error:
            # A conflict with another owner or with maintenance, which can be retried.
            if error.sqlstate not in ("40001", "40P01") and "again" not in str(error):
                raise
            if len(statements) > 1:
                self.con.sql("ROLLBACK")
            self.report("undone", self.name)
            return False
        self.report("done", self.name)
        return True


class Maintenance(Owner):
    """Creates and drops tables and indexes, and runs maintenance."""

    def __init__(self, con, name, rows, report, seed):
        super().__init__(con, name, [], report, seed)
        self.copies = [table for _, table, _ in rows]
        self.numbers = itertools.count(1 + max((int(table.split("_")[1]) for table in self.copies), default=0))

    def run(self):
        while True:
            table = self.random.choice(["texts", "numbers", "transfers", "accounts"])
            layout = self.random.choice(["row", "column", "packed_row"])
            moves = ["CHECKPOINT", f"VACUUM {table}", f"VACUUM FULL {table}", f"ALTER TABLE {table} SET (layout = '{layout}')"]
            choice = self.random.random()
            if choice < 0.2:
                self.create()
            elif choice < 0.3 and self.copies:
                copy = self.copies.pop(0)
                self.commit([f"DROP TABLE {copy}"], [["copies", copy, None]])
            elif choice < 0.4:
                index = f"index_{self.random.randrange(1 << 40)}"
                if self.commit([f"CREATE INDEX {index} ON numbers (key)"], []):
                    self.commit([f"DROP INDEX {index}"], [])
            else:
                self.commit([self.random.choice(moves)], [])

    def create(self):
        copy, rows = f"copy_{next(self.numbers)}", self.random.choice([10, 1_000, 100_000])
        query = f"CREATE TABLE {copy} AS SELECT i FROM generate_series(1, {rows}) AS g(i)"
        if self.commit([query], [["copies", copy, [rows, rows * (rows + 1) // 2]]]):
            self.copies.append(copy)


def work(path, seed, synchronous):
    report, con = Printer(), taut.connect(path, threads=2)
    if "accounts" not in con.tables():
        prepare(con)
    check_money(con)
    found = {owner: rows_of(con, owner) for owner in OWNERS} | {"maintenance": tables_of(con)}
    threads = []
    for owner, rows in found.items():
        report("found", owner, rows)
        session = con.duplicate()
        session.sql(f"SET synchronous = '{synchronous}'")
        worker = (Maintenance if owner == "maintenance" else Owner)(session, owner, rows, report, f"{seed} {owner}")
        threads.append(threading.Thread(target=worker.run, daemon=True))
    for thread in threads:
        thread.start()
    # A thread ends only by an exception, which it prints on standard error. Then this process stops.
    while all(thread.is_alive() for thread in threads):
        time.sleep(0.01)
    os._exit(1)


# The process that kills


class ExpectedRows:
    """Possible rows of an owner: the rows that were found last, and the commits begun since then."""

    def __init__(self):
        self.rows, self.commits, self.done = {}, [], 0

    def record(self, what, rows=None):
        if what == "begin":
            self.commits.append(rows)
        elif what == "undone":
            self.commits.pop()
        else:
            self.done = len(self.commits)

    def check(self, owner, found, synchronous):
        """Checks that the rows contain all commits that were done, with or without one that was only begun.

        If `synchronous` is off, the last commits may be missing. Returns the number of commits that the rows contain.
        """
        found = {(table, key): value for table, key, value in found}
        fewest = 0 if synchronous == "off" else self.done
        rows, nearest = dict(self.rows), None
        for number in range(len(self.commits) + 1):
            if number > 0:
                rows.update({(table, key): value for table, key, value in self.commits[number - 1]})
                rows = {key: value for key, value in rows.items() if value is not None}
            nearest = rows if number == self.done else nearest
            if number >= fewest and rows == found:
                self.rows, self.commits, self.done = rows, [], 0
                return number
        lost = dict(list({key: value for key, value in nearest.items() if found.get(key) != value}.items())[:5])
        more = dict(list({key: value for key, value in found.items() if key not in nearest}.items())[:5])
        raise AssertionError(f"{owner}, {self.done} of {len(self.commits)} commits done: not as it was {lost}, too much {more}")


class KilledDatabase:
    """A database, and the rounds in which the process that changes it is killed."""

    def __init__(self, path, synchronous, seed):
        self.path, self.synchronous, self.seed = str(path), synchronous, seed
        self.random = random.Random(f"{seed} {synchronous}")
        self.known = {owner: ExpectedRows() for owner in [*OWNERS, "maintenance"]}
        self.commits = self.openings = 0

    def run(self, number):
        command = [sys.executable, __file__, self.path, f"{self.seed} {number}", self.synchronous]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        lines, is_open = [], threading.Event()

        def read():
            for line in process.stdout:
                lines.append(line)
                if len(lines) == len(self.known):
                    is_open.set()
            is_open.set()

        reader = threading.Thread(target=read)
        reader.start()
        if self.random.random() < OPENING_SHARE:
            time.sleep(self.random.uniform(0.05, 0.3))
        else:
            assert is_open.wait(60), "the database does not open"
            time.sleep(self.random.uniform(0.01, 0.4))
        process.send_signal(signal.SIGKILL)
        reader.join()
        errors = process.communicate()[1].decode()
        assert process.returncode == -signal.SIGKILL and not errors, errors
        for line in lines:
            if line.endswith(b"\n"):
                self.record(*json.loads(line))

    def record(self, what, owner, *rows):
        known = self.known[owner]
        if what == "found":
            self.openings += 1
            known.check(owner, *rows, self.synchronous)
        else:
            self.commits += what == "done"
            known.record(what, *rows)

    def check(self):
        """Checks the rows in this process, which then closes the database."""
        with taut.connect(self.path, create=False) as con:
            check_money(con)
            for owner in OWNERS:
                self.record("found", owner, rows_of(con, owner))
            self.record("found", "maintenance", tables_of(con))


@pytest.mark.parametrize("synchronous", ["full", "normal", "off"])
def test_committed_changes_survive_a_kill(tmp_path, synchronous):
    path = tmp_path / "database"
    killed = KilledDatabase(path, synchronous, SEED)
    rounds = max(1, ROUNDS // 3) if synchronous == "off" else ROUNDS
    for number in range(rounds):
        try:
            killed.run(number)
            if number % 5 == 4 or number == rounds - 1:
                killed.check()
        except BaseException:
            print(f"{synchronous}, round {number}: KILL_SEED={SEED}")
            raise
    print(f"{synchronous}: {rounds} rounds, {killed.commits} commits, {killed.openings} lists of rows compared")
    assert killed.commits > rounds and killed.openings > len(killed.known)
    if PROGRAM:
        subprocess.run([PROGRAM, "verify", str(path)], check=True)
    assert not list(pathlib.Path(path).glob("**/*.new")), "the database has an unfinished file"


if __name__ == "__main__":
    work(*sys.argv[1:])
