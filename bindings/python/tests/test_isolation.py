"""Tests each anomaly of Kleppmann's Hermitage at each isolation level.

The order of the statements forces an anomaly that the level allows. If the level prevents the anomaly, a statement
waits, fails with SQLSTATE 40001 or returns the right answer. See https://github.com/ept/hermitage, and Adya's thesis
for the names of the anomalies.
"""

import threading

import pytest

import taut

READ_COMMITTED, SNAPSHOT, SERIALIZABLE = "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"

#: Seconds after which a statement is assumed to hang. Every test takes less than a tenth of this.
SECONDS_MAX = 60

#: A statement is assumed to wait if it has not ended after this number of statements of another session.
STATEMENTS_MEANWHILE = 60

CONDITIONS = ["id = 1", "id = 2", "id > 0", "value = 30", "value % 3 = 0", "value % 5 = 0"]


class Pending:
    """A statement that runs in a separate thread."""

    def __init__(self, run, others):
        self._run, self._others = run, others
        self._value = self._error = None
        self._has_begun = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()
        assert self._has_begun.wait(SECONDS_MAX)

    def _work(self):
        self._has_begun.set()
        try:
            self._value = self._run()
        except BaseException as error:
            self._error = error

    def waits(self):
        """Whether the statement has not ended after many statements of another session that do not wait."""
        for _ in range(STATEMENTS_MEANWHILE):
            self._others.sql("UPDATE others SET n = n + 1")
        return self._thread.is_alive()

    def result(self):
        self._thread.join(SECONDS_MAX)
        assert not self._thread.is_alive(), "a statement hangs"
        if self._error is not None:
            raise self._error
        return self._value


class Session:
    """A connection, with the statements of the scenarios."""

    def __init__(self, con):
        self.con = con

    def run(self, sql):
        return self.con.sql(sql).row_count

    def begin(self, level):
        self.run(f"BEGIN ISOLATION LEVEL {level}")
        return self

    def commit(self):
        assert self.con.sql("COMMIT").tag == "COMMIT"

    def rollback(self):
        self.run("ROLLBACK")

    def start(self, sql):
        return Pending(lambda: self.run(sql), self.con.duplicate())

    def where(self, condition):
        return sorted(self.con.sql(f"SELECT id, value FROM test WHERE {condition}").fetchall())

    def read(self, row):
        ((_, value),) = self.where(f"id = {row}")
        return value

    def set(self, row, value):
        return self.run(set_value(row, value))


def set_value(row, value):
    return f"UPDATE test SET value = {value} WHERE id = {row}"


def assert_refused(sqlstate, run, *arguments):
    with pytest.raises(taut.OperationalError) as raised:
        run(*arguments)
    assert raised.value.sqlstate == sqlstate, raised.value


@pytest.fixture(params=[READ_COMMITTED, SNAPSHOT, SERIALIZABLE])
def level(request):
    return request.param


# The results do not depend on where rows are stored, or on whether queries have cached plans.
@pytest.fixture(params=["recent rows", "rows in blocks", "cached plans"])
def sessions(request, con):
    con.sql("CREATE TABLE others (n int)")
    con.sql("INSERT INTO others VALUES (0)")
    con.sql("CREATE TABLE test (id int, value int)")
    con.sql("INSERT INTO test VALUES (1, 10), (2, 20)")
    if request.param == "rows in blocks":
        con.sql("VACUUM test")
    sessions = [Session(con.duplicate()) for _ in range(3)]
    if request.param == "cached plans":
        for session in sessions:
            for condition in CONDITIONS * 3:
                session.where(condition)
    return sessions


@pytest.fixture
def rows(con):
    """Function that returns the committed rows."""
    return lambda: sorted(con.sql("SELECT id, value FROM test").fetchall())


def test_no_write_cycles(level, sessions, rows):
    """G0."""
    one, two, _ = (session.begin(level) for session in sessions)
    one.where("id > 0"), two.where("id > 0")
    one.set(1, 11)
    pending = two.start(set_value(1, 12))
    assert pending.waits()
    one.set(2, 21)
    one.commit()
    if level == READ_COMMITTED:
        assert pending.result() == 1
        two.set(2, 22)
        two.commit()
        assert rows() == [(1, 12), (2, 22)]
    else:
        assert_refused("40001", pending.result)
        two.rollback()
        assert rows() == [(1, 11), (2, 21)]


