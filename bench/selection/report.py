"""The Markdown report of a comparison: ratios, lost cells, and then the times of all engines."""

import common
from engines import ENGINES, IN_MEMORY, ON_DISK, TAUT

PARTS = {
    "a": "One predicate on a column that is not sorted",
    "b": "Three predicates",
    "c": "Whole rows by key, and few rows by another column",
    "d": "MIN of 100 groups",
}
RIVALS = {"on disk": ON_DISK, "in memory": IN_MEMORY}


def geometric_mean(ratios):
    return common.statistics.geometric_mean(ratios)


def ratio(value):
    """Formats a ratio, in bold above 1, where Taut has lost."""
    return f"**{value:.2f}**" if value > 1 else f"{value:.2f}"


def medians(cell):
    return {engine: common.median(values) for engine, values in cell["seconds"].items() if engine not in cell["wrong"]}


def fastest(times, engines):
    """Returns time and name of the fastest of some engines, or None if none has a time."""
    return min(((times[engine], engine) for engine in engines if engine in times), default=None)


def against(cell, layouts, rivals):
    """Returns the fastest layout's time as a share of the fastest rival's, and both names, or None."""
    times = medians(cell)
    ours, theirs = fastest(times, layouts), fastest(times, rivals)
    return (ours[0] / theirs[0], ours[1], theirs[1]) if ours and theirs else None


def text(facts):
    machine = facts["machine"]
    sections = [
        "# Selections",
        f"{machine['processor']}, {machine['threads']} threads, {machine['memory_gib']} GiB, {machine['system']}, commit "
        f"{machine['commit']}, {machine['date']}. Medians of {facts['repetitions']} repetitions in turns; ± is half the "
        "range from the least to the greatest. Every answer was compared between all engines. `bench/selection/tables.py` describes the tables. `make bench`.",
        engines(facts),
    ]
    if facts["cells"]:
        sections += ["## Ratios", summary(facts["cells"]), "## Lost cells", lost(facts["cells"])]
    for part, title in PARTS.items():
        cells = [cell for cell in facts["cells"] if cell["part"] == part]
        for table in dict.fromkeys(cell["table"] for cell in cells):
            rows = facts["rows"][table]
            sections += [f"## {part}. {title}: {table}, {rows:,} rows", times([cell for cell in cells if cell["table"] == table])]
            if part == "c":
                sections.append(lookups(facts))
    if facts["loads"]:
        sections += ["## Loads", loads(facts), "## Stored", stored(facts)]
    return "\n\n".join(sections)


def engines(facts):
    rows = [[name, one["version"], one["settings"]] for name, one in facts["engines"].items()]
    lines = ["| engine | version | how |", "|---|---|---|", *("| " + " | ".join(row) + " |" for row in rows)]
    left_out = [f"- **{name} is left out** of the rest of the run: {why}" for name, why in facts["left_out"].items()]
    wrong = [f"- **{engine} is wrong**: {cell['sql']}" for cell in facts["cells"] for engine in cell["wrong"]]
    failed = [f"- **{engine} failed** on {table}, {verb}: {why}" for engine, table, verb, why in facts["failures"]]
    return "\n".join(lines) + "".join(f"\n\n{line}" for line in left_out + wrong + failed)


def summary(cells):
    """Geometric means of ratios, and the number above 1, per table, part and layout."""
    rows = []
    for part, table in dict.fromkeys((cell["part"], cell["table"]) for cell in cells):
        for label, layouts in [*((layout, [layout]) for layout in TAUT), ("best of the three", TAUT)]:
            row = [f"{part} {table}, {label}"]
            for rivals in RIVALS.values():
                own = [found[0] for cell in cells if (cell["part"], cell["table"]) == (part, table)
                       and (found := against(cell, layouts, rivals))]  # fmt: skip
                row += [ratio(geometric_mean(own)), f"{sum(one > 1 for one in own)} of {len(own)}"] if own else ["", ""]
            rows.append(row)
    head = ["", f"over the fastest of {', '.join(ON_DISK)}", "lost", f"over the fastest of {', '.join(IN_MEMORY)}", "lost"]
    return "Taut's time over the fastest rival's in each cell, geometric means. `a` to `d` are the parts below:\n\n" + common.table(head, rows)


def lost(cells):
    """Cells in which even Taut's fastest layout is slower than the fastest rival, in descending order of the ratio."""
    blocks = []
    for name, rivals in RIVALS.items():
        found = [(against(cell, TAUT, rivals), cell) for cell in cells]
        found = sorted(((*one, cell) for one, cell in found if one and one[0] > 1), key=lambda one: -one[0])
        where = lambda cell: f"{cell['part']} {cell['table']}, {cell['name']}"
        rows = [[where(cell), f"{share:.2f}", ours, theirs] for share, ours, theirs, cell in found]
        compared = sum(against(cell, TAUT, rivals) is not None for cell in cells)
        blocks.append(f"Taut's fastest layout is slower than the fastest rival {name} in {len(rows)} of {compared} cells.")
        if rows:
            blocks.append(common.table(["cell", "ratio", "layout", "rival"], rows))
    return "\n\n".join(blocks)


