"""Runs the SQL logic tests of Taut on DuckDB, which confirms the results that they expect.

    python slt_on_duckdb.py ../sql

Skips records under `onlyif taut` and `skipif duckdb`, and files that start with "# Taut only.". Removes `WITH (...)`
after CREATE TABLE, which DuckDB does not support. Statements that are expected to fail must fail in DuckDB too, with
any message.
"""

import datetime
import decimal
import math
import pathlib
import re
import subprocess
import sys
import tempfile

import duckdb
import numpy


SETTINGS = "set timezone = 'UTC'; set default_null_order = 'nulls_last_on_asc_first_on_desc'"


def text(value, column_type):
    """Writes a value as tests/src/format.rs does."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (bytes, bytearray)):
        return "\\x" + bytes(value).hex()
    if isinstance(value, datetime.datetime):
        zone = "Z" if value.tzinfo else ""
        written = f"{value.year:04}-{value:%m-%d %H:%M:%S}"
        if value.microsecond:
            digits = 3 if value.microsecond % 1000 == 0 else 6
            written += "." + f"{value.microsecond:06}"[:digits]
        return written + zone
    if isinstance(value, datetime.date):
        return f"{value.year:04}-{value:%m-%d}"
    if isinstance(value, float):
        return floating(value, numpy.float32 if column_type == "FLOAT" else float)
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    value = str(value)
    return "(empty)" if value == "" else value.replace("\n", "\\n")


def floating(value, precision):
    """Writes a float as Rust's {:?} does: the shortest digits, and an exponent only if it is very small or large."""
    if math.isnan(value) or math.isinf(value):
        return {"nan": "NaN", "inf": "inf", "-inf": "-inf"}[str(value)]
    if value == 0 or 1e-5 <= abs(value) < 1e16:
        return numpy.format_float_positional(precision(value), trim="0")
    mantissa, exponent = numpy.format_float_scientific(precision(value), trim="-").split("e")
    return f"{mantissa}e{int(exponent)}"


def records(lines):
    """Yields (line number, head words, conditions, sql, expected lines) of each record."""
    conditions, index = [], 0
    while index < len(lines):
        line = lines[index].strip()
        index += 1
        if not line or line.startswith("#"):
            continue
        words = line.split()
        if words[0] in ("skipif", "onlyif"):
            conditions.append((words[0], words[1]))
            continue
        start, body, expected, rest = index, [], [], None
        if words[0] in ("statement", "query", "system"):
            while index < len(lines) and lines[index].strip():
                if lines[index].strip() == "----":
                    rest = expected
                elif rest is None:
                    body.append(lines[index])
                else:
                    rest.append(lines[index])
                index += 1
        yield start, words, conditions, "\n".join(body), expected
        conditions = []


def applies(conditions):
    for kind, label in conditions:
        if (kind == "onlyif") != (label == "duckdb"):
            return False
    return True


def run(path):
    directory = tempfile.mkdtemp(prefix="taut-slt-")
    connection = duckdb.connect(directory + "/d.db")
    connection.execute(SETTINGS)
    wrong, passed, substitution = [], 0, False
    for line, words, conditions, sql, expected in records(path.read_text().split("\n")):
        place = f"{path}:{line}"
        if words[0] == "control":
            substitution = substitution or words[1:] == ["substitution", "on"]
        if words[0] == "system" and applies(conditions):
            subprocess.run(sql.replace("$__TEST_DIR__", directory), shell=True, check=True, executable="/bin/bash")
        if words[0] not in ("statement", "query") or not applies(conditions):
            continue
        if substitution:
            sql = sql.replace("$__TEST_DIR__", directory).replace("${__TEST_DIR__}", directory)
            sql = sql.replace("$LAYOUT", "column").replace("\\\\", "\\")
        if sql.strip().rstrip(";").lower() == "restart":
            connection.close()
            connection = duckdb.connect(directory + "/d.db")
            connection.execute(SETTINGS)
            continue
        sql = re.sub(r"(?is)(create\s+table.*?)\bwith\s*\((?:[^()']|'[^']*')*\)", r"\1", sql, count=1)
        try:
            result = connection.execute(sql)
            rows = result.fetchall()
        except Exception as error:
            if words[1] == "error":
                passed += 1
            else:
                wrong.append(f"{place}: {error}\n  {sql}")
            continue
        if words[1] == "error":
            wrong.append(f"{place}: DuckDB runs what must fail\n  {sql}")
            continue
        passed += 1
        if words[:2] == ["statement", "count"] and [[int(words[2])]] != [list(row) for row in rows]:
            wrong.append(f"{place}: DuckDB counts {rows}\n  {sql}")
        if words[0] != "query":
            continue
        types = [str(column[1]) for column in result.description]
        if len(types) != len(words[1]):
            wrong.append(f"{place}: {len(types)} columns, expected {words[1]}\n  {sql}")
            continue
        actual = [[text(value, kind) for value, kind in zip(row, types)] for row in rows]
        if "rowsort" in words[2:]:
            actual.sort()
        squeeze = lambda row: " ".join(row.split())
        actual = [squeeze(" ".join(squeeze(value) for value in row)) for row in actual]
        if actual != [squeeze(row) for row in expected]:
            wrong.append(f"{place}: {sql}\n  DuckDB   {actual}\n  expected {expected}")
    connection.close()
    return passed, wrong


def main():
    paths = []
    for argument in sys.argv[1:] or [str(pathlib.Path(__file__).parent.parent / "sql")]:
        argument = pathlib.Path(argument)
        paths += sorted(argument.rglob("*.slt")) if argument.is_dir() else [argument]
    passed, wrong = 0, []
    for path in paths:
        if path.read_text().startswith("# Taut only."):
            continue
        done, failures = run(path)
        passed += done
        wrong += failures
    print("\n".join(wrong))
    print(f"{passed} passed, {len(wrong)} failed")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
