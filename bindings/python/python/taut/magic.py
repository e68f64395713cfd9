"""The magic `%%taut` of IPython and Jupyter."""

from __future__ import annotations

import argparse
import shlex
from typing import Any, NoReturn

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class

import taut
from taut.connection import Connection
from taut.result import Result


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"%%taut: {message}\n{self.format_usage()}")


def _parser() -> _Parser:
    parser = _Parser(prog="%%taut", add_help=False)
    parser.add_argument("connection", nargs="?", help="a variable that is a connection, or the path of a database")
    parser.add_argument("-o", "--output", help="the variable that receives the result")
    parser.add_argument("--as", dest="kind", choices=["pandas", "polars", "arrow"], default="pandas")
    return parser


@magics_class
class TautMagics(Magics):
    """The magic `taut`: runs SQL on a connection. Statements can use variables of the notebook as tables."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._variables: dict[str, Any] = shell.user_ns
        self._connections: dict[str, Connection] = {}

    @line_cell_magic
    def taut(self, line: str, cell: str | None = None) -> Result | None:
        """Runs SQL: a line ``%taut SELECT 1``, or a cell under ``%%taut [connection] [-o variable] [--as kind]``.

        `connection` is a variable that holds a connection, or the path of a database. By default it is the only open
        connection among the variables, or a database in memory if there is none. ``-o`` assigns the result to a
        variable, as a DataFrame of ``pandas`` or ``polars`` or a table of ``arrow``.
        """
        if cell is None:
            return self._run(None, line)
        arguments = _parser().parse_args(shlex.split(line))
        result = self._run(arguments.connection, cell)
        if arguments.output is None:
            return result
        converted = {"pandas": result.to_pandas, "polars": result.to_polars, "arrow": result.to_arrow}
        self._variables[arguments.output] = converted[arguments.kind]()
        return None

    def _run(self, connection: str | None, sql: str) -> Result:
        return self._connection(connection)._run(sql, None, self._variables)

    def _connection(self, name: str | None) -> Connection:
        variable = self._variables.get(name) if name is not None else None
        if name is None:
            found = {id(value): value for value in self._variables.values() if isinstance(value, Connection)}
            open_ones = [connection for connection in found.values() if not connection.closed]
            if len(open_ones) > 1:
                raise UsageError("%%taut: there is more than one connection; name one: %%taut con")
            if open_ones:
                return open_ones[0]
            name = ":memory:"
        elif isinstance(variable, Connection):
            return variable
        elif name.isidentifier():
            raise UsageError(f"%%taut: {name!r} is no connection; con = taut.connect(...) makes one")
        if name not in self._connections or self._connections[name].closed:
            self._connections[name] = taut.connect(name)
        return self._connections[name]


def register(shell: InteractiveShell) -> None:
    """Registers the magic with a shell."""
    shell.register_magics(TautMagics(shell))
