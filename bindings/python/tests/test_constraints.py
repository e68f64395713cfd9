"""Tests keys and foreign keys that several sessions write at once, and loads into tables with constraints.

The tests of single sessions are in tests/sql/constraints.
"""

import os
import random
import threading

import pyarrow
import pyarrow.parquet
import pytest

import taut

from test_isolation import Pending

#: Number of transactions that each thread runs.
TRANSACTIONS = int(os.environ.get("CONSTRAINT_TRANSACTIONS", "150"))
SEED = int(os.environ.get("SEED", "1"))
THREADS = 4


def sqlstate_of(error):
    return error.value.sqlstate


@pytest.fixture
def database(tmp_path):
    return str(tmp_path / "database")


def run_threads(work):
    errors = []

    def guarded(number):
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class TestTwoSessions:
    @pytest.fixture(autouse=True)
    def sessions(self, database):
        self.one = taut.connect(database)
        self.two, self.others = self.one.duplicate(), self.one.duplicate()
        self.one.sql("CREATE TABLE t (k integer PRIMARY KEY, v integer)")
        self.one.sql("CREATE TABLE child (k integer REFERENCES t)")
        self.one.sql("CREATE TABLE others (n integer)")
        self.one.sql("INSERT INTO t VALUES (1, 1)")
        self.one.sql("INSERT INTO others VALUES (0)")
        yield
        for con in (self.one, self.two, self.others):
            con.close()

    def run_against(self, first, second, end):
        """Runs `first` in a transaction and starts `second` in another session, which must wait for it.

        Then ends the transaction with the statement `end`, and returns the pending `second`.
        """
        self.one.sql("BEGIN")
        self.one.sql(first)
        pending = Pending(lambda: self.two.sql(second), self.others)
        assert pending.waits(), second
        self.one.sql(end)
        return pending

    def keys(self, table="t"):
        return sorted(row[0] for row in self.one.sql(f"SELECT k FROM {table}").fetchall())

    def test_the_second_writer_of_a_key_waits_and_is_refused(self):
        pending = self.run_against("INSERT INTO t VALUES (2, 1)", "INSERT INTO t VALUES (2, 2)", "COMMIT")
        with pytest.raises(taut.Error) as error:
            pending.result()
        assert sqlstate_of(error) == "23505"
        assert self.keys() == [1, 2]

    def test_the_key_of_a_rolled_back_row_is_free(self):
        self.run_against("INSERT INTO t VALUES (2, 1)", "INSERT INTO t VALUES (2, 2)", "ROLLBACK").result()
        assert self.keys() == [1, 2]

    def test_an_insert_waits_for_the_deletion_of_its_key(self):
        self.run_against("DELETE FROM t WHERE k = 1", "INSERT INTO t VALUES (1, 2)", "COMMIT").result()
        assert self.one.sql("SELECT v FROM t").fetchall() == [(2,)]
        with pytest.raises(taut.Error) as error:
            self.run_against("DELETE FROM t WHERE k = 1", "INSERT INTO t VALUES (1, 3)", "ROLLBACK").result()
        assert sqlstate_of(error) == "23505"

    def test_upsert_sees_the_row_committed_first(self):
        upsert = "INSERT INTO t VALUES (2, 5) ON CONFLICT (k) DO UPDATE SET v = t.v + excluded.v"
        self.run_against("INSERT INTO t VALUES (2, 1)", upsert, "COMMIT").result()
        assert self.one.sql("SELECT v FROM t WHERE k = 2").fetchall() == [(6,)]
        nothing = "INSERT INTO t VALUES (3, 5) ON CONFLICT DO NOTHING"
        self.run_against("INSERT INTO t VALUES (3, 1)", nothing, "COMMIT").result()
        assert self.one.sql("SELECT v FROM t WHERE k = 3").fetchall() == [(1,)]

    def test_upsert_of_a_row_newer_than_the_snapshot_is_refused(self):
        self.two.sql("BEGIN")
        self.two.sql("SELECT * FROM t").fetchall()
        self.one.sql("INSERT INTO t VALUES (2, 1)")
        with pytest.raises(taut.Error) as error:
            self.two.sql("INSERT INTO t VALUES (2, 5) ON CONFLICT (k) DO UPDATE SET v = 9")
        assert sqlstate_of(error) == "40001"

    def test_referenced_keys_are_not_deleted(self):
        with pytest.raises(taut.Error) as error:
            self.run_against("INSERT INTO child VALUES (1)", "DELETE FROM t WHERE k = 1", "COMMIT").result()
        assert sqlstate_of(error) == "23503"

    def test_deleted_keys_are_not_referenced(self):
        with pytest.raises(taut.Error) as error:
            self.run_against("DELETE FROM t WHERE k = 1", "INSERT INTO child VALUES (1)", "COMMIT").result()
        assert sqlstate_of(error) == "23503"
        assert self.keys("child") == []

    @pytest.mark.parametrize("action", ["CASCADE", "SET NULL"])
    def test_actions_apply_to_references_committed_concurrently(self, action):
        self.one.sql(f"CREATE TABLE other (k integer REFERENCES t ON DELETE {action}, n integer)")
        self.one.sql("INSERT INTO other VALUES (1, 1)")
        # The row is appended to a page that the other session already sees.
        delete = "DELETE FROM t WHERE k = 1"
        self.run_against("INSERT INTO other VALUES (1, 2)", delete, "COMMIT").result()
        left = self.one.sql("SELECT k, n FROM other ORDER BY n").fetchall()
        assert left == ([] if action == "CASCADE" else [(None, 1), (None, 2)])

    @pytest.mark.parametrize("action", ["CASCADE", "SET NULL"])
    def test_references_newer_than_the_snapshot_refuse_a_deletion(self, action):
        self.one.sql(f"CREATE TABLE other (k integer REFERENCES t ON DELETE {action}, n integer)")
        self.two.sql("BEGIN")
        assert self.two.sql("SELECT count(*) FROM other").fetchall() == [(0,)]
        self.one.sql("INSERT INTO other VALUES (1, 1)")
        with pytest.raises(taut.Error) as error:
            self.two.sql("DELETE FROM t WHERE k = 1")
        assert sqlstate_of(error) == "40001"

    def test_upserts_of_one_key_do_not_end_in_deadlocks(self):
        self.one.sql("DELETE FROM t")
        cons = [self.one, self.two, self.others]

        def work(number):
            for _ in range(40):
                if number < len(cons):
                    cons[number].sql("INSERT INTO t VALUES (1, 1) ON CONFLICT (k) DO UPDATE SET v = t.v + 1")

        run_threads(work)
        assert self.one.sql("SELECT k, v FROM t").fetchall() == [(1, 120)]

    def test_references_do_not_wait_for_each_other(self):
        self.one.sql("BEGIN")
        self.one.sql("INSERT INTO child VALUES (1)")
        self.two.sql("INSERT INTO child VALUES (1)")
        self.one.sql("COMMIT")
        assert self.keys("child") == [1, 1]

    def test_references_wait_for_truncate(self):
        with pytest.raises(taut.Error) as error:
            self.run_against("TRUNCATE t, child", "INSERT INTO child VALUES (1)", "COMMIT").result()
        assert sqlstate_of(error) == "23503"

    def test_a_new_constraint_refuses_the_commit_of_earlier_inserts(self):
        self.two.sql("BEGIN")
        self.two.sql("INSERT INTO t VALUES (5, 1)")
        self.one.sql("ALTER TABLE t ADD CONSTRAINT once UNIQUE (v)")
        with pytest.raises(taut.Error) as error:
            self.two.sql("COMMIT")
        assert sqlstate_of(error) == "40001"

    def test_a_deadlock_on_keys_is_detected(self):
        self.one.sql("BEGIN")
        self.one.sql("INSERT INTO t VALUES (10, 0)")
        self.two.sql("BEGIN")
        self.two.sql("INSERT INTO t VALUES (20, 0)")
        pending = Pending(lambda: self.two.sql("INSERT INTO t VALUES (10, 0)"), self.others)
        assert pending.waits()
        with pytest.raises(taut.Error) as error:
            self.one.sql("INSERT INTO t VALUES (20, 0)")
        assert sqlstate_of(error) == "40P01"
        self.one.sql("ROLLBACK")
        pending.result()
        self.two.sql("COMMIT")
        assert self.keys() == [1, 10, 20]


