"""Measures resident memory and time of each TPC-H query under a memory limit.

    make bench-tpch-memory SCALE=10

Each query runs in a separate process, on a database in layout `column`, with `--memory` and otherwise default settings.
Its memory is the peak resident memory of that process, minus the peak of a process that runs `SELECT 1`. Two joins of
whole tables, which do not fit in the limit, follow the 22 queries.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import common

from taut_process import binary
from tpch import QUERIES, TABLES, data, design

JOINS = {
    "lineitem, orders": "SELECT count(*), max(o_totalprice + l_extendedprice) FROM lineitem JOIN orders ON l_orderkey = o_orderkey",
    "lineitem, itself": "SELECT count(*), max(a.l_tax + b.l_discount) FROM lineitem a JOIN lineitem b "
    "ON a.l_orderkey = b.l_orderkey AND a.l_linenumber = b.l_linenumber",
}


def run(database, sql, arguments):
    """Runs a statement. Returns seconds, peak resident bytes, and the last line of the error if it failed."""
    command = [binary("release"), "sql", database, "--threads", str(arguments.threads), "--memory", arguments.memory, f"--command={sql}"]
    start = time.perf_counter()
    with tempfile.TemporaryFile() as stderr_file:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr_file)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        stderr_file.seek(0)
        error = stderr_file.read().decode().strip().split("\n")[-1] if process.returncode else ""
    return seconds, usage.ru_maxrss * 1024, error


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", default="1GiB")
    parser.add_argument("--name", help="name of the files under bench/results")
    parser.add_argument("--directory", help="directory of the database; by default a temporary directory")
    arguments = parser.parse_args()
    arguments.threads = common.pin(arguments.threads)
    files = data(arguments.scale, "release")
    with tempfile.TemporaryDirectory(prefix="taut-bench-", dir=arguments.directory) as directory:
        database = f"{directory}/column.taut"
        for table in TABLES:
            source = f"CREATE TABLE {table} WITH ({design('column', table)}) AS SELECT * FROM '{files}/{table}.parquet'"
            subprocess.run([binary("release"), "sql", database, "-c", source], check=True, stdout=subprocess.DEVNULL)
        _, idle, _ = run(database, "SELECT 1", arguments)
        queries = {path.stem: path.read_text() for path in QUERIES} | JOINS
        found = {}
        for name, sql in queries.items():
            seconds, resident, error = run(database, sql, arguments)
            found[name] = {"seconds": seconds, "bytes": resident - idle, "error": error}
            print(f"{name}: {(resident - idle) / 2**20:.0f} MiB, {seconds:.2f} s {error}", file=sys.stderr)
    facts = {
        "machine": common.machine(arguments.threads),
        "scale": arguments.scale,
        "memory": arguments.memory,
        "idle_bytes": idle,
        "queries": found,
    }
    common.keep(arguments.name or f"tpch-memory-sf{arguments.scale:g}", facts, report(facts))
    sys.exit(any(query["error"] for query in found.values()))


def report(facts):
    about, queries = facts["machine"], facts["queries"]
    worst = max((name for name in queries if name not in JOINS), key=lambda name: queries[name]["bytes"])
    rows = [
        [name, f"{query['bytes'] / 2**20:.0f}", query["error"] or f"{query['seconds']:.2f}"] for name, query in queries.items()
    ]
    return (
        f"# TPC-H at scale factor {facts['scale']:g} with --memory {facts['memory']}\n\n"
        f"{about['processor']}, {about['threads']} threads, {about['memory_gib']} GiB, {about['system']}; Taut {about['commit']}; "
        f"{about['date']}.\n\n"
        f"Peak resident memory of each query's process, beyond the {facts['idle_bytes'] / 2**20:.0f} MiB of SELECT 1, the "
        f"cache of blocks included; one run each. Of the 22 queries **{worst}** has the highest peak: "
        f"{queries[worst]['bytes'] / 2**20:.0f} MiB.\n\n" + common.table(["query", "MiB", "s"], rows)
    )


if __name__ == "__main__":
    main()
