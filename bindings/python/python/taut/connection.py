"""Connections: they run statements, load data and take backups."""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from taut import _taut
from taut.backup import Backup, backup_of
from taut.cursor import Cursor
from taut.data import Variables, arrow_of, without_nan_columns
from taut.inspection import Inspection
from taut.progress import reporter
from taut.result import Result
from taut.table import Table, options_of

_SIZES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}

#: SQLSTATE of the error for a table that does not exist.
_NO_SUCH_TABLE = "42P01"


def connect(
    path: str | os.PathLike[str] = ":memory:",
    *,
    threads: int | None = None,
    memory: int | str | None = None,
    cache: int | str | None = None,
    create: bool = True,
    read_only: bool = False,
    progress: bool | None = None,
) -> Connection:
    """Opens the database in a directory, or creates it there.

    ``:memory:`` creates a new database in memory. Closing its last connection discards it.

    Connections of one process to one path share the database. Only one process at a time can open it for writing. Other
    processes can read it meanwhile, with `read_only`.

    Parameters
    ----------
    path: the directory of the database, or ``:memory:``.
    threads: number of threads of a query; by default one for each processor.
    memory: memory that queries use before they spill to disk, in bytes or as a string such as ``'2GiB'``; by default
        half of the memory of the machine.
    cache: memory for cached parts of the files, in bytes or as a string; by default a quarter of `memory`, or of the
        memory of the machine if `memory` is not given, and at most 1 GiB.
    create: whether to create a database that does not exist; `read_only` never creates one.
    read_only: whether to open the database for reading only. This works while another process writes the database, and
        on a read-only file system. Queries see the database as it was when it was opened or last refreshed:
        see `Connection.refresh`. Read-only connections of one process share that state; connecting again refreshes it
        for all of them.
    progress: whether long statements draw a progress bar; by default only in a terminal and in a notebook.

    Raises
    ------
    OperationalError: the database is open for writing in another process, or in this one with other settings; it does
        not exist, and `create` is false or `read_only` true; or the directory holds other files.
    ProgrammingError: `read_only` is given for ``:memory:``.
    InternalError: the database is damaged.
    ValueError: a setting has an invalid value.
    """
    if threads is not None and threads < 1:
        raise ValueError(f"threads={threads}; a query needs one thread at least")
    native = _taut.Connection.open(
        os.path.expanduser(path),
        threads=threads,
        memory_bytes=_bytes_of("memory", memory),
        cache_bytes=_bytes_of("cache", cache),
        create=create,
        read_only=read_only,
        reporter=reporter(progress),
    )
    return Connection(native, progress=progress)


