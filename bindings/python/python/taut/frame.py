"""Conversion of results to pandas DataFrames."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas
    import pyarrow

#: Values of `dtype_backend`, as in pandas.
DTYPE_BACKENDS = ("numpy_nullable", "pyarrow")
#: Options of `pyarrow.Table.to_pandas` that choose dtypes.
_DTYPE_OPTIONS = ("types_mapper", "integer_object_nulls")


def check_backend(dtype_backend: str, options: dict[str, Any]) -> None:
    """Raises ValueError if the backend is unknown, or if `options` choose dtypes too."""
    if dtype_backend not in DTYPE_BACKENDS:
        allowed = " and ".join(map(repr, DTYPE_BACKENDS))
        raise ValueError(f"dtype_backend={dtype_backend!r}; allowed are {allowed}")
    given = [option for option in _DTYPE_OPTIONS if option in options]
    if given:
        raise ValueError(f"dtype_backend and {given[0]} are given; both choose dtypes, so use one of them")


def pandas_of(table: pyarrow.Table, dtype_backend: str | None, options: dict[str, Any]) -> pandas.DataFrame:
    """Converts a table. The dtypes hold the values exactly, unless `options` choose other dtypes."""
    if any(option in options for option in _DTYPE_OPTIONS):
        return table.to_pandas(**options)
    if dtype_backend is not None:
        return table.to_pandas(types_mapper=_nullable if dtype_backend == "numpy_nullable" else _arrow, **options)
    masked = _masked_columns(table)
    unmasked = table
    for index in masked:
        unmasked = unmasked.set_column(index, table.field(index).name, _nulls(table.num_rows))
    frame = unmasked.to_pandas(types_mapper=_decimal, **options)
    for index, dtype in masked.items():
        frame.isetitem(index, dtype.__from_arrow__(table.column(index)))
    return frame


def _nulls(count: int) -> pyarrow.Array:
    import pyarrow

    return pyarrow.nulls(count)


def _masked_columns(table: pyarrow.Table) -> dict[int, Any]:
    """Returns the dtypes of columns whose values NumPy cannot hold beside nulls, by index: integers and booleans."""
    import pyarrow

    return {
        index: _nullable(column.type)
        for index, column in enumerate(table.columns)
        if column.null_count and (pyarrow.types.is_integer(column.type) or pyarrow.types.is_boolean(column.type))
    }


def _decimal(kind: pyarrow.DataType) -> Any:
    """Returns the dtype of a decimal; `None` for other types, which pyarrow converts well."""
    import pyarrow

    return _arrow(kind) if pyarrow.types.is_decimal(kind) else None


def _nullable(kind: pyarrow.DataType) -> Any:
    """Returns the nullable dtype of pandas for a type; `None` if there is none."""
    import pandas
    import pyarrow

    dtypes: dict[pyarrow.DataType, Callable[[], Any]] = {
        pyarrow.bool_(): pandas.BooleanDtype,
        pyarrow.int8(): pandas.Int8Dtype, pyarrow.uint8(): pandas.UInt8Dtype,
        pyarrow.int16(): pandas.Int16Dtype, pyarrow.uint16(): pandas.UInt16Dtype,
        pyarrow.int32(): pandas.Int32Dtype, pyarrow.uint32(): pandas.UInt32Dtype,
        pyarrow.int64(): pandas.Int64Dtype, pyarrow.uint64(): pandas.UInt64Dtype,
        pyarrow.float32(): pandas.Float32Dtype, pyarrow.float64(): pandas.Float64Dtype,
        pyarrow.string(): pandas.StringDtype,
    }  # fmt: skip
    return dtypes[kind]() if kind in dtypes else _decimal(kind)


def _arrow(kind: pyarrow.DataType) -> Any:
    """Returns the dtype of pandas that holds Arrow values; `None` for intervals, which pandas does not support."""
    import pandas
    import pyarrow

    return None if pyarrow.types.is_interval(kind) else pandas.ArrowDtype(kind)
