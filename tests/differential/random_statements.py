"""Random statements on Taut, DuckDB and PostgreSQL: expressions, joins, subqueries, windows, set operations, changes.

    make test-statements STATEMENTS=10000 SEED=1

Needs the Python package and the programs of a PostgreSQL server. A case is a few small tables of random rows, some
with keys, a time zone, and a number of statements. An `UPDATE`, `DELETE` or `INSERT` is followed by the rows of its
table, and rolled back. A statement fails if Taut's outcome, rows or an error, is neither that of DuckDB nor that of
PostgreSQL. It is printed with the seed of its case; `--seed S --cases 1` repeats the case. Numbers are equal if they
differ by less than a ten-millionth of their value, because the engines give decimals different scales. Errors that
say what is not supported are counted apart. So are statements of which Taut returns no rows and both others an error
of a value out of range: the standard does not say whether a value is computed that no row of the result needs.

Literals are cast, because a literal without a cast is an integer in PostgreSQL and a bigint in Taut.
"""

import argparse
import collections
import datetime
import decimal
import math
import random
import sys
import time

import duckdb
import psycopg

import taut
from slt_on_postgres import Server

STATEMENTS_PER_CASE = 50
# The constraints of column k of each table.
TABLES = {"t": "", "u": "", "v": "", "w": "PRIMARY KEY", "x": "UNIQUE", "y": "REFERENCES w (k)"}
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"]
COLUMNS = [("k", "int"), ("i", "int"), ("b", "bigint"), ("n", "decimal"), ("f", "double"), ("s", "text"), ("d", "date"), ("ts", "timestamp"), ("tz", "instant"), ("p", "boolean")]
SQL = {"int": "int", "bigint": "bigint", "decimal": "decimal(10,2)", "double": "double precision", "text": "varchar", "date": "date", "timestamp": "timestamp", "instant": "timestamp with time zone", "boolean": "boolean", "interval": "interval"}
NUMBERS = ("int", "bigint", "decimal", "double")
OUT_OF_RANGE = (duckdb.OutOfRangeException, duckdb.ConversionException, psycopg.errors.NumericValueOutOfRange, psycopg.errors.DatetimeFieldOverflow, psycopg.errors.IntervalFieldOverflow, psycopg.errors.DivisionByZero)
WORDS = ["", "a", "ab", "Abc", "x y", "10", "%", "zebra", "é"]
DAYS = ["2024-01-31", "2024-02-29", "1999-12-31", "2000-01-01", "2024-03-31"]
MOMENTS = ["2024-01-31 10:00:00", "2024-02-29 23:59:59.5", "1999-12-31 00:00:00", "2024-03-31 02:30:00"]
INSTANTS = ["2024-01-31 10:00:00+00", "2024-03-31 00:59:59+00", "2024-03-31 02:30:00+02", "1999-12-31 23:30:00-05", "2024-10-27 00:30:00+00"]
INTERVALS = ["1 day", "1 month", "2 hours", "-3 days", "1 month 2 days", "90 minutes", "24 hours", "30 days"]
GREATEST = {"int": 2147483647, "bigint": 9223372036854775807}


def value(kind, rng):
    """Draws a literal of a type, null in one of ten cases."""
    if rng.random() < 0.1:
        return f"cast(null as {SQL[kind]})"
    if kind in GREATEST:
        number = rng.choice([0, 1, 2, 3, -1, 5, 7, 10, 100, GREATEST[kind], -GREATEST[kind]] if rng.random() < 0.15 else [0, 1, 2, 3, -1, 5, 7])
        return f"cast({number} as {SQL[kind]})"
    if kind == "decimal":
        return f"cast({rng.choice(['0.00', '1.50', '-2.25', '3.00', '10.05', '99.99'])} as decimal(10,2))"
    if kind == "double":
        return f"cast({rng.choice(['0.0', '1.5', '-2.25', '3.0', '1000000.0'])} as double precision)"
    if kind == "text":
        return f"cast('{rng.choice(WORDS)}' as varchar)"
    if kind == "date":
        return f"date '{rng.choice(DAYS)}'"
    if kind == "timestamp":
        return f"timestamp '{rng.choice(MOMENTS)}'"
    if kind == "instant":
        return f"cast('{rng.choice(INSTANTS)}' as timestamp with time zone)"
    if kind == "interval":
        return f"interval '{rng.choice(INTERVALS)}'"
    return rng.choice(["true", "false"])


