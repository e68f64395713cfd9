"""Compares random queries on random tables in every layout of Taut with DuckDB.

    python random_queries.py --queries 100000 --seed 1

Needs the Python package. The tests of the package run some thousands of these queries. A case is two tables with random
columns, data and designs, and a number of queries on them. A failed query is printed with the seed of its case, and
`--seed S --cases 1` repeats this case. Queries avoid what the engines define differently: NaN and signed zeros, sums of
inexact numbers, overflow, and LIKE with backslashes.
"""

import argparse
import datetime
import decimal
import pathlib
import random
import re
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))

import duckdb
import pyarrow
import pyarrow.parquet

import taut
from answers import difference

LAYOUTS = ["row", "packed_row", "column", "groups"]
QUERIES_PER_CASE = 25
ROWS_SHOWN = 9_000
EPOCH = datetime.date(1970, 1, 1)


class Kind:
    """A column type: its Arrow type, its SQL name, a generator of values, and its literals.

    `sums` is true if values can be added. `near(value, steps)` returns a neighbour of a value.
    """

    def __init__(self, name, arrow, sql, make, literal, sums=False, near=None):
        self.name, self.arrow, self.sql, self.make, self.literal = name, arrow, sql, make, literal
        self.sums, self.near = sums, near


def integer(bits):
    limit = 2 ** (bits - 1)
    small = min(limit - 1, 10**6)

    def make(rng):
        return rng.choice([rng.randint(-5, 5), rng.randint(-small, small), rng.randint(0, small)])

    return make


def fraction(rng):
    """Draws a multiple of an eighth. Sums of these are exact in any order."""
    return rng.choice([rng.randint(-40, 40) / 8, rng.randint(-80000, 80000) / 8])


def number(precision, scale):
    def make(rng):
        digits = rng.choice([1, scale + 1, precision - 3 if precision < 30 else 20])
        value = rng.randint(-(10**digits) + 1, 10**digits - 1)
        return decimal.Decimal(value).scaleb(-scale, decimal.Context(prec=50))

    return make


def word(rng):
    alphabet = rng.choice(["ab", "abcdefghij", "aAbB %_", "äß苹🍎x"])
    length = rng.choice([0, 1, 2, 5, 12, 13, rng.randint(0, 40)])
    return rng.choice(["", "common prefix "]) + "".join(rng.choice(alphabet) for _ in range(length))


def quoted(value):
    return "'" + value.replace("'", "''") + "'"


def moment(rng):
    seconds = rng.choice([rng.randint(-100, 100), rng.randint(-(10**9), 2 * 10**9)])
    return datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds, microseconds=rng.choice([0, 0, 500000, 123456]))


def instant(rng):
    return moment(rng).replace(tzinfo=datetime.timezone.utc)


KINDS = [
    Kind("boolean", pyarrow.bool_(), "boolean", lambda rng: rng.random() < 0.5, lambda v: str(v).lower()),
    Kind("smallint", pyarrow.int16(), "smallint", integer(16), str, True, lambda v, d: v + d),
    Kind("integer", pyarrow.int32(), "integer", integer(32), str, True, lambda v, d: v + d),
    Kind("bigint", pyarrow.int64(), "bigint", integer(64), str, True, lambda v, d: v + d),
    Kind("real", pyarrow.float32(), "real", fraction, lambda v: f"CAST('{v}' AS real)", True, lambda v, d: v + d / 8),
    Kind("double", pyarrow.float64(), "double precision", fraction, lambda v: f"CAST('{v}' AS double precision)", True, lambda v, d: v + d / 8),
    Kind("decimal4", pyarrow.decimal128(9, 2), "decimal(9,2)", number(9, 2), lambda v: f"{v:f}", True, lambda v, d: v + d),
    Kind("decimal8", pyarrow.decimal128(15, 2), "decimal(15,2)", number(15, 2), lambda v: f"{v:f}", True, lambda v, d: v + d),
    Kind("decimal16", pyarrow.decimal128(30, 5), "decimal(30,5)", number(30, 5), lambda v: f"{v:f}", True, lambda v, d: v + d),
    Kind("date", pyarrow.date32(), "date", lambda rng: EPOCH + datetime.timedelta(days=rng.choice([rng.randint(-3, 3), rng.randint(-30000, 30000)])), lambda v: f"DATE '{v}'", False, lambda v, d: v + datetime.timedelta(days=d)),
    Kind("timestamp", pyarrow.timestamp("us"), "timestamp", moment, lambda v: f"TIMESTAMP '{v}'", False, lambda v, d: v + datetime.timedelta(microseconds=d)),
    Kind("timestamptz", pyarrow.timestamp("us", "UTC"), "timestamptz", instant, lambda v: f"CAST('{v}' AS timestamptz)", False, lambda v, d: v + datetime.timedelta(seconds=d)),
    Kind("varchar", pyarrow.string(), "varchar", word, quoted),
    Kind("bytea", pyarrow.binary(), "bytea", lambda rng: rng.randbytes(rng.choice([0, 1, 3, 20])), None),
]


