"""Expressions: numpy finds the rows that a slow test of every value finds; all else is refused."""

from __future__ import annotations

import math
import operator
import pickle
import random
import re
import time
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import wirescan
from tests.support.paths import CORPUS, ORDERS
from tests.support.slowness import SLOWNESS
from wirescan import Fault, FrameError, FrameTable, kafka
from wirescan.export import parquet
from wirescan.export.batches import iter_batches
from wirescan.frames.column_meanings import explain_column
from wirescan.frames.columns import UNITS
from wirescan.frames.registry import format_of
from wirescan.frames.to_arrow import to_batch
from wirescan.kafka import encode_batch
from wirescan.reading import byte_compare, filters
from wirescan.reading.chunked import iter_tables
from wirescan.reading.expression import parse_expression, parse_time
from wirescan.reading.filters import (
    AnyOf,
    Filter,
    Not,
    apply_filters,
    check_filters,
    prune_file,
)

RECORDS = "kafka.records"
PATH = 'a "file".log'
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
COMPARED = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda value, many: value in many,
    "not in": lambda value, many: value not in many,
    "starts_with": lambda value, part: value.startswith(part),
    "ends_with": lambda value, part: value.endswith(part),
    "contains": lambda value, part: part in value,
    "~": lambda value, pattern: search(pattern, value),
    "!~": lambda value, pattern: not search(pattern, value),
}


def search(pattern, value):
    """Search with `re`, in which $ also matches before a line feed at the end."""
    if isinstance(pattern, bytes):
        return re.search(re.sub(rb"\$$", rb"\\Z", pattern), value) is not None
    return re.search(re.sub(r"\$$", r"\\Z", pattern), value) is not None


# ---- the law: a slow evaluator over Python values, on trees that the parser did not make


class Leaf(NamedTuple):
    """A comparison, and the text that means it."""

    column: str
    op: str
    value: Any
    text: str


class Tree(NamedTuple):
    """A tree of leaves; op: "and", "or" or "not"."""

    op: str
    parts: list[Any]


def evaluate(node: Leaf | Tree, row: dict[str, Any]) -> bool | None:
    """SQL's logic: True, False, or None for unknown."""
    if isinstance(node, Leaf):
        value = row[node.column]
        if node.op == "is null":
            return value is None
        if node.op == "is not null":
            return value is not None
        return None if value is None else COMPARED[node.op](value, node.value)
    results = [evaluate(part, row) for part in node.parts]
    if node.op == "not":
        return None if results[0] is None else not results[0]
    decides = node.op == "or"
    if decides in results:
        return decides
    return None if None in results else not decides


def render(node: Leaf | Tree, draw: random.Random, binding: int = 0) -> str:
    """Write a tree as text. binding: 0 inside "or" or alone, 1 inside "and", 2 inside "not"."""
    if isinstance(node, Leaf):
        return node.text
    words = {"and": " and ", "or": " or ", "not": "not "}
    word = draw.choice([str, str.upper])(words[node.op])
    if node.op == "not":
        return word + render(node.parts[0], draw, 2)
    level = 1 if node.op == "and" else 0
    text = word.join(render(part, draw, level + (node.op == "and")) for part in node.parts)
    needs_parentheses = binding > level
    return f"({text})" if needs_parentheses or draw.random() < 0.2 else text


def quote(value: str, draw: random.Random) -> str:
    mark = draw.choice("\"'")
    escaped = value.replace("\\", "\\\\").replace(mark, "\\" + mark)
    return mark + escaped.replace("\n", "\\n").replace("\t", "\\t") + mark


def write_bytes(value: bytes, draw: random.Random) -> str:
    if draw.random() < 0.3 and value:
        return "0x" + value.hex()
    if draw.random() < 0.5:
        try:
            return quote(value.decode(), draw)
        except UnicodeDecodeError:
            pass
    return 'b"' + "".join(f"\\x{byte:02x}" for byte in value) + '"'


