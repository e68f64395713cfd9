"""Transactions: Taut beside SQLite and DuckDB, on the same rows and keys in one run.

    make bench-transactions                                      the whole
    make bench-transactions ROWS=100000 BENCH="--seconds 0.5"    a smoke run of two minutes
    make bench-transactions BENCH="--only sessions,space"        a part of it

    single    inserts and updates by key of one session, each statement a durable transaction
    sessions  the same with eight sessions at once, of keys that are disjoint
    upsert    100,000 random keys, half of them present, in one statement
    scans     scans of tables of which 1 % was updated, by one statement and by 1,000, and after VACUUM
    space     bytes of the directory after 90 % of the rows were deleted, beside a fresh load of the rest
    memory    peak resident memory of an UPDATE of all rows, and of VACUUM after it, limited to 1 GiB

Every part has a process of its own, in which all engines take turns, the order reversed every time; each has a directory on
one file system. Sums and counts are compared after every part. What fails is told in the tables.
"""

import argparse
import itertools
import math
import multiprocessing
import os
import pathlib
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import threading
import time
import traceback

import common

PARTS = {
    "single": "One session, each statement a transaction",
    "sessions": "{sessions} sessions at once, each statement a transaction",
    "upsert": "{batch:,} keys in one statement, half of them present, into {rows:,} rows",
    "scans": "Scans after updates of 1 % of {rows:,} rows",
    "space": "Bytes after 90 % of {rows:,} rows were deleted",
    "memory": "Peak resident memory of an UPDATE of all of {rows:,} rows, limited to 1 GiB",
}
LAYOUTS = ["row", "packed_row", "column", "groups"]
GROUPS = "(k, a), (g, v), (s)"
COLUMNS = ["k", "g", "a", "v", "s"]
CACHE = "2GiB"
SMALL_ROWS, ROWS, BATCH, STATEMENTS = 1_000_000, 10_000_000, 100_000, 1_000
SQLITE_ROWS = 1_000_000
LIMIT, LIMITED_CACHE = "1GiB", "256MiB"
SCANS = {
    "sum": "SELECT sum(v) FROM {}",
    "count": "SELECT count(*) FROM {} WHERE a < 100000",
    "groups": "SELECT g, count(*), sum(v) FROM {} GROUP BY g ORDER BY g",
}


def say(text):
    print(text, file=sys.stderr, flush=True)


# The rows: even keys in order; `a` is in no order.


def rows_of(count, where=None):
    import numpy
    import pyarrow

    place = numpy.arange(count, dtype=numpy.int64)
    a = numpy.random.default_rng(11).integers(0, 1_000_000, count)
    if where is not None:
        place, a = place[where(a)], a[where(a)]
    texts = pyarrow.array([f"text {number}" for number in range(1000)])
    return pyarrow.table({
        "k": place * 2, "g": (place * 7919 % 100).astype(numpy.int32), "a": a, "v": place % 1000,
        "s": texts.take(pyarrow.array(place % 997)),
    })  # fmt: skip


def permuted(count, seed):
    """The numbers below `count` in a random order."""
    import numpy

    return numpy.random.default_rng(seed).permutation(count)


MERGE = (
    "MERGE INTO t USING batch ON t.k = batch.k WHEN MATCHED THEN UPDATE SET v = batch.v, s = batch.s "
    "WHEN NOT MATCHED THEN INSERT (k, g, a, v, s) VALUES (batch.k, batch.g, batch.a, batch.v, batch.s)"
)
UPSERT = "INSERT INTO t SELECT * FROM batch ON CONFLICT (k) DO UPDATE SET v = excluded.v, s = excluded.s"