class Scope:
    """Columns that an expression may use: names and types."""

    def __init__(self, columns, outer=None):
        self.columns, self.outer = columns, outer

    def column(self, kind, rng):
        columns = [name for name, column_kind in self.columns if column_kind == kind]
        if self.outer and rng.random() < 0.25:
            columns = [name for name, column_kind in self.outer.columns if column_kind == kind] or columns
        return rng.choice(columns) if columns else value(kind, rng)


def columns_of(alias):
    return [(f"{alias}.{name}", kind) for name, kind in COLUMNS]


class Generator:
    def __init__(self, rng):
        self.rng, self.aliases = rng, 0

    def alias(self):
        self.aliases += 1
        return f"q{self.aliases}"

    def expression(self, kind, scope, depth=2):
        """Draws an expression of a type."""
        rng = self.rng
        if depth == 0 or rng.random() < 0.25:
            return scope.column(kind, rng) if rng.random() < 0.7 else value(kind, rng)
        part = lambda wanted: self.expression(wanted, scope, depth - 1)
        form = rng.random()
        if form < 0.1:
            otherwise = f" else {part(kind)}" if rng.random() < 0.7 else ""
            return f"case when {part('boolean')} then {part(kind)}{otherwise} end"
        if form < 0.17:
            return f"coalesce({part(kind)}, {part(kind)})"
        if form < 0.2:
            return f"nullif({part(kind)}, {part(kind)})"
        if form < 0.24 and kind != "boolean":
            return f"{rng.choice(['greatest', 'least'])}({part(kind)}, {part(kind)})"
        if form < 0.32 and depth > 1:
            return self.scalar_subquery(kind, scope)
        return getattr(self, f"{kind}_expression")(part)

    def int_expression(self, part):
        rng = self.rng
        return rng.choice([
            lambda: f"({part('int')} {rng.choice('+-*')} {part('int')})",
            lambda: f"({part('int')} {rng.choice('/%')} nullif({part('int')}, 0))",
            lambda: f"(- {part('int')})",
            lambda: f"abs({part('int')})",
            lambda: f"length({part('text')})",
            lambda: f"cast(extract({rng.choice(['year', 'month', 'day', 'dow', 'quarter'])} from {part('date')}) as int)",
            lambda: f"cast({part('decimal')} as int)",
            lambda: f"cast({part('double')} as int)",
            lambda: f"cast({part('boolean')} as int)",
            lambda: f"({part('date')} - {part('date')})",
        ])()

    def bigint_expression(self, part):
        rng = self.rng
        return rng.choice([
            lambda: f"({part('bigint')} {rng.choice('+-*')} {part(rng.choice(['bigint', 'int']))})",
            lambda: f"({part('bigint')} {rng.choice('/%')} nullif({part('int')}, 0))",
            lambda: f"cast({part('decimal')} as bigint)",
            lambda: f"cast({part('int')} as bigint)",
            lambda: f"abs({part('bigint')})",
        ])()

    def decimal_expression(self, part):
        rng = self.rng
        return rng.choice([
            lambda: f"({part('decimal')} {rng.choice('+-')} {part(rng.choice(['decimal', 'int']))})",
            lambda: f"({part('decimal')} * {part('int')})",
            lambda: f"round({part('decimal')}, {rng.choice([0, 1, 2])})",
            lambda: f"cast({part('int')} as decimal(10,2))",
            lambda: f"abs({part('decimal')})",
            lambda: f"{rng.choice(['floor', 'ceil'])}({part('decimal')})",
        ])()

    def double_expression(self, part):
        rng = self.rng
        return rng.choice([
            lambda: f"({part('double')} {rng.choice('+-*')} {part(rng.choice(NUMBERS))})",
            lambda: f"({part('double')} / nullif({part('double')}, 0))",
            lambda: f"cast({part(rng.choice(NUMBERS))} as double precision)",
            lambda: f"{rng.choice(['floor', 'ceil', 'abs', 'round'])}({part('double')})",
            lambda: f"sqrt(abs({part('double')}))",
        ])()

    def text_expression(self, part):
        rng = self.rng
        return rng.choice([
            lambda: f"({part('text')} || {part('text')})",
            lambda: f"{rng.choice(['upper', 'lower', 'trim', 'reverse'])}({part('text')})",
            lambda: f"substr({part('text')}, {rng.choice([1, 2, 3])}, {rng.choice([0, 1, 2])})",
            lambda: f"replace({part('text')}, 'a', 'b')",
            lambda: f"cast({part(rng.choice(['int', 'bigint', 'date', 'decimal', 'boolean']))} as varchar)",
            lambda: f"concat({part('text')}, {part('text')})",
            lambda: f"left({part('text')}, {rng.choice([0, 1, 2])})",
            lambda: f"lpad({part('text')}, 4, '*')",
        ])()

    def date_expression(self, part):
        rng = self.rng
        return rng.choice([
            lambda: f"cast({part('timestamp')} as date)",
            lambda: f"cast({part('date')} + interval '{rng.choice(INTERVALS)}' as date)",
            lambda: f"({part('date')} + cast({rng.choice([0, 1, -1, 30])} as int))",
        ])()

    def timestamp_expression(self, part):
        rng = self.rng
        return rng.choice([
            lambda: f"({part('timestamp')} {rng.choice('+-')} interval '{rng.choice(INTERVALS)}')",
            lambda: f"date_trunc('{rng.choice(['year', 'month', 'week', 'day', 'hour'])}', {part('timestamp')})",
            lambda: f"cast({part('date')} as timestamp)",
            lambda: f"({part('date')} + interval '{rng.choice(INTERVALS)}')",
            lambda: f"({part('instant')} at time zone '{rng.choice(ZONES)}')",
            lambda: f"cast({part('instant')} as timestamp)",
        ])()

    def instant_expression(self, part):
        rng = self.rng
        return rng.choice([
            lambda: f"({part('instant')} {rng.choice('+-')} interval '{rng.choice(INTERVALS)}')",
            lambda: f"date_trunc('{rng.choice(['year', 'month', 'week', 'day', 'hour'])}', {part('instant')})",
            lambda: f"({part('timestamp')} at time zone '{rng.choice(ZONES)}')",
            lambda: f"cast({part(rng.choice(['date', 'timestamp']))} as timestamp with time zone)",
        ])()

    def interval_expression(self, part):
        rng = self.rng
        return rng.choice([
            lambda: f"({part('timestamp')} - {part('timestamp')})",
            lambda: f"({part('interval')} {rng.choice('+-')} {part('interval')})",
            lambda: f"({part('interval')} * {rng.choice([0, -1, 2])})",
        ])()

    def boolean_expression(self, part):
        rng = self.rng
        kind = rng.choice(list(SQL))
        compared = lambda: (part(kind), part(rng.choice(NUMBERS) if kind in NUMBERS else kind))
        return rng.choice([
            lambda: "({1} {0} {2})".format(rng.choice(["=", "<>", "<", "<=", ">", ">="]), *compared()),
            lambda: "({1} {0} {2})".format(rng.choice(["=", "<>", "<", "<=", ">", ">="]), *compared()),
            lambda: f"({part('boolean')} {rng.choice(['and', 'or'])} {part('boolean')})",
            lambda: f"(not {part('boolean')})",
            lambda: f"({part(kind)} is {rng.choice(['', 'not '])}null)",
            lambda: "({1} is {0}distinct from {2})".format(rng.choice(["", "not "]), *compared()),
            lambda: f"({part(kind)} {rng.choice(['', 'not '])}in ({part(kind)}, {part(kind)}, {value(kind, rng)}))",
            lambda: f"({part(kind)} {rng.choice(['', 'not '])}between {part(kind)} and {part(kind)})",
            lambda: f"({part('text')} {rng.choice(['', 'not '])}like {rng.choice(['%a%', 'a%', '_', '%', '']).join(chr(39) * 2)})",
            lambda: f"({part('boolean')} is {rng.choice(['true', 'not true', 'false', 'unknown'])})",
            lambda: f"(interval '{rng.choice(INTERVALS)}' {rng.choice(['<', '=', '>'])} interval '{rng.choice(INTERVALS)}')",
            lambda: f"({part('timestamp')} - {part('timestamp')} > interval '{rng.choice(INTERVALS)}')",
        ])()

    def predicate(self, scope, depth=2):
        """Draws a condition, possibly with a subquery."""
        rng = self.rng
        form = rng.random()
        if depth < 1 or form < 0.6:
            return self.expression("boolean", scope, depth)
        kind = rng.choice(["int", "decimal", "text", "date", "interval"])
        if form < 0.7:
            return f"{self.expression(kind, scope, 1)} {rng.choice(['', 'not '])}in ({self.rows(kind, scope)})"
        if form < 0.8:
            return f"{rng.choice(['', 'not '])}exists ({self.rows(kind, scope)})"
        if form < 0.86:
            operator, quantifier = rng.choice(["=", "<>", "<", ">="]), rng.choice(["any", "all"])
            return f"{self.expression(kind, scope, 1)} {operator} {quantifier} ({self.rows(kind, scope)})"
        joined = rng.choice(["and", "or"])
        return f"({self.predicate(scope, depth - 1)} {joined} {self.predicate(scope, depth - 1)})"

    def inner(self, kind, scope, alias):
        """Draws an argument of an aggregate, with a column of the aggregate's own query.

        If all columns of the argument were outer columns, SQL would evaluate the aggregate in the outer query.
        """
        return f"case when {alias}.k is null then {value(kind, self.rng)} else {self.expression(kind, scope, 1)} end"

    def rows(self, kind, outer):
        """Draws a query of one column that may use outer columns."""
        rng, alias = self.rng, self.alias()
        scope = Scope(columns_of(alias), outer)
        where = f" where {self.expression('boolean', scope, 1)}" if rng.random() < 0.8 else ""
        table = rng.choice(list(TABLES))
        form = rng.random()
        if form < 0.6:
            return f"select {self.expression(kind, scope, 1)} from {table} {alias}{where}"
        if form < 0.8:
            column = rng.choice(["k", "i"])
            return f"select {rng.choice(['min', 'max'])}({self.inner(kind, scope, alias)}) from {table} {alias}{where} group by {alias}.{column}"
        return f"select {self.expression(kind, scope, 1)} from {table} {alias}{where} union {rng.choice(['', 'all '])}select {self.expression(kind, Scope([], outer), 1)}"

    def scalar_subquery(self, kind, outer):
        rng, alias = self.rng, self.alias()
        scope = Scope(columns_of(alias), outer)
        where = f" where {self.expression('boolean', scope, 1)}" if rng.random() < 0.9 else ""
        table = rng.choice(list(TABLES))
        if kind in ("int", "bigint") and rng.random() < 0.4:
            return f"(select cast(count(*) as {SQL[kind]}) from {table} {alias}{where})"
        if kind != "boolean" and rng.random() < 0.6:
            return f"(select {rng.choice(['min', 'max'])}({self.inner(kind, scope, alias)}) from {table} {alias}{where})"
        order = ", ".join(f"{alias}.{name}" for name, _ in COLUMNS)
        return f"(select {self.expression(kind, scope, 1)} from {table} {alias}{where} order by {order} limit 1)"

    def source(self):
        """Draws a FROM clause. Returns it with its columns."""
        rng = self.rng
        first, second = self.alias(), self.alias()
        form = rng.random()
        if form < 0.4:
            return f"{rng.choice(list(TABLES))} {first}", columns_of(first)
        both = columns_of(first) + columns_of(second)
        tables = rng.choice(list(TABLES)), rng.choice(list(TABLES))
        kind = rng.choice(["join", "left join", "right join", "full join"])
        if form < 0.65:
            condition = f"{first}.{rng.choice('ki')} = {second}.{rng.choice('ki')}"
            if kind != "full join" and rng.random() < 0.4:
                condition += f" and {self.expression('boolean', Scope(both), 1)}"
            return f"{tables[0]} {first} {kind} {tables[1]} {second} on {condition}", both
        if form < 0.78:
            return f"{tables[0]} {first} {kind} {tables[1]} {second} using (k)", both
        if form < 0.86:
            inner = Scope(columns_of("z"), Scope(columns_of(first)))
            where = self.expression("boolean", inner, 1)
            order = ", ".join(f"z.{name}" for name, _ in COLUMNS)
            lateral = f"(select z.* from {tables[1]} z where {where} order by {order} limit 2)"
            join = rng.choice([f"cross join lateral {lateral} {second}", f"left join lateral {lateral} {second} on true"])
            return f"{tables[0]} {first} {join}", both
        if form < 0.92:
            return f"({self.repeated_keys(tables)}) {first}", columns_of(first)
        if form < 0.96:
            inner = self.alias()
            columns = [(name, kind) for name, kind in COLUMNS]
            listed = ", ".join(f"{self.expression(kind, Scope(columns_of(inner)), 1)} as {name}" for name, kind in columns)
            distinct = rng.choice(["", "distinct "])
            return f"(select {distinct}{listed} from {tables[0]} {inner}) {first}", columns_of(first)
        return f"{tables[0]} {first} cross join {tables[1]} {second}", both

    def repeated_keys(self, tables):
        """Draws a query of all columns that repeats keys: a join, its groups or distinct rows, or an unnest."""
        rng, one, two = self.rng, self.alias(), self.alias()
        kind = rng.choice(["join", "left join", "right join", "full join"])
        joined = f"{tables[0]} {one} {kind} {tables[1]} {two} on {one}.{rng.choice('ki')} = {two}.{rng.choice('ki')}"
        sides = {name: rng.choice([one, two]) for name, _ in COLUMNS}
        form = rng.random()
        if form < 0.25:
            listed = ", ".join(f"{one}.{name}" for name, _ in COLUMNS)
            return f"select {listed} from {tables[0]} {one} cross join lateral unnest(array[1, 2]) as {two}(e)"
        if form < 0.5:
            listed = ", ".join(f"{sides[name]}.{name}" for name, _ in COLUMNS)
            return f"select {rng.choice(['', 'distinct '])}{listed} from {joined}"
        keys = ["k", "i"] + [name for name, _ in COLUMNS[2:] if rng.random() < 0.2]
        calls = [f"{sides[name]}.{name}" if name in keys else f"{'bool_and' if kind == 'boolean' else 'max'}({sides[name]}.{name}) as {name}" for name, kind in COLUMNS]
        return f"select {', '.join(calls)} from {joined} group by {', '.join(f'{sides[name]}.{name}' for name in keys)}"

    def change(self):
        """Draws an UPDATE, DELETE or INSERT, and the query of its table's rows."""
        rng, table = self.rng, self.rng.choice(list(TABLES))
        scope = Scope(columns_of(table))
        where = f" where {self.predicate(scope)}" if rng.random() < 0.8 else ""
        form = rng.random()
        if form < 0.2:
            sql = f"delete from {table}{where}"
        elif form < 0.4:
            sql = f"insert into {table} {self.select([kind for _, kind in COLUMNS])}"
        else:
            # PostgreSQL checks keys after each row, Taut after the statement.
            changed = rng.sample(COLUMNS[1:], rng.randint(1, 3))
            listed = ", ".join(f"{name} = {self.expression(kind, scope)}" for name, kind in changed)
            sql = f"update {table} set {listed}{where}"
        return sql, f"select * from {table}"

    def statement(self):
        """Draws a statement. Its rows are compared as a multiset."""
        rng = self.rng
        form = rng.random()
        if form < 0.05:
            return f"select distinct k from ({self.repeated_keys(rng.choices(list(TABLES), k=2))}) {self.alias()}"
        if form < 0.1:
            return f"with q as ({self.statement()}) select * from q"
        if form < 0.2:
            kinds = [rng.choice(list(SQL)) for _ in range(rng.randint(1, 3))]
            sides = [self.select(kinds) for _ in range(2)]
            operator = rng.choice(["union", "union all", "except", "except all", "intersect", "intersect all"])
            return f"{sides[0]} {operator} {sides[1]}"
        if form < 0.37:
            return self.grouped()
        if form < 0.45:
            return self.windowed()
        return self.select([rng.choice(list(SQL)) for _ in range(rng.randint(1, 3))])

    def select(self, kinds):
        rng = self.rng
        source, columns = self.source()
        scope = Scope(columns)
        listed = ", ".join(f"{self.expression(kind, scope)} as c{place}" for place, kind in enumerate(kinds))
        where = f" where {self.predicate(scope)}" if rng.random() < 0.6 else ""
        distinct = "distinct " if rng.random() < 0.1 else ""
        return f"select {distinct}{listed} from {source}{where}"

    def grouped(self):
        rng = self.rng
        source, columns = self.source()
        scope = Scope(columns)
        keys = [self.expression(rng.choice(["int", "text", "boolean", "date", "interval"]), scope, 1) for _ in range(rng.randint(0, 2))]
        calls = []
        for _ in range(rng.randint(1, 3)):
            kind = rng.choice(["int", "decimal", "text", "date", "timestamp", "double", "boolean", "interval"])
            argument = self.expression(kind, scope, 1)
            forms = [f"count({argument})", f"count(distinct {argument})"]
            if kind != "boolean":
                forms += [f"min({argument})", f"max({argument})"]
            if kind in ("int", "decimal"):
                forms += [f"sum({argument})", f"avg({argument})"]
            if kind == "boolean":
                forms += [f"bool_and({argument})", f"bool_or({argument})"]
            if kind == "text":
                forms.append(f"string_agg({argument}, ',' order by {argument})")
            call = rng.choice(forms)
            calls.append(call + (f" filter (where {self.expression('boolean', scope, 1)})" if rng.random() < 0.2 else ""))
        listed = ", ".join(f"{item} as c{place}" for place, item in enumerate(keys + calls + ["count(*)"]))
        where = f" where {self.predicate(scope)}" if rng.random() < 0.5 else ""
        group = f" group by {', '.join(str(place + 1) for place in range(len(keys)))}" if keys else ""
        having = f" having count(*) > {rng.choice([0, 1, 2])}" if rng.random() < 0.3 else ""
        return f"select {listed} from {source}{where}{group}{having}"

    def windowed(self):
        rng = self.rng
        table, alias = rng.choice(list(TABLES)), self.alias()
        scope = Scope(columns_of(alias))
        kind = rng.choice(["int", "decimal", "text", "date"])
        argument = self.expression(kind, scope, 1)
        call = rng.choice([
            "row_number()", "rank()", "dense_rank()", "count(*)", f"min({argument})", f"max({argument})", f"count({argument})",
            f"lag({argument})", f"lead({argument})", f"first_value({argument})", f"last_value({argument})",
        ] + ([f"sum({argument})", f"avg({argument})"] if kind in ("int", "decimal") else []))
        partition = f"partition by {self.expression(rng.choice(['int', 'text', 'boolean', 'interval']), scope, 1)} " if rng.random() < 0.6 else ""
        total = ", ".join(f"{alias}.{name}" for name, _ in COLUMNS)
        bound = lambda side: rng.choice([f"unbounded {side}", f"{rng.choice([0, 1, 2])} {side}", "current row"])
        frame = f" rows between {bound('preceding')} and {bound('following')}" if rng.random() < 0.5 else ""
        window = f"({partition}order by {rng.choice(['', alias + '.i desc, '])}{total}{frame})"
        return f"select {alias}.k as c0, {call} over {window} as c1 from {table} {alias}"


