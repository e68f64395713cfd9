"""Random calls of functions on Taut and PostgreSQL: strings, bytes, patterns, numbers, dates.

    make test-functions CALLS=10000 SEED=1

Needs the Python package and the programs of a PostgreSQL server. Each call is computed twice by Taut: with constants,
and with columns of a `VALUES` list, which are not computed when the query is planned. A call fails if a result is not
PostgreSQL's, or only one of both is an error. It is printed; the same seed draws the same calls.
"""

import argparse
import collections
import decimal
import random
import sys

import psycopg

import taut
from slt_on_postgres import Server

TEXTS = ["", "a", "ab", "abc", "héllo", "x y", " a ", "Thomas", "a%b", "12", "-1", "aaaa", "foobarbequebaz", "日本", "A1b2", '"S".t', "a.b", "1a", "é", "e\u0301"]
BYTES = ["", "1234", "1234567890", "ff00ff", "e38182"]
REGEXES = ["b.", "(b)(a)", "[a-z]+", "^a", "a$", "(x)?", "o", "\\d", "."]
SIMILAR = ['%#"o_a#"_', "a%", '#"a#"%', "%", '_#"b#"c']
DATE_PATTERNS = "YYYY YYY YY Y Y,YYY IYYY IYY IY I BC AD B.C. MM Month MONTH month Mon MON mon DD DDD D ID IDDD Day DAY day Dy DY W WW IW CC J Q RM rm HH HH12 HH24 MI SS MS US SSSS AM PM am p.m. FF1 FF3 FF6 FMMonth FMDD FMDay DDth FMDDTH TMMonth".split()
NUMBER_PATTERNS = ["9", "99", "999", "9,999", "09.99", "999.99", "0000", "9G999D99", "99V99", "9.99EEEE", "RN", "B99", "99.", "PR", "999PR", "99TH", "9th", "99S", "99MI", "FM99.999"]
MOMENTS = ["2024-02-29 23:59:59.5", "1999-12-31 00:00:00", "2024-01-01 12:34:56.789012", "0044-03-15 01:02:03 BC", "0001-01-01 00:00:00", "9999-12-31 13:00:00"]
INTERVALS = ["1 day", "-1 mon", "1 year 2 mons 3 days 04:05:06.789", "-04:05:06", "25 hours", "100 years", "0"]
NUMERALS = ["12,454.8-", "-12", "1.5", "  7 ", "<12>", "$12.5", "1e3", "12th", "", "abc"]
DATES = [("2024-02-29", "YYYY-MM-DD"), ("05 Dec 2000", "DD Mon YYYY"), ("2024 060", "YYYY DDD"), ("24/1/5", "YY/MM/DD"), ("20240229", "YYYYMMDD"), ("2024-13-01", "YYYY-MM-DD"), ("44-03-15 BC", "YYYY-MM-DD BC"), ("5", "Y"), ("", "CC"), ("1 January 99", "DD Month YY"), ("2024-09", "IYYY-IW"), ("2451187", "J")]
TIMES = [("2024-02-29 13:14:15", "YYYY-MM-DD HH24:MI:SS"), ("05 Dec 2000 1:02 PM", "DD Mon YYYY HH12:MI AM"), ("2024-02-29 25:00", "YYYY-MM-DD HH24:MI"), ("2024-02-29 10:11:12.345", "YYYY-MM-DD HH24:MI:SS.MS"), ("12:30", "HH24:MI"), ("2024-02-29 10:11:12.5", "YYYY-MM-DD HH:MI:SS.US")]
TYPES = {"t": "text", "b": "bytea", "i": "int", "n": "numeric", "f": "double precision", "m": "timestamp", "v": "interval", "d": "date"}

# Calls of functions. {t} is a random text, {b} bytes, {i} an integer, {n} a numeric, {f} double precision, {m} a
# timestamp, {v} an interval, {d} a date. Other names are constants, which PostgreSQL's grammar or Taut require.
CALLS = """
to_char({m}, {date_pattern}) | to_char({v}, {date_pattern}) | to_char({n}, {number_pattern})
to_char({i}, {number_pattern}) | to_char({f}, {number_pattern})
to_number({numeral}, {number_pattern})::double precision | to_date({date_and_pattern})::text
to_timestamp({time_and_pattern})::timestamp::text | overlay({t} placing {t} from {i} for {i})
overlay({b} placing {b} from {i} for {i}) | overlay({t} placing {t} from {i}) | substring({t} from {i} for {i})
substring({b} from {i} for {i}) | substring({b} from {i}) | substr({t}, {i}) | substring({t} from {regex})
substring({t} similar {similar} escape '#') | position({b} in {b}) | position({t} in {t}) | strpos({t}, {t})
starts_with({t}, {t}) | btrim({b}, {b}) | ltrim({b}, {b}) | rtrim({b}, {b}) | trim(trailing {t} from {t})
trim(leading from {t}) | trim({t}, {t}) | {b} || {b} | get_bit({b}, {i}) | get_byte({b}, {i}) | set_bit({b}, {i}, {i})
set_byte({b}, {i}, {i}) | length({b}, 'UTF8') | bit_length({b}) | bit_count({b}) | normalize({t}, NFC)
normalize({t}, NFKD) | {t} is normalized | {t} is not NFD normalized | parse_ident({t})::text | initcap({t})
ascii({t}) | split_part({t}, {t}, {i}) | left({t}, {i}) | lpad({t}, {small}, {t}) | rpad({t}, {small}, {t})
repeat({t}, {small}) | translate({t}, {t}, {t}) | format('%s|%5s|%-5s|%I|%L', {t}, {t}, {t}, {t}, {t})
quote_literal({t}) | quote_ident({t}) | string_to_array({t}, {t})::text | width_bucket({i}, array[1, 3, 6]::int[])
width_bucket({f}, 0::double precision, 10::double precision, 5) | width_bucket({n}, 10, 0, 4)
num_nulls({i}, {t}, null) | num_nonnulls({i}, {t}) | array_fill({i}, array[{count}])::text | to_hex({i})
round({n}, {digits}) | trunc({n}, {digits}) | regexp_match({t}, {regex})::text | regexp_replace({t}, {regex}, {t}, 'g')
regexp_count({t}, {regex}) | regexp_substr({t}, {regex}) | regexp_instr({t}, {regex}) | encode({b}, 'hex')
encode({b}, 'base64') | encode({b}, 'escape') | decode({hexadecimal}, 'hex') | convert_from({b}, 'UTF8')
({d}, {v}) overlaps ({d}, {d}) | date_bin({v}, {m}, {m})::text | date_trunc('week', {m})::text
date_trunc('century', {m})::text | date_trunc('quarter', {m})::text | age({m}, {m})::text | justify_interval({v})::text
({v} * {f})::text | extract(epoch from {m})::double precision | extract(week from {m})::double precision
extract(isoyear from {m})::double precision | extract(julian from {m})::double precision | ({m} + {v})::text
({m} - {v})::text
"""


