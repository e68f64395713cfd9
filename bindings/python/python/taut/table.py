"""Tables of a database, and how they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from typing import TYPE_CHECKING, Any

from taut import _taut
from taut.inspection import Inspection
from taut.names import sql_name

if TYPE_CHECKING:
    from taut.connection import Connection


class Table:
    """A table of a database, and how it is stored. Each property queries the database when it is read."""

    def __init__(self, connection: Connection, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"the name of a table is a str, not {type(name).__name__}")
        self._connection = connection
        self.name = name
        self._property_value("layout")

    def _property_value(self, column: str) -> Any:
        row = self._connection._run(f"SELECT {column} FROM taut.tables WHERE table_name = $1", [self.name]).fetchone()
        if row is None:
            names = ", ".join(self._connection.tables()) or "none yet"
            raise _taut.ProgrammingError(f"there is no table {self.name!r}; tables are: {names}")
        return row[0]

    @property
    def layout(self) -> str:
        """Layout of the table: row, packed_row, column or groups."""
        return str(self._property_value("layout"))

    @property
    def groups(self) -> str | None:
        """Column groups of the table, or None if its layout has none."""
        groups: str | None = self._property_value("groups")
        return groups

    @property
    def sort_by(self) -> str | None:
        """Sort order of the table, or None if it is not sorted."""
        order: str | None = self._property_value("sort_by")
        return order

    @property
    def partition_by(self) -> str | None:
        """Partitioning of the table, or None if it has no partitions."""
        partitions: str | None = self._property_value("partition_by")
        return partitions

    @property
    def options(self) -> str:
        """All options of the table's design, in SQL syntax."""
        return str(self._property_value("options"))

    @property
    def columns(self) -> dict[str, str]:
        """Columns of the table in order, with their SQL types."""
        empty = self._connection._run(f"SELECT * FROM {sql_name(self.name)} LIMIT 0")
        return dict(zip(empty.columns, empty.types))

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self._property_value("rows"))

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return int(self._property_value("blocks"))

    @property
    def bytes(self) -> int:
        """Bytes of the table's files."""
        return int(self._property_value("bytes"))

    @property
    def plain_bytes(self) -> int:
        """Bytes of the table's values before encoding."""
        return int(self._property_value("plain_bytes"))

    def set(self, **design: Any) -> None:
        """Changes options of the table's design and rewrites the table block by block. Queries can read it meanwhile.

        Raises ProgrammingError when an option or a value is not known.
        """
        options = ", ".join(f"{name} = {_literal(value)}" for name, value in options_of(design))
        if not options:
            raise TypeError("no option to change; write one such as layout='column'")
        self._connection._run(f"ALTER TABLE {sql_name(self.name)} SET ({options})")

    def inspect(self) -> Inspection:
        """Shows how the table is stored: its blocks, as a picture in a notebook and as text elsewhere."""
        return Inspection(self)

    def __datafusion_table_provider__(self, session: Any = None) -> Any:
        """Exports the table to the package `datafusion`: ``SessionContext().register_table("t", con.table("t"))``.

        Queries of that package read the newest rows. Taut's scan evaluates projections, limits, and predicates that
        call no functions.

        Raises NotSupportedError when the installed version of `datafusion` does not fit this package.
        """
        found = metadata.version("datafusion")
        if int(found.partition(".")[0]) != _taut.DATAFUSION_VERSION:
            raise _taut.NotSupportedError(
                f"the package datafusion {found}; allowed is {_taut.DATAFUSION_VERSION}: pip install "
                f"'datafusion=={_taut.DATAFUSION_VERSION}.*'"
            )
        return self._connection._native.datafusion_table_provider(self.name)

    def __repr__(self) -> str:
        try:
            return f"<taut.Table {self.name}: {self.rows:,} rows, {self.options}>"
        except _taut.Error as error:
            return f"<taut.Table {self.name}: {error}>"


def options_of(design: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns the options that are not None, with their values as text."""

    def text(value: Any) -> str:
        return str(value).lower() if isinstance(value, bool) else str(value)

    return [(name, text(value)) for name, value in design.items() if value is not None]


def _literal(text: str) -> str:
    """Quotes a string as an SQL string literal."""
    return "'" + text.replace("'", "''") + "'"
