import signal

import pytest

import taut


@pytest.fixture(scope="session", autouse=True)
def interrupts():
    """Restores Python's handler of SIGINT: background jobs of a shell start with the signal ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def con():
    """A database in memory."""
    with taut.connect(threads=2) as con:
        yield con
