"""The result of a statement."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from taut import _taut
from taut.frame import check_backend, pandas_of

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

#: Maximum rows that a result shows in a notebook or a terminal.
SHOWN_ROWS = 20
#: Number of rows that is greater than that of any result.
ROWS_MAX = (1 << 63) - 1


class Result:
    """The result of a statement: its rows, computed when they are read, or a command tag.

    The rows can be read once. `fetchone`, `fetchmany`, `fetchall` and iteration return tuples. `to_arrow`,
    `to_batches`, `to_pandas`, `to_polars` and ``__arrow_c_stream__`` read all rows as Arrow. Displaying a result
    consumes no rows.

    Methods that read rows raise InterfaceError if the statement returns no rows, and the errors of the statement.
    After an error, no more rows can be read. If all rows were read already, methods that read all rows, and loops,
    raise InterfaceError; `fetchone` returns ``None``, and `fetchmany` an empty list.
    """

    __slots__ = ("_is_at_end", "_native")

    def __init__(self, native: _taut.Result) -> None:
        self._native = native
        #: Whether a call has returned fewer rows than requested, because the rows have ended.
        self._is_at_end = False

    @property
    def columns(self) -> list[str]:
        """Names of the columns. Empty if the statement returns no rows."""
        return [name for name, _, _ in self._native.columns]

    @property
    def types(self) -> list[str]:
        """SQL types of the columns."""
        return [kind for _, kind, _ in self._native.columns]

    @property
    def tag(self) -> str | None:
        """Command tag, such as ``INSERT 3``. ``None`` if the statement returns rows."""
        return self._native.tag

    @property
    def row_count(self) -> int | None:
        """Number of rows written. ``None`` if the statement writes no rows."""
        return self._native.row_count

    @property
    def notices(self) -> list[str]:
        """Notices for the user."""
        return self._native.notices

    # Rows as tuples

    def fetchone(self) -> tuple[Any, ...] | None:
        """Reads the next row. Returns ``None`` after the last one."""
        rows = self._fetch(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]:
        """Reads up to `size` more rows. Returns an empty list after the last one.

        Raises ValueError when `size` is negative.
        """
        if size < 0:
            raise ValueError(f"size is {size}; it is the number of rows, 0 or more")
        return self._fetch(size)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Reads all remaining rows.

        Values are None, bool, int, float, decimal.Decimal, str, bytes, datetime.date, datetime.datetime (in UTC for
        timestamptz), datetime.time, datetime.timedelta (with months of 30 days), list and dict. Nanoseconds are
        truncated.

        Raises InterfaceError when all rows were read already.
        """
        self._check_not_read()
        return self._fetch(ROWS_MAX)

    def _fetch(self, size: int) -> list[tuple[Any, ...]]:
        rows = self._native.fetch(size)
        # A result without rows can be read again: it stays empty.
        if len(rows) < size and (rows or self._native.has_returned_rows):
            self._is_at_end = True
        return rows

    def _check_not_read(self) -> None:
        if self._is_at_end:
            raise _taut.InterfaceError(
                "all rows of this result were read already, and can be read once; run the statement again, or keep the "
                "list that fetchall() gives"
            )

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        self._check_not_read()
        return self

    def __next__(self) -> tuple[Any, ...]:
        row = self.fetchone()
        if row is None:
            raise StopIteration
        return row

    # Rows as Arrow

    def to_arrow(self, *, string_view: bool = False) -> pyarrow.Table:
        """Returns all rows as a pyarrow table.

        Text has the type ``string`` and bytes have ``binary``, which all functions of pyarrow support. With
        `string_view` they have Taut's own types ``string_view`` and ``binary_view``, without a copy. Other types are
        never copied.
        """
        import pyarrow

        return pyarrow.table(self._native.collect(string_view))

    def to_batches(self) -> pyarrow.RecordBatchReader:
        """Returns the rows as a pyarrow reader of record batches, which computes them when they are read.

        The types are those of `to_arrow`. An error while rows are read is an exception of pyarrow with the message of
        Taut.
        """
        import pyarrow

        return pyarrow.RecordBatchReader.from_stream(self._native.stream())

    def to_pandas(self, *, dtype_backend: str | None = None, **options: Any) -> pandas.DataFrame:
        """Returns all rows as a pandas DataFrame.

        The dtypes hold all values exactly: dtypes of NumPy, nullable ones such as ``Int64`` for integers and booleans
        with nulls, and ``decimal128(p, s)[pyarrow]`` for decimals.

        Parameters
        ----------
        dtype_backend: ``'numpy_nullable'`` for the nullable dtypes of pandas, ``'pyarrow'`` for the dtypes that hold
            Arrow values, as in ``pandas.read_sql``.
        options: options of ``pyarrow.Table.to_pandas``. ``types_mapper`` and ``integer_object_nulls`` replace the
            choice of dtypes above.

        Raises ValueError when `dtype_backend` has another value, or is combined with ``types_mapper`` or
        ``integer_object_nulls``.
        """
        if dtype_backend is not None:
            check_backend(dtype_backend, options)
        return pandas_of(self.to_arrow(), dtype_backend, options)

    def to_polars(self) -> polars.DataFrame:
        """Returns all rows as a Polars DataFrame.

        Raises NotSupportedError when a column is an interval, which Polars does not support.
        """
        import polars

        for name in self._native.interval_columns():
            raise _taut.NotSupportedError(
                f"column {name!r} is an interval, which Polars does not have; cast it to text, or use extract(epoch FROM ...)"
            )
        return polars.DataFrame(self._native.collect(True))

    def __arrow_c_schema__(self) -> object:
        """Returns the columns as an Arrow C schema."""
        return self._native.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Returns the rows as an Arrow C stream, which computes them when they are read."""
        return self._native.__arrow_c_stream__(requested_schema)

    def close(self) -> None:
        """Ends the statement if it still runs, and releases its memory.

        If another thread is fetching rows, this waits until that call has returned. `Connection.interrupt` is faster.
        """
        self._native.close()

    # Display

    def __repr__(self) -> str:
        if self.tag is not None:
            return f"<taut.Result: {self.tag}>"
        try:
            text, more = self._native.peek_text(SHOWN_ROWS)
        except Exception as error:
            return f"<taut.Result of columns {', '.join(self.columns)}: {error}>"
        return f"{text}\n(the first {SHOWN_ROWS} rows)" if more else text

    def _repr_html_(self) -> str:
        if self.tag is not None:
            return f"<pre>{html.escape(self.tag)}</pre>"
        try:
            rows, more = self._native.peek(SHOWN_ROWS)
        except Exception as error:
            return f"<pre>{html.escape(str(error))}</pre>"
        head = "".join(
            f"<th>{html.escape(name)}<br><small>{html.escape(kind)}</small></th>"
            for name, kind in zip(self.columns, self.types)
        )
        body = "".join(f"<tr>{''.join(_cell(value) for value in row)}</tr>" for row in rows)
        note = f"<small>the first {SHOWN_ROWS} rows</small>" if more else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"


def _cell(value: Any) -> str:
    return f"<td>{'<i>NULL</i>' if value is None else html.escape(str(value))}</td>"