def table_rows(constraint, keys, rng):
    """Draws the rows of a table, none twice, so that an order by all columns is total.

    `keys` are those of the table with the primary key.
    """
    count = rng.choice([0, 1, 3, 6, 10])
    distinct = rng.sample(range(-1, 12), count)
    rows = []
    for place in range(count):
        values = [value(kind, rng) for _, kind in COLUMNS]
        is_null = constraint != "PRIMARY KEY" and rng.random() < 0.2
        if constraint == "REFERENCES w (k)":
            values[0] = "null" if is_null or not keys else str(rng.choice(keys))
        elif constraint:
            values[0] = "null" if is_null else str(distinct[place])
        if constraint == "PRIMARY KEY":
            keys.append(distinct[place])
        rows.append("(" + ", ".join(values) + ")")
    return list(dict.fromkeys(rows))


def normal(value):
    """Writes a value as a string. Equal values of different engines give equal strings."""
    if isinstance(value, (bool, type(None))):
        return str(value)
    if isinstance(value, (int, float, decimal.Decimal)):
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        number = decimal.Decimal(value)
        if number == 0:
            return "0"
        return format(decimal.Context(prec=9).plus(number).normalize(), "e")
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None:
            value = value.astimezone(datetime.timezone.utc)
        return value.replace(tzinfo=None).isoformat()
    return str(value)


