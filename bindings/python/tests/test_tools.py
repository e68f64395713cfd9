"""Tests the interfaces for other tools: DB-API, SQLAlchemy, pandas and IPython."""

import datetime
import decimal
import gc
import os
import signal
import threading
import time
import uuid

import pandas
import polars
import pytest
import sqlalchemy
from IPython.core.error import UsageError
from IPython.testing.globalipapp import start_ipython

import taut


@pytest.fixture
def cursor(con):
    with con.cursor() as cursor:
        cursor.execute("CREATE TABLE t (a int, b text, d date)")
        yield cursor


def test_module_attributes_of_db_api():
    assert (taut.apilevel, taut.paramstyle, taut.threadsafety) == ("2.0", "qmark", 2)
    assert issubclass(taut.IntegrityError, taut.DatabaseError) and issubclass(taut.DatabaseError, taut.Error)
    assert issubclass(taut.Warning, Exception) and issubclass(taut.InterfaceError, taut.Error)
    assert taut.Date(2020, 1, 2) == datetime.date(2020, 1, 2) and taut.Binary(b"x") == b"x"
    assert isinstance(taut.TimestampFromTicks(0), datetime.datetime)
    assert isinstance(taut.DateFromTicks(0), datetime.date) and isinstance(taut.TimeFromTicks(0), datetime.time)


def test_rows_are_described_and_fetched(cursor):
    assert cursor.description is None and cursor.rowcount == -1
    cursor.executemany("INSERT INTO t VALUES (?, ?, ?)", [(i, str(i), datetime.date(2020, 1, 1)) for i in range(50)])
    assert cursor.rowcount == 50 and cursor.description is None
    cursor.execute("SELECT a, b, d FROM t WHERE a >= ? ORDER BY a", (10,))
    assert [len(column) for column in cursor.description] == [7, 7, 7]
    assert [column[0] for column in cursor.description] == ["a", "b", "d"]
    kinds = [column[1] for column in cursor.description]
    assert kinds[0] == taut.NUMBER and kinds[1] == taut.STRING and kinds[2] == taut.DATETIME and kinds[0] != taut.STRING
    assert cursor.fetchone() == (10, "10", datetime.date(2020, 1, 1))
    assert [row[0] for row in cursor.fetchmany()] == [11]
    cursor.arraysize = 3
    assert [row[0] for row in cursor.fetchmany()] == [12, 13, 14]
    assert len(cursor.fetchall()) == 35 and cursor.fetchone() is None
    assert [row for row in cursor.execute("SELECT a FROM t WHERE a < 2 ORDER BY a")] == [(0,), (1,)]
    assert cursor.execute("SELECT a FROM t").fetch_arrow_table().num_rows == 50
    cursor.setinputsizes([1])
    cursor.setoutputsize(1)
    assert cursor.connection.autocommit and cursor.connection.commit() is None


def test_executemany_stores_many_rows_in_one_block(cursor):
    cursor.executemany("INSERT INTO t (a, b) VALUES (?, ?)", ((i, None) for i in range(5000)))
    assert cursor.execute("SELECT blocks FROM taut.tables").fetchone() == (1,)
    with pytest.raises(taut.ProgrammingError, match="row 1 has 1 values"):
        cursor.executemany("INSERT INTO t (a, b) VALUES (?, ?)", [(1, 2), (3,)])
    assert cursor.execute("SELECT count(*) FROM t").fetchone() == (5000,)
    cursor.executemany("INSERT INTO t (a) SELECT $n", [{"n": 1}, {"n": 2}])
    assert cursor.rowcount == 2
    cursor.executemany("INSERT INTO t (a) VALUES (?)", [])
    assert cursor.rowcount == 0
    cursor.execute("CREATE TABLE mixed (n bigint, s text)")
    rows = [(9007199254740993, "x"), (1.0, None), (None, 5), (2, b"y"), (3, "z")]
    cursor.executemany("insert into mixed(n, s) values(?,?);", rows)
    assert cursor.rowcount == 5
    found = cursor.execute("SELECT * FROM mixed ORDER BY n").fetchall()
    assert found == [(1, None), (2, "y"), (3, "z"), (9007199254740993, "x"), (None, "5")]
    cursor.executemany("INSERT INTO mixed (n) SELECT 7; INSERT INTO mixed (n) VALUES (?)", [(8,), (9,)])
    assert cursor.execute("SELECT n FROM mixed WHERE n BETWEEN 7 AND 9 ORDER BY n").fetchall() == [(7,), (7,), (8,), (9,)]