class Column:
    def __init__(self, name, kind, rng, rows):
        self.name, self.kind = name, kind
        self.values = self._values(rng, rows)
        self.is_few = len(set(self.values)) <= max(20, rows // 50)
        self.sample = [value for value in dict.fromkeys(self.values[:2000]) if value is not None] or [kind.make(rng)]

    def _values(self, rng, rows):
        make = self.kind.make
        nulls = rng.choice([0, 0, 0, 0.02, 0.3, 0.98, 1.0])
        shape = rng.choice(["noise", "noise", "few", "runs", "constant", "sorted"])
        if shape == "constant":
            values = [make(rng)] * rows
        elif shape == "few":
            some = [make(rng) for _ in range(rng.randint(2, 12))]
            values = [rng.choice(some) for _ in range(rows)]
        elif shape == "runs":
            values = []
            while len(values) < rows:
                values += [make(rng)] * rng.randint(1, 400)
            values = values[:rows]
        else:
            values = [make(rng) for _ in range(rows)]
            if shape == "sorted":
                values.sort()
        if nulls and rng.random() < 0.3:
            start = rng.randint(0, rows) if rows else 0
            return values[:start] + [None] * (rows - start)
        return [None if nulls and rng.random() < nulls else value for value in values]

    def constant(self, rng):
        """Draws a literal: a value in the data, near one, or any value of the type."""
        value = rng.choice(self.sample) if rng.random() < 0.7 else self.kind.make(rng)
        if self.kind.near and rng.random() < 0.3:
            value = self.kind.near(value, rng.choice([-1, 1]))
        return self.kind.literal(value)


class Table:
    def __init__(self, name, rng, rows):
        self.name, self.rows = name, rows
        self.columns = [Column("id", KINDS[3], random.Random(0), 0)]
        self.columns[0].values, self.columns[0].is_few = list(range(rows)), False
        self.columns[0].sample = [0, rows // 2, rows, 65535, 65536]
        for index in range(rng.randint(3, 9)):
            self.columns.append(Column(f"c{index}", rng.choice(KINDS), rng, rows))

    def arrow(self):
        arrays = [pyarrow.array(column.values, column.kind.arrow) for column in self.columns]
        return pyarrow.table(arrays, names=[column.name for column in self.columns])

    def design(self, layout, rng):
        """Draws the options of a random design with the given layout."""
        options = {"layout": layout}
        names = [column.name for column in self.columns]
        if layout == "groups":
            rng.shuffle(names)
            cuts = sorted(rng.sample(range(1, len(names)), min(len(names) - 1, rng.randint(1, 3))))
            parts = [names[a:b] for a, b in zip([0, *cuts], [*cuts, len(names)])]
            options["groups"] = ", ".join(f"({', '.join(part)})" for part in parts)
        if rng.random() < 0.5:
            keys = rng.sample(names, rng.randint(1, min(3, len(names))))
            orders = ["", " desc", " nulls first", " desc nulls last"]
            options["sort_by"] = ", ".join(key + rng.choice(orders) for key in keys)
            if rng.random() < 0.6:
                options["abstraction"] = rng.choice(["auto", *map(str, range(len(keys) + 1))])
        if rng.random() < 0.2:
            options["compression"] = "none"
        if rng.random() < 0.4:
            column, parts = rng.choice([column.name for column in self.columns]), rng.choice([1, 2, 7, 40])
            options["partition_by"] = f"{rng.choice(['range', 'hash'])}({column}, {parts})"
        options["block_size"] = rng.choice(["128KiB", "128KiB", "1MiB", "16MiB", "file"])
        return options


def written(options):
    """Writes options in SQL."""
    return ", ".join(f"{name} = '{value}'" for name, value in options.items())


def comparison(column, alias, rng, others):
    """Draws a predicate on one column, or on two columns of the same type."""
    name, kind = alias + column.name, column.kind
    if rng.random() < 0.15:
        return f"{name} IS {rng.choice(['', 'NOT '])}NULL"
    if kind.literal is None:
        return f"{name} IS NOT NULL"
    if kind.name == "boolean" and rng.random() < 0.5:
        return rng.choice([name, f"NOT {name}", f"{name} IS NOT TRUE", f"{name} IS FALSE"])
    alike = [other for other in others if other.kind is kind and other is not column]
    if alike and rng.random() < 0.2:
        return f"{name} {rng.choice(['=', '<>', '<', '>='])} {alias}{rng.choice(alike).name}"
    if kind.name == "varchar" and rng.random() < 0.4:
        return f"{name} {rng.choice(['', 'NOT '])}LIKE {quoted(pattern(column, rng))}"
    form = rng.random()
    if form < 0.45:
        return f"{name} {rng.choice(['=', '=', '<>', '<', '<=', '>', '>='])} {column.constant(rng)}"
    if form < 0.6:
        return f"{name} {rng.choice(['', 'NOT '])}BETWEEN {column.constant(rng)} AND {column.constant(rng)}"
    if form < 0.8:
        values = [column.constant(rng) for _ in range(rng.choice([1, 2, 3, 8, 40]))]
        if rng.random() < 0.1:
            values.append("NULL")
        return f"{name} {rng.choice(['', 'NOT '])}IN ({', '.join(values)})"
    if form < 0.85:
        return f"{name} IS {rng.choice(['', 'NOT '])}DISTINCT FROM {column.constant(rng)}"
    if form < 0.9:
        return f"coalesce({name}, {column.constant(rng)}) = {column.constant(rng)}"
    if form < 0.95:
        return f"CASE WHEN {name} < {column.constant(rng)} THEN true WHEN {name} IS NULL THEN {rng.choice(['true', 'NULL'])} ELSE false END"
    if kind.sums:
        return f"{name} + 1 > {column.constant(rng)}"
    return f"{name} = {column.constant(rng)}"


def pattern(column, rng):
    value = rng.choice(column.sample)
    start = rng.randint(0, len(value))
    piece = value[start : start + rng.randint(0, 4)]
    return rng.choice(["%" + piece + "%", value[:3] + "%", "%" + piece, "_" * len(value), piece.replace("a", "_") + "%", value])


def predicate(table, rng, alias="", depth=0):
    if depth < 2 and rng.random() < 0.45:
        parts = [predicate(table, rng, alias, depth + 1) for _ in range(rng.randint(2, 3))]
        joined = f" {rng.choice(['AND', 'OR'])} ".join(f"({part})" for part in parts)
        return f"NOT ({joined})" if rng.random() < 0.15 else joined
    return comparison(rng.choice(table.columns), alias, rng, table.columns)


def where(table, rng, alias=""):
    return f" WHERE {predicate(table, rng, alias)}" if rng.random() < 0.85 else ""


def aggregate(column, rng, alias=""):
    name = alias + column.name
    forms = [f"count({name})", f"count(DISTINCT {name})", f"min({name})", f"max({name})"]
    if column.kind.sums:
        forms += [f"sum({name})", f"sum({name}) FILTER (WHERE {name} IS NOT NULL)"]
    if column.kind.name in ("bytea",):
        forms = forms[:1]
    return rng.choice(forms)


def projected(table, rng, alias=""):
    columns = rng.sample(table.columns, rng.randint(1, len(table.columns)))
    return ", ".join(f"{alias}{column.name} AS p{place}" for place, column in enumerate(columns))


def aggregates(table, rng, alias=""):
    parts = [aggregate(rng.choice(table.columns), rng, alias) for _ in range(rng.randint(1, 4))]
    return ", ".join(f"{part} AS a{place}" for place, part in enumerate(["count(*)", *parts]))


def query(first, second, rng):
    """Draws a query, and returns whether its rows are ordered. On a large table it returns only part of the rows."""
    form = rng.randint(0, 9)
    large = first.rows > ROWS_SHOWN
    if form <= 2:
        part = f" ORDER BY id LIMIT 200 OFFSET {rng.randint(0, first.rows)}" if large else ""
        return f"SELECT {projected(first, rng)} FROM {first.name}{where(first, rng)}{part}", large
    if form == 3:
        return f"SELECT {aggregates(first, rng)} FROM {first.name}{where(first, rng)}", False
    if form == 4:
        # Few large groups and many small groups take different code paths.
        few = [column for column in first.columns if column.is_few]
        keys = rng.sample(few, rng.randint(1, min(3, len(few)))) if few and rng.random() < 0.7 else rng.sample(first.columns, rng.randint(1, 2))
        names = ", ".join(f"{key.name} AS g{place}" for place, key in enumerate(keys))
        by = ", ".join(key.name for key in keys)
        having = rng.choice(["", "", " HAVING count(*) > 2"])
        sql = f"SELECT {names}, {aggregates(first, rng)} FROM {first.name}{where(first, rng)} GROUP BY {by}{having}"
        return (f"SELECT count(*) AS n, sum(a0) AS s, count(g0) AS g, count(a1) AS c FROM ({sql}) AS q" if large else sql), False
    if form == 5:
        keys = rng.sample(first.columns, rng.randint(1, min(3, len(first.columns))))
        order = ", ".join(key.name + rng.choice(["", " DESC", " NULLS FIRST", " DESC NULLS LAST"]) for key in keys)
        limit = f" LIMIT {rng.choice([1, 10, 1000])}" + rng.choice(["", f" OFFSET {rng.randint(0, 20)}"])
        return f"SELECT {projected(first, rng)} FROM {first.name}{where(first, rng)} ORDER BY {order}, id{limit}", True
    if form in (6, 7):
        pairs = [(a, b) for a in first.columns for b in second.columns if a.kind is b.kind and a.kind.literal]
        a, b = rng.choice(pairs)
        kind = rng.choice(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        # Limits both inputs, because many rows may have equal values.
        left = f"(SELECT * FROM {first.name}{where(first, rng)} ORDER BY id LIMIT 2000) x"
        right = f"(SELECT * FROM {second.name}{where(second, rng)} ORDER BY id LIMIT 300) y"
        if rng.random() < 0.5 and a.name == "id" and b.name == "id":
            left, right = f"{first.name} x", f"{second.name} y"
        sums = f"{aggregates(first, rng, 'x.')}, {aggregate(rng.choice(second.columns), rng, 'y.')} AS b0"
        return f"SELECT {sums} FROM {left} {kind} {right} ON x.{a.name} = y.{b.name}", False
    pairs = [(a, b) for a in first.columns for b in second.columns if a.kind is b.kind and a.kind.literal]
    a, b = rng.choice(pairs)
    inner = f"SELECT {b.name} FROM {second.name} y{where(second, rng, 'y.')}"
    if form == 8:
        test = f"{a.name} {rng.choice(['IN', 'NOT IN'])} ({inner})"
    else:
        link = f"{' AND' if ' WHERE ' in inner else ' WHERE'} y.{b.name} = x.{a.name}"
        inner = inner.replace(" WHERE ", " WHERE (", 1) + ")" if " WHERE " in inner else inner
        test = f"{rng.choice(['', 'NOT '])}EXISTS ({inner}{link})"
    shown = aggregates(first, rng, "x.") if large else projected(first, rng, "x.")
    return f"SELECT {shown} FROM {first.name} x WHERE {test} AND ({predicate(first, rng, 'x.')})", False


class Case:
    """Two random tables, loaded into both engines."""

    def __init__(self, seed, directory):
        self.rng = random.Random(seed)
        sizes = [0, 1, 40, 1500, 1500, 5000, 5000, 1500, 5000, 70000]
        self.tables = [Table("t", self.rng, self.rng.choice(sizes)), Table("u", self.rng, self.rng.choice(sizes[:9]))]
        self.duckdb = duckdb.connect()
        self.duckdb.execute("SET TimeZone = 'UTC'; SET default_null_order = 'nulls_last_on_asc_first_on_desc'")
        self.taut = taut.connect(f"{directory}/database", threads=2)
        for table in self.tables:
            path = f"{directory}/{table.name}.parquet"
            rows = table.arrow()
            pyarrow.parquet.write_table(rows, path)
            self.duckdb.execute(f"CREATE TABLE {table.name} AS SELECT * FROM '{path}'")
            for layout in LAYOUTS:
                self.load(table, layout, path, rows)

    def load(self, table, layout, path, rows):
        name = f"{table.name}_{layout}"
        way, design = self.rng.random(), table.design(layout, self.rng)
        if way < 0.3:
            self.taut.sql(f"CREATE TABLE {name} WITH ({written(design)}) AS SELECT * FROM '{path}'")
            return
        if way < 0.6:
            self.taut.insert(name, rows, **design)
            return
        # The longest path: create the table in another layout, insert twice, and maybe rewrite it in between.
        columns = ", ".join(f"{column.name} {column.kind.sql}" for column in table.columns)
        before = self.rng.choice([other for other in LAYOUTS if other != "groups"])
        self.taut.sql(f"CREATE TABLE {name} ({columns}) WITH ({written(table.design(before, self.rng))})")
        half = table.rows // 2
        self.taut.sql(f"INSERT INTO {name} SELECT * FROM '{path}' WHERE id < {half}")
        if self.rng.random() < 0.5:
            self.taut.table(name).set(**design)
        self.taut.sql(f"INSERT INTO {name} SELECT * FROM rows WHERE id >= {half}")

    def close(self):
        self.taut.close()
        self.duckdb.close()

    def check(self):
        """Runs one random query and returns its failures as texts. Returns None if DuckDB rejects the query."""
        sql, ordered = query(*self.tables, self.rng)
        try:
            expected = self.duckdb.execute(sql).fetchall()
        except duckdb.Error:
            return None
        failures = []
        for layout in LAYOUTS:
            text = sql
            for table in self.tables:
                text = re.sub(rf"\b(FROM|JOIN) {table.name}\b", rf"\1 {table.name}_{layout}", text)
            try:
                wrong = difference(self.taut.sql(text).fetchall(), expected, ordered)
            except taut.Error as error:
                wrong = str(error)
            if wrong:
                failures.append(f"{layout}: {wrong}\n  {text}")
        return failures


def run(cases, seed, report=lambda line: None):
    """Runs cases. Returns the number of queries that agreed, the failures, and the number that DuckDB rejected."""
    agreed, failed, refused = 0, [], 0
    for seed in range(seed, seed + cases):
        with tempfile.TemporaryDirectory(prefix="taut-random-") as directory:
            case = Case(seed, directory)
            for number in range(QUERIES_PER_CASE):
                failures = case.check()
                refused += failures is None
                agreed += failures == []
                if failures:
                    failed.append(f"seed {seed}, query {number}: " + "\n".join(failures))
                    report(failed[-1])
            report(f"seed {seed}: {[table.rows for table in case.tables]} rows")
            case.close()
    return agreed, failed, refused


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--cases", type=int, help="instead of a number of queries")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    start = time.monotonic()
    cases = arguments.cases or -(-arguments.queries // QUERIES_PER_CASE)
    agreed, failed, refused = run(cases, arguments.seed, lambda line: print(line, file=sys.stderr, flush=True))
    print(f"{time.monotonic() - start:.0f} s, {len(LAYOUTS)} layouts each, {refused} refused by DuckDB")
    print(f"{agreed} passed, {len(failed)} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
