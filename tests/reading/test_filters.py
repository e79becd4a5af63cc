"""Filters: the rows that pass are those of a slow test of every value. Pruning loses none."""

from __future__ import annotations

import dataclasses
import operator
import os
import random
import shutil
import struct
from datetime import datetime, timedelta, timezone
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import wirescan
from tests.support.captured_conversations import converse
from tests.support.chosen_formats import list_chosen_formats
from tests.support.paths import AIVEN_STORAGE, CORPUS
from wirescan import Fault, FrameError, kafka, lumberjack
from wirescan.export.batches import iter_batches
from wirescan.frames.columns import RESERVED, list_computed, list_places
from wirescan.frames.registry import format_of
from wirescan.reading import filters, nested_groups
from wirescan.reading.chunked import iter_tables
from wirescan.reading.filters import AnyOf, Filter, Not, check_filters, prune_file

ORDERS = CORPUS / "kafka" / "orders-0"
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
}


def is_passing(value, op: str, operand) -> bool:
    """SQL's rule for one value: null passes nothing but is_null."""
    if op.startswith("is_"):
        return (value is None) == (op == "is_null")
    return value is not None and COMPARED[op](value, operand)


# ---- the law


SUFFIXES = (".bin", ".log", ".theader", ".pcap", ".pcapng")


def list_files(format: str, tmp_path: Path) -> list[Path]:
    """Files of the corpus with frames of a format, also damaged ones; streams are joined to one."""
    protocol, top = format.split(".")[0], format_of(format).outermost.name
    paths = [
        path
        for path in sorted(CORPUS.glob(f"{protocol}*/**/*"))
        if path.suffix in SUFFIXES and AIVEN_STORAGE not in path.parents
    ]
    if format_of(format).within and format_of(format).outermost.requests:
        responses = [path for path in paths if path.name.endswith("responses.bin")]
        known = [path for path in responses if "sasl-tokens" not in path.name]
        return sorted(known, key=lambda path: path.stat().st_size)[-6:]
    if top in ("kafka.requests", "kafka.responses"):
        path = tmp_path / "all.bin"
        path.write_bytes(
            b"".join(file.read_bytes() for file in paths if file.name.endswith(f"{top[6:]}.bin"))
        )
        return [path]
    if protocol == "liftbridge":
        suffix = ".log" if top == "liftbridge.entries" else ".bin"
        return [path for path in paths if path.suffix == suffix and "raft" not in path.name]
    return [path for path in paths if "kafka-streams" not in path.parts]


def list_candidates(format: str) -> list[str]:
    """Every column that can be filtered by: of the rows, and of those around them."""
    outer, names = format_of(format), ["_file", "_start", "_fault"]
    inner = outer
    while True:
        names += [name for name in inner.dtype.names if name != RESERVED]
        names += [*list_places(inner.dtype), *list_computed(inner.dtype, inner.columns)]
        columns = inner.columns.items()
        refused = {name for name, column in columns if column.local or column.items}
        refused |= {"start", "parent", "buffer", *outer.lists}
        names = [name for name in dict.fromkeys(names) if name not in refused]
        if inner.within is None or inner.detached:
            return names
        inner = format_of(inner.within)


def join_batches(batches: list[pa.RecordBatch]) -> pa.Table | None:
    """The rows of all batches in one chunk, None if there are no batches."""
    return pa.Table.from_batches(batches).combine_chunks() if batches else None


