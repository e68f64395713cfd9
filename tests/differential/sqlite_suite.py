"""Runs SQLite's SQL logic tests (a copy of the folder test of github.com/dolthub/sqllogictest) on Taut and PostgreSQL.

    python sqlite_suite.py sqllogictest/test [--sample 200] [--failures FILE]

Runs the files as `postgresql`: omits records under `skipif postgresql` or under `onlyif` of another system. Only
records for which PostgreSQL returns the answer in the file are counted. Prints the number of these that pass on Taut,
the most frequent errors, and the results by folder. Each file runs in a separate process, and each record has a time
limit. The process runs Taut in memory, so a crash affects only the remaining records of its file.

`--sample N` runs at most N queries of each file, evenly spaced, and the statements before them. After the set-up of the
file, it runs at most 2 N records. The sample is the same in every run.
"""

import argparse
import collections
import concurrent.futures
import hashlib
import multiprocessing
import pathlib
import re
import sys

from duckdb_suite import Postgres, Taut
from slt_on_postgres import Server

LABEL = "postgresql"
# Outcome of a record that PostgreSQL does not pass. It is not counted.
NOT_POSTGRES = "not PostgreSQL"


class Record:
    """A statement or query of a file, with its expected result."""

    def __init__(self, place, words, sql, expected):
        self.place, self.sql, self.expected = place, sql, expected
        self.is_query, self.fails = words[0] == "query", words[1] == "error"
        self.kinds = words[1] if self.is_query else ""
        self.sort = words[2] if self.is_query and len(words) > 2 else "nosort"


def parse(path):
    """Yields the records of a file that apply to PostgreSQL. Ignores comments after conditions."""
    conditions = []
    lines = enumerate(path.read_text(errors="replace").split("\n"), 1)
    for number, line in lines:
        words = line.split("#")[0].split()
        if not words:
            continue
        if words[0] in ("skipif", "onlyif"):
            conditions.append((words[0] == "onlyif") == (words[1] == LABEL))
            continue
        applies, conditions = all(conditions), []
        if words[0] == "halt" and applies:
            return
        if words[0] not in ("statement", "query"):
            continue
        body, expected, target = [], [], None
        for _, line in lines:
            if not line.strip():
                break
            if line.strip() == "----":
                target = expected
            else:
                (body if target is None else target).append(line)
        if applies:
            yield Record(f"{path}:{number}", words, "\n".join(body), expected)


