"""One small class per engine, with the same methods. `processes.py` runs each engine in a separate process.

    load(table, file, columns)   loads a file into the engine's own format on disk; `columns` are in sort order
    settle(table)                does work after a load, which is not timed
    read(query)                  runs a query on the whole table, to bring the table into memory
    stored(table)                returns bytes on disk, or None
    select(query)                returns the answer as a pyarrow table; this is timed
    prepare(lookup)              prepares a statement with parameters, if the engine has them
    rows(lookup, *values)        returns the answer of a lookup in the engine's fastest format; this is timed
    index(table, column)         creates a secondary index, or raises Refused
    drop(table), close()
    as_table(answer)             converts an answer to a pyarrow table for comparisons

Each class imports its engine's package in its methods. An engine that is not installed or does not run on this machine
is therefore left out without affecting the others.
"""

import os
import pathlib
import sqlite3

import pyarrow
import pyarrow.parquet

CACHE = "4GiB"


class Refused(Exception):
    """A feature that the engine does not have."""


class Engine:
    # Parts of the comparison in which the engine takes part. `compare.py` describes them.
    parts = "abcde"
    # Whether a load converts the data to the engine's own format.
    own_form = True

    def settle(self, table):
        pass

    def stored(self, table):
        return None

    def read(self, query):
        self.select(query)

    def prepare(self, lookup):
        pass

    def index(self, table, column):
        raise Refused("has no secondary index")

    def as_table(self, answer):
        return from_tuples(answer) if isinstance(answer, list) else answer

    def close(self):
        pass


def from_tuples(answer):
    columns = [pyarrow.array(column, pyarrow.int32()) for column in zip(*answer)]
    return pyarrow.table(columns, names=[str(index) for index in range(len(columns))])


class Taut(Engine):
    """A database in a directory. Taut's cache is large enough for all of it."""

    def __init__(self, directory, threads, layout):
        import taut

        self.version, self.layout, self.directory = taut.__version__, layout, f"{directory}/taut"
        self.settings = f"layout='{layout}', sort_by all columns; threads={threads}, cache={CACHE}"
        self.connection = taut.connect(self.directory, threads=threads, cache=CACHE, progress=False)

    def load(self, table, file, columns):
        self.connection.load(table, file, layout=self.layout, sort_by=", ".join(columns))
        self.connection.sql("CHECKPOINT")

    def stored(self, table):
        return sum(path.stat().st_size for path in pathlib.Path(self.directory).rglob("*") if path.is_file())

    def select(self, query):
        return self.connection.sql(query.sql()).to_arrow()

    def rows(self, lookup, *values):
        return self.connection.sql(lookup.parameters("?", "?"), values).fetchall()

    def index(self, table, column):
        import taut

        try:
            self.connection.sql(f"CREATE INDEX {table}_{column} ON {table} USING csb ({column})")
        except taut.NotSupportedError as error:
            raise Refused(f"not supported yet: {error}") from error

    def explain(self, query):
        return self.connection.explain(query.sql(), analyze=True)

    def drop(self, table):
        self.connection.sql(f"DROP TABLE {table}")

    def close(self):
        self.connection.close()


class DuckDB(Engine):
    """A database file."""

    def __init__(self, directory, threads):
        import duckdb

        self.version, self.path, self.settings = duckdb.__version__, f"{directory}/duck.db", f"database file, threads={threads}"
        self.connection = duckdb.connect(self.path, config={"threads": threads})

    def load(self, table, file, columns):
        self.connection.execute(f"CREATE TABLE {table} AS SELECT * FROM '{file}'")
        self.connection.execute("CHECKPOINT")

    def stored(self, table):
        return pathlib.Path(self.path).stat().st_size

    def select(self, query):
        return self.connection.sql(query.sql()).to_arrow_table()

    def prepare(self, lookup):
        self.connection.execute(f"PREPARE rows_{lookup.key}_{lookup.count} AS {lookup.parameters('$1', '$2')}")

    def rows(self, lookup, *values):
        return self.connection.execute(f"EXECUTE rows_{lookup.key}_{lookup.count}({', '.join(map(str, values))})").fetchall()

    def index(self, table, column):
        self.connection.execute(f"CREATE INDEX {table}_{column} ON {table} ({column})")

    def drop(self, table):
        self.connection.execute(f"DROP TABLE {table}")

    def close(self):
        self.connection.close()


