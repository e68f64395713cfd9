"""Row-by-row comparison of the results of two engines.

Numbers are compared by value, because engines differ in the type of a result (DuckDB's avg of decimals is a double,
its sum of integers has 128 bits). Dates and times are compared as text.
"""

import datetime
import decimal
import math
import re

RELATIVE = 1e-9
ABSOLUTE = 1e-6
# A timestamp as text. Engines differ in the number of trailing zeros and in how they write UTC.
MOMENT = re.compile(r"(\d{4,}-\d\d-\d\d \d\d:\d\d:\d\d)(\.\d+)?(?:\+00:00|\+00|Z)?")


def plain(value):
    """Converts a value to a number, text, boolean or None."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        moment = MOMENT.fullmatch(value)
        return moment[1] + (moment[2] or "").rstrip("0").rstrip(".") if moment else value
    if isinstance(value, (int, decimal.Decimal)):
        return value
    if isinstance(value, float):
        return None if math.isnan(value) or math.isinf(value) else value
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None:
            value = value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
        return plain(value.isoformat(sep=" "))
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    return str(value)


def is_number(value):
    return isinstance(value, (int, float, decimal.Decimal)) and not isinstance(value, bool)


def same(left, right):
    """Whether two plain values are equal. Numbers may differ by rounding."""
    if is_number(left) and is_number(right):
        if left == right:
            return True
        left, right = float(left), float(right)
        return abs(left - right) <= max(ABSOLUTE, RELATIVE * max(abs(left), abs(right)))
    if is_number(left) and isinstance(right, str) or is_number(right) and isinstance(left, str):
        # An engine may return a decimal of many digits as text.
        try:
            return decimal.Decimal(str(left)) == decimal.Decimal(str(right))
        except decimal.InvalidOperation:
            return False
    return left == right


def sort_key(row):
    """Sort key that puts rows next to each other if only the last digits of their numbers differ."""
    def part(value):
        if value is None:
            return (0, 0, "")
        if isinstance(value, bool):
            return (1, int(value), "")
        if is_number(value):
            return (2, float(f"{float(value):.6g}"), "")
        return (3, 0, str(value))
    def exact(value):
        return float(value) if is_number(value) and value == value else 0.0
    # Rows that are equal in the first digits are ordered by the full values.
    return [part(value) for value in row] + [exact(value) for value in row]


def normal(rows):
    return [[plain(value) for value in row] for row in rows]


def difference(left, right, ordered=False):
    """Returns why two results differ, or None if they agree."""
    left, right = normal(left), normal(right)
    if len(left) != len(right):
        return f"{len(left)} rows against {len(right)}"
    if not ordered:
        left, right = sorted(left, key=sort_key), sorted(right, key=sort_key)
    for number, (one, other) in enumerate(zip(left, right)):
        if len(one) != len(other):
            return f"{len(one)} columns against {len(other)}"
        for column, (a, b) in enumerate(zip(one, other)):
            if not same(a, b):
                return f"row {number}, column {column}: {a!r} against {b!r}\n  {one}\n  {other}"
    return None
