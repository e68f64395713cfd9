"""Tests the installed package alone. Methods that need another package raise an error that names it."""

import doctest

import taut


def main():
    tried = doctest.testmod(taut)
    assert tried.attempted >= 4 and not tried.failed, tried
    with taut.connect() as con:
        con.sql("CREATE TABLE t AS SELECT i, 'x' || i AS s FROM generate_series(1, 100000) AS g(i)")
        con.table("t").set(layout="packed_row", sort_by="i")
        result = con.sql("SELECT i, s FROM t WHERE i < 5")
        assert con.insert("u", result, layout="row") == 4
        assert con.sql("SELECT sum(i) FROM u").fetchone() == (10,)
        assert "packed_row" in repr(con.inspect("t")) and "<svg" in con.inspect("t")._repr_html_()
        for method, package in {"to_arrow": "pyarrow", "to_pandas": "pyarrow", "to_polars": "polars"}.items():
            try:
                getattr(con.sql("SELECT 1 AS a"), method)()
            except ModuleNotFoundError as error:
                assert error.name == package, error
            else:
                raise AssertionError(f"{package} is installed")
    print("the wheel works by itself")


if __name__ == "__main__":
    main()
