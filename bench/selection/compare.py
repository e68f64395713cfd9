"""Compares Taut with six engines in selections, conjunctions, lookups, an aggregate and loads, on the same data.

    make bench                                        all parts, about half an hour on two processors
    make bench BENCH="--quick"                        a twentieth of the rows, about three minutes
    make bench BENCH="--only a --tables narrow_u"     one part, one table
    make bench BENCH="--paper-rows"                   loads and bytes with as many rows as Holloway and DeWitt (2008)

    a  one predicate on a column that is not sorted: every selectivity and number of columns of section 3.2 of Chasseur
       and Patel (2013)
    b  three predicates, as in their section 4.6
    c  whole rows by one key or a short range of keys, and few rows by a column with and without an index
    d  the aggregate of their section 3.2: MIN of 100 groups
    e  seconds of a load and bytes per row

Each engine runs in a separate process with two threads. Each engine runs a query once, unmeasured, and the answers are
compared. Then the engines run the query in turns, in reverse order in every second repetition. A measurement ends when
the whole answer is in memory, as Arrow.
"""

import argparse
import os
import pathlib
import random
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import common

import queries
import report
import tables
from engines import ENGINES, ON_DISK, TAUT, Refused
from processes import Died, Failed, Process

# Tables of each part.
TABLES = {
    "a": ["narrow_e", "narrow_u", "wide_e"],
    "b": ["narrow_e", "narrow_u", "wide_e"],
    "c": ["points"],
    "d": ["onepercent"],
    "e": ["narrow_e", "narrow_u", "narrow_s", "wide_e"],
}
# Lookups per repetition. Their median is the time of the repetition.
KEYS = 40
CHECKED_KEYS = 10


def say(text):
    print(text, file=sys.stderr, flush=True)


