"""Tests read-only connections, in this process and in others, while another connection writes the database."""

import hashlib
import json
import multiprocessing
import os
import pathlib
import re
import subprocess
import sys
import textwrap
import time

import pytest

import taut

ROUNDS = int(os.environ.get("READ_ONLY_ROUNDS", 25))


def checksums_of(path):
    files = sorted(file for file in pathlib.Path(path).rglob("*") if file.is_file())
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def start(code, *arguments):
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.taut"


@pytest.fixture
def writer(path):
    with taut.connect(path, threads=2) as con:
        con.sql("CREATE TABLE t (n bigint, id bigint)")
        con.sql("INSERT INTO t SELECT 0, i FROM generate_series(1, 100) AS g(i)")
        yield con


def test_a_reader_sees_commits_up_to_its_opening_or_last_refresh(path, writer):
    reader = taut.connect(path, read_only=True)
    assert reader.read_only and not writer.read_only
    count = "SELECT count(*) FROM t"
    assert reader.sql(count).fetchone() == (100,)
    writer.sql("INSERT INTO t VALUES (1, 1)")
    assert reader.sql(count).fetchone() == (100,)
    assert reader.refresh() is True
    assert reader.sql(count).fetchone() == (101,)
    assert reader.refresh() is False
    assert writer.refresh() is False
    # The read-only connections of a process share one snapshot. A new connection refreshes it for all of them.
    writer.sql("INSERT INTO t VALUES (2, 2)")
    other = taut.connect(path, read_only=True)
    assert [con.sql(count).fetchone() for con in (reader, other, reader.duplicate())] == [(102,)] * 3
    other.close()
    reader.close()


def test_a_transaction_and_a_result_keep_their_snapshot(path, writer):
    with taut.connect(path, read_only=True) as reader:
        reader.begin()
        assert reader.sql("SELECT count(*) FROM t").fetchone() == (100,)
        result = reader.duplicate().sql("SELECT n FROM t")
        writer.sql("UPDATE t SET n = n + 1")
        writer.sql("VACUUM FULL")
        assert reader.refresh() is True
        assert reader.sql("SELECT min(n), max(n) FROM t").fetchone() == (0, 0)
        assert set(result.fetchall()) == {(0,)}
        reader.commit()
        assert reader.sql("SELECT min(n), max(n) FROM t").fetchone() == (1, 1)


def test_cached_plans_see_a_refresh(path, writer):
    with taut.connect(path, read_only=True) as reader:
        for number in range(6):
            reader.refresh()
            expected = [(number,)] * 100
            assert reader.sql("SELECT n FROM t WHERE id >= ?", [0]).fetchall() == expected
            assert reader.sql("SELECT n FROM t WHERE id = ?", [7]).fetchall() == [(number,)]
            writer.sql("UPDATE t SET n = n + 1")
        writer.sql("DROP TABLE t")
        writer.sql("CREATE TABLE t (id bigint, n varchar)")
        writer.sql("INSERT INTO t VALUES (7, 'new')")
        reader.refresh()
        assert reader.sql("SELECT n FROM t WHERE id = ?", [7]).fetchall() == [("new",)]


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("INSERT INTO t VALUES (1, 1)", "INSERT"),
        ("UPDATE t SET n = 1", "UPDATE"),
        ("DELETE FROM t", "DELETE"),
        ("CREATE TABLE u (a int)", "CREATE TABLE"),
        ("VACUUM", "VACUUM"),
    ],
)
def test_statements_that_write_fail(path, writer, statement, name):
    with taut.connect(path, read_only=True) as reader, pytest.raises(taut.OperationalError) as caught:
        reader.sql(statement)
    assert str(caught.value) == f"cannot execute {name} in a read-only transaction"
    assert caught.value.sqlstate == "25006"


def test_loads_fail(path, writer):
    import pyarrow

    with taut.connect(path, read_only=True) as reader:
        with pytest.raises(taut.OperationalError, match="cannot execute INSERT in a read-only transaction"):
            reader.insert("t", pyarrow.table({"n": [1]}))
        # Registered data belongs to the connection, not to the database.
        reader.register("mine", pyarrow.table({"n": [1, 2]}))
        assert reader.sql("SELECT sum(mine.n) FROM mine").fetchone() == (3,)