class Taut:
    """A database in a directory; statements with parameters, whose plan it keeps where it does so by itself."""

    def __init__(self, place, layout="row", synchronous="full", memory=None, cache=CACHE, merge=False):
        import taut

        self.place, self.layout, self.synchronous, self.errors, self.merge = place, layout, synchronous, taut.Error, merge
        self.connection = taut.connect(place, threads=2, memory=memory, cache=cache, progress=False)
        self.sql("SET synchronous = '%s'" % synchronous)

    def sql(self, text, parameters=None):
        return self.connection.sql(text, parameters)

    def rows(self, text):
        return self.sql(text).fetchall()

    def load(self, name, table, key=True):
        design = {"layout": self.layout, "sort_by": "k", **({"groups": GROUPS} if self.layout == "groups" else {})}
        options = ", ".join(f"{option} = '{value}'" for option, value in design.items())
        primary = " PRIMARY KEY" if key and not self.merge else ""
        self.sql(f"CREATE TABLE {name} (k BIGINT{primary}, g INTEGER, a BIGINT, v BIGINT, s VARCHAR) WITH ({options})")
        self.connection.insert(name, table)
        self.sql("CHECKPOINT")

    def session(self):
        """What inserts a row and what updates one, for one thread."""
        connection = self.connection.duplicate()
        connection.sql("SET synchronous = '%s'" % self.synchronous)
        run = connection.sql
        return (
            lambda key: run("INSERT INTO t VALUES (?, ?, ?, ?, ?)", (key, key % 100, key, 1, "new")),
            lambda key: run("UPDATE t SET v = v + ? WHERE k = ?", (1, key)),
        )

    def conflict(self, error):
        return getattr(error, "sqlstate", None) in ("40001", "40P01")

    def upsert(self, table):
        self.connection.register("batch", table)
        return lambda: self.sql(MERGE if self.merge else UPSERT)

    def register(self, name, table):
        self.connection.register(name, table)

    def forget(self, name):
        self.connection.unregister(name)

    def checkpoint(self):
        self.sql("CHECKPOINT")

    def vacuum(self, name=""):
        self.sql(f"VACUUM {name}")

    def vacuum_full(self):
        self.sql("VACUUM FULL")

    def interrupt(self):
        self.connection.interrupt()

    def close(self):
        self.connection.close()


class DuckDB:
    """A database file; prepared statements, a cursor for each session."""

    def __init__(self, place, merge=False, memory=None):
        import duckdb

        pathlib.Path(place).mkdir(exist_ok=True)
        settings = {"threads": 2, **({"memory_limit": memory} if memory else {})}
        self.place, self.merge, self.errors = place, merge, duckdb.Error
        self.connection = duckdb.connect(f"{place}/duck.db", config=settings)

    def sql(self, text):
        return self.connection.execute(text)

    def rows(self, text):
        return self.sql(text).fetchall()

    def load(self, name, table, key=True):
        primary = ", PRIMARY KEY (k)" if key and not self.merge else ""
        self.sql(f"CREATE TABLE {name} (k BIGINT, g INTEGER, a BIGINT, v BIGINT, s VARCHAR{primary})")
        self.register("loaded", table)
        self.sql(f"INSERT INTO {name} SELECT * FROM loaded")
        self.forget("loaded")
        self.sql("CHECKPOINT")

    def session(self):
        cursor = self.connection.cursor()
        cursor.execute("PREPARE ins AS INSERT INTO t VALUES ($1, $2, $3, 1, 'new')")
        cursor.execute("PREPARE upd AS UPDATE t SET v = v + $1 WHERE k = $2")
        return (
            lambda key: cursor.execute(f"EXECUTE ins({key}, {key % 100}, {key})"),
            lambda key: cursor.execute(f"EXECUTE upd(1, {key})"),
        )

    def conflict(self, error):
        return "onflict" in str(error)

    def upsert(self, table):
        self.register("batch", table)
        return lambda: self.sql(MERGE if self.merge else UPSERT)

    def register(self, name, table):
        self.connection.register(name, table)

    def forget(self, name):
        self.connection.unregister(name)

    def checkpoint(self):
        self.sql("CHECKPOINT")

    def vacuum(self, name=""):
        self.sql("CHECKPOINT")

    def vacuum_full(self):
        self.sql("VACUUM")
        self.sql("CHECKPOINT")

    def interrupt(self):
        self.connection.interrupt()

    def close(self):
        self.connection.close()


class SQLite:
    """A database file with a write-ahead log; the module keeps prepared statements."""

    def __init__(self, place, synchronous="FULL"):
        pathlib.Path(place).mkdir(exist_ok=True)
        self.place, self.synchronous, self.errors = place, synchronous, sqlite3.Error
        self.connection = self.connect()

    def connect(self):
        made = sqlite3.connect(f"{self.place}/sqlite.db", timeout=60, isolation_level=None, check_same_thread=False)
        made.execute("PRAGMA journal_mode = WAL")
        made.execute(f"PRAGMA synchronous = {self.synchronous}")
        return made

    def rows(self, text):
        return self.connection.execute(text).fetchall()

    def load(self, name, table, key=True):
        self.connection.execute(f"CREATE TABLE {name} (k INTEGER PRIMARY KEY, g INTEGER, a INTEGER, v INTEGER, s TEXT)")
        self.connection.execute("BEGIN")
        self.connection.executemany(f"INSERT INTO {name} VALUES (?, ?, ?, ?, ?)", tuples(table))
        self.connection.execute("COMMIT")
        self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def session(self):
        run = self.connect().execute
        return (
            lambda key: run("INSERT INTO t VALUES (?, ?, ?, ?, ?)", (key, key % 100, key, 1, "new")),
            lambda key: run("UPDATE t SET v = v + ? WHERE k = ?", (1, key)),
        )

    def conflict(self, error):
        return "locked" in str(error)

    def upsert(self, table):
        rows = list(tuples(table))

        def run():
            self.connection.execute("BEGIN")
            self.connection.executemany(
                "INSERT INTO t VALUES (?, ?, ?, ?, ?) ON CONFLICT (k) DO UPDATE SET v = excluded.v, s = excluded.s", rows
            )
            self.connection.execute("COMMIT")

        return run

    def forget(self, name):
        pass

    def interrupt(self):
        self.connection.interrupt()

    def close(self):
        self.connection.close()


