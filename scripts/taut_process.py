"""A `taut sql` process that runs one statement after another and reports the time of each.

Statements go to its standard input, rows come from its standard output as lines of JSON, and times from its standard
error. A second statement with a known answer follows each statement: its row marks the end of the first result.
"""

import decimal
import json
import os
import pathlib
import queue
import re
import subprocess
import threading

ROOT = pathlib.Path(__file__).resolve().parent.parent
UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
TIME = re.compile(r"^\((.*), (?:(\d+) min )?([\d.]+) (ns|µs|ms|s)\)$")


class TautError(Exception):
    """An error of a statement, with the message of Taut. The process has ended then."""


def target_directory():
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", pathlib.Path.home() / ".cache/taut/target"))


def binary(profile="debug", name="taut"):
    """Path of a command that `make` builds."""
    return target_directory() / profile / name


class Taut:
    """A process on one database. `seconds` is the time of the last statement."""

    def __init__(self, database, program, threads=2, cache=None):
        command = [str(program), "sql", str(database), "--format", "json", "--timing", "--threads", str(threads)]
        if cache:
            command += ["--cache", cache]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, bufsize=1)
        self.messages = queue.Queue()
        self.reader = threading.Thread(target=self._read_messages, daemon=True)
        self.reader.start()
        self.count = 0
        self.seconds = None

    def _read_messages(self):
        for line in self.process.stderr:
            self.messages.put(line.rstrip("\n"))
        self.messages.put(None)

    def run(self, sql):
        """Runs a statement and returns its rows, each a list of values. Numbers with a fraction are Decimal."""
        self.count += 1
        end = f"end of {self.count}"
        rows = []
        try:
            self.process.stdin.write(f"{sql.strip().rstrip(';')};\nSELECT '{end}' AS taut_end;\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise TautError(self._last_words()) from None
        for line in self.process.stdout:
            row = json.loads(line, parse_float=decimal.Decimal)
            if row.get("taut_end") == end:
                self.seconds = self._time()
                self._time()
                return rows
            rows.append(list(row.values()))
        raise TautError(self._last_words())

    def _time(self):
        """Reads the time of the next statement. Skips other messages, which are notices."""
        while (line := self.messages.get(timeout=60)) is not None:
            if match := TIME.match(line):
                _, minutes, number, unit = match.groups()
                return int(minutes or 0) * 60 + float(number) * UNITS[unit]
        raise TautError("the process ended without a time")

    def _last_words(self):
        self.process.wait(timeout=60)
        words = []
        while (line := self.messages.get(timeout=60)) is not None:
            if not TIME.match(line):
                words.append(line)
        return "\n".join(words) or f"the process ended with status {self.process.returncode}"

    def close(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait(timeout=60)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