def test_no_aborted_reads(level, sessions, rows):
    """G1a."""
    one, two, _ = (session.begin(level) for session in sessions)
    one.set(1, 101)
    assert two.where("id > 0") == [(1, 10), (2, 20)]
    one.rollback()
    assert two.where("id > 0") == [(1, 10), (2, 20)]
    two.commit()
    assert rows() == [(1, 10), (2, 20)]


def test_no_intermediate_reads(level, sessions):
    """G1b."""
    one, two, _ = (session.begin(level) for session in sessions)
    one.set(1, 101)
    assert two.read(1) == 10
    one.set(1, 11)
    assert two.read(1) == 10
    one.commit()
    assert two.read(1) == (11 if level == READ_COMMITTED else 10)
    two.commit()


def test_no_circular_information_flow(level, sessions):
    """G1c."""
    one, two, _ = (session.begin(level) for session in sessions)
    one.set(1, 11)
    two.set(2, 22)
    assert one.read(2) == 20 and two.read(1) == 10
    one.commit()
    if level == SERIALIZABLE:
        assert_refused("40001", two.commit)
    else:
        two.commit()


def test_observed_transactions_do_not_vanish(level, sessions, rows):
    """OTV."""
    one, two, three = (session.begin(level) for session in sessions)
    two.where("id > 0")
    one.set(1, 11)
    one.set(2, 19)
    pending = two.start(set_value(1, 12))
    assert pending.waits()
    one.commit()
    if level == READ_COMMITTED:
        assert pending.result() == 1
    else:
        assert_refused("40001", pending.result)
        two.rollback()
    assert three.read(1) == 11
    if level == READ_COMMITTED:
        two.set(2, 18)
        assert three.read(2) == 19
        two.commit()
    after = (12, 18) if level == READ_COMMITTED else (11, 19)
    assert (three.read(1), three.read(2)) == after
    three.commit()
    assert rows() == list(enumerate(after, 1))


def test_predicate_many_preceders(level, sessions):
    """PMP: new rows match a predicate that was read."""
    one, two, _ = (session.begin(level) for session in sessions)
    assert one.where("value = 30") == []
    two.run("INSERT INTO test VALUES (3, 30)")
    two.commit()
    assert one.where("value % 3 = 0") == ([(3, 30)] if level == READ_COMMITTED else [])
    one.commit()


def test_predicate_many_preceders_of_a_write(level, sessions, rows):
    """PMP with the predicate of a write. After the wait, READ COMMITTED evaluates the predicate again on all rows.
    PostgreSQL evaluates it again only on the row that it waited for, and misses the other one."""
    one, two, _ = (session.begin(level) for session in sessions)
    two.where("id > 0")
    one.run("UPDATE test SET value = value + 10")
    pending = two.start("DELETE FROM test WHERE value = 20")
    assert pending.waits()
    one.commit()
    if level == READ_COMMITTED:
        assert pending.result() == 1
        two.commit()
        assert rows() == [(2, 30)]
    else:
        assert_refused("40001", pending.result)
        two.rollback()
        assert rows() == [(1, 20), (2, 30)]


def test_lost_updates(level, sessions, rows):
    """P4: a new value is computed from an outdated one."""
    one, two, _ = (session.begin(level) for session in sessions)
    first, second = one.read(1) + 1, two.read(1) + 5
    one.set(1, first)
    pending = two.start(set_value(1, second))
    assert pending.waits()
    one.commit()
    if level == READ_COMMITTED:
        assert pending.result() == 1
        two.commit()
    else:
        assert_refused("40001", pending.result)
        two.rollback()
    assert rows() == [(1, 15 if level == READ_COMMITTED else 11), (2, 20)]


def test_a_statement_that_computes_loses_nothing(sessions, rows):
    """P4 within one statement, which READ COMMITTED retries."""
    one, two, three = sessions
    one.begin(READ_COMMITTED), two.begin(READ_COMMITTED)
    assert two.read(1) == 10
    one.set(1, "value + 1")
    pending = two.start(set_value(1, "value + 5"))
    alone = three.start(set_value(1, "value + 7"))
    assert pending.waits() and alone.waits()
    one.commit()
    # Either waiting statement may continue first. The other one then waits for its transaction.
    assert pending.result() == 1
    two.commit()
    assert alone.result() == 1
    assert rows() == [(1, 23), (2, 20)]