class Disk:
    """Nothing but a log: what the disk lets a single session do."""

    errors = OSError

    def __init__(self, place):
        self.file = open(place, "ab", buffering=0)

    def load(self, name, table, key=True):
        pass

    def session(self):
        def one(key):
            self.file.write(b"x" * 128)
            os.fdatasync(self.file.fileno())

        return one, one

    def conflict(self, error):
        return False

    def close(self):
        self.file.close()


def tuples(table):
    return zip(*(table[name].to_pylist() for name in COLUMNS))


# What a part says to the process that started it.


class Part:
    """One part: its engines, and how it tells its figures."""

    def __init__(self, name, arguments, directory, pipe):
        self.name, self.arguments, self.directory, self.pipe = name, arguments, directory, pipe
        self.engines = {}

    def figure(self, cell, engine, value, unit):
        self.pipe.send(("figure", self.name, cell, engine, value, unit))

    def note(self, text):
        self.pipe.send(("note", self.name, text))

    def failed(self, engine, what, error):
        self.pipe.send(("failed", self.name, engine, what, f"{type(error).__name__}: {error}".replace("\n", " ")[:300]))

    def attempt(self, engine, what, run):
        """Its answer and seconds; an engine that fails is left out from then on. The limit ends what takes too long."""
        made = self.engines.get(engine)
        timer = threading.Timer(self.arguments.limit, getattr(made, "interrupt", lambda: None))
        timer.daemon = True
        timer.start()
        start = time.perf_counter()
        try:
            answer = run()
            return answer, time.perf_counter() - start
        except Exception as error:
            took = time.perf_counter() - start
            late = f" (ended by the limit, {took:.0f} s)" if took > self.arguments.limit else ""
            self.failed(engine, what + late, error)
            self.engines.pop(engine, None)
            return None
        finally:
            timer.cancel()

    def open(self, contestants):
        """Makes the engines, each in a directory of its own."""
        for name, make in contestants.items():
            place = f"{self.directory}/{name.replace(' ', '-').replace(',', '')}"
            if made := self.attempt(name, "open", lambda: make(place)):
                self.engines[name] = made[0]

    def load(self, name, table, key=True):
        for engine in list(self.engines):
            if done := self.attempt(engine, "load", lambda: self.engines[engine].load(name, table, key)):
                say(f"{self.name}: {len(table):,} rows in {engine}: {done[1]:.1f} s")

    def turn(self, repetition):
        """The engines, one way and the other by turns."""
        names = list(self.engines)
        return names[::-1] if repetition % 2 else names

    def agree(self, what, answers):
        """All engines must have the same answer; the last is the witness."""
        for engine, answer in answers.items():
            witness = list(answers.values())[-1]
            if answer != witness:
                self.failed(engine, what, ValueError(f"wrong: {str(answer)[:100]}, but {list(answers)[-1]} has {str(witness)[:100]}"))

    def close(self):
        for engine in list(self.engines):
            self.attempt(engine, "close", self.engines[engine].close)


def stored(place):
    return sum(path.stat().st_size for path in pathlib.Path(place).rglob("*") if path.is_file())


# Single rows.


def contestants(disk):
    made = {
        "Taut row, full": lambda place: Taut(place, "row"),
        "Taut column, full": lambda place: Taut(place, "column"),
        "Taut row, normal": lambda place: Taut(place, "row", "normal"),
        "Taut row, off": lambda place: Taut(place, "row", "off"),
        "SQLite, full": lambda place: SQLite(place),
        "SQLite, normal": lambda place: SQLite(place, "NORMAL"),
        "DuckDB, full": lambda place: DuckDB(place),
    }
    return {**made, **({"append and fdatasync": lambda place: Disk(place)} if disk else {})}


def run_for(seconds, keys, run, engine):
    """How many were committed, how often one was run again after a conflict, and the end."""
    done, again, until = 0, 0, time.perf_counter() + seconds
    for key in keys:
        while True:
            try:
                run(key)
                break
            except engine.errors as error:
                if not engine.conflict(error):
                    raise
                again += 1
        done += 1
        if time.perf_counter() >= until:
            break
    return done, again, time.perf_counter()


