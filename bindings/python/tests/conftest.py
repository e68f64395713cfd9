import pytest

import taut


@pytest.fixture
def con():
    """A database in memory."""
    with taut.connect(threads=2) as con:
        yield con
