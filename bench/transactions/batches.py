"""The parts `upsert`, `scans` and `space`: upserts of many keys, scans after updates, and bytes after deletions."""

import itertools
import shutil
import time

from engines import DuckDB, SQLite, Taut, engines_on_disk, permuted, rows_of
from part import BATCH, ROWS, SQLITE_ROWS_MAX, STATEMENTS, say, stored

SCANS = {
    "sum": "SELECT sum(v) FROM {}",
    "count": "SELECT count(*) FROM {} WHERE a < 100000",
    "groups": "SELECT g, count(*), sum(v) FROM {} GROUP BY g ORDER BY g",
}

# Seconds of scans per repetition. The time of a single scan of a few milliseconds varies by half.
TURNS_LAST = 1.0


def upsert(part):
    import numpy
    import pyarrow

    count = part.arguments.rows or ROWS
    batch = min(BATCH, count // 10)
    factories = {
        "Taut row": lambda path: Taut(path, "row"),
        "Taut column": lambda path: Taut(path, "column"),
        "Taut column, MERGE without a key": lambda path: Taut(path, "column", merge=True),
        "SQLite": lambda path: SQLite(path),
        "DuckDB, MERGE without a key": lambda path: DuckDB(path, merge=True),
        "DuckDB": lambda path: DuckDB(path),
    }
    if count > SQLITE_ROWS_MAX:
        del factories["SQLite"]
        part.note(f"SQLite is left out: it takes part at {SQLITE_ROWS_MAX:,} rows and fewer.")
    part.open(factories)
    part.load("t", rows_of(count))
    new, old, half = permuted(count, 13) * 2 + 1, permuted(count, 17) * 2, batch // 2
    for repetition in range(part.arguments.repetitions):
        chosen = slice(repetition * half, (repetition + 1) * half)
        keys = numpy.random.default_rng(repetition).permutation(numpy.concatenate([new[chosen], old[chosen]]))
        table = pyarrow.table({
            "k": keys, "g": (keys % 100).astype(numpy.int32), "a": keys % 1_000_000, "v": keys % 1000 + repetition,
            "s": pyarrow.array(["upserted"] * len(keys)),
        })  # fmt: skip
        answers = {}
        for engine in part.turn(repetition):
            if not (ready := part.attempt(engine, "batch", lambda: part.engines[engine].upsert(table))):
                continue
            if done := part.attempt(engine, "upsert", ready[0]):
                part.figure("upsert", engine, done[1], "s")
                part.engines[engine].forget("batch")
                if answer := part.attempt(engine, "sum", lambda: part.engines[engine].rows("SELECT sum(v), count(*) FROM t")):
                    answers[engine] = [int(value) for value in answer[0][0]]
        part.agree("sum after the upsert", {engine: answers[engine] for engine in factories if engine in answers})


def scans(part):
    import pyarrow

    count = part.arguments.rows or ROWS
    part.open(engines_on_disk())
    table = rows_of(count)
    for name in ("clean", "one", "many"):
        part.load(name, table, key=False)
    del table
    per_statement = max(1, count // 100 // STATEMENTS)
    keys = (permuted(count, 23)[: per_statement * STATEMENTS] * 2).tolist()
    chosen = pyarrow.table({"k": pyarrow.array(keys)})
    done = {}
    for engine in list(part.engines):
        database = part.engines[engine]

        def one():
            database.register("chosen", chosen)
            database.sql("UPDATE one SET v = v + 1 WHERE k IN (SELECT k FROM chosen)")

        def many():
            until = time.perf_counter() + part.arguments.limit * 0.9
            for number, start in enumerate(range(0, len(keys), per_statement), 1):
                wanted = ", ".join(map(str, keys[start : start + per_statement]))
                database.sql(f"UPDATE many SET v = v + 1 WHERE k IN ({wanted})")
                if time.perf_counter() > until:
                    break
            return number

        if found := part.attempt(engine, "one UPDATE", one):
            part.figure("one UPDATE", engine, found[1], "s")
            if found := part.attempt(engine, "many UPDATEs", many):
                done[engine] = found[0]
                part.figure("a small UPDATE, mean", engine, found[1] / found[0], "s")
                if found[0] < STATEMENTS:
                    part.note(f"{engine}: the limit ended the small statements after {found[0]:,} of {STATEMENTS:,}.")
        say(f"{part.name}: updates in {engine}: {found and found[1]}")
    vacuums = {
        "": None,
        ", VACUUM": ("VACUUM of both", lambda database: (database.vacuum("one"), database.vacuum("many"))),
        ", VACUUM FULL": ("VACUUM FULL of all", lambda database: database.vacuum_full()),
    }
    for after, vacuum in vacuums.items():
        for engine in list(part.engines) if vacuum else []:
            database = part.engines[engine]
            if found := part.attempt(engine, vacuum[0], lambda: vacuum[1](database)):
                part.figure(vacuum[0], engine, found[1], "s")
        for name, scan in SCANS.items():
            for state in ("clean", "one", "many"):
                answers = {}
                for engine in list(part.engines):
                    if answer := part.attempt(engine, name, lambda: part.engines[engine].rows(scan.format(state))):
                        if state != "many" or done.get(engine) == STATEMENTS:
                            answers[engine] = [tuple(int(value) for value in row) for row in answer[0]]
                part.agree(f"{name} of {state}{after}", answers)
            for repetition in range(part.arguments.repetitions):
                for engine in part.turn(repetition):
                    scan_in_turns(part, engine, name, after)


def scan_in_turns(part, engine, name, after):
    """Scans the three tables `clean`, `one` and `many` in turns for a second."""
    states = ("clean", "one", "many")
    until = time.perf_counter() + TURNS_LAST
    for turn in itertools.count():
        for state in states[::-1] if turn % 2 else states:
            found = part.attempt(engine, name, lambda: part.engines[engine].rows(SCANS[name].format(state)))
            if not found:
                return
            part.figure(f"{name}, {state}{after}", engine, found[1], "s")
        if turn % 2 and time.perf_counter() > until:
            return


def space(part):
    count = part.arguments.rows or ROWS
    left = lambda a: a % 10 == 0
    for engine, make in engines_on_disk().items():
        part.open({engine: make, f"{engine} fresh": make})
        fresh, used = part.engines.pop(f"{engine} fresh", None), part.engines.get(engine)
        if not fresh or not used:
            continue
        steps = [
            ("loaded", lambda: used.load("t", rows_of(count), key=False)),
            ("deleted", lambda: used.sql("DELETE FROM t WHERE a % 10 <> 0")),
            ("VACUUM", lambda: used.vacuum()),
            ("VACUUM FULL", lambda: used.vacuum_full()),
        ]
        for what, run in steps:
            if not (found := part.attempt(engine, what, run)):
                break
            part.figure(what, engine, stored(used.path), "bytes")
            part.figure(f"{what}, time", engine, found[1], "s")
            say(f"{part.name}: {engine}, {what}: {stored(used.path):,} bytes, {found[1]:.1f} s")
        rest = rows_of(count, left)
        part.attempt(engine, "fresh load", lambda: fresh.load("t", rest, key=False))
        part.figure("the rest, fresh", engine, stored(fresh.path), "bytes")
        if engine in part.engines:
            answers = {name: [int(value) for value in one.rows("SELECT sum(v), count(*) FROM t")[0]]
                       for name, one in ((engine, used), ("a fresh load", fresh))}  # fmt: skip
            part.agree("sum of what is left", answers)
            used.close()
        fresh.close()
        part.engines.clear()
        shutil.rmtree(used.path)
        shutil.rmtree(fresh.path)
