"""Runs DuckDB's SQL logic tests (a copy of its folder test/sql) on Taut and on PostgreSQL.

    python duckdb_suite.py duckdb/test/sql [--failures FILE]

Only records for which PostgreSQL returns the answer in DuckDB's file are counted: the two systems agree on them, and
they use no feature that only DuckDB has. Records that fail because Taut does not store a type, such as arrays and
enumerations, are not counted. Prints the number of counted records that pass on Taut, the most frequent errors, and the
results by folder. Files that require extensions, other files or several connections are skipped.
"""

import argparse
import collections
import contextlib
import decimal
import hashlib
import multiprocessing
import pathlib
import re
import sys
import tempfile

import psycopg
import taut

from slt_on_duckdb import text
from slt_on_postgres import Server

# Directives that this runner does not support. A file with one of them is skipped.
MARKERS = ("load", "require-env", "concurrentloop", "unzip", "test-env", "import")
# Requirements that do not skip a file.
ALLOWED_REQUIREMENTS = (
    "vector_size", "skip_reload", "no_alternative_verify", "64bit", "noforcestorage", "notmusl", "notwindows",
    "exact_vector_size", "no_block_verification", "block_size",
)
# A line that reads or writes other files. A test file with such a line is skipped.
FILE_MARKERS = re.compile(r"TEST_DIR|TEMP_DIR|__WORKING_DIRECTORY__|\bdata/")
SECONDS = 20
# Errors of statements that use a type which Taut does not store.
TYPE_ERRORS = re.compile(
    r"^error: (type .* of column .* is not supported|Unsupported SQL type|.*which Taut does not store"
    r"|CREATE TYPE is not supported)"
)
CREATED = re.compile(
    r'create\s+(?:or\s+replace\s+)?(?:temp\w*\s+)?(?:table|view|type)\s+(?:if\s+not\s+exists\s+)?"?(\w+)', re.I
)
ABSENT = re.compile(r'^error: (?:relation|table|view) "(\w+)" does not exist')
# Outcome of a record that fails because Taut does not store a type.
NEEDS_TYPE = "type"


class Skipped(Exception):
    pass


def expand(lines, variables):
    """Replaces loops by their records. Yields (number of the line, line)."""
    index = 0
    while index < len(lines):
        number, line = lines[index]
        words = line.split()
        index += 1
        if words and words[0] in ("loop", "foreach"):
            depth, start = 1, index
            while index < len(lines) and depth:
                head = lines[index][1].split()[:1]
                depth += head in (["loop"], ["foreach"])
                depth -= head == ["endloop"]
                index += 1
            for value in loop_values(words):
                body = lines[start:index - 1]
                yield from expand(body, {**variables, words[1]: value})
            continue
        for name, value in variables.items():
            parts, values = name.split(","), value.split(",")
            for part, text_ in zip(parts, values if len(parts) > 1 else [value]):
                line = line.replace("${" + part + "}", text_).replace("{" + part + "}", text_)
        yield number, line


def loop_values(words):
    if words[0] == "loop":
        return [str(number) for number in range(int(words[2]), int(words[3]))][:20]
    if any(word.startswith("<") for word in words[2:]):
        raise Skipped("foreach over a list of types")
    return words[2:]


def parse(path):
    """Yields (number of the line, head words, sql, expected lines or None) of each record."""
    lines = list(enumerate(path.read_text(errors="replace").split("\n"), 1))
    lines = list(expand(lines, {}))
    index, is_skipped, condition = 0, False, None
    while index < len(lines):
        number, line = lines[index]
        line = line.strip()
        index += 1
        if not line or line.startswith("#"):
            continue
        words = line.split()
        if FILE_MARKERS.search(line):
            raise Skipped("files")
        if words[0] in MARKERS or (words[0] == "require" and words[1] not in ALLOWED_REQUIREMENTS):
            raise Skipped(" ".join(words[:2]))
        if words[0] == "halt":
            return
        if words[0] == "mode":
            is_skipped = {"skip": True, "unskip": False}.get(words[1], is_skipped)
        if words[0] in ("skipif", "onlyif"):
            condition = (words[0], words[1])
            continue
        if words[0] not in ("statement", "query", "restart"):
            condition = None
            continue
        body, expected = [], None
        while index < len(lines) and lines[index][1].strip():
            content = lines[index][1]
            if content.strip() == "----":
                expected = []
            elif expected is None:
                body.append(content)
            else:
                expected.append(content)
            index += 1
        is_used = condition is None or (condition[0] == "onlyif") == (condition[1] == "duckdb")
        condition = None
        if is_used and not is_skipped:
            yield number, words, "\n".join(body), expected


class Taut:
    def __init__(self):
        self.connection = taut.connect(":memory:")
        self.connection.execute(f"SET statement_timeout = '{SECONDS}s'")

    def run(self, sql):
        cursor = self.connection.cursor()
        cursor.execute(sql)
        rows = cursor.fetchall() if cursor.description else []
        return [[text(value, "DOUBLE") for value in row] for row in rows]


class Postgres:
    def __init__(self, server, number):
        self.connection = server.connect("postgres")
        self.connection.execute(f"CREATE DATABASE d{number}")
        self.connection.close()
        self.connection = server.connect(f"d{number}")
        self.connection.execute(f"SET statement_timeout = '{SECONDS}s'")
        self.server, self.number = server, number

    def run(self, sql):
        cursor = self.connection.execute(sql.encode())
        rows = cursor.fetchall() if cursor.description else []
        return [[text(value, "DOUBLE") for value in row] for row in rows]

    def close(self):
        self.connection.close()
        connection = self.server.connect("postgres")
        connection.execute(f"DROP DATABASE d{self.number} WITH (FORCE)")
        connection.close()


