"""The SQLAlchemy dialect: ``create_engine("taut:////data/shop.taut")``, or ``"taut://"`` for a database in memory.

The options of a table's design are ``taut_layout``, ``taut_sort_by`` and so on. The query part of the URL has settings
of `taut.connect`: ``taut:///shop.taut?threads=2&memory=2GiB``, ``taut:///shop.taut?read_only=true``.
"""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final

from sqlalchemy import exc, pool, schema, types, util
from sqlalchemy.dialects.postgresql.base import PGCompiler, PGDDLCompiler, PGIdentifierPreparer, PGTypeCompiler
from sqlalchemy.engine import default, reflection
from sqlalchemy.engine.url import URL
from sqlalchemy.sql import operators
from sqlalchemy.sql.elements import UnaryExpression

import taut
from taut._taut import TABLE_OPTIONS

#: Settings of `taut.connect` that are allowed in a URL.
_SETTINGS: dict[str, Callable[[str], Any]] = {"threads": int, "memory": str, "cache": str, "read_only": util.asbool}
_SCHEMA = "public"
_DEFAULT_LEVEL: Final = "REPEATABLE READ"
#: Isolation levels. With AUTOCOMMIT, each statement is a transaction of its own.
_LEVELS = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE", "AUTOCOMMIT")
_FOREIGN_KEY = re.compile(
    r"FOREIGN KEY \((?P<columns>.*)\) REFERENCES (?P<table>\"(?:[^\"]|\"\")*\"|\w+) \("
    r"(?P<referred>(?:\"(?:[^\"]|\"\")*\"|[^\")])*)\)(?P<actions>.*)",
    re.DOTALL,
)
_ACTION = re.compile(r"ON (DELETE|UPDATE) (CASCADE|RESTRICT|SET NULL|SET DEFAULT|NO ACTION)")
_NAME = re.compile(r"\"((?:[^\"]|\"\")*)\"|(\w+)")

_TYPES: dict[str, type[types.TypeEngine[Any]]] = {
    "boolean": types.Boolean, "smallint": types.SmallInteger, "integer": types.Integer, "bigint": types.BigInteger,
    "real": types.REAL, "double": types.Double, "date": types.Date, "timestamp": types.DateTime,
    "varchar": types.String, "bytea": types.LargeBinary,
}  # fmt: skip


class _TypeCompiler(PGTypeCompiler):
    """Compiles the names of types. Text gets no length, because Taut would not enforce it."""

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
        if column.computed is not None or column.identity is not None:
            raise exc.CompileError(
                f"column {column.name}: Taut has no identities and no computed columns; use default= or server_default="
            )
        kind = self.dialect.type_compiler_instance.process(column.type, type_expression=column)
        default = self.get_column_default_string(column)
        parts = [self.preparer.format_column(column), kind]
        parts += [f"DEFAULT {default}"] if default is not None else []
        parts += [] if column.nullable else ["NOT NULL"]
        return " ".join(parts)

    def visit_create_index(self, create: Any, **options: Any) -> str:
        """Compiles CREATE INDEX.

        An index that Taut does not support is skipped with a warning, because tools create indexes without being asked.
        A unique one is an error instead: without it, rows that violate it would be accepted.
        """
        index = create.element
        expressions = [_without_direction(expression) for expression in index.expressions]
        columns = [column for column in expressions if isinstance(column, schema.Column)]
        names = ", ".join(self.preparer.quote(column.name) for column in columns)
        table, name = self.preparer.format_table(index.table), self._prepared_index_name(index)
        is_partial = index.dialect_options["postgresql"]["where"] is not None
        if len(columns) != len(index.expressions) or is_partial:
            if index.unique:
                raise exc.CompileError(f"unique index {index.name}: Taut has unique indexes of columns, for all rows, only")
            util.warn(f"index {index.name} is not created: Taut has indexes of columns, for all rows")
            return "SELECT 1"
        unique = "UNIQUE " if index.unique else ""
        exists = "IF NOT EXISTS " if create.if_not_exists else ""
        return f"CREATE {unique}INDEX {exists}{name} ON {table} ({names})"

    def visit_drop_index(self, drop: Any, **options: Any) -> str:
        """Compiles DROP INDEX, with IF EXISTS because the index may have been skipped when it was created."""
        return f"DROP INDEX IF EXISTS {self._prepared_index_name(drop.element)}"

    def post_create_table(self, table: Any) -> str:
        design = table.dialect_options["taut"]
        options = [(name, str(design[name]).replace("'", "''")) for name in TABLE_OPTIONS if design[name] is not None]
        return f" WITH ({', '.join(f'{name} = {chr(39)}{value}{chr(39)}' for name, value in options)})" if options else ""


class _Compiler(PGCompiler):
    def render_bind_cast(self, type_: Any, dbapi_type: Any, sqltext: str) -> str:
        return sqltext