def list_values(rows: pa.Table, name: str) -> list:
    """A column as Python values, times as numbers."""
    column = rows[name]
    return (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()


def draw_filter(draw: random.Random, values: list, name: str) -> filters.Filter:
    """A filter on a column, by values that are there or near them."""
    present = [value for value in values if value is not None]
    if not present:
        return filters.Filter(name, draw.choice(["is_null", "is_not_null"]))
    value = draw.choice(present)
    text = isinstance(value, (str, bytes))
    op = draw.choice(
        [*COMPARED, "is_null", "is_not_null"]
        if text
        else [*list(COMPARED)[:8], "is_null", "is_not_null"]
    )
    if op.startswith("is_"):
        return filters.Filter(name, op)
    if op in ("starts_with", "ends_with", "contains"):
        first = draw.randrange(len(value) + 1)
        return filters.Filter(
            name,
            op,
            value[:first]
            if op[0] == "s"
            else value[first:]
            if op[0] == "e"
            else value[first : first + draw.randrange(6)],
        )
    if op in ("in", "not in"):
        return filters.Filter(name, op, [draw.choice(present) for _ in range(draw.randrange(5))])
    if isinstance(value, bytes) and draw.random() < 0.4:
        value = draw.choice([value[:-1], value + b"\0", value[:-1] + b"\xff", b""])
    elif isinstance(value, int) and not isinstance(value, bool) and draw.random() < 0.4:
        value += draw.choice([-1, 1, 0.5, -(1 << 70), 1 << 70])
    return filters.Filter(name, op, value)


def add_requests(format: str, path: Path) -> str:
    """Return a format of a file. Bodies of responses need the file with their requests."""
    if format_of(format).within is None or format_of(format).outermost.requests is None:
        return format
    return f"{format}?requests={path.with_name(path.name.replace('responses', 'requests'))}"


# The rows of pcap.streams depend on the pieces of the file.
FILTERED = [name for name in list_chosen_formats() if name != "pcap.streams"]


@pytest.mark.parametrize(
    "format, most_files",
    [
        *((name, 1) for name in FILTERED),
        *(pytest.param(name, 6, marks=pytest.mark.slow) for name in FILTERED),
    ],
)
def test_what_is_kept_is_what_passes_one_by_one(format, most_files, tmp_path):
    draw, names, met, most = random.Random(format), list_candidates(format), 0, 0
    shown = [*dict.fromkeys([*names, *format_of(format).export_columns])]
    paths = list_files(format, tmp_path)
    assert paths
    for path in draw.sample(paths, min(len(paths), most_files)):
        small_batches = max(1000, path.stat().st_size // 20)  # of a large file not thousands
        for errors in ("strict", "mark", "skip"):

            def read(**options):
                batches = iter_batches(
                    str(path),
                    format=add_requests(format, path),
                    columns=shown,
                    errors=errors,
                    batch_bytes=draw.choice([small_batches, 20_000, 8 << 20]),
                    **options,
                )
                return join_batches(list(batches))

            try:
                rows = read()
            except FrameError:
                assert errors == "strict"
                continue
            if rows is None:
                continue
            most = max(most, len(rows))
            values: dict[str, list] = {}  # only of the columns that filters ask for
            for _ in range(6):
                asked = []
                for name in draw.sample(names, draw.choice([1, 1, 2, 3])):
                    values[name] = values.get(name) or list_values(rows, name)
                    asked.append(draw_filter(draw, values[name], name))
                passing = [
                    all(
                        is_passing(values[condition.column][row], condition.op, condition.value)
                        for condition in asked
                    )
                    for row in range(len(rows))
                ]
                want = rows.filter(pa.array(passing, pa.bool_()))
                kept_rows = read(filters=asked)
                count = 0 if kept_rows is None else len(kept_rows)
                assert count == len(want), (path, errors, asked)
                assert kept_rows is None or kept_rows.equals(want), (path, errors, asked)
                met += 0 < len(want) < len(rows)
    assert met or most < 20


# ---- what is passed over


def make_batch(first: int, *, value: bytes = b"value", **options) -> bytes:
    records = [
        kafka.Record(first + i, 1_700_000_000_000 + first + i, b"key %d" % i, value)
        for i in range(10)
    ]
    return kafka.encode_batch(records, **options)


def test_batches_that_cannot_match_are_not_opened():
    draw, fewer = random.Random(2), 0
    for path in [
        *sorted(ORDERS.glob("*.log")),
        *sorted((CORPUS / "kafka" / "fetched").glob("*.bin")),
    ]:
        batches = kafka.scan(path)
        records = kafka.records(batches)
        for _ in range(20):
            column = draw.choice(["offset", "timestamp"])
            low = int(draw.choice(records[column]))
            asked = check_filters(
                [(column, ">=", low), (column, "<", low + draw.choice([1, 100, 5000]))],
                "kafka.records",
            )
            pruned = filters.prune_frames(batches, format_of("kafka.records"), asked, "strict")
            want = filters.apply_filters(records, asked)
            assert set(batches["start"][want["parent"]].tolist()) <= set(pruned["start"].tolist())
            fewer += len(pruned) < len(batches)
            marked = filters.prune_frames(batches, format_of("kafka.records"), asked, "mark")
            assert len(marked) == len(batches), "a bad row may have any number"
    assert fewer > 50


def test_damage_that_no_wanted_row_is_in_is_not_met(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(
        make_batch(0) + make_batch(10, codec="zstd", value=b"x" * 3000) + make_batch(20)
    )
    limits = wirescan.Limits(inflated=1000)  # the second batch cannot be opened

    def read(*asked, **options):
        tables = iter_tables(
            str(path), format="kafka.records", filters=asked, limits=limits, **options
        )
        return [offset for table in tables for offset in table["offset"].tolist()]

    for asked in (
        [("offset", ">=", 20)],
        [("offset", "<", 10)],
        [("timestamp", ">", 1_700_000_000_019)],
    ):
        assert len(read(*asked)) == 10
    assert read(("offset", ">=", 29)) == [29] and read(("offset", "<=", 0)) == [0]
    with pytest.raises(FrameError, match="TOO_LARGE"):
        read(("offset", "in", [3, 15]))
    assert read(("codec", "==", 0)) == [*range(10), *range(20, 30)], (
        "a column of the batch tells before it is opened"
    )
    assert len(read(("_fault", "==", "TOO_LARGE"), errors="mark")) == 1
    assert len(read(("fault", "==", "TOO_LARGE"), ("magic", "==", 2), errors="mark")) == 1
    assert read(("_fault", "is_not_null"), errors="skip") == []


def test_frames_that_are_too_large_together_are_opened_apart_before_they_are_filtered(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(nested_groups, "INFLATED", 100_000)
    path = tmp_path / "a.log"
    path.write_bytes(
        b"".join(make_batch(10 * i, codec="zstd", value=b"x" * 6000) for i in range(8))
    )
    for errors in ("strict", "mark", "skip"):
        tables = iter_tables(
            str(path), format="kafka.records", errors=errors, filters=[("fault", "==", 0)]
        )
        assert sum(map(len, tables)) == 80


def list_positions(
    path: Path, format: str, asked: list, start: int = 0, stop: int | None = None
) -> list:
    tables = iter_tables(str(path), start, stop, format=format, filters=asked)
    return [
        row for table in tables for row in zip(table.positions.tolist(), table["offset"].tolist())
    ]


def draw_ranges(draw: random.Random, table) -> list:
    """A range of offsets, of times, or of both, of rows that are there or beyond them."""
    asked = []
    for column, step in draw.sample([("offset", 300), ("timestamp", 10**10)], draw.choice([1, 2])):
        low = int(draw.choice(table[column])) + draw.choice([0, 0, -step, step])
        asked.append((column, draw.choice([">=", ">", "=="]), low))
        if draw.random() < 0.7:
            asked.append((column, draw.choice(["<", "<="]), low + draw.randrange(step)))
    return asked


@pytest.mark.parametrize(
    "format, directory", [("kafka.records", "kafka"), ("liftbridge.entries", "liftbridge")]
)
def test_parts_of_segments_without_wanted_rows_are_not_read(format, directory, tmp_path):
    draw, less, none = random.Random(format), 0, 0
    for path in sorted((CORPUS / directory).glob("**/*.log")):
        table = wirescan.scan(path, format)
        outer = table if table.outer is None else table.outer
        borders = {
            0,
            path.stat().st_size,
            *outer["start"].tolist(),
            *(outer["start"] + outer["size"]).tolist(),
        }
        for _ in range(25 if len(table) else 0):
            asked = draw_ranges(draw, table)
            start, stop = prune_file(str(path), format, check_filters(asked, format))
            stop = path.stat().st_size if stop is None else stop
            assert start in borders and stop in borders and start <= stop
            rows = list_positions(path, format, asked, 0, path.stat().st_size)
            assert (
                list_positions(path, format, asked)
                == rows
                == [row for row in rows if start <= row[0] < stop]
            )
            less += stop - start < path.stat().st_size
            none += start == stop
    assert less > 100 and none > 10


@pytest.mark.parametrize(
    "format, path",
    [
        ("kafka.records", ORDERS / "00000000000000004160.log"),
        ("kafka.records", CORPUS / "kafka/compacted-0/00000000000000004900.log"),
        ("liftbridge.entries", CORPUS / "liftbridge/single/logs/rolled-0/00000000000000000011.log"),
    ],
)
def test_a_damaged_index_hides_nothing(format, path, tmp_path):
    draw, table, copy = random.Random(path.name), wirescan.scan(path, format), tmp_path / path.name
    shutil.copy(path, copy)
    for number in range(150):
        for suffix in (".index", ".timeindex"):
            if not path.with_suffix(suffix).exists():
                continue
            raw = bytearray(path.with_suffix(suffix).read_bytes())
            for _ in range(draw.randrange(3) if number else 0):
                raw[draw.randrange(len(raw))] ^= 1 << draw.randrange(8)
            if draw.random() < 0.1:
                raw = (
                    raw[: draw.randrange(len(raw))]
                    if draw.random() < 0.5
                    else draw.randbytes(len(raw))
                )
            copy.with_suffix(suffix).write_bytes(raw)
        asked = draw_ranges(draw, table)
        assert list_positions(copy, format, asked) == list_positions(
            copy, format, asked, 0, path.stat().st_size
        ), asked


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_message_sets_are_pruned_by_an_index(magic, codec, tmp_path):
    """A compressed message set states only its last offset, so no part ends before one."""
    sets = [
        kafka.encode_message_set(
            [kafka.Record(first + n, value=b"v" * 50) for n in range(5)], magic=magic, codec=codec
        )
        for first in range(0, 200, 5)
    ]
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(b"".join(sets))
    entries = [
        (5 * number + 4, sum(map(len, sets[:number])))
        for number in range(2, len(sets))
        if number % 3 == 0
    ]
    for gap in (0, 4):  # an entry has the last offset that was appended at its position, or less
        raw = b"".join(struct.pack(">ii", offset - gap, at) for offset, at in entries)
        path.with_suffix(".index").write_bytes(raw)
        pruned = 0
        for low in range(0, 200, 7):
            asked = [("offset", ">=", low), ("offset", "<", low + 9)]
            start, stop = prune_file(
                str(path), "kafka.records", check_filters(asked, "kafka.records")
            )
            rows = list_positions(path, "kafka.records", asked)
            assert [offset for _, offset in rows] == list(range(low, min(low + 9, 200)))
            pruned += path.stat().st_size - (stop or path.stat().st_size) + start
        assert pruned > 0


@pytest.mark.parametrize("magic", [0, 1])
def test_offsets_in_a_message_set_of_a_producer_are_not_excluded(magic, tmp_path):
    path = tmp_path / "00000000000000000000.log"
    messages = [{"offset": offset, "value": b"v"} for offset in range(5)]
    options = {"codec": "gzip", "wrapper_offset": 0}
    path.write_bytes(kafka.encode_message_set(messages, magic=magic, **options))
    wanted = {"offset >= 2": [2, 3, 4], "offset < 2": [0, 1], "offset == 4": [4]}
    for where, offsets in wanted.items():
        tables = iter_tables(str(path), format="kafka.records", where=where)
        assert np.concatenate([table["offset"] for table in tables]).tolist() == offsets


def test_a_file_by_its_name(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(b"no batch at all " * 10)
    for asked in (
        [("_file", "!=", str(path))],
        [("_file", "ends_with", "b.log")],
        [("_file", "is_null")],
    ):
        assert sum(map(len, iter_tables(str(path), format="kafka.records", filters=asked))) == 0
        assert prune_file(
            str(path), "kafka.records", check_filters(asked, "kafka.records"), "mark"
        ) == (0, 0)
    with pytest.raises(FrameError, match="NOT_A_FRAME.*a.log"):
        list(iter_tables(str(path), format="kafka.records", filters=[("_file", "in", [str(path)])]))


def test_a_file_whose_name_is_no_text(tmp_path):
    """The condition has the name as the system gives it, or as an export has it."""
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.log")
    Path(path).write_bytes(kafka.encode_batch([b"a"]))
    as_exported = path.replace("\udce9", "\\udce9")
    for name in (path, as_exported):
        asked = [("_file", "==", name)]
        assert sum(map(len, iter_tables(path, format="kafka.records", filters=asked))) == 1
        quoted = name.replace("\\", "\\\\")
        table = wirescan.scan(path, "kafka.records")
        assert len(wirescan.where(table, f'_file == "{quoted}"', file=path)) == 1
        assert len(wirescan.where(table, f'_file contains "{quoted[-12:]}"', file=path)) == 1
    (batch,) = iter_batches(path, format="kafka.records", columns=["_file"])
    assert batch["_file"].to_pylist() == [as_exported]


# ---- values


def list_passing_rows(table, *asked) -> list[int]:
    """The numbers of the rows that pass."""
    passing = filters.apply_filters(table, check_filters(asked, table.format))
    return np.flatnonzero(np.isin(table["offset"], passing["offset"])).tolist()


def make_records(*values, **options):
    rows = [
        value if isinstance(value, kafka.Record) else kafka.Record(i, value=value)
        for i, value in enumerate(values)
    ]
    return wirescan.scan(kafka.encode_batch(rows, **options), "kafka.records")


def test_byte_strings_compare_like_bytes():
    values = [
        b"",
        b"a",
        b"a\0",
        b"a\0\0",
        b"ab",
        b"b",
        b"\xff",
        None,
        b"aa",
        b"xab",
        b"ba",
        b"a" * 300,
    ]
    table = make_records(*values)
    for operand in [*values, b"\0", b"x", b"xa", b"a" * 299, b"a" * 301, "ab"]:
        if operand is None:
            continue
        raw = operand.encode() if isinstance(operand, str) else operand
        for op in COMPARED:
            if op in ("in", "not in"):
                many = [raw, b"b", bytearray(b"aa")]
                want = [i for i, value in enumerate(values) if is_passing(value, op, many)]
                assert list_passing_rows(table, ("value", op, many)) == want
            else:
                want = [i for i, value in enumerate(values) if is_passing(value, op, raw)]
                assert list_passing_rows(table, ("value", op, operand)) == want, (op, operand)
    for op in ("in", "not in"):
        assert list_passing_rows(table, ("value", op, [])) == [
            i for i in range(12) if i != 7 and op == "not in"
        ]
    assert (
        list_passing_rows(table, ("value", "is_null")) == [7]
        and len(list_passing_rows(table, ("value", "is_not_null"))) == 11
    )
    assert list_passing_rows(table, ("key", "is_null"), ("value", "==", b"b")) == [5]


def test_long_values_are_compared():
    draw = random.Random(1)
    values = [bytes(draw.choices(b"ab", k=draw.randrange(40))) for _ in range(60)]
    table = make_records(*values)
    for _ in range(60):
        operand, op = (
            draw.choice(values)[draw.randrange(3) :][: draw.choice([2, 4, 99])],
            draw.choice(list(COMPARED)[:6]),
        )
        op = draw.choice([op, "contains", "starts_with", "ends_with"])
        assert list_passing_rows(table, ("value", op, operand)) == [
            i for i, value in enumerate(values) if is_passing(value, op, operand)
        ]


def test_times_are_datetimes_or_the_numbers_on_the_wire():
    at = datetime(2024, 5, 1, 12, 0, 0, 7000, timezone.utc)
    table = make_records(
        *[kafka.Record(i, 1_714_564_800_000 + 7 * i, value=b"") for i in range(4)],
        kafka.Record(4, -1, value=b""),
    )
    assert table["timestamp"][4] == -1
    berlin = at.astimezone(timezone(timedelta(hours=2)))
    for when in (
        at,
        berlin,
        at.replace(tzinfo=None),
        1_714_564_800_007,
        np.int64(1_714_564_800_007),
    ):
        assert list_passing_rows(table, ("timestamp", "==", when)) == [1]
        assert list_passing_rows(table, ("timestamp", "!=", when)) == [0, 2, 3]
        assert list_passing_rows(table, ("timestamp", "<=", when)) == [0, 1]
        assert list_passing_rows(table, ("timestamp", "in", [when, 0])) == [1]
        assert list_passing_rows(table, ("timestamp", "not in", [when])) == [0, 2, 3]
    between = at + timedelta(microseconds=1)  # no millisecond
    for op, want in {
        "==": [],
        "!=": [0, 1, 2, 3],
        "<": [0, 1],
        "<=": [0, 1],
        ">": [2, 3],
        ">=": [2, 3],
    }.items():
        assert list_passing_rows(table, ("timestamp", op, between)) == want
    assert list_passing_rows(table, ("timestamp", "in", [between, at])) == [1]
    assert list_passing_rows(table, ("timestamp", "not in", [between])) == [0, 1, 2, 3]
    assert (
        list_passing_rows(table, ("timestamp", "is_null"))
        == list_passing_rows(table, ("timestamp", "is_null"), ("offset", ">", 3))
        == [4]
    )


def test_numbers_of_any_size_and_flags():
    table = make_records(*[kafka.Record((1 << 63) - 4 + i, value=b"") for i in range(3)])
    offsets = table["offset"].tolist()
    for value in (offsets[1], offsets[1] - 0.5, 1 << 63, 1 << 80, -1 << 80, 0, 2.5, True):
        for op in list(COMPARED)[:6]:
            want = [i for i, offset in enumerate(offsets) if COMPARED[op](offset, value)]
            assert list_passing_rows(table, ("offset", op, value)) == want, (op, value)
        for op in ("in", "not in"):
            want = [
                i for i, offset in enumerate(offsets) if COMPARED[op](offset, [value, offsets[0]])
            ]
            assert list_passing_rows(table, ("offset", op, [value, offsets[0]])) == want
    assert len(
        list_passing_rows(table, ("is_control", "==", False))
    ) == 3 and not list_passing_rows(table, ("is_control", "!=", False))


@pytest.fixture
def topics_with_flags(tmp_path):
    """A capture of a response whose flags are 0, 1, 2 and 255. All but 0 are true in Kafka."""
    names = ["a", "b", "c", "d"]
    topics = [
        {"error_code": 0, "name": f"t-{name}", "is_internal": True, "partitions": []}
        for name in names
    ]
    body = {"brokers": [], "controller_id": 1, "topics": topics}
    response = kafka.encode_response("Metadata", 1, body, correlation_id=7)
    for name, flag in zip(names, (0, 1, 2, 255)):
        text = f"t-{name}".encode()
        response = response.replace(text + b"\1", text + bytes([flag]))
    request = kafka.encode_request("Metadata", 1, {"topics": []}, correlation_id=7)
    path = tmp_path / "topics.pcap"
    path.write_bytes(converse((0, request), (1, response), port=9092).to_pcap())
    return str(path)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("is_internal", "bcd"),
        ("not is_internal", "a"),
        ("is_internal == true", "bcd"),
        ("is_internal != true", "a"),
        ("is_internal in (false)", "a"),
        ("is_internal in (true, false)", "abcd"),
        ("is_internal > 1", ""),
    ],
)
def test_flags_pass_as_exports_have_them(topics_with_flags, text, expected):
    format = "kafka.metadata_response.topics?capture=true"
    table = wirescan.scan(topics_with_flags, format)
    assert table["is_internal"].tolist() == [0, 1, 2, 255]
    passing = wirescan.where(table, text).to_arrow(columns=["name"])
    assert passing["name"].to_pylist() == [b"t-%c" % ord(name) for name in expected]


def test_engines_filter_flags_as_exports_have_them(topics_with_flags):
    format = "kafka.metadata_response.topics?capture=true"
    frame = wirescan.scan_polars(topics_with_flags, format=format)
    dataset = wirescan.dataset(topics_with_flags, format=format)
    assert frame.filter(pl.col("is_internal")).collect().height == 3
    assert frame.filter(~pl.col("is_internal")).collect().height == 1
    assert dataset.to_table(filter=pc.field("is_internal")).num_rows == 3


def test_a_flag_bounds_no_numbers():
    format = format_of("kafka.batches")
    conditions = check_filters([("is_control", "==", True)], format)
    assert filters.find_column_ranges(format, format, conditions) == {}


def test_names_of_kinds_and_faults():
    frames = lumberjack.scan(CORPUS / "lumberjack" / "recorded" / "filebeat.sent.bin")
    for asked in (
        [("kind", "==", "C")],
        [("kind", "in", ["C", "W"]), ("kind", "!=", "W")],
        [("kind", "<", "D")],
    ):
        passing = filters.apply_filters(frames, check_filters(asked, "lumberjack.frames"))
        assert len(passing) and set(passing["kind"].tolist()) == {ord("C")}
    bad = bytearray(make_batch(0) + make_batch(10))
    bad[-1] ^= 1
    table = wirescan.scan(bytes(bad), "kafka.records", errors="mark")
    assert table["fault"].tolist() == [0] * 10 + [Fault.BAD_CHECKSUM]
    for condition in (
        ("fault", "==", "BAD_CHECKSUM"),
        ("fault", ">", 0),
        ("_fault", "==", "BAD_CHECKSUM"),
        ("_fault", "is_not_null"),
        ("fault", "is_not_null"),
        ("fault", "!=", "SHORT"),
        ("fault", "starts_with", "BAD_"),
        ("fault", "<", "C"),
        ("fault", "in", ["BAD_CHECKSUM", "SHORT"]),
        ("fault", "in", [4, 5]),
        ("fault", "not in", ["SHORT"]),
        ("value", "is_null"),
        ("offset", "is_null"),
        ("timestamp", "is_null"),
        ("is_control", "is_null"),
    ):
        assert filters.apply_filters(table, check_filters([condition], "kafka.records"))[
            "fault"
        ].tolist() == [Fault.BAD_CHECKSUM]
    for condition in ("fault", "is_null"), ("fault", "==", 0), ("is_control", "==", False):
        assert (
            filters.apply_filters(table, check_filters([condition], "kafka.records"))[
                "fault"
            ].tolist()
            == [0] * 10
        )
    for condition in (
        ("fault", "!=", "BAD_CHECKSUM"),
        ("fault", ">", "C"),
        ("fault", "in", []),
        ("_fault", "!=", "BAD_CHECKSUM"),
    ):
        assert (
            len(filters.apply_filters(table, check_filters([condition], "kafka.records"))) == 0
        )  # null passes no comparison


def test_empty_text_in_rows_is_null():
    """Empty text is null, as it is in exports."""
    table, texts = make_records(b"", b"", b"", b""), [b"", b"n", b"na", "ä".encode()]
    rows = np.zeros(4, [*table.dtype.descr, ("text", "S4")])
    for name in table.dtype.names:
        rows[name] = table[name]
    rows["text"] = texts
    table = dataclasses.replace(table, rows=rows)
    values = [text.decode() or None for text in texts]
    asked = [
        *((op, "n") for op in COMPARED if "in" not in op.split()),
        ("in", ["n", "ä"]),
        ("not in", ["n", "ä"]),
        ("not in", []),
        ("==", ""),
        ("!=", ""),
        ("is_null", None),
        ("is_not_null", None),
    ]
    for op, operand in asked:
        passing = filters.apply_filters(table, [Filter("text", op, operand)])
        want = [i for i, value in enumerate(values) if is_passing(value, op, operand)]
        assert passing["offset"].tolist() == want, (op, operand)


@pytest.mark.parametrize(
    "wrong, error, message",
    [
        (("offset", ">", 3), TypeError, "list of tuples"),
        ([("offset",)], TypeError, "list of tuples"),
        ([("offset", ">", 3, 4)], TypeError, "list of tuples"),
        ([7], TypeError, "list of tuples"),
        ([("offset", "like", 3)], ValueError, "no operator 'like'"),
        (
            [("ofset", ">", 3)],
            ValueError,
            "is not there; did you mean offset",
        ),
        ([(None, ">", 3)], ValueError, "is not there"),
        ([("headers", "is_null")], ValueError, "is a list"),
        ([("parent", "==", 3)], ValueError, "counts within a table"),
        ([("offset", ">", "3")], TypeError, "whole numbers, and cannot be '3'"),
        ([("offset", ">", datetime(2024, 1, 1))], TypeError, "whole numbers"),
        ([("offset", "==", float("nan"))], TypeError, "cannot be nan"),
        ([("timestamp", ">", "2024-01-01")], TypeError, "numbers or times"),
        ([("offset", "==", None)], TypeError, "is_null"),
        ([("offset", "in", 3)], TypeError, "several values"),
        ([("key", "in", b"ab")], TypeError, "several values"),
        ([("key", "in", [b"a", None])], TypeError, "is_null"),
        ([("key", "==", 3)], TypeError, "bytes, and cannot be 3"),
        ([("offset", "contains", 3)], ValueError, "no operator 'contains'"),
        ([("fault", "contains", 3)], ValueError, "no operator 'contains'"),
        ([("_file", "==", b"a")], TypeError, "text"),
        ([("fault", "==", "WRONG")], ValueError, "no fault 'WRONG'; there are TRUNCATED"),
        ([("fault", "==", "OK")], ValueError, "null where the frame is good"),
    ],
)
def test_unfit_filters_are_refused(wrong, error, message):
    with pytest.raises(error, match=message):
        check_filters(wrong, "kafka.records")
    with pytest.raises(error, match=message):
        list(
            iter_batches(
                str(ORDERS / "00000000000000000000.log"), format="kafka.records", filters=wrong
            )
        )


def test_numbers_of_every_kind():
    huge, log = 10**400, str(ORDERS / "00000000000000000000.log")
    for value in huge, Fraction(huge) + Fraction(1, 2):
        assert check_filters([("offset", "<", value)], "kafka.records")[0].value >= huge
        for conditions, is_all in (
            ([("offset", "<", value)], True),
            ([("offset", ">", value)], False),
        ):
            counts = [
                sum(
                    len(table) for table in iter_tables(log, format="kafka.records", filters=choice)
                )
                for choice in (conditions, [])
            ]
            assert (counts[0] == counts[1]) is is_all and (counts[0] > 0) is is_all
    assert check_filters([("offset", "<=", np.float32(5.5))], "kafka.records") == (
        Filter("offset", "<=", 5),
    )
    assert check_filters([("offset", "==", np.True_)], "kafka.records") == (
        Filter("offset", "==", 1),
    )
    with pytest.raises(TypeError, match="holds numbers"):
        check_filters([("real", "<", huge)], "thrift.fields")


def test_filters_are_checked_once_or_again():
    asked = [
        ("timestamp", ">", datetime(2024, 1, 1)),
        ("offset", "in", (1, 2.5)),
        ["key", "==", "a"],
        ("key", "is_null"),
    ]
    once = check_filters(iter(asked), format_of("kafka.records"))
    assert check_filters(once, "kafka.records") == once and hash(once)
    assert once[0].value == 1_704_067_200_000 and once[1].value == (1,) and once[2].value == b"a"
    assert check_filters([("seq", "==", 1)], "thrift.messages") and check_filters(
        [("real", "<", 0.5)], "thrift.fields"
    )
    for format, column in ("thrift.fields", "enclosing"), ("lumberjack.events", "window"):
        with pytest.raises(ValueError, match="counts within a table"):
            check_filters([(column, "==", 1)], format)
    with pytest.raises(ValueError, match="is a list"):
        check_filters([("replica_nodes", "==", 1)], "kafka.metadata_response.partitions")
    assert check_filters([("replica_nodes", "is_null")], "kafka.metadata_response.partitions")


TREES = {
    "numbers": lambda several: ("offset", "in", several([3, 5])),
    "negation": lambda several: Not(Filter("offset", "in", several([3, 5]))),
    "double": lambda several: Not(Not(Filter("offset", "not in", several([3, 5])))),
    "joined": lambda several: AnyOf(
        several([Filter("offset", "==", 1), Filter("offset", "in", several([3, 5]))])
    ),
    "columns": lambda several: AnyOf(
        several([Filter("offset", "in", several([3, 5])), Filter("key", "in", several([b"a"]))])
    ),
    "neither": lambda several: Not(
        AnyOf(several([Filter("offset", "in", several([3])), ("key", "in", several([b"a"]))]))
    ),
    "faults": lambda several: ("fault", "in", several([4, 5])),
    "names": lambda several: Not(("fault", "not in", several(["BAD_CODEC", "LOST"]))),
    "sequence": lambda several: ["offset", "in", several([3])],
}


@pytest.mark.parametrize("tree", TREES)
def test_values_may_be_iterators(tree):
    """Some filters are examined more than once, and an iterator has its values once."""
    make_tree = TREES[tree]
    assert check_filters([make_tree(iter)], "kafka.records") == check_filters(
        [make_tree(tuple)], "kafka.records"
    )
