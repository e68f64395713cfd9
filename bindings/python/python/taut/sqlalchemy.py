"""The dialect of SQLAlchemy: ``create_engine("taut:////data/shop.taut")``, or ``"taut://"`` for a database in memory.

A table takes the options of its design as ``taut_layout``, ``taut_sort_by`` and so on. Settings of `taut.connect` are given
in the query of the URL: ``taut:///shop.taut?threads=2&memory=2GiB``.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from sqlalchemy import exc, pool, schema, types, util
from sqlalchemy.dialects.postgresql.base import PGCompiler, PGDDLCompiler, PGIdentifierPreparer, PGTypeCompiler
from sqlalchemy.engine import default, reflection
from sqlalchemy.engine.url import URL

import taut

#: Options of a table's design.
_INDEX_COLUMNS_MAX = 2
_OPTIONS = ("layout", "groups", "sort_by", "encoding", "compression", "block_size", "abstraction", "partition_by")
#: Settings of `taut.connect` that a URL can have.
_SETTINGS = {"threads": int, "memory": str, "cache": str}
_SCHEMA = "public"

_TYPES: dict[str, type[types.TypeEngine[Any]]] = {
    "boolean": types.Boolean, "smallint": types.SmallInteger, "integer": types.Integer, "bigint": types.BigInteger,
    "real": types.REAL, "double": types.Double, "date": types.Date, "timestamp": types.DateTime,
    "varchar": types.String, "bytea": types.LargeBinary,
}  # fmt: skip


class _TypeCompiler(PGTypeCompiler):
    """Names of types. Text has no length, for Taut would not enforce it."""

    def visit_TEXT(self, type_: Any, **options: Any) -> str:
        return "varchar"

    visit_VARCHAR = visit_CHAR = visit_NVARCHAR = visit_NCHAR = visit_CLOB = visit_TEXT

    visit_uuid = visit_UUID = visit_JSON = visit_TEXT

    def visit_large_binary(self, type_: Any, **options: Any) -> str:
        return "bytea"

    visit_BLOB = visit_BINARY = visit_VARBINARY = visit_large_binary

    def visit_FLOAT(self, type_: Any, **options: Any) -> str:
        return "double precision" if type_.precision is None or type_.precision > 24 else "real"

    def visit_DOUBLE(self, type_: Any, **options: Any) -> str:
        return "double precision"

    def visit_NUMERIC(self, type_: Any, **options: Any) -> str:
        if type_.precision is None:
            return "decimal(38, 10)"
        return f"decimal({type_.precision}, {type_.scale or 0})"

    visit_DECIMAL = visit_NUMERIC

    def visit_DATETIME(self, type_: Any, **options: Any) -> str:
        return "timestamptz" if type_.timezone else "timestamp"

    visit_TIMESTAMP = visit_DATETIME


class _DdlCompiler(PGDDLCompiler):
    def get_column_specification(self, column: Any, **options: Any) -> str:
        if column.server_default is not None or column.computed is not None or column.identity is not None:
            raise exc.CompileError(
                f"column {column.name}: Taut has no defaults, identities or computed columns yet; use default= of SQLAlchemy"
            )
        kind = self.dialect.type_compiler_instance.process(column.type, type_expression=column)
        return f"{self.preparer.format_column(column)} {kind}{'' if column.nullable else ' NOT NULL'}"

    def create_table_constraints(self, table: Any, **options: Any) -> str:
        """Constraints are known to SQLAlchemy alone, which says so."""
        kinds = sorted({type(constraint).__name__ for constraint in table.constraints if _has_columns(constraint)})
        if kinds:
            util.warn(f"table {table.name}: {', '.join(kinds)} is not enforced: Taut has no constraints but NOT NULL yet")
        return ""

    def visit_create_index(self, create: Any, **options: Any) -> str:
        """Tools make indexes unasked: what Taut cannot have is left out with a warning."""
        index = create.element
        columns = [column for column in index.expressions if isinstance(column, schema.Column)]
        if index.unique or len(columns) != len(index.expressions) or len(columns) > _INDEX_COLUMNS_MAX:
            util.warn(
                f"index {index.name} is not made: Taut has indexes that are not unique, of 1 to {_INDEX_COLUMNS_MAX} columns"
            )
            return "SELECT 1"
        name = self._prepared_index_name(index)
        names = ", ".join(self.preparer.quote(column.name) for column in columns)
        exists = "IF NOT EXISTS " if create.if_not_exists else ""
        return f"CREATE INDEX {exists}{name} ON {self.preparer.format_table(index.table)} ({names})"

    def visit_drop_index(self, drop: Any, **options: Any) -> str:
        """One that was not made is not missed."""
        return f"DROP INDEX IF EXISTS {self._prepared_index_name(drop.element)}"

    def post_create_table(self, table: Any) -> str:
        given = table.dialect_options["taut"]
        options = [(name, str(given[name]).replace("'", "''")) for name in _OPTIONS if given[name] is not None]
        return f" WITH ({', '.join(f'{name} = {chr(39)}{value}{chr(39)}' for name, value in options)})" if options else ""


class _Compiler(PGCompiler):
    def render_bind_cast(self, type_: Any, dbapi_type: Any, sqltext: str) -> str:
        return sqltext


class TautDialect(default.DefaultDialect):
    """SQL is that of PostgreSQL, as far as Taut has it; every statement commits by itself."""

    name = driver = "taut"
    default_paramstyle = "qmark"
    statement_compiler = _Compiler
    ddl_compiler = _DdlCompiler
    type_compiler_cls = _TypeCompiler
    preparer = PGIdentifierPreparer
    construct_arguments = [(schema.Table, {name: None for name in _OPTIONS})]

    default_schema_name = _SCHEMA
    supports_statement_cache = True
    supports_native_boolean = True
    supports_native_decimal = True
    supports_native_uuid = False
    supports_multivalues_insert = True
    supports_sane_rowcount = True
    supports_sane_multi_rowcount = False
    supports_alter = False
    supports_comments = False
    supports_sequences = False
    supports_default_values = False
    insert_returning = False
    postfetch_lastrowid = False
    # What the compilers ask of a PostgreSQL.
    _backslash_escapes = False

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._opening = threading.Lock()
        self._in_memory: taut.Connection | None = None

    @classmethod
    def import_dbapi(cls) -> ModuleType:
        return taut

    @classmethod
    def get_pool_class(cls, url: URL) -> type[pool.Pool]:
        return pool.QueuePool

    def create_connect_args(self, url: URL) -> tuple[list[Any], dict[str, Any]]:
        unknown = sorted(set(url.query) - set(_SETTINGS))
        if unknown or url.host:
            wrong = f"setting {unknown[0]!r}" if unknown else f"host {url.host!r}"
            allowed = ", ".join(_SETTINGS)
            raise exc.ArgumentError(f"{wrong} in {url}; allowed are taut:///path and the settings {allowed}")
        return [url.database or ":memory:"], {name: _SETTINGS[name](str(value)) for name, value in url.query.items()}

    def connect(self, *arguments: Any, **settings: Any) -> taut.Connection:
        if arguments != (":memory:",):
            return taut.connect(*arguments, **settings)
        # All connections of an engine are to one database.
        with self._opening:
            if self._in_memory is None:
                self._in_memory = taut.connect(**settings)
        return self._in_memory.duplicate()

    def initialize(self, connection: Any) -> None:
        """There is nothing to ask of the database."""
        self.default_isolation_level = "AUTOCOMMIT"

    def do_rollback(self, dbapi_connection: Any) -> None:
        """Does nothing: every statement has committed by itself."""

    def do_ping(self, dbapi_connection: Any) -> bool:
        return not dbapi_connection.closed

    def is_disconnect(self, e: Any, connection: Any, cursor: Any) -> bool:
        return isinstance(e, taut.InterfaceError) and "connection is closed" in str(e)

    def get_isolation_level_values(self, dbapi_conn: Any) -> list[str]:
        return ["AUTOCOMMIT"]

    def set_isolation_level(self, dbapi_connection: Any, level: str) -> None:
        """Does nothing: there is one level."""

    def get_isolation_level(self, dbapi_connection: Any) -> str:
        return "AUTOCOMMIT"

    def get_default_isolation_level(self, dbapi_conn: Any) -> str:
        return "AUTOCOMMIT"

    # Reflection

    def _names(self, connection: Any, kind: str, in_schema: str | None) -> list[str]:
        if in_schema not in (None, _SCHEMA):
            return []
        return [row[0] for row in connection.exec_driver_sql("SHOW TABLES").fetchall() if row[1] == kind]

    @reflection.cache
    def get_schema_names(self, connection: Any, **options: Any) -> list[str]:
        return [_SCHEMA]

    @reflection.cache
    def get_table_names(self, connection: Any, schema: str | None = None, **options: Any) -> list[str]:
        return self._names(connection, "table", schema)

    @reflection.cache
    def get_view_names(self, connection: Any, schema: str | None = None, **options: Any) -> list[str]:
        return self._names(connection, "view", schema)

    @reflection.cache
    def has_table(self, connection: Any, table_name: str, schema: str | None = None, **options: Any) -> bool:
        return table_name in self._names(connection, "table", schema) + self._names(connection, "view", schema)

    @reflection.cache
    def get_columns(
        self, connection: Any, table_name: str, schema: str | None = None, **options: Any
    ) -> list[dict[str, Any]]:
        if not self.has_table(connection, table_name, schema):
            raise exc.NoSuchTableError(table_name)
        rows = connection.exec_driver_sql(f"DESCRIBE {self.identifier_preparer.quote(table_name)}").fetchall()
        return [
            {"name": name, "type": _type_of(kind), "nullable": nullable == "YES", "default": None}
            for name, kind, nullable in rows
        ]

    @reflection.cache
    def get_table_options(
        self, connection: Any, table_name: str, schema: str | None = None, **options: Any
    ) -> dict[str, Any]:
        query = "SELECT layout, groups, sort_by, partition_by FROM taut.tables WHERE table_name = ?"
        row = connection.exec_driver_sql(query, (table_name,)).fetchone()
        values = zip(("layout", "groups", "sort_by", "partition_by"), row or ())
        return {f"taut_{name}": value for name, value in values if value is not None}

    def get_pk_constraint(
        self, connection: Any, table_name: str, schema: str | None = None, **options: Any
    ) -> Mapping[str, Any]:
        return {"constrained_columns": [], "name": None}

    def _none(self, connection: Any, table_name: str, schema: str | None = None, **options: Any) -> list[Any]:
        return []

    get_foreign_keys = get_unique_constraints = get_check_constraints = _none

    @reflection.cache
    def get_indexes(
        self, connection: Any, table_name: str, schema: str | None = None, **options: Any
    ) -> list[dict[str, Any]]:
        query = "SELECT index_name, columns FROM taut.indexes WHERE table_name = ? ORDER BY index_name"
        rows = connection.exec_driver_sql(query, (table_name,)).fetchall()
        return [{"name": name, "column_names": columns.split(", "), "unique": False} for name, columns in rows]


def _has_columns(constraint: schema.Constraint) -> bool:
    """Whether a constraint says anything: a table has a primary key of no columns where it has none."""
    return not isinstance(constraint, schema.PrimaryKeyConstraint) or len(constraint.columns) > 0


def _type_of(kind: str) -> types.TypeEngine[Any]:
    name, _, rest = kind.partition("(")
    if name == "decimal":
        precision, scale = (int(part) for part in rest.rstrip(")").split(","))
        return types.Numeric(precision, scale)
    if name == "timestamptz":
        return types.DateTime(timezone=True)
    return _TYPES.get(name, types.NullType)()
