"""Faults that formats of other packages declare. Two formats use one number for two faults.

A frame of `outer` has two bytes. The first is its fault, and the second is the fault of the frame
of `inner` in it.
"""

import copy
import json
import pickle
from dataclasses import replace
from enum import IntEnum

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import wirescan
from wirescan import (
    Column,
    Display,
    Fault,
    FaultMeaning,
    Format,
    FrameError,
    FrameTable,
    Limits,
    Parser,
)
from wirescan.cli.main import main
from wirescan.cli.support.query import make_answer_lines
from wirescan.core.loop import HEAD
from wirescan.export import fault_report
from wirescan.export.parquet import convert
from wirescan.frames import registry, to_arrow
from wirescan.frames.errors import enforce_mode
from wirescan.frames.fault_names import DECLARED_HARD, DECLARED_SOFT
from wirescan.frames.table import Stop, join
from wirescan.reading.chunked import iter_tables
from wirescan.reading.filters import apply_filters, check_filters

OUTER_FAULTS = {
    64: FaultMeaning("BAD_TYPE_BYTE", "the type byte is unknown"),
    200: FaultMeaning("NO_TYPE_BYTE", "there is no type byte"),
}
INNER_FAULTS = {64: FaultMeaning("BAD_SIZE_BYTE", "the size byte is unknown")}
ROW = np.dtype([*((name, HEAD[name]) for name in HEAD.names), ("level", "u4"), ("reserved", "u4")])
BYTES = bytes([0, 0, 64, 64, 0, 64, 4, 4, 0, 99])  # 99 is the number of no fault


class Level(IntEnum):
    LOW = 1
    HIGH = 2


def scan_outer(buffer, check, resync, limits, into=None, more=False, resume=None):
    count = len(buffer) // 2
    rows = np.zeros(count, ROW)
    rows["start"] = 2 * np.arange(count)
    rows["size"] = 2
    rows["body"] = 1
    rows["parent"] = -1
    rows["fault"] = np.frombuffer(buffer, np.uint8)[: 2 * count : 2]
    rows["level"] = 1 + np.arange(count) % 3
    hard = np.flatnonzero(rows["fault"] >= Fault.BAD_LENGTH)
    if len(hard) and not resync:
        row = int(hard[0])
        return rows[:row], int((rows[:row]["fault"] != 0).sum()), int(rows[row]["fault"]), 2 * row
    ended = Fault.SHORT if len(buffer) % 2 else Fault.OK
    return rows, int((rows["fault"] != 0).sum()), int(ended), 2 * count


def read_outer(source, *, errors="strict", check=True, limits=Limits()):
    tables = []
    for buffer in wirescan.open(source):
        resync = errors != "strict"
        rows, bad, fault, position = scan_outer(buffer, check, resync, limits)
        table = FrameTable((buffer,), rows, (Stop(fault, position),), OUTER)
        tables.append(enforce_mode(table, errors, bad))
    return join(tables)


def read_inner(outer, *, errors="strict", check=True, limits=Limits()):
    rows = outer.rows.copy()
    rows["parent"] = np.arange(len(rows))
    own = np.array([outer.frame(i)[1] for i in range(len(rows))], np.uint8)
    rows["fault"] = np.where(outer["fault"] != 0, outer["fault"], own)
    rows["start"] += 1
    rows["size"] = 1
    rows["body"] = 0
    table = FrameTable(outer.buffers, rows, (), INNER, outer)
    return enforce_mode(table, errors, int((rows["fault"] != 0).sum()))


OUTER = Format(
    "plain.outer",
    "two bytes",
    ROW,
    read_outer,
    children={"inner": read_inner},
    faults=OUTER_FAULTS,
    columns={"level": Column(names=Level)},
    parser=Parser(scan=scan_outer),
)
INNER = Format(
    "plain.inner",
    "one byte",
    ROW,
    read_inner,
    within="plain.outer",
    faults=INNER_FAULTS,
    display=Display(counted_as="bytes"),
)


