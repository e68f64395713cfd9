"""Measures how soon statements end after Ctrl-C.

    make bench-cancel SCALE=10

Each statement runs for a second in a separate process, on TPC-H in layout `column`. Then the process gets SIGINT. Two
times are measured from the signal: until the process prints the error, when a session could run its next statement, and
until the process has ended, which includes returning its memory to the system.
"""

import argparse
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import common

from taut_process import binary
from tpch import TABLES, data, design

STATEMENTS = {
    "hash join with a residual": "SELECT count(*) FROM lineitem a JOIN lineitem b ON a.l_suppkey = b.l_suppkey AND a.l_tax < b.l_tax",
    "hash join of expressions": "SELECT sum(a.l_orderkey + b.l_partkey) FROM lineitem a JOIN lineitem b "
    "ON a.l_orderkey % 10 = b.l_orderkey % 10",
    "nested loop join": "SELECT count(*) FROM lineitem a, orders b WHERE a.l_orderkey < b.o_orderkey AND a.l_comment < b.o_comment",
    "cross join": "SELECT count(*), max(a.l_comment || b.l_comment) FROM lineitem a, lineitem b",
    "full join": "SELECT count(*) FROM lineitem a FULL JOIN lineitem b ON a.l_suppkey = b.l_suppkey AND a.l_tax < b.l_tax",
    "anti join, NOT IN": "SELECT count(*) FROM lineitem WHERE l_comment NOT IN "
    "(SELECT o_comment || l_comment FROM orders, lineitem WHERE o_orderkey % 3 = l_orderkey % 7)",
    "semi join, EXISTS": "SELECT count(*) FROM lineitem a WHERE EXISTS "
    "(SELECT 1 FROM lineitem b WHERE b.l_suppkey = a.l_suppkey AND b.l_tax < a.l_tax - 1)",
    "sort": "SELECT * FROM lineitem, region ORDER BY l_comment, l_shipdate, r_name",
    "ORDER BY with LIMIT": "SELECT a.l_comment || b.r_name || c.n_name AS x FROM lineitem a, region b, nation c ORDER BY x LIMIT 10",
    "window with a frame": "SELECT sum(x) FROM (SELECT sum(l_tax) OVER (PARTITION BY l_suppkey ORDER BY l_comment "
    "ROWS BETWEEN 5000 PRECEDING AND CURRENT ROW) AS x FROM lineitem)",
    "window of one partition": "SELECT max(x) FROM (SELECT rank() OVER (ORDER BY l_comment, l_shipdate) AS x FROM lineitem, region)",
    "aggregation": "SELECT count(*) FROM (SELECT l_comment, l_shipdate, r_name, count(*) FROM lineitem, region GROUP BY 1, 2, 3)",
    "count(DISTINCT)": "SELECT count(DISTINCT l_comment || r_name) FROM lineitem, region",
    "string_agg": "SELECT length(string_agg(l_comment || r_name, ',')) FROM lineitem, region",
    "median": "SELECT median(l_extendedprice + r_regionkey) FROM lineitem, region, nation",
    "generate_series": "SELECT count(*) FROM generate_series(1, 1000000) a(i), generate_series(1, 1000000) b(i) WHERE a.i + b.i < 0",
    "WITH RECURSIVE": "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < 100000000) SELECT count(*) FROM r",
    "SIMILAR TO": "SELECT count(*) FROM lineitem, nation WHERE l_comment || n_comment SIMILAR TO '%(a|b|c)*z{3}q%'",
    "INTERSECT": "SELECT count(*) FROM (SELECT l_comment, r_name FROM lineitem, region INTERSECT "
    "SELECT l_comment, r_name FROM lineitem, region)",
    "planning of 6,000 SELECTs": " UNION ALL ".join(f"SELECT {i} AS a, {i} AS b FROM nation" for i in range(6000)),
    "COPY TO CSV": "COPY (SELECT * FROM lineitem, region) TO '{directory}/out.csv'",
    "COPY TO Parquet": "COPY (SELECT * FROM lineitem, region) TO '{directory}/out.parquet'",
    "CREATE TABLE AS": "CREATE TABLE copied AS SELECT * FROM lineitem, region",
    "INSERT": "INSERT INTO lineitem SELECT * FROM lineitem UNION ALL SELECT * FROM lineitem",
    "UPDATE": "UPDATE lineitem SET l_comment = l_comment || 'x'",
    "DELETE": "DELETE FROM lineitem WHERE l_comment NOT LIKE '%zz%'",
    "MERGE": "MERGE INTO lineitem t USING (SELECT * FROM lineitem) s ON t.l_orderkey = s.l_orderkey "
    "AND t.l_linenumber = s.l_linenumber WHEN MATCHED THEN UPDATE SET l_tax = 0",
    "ALTER TABLE SET": "ALTER TABLE lineitem SET (layout = 'packed_row')",
    "VACUUM FULL": "VACUUM FULL",
    "CREATE INDEX": "CREATE INDEX IF NOT EXISTS by_comment ON lineitem USING csb (l_comment, l_shipdate)",
}
SECONDS_BEFORE = 1.0
SECONDS_MAX = 60


