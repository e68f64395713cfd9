"""Text and pictures that show how a table is stored."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from taut.table import Table

#: Maximum blocks shown. The columns of these blocks are queried.
SHOWN_BLOCKS = 64
_WIDTH, _HEIGHT, _GAP = 480, 14, 3
#: Color of each encoding. Plain values are grey.
_COLORS = {
    "plain": "#b0b0b0", "constant": "#e4e4e4", "bit_packed": "#4c78a8", "frame_of_reference": "#72a5d8",
    "dictionary": "#f58518", "run_length": "#54a24b", "fsst": "#b279a2",
    "delta": "#439894", "run_length_delta": "#88d27a", "bitmap": "#83bcb6", "two_byte_delta": "#9ecae9",
    "patched": "#9d755d", "alp": "#bab0ac", "front_coded": "#d67195",
}  # fmt: skip
_OTHER_COLOR = "#9d755d"


class StoredColumn(NamedTuple):
    """A column of a block."""

    name: str
    group_index: int | None
    encoding: str
    #: Encoded bytes in the file.
    bytes: int
    #: Bytes of the values before encoding.
    plain_bytes: int


class StoredBlock(NamedTuple):
    """A block of a table."""

    block_id: str
    layout: str
    rows: int
    #: Bytes of the file.
    bytes: int
    columns: list[StoredColumn]


class Inspection:
    """The first blocks of a table: text in a terminal, a picture in a notebook.

    In the picture, each bar is a block and each part of a bar is a column. Its width shows the bytes of the column, its
    color the encoding.
    """

    def __init__(self, table: Table) -> None:
        run = table._connection._run
        self.name, self.options, self.rows = table.name, table.options, table.rows
        #: Number of blocks of the table.
        self.block_count = table.blocks
        #: The first blocks of the table, at most `SHOWN_BLOCKS`.
        self.blocks = [
            StoredBlock(block_id, layout, rows, size, [])
            for block_id, layout, rows, size in run(
                f"SELECT block_id, layout, rows, bytes FROM taut.blocks WHERE table_name = $1 LIMIT {SHOWN_BLOCKS}",
                [table.name],
            )
        ]
        by_id = {block.block_id: block for block in self.blocks}
        ids = ", ".join(f"'{block_id}'" for block_id in by_id) or "NULL"
        for block_id, *column in run(
            "SELECT block_id, column_name, group_index, encoding, bytes, plain_bytes FROM taut.columns "
            f"WHERE table_name = $1 AND block_id IN ({ids})",
            [table.name],
        ):
            by_id[block_id].columns.append(StoredColumn(*column))

    def columns(self) -> list[StoredColumn]:
        """Sums up each column over the shown blocks, with all its encodings."""
        encodings: dict[str, dict[str, None]] = {}
        sums: dict[str, StoredColumn] = {}
        for column in (column for block in self.blocks for column in block.columns):
            before = sums.get(column.name, column._replace(bytes=0, plain_bytes=0))
            encodings.setdefault(column.name, {}).update(dict.fromkeys(column.encoding.split(" | ")))
            sums[column.name] = column._replace(
                encoding=" | ".join(encodings[column.name]),
                bytes=before.bytes + column.bytes,
                plain_bytes=before.plain_bytes + column.plain_bytes,
            )
        return list(sums.values())

    def _head(self) -> str:
        shown = f", of which {len(self.blocks)} are shown" if self.block_count > len(self.blocks) else ""
        return f"{self.rows:,} rows in {self.block_count:,} blocks{shown}"

    def __repr__(self) -> str:
        lines = [f"{self.name}: {self.options}", self._head()]
        columns = self.columns()
        width = max((len(column.name) for column in columns), default=0)
        for column in columns:
            sizes = f"{column.bytes:>15,} of {column.plain_bytes:>15,} bytes"
            lines.append(f"  {column.name:<{width}}  {sizes}  {column.encoding}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        kinds = sorted({column.encoding.split(" | ")[0] for block in self.blocks for column in block.columns})
        legend = "".join(
            f'<span style="display:inline-block;width:0.8em;height:0.8em;background:{_color(kind)}"></span> '
            f"{html.escape(kind)} &nbsp; "
            for kind in kinds
        )
        scale = _WIDTH / max((sum(column.bytes for column in block.columns) for block in self.blocks), default=1)
        bars = "".join(
            f"<tr><td><small>{html.escape(block.layout)}, {block.rows:,} rows, {block.bytes:,} bytes</small></td>"
            f"<td>{_bar(block, scale)}</td></tr>"
            for block in self.blocks
        )
        columns = "".join(
            f"<tr><td>{html.escape(column.name)}</td><td>{html.escape(column.encoding)}</td>"
            f"<td>{column.bytes:,}</td><td>{column.plain_bytes:,}</td></tr>"
            for column in self.columns()
        )
        return (
            f"<b>{html.escape(self.name)}</b> <code>{html.escape(self.options)}</code><p>{self._head()}</p>"
            f"<table>{bars}</table><p><small>{legend}</small></p>"
            f"<table><thead><tr><th>column</th><th>encoding</th><th>bytes</th><th>plain bytes</th></tr></thead>"
            f"<tbody>{columns}</tbody></table>"
        )


def _color(encoding: str) -> str:
    return _COLORS.get(encoding, _OTHER_COLOR)


def _bar(block: StoredBlock, scale: float) -> str:
    """Draws a block as a row of rectangles, one per column, with a gap between column groups."""
    parts, x, group = [], 0.0, None
    # Columns without a group were added after the block was written, and are not stored in it.
    stored = ((column.group_index, column) for column in block.columns if column.group_index is not None)
    for index, column in sorted(stored, key=lambda indexed: indexed[0]):
        if group is not None and group != index:
            x += _GAP
        group = index
        title = html.escape(f"{column.name}: {column.encoding}, {column.bytes:,} of {column.plain_bytes:,} bytes")
        width = max(column.bytes * scale, 0.5)
        color = _color(column.encoding.split(" | ")[0])
        parts.append(
            f'<rect x="{x:.1f}" width="{width:.1f}" height="{_HEIGHT}" fill="{color}" stroke="white" stroke-width="0.5">'
            f"<title>{title}</title></rect>"
        )
        x += width
    return f'<svg width="{x:.0f}" height="{_HEIGHT}">{"".join(parts)}</svg>'
