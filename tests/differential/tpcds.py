"""Compares the answers of Taut and DuckDB to the 99 TPC-DS queries.

    python tpcds.py --kit tpcds-kit/tools --queries duckdb/extension/tpcds/dsdgen/queries --every 20

The kit is github.com/databricks/tpcds-kit. This command builds the generator in its folder `tools` with a current gcc:

    make OS=LINUX CC="gcc -fcommon -std=gnu89 -w" dsdgen tpcds.idx

The queries are those of github.com/duckdb/duckdb. The smallest scale of dsdgen is 1. `--every 20` loads only the rows
of every twentieth order, and the inventory of every twentieth item. Data sets are cached in ~/.cache/taut/tpcds.

Both engines must return the same rows, and the same sequence of values in the sort columns. If LIMIT cuts off rows with
equal sort values, any of these rows may be returned.
"""

import argparse
import itertools
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))

import duckdb

from answers import difference, normal
from taut_process import Taut, TautError, binary

# Matches the statements that create tables. No query reads table UNUSED, which has a type that Taut does not store.
TABLE = re.compile(r"create table (\w+)\s*\((.*?)\n\);", re.DOTALL)
UNUSED = "dbgen_version"
# A column that has the suffix `_sk` in the specification and the queries, but not in the kit.
RENAMED = re.compile(r"\b(c_last_review_date)\b")
# Columns that select the rows of `--every`. Returns have the same numbers as their sales.
ORDERS = {
    "store_sales": "ss_ticket_number", "store_returns": "sr_ticket_number", "catalog_sales": "cs_order_number",
    "catalog_returns": "cr_order_number", "web_sales": "ws_order_number", "web_returns": "wr_order_number",
    "inventory": "inv_item_sk",
}
# The last ORDER BY and LIMIT of a query.
ORDER = re.compile(r".*\border\s+by\b(.*?)(?:\blimit\s+(\d+)\s*)?;?\s*$", re.DOTALL | re.IGNORECASE)
DIRECTION = re.compile(r"\s+(?:asc|desc|nulls\s+(?:first|last))\b", re.IGNORECASE)
# Columns that are not compared. DuckDB divides decimals as double precision, so it rounds 0.575 to 0.57; PostgreSQL and
# Taut round it to 0.58.
IGNORED = {78: "ratio"}
SECONDS = 600


def schema(kit):
    """Returns the declaration of each table."""
    text = RENAMED.sub(r"\1_sk", (kit / "tpcds.sql").read_text())
    found = dict(TABLE.findall(text))
    return {table: columns for table, columns in found.items() if table != UNUSED}


def data(kit, scale, every):
    """Returns the directory of the Parquet files of a data set. Generates files that do not exist."""
    tables = schema(kit)
    directory = pathlib.Path.home() / f".cache/taut/tpcds/sf{scale}-every{every}"
    if all((directory / f"{table}.parquet").exists() for table in tables):
        return directory
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dsdgen-", dir=directory) as texts:
        # dsdgen reads its distributions from the current directory.
        command = ["./dsdgen", "-SCALE", str(scale), "-DIR", texts, "-FORCE", "-QUIET", "Y"]
        subprocess.run(command, cwd=kit, check=True, stdout=sys.stderr)
        for table, columns in tables.items():
            convert(pathlib.Path(texts) / f"{table}.dat", directory / f"{table}.parquet", table, columns, every)
    return directory


def convert(text, parquet, table, columns, every):
    """Writes the rows of a text file to a Parquet file. Each line of the text ends with a delimiter."""
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE t ({columns})")
    types = {row[0]: row[1] for row in connection.execute("DESCRIBE t").fetchall()}
    read = f"read_csv($file, delim='|', header=false, quote='', encoding='latin-1', columns={ {**types, 'rest': 'VARCHAR'} })"
    condition = f"WHERE {ORDERS[table]} % {every} = 0" if table in ORDERS else ""
    query = f"COPY (SELECT * EXCLUDE (rest) FROM {read} {condition}) TO '{parquet}.new' (FORMAT parquet)"
    connection.execute(query, {"file": str(text)})
    pathlib.Path(f"{parquet}.new").rename(parquet)


