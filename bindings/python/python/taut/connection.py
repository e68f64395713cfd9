"""Connections: where statements run."""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from taut import _taut
from taut.backup import Backup, backup_of
from taut.cursor import Cursor
from taut.data import Variables, arrow_of
from taut.inspection import Inspection
from taut.progress import reporter
from taut.result import Result
from taut.table import Table, options_of

_SIZES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}

#: The SQLSTATE of a table that does not exist.
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
    """Opens the database in a directory, or creates it there; ``:memory:`` is a new one that lives as long as it is used.

    Connections of one process to one path share the database. One process at a time can have it open for writing; others
    can read it meanwhile, with `read_only`.

    Parameters
    ----------
    path: the directory, or ``:memory:``.
    threads: how many a query uses; by default all processors.
    memory: what queries may take before they spill to disk, in bytes or as a text such as ``'2GiB'``; by default half of
        the machine's.
    cache: what is kept of the files, in bytes or as a text; by default a quarter of `memory`, or else of
        the machine's, at most 1 GiB.
    create: whether a database that does not exist is created; with `read_only` it never is.
    read_only: whether it is only read, also while another process writes it, or on a file system that cannot be written. It
        is shown as it was when it was opened or last refreshed: see `Connection.refresh`. Read-only connections of one
        process share what they show; connecting again refreshes it for all of them.
    progress: whether long statements draw a bar; by default in a terminal and in a notebook.

    Raises
    ------
    OperationalError: the database is open for writing in another process, or here with other settings; does not exist and
        `create` is false, or `read_only` true; or the directory holds something else.
    ProgrammingError: `read_only` is given for ``:memory:``.
    InternalError: it is damaged.
    ValueError: a setting makes no sense.
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
    """A session on a database, as `connect` gives it.

    Any thread can use it, one statement at a time; a thread that is to run statements beside others takes a connection of
    its own, from `connect` or `duplicate`.
    """

    def __init__(self, native: _taut.Connection, *, progress: bool | None = None) -> None:
        self._native = native
        self._progress = progress

    # Statements

    def sql(self, query: str, params: Sequence[Any] | Mapping[str, Any] | None = None) -> Result:
        """Runs the statements of a text and gives the result of the last.

        Parameters are a sequence for ``?`` or ``$1``, or a mapping for ``$name``; they belong to the last statement.
        Values are None, bool, int, float, decimal.Decimal, str, bytes, datetime.date, datetime.datetime, and scalars of
        numpy and pandas.

        The name of a table that is not in the database may be that of a variable where this is called, local ones first:
        a DataFrame of pandas or Polars, a table of pyarrow, a relation of DuckDB, a result of Taut, or whatever else
        offers ``__arrow_c_stream__``. It is read without copying where its memory is Arrow.

        Raises ProgrammingError when a statement is wrong, NotSupportedError when it is beyond Taut, DataError when a value
        is not as it should be, and other subclasses of `Error`; each tells `sqlstate` and, where known, `position`, a line
        and a column. Rows are computed as they are read: reading them can raise too.
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
        resolve = Variables(*variables)
        try:
            return Result(self._native.execute(query, params, resolve))
        except _taut.ProgrammingError as error:
            if error.sqlstate == _NO_SUCH_TABLE:
                try:
                    tables = self.tables()
                except _taut.Error:
                    # In a transaction that has failed nothing can be asked any more.
                    tables = []
                error.args = (f"{error}; {resolve.hint(str(error), tables)}",)
            raise

    def explain(
        self, query: str, params: Sequence[Any] | Mapping[str, Any] | None = None, *, analyze: bool = False
    ) -> str:
        """The plan of a query, or of an UPDATE, DELETE, MERGE or upsert, as text.

        With `analyze` it is run, and the plan shows what each part did and how long: rows are changed then.
        """
        if (count := self._native.count_statements(query)) != 1:
            raise _taut.ProgrammingError(f"one statement can be explained, here are {count}")
        words = "EXPLAIN ANALYZE" if analyze else "EXPLAIN"
        caller = sys._getframe(1)
        rows = self._run(f"{words} {query}", params, caller.f_locals, caller.f_globals).fetchall()
        return "\n\n".join(f"{kind}:\n{plan}" for kind, plan in rows)

    # Data

    def register(self, name: str, data: Any) -> None:
        """Gives a DataFrame or other Arrow data a name that statements of this connection can use as a table.

        The name is taken as it is: SQL wants one with capitals in double quotes. Memory may be shared with the data: what
        changes the data in place changes the table.

        Raises TypeError when `data` is no table, ProgrammingError when a table of the database has the name.
        """
        self._native.register(name, arrow_of(data, "data"))

    def unregister(self, name: str) -> None:
        """Takes back a name that `register` gave.

        Raises ProgrammingError when it was not given.
        """
        if not self._native.unregister(name):
            raise _taut.ProgrammingError(f"{name!r} is not registered; register(name, data) gives a name")

    def insert(self, table: str, data: Any, **design: Any) -> int:
        """Inserts the rows of a DataFrame or other Arrow data, all or none, and gives their number.

        A table that does not exist is created with the columns of the data; `design` are its options, such as
        ``layout="packed_row"`` and ``sort_by="a, b desc"``. Columns of an existing table are found by name; those that the
        data does not have become null. A reader of batches in Python is read by another thread, and cannot use this
        connection, but a duplicate.

        Raises TypeError when `data` is no table, NotSupportedError when it has a column that the table does not have,
        DataError or IntegrityError when a value does not fit.
        """
        return self._native.insert(table, arrow_of(data, "data"), options_of(design))

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
        """Loads Parquet, CSV or JSON-lines files, all or none, and gives the number of rows.

        `files` is a path, a pattern such as ``"sales-*.parquet"``, or several. A table that does not exist is created
        with the columns of the first file; `design` are its options, as for `insert`. `format` is ``parquet``, ``csv`` or
        ``json``, by default that of the name; `header`, `delimiter` and `null` say how CSV is written.

        Raises FileNotFoundError when a pattern matches nothing, ValueError when `files` is empty, and what `sql` raises.
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
        """Backs up the database to a directory, while all connections go on.

        The backup holds all commits so far. What an earlier backup in the directory has is not copied again. Files that
        queries read directly and data that was registered are not part of it. `taut.restore` makes a database of it.

        Parameters
        ----------
        directory: where the backups are; it is created if there is nothing.
        log: whether every commit since the last backup is archived too, so that any point in time between can be restored.
            The database then keeps its log and the blocks that were replaced until the next backup; ``BACKUP DATABASE STOP
            LOG`` ends that.
        keep: how many of the newest backups stay, this one included; by default all.

        Raises OperationalError when another process uses the directory or it cannot be written, ProgrammingError when it
        lies in the database or holds something else, InternalError when the database is damaged.
        """
        if keep is not None and keep < 1:
            raise ValueError(f"keep={keep}; at least one backup must be kept")
        return backup_of(self._native.backup(os.path.expanduser(directory), log, keep))

    def table(self, name: str) -> Table:
        """A table of the database.

        Raises ProgrammingError when there is none of that name.
        """
        return Table(self, name)

    def tables(self) -> list[str]:
        """The names of all tables, in order."""
        return [name for (name,) in self._run("SELECT table_name FROM taut.tables ORDER BY 1").fetchall()]

    def inspect(self, table: str) -> Inspection:
        """How a table is stored: its blocks, as a picture in a notebook and as text elsewhere.

        Raises ProgrammingError when there is none of that name.
        """
        return self.table(table).inspect()

    # Connections and DB-API

    def refresh(self) -> bool:
        """Shows the last commit in a database that is open read-only; returns whether there is a newer one than before.

        Statements that begin afterwards see it, on all read-only connections of this process to the path. A transaction that
        has run a statement sees what it saw before, until it ends. A database that is open for writing always shows the last
        commit, and this returns False.

        Raises OperationalError when the database cannot be read any more; it is shown as before then.
        """
        return self._native.refresh()

    @property
    def read_only(self) -> bool:
        """Whether the database is open read-only: statements that write raise OperationalError with SQLSTATE 25006."""
        return self._native.read_only

    def duplicate(self) -> Connection:
        """Another connection to the same database, for another thread. What was registered here is not known there."""
        return Connection(self._native.duplicate(reporter(self._progress)), progress=self._progress)

    def cursor(self) -> Cursor:
        """A cursor of DB-API 2.0."""
        self._check_open()
        return Cursor(self)

    @property
    def autocommit(self) -> bool:
        """True: a statement commits by itself, unless begin() or BEGIN came before it."""
        return True

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is in progress, from begin() to commit() or rollback()."""
        return self._native.in_transaction

    def begin(self) -> None:
        """Begins a transaction, as the statement BEGIN does."""
        self.execute("BEGIN")

    def commit(self) -> None:
        """Commits the transaction in progress; does nothing where there is none.

        Raises OperationalError with SQLSTATE 40001 when another transaction was faster; it has ended then, and can be run
        again.
        """
        self._check_open()
        if self.in_transaction:
            self.execute("COMMIT")

    def rollback(self) -> None:
        """Undoes the transaction in progress; does nothing where there is none, for a statement has committed by itself."""
        self._check_open()
        if self.in_transaction:
            self.execute("ROLLBACK")

    def interrupt(self) -> None:
        """Ends what runs on this connection, from any thread. There it raises OperationalError with SQLSTATE 57014."""
        self._native.interrupt()

    def close(self) -> None:
        """Closes the connection, and cancels a statement that another thread runs on it; closing it again does nothing.

        Results that are still being read can be read on."""
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
    """A number of bytes, or a size such as ``'512MiB'``."""
    if size is None:
        return None
    match = re.fullmatch(r"\s*(\d+)\s*([A-Za-z]*)\s*", str(size))
    if not match or match[2].upper() not in _SIZES:
        raise ValueError(f"{name}={size!r}; write a number of bytes or a size such as '512MiB'")
    return int(match[1]) * _SIZES[match[2].upper()]