@pytest.fixture(autouse=True)
def registered():
    known = dict(registry.load_formats())
    wirescan.register(OUTER, INNER)
    yield
    registry.load_formats().clear()
    registry.load_formats().update(known)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "bytes"
    path.write_bytes(BYTES)
    return str(path)


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


# ---- the declaration


@pytest.mark.parametrize("number", [-1, 0, 1, 63, 128, 160, 191, 256])
def test_other_numbers_are_refused(number):
    with pytest.raises(ValueError, match=rf"fault {number} of the format 'plain.outer'.*64 to 127"):
        replace(OUTER, faults={number: FaultMeaning("OWN", "own")})


def test_numbers_of_other_packages_are_no_faults_of_wirescan():
    assert {*DECLARED_SOFT, *DECLARED_HARD}.isdisjoint(map(int, Fault))
    assert (DECLARED_SOFT[0], DECLARED_SOFT[-1]) == (64, 127)
    assert (DECLARED_HARD[0], DECLARED_HARD[-1]) == (192, 255)
    faults = {number: FaultMeaning(f"F{number}", "") for number in (64, 127, 192, 255)}
    assert replace(OUTER, faults=faults).describe_fault(255).name == "F255"


@pytest.mark.parametrize("name", ["BAD_LENGTH", "OK", "FIRST"])
def test_names_that_are_taken_are_refused(name):
    with pytest.raises(ValueError, match=f"{name!r} is the name of another fault"):
        replace(OUTER, faults={64: FaultMeaning("FIRST", ""), 65: FaultMeaning(name, "")})


@pytest.mark.parametrize("name", ["", "64", "no identifier", None])
def test_names_that_are_no_identifiers_are_refused(name):
    with pytest.raises(ValueError, match="is no identifier"):
        replace(OUTER, faults={64: FaultMeaning(name, "")})


def test_another_type_is_refused():
    with pytest.raises(TypeError, match=r"must be a wirescan\.FaultMeaning, not \('A', 'b'\)"):
        replace(OUTER, faults={64: ("A", "b")})


def test_every_number_has_a_name_in_its_format():
    assert OUTER.describe_fault(64) == ("BAD_TYPE_BYTE", "the type byte is unknown")
    assert INNER.describe_fault(64) == ("BAD_SIZE_BYTE", "the size byte is unknown")
    assert INNER.describe_fault(Fault.EMPTY) == OUTER.describe_fault(Fault.EMPTY)
    assert INNER.describe_fault(200) == ("200", "unknown fault")


# ---- exceptions


@pytest.mark.parametrize(
    "name, offset, raw, text",
    [
        ("plain.outer", 2, bytes([0, 0, 64, 0]), "the type byte is unknown (BAD_TYPE_BYTE)"),
        ("plain.inner", 1, bytes([0, 64]), "the size byte is unknown (BAD_SIZE_BYTE)"),
        ("plain.outer", 2, bytes([0, 0, 200, 0]), "there is no type byte (NO_TYPE_BYTE)"),
        ("plain.outer", 2, bytes([0, 0, 99, 0]), "unknown fault (99)"),
    ],
)
def test_an_error_has_the_name_of_its_format(name, offset, raw, text):
    with pytest.raises(FrameError) as caught:
        wirescan.scan(raw, name)
    error = caught.value
    assert str(error).startswith(f"{text} at byte {offset}")
    assert type(error.fault) is int
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert str(other) == str(error)
        assert (other.fault, other.meaning) == (error.fault, error.meaning)
        assert (other.offset, other.row, other.near) == (error.offset, error.row, error.near)
    with pytest.raises(FrameError) as caught:
        wirescan.stream(name).feed(raw)
    assert str(caught.value).startswith(text)


def test_an_error_of_wirescan_names_a_fault():
    error = FrameError(Fault.EMPTY, 0, 0, b"")
    assert error.meaning.name == "EMPTY" and error.fault is Fault.EMPTY


