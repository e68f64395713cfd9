"""The parts with single-row transactions: one session, and several concurrent ones."""

import threading
import time

from engines import Disk, DuckDB, SQLite, Taut, permuted, rows_of
from part import SMALL_ROWS


def contestants(disk):
    factories = {
        "Taut row, full": lambda path: Taut(path, "row"),
        "Taut column, full": lambda path: Taut(path, "column"),
        "Taut row, normal": lambda path: Taut(path, "row", "normal"),
        "Taut row, off": lambda path: Taut(path, "row", "off"),
        "SQLite, full": lambda path: SQLite(path),
        "SQLite, normal": lambda path: SQLite(path, "NORMAL"),
        "DuckDB, full": lambda path: DuckDB(path),
    }
    return {**factories, **({"append and fdatasync": lambda path: Disk(path)} if disk else {})}


def run_for(seconds, keys, run, engine):
    """Runs transactions for some seconds. Returns the counts of commits and of retries, and the time of the end."""
    committed, retried, until = 0, 0, time.perf_counter() + seconds
    for key in keys:
        while True:
            try:
                run(key)
                break
            except engine.errors as error:
                if not engine.conflict(error):
                    raise
                retried += 1
        committed += 1
        if time.perf_counter() >= until:
            break
    return committed, retried, time.perf_counter()


def run_concurrently(seconds, shares, runs, engine):
    """Runs transactions on one thread per share of the keys. Returns counts of commits and retries, and seconds."""
    ready, results, errors = threading.Barrier(len(runs) + 1), [], []

    def work(keys, run):
        ready.wait()
        try:
            results.append(run_for(seconds, keys, run, engine))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=pair, daemon=True) for pair in zip(shares, runs)]
    for thread in threads:
        thread.start()
    ready.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    committed, retried, ends = zip(*results)
    return sum(committed), sum(retried), max(ends) - start


def single(part, sessions=1):
    arguments = part.arguments
    count = arguments.rows or SMALL_ROWS
    part.open(contestants(disk=sessions == 1))
    table = rows_of(count)
    part.load("t", table)
    sum_before = sum(table["v"].to_pylist())
    # The keys of the table are even, so odd ones are new.
    new, old = permuted(count, 3) * 2 + 1, permuted(count, 5) * 2
    # `opened` has the functions of each session: one that inserts a row, and one that updates a row.
    opened, changes, repeated = {}, {}, {}
    for engine in list(part.engines):
        if found := part.attempt(engine, "sessions", lambda: [part.engines[engine].session() for _ in range(sessions)]):
            opened[engine] = found[0]
    share = count // arguments.repetitions
    for repetition in range(arguments.repetitions):
        for engine in part.turn(repetition):
            for change, (what, keys) in enumerate([("inserts", new), ("updates", old)]):
                mine = keys[repetition * share : (repetition + 1) * share]
                shares = [mine[thread::sessions].tolist() for thread in range(sessions)]
                runs = [functions[change] for functions in opened[engine]]
                found = part.attempt(engine, what, lambda: run_concurrently(arguments.seconds, shares, runs, part.engines[engine]))
                if not found:
                    break
                committed, retried, seconds = found[0]
                changes[engine, what] = changes.get((engine, what), 0) + committed
                repeated[engine] = repeated.get(engine, 0) + retried
                part.figure(what, engine, committed / seconds, "per second")
    for engine, times in repeated.items():
        if times:
            part.note(f"{engine}: {times:,} transactions were repeated after a conflict.")
    # Committed changes must exist after the database is opened again.
    make = contestants(disk=False)
    for engine in [name for name in part.engines if name in make]:
        inserts, updates = changes.get((engine, "inserts"), 0), changes.get((engine, "updates"), 0)
        path = part.engines[engine].path
        opened.pop(engine, None)

        def reopened():
            part.engines[engine].close()
            part.engines[engine] = make[engine](path)
            return part.engines[engine].rows("SELECT count(*), sum(v) FROM t")[0]

        if found := part.attempt(engine, "opening it again", reopened):
            expected = (count + inserts, sum_before + inserts + updates)
            if tuple(int(value) for value in found[0]) != expected:
                part.failed(engine, "rows after opening it again", ValueError(f"{found[0]}, expected {expected}"))


def sessions(part):
    single(part, part.arguments.sessions)
