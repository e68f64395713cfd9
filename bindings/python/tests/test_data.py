"""Values and frames, into Taut and out of it."""

import datetime
import decimal
import uuid

import duckdb
import numpy
import pandas
import polars
import pyarrow
import pyarrow.compute
import pyarrow.dataset
import pytest

import taut

UTC = datetime.timezone.utc


def test_values_of_every_stored_type_go_in_and_come_out(con):
    values = [
        True, 7, -(2**31), 2**40, 1.5, -2.25, decimal.Decimal("-12.500"), "é", b"\x00\xff", datetime.date(2020, 2, 29),
        datetime.datetime(2020, 2, 29, 12, 30, 15, 123456), datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), None,
    ]  # fmt: skip
    con.sql(
        "CREATE TABLE t (a boolean, b smallint, c int, d bigint, e real, f double precision, g decimal(20, 3), h text, "
        "i bytea, j date, k timestamp, l timestamptz, m int)"
    )
    con.sql(f"INSERT INTO t VALUES ({', '.join('?' * len(values))})", values)
    (row,) = con.sql("SELECT * FROM t").fetchall()
    assert row == tuple(values) and [type(value) for value in row] == [type(value) for value in values]
    assert row[11].tzinfo is not None


def test_results_of_every_other_type(con):
    select = "SELECT INTERVAL '1 month 2 days 3 seconds', TIME '10:30:00', [1, NULL, 3], named_struct('a', 1, 'b', 'x'), NULL"
    assert con.sql(select).fetchone() == (
        datetime.timedelta(days=32, seconds=3), datetime.time(10, 30), [1, None, 3], {"a": 1, "b": "x"}, None,
    )  # fmt: skip
    assert con.sql("SELECT map(['a', 'b'], [1, 2])").fetchone() == ({"a": 1, "b": 2},)
    assert con.sql("SELECT [[1], [2, 3]], arrow_cast('x', 'Dictionary(Int32, Utf8)')").fetchone() == ([[1], [2, 3]], "x")
    assert con.sql("SELECT TIMESTAMP '2020-01-02' - TIMESTAMP '2020-01-01'").fetchone() == (datetime.timedelta(days=1),)
    now = con.sql("SELECT CAST(now() AS timestamptz)").fetchone()[0]
    assert abs(now - datetime.datetime.now(UTC)) < datetime.timedelta(minutes=10)
    types = con.sql(select).types
    assert types[:3] == ["interval", "time", "bigint[]"] and types[4] == "unknown"
    with pytest.raises(taut.DataError, match="years 1 to 9999"):
        con.sql("SELECT CAST(400000000 * 10 AS bigint), arrow_cast(100000000, 'Date32')").fetchall()


def test_parameters_of_many_types(con):
    given = {
        numpy.int64(5): 5, numpy.float32(0.5): 0.5, numpy.bool_(True): True, numpy.str_("x"): "x",
        pandas.Timestamp("2020-01-02 03:04:05"): datetime.datetime(2020, 1, 2, 3, 4, 5), pandas.NA: None, pandas.NaT: None,
        10**30: decimal.Decimal(10**30), decimal.Decimal("1E+1"): 10, decimal.Decimal("-0.05"): decimal.Decimal("-0.05"),
        bytes(3): bytes(3), datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=2))):
        datetime.datetime(2019, 12, 31, 22, tzinfo=UTC), -(2**63): -(2**63), "": "", "it's": "it's",
        uuid.UUID(int=7): str(uuid.UUID(int=7)),
    }  # fmt: skip
    for value, expected in given.items():
        assert con.sql("SELECT $1", [value]).fetchone() == (expected,), repr(value)
    assert con.sql("SELECT ?", [bytearray(b"ab")]).fetchone() == (b"ab",)
    assert con.sql("SELECT $n + 1, $m", {"n": 4, "m": "x"}).fetchone() == (5, "x")
    assert con.sql("SELECT ?, ?", (1, 2)).fetchone() == (1, 2)
    assert con.sql("SELECT ? + 1", iter([1])).fetchone() == (2,)
    con.sql("CREATE TABLE t AS SELECT $1 AS a", ["x"])
    assert con.sql("SELECT a FROM t").fetchall() == [("x",)]
    for refused in (float, {"a": 1}, [1], decimal.Decimal("NaN"), 10**39):
        with pytest.raises((TypeError, taut.DataError)):
            con.sql("SELECT $1", [refused])


