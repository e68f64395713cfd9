"""Compares Taut, DataFusion and DuckDB in TPC-H, with the same files, processors and answers.

    make bench-tpch SCALE=1

Loads the eight tables into each layout of Taut and into a DuckDB file, checks all 22 answers of every layout against
DuckDB's, then runs the queries in turns: every engine runs a query before the next query begins. Each engine has one
process for all queries. The time of a query includes parsing and reading the last row.

At scale factors above 5, files and results compete for the memory of a workstation. Taut then has one layout,
DataFusion is left out, tables are loaded once, and each query runs three times.
"""

import argparse
import pathlib
import shutil
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import common
import datafusion
import duckdb
import pyarrow
import pyarrow.parquet

from answers import difference
from taut_process import Taut, binary
from tpch import LAYOUTS, ORDERED, QUERIES, TABLES, data, design


class TautEngine:
    def __init__(self, layout, directory, threads):
        self.name, self.layout, self.directory = f"Taut {layout}", layout, directory
        self.process = Taut(f"{directory}/{layout}.taut", binary("release"), threads=threads)

    def load(self, files):
        """Loads the tables and returns the seconds of each."""
        seconds = {}
        for table in TABLES:
            self.process.run(
                f"CREATE TABLE {table} WITH ({design(self.layout, table)}) AS SELECT * FROM '{files}/{table}.parquet'"
            )
            seconds[table] = self.process.seconds
        return seconds

    def run(self, sql):
        return self.process.run(sql)

    def timed(self, sql):
        self.process.run(sql)
        return self.process.seconds

    def bytes(self):
        return sum(path.stat().st_size for path in pathlib.Path(f"{self.directory}/{self.layout}.taut").rglob("*") if path.is_file())

    def close(self):
        self.process.close()


class DuckEngine:
    name = "DuckDB file"

    def __init__(self, directory, threads):
        self.path = f"{directory}/duck.db"
        self.connection = duckdb.connect(self.path)
        self.connection.execute(f"SET threads = {threads}; SET TimeZone = 'UTC'")

    def load(self, files):
        seconds = {}
        for table in TABLES:
            start = time.perf_counter()
            self.connection.execute(f"CREATE TABLE {table} AS SELECT * FROM '{files}/{table}.parquet'")
            seconds[table] = time.perf_counter() - start
        return seconds

    def run(self, sql):
        return self.connection.execute(sql).fetchall()

    def timed(self, sql):
        start = time.perf_counter()
        self.run(sql)
        return time.perf_counter() - start

    def bytes(self):
        self.connection.execute("CHECKPOINT")
        return pathlib.Path(self.path).stat().st_size

    def close(self):
        self.connection.close()


class DataFusionEngine:
    def __init__(self, files, threads, in_memory):
        self.name = "DataFusion memory" if in_memory else "DataFusion Parquet"
        config = datafusion.SessionConfig().with_target_partitions(threads)
        # Literals are decimals, as in SQL: 0.06 + 0.01 is exactly 0.07.
        config = config.set("datafusion.sql_parser.parse_float_as_decimal", "true")
        self.context = datafusion.SessionContext(config)
        for table in TABLES:
            path = f"{files}/{table}.parquet"
            if in_memory:
                batches = pyarrow.parquet.read_table(path).to_batches(max_chunksize=8192)
                parts = [batches[part::threads] for part in range(threads)]
                self.context.register_record_batches(table, [part for part in parts if part])
            else:
                self.context.register_parquet(table, path)

    def run(self, sql):
        batches = self.context.sql(sql).collect()
        return [row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns))]

    def timed(self, sql):
        start = time.perf_counter()
        self.context.sql(sql).collect()
        return time.perf_counter() - start

    def close(self):
        pass


