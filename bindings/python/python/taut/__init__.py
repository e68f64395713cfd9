"""Taut: an embedded analytical database whose physical table design is declared, visible and changeable.

>>> import taut
>>> con = taut.connect()
>>> con.sql("CREATE TABLE point (x int, y int) WITH (layout = 'packed_row', sort_by = 'x')").tag
'CREATE TABLE'
>>> con.sql("INSERT INTO point VALUES (?, ?), (1, 10)", params=[2, 20]).row_count
2
>>> con.sql("SELECT x, y FROM point WHERE x = $1", params=[1]).fetchall()
[(1, 10)]

The module is also a DB-API 2.0 driver: `connect`, `Connection.cursor`, the exceptions, `apilevel` and so on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from taut._taut import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Warning,
    __version__,
)
from taut.backup import Backup, Restored, backups, restore
from taut.connection import Connection, connect
from taut.cursor import (
    BINARY,
    DATETIME,
    NUMBER,
    ROWID,
    STRING,
    Binary,
    Cursor,
    Date,
    DateFromTicks,
    Time,
    TimeFromTicks,
    Timestamp,
    TimestampFromTicks,
)
from taut.inspection import Inspection
from taut.result import Result
from taut.table import Table

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

#: The version of DB-API.
apilevel = "2.0"
#: Threads may share the module and connections.
threadsafety = 2
#: Parameters are written ``?``. ``$1`` and ``$name`` are allowed too.
paramstyle = "qmark"

__all__ = [
    "BINARY", "Backup", "Binary", "Connection", "Cursor", "DATETIME", "DataError", "DatabaseError", "Date", "DateFromTicks",
    "Error", "Inspection", "IntegrityError", "InterfaceError", "InternalError", "NUMBER", "NotSupportedError",
    "OperationalError", "ProgrammingError", "ROWID", "Restored", "Result", "STRING", "Table", "Time", "TimeFromTicks", "Timestamp",
    "TimestampFromTicks", "Warning", "__version__", "apilevel", "backups", "connect", "paramstyle", "restore",
    "threadsafety",
]  # fmt: skip


def load_ipython_extension(ipython: InteractiveShell) -> None:
    """Adds the magic `%%taut` to a notebook: `%load_ext taut`."""
    from taut import magic

    magic.register(ipython)