def times(cells):
    """Table of the milliseconds of every engine, and the ratios of every layout."""
    present = [name for name in ENGINES if any(name in cell["seconds"] for cell in cells)]
    layouts = [name for name in TAUT if name in present]
    short = lambda name: name.replace("Taut ", "").replace("DataFusion", "DF")
    head = ["ms", *present, *(f"{short(layout)} / fastest {name}" for name in RIVALS for layout in layouts)]
    rows = []
    for cell in cells:
        row = [cell["name"]]
        for engine in present:
            values = cell["seconds"].get(engine)
            row.append(f"{common.milliseconds(common.median(values))} ±{common.spread(values):.0%}" if values else "–")
        for rivals in RIVALS.values():
            for layout in layouts:
                found = against(cell, [layout], rivals)
                row.append(ratio(found[0]) if found else "")
        rows.append(row)
    return common.table(head, rows)


def lookups(facts):
    """99th percentiles of lookups, ratios to SQLite, and the engines without an index."""
    cells = [cell for cell in facts["cells"] if "percentile_99_seconds" in cell]
    present = [name for name in ENGINES if any(name in cell["percentile_99_seconds"] for cell in cells)]
    shown = lambda seconds, name: common.milliseconds(seconds[name]) if name in seconds else "–"
    rows = [[cell["name"], *(shown(cell["percentile_99_seconds"], name) for name in present)] for cell in cells]
    blocks = [f"99th percentiles of the lookups, with {facts['keys']} random keys in each repetition:", common.table(["ms", *present], rows)]
    rows = [[cell["name"], *(ratio(found[0]) if (found := against(cell, [layout], ["SQLite"])) else "" for layout in TAUT)]
            for cell in facts["cells"] if cell["part"] == "c"]  # fmt: skip
    blocks += ["Taut's time over SQLite's:", common.table(["", *TAUT], rows)]
    indexes = facts["indexes"]
    mebibytes = lambda name: indexes["grown_bytes"][name] / 2**20
    created = ", ".join(f"{name} {seconds:.1f} s and {mebibytes(name):.0f} MiB" for name, seconds in indexes["seconds"].items())
    refused = "\n".join(f"- {name}: {why}" for name, why in indexes["refused"].items())
    blocks.append(f"Seconds to create the index, and the peak growth of the process: {created or 'none'}.")
    return "\n\n".join([*blocks, "Engines that cannot create it:", refused])


def loads(facts):
    present = [name for name in ENGINES if any(name in load["seconds"] for load in facts["loads"])]
    # Engines that read the Parquet file directly have no load.
    shown = [name for name in present if ENGINES[name][0].own_form]
    rivals = [name for name in ON_DISK if name in shown]
    rows = []
    for load in facts["loads"]:
        seconds = {name: common.median(values) for name, values in load["seconds"].items()}
        theirs = fastest(seconds, rivals)
        cells = [f"{seconds[name]:.2f} ±{common.spread(load['seconds'][name]):.0%}" if name in seconds else "–" for name in shown]
        shares = [ratio(seconds[layout] / theirs[0]) if theirs and layout in seconds else "" for layout in TAUT if layout in shown]
        rows.append([f"{load['table']}, {load['rows']:,} rows", *cells, *shares])
    head = ["seconds", *shown, *(f"{name.removeprefix('Taut ')} / fastest on disk" for name in TAUT if name in shown)]
    return "From the uncompressed Parquet file, which is sorted:\n\n" + common.table(head, rows)


def stored(facts):
    names = [name for name in ENGINES if any(load["bytes"].get(name) for load in facts["loads"])]
    others = ["Parquet", "Parquet, zstd"]
    rows = []
    for load in facts["loads"]:
        sizes = {**load["bytes"], **facts["files"][load["table"]]}
        rival = min((sizes[name] for name in [*others, *ON_DISK] if sizes.get(name)), default=None)
        cells = [f"{sizes[name] / load['rows']:.2f}" if sizes.get(name) else "–" for name in [*names, *others]]
        shares = [ratio(sizes[layout] / rival) if sizes.get(layout) else "" for layout in TAUT if layout in names]
        rows.append([f"{load['table']}, {load['rows']:,} rows", *cells, *shares])
    shared = [f"{name.removeprefix('Taut ')} / smallest other" for name in TAUT if name in names]
    head = ["bytes per row", *names, *others, *shared]
    return common.table(head, rows)
