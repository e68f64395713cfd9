"""Tests the conversion of values and frames between Python and Taut."""

import array
import datetime
import decimal
import types
import uuid

import duckdb
import numpy
import pandas
import polars
import pyarrow
import pyarrow.compute
import pyarrow.dataset
import pyarrow.parquet
import pytest

import taut
from taut.names import quoted, relation_name

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
    names = con.sql(select).types
    assert names[:3] == ["interval", "time", "bigint[]"] and names[4] == "unknown"
    with pytest.raises(taut.DataError, match="years 1 to 9999"):
        con.sql("SELECT CAST(400000000 * 10 AS bigint), arrow_cast(100000000, 'Date32')").fetchall()


def test_parameters_of_many_types(con):
    cases = {
        numpy.int64(5): 5, numpy.float32(0.5): 0.5, numpy.bool_(True): True, numpy.str_("x"): "x",
        pandas.Timestamp("2020-01-02 03:04:05"): datetime.datetime(2020, 1, 2, 3, 4, 5), pandas.NA: None, pandas.NaT: None,
        10**30: decimal.Decimal(10**30), decimal.Decimal("1E+1"): 10, decimal.Decimal("-0.05"): decimal.Decimal("-0.05"),
        bytes(3): bytes(3), datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=2))):
        datetime.datetime(2019, 12, 31, 22, tzinfo=UTC), -(2**63): -(2**63), "": "", "it's": "it's",
        uuid.UUID(int=7): str(uuid.UUID(int=7)),
    }  # fmt: skip
    for value, expected in cases.items():
        assert con.sql("SELECT $1", [value]).fetchone() == (expected,), repr(value)
    assert con.sql("SELECT ?", [bytearray(b"ab")]).fetchone() == (b"ab",)
    assert con.sql("SELECT $n + 1, $m", {"n": 4, "m": "x"}).fetchone() == (5, "x")
    assert con.sql("SELECT ?, ?", (1, 2)).fetchone() == (1, 2)
    assert con.sql("SELECT ? + 1", iter([1])).fetchone() == (2,)
    con.sql("CREATE TABLE t AS SELECT $1 AS a", ["x"])
    assert con.sql("SELECT a FROM t").fetchall() == [("x",)]
    assert con.sql("SELECT $a", types.MappingProxyType({"a": 1})).fetchone() == (1,)
    assert con.sql("SELECT ?", [memoryview(array.array("i", [1, 2]))]).fetchone() == (bytes(array.array("i", [1, 2])),)
    timestamp = numpy.datetime64("2020-01-02T03:04:05", "ns")
    row = con.sql("SELECT ?, CAST(? AS text)", [timestamp, numpy.datetime64("NaT")]).fetchone()
    assert row == (datetime.datetime(2020, 1, 2, 3, 4, 5), None)
    for refused in (
        float, {"a": 1}, {1}, decimal.Decimal("NaN"), decimal.Decimal("1E+300000000"), 10**39, numpy.timedelta64(5, "ns"),
        numpy.datetime64("2020-01-02T03:04:05.000000001"), pandas.Timestamp("2020-01-01 00:00:00.000000001"), 10**5000,
        datetime.time(1, tzinfo=UTC), pandas.Timedelta(1, "ns"), [object()], [1, "x"], [[1], 2],
    ):  # fmt: skip
        with pytest.raises((TypeError, taut.DatabaseError)):
            con.sql("SELECT $1", [refused])


def test_times_and_intervals_as_parameters(con):
    time, span = datetime.time(10, 30, 15, 123456), datetime.timedelta(days=400, hours=-3, microseconds=5)
    # From the second execution on, a plan may be cached.
    for _ in range(3):
        assert con.sql("SELECT $1, $2", [time, span]).fetchone() == (time, span)
        assert con.sql("SELECT $1", [numpy.timedelta64(90, "s")]).fetchone() == (datetime.timedelta(seconds=90),)
        assert con.sql("SELECT $1", [pandas.Timedelta("1 day 5 ms")]).fetchone() == (datetime.timedelta(1, 0, 5000),)
        assert con.sql("SELECT CAST($1 AS text)", [numpy.timedelta64("NaT")]).fetchone() == (None,)
        at = datetime.datetime(2020, 1, 31, 12)
        assert con.sql("SELECT $1 + $2, $1 - $2", [at, span]).fetchone() == (at + span, at - span)
        assert con.sql("SELECT $1 < $2, $1 = TIME '10:30:15.123456'", [time, datetime.time(11)]).fetchone() == (True, True)
        assert con.sql("SELECT $1 * 2", [datetime.timedelta(hours=3)]).fetchone() == (datetime.timedelta(hours=6),)
    con.sql("CREATE TABLE t (at timestamp); INSERT INTO t VALUES ('2020-01-01'), ('2020-01-05'), ('2020-02-01')")
    assert con.sql("SELECT date '2020-01-01' + $1", [datetime.timedelta(1)]).fetchone() == (datetime.datetime(2020, 1, 2),)
    assert con.sql("UPDATE t SET at = at + $1 RETURNING at", [datetime.timedelta(0, 5)]).fetchall()[0] == (datetime.datetime(2020, 1, 1, 0, 0, 5),)
    assert con.sql("UPDATE t SET at = at - $s", {"s": datetime.timedelta(0, 5)}).row_count == 3
    assert "DataSourceExec" in con.explain("SELECT count(*) FROM t WHERE at::date + $s > $d", {"s": span, "d": at})
    recent = "SELECT count(*) FROM t WHERE at > $1 - $2"
    counts = [con.sql(recent, [datetime.datetime(2020, 2, 2), datetime.timedelta(days)]).fetchone() for days in (1, 30, 60)]
    assert counts == [(0,), (2,), (3,)]
    with pytest.raises(taut.NotSupportedError, match="time with a time zone is not supported"):
        con.sql("SELECT $1", [datetime.time(1, tzinfo=UTC)])