@pytest.fixture
def filled(con):
    con.sql("CREATE TABLE t AS SELECT i AS a, 'x' || i AS b, CAST(i AS varchar) || 'y' AS c FROM generate_series(1, 100000) AS g(i)")
    return con


def test_results_as_every_kind_of_frame(filled):
    query = "SELECT a, b FROM t"
    assert filled.sql(query).to_arrow().num_rows == 100_000
    assert filled.sql(query).to_pandas()["a"].sum() == 5_000_050_000
    assert filled.sql(query).to_polars()["a"].sum() == 5_000_050_000
    assert sum(batch.num_rows for batch in filled.sql(query).to_batches()) == 100_000
    result = filled.sql(query)
    assert duckdb.sql("SELECT sum(a), min(b) FROM result").fetchall() == [(5_000_050_000, "x1")]
    assert polars.DataFrame(filled.sql(query)).shape == (100_000, 2)
    assert pyarrow.table(filled.sql(query)).num_rows == 100_000
    assert pandas.DataFrame.from_arrow(filled.sql(query)).shape == (100_000, 2)
    empty = filled.sql("SELECT a, b FROM t WHERE a < 0")
    assert empty.to_arrow().column_names == ["a", "b"]
    assert filled.sql("SELECT a FROM t WHERE false").to_polars().shape == (0, 1)


def test_text_is_what_the_consumer_computes_on(filled):
    plain = filled.sql("SELECT a, b, [b] AS l, CAST(b AS bytea) AS d FROM t").to_arrow()
    assert plain.schema.types == [pyarrow.int64(), pyarrow.string(), pyarrow.list_(pyarrow.string()), pyarrow.binary()]
    assert plain.sort_by("b").slice(0, 1)["b"].to_pylist() == ["x1"]
    assert pyarrow.compute.equal(plain["b"], "x7").to_pylist().count(True) == 1
    assert filled.sql("SELECT b FROM t").to_batches().schema.types == [pyarrow.string()]
    views = filled.sql("SELECT b FROM t").to_arrow(string_view=True)
    assert views.schema.types == [pyarrow.string_view()] and sorted(views["b"].to_pylist()) == sorted(plain["b"].to_pylist())
    asked = pyarrow.RecordBatchReader.from_stream(
        filled.sql("SELECT a, b FROM t"), schema=pyarrow.schema({"a": "int32", "b": "large_string"})
    )
    assert asked.read_all().schema.types == [pyarrow.int32(), pyarrow.large_string()]


def test_numbers_are_not_copied(con):
    con.sql("CREATE TABLE t AS SELECT i AS a FROM generate_series(1, 10000000) AS g(i)")
    before = pyarrow.total_allocated_bytes()
    table = con.sql("SELECT a FROM t").to_arrow()
    assert table.nbytes >= 80_000_000 and pyarrow.total_allocated_bytes() - before < 1_000_000


def test_rows_are_read_once(filled):
    result = filled.sql("SELECT a FROM t")
    result.to_arrow()
    for use in (result.to_pandas, result.fetchone, result.to_batches, result.to_polars, lambda: list(result)):
        with pytest.raises(taut.InterfaceError, match="run the statement again"):
            use()
    half = filled.sql("SELECT a FROM t ORDER BY a")
    assert half.fetchmany(70_000)[-1] == (70_000,)
    with pytest.raises(taut.InterfaceError, match="read already"):
        half.to_arrow()
    assert half.fetchone() == (70_001,) and len(half.fetchall()) == 29_999
    half.close()
    with pytest.raises(taut.InterfaceError, match="closed"):
        half.fetchone()


