"""Compares queries of three columns in a table of 500 columns and in a table of only these three.

    make bench-width

Both should take the same time, because the layouts store the three columns separately from the others.
"""

import argparse
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import common

from taut_process import Taut, binary

QUERIES = [
    "SELECT sum(c1), min(c2) FROM {} WHERE c0 < 5000",
    "SELECT c0 % 10 AS k, sum(c1), max(c2) FROM {} GROUP BY 1",
    "SELECT c0, c1, c2 FROM {} WHERE c0 = 77",
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--columns", type=int, default=500)
    parser.add_argument("--repetitions", type=int, default=41)
    arguments = parser.parse_args()
    threads = common.pin(2)
    many = ", ".join(f"(i * {7 + ordinal} + {ordinal}) % {10_000 + ordinal} AS c{ordinal}" for ordinal in range(arguments.columns))
    rest = ", ".join(f"c{ordinal}" for ordinal in range(3, arguments.columns))
    designs = {
        "column": ("layout = 'column'", "layout = 'column'"),
        "groups": (f"layout = 'groups', groups = '(c0, c1, c2), ({rest})'", "layout = 'groups', groups = '(c0, c1, c2)'"),
    }
    results, rows = {}, []
    with tempfile.TemporaryDirectory(prefix="taut-width-") as directory, Taut(f"{directory}/database", binary("release"), threads=threads) as taut:
        for name, (wide, narrow) in designs.items():
            taut.run(f"CREATE TABLE wide_{name} WITH ({wide}) AS SELECT {many} FROM generate_series(1, {arguments.rows}) AS g(i)")
            taut.run(f"CREATE TABLE narrow_{name} WITH ({narrow}) AS SELECT c0, c1, c2 FROM wide_{name}")
            for number, query in enumerate(QUERIES):
                assert sorted(map(str, taut.run(query.format(f"wide_{name}")))) == sorted(map(str, taut.run(query.format(f"narrow_{name}"))))
                times = {"wide": [], "narrow": []}
                for repetition in range(arguments.repetitions):
                    for width in ["wide", "narrow"] if repetition % 2 else ["narrow", "wide"]:
                        taut.run(query.format(f"{width}_{name}"))
                        times[width].append(taut.seconds)
                wide_time, narrow_time = common.median(times["wide"]), common.median(times["narrow"])
                results[f"{name} {number}"] = times
                rows.append([f"{name}: `{query.format('t')}`", common.milliseconds(narrow_time), common.milliseconds(wide_time), f"{wide_time / narrow_time:.3f}"])
    about = common.machine(threads)
    text = (
        f"# Queries of three columns in tables with 3 and {arguments.columns} columns, {arguments.rows:,} rows\n\n{about['processor']}, {threads} threads; Taut {about['commit']}; {about['date']}. "
        f"Medians of {arguments.repetitions} repetitions in turns, whole statements.\n\n"
        + common.table(["layout and query", "3 columns, ms", f"{arguments.columns} columns, ms", "ratio"], rows)
    )
    common.keep("width", {"machine": about, "seconds": results}, text)


if __name__ == "__main__":
    main()
