"""Tests backups of a database in use, and databases restored from them."""

import datetime
import time

import pytest

import taut


def rows(path):
    with taut.connect(path, create=False) as con:
        return con.sql("SELECT x FROM t ORDER BY x").fetchall()


def test_a_running_database_is_backed_up_and_restored(tmp_path):
    con = taut.connect(tmp_path / "db")
    con.sql("CREATE TABLE t (x int); INSERT INTO t SELECT * FROM generate_series(1, 3)")
    first = con.backup(tmp_path / "backups", log=True)
    assert (first.number, first.log_since) == (1, None)
    assert first.time.tzinfo is not None
    con.sql("INSERT INTO t VALUES (4)")
    time.sleep(0.01)
    between = datetime.datetime.now(datetime.timezone.utc)
    time.sleep(0.01)
    con.sql("DELETE FROM t WHERE x < 3")
    second = con.backup(str(tmp_path / "backups"), log=True, keep=5)
    assert (second.number, second.log_since) == (2, 1)
    assert [backup.number for backup in taut.backups(tmp_path / "backups")] == [1, 2]

    last = taut.restore(tmp_path / "backups", tmp_path / "last")
    assert (last.backup, last.commit) == (2, second.commit)
    assert rows(tmp_path / "last") == [(3,), (4,)]
    taut.restore(tmp_path / "backups", tmp_path / "first", backup=1)
    assert rows(tmp_path / "first") == [(1,), (2,), (3,)]
    text = between.astimezone(datetime.timezone(datetime.timedelta(hours=2))).isoformat(sep=" ")
    for number, point_in_time in enumerate([between, between.replace(tzinfo=None), text]):
        restored = taut.restore(tmp_path / "backups", tmp_path / f"between{number}", time=point_in_time)
        assert restored.replayed_commits == 1 and restored.time <= between
        assert rows(tmp_path / f"between{number}") == [(1,), (2,), (3,), (4,)]
    assert con.sql("SELECT count(*) FROM t").fetchall() == [(2,)]


def test_invalid_backups_and_restores_are_refused(tmp_path):
    con = taut.connect(tmp_path / "db")
    con.sql("CREATE TABLE t (x int)")
    with pytest.raises(taut.ProgrammingError, match="must not lie within each other"):
        con.backup(tmp_path / "db" / "backups")
    with pytest.raises(ValueError, match="at least one"):
        con.backup(tmp_path / "backups", keep=0)
    with pytest.raises(taut.OperationalError, match="cannot run inside a transaction block"):
        con.begin()
        con.backup(tmp_path / "backups")
    con.rollback()
    with pytest.raises(taut.OperationalError, match="there is no backup directory"):
        taut.backups(tmp_path / "backups")
    con.backup(tmp_path / "backups")
    with pytest.raises(taut.OperationalError, match="already exists and is not empty"):
        taut.restore(tmp_path / "backups", tmp_path / "db")
    with pytest.raises(taut.ProgrammingError, match="has no backup 7; it has 1"):
        taut.restore(tmp_path / "backups", tmp_path / "new", backup=7)
    with pytest.raises(taut.ProgrammingError, match="complete backups are 1"):
        taut.restore(tmp_path / "backups", tmp_path / "new", time="2000-01-01")
    with pytest.raises(ValueError, match="yesterday"):
        taut.restore(tmp_path / "backups", tmp_path / "new", time="yesterday")
    with pytest.raises(TypeError):
        taut.restore(tmp_path / "backups", tmp_path / "new", time=5)
    catalog = next((tmp_path / "backups" / "backups").glob("*.catalog"))
    catalog.write_bytes(catalog.read_bytes()[:-1])
    with pytest.raises(taut.InternalError, match=catalog.name):
        taut.restore(tmp_path / "backups", tmp_path / "new")
    assert not (tmp_path / "new" / "catalog").exists()
