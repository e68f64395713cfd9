"""Tests connections: statements, settings, errors, threads and signals."""

import gc
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

import taut

ENDLESS = "SELECT count(*) FROM generate_series(1, 1000000000000) AS g(i)"


def test_statements_and_rows(con):
    assert con.sql("CREATE TABLE t (a int, b text)").tag == "CREATE TABLE"
    done = con.sql("INSERT INTO t VALUES (1, 'one'), (2, NULL)")
    assert (done.tag, done.row_count, done.columns) == ("INSERT 2", 2, [])
    rows = con.sql("SELECT a, b FROM t ORDER BY a")
    assert (rows.columns, rows.types) == (["a", "b"], ["integer", "varchar"])
    assert rows.fetchone() == (1, "one")
    assert rows.fetchmany(5) == [(2, None)]
    assert rows.fetchone() is None and rows.fetchmany(5) == []
    assert list(con.sql("SELECT a FROM t WHERE false")) == []
    assert con.sql("SELECT 1; SELECT 2").fetchall() == [(2,)]
    assert con.sql("CREATE TABLE IF NOT EXISTS t (a int)").notices == ['relation "t" already exists, skipping']
    assert sum(a for (a,) in con.sql("SELECT i FROM generate_series(1, 10000) AS g(i)")) == 50_005_000


def insert_into_variable(con):
    frame = con.sql("SELECT 1 AS a").to_arrow()
    con.sql("INSERT INTO frame SELECT a FROM frame")