def check(engine, expected):
    """Compares the rows of every query with DuckDB's. Returns the number of queries that differ."""
    wrong = 0
    for path, rows in expected.items():
        why = difference(engine.run(path.read_text()), rows, int(path.stem[1:]) in ORDERED)
        if why:
            wrong += 1
            print(f"{engine.name}, {path.stem}: {why}", file=sys.stderr)
    return wrong


# Greatest scale factor of a full run. Runs above it are reduced, as the docstring of this module describes.
LARGE = 5


def loads(arguments, layouts, files, directory, threads):
    """Loads all engines repeatedly. Returns the times, and the engines of the last load."""
    times, engines = {}, {}
    for repetition in range(arguments.load_repetitions):
        for name in [*layouts, "DuckDB"]:
            engine_directory = f"{directory}/load-{repetition}-{name}"
            pathlib.Path(engine_directory).mkdir()
            engine = DuckEngine(engine_directory, threads) if name == "DuckDB" else TautEngine(name, engine_directory, threads)
            times.setdefault(engine.name, []).append(engine.load(files))
            print(f"loaded {engine.name} in {sum(times[engine.name][-1].values()):.2f} s", file=sys.stderr)
            if name in engines:
                engines[name].close()
                shutil.rmtree(f"{directory}/load-{repetition - 1}-{name}")
            engines[name] = engine
    return times, engines


def file_bytes(files, directory):
    """Returns the bytes of the Parquet files, unchanged and rewritten with zstd and the same row groups."""
    sizes = {"Parquet files": 0, "Parquet files, zstd": 0}
    for table in TABLES:
        source, packed = pyarrow.parquet.ParquetFile(f"{files}/{table}.parquet"), pathlib.Path(directory) / "packed.parquet"
        with pyarrow.parquet.ParquetWriter(packed, source.schema_arrow, compression="zstd") as writer:
            for group in range(source.num_row_groups):
                writer.write_table(source.read_row_group(group))
        sizes["Parquet files"] += pathlib.Path(f"{files}/{table}.parquet").stat().st_size
        sizes["Parquet files, zstd"] += packed.stat().st_size
        packed.unlink()
    return sizes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repetitions", type=int, help="runs of the queries; 5 by default, 3 at large scales")
    parser.add_argument("--load-repetitions", type=int, help="runs of the loads; 3 by default, 1 at large scales")
    parser.add_argument("--all-layouts", action="store_true", help="time the queries in every layout, not in column alone")
    parser.add_argument("--name", help="name of the files under bench/results")
    parser.add_argument("--directory", help="directory of the databases; by default a temporary directory")
    arguments = parser.parse_args()
    is_large = arguments.scale > LARGE
    arguments.repetitions = arguments.repetitions or (3 if is_large else 5)
    arguments.load_repetitions = arguments.load_repetitions or (1 if is_large else 3)
    layouts = ["column"] if is_large and not arguments.all_layouts else LAYOUTS
    threads = common.pin(arguments.threads)
    files = data(arguments.scale, "release")
    # Brings the files into the page cache.
    for path in files.glob("*.parquet"):
        path.read_bytes()
    with tempfile.TemporaryDirectory(prefix="taut-bench-", dir=arguments.directory) as directory:
        load_times, loaded = loads(arguments, layouts, files, directory, threads)
        duck = loaded["DuckDB"]
        expected = {path: duck.run(path.read_text()) for path in QUERIES}
        wrong = sum(check(loaded[layout], expected) for layout in layouts)
        timed = [loaded[layout] for layout in (layouts if arguments.all_layouts else ["column"])]
        if not is_large:
            timed += [DataFusionEngine(files, threads, False), DataFusionEngine(files, threads, True)]
        wrong += sum(check(engine, expected) for engine in timed if isinstance(engine, DataFusionEngine))
        timed.append(duck)
        sizes = {engine.name: engine.bytes() for engine in loaded.values()}
        if not is_large:
            sizes |= file_bytes(files, directory)
        times = measure(timed, arguments.repetitions)
        for engine in [*loaded.values(), *timed]:
            engine.close()
    facts = {
        "machine": common.machine(threads),
        "versions": {"datafusion": datafusion.__version__, "duckdb": duckdb.__version__},
        "scale": arguments.scale,
        "wrong_answers": wrong,
        "load_seconds": load_times,
        "bytes": sizes,
        "query_seconds": times,
    }
    common.keep(arguments.name or f"tpch-sf{arguments.scale:g}", facts, report(facts))
    sys.exit(bool(wrong))