@pytest.mark.parametrize(
    ("operation", "rows", "error"),
    [
        ("INSERT INTO u VALUES (?, 'x')", [(1,), (2,), (1,)], taut.IntegrityError),
        ("INSERT INTO u VALUES (?, ?)", [(1, "x"), (2, b"y"), (2, "z")], taut.IntegrityError),
        ("UPDATE u SET a = a / ?", [(1,), (0,)], taut.DataError),
        ("INSERT INTO u VALUES (?, ?)", [(1, "x"), (2, object())], TypeError),
        ("INSERT INTO u VALUES ($a, $b)", [{"a": 1, "b": "x"}, {"a": 2}], taut.ProgrammingError),
        ("INSERT INTO u VALUES (7, 'x'); INSERT INTO u VALUES (?, 'y')", [(8,), (8,)], taut.IntegrityError),
        ("INSERT INTO u VALUES (7, 'x'); INSERT INTO u VALUES (?, 'y')", [(7,)], taut.IntegrityError),
    ],
)
def test_executemany_is_all_or_none(con, operation, rows, error):
    def found():
        return con.sql("SELECT a, b FROM u ORDER BY a").fetchall()

    con.sql("CREATE TABLE u (a int PRIMARY KEY, b text); INSERT INTO u VALUES (10, 'before')")
    cursor = con.cursor()
    with pytest.raises(error):
        cursor.executemany(operation, rows)
    assert cursor.rowcount == -1 and not con.in_transaction
    assert found() == [(10, "before")]
    con.begin()
    con.sql("INSERT INTO u VALUES (20, 'in the transaction')")
    con.sql("SAVEPOINT s")
    with pytest.raises(error):
        cursor.executemany(operation, rows)
    assert con.in_transaction
    if error is TypeError:
        assert found() == [(10, "before"), (20, "in the transaction")], "no statement has run, as after execute()"
    else:
        with pytest.raises(taut.OperationalError, match="ROLLBACK"):
            found()
    con.sql("ROLLBACK TO SAVEPOINT s")
    assert found() == [(10, "before"), (20, "in the transaction")]
    cursor.executemany("INSERT INTO u VALUES (?, 'x')", [(1,), (2,)])
    con.commit()
    assert [a for a, _ in found()] == [1, 2, 10, 20]


def test_executemany_ends_no_transaction(cursor):
    for operation in ("INSERT INTO t (a) VALUES (?); COMMIT", "ROLLBACK; INSERT INTO t (a) VALUES (?)", "BEGIN"):
        with pytest.raises(taut.ProgrammingError, match="executemany runs in one transaction"):
            cursor.executemany(operation, [(1,), (2,)])
    with pytest.raises(taut.ProgrammingError, match="no statement"):
        cursor.executemany(" ", [(1,)])
    with pytest.raises(taut.ProgrammingError, match="variable that holds a DataFrame"):
        cursor.executemany("INSERT INTO t (a) SELECT n FROM missing WHERE n > ?", [(1,)])
    frame = polars.DataFrame({"n": [1, 2, 3]})
    cursor.executemany("INSERT INTO t (a) SELECT n FROM frame WHERE n > ?", [(1,), (2,)])
    assert cursor.rowcount == 3 and len(frame) == 3
    cursor.executemany("INSERT INTO t (a) VALUES (?) RETURNING a", [(7,), (8,)])
    with pytest.raises(taut.ProgrammingError, match="gave no rows"):
        cursor.fetchall()
    assert cursor.execute("SELECT a FROM t ORDER BY a").fetchall() == [(2,), (3,), (3,), (7,), (8,)]


def test_an_interrupt_undoes_executemany(con):
    con.sql("CREATE TABLE u (a bigint)")
    con.begin()
    con.sql("INSERT INTO u VALUES (0)")
    rows = [{"a": a} for a in range(200_000)]
    # A callback of a collected object would swallow the interrupt.
    gc.collect()
    for is_in_transaction in (True, False):
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            con.cursor().executemany("INSERT INTO u SELECT $a", rows)
            time.sleep(5)
        assert con.in_transaction == is_in_transaction
        # Does nothing without a transaction.
        con.rollback()
        assert con.sql("SELECT count(*) FROM u").fetchone() == (0,)


def test_a_cursor_is_an_iterator(cursor):
    cursor.executemany("INSERT INTO t (a) VALUES (?)", [(1,), (2,), (3,)])
    cursor.execute("SELECT a FROM t ORDER BY a")
    assert iter(cursor) is cursor and next(cursor) == (1,) and list(cursor) == [(2,), (3,)]
    # PEP 249: no rows remain.
    assert (list(cursor), cursor.fetchall(), cursor.fetchmany(2), cursor.fetchone()) == ([], [], [], None)