def sort_columns(sql, names):
    """Returns the leading sort columns of a query, as indexes of its columns, and its limit.

    Stops before the first sort expression that is not a column of the result.
    """
    match = ORDER.match(sql)
    if not match:
        return [], None
    depth, items = 0, [""]
    for character in match[1]:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            items.append("")
        else:
            items[-1] += character
    indexes = []
    for item in items:
        name = DIRECTION.sub("", item).strip().split(".")[-1].strip('"').lower()
        if name.isdigit():
            indexes.append(int(name) - 1)
        elif name in names:
            indexes.append(names.index(name))
        else:
            break
    return indexes, int(match[2]) if match[2] else None


def compare(found, expected, columns, limit):
    """Returns why the rows of two results differ, or None."""
    def key(row):
        return [row[column] for column in columns]
    if wrong := difference([key(row) for row in found], [key(row) for row in expected], ordered=True):
        return f"sort columns: {wrong}"
    if columns and len(expected) == limit:
        # LIMIT may have cut off rows whose sort values equal those of the last row. The engines may return any of
        # these.
        plain = normal(expected)
        last = key(plain[-1])
        ties = sum(1 for _ in itertools.takewhile(lambda row: key(row) == last, reversed(plain)))
        found, expected = found[:limit - ties], expected[:limit - ties]
    return difference(found, expected)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kit", type=pathlib.Path, required=True, help="folder with dsdgen and tpcds.sql")
    parser.add_argument("--queries", type=pathlib.Path, required=True, help="folder with 01.sql to 99.sql")
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--profile", default="debug", choices=["debug", "release"])
    parser.add_argument("--only", help="numbers of queries, separated by commas")
    arguments = parser.parse_args()
    files, tables = data(arguments.kit.resolve(), arguments.scale, arguments.every), schema(arguments.kit)
    paths = sorted(arguments.queries.glob("*.sql"))
    if arguments.only:
        paths = [path for path in paths if int(path.stem) in map(int, arguments.only.split(","))]
    other = duckdb.connect()
    # Rules of PostgreSQL, which Taut follows.
    other.execute("SET default_null_order = 'nulls_last_on_asc_first_on_desc'; SET integer_division = true")
    with tempfile.TemporaryDirectory(prefix="taut-tpcds-") as directory:
        program = binary(arguments.profile)
        with Taut(f"{directory}/database", program) as taut:
            for table, columns in tables.items():
                other.execute(f"CREATE VIEW {table} AS SELECT * FROM '{files}/{table}.parquet'")
                taut.run(f"CREATE TABLE {table} ({columns})")
                taut.run(f"COPY {table} FROM '{files}/{table}.parquet'")
        failed = check(paths, other, lambda: opened(f"{directory}/database", program))
    print(f"{len(paths) - failed} of {len(paths)} queries agree with DuckDB")
    sys.exit(bool(failed))


def opened(database, program):
    taut = Taut(database, program)
    taut.run(f"SET statement_timeout = '{SECONDS}s'")
    return taut


def check(paths, other, opened):
    """Runs the queries on both engines and returns the number that failed."""
    taut, failed, empty = opened(), 0, []
    for path in paths:
        sql = path.read_text()
        result = other.execute(sql)
        names = [column[0].lower() for column in result.description]
        columns, limit = sort_columns(sql, names)
        compared = [index for index, name in enumerate(names) if name != IGNORED.get(int(path.stem))]
        expected = result.fetchall()
        if not expected:
            empty.append(path.stem)
        try:
            found = taut.run(sql)
            if len(compared) < len(names):
                found, expected = ([[row[index] for index in compared] for row in rows] for rows in (found, expected))
                columns = [compared.index(column) for column in columns if column in compared]
            wrong = compare(found, expected, columns, limit)
        except TautError as error:
            wrong, taut = str(error), opened()
        if wrong:
            failed += 1
            print(f"{path.stem}: {wrong}", flush=True)
    taut.close()
    if empty:
        print(f"without rows, so of little worth: {', '.join(empty)}")
    return failed


if __name__ == "__main__":
    main()
