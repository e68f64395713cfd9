"""Runs the SQL logic tests of Taut on PostgreSQL, which confirms the results that they expect.

    make test-postgres

Needs the programs of a PostgreSQL server, 15 or later, and starts a server in a temporary directory. Skips
records under `onlyif taut`, `onlyif duckdb` and `skipif postgres`, files that start with "# Taut only.", and files that
read and write files. Runs CREATE TABLE even under `onlyif duckdb`, because these statements have no options of Taut.
Removes `WITH (...)` after CREATE TABLE. Numbers are equal if they differ only after the ninth significant digit,
because PostgreSQL's decimals have other scales.
"""

import decimal
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import psycopg

from slt_on_duckdb import records, text

# Type OID of `real`.
REAL = 700
PORT = 54329


class Server:
    """A PostgreSQL server in a temporary directory, which is removed at the end."""

    def __enter__(self):
        self.directory = tempfile.mkdtemp(prefix="taut-postgres-")
        if os.geteuid() == 0:
            shutil.chown(self.directory, "postgres", "postgres")
        self._run("initdb", "-D", f"{self.directory}/data", "-E", "UTF8", "--locale=C", "--lc-ctype=C.UTF-8")
        options = f"-p {PORT} -k {self.directory} -c listen_addresses='' -c timezone=UTC -c fsync=off"
        self._run("pg_ctl", "-D", f"{self.directory}/data", "-o", options, "-l", f"{self.directory}/log", "-w", "start")
        return self

    def __exit__(self, *_):
        self._run("pg_ctl", "-D", f"{self.directory}/data", "-m", "immediate", "stop")
        shutil.rmtree(self.directory)

    def _run(self, program, *arguments):
        """Runs a program of PostgreSQL, which refuses to run as root."""
        installed = sorted(pathlib.Path("/usr/lib/postgresql").glob(f"*/bin/{program}"))
        command = [str(installed[-1]) if installed else shutil.which(program), *arguments]
        if os.geteuid() == 0:
            command = ["runuser", "-u", "postgres", "--", *command]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=self.directory)

    def connect(self, database):
        user = "postgres" if os.geteuid() == 0 else None
        return psycopg.connect(host=self.directory, port=PORT, user=user, dbname=database, autocommit=True)


def applies(conditions, sql):
    is_plain_table = sql.lower().startswith("create table")
    labels = ("postgres", "duckdb") if is_plain_table else ("postgres",)
    return all(label in labels if kind == "onlyif" else label != "postgres" for kind, label in conditions)


def is_equal(found, expected):
    """Whether two rows of values, separated by spaces, are equal."""
    found, expected = found.split(), expected.split()
    return len(found) == len(expected) and all(map(is_equal_value, found, expected))


def is_equal_value(found, expected):
    if found == expected:
        return True
    try:
        found, expected = decimal.Decimal(found), decimal.Decimal(expected)
        return abs(found - expected) <= abs(expected) * decimal.Decimal("1e-9")
    except decimal.InvalidOperation:
        return False


def run(server, path, number):
    name = f"t{number}"
    with server.connect("postgres") as connection:
        connection.execute(f"CREATE DATABASE {name}")
    connection = server.connect(name)
    wrong, passed = [], 0
    for line, words, conditions, sql, expected in records(path.read_text().split("\n")):
        if words[0] not in ("statement", "query") or not applies(conditions, sql):
            continue
        place = f"{path}:{line}"
        if sql.strip().rstrip(";").lower() == "restart":
            connection.close()
            connection = server.connect(name)
            continue
        sql = re.sub(r"(?is)(create\s+table.*?)\bwith\s*\((?:[^()']|'[^']*')*\)", r"\1", sql, count=1)
        try:
            cursor = connection.execute(sql)
            rows = cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            if words[1] == "error":
                passed += 1
            else:
                wrong.append(f"{place}: {error}\n  {sql}")
            continue
        if words[1] == "error":
            wrong.append(f"{place}: PostgreSQL runs what must fail\n  {sql}")
            continue
        passed += 1
        if words[:2] == ["statement", "count"] and int(words[2]) != cursor.rowcount:
            wrong.append(f"{place}: PostgreSQL counts {cursor.rowcount}\n  {sql}")
        if words[0] != "query":
            continue
        types = ["FLOAT" if column.type_code == REAL else "" for column in cursor.description]
        actual = [" ".join(text(value, kind) for value, kind in zip(row, types)) for row in rows]
        if "rowsort" in words[2:]:
            actual.sort()
        if len(actual) != len(expected) or not all(map(is_equal, actual, expected)):
            wrong.append(f"{place}: {sql}\n  PostgreSQL {actual}\n  expected   {expected}")
    connection.close()
    return passed, wrong


def main():
    paths = []
    for argument in sys.argv[1:] or [str(pathlib.Path(__file__).parent.parent / "sql")]:
        argument = pathlib.Path(argument)
        paths += sorted(argument.rglob("*.slt")) if argument.is_dir() else [argument]
    passed, wrong = 0, []
    with Server() as server:
        for number, path in enumerate(paths):
            content = path.read_text()
            if content.startswith("# Taut only.") or "control substitution on" in content:
                continue
            done, failures = run(server, path, number)
            passed += done
            wrong += failures
    print("\n".join(wrong))
    print(f"{passed} passed, {len(wrong)} failed")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