def test_errors_name_the_misuse_of_a_cursor(cursor):
    with pytest.raises(taut.ProgrammingError, match="gave no rows"):
        cursor.fetchone()
    with pytest.raises(taut.IntegrityError):
        cursor.execute("CREATE TABLE n (a int NOT NULL); INSERT INTO n VALUES (NULL)")
    cursor.close()
    cursor.close()
    for use in (lambda: cursor.execute("SELECT 1"), cursor.fetchall, lambda: cursor.executemany("SELECT ?", [(1,)])):
        with pytest.raises(taut.InterfaceError, match="cursor is closed"):
            use()


def test_cursors_of_one_connection_run_side_by_side(con):
    con.sql("CREATE TABLE t AS SELECT i AS a FROM generate_series(1, 100000) AS g(i)")
    first, second = con.cursor(), con.cursor()
    first.execute("SELECT a FROM t ORDER BY a")
    second.execute("SELECT a FROM t ORDER BY a DESC")
    assert (first.fetchone(), second.fetchone(), first.fetchone()) == ((1,), (100_000,), (2,))
    con.register("shared", polars.DataFrame({"n": [5]}))
    assert first.execute("SELECT n FROM shared").fetchone() == (5,), "cursors share the session"


@pytest.fixture(params=["file", "memory"])
def engine(request, tmp_path):
    engine = sqlalchemy.create_engine(f"taut:///{tmp_path}/shop.taut?threads=1" if request.param == "file" else "taut://")
    yield engine
    engine.dispose()


def test_pandas_reads_and_writes_by_sqlalchemy(engine):
    frame = pandas.DataFrame({"id": [1, 2], "name": ["a", None], "at": pandas.to_datetime(["2020-01-01", None])})
    assert frame.to_sql("people", engine, index=False) == 2
    read = pandas.read_sql(sqlalchemy.text("SELECT * FROM people WHERE id = :id"), engine, params={"id": 1})
    assert read["name"].tolist() == ["a"] and read["at"].tolist() == [pandas.Timestamp("2020-01-01")]
    assert len(pandas.read_sql_table("people", engine)) == 2
    assert frame.to_sql("people", engine, index=False, if_exists="append") == 2
    frame.to_sql("people", engine, index=False, if_exists="replace")
    assert len(pandas.read_sql("SELECT * FROM people", engine)) == 2
    assert frame.to_sql("indexed", engine) == 2
    indexes = sqlalchemy.inspect(engine).get_indexes("indexed")
    assert indexes == [{"name": "ix_indexed_index", "column_names": ["index"], "unique": False}]
    table = sqlalchemy.Table("indexed", sqlalchemy.MetaData(), autoload_with=engine)
    unique = sqlalchemy.Index("u", table.c["index"], unique=True)
    unique.create(engine)
    with pytest.raises(pandas.errors.DatabaseError, match="duplicate key value violates unique constraint"):
        frame.to_sql("indexed", engine, if_exists="append")
    unique.drop(engine)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        assert connection.execute(sqlalchemy.text("SELECT count(*) FROM indexed")).scalar() == 2
    large = pandas.DataFrame({"a": range(20_000), "b": [str(i) for i in range(20_000)]})
    assert large.to_sql("large", engine, index=False) == 20_000
    with taut.connect() as con:
        con.sql("CREATE TABLE t AS SELECT 1 AS a")
        with pytest.warns(UserWarning):
            assert pandas.read_sql("SELECT a FROM t WHERE a = ?", con, params=[1])["a"].tolist() == [1]