def test_arrays_as_parameters(con):
    con.sql("CREATE TABLE t (a int, b text, d date, x decimal(10, 2))")
    con.sql("INSERT INTO t SELECT i, 'b' || i, date '2020-01-01' + i::int, i / 4.0 FROM generate_series(1, 1000) AS g(i)")
    for values in ([1, 2, 5000], (1, 2, 5000), numpy.array([1, 2, 5000]), pandas.Series([1, 2, 5000]), [1, None, 2], [1.0, 2, 3.5]):
        for _ in range(3):
            assert con.sql("SELECT a FROM t WHERE a = ANY($1) ORDER BY a", [values]).fetchall() == [(1,), (2,)], values
            assert con.sql("SELECT count(*) FROM t WHERE a = ANY($keys)", {"keys": values}).fetchone() == (2,)
    days = [datetime.date(2020, 1, 2), datetime.date(2020, 1, 3)]
    assert con.sql("SELECT count(*) FROM t WHERE b = ANY($1)", [["b7", "b8", "none"]]).fetchone() == (2,)
    assert con.sql("SELECT count(*) FROM t WHERE d = ANY($1)", [days]).fetchone() == (2,)
    assert con.sql("SELECT count(*) FROM t WHERE x = ANY($1)", [[decimal.Decimal("0.25"), decimal.Decimal("10"), 1]]).fetchone() == (3,)
    assert con.sql("SELECT count(*) FROM t WHERE a <> ALL($1)", [[1, 2]]).fetchone() == (998,)
    for empty in ([], numpy.array([]), [None]):
        assert con.sql("SELECT count(*) FROM t WHERE a = ANY($1)", [empty]).fetchone() == (0,), repr(empty)
        assert con.sql("SELECT count(*) FROM t WHERE b = ANY($1)", [empty]).fetchone() == (0,), repr(empty)
    assert con.sql("SELECT $1", [[1, None, 3]]).fetchone() == ([1, None, 3],)
    assert con.sql("SELECT $1, $2", [[[1], [2, 3]], ["x"]]).fetchone() == ([[1], [2, 3]], ["x"])
    assert con.sql("SELECT $1", [numpy.array([[1, 2], [3, 4]])]).fetchone() == ([[1, 2], [3, 4]],)
    assert con.sql("SELECT $1[2], cardinality($1)", [[5, 6]]).fetchone() == (6, 2)
    assert con.sql("SELECT unnest($1) AS v ORDER BY v", [["b", "a"]]).fetchall() == [("a",), ("b",)]
    assert con.sql("SELECT count(*) FROM t WHERE a IN (SELECT unnest($1))", [[1, 2, 5000]]).fetchone() == (2,)
    assert con.sql("SELECT a = ANY($1) AS found FROM t WHERE a < 3 ORDER BY a", [[1, None]]).fetchall() == [(True,), (None,)]
    assert con.sql("SELECT count(*) FROM t WHERE x = ANY($1)", [[1, 2]]).fetchone() == (2,), "of another type than the column"
    assert con.sql("SELECT count(*) FROM t WHERE a = ANY($1::int[])", [["1", "2"]]).fetchone() == (2,)
    assert con.sql("UPDATE t SET b = 'y' WHERE a = ANY($1)", [[1, 2, 3]]).row_count == 3
    assert con.sql("DELETE FROM t WHERE a = ANY($1)", [list(range(1, 501))]).row_count == 500
    with pytest.raises(taut.ProgrammingError, match="ARRAY types bigint and varchar cannot be matched"):
        con.sql("SELECT $1", [[1, "x"]])


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


