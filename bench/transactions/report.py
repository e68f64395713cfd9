"""The Markdown report of the comparison."""

import itertools
import math

import common
from batches import SCANS
from memory import LIMIT, LIMITED_CACHE
from part import BATCH, ROWS, SMALL_ROWS

PARTS = {
    "single": "One session, each statement a transaction",
    "sessions": "{sessions} sessions at once, each statement a transaction",
    "upsert": "{batch:,} keys in one statement, half of them present, into {rows:,} rows",
    "scans": "Scans after updates of 1 % of {rows:,} rows",
    "space": "Bytes after 90 % of {rows:,} rows were deleted",
    "memory": "Peak resident memory of an UPDATE of all of {rows:,} rows, limited to 1 GiB",
}


def medians(cell):
    return {engine: common.median(values) for engine, values in cell["values"].items()}


def durability_class(engine):
    """Returns the durability class of an engine. Engines of one class are compared. None excludes an engine."""
    if engine in ("append and fdatasync", "Taut row, off"):
        return None
    return "normal" if engine.endswith(", normal") else ""


def ratios(facts):
    """Returns the ratio of Taut's best layout to the best rival for each figure. Above 1, Taut is worse."""
    found = []
    for cell in facts["cells"]:
        times = medians(cell)
        best = max if cell["unit"] == "per second" else min
        for durability in ("", "normal"):
            ours, theirs = (
                [engine for engine in times if durability_class(engine) == durability and engine.startswith("Taut") == mine]
                for mine in (True, False)
            )
            if ours and theirs:
                our, their = best(ours, key=times.get), best(theirs, key=times.get)
                share = times[our] / times[their] if times[their] else math.inf
                share = 1 / share if cell["unit"] == "per second" and share else share
                found.append((share, cell, our, their, durability))
    return sorted(found, key=lambda one: -one[0])


def shown(value, unit):
    if unit == "bytes":
        return f"{value / 2**20:,.1f} MiB"
    return f"{value:,.0f} /s" if unit == "per second" else f"{common.milliseconds(value)} ms"


def summary(found):
    rows = [
        [f"{cell['part']}: {cell['name']}{durability and ', ' + durability}", f"{share:.2f}", f"{our}: {shown(medians(cell)[our], cell['unit'])}",
         f"{their}: {shown(medians(cell)[their], cell['unit'])}"]
        for share, cell, our, their, durability in found
    ]  # fmt: skip
    return common.table(["", "ratio", "Taut's best", "best rival"], rows) if rows else "None."


def grid(cells, engines):
    """Table with a row for each engine and a column for each figure."""
    rows = []
    for engine in engines:
        row = [engine]
        for cell in cells:
            values = cell["values"].get(engine)
            spread = f" ±{common.spread(values):.0%}" if values and len(values) > 1 else ""
            row.append(f"{shown(common.median(values), cell['unit'])}{spread}" if values else "–")
        rows.append(row)
    return common.table(["", *(cell["name"] for cell in cells)], rows)


def relative(cells, engines, pairs):
    """Table of ratios between medians. `pairs` are the names of a figure and of the figure that divides it."""
    named, rows = {cell["name"]: cell for cell in cells}, []
    for engine in engines:
        row = [engine]
        for name, base in pairs:
            both = [named.get(one, {"values": {}})["values"].get(engine) for one in (name, base)]
            row.append(f"{common.median(both[0]) / common.median(both[1]):.2f}" if all(both) else "–")
        rows.append(row)
    return common.table(["", *(name for name, _ in pairs)], rows)


def part_text(facts, part):
    cells = [cell for cell in facts["cells"] if cell["part"] == part]
    # Engines are in the order of their first figure. An engine without figures appears among the failures.
    engines = list(dict.fromkeys(itertools.chain.from_iterable(cell["values"] for cell in cells)))
    rows = facts["rows"] or (SMALL_ROWS if part in ("single", "sessions") else ROWS)
    title = PARTS[part].format(sessions=facts["sessions"], rows=rows, batch=min(BATCH, rows // 10))
    sections = [f"## {part}: {title}"]
    if part in ("single", "sessions"):
        sections += [f"A table of {rows:,} rows; keys are random, the same for all.", grid(cells, engines)]
    elif part == "scans":
        plain = [cell for cell in cells if "," not in cell["name"] or cell["name"].endswith("mean")]
        states = [(f"{scan}, {state}{after}", f"{scan}, clean{after}")
                  for scan in SCANS for after in ("", ", VACUUM", ", VACUUM FULL") for state in ("one", "many")]  # fmt: skip
        sections += ["One of three equal tables is updated by `one` statement, one by `many` small statements, and one, `clean`, not at "
                     "all. They are scanned in turns by three queries: `sum`, `count` with a predicate, and `groups` with GROUP BY. "
                     "Times as a share of those of the clean table:", relative(cells, engines, states)]  # fmt: skip
        sections += [grid(plain, engines)]
        for scan in SCANS:
            sections.append(grid([cell for cell in cells if cell["name"].startswith(f"{scan}, ")], engines))
    elif part == "space":
        pairs = [(name, "the rest, fresh") for name in ("loaded", "deleted", "VACUUM", "VACUUM FULL")]
        sections += ["Bytes as a share of those of a fresh load of the rows that are left; DuckDB has CHECKPOINT for VACUUM, "
                     "and VACUUM with CHECKPOINT for VACUUM FULL:", relative(cells, engines, pairs)]  # fmt: skip
        for unit in ("bytes", "s"):
            sections.append(grid([cell for cell in cells if cell["unit"] == unit], engines))
    elif part == "memory":
        sections += [f"Taut with memory={LIMIT} and cache={LIMITED_CACHE}, DuckDB with memory_limit={LIMIT}; the peaks are those "
                     "of the process after opening and during each statement, memory that earlier statements left resident included.", grid(cells, engines)]  # fmt: skip
    else:
        sections.append(grid(cells, engines))
    return "\n\n".join(sections + facts["notes"].get(part, []))


def text(facts):
    machine, found = facts["machine"], ratios(facts)
    lost = [one for one in found if one[0] > 1]
    failures = [f"- **{engine} failed** in {part}, {what}: {why}" for part, engine, what, why in facts["failures"]]
    sections = [
        "# Transactions",
        f"{machine['processor']}, {machine['threads']} threads, {machine['memory_gib']} GiB, {machine['system']}, commit "
        f"{machine['commit']}, {machine['date']}; directories on {' of '.join(facts['file_system'])}; {versions(facts)}. Medians of "
        f"{facts['repetitions']} repetitions of {facts['seconds']:g} s, in turns; ± is half the range from the least to the "
        "greatest. `make bench-transactions`.",
        "With `full`, commits survive a crash of the machine; with `normal`, a kill of the process; with `off`, only a regular close "
        "of the database. SQLite has a write-ahead log, and its `normal` is as durable as Taut's. Tables have a primary key in `single`, `sessions` "
        "and `upsert`. SQLite and DuckDB run prepared statements; Taut's are texts with parameters.",
        *(["## Failures", "\n".join(failures)] if failures else []),
        "## Lost",
        f"Taut's best layout beside the best rival with the same durability; {len(lost)} of {len(found)} figures are lost, the worst first. "
        "A ratio is Taut's time or bytes divided by the rival's, and for rates the rival's divided by Taut's.",
        summary(lost),
        *(part_text(facts, part) for part in facts["parts"]),
        "## Not lost",
        summary([one for one in found if one[0] <= 1]),
    ]
    return "\n\n".join(sections)


def versions(facts):
    return ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
