"""Compares `DataFrame.to_sql` of pandas through Taut's SQLAlchemy dialect and through duckdb_engine, in turns.

    pip install duckdb_engine==0.17.0 && python bench/to_sql.py --rows 200000
"""

import argparse
import statistics
import tempfile
import time

import numpy
import pandas
import sqlalchemy


def frame_of(rows):
    generator = numpy.random.default_rng(1)
    return pandas.DataFrame({
        "id": numpy.arange(rows),
        "name": [f"customer {i}" for i in range(rows)],
        "price": generator.random(rows).round(2),
        "bought": pandas.Timestamp("2024-01-01") + pandas.to_timedelta(generator.integers(0, 10**6, rows), unit="s"),
        "amount": generator.integers(0, 1000, rows),
    })  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--repetitions", type=int, default=3)
    arguments = parser.parse_args()
    frame = frame_of(arguments.rows)
    seconds = {"taut": [], "duckdb": []}
    with tempfile.TemporaryDirectory() as directory:
        engines = {name: sqlalchemy.create_engine(f"{name}:///{directory}/{name}.db") for name in seconds}
        for repetition in range(arguments.repetitions):
            for name, engine in engines.items():
                start = time.perf_counter()
                # A new table each time, because duckdb_engine 0.17 cannot replace a table with SQLAlchemy 2.1.
                frame.to_sql(f"t{repetition}", engine, index=False)
                seconds[name].append(time.perf_counter() - start)
                with engine.connect() as connection:
                    found = connection.exec_driver_sql(f"SELECT count(*), sum(amount) FROM t{repetition}").one()
                assert tuple(map(int, found)) == (arguments.rows, frame["amount"].sum()), found
        for engine in engines.values():
            engine.dispose()
    for name, runs in seconds.items():
        print(f"{name}: {', '.join(f'{run:.2f}' for run in runs)} s")
    print(f"ratio of the medians: {statistics.median(seconds['taut']) / statistics.median(seconds['duckdb']):.2f}")


if __name__ == "__main__":
    main()