def test_text_has_types_that_consumers_compute_on(filled):
    plain = filled.sql("SELECT a, b, [b] AS l, CAST(b AS bytea) AS d FROM t").to_arrow()
    assert plain.schema.types == [pyarrow.int64(), pyarrow.string(), pyarrow.list_(pyarrow.string()), pyarrow.binary()]
    assert plain.sort_by("b").slice(0, 1)["b"].to_pylist() == ["x1"]
    assert pyarrow.compute.equal(plain["b"], "x7").to_pylist().count(True) == 1
    assert filled.sql("SELECT b FROM t").to_batches().schema.types == [pyarrow.string()]
    views = filled.sql("SELECT b FROM t").to_arrow(string_view=True)
    assert views.schema.types == [pyarrow.string_view()] and sorted(views["b"].to_pylist()) == sorted(plain["b"].to_pylist())
    requested = pyarrow.RecordBatchReader.from_stream(
        filled.sql("SELECT a, b FROM t"), schema=pyarrow.schema({"a": "int32", "b": "large_string"})
    )
    assert requested.read_all().schema.types == [pyarrow.int32(), pyarrow.large_string()]


def test_requested_types_lose_nothing(filled):
    def read(query, **columns):
        return pyarrow.RecordBatchReader.from_stream(filled.sql(query), schema=pyarrow.schema(columns)).read_all()

    assert read("SELECT a FROM t WHERE a = 5", a=pyarrow.int8())["a"].to_pylist() == [5]
    for query in ("SELECT a FROM t WHERE a = 300", "SELECT b AS a FROM t"):
        with pytest.raises(pyarrow.ArrowException):
            read(query, a=pyarrow.int8())
    with pytest.raises(pyarrow.ArrowException, match="before .*0 after"):
        pyarrow.table(filled.sql("SELECT CAST($1::text || i AS int) AS n FROM generate_series(1, 2) AS g(i)", ["before \0 after "]))


PANDAS = """
    SELECT i, CASE WHEN i > 1 THEN (1::bigint << 60) + i END AS n, CASE WHEN i > 1 THEN i::smallint END AS s,
        (i / 4.0)::decimal(10, 2) AS d, CASE WHEN i > 1 THEN i > 2 END AS b, i::double precision AS f, 'x' || i AS t,
        NULL AS z, date '2020-01-01' + i::int AS day, CASE WHEN i > 1 THEN i::decimal(38, 0) END AS e
    FROM generate_series(1, 3) AS g(i) ORDER BY i
"""


def test_pandas_frames_keep_their_values(con):
    frame = con.sql(PANDAS).to_pandas()
    kinds = {name: str(kind) for name, kind in frame.dtypes.items()}
    assert kinds == {
        "i": "int64", "n": "Int64", "s": "Int16", "d": "decimal128(10, 2)[pyarrow]", "b": "boolean", "f": "float64",
        "t": "str", "z": "object", "day": "object", "e": "decimal128(38, 0)[pyarrow]",
    }  # fmt: skip
    assert frame["n"].tolist() == [pandas.NA, 2**60 + 2, 2**60 + 3] and frame["d"].sum() == decimal.Decimal("1.50")
    assert frame["b"].tolist() == [pandas.NA, False, True]
    assert con.insert("copy", frame.drop(columns="z")) == 3
    assert con.sql("SELECT n, s, d, b, e FROM copy ORDER BY i").fetchall() == con.sql(f"SELECT n, s, d, b, e FROM ({PANDAS}) AS q").fetchall()
    nullable = con.sql(PANDAS).to_pandas(dtype_backend="numpy_nullable")
    assert [str(kind) for kind in nullable.dtypes[:7]] == [
        "Int64", "Int64", "Int16", "decimal128(10, 2)[pyarrow]", "boolean", "Float64", "string",
    ]  # fmt: skip
    arrow = con.sql(PANDAS).to_pandas(dtype_backend="pyarrow")
    assert all(isinstance(kind, pandas.ArrowDtype) for kind in arrow.dtypes)
    assert arrow["n"].tolist() == frame["n"].tolist() == nullable["n"].tolist()
    chosen = con.sql(PANDAS).to_pandas(integer_object_nulls=True, date_as_object=False)
    assert chosen["n"].tolist() == [None, 2**60 + 2, 2**60 + 3] and chosen["day"].dtype.kind == "M"
    assert con.sql(PANDAS).to_pandas(types_mapper=lambda kind: None)["n"].dtype == "float64"
    assert str(con.sql(f"SELECT * FROM ({PANDAS}) AS q WHERE false").to_pandas()["d"].dtype) == "decimal128(10, 2)[pyarrow]"
    result = con.sql("SELECT 1 AS a")
    with pytest.raises(ValueError, match="dtype_backend='polars'; allowed are 'numpy_nullable' and 'pyarrow'"):
        result.to_pandas(dtype_backend="polars")
    with pytest.raises(ValueError, match="dtype_backend and types_mapper are given"):
        result.to_pandas(dtype_backend="pyarrow", types_mapper=str)
    assert result.fetchall() == [(1,)], "a wrong option takes no rows"