def at_once(seconds, shares, runs, engine):
    """The same from a thread for each share of the keys: transactions, repeated ones, seconds."""
    ready, results, errors = threading.Barrier(len(runs) + 1), [], []

    def work(keys, run):
        ready.wait()
        try:
            results.append(run_for(seconds, keys, run, engine))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=pair, daemon=True) for pair in zip(shares, runs)]
    for thread in threads:
        thread.start()
    ready.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return sum(done for done, _, _ in results), sum(again for _, again, _ in results), max(end for *_, end in results) - start


def single(part, sessions=1):
    arguments = part.arguments
    count = arguments.rows or SMALL_ROWS
    part.open(contestants(disk=sessions == 1))
    table = rows_of(count)
    part.load("t", table)
    sum_before = sum(table["v"].to_pylist())
    new, old = permuted(count, 3) * 2 + 1, permuted(count, 5) * 2
    made, changes, repeated = {}, {}, {}
    for engine in list(part.engines):
        if opened := part.attempt(engine, "sessions", lambda: [part.engines[engine].session() for _ in range(sessions)]):
            made[engine] = opened[0]
    share = count // arguments.repetitions
    for repetition in range(arguments.repetitions):
        for engine in part.turn(repetition):
            for place, (what, keys) in enumerate([("inserts", new), ("updates", old)]):
                mine = keys[repetition * share : (repetition + 1) * share]
                shares = [mine[thread::sessions].tolist() for thread in range(sessions)]
                runs = [pair[place] for pair in made[engine]]
                found = part.attempt(engine, what, lambda: at_once(arguments.seconds, shares, runs, part.engines[engine]))
                if not found:
                    break
                done, again, seconds = found[0]
                changes[engine, what] = changes.get((engine, what), 0) + done
                repeated[engine] = repeated.get(engine, 0) + again
                part.figure(what, engine, done / seconds, "per second")
    for engine, times in repeated.items():
        if times:
            part.note(f"{engine}: {times:,} transactions were repeated after a conflict.")
    # What was committed is there after the database was opened again.
    make = contestants(disk=False)
    for engine in [name for name in part.engines if name in make]:
        inserts, updates = changes.get((engine, "inserts"), 0), changes.get((engine, "updates"), 0)
        place = part.engines[engine].place
        made.pop(engine, None)

        def reopened():
            part.engines[engine].close()
            part.engines[engine] = make[engine](place)
            return part.engines[engine].rows("SELECT count(*), sum(v) FROM t")[0]

        if found := part.attempt(engine, "opening it again", reopened):
            expected = (count + inserts, sum_before + inserts + updates)
            if tuple(int(value) for value in found[0]) != expected:
                part.failed(engine, "rows after opening it again", ValueError(f"{found[0]}, expected {expected}"))


def sessions(part):
    single(part, part.arguments.sessions)


# A batch.