class Connection:
    """A session on a database, opened by `connect`.

    Any thread can use it, one statement at a time. To run statements at the same time, open one connection per thread,
    with `connect` or `duplicate`.
    """

    def __init__(self, native: _taut.Connection, *, progress: bool | None = None) -> None:
        self._native = native
        self._progress = progress

    # Statements

    def sql(self, query: str, params: Sequence[Any] | Mapping[str, Any] | None = None) -> Result:
        """Runs one or more statements and returns the result of the last.

        Parameters are a sequence for ``?`` or ``$1``, or a mapping for ``$name``. Only the last statement has them.
        Values are None, bool, int, float, decimal.Decimal, str, bytes, date, time, datetime and timedelta of datetime,
        scalars of NumPy and pandas, and lists, tuples and arrays of these: ``a = ANY($1)``.

        A table that is not in the database may be a Python variable of the caller. Local variables are searched before
        global ones. The variable may be a pandas or Polars DataFrame, a pyarrow table, a DuckDB relation, a Taut
        result, or any object with ``__arrow_c_stream__``. It is read without copying if its memory is Arrow.

        Raises ProgrammingError when a statement is wrong, NotSupportedError when Taut does not support it, DataError
        when a value is invalid, and other subclasses of `Error`. Each has `sqlstate` and `message`; `detail`, `hint`
        and `position` (line and column) may be None. Rows are computed when they are read, so reading them can
        raise too.
        """
        caller = sys._getframe(1)
        return self._run(query, params, caller.f_locals, caller.f_globals)

    execute = sql

    def _run(
        self, query: str, params: Sequence[Any] | Mapping[str, Any] | None = None, *variables: Mapping[str, Any]
    ) -> Result:
        if not isinstance(query, str):
            raise TypeError(f"a statement is a str, not {type(query).__name__}")
        if not variables:
            return Result(self._native.execute(query, params))
        with self._resolving(variables) as resolve:
            return Result(self._native.execute(query, params, resolve))

    def _run_many(
        self, pairs: Iterable[tuple[str, Sequence[Any] | Mapping[str, Any]]], *variables: Mapping[str, Any]
    ) -> int | None:
        """Runs statements with their parameters, all or none. Returns the number of rows that they write."""
        with self._resolving(variables) as resolve:
            return self._native.execute_many(pairs, resolve)

    @contextmanager
    def _resolving(self, variables: Sequence[Mapping[str, Any]]) -> Iterator[Variables]:
        """Yields a function that finds tables in variables. Adds a hint to an error about a missing table."""
        resolve = Variables(*variables)
        try:
            yield resolve
        except _taut.ProgrammingError as error:
            if error.sqlstate == _NO_SUCH_TABLE:
                try:
                    tables = self.tables()
                except _taut.Error:
                    # A failed transaction accepts no queries.
                    tables = []
                error.hint = resolve.hint(str(error), tables)
                error.args = (f"{error}\nhint: {error.hint}",)
            raise

    def explain(
        self, query: str, params: Sequence[Any] | Mapping[str, Any] | None = None, *, analyze: bool = False
    ) -> str:
        """Returns the plan of a query, or of an UPDATE, DELETE, MERGE or upsert, as text.

        With `analyze` the statement runs, and changes rows if it writes. The plan then shows the metrics and the time
        of each operator.
        """
        if (count := self._native.count_statements(query)) != 1:
            raise _taut.ProgrammingError(f"one statement can be explained, found {count}")
        words = "EXPLAIN ANALYZE" if analyze else "EXPLAIN"
        caller = sys._getframe(1)
        rows = self._run(f"{words} {query}", params, caller.f_locals, caller.f_globals).fetchall()
        return "\n\n".join(f"{kind}:\n{plan}" for kind, plan in rows)

    # Data

    def register(self, name: str, data: Any) -> None:
        """Registers a DataFrame or other Arrow data under a name that statements of this connection can use as a table.

        The name is case-sensitive: SQL needs double quotes around a name with capitals. The table may share memory with
        the data, so changing the data in place changes the table.

        Raises TypeError when `data` is not a table, ProgrammingError when a table of the database has the name.
        """
        self._native.register(name, arrow_of(data, "data"))

    def unregister(self, name: str) -> None:
        """Removes a name that `register` added.

        Raises ProgrammingError when the name is not registered.
        """
        if not self._native.unregister(name):
            raise _taut.ProgrammingError(f"{name!r} is not registered; register(name, data) gives a name")

    def insert(self, table: str, data: Any, **design: Any) -> int:
        """Inserts the rows of a DataFrame or other Arrow data, all or none, and returns their number.

        The name of the table may have a schema, as in ``"sales.orders"``. A table that does not exist is created with
        the columns of the data. `design` holds its options, such as ``layout="packed_row"`` and ``sort_by="a, b
        desc"``. Columns of an existing table are matched by name. A column that the data lacks gets its default, or
        null. A column with only nulls fits every column, and becomes text in a new table. If `data` is a reader of
        batches in Python, another thread reads it. The reader cannot use this connection, but it can use a duplicate.

        Raises TypeError when `data` is not a table, ProgrammingError when it has a column that the table lacks, or
        lacks a NOT NULL column without a default, NotSupportedError when `design` is given for an existing table,
        DataError or IntegrityError when a value does not fit.
        """
        rows = arrow_of(data, "data")
        is_pandas = type(data).__module__.partition(".")[0] == "pandas"
        # Without pyarrow, `arrow_of` returns the pandas frame, so there is no pyarrow table to change.
        if is_pandas and type(rows).__module__ == "pyarrow.lib" and table in self.tables():
            rows = without_nan_columns(rows)
        return self._native.insert(table, rows, options_of(design))

    def load(
        self,
        table: str,
        files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        *,
        format: str | None = None,
        header: bool | None = None,
        delimiter: str | None = None,
        null: str | None = None,
        **design: Any,
    ) -> int:
        """Loads Parquet, CSV or JSON-lines files, all or none, and returns the number of rows.

        `files` is a path, a pattern such as ``"sales-*.parquet"``, or an iterable of these. A table that does not exist
        is created with the columns of the first file. `design` holds its options, as for `insert`. `format` is
        ``parquet``, ``csv`` or ``json``; by default it follows from the file name. `header`, `delimiter` and `null`
        describe the CSV format.

        Raises FileNotFoundError when a pattern matches nothing, ValueError when `files` is empty, and what `sql`
        raises.
        """
        paths: list[str] = []
        for file in [files] if isinstance(files, (str, os.PathLike)) else files:
            path = os.fspath(file)
            is_pattern = glob.has_magic(path) and not os.path.exists(path)
            found = sorted(glob.glob(path, recursive=True)) if is_pattern else [path]
            if not found:
                raise FileNotFoundError(f"no file matches {path!r}")
            paths += found
        if not paths:
            raise ValueError("files is empty; name one file at least")
        read = {"format": format, "header": header, "delimiter": delimiter, "null": null}
        return self._native.load(table, paths, options_of(read), options_of(design))

    def backup(self, directory: str | os.PathLike[str], *, log: bool = False, keep: int | None = None) -> Backup:
        """Backs up the database to a directory. All connections can be used meanwhile.

        The backup holds all commits so far. Data that an earlier backup in the directory holds is not copied again.
        It excludes files that queries read directly, and registered data. `taut.restore` restores a database from it.

        Parameters
        ----------
        directory: the backup directory; it is created if it does not exist.
        log: whether to archive every commit since the last backup too, so that any point in time between the two can
            be restored. The database then retains its log and the replaced blocks until the next backup.
            ``BACKUP DATABASE STOP LOG`` stops archiving.
        keep: number of newest backups to keep, this one included; by default all.

        Raises OperationalError when another process uses the directory or it cannot be written, ProgrammingError when
        it lies in the database or holds other files, InternalError when the database is damaged.
        """
        if keep is not None and keep < 1:
            raise ValueError(f"keep={keep}; at least one backup must be kept")
        return backup_of(self._native.backup(os.path.expanduser(directory), log, keep))

    def table(self, name: str) -> Table:
        """Returns a table of the database. A name outside schema public includes its schema, as in ``"sales.orders"``.

        Raises ProgrammingError when no table has that name.
        """
        return Table(self, name)

    def tables(self) -> list[str]:
        """Returns the names of all tables, sorted. Names outside schema public include their schema."""
        return [name for (name,) in self._run("SELECT table_name FROM taut.tables ORDER BY 1").fetchall()]

    def inspect(self, table: str) -> Inspection:
        """Shows how a table is stored: its blocks, as a picture in a notebook and as text elsewhere.

        Raises ProgrammingError when no table has that name.
        """
        return self.table(table).inspect()

    # Connections and DB-API

    def refresh(self) -> bool:
        """Advances a read-only database to the last commit. Returns whether there was a newer commit.

        Statements that begin afterwards read the new state, on all read-only connections of this process to the path. A
        transaction that has run a statement keeps its snapshot until it ends. A database that is open for writing is
        always at the last commit, so this returns False.

        Raises OperationalError when the database can no longer be read. Queries then continue to read the previous
        state.
        """
        return self._native.refresh()

    @property
    def read_only(self) -> bool:
        """Whether the database is open read-only: statements that write raise OperationalError with SQLSTATE 25006."""
        return self._native.read_only

    def duplicate(self) -> Connection:
        """Opens another connection to the same database. It does not share registered names."""
        return Connection(self._native.duplicate(reporter(self._progress)), progress=self._progress)

    def cursor(self) -> Cursor:
        """Returns a DB-API 2.0 cursor."""
        self._check_open()
        return Cursor(self)

    @property
    def autocommit(self) -> bool:
        """Always True: each statement commits immediately, unless begin() or BEGIN has started a transaction."""
        return True

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is in progress, from begin() to commit() or rollback()."""
        return self._native.in_transaction

    def begin(self) -> None:
        """Begins a transaction, as the statement BEGIN does."""
        self.execute("BEGIN")

    def commit(self) -> None:
        """Commits the transaction in progress. Does nothing if there is none.

        Raises OperationalError with SQLSTATE 40001 after a conflict with another transaction. The transaction has then
        been rolled back and can be retried.
        """
        self._check_open()
        if self.in_transaction:
            self.execute("COMMIT")

    def rollback(self) -> None:
        """Rolls back the transaction in progress. Does nothing if there is none: statements have committed already."""
        self._check_open()
        if self.in_transaction:
            self.execute("ROLLBACK")

    def interrupt(self) -> None:
        """Cancels the statement that runs on this connection. Any thread can call it.

        The thread that waits for the statement gets an OperationalError with SQLSTATE 57014.
        """
        self._native.interrupt()

    def close(self) -> None:
        """Closes the connection and cancels a statement that another thread runs on it. Closing it again does nothing.

        Results that are being read stay readable.
        """
        self._native.close()

    @property
    def closed(self) -> bool:
        """Whether the connection is closed."""
        return self._native.closed

    def _check_open(self) -> None:
        if self.closed:
            raise _taut.InterfaceError("the connection is closed; connect again")

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<taut.Connection, {'closed' if self.closed else 'open'}>"


def _bytes_of(name: str, size: int | str | None) -> int | None:
    """Parses a number of bytes, or a size such as ``'512MiB'``, into bytes."""
    if size is None:
        return None
    match = re.fullmatch(r"\s*(\d+)\s*([A-Za-z]*)\s*", str(size))
    if not match or match[2].upper() not in _SIZES:
        raise ValueError(f"{name}={size!r}; write a number of bytes or a size such as '512MiB'")
    return int(match[1]) * _SIZES[match[2].upper()]
