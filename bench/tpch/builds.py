"""Compares two builds of the command in TPC-H, in alternating runs.

    make bench-builds OLD=/path/to/taut SCALE=1

One build, then the other, opens the same database and runs the 22 queries twice; the second run counts. In the next
repetition the order is reversed. A ratio is the time of the new build by that of the old one in the same repetition.
Its median has a confidence interval of at least 95 %, from the order statistics of the ratios.
"""

import argparse
import math
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import common

from taut_process import Taut, binary
from tpch import QUERIES, TABLES, data, design


def interval(ratios):
    """Returns the narrowest symmetric pair of order statistics that covers the median with 95 % probability."""
    ordered, count = sorted(ratios), len(ratios)
    tail, rank = 0.0, 0
    while tail + math.comb(count, rank) / 2**count <= 0.025:
        tail += math.comb(count, rank) / 2**count
        rank += 1
    return ordered[max(rank - 1, 0)], ordered[count - max(rank, 1)]


def timed(program, directory, threads):
    """Returns the seconds of each query in a process of its own. The first run of each is not counted."""
    with Taut(directory, program, threads=threads) as process:
        for path in QUERIES:
            process.run(path.read_text())
        seconds = {}
        for path in QUERIES:
            process.run(path.read_text())
            seconds[path.stem] = process.seconds
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=pathlib.Path, help="path of the other build of the command")
    parser.add_argument("--new", type=pathlib.Path, default=binary("release"), help="by default the release build")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--name", default="tpch-builds", help="name of the files under bench/results")
    arguments = parser.parse_args()
    threads = common.pin(arguments.threads)
    files = data(arguments.scale, "release")
    seconds = {name: {path.stem: [] for path in QUERIES} for name in ("old", "new")}
    builds = {"old": arguments.old, "new": arguments.new}
    with tempfile.TemporaryDirectory(prefix="taut-bench-") as directory:
        database = f"{directory}/tpch.taut"
        with Taut(database, arguments.new, threads=threads) as process:
            for table in TABLES:
                columns = design("column", table)
                process.run(f"CREATE TABLE {table} WITH ({columns}) AS SELECT * FROM '{files}/{table}.parquet'")
        for repetition in range(arguments.repetitions):
            for name in builds if repetition % 2 == 0 else reversed(builds):
                for query, time in timed(builds[name], database, threads).items():
                    seconds[name][query].append(time)
    old, new = (
        {"all": [sum(times) for times in zip(*seconds[name].values())]} | seconds[name] for name in ("old", "new")
    )
    rows, facts = [], {"machine": common.machine(threads), "scale": arguments.scale, "seconds": seconds, "ratios": {}}
    for query in old:
        ratios = [mine / other for mine, other in zip(new[query], old[query])]
        low, high = interval(ratios)
        facts["ratios"][query] = {"median": common.median(ratios), "interval": [low, high]}
        times = [common.milliseconds(common.median(build[query])) for build in (old, new)]
        rows.append([query, *times, f"{common.median(ratios):.3f}", f"{low:.3f} to {high:.3f}"])
    about = facts["machine"]
    text = (
        f"# TPC-H at scale {arguments.scale:g}: two builds\n\nMilliseconds, medians of {arguments.repetitions} runs in "
        f"turns. {about['threads']} threads, {about['processor']}, {about['memory_gib']} GiB, {about['commit']}, "
        f"{about['date']}.\n\n" + common.table(["query", "old", "new", "ratio", "95 %"], rows)
    )
    common.keep(arguments.name, facts, text)


if __name__ == "__main__":
    main()
