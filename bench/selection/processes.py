"""Runs each engine in a separate process: libraries and signal handlers do not collide, and a crash ends one engine.

Method calls go through a pipe. Answers are (True, value), (None, reason) if the engine refuses, or (False, error).
Times are measured in the process of the engine, so they do not include the pipe.
"""

import multiprocessing
import time

import common
import numpy
import pyarrow

from engines import ENGINES, Refused


class Server:
    """The methods that run in the process of the engine."""

    def __init__(self, name, directory, threads):
        kind, options = ENGINES[name]
        self.engine = kind(directory, threads, **options)

    def about(self):
        return {"version": self.engine.version, "settings": self.engine.settings}

    def load(self, table, file, columns):
        seconds, _ = timed(self.engine.load, table, file, columns)
        self.engine.settle(table)
        return seconds

    def stored(self, table):
        return self.engine.stored(table)

    def read(self, query):
        self.engine.read(query)

    def check(self, query):
        return fingerprint(self.engine.as_table(self.engine.select(query)))

    def select(self, query):
        return timed(self.engine.select, query)[0]

    def prepare(self, lookup, keys):
        """Prepares a lookup and returns the fingerprints of its first answers."""
        self.engine.prepare(lookup)
        return [fingerprint(self.engine.as_table(self.engine.rows(lookup, *key))) for key in keys]

    def rows(self, lookup, keys):
        return [timed(self.engine.rows, lookup, *key)[0] for key in keys]

    def index(self, table, column):
        """Creates an index. Returns seconds, and the peak growth of resident memory in bytes."""
        common.peak()
        before = common.resident()
        seconds, _ = timed(self.engine.index, table, column)
        return seconds, common.peak() - before

    def explain(self, query):
        return self.engine.explain(query)

    def drop(self, table):
        self.engine.drop(table)

    def close(self):
        self.engine.close()


def timed(run, *arguments):
    """Returns the seconds until the answer is complete, and the answer. Freeing the answer is not included."""
    start = time.perf_counter()
    answer = run(*arguments)
    return time.perf_counter() - start, answer


def fingerprint(table):
    """Returns the number of rows, and the sum of the hashes of rows, which does not depend on their order."""
    total = 0
    for start in range(0, table.num_rows, 1 << 18):
        mixed = numpy.uint64(0)
        for column in table.slice(start, 1 << 18).columns:
            values = column.to_numpy().astype(numpy.int64).view(numpy.uint64)
            mixed = (mixed ^ values) * numpy.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> numpy.uint64(29)
        total += int(mixed.sum(dtype=numpy.uint64))
    return table.num_rows, total % 2**64


def serve(pipe, name, directory, threads):
    pyarrow.set_cpu_count(threads)
    server = None
    while True:
        try:
            verb, arguments = pipe.recv()
        except EOFError:
            return
        try:
            if verb == "open":
                server, value = Server(name, directory, threads), None
            else:
                value = getattr(server, verb)(*arguments)
            pipe.send((True, value))
        except Refused as error:
            pipe.send((None, str(error)))
        except BaseException as error:
            pipe.send((False, f"{type(error).__name__}: {error}"))
        if verb == "close":
            return


class Failed(Exception):
    """The engine raised an error."""


class Died(Failed):
    """The process of the engine has ended."""


class Process:
    """Handle of an engine that runs in another process."""

    def __init__(self, name, directory, threads, patience=600):
        self.name, self.patience = name, patience
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, name, directory, threads), daemon=False)
        self.process.start()
        theirs.close()
        self.pipe.send(("open", ()))

    def answer(self):
        """Waits for the answer to the last call."""
        if not self.pipe.poll(self.patience):
            self.kill()
            raise Died(f"no answer in {self.patience} s")
        try:
            good, value = self.pipe.recv()
        except EOFError:
            self.kill()
            raise Died(f"its process ended with code {self.process.exitcode}") from None
        if good is None:
            raise Refused(value)
        if not good:
            raise Failed(value)
        return value

    def ask(self, verb, *arguments):
        try:
            self.pipe.send((verb, arguments))
        except OSError:
            raise Died("its process has ended") from None
        return self.answer()

    def kill(self):
        self.process.kill()
        self.process.join()

    def close(self):
        try:
            self.ask("close")
            self.process.join(30)
        except (Failed, Refused):
            pass
        if self.process.is_alive():
            self.kill()