def test_read_skew(level, sessions):
    """G-single."""
    one, two, _ = (session.begin(level) for session in sessions)
    assert one.read(1) == 10
    assert (two.read(1), two.read(2)) == (10, 20)
    two.set(1, 12)
    two.set(2, 18)
    two.commit()
    assert one.read(2) == (18 if level == READ_COMMITTED else 20)
    one.commit()


def test_read_skew_of_predicates(level, sessions):
    """G-single with predicates."""
    one, two, _ = (session.begin(level) for session in sessions)
    assert one.where("value % 5 = 0") == [(1, 10), (2, 20)]
    two.run("UPDATE test SET value = 12 WHERE value = 10")
    two.commit()
    assert one.where("value % 3 = 0") == ([(1, 12)] if level == READ_COMMITTED else [])
    one.commit()


def test_read_skew_before_a_write(level, sessions, rows):
    """G-single, where the second read is the condition of a DELETE."""
    one, two, _ = (session.begin(level) for session in sessions)
    assert one.read(1) == 10
    assert two.where("id > 0") == [(1, 10), (2, 20)]
    two.set(1, 12)
    two.set(2, 18)
    two.commit()
    if level == READ_COMMITTED:
        assert one.run("DELETE FROM test WHERE value = 20") == 0
        one.commit()
    else:
        assert_refused("40001", one.run, "DELETE FROM test WHERE value = 20")
        one.rollback()
    assert rows() == [(1, 12), (2, 18)]


def test_read_skew_after_a_write(level, sessions, rows):
    """G-single, where the DELETE waits for the writer, which rolls back."""
    one, two, _ = (session.begin(level) for session in sessions)
    assert one.read(1) == 10
    two.where("id > 0")
    two.set(1, 12)
    pending = one.start("DELETE FROM test WHERE value = 10")
    assert pending.waits()
    two.rollback()
    assert pending.result() == 1
    one.commit()
    assert rows() == [(2, 20)]


def test_write_skew(level, sessions, rows):
    """G2-item."""
    one, two, _ = (session.begin(level) for session in sessions)
    for session in (one, two):
        assert session.read(1) + session.read(2) == 30
    one.set(1, 11)
    two.set(2, 21)
    one.commit()
    if level == SERIALIZABLE:
        assert_refused("40001", two.commit)
        assert rows() == [(1, 11), (2, 20)]
    else:
        two.commit()
        assert rows() == [(1, 11), (2, 21)]


def test_write_skew_of_predicates(level, sessions, rows):
    """G2."""
    one, two, _ = (session.begin(level) for session in sessions)
    assert one.where("value % 3 = 0") == two.where("value % 3 = 0") == []
    one.run("INSERT INTO test VALUES (3, 30)")
    two.run("INSERT INTO test VALUES (4, 42)")
    one.commit()
    if level == SERIALIZABLE:
        assert_refused("40001", two.commit)
        assert rows() == [(1, 10), (2, 20), (3, 30)]
    else:
        two.commit()
        assert rows() == [(1, 10), (2, 20), (3, 30), (4, 42)]


def test_write_skew_that_a_reader_sees(level, sessions, rows):
    """G2 of three transactions, one of which only reads (Fekete, O'Neil and O'Neil, 2004)."""
    one, two, three = (session.begin(level) for session in sessions)
    assert one.where("id > 0") == [(1, 10), (2, 20)]
    two.set(2, "value + 5")
    two.commit()
    assert three.where("id > 0") == [(1, 10), (2, 25)]
    three.commit()
    one.set(1, 0)
    if level == SERIALIZABLE:
        assert_refused("40001", one.commit)
        assert rows() == [(1, 10), (2, 25)]
    else:
        one.commit()
        assert rows() == [(1, 0), (2, 25)]


# Ways to read row 2 of a table, or an absent row. Each must be in the read set.
READS = {
    "rows": "SELECT value FROM test WHERE id = 2",
    "a parameter": "SELECT value FROM test WHERE id = ?",
    "a count": "SELECT count(*) FROM test",
    "a bound": "SELECT max(value) FROM test",
    "no row": "SELECT value FROM test WHERE id = 5",
    "a subquery": "SELECT 1 WHERE EXISTS (SELECT 1 FROM test WHERE value = 20)",
    "a view": "SELECT value FROM seen",
    "a prepared statement": "EXECUTE prepared",
    "what is inserted": "INSERT INTO notes SELECT value FROM test",
    "what is joined to": "UPDATE notes SET n = value FROM test WHERE id = 2",
    "a condition of a deletion": "DELETE FROM notes WHERE n > (SELECT max(value) FROM test)",
    "what is merged": "MERGE INTO notes USING test ON n = id WHEN NOT MATCHED THEN INSERT VALUES (value)",
    "a new table": "CREATE TABLE copy AS SELECT value FROM test",
    "a row in a file": "COPY (SELECT value FROM test) TO '{path}/copy.csv'",
}  # fmt: skip


