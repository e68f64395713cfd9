"""Reflection: tables, columns, keys and indexes of a database, as SQLAlchemy describes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sqlalchemy import exc, types
from sqlalchemy.engine import default, reflection

from taut.names import PUBLIC, TEMPORARY, relation_name

#: The schema of relations that are created without one.
SCHEMA = PUBLIC

_IDENTIFIER = r"\"(?:[^\"]|\"\")*\"|\w+"
_FOREIGN_KEY = re.compile(
    rf"FOREIGN KEY \((?P<columns>.*)\) REFERENCES (?:(?P<schema>{_IDENTIFIER})\.)?(?P<table>{_IDENTIFIER}) ?\("
    r"(?P<referred>(?:\"(?:[^\"]|\"\")*\"|[^\")])*)\)(?P<actions>.*)",
    re.DOTALL,
)
_SYSTEM_SCHEMAS = ("information_schema", "pg_catalog", "taut", TEMPORARY)
_ACTION = re.compile(r"ON (DELETE|UPDATE) (CASCADE|RESTRICT|SET NULL|SET DEFAULT|NO ACTION)")
_NAME = re.compile(r"\"((?:[^\"]|\"\")*)\"|(\w+)")

_TYPES: dict[str, type[types.TypeEngine[Any]]] = {
    "boolean": types.Boolean, "smallint": types.SmallInteger, "integer": types.Integer, "bigint": types.BigInteger,
    "real": types.REAL, "double": types.Double, "date": types.Date, "timestamp": types.DateTime,
    "varchar": types.String, "bytea": types.LargeBinary,
}  # fmt: skip


class Reflection(default.DefaultDialect):
    """Methods of the dialect that describe what a database holds."""

    def _names(self, connection: Any, kind: str, in_schema: str | None) -> list[str]:
        query = """
            SELECT table_name FROM information_schema.tables
            WHERE table_schema = ? AND table_type = ? ORDER BY table_name"""
        rows = connection.exec_driver_sql(query, (in_schema or self.default_schema_name, kind)).fetchall()
        return [name for (name,) in rows]

    def _schema_of(self, connection: Any, name: str, in_schema: str | None, options: Any) -> str | None:
        """Returns the schema of a relation. If no schema is given, a temporary relation takes precedence."""
        if in_schema is None and name in self._temporary(connection, options):
            return TEMPORARY
        return in_schema

    def _temporary(self, connection: Any, options: Any) -> list[str]:
        return self.get_temp_table_names(connection, **options) + self.get_temp_view_names(connection, **options)

    def _relation(self, name: str, in_schema: str | None) -> str:
        """Returns the name of a relation in the system tables: with its schema, unless the schema is public."""
        return relation_name(in_schema or self.default_schema_name or SCHEMA, name)

    @reflection.cache
    def get_schema_names(self, connection: Any, **options: Any) -> list[str]:
        query = "SELECT schema_name FROM information_schema.schemata ORDER BY schema_name"
        return [name for (name,) in connection.exec_driver_sql(query).fetchall() if name not in _SYSTEM_SCHEMAS]

    @reflection.cache
    def has_schema(self, connection: Any, schema_name: str, **options: Any) -> bool:
        return schema_name in self.get_schema_names(connection, **options)

    @reflection.cache
    def get_table_names(self, connection: Any, schema: str | None = None, **options: Any) -> list[str]:
        return self._names(connection, "BASE TABLE", schema)

    @reflection.cache
    def get_view_names(self, connection: Any, schema: str | None = None, **options: Any) -> list[str]:
        return self._names(connection, "VIEW", schema)

    @reflection.cache
    def get_view_definition(
        self, connection: Any, view_name: str, schema: str | None = None, **options: Any
    ) -> str:
        schema = self._schema_of(connection, view_name, schema, options)
        query = "SELECT view_definition FROM information_schema.views WHERE table_schema = ? AND table_name = ?"
        found = connection.exec_driver_sql(query, (schema or self.default_schema_name, view_name)).scalar()
        if found is None:
            raise exc.NoSuchTableError(f"{schema}.{view_name}" if schema else view_name)
        return str(found)

    @reflection.cache
    def get_materialized_view_names(self, connection: Any, schema: str | None = None, **options: Any) -> list[str]:
        return []

    @reflection.cache
    def get_temp_table_names(self, connection: Any, **options: Any) -> list[str]:
        views = self.get_temp_view_names(connection, **options)
        return [name for name in self._names(connection, "LOCAL TEMPORARY", TEMPORARY) if name not in views]

    @reflection.cache
    def get_temp_view_names(self, connection: Any, **options: Any) -> list[str]:
        query = "SELECT table_name FROM information_schema.views WHERE table_schema = ? ORDER BY table_name"
        return [name for (name,) in connection.exec_driver_sql(query, (TEMPORARY,)).fetchall()]

    @reflection.cache
    def has_table(self, connection: Any, table_name: str, schema: str | None = None, **options: Any) -> bool:
        if schema in (None, TEMPORARY) and table_name in self._temporary(connection, options):
            return True
        return table_name in self._names(connection, "BASE TABLE", schema) + self._names(connection, "VIEW", schema)

    @reflection.cache
    def get_columns(
        self, connection: Any, table_name: str, schema: str | None = None, **options: Any
    ) -> list[dict[str, Any]]:
        schema = self._schema_of(connection, table_name, schema, options)
        self._check_exists(connection, table_name, schema, options)
        quote = self.identifier_preparer.quote
        relation = f"{quote(schema or self.default_schema_name or SCHEMA)}.{quote(table_name)}"
        rows = connection.exec_driver_sql(f"DESCRIBE {relation}").fetchall()
        declared = self._constraints(connection, table_name, schema, "DEFAULT", options)
        defaults = {columns: definition.removeprefix("DEFAULT ") for _, columns, definition in declared}
        identities = self._identities(connection, table_name, schema, options)
        computed = self._computed(connection, table_name, schema, options)
        comments = self._comments(connection, self._relation(table_name, schema))
        columns: list[dict[str, Any]] = []
        for name, kind, nullable in rows:
            default = defaults.get(name)
            column = {"name": name, "type": _type_of(kind), "nullable": nullable == "YES", "default": default}
            column["comment"] = comments.get(name)
            if name in identities:
                column["identity"] = identities[name]
            if name in computed:
                column["computed"] = {"sqltext": computed[name], "persisted": True}
            if name in identities or (default or "").startswith("nextval("):
                column["autoincrement"] = True
            columns.append(column)
        return columns

    @reflection.cache
    def get_sequence_names(self, connection: Any, schema: str | None = None, **options: Any) -> list[str]:
        # The sequences of identity and serial columns belong to them.
        query = "SELECT sequence_name FROM taut.sequences WHERE column_name IS NULL"
        unowned = {name for (name,) in connection.exec_driver_sql(query).fetchall()}
        query = "SELECT sequence_name FROM information_schema.sequences WHERE sequence_schema = ? ORDER BY sequence_name"
        rows = connection.exec_driver_sql(query, (schema or self.default_schema_name,)).fetchall()
        return [name for (name,) in rows if self._relation(name, schema) in unowned]

    @reflection.cache
    def has_sequence(self, connection: Any, sequence_name: str, schema: str | None = None, **options: Any) -> bool:
        return sequence_name in self.get_sequence_names(connection, schema, **options)

    @reflection.cache
    def get_table_comment(
        self, connection: Any, table_name: str, schema: str | None = None, **options: Any
    ) -> dict[str, Any]:
        schema = self._schema_of(connection, table_name, schema, options)
        self._check_exists(connection, table_name, schema, options)
        return {"text": self._comments(connection, self._relation(table_name, schema)).get(None)}

    def _comments(self, connection: Any, relation: str) -> dict[str | None, str]:
        """Returns the comments on a table or view, with None as the key, and on its columns by their names."""
        query = "SELECT column_name, comment FROM taut.comments WHERE object_name = ? AND object_type <> 'sequence'"
        return {column: comment for column, comment in connection.exec_driver_sql(query, (relation,)).fetchall()}

    def _computed(self, connection: Any, table_name: str, in_schema: str | None, options: Any) -> dict[str, str]:
        """Returns the expressions of a table's generated columns by the name of the column."""
        declared = self._constraints(connection, table_name, in_schema, "GENERATED", options)
        text = "GENERATED ALWAYS AS (", ") STORED"
        return {column: definition.removeprefix(text[0]).removesuffix(text[1]) for _, column, definition in declared}

    def _identities(
        self, connection: Any, table_name: str, in_schema: str | None, options: Any
    ) -> dict[str, dict[str, Any]]:
        """Returns the options of a table's identity columns by the name of the column."""
        declared = self._constraints(connection, table_name, in_schema, "IDENTITY", options)
        if not declared:
            return {}
        names = ("start", "increment", "minvalue", "maxvalue", "cycle")
        query = """
            SELECT column_name, start_value, increment, min_value, max_value, cycle FROM taut.sequences
            WHERE table_name = ?"""
        found = {
            column: dict(zip(names, values))
            for column, *values in connection.exec_driver_sql(query, (self._relation(table_name, in_schema),)).fetchall()
        }
        return {
            column: {"always": definition.startswith("GENERATED ALWAYS"), **found.get(column, {}), "cache": 1}
            for _, column, definition in declared
        }

    @reflection.cache
    def get_table_options(
        self, connection: Any, table_name: str, schema: str | None = None, **options: Any
    ) -> dict[str, Any]:
        schema = self._schema_of(connection, table_name, schema, options)
        self._check_exists(connection, table_name, schema, options)
        query = "SELECT layout, groups, sort_by, partition_by FROM taut.tables WHERE table_name = ?"
        row = connection.exec_driver_sql(query, (self._relation(table_name, schema),)).fetchone()
        values = zip(("layout", "groups", "sort_by", "partition_by"), row or ())
        return {f"taut_{name}": value for name, value in values if value is not None}

    def _check_exists(self, connection: Any, table_name: str, in_schema: str | None, options: Any) -> None:
        if not self.has_table(connection, table_name, in_schema, **options):
            raise exc.NoSuchTableError(f"{in_schema}.{table_name}" if in_schema else table_name)

    def _constraints(
        self, connection: Any, table_name: str, in_schema: str | None, kind: str, options: Any
    ) -> list[tuple[str, str, str]]:
        """Returns name, columns and definition of a table's constraints of one kind."""
        self._check_exists(connection, table_name, in_schema, options)
        query = """
            SELECT constraint_name, columns, definition FROM taut.constraints
            WHERE table_name = ? AND constraint_type = ? ORDER BY constraint_name"""
        relation = self._relation(table_name, in_schema)
        return [tuple(row) for row in connection.exec_driver_sql(query, (relation, kind)).fetchall()]

    def _keys(
        self, connection: Any, table_name: str, in_schema: str | None, kind: str, options: Any
    ) -> dict[str, list[str]]:
        """Returns the columns of a table's keys by the name of the constraint."""
        rows = self._constraints(connection, table_name, in_schema, kind, options)
        return {name: _names_of(definition[definition.index("(") + 1 :]) for name, _, definition in rows}

    @reflection.cache
    def get_pk_constraint(
        self, connection: Any, table_name: str, schema: str | None = None, **options: Any
    ) -> Mapping[str, Any]:
        schema = self._schema_of(connection, table_name, schema, options)
        keys = self._keys(connection, table_name, schema, "PRIMARY KEY", options)
        name, columns = next(iter(keys.items()), (None, []))
        return {"constrained_columns": columns, "name": name}

    @reflection.cache
    def get_unique_constraints(
        self, connection: Any, table_name: str, schema: str | None = None, **options: Any
    ) -> list[dict[str, Any]]:
        schema = self._schema_of(connection, table_name, schema, options)
        keys = self._keys(connection, table_name, schema, "UNIQUE", options)
        return [{"name": name, "column_names": columns} for name, columns in keys.items()]

    @reflection.cache
    def get_check_constraints(
        self, connection: Any, table_name: str, schema: str | None = None, **options: Any
    ) -> list[dict[str, Any]]:
        schema = self._schema_of(connection, table_name, schema, options)
        rows = self._constraints(connection, table_name, schema, "CHECK", options)
        return [
            {"name": name, "sqltext": definition.removeprefix("CHECK (").removesuffix(")")} for name, _, definition in rows
        ]

    @reflection.cache
    def get_foreign_keys(
        self, connection: Any, table_name: str, schema: str | None = None, **options: Any
    ) -> list[dict[str, Any]]:
        schema = self._schema_of(connection, table_name, schema, options)
        keys = []
        for name, _, definition in self._constraints(connection, table_name, schema, "FOREIGN KEY", options):
            match = _FOREIGN_KEY.fullmatch(definition)
            assert match, definition
            actions = {f"on{event.lower()}": action for event, action in _ACTION.findall(match["actions"])}
            keys.append({
                "name": name, "constrained_columns": _names_of(match["columns"]), "referred_schema": _names_of(match["schema"])[0] if match["schema"] else None,
                "referred_table": _names_of(match["table"])[0], "referred_columns": _names_of(match["referred"]),
                "options": {event: action for event, action in actions.items() if action != "NO ACTION"},
            })  # fmt: skip
        return keys

    @reflection.cache
    def get_indexes(
        self, connection: Any, table_name: str, schema: str | None = None, **options: Any
    ) -> list[dict[str, Any]]:
        schema = self._schema_of(connection, table_name, schema, options)
        primary = self._keys(connection, table_name, schema, "PRIMARY KEY", options)
        unique = self._keys(connection, table_name, schema, "UNIQUE", options)
        query = "SELECT index_name, columns, predicate, is_unique FROM taut.indexes WHERE table_name = ? ORDER BY index_name"
        rows = connection.exec_driver_sql(query, (self._relation(table_name, schema),)).fetchall()
        known = [column["name"] for column in self.get_columns(connection, table_name, schema, **options)]
        return [
            _index(name, columns, predicate, is_unique, known)
            if name not in unique
            else {"name": name, "column_names": unique[name], "unique": True, "duplicates_constraint": name}
            for name, columns, predicate, is_unique in rows
            if name not in primary
        ]