class TautDialect(default.DefaultDialect):
    """Dialect with the part of PostgreSQL's SQL that Taut supports: transactions, savepoints and constraints."""

    name = driver = "taut"
    default_paramstyle = "qmark"
    statement_compiler = _Compiler
    ddl_compiler = _DdlCompiler
    type_compiler_cls = _TypeCompiler
    preparer = PGIdentifierPreparer
    construct_arguments = [(schema.Table, {name: None for name in TABLE_OPTIONS})]

    default_schema_name = _SCHEMA
    supports_statement_cache = True
    supports_native_boolean = True
    supports_native_decimal = True
    supports_native_uuid = False
    supports_multivalues_insert = True
    supports_sane_rowcount = True
    supports_sane_multi_rowcount = False
    supports_alter = True
    supports_comments = False
    supports_sequences = False
    supports_default_values = True
    insert_returning = False
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
        # SQLAlchemy passes the pool's proxy here, but the connection itself when it sets a level.
        level = self.get_isolation_level(getattr(dbapi_connection, "dbapi_connection", dbapi_connection))
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
        return self._levels.get(dbapi_connection, _DEFAULT_LEVEL)

    def get_default_isolation_level(self, dbapi_conn: Any) -> str:
        return _DEFAULT_LEVEL

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
        defaults = {columns: definition for _, columns, definition in self._constraints(connection, table_name, "DEFAULT")}
        return [
            {
                "name": name, "type": _type_of(kind), "nullable": nullable == "YES",
                "default": defaults[name].removeprefix("DEFAULT ") if name in defaults else None,
            }
            for name, kind, nullable in rows
        ]  # fmt: skip

    @reflection.cache
    def get_table_options(
        self, connection: Any, table_name: str, schema: str | None = None, **options: Any
    ) -> dict[str, Any]:
        self._check_exists(connection, table_name)
        query = "SELECT layout, groups, sort_by, partition_by FROM taut.tables WHERE table_name = ?"
        row = connection.exec_driver_sql(query, (table_name,)).fetchone()
        values = zip(("layout", "groups", "sort_by", "partition_by"), row or ())
        return {f"taut_{name}": value for name, value in values if value is not None}

    def _check_exists(self, connection: Any, table_name: str) -> None:
        if not self.has_table(connection, table_name):
            raise exc.NoSuchTableError(table_name)

    def _constraints(self, connection: Any, table_name: str, kind: str) -> list[tuple[str, str, str]]:
        """Returns name, columns and definition of a table's constraints of one kind."""
        self._check_exists(connection, table_name)
        query = """
            SELECT constraint_name, columns, definition FROM taut.constraints
            WHERE table_name = ? AND constraint_type = ? ORDER BY constraint_name"""
        return [tuple(row) for row in connection.exec_driver_sql(query, (table_name, kind)).fetchall()]

    def _keys(self, connection: Any, table_name: str, kind: str) -> dict[str, list[str]]:
        """Returns the columns of a table's keys by the name of the constraint."""
        rows = self._constraints(connection, table_name, kind)
        return {name: _names_of(definition[definition.index("(") + 1 :]) for name, _, definition in rows}

    @reflection.cache
    def get_pk_constraint(
        self, connection: Any, table_name: str, schema: str | None = None, **options: Any
    ) -> Mapping[str, Any]:
        keys = self._keys(connection, table_name, "PRIMARY KEY")
        name, columns = next(iter(keys.items()), (None, []))
        return {"constrained_columns": columns, "name": name}

    @reflection.cache
    def get_unique_constraints(
        self, connection: Any, table_name: str, schema: str | None = None, **options: Any
    ) -> list[dict[str, Any]]:
        keys = self._keys(connection, table_name, "UNIQUE")
        return [{"name": name, "column_names": columns} for name, columns in keys.items()]

    @reflection.cache
    def get_check_constraints(
        self, connection: Any, table_name: str, schema: str | None = None, **options: Any
    ) -> list[dict[str, Any]]:
        rows = self._constraints(connection, table_name, "CHECK")
        return [
            {"name": name, "sqltext": definition.removeprefix("CHECK (").removesuffix(")")} for name, _, definition in rows
        ]

    @reflection.cache
    def get_foreign_keys(
        self, connection: Any, table_name: str, schema: str | None = None, **options: Any
    ) -> list[dict[str, Any]]:
        keys = []
        for name, _, definition in self._constraints(connection, table_name, "FOREIGN KEY"):
            match = _FOREIGN_KEY.fullmatch(definition)
            assert match, definition
            actions = {f"on{event.lower()}": action for event, action in _ACTION.findall(match["actions"])}
            keys.append({
                "name": name, "constrained_columns": _names_of(match["columns"]), "referred_schema": None,
                "referred_table": _names_of(match["table"])[0], "referred_columns": _names_of(match["referred"]),
                "options": {event: action for event, action in actions.items() if action != "NO ACTION"},
            })  # fmt: skip
        return keys

    @reflection.cache
    def get_indexes(
        self, connection: Any, table_name: str, schema: str | None = None, **options: Any
    ) -> list[dict[str, Any]]:
        query = "SELECT index_name, columns, is_unique FROM taut.indexes WHERE table_name = ? ORDER BY index_name"
        rows = connection.exec_driver_sql(query, (table_name,)).fetchall()
        primary = self._keys(connection, table_name, "PRIMARY KEY")
        unique = self._keys(connection, table_name, "UNIQUE")
        return [
            {"name": name, "column_names": columns.split(", "), "unique": is_unique}
            if name not in unique
            else {"name": name, "column_names": unique[name], "unique": True, "duplicates_constraint": name}
            for name, columns, is_unique in rows
            if name not in primary
        ]


def _without_direction(expression: Any) -> Any:
    """Returns an expression of an index without ASC, DESC and NULLS FIRST, which make no difference."""
    directions = {operators.asc_op, operators.desc_op, operators.nulls_first_op, operators.nulls_last_op}
    while isinstance(expression, UnaryExpression) and expression.modifier in directions:
        expression = expression.element
    return expression


def _names_of(text: str) -> list[str]:
    """Returns the names in an SQL list without their quotes."""
    return [quoted.replace('""', '"') if quoted else plain for quoted, plain in _NAME.findall(text)]


def _type_of(kind: str) -> types.TypeEngine[Any]:
    name, _, rest = kind.partition("(")
    if name == "decimal":
        precision, scale = (int(part) for part in rest.rstrip(")").split(","))
        return types.Numeric(precision, scale)
    if name == "timestamptz":
        return types.DateTime(timezone=True)
    return _TYPES.get(name, types.NullType)()