def write_time(number: int, unit: str, draw: random.Random) -> str:
    seconds, fraction = divmod(number, UNITS[unit])
    if draw.random() < 0.5 or not 0 < seconds < 10**10:
        return str(number)
    time = (EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    digits = len(str(UNITS[unit])) - 1
    text = f"{time}.{fraction:0{digits}}{draw.choice(['', 'Z', '+00:00'])}"
    return text if draw.random() < 0.5 else f'"{text}"'


class Values(NamedTuple):
    """The values of a table's columns, as an export has them."""

    format: Any
    columns: dict[str, list[Any]]

    def write(self, name: str, value: Any, draw: random.Random) -> str:
        """Write a value of a column as text."""
        column = self.format.describe_column(name)
        if column.declared.unit:
            return write_time(value, column.declared.unit, draw)
        if isinstance(value, bytes):
            return write_bytes(value, draw)
        if isinstance(value, bool):
            return str(value).lower()
        names = column.declared.number_names
        if isinstance(value, str):
            has_names = column.kind.name in ("NAME", "FAULT", "INNERMOST_FAULT")
            name = draw.choice([value, value.lower()]) if has_names else value
            is_word = has_names and name.isidentifier()
            return name if is_word and draw.random() < 0.5 else quote(name, draw)
        if value in names and draw.random() < 0.5:
            return draw.choice([names[value], names[value].lower()])
        return repr(value)

    def draw_leaf(self, draw: random.Random) -> Leaf:
        name = draw.choice(list(self.columns))
        present = [value for value in self.columns[name] if value is not None]
        if not present or draw.random() < 0.15:
            op = draw.choice(["is null", "is not null"])
            word = {"is null": "== null", "is not null": "!= null"}[op]
            return Leaf(name, op, None, f"{name} {draw.choice([op, word])}")
        value = draw.choice(present)
        is_part = isinstance(value, (str, bytes))
        named = self.format.describe_column(name).kind.name in ("FAULT", "INNERMOST_FAULT")
        ops = ["==", "!=", "in", "not in"]
        ops += [] if named or isinstance(value, bool) else ["<", "<=", ">", ">="]
        ops += ["starts_with", "ends_with", "contains", "~", "!~"] if is_part else []
        op = draw.choice(ops)
        if op in ("in", "not in"):
            many = [draw.choice(present) for _ in range(draw.randrange(1, 5))]
            texts = ", ".join(self.write(name, each, draw) for each in many)
            return Leaf(name, op, many, f"{name} {op} ({texts})")
        if op in ("~", "!~"):
            pattern = self.draw_pattern(value, draw)
            text = pattern.decode() if isinstance(pattern, bytes) else pattern
            return Leaf(name, op, pattern, f'{name} {op} "{text}"')
        if op in ("starts_with", "ends_with", "contains"):
            first = draw.randrange(len(value) + 1)
            part = value[:first] if op == "starts_with" else value[first:]
            text = write_bytes(part, draw) if isinstance(part, bytes) else quote(part, draw)
            return Leaf(name, op, part, f"{name} {op} {text}")
        if type(value) is int and draw.random() < 0.3:
            value += draw.choice([-1, 1, 0.5])
            return Leaf(name, op, value, f"{name} {op} {value!r}")
        return Leaf(name, op, value, f"{name} {op} {self.write(name, value, draw)}")

    @staticmethod
    def draw_pattern(value: Any, draw: random.Random) -> Any:
        patterns = ["^", "[0-9]+$", "^.?$", "(?i)A", "[^a-z]", "^$"]
        if isinstance(value, str):
            return draw.choice([*patterns, f"^{re.escape(value[:3])}".replace('"', ".")])
        escaped = "".join(f"\\x{byte:02x}" for byte in value[:3])
        return draw.choice([*patterns, escaped, "^" + escaped]).encode()

    def draw_tree(self, draw: random.Random, depth: int) -> Leaf | Tree:
        op = draw.choice(["leaf", "leaf", "and", "or", "not"]) if depth else "leaf"
        if op == "leaf":
            return self.draw_leaf(draw)
        count = 1 if op == "not" else draw.randrange(2, 5)
        return Tree(op, [self.draw_tree(draw, depth - 1) for _ in range(count)])


def make_damaged_records(draw: random.Random) -> bytes:
    """Batches with null keys, without times, of all codecs; some are damaged."""
    batches = []
    for number in range(12):
        magic = draw.choice([1, 2, 2])
        records = [
            kafka.Record(
                10 * number + i,
                draw.choice([None, 1_700_000_000_000 + draw.randrange(100)]),
                draw.choice(
                    [None, b"", b"a", b"ab", b"a\x00b", b"\xff\xfe", b"key-1", "é".encode()]
                ),
                draw.choice([None, b"value", b"x" * draw.randrange(5)]),
            )
            for i in range(10)
        ]
        codec = draw.choice(["none", "gzip", "zstd"] if magic == 2 else ["none", "gzip"])
        if magic == 1:
            records = [record._replace(timestamp=record.timestamp or 5) for record in records]
            batch = bytearray(kafka.encode_message_set(records, magic=1, codec=codec))
        else:
            records = [record._replace(timestamp=record.timestamp or 7) for record in records]
            batch = bytearray(kafka.encode_batch(records, codec=codec, control=draw.random() < 0.2))
        if draw.random() < 0.2:
            batch[-1] ^= 0x55
        batches.append(bytes(batch))
    return b"".join(batches)


def list_sources(name: str, draw: random.Random) -> list[Any]:
    if name == "kafka.records":
        return [make_damaged_records(draw), str(ORDERS / "00000000000000024800.log")]
    if name == "kafka.batches":
        return [make_damaged_records(draw), str(ORDERS / "00000000000000008160.log")]
    if name.startswith("lumberjack"):
        return [str(CORPUS / "lumberjack/recorded/filebeat.sent.bin")]
    if name == "thrift.fields":
        return [str(path) for path in sorted((CORPUS / "thrift-go").glob("*.theader"))[:4]]
    if name == "nats.messages":
        return [str(path) for path in sorted((CORPUS / "nats").glob("**/*.bin"))[:2]]
    return [str(path) for path in sorted((CORPUS / "liftbridge").glob("**/*.log"))[:2]]


FORMATS = {
    "kafka.records": "_file _start offset timestamp key value is_control codec size fault _fault",
    "kafka.batches": "base_offset max_timestamp codec record_count is_transactional size fault",
    "lumberjack.events": "kind sequence version json fault",
    "liftbridge.entries": "offset timestamp key value magic fault",
    "nats.messages": "kind subject payload status fault",
    "thrift.fields": "kind integer real value method role",
}


@pytest.mark.parametrize("name", FORMATS)
def test_rows_that_pass_are_those_of_a_slow_evaluator(name):
    draw = random.Random(name)
    selective = 0
    for source in list_sources(name, draw):
        table = wirescan.scan(source, name, errors="mark")[:400]
        assert len(table)
        names = FORMATS[name].split()
        batch = to_batch(table, names, binary="binary", file=PATH, errors="mark")
        columns = {column: list_values(batch, column) for column in names}
        rows = [dict(zip(columns, row)) for row in zip(*columns.values())]
        values = Values(format_of(name), columns)
        for _ in range(120):
            tree = values.draw_tree(draw, depth=3)
            text = render(tree, draw)
            expected = [evaluate(tree, row) is True for row in rows]
            selected = wirescan.where(table, text, file=PATH)
            assert selected.rows.tobytes() == table.where(np.array(expected)).rows.tobytes(), text
            selective += 0 < sum(expected) < len(rows)
            # Spark's tasks get a condition that was checked, and check it again.
            twice = check_filters(pickle.loads(pickle.dumps(parse_expression(text, name))), name)
            assert apply_filters(table, twice, PATH).rows.tobytes() == selected.rows.tobytes(), text
    assert selective > 15


def list_values(batch: pa.RecordBatch, name: str) -> list[Any]:
    """A column as Python values, times as numbers of their unit."""
    column = batch.column(batch.schema.get_field_index(name))
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()


# ---- what an expression means


def parse(text: str, format: str = RECORDS) -> tuple:
    return parse_expression(text, format)


@pytest.mark.parametrize(
    "text, expected",
    [
        ('key == "a" and offset > 5', [("key", "==", b"a"), ("offset", ">", 5)]),
        ("(offset > 5) and (offset < 9)", [("offset", ">", 5), ("offset", "<", 9)]),
        ("not (offset < 5 or key == null)", [("offset", ">=", 5), ("key", "is_not_null", None)]),
        ("offset == 1 or offset in (2, 3)", [("offset", "in", (1, 2, 3))]),
        ("codec == Zstd", [("codec", "==", 4)]),
        ("codec in (GZIP, 'lz4')", [("codec", "in", (1, 3))]),
        ("is_control", [("is_control", "==", 1)]),
        ("not is_control", [("is_control", "!=", 1)]),
        ("is_control == FALSE", [("is_control", "==", 0)]),
        ("key == 0xDEADbeef", [("key", "==", b"\xde\xad\xbe\xef")]),
        ("crc == 0xff", [("crc", "==", 255)]),
        (r'key == b"\x00\"a"', [("key", "==", b'\0"a')]),
        (r"key == 'it\'s \u00e9'", [("key", "==", "it's é".encode())]),
        ("key != 'a' AND NOT value IS NULL", [("key", "!=", b"a"), ("value", "is_not_null", None)]),
        ("timestamp >= 2026-01-01", [("timestamp", ">=", 1_767_225_600_000)]),
        ("timestamp >= 2026-01-01T01:00+01:00", [("timestamp", ">=", 1_767_225_600_000)]),
        ("timestamp < '2026-01-01 00:00:00.5'", [("timestamp", "<", 1_767_225_600_500)]),
        ("timestamp < 2026-01-01T00:00:00.0005", [("timestamp", "<=", 1_767_225_600_000)]),
        ("offset == 1.5", [("offset", "in", ())]),
        ("offset == 1.5e3", [("offset", "==", 1500)]),
        ("fault == Bad_Codec", [("fault", "in", (int(Fault.BAD_CODEC),))]),
        ("offset == -1", [("offset", "==", -1)]),
    ],
)
def test_simple_comparisons_are_filters(text, expected):
    assert [tuple(condition) for condition in parse(text)] == expected


def test_nanoseconds_are_exact():
    text = "timestamp == 2026-01-01T00:00:00.123456789Z"
    (condition,) = parse(text, "liftbridge.entries")
    assert condition == Filter("timestamp", "==", 1_767_225_600_123_456_789)
    assert parse_time("1970-01-01T00:00:01.5+00:00") == 1.5


@pytest.mark.parametrize("end", ["12:30:15,5", "123015.5", "12:30:15.5+00:00", "12:30:15.5Z"])
def test_seconds_have_fractions(end):
    assert parse_time("1970-01-01T" + end) == 45_015.5


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-01T12.5",  # half past twelve in ISO 8601
        "2026-01-01T12:30.5",
        "20260101T1230,5",
        "2026-01-01.5",
        "2026-01-01T12:00+02:00.5",
        "2026-01-01T12:00+02:00:00.5",
        "2026-01-01T12:00:00.5.5",
    ],
)
def test_only_seconds_have_fractions(text):
    with pytest.raises(ValueError, match=r"only seconds may have a fraction"):
        parse_time(text)
    with pytest.raises(ValueError, match=r"only seconds may have a fraction"):
        parse(f'timestamp >= "{text}"')


