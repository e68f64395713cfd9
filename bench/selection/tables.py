"""The tables of Holloway and DeWitt (2008, section 4.1) and of Chasseur and Patel (2013, section 3.1).

Each table is an uncompressed Parquet file that is generated once and cached.

    narrow_e    10 columns, column i uniform in [1, 2^(2.7 i)]
    narrow_u    10 columns, each uniform in [1, 100 million]
    narrow_s    10 columns, ranges as in narrow_e, Zipf with exponent 2
    wide_e      50 columns, column i uniform in [1, 2^(4 + 23/50 i)]
    onepercent  narrow_u with 100 values in its last column
    points      a unique key and 10 columns as in narrow_u

All have 32-bit integers without nulls and are sorted by all columns from left to right. A table is generated in parts,
one for each range of the first column. The number of rows in each range is drawn first, so the rows have the same
distribution as rows drawn one by one, and each sort stays small.
"""

import math
import pathlib

import numpy
import pyarrow
import pyarrow.parquet

SEED = 2008
DIRECTORY = pathlib.Path.home() / ".cache/taut/selection"
PART_ROWS = 5_000_000
GROUP_ROWS = 1_000_000
# Keys have gaps, so that lookups of absent keys are possible.
KEY_STEP = 7

# Maximum of each column. The minimum is 1.
NARROW = [int(2 ** (2.7 * i)) for i in range(1, 11)]
HUNDRED_MILLIONS = [100_000_000] * 10
WIDE = [int(2 ** (4 + 23 / 50 * i)) for i in range(1, 51)]
GREATEST = {
    "narrow_e": NARROW,
    "narrow_u": HUNDRED_MILLIONS,
    "narrow_s": NARROW,
    "wide_e": WIDE,
    "onepercent": HUNDRED_MILLIONS[:9] + [100],
    "points": HUNDRED_MILLIONS,
}
ROWS = {name: 2_000_000 if name == "wide_e" else 10_000_000 for name in GREATEST}
PAPER_ROWS = {name: 12_000_000 if name == "wide_e" else 60_000_000 for name in GREATEST}


def columns(table):
    """Returns the names of the columns. Rows are sorted by all columns in this order."""
    names = [f"c{number}" for number in range(1, len(GREATEST[table]) + 1)]
    if table == "points":
        return ["k", *names]
    return names[:-1] + ["onepercent"] if table == "onepercent" else names


def path(table, rows):
    """Returns the file of a table. Generates it if it does not exist."""
    file = DIRECTORY / f"{table}-{rows}-{SEED}.parquet"
    if not file.exists():
        DIRECTORY.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_suffix(".unfinished")
        write(unfinished, parts(table, rows))
        unfinished.rename(file)
    return file


def write(file, tables, compression="none"):
    """Writes pyarrow tables to one file with row groups of equal size."""
    pending, writer = None, None
    for part in tables:
        writer = writer or pyarrow.parquet.ParquetWriter(file, part.schema, compression=compression, write_page_index=True)
        pending = pyarrow.concat_tables([pending, part]) if pending is not None else part
        while pending.num_rows >= GROUP_ROWS:
            writer.write_table(pending.slice(0, GROUP_ROWS))
            pending = pending.slice(GROUP_ROWS)
    if pending.num_rows:
        writer.write_table(pending)
    writer.close()


def parts(table, rows):
    """Yields the sorted rows as pyarrow tables."""
    rng = numpy.random.default_rng([SEED, rows, *table.encode()])
    greatest, names, zipf = GREATEST[table], columns(table), table == "narrow_s"
    schema = pyarrow.schema([pyarrow.field(name, pyarrow.int32(), nullable=False) for name in names])
    if table == "points":
        for start in range(0, rows, PART_ROWS):
            keys = numpy.arange(start, min(start + PART_ROWS, rows)) * KEY_STEP
            values = [keys, *(draw(rng, high, len(keys), zipf) for high in greatest)]
            yield pyarrow.table([column.astype(numpy.int32) for column in values], schema=schema)
        return
    edges = numpy.linspace(0, greatest[0], min(greatest[0], math.ceil(rows / PART_ROWS)) + 1).astype(int)
    ranges = [(low + 1, high) for low, high in zip(edges, edges[1:])]
    weights = numpy.array([chances(low, high).sum() if zipf else high - low + 1 for low, high in ranges])
    for (low, high), count in zip(ranges, rng.multinomial(rows, weights / weights.sum())):
        first = draw_between(rng, low, high, count) if zipf else rng.integers(low, high, count, endpoint=True)
        drawn = [first, *(draw(rng, high, count, zipf) for high in greatest[1:])]
        order = sorting(drawn, greatest)
        yield pyarrow.table([column[order].astype(numpy.int32) for column in drawn], schema=schema)


def chances(low, high):
    """Returns the Zipf probabilities of the numbers from `low` to `high`, not normalised."""
    return numpy.arange(low, high + 1) ** -2.0


def draw_between(rng, low, high, count):
    weights = chances(low, high)
    return rng.choice(numpy.arange(low, high + 1), count, p=weights / weights.sum())


def draw(rng, greatest, count, zipf):
    """Draws numbers from 1 to `greatest`."""
    if not zipf:
        return rng.integers(1, greatest, count, endpoint=True, dtype=numpy.int32)
    drawn = rng.zipf(2, count)
    while (beyond := numpy.flatnonzero(drawn > greatest)).size:
        drawn[beyond] = rng.zipf(2, beyond.size)
    return drawn.astype(numpy.int32)


def sorting(drawn, greatest):
    """Returns the sort order of the rows by all columns. Packs columns into 64-bit words to compare them together."""
    words, free = [], 0
    for column, high in zip(drawn, greatest):
        bits = int(high).bit_length()
        if bits > free:
            words.append(numpy.zeros(len(column), dtype=numpy.uint64))
            free = 64
        free -= bits
        words[-1] = words[-1] << numpy.uint64(bits) | column.astype(numpy.uint64)
    return numpy.lexsort(words[::-1])
