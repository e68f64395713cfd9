"""What of Python is a table: whatever offers the Arrow PyCapsule interface, and a few that can be made to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ALLOWED = (
    "allowed are DataFrames of pandas and of Polars, tables, batches and readers of pyarrow, relations of DuckDB, results "
    "of Taut, and whatever else offers __arrow_c_stream__"
)


def arrow_of(data: Any, what: str) -> Any:
    """What offers the same data as Arrow. `what` names the data in a message.

    Raises TypeError when it is no table.
    """
    found = _arrow_or_none(data)
    if found is None:
        raise TypeError(f"{what} is of type {type(data).__name__}, which is no table; {_ALLOWED}")
    return found


class Variables:
    """Finds tables by the names of variables, in the first mapping that has one."""

    def __init__(self, *mappings: Mapping[str, Any]) -> None:
        self._mappings = mappings
        self._no_tables: list[str] = []

    def __call__(self, name: str) -> Any:
        """The table of a name as Arrow; `None` where there is none."""
        for mapping in self._mappings:
            # SQL does not tell capitals in a name without quotes.
            alike = [name] if name in mapping else [other for other in mapping if other.lower() == name]
            if len(alike) == 1:
                value = mapping[alike[0]]
                found = _arrow_or_none(value)
                if found is None:
                    self._no_tables.append(f"the variable {alike[0]} is of type {type(value).__name__}, no table")
                return found
        return None

    def hint(self, message: str, tables: list[str]) -> str:
        """What to do where a table was not found, as a message says."""
        if self._no_tables:
            return f"{'; '.join(self._no_tables)}; {_ALLOWED}"
        for table in tables:
            if table != table.lower() and f".{table.lower()}'" in message:
                return f'the table is named "{table}", which SQL wants in double quotes, for it has capitals'
        return "a table is one of the database, a file in quotes, a registered name, or a variable that holds a DataFrame"


def _arrow_or_none(data: Any) -> Any:
    if isinstance(data, type):
        return None
    package, kind = type(data).__module__.partition(".")[0], type(data).__name__
    if package == "pandas":
        return _of_pandas(data) if kind == "DataFrame" else None
    if package == "polars" and kind in ("DataFrame", "LazyFrame"):
        return _of_polars(data.collect() if kind == "LazyFrame" else data)
    # Columns by themselves are no tables.
    if package in ("polars", "pyarrow") and not hasattr(data, "schema"):
        return None
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return data
    # Datasets and scanners of pyarrow, relations of older versions of DuckDB.
    for method in ("to_table", "to_arrow_table"):
        if package in ("pyarrow", "duckdb", "_duckdb") and hasattr(data, method):
            return getattr(data, method)()
    return None


def _of_pandas(frame: Any) -> Any:
    """The columns without the index, which pandas would add where it is not that of a fresh frame."""
    try:
        import pyarrow
    except ImportError:
        return frame.reset_index(drop=True)
    return pyarrow.Table.from_pandas(frame, preserve_index=False)


def _of_polars(frame: Any) -> Any:
    """The frame, in a form that means the same to others."""
    kinds = {name: str(kind) for name, kind in frame.schema.items()}
    for name, kind in kinds.items():
        if "Object" in kind:
            raise TypeError(f"column {name!r} of the frame holds Python objects, which Arrow has no form for; cast it")
    # Polars hands over columns of no type with a buffer that such columns do not have.
    return frame.to_arrow() if any("Null" in kind for kind in kinds.values()) else frame
