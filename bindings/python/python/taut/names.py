"""Names of tables, views and sequences with their schemas.

One string identifies a relation in the system tables and in methods such as `Connection.insert`: the name alone in
schema public, otherwise the schema and the name with a dot between them, such as ``sales.orders``. A part that contains
a dot or begins with a quote is in double quotes. A quoted name in public includes the schema: ``public."a.b"``.
"""

from __future__ import annotations

import re

#: The schema that always exists.
PUBLIC = "public"
#: The schema of the temporary relations of a session.
TEMPORARY = "pg_temp"

_PART = r"\"(?:[^\"]|\"\")*\"|[^\".][^.]*"
_QUALIFIED = re.compile(rf"({_PART})\.({_PART})", re.DOTALL)


def relation_name(schema: str, name: str) -> str:
    """Returns the string that identifies relation `name` of a schema."""
    if schema == PUBLIC and "." not in name:
        return name
    return f"{_part(schema)}.{_part(name)}"


def sql_name(relation: str) -> str:
    """Returns the name of a relation as SQL reads it, with its schema."""
    match = _QUALIFIED.fullmatch(relation)
    schema, name = map(_text, match.groups()) if match else (PUBLIC, relation)
    return f"{quoted(schema)}.{quoted(name)}"


def quoted(identifier: str) -> str:
    """Returns an identifier in double quotes."""
    return '"' + identifier.replace('"', '""') + '"'


def _part(text: str) -> str:
    return quoted(text) if "." in text or text.startswith('"') else text


def _text(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part