def test_pandas_plots_decimals_and_nullable_integers(con):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    for backend in (None, "numpy_nullable", "pyarrow"):
        frame = con.sql(PANDAS).to_pandas(dtype_backend=backend)
        lines = {line.get_label(): line.get_ydata().tolist() for line in frame.plot(x="i", y=["n", "s", "d", "f"]).lines}
        assert lines["d"] == [0.25, 0.5, 0.75] and lines["s"][1:] == [2, 3] and len(lines) == 4
        matplotlib.pyplot.close("all")


def test_frames_with_columns_of_nulls_are_inserted(con):
    frames = {
        "pandas": pandas.DataFrame({"n": [1, 2], "s": [None, None]}),
        "NaN": pandas.DataFrame({"n": [1, 2], "s": [numpy.nan, numpy.nan]}),
        "polars": polars.DataFrame({"n": [1, 2], "s": [None, None]}),
        "arrow": pyarrow.table({"n": [1, 2], "s": pyarrow.nulls(2)}),
    }
    con.sql("CREATE TABLE known (n int, s date DEFAULT '2020-01-01')")
    for kind, frame in frames.items():
        assert con.insert(f"new_{kind}", frame) == 2
        assert con.sql(f'SELECT n, s FROM "new_{kind}" ORDER BY n').fetchall() == [(1, None), (2, None)]
        assert con.table(f"new_{kind}").columns["s"] == ("double" if kind == "NaN" else "varchar")
        assert con.insert("known", frame) == 2, kind
        if kind != "NaN":
            con.sql("INSERT INTO known SELECT n, s FROM frame")
    assert con.sql("SELECT count(*), count(s) FROM known").fetchone() == (14, 0)
    con.sql("CREATE TABLE query AS SELECT 1 AS a, NULL AS b")
    con.sql("INSERT INTO query VALUES (2, 'x')")
    assert con.sql("SELECT * FROM query ORDER BY a").fetchall() == [(1, None), (2, "x")]


def test_rows_without_columns_are_counted(filled):
    for arrow in (filled.sql("SELECT FROM t").to_arrow(), filled.sql("SELECT FROM t").to_arrow(string_view=True)):
        assert (arrow.num_rows, arrow.num_columns) == (100_000, 0)


def test_failed_results_stay_failed(filled):
    failing = "SELECT a / (a - 70000) FROM t"
    for first in (repr, lambda result: result._repr_html_(), lambda result: pytest.raises(taut.DataError, result.fetchall)):
        result = filled.sql(failing)
        first(result)
        for use in (result.fetchall, result.to_arrow, result.fetchone, result.to_batches):
            with pytest.raises(taut.Error):
                use()
    late = filled.sql("SELECT arrow_cast(CAST(CASE WHEN a = 70000 THEN 100000000 ELSE 1 END AS int), 'Date32') AS d FROM t")
    with pytest.raises(taut.DataError, match="years 1 to 9999"):
        late.fetchall()
    with pytest.raises(taut.InterfaceError, match="run the statement again. It failed with"):
        late.to_arrow()


def test_numpy_frames_are_freed_on_any_thread(con):
    datafusion = pytest.importorskip("datafusion")
    frame = pandas.DataFrame({"a": numpy.arange(300_000)})
    summed = datafusion.SessionContext().from_arrow(con.sql("SELECT sum(a) AS s FROM frame"))
    assert pyarrow.table(summed)["s"].to_pylist() == [44_999_850_000]


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


def test_reading_all_rows_again_is_an_error(filled):
    reads = {"fetchall": lambda rows: rows.fetchall(), "loop": list, "fetchmany": lambda rows: [rows.fetchmany(10) for _ in range(2)]}
    for first in reads.values():
        rows = filled.sql("SELECT a FROM t WHERE a < 5")
        first(rows)
        for again in (rows.fetchall, lambda rows=rows: list(rows), rows.to_arrow, rows.to_pandas):
            with pytest.raises(taut.InterfaceError, match="read already, and can be read once"):
                again()
        assert rows.fetchone() is None and rows.fetchmany(3) == [], "loops over these end"
    # A result without rows can be read again.
    empty = filled.sql("SELECT a FROM t WHERE false")
    assert (empty.fetchall(), list(empty), empty.fetchall()) == ([], [], [])
    # Reading the remaining rows is allowed, even if none remain.
    exact = filled.sql("SELECT a FROM t WHERE a < 5")
    assert len(exact.fetchmany(4)) == 4 and exact.fetchall() == []


