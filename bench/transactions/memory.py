"""The part `memory`: peak resident memory of statements that change all rows."""

import shutil
import threading
import time

import common
from engines import DuckDB, Taut, engines_on_disk, rows_of
from part import ROWS, say
from processes import exit_text, run_in_process

LIMIT, LIMITED_CACHE = "1GiB", "256MiB"


def load_in_process(pipe, engine, path, count):
    """Loads the table. Runs in a separate process, as the target of `processes.run_in_process`."""
    database = engines_on_disk()[engine](path)
    database.load("t", rows_of(count), key=False)
    database.close()
    pipe.send(("answer", None))


def update_in_process(pipe, engine, path, limit):
    """Runs the statements with `LIMIT` of memory, and sends the time and the peak memory of each.

    Runs in a separate process. `limit` is the number of seconds after which a statement is interrupted.
    """
    if engine == "DuckDB":
        database = DuckDB(path, memory=LIMIT)
    else:
        database = Taut(path, engine.split()[1], memory=LIMIT, cache=LIMITED_CACHE)
    database.rows("SELECT count(*) FROM t")
    pipe.send(("opened", None, common.peak()))
    before = database.rows("SELECT sum(v) FROM t")[0][0]
    steps = {"UPDATE": lambda: database.sql("UPDATE t SET v = v + 1"), "VACUUM": database.vacuum, "VACUUM FULL": database.vacuum_full}
    for what, run in steps.items():
        common.peak()
        timer = threading.Timer(limit, database.interrupt)
        timer.daemon = True
        timer.start()
        start = time.perf_counter()
        try:
            run()
        except Exception as error:
            pipe.send(("failed", what, f"{type(error).__name__}: {error} (after {time.perf_counter() - start:.1f} s, peak {common.peak():,} bytes)"))
            break
        timer.cancel()
        pipe.send((what, time.perf_counter() - start, common.peak()))
    count, after = database.rows("SELECT count(*), sum(v) FROM t")[0]
    pipe.send(("answer", [int(count), int(after - before)]))
    database.close()


def memory(part):
    count = part.arguments.rows or ROWS
    for engine in engines_on_disk():
        path = f"{part.directory}/{engine.replace(' ', '-')}"
        updated = True
        for target, last in ((load_in_process, count), (update_in_process, part.arguments.limit)):
            messages = []
            code = run_in_process(messages.append, target, engine, path, last)
            answer = None
            for message in messages:
                if message[0] == "answer":
                    answer = message
                elif message[0] == "failed":
                    updated = updated and message[1] != "UPDATE"
                    part.failed(engine, message[1], RuntimeError(message[2]))
                else:
                    what, seconds, bytes = message
                    part.figure(what, engine, bytes, "bytes")
                    if seconds is not None:
                        part.figure(f"{what}, time", engine, seconds, "s")
                    say(f"{part.name}: {engine}, {what}: {bytes:,} bytes, {seconds} s")
            if not answer or code:
                part.failed(engine, target.__name__.replace("_", " "), RuntimeError(exit_text(code)))
                break
            if target is update_in_process and updated and answer[1] != [count, count]:
                part.failed(engine, "sum after the UPDATE", ValueError(f"rows, and sum of changes: {answer[1]}, expected {count}"))
        shutil.rmtree(path, ignore_errors=True)