def upsert(part):
    import numpy
    import pyarrow

    count = part.arguments.rows or ROWS
    batch = min(BATCH, count // 10)
    made = {
        "Taut row": lambda place: Taut(place, "row"),
        "Taut column": lambda place: Taut(place, "column"),
        "Taut column, MERGE without a key": lambda place: Taut(place, "column", merge=True),
        "SQLite": lambda place: SQLite(place),
        "DuckDB, MERGE without a key": lambda place: DuckDB(place, merge=True),
        "DuckDB": lambda place: DuckDB(place),
    }
    if count > SQLITE_ROWS:
        del made["SQLite"]
        part.note(f"SQLite is left out: it takes part at {SQLITE_ROWS:,} rows and fewer.")
    part.open(made)
    part.load("t", rows_of(count))
    new, old, half = permuted(count, 13) * 2 + 1, permuted(count, 17) * 2, batch // 2
    for repetition in range(part.arguments.repetitions):
        chosen = slice(repetition * half, (repetition + 1) * half)
        keys = numpy.random.default_rng(repetition).permutation(numpy.concatenate([new[chosen], old[chosen]]))
        table = pyarrow.table({
            "k": keys, "g": (keys % 100).astype(numpy.int32), "a": keys % 1_000_000, "v": keys % 1000 + repetition,
            "s": pyarrow.array(["upserted"] * len(keys)),
        })  # fmt: skip
        answers = {}
        for engine in part.turn(repetition):
            if not (ready := part.attempt(engine, "batch", lambda: part.engines[engine].upsert(table))):
                continue
            if done := part.attempt(engine, "upsert", ready[0]):
                part.figure("upsert", engine, done[1], "s")
                part.engines[engine].forget("batch")
                if answer := part.attempt(engine, "sum", lambda: part.engines[engine].rows("SELECT sum(v), count(*) FROM t")):
                    answers[engine] = [int(value) for value in answer[0][0]]
        part.agree("sum after the upsert", {engine: answers[engine] for engine in made if engine in answers})


# Scans, space and memory, in every layout.


def tables_on_disk(**settings):
    made = {f"Taut {layout}": lambda place, layout=layout: Taut(place, layout, **settings) for layout in LAYOUTS}
    return {**made, "DuckDB": lambda place: DuckDB(place)}


def scans(part):
    import pyarrow

    count = part.arguments.rows or ROWS
    part.open(tables_on_disk())
    table = rows_of(count)
    for name in ("clean", "one", "many"):
        part.load(name, table, key=False)
    del table
    per_statement = max(1, count // 100 // STATEMENTS)
    keys = (permuted(count, 23)[: per_statement * STATEMENTS] * 2).tolist()
    chosen = pyarrow.table({"k": pyarrow.array(keys)})
    done = {}
    for engine in list(part.engines):
        made = part.engines[engine]

        def one():
            made.register("chosen", chosen)
            made.sql("UPDATE one SET v = v + 1 WHERE k IN (SELECT k FROM chosen)")

        def many():
            until = time.perf_counter() + part.arguments.limit * 0.9
            for number, start in enumerate(range(0, len(keys), per_statement), 1):
                wanted = ", ".join(map(str, keys[start : start + per_statement]))
                made.sql(f"UPDATE many SET v = v + 1 WHERE k IN ({wanted})")
                if time.perf_counter() > until:
                    break
            return number

        if found := part.attempt(engine, "one UPDATE", one):
            part.figure("one UPDATE", engine, found[1], "s")
            if found := part.attempt(engine, "many UPDATEs", many):
                done[engine] = found[0]
                part.figure("a small UPDATE, mean", engine, found[1] / found[0], "s")
                if found[0] < STATEMENTS:
                    part.note(f"{engine}: the limit ended the small statements after {found[0]:,} of {STATEMENTS:,}.")
        say(f"{part.name}: updates in {engine}: {found and found[1]}")
    for after in ("", ", VACUUM"):
        for engine in list(part.engines) if after else []:
            made = part.engines[engine]
            if found := part.attempt(engine, "VACUUM", lambda: (made.vacuum("one"), made.vacuum("many"))):
                part.figure("VACUUM of both", engine, found[1], "s")
        for name, scan in SCANS.items():
            for state in ("clean", "one", "many"):
                answers = {}
                for engine in list(part.engines):
                    if answer := part.attempt(engine, name, lambda: part.engines[engine].rows(scan.format(state))):
                        if state != "many" or done.get(engine) == STATEMENTS:
                            answers[engine] = [tuple(int(value) for value in row) for row in answer[0]]
                part.agree(f"{name} of {state}{after}", answers)
            for repetition in range(part.arguments.repetitions):
                for engine in part.turn(repetition):
                    states = ("clean", "one", "many")
                    for state in states[::-1] if repetition % 2 else states:
                        if found := part.attempt(engine, name, lambda: part.engines[engine].rows(scan.format(state))):
                            part.figure(f"{name}, {state}{after}", engine, found[1], "s")
                        else:
                            break


def space(part):
    count = part.arguments.rows or ROWS
    left = lambda a: a % 10 == 0
    for engine, make in tables_on_disk().items():
        part.open({engine: make, f"{engine} fresh": make})
        fresh, used = part.engines.pop(f"{engine} fresh", None), part.engines.get(engine)
        if not fresh or not used:
            continue
        steps = [
            ("loaded", lambda: used.load("t", rows_of(count), key=False)),
            ("deleted", lambda: used.sql("DELETE FROM t WHERE a % 10 <> 0")),
            ("VACUUM", lambda: used.vacuum()),
            ("VACUUM FULL", lambda: used.vacuum_full()),
        ]
        for what, run in steps:
            if not (found := part.attempt(engine, what, run)):
                break
            part.figure(what, engine, stored(used.place), "bytes")
            part.figure(f"{what}, time", engine, found[1], "s")
            say(f"{part.name}: {engine}, {what}: {stored(used.place):,} bytes, {found[1]:.1f} s")
        rest = rows_of(count, left)
        part.attempt(engine, "fresh load", lambda: fresh.load("t", rest, key=False))
        part.figure("the rest, fresh", engine, stored(fresh.place), "bytes")
        if engine in part.engines:
            answers = {name: [int(value) for value in one.rows("SELECT sum(v), count(*) FROM t")[0]]
                       for name, one in ((engine, used), ("a fresh load", fresh))}  # fmt: skip
            part.agree("sum of what is left", answers)
            used.close()
        fresh.close()
        part.engines.clear()
        shutil.rmtree(used.place)
        shutil.rmtree(fresh.place)


def load_apart(pipe, engine, place, count):
    made = tables_on_disk()[engine](place)
    made.load("t", rows_of(count), key=False)
    made.close()
    pipe.send(("answer", None))


def peak():
    """The greatest resident memory since the last call, in bytes."""
    for line in pathlib.Path("/proc/self/status").read_text().split("\n"):
        if line.startswith("VmHWM"):
            found = int(line.split()[1]) * 1024
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    return found


def limited_apart(pipe, engine, place, limit):
    if engine == "DuckDB":
        made = DuckDB(place, memory=LIMIT)
    else:
        made = Taut(place, engine.split()[1], memory=LIMIT, cache=LIMITED_CACHE)
    made.rows("SELECT count(*) FROM t")
    pipe.send(("opened", None, peak()))
    before = made.rows("SELECT sum(v) FROM t")[0][0]
    steps = {"UPDATE": lambda: made.sql("UPDATE t SET v = v + 1"), "VACUUM": made.vacuum, "VACUUM FULL": made.vacuum_full}
    for what, run in steps.items():
        peak()
        timer = threading.Timer(limit, made.interrupt)
        timer.daemon = True
        timer.start()
        start = time.perf_counter()
        try:
            run()
        except Exception as error:
            pipe.send(("failed", what, f"{type(error).__name__}: {error} (after {time.perf_counter() - start:.1f} s, peak {peak():,} bytes)"))
            break
        timer.cancel()
        pipe.send((what, time.perf_counter() - start, peak()))
    count, after = made.rows("SELECT count(*), sum(v) FROM t")[0]
    pipe.send(("answer", [int(count), int(after - before)]))
    made.close()


def memory(part):
    count = part.arguments.rows or ROWS
    for engine in tables_on_disk():
        place = f"{part.directory}/{engine.replace(' ', '-')}"
        updated = True
        for target, last in ((load_apart, count), (limited_apart, part.arguments.limit)):
            messages = []
            code = apart(messages.append, target, engine, place, last)
            answer = None
            for message in messages:
                if message[0] == "answer":
                    answer = message
                elif message[0] == "failed":
                    updated = updated and message[1] != "UPDATE"
                    part.failed(engine, message[1], RuntimeError(message[2]))
                else:
                    what, seconds, bytes = message
                    part.figure(what, engine, bytes, "bytes")
                    if seconds is not None:
                        part.figure(f"{what}, time", engine, seconds, "s")
                    say(f"{part.name}: {engine}, {what}: {bytes:,} bytes, {seconds} s")
            if not answer or code:
                part.failed(engine, target.__name__.replace("_", " "), RuntimeError(ended(code)))
                break
            if target is limited_apart and updated and answer[1] != [count, count]:
                part.failed(engine, "sum after the UPDATE", ValueError(f"rows, and sum of changes: {answer[1]}, expected {count}"))
        shutil.rmtree(place, ignore_errors=True)


# Processes.


def ended(code):
    return f"the process ended by {signal.Signals(-code).name}" if code and code < 0 else f"the process ended with {code}"


def apart(hear, target, *arguments):
    """Hears all that a function sends from a process of its own, and says how that ended."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=target, args=(theirs, *arguments))
    process.start()
    theirs.close()
    try:
        while True:
            hear(ours.recv())
    except EOFError:
        process.join()
    finally:
        if process.is_alive():
            process.kill()
    return process.exitcode


def run_part(pipe, name, arguments, directory):
    part = Part(name, arguments, directory, pipe)
    try:
        {"single": single, "sessions": sessions, "upsert": upsert, "scans": scans, "space": space, "memory": memory}[name](part)
        part.close()
    except Exception as error:
        traceback.print_exc()
        part.failed("all", "the part", error)
    # All is closed and told. DuckDB's package would say at length which of its objects Python still has.
    pipe.close()
    sys.stderr.flush()
    os._exit(0)


def file_system(directory):
    """Type and device of what a directory is on."""
    place, found = pathlib.Path(directory).resolve(), ("", "", "")
    for line in pathlib.Path("/proc/mounts").read_text().split("\n"):
        device, mount, kind = (line.split() + ["", "", ""])[:3]
        if mount and place.is_relative_to(mount) and len(mount) >= len(found[1]):
            found = (device, mount, kind)
    return found[2], found[0]


# The report.


def medians(cell):
    return {engine: common.median(values) for engine, values in cell["values"].items()}


def contest(cell, engine):
    """Only what promises the same is compared; None where nothing is."""
    if engine in ("append and fdatasync", "Taut row, off"):
        return None
    return "normal" if engine.endswith(", normal") else ""


def ratios(facts):
    """How Taut's best does beside the best rival, for each figure; above 1 it has lost."""
    found = []
    for cell in facts["cells"]:
        times = medians(cell)
        best = max if cell["unit"] == "per second" else min
        for promise in ("", "normal"):
            ours, theirs = (
                [engine for engine in times if contest(cell, engine) == promise and engine.startswith("Taut") == mine]
                for mine in (True, False)
            )
            if ours and theirs:
                our, their = best(ours, key=times.get), best(theirs, key=times.get)
                share = times[our] / times[their] if times[their] else math.inf
                share = 1 / share if cell["unit"] == "per second" and share else share
                found.append((share, cell, our, their, promise))
    return sorted(found, key=lambda one: -one[0])


def shown(value, unit):
    if unit == "bytes":
        return f"{value / 2**20:,.1f} MiB"
    return f"{value:,.0f} /s" if unit == "per second" else f"{common.milliseconds(value)} ms"


def summary(found):
    rows = [
        [f"{cell['part']}: {cell['name']}{promise and ', ' + promise}", f"{share:.2f}", f"{our}: {shown(medians(cell)[our], cell['unit'])}",
         f"{their}: {shown(medians(cell)[their], cell['unit'])}"]
        for share, cell, our, their, promise in found
    ]  # fmt: skip
    return common.table(["", "ratio", "Taut's best", "best rival"], rows) if rows else "None."


def grid(cells, engines):
    """A row for each engine, a column for each figure."""
    rows = []
    for engine in engines:
        row = [engine]
        for cell in cells:
            values = cell["values"].get(engine)
            spread = f" ±{common.spread(values):.0%}" if values and len(values) > 1 else ""
            row.append(f"{shown(common.median(values), cell['unit'])}{spread}" if values else "–")
        rows.append(row)
    return common.table(["", *(cell["name"] for cell in cells)], rows)


def relative(cells, engines, pairs):
    """Medians of some figures as a share of others'."""
    named, rows = {cell["name"]: cell for cell in cells}, []
    for engine in engines:
        row = [engine]
        for name, base in pairs:
            both = [named.get(one, {"values": {}})["values"].get(engine) for one in (name, base)]
            row.append(f"{common.median(both[0]) / common.median(both[1]):.2f}" if all(both) else "–")
        rows.append(row)
    return common.table(["", *(name for name, _ in pairs)], rows)


def part_text(facts, part):
    cells = [cell for cell in facts["cells"] if cell["part"] == part]
    # In the order of their first figure; one that had none is told among the failures.
    engines = list(dict.fromkeys(itertools.chain.from_iterable(cell["values"] for cell in cells)))
    rows = facts["rows"] or (SMALL_ROWS if part in ("single", "sessions") else ROWS)
    title = PARTS[part].format(sessions=facts["sessions"], rows=rows, batch=min(BATCH, rows // 10))
    sections = [f"## {part}: {title}"]
    if part in ("single", "sessions"):
        sections += [f"A table of {rows:,} rows; keys are random, the same for all.", grid(cells, engines)]
    elif part == "scans":
        plain = [cell for cell in cells if "," not in cell["name"] or cell["name"].endswith("mean")]
        states = [(f"{scan}, {state}{after}", f"{scan}, clean{after}")
                  for scan in SCANS for after in ("", ", VACUUM") for state in ("one", "many")]  # fmt: skip
        sections += ["Times as a share of those of a table that was not updated, in turns:", relative(cells, engines, states)]
        sections += [grid(plain, engines)]
        for scan in SCANS:
            sections.append(grid([cell for cell in cells if cell["name"].startswith(f"{scan}, ")], engines))
    elif part == "space":
        pairs = [(name, "the rest, fresh") for name in ("loaded", "deleted", "VACUUM", "VACUUM FULL")]
        sections += ["Bytes as a share of those of a fresh load of the rows that are left; DuckDB has CHECKPOINT for VACUUM, "
                     "and VACUUM with CHECKPOINT for VACUUM FULL:", relative(cells, engines, pairs)]  # fmt: skip
        for unit in ("bytes", "s"):
            sections.append(grid([cell for cell in cells if cell["unit"] == unit], engines))
    elif part == "memory":
        sections += [f"Taut with memory={LIMIT} and cache={LIMITED_CACHE}, DuckDB with memory_limit={LIMIT}; the peak is that of the "
                     "process during each statement, with what the one before left resident, and after opening.", grid(cells, engines)]  # fmt: skip
    else:
        sections.append(grid(cells, engines))
    return "\n\n".join(sections + facts["notes"].get(part, []))


def text(facts):
    machine, found = facts["machine"], ratios(facts)
    lost = [one for one in found if one[0] > 1]
    failures = [f"- **{engine} failed** in {part}, {what}: {why}" for part, engine, what, why in facts["failures"]]
    sections = [
        "# Transactions",
        f"{machine['processor']}, {machine['threads']} threads, {machine['memory_gib']} GiB, {machine['system']}, commit "
        f"{machine['commit']}, {machine['date']}; directories on {' of '.join(facts['file_system'])}; {versions(facts)}. Medians of "
        f"{facts['repetitions']} repetitions of {facts['seconds']:g} s, in turns, with half the distance between the least and the "
        "greatest. `make bench-transactions`.",
        "`full` survives when the machine stops, `normal` when the process is killed, `off` when the database is closed. SQLite has "
        "a write-ahead log, and its `normal` promises what Taut's does. Tables have a primary key in `single`, `sessions` "
        "and `upsert`. SQLite and DuckDB run prepared statements; Taut's are texts with parameters.",
        *(["## Failures", "\n".join(failures)] if failures else []),
        "## Lost",
        f"Taut's best layout beside the best rival with the same promise; {len(lost)} of {len(found)} figures are lost, the worst first. "
        "A ratio above 1 is how many times as long, as large or as few per second.",
        summary(lost),
        *(part_text(facts, part) for part in facts["parts"]),
        "## Not lost",
        summary([one for one in found if one[0] <= 1]),
    ]
    return "\n\n".join(sections)


def versions(facts):
    return ", ".join(f"{name} {version}" for name, version in facts["versions"].items())


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=lambda listed: [word.strip() for word in listed.split(",")], default=list(PARTS))
    parser.add_argument("--rows", type=int, help=f"of every table; by default {SMALL_ROWS:,} in single and sessions, else {ROWS:,}")
    parser.add_argument("--seconds", type=float, default=3.0, help="that an engine inserts in a repetition, and updates")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds after which a statement is ended, and fails")
    parser.add_argument("--directory", help="where the databases are made, by default a temporary directory")
    parser.add_argument("--name", help="of the files under bench/results, by default transactions, or transactions-quick")
    arguments = parser.parse_args()
    if unknown := set(arguments.only) - set(PARTS):
        parser.error(f"--only {', '.join(sorted(unknown))}: there are {', '.join(PARTS)}")
    whole = not arguments.rows and arguments.only == list(PARTS)
    arguments.name = arguments.name or ("transactions" if whole else "transactions-quick")
    return arguments


def main():
    import duckdb
    import taut

    arguments = parse()
    threads = common.pin(2)
    directory = tempfile.mkdtemp(prefix="taut-transactions-", dir=arguments.directory)
    kind = file_system(directory)
    if kind[0] in ("tmpfs", "ramfs"):
        os.rmdir(directory)
        sys.exit(f"{directory} is on {kind[0]}, where nothing is durable; choose another --directory")
    facts = {
        "machine": common.machine(threads), "file_system": kind, "parts": arguments.only, "rows": arguments.rows,
        "seconds": arguments.seconds, "repetitions": arguments.repetitions, "sessions": arguments.sessions,
        "versions": {"DuckDB": duckdb.__version__, "SQLite": sqlite3.sqlite_version, "Python": sys.version.split()[0]},
        "taut": taut.__version__, "failures": [], "notes": {}, "cells": [], "part_seconds": {},
    }  # fmt: skip
    cells = {}

    def hear(message):
        kind, part, *rest = message
        if kind == "figure":
            cell, engine, value, unit = rest
            kept = cells.setdefault((part, cell), {"part": part, "name": cell, "unit": unit, "values": {}})
            kept["values"].setdefault(engine, []).append(value)
        elif kind == "note":
            facts["notes"].setdefault(part, []).append(*rest)
        else:
            facts["failures"].append([part, *rest])

    try:
        for name in arguments.only:
            place = f"{directory}/{name}"
            os.mkdir(place)
            start = time.perf_counter()
            code = apart(hear, run_part, name, arguments, place)
            facts["part_seconds"][name] = time.perf_counter() - start
            say(f"{name}: {facts['part_seconds'][name]:.0f} s")
            if code:
                facts["failures"].append([name, "all", "the part", ended(code)])
            shutil.rmtree(place, ignore_errors=True)
    except KeyboardInterrupt:
        say("ended; what was measured is kept")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    facts["cells"] = list(cells.values())
    common.keep(arguments.name, facts, text(facts))
    sys.exit(bool(facts["failures"]))


if __name__ == "__main__":
    main()