def measure(engines, repetitions):
    times = {engine.name: {path.stem: [] for path in QUERIES} for engine in engines}
    for repetition in range(repetitions):
        for path in QUERIES:
            sql = path.read_text()
            # The order alternates, so that each engine is first and last equally often.
            for engine in engines if repetition % 2 == 0 else reversed(engines):
                times[engine.name][path.stem].append(engine.timed(sql))
        print(f"repetition {repetition + 1} of {repetitions}", file=sys.stderr)
    return times


def report(facts):
    times, about = facts["query_seconds"], facts["machine"]
    names = list(times)
    taut, others = "Taut column", [name for name in names if not name.startswith("Taut")]
    medians = {name: {query: common.median(values) for query, values in times[name].items()} for name in names}
    rows = []
    for query in medians[taut]:
        row = [query, *(common.milliseconds(medians[name][query]) for name in names)]
        rows.append(row + [f"{medians[taut][query] / medians[other][query]:.2f}" for other in others])
    total = {name: sum(medians[name].values()) for name in names}
    rows.append(
        ["**total**", *(f"**{common.milliseconds(total[name])}**" for name in names)]
        + [f"**{total[taut] / total[other]:.2f}**" for other in others]
    )
    runs = {name: [sum(run) for run in zip(*times[name].values())] for name in names}
    rows.append(["spread of totals", *(f"±{common.spread(runs[name]):.1%}" for name in names), *[""] * len(others)])
    query_table = common.table(["query", *(f"{name}, ms" for name in names), *(f"Taut column / {other}" for other in others)], rows)
    loading = {name: [sum(run.values()) for run in runs] for name, runs in facts["load_seconds"].items()}
    duck = common.median(loading[DuckEngine.name])
    load_table = common.table(
        ["load of 8 tables", "s", "spread", "/ DuckDB", "MiB stored"],
        [
            [name, f"{common.median(runs):.2f}", f"±{common.spread(runs):.1%}", f"{common.median(runs) / duck:.2f}", f"{facts['bytes'][name] / 2**20:.0f}"]
            for name, runs in loading.items()
        ]
        + [[name, "", "", "", f"{size / 2**20:.0f}"] for name, size in facts["bytes"].items() if name not in loading],
    )
    duck_name = DuckEngine.name
    worst = max(medians[taut], key=lambda query: medians[taut][query] / medians[duck_name][query])
    slowest = max(medians[taut], key=medians[taut].get)
    worst = (
        f"Taut's worst query beside DuckDB is **{worst}**, with {medians[taut][worst] / medians[duck_name][worst]:.2f} times "
        f"DuckDB's time; its slowest is **{slowest}**, with {medians[taut][slowest]:.2f} s."
    )
    answers = "all equal to DuckDB's" if not facts["wrong_answers"] else f"**{facts['wrong_answers']} WRONG**"
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return (
        f"# TPC-H at scale factor {facts['scale']:g}\n\n"
        f"{about['processor']}, {about['threads']} threads for each engine, {about['memory_gib']} GiB, {about['system']}; "
        f"Taut {about['commit']}, {versions}; {about['date']}.\n\n"
        f"Medians of {len(next(iter(times[taut].values())))} repetitions in turns, after one to warm up; the files are in the "
        f"page cache. Answers of all layouts and engines: {answers}. {worst}\n\n{query_table}\n\n{load_table}"
    )


if __name__ == "__main__":
    main()