# `times` is the number of executions before the tested one. After three executions, the plan is cached.
@pytest.mark.parametrize("times", [0, 3])
@pytest.mark.parametrize("read", READS)
def test_reads_of_every_kind_are_tracked(con, tmp_path, read, times):
    """A serializable transaction fails if rows that it read were changed, even if it read them by a cached plan."""
    con.sql("CREATE TABLE test (id int, value int); INSERT INTO test VALUES (1, 10), (2, 20)")
    con.sql("CREATE TABLE notes (n int); INSERT INTO notes VALUES (0)")
    con.sql("CREATE VIEW seen AS SELECT value FROM test")
    reader, writer = con.duplicate(), con.duplicate()
    reader.sql("PREPARE prepared AS SELECT value FROM test WHERE id = 2")

    def run():
        parameters = [2] if "?" in READS[read] else None
        result = reader.sql(READS[read].format(path=tmp_path), parameters)
        return result.fetchall() if result.columns else None

    for _ in range(times):
        reader.sql("BEGIN")
        run()
        reader.sql("ROLLBACK")
    reader.sql("BEGIN ISOLATION LEVEL SERIALIZABLE")
    run()
    writer.sql("INSERT INTO test VALUES (5, 50)" if read == "no row" else "UPDATE test SET value = 21 WHERE id = 2")
    reader.sql("INSERT INTO notes VALUES (1)")
    assert_refused("40001", reader.sql, "COMMIT")
    assert con.sql("SELECT n FROM notes").fetchall() == [(0,)]


def test_autocommitted_statements_have_the_isolation_level_of_the_session(con):
    """Write skew of two such statements: the first has read its row and waits to write while the second runs."""
    con.sql("CREATE TABLE others (n int); INSERT INTO others VALUES (0)")
    con.sql("CREATE TABLE a (v int); INSERT INTO a VALUES (1); CREATE TABLE b (v int); INSERT INTO b VALUES (1)")
    one, two, holder = (Session(con.duplicate()) for _ in range(3))
    for session in (one, two):
        session.run("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE")
    holder.begin(SNAPSHOT).run("UPDATE a SET v = v")
    pending = one.start("UPDATE a SET v = (SELECT max(v) + 10 FROM b)")
    assert pending.waits()
    two.run("UPDATE b SET v = (SELECT max(v) + 10 FROM a)")
    holder.rollback()
    try:
        pending.result()
    except taut.OperationalError as error:
        assert error.sqlstate == "40001"
    found = con.sql("SELECT a.v, b.v FROM a, b").fetchone()
    assert found in {(1, 11), (21, 11)}, "as if one had run after the other"


@pytest.mark.parametrize("statement", ["SELECT id FROM test FOR UPDATE", "SELECT id FROM test FOR SHARE"])
def test_unsupported_row_locks_are_refused(con, statement):
    con.sql("CREATE TABLE test (id int, value int)")
    with pytest.raises(taut.NotSupportedError):
        con.sql(statement)


@pytest.mark.parametrize("times", [0, 3])
def test_each_statement_of_a_snapshot_sees_the_same(con, times):
    """The first statement of a transaction determines its snapshot, whatever the statement is."""
    con.sql("CREATE TABLE test (id int, value int); INSERT INTO test VALUES (1, 10), (2, 20)")
    reader, writer = con.duplicate(), con.duplicate()
    first, second = "SELECT value FROM test WHERE id = 1", "SELECT sum(value) FROM test"
    for _ in range(times):
        reader.sql(first).fetchall()
    reader.sql("BEGIN")
    writer.sql("UPDATE test SET value = value + 1")
    assert reader.sql(first).fetchall() == [(11,)], "the first query takes the snapshot, not BEGIN"
    writer.sql("UPDATE test SET value = value + 1")
    assert reader.sql(second).fetchall() == [(32,)]
    assert reader.sql(first).fetchall() == [(11,)]
    reader.sql("COMMIT")
    assert reader.sql(first).fetchall() == [(12,)]