def interrupt(database, sql, arguments):
    """Interrupts a statement. Returns the seconds until its error and until the end of its process.

    The benchmark fails if the statement ends before it is interrupted.
    """
    # A file, because a statement may be too long for a command-line argument.
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(sql)
        script.flush()
        command = [binary("release"), "sql", database, "--threads", str(arguments.threads), f"--file={script.name}"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(SECONDS_BEFORE)
        if process.poll() is not None:
            raise SystemExit(f"ended before it was interrupted: {sql[:200]}\n{process.stderr.read().decode()[-500:]}")
        start = time.perf_counter()
        process.send_signal(signal.SIGINT)
        error = process.stderr.readline()
        printed = time.perf_counter() - start
        process.communicate(timeout=SECONDS_MAX)
        if b"interrupted" not in error:
            raise SystemExit(f"not interrupted: {sql[:200]}\n{error.decode()}")
        return printed, time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--name", help="name of the files under bench/results")
    parser.add_argument("--directory", help="directory of the database; by default a temporary directory")
    arguments = parser.parse_args()
    common.pin(2)
    files = data(arguments.scale, "release")
    with tempfile.TemporaryDirectory(prefix="taut-bench-", dir=arguments.directory) as directory:
        database = f"{directory}/column.taut"
        for table in TABLES:
            source = f"CREATE TABLE {table} WITH ({design('column', table)}) AS SELECT * FROM '{files}/{table}.parquet'"
            subprocess.run([binary("release"), "sql", database, "-c", source], check=True, stdout=subprocess.DEVNULL)
        found = {}
        for name, sql in STATEMENTS.items():
            runs = [interrupt(database, sql.replace("{directory}", directory), arguments) for _ in range(arguments.repetitions)]
            found[name] = {"error": [error for error, _ in runs], "end": [end for _, end in runs]}
            print(f"{name}: {[round(error * 1e3) for error, _ in runs]} ms", file=sys.stderr)
    facts = {"machine": common.machine(arguments.threads), "scale": arguments.scale, "statements": found}
    common.keep(arguments.name or f"cancel-sf{arguments.scale:g}", facts, report(facts))


def report(facts):
    about, statements = facts["machine"], facts["statements"]
    worst = max(statements, key=lambda name: max(statements[name]["error"]))
    rows = [
        [name, *(f"{of(times[what]) * 1e3:.0f}" for what in ("error", "end") for of in (common.median, max))]
        for name, times in statements.items()
    ]
    return (
        f"# Time from Ctrl-C to the end of a statement, TPC-H at scale factor {facts['scale']:g}\n\n"
        f"{about['processor']}, {about['threads']} threads, {about['memory_gib']} GiB, {about['system']}; Taut {about['commit']}; "
        f"{about['date']}.\n\n"
        f"{len(next(iter(statements.values()))['error'])} runs each. The slowest error is that of **{worst}**, after "
        f"{max(statements[worst]['error']) * 1e3:.0f} ms. After the error, the process returns up to "
        f"half of the machine's memory to the system, and ends.\n\n"
        + common.table(["statement", "error, median ms", "error, maximum ms", "process ended, median ms", "process ended, maximum ms"], rows)
    )


if __name__ == "__main__":
    main()
