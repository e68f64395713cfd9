import signal

import pytest

import taut


@pytest.fixture(scope="session", autouse=True)
def interrupts():
    """Handles SIGINT, also if the tests run in the background of a shell, whose background jobs ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def con():
    """A database in memory."""
    with taut.connect(threads=2) as con:
        yield con
