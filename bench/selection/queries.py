"""The queries: selections, conjunctions, lookups and the aggregate, the same for every engine.

Columns, values and keys are drawn from a seed. Each query has a method `sql`. The Polars engine instead builds a lazy
frame from the fields of the query.
"""

import dataclasses
import random

import tables

SELECTIVITIES = [0.001, 0.01, 0.1, 0.5, 1.0]
# Numbers of selected columns for each table of `tables.py`.
WIDTHS = {"narrow_e": [1, 3, 5, 10], "narrow_u": [1, 3, 5, 10], "wide_e": [1, 15, 25, 50]}
CONJUNCTIONS = [0.001, 0.01, 0.1]
RANGES = [1, 10, 100]
INDEXED_SELECTIVITIES = [0.00001, 0.001]
# Share of columns, from the right, that predicates use. They have many values, and the sort order by the columns to
# their left leaves them unordered.
RIGHT_SHARE = 0.4


@dataclasses.dataclass(frozen=True)
class Selection:
    """Columns of the rows that pass predicates `column >= low` or `column BETWEEN low AND high`."""

    part: str
    name: str
    table: str
    columns: tuple
    predicates: tuple

    def sql(self):
        where = " AND ".join(condition(*predicate) for predicate in self.predicates)
        return f"SELECT {', '.join(self.columns)} FROM {self.table} WHERE {where}"


@dataclasses.dataclass(frozen=True)
class Minimum:
    """Minimum of a column in each of many groups, if it is below a value."""

    part: str
    name: str
    table: str
    group: str
    column: str
    below: int

    def sql(self):
        least = f"MIN({self.column})"
        return f"SELECT {self.group}, {least} FROM {self.table} GROUP BY {self.group} HAVING {least} < {self.below}"


@dataclasses.dataclass(frozen=True)
class Totals:
    """Sums of all columns. Reads the whole table and returns one row. Not timed."""

    table: str

    def sql(self):
        return f"SELECT {', '.join(f'SUM({column})' for column in tables.columns(self.table))} FROM {self.table}"


@dataclasses.dataclass(frozen=True)
class Lookup:
    """All columns of `count` consecutive rows by key. Each execution looks up different keys."""

    part: str
    name: str
    table: str
    key: str
    count: int

    @property
    def condition(self):
        return f"{self.key} = {{}}" if self.count == 1 else f"{self.key} BETWEEN {{}} AND {{}}"

    def sql(self, *values):
        return f"SELECT * FROM {self.table} WHERE " + self.condition.format(*values)

    def parameters(self, *marks):
        """Returns the SQL with parameter markers instead of values."""
        return self.sql(*marks[: 1 if self.count == 1 else 2])

    def draw(self, rng, rows):
        first = rng.randrange(rows - self.count + 1)
        low, high = first * tables.KEY_STEP, (first + self.count - 1) * tables.KEY_STEP
        return (low,) if self.count == 1 else (low, high)


@dataclasses.dataclass(frozen=True)
class ValueLookup(Lookup):
    """All columns of the rows that have a given value in column `key`. A tenth of the possible values occur."""

    def draw(self, rng, rows):
        return (1 + rng.randrange(greatest(self.table, self.key)),)


def percent(share):
    return f"{share * 100:g} %"


def condition(column, low, high=None):
    return f"{column} >= {low}" if high is None else f"{column} BETWEEN {low} AND {high}"


def greatest(table, column):
    return dict(zip(reversed(tables.columns(table)), reversed(tables.GREATEST[table])))[column]


def at_least(table, column, share):
    """Predicate that the given share of the rows passes: the rows with the greatest values."""
    return column, 1 + round((1 - share) * greatest(table, column))


def in_the_middle(table, column, share):
    """Predicate that the given share of the rows passes: values just above the middle of the domain."""
    low, high = (1 + round((0.5 + part) * greatest(table, column)) for part in [0, share])
    return column, low, high - 1


def right(table):
    names = tables.columns(table)
    return names[-round(len(names) * RIGHT_SHARE) :]


def selections(table):
    """Queries with one predicate on one of the selected columns, as in the papers that `tables.py` cites."""
    for share in SELECTIVITIES:
        for width in WIDTHS[table]:
            rng = random.Random(f"{table} {width}")
            tested = rng.choice(right(table))
            others = rng.sample([name for name in tables.columns(table) if name != tested], width - 1)
            name = f"{percent(share)}, {width} column{'s' * (width > 1)}"
            yield Selection("a", name, table, (tested, *others), (at_least(table, tested, share),))


def conjunctions(table):
    """Queries of three columns with three predicates of equal selectivity."""
    rng = random.Random(table)
    tested, asked = rng.sample(right(table), 3), rng.sample(tables.columns(table), 3)
    for share in CONJUNCTIONS:
        predicates = tuple(at_least(table, column, share ** (1 / 3)) for column in tested)
        yield Selection("b", f"{percent(share)} by three predicates", table, tuple(asked), predicates)


def lookups():
    for count in RANGES:
        yield Lookup("c", f"{count} row{'s' * (count > 1)} by key", "points", "k", count)


def lookups_by_index():
    yield ValueLookup("c", "a value of a column, indexed", "points", "c7", 1)


def few(indexed):
    """Queries of all columns that select few rows by an unsorted column."""
    everything, how = tuple(tables.columns("points")), "indexed" if indexed else "no index"
    for share in INDEXED_SELECTIVITIES:
        name = f"{percent(share)} by a column, {how}"
        yield Selection("c", name, "points", everything, (at_least("points", "c7", share),))
    name = f"{percent(INDEXED_SELECTIVITIES[-1])} from the middle of a column, {how}"
    yield Selection("c", name, "points", everything, (in_the_middle("points", "c7", INDEXED_SELECTIVITIES[-1]),))


def minimum(rows):
    """The query of part d. Its bound is about the expected minimum of a group, so most groups pass its HAVING."""
    yield Minimum("d", "MIN of 100 groups", "onepercent", "onepercent", "c5", 1 + 100 * 100_000_000 // rows)
