"""Compares Taut, in each layout, with DuckDB after random ALTER TABLE statements and changes of rows.

Each case runs the same statements on both: columns are added, dropped, renamed and retyped; rows are inserted, updated
and deleted; transactions are committed or rolled back. Between these, Taut also rewrites its blocks, builds indexes and
is opened again, which must not change a row.
"""

import argparse
import random
import shutil
import sys
import tempfile

import duckdb
import taut

LAYOUTS = ["row", "packed_row", "column", "groups"]
TYPES = ["int", "bigint", "double precision", "text", "date", "decimal(9,2)", "boolean"]
# Types to which the values of a column can be converted without USING.
WIDER = {"int": ["bigint", "double precision", "text"], "bigint": ["text"], "date": ["timestamp"]}


def literal(chance, sql_type):
    """Returns a random value of a type, or null."""
    if chance.random() < 0.15:
        return "NULL"
    number = chance.randrange(-50, 50)
    return {
        "int": f"{number}",
        "bigint": f"{number * 10_000_000_000}",
        "double precision": f"{number * 0.25}",
        "text": f"'text {number}'" if number % 3 else "''",
        "date": f"DATE '2024-01-01' + {abs(number)}",
        "timestamp": f"TIMESTAMP '2024-01-01 10:00:00' + INTERVAL '{abs(number)} hours'",
        "decimal(9,2)": f"{number * 1.25}",
        "boolean": "true" if number > 0 else "false",
    }[sql_type]