ERRORS = {
    "no statement at all": (lambda con: con.sql(" ; "), taut.ProgrammingError, "no statement"),
    "syntax": (lambda con: con.sql("SELEC 1"), taut.ProgrammingError, "Expected"),
    "unknown table": (lambda con: con.sql("SELECT a FROM missing"), taut.ProgrammingError, "(?s)missing.*variable that holds a DataFrame"),
    "unknown column": (lambda con: con.sql("SELECT x FROM t"), taut.ProgrammingError, "t.a"),
    "division by zero": (lambda con: con.sql("SELECT 1 / a FROM t").fetchall(), taut.DataError, "zero"),
    "cast": (lambda con: con.sql("SELECT CAST(b AS int) FROM t").fetchall(), taut.DataError, "word"),
    "null": (lambda con: con.sql("INSERT INTO n VALUES (NULL)"), taut.IntegrityError, "a"),
    "not supported": (lambda con: con.sql("SELECT * FROM t FOR UPDATE"), taut.NotSupportedError, "UPDATE locks rows"),
    "too few parameters": (lambda con: con.sql("SELECT ?"), taut.ProgrammingError, "wrong number of parameters: expected 1, got 0"),
    "too many parameters": (lambda con: con.sql("SELECT ?", [1, 2]), taut.ProgrammingError, "wrong number of parameters: expected 1, got 2"),
    "a text as parameters": (lambda con: con.sql("SELECT ?", "text"), TypeError, r"write \(value,\)"),
    "a set as parameters": (lambda con: con.sql("SELECT ?, ?", {1, 2}), TypeError, "sequence or a mapping"),
    "a number as parameters": (lambda con: con.sql("SELECT ?", 5), TypeError, "sequence or a mapping"),
    "an object as a parameter": (lambda con: con.sql("SELECT ?", [object()]), TypeError, "allowed are None, bool"),
    "a number as a name": (lambda con: con.sql("SELECT $1", {1: 2}), TypeError, "name of a parameter"),
    "a large number": (lambda con: con.sql("SELECT ?", [10**40]), taut.DataError, "38 digits"),
    "no text": (lambda con: con.sql(5), TypeError, "a statement is a str"),
    "register no table": (lambda con: con.register("x", 5), TypeError, "of type int, which is not a table.*__arrow_c_stream__"),
    "register over a table": (lambda con: con.register("t", con.sql("SELECT 1")), taut.ProgrammingError, "exists"),
    "unregister": (lambda con: con.unregister("x"), taut.ProgrammingError, "not registered"),
    "insert no table": (lambda con: con.insert("t", [1, 2]), TypeError, "of type list, which is not a table"),
    "insert into a variable": (lambda con: insert_into_variable(con), taut.ProgrammingError, "frame"),
    "insert into what is registered": (lambda con: (con.register("r", con.sql("SELECT 1 AS a")), con.sql("INSERT INTO r VALUES (1)")), taut.ProgrammingError, "\"r\""),
    "insert a type": (lambda con: con.insert("t", taut.Result), TypeError, "not a table"),
    "insert another column": (lambda con: con.insert("t", con.sql("SELECT 1 AS z")), taut.ProgrammingError, 'column "z" of relation "t" does not exist'),
    "insert text as number": (lambda con: con.insert("t", con.sql("SELECT 'x' AS a")), taut.DataError, "x"),
    "unknown layout": (lambda con: con.insert("u", con.sql("SELECT 1 AS a"), layout="rows"), taut.ProgrammingError, "packed_row"),
    "unknown option": (lambda con: con.insert("u", con.sql("SELECT 1 AS a"), colour="red"), taut.ProgrammingError, "colour"),
    "load nothing": (lambda con: con.load("t", []), ValueError, "name one file"),
    "load by no match": (lambda con: con.load("t", "nothing-*.csv"), FileNotFoundError, "no file matches"),
    "load a missing file": (lambda con: con.load("t", "nothing.csv"), taut.OperationalError, "nothing.csv"),
    "load a strange format": (lambda con: con.load("t", "x.csv", format="xml"), taut.ProgrammingError, "parquet"),
    "no such table": (lambda con: con.table("nothing"), taut.ProgrammingError, "tables are: n, t"),
    "inspect no table": (lambda con: con.inspect("nothing"), taut.ProgrammingError, "tables are: n, t"),
    "set a strange option": (lambda con: con.table("t").set(layout="rows"), taut.ProgrammingError, "packed_row"),
    "a negative number of rows": (lambda con: con.sql("SELECT 1").fetchmany(-1), ValueError, "0 or more"),
    "rows of what gives none": (lambda con: con.sql("CREATE TABLE x (a int)").fetchall(), taut.InterfaceError, "gives no rows.*CREATE TABLE"),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_errors_have_their_class_and_a_useful_message(con, case):
    run, kind, message = ERRORS[case]
    con.sql("CREATE TABLE t (a int, b text); INSERT INTO t VALUES (0, 'word'); CREATE TABLE n (a int NOT NULL)")
    with pytest.raises(kind, match=message) as raised:
        run(con)
    assert raised.type is kind
    if isinstance(raised.value, taut.DatabaseError) and raised.value.sqlstate is not None:
        assert len(raised.value.sqlstate) == 5
    assert con.sql("SELECT count(*) FROM t").fetchone() == (1,), "nothing was changed, and the connection is usable"


def test_errors_have_a_position_and_sqlstate(con):
    with pytest.raises(taut.ProgrammingError) as raised:
        con.sql("SELECT 1;\n  SELEC 2")
    assert (raised.value.sqlstate, raised.value.position) == ("42601", (2, 3))
    with pytest.raises(taut.InterfaceError) as raised:
        con.sql("CREATE VIEW v AS SELECT 1 AS a").fetchone()
    assert (raised.value.sqlstate, raised.value.position) == (None, None)


def test_closed_connections_raise_interface_errors(con):
    cursor, table = con.cursor(), con.sql("CREATE TABLE t (a int)") and con.table("t")
    con.close()
    con.close()
    assert con.closed and "closed" in repr(con)
    frame = taut.connect().sql("SELECT 1 AS a")
    uses = [
        lambda: con.sql("SELECT 1"), con.commit, con.rollback, con.cursor, con.tables, con.duplicate,
        lambda: con.insert("t", frame), lambda: con.load("t", "x.csv"), lambda: table.layout,
        lambda: cursor.execute("SELECT 1"), lambda: con.register("x", taut.connect().sql("SELECT 1 AS a")),
        table.__datafusion_table_provider__,
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(taut.InterfaceError, match="connection is closed"):
            use()


def test_results_outlive_their_connection(tmp_path):
    with taut.connect(tmp_path / "d") as con:
        con.sql("CREATE TABLE t AS SELECT i FROM generate_series(1, 200000) AS g(i)")
        result = con.sql("SELECT i FROM t")
        assert result.fetchone() is not None
    again = taut.connect(tmp_path / "d", threads=1)
    assert again.sql("SELECT count(*) FROM t").fetchone() == (200_000,), "while the first result holds the files"
    assert len(result.fetchall()) == 199_999


def test_a_process_opens_a_database_once_and_shares_it(tmp_path):
    path = tmp_path / "shop.taut"
    con = taut.connect(path, threads=1, memory="1GiB", cache=1 << 20)
    con.sql("CREATE TABLE t AS SELECT 1 AS a")
    with taut.connect(path) as other, taut.connect(str(path), threads=1, memory=2**30, cache="1 MiB") as same:
        other.sql("INSERT INTO t VALUES (2)")
        assert same.sql("SELECT sum(a) FROM t").fetchone() == (3,)
    assert con.duplicate().sql("SELECT sum(a) FROM t").fetchone() == (3,)
    with pytest.raises(taut.OperationalError, match="other settings: threads 1, cache 1048576 bytes"):
        taut.connect(path, threads=5)
    program = "import sys, taut\ntry: taut.connect(sys.argv[1])\nexcept taut.OperationalError as error: print(error)"
    process = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    assert "is in use by process" in process.stdout
    con.close()
    del con
    with taut.connect(path, threads=2, create=False) as con:
        assert con.sql("SELECT a FROM t ORDER BY a").fetchall() == [(1,), (2,)]


def test_settings_are_checked(tmp_path):
    for options in ({"threads": 0}, {"memory": "much"}, {"cache": -1}):
        with pytest.raises(ValueError, match=next(iter(options))):
            taut.connect(tmp_path / "d", **options)
    with pytest.raises(taut.OperationalError, match="no database"):
        taut.connect(tmp_path / "missing", create=False)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    with pytest.raises(taut.OperationalError, match="letter|not a|no Taut|empty"):
        taut.connect(tmp_path / "full")
    with pytest.raises(TypeError):
        taut.connect(5)
    first, second = taut.connect(), taut.connect()
    first.sql("CREATE TABLE t (a int)")
    assert second.tables() == [], "connections in memory do not share a database"


def test_load_and_tables(con, tmp_path):
    for part in range(3):
        (tmp_path / f"part-{part}.csv").write_text(f"id,name\n{part},n{part}\n")
    assert con.load("t", tmp_path / "part-*.csv", layout="packed_row", sort_by="id") == 3
    assert con.load("t", [tmp_path / "part-0.csv", str(tmp_path / "part-1.csv")], header=True, delimiter=",") == 2
    con.sql(f"COPY t TO '{tmp_path}/t.parquet'")
    assert con.load("u", f"{tmp_path}/t.parquet", layout="groups", groups="(id), (name)") == 5
    table = con.table("t")
    assert (table.layout, table.sort_by, table.rows, con.tables()) == ("packed_row", "id", 5, ["t", "u"])
    assert table.columns == {"id": "bigint", "name": "varchar"}
    assert con.table("u").groups == "(id),(name)" and con.table("u").sort_by is None
    table.set(layout="column", partition_by="hash(id, 2)")
    assert table.partition_by == "hash(id, 2)" and con.table("u").partition_by is None
    assert table.layout == "column" and table.bytes > 0 and table.plain_bytes > 0 and table.blocks >= 1
    assert "5 rows" in repr(table) and "layout='column'" in table.options


def test_inspect_shows_the_blocks(con):
    con.sql("CREATE TABLE t (a bigint, b text, c int) WITH (layout = 'groups', groups = '(a, c), (b)', block_size = '128KiB')")
    con.sql("INSERT INTO t SELECT i, '<' || i || '>', 7 FROM generate_series(1, 500000) AS g(i)")
    inspection = con.inspect("t")
    assert inspection.block_count == con.table("t").blocks > len(inspection.blocks) == 64
    assert {column.name for column in inspection.columns()} == {"a", "b", "c"}
    assert all(len(block.columns) == 3 and block.layout == "groups" for block in inspection.blocks)
    text, picture = repr(inspection), inspection._repr_html_()
    assert "500,000 rows" in text and "64 are shown" in text
    assert picture.count("<rect") == 64 * 3 and picture.count("<svg") == 64
    con.sql("CREATE TABLE empty (a int)")
    assert "0 rows in 0 blocks" in repr(con.inspect("empty")) and "<table>" in con.inspect("empty")._repr_html_()


def test_explain(con):
    con.sql("CREATE TABLE t AS SELECT i AS a FROM generate_series(1, 10) AS g(i)")
    assert "DataSourceExec" in con.explain("SELECT a FROM t")
    assert "output_rows" in con.explain("SELECT a FROM t WHERE a > ?", [5], analyze=True)


def test_explain_takes_one_statement(con):
    con.sql("CREATE TABLE kept (a int)")
    with pytest.raises(taut.ProgrammingError, match="one statement can be explained, found 2"):
        con.explain("SELECT 1; DROP TABLE kept")
    assert "kept" in con.tables()


def test_ctrl_c_ends_an_insert_from_an_endless_python_reader():
    program = """if True:
        import os, signal, threading, time, pyarrow, taut
        def batches():
            while True:
                time.sleep(0.1)
                yield pyarrow.record_batch({"a": [1]})
        reader = pyarrow.RecordBatchReader.from_batches(pyarrow.schema({"a": "int64"}), batches())
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            taut.connect().insert("t", reader)
        except KeyboardInterrupt:
            print("ended")
    """
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, "ended\n"), ended.stderr


def test_a_failed_insert_does_not_affect_other_results(con):
    con.sql("CREATE TABLE t AS SELECT i FROM generate_series(1, 300000) AS g(i)")
    rows = con.sql("SELECT i FROM t")
    first = len(rows.fetchmany(10))
    with pytest.raises(taut.ProgrammingError):
        con.insert("t", con.sql("SELECT 1 AS other"))
    assert first + len(rows.fetchall()) == 300_000


def test_interrupt_cancels_the_running_statement(con):
    threading.Timer(0.3, con.interrupt).start()
    with pytest.raises(taut.OperationalError, match="cancel") as raised:
        con.sql(ENDLESS).fetchall()
    assert raised.value.sqlstate == "57014"
    assert con.sql("SELECT 1").fetchone() == (1,)


def read_batches(rows):
    try:
        rows.to_batches().read_all()
    except Exception:
        # pyarrow raises its own exception for the cancelled statement. The KeyboardInterrupt follows here.
        time.sleep(5)
        raise


@pytest.mark.parametrize("operation", ["fetchall", "to_arrow", "to_batches", "to_polars", "create", "insert", "waits"])
def test_ctrl_c_cancels_the_running_statement(con, operation):
    rows = con.sql(ENDLESS.replace("count(*)", "i * 2 AS i") if operation == "insert" else ENDLESS)
    runs = {
        "fetchall": lambda: rows.fetchall(),
        "to_arrow": lambda: rows.to_arrow(),
        "to_polars": lambda: rows.to_polars(),
        "to_batches": lambda: read_batches(rows),
        "create": lambda: con.sql(f"CREATE TABLE t AS {ENDLESS}"),
        "insert": lambda: con.insert("t", rows),
        "waits": lambda: con.sql("SELECT 1"),
    }
    if operation == "waits":
        other = threading.Thread(target=lambda: pytest.raises(taut.Error, con.sql, f"CREATE TABLE t AS {ENDLESS}"))
        other.start()
        time.sleep(0.3)
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        runs[operation]()
        time.sleep(5)  # A signal that arrives after the statement interrupts this sleep.
    if operation == "waits":
        con.interrupt()
        other.join()
    assert con.sql("SELECT 1").fetchone() == (1,)
    assert con.tables() == []


def test_signal_handlers_run_during_statements(con):
    def handler(*_):
        raise TimeoutError("too long")

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(TimeoutError, match="too long"):
            con.sql(ENDLESS).fetchall()
    finally:
        signal.signal(signal.SIGALRM, before)


def test_other_threads_run_during_statements(con):
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.wait(0.005):
            ticks.append(1)

    thread = threading.Thread(target=tick)
    thread.start()
    threading.Timer(0.5, con.interrupt).start()
    with pytest.raises(taut.OperationalError):
        con.sql(ENDLESS).fetchall()
    stop.set()
    thread.join()
    assert len(ticks) > 10


def test_threads_share_connections_and_have_their_own(con):
    con.sql("CREATE TABLE t AS SELECT i FROM generate_series(1, 1000) AS g(i)")
    failures = []

    def work(connection):
        try:
            for bound in range(50):
                frame = connection.sql("SELECT i FROM t WHERE i <= ?", [bound])
                assert connection.sql("SELECT count(*) FROM frame").fetchone() == (bound,)
        except BaseException as error:
            failures.append(error)

    connections = [con, con, con.duplicate(), con.duplicate()]
    threads = [threading.Thread(target=work, args=[connection]) for connection in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def _in_child(con, result, path, answers):
    for use in (lambda: con.sql("SELECT 1"), result.fetchall, lambda: taut.connect(path)):
        try:
            use()
        except taut.Error as error:
            answers.put(str(error))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forked_processes_must_connect_again(tmp_path):
    con = taut.connect(tmp_path / "d")
    result = con.sql("SELECT 1")
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_in_child, args=(con, result, tmp_path / "d", answers))
    child.start()
    messages = [answers.get(timeout=20) for _ in range(3)]
    assert "connect in the new process" in messages[0] and "forked" in messages[1]
    assert "is in use by process" in messages[2]
    child.join()
    assert result.fetchall() == [(1,)]


def test_calls_from_a_signal_handler_during_a_statement_are_refused(con):
    rows, outcomes = con.sql(ENDLESS), []

    def handler(*_):
        for use in (lambda: con.sql("SELECT 1"), lambda: taut.connect().sql("SELECT 1"), rows.fetchall, rows.close):
            try:
                use()
                outcomes.append("done")
            except taut.Error as error:
                outcomes.append(str(error))
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(TimeoutError):
            rows.fetchall()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert len(outcomes) == 4 and all("waits" in message for message in outcomes), outcomes


def test_relative_paths_are_resolved_at_connect(tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    con = taut.connect("d")
    con.sql("CREATE TABLE t AS SELECT 1 AS a")
    monkeypatch.chdir("other")
    other = taut.connect("d")
    con.sql("INSERT INTO t VALUES (2)")
    assert con.sql("SELECT sum(a) FROM t").fetchone() == (3,) and other.tables() == []
    del other
    shutil.rmtree(tmp_path / "other/d")
    assert taut.connect("d").tables() == [], "a database in a new directory of the same name is another one"


def test_an_interrupt_in_the_reporter_cancels_the_statement():
    def reporter(*arguments):
        if arguments:
            raise KeyboardInterrupt

    con = taut.Connection(taut.connect()._native.duplicate(reporter))
    with pytest.raises(KeyboardInterrupt):
        con.sql(f"CREATE TABLE t AS {ENDLESS.replace('count(*)', 'i')}")
    assert con.tables() == []


def test_progress_is_reported_on_the_waiting_thread():
    reports = []
    native = taut.connect()._native.duplicate(lambda *arguments: reports.append((threading.get_ident(), arguments)))
    con = taut.Connection(native)
    con.sql("CREATE TABLE t AS SELECT i, i % 7 AS b, i * 31 AS c FROM generate_series(1, 6000000) AS g(i)")
    assert {thread for thread, _ in reports} == {threading.get_ident()}
    reported = [arguments for _, arguments in reports]
    assert reported[-1] == (), "the end is reported"
    assert all(operation == "load t" and 0 < done <= 6_000_000 for operation, done, _ in reported[:-1])
    con.table("t").set(layout="packed_row")
    assert ("rewrite t", 6_000_000) in {(arguments[0], arguments[2]) for _, arguments in reports if arguments}
    reports.clear()
    query = "SELECT a.i, max(b.c) FROM t AS a JOIN t AS b ON a.i % 1000 = b.b AND a.i < 3000 GROUP BY a.i"
    # The values 1 to 6, 1,001 to 1,006 and 2,001 to 2,006 of `i`, and 1,000 and 2,000.
    assert con.sql(query).to_arrow().num_rows == 20
    reported = [arguments for _, arguments in reports]
    # The query scans the six million rows twice.
    assert reported[-1] == () and reported[0][0] == "query" and reported[0][2] == 12_000_000
    done = [arguments[1] for arguments in reported[:-1]]
    assert done == sorted(done) and done[-1] <= 12_000_000


def test_progress_bars_are_drawn_if_enabled(capsys, monkeypatch):
    from taut import progress

    assert progress.reporter(None) is None and progress.reporter(False) is None, "a test has no terminal"
    monkeypatch.setattr(progress, "_QUIET_SECONDS", 0)
    bars = progress.reporter(True)
    bars("load t", 10, 100)
    drawn = ""
    for _ in range(50):
        time.sleep(0.2)
        bars("load t", 50, 100)
        drawn += capsys.readouterr().err
        # On a busy machine, a bar may not be drawn at every call.
        if "50.0/100" in drawn:
            break
    bars("rewrite t", 10, None)
    bars()
    drawn += capsys.readouterr().err
    assert "load t" in drawn and "50.0/100" in drawn and "rewrite t" in drawn


def test_memory_does_not_grow(con):
    def resident():
        gc.collect()
        with open("/proc/self/statm") as pages:
            return int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    con.sql("CREATE TABLE t AS SELECT i, 'text ' || i AS s FROM generate_series(1, 1000) AS g(i)")

    def run(times):
        for i in range(times):
            con.sql("SELECT 1").fetchone()
            con.sql("SELECT i, s FROM t WHERE i < ?", [i % 50]).fetchall()
            if i % 10 == 0:
                frame = con.sql("SELECT i FROM t").to_arrow()
                con.sql("SELECT count(*) FROM frame").fetchone()
                with pytest.raises(taut.ProgrammingError):
                    con.sql("SELECT nothing FROM t")
                con.sql("SELECT s FROM t")  # never read

    run(1_000)
    before = resident()
    run(5_000)
    assert resident() - before < 12 << 20, "resident memory grew by 12 MiB or more"


def test_docstrings_are_examples_that_work():
    import doctest

    assert doctest.testmod(taut).failed == 0 and doctest.testmod(taut).attempted >= 4


def test_public_names_have_docstrings():
    for name in taut.__all__:
        attribute = getattr(taut, name)
        if isinstance(attribute, type):
            assert attribute.__doc__, name
            for member, value in vars(attribute).items():
                if not member.startswith("_") and (callable(value) or isinstance(value, property)):
                    assert value.__doc__, f"{name}.{member}"
        elif callable(attribute):
            assert attribute.__doc__, name
    assert taut.__version__.count(".") == 2


def test_transactions_by_methods(con):
    con.execute("CREATE TABLE accounts (id int, amount int)")
    con.rollback()
    con.begin()
    assert con.in_transaction
    con.execute("INSERT INTO accounts VALUES (1, 10)")
    con.rollback()
    assert not con.in_transaction and con.sql("SELECT count(*) FROM accounts").fetchone() == (0,)
    con.begin()
    con.execute("INSERT INTO accounts VALUES (1, 10)")
    other = con.duplicate()
    assert other.sql("SELECT count(*) FROM accounts").fetchone() == (0,)
    con.commit()
    assert other.sql("SELECT count(*) FROM accounts").fetchone() == (1,)


def test_temporary_tables_belong_to_a_connection(tmp_path):
    path = tmp_path / "a.taut"
    with taut.connect(path) as con, taut.connect(path) as other:
        con.sql("CREATE TABLE t AS SELECT 1 AS a")
        con.sql("CREATE TEMP TABLE t AS SELECT 2 AS a")
        assert con.sql("SELECT a FROM t").fetchall() == [(2,)]
        assert other.sql("SELECT a FROM t").fetchall() == [(1,)]
        con.insert("t", con.sql("SELECT 3 AS a"))
        assert con.sql("SELECT sum(a) FROM t").fetchall() == [(5,)]
        assert con.tables() == ["pg_temp.t", "t"]
        assert other.tables() == ["t"]
    with taut.connect(path, read_only=True) as con:
        con.sql("CREATE TEMP TABLE u AS SELECT a + 10 AS a FROM t")
        assert con.sql("SELECT a FROM u").fetchall() == [(11,)]
        with pytest.raises(taut.Error, match="read-only"):
            con.sql("CREATE TABLE v (a int)")