DURATIONS = {
    "latency > 20ms": Filter("latency", ">", 20_000_000),
    "latency <= 1.5us": Filter("latency", "<=", 1_500),
    "latency == 3ns": Filter("latency", "==", 3),
    "latency in (1min, 2h, 4s)": Filter(
        "latency", "in", (60_000_000_000, 7_200_000_000_000, 4_000_000_000)
    ),
    "latency != -1us": Filter("latency", "!=", -1_000),
    "latency < 0.5ns": Filter("latency", "<=", 0),  # there is no half a nanosecond
    "latency == 5": Filter("latency", "==", 5),
}


@pytest.mark.parametrize("text", DURATIONS)
def test_durations_are_numbers_in_the_unit_of_their_column(text):
    assert parse(text, "kafka.exchanges") == (DURATIONS[text],)
    assert parse(text, "kafka.responses?capture=true") == (DURATIONS[text],)


def test_durations_of_kafka_are_milliseconds():
    (condition,) = parse("throttle_time_ms >= 1.5s", "kafka.fetch_response")
    assert condition == Filter("throttle_time_ms", ">=", 1500)
    given = [("throttle_time_ms", "==", timedelta(seconds=2)), ("latency", ">", 5)]
    assert check_filters(given[:1], "kafka.fetch_response")[0].value == 2000
    (condition,) = check_filters([("latency", "<", timedelta(microseconds=7))], "nats.exchanges")
    assert condition == Filter("latency", "<", 7_000)
    with pytest.raises(TypeError, match="holds numbers or durations, and cannot be 'a'"):
        check_filters([("latency", "<", "a")], "nats.exchanges")
    with pytest.raises(TypeError, match="holds numbers or times"):
        check_filters([("timestamp", "<", timedelta(1))], RECORDS)