class Table:
    """One table in all engines. Loads it, then runs all queries on it."""

    def __init__(self, name, rows, arguments, threads, facts):
        self.name, self.rows, self.arguments, self.facts = name, rows, arguments, facts
        self.parts = [part for part in arguments.only if name in TABLES[part]]
        self.file = str(tables.path(name, rows))
        # Brings the file into the page cache.
        pathlib.Path(self.file).read_bytes()
        self.directory = tempfile.mkdtemp(prefix="taut-selection-", dir=arguments.directory)
        self.processes = {}
        started = {}
        for engine in arguments.engines:
            if set(ENGINES[engine][0].parts) & set(self.parts) and engine not in facts["left_out"]:
                engine_directory = f"{self.directory}/{engine.replace(' ', '-')}"
                pathlib.Path(engine_directory).mkdir()
                started[engine] = Process(engine, engine_directory, threads)
        for engine, process in started.items():
            try:
                process.answer()
                facts["engines"][engine] = process.ask("about")
                self.processes[engine] = process
            except Failed as error:
                self.leave_out(engine, process, f"does not run here: {error}")

    def leave_out(self, engine, process, why):
        """Excludes an engine from the rest of the run."""
        say(f"{engine}, {self.name}: {why}")
        self.facts["left_out"].setdefault(engine, f"{self.name}: {why}")
        self.processes.pop(engine, None)
        process.kill()

    def ask(self, engine, verb, *arguments):
        """Returns an answer, or None if the engine fails. Excludes an engine that died or whose load failed."""
        try:
            return self.processes[engine].ask(verb, *arguments)
        except Failed as error:
            if isinstance(error, Died) or verb == "load":
                self.leave_out(engine, self.processes[engine], f"{verb}: {error}")
            else:
                say(f"{engine}, {self.name}, {verb}: {error}")
                self.facts["failures"].append([engine, self.name, verb, str(error)])
            return None

    def run(self):
        self.load(self.arguments.loads if "e" in self.parts else 1)
        # Without the sync, the operating system would write the loaded data while queries are timed.
        os.sync()
        for part, asked in [("a", queries.selections), ("b", queries.conjunctions)]:
            for query in asked(self.name) if part in self.parts else []:
                self.cell(query)
        if "c" in self.parts:
            for engine in list(self.processes):
                self.ask(engine, "read", queries.Totals(self.name))
            for query in queries.few(indexed=False):
                self.cell(query)
            for lookup in queries.lookups():
                self.lookup(lookup)
            refused = self.index("c7")
            for query in queries.few(indexed=True):
                self.cell(query, refused)
            for lookup in queries.lookups_by_index():
                self.lookup(lookup, refused)
        if "d" in self.parts:
            for query in queries.minimum(self.rows):
                self.cell(query)

    def load(self, repetitions):
        times, stored = {}, {}
        for repetition in range(repetitions):
            for engine in self.turn(repetition):
                if repetition:
                    self.ask(engine, "drop", self.name)
                if engine not in self.processes:
                    continue
                seconds = self.ask(engine, "load", self.name, self.file, tables.columns(self.name))
                if seconds is None:
                    continue
                times.setdefault(engine, []).append(seconds)
                if not repetition:
                    stored[engine] = self.ask(engine, "stored", self.name)
                say(f"{self.name} in {engine}: {seconds:.1f} s")
        self.facts["loads"].append({"table": self.name, "rows": self.rows, "seconds": times, "bytes": stored})

    def turn(self, repetition):
        """Returns the engines, in reverse order in every second repetition."""
        names = list(self.processes)
        return names[::-1] if repetition % 2 else names

    def index(self, column):
        """Creates an index in each engine. Returns the engines that refuse, with their reasons."""
        refused, seconds, grown = {}, {}, {}
        for engine in list(self.processes):
            try:
                seconds[engine], grown[engine] = self.processes[engine].ask("index", self.name, column)
            except (Refused, Failed) as error:
                refused[engine] = str(error)
        self.facts["indexes"] = {"seconds": seconds, "grown_bytes": grown, "refused": refused}
        return refused

    def cell(self, query, refused={}):
        answers, times = {}, {}
        for engine in [name for name in self.processes if name not in refused]:
            answers[engine] = self.ask(engine, "check", query)
        for repetition in range(self.arguments.repetitions):
            for engine in self.turn(repetition):
                if answers.get(engine) and (seconds := self.ask(engine, "select", query)) is not None:
                    times.setdefault(engine, []).append(seconds)
        cell = self.keep(query, query.sql(), answers, times)
        if refused:
            cell["refused"] = refused
        self.explain(query, cell)

    def lookup(self, lookup, refused={}):
        rng = random.Random(f"{lookup.name} {self.rows}")
        keys = [[lookup.draw(rng, self.rows) for _ in range(KEYS)] for _ in range(self.arguments.repetitions)]
        answers, times, all_times = {}, {}, {}
        for engine in [name for name in self.processes if name not in refused]:
            answers[engine] = self.ask(engine, "prepare", lookup, keys[0][:CHECKED_KEYS])
        for repetition, drawn in enumerate(keys):
            for engine in self.turn(repetition):
                if answers.get(engine) and (seconds := self.ask(engine, "rows", lookup, drawn)):
                    times.setdefault(engine, []).append(common.median(seconds))
                    all_times.setdefault(engine, []).extend(seconds)
        cell = self.keep(lookup, lookup.parameters("$1", "$2"), answers, times)
        cell["percentile_99_seconds"] = {engine: sorted(seconds)[int(len(seconds) * 0.99)] for engine, seconds in all_times.items()}

    def keep(self, query, sql, answers, times):
        """Adds a cell to the facts. Compares answers with DuckDB's, or with the first engine's if DuckDB has none."""
        answers = {engine: answer for engine, answer in answers.items() if answer is not None}
        witness = answers.get("DuckDB", next(iter(answers.values()), None))
        wrong = {engine: answer for engine, answer in answers.items() if answer != witness}
        for engine, answer in wrong.items():
            say(f"{engine}: {sql}: {answer}, but the witness has {witness}")
        cell = {
            "part": query.part, "table": self.name, "name": query.name, "sql": sql, "answer": witness,
            "seconds": times, "wrong": wrong,
        }  # fmt: skip
        self.facts["cells"].append(cell)
        medians = ", ".join(f"{engine} {common.milliseconds(common.median(values))}" for engine, values in times.items())
        say(f"{query.part} {self.name}, {query.name}, ms: {medians}")
        return cell

    def explain(self, query, cell):
        """Adds Taut's plan to the cell if its best layout is slower than an engine that has its data on disk."""
        medians = {engine: common.median(values) for engine, values in cell["seconds"].items()}
        layouts = [engine for engine in TAUT if engine in medians]
        rivals = [medians[engine] for engine in ON_DISK if engine in medians]
        if layouts and rivals and (best := min(layouts, key=medians.get)) and medians[best] > min(rivals):
            cell["explain"] = self.ask(best, "explain", query)

    def close(self):
        for process in self.processes.values():
            process.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def files(loads):
    """Bytes of the Parquet file of each table, uncompressed and with zstd."""
    sizes = {}
    for load in loads:
        file = tables.path(load["table"], load["rows"])
        packed = file.with_suffix(".zstd")
        if not packed.exists():
            source = tables.pyarrow.parquet.ParquetFile(file)
            groups = (source.read_row_group(group) for group in range(source.num_row_groups))
            tables.write(packed, groups, compression="zstd")
        sizes[load["table"]] = {"Parquet": file.stat().st_size, "Parquet, zstd": packed.stat().st_size}
    return sizes


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    listed = lambda text: [word.strip() for word in text.split(",")]
    parser.add_argument("--only", type=listed, default=list("abcde"), help="parts, such as a,c")
    parser.add_argument("--tables", type=listed, help="such as narrow_e,wide_e")
    parser.add_argument("--engines", type=listed, default=list(ENGINES), help=f"some of {', '.join(ENGINES)}")
    parser.add_argument("--rows", type=int, help="rows of a narrow table; wide_e has a fifth")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--loads", type=int, default=3, help="how often each engine loads a table of part e")
    parser.add_argument("--quick", action="store_true", help="500,000 rows, 3 repetitions, one load")
    parser.add_argument("--paper-rows", action="store_true", help="part e with 60 million rows, wide_e with 12")
    parser.add_argument("--name", help="name of the files under bench/results")
    parser.add_argument("--directory", help="directory of the databases; by default a temporary directory")
    arguments = parser.parse_args()
    for name, known in [("only", TABLES), ("engines", ENGINES), ("tables", tables.ROWS)]:
        if unknown := set(getattr(arguments, name) or []) - set(known):
            parser.error(f"--{name} {', '.join(sorted(unknown))}: there are {', '.join(known)}")
    if arguments.quick:
        arguments.rows, arguments.repetitions, arguments.loads = arguments.rows or 500_000, 3, 1
    if arguments.paper_rows:
        arguments.only, arguments.loads = ["e"], 1
    form = "-quick" if arguments.quick else "-paper-rows" if arguments.paper_rows else ""
    arguments.name = arguments.name or f"selection{form}"
    return arguments


def main():
    arguments = parse()
    threads = common.pin(2)
    os.environ["POLARS_MAX_THREADS"] = str(threads)
    rows = tables.PAPER_ROWS if arguments.paper_rows else tables.ROWS
    if arguments.rows:
        rows = {name: arguments.rows // 5 if name == "wide_e" else arguments.rows for name in rows}
    wanted = [name for name in rows if any(name in TABLES[part] for part in arguments.only)]
    wanted = [name for name in wanted if name in (arguments.tables or wanted)]
    facts = {
        "machine": common.machine(threads), "repetitions": arguments.repetitions, "keys": KEYS, "rows": rows,
        "engines": {}, "left_out": {}, "failures": [], "indexes": {}, "loads": [], "cells": [],
    }  # fmt: skip
    for name in wanted:
        table = Table(name, rows[name], arguments, threads, facts)
        try:
            table.run()
        except KeyboardInterrupt:
            say(f"ended at {name}; what was measured is kept")
            break
        finally:
            table.close()
    facts["files"] = files(facts["loads"])
    common.keep(arguments.name, facts, report.text(facts))
    sys.exit(any(cell["wrong"] for cell in facts["cells"]))


if __name__ == "__main__":
    main()