class Drawer(dict):
    """The values of the names in a call. A value with a type is added to `columns`, and a column is returned."""

    def __init__(self, rng, columns):
        super().__init__()
        self.rng, self.columns = rng, columns

    def __missing__(self, name):
        literal = self.literal(name)
        if name not in TYPES:
            return literal
        value = f"cast({literal} as {TYPES[name]})"
        self.columns.append(value)
        return f"c{len(self.columns)}"

    def literal(self, name):
        draw = self.rng.choice
        if name in TYPES and self.rng.random() < 0.08:
            return "null"
        match name:
            case "t":
                return quoted(draw(TEXTS))
            case "b":
                return f"'\\x{draw(BYTES)}'"
            case "i":
                return str(draw([0, 1, 2, 3, 5, -1, -2, 7, 100]))
            case "n":
                return draw(["1.5", "-2.25", "0", "99.96", "1234567.891", "-0.001", "0.5", "12345"])
            case "f":
                return draw(["1.5", "-2.25", "0", "1e10", "0.001", "-7"])
            case "m":
                return quoted(draw(MOMENTS))
            case "v":
                return quoted(draw(INTERVALS))
            case "d":
                return f"'2024-{draw(['01', '02'])}-{self.rng.randint(1, 28):02}'"
            case "date_pattern":
                parts = [draw(DATE_PATTERNS) + draw([" ", "-", "/", ":", ", ", "", ' "x" ']) for _ in range(self.rng.randint(1, 4))]
                return quoted("".join(parts))
            case "number_pattern":
                return quoted(draw(["", "FM", "S", "MI", "L", "SG", "PL"]) + draw(NUMBER_PATTERNS))
            case "date_and_pattern" | "time_and_pattern":
                return ", ".join(map(quoted, draw(DATES if name.startswith("date") else TIMES)))
            case "numeral":
                return quoted(draw(NUMERALS))
            case "regex" | "similar":
                return quoted(draw(REGEXES if name == "regex" else SIMILAR))
            case "hexadecimal":
                return quoted(draw(["12", "zz", "", "abc"]))
            case "small" | "digits" | "count":
                return str(draw({"small": [0, 3, -1, 10], "digits": [0, 1, -1, -3], "count": [0, 1, 3]}[name]))
        raise KeyError(name)


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def normal(value):
    """Writes a result as a string. Numbers are equal if nine digits are."""
    if isinstance(value, (float, int, decimal.Decimal)) and not isinstance(value, bool):
        number = decimal.Decimal(value)
        return "0" if number == 0 else format(decimal.Context(prec=9).plus(number).normalize(), "e")
    return str(bytes(value) if isinstance(value, (bytearray, memoryview)) else value)


def outcome(connection, sql):
    try:
        return normal(connection.execute(sql).fetchone()[0])
    except (taut.Error, psycopg.Error) as error:
        return "error: " + str(error).split("\n")[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    templates = [call for line in CALLS.strip().splitlines() for call in line.split(" | ")]
    counts = collections.Counter()
    engine = taut.connect(":memory:")
    with Server() as server:
        postgres = server.connect("postgres")
        for connection in (engine, postgres):
            connection.execute("SET TimeZone = 'UTC'")
        for _ in range(arguments.calls):
            columns = []
            call = rng.choice(templates).format_map(Drawer(rng, columns))
            names = ", ".join(f"c{number + 1}" for number in range(len(columns)))
            with_columns = f"SELECT {call} AS r FROM (VALUES ({', '.join(columns)})) AS v({names})" if columns else f"SELECT {call} AS r"
            constants = call
            for number in reversed(range(len(columns))):
                constants = constants.replace(f"c{number + 1}", columns[number])
            expected = outcome(postgres, with_columns)
            for sql in (with_columns, f"SELECT {constants} AS r"):
                found = outcome(engine, sql)
                counts["calls"] += 1
                counts["errors"] += found.startswith("error")
                if found != expected and not (found.startswith("error") and expected.startswith("error")):
                    counts["failed"] += 1
                    print(f"{sql}\n  Taut {found}\n  PostgreSQL {expected}", flush=True)
    print(", ".join(f"{number} {name}" for name, number in sorted(counts.items())))
    sys.exit(bool(counts["failed"]))


if __name__ == "__main__":
    main()
