"""Compares random queries and random changes of columns with DuckDB, in every layout."""

import os
import pathlib
import sys

import pytest

DIFFERENTIAL = pathlib.Path(__file__).resolve().parents[3] / "tests/differential"
SEED = int(os.environ.get("SEED", "1"))
QUERIES = int(os.environ.get("QUERIES", "3000"))
#: Number of tests that share the queries, so that a run shows its progress.
PARTS = 10


@pytest.mark.parametrize("part", range(PARTS))
def test_random_queries_agree(part):
    sys.path[:0] = [str(DIFFERENTIAL), str(DIFFERENTIAL.parents[1] / "scripts")]
    import random_queries

    cases = -(-QUERIES // PARTS // random_queries.QUERIES_PER_CASE)
    agreed, failed, refused = random_queries.run(cases, SEED + part * cases)
    assert not failed, "\n\n".join(failed)
    assert agreed > 8 * refused, "DuckDB rejected too many of the queries"


def test_random_alterations_agree(capsys):
    sys.path[:0] = [str(DIFFERENTIAL)]
    import random_alterations

    failed = random_alterations.run(cases=16, steps=30, first_seed=SEED)
    assert not failed, capsys.readouterr().out