def test_display_consumes_no_rows(filled):
    result = filled.sql('SELECT a AS "<i>", NULL AS n FROM t ORDER BY a')
    shown, text = result._repr_html_(), repr(result)
    assert "&lt;i&gt;" in shown and "<i>NULL</i>" in shown and "first 20 rows" in shown and shown.count("<tr>") == 21
    assert "| 20" in text and "| 21" not in text and "first 20 rows" in text
    assert result.fetchone() == (1, None)
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


def test_returning_has_parameters(con, tmp_path):
    con.sql("CREATE TABLE t (k bigint PRIMARY KEY, g int, s text)")
    # Each statement runs three times: from the second time on, its plan may be cached.
    for k in (1, 2, 3):
        assert con.sql("INSERT INTO t VALUES (?, ?, ?) RETURNING k, s", (k, k * 10, "x")).fetchall() == [(k, "x")]
        assert con.sql("UPDATE t SET g = g + ? WHERE k = ? RETURNING g + ?", (1, k, 5)).fetchall() == [(k * 10 + 6,)]
        upsert = "INSERT INTO t VALUES ($1, $2, $3) ON CONFLICT (k) DO UPDATE SET g = excluded.g, s = t.s || $3 RETURNING g, s"
        assert con.sql(upsert, (k, 7, "y")).fetchall() == [(7, "xy")]
        named = "UPDATE t SET g = $g + $one WHERE k = $k RETURNING k + $one, $text"
        assert con.sql(named, {"g": 1, "one": 1, "k": k, "text": "é"}).fetchall() == [(k + 1, "é")]
        merge = "MERGE INTO t USING (SELECT ? AS k) AS u ON t.k = u.k WHEN MATCHED THEN UPDATE SET g = ? RETURNING g, ?"
        assert con.sql(merge, (k, 9, "z")).fetchall() == [(9, "z")]
    assert con.sql("DELETE FROM t WHERE k > ? RETURNING k", (1,)).fetchall() == [(2,), (3,)]
    assert con.sql("EXPLAIN DELETE FROM t WHERE k = ? RETURNING k + ?", (1, 2)).fetchall()
    for values in [(1,), (1, 2, 3)]:
        with pytest.raises(taut.ProgrammingError, match=f"wrong number of parameters: expected 2, got {len(values)}"):
            con.sql("UPDATE t SET g = ? WHERE k = 1 RETURNING g + ?", values)
    assert con.sql("SELECT * FROM t").fetchall() == [(1, 9, "xy")]
    insert = "INSERT INTO t (k) VALUES (?) RETURNING k"
    assert [con.sql(insert, (k,)).fetchall() for k in (10, 11, 12)] == [[(10,)], [(11,)], [(12,)]]
    with pytest.raises(taut.ProgrammingError, match="wrong number of parameters: expected 1, got 2"):
        con.sql(insert, (13, 14))
    assert "k@0 > 5" in con.explain("SELECT k FROM t WHERE k > $a", {"a": 5})
    con.sql(f"COPY (SELECT k FROM t WHERE k > $k) TO '{tmp_path}/rows.csv'", {"k": 10})
    assert (tmp_path / "rows.csv").read_text().split() == ["k", "11", "12"]


def test_files_keep_nulls_empty_text_bytes_and_infinity(con, tmp_path):
    rows = [(1, None, b"\x00\xff", float("inf")), (2, "", None, None), (3, 'a,"b"\n', b"", 0.1)]
    columns = "id int, x text, b bytea, d double precision"
    con.sql(f"CREATE TABLE t ({columns})")
    for row in rows:
        con.sql("INSERT INTO t VALUES (?, ?, ?, ?)", row)
    for end in ["csv", "tsv", "csv.gz", "json"]:
        path = tmp_path / f"rows.{end}"
        con.sql(f"COPY t TO '{path}'")
        con.sql(f"CREATE OR REPLACE TABLE u ({columns})")
        assert con.load("u", path) == 3
        assert con.sql("SELECT * FROM u ORDER BY id").fetchall() == rows
        read = con.sql(f"SELECT id, x, d FROM '{path}' ORDER BY id").fetchall()
        assert read == [(id, x, d) for id, x, _, d in rows]