def test_columns_of_kafka_are_durations_if_their_meaning_says_so():
    names = set()
    for format in wirescan.formats():
        described = format_of(format)
        for name in described.dtype.names if format.startswith("kafka.") else ():
            is_duration = described.get_column(name).duration is not None
            assert is_duration == explain_column(described, name).startswith("ms "), name
            names |= {name} if is_duration else set()
    assert len(names) > 8


def test_rows_are_selected_by_their_latency():
    table = wirescan.scan(str(CORPUS / "pcap" / "kafka.pcap"), "kafka.exchanges")
    found = wirescan.where(table, "latency > 20ms and latency < 1s")
    latencies = table.format.columns["latency"].computed.compute(table)
    expected = (latencies > 20_000_000) & (latencies < 10**9)
    assert 0 < len(found) == np.count_nonzero(expected) < len(table)


WRONG_UNITS = {
    ("size > 20ms", RECORDS): r"character 8 .*: 20ms is a duration, but the column size is not: "
    "bytes in the whole frame",
    (
        "timestamp > 5min",
        RECORDS,
    ): r"character 13 .*5min is a duration, but the column timestamp is "
    r"not: .*; write times such as 2026-01-01T12:00",
    ("latency > 5m", "kafka.exchanges"): r"character 11 .*5m is not understood; units of time are "
    "ns, us, ms, s, min, h",
    ("latency > 5 ms", "kafka.exchanges"): r"character 13 .*found ms",
    ("latency contains 5ms", "kafka.exchanges"): r"character 9 .*has no operator 'contains'",
}