def selected(records, count):
    """Returns evenly spaced queries, `count` at most, and the statements around them.

    Omits statements, and the queries after them, once the set-up is followed by more than twice as many records.
    """
    if not count:
        return records
    stride = max(1, -(-sum(record.is_query for record in records) // count))
    position, result, begin = 0, [], None
    for record in records:
        if record.is_query:
            begin = len(result) if begin is None else begin
            position += 1
        if not record.is_query or position % stride == 0:
            result.append(record)
    return result[:(begin or 0) + 2 * count]


def written(value, kind):
    """Writes a value as SQLite's own runner does: three decimals in R columns, whole numbers in I columns."""
    if value == "NULL" or value == "(empty)":
        return value
    value = {"true": "1", "false": "0"}.get(value, value) if kind in "IR" else value
    try:
        if kind == "I":
            return value if re.fullmatch(r"[+-]?\d+", value) else str(int(float(value)))
        if kind == "R":
            return f"{float(value):.3f}"
    except (ValueError, OverflowError):
        pass
    return re.sub(r"[^ -~]", "@", value)


def difference(rows, record):
    """Returns the difference from the expected answer, or "ok"."""
    if rows and len(rows[0]) != len(record.kinds):
        return f"answer: {len(rows[0])} columns instead of {len(record.kinds)}"
    rows = [[written(value, kind) for value, kind in zip(row, record.kinds)] for row in rows]
    if record.sort == "rowsort":
        rows.sort()
    values = [value for row in rows for value in row]
    if record.sort == "valuesort":
        values.sort()
    hashed = re.fullmatch(r"(\d+) values hashing to (\w+)", record.expected[0]) if record.expected else None
    if hashed:
        digest = hashlib.md5("".join(value + "\n" for value in values).encode()).hexdigest()
        is_equal = len(values) == int(hashed[1]) and digest == hashed[2]
    else:
        is_equal = values == record.expected
    return "ok" if is_equal else f"answer: {values[:6]} instead of {record.expected[:6]}"


def outcome(system, record):
    """Runs a record. Returns "ok" or a description of the failure."""
    try:
        rows = system.run(record.sql)
    except Exception as error:
        return "ok" if record.fails else f"error: {str(error).strip().splitlines()[0]}"
    if record.fails:
        return "no error"
    return difference(rows, record) if record.is_query else "ok"


def run_file(server, path, number, sample, results):
    """Sends (place, sql, Taut's outcome) of each record, then None.

    Sends a record that begins as (place, sql, None) first, so that the parent knows which one ended the process.
    """
    one, other = Taut(), Postgres(server, number)
    for record in selected(list(parse(path)), sample):
        if outcome(other, record) != "ok":
            # Runs a statement on Taut too, so that its database has the same content.
            if not record.is_query:
                outcome(one, record)
            results.send((record.place, record.sql, NOT_POSTGRES))
            continue
        results.send((record.place, record.sql, None))
        results.send((record.place, record.sql, outcome(one, record)))
    other.close()
    results.send(None)


def outcomes(server, path, number, sample):
    """Runs a file in a separate process. Returns its outcomes."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=run_file, args=(server, path, number, sample, sender))
    process.start()
    sender.close()
    results, begun = [], None
    try:
        while (message := receiver.recv()) is not None:
            begun = message
            if message[2] is not None:
                results.append(message)
    except EOFError:
        process.join()
        results.append((*(begun or (str(path), ""))[:2], f"error: the process ended with {process.exitcode}"))
    process.join()
    return results


def report(folder, results, failures):
    """Prints the most frequent errors and the results by folder. Returns whether all records pass."""
    reasons, folders, failed = collections.Counter(), collections.defaultdict(lambda: [0, 0]), []
    records = len(results)
    results = [result for result in results if result[2] != NOT_POSTGRES]
    for place, sql, result in results:
        is_passed = result == "ok"
        path = pathlib.Path(place.rsplit(":", 1)[0]).relative_to(folder)
        folders["/".join(path.parts[:-1][:2]) or path.name][not is_passed] += 1
        if not is_passed:
            reasons[re.sub(r'"[^"]*"|\'[^\']*\'|\d+', "_", result)[:100]] += 1
            failed.append(f"{place}: {result}\n{sql}\n")
    if failures:
        failures.write_text("\n".join(failed))
    for reason, count in reasons.most_common(60):
        print(f"{count:8} {reason}")
    for name, (good, bad) in sorted(folders.items()):
        print(f"{name:32} {good:8} of {good + bad}")
    passed = len(results) - len(failed)
    print(f"PostgreSQL passes {len(results)} of {records} records")
    print(f"Taut passes {passed} of {len(results)} of these ({100 * passed / max(len(results), 1):.3f} %)")
    return not failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--sample", type=int, default=0, help="queries of each file; all by default")
    parser.add_argument("--failures", type=pathlib.Path, help="file for the records that fail")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    paths = sorted(arguments.folder.rglob("*.test"))
    with Server() as server, concurrent.futures.ThreadPoolExecutor(arguments.processes) as pool:
        runs = [pool.submit(outcomes, server, path, number, arguments.sample) for number, path in enumerate(paths)]
        results = [result for run in runs for result in run.result()]
    sys.exit(not report(arguments.folder, results, arguments.failures))


if __name__ == "__main__":
    main()