@pytest.mark.parametrize("times", [0, 3])
def test_a_failed_transaction_accepts_only_its_end(con, times):
    con.sql("CREATE TABLE test (id int, value int); INSERT INTO test VALUES (1, 10)")
    read = "SELECT value FROM test WHERE id = 1"
    for _ in range(times):
        con.sql(read).fetchall()
    con.sql("BEGIN")
    con.sql("UPDATE test SET value = 11")
    with pytest.raises(taut.ProgrammingError):
        con.sql("SELECT nothing FROM test")
    for statement in (read, "SELECT 1", "INSERT INTO test VALUES (2, 2)", "SAVEPOINT s", "CREATE TABLE u (a int)"):
        assert_refused("25P02", con.sql, statement)
    assert con.sql("COMMIT").tag == "ROLLBACK"
    assert con.sql(read).fetchall() == [(10,)]


def test_a_deadlock_of_two_transactions_fails_one(level, sessions, rows):
    one, two, _ = (session.begin(level) for session in sessions)
    one.set(1, 11)
    two.set(2, 22)
    pending = one.start(set_value(2, 21))
    assert pending.waits()
    assert_refused("40P01", two.set, 1, 12)
    two.rollback()
    assert pending.result() == 1
    one.commit()
    assert rows() == [(1, 11), (2, 21)]


def test_a_deadlock_of_three_transactions_fails_one(level, sessions, rows):
    sessions[0].run("INSERT INTO test VALUES (3, 30)")
    for row, session in enumerate(sessions, 1):
        session.begin(level)
        session.set(row, row)
    one, two, three = sessions
    first = one.start(set_value(2, 100))
    assert first.waits()
    second = two.start(set_value(3, 100))
    assert second.waits()
    assert_refused("40P01", three.set, 1, 100)
    assert first.waits() and second.waits()
    three.rollback()
    assert second.result() == 1
    two.rollback()
    assert first.result() == 1
    one.commit()
    assert rows() == [(1, 1), (2, 100), (3, 30)]


def test_a_simultaneous_deadlock_fails_exactly_one(con, level):
    con.sql("CREATE TABLE others (n int); INSERT INTO others VALUES (0)")
    con.sql("CREATE TABLE test (id int, value int); INSERT INTO test VALUES (1, 0), (2, 0)")
    sessions = [Session(con.duplicate()) for _ in range(2)]
    for _ in range(20):
        both = threading.Barrier(2)

        def run(session, mine, others):
            session.set(mine, "value + 1")
            both.wait(SECONDS_MAX)
            try:
                session.set(others, "value + 1")
                session.commit()
            except taut.OperationalError as error:
                session.rollback()
                return error.sqlstate

        one, two = (session.begin(level) for session in sessions)
        first = Pending(lambda: run(one, 1, 2), con)
        second = Pending(lambda: run(two, 2, 1), con)
        assert {first.result(), second.result()} == {None, "40P01"}
    assert con.sql("SELECT value FROM test").fetchall() == [(20,), (20,)]


def test_an_interrupted_statement_leaves_nothing_to_commit(sessions, rows):
    one, two, _ = sessions
    one.begin(SNAPSHOT).set(1, 11)
    two.begin(SNAPSHOT).set(2, 22)
    pending = two.start(set_value(1, 12))
    assert pending.waits()
    two.con.interrupt()
    assert_refused("57014", pending.result)
    one.rollback()
    # The transaction has failed, so COMMIT rolls it back.
    two.con.commit()
    assert rows() == [(1, 10), (2, 20)]


def test_waiting_can_be_interrupted(sessions, rows):
    one, two, three = sessions
    one.begin(SNAPSHOT).set(1, 11)
    two.begin(SNAPSHOT).set(2, 22)
    pending = two.start(set_value(1, 12))
    assert pending.waits()
    two.con.interrupt()
    assert_refused("57014", pending.result)
    # Session two no longer waits, so this wait closes no cycle.
    pending = one.start(set_value(2, 21))
    assert pending.waits()
    two.rollback()
    assert pending.result() == 1
    one.commit()
    assert rows() == [(1, 11), (2, 21)]
    assert three.set(1, 13) == 1