def test_tables_of_sqlalchemy(engine):
    metadata = sqlalchemy.MetaData()
    table = sqlalchemy.Table(
        "Orders", metadata,
        sqlalchemy.Column("id", sqlalchemy.BigInteger, primary_key=True, autoincrement=False),
        sqlalchemy.Column("Total", sqlalchemy.Numeric(10, 2)),
        sqlalchemy.Column("at", sqlalchemy.DateTime(timezone=True)),
        sqlalchemy.Column("note", sqlalchemy.String(20)),
        sqlalchemy.Column("paid", sqlalchemy.Boolean),
        sqlalchemy.Column("weight", sqlalchemy.Float),
        sqlalchemy.Column("scan", sqlalchemy.LargeBinary),
        sqlalchemy.Column("key", sqlalchemy.Uuid),
        sqlalchemy.Column("more", sqlalchemy.JSON),
        taut_layout="groups", taut_groups='(id, "Total", at), (note, paid, weight, scan, key, more)', taut_sort_by="id",
    )  # fmt: skip
    metadata.create_all(engine)
    metadata.create_all(engine)
    at = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
    rows = [
        {"id": 2, "Total": decimal.Decimal("5.25"), "at": at, "note": "x", "paid": True, "weight": 1.5, "scan": b"\x00",
         "key": uuid.UUID(int=5), "more": {"a": [1]}},
        {"id": 1, "Total": None, "at": None, "note": None, "paid": None, "weight": None, "scan": None,
         "key": None, "more": None},
    ]
    with engine.begin() as connection:
        connection.execute(table.insert(), rows)
        connection.execute(table.insert().values(id=3))
        found = connection.execute(sqlalchemy.select(table).where(table.c.id < 3).order_by(table.c.id.desc())).mappings().all()
        assert [dict(row) for row in found] == rows
        query = sqlalchemy.select(sqlalchemy.func.count(), sqlalchemy.func.sum(table.c.Total)).where(table.c.id.in_([1, 2, 3]))
        assert connection.execute(query.limit(1).offset(0)).one() == (3, decimal.Decimal("5.25"))
        connection.execute(sqlalchemy.text("CREATE VIEW totals AS SELECT sum(id) AS s FROM \"Orders\""))
    inspector = sqlalchemy.inspect(engine)
    assert inspector.get_table_names() == ["Orders"] and inspector.get_view_names() == ["totals"]
    assert inspector.has_table("Orders") and not inspector.has_table("orders")
    assert inspector.get_table_options("Orders")["taut_layout"] == "groups"
    reflected = sqlalchemy.Table("Orders", sqlalchemy.MetaData(), autoload_with=engine)
    assert [type(column.type).__name__ for column in reflected.columns] == [
        "BigInteger", "Numeric", "DateTime", "String", "Boolean", "Double", "LargeBinary", "String", "String",
    ]  # fmt: skip
    assert not reflected.c.id.nullable and reflected.c.at.type.timezone
    with pytest.raises(sqlalchemy.exc.NoSuchTableError):
        sqlalchemy.Table("missing", sqlalchemy.MetaData(), autoload_with=engine)
    with pytest.raises(sqlalchemy.exc.ProgrammingError, match="missing"), engine.connect() as connection:
        connection.exec_driver_sql("SELECT * FROM missing")
    with pytest.raises(sqlalchemy.exc.IntegrityError), engine.connect() as connection:
        connection.execute(sqlalchemy.text("INSERT INTO \"Orders\" (note) VALUES ('no key')"))
    computed = sqlalchemy.Column("a", sqlalchemy.Integer, sqlalchemy.Computed("1 + 1", persisted=False))
    with pytest.raises(sqlalchemy.exc.CompileError, match="no virtual computed columns"):
        sqlalchemy.Table("d", sqlalchemy.MetaData(), computed).create(engine)
    with pytest.raises(sqlalchemy.exc.DBAPIError, match="other objects depend on it"):
        metadata.drop_all(engine)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("DROP VIEW totals"))
    metadata.drop_all(engine)
    assert sqlalchemy.inspect(engine).get_table_names() == []


def test_urls_are_checked(tmp_path):
    for url in ("taut:///x?color=red", "taut://server/x"):
        with pytest.raises(sqlalchemy.exc.ArgumentError, match="allowed are taut:///path"):
            sqlalchemy.create_engine(url).connect()


@pytest.fixture(scope="module")
def shell():
    shell = start_ipython()
    shell.run_line_magic("load_ext", "taut")
    return shell


def test_cells_of_sql(shell, con, tmp_path):
    shell.user_ns.clear()
    assert shell.run_line_magic("taut", "SELECT 1 + 1").fetchone() == (2,)
    shell.user_ns.update(con=con, frame=polars.DataFrame({"n": [1, 2]}))
    shell.run_cell_magic("taut", "", "CREATE TABLE t AS SELECT n FROM frame")
    assert con.tables() == ["t"], "the only connection among the variables is used"
    assert shell.run_cell_magic("taut", "con -o sums --as polars", "SELECT sum(n) AS s FROM t") is None
    assert shell.user_ns["sums"]["s"].to_list() == [3]
    shell.run_cell_magic("taut", "con -o sums", "SELECT sum(n) AS s FROM t")
    assert shell.user_ns["sums"].loc[0, "s"] == 3
    path = str(tmp_path / "other.taut")
    shell.run_cell_magic("taut", path, "CREATE TABLE u (a int)")
    assert shell.run_cell_magic("taut", path, "SELECT count(*) FROM u").fetchone() == (0,)
    with pytest.raises(UsageError, match="'nothing' is no connection"):
        shell.run_cell_magic("taut", "nothing", "SELECT 1")
    with pytest.raises(UsageError, match="--wrong"):
        shell.run_cell_magic("taut", "--wrong", "SELECT 1")
    shell.user_ns["second"] = con.duplicate()
    with pytest.raises(UsageError, match="more than one connection"):
        shell.run_cell_magic("taut", "", "SELECT 1")
