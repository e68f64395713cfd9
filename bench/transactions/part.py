"""A part of the comparison: runs its engines, and reports figures and failures."""

import pathlib
import sys
import threading
import time

# Rows of a table in `single` and `sessions`, rows in other parts, keys of an upsert, and small updates in `scans`.
SMALL_ROWS, ROWS, BATCH, STATEMENTS = 1_000_000, 10_000_000, 100_000, 1_000
# Maximum rows with which SQLite takes part in `upsert`.
SQLITE_ROWS_MAX = 1_000_000


def say(text):
    print(text, file=sys.stderr, flush=True)


class Part:
    """One part of the comparison. It sends its figures through a pipe."""

    def __init__(self, name, arguments, directory, pipe):
        self.name, self.arguments, self.directory, self.pipe = name, arguments, directory, pipe
        self.engines = {}

    def figure(self, cell, engine, value, unit):
        self.pipe.send(("figure", self.name, cell, engine, value, unit))

    def note(self, text):
        self.pipe.send(("note", self.name, text))

    def failed(self, engine, what, error):
        self.pipe.send(("failed", self.name, engine, what, f"{type(error).__name__}: {error}".replace("\n", " ")[:300]))

    def attempt(self, engine, what, run):
        """Returns the answer of `run` and its seconds. If `run` fails, returns None and excludes the engine.

        Interrupts a statement that takes longer than the limit.
        """
        database = self.engines.get(engine)
        timer = threading.Timer(self.arguments.limit, getattr(database, "interrupt", lambda: None))
        timer.daemon = True
        timer.start()
        start = time.perf_counter()
        try:
            answer = run()
            return answer, time.perf_counter() - start
        except Exception as error:
            took = time.perf_counter() - start
            late = f" (ended by the limit, {took:.0f} s)" if took > self.arguments.limit else ""
            self.failed(engine, what + late, error)
            self.engines.pop(engine, None)
            return None
        finally:
            timer.cancel()

    def open(self, contestants):
        """Opens the engines, each in a separate directory."""
        for name, make in contestants.items():
            path = f"{self.directory}/{name.replace(' ', '-').replace(',', '')}"
            if opened := self.attempt(name, "open", lambda: make(path)):
                self.engines[name] = opened[0]

    def load(self, name, table, key=True):
        for engine in list(self.engines):
            if done := self.attempt(engine, "load", lambda: self.engines[engine].load(name, table, key)):
                say(f"{self.name}: {len(table):,} rows in {engine}: {done[1]:.1f} s")

    def turn(self, repetition):
        """Returns the engines, in reverse order in every second repetition."""
        names = list(self.engines)
        return names[::-1] if repetition % 2 else names

    def agree(self, what, answers):
        """Reports engines whose answer differs from the answer of the last engine."""
        for engine, answer in answers.items():
            witness = list(answers.values())[-1]
            if answer != witness:
                self.failed(engine, what, ValueError(f"wrong: {str(answer)[:100]}, but {list(answers)[-1]} has {str(witness)[:100]}"))

    def close(self):
        for engine in list(self.engines):
            self.attempt(engine, "close", self.engines[engine].close)


def stored(path):
    return sum(file.stat().st_size for file in pathlib.Path(path).rglob("*") if file.is_file())
