"""Tests changes of an attached database, and that a killed process loses none that it has committed."""

import json
import signal
import subprocess
import sys
import textwrap

import pyarrow
import pytest

import taut

CHANGES = """
    import json, sys
    import taut

    con = taut.connect(sys.argv[1])
    con.sql(f"ATTACH '{sys.argv[2]}' AS a")
    con.sql("CREATE TABLE IF NOT EXISTS a.t (round bigint, id bigint PRIMARY KEY)")
    first = con.sql("SELECT coalesce(max(id), 0) FROM a.t").fetchone()[0]
    for id in range(first + 1, sys.maxsize, 2):
        con.sql("BEGIN")
        con.sql("INSERT INTO a.t SELECT ?, ? + i FROM numbers", [int(sys.argv[3]), id])
        con.sql("COMMIT")
        print(json.dumps(id), flush=True)
"""


@pytest.fixture
def con(tmp_path):
    with taut.connect(tmp_path / "main.taut") as con:
        con.sql("CREATE TABLE numbers AS SELECT i FROM (VALUES (0), (1)) AS v(i)")
        yield con


def test_batches_and_frames_fill_tables_of_an_attached_database(con, tmp_path):
    con.sql(f"ATTACH '{tmp_path / 'a.taut'}' AS a")
    batches = pyarrow.table({"i": [1, 2, 3]})
    con.sql("CREATE TABLE a.t AS SELECT * FROM batches")
    con.sql("INSERT INTO a.t SELECT i + 10 FROM batches")
    con.sql("DELETE FROM a.t WHERE i IN (SELECT i FROM numbers)")
    assert con.sql("SELECT i FROM a.t ORDER BY i").fetchall() == [(2,), (3,), (11,), (12,), (13,)]
    con.sql("BEGIN")
    con.sql("INSERT INTO a.t VALUES (?)", [20])
    with pytest.raises(taut.Error, match='cannot change database "taut" in a transaction that has changed database "a"'):
        con.sql("INSERT INTO numbers VALUES (?)", [20])
    con.sql("ROLLBACK")
    con.sql("DETACH a")
    with taut.connect(tmp_path / "a.taut") as other:
        assert other.sql("SELECT count(*) FROM t").fetchone() == (5,)


def test_commits_in_an_attached_database_survive_a_kill(con, tmp_path):
    con.close()
    committed, path = [], tmp_path / "a.taut"
    for number in range(5):
        command = [sys.executable, "-c", textwrap.dedent(CHANGES), tmp_path / "main.taut", path, str(number)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(10 * (number + 1)):
            committed.append(json.loads(process.stdout.readline()))
        process.send_signal(signal.SIGKILL)
        rest, errors = process.communicate()
        # A line of which only a part was printed is not counted.
        committed += [json.loads(line) for line in rest.splitlines(keepends=True) if line.endswith("\n")]
        assert process.returncode == -signal.SIGKILL and not errors, errors
        with taut.connect(path) as other:
            found = {id for (id,) in other.sql("SELECT id FROM t").fetchall()}
        known = {id + i for id in committed for i in (0, 1)}
        # The last commit may have happened before it could be printed. Each commit is there completely, or not at all.
        last = max(committed) + 2
        assert found - known in (set(), {last, last + 1}) and known <= found
        if found > known:
            committed.append(last)
    assert len(committed) >= 150
