"""The SQLAlchemy dialect: ``create_engine("taut:////data/shop.taut")``, or ``"taut://"`` for a database in memory.

The options of a table's design are ``taut_layout``, ``taut_sort_by`` and so on. The query part of the URL has settings
of `taut.connect`: ``taut:///shop.taut?threads=2&memory=2GiB``, ``taut:///shop.taut?read_only=true``.
"""

from __future__ import annotations

import datetime
import threading
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from sqlalchemy import exc, pool, schema, types, util
from sqlalchemy.dialects.postgresql import INTERVAL
from sqlalchemy.dialects.postgresql.base import PGIdentifierPreparer
from sqlalchemy.engine.url import URL

import taut
from taut._taut import TABLE_OPTIONS
from taut.sqlalchemy.compilers import Compiler, DdlCompiler, TypeCompiler
from taut.sqlalchemy.reflection import SCHEMA, Reflection

#: Settings of `taut.connect` that are allowed in a URL.
_SETTINGS: dict[str, Callable[[str], Any]] = {"threads": int, "memory": str, "cache": str, "read_only": util.asbool}
_DEFAULT_LEVEL: Final = "REPEATABLE READ"
#: Isolation levels. With AUTOCOMMIT, each statement is a transaction of its own.
_LEVELS = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE", "AUTOCOMMIT")


class _Interval(INTERVAL):
    """Intervals of expressions, such as `func.now() - timedelta(days=1)`. Columns cannot have the type."""

    @classmethod
    def adapt_emulated_to_native(cls, interval: Any, **options: Any) -> _Interval:
        return cls()

    def literal_processor(self, dialect: Any) -> Callable[[datetime.timedelta], str]:
        return lambda value: (
            f"INTERVAL '{value.days} days {value.seconds} seconds {value.microseconds} microseconds'"
        )


class TautDialect(Reflection):
    """Dialect with the part of PostgreSQL's SQL that Taut supports: transactions, savepoints and constraints."""

    name = driver = "taut"
    default_paramstyle = "qmark"
    statement_compiler = Compiler
    ddl_compiler = DdlCompiler
    type_compiler_cls = TypeCompiler
    preparer = PGIdentifierPreparer
    colspecs = {types.Interval: _Interval}
    construct_arguments = [(schema.Table, {name: None for name in TABLE_OPTIONS})]

    default_schema_name = SCHEMA
    supports_statement_cache = True
    supports_native_boolean = True
    supports_native_decimal = True
    supports_native_uuid = False
    supports_multivalues_insert = True
    supports_sane_rowcount = True
    supports_sane_multi_rowcount = True
    supports_alter = True
    supports_comments = False
    supports_sequences = False
    supports_default_values = True
    insert_returning = update_returning = delete_returning = True
    insert_executemany_returning = use_insertmanyvalues = True
    update_returning_multifrom = delete_returning_multifrom = True
    # A statement that returns rows does not report their number before they are read.
    supports_sane_rowcount_returning = False
    postfetch_lastrowid = False
    # An attribute that the compilers read from a PostgreSQL dialect.
    _backslash_escapes = False

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._opening = threading.Lock()
        self._in_memory: taut.Connection | None = None
        #: Isolation levels of connections that do not use the default.
        self._levels: weakref.WeakKeyDictionary[taut.Connection, str] = weakref.WeakKeyDictionary()

    @classmethod
    def import_dbapi(cls) -> ModuleType:
        return taut

    @classmethod
    def get_pool_class(cls, url: URL) -> type[pool.Pool]:
        return pool.QueuePool

    def create_connect_args(self, url: URL) -> tuple[list[Any], dict[str, Any]]:
        unknown = sorted(set(url.query) - set(_SETTINGS))
        if unknown or url.host:
            problem = f"setting {unknown[0]!r}" if unknown else f"host {url.host!r}"
            allowed = ", ".join(_SETTINGS)
            raise exc.ArgumentError(f"{problem} in {url}; allowed are taut:///path and the settings {allowed}")
        return [url.database or ":memory:"], {name: _SETTINGS[name](str(value)) for name, value in url.query.items()}

    def connect(self, *arguments: Any, **settings: Any) -> taut.Connection:
        if arguments != (":memory:",):
            return taut.connect(*arguments, **settings)
        # All connections of an engine share one database.
        with self._opening:
            if self._in_memory is None:
                self._in_memory = taut.connect(**settings)
        return self._in_memory.duplicate()

    def initialize(self, connection: Any) -> None:
        """Sets the default isolation level. Runs no query: all databases have the same features."""
        # SQLAlchemy resets a connection to this level when the connection returns to the pool. The engine's level,
        # given to `create_engine`, takes precedence.
        self.default_isolation_level = self._on_connect_isolation_level or _DEFAULT_LEVEL

    def do_begin(self, dbapi_connection: Any) -> None:
        level = self.get_isolation_level(dbapi_connection)
        # A statement BEGIN may have begun a transaction already.
        if level != "AUTOCOMMIT" and not dbapi_connection.in_transaction:
            dbapi_connection.execute(f"BEGIN ISOLATION LEVEL {level}")

    def do_ping(self, dbapi_connection: Any) -> bool:
        return not dbapi_connection.closed

    def is_disconnect(self, e: Any, connection: Any, cursor: Any) -> bool:
        return isinstance(e, taut.InterfaceError) and "connection is closed" in str(e)

    def get_isolation_level_values(self, dbapi_conn: Any) -> list[str]:
        return list(_LEVELS)

    def set_isolation_level(self, dbapi_connection: Any, level: str) -> None:
        """Sets the isolation level of transactions that begin later."""
        self._levels[dbapi_connection] = level

    def get_isolation_level(self, dbapi_connection: Any) -> str:
        # The pool passes proxies of the connection.
        return self._levels.get(getattr(dbapi_connection, "dbapi_connection", dbapi_connection), _DEFAULT_LEVEL)

    def detect_autocommit_setting(self, dbapi_connection: Any) -> bool:
        return self.get_isolation_level(dbapi_connection) == "AUTOCOMMIT"

    def get_default_isolation_level(self, dbapi_conn: Any) -> str:
        return _DEFAULT_LEVEL
