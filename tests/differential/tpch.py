"""Compares the answers of Taut, in every layout, and DuckDB to the 22 TPC-H queries, on the same Parquet files.

    python tpch.py --scale 0.01

Rows are compared one by one: in order if the query orders them completely, otherwise regardless of their order.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))

import duckdb

from answers import difference
from taut_process import ROOT, Taut, TautError, binary

TABLES = ["region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem"]
QUERIES = sorted((ROOT / "bench/tpch/queries").glob("q*.sql"))
# The ORDER BY of these queries leaves no ties, so their rows must have the same order.
ORDERED = {1, 4, 5, 7, 8, 9, 12, 13, 15, 16, 20, 21, 22}

# Column groups: columns that queries read together.
GROUPS = {
    "region": "(r_regionkey, r_name), (r_comment)",
    "nation": "(n_nationkey, n_name, n_regionkey), (n_comment)",
    "supplier": "(s_suppkey, s_nationkey, s_acctbal), (s_name, s_address, s_phone), (s_comment)",
    "customer": "(c_custkey, c_nationkey, c_acctbal), (c_mktsegment), (c_name, c_address, c_phone), (c_comment)",
    "part": "(p_partkey, p_size, p_retailprice), (p_brand, p_container), (p_type), (p_name, p_mfgr), (p_comment)",
    "partsupp": "(ps_partkey, ps_suppkey), (ps_availqty, ps_supplycost), (ps_comment)",
    "orders": "(o_orderkey, o_custkey, o_orderdate), (o_orderstatus, o_orderpriority), (o_totalprice), "
    "(o_clerk, o_shippriority), (o_comment)",
    "lineitem": "(l_orderkey, l_linenumber, l_partkey, l_suppkey), (l_quantity, l_extendedprice, l_discount, l_tax), "
    "(l_returnflag), (l_linestatus), (l_shipdate, l_commitdate, l_receiptdate), (l_shipinstruct, l_shipmode), "
    "(l_comment)",
}
LAYOUTS = ["row", "packed_row", "column", "groups"]


def design(layout, table):
    groups = f", groups = '{GROUPS[table]}'" if layout == "groups" else ""
    return f"layout = '{layout}'{groups}"


def data(scale, profile):
    """Returns the directory of the Parquet files of a scale factor. Generates files that do not exist."""
    directory = pathlib.Path.home() / f".cache/taut/tpch/sf{scale:g}"
    if not all((directory / f"{table}.parquet").exists() for table in TABLES):
        generator = binary(profile, "tpch-parquet")
        subprocess.run([generator, "--scale", str(scale), "--output", directory], check=True, stdout=sys.stderr)
    return directory


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.01)
    parser.add_argument("--profile", default="debug", choices=["debug", "release"])
    parser.add_argument("--layouts", default=",".join(LAYOUTS))
    arguments = parser.parse_args()
    files = data(arguments.scale, arguments.profile)
    other = duckdb.connect()
    for table in TABLES:
        other.execute(f"CREATE VIEW {table} AS SELECT * FROM '{files}/{table}.parquet'")
    expected = {path: other.execute(path.read_text()).fetchall() for path in QUERIES}
    failed = 0
    for layout in arguments.layouts.split(","):
        with tempfile.TemporaryDirectory(prefix="taut-tpch-") as directory:
            failed += check(layout, files, directory, expected, binary(arguments.profile))
    passed = len(arguments.layouts.split(",")) * len(QUERIES) - failed
    print(f"{passed} passed, {failed} failed")
    sys.exit(bool(failed))


def check(layout, files, directory, expected, program):
    """Runs all queries in one layout and returns the number that failed."""
    def opened():
        return Taut(f"{directory}/database", program)
    taut = opened()
    for table in TABLES:
        taut.run(f"CREATE TABLE {table} WITH ({design(layout, table)}) AS SELECT * FROM '{files}/{table}.parquet'")
    failed = 0
    for path, rows in expected.items():
        number = int(path.stem[1:])
        try:
            wrong = difference(taut.run(path.read_text()), rows, number in ORDERED)
        except TautError as error:
            wrong, taut = str(error), opened()
        if wrong:
            failed += 1
            print(f"{layout} {path.stem}: {wrong}")
    taut.close()
    print(f"{layout}: {len(expected) - failed} of {len(expected)} queries agree with DuckDB")
    return failed


if __name__ == "__main__":
    main()