@pytest.mark.parametrize("mover", ["on", "off"])
def test_keys_hold_under_concurrent_writes(database, mover):
    setup = taut.connect(database)
    setup.sql(f"SET mover = {mover}")
    setup.sql("CREATE TABLE parent (k integer PRIMARY KEY, u integer UNIQUE)")
    setup.sql("CREATE TABLE child (k integer REFERENCES parent ON DELETE CASCADE, n integer)")
    done = [0] * THREADS

    def work(number):
        choose = random.Random(SEED * 1000 + number)
        with setup.duplicate() as con:
            con.sql("SET synchronous = 'off'")
            for _ in range(TRANSACTIONS):
                key, other = choose.randrange(40), choose.randrange(40)
                statements = choose.choices(
                    [
                        f"INSERT INTO parent VALUES ({key}, {other})",
                        f"INSERT INTO parent VALUES ({key}, {other}) ON CONFLICT DO NOTHING",
                        f"INSERT INTO parent VALUES ({key}, NULL) ON CONFLICT (k) DO UPDATE SET u = {other}",
                        f"UPDATE parent SET k = {other} WHERE k = {key}",
                        f"DELETE FROM parent WHERE k = {key}",
                        f"INSERT INTO child VALUES ({key}, {number})",
                        f"DELETE FROM child WHERE k = {other}",
                        f"UPDATE child SET k = {other} WHERE k = {key}",
                        "VACUUM parent",
                    ],
                    weights=[4, 4, 4, 3, 2, 6, 2, 2, 0.3],
                    k=choose.randrange(1, 4),
                )
                try:
                    if len(statements) > 1:
                        con.sql("BEGIN")
                    for statement in statements:
                        con.sql(statement)
                    if len(statements) > 1:
                        con.sql("COMMIT")
                    done[number] += 1
                except taut.Error as error:
                    assert error.sqlstate in ("23505", "23503", "40001", "40P01", "25001", "21000"), error
                    if con.in_transaction:
                        con.sql("ROLLBACK")

    run_threads(work)
    assert min(done) > TRANSACTIONS // 20
    for reopened in (False, True):
        if reopened:
            setup.close()
            setup = taut.connect(database)
        one = setup.sql("SELECT count(*), count(DISTINCT k), count(u), count(DISTINCT u) FROM parent").fetchall()[0]
        assert one[0] == one[1] and one[2] == one[3]
        assert setup.sql("SELECT * FROM child WHERE k NOT IN (SELECT k FROM parent)").fetchall() == []
    setup.close()