def test_showing_reads_nothing(filled):
    result = filled.sql('SELECT a AS "<i>", NULL AS n FROM t ORDER BY a')
    shown, text = result._repr_html_(), repr(result)
    assert "&lt;i&gt;" in shown and "<i>NULL</i>" in shown and "first 20 rows" in shown and shown.count("<tr>") == 21
    assert "| 20" in text and "| 21" not in text and "first 20 rows" in text
    assert result.fetchone() == (1, None) and result.to_arrow is not None
    assert len(result.fetchall()) == 99_999
    result = filled.sql("SELECT a FROM t")
    assert repr(result) and result.to_arrow().num_rows == 100_000
    assert "run the statement again" in repr(result) and "run the statement again" in result._repr_html_()
    done = filled.sql("INSERT INTO t (a) VALUES (1)")
    assert "INSERT 1" in repr(done) and "INSERT 1" in done._repr_html_()
    assert "| a |" in repr(filled.sql("SELECT a FROM t WHERE false"))


FRAMES = {
    "pandas": lambda con: pandas.DataFrame({"n": [1, 2, 3], "s": ["a", "b", None]}),
    "pandas, filtered": lambda con: pandas.DataFrame({"n": [0, 1, 2, 3], "s": ["z", "a", "b", None]}).query("n > 0"),
    "polars": lambda con: polars.DataFrame({"n": [1, 2, 3], "s": ["a", "b", None]}),
    "lazy": lambda con: polars.LazyFrame({"n": [1, 2, 3], "s": ["a", "b", None]}),
    "pyarrow": lambda con: pyarrow.table({"n": [1, 2, 3], "s": ["a", "b", None]}),
    "batch": lambda con: pyarrow.record_batch({"n": [1, 2, 3], "s": ["a", "b", None]}),
    "reader": lambda con: pyarrow.table({"n": [1, 2, 3], "s": ["a", "b", None]}).to_reader(1),
    "dictionary": lambda con: pyarrow.table({"n": [1, 2, 3], "s": pyarrow.array(["a", "b", None]).dictionary_encode()}),
    "dataset": lambda con: pyarrow.dataset.dataset(pyarrow.table({"n": [1, 2, 3], "s": ["a", "b", None]})),
    "duckdb": lambda con: duckdb.sql("SELECT unnest([1, 2, 3]) AS n, unnest(['a', 'b', NULL]) AS s"),
    "taut": lambda con: con.sql("SELECT n, s FROM (VALUES (1, 'a'), (2, 'b'), (3, NULL)) AS v(n, s)"),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_are_tables_by_name_registered_and_inserted(con, kind):
    expected = [(1, "a"), (2, "b"), (3, None)]
    frame = FRAMES[kind](con)
    assert con.sql("SELECT n, s FROM frame ORDER BY n").fetchall() == expected
    con.register("given", FRAMES[kind](con))
    assert con.sql("SELECT n, s FROM given ORDER BY n").fetchall() == expected
    assert con.sql("SELECT count(*) FROM given AS a JOIN given AS b ON a.n = b.n").fetchone() == (3,)
    con.unregister("given")
    assert con.insert("t", FRAMES[kind](con), layout="packed_row", sort_by="n") == 3
    assert con.sql("SELECT * FROM t ORDER BY n").fetchall() == expected
    assert con.table("t").layout == "packed_row"


def test_variables_are_found_as_python_finds_them(con):
    frame = polars.DataFrame({"n": [1]})
    assert con.sql("SELECT n FROM frame").fetchone() == (1,)
    assert con.sql("WITH frame AS (SELECT 2 AS n) SELECT n FROM frame").fetchone() == (2,)

    def inner():
        frame = polars.DataFrame({"n": [3]})
        assert frame.shape == (1, 1)
        return con.sql("SELECT n FROM frame").fetchone(), con.cursor().execute("SELECT n FROM frame").fetchone()

    assert inner() == ((3,), (3,))
    assert con.sql("SELECT shape FROM GLOBAL").fetchone() == (9,)
    con.sql("CREATE TABLE frame AS SELECT n + 10 AS n FROM frame")
    assert con.sql("SELECT n FROM frame").fetchone() == (11,), "tables of the database come first"
    con.insert("Sales", frame)
    with pytest.raises(taut.ProgrammingError, match='named "Sales", which SQL wants in double quotes'):
        con.sql("SELECT * FROM Sales")
    number, series = 5, polars.Series("n", [1])
    with pytest.raises(taut.ProgrammingError, match="variable number is of type int, no table.*DataFrames"):
        con.sql("SELECT * FROM number")
    with pytest.raises(taut.ProgrammingError, match="variable series is of type Series"):
        con.sql("SELECT * FROM series")
    other = pandas.DataFrame({"n": [1]})
    with pytest.raises(taut.Error):
        con.sql("CREATE VIEW v AS SELECT n FROM other; SELECT * FROM v").fetchall()
    assert (number, len(series), len(other)) == (5, 1, 1)


GLOBAL = pandas.DataFrame({"shape": [9]})


def test_columns_are_inserted_by_name(con):
    con.sql("CREATE TABLE t (id bigint NOT NULL, price double precision, name text)")
    assert con.insert("t", polars.DataFrame({"price": [1.5], "id": [1]})) == 1
    assert con.insert("t", pandas.DataFrame({"NAME": ["x"], "ID": [2]})) == 1
    assert con.sql("SELECT * FROM t ORDER BY id").fetchall() == [(1, 1.5, None), (2, None, "x")]
    with pytest.raises(taut.ProgrammingError, match="id in the data"):
        con.insert("t", polars.DataFrame({"price": [1.5]}))
    with pytest.raises(taut.IntegrityError, match="id"):
        con.insert("t", polars.DataFrame({"id": [3, None]}))
    with pytest.raises(taut.NotSupportedError, match="ALTER TABLE"):
        con.insert("t", polars.DataFrame({"id": [3]}), layout="row")
    assert con.table("t").rows == 2, "all or none"


def test_a_stream_that_fails_inserts_nothing(con):
    def batches():
        yield pyarrow.record_batch({"a": [1] * 100_000})
        raise RuntimeError("the line went dead")

    reader = pyarrow.RecordBatchReader.from_batches(pyarrow.schema({"a": "int64"}), batches())
    with pytest.raises(taut.Error, match="the line went dead"):
        con.insert("t", reader)
    assert con.tables() == []


def test_types_that_are_not_stored_say_so(con):
    frame = pyarrow.table({"a": [[1, 2]]})
    assert con.sql("SELECT a[2] FROM frame").fetchone() == (2,)
    with pytest.raises(taut.Error, match='"a".*varchar'):
        con.insert("t", frame)


def test_the_package_datafusion_reads_tables(con):
    datafusion = pytest.importorskip("datafusion")
    con.sql("CREATE TABLE t (a bigint, b text) WITH (layout = 'packed_row', sort_by = 'a')")
    con.sql("INSERT INTO t SELECT i, 'x' || i FROM generate_series(1, 100000) AS g(i)")
    context = datafusion.SessionContext()
    context.register_table("t", con.table("t"))

    def rows(query):
        return pyarrow.table(context.sql(query)).to_pylist()

    assert rows("SELECT count(*) AS n, sum(a) AS s FROM t") == [{"n": 100_000, "s": 5_000_050_000}]
    assert rows("SELECT b FROM t WHERE a = 77 OR a IN (5, 6) ORDER BY a") == [{"b": "x5"}, {"b": "x6"}, {"b": "x77"}]
    assert rows("SELECT b FROM t WHERE b LIKE 'x9999%' AND a < 99992 ORDER BY b") == [{"b": "x9999"}, {"b": "x99990"}, {"b": "x99991"}]
    assert "DataSourceExec" in str(context.sql("EXPLAIN SELECT b FROM t WHERE a = 7").to_pylist())
    con.sql("INSERT INTO t VALUES (0, 'new')")
    assert rows("SELECT b FROM t WHERE a = 0") == [{"b": "new"}], "the newest rows are read"
    assert len(rows("SELECT * FROM t LIMIT 3")) == 3
    con.sql("DROP TABLE t; CREATE TABLE t (z int)")
    with pytest.raises(Exception, match="register it again"):
        rows("SELECT a FROM t")