def test_a_stop_is_named():
    raw = memoryview(bytes([0, 0, 200, 0]))
    rows, _, fault, position = scan_outer(raw, check=True, resync=False, limits=Limits())
    table = FrameTable((raw,), rows, (Stop(fault, position),), OUTER)
    assert "stopped at 2: NO_TYPE_BYTE" in repr(table)
    assert table.describe_fault(64).name == "BAD_TYPE_BYTE"


# ---- exports and filters


@pytest.mark.parametrize("types", to_arrow.TYPES)
def test_arrow_has_the_names(types):
    inner = wirescan.scan(BYTES, "plain.inner", errors="mark")
    batch = to_arrow.to_batch(inner, ["fault", "_fault"], types=types)
    # The enclosing frame of row 1 is bad, and so the number of that row is repeated.
    names = [None, "BAD_SIZE_BYTE", "BAD_SIZE_BYTE", "BAD_CHECKSUM", "99"]
    assert batch["fault"].to_pylist() == names
    rows = inner.rows.copy()
    rows["fault"][1] = 0
    batch = to_arrow.to_batch(replace(inner, rows=rows), ["fault", "_fault"], types=types)
    assert batch["fault"].to_pylist()[1:3] == [None, "BAD_SIZE_BYTE"]
    assert batch["_fault"].to_pylist()[1:3] == ["BAD_TYPE_BYTE", "BAD_SIZE_BYTE"]


def test_batches_of_a_format_have_one_dictionary():
    tables = [wirescan.scan(bytes(raw), "plain.outer", errors="mark") for raw in ([0, 0], [64, 0])]
    first, second = (to_arrow.to_batch(table, ["fault"])["fault"] for table in tables)
    assert first.dictionary == second.dictionary
    assert pa.chunked_array([first, second]).to_pylist() == [None, "BAD_TYPE_BYTE"]


def test_the_fault_report_has_the_names(path, tmp_path):
    report = fault_report.to_batch(wirescan.scan(BYTES, "plain.inner", errors="mark"), "file")
    names = report.select(["format", "fault", "meaning"]).to_pylist()
    assert [tuple(row.values()) for row in names] == [
        ("plain.outer", "BAD_TYPE_BYTE", "the type byte is unknown"),
        ("plain.inner", "BAD_SIZE_BYTE", "the size byte is unknown"),
        ("plain.outer", "BAD_CHECKSUM", "the checksum does not match"),
        ("plain.inner", "99", "unknown fault"),
    ]
    convert(path, tmp_path / "out", format="plain.inner", errors="mark")
    written = pq.read_table(tmp_path / "out.faults")
    assert written["fault"].to_pylist() == report["fault"].to_pylist()


