"""The engines of the comparison, and the rows of their tables."""

import os
import pathlib
import sqlite3

LAYOUTS = ["row", "packed_row", "column", "groups"]
GROUPS = "(k, a), (g, v), (s)"
COLUMNS = ["k", "g", "a", "v", "s"]
CACHE = "2GiB"


# Rows of the tables: even keys in ascending order, and random values in `a`.


def rows_of(count, where=None):
    import numpy
    import pyarrow

    ordinal = numpy.arange(count, dtype=numpy.int64)
    a = numpy.random.default_rng(11).integers(0, 1_000_000, count)
    if where is not None:
        ordinal, a = ordinal[where(a)], a[where(a)]
    texts = pyarrow.array([f"text {number}" for number in range(1000)])
    return pyarrow.table({
        "k": ordinal * 2, "g": (ordinal * 7919 % 100).astype(numpy.int32), "a": a, "v": ordinal % 1000,
        "s": texts.take(pyarrow.array(ordinal % 997)),
    })  # fmt: skip


def permuted(count, seed):
    """Returns the numbers below `count` in random order."""
    import numpy

    return numpy.random.default_rng(seed).permutation(count)


MERGE = (
    "MERGE INTO t USING batch ON t.k = batch.k WHEN MATCHED THEN UPDATE SET v = batch.v, s = batch.s "
    "WHEN NOT MATCHED THEN INSERT (k, g, a, v, s) VALUES (batch.k, batch.g, batch.a, batch.v, batch.s)"
)
UPSERT = "INSERT INTO t SELECT * FROM batch ON CONFLICT (k) DO UPDATE SET v = excluded.v, s = excluded.s"


class Taut:
    """A database in a directory. Statements have parameters; Taut decides whether to cache their plans.

    With `merge`, tables have no key, and `upsert` runs MERGE instead of INSERT ... ON CONFLICT.
    """

    def __init__(self, path, layout="row", synchronous="full", memory=None, cache=CACHE, merge=False):
        import taut

        self.path, self.layout, self.synchronous, self.errors, self.merge = path, layout, synchronous, taut.Error, merge
        self.connection = taut.connect(path, threads=2, memory=memory, cache=cache, progress=False)
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
        """Returns two functions for one thread: one inserts a row, the other updates a row."""
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
        """Prepares an upsert of rows. Returns a function that runs it, so that the preparation is not timed."""
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
    """A database file, with prepared statements and a cursor for each session. `merge` is as in `Taut`."""

    def __init__(self, path, merge=False, memory=None):
        import duckdb

        pathlib.Path(path).mkdir(exist_ok=True)
        settings = {"threads": 2, **({"memory_limit": memory} if memory else {})}
        self.path, self.merge, self.errors = path, merge, duckdb.Error
        self.connection = duckdb.connect(f"{path}/duck.db", config=settings)

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
    """A database file with a write-ahead log. Python's module caches prepared statements."""

    def __init__(self, path, synchronous="FULL"):
        pathlib.Path(path).mkdir(exist_ok=True)
        self.path, self.synchronous, self.errors = path, synchronous, sqlite3.Error
        self.connection = self.connect()

    def connect(self):
        connection = sqlite3.connect(f"{self.path}/sqlite.db", timeout=60, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {self.synchronous}")
        return connection

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
    """A log file without a database: the upper bound that the disk sets for commits of one session."""

    errors = OSError

    def __init__(self, path):
        self.file = open(path, "ab", buffering=0)

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


def engines_on_disk(**settings):
    """Returns the constructors of engines with a database on disk, by name. Each takes the path."""
    factories = {f"Taut {layout}": lambda path, layout=layout: Taut(path, layout, **settings) for layout in LAYOUTS}
    return {**factories, "DuckDB": lambda path: DuckDB(path)}