class Engines:
    def __init__(self, server, name, zone):
        with server.connect("postgres") as connection:
            connection.execute(f"CREATE DATABASE {name}")
        self.postgres = server.connect(name)
        self.postgres.execute("SET statement_timeout = '10s'")
        self.duckdb = duckdb.connect()
        self.duckdb.execute("SET threads = 1; SET default_null_order = 'nulls_last_on_asc_first_on_desc'")
        self.taut = taut.connect(":memory:")
        self.define(f"SET TimeZone = '{zone}'")

    def define(self, sql):
        self.postgres.execute(sql)
        self.duckdb.execute(sql)
        self.taut.execute(sql)

    def outcomes(self, sql, then=None):
        """Rows of each engine as a multiset of texts, or None for an error; Taut's message; number of range errors.

        A statement that changes rows has a query `then` that returns the rows of its table. It is rolled back.
        """
        results, message, out_of_range = [], "", 0
        for engine in (self.taut, self.duckdb, self.postgres):
            if then is not None:
                engine.execute("BEGIN")
            try:
                result = engine.execute(sql)
                rows = (engine.execute(then) if then is not None else result).fetchall()
                results.append(collections.Counter(tuple(map(normal, row)) for row in rows))
            except (taut.Error, duckdb.Error, psycopg.Error) as error:
                if engine is self.taut:
                    message = str(error).split("\n")[0]
                out_of_range += isinstance(error, OUT_OF_RANGE)
                results.append(None)
            if then is not None:
                engine.execute("ROLLBACK")
        return results, message, out_of_range

    def close(self):
        self.postgres.close()
        self.duckdb.close()
        self.taut.close()