class Polars(Engine):
    """Data frames in memory, filtered lazily. Their first column is marked as sorted."""

    def __init__(self, directory, threads):
        import polars

        self.polars, self.version, self.frames = polars, polars.__version__, {}
        self.settings = f"eager frame in memory, lazy filter, {polars.thread_pool_size()} threads, default engine of collect()"

    def load(self, table, file, columns):
        self.frames[table] = self.polars.read_parquet(file).with_columns(self.polars.col(columns[0]).set_sorted())

    def lazily(self, query):
        frame, col = self.frames[query.table].lazy(), self.polars.col
        if hasattr(query, "group"):
            least = frame.group_by(query.group).agg(col(query.column).min())
            return least.filter(col(query.column) < query.below)
        return frame.filter(*(self.condition(*predicate) for predicate in query.predicates)).select(query.columns)

    def condition(self, column, low, high=None):
        column = self.polars.col(column)
        return column >= low if high is None else column.is_between(low, high)

    def select(self, query):
        return self.lazily(query).collect().to_arrow()

    def read(self, query):
        """Does nothing, because frames are in memory."""

    def rows(self, lookup, low, high=None):
        key = self.polars.col(lookup.key)
        wanted = key == low if high is None else key.is_between(low, high)
        return self.frames[lookup.table].lazy().filter(wanted).collect()

    def as_table(self, answer):
        return answer.to_arrow() if isinstance(answer, self.polars.DataFrame) else answer

    def drop(self, table):
        del self.frames[table]


class DataFusion(Engine):
    """The Parquet file itself, without a load."""

    own_form = False

    def __init__(self, directory, threads):
        import datafusion

        self.version, self.threads = datafusion.__version__, threads
        self.settings = f"Parquet uncompressed with page index, target_partitions={threads}, other settings at their defaults"
        self.context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(threads))

    def load(self, table, file, columns):
        self.context.register_parquet(table, file)

    def select(self, query):
        return self.context.sql(query.sql()).to_arrow_table()

    def prepare(self, lookup):
        types = ", ".join(["INT"] * (1 if lookup.count == 1 else 2))
        self.context.sql(f"PREPARE rows_{lookup.key}_{lookup.count}({types}) AS {lookup.parameters('$1', '$2')}")

    def rows(self, lookup, *values):
        return self.context.sql(f"EXECUTE rows_{lookup.key}_{lookup.count}({', '.join(map(str, values))})").to_arrow_table()

    def drop(self, table):
        self.context.deregister_table(table)


