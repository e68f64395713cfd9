"""Measures lookups of a whole row of TPC-H lineitem by key, in every layout of Taut and in DuckDB.

    make bench-lookup SCALE=1

The table is sorted by its key. Measures two durations per layout: the execution without planning, from EXPLAIN ANALYZE
VERBOSE, and the whole statement. Keys are random and the same for all layouts. Each key is looked up once before the
measurement.
"""

import argparse
import pathlib
import random
import re
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import common
import duckdb

from answers import difference
from taut_process import Taut, binary
from tpch import GROUPS, LAYOUTS, data

UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
SQL = "SELECT * FROM lineitem{} WHERE l_orderkey = {} AND l_linenumber = {}"


def execution(rows):
    """Returns the seconds of the execution without planning, from the rows of EXPLAIN ANALYZE VERBOSE."""
    for kind, text in rows:
        if kind == "Duration":
            number, unit = re.fullmatch(r"([\d.]+)(ns|µs|ms|s)", text.strip()).groups()
            return float(number) * UNITS[unit]
    raise ValueError(f"EXPLAIN ANALYZE VERBOSE tells no duration: {rows}")


def counter(rows, name):
    """Returns the sum of a counter over all scans, from the plan with metrics."""
    return sum(int(value) for _, text in rows[:1] for value in re.findall(rf"\b{name}=(\d+)\b", text))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--keys", type=int, default=200)
    arguments = parser.parse_args()
    threads = common.pin(2)
    files = data(arguments.scale, "release")
    rng = random.Random(7)
    duck = duckdb.connect()
    duck.execute(f"SET threads = {threads}")
    duck.execute(f"CREATE TABLE lineitem AS SELECT * FROM '{files}/lineitem.parquet' ORDER BY l_orderkey, l_linenumber")
    keys = duck.execute("SELECT l_orderkey, l_linenumber FROM lineitem").fetchall()
    keys = rng.sample(keys, arguments.keys)
    results, wrong = {}, 0
    with tempfile.TemporaryDirectory(prefix="taut-lookup-") as directory:
        taut = Taut(f"{directory}/database", binary("release"), threads=threads)
        for layout in LAYOUTS:
            groups = f", groups = '{GROUPS['lineitem']}'" if layout == "groups" else ""
            taut.run(
                f"CREATE TABLE lineitem_{layout} WITH (layout = '{layout}', sort_by = 'l_orderkey, l_linenumber'{groups}) "
                f"AS SELECT * FROM '{files}/lineitem.parquet'"
            )
            executed, whole, pages = [], [], []
            for order, line in keys:
                sql = SQL.format(f"_{layout}", order, line)
                why = difference(taut.run(sql), duck.execute(SQL.format("", order, line)).fetchall())
                if why:
                    wrong += 1
                    print(f"{layout}: {sql}: {why}", file=sys.stderr)
            for order, line in keys:
                sql = SQL.format(f"_{layout}", order, line)
                taut.run(sql)
                whole.append(taut.seconds)
                rows = taut.run(f"EXPLAIN ANALYZE VERBOSE {sql}")
                executed.append(execution(rows))
                pages.append(counter(rows, "pages_read"))
            results[layout] = {"execution": executed, "statement": whole, "pages": pages}
        taut.close()
    whole = []
    for order, line in keys:
        start = time.perf_counter()
        duck.execute(SQL.format("", order, line)).fetchall()
        whole.append(time.perf_counter() - start)
    at_99 = lambda values: sorted(values)[int(len(values) * 0.99)]
    rows = [
        [layout, common.milliseconds(common.median(one["execution"])), common.milliseconds(at_99(one["execution"])),
         common.milliseconds(common.median(one["statement"])), f"{max(one['pages'])}"]
        for layout, one in results.items()
    ]
    rows.append(["DuckDB, sorted by the key", "", "", common.milliseconds(common.median(whole)), ""])
    about = common.machine(threads)
    text = (
        f"# One whole row by key, lineitem at scale factor {arguments.scale:g}\n\n{about['processor']}, {threads} threads; "
        f"Taut {about['commit']}; {about['date']}. {len(keys)} random keys, all in the cache. "
        "An execution has no planning, a statement has. Medians, and the 99th percentile of executions.\n\n"
        + common.table(["layout", "execution, ms", "99th percentile", "statement, ms", "pages read, at most"], rows)
    )
    common.keep("lookup", {"machine": about, "wrong_answers": wrong, "seconds": results, "duckdb": whole}, text)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