def test_all_loads_check_constraints(database, tmp_path):
    con = taut.connect(database)
    con.sql("CREATE TABLE p (k bigint PRIMARY KEY)")
    con.sql("CREATE TABLE t (k bigint PRIMARY KEY, p bigint REFERENCES p, v bigint DEFAULT 3 CHECK (v < 100000))")
    con.sql("INSERT INTO p SELECT k FROM generate_series(0, 99999) AS k")
    valid = {"k": list(range(20_000)), "p": list(range(20_000)), "v": list(range(20_000))}

    def load_functions(columns):
        table = pyarrow.table({name: pyarrow.array(values, pyarrow.int64()) for name, values in columns.items()})
        path = tmp_path / "rows.parquet"
        pyarrow.parquet.write_table(table, path)
        yield lambda: con.insert("t", table)
        yield lambda: con.load("t", str(path))
        yield lambda: con.sql(f"COPY t FROM '{path}'")
        yield lambda: con.sql(f"INSERT INTO t SELECT * FROM '{path}'")

    def changed(column, row, value):
        columns = {name: list(values) for name, values in valid.items()}
        columns[column][row] = value
        return columns

    for columns, expected in [
        (changed("k", 19_999, 7), "23505"),
        (changed("p", 123, 100_000), "23503"),
        (changed("v", 15_000, 100_000), "23514"),
        ({name: values[:10] for name, values in changed("k", 9, 7).items()}, "23505"),
        ({name: values[:10] for name, values in changed("p", 0, -1).items()}, "23503"),
    ]:
        for load in load_functions(columns):
            with pytest.raises(taut.Error) as error:
                load()
            assert sqlstate_of(error) == expected
            assert con.sql("SELECT count(*) FROM t").fetchall() == [(0,)]
    next(load_functions({"k": valid["k"], "p": valid["p"]}))()
    assert con.sql("SELECT count(*), min(v), max(v) FROM t").fetchall() == [(20_000, 3, 3)]
    con.sql("VACUUM")
    for load in load_functions({name: values[-5_000:] for name, values in valid.items()}):
        with pytest.raises(taut.Error) as error:
            load()
        assert sqlstate_of(error) == "23505"
    con.close()