def _index(name: str, columns: str, predicate: str | None, is_unique: bool, known: list[str]) -> dict[str, Any]:
    """Describes an index whose parts are separated by commas. Parts that are not columns are expressions."""
    parts = _split(columns, known)
    index: dict[str, Any] = {"name": name, "unique": is_unique}
    index["column_names"] = [part if part in known else None for part in parts]
    if None in index["column_names"]:
        index["expressions"] = parts
    if predicate is not None:
        index["dialect_options"] = {"postgresql_where": predicate}
    return index


def _names_of(text: str) -> list[str]:
    """Returns the names in an SQL list without their quotes."""
    return [quoted.replace('""', '"') if quoted else plain for quoted, plain in _NAME.findall(text)]


def _split(text: str, known: list[str]) -> list[str]:
    """Splits names and expressions that are separated by commas.

    Names and expressions may contain commas. `known` lists the existing names. An expression ends at the first comma
    outside of parentheses and quotes.
    """
    for part in [*known, _first_expression(text)]:
        if text == part:
            return [part]
        if part and text.startswith(f"{part}, ") and (rest := _split(text[len(part) + 2 :], known)):
            return [part, *rest]
    return []


def _first_expression(text: str) -> str:
    """Returns the text before the first comma outside of parentheses and quotes."""
    depth, quote = 0, ""
    for position, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == "," and depth == 0:
            return text[:position]
        else:
            depth += (character == "(") - (character == ")")
    return text


def _type_of(kind: str) -> types.TypeEngine[Any]:
    name, _, rest = kind.partition("(")
    if name == "decimal":
        precision, scale = (int(part) for part in rest.rstrip(")").split(","))
        return types.Numeric(precision, scale)
    if name == "timestamptz":
        return types.DateTime(timezone=True)
    return _TYPES.get(name, types.NullType)()