class DataFusionMemory(DataFusion):
    """Arrow batches of 8,192 rows in memory."""

    own_form = True

    def __init__(self, directory, threads):
        super().__init__(directory, threads)
        self.settings = f"Arrow batches of 8,192 rows, target_partitions={threads}, other settings at their defaults"

    def load(self, table, file, columns):
        batches = pyarrow.parquet.read_table(file).to_batches(max_chunksize=8192)
        share = -(-len(batches) // self.threads)
        parts = [batches[start : start + share] for start in range(0, len(batches), share)]
        self.context.register_record_batches(table, parts)


class ChDB(Engine):
    """A MergeTree table in a directory, ordered by all columns and merged into one part."""

    def __init__(self, directory, threads):
        import chdb

        self.chdb, self.connection = chdb, chdb.connect(f"{directory}/chdb?max_threads={threads}")
        self.version = f"{chdb.__version__} (ClickHouse {chdb.engine_version})"
        self.settings = (
            f"MergeTree ORDER BY all columns, OPTIMIZE FINAL after the load (not in its time); max_threads={threads}, "
            "Arrow output uncompressed"
        )
        self.connection.query("SET output_format_arrow_compression_method = 'none'")

    def load(self, table, file, columns):
        self.connection.query(
            f"CREATE TABLE {table} ENGINE = MergeTree ORDER BY ({', '.join(columns)}) AS SELECT * FROM file('{file}', Parquet)"
        )

    def settle(self, table):
        self.connection.query(f"OPTIMIZE TABLE {table} FINAL")

    def stored(self, table):
        sql = f"SELECT sum(bytes_on_disk) FROM system.parts WHERE table = '{table}' AND active"
        return int(str(self.connection.query(sql)))

    def answer(self, sql, values={}):
        """Returns a table that borrows the bytes of the result. `self.result` keeps them alive until the next query."""
        self.result = self.connection.query(sql, "Arrow", params=values)
        return self.chdb.to_arrowTable(self.result)

    def select(self, query):
        return self.answer(query.sql())

    def rows(self, lookup, *values):
        sql = lookup.parameters("{low:Int32}", "{high:Int32}")
        return self.answer(sql, dict(zip(["low", "high"], values)))

    def drop(self, table):
        self.connection.query(f"DROP TABLE {table} SYNC")

    def close(self):
        self.connection.close()


class Hyper(Engine):
    """A .hyper file. Results come through an Arrow file in memory, several times faster than through the connection."""

    def __init__(self, directory, threads):
        import tableauhyperapi

        self.api, self.version = tableauhyperapi, tableauhyperapi.__version__
        self.path, self.answer = f"{directory}/tables.hyper", f"/dev/shm/taut-bench-{os.getpid()}.arrow"
        self.settings = f".hyper file, hard_concurrent_query_thread_limit={threads}, COPY TO a file of /dev/shm as Arrow, mapped"
        self.process = tableauhyperapi.HyperProcess(
            tableauhyperapi.Telemetry.DO_NOT_SEND_USAGE_DATA_TO_TABLEAU,
            parameters={"log_config": "", "hard_concurrent_query_thread_limit": str(threads)},
        )
        self.connection = self.connected(tableauhyperapi.CreateMode.CREATE_AND_REPLACE)

    def connected(self, mode):
        return self.api.Connection(self.process.endpoint, self.path, mode)

    def load(self, table, file, columns):
        """Loads a table and closes the connection, which completes the file."""
        self.connection.execute_command(f"CREATE TABLE {table} AS (SELECT * FROM external('{file}', FORMAT => 'parquet'))")
        self.connection.close()

    def settle(self, table):
        self.connection = self.connected(self.api.CreateMode.NONE)

    def stored(self, table):
        return pathlib.Path(self.path).stat().st_size

    def select(self, query):
        self.connection.execute_command(f"COPY ({query.sql()}) TO '{self.answer}' WITH (FORMAT => 'arrowstream')")
        answer = pyarrow.ipc.open_stream(pyarrow.memory_map(self.answer)).read_all()
        os.unlink(self.answer)
        return answer

    def prepare(self, lookup):
        types = ", ".join(["INT"] * (1 if lookup.count == 1 else 2))
        self.connection.execute_command(f"PREPARE rows_{lookup.key}_{lookup.count}({types}) AS {lookup.parameters('$1', '$2')}")

    def rows(self, lookup, *values):
        return self.connection.execute_list_query(f"EXECUTE rows_{lookup.key}_{lookup.count}({', '.join(map(str, values))})")

    def drop(self, table):
        self.connection.execute_command(f"DROP TABLE {table}")

    def close(self):
        self.connection.close()
        self.process.close()


class SQLite(Engine):
    """A database file, for lookups only. The first column is the primary key. SQLite runs a query on one thread."""

    parts = "c"

    def __init__(self, directory, threads):
        self.version, self.path = sqlite3.sqlite_version, f"{directory}/sqlite.db"
        self.settings = "key as INTEGER PRIMARY KEY, cache 1 GiB, mmap 4 GiB, synchronous off; rows as tuples; one thread"
        self.connection = sqlite3.connect(self.path, isolation_level=None)
        for pragma in ["journal_mode = OFF", "synchronous = OFF", "cache_size = -1048576", "mmap_size = 4294967296"]:
            self.connection.execute(f"PRAGMA {pragma}")

    def load(self, table, file, columns):
        definitions = ", ".join(f"{name} INTEGER{' PRIMARY KEY' * (name == columns[0])}" for name in columns)
        self.connection.execute(f"CREATE TABLE {table} ({definitions})")
        placeholders = ", ".join("?" * len(columns))
        self.connection.execute("BEGIN")
        for batch in pyarrow.parquet.ParquetFile(file).iter_batches(100_000):
            values = zip(*(column.to_pylist() for column in batch.columns))
            self.connection.executemany(f"INSERT INTO {table} VALUES ({placeholders})", values)
        self.connection.execute("COMMIT")

    def stored(self, table):
        return pathlib.Path(self.path).stat().st_size

    def select(self, query):
        return self.connection.execute(query.sql()).fetchall()

    def rows(self, lookup, *values):
        return self.connection.execute(lookup.parameters("?", "?"), values).fetchall()

    def index(self, table, column):
        self.connection.execute(f"CREATE INDEX {table}_{column} ON {table} ({column})")

    def drop(self, table):
        self.connection.execute(f"DROP TABLE {table}")

    def close(self):
        self.connection.close()


TAUT = ["Taut row", "Taut packed_row", "Taut column"]
ON_DISK = ["DuckDB", "DataFusion Parquet", "chDB", "Hyper"]
IN_MEMORY = ["Polars", "DataFusion memory"]
ENGINES = {
    **{name: (Taut, {"layout": name.removeprefix("Taut ")}) for name in TAUT},
    "DuckDB": (DuckDB, {}),
    "DataFusion Parquet": (DataFusion, {}),
    "chDB": (ChDB, {}),
    "Hyper": (Hyper, {}),
    "Polars": (Polars, {}),
    "DataFusion memory": (DataFusionMemory, {}),
    "SQLite": (SQLite, {}),
}