def test_rows_are_changed_by_frames(con):
    con.sql("CREATE TABLE t (k bigint PRIMARY KEY, v bigint)")
    con.sql("INSERT INTO t SELECT i, 0 FROM generate_series(0, 9) g(i)")
    frame = pandas.DataFrame({"k": [1, 2, 20], "n": [10, 20, 200]})
    keys = polars.DataFrame({"k": [3, 4]})
    assert con.sql("UPDATE t SET v = v + 1 WHERE k IN (SELECT k FROM keys)").row_count == 2
    assert con.sql("UPDATE t SET v = n FROM frame WHERE t.k = frame.k").row_count == 2
    con.sql(
        "MERGE INTO t USING frame ON t.k = frame.k WHEN MATCHED THEN UPDATE SET v = v + n "
        "WHEN NOT MATCHED THEN INSERT (k, v) VALUES (k, n)"
    )
    returned = con.sql("DELETE FROM t USING keys WHERE t.k = keys.k RETURNING t.k, (SELECT max(n) FROM frame)")
    assert sorted(returned.fetchall()) == [(3, 200), (4, 200)]
    con.sql("INSERT INTO t SELECT k, n FROM frame ON CONFLICT (k) DO UPDATE SET v = excluded.v + 1")
    assert con.sql("SELECT k, v FROM t WHERE v > 0 ORDER BY k").fetchall() == [(1, 11), (2, 21), (20, 201)]
    with pytest.raises(taut.Error, match="no_such_frame"):
        con.sql("DELETE FROM t WHERE k IN (SELECT k FROM no_such_frame)")
    # Variables are resolved before the first statement runs, although it may create tables that later statements use.
    con.sql("CREATE TABLE later (k bigint); ALTER TABLE later ADD PRIMARY KEY (k); INSERT INTO later SELECT k FROM frame ON CONFLICT (k) DO NOTHING")
    upsert = "INSERT INTO t VALUES (1, 2) ON CONFLICT (k) DO UPDATE SET v = (SELECT max(n) FROM frame)"
    assert con.sql(upsert).row_count == 1
    con.sql("BEGIN")
    with pytest.raises(taut.Error, match="nothing"):
        con.sql("UPDATE later SET nothing = 1 FROM frame")
    with pytest.raises(taut.Error, match="ROLLBACK"):
        con.sql("SELECT 1")
    con.sql("ROLLBACK")


def test_sorting_columns_of_files_are_not_trusted(con, tmp_path):
    """`sorting_columns` of Parquet declare the order within each row group, not the order of the file."""
    rows = [*range(0, 20_000, 2), *range(1, 20_000, 2)]
    table = pyarrow.table({"id": pyarrow.array(rows, pyarrow.int64())})
    for name in "ab":
        pyarrow.parquet.write_table(
            table, tmp_path / f"{name}.parquet", row_group_size=10_000, sorting_columns=[pyarrow.parquet.SortingColumn(0)]
        )
    con.load("loaded", f"{tmp_path}/*.parquet", sort_by="id")
    con.sql("CREATE TABLE joined (id bigint) WITH (sort_by = 'id')")
    con.sql(f"INSERT INTO joined SELECT id FROM '{tmp_path}/a.parquet' UNION ALL SELECT id FROM '{tmp_path}/b.parquet'")
    con.sql("CREATE TABLE cut (id bigint) WITH (sort_by = 'id')")
    con.sql(f"INSERT INTO cut SELECT id FROM '{tmp_path}/a.parquet' LIMIT 1000000")
    for name, copies in {"loaded": 2, "joined": 2, "cut": 1}.items():
        found = [id for id, in con.sql(f"SELECT id FROM {name} ORDER BY id").fetchall()]
        assert found == sorted(rows * copies), name
        assert con.sql(f"SELECT count(*) FROM {name} WHERE id = 4001").fetchone() == (copies,), name


def test_files_are_loaded_in_the_order_of_their_first_rows(con, tmp_path):
    """Files are ordered by their first rows, not by their names. If all rows are then in order, they are not sorted."""
    for name, first in {"a": 5_000, "b": 0}.items():
        ids = pyarrow.table({"id": pyarrow.array(range(first, first + 5_000), pyarrow.int64())})
        pyarrow.parquet.write_table(ids, tmp_path / f"{name}.parquet")
    con.load("t", f"{tmp_path}/*.parquet", sort_by="id")
    assert [id for id, in con.sql("SELECT id FROM t ORDER BY id").fetchall()] == list(range(10_000))
    assert con.sql("SELECT id FROM t WHERE id = 7000").fetchall() == [(7000,)]