def is_same(found, expected):
    """Whether two outcomes are equal, except for the last digits of numbers."""
    if found is None or expected is None or found == expected:
        return found is expected or found == expected
    found, expected = sorted(found.elements()), sorted(expected.elements())
    return len(found) == len(expected) and all(
        left == right or is_near(left, right) for rows in zip(found, expected) for left, right in zip(*rows)
    )


def is_near(left, right):
    try:
        left, right = decimal.Decimal(left), decimal.Decimal(right)
        return abs(left - right) <= abs(right) * decimal.Decimal("1e-7")
    except decimal.InvalidOperation:
        return False


def shown(outcome):
    return "an error" if outcome is None else sorted(outcome.elements())[:6]


def run(server, seed, report):
    """Runs a case. Returns the number of statements, of Taut's errors, and of failures.

    Also counts the statements on which DuckDB and PostgreSQL agree, and those that Taut does not support.
    """
    rng = random.Random(seed)
    engines = Engines(server, f"case{seed}", rng.choice(ZONES))
    keys = []
    for table, constraint in TABLES.items():
        columns = ", ".join(f"{name} {SQL[kind]} {constraint if name == 'k' else ''}" for name, kind in COLUMNS)
        engines.define(f"CREATE TABLE {table} ({columns})")
        for row in table_rows(constraint, keys, rng):
            engines.define(f"INSERT INTO {table} VALUES {row}")
    counts = collections.Counter()
    for number in range(STATEMENTS_PER_CASE):
        generator = Generator(rng)
        sql, then = generator.change() if rng.random() < 0.15 else (generator.statement(), None)
        (found, by_duckdb, by_postgres), message, out_of_range = engines.outcomes(sql, then)
        counts["statements"] += 1
        counts["errors"] += found is None
        counts["witnesses agree"] += is_same(by_duckdb, by_postgres)
        if is_same(found, by_duckdb) or is_same(found, by_postgres):
            continue
        if "is not supported" in message:
            counts["refused"] += 1
        elif found == collections.Counter() and out_of_range == 2:
            counts["not computed"] += 1
        else:
            counts["failed"] += 1
            report(f"seed {seed}, statement {number}: {sql}\n  Taut {shown(found)} {message}\n  DuckDB {shown(by_duckdb)}\n  PostgreSQL {shown(by_postgres)}")
    engines.close()
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--statements", type=int, default=1000)
    parser.add_argument("--cases", type=int, help="instead of a number of statements")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    start = time.monotonic()
    cases = arguments.cases or -(-arguments.statements // STATEMENTS_PER_CASE)
    counts = collections.Counter()
    with Server() as server:
        for seed in range(arguments.seed, arguments.seed + cases):
            counts += run(server, seed, lambda line: print(line, flush=True))
    print(f"{time.monotonic() - start:.0f} s, seeds {arguments.seed} to {arguments.seed + cases - 1}")
    print(", ".join(f"{number} {name}" for name, number in sorted(counts.items())))
    sys.exit(bool(counts["failed"]))


if __name__ == "__main__":
    main()