@pytest.mark.parametrize(
    "name, condition, expected",
    [
        ("plain.outer", ("fault", "==", "BAD_TYPE_BYTE"), [1]),
        ("plain.outer", ("fault", "in", ["BAD_TYPE_BYTE", "BAD_CHECKSUM"]), [1, 3]),
        ("plain.outer", ("fault", "starts_with", "BAD_TYPE"), [1]),
        ("plain.outer", ("fault", "==", 64), [1]),
        ("plain.inner", ("fault", "==", "BAD_SIZE_BYTE"), [1, 2]),
        ("plain.inner", ("_fault", "==", "BAD_SIZE_BYTE"), [1, 2]),
    ],
)
def test_filters_take_the_names(name, condition, expected):
    table = wirescan.scan(BYTES, name, errors="mark")
    kept = apply_filters(table, check_filters([condition], name))
    assert (kept.positions // 2).tolist() == expected


def test_a_filter_finds_faults_of_enclosing_frames():
    table = wirescan.scan(BYTES, "plain.inner", errors="mark")
    rows = table.rows.copy()
    rows["fault"] = 0
    table = replace(table, rows=rows)
    for name, expected in {"BAD_TYPE_BYTE": [1], "BAD_SIZE_BYTE": []}.items():
        kept = apply_filters(table, check_filters([("_fault", "==", name)], "plain.inner"))
        assert (kept.positions // 2).tolist() == expected


def test_a_name_of_another_format_is_refused():
    with pytest.raises(ValueError, match="no fault 'BAD_SIZE_BYTE'; there are .*, NO_TYPE_BYTE,"):
        check_filters([("fault", "==", "BAD_SIZE_BYTE")], "plain.outer")


def test_a_file_is_filtered_by_name(path):
    options = dict(format="plain.outer", errors="mark", filters=[("fault", "==", "BAD_TYPE_BYTE")])
    assert [table.positions.tolist() for table in iter_tables(path, **options)] == [[2]]


# ---- the command


def test_scan_names_faults(path):
    done = run("scan", path, "--format", "plain.outer")
    line = f"!! BAD_TYPE_BYTE in the frame at byte 2 of {path}, 2 bytes: the type byte is unknown"
    assert line in done.stdout
    assert "wirescan: 1 bad frame: BAD_TYPE_BYTE, the type byte is unknown" in done.stderr
    lines = run("scan", path, "--format", "plain.inner", "--json").stdout.splitlines()
    names = [json.loads(line)["fault"] for line in lines]
    assert names == [None, "BAD_SIZE_BYTE", "BAD_SIZE_BYTE", "BAD_CHECKSUM", "99"]
    done = run("scan", path, "--format", "plain.inner", "--errors", "strict")
    assert "the type byte is unknown (BAD_TYPE_BYTE) at byte 2" in done.stderr


def test_verify_names_faults(path):
    lines = run("verify", path, "--format", "plain.outer", "--deep", "--json").stdout.splitlines()
    found = [json.loads(line) for line in lines]
    faults = [(each.get("inside"), each["fault"]) for each in found if each["kind"] == "damage"]
    assert faults == [
        (None, "BAD_TYPE_BYTE"),
        (None, "BAD_CHECKSUM"),
        ("plain.inner", "BAD_SIZE_BYTE"),
        ("plain.inner", "99"),
    ]
    text = run("verify", path, "--format", "plain.outer").stdout
    assert "BAD_TYPE_BYTE, the type byte is unknown" in text


def test_stat_counts_faults_by_format(path):
    done = run("stat", path, "--format", "plain.outer", "--deep", "--json")
    faults = json.loads(done.stdout)["total"]["faults"]
    assert {name: fault["frames"] for name, fault in faults.items()} == {
        "BAD_CHECKSUM": 1,
        "BAD_SIZE_BYTE": 1,
        "BAD_TYPE_BYTE": 1,
        "99": 1,
    }
    assert "BAD_TYPE_BYTE" in run("stat", path, "--format", "plain.outer").stdout


# ---- enums


def test_numbers_of_an_enum_are_numbers_in_arrow_and_filters():
    table = wirescan.scan(bytes(8), "plain.outer")
    for types, kind in (("arrow", pa.uint32()), ("spark", pa.int64())):
        column = to_arrow.to_batch(table, ["level"], types=types)["level"]
        assert (column.type, column.to_pylist()) == (kind, [1, 2, 3, 1])
    for condition in (("level", "==", Level.LOW), ("level", "in", [Level.LOW])):
        kept = apply_filters(table, check_filters([condition], "plain.outer"))
        assert kept["level"].tolist() == [1, 1]


def test_text_output_names_the_numbers_of_an_enum(tmp_path):
    path = tmp_path / "bytes"
    path.write_bytes(bytes(8))
    done = run("scan", path, "--format", "plain.outer", "--columns", "level")
    assert done.stdout.split() == ["level", "low", "high", "3", "low"]
    done = run("scan", path, "--format", "plain.inner", "--json", "--columns", "level")
    assert json.loads(done.stdout.splitlines()[0]) == {"level": 1}


def test_a_query_names_the_numbers_of_a_column_under_another_name():
    format = replace(INNER, columns={"outer_level": Column(outer_name="level")})
    answer = {"commonest": {"column": "outer_level", "values": [(1, 4)]}}
    assert make_answer_lines(answer, format) == [("top outer_level", "low (4)")]
