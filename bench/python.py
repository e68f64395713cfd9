"""Compares the Python packages of Taut and DuckDB: ten million rows of ten integers to Arrow, and a small statement.

Measures how much the memory of Taut grows over many statements, too.

    make bench-python
"""

import argparse
import gc
import os
import sys
import tempfile
import time

import common
import duckdb
import taut

LAYOUTS = ["row", "packed_row", "column"]
SMALL = "select 1"


def seconds(run):
    gc.collect()
    start = time.perf_counter()
    result = run()
    elapsed = time.perf_counter() - start
    del result
    return elapsed


def resident():
    gc.collect()
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def large(con, duck, rows, repetitions):
    """Returns the seconds of each `SELECT *` to an Arrow table, the first run included. The engines take turns."""
    columns = ", ".join(f"(g * {7919 + 13 * c} + {c}) % {10 ** (1 + c % 6)} AS c{c}" for c in range(10))
    duck.execute(f"CREATE TABLE t AS SELECT {columns} FROM range({rows}) AS r(g)")
    relation = duck.sql("SELECT * FROM t")
    for layout in LAYOUTS:
        con.insert(layout, relation, layout=layout)
    runs = {f"Taut, {layout}": lambda layout=layout: con.sql(f"SELECT * FROM {layout}").to_arrow() for layout in LAYOUTS}
    runs["DuckDB"] = lambda: duck.sql("SELECT * FROM t").to_arrow_table()
    times = {name: [] for name in runs}
    for _ in range(repetitions + 1):
        for name, run in runs.items():
            times[name].append(seconds(run))
    return times


def small(con, duck, statements):
    """Returns the seconds of each run of a trivial statement. The engines take turns."""
    times = {"Taut": [], "DuckDB": []}
    for _ in range(statements):
        for name, run in (("Taut", con.sql), ("DuckDB", duck.execute)):
            start = time.perf_counter()
            run(SMALL).fetchone()
            times[name].append(time.perf_counter() - start)
    return times


def growth(con, queries):
    """Returns the growth of resident memory in bytes over `queries` queries, after a warm-up with a tenth as many."""
    con.sql("CREATE TABLE small AS SELECT i, 'text ' || i AS s FROM generate_series(1, 1000) AS g(i)")

    def run(count):
        for number in range(count):
            con.sql(SMALL).fetchone()
            con.sql("SELECT * FROM small WHERE i <= ?", [number % 10]).fetchall()

    run(queries // 20)
    before = resident()
    run(queries // 2)
    return resident() - before


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--statements", type=int, default=3_000)
    parser.add_argument("--queries", type=int, default=10_000)
    arguments = parser.parse_args()
    threads = common.pin()
    with tempfile.TemporaryDirectory(prefix="taut-bench-") as directory:
        con = taut.connect(f"{directory}/database.taut", threads=threads, cache="4GiB", progress=False)
        duck = duckdb.connect(f"{directory}/database.duckdb", config={"threads": threads})
        # First, because the other measurements allocate and free much more memory.
        grown = growth(con, arguments.queries)
        nothing = small(con, duck, arguments.statements)
        arrow = large(con, duck, arguments.rows, arguments.repetitions)
    facts = {
        "machine": common.machine(threads), "rows": arguments.rows, "repetitions": arguments.repetitions,
        "versions": {"duckdb": duckdb.__version__, "python": sys.version.split()[0]},
        "seconds_to_arrow": arrow, "seconds_of_small": nothing, "bytes_grown": grown, "queries": arguments.queries,
    }  # fmt: skip
    base = common.median(arrow["DuckDB"][1:])
    rows = [
        [
            name, common.milliseconds(common.median(times[1:])), f"{common.spread(times[1:]):.0%}",
            f"{common.median(times[1:]) / base:.2f}", common.milliseconds(times[0]),
        ]
        for name, times in arrow.items()
    ]  # fmt: skip
    percentile_99 = lambda times: sorted(times)[int(len(times) * 0.99)]
    overhead = [
        [name, f"{common.median(times) * 1e3:.3f}", f"{percentile_99(times) * 1e3:.3f}"] for name, times in nothing.items()
    ]
    machine = facts["machine"]
    text = "\n\n".join([
        "# The Python package",
        f"{machine['processor']}, {threads} threads, {machine['memory_gib']} GiB, {machine['system']}, commit "
        f"{machine['commit']}, {machine['date']}; DuckDB {duckdb.__version__}, Python {facts['versions']['python']}. "
        "`make bench-python`.",
        f"`SELECT *` of {arguments.rows:,} rows of 10 bigint columns to a table of pyarrow, medians of "
        f"{arguments.repetitions} runs in turns after a first one:",
        common.table(["", "ms", "spread", "/ DuckDB", "first, ms"], rows),
        f"`con.sql(\"{SMALL}\").fetchone()`, {arguments.statements:,} in turns:",
        common.table(["", "median, ms", "99th percentile, ms"], overhead),
        f"Resident memory over {arguments.queries:,} queries: {grown / 2**20:+.1f} MiB.",
    ])  # fmt: skip
    common.keep("python", facts, text)


if __name__ == "__main__":
    main()