def test_variables_are_found_as_python_finds_them(con):
    frame = polars.DataFrame({"n": [1]})
    assert con.sql("SELECT n FROM frame").fetchone() == (1,)
    assert con.sql("WITH frame AS (SELECT 2 AS n) SELECT n FROM frame").fetchone() == (2,)
    assert con.sql("SUMMARIZE frame").fetchone()[0] == "n"

    def inner():
        frame = polars.DataFrame({"n": [3]})
        assert frame.shape == (1, 1)
        return con.sql("SELECT n FROM frame").fetchone(), con.cursor().execute("SELECT n FROM frame").fetchone()

    assert inner() == ((3,), (3,))
    assert con.sql("SELECT shape FROM GLOBAL").fetchone() == (9,)
    con.sql("CREATE TABLE frame AS SELECT n + 10 AS n FROM frame")
    assert con.sql("SELECT n FROM frame").fetchone() == (11,), "tables of the database come first"
    con.insert("Sales", frame)
    with pytest.raises(taut.ProgrammingError, match='The name of the table is "Sales"'):
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
    with pytest.raises(taut.ProgrammingError, match='column "id" does not exist in the data'):
        con.insert("t", polars.DataFrame({"price": [1.5]}))
    with pytest.raises(taut.IntegrityError, match="id"):
        con.insert("t", polars.DataFrame({"id": [3, None]}))
    with pytest.raises(taut.NotSupportedError, match="ALTER TABLE"):
        con.insert("t", polars.DataFrame({"id": [3]}), layout="row")
    assert con.table("t").rows == 2, "all or none"


def test_invalid_utf8_is_refused(con):
    bad = pyarrow.table({"n": [1, 2], "s": pyarrow.array([b"\xff\xfe", b"x"]).view(pyarrow.string())})
    for use in (lambda bad=bad: con.sql("SELECT upper(s) FROM bad").fetchall(), lambda: con.insert("t", bad), lambda: con.register("b", bad)):
        with pytest.raises(taut.DatabaseError, match='column "s".*(UTF|utf)-?8'):
            use()
    assert con.tables() == []


def test_frames_of_unusual_columns(con):
    nothing = polars.DataFrame({"n": [1, 2], "nothing": [None, None]})
    assert con.sql("SELECT n, nothing FROM nothing ORDER BY n").fetchall() == [(1, None), (2, None)]
    objects = polars.DataFrame({"c": polars.Series([object()], dtype=polars.Object)})
    with pytest.raises(TypeError, match="'c' of the frame holds Python objects"):
        con.insert("t", objects)
    holes = pyarrow.table({"s": pyarrow.DictionaryArray.from_arrays(pyarrow.array([0, 1], "int8"), ["x", None])})
    con.insert("holes", holes)
    assert con.sql("SELECT s FROM holes ORDER BY s").fetchall() == [("x",), (None,)]
    con.sql("CREATE TABLE filled (s text NOT NULL)")
    with pytest.raises(taut.IntegrityError):
        con.insert("filled", holes)
    runs = pyarrow.table({"r": pyarrow.RunEndEncodedArray.from_arrays([2, 3], pyarrow.array(["x", None]))})
    assert con.sql("SELECT r FROM runs").fetchall() == [("x",), ("x",), (None,)]
    column = pyarrow.array([1])
    with pytest.raises(taut.ProgrammingError, match="variable column is of type Int64Array"):
        con.sql("SELECT * FROM column")
    spans = con.sql("SELECT INTERVAL '1 day' AS d")
    with pytest.raises(taut.NotSupportedError, match="'d' is an interval"):
        spans.to_polars()
    assert spans.fetchone() == (datetime.timedelta(1),) and len(column) == 1 and runs.num_rows == 3


def test_columns_of_csv_in_another_order_are_refused(con, tmp_path):
    (tmp_path / "h.csv").write_text("a,b\n1,2\n")
    con.sql("CREATE TABLE s (b text, a text)")
    for header in (None, True):
        with pytest.raises(taut.Error, match=r"names the columns as \(a, b\).*COPY table \(a, b\)"):
            con.load("s", tmp_path / "h.csv", header=header)
    con.sql(f"COPY s (a, b) FROM '{tmp_path}/h.csv'")
    assert con.sql("SELECT a, b FROM s").fetchall() == [("1", "2")]
    with pytest.raises(taut.ProgrammingError, match="header requires a Boolean value"):
        con.load("s", tmp_path / "h.csv", header="maybe")


def test_iteration_and_fetching_share_a_position(con):
    rows = con.sql("SELECT i FROM generate_series(1, 10) AS g(i) ORDER BY i")
    for (first,) in rows:
        break
    assert (first, next(rows), rows.fetchone(), rows.fetchmany(2)) == (1, (2,), (3,), [(4,), (5,)])
    assert "| 6 " in repr(rows) and "| 5 " not in repr(rows)
    assert list(rows) == [(i,) for i in range(6, 11)]
    cursor = con.cursor().execute("SELECT i FROM generate_series(1, 3) AS g(i) ORDER BY i")
    assert next(iter(cursor)) == (1,) and cursor.fetchall() == [(2,), (3,)]


