"""Conversion of Python objects to tables with the Arrow PyCapsule interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ALLOWED = (
    "allowed are DataFrames of pandas and of Polars, tables, batches and readers of pyarrow, relations of DuckDB, results "
    "of Taut, and whatever else offers __arrow_c_stream__"
)


def arrow_of(data: Any, what: str) -> Any:
    """Returns an object with the Arrow PyCapsule interface for the data. `what` names the data in the error message.

    Raises TypeError if the data is not a table.
    """
    converted = _arrow_or_none(data)
    if converted is None:
        raise TypeError(f"{what} is of type {type(data).__name__}, which is not a table; {_ALLOWED}")
    return converted


def without_nan_columns(data: Any) -> Any:
    """Replaces floating-point columns that have only nulls by columns of the type null, in a pyarrow table.

    pandas has NaN for missing values of any type. A column of the type null fits every column of a table.
    """
    import pyarrow

    for index, column in enumerate(data.columns):
        if pyarrow.types.is_floating(column.type) and column.null_count == len(column):
            data = data.set_column(index, data.field(index).name, pyarrow.nulls(len(column)))
    return data


class Variables:
    """Finds tables by the names of variables. Uses the first of the mappings that contains the name."""

    def __init__(self, *mappings: Mapping[str, Any]) -> None:
        self._mappings = mappings
        self._not_tables: list[str] = []

    def __call__(self, name: str) -> Any:
        """Returns the variable `name` as Arrow, or `None` if no variable of this name holds a table."""
        for mapping in self._mappings:
            # SQL converts unquoted names to lower case, so the variable may have capitals that `name` lacks.
            matches = [name] if name in mapping else [other for other in mapping if other.lower() == name]
            if len(matches) == 1:
                value = mapping[matches[0]]
                converted = _arrow_or_none(value)
                if converted is None:
                    self._not_tables.append(f"the variable {matches[0]} is of type {type(value).__name__}, no table")
                return converted
        return None

    def hint(self, message: str, tables: list[str]) -> str:
        """Returns a hint for an error about a table that was not found. `tables` are the names in the database."""
        if self._not_tables:
            return f"{'; '.join(self._not_tables)}; {_ALLOWED}"
        for table in tables:
            if table != table.lower() and f'"{table.lower()}"' in message:
                return f'The name of the table is "{table}". Names with capitals need double quotes in SQL.'
        return "A table is one of the database, a file in quotes, a registered name, or a variable that holds a DataFrame."


def _arrow_or_none(data: Any) -> Any:
    if isinstance(data, type):
        return None
    package, kind = type(data).__module__.partition(".")[0], type(data).__name__
    if package == "pandas":
        return _of_pandas(data) if kind == "DataFrame" else None
    if package == "polars" and kind in ("DataFrame", "LazyFrame"):
        return _of_polars(data.collect() if kind == "LazyFrame" else data)
    # A single column is not a table.
    if package in ("polars", "pyarrow") and not hasattr(data, "schema"):
        return None
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return data
    # pyarrow datasets and scanners, and relations of older DuckDB versions.
    for method in ("to_table", "to_arrow_table"):
        if package in ("pyarrow", "duckdb", "_duckdb") and hasattr(data, method):
            return getattr(data, method)()
    return None


def _of_pandas(frame: Any) -> Any:
    """Returns the columns without the index. By default, pandas also exports an index other than a RangeIndex."""
    try:
        import pyarrow
    except ImportError:
        return frame.reset_index(drop=True)
    return pyarrow.Table.from_pandas(frame, preserve_index=False)


def _of_polars(frame: Any) -> Any:
    """Returns the frame in a form that other Arrow libraries read correctly."""
    kinds = {name: str(kind) for name, kind in frame.schema.items()}
    for name, kind in kinds.items():
        if "Object" in kind:
            raise TypeError(f"column {name!r} of the frame holds Python objects, which Arrow has no form for; cast it")
    # Polars exports null columns with a buffer that the Arrow format does not allow for them.
    return frame.to_arrow() if any("Null" in kind for kind in kinds.values()) else frame
