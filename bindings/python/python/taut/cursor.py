"""Cursors and types of DB-API 2.0 (PEP 249)."""

from __future__ import annotations

import datetime
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from taut import _taut
from taut.result import ROWS_MAX, Result

if TYPE_CHECKING:
    import pyarrow

    from taut.connection import Connection

Date, Time, Timestamp, Binary = datetime.date, datetime.time, datetime.datetime, bytes


def DateFromTicks(ticks: float) -> datetime.date:
    """Converts seconds since 1970 to a local date."""
    return datetime.date.fromtimestamp(ticks)


def TimeFromTicks(ticks: float) -> datetime.time:
    """Converts seconds since 1970 to a local time of day."""
    return datetime.time(*time.localtime(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> datetime.datetime:
    """Converts seconds since 1970 to a local timestamp."""
    return datetime.datetime.fromtimestamp(ticks)


class TypeCode:
    """A type object of PEP 249: compares equal to the names of some SQL types."""

    def __init__(self, *names: str) -> None:
        self._names = frozenset(names)

    def __eq__(self, other: object) -> bool:
        return other is self or (isinstance(other, str) and other.split("(")[0] in self._names)

    def __hash__(self) -> int:
        return hash(self._names)


STRING = TypeCode("varchar")
BINARY = TypeCode("bytea")
NUMBER = TypeCode("boolean", "smallint", "integer", "bigint", "real", "double", "decimal")
DATETIME = TypeCode("date", "time", "timestamp", "timestamptz", "interval")
ROWID = TypeCode()

#: Matches `INSERT INTO t (a, b) VALUES (?, ?)`. The group is the text before the row. `executemany` repeats the row.
_INSERT_ROW = re.compile(
    r"(\s*insert\s+into\s+[^();'\-/]+?(?:\([^()]*\)\s*)?values\s*)\(\s*\?(?:\s*,\s*\?)*\s*\)\s*;?\s*", re.IGNORECASE
)
#: Maximum values in one statement of `executemany`.
_VALUES_MAX = 20_000

_NoneType = type(None)
_Parameters = Sequence[Any] | Mapping[str, Any]


class Cursor:
    """A cursor of PEP 249: runs statements on its connection and reads their rows."""

    def __init__(self, connection: Connection) -> None:
        #: The connection that the cursor belongs to.
        self.connection = connection
        #: Default number of rows of `fetchmany`.
        self.arraysize = 1
        self._result: Result | None = None
        self._row_count = -1
        self._is_closed = False

    @property
    def description(self) -> list[tuple[Any, ...]] | None:
        """Name, SQL type, four times ``None``, and nullability of each column. ``None`` if there are no columns."""
        columns = self._result._native.columns if self._result is not None else []
        return [(name, kind, None, None, None, None, nullable) for name, kind, nullable in columns] or None

    @property
    def rowcount(self) -> int:
        """Number of rows that the last statement wrote. -1 if it does not write rows."""
        return self._row_count

    def execute(self, operation: str, parameters: _Parameters | None = None) -> Cursor:
        """Runs one or more statements, the last one with the parameters, like `Connection.sql`."""
        caller = sys._getframe(1)
        self._run(operation, parameters, caller.f_locals, caller.f_globals)
        return self

    def executemany(self, operation: str, seq_of_parameters: Iterable[_Parameters]) -> Cursor:
        """Runs a statement for each row of parameters, all or none. Rows that the statement returns are discarded.

        The statements run in the transaction of the connection, or in a new one if there is none. After an error, the
        transaction of the connection can only be rolled back, as after an error of `execute`.
        ``INSERT ... VALUES (?, ...)`` inserts rows in batches.

        Raises ProgrammingError when the statement begins or ends a transaction.
        """
        self._check_open()
        caller = sys._getframe(1)
        rows = [row if isinstance(row, (Mapping, str, bytes)) else tuple(row) for row in seq_of_parameters]
        self._result, self._row_count = None, -1
        insert = _INSERT_ROW.fullmatch(operation)
        pairs: Iterable[tuple[str, _Parameters]] = ((operation, row) for row in rows)
        if insert and rows and not any(isinstance(row, (Mapping, str, bytes)) for row in rows):
            pairs = _inserts(insert[1], rows)
        written = self.connection._run_many(list(pairs), caller.f_locals, caller.f_globals)
        self._row_count = -1 if written is None else written
        return self

    def _run(self, operation: str, parameters: _Parameters | None, *variables: Mapping[str, Any]) -> None:
        self._check_open()
        self._result, self._row_count = None, -1
        self._result = self.connection._run(operation, parameters, *variables)
        self._row_count = -1 if self._result.row_count is None else self._result.row_count

    def fetchone(self) -> tuple[Any, ...] | None:
        """Reads the next row. Returns ``None`` after the last one."""
        return self._rows().fetchone()

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """Reads up to `size` more rows, by default `arraysize`."""
        return self._rows().fetchmany(self.arraysize if size is None else size)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Reads all remaining rows. Returns an empty list after the last one, as PEP 249 requires."""
        return self._rows().fetchmany(ROWS_MAX)

    def fetch_arrow_table(self) -> pyarrow.Table:
        """Returns all rows as a pyarrow table."""
        return self._rows().to_arrow()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self

    def __next__(self) -> tuple[Any, ...]:
        return next(self._rows())

    def setinputsizes(self, sizes: Any) -> None:
        """Does nothing, as PEP 249 allows."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Does nothing, as PEP 249 allows."""

    def close(self) -> None:
        """Closes the cursor and ends its statement. Closing it again does nothing."""
        if self._result is not None:
            self._result.close()
        self._result = None
        self._is_closed = True

    def _check_open(self) -> None:
        if self._is_closed:
            raise _taut.InterfaceError("the cursor is closed; take another one from the connection")
        self.connection._check_open()

    def _rows(self) -> Result:
        self._check_open()
        if self._result is None or self._result.tag is not None:
            raise _taut.ProgrammingError("the last statement gave no rows; execute a query first")
        return self._result

    def __enter__(self) -> Cursor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _inserts(head: str, rows: Sequence[_Parameters]) -> Iterator[tuple[str, list[Any]]]:
    """Yields INSERT statements with several rows each, and their values.

    In one statement, all values of a column have the same Python type. Otherwise the statement would convert them to
    one type.
    """
    width = len(rows[0])
    row_placeholders = f"({', '.join('?' * width)})"
    rows_max = max(1, _VALUES_MAX // max(1, width))
    values: list[Any] = []
    types: list[type] = [_NoneType] * width
    count = 0
    for index, row in enumerate(rows):
        if len(row) != width:
            raise _taut.ProgrammingError(f"row {index} has {len(row)} values, the first one has {width}")
        kinds: list[type] = [type(value) for value in row]
        if count == rows_max or any(old is not new and _NoneType not in (old, new) for old, new in zip(types, kinds)):
            yield head + ", ".join([row_placeholders] * count), values
            values, count, types = [], 0, kinds
        types = [new if old is _NoneType else old for old, new in zip(types, kinds)]
        values.extend(row)
        count += 1
    if count:
        yield head + ", ".join([row_placeholders] * count), values