def test_many_parameters(con):
    con.sql("CREATE TABLE t (a bigint, b text)")
    con.sql("INSERT INTO t VALUES ($a, $b), ($b2, $b)", {"a": 1, "b": "x", "b2": 2})
    assert con.sql("SELECT * FROM t ORDER BY a").fetchall() == [(1, "x"), (2, "x")]
    con.cursor().executemany("INSERT INTO t VALUES ($n, $s)", [{"n": 3, "s": "y"}, {"n": 4, "s": "y"}])
    numbers = list(range(20_000))
    assert con.sql(f"SELECT count(*) FROM t WHERE a IN ({', '.join('?' * 20_000)})", numbers).fetchone() == (4,)
    with pytest.raises(taut.ProgrammingError, match=r"expected 2, got 1; \$b has no value"):
        con.sql("INSERT INTO t VALUES ($a, $b)", {"a": 1})


def test_numbers_are_not_cut(con):
    con.sql("CREATE TABLE t (i int, r real, d decimal(5, 1), at timestamp)")
    for column, value in {"i": 1.7, "r": 1e300, "at": 5}.items():
        with pytest.raises(taut.DatabaseError, match=rf'(?s)"{column}".*does not fit|(digits would be lost|out of range).*"{column}"'):
            con.insert("t", pyarrow.table({column: [value]}))
    with pytest.raises(taut.DataError, match="1.5.*digits would be lost"):
        con.insert("t", pyarrow.table({"i": [decimal.Decimal("1.5")]}))
    assert con.insert("t", pyarrow.table({"i": [2.0, None], "r": [0.1, float("inf")], "d": [1.25, 2.0]})) == 2
    assert con.sql("SELECT i, d FROM t ORDER BY i").fetchall() == [(2, decimal.Decimal("1.3")), (None, decimal.Decimal("2.0"))]


def test_a_stream_that_fails_inserts_nothing(con):
    def batches():
        yield pyarrow.record_batch({"a": [1] * 100_000})
        raise RuntimeError("the line went dead")

    reader = pyarrow.RecordBatchReader.from_batches(pyarrow.schema({"a": "int64"}), batches())
    with pytest.raises(taut.Error, match="the line went dead"):
        con.insert("t", reader)
    assert con.tables() == []


def test_a_reader_uses_another_connection_than_its_insert(con):
    def batches(other):
        other.sql("SELECT 1").fetchone()
        yield pyarrow.record_batch({"a": [1]})

    for other, message in ((con.duplicate(), None), (con, r"use con.duplicate\(\)")):
        reader = pyarrow.RecordBatchReader.from_batches(pyarrow.schema({"a": "int64"}), batches(other))
        if message is None:
            assert con.insert("t", reader) == 1
            continue
        with pytest.raises(taut.Error, match=message):
            con.insert("t", reader)
    assert con.table("t").rows == 1


def test_types_that_cannot_be_stored_are_refused(con):
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
    assert rows("SELECT a FROM t WHERE length(b) = 3 AND a < 3 AND abs(a) = 0") == [{"a": 0}], "functions are left to the caller"
    con.sql("DROP TABLE t; CREATE TABLE t (z int)")
    with pytest.raises(Exception, match="register it again"):
        rows("SELECT a FROM t")


def test_a_missing_table_is_reported_in_a_transaction():
    with taut.connect(":memory:") as connection:
        connection.sql("BEGIN")
        with pytest.raises(taut.ProgrammingError, match="nosuch") as raised:
            connection.sql("SELECT * FROM nosuch")
        assert raised.value.sqlstate == "42P01"
        connection.sql("ROLLBACK")


def test_tables_of_other_schemas(con):
    con.execute("CREATE SCHEMA sales")
    con.insert("sales.orders", pyarrow.table({"id": [1, 2]}), sort_by="id")
    con.insert("sales.orders", pyarrow.table({"id": [3]}))
    table = con.table("sales.orders")
    assert (table.columns, table.rows, table.sort_by) == ({"id": "bigint"}, 3, "id")
    table.set(layout="row")
    assert table.layout == "row" and con.execute("SELECT sum(id) FROM sales.orders").fetchone() == (6,)
    assert "blocks" in str(table.inspect()) and con.tables() == ["sales.orders"]
    for schema, name in [("public", "a.b"), ("sales", "a.b"), ('"', "T t"), ("s.x", '"')]:
        con.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")
        con.execute(f"CREATE TABLE {quoted(schema)}.{quoted(name)} AS SELECT 1 AS x")
        relation = relation_name(schema, name)
        assert relation in con.tables() and con.table(relation).columns == {"x": "bigint"}
        assert con.insert(relation, pyarrow.table({"x": [2]})) == 1 and con.table(relation).rows == 2