@pytest.mark.parametrize("case", WRONG_UNITS)
def test_a_unit_that_does_not_fit_is_refused(case):
    text, format = case
    with pytest.raises(ValueError, match=WRONG_UNITS[case]):
        parse_expression(text, format)


def test_only_what_is_joined_by_and_prunes():
    conditions = parse('offset >= 100 and (key == "a" or value == "b") and not key starts_with "x"')
    assert [type(condition) for condition in conditions] == [Filter, AnyOf, Not]
    assert filters.find_column_ranges(format_of(RECORDS), format_of(RECORDS), conditions) == {
        "offset": (100, None)
    }
    segment = str(ORDERS / "00000000000000008160.log")
    start, stop = prune_file(segment, RECORDS, parse('offset >= 9000 and key ~ "1"'))
    assert start > 0
    assert prune_file(segment, RECORDS, parse('offset >= 9000 or key ~ "1"')) == (0, None)
    assert prune_file(segment, RECORDS, parse("offset < 5")) == (0, 0)
    assert stop is None or stop > start


def test_a_pruned_file_has_the_rows_of_all_its_rows():
    draw = random.Random(3)
    fewer = 0
    for path in sorted(ORDERS.glob("*.log")):
        table = wirescan.scan(str(path), RECORDS)
        for _ in range(8):
            low, high = sorted(draw.choices(table["offset"].tolist(), k=2))
            time = draw.choice(table["timestamp"].tolist())
            parts = [f"offset >= {low}", f"not offset > {high}", f"timestamp >= {time}"]
            parts += ["key != null", f'offset != {low} or key ~ "1$"']
            chosen = draw.sample(parts, draw.randrange(1, 5))
            text = " and ".join(f"({part})" for part in chosen)
            expected = wirescan.where(table, text)["offset"].tolist()
            tables = list(iter_tables(str(path), format=RECORDS, where=text))
            assert [o for table in tables for o in table["offset"].tolist()] == expected, text
            fewer += prune_file(str(path), RECORDS, parse(text)) != (0, None)
    assert fewer > 40


def test_a_checked_condition_can_be_checked_again():
    text = 'not (key ~ "a" and (offset < 5 or not value starts_with "x")) or fault != null'
    once = parse(text)
    assert check_filters(once, RECORDS) == once
    table = wirescan.scan(str(ORDERS / "00000000000000000000.log"), RECORDS)
    again = check_filters(check_filters(once, RECORDS), RECORDS)
    assert filters.apply_filters(table, again).rows.tobytes() == (
        wirescan.where(table, text).rows.tobytes()
    )