def outcome(system, words, sql, expected):
    """Runs a record. Returns "ok" or a description of the failure."""
    try:
        rows = system.run(sql)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        message = str(error).strip().split("\n")[0]
        return "ok" if words[1] == "error" else f"error: {message}"
    if words[1] == "error":
        return "no error"
    if words[0] == "statement" or expected is None:
        return "ok"
    return "ok" if is_expected(rows, words, expected) else f"answer: {rows[:5]} instead of {expected[:5]}"


def is_expected(rows, words, expected):
    columns = len(words[1])
    if rows and len(rows[0]) != columns:
        return False
    hashed = re.fullmatch(r"(\d+) values hashing to (\w+)", expected[0].strip()) if len(expected) == 1 else None
    if hashed:
        values = [value for row in sorted(rows) if "rowsort" in words[2:] for value in row] or \
            [value for row in rows for value in row]
        digest = hashlib.md5("".join(value + "\n" for value in values).encode()).hexdigest()
        return len(values) == int(hashed[1]) and digest == hashed[2]
    # One row per line, or one value per line.
    if len(expected) == len(rows) and (columns == 1 or all(line.count("\t") == columns - 1 for line in expected)):
        wanted = [line.split("\t") for line in expected]
    elif len(expected) == len(rows) * columns:
        wanted = [expected[start:start + columns] for start in range(0, len(expected), columns)]
    else:
        return False
    if "rowsort" in words[2:] or "valuesort" in words[2:]:
        rows, wanted = sorted(rows), sorted(wanted)
    return all(is_equal(value, other) for row, other_row in zip(rows, wanted) for value, other in zip(row, other_row))


def is_equal(found, wanted):
    found, wanted = found.strip(), wanted.strip()
    if found == wanted or (wanted.startswith("<REGEX>:") and re.fullmatch(wanted[8:], found)):
        return True
    booleans = {"true": "1", "false": "0"}
    if booleans.get(found, found) == booleans.get(wanted, wanted):
        return True
    try:
        number, other = decimal.Decimal(found), decimal.Decimal(wanted)
        return abs(number - other) <= abs(other) * decimal.Decimal("1e-6")
    except (decimal.InvalidOperation, decimal.Overflow):
        # A timestamp at midnight equals its date.
        return found.removesuffix(" 00:00:00") == wanted.removesuffix(" 00:00:00")


def without_types(result, sql, absent):
    """Returns NEEDS_TYPE instead of a failure that is due to a type that Taut does not store.

    `absent` collects the tables that do not exist for that reason.
    """
    if TYPE_ERRORS.match(result):
        absent.update(name.lower() for name in CREATED.findall(sql))
        return NEEDS_TYPE
    missing = ABSENT.match(result)
    if missing and missing[1].lower() in absent:
        # A view of such a table does not exist either.
        absent.update(name.lower() for name in CREATED.findall(sql))
        return NEEDS_TYPE
    return result


def run(job):
    """Runs one file. Returns its path, and (place, sql, Taut's outcome) of each record.

    Omits records for which PostgreSQL does not give the expected answer. Returns None instead of records if the file is
    skipped.
    """
    path, number = job
    try:
        records = list(parse(path))
    except (Skipped, ValueError, IndexError):
        return path, None
    if any(len(words) > 2 and words[0] == "statement" for _, words, _, _ in records):
        return path, None
    # Some files create databases in the current directory.
    with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory):
        return path, results_of(records, path, number)


def results_of(records, path, number):
    """Runs the records of one file on both systems. Returns (place, sql, Taut's outcome) of each record."""
    one, other = Taut(), Postgres(SERVER, number)
    results, absent = [], set()
    for line, words, sql, expected in records:
        if words[0] == "restart" or not sql.strip():
            continue
        agrees = outcome(other, words, sql, expected) == "ok"
        mine = without_types(outcome(one, words, sql, expected), sql, absent)
        if agrees:
            results.append((f"{path}:{line}", sql, mine))
    other.close()
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--failures", type=pathlib.Path, help="file for the records that fail")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    arguments.folder = arguments.folder.resolve()
    paths = sorted([*arguments.folder.rglob("*.test"), *arguments.folder.rglob("*.test_slow")])
    global SERVER
    passed, failed, skipped, typed = 0, 0, 0, 0
    reasons, folders, failures = collections.Counter(), collections.defaultdict(lambda: [0, 0]), []
    with Server() as SERVER, multiprocessing.get_context("fork").Pool(arguments.processes, maxtasksperchild=20) as pool:
        jobs = [(path, number) for number, path in enumerate(paths)]
        for path, results in pool.imap_unordered(run, jobs):
            if results is None:
                skipped += 1
                continue
            folder = path.relative_to(arguments.folder).parts[0]
            for place, sql, result in results:
                if result == NEEDS_TYPE:
                    typed += 1
                    continue
                is_passed = result == "ok"
                passed += is_passed
                failed += not is_passed
                folders[folder][not is_passed] += 1
                if not is_passed:
                    reasons[re.sub(r'"[^"]*"|\d+', "_", result)[:100]] += 1
                    failures.append(f"{place}: {result}\n{sql}\n")
    if arguments.failures:
        arguments.failures.write_text("\n".join(failures))
    for reason, count in reasons.most_common(60):
        print(f"{count:6} {reason}")
    for folder, (good, bad) in sorted(folders.items()):
        print(f"{folder:24} {good:6} of {good + bad}")
    share = 100 * passed / max(passed + failed, 1)
    print(f"{passed} of {passed + failed} records pass ({share:.1f} %); {typed} need a type that Taut does not store; "
          f"{skipped} of {len(paths)} files skipped")
    sys.exit(not passed)


if __name__ == "__main__":
    main()