def test_readers_change_and_create_no_files(path, tmp_path):
    with taut.connect(path) as con:
        con.sql("CREATE TABLE t AS SELECT i, i * 3 AS j FROM generate_series(1, 50000) AS g(i)")
    before = checksums_of(path)
    with taut.connect(path, read_only=True, memory="16MiB", threads=1) as reader:
        # Spill files of a read-only connection are outside of the database.
        plan = reader.explain("SELECT i, j, g.k FROM t, generate_series(1, 7) AS g(k) ORDER BY j DESC", analyze=True)
        assert any(int(spills) > 0 for spills in re.findall(r"spill_count=(\d+)", plan)), plan
        new_files = set(checksums_of(path)) - set(before)
        assert all(pathlib.Path(name).parent.name == "readers" for name in new_files), new_files
    assert checksums_of(path) == before
    with pytest.raises(taut.OperationalError, match="there is no database at"):
        taut.connect(tmp_path / "missing.taut", read_only=True)
    assert not (tmp_path / "missing.taut").exists()
    with pytest.raises(taut.ProgrammingError, match="in memory cannot be opened read-only"):
        taut.connect(read_only=True)


READER = """
    import json, sys, taut
    con = taut.connect(sys.argv[1], read_only=True, threads=1)
    print("open", flush=True)
    seen = []
    while not seen or seen[-1] < int(sys.argv[2]):
        if len(seen) % 5 == 4:
            con.close()
            con = taut.connect(sys.argv[1], read_only=True, threads=1)
        con.begin()
        rows = con.sql("SELECT n, count(*) FROM t GROUP BY n").fetchall()
        assert len(rows) == 1 and rows[0][1] == 100, rows
        again = con.sql("SELECT min(n), max(n), sum(id) FROM t").fetchone()
        assert again == (rows[0][0], rows[0][0], 5050), (rows, again)
        con.commit()
        seen.append(rows[0][0])
        con.refresh()
    assert seen == sorted(seen)
    print(json.dumps([len(seen), len(set(seen))]))
"""


def test_other_processes_read_while_one_commits_and_vacuums(path, writer):
    readers = [start(READER, path, ROUNDS) for _ in range(3)]
    for reader in readers:
        assert reader.stdout.readline() == "open\n", reader.stderr.read()
    for number in range(ROUNDS):
        writer.sql("UPDATE t SET n = n + 1")
        writer.sql(("VACUUM FULL", "CHECKPOINT", "VACUUM t", "SELECT 1")[number % 4])
    for reader in readers:
        output, errors = reader.communicate(timeout=120)
        assert reader.returncode == 0, errors
        reads, distinct_states = json.loads(output)
        assert reads >= distinct_states > 0
    writer.sql("VACUUM FULL")
    assert list((path / "readers").iterdir()) == []
    assert len(list((path / "blocks").iterdir())) == 1


def test_a_killed_reader_retains_no_files(path, writer):
    writer.sql("VACUUM FULL")
    reader = start("import sys, taut; con = taut.connect(sys.argv[1], read_only=True); print('open', flush=True); input()", path)
    assert reader.stdout.readline() == "open\n"
    for _ in range(3):
        writer.sql("UPDATE t SET n = n + 1")
        writer.sql("VACUUM FULL")
    assert len(list((path / "blocks").iterdir())) > 1
    assert len(list((path / "readers").iterdir())) == 1
    reader.kill()
    reader.communicate()
    writer.sql("CHECKPOINT")
    assert list((path / "readers").iterdir()) == []
    assert len(list((path / "blocks").iterdir())) == 1


def _count(path):
    with taut.connect(path, read_only=True, threads=1) as con:
        return con.sql("SELECT count(*) FROM t").fetchone()[0]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_pool_of_processes_reads(path, writer, method):
    with multiprocessing.get_context(method).Pool(3) as pool:
        assert pool.map(_count, [path] * 6) == [100] * 6
    # The processes of the pool have ended, so none is registered as a reader.
    time.sleep(0.1)
    writer.sql("CHECKPOINT")
    assert list((path / "readers").iterdir()) == []


def test_the_error_of_a_locked_database_suggests_read_only(path, writer):
    errors = start("import sys, taut; taut.connect(sys.argv[1])", path).communicate()[1]
    assert "is in use by process" in errors and "it can be opened read-only" in errors


def test_sqlalchemy_opens_read_only(path, writer):
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine(f"taut:///{path}?read_only=true")
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM t").scalar() == 100
        with pytest.raises(sqlalchemy.exc.OperationalError, match="cannot execute DELETE in a read-only transaction"):
            connection.exec_driver_sql("DELETE FROM t")
    engine.dispose()
    with pytest.raises(ValueError, match="not true/false"):
        sqlalchemy.create_engine(f"taut:///{path}?read_only=perhaps").connect()
