"""Compilers of the dialect: from statements, definitions and types of SQLAlchemy to Taut's SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import exc, schema, types, util
from sqlalchemy.dialects.postgresql.base import PGCompiler, PGDDLCompiler, PGTypeCompiler
from sqlalchemy.sql import operators
from sqlalchemy.sql.elements import BindParameter, UnaryExpression

from taut._taut import TABLE_OPTIONS


class TypeCompiler(PGTypeCompiler):
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


class DdlCompiler(PGDDLCompiler):
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
        if table.comment or any(column.comment for column in table.columns):
            util.warn(f"the comments of table {table.name} and its columns are not stored: Taut has no comments")
        design = table.dialect_options["taut"]
        options = [(name, str(design[name]).replace("'", "''")) for name in TABLE_OPTIONS if design[name] is not None]
        return f" WITH ({', '.join(f'{name} = {chr(39)}{value}{chr(39)}' for name, value in options)})" if options else ""


class Compiler(PGCompiler):
    def render_bind_cast(self, type_: Any, dbapi_type: Any, sqltext: str) -> str:
        return sqltext

    def fetch_clause(self, select: Any, **options: Any) -> str:
        """Compiles FETCH FIRST as LIMIT, which takes expressions."""
        kinds = select._fetch_clause_options
        for kind, name in (("percent", "PERCENT"), ("with_ties", "WITH TIES")):
            if kinds[kind]:
                raise exc.CompileError(f"fetch({kind}=True): Taut has no FETCH FIRST ... {name}; use a number of rows")
        text = f"\n LIMIT {self.process(select._fetch_clause, **options)}"
        if select._offset_clause is not None:
            text += f" OFFSET {self.process(select._offset_clause, **options)}"
        return text

    def visit_frame_clause(self, frameclause: Any, **options: Any) -> Any:
        """Compiles the bounds of a window frame as literals, because Taut takes no parameters there."""
        return super().visit_frame_clause(frameclause, **options | {"literal_execute": True})  # type: ignore[no-untyped-call]

    def visit_concat_op_binary(self, binary: Any, operator: Any, **options: Any) -> str:
        return self._concatenation([binary.left, binary.right], options)

    def visit_concat_op_expression_clauselist(self, clauselist: Any, operator: Any, **options: Any) -> str:
        return self._concatenation(clauselist.clauses, options)

    def _concatenation(self, parts: Sequence[Any], options: Any) -> str:
        """Compiles `||`. Taut does not know the types of two parameters."""
        texts = [self.process(part, **options) for part in parts]
        if all(isinstance(part, BindParameter) for part in parts[:2]):
            texts[0] = f"CAST({texts[0]} AS {'bytea' if isinstance(parts[0].type, types.LargeBinary) else 'varchar'})"
        return " || ".join(texts)

    def visit_truediv_binary(self, binary: Any, operator: Any, **options: Any) -> Any:
        """Compiles a division of Python's `/`, which is exact for integers too.

        SQLAlchemy casts a divisor of unknown type to NUMERIC, which has ten digits behind the point here. Only one of
        two integers needs a cast, and a cast to a decimal without such digits loses nothing.
        """
        is_integer, is_fraction = (
            [isinstance(side.type, kind) for side in (binary.left, binary.right)] for kind in (types.Integer, types.Numeric)
        )
        sides = [self.process(side, **options) for side in (binary.left, binary.right)]
        if not any(is_fraction) and any(is_integer):
            index = is_integer.index(True)
            sides[index] = f"CAST({sides[index]} AS decimal(19, 0))"
        elif not any(is_fraction):
            return super().visit_truediv_binary(binary, operator, **options)  # type: ignore[no-untyped-call]
        return " / ".join(sides)


def _without_direction(expression: Any) -> Any:
    """Returns an expression of an index without ASC, DESC and NULLS FIRST, which make no difference."""
    directions = {operators.asc_op, operators.desc_op, operators.nulls_first_op, operators.nulls_last_op}
    while isinstance(expression, UnaryExpression) and expression.modifier in directions:
        expression = expression.element
    return expression
