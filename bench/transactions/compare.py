"""Compares transactions of Taut, SQLite and DuckDB, on the same rows and keys.

    make bench-transactions                                      all parts
    make bench-transactions ROWS=100000 BENCH="--seconds 0.5"    a smoke run of two minutes
    make bench-transactions BENCH="--only sessions,space"        two parts

    single    inserts and updates by key of one session, each statement a durable transaction
    sessions  the same with eight concurrent sessions, which change different keys
    upsert    one statement with 100,000 random keys, half of them in the table
    scans     scans of tables with 1 % of rows updated, by one statement and by 1,000, after VACUUM and VACUUM FULL
    space     bytes of the directory after 90 % of the rows were deleted, compared with a fresh load of the rest
    memory    peak resident memory of an UPDATE of all rows, and of VACUUM after it, limited to 1 GiB

Every part runs in a separate process. In it, the engines take turns, in reverse order in every second repetition. The
directories of all engines are on one file system. Sums and counts are compared after every part. The report lists
failures.
"""

import argparse
import os
import pathlib
import shutil
import sqlite3
import sys
import tempfile
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import common

import batches
import memory
import single
from part import ROWS, SMALL_ROWS, Part, say
from processes import exit_text, file_system, run_in_process
from report import PARTS, text

RUNS = {
    "single": single.single,
    "sessions": single.sessions,
    "upsert": batches.upsert,
    "scans": batches.scans,
    "space": batches.space,
    "memory": memory.memory,
}


def run_part(pipe, name, arguments, directory):
    part = Part(name, arguments, directory, pipe)
    try:
        RUNS[name](part)
        part.close()
    except Exception as error:
        traceback.print_exc()
        part.failed("all", "the part", error)
    # Everything is closed and sent. A normal exit would print a long list of DuckDB objects that Python still holds.
    pipe.close()
    sys.stderr.flush()
    os._exit(0)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=lambda listed: [word.strip() for word in listed.split(",")], default=list(PARTS))
    parser.add_argument("--rows", type=int, help=f"rows of every table; by default {SMALL_ROWS:,} in single and sessions, else {ROWS:,}")
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds of inserts, and of updates, of an engine in a repetition")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds after which a statement is ended, and fails")
    parser.add_argument("--directory", help="directory of the databases; by default a temporary directory")
    parser.add_argument("--name", help="name of the files under bench/results, by default transactions, or transactions-quick")
    arguments = parser.parse_args()
    if unknown := set(arguments.only) - set(PARTS):
        parser.error(f"--only {', '.join(sorted(unknown))}: there are {', '.join(PARTS)}")
    whole = not arguments.rows and arguments.only == list(PARTS)
    arguments.name = arguments.name or ("transactions" if whole else "transactions-quick")
    return arguments


def main():
    import duckdb
    import taut

    arguments = parse()
    threads = common.pin(2)
    directory = tempfile.mkdtemp(prefix="taut-transactions-", dir=arguments.directory)
    kind = file_system(directory)
    if kind[0] in ("tmpfs", "ramfs"):
        os.rmdir(directory)
        sys.exit(f"{directory} is on {kind[0]}, where nothing is durable; choose another --directory")
    facts = {
        "machine": common.machine(threads), "file_system": kind, "parts": arguments.only, "rows": arguments.rows,
        "seconds": arguments.seconds, "repetitions": arguments.repetitions, "sessions": arguments.sessions,
        "versions": {"DuckDB": duckdb.__version__, "SQLite": sqlite3.sqlite_version, "Python": sys.version.split()[0]},
        "taut": taut.__version__, "failures": [], "notes": {}, "cells": [], "part_seconds": {},
    }  # fmt: skip
    cells = {}

    def on_message(message):
        kind, part, *rest = message
        if kind == "figure":
            cell, engine, value, unit = rest
            kept = cells.setdefault((part, cell), {"part": part, "name": cell, "unit": unit, "values": {}})
            kept["values"].setdefault(engine, []).append(value)
        elif kind == "note":
            facts["notes"].setdefault(part, []).append(*rest)
        else:
            facts["failures"].append([part, *rest])

    try:
        for name in arguments.only:
            path = f"{directory}/{name}"
            os.mkdir(path)
            start = time.perf_counter()
            code = run_in_process(on_message, run_part, name, arguments, path)
            facts["part_seconds"][name] = time.perf_counter() - start
            say(f"{name}: {facts['part_seconds'][name]:.0f} s")
            if code:
                facts["failures"].append([name, "all", "the part", exit_text(code)])
            shutil.rmtree(path, ignore_errors=True)
    except KeyboardInterrupt:
        say("ended; what was measured is kept")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    facts["cells"] = list(cells.values())
    common.keep(arguments.name, facts, text(facts))
    sys.exit(bool(facts["failures"]))


if __name__ == "__main__":
    main()