def test_nan_fails_a_comparison_and_passes_its_negation():
    path = next(
        path
        for path in sorted((CORPUS / "thrift-go").glob("*.theader"))
        if (wirescan.scan(str(path), "thrift.fields", errors="skip")["real"] != 0).any()
    )
    table = wirescan.scan(str(path), "thrift.fields", errors="skip")
    rows = table.rows.copy()
    rows["real"][0] = math.nan
    rows.flags.writeable = False
    table = FrameTable(table.buffers, rows, table.stops, table.format, table.outer)
    assert 0 not in [row for row, passes in enumerate(_passes(table, "real >= 0")) if passes]
    assert _passes(table, "not real >= 0")[0]
    assert (_passes(table, "not real >= 0") ^ _passes(table, "real >= 0")).all()


def _passes(table: FrameTable, text: str) -> np.ndarray:
    return filters.find_passing(table, filters.All(parse_expression(text, table.format)))


def test_readers_take_an_expression(tmp_path):
    path = str(ORDERS / "00000000000000012500.log")
    text = 'offset >= 13000 and (key ~ "1$" or value == null) and codec == zstd'
    selected = wirescan.where(wirescan.scan(path, RECORDS), text)
    offsets = selected["offset"].tolist()
    assert 0 < len(offsets) < 1000
    tables = iter_tables(path, format=RECORDS, where=text, filters=[("offset", "<", 10**9)])
    assert [o for table in tables for o in table["offset"].tolist()] == offsets
    batches = list(iter_batches(path, format=RECORDS, columns=["offset"], where=text))
    assert [o for batch in batches for o in batch.column(0).to_pylist()] == offsets
    summary = parquet.convert(path, tmp_path / "out", RECORDS, where=text)
    assert summary.records == len(offsets)
    assert pq.read_table(tmp_path / "out")["offset"].to_pylist() == offsets
    for read in (iter_tables, iter_batches):
        with pytest.raises(ValueError, match="has no column ofset; did you mean offset"):
            list(read(path, format=RECORDS, where="ofset == 1"))


def test_trees_are_filters_too():
    path = str(ORDERS / "00000000000000012500.log")
    tree = AnyOf([("offset", "<", 12505), Not(("offset", "<", 15330))])
    tables = iter_tables(path, format=RECORDS, filters=[tree])
    offsets = [o for table in tables for o in table["offset"].tolist()]
    assert offsets == [*range(12500, 12505), *range(15330, 15336)]
    deep: Any = ("offset", "==", 1)
    for _ in range(200):
        deep = AnyOf([deep, ("key", "==", b"")])
    with pytest.raises(ValueError, match="nested more than 100 levels"):
        check_filters([deep], RECORDS)


def test_patterns_are_searched_in_the_rows_that_pass_the_rest(monkeypatch):
    searched = []
    match_bytes = filters.match_bytes

    def count(table, *arguments):
        searched.append(len(table))
        return match_bytes(table, *arguments)

    monkeypatch.setattr(filters, "match_bytes", count)
    table = wirescan.scan(str(ORDERS / "00000000000000012500.log"), RECORDS)
    wirescan.where(table, 'key ~ "1" and offset < 12510')
    assert searched == [10]
    wirescan.where(table, 'key ~ "1" or offset >= 12510')
    assert searched == [10, 10]


# ---- what is refused


