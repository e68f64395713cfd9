"""The result of a statement."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from taut import _taut

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

#: Rows that a result shows in a notebook or a terminal.
SHOWN_ROWS = 20


class Result:
    """What a statement gave: rows, computed as they are read, or that it is done.

    The rows can be read once. `fetchone`, `fetchmany`, `fetchall` and iteration give tuples; `to_arrow`, `to_batches`,
    `to_pandas`, `to_polars` and ``__arrow_c_stream__`` take all of them as Arrow. Showing a result reads nothing: its
    first rows are still there after it.

    What reads rows raises InterfaceError where there are none to read, and what the rest of the statement raises; after
    that, nothing can be read any more.
    """

    __slots__ = ("_native",)

    def __init__(self, native: _taut.Result) -> None:
        self._native = native

    @property
    def columns(self) -> list[str]:
        """Names of the columns; empty where the statement gives no rows."""
        return [name for name, _, _ in self._native.columns]

    @property
    def types(self) -> list[str]:
        """SQL types of the columns."""
        return [kind for _, kind, _ in self._native.columns]

    @property
    def tag(self) -> str | None:
        """What was done, such as ``INSERT 3``; ``None`` where the statement gives rows."""
        return self._native.tag

    @property
    def row_count(self) -> int | None:
        """Rows written, where the statement writes some."""
        return self._native.row_count

    @property
    def notices(self) -> list[str]:
        """What the user should know."""
        return self._native.notices

    # Rows as tuples

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row, or ``None`` behind the last."""
        rows = self._native.fetch(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]:
        """Up to `size` rows more.

        Raises ValueError when `size` is negative.
        """
        if size < 0:
            raise ValueError(f"size is {size}; it is the number of rows, 0 or more")
        return self._native.fetch(size)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows that are left.

        Values are None, bool, int, float, decimal.Decimal, str, bytes, datetime.date, datetime.datetime (in UTC for
        timestamptz), datetime.time, datetime.timedelta (with months of 30 days), list and dict. Nanoseconds are cut.
        """
        return self._native.fetch((1 << 63) - 1)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self

    def __next__(self) -> tuple[Any, ...]:
        row = self.fetchone()
        if row is None:
            raise StopIteration
        return row

    # Rows as Arrow

    def to_arrow(self, *, string_view: bool = False) -> pyarrow.Table:
        """The rows as a table of pyarrow.

        Text is of type ``string`` and bytes of ``binary``, which all of pyarrow can compute on; with `string_view` they
        are ``string_view`` and ``binary_view``, as Taut has them, and not copied. All else is not copied either.
        """
        import pyarrow

        return pyarrow.table(self._native.collect(string_view))

    def to_batches(self) -> pyarrow.RecordBatchReader:
        """The rows as a stream of record batches of pyarrow, computed as they are read, with types as `to_arrow`.

        Errors in the middle of the rows are those of pyarrow, with the message of Taut.
        """
        import pyarrow

        return pyarrow.RecordBatchReader.from_stream(self._native.stream())

    def to_pandas(self, **options: Any) -> pandas.DataFrame:
        """The rows as a DataFrame of pandas; options are those of ``pyarrow.Table.to_pandas``."""
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> polars.DataFrame:
        """The rows as a DataFrame of Polars.

        Raises NotSupportedError when a column is an interval, which Polars does not have.
        """
        import polars

        for name in self._native.interval_columns():
            raise _taut.NotSupportedError(
                f"column {name!r} is an interval, which Polars does not have; cast it to text, or use extract(epoch FROM ...)"
            )
        return polars.DataFrame(self._native.collect(True))

    def __arrow_c_schema__(self) -> object:
        """The columns as an Arrow C schema."""
        return self._native.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows as an Arrow C stream, computed as they are read. It takes them."""
        return self._native.__arrow_c_stream__(requested_schema)

    def close(self) -> None:
        """Ends the statement, if it still runs, and gives its memory back.

        Where another thread reads the rows, it ends after the batch that is computed; `Connection.interrupt` is sooner.
        """
        self._native.close()

    # For the eye

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