class Case:
    """One table that both databases change."""

    def __init__(self, seed, layout):
        self.chance = random.Random(seed)
        self.path = tempfile.mkdtemp()
        self.layout = layout
        self.taut = taut.connect(self.path)
        self.duck = duckdb.connect()
        self.columns = {"id": "int", "a": "int", "b": "text"}
        self.next_id = self.next_name = 0
        self.log = []
        self.in_transaction = False
        options = "groups='(id, a), (b)'" if layout == "groups" else f"layout='{layout}'"
        sort = ", sort_by='id'" if seed % 3 == 0 else ""
        self.on_taut(f"CREATE TABLE t (id int, a int, b text) WITH ({options}{sort}, block_size='128 KiB')")
        self.duck.execute("CREATE TABLE t (id int, a int, b text)")

    def on_taut(self, statement):
        self.log.append(statement)
        self.taut.execute(statement)

    def on_both(self, statement):
        self.on_taut(statement)
        self.duck.execute(statement)

    def close(self):
        self.taut.close()
        shutil.rmtree(self.path)

    def other_column(self):
        names = [name for name in self.columns if name != "id"]
        return self.chance.choice(names) if names else None

    def insert(self):
        rows = []
        for _ in range(self.chance.choice([1, 3, 20])):
            values = [str(self.next_id)] + [literal(self.chance, kind) for kind in list(self.columns.values())[1:]]
            rows.append(f"({', '.join(values)})")
            self.next_id += 1
        self.on_both(f"INSERT INTO t VALUES {', '.join(rows)}")

    def insert_many(self):
        count = self.chance.choice([500, 3000])
        values = [f"g + {self.next_id}"] + [literal(self.chance, kind) for kind in list(self.columns.values())[1:]]
        self.on_both(f"INSERT INTO t SELECT {', '.join(values)} FROM generate_series(1, {count}) s(g)")
        self.next_id += count + 1

    def update(self):
        if column := self.other_column():
            value = literal(self.chance, self.columns[column])
            self.on_both(f"UPDATE t SET {column} = {value} WHERE id % 7 = {self.chance.randrange(7)}")

    def delete(self):
        self.on_both(f"DELETE FROM t WHERE id % 11 = {self.chance.randrange(11)}")

    def add(self):
        name, kind = f"c{self.next_name}", self.chance.choice(TYPES)
        self.next_name += 1
        default = "" if self.chance.random() < 0.4 else f" DEFAULT {literal(self.chance, kind)}"
        self.on_both(f"ALTER TABLE t ADD COLUMN {name} {kind}{default}")
        self.columns[name] = kind

    def drop(self):
        if column := self.other_column():
            # CASCADE also drops indexes and column groups, which do not exist in DuckDB.
            self.on_taut(f"ALTER TABLE t DROP COLUMN {column} CASCADE")
            self.duck.execute(f"ALTER TABLE t DROP COLUMN {column}")
            del self.columns[column]

    def rename(self):
        if column := self.other_column():
            name = f"r{self.next_name}"
            self.next_name += 1
            self.on_both(f"ALTER TABLE t RENAME COLUMN {column} TO {name}")
            self.columns = {name if old == column else old: kind for old, kind in self.columns.items()}

    def retype(self):
        column = self.other_column()
        if column and (wider := WIDER.get(self.columns[column])) and not self.has_index(column):
            kind = self.chance.choice(wider)
            self.on_both(f"ALTER TABLE t ALTER COLUMN {column} TYPE {kind}")
            self.columns[column] = kind

    def has_index(self, column):
        names = self.taut.execute("SELECT columns FROM taut.indexes").fetchall()
        return any(column in columns.split(", ") for (columns,) in names)

    def index(self):
        if column := self.other_column():
            kind = self.chance.choice(["csb", "bloom"])
            self.on_taut(f"CREATE INDEX IF NOT EXISTS i_{column} ON t USING {kind} ({column})")

    def rewrite(self):
        if not self.in_transaction:
            self.on_taut(self.chance.choice(["VACUUM", "VACUUM FULL", "CHECKPOINT"]))

    def reopen(self):
        if not self.in_transaction:
            self.log.append("-- opened again")
            self.taut.close()
            self.taut = taut.connect(self.path)

    def begin_or_end(self):
        if self.in_transaction:
            end = self.chance.choice(["COMMIT", "COMMIT", "ROLLBACK"])
            self.on_both(end)
            if end == "ROLLBACK":
                self.columns = self.before
            self.in_transaction = False
        else:
            self.on_both("BEGIN")
            self.before = dict(self.columns)
            self.in_transaction = True

    def compare(self, query):
        found, expected = (con.execute(query).fetchall() for con in (self.taut, self.duck))
        if found != expected:
            raise AssertionError(f"{query}\n  Taut:   {found[:5]}\n  DuckDB: {expected[:5]}")

    def check(self):
        self.compare("SELECT * FROM t ORDER BY id")
        name, kind = self.chance.choice(list(self.columns.items()))
        value = literal(self.chance, kind)
        operator = self.chance.choice(["=", "<", ">=", "IS DISTINCT FROM"])
        self.compare(f"SELECT id, {name} FROM t WHERE {name} {operator} {value} ORDER BY id")
        self.compare(f"SELECT {name}, count(*) FROM t GROUP BY {name} ORDER BY {name} NULLS LAST")
        self.compare(f"SELECT count(*), count({name}), min({name}), max({name}) FROM t WHERE {name} IS NOT NULL")

    def run(self, steps):
        actions = [self.insert, self.insert_many, self.update, self.delete, self.add, self.add, self.drop, self.rename]
        actions += [self.retype, self.index, self.rewrite, self.rewrite, self.reopen, self.begin_or_end]
        for _ in range(steps):
            self.chance.choice(actions)()
            self.check()


def run(cases, steps, first_seed):
    """Runs cases and prints the failed ones. Returns the number of failed cases."""
    failed = 0
    for seed in range(first_seed, first_seed + cases):
        case = Case(seed, LAYOUTS[seed % len(LAYOUTS)])
        try:
            case.run(steps)
        except Exception as error:
            failed += 1
            print(f"seed {seed}, layout {case.layout}: {type(error).__name__}: {error}")
            print("\n".join(f"  {statement};" for statement in case.log))
        case.close()
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=12, help="number of tables, each with steps of its own")
    parser.add_argument("--steps", type=int, default=40, help="statements of each case")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first case")
    arguments = parser.parse_args()
    failed = run(arguments.cases, arguments.steps, arguments.seed)
    print(f"{arguments.cases - failed} of {arguments.cases} cases agree with DuckDB")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