REFUSED = {
    "": r"character 1 .*expected a column, found the end",
    "offset": r"character 7 .*expected an operator \(==.*found the end",
    "offset =": r"character 8 .*= is not understood; equality is ==",
    "offset ==": r"character 10 .*expected a value, found the end",
    "offset == and": r"character 11 .*expected a value, found and",
    "== 5": r"character 1 .*expected a column, found ==",
    "offset == 5 6": r'character 13 .*expected "and", "or" or the end, found 6',
    "offset == 5)": r"character 12 .*found \)",
    "(offset == 5": r'character 13 .*expected "\)" or an operator, found the end',
    "offset == 5 && key == 'a'": r"character 13 .*&& is not understood; there are and, or, not",
    "!(offset == 5)": r"character 1 .*! is not understood; there are and",
    "ofset == 5": r"character 1 .*has no column ofset; did you mean offset\?",
    "OFFSET == 5": r"character 1 .*has no column OFFSET; did you mean offset\?",
    "zzz == 5": r"character 1 .*has no column zzz; it has offset, timestamp",
    "headers == 5": r"character 9 .*'headers' of kafka.records is a list, and no single value$",
    "parent == 5": r"character 8 .*counts within a table",
    "offset == 'a'": r"character 8 .*holds whole numbers",
    f"offset == '{'a' * 9999}'": r"character 8 .*holds whole numbers, and cannot be 'aaa.*a…$",
    "key == 1e999": r"character 5 .*holds bytes, and cannot be Fraction.*0…$",
    "offset == 12abc": r"character 11 .*12abc is not understood; units of time are ns, us",
    "offset == 1e9999": r"character 11 .*is not understood",
    f"offset == {'9' * 101}": r"character 11 .*is not understood",
    "offset ~ '5'": r"character 8 .*which has no operator 'matches'",
    "offset == null null": r"character 16 .*found null",
    "offset < null": r"character 10 .*null is neither less nor greater",
    "offset in 5": r'character 11 .*expected "\(" after "in", found 5',
    "offset in ()": r"character 12 .*expected a value, found \)",
    "offset in (1 2)": r'character 14 .*expected "\)" or a comma, found 2',
    "offset not 5": r'character 12 .*expected "in" after "not", found 5',
    "offset is 5": r'character 11 .*expected "null" after "is", found 5',
    "key == a": r"character 8 .*expected a value, found a; text is in quotation marks",
    "key == 5": r"character 5 .*holds bytes",
    'key == "a': r"character 8 .*not closed",
    r'key == "a\q"': r"character 10 .*\\q is no escape of text",
    r'key == "\x00"': r"character 9 .*\\x00 is no escape of text",
    r'key == b"\u0041"': r"character 10 .*\\u0041 is no escape of bytes",
    'key == b"é"': r"character 8 .*write bytes above 0x7f",
    "key == 0xabc": r"character 8 .*one digit is left",
    "key ~ abc": r"character 7 .*expected a regular expression in quotation marks",
    'key ~ "("': r"character 5 .*not a regular expression: missing \)",
    'key ~ "a{1001}"': r"character 5 .*not a regular expression: invalid repetition size",
    'key ~ "(?=a)"': r"character 5 .*not a regular expression: invalid perl operator: \(\?=",
    r"""key ~ '(a)\1'""": r"character 5 .*not a regular expression: invalid escape sequence",
    'key ~ "(?P<a>b"': r"character 5 .*not a regular expression",
    f'key ~ "{"a" * 1001}"': r"character 5 .*1,001 characters is too long",
    f'key ~ "{"(" * 400}{")" * 400}"': None,  # deep groups are allowed or refused, not a crash
    "codec == zstdd": r"character 10 .*no value has the name zstdd; did you mean ZSTD\?",
    "codec == qqq": r"character 10 .*no value has the name qqq; there are NONE, GZIP",
    "fault == oops": r"character 10 .*no value has the name oops",
    "timestamp > 2026-13-01": r"character 13 .*2026-13-01 is not a date",
    "timestamp > 'yesterday'": r"character 13 .*yesterday is not a date",
    "offset > 2026-01-01": r"character 10 .*is a time, and the column has none",
    "is_control > maybe": r"character 14 .*expected a value, found maybe",
    "(" * 40 + "offset == 1" + ")" * 40: r"character 33 .*nested more than 32 levels deep",
    "not " * 40 + "is_control": r"character 129 .*nested more than 32 levels deep",
    "(" * 10_000: r"nested more than 32 levels deep",
    "offset == 1 or " * 2000 + "offset == 1": r"30,011 characters; at most 16,384",
    "offset \x00== 5": r"character 8 .*\\x00== is not understood",
    "offset \u202e== 5": r"character 8 .*\\u202e== is not understood",
    "\ud800 == 5": r"character 1 .*is not understood",
    "key == '\ud800'": r"character 8 .*no UTF-8",
    "offset == ٣": r"character 11 .*is not understood",
    "ｏffset == 1": r"character 1 .*has no column ｏffset; did you mean offset",
    "__import__('os') == 1": r"character 1 .*has no column __import__",
    "offset == (5)": r"character 11 .*expected a value, found \(",
    "offset == 5 or": r"character 15 .*expected a column, found the end",
    "1 == offset": r"character 1 .*expected a column, found 1",
}


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:30].encode("ascii", "replace"))
def test_a_bad_expression_is_refused_with_its_place(text):
    pattern = REFUSED[text]
    if pattern is None:
        try:
            parse(text)
        except ValueError as error:
            assert "regular expression" in str(error)
        return
    with pytest.raises(ValueError, match=pattern) as caught:
        parse(text)
    message = str(caught.value)
    assert len(message) < 1300
    assert message.isprintable()


def test_operators_that_a_column_lacks_are_refused_in_filters_too():
    for op in ("matches", "not matches"):
        with pytest.raises(ValueError, match="which has no operator"):
            check_filters([("offset", op, "1")], RECORDS)
        with pytest.raises(TypeError, match="a regular expression for bytes cannot be 5"):
            check_filters([("key", op, 5)], RECORDS)
        with pytest.raises(TypeError, match="a regular expression for text cannot be b'a'"):
            check_filters([("_file", op, b"a")], RECORDS)
    (condition,) = check_filters([("key", "matches", re.compile(b"A", re.IGNORECASE))], RECORDS)
    assert condition.value.search(b"a")
    with pytest.raises(ValueError, match="flags that cannot be used; there are I, M and S"):
        check_filters([("key", "matches", re.compile(b"A", re.VERBOSE))], RECORDS)


def test_hostile_values_and_patterns_take_linear_time():
    values = [b"a" * 30_000 + b"b", None, b"", b"aaa"]
    table = wirescan.scan(encode_batch([{"value": value} for value in values]), RECORDS)
    start = time.process_time()
    selected = wirescan.where(table, 'value ~ "^(a+)+$" or value ~ "(a|a)*c$"')
    assert time.process_time() - start < 5 * SLOWNESS
    assert selected["offset"].tolist() == [3]
    kept = wirescan.where(table, 'value !~ "^(a+)+$"')
    assert kept["offset"].tolist() == [0, 2]  # null passes neither


def test_long_values_are_searched_in_parts(monkeypatch):
    monkeypatch.setattr(byte_compare, "COPIED_BYTES", 25)
    values = [b"x" * (number * 7 % 40) + b"1" * (number % 3 == 0) for number in range(60)]
    table = wirescan.scan(encode_batch([{"value": value} for value in values]), RECORDS)
    selected = wirescan.where(table, 'value ~ "1$"')
    assert selected["offset"].tolist() == list(range(0, 60, 3))


def test_a_mask_of_text_names_the_function_for_text():
    table = wirescan.scan(str(ORDERS / "00000000000000012500.log"), "kafka.batches")
    with pytest.raises(TypeError, match=r"wirescan\.where takes a condition as text"):
        table.where("codec == zstd")
    assert len(wirescan.where(table, "codec == zstd")) == (table["codec"] == 4).sum()
    with pytest.raises(TypeError, match="where takes a FrameTable, not list"):
        wirescan.where([], "offset == 1")
    with pytest.raises(TypeError, match="an expression is a str, not int"):
        wirescan.where(table, 5)
    plain = FrameTable(table.buffers, table.rows)
    with pytest.raises(ValueError, match="have no format"):
        wirescan.where(plain, "codec == 1")


def test_random_texts_are_expressions_or_refused():
    draw = random.Random(5)
    words = ["offset", "key", "codec", "is_control", "fault", "_file", "timestamp", "starts_with"]
    words += ["and", "or", "not", "in", "is", "null", "(", ")", ",", "==", "!=", "~", "!~", "<"]
    words += ["5", "2026-01-01", "0xab", "'a'", "b'a'", "1e5", "-3", ".5", "zstd", "true"]
    words += ['"', "'", "\\", "\x00", "é", "=", "&"]
    accepted = 0
    for _ in range(4000):
        text = draw.choice(["", " ", " "]).join(draw.choices(words, k=draw.randrange(1, 6)))
        try:
            parse(text)
            accepted += 1
        except ValueError as error:
            assert str(error).startswith("at character"), text
    assert accepted > 20


def test_damage_in_excluded_rows_is_read_as_filters_read_it(tmp_path):
    """An expression and the same filters have the same rows, and the same errors."""
    draw = random.Random(9)
    path = tmp_path / "a.log"
    path.write_bytes(make_damaged_records(draw))
    for errors in ("strict", "mark", "skip"):
        results = []
        for options in (
            {"where": 'offset >= 30 and key != "a"'},
            {"filters": [("offset", ">=", 30), ("key", "!=", b"a")]},
        ):
            try:
                tables = list(iter_tables(str(path), format=RECORDS, errors=errors, **options))
                results.append(b"".join(table.rows.tobytes() for table in tables))
            except FrameError as error:
                results.append(str(error))
        assert results[0] == results[1]
