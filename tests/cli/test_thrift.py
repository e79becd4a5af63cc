"""The command line on captures of Thrift."""

from __future__ import annotations

import json
import os
import struct
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import wirescan
from tests.support.command import parse_lines, run
from tests.support.tables import scan_and_mark
from tests.support.thrift_bytes import (
    make_binary_message,
    make_binary_struct,
    make_capture,
    make_frame,
    make_framed,
)
from wirescan import Display, Fault, thrift
from wirescan.cli.verbs.scan import scan as scan_command
from wirescan.files import boundary_index as sidecar
from wirescan.frames import registry, to_arrow
from wirescan.frames.options import FormatOption
from wirescan.thrift.constants import Kind, MessageType, Protocol, Transform

FORMATS = [
    name for name in wirescan.formats() if name.startswith("thrift.") and name != "thrift.exchanges"
]
COUNT = 110
KINDS = {
    "BIG_HEADER": 10,
    "DOUBLE_HEADER": 10,
    "FRAMED_BINARY": 10,
    "FRAMED_COMPACT": 10,
    "HEADER": 30,
    "HTTP": 10,
    "HTTP_CHUNKED": 10,
    "UNFRAMED_BINARY": 10,
    "UNFRAMED_COMPACT": 10,
}
TYPES = {"CALL": 28, "EXCEPTION": 27, "ONEWAY": 27, "REPLY": 28}


@pytest.fixture
def capture_file(tmp_path):
    path = tmp_path / "taken.theader"
    path.write_bytes(make_capture(0, COUNT))
    return path


def make_message(kind=MessageType.CALL, arguments=b"\0"):
    return make_binary_message(b"add", kind, 1, arguments)


# (bytes, fault or None, format of the row with the fault). The format is None for a fault of the
# frame itself. Other faults are in the message of the frame, or in a list in a struct of it.
DAMAGED = [
    (
        make_frame(make_message(arguments=make_binary_struct(1, b"one")), infos=[(b"k", b"v")]),
        None,
        None,
    ),
    (make_frame(b"?", transforms=[Transform.CUSTOM], infos=[(b"k", b"v")]), Fault.BAD_CODEC, None),
    (make_framed(make_message()), None, None),
    (make_framed(struct.pack(">HHIH", 0x0FFF, 0, 0, 9) + bytes(8)), Fault.BAD_HEADER, None),
    (
        make_frame(b"no stream", transforms=[Transform.ZSTD]),
        Fault.BAD_COMPRESSION,
        "thrift.messages",
    ),
    (make_framed(make_message(9)), Fault.BAD_KIND, "thrift.messages"),
    (
        make_framed(make_message(arguments=struct.pack(">BhBhBi", 12, 1, 15, 1, 10, 99))),
        Fault.BAD_COUNT,
        "thrift.fields",
    ),
    (make_framed(make_message()), None, None),
]


@pytest.fixture
def damaged(tmp_path):
    """A capture with good and bad frames, and the start of each frame."""
    path = tmp_path / "damaged.theader"
    path.write_bytes(b"".join(raw for raw, _, _ in DAMAGED))
    return path, [sum(len(raw) for raw, _, _ in DAMAGED[:i]) for i in range(len(DAMAGED))]


@pytest.mark.parametrize("format", FORMATS)
def test_scan_gives_every_row_in_text_and_json(capture_file, format):
    table = scan_and_mark(capture_file, format)
    assert len(table) > 80
    assert not table.bad.any()
    text = run("scan", capture_file, "--format", format)
    rows = parse_lines(run("scan", capture_file, "--format", format, "--json"))
    assert text.exit_code == 0
    assert len(text.stdout.splitlines()) == len(table) + 1
    assert list(rows[0]) == ["_file", "_start", *to_arrow.list_default_columns(format)]
    assert [row["_start"] for row in rows] == table.positions.tolist()
    kinds = table.format.columns["kind"].number_names
    assert [row["kind"] for row in rows] == [kinds[kind] for kind in table["kind"].tolist()]
    for name in set(rows[0]) & set(table.dtype.names) - {"fault", "kind"}:
        values = table[name].tolist()
        column = table.format.get_column(name)
        expected = list(map(column.name_number, values)) if column.number_names else values
        assert [row[name] for row in rows] == expected, name


def test_numbers_have_names_in_text(capture_file):
    def scan_words(format, limit):
        text = run("scan", capture_file, "--format", format, "--limit", limit).stdout
        return [row.split() for row in text.splitlines()[1:]]

    first, second, _, fourth = scan_words("thrift.frames", 4)
    assert first == ["0", "54", "HEADER", "0", "compact", "none"]
    assert second[:6] == ["54", "125", "HEADER", "1", "binary", "none"]
    assert second[6:] == ["client=1", "key", "0=x"]
    assert fourth[4:6] == ["binary", "zlib"]
    (first,) = scan_words("thrift.messages", 1)
    assert first[:6] == ["0", "CALL", "0", "compact", "ping(1:", "0,"]
    fields = scan_words("thrift.fields", 8)
    types = ["I32", "STRING", "LIST", "MAP", "STRING", "BOOL", "STRUCT", "I64"]
    assert [row[1] for row in fields] == types
    assert [row[3] for row in fields] == ["field"] * 4 + ["key", "value", "field", "field"]
    first, second = parse_lines(
        run("scan", capture_file, "--format", "thrift.infos", "--limit", 2, "--json")
    )
    assert (first["kind"], first["key"], first["value"]) == ("PKEYVALUE", "client", "1")
    assert (second["kind"], second["key"], second["value"]) == ("KEYVALUE", "key 0", "x")


def test_numbers_that_json_cannot_hold(tmp_path):
    path = tmp_path / "one.theader"
    numbers = [float("nan"), float("inf"), 1.5]
    path.write_bytes(
        make_framed(make_message(arguments=struct.pack(">BhBi3dB", 15, 1, 4, 3, *numbers, 0)))
    )
    options = ("--json", "--columns", "real,value", "--encoding", "hex")
    result = run("scan", path, "--format", "thrift.fields", *options)
    assert [row["real"] for row in parse_lines(result)] == [0, "NaN", "Infinity", 1.5]
    assert parse_lines(result)[2]["value"] == "7ff0000000000000"
    text = run("scan", path, "--format", "thrift.fields", "--columns", "real").stdout
    assert text.split() == ["real", "0.0", "nan", "inf", "1.5"]


def test_stat_counts_kinds(capture_file):
    result = run("stat", capture_file, "--format", "thrift.frames", "--json")
    total = json.loads(result.stdout)["total"]
    assert total["frames"] == COUNT
    assert total["kinds"] == KINDS
    assert "messages" not in total
    assert total["frame_bytes"] == total["bytes"] == capture_file.stat().st_size
    deep = json.loads(
        run("stat", capture_file, "--format", "thrift.messages", "--deep", "--json").stdout
    )["total"]
    assert deep == total | {"messages": TYPES}
    text = run("stat", capture_file, "--format", "thrift.fields", "--deep").stdout
    assert "kinds         BIG_HEADER: 10, DOUBLE_HEADER: 10" in text
    assert "messages      CALL: 28, EXCEPTION: 27" in text


def test_stat_counts_faults(damaged):
    path, _ = damaged
    for deep, faults in (
        (False, {"BAD_CODEC", "BAD_HEADER"}),
        (True, {"BAD_CODEC", "BAD_HEADER", "BAD_COMPRESSION", "BAD_KIND"}),
    ):
        result = run("stat", path, "--format", "thrift.frames", "--json", *["--deep"] * deep)
        assert result.exit_code == 1
        assert set(json.loads(result.stdout)["total"]["faults"]) == faults


def test_verify_finds_the_damage(capture_file, damaged):
    path, starts = damaged
    expected = [
        (at, fault.name, inside) for at, (_, fault, inside) in zip(starts, DAMAGED) if fault
    ]
    for format in FORMATS:
        assert run("verify", capture_file, "--format", format).exit_code == 0
        result = run("verify", path, "--format", format, "--json")
        findings = [
            (finding["offset"], finding["fault"], finding.get("inside"))
            for finding in parse_lines(result)
            if finding["kind"] == "damage"
        ]
        assert sorted(findings, key=str) == sorted(expected, key=str)
        assert result.exit_code == 1
        total = parse_lines(result)[-1]
        assert (total["frames"], total["damage"]) == (6, len(expected))
    text = run("verify", path, "--format", "thrift.frames")
    assert f"byte {starts[1]}, {len(DAMAGED[1][0])} bytes: BAD_CODEC" in text.stdout
    assert text.exit_code == 1


@pytest.mark.parametrize("format", FORMATS)
def test_convert_writes_all_rows(capture_file, tmp_path, format):
    out = tmp_path / "out"
    result = run("convert", capture_file, out, "--format", format)
    assert result.exit_code == 0, result.stderr
    batch = to_arrow.to_batch(scan_and_mark(capture_file, format), types="spark")
    assert pq.read_table(out).equals(pa.Table.from_batches([batch]))


def test_convert_reports_the_commonest_methods(capture_file, tmp_path):
    result = run("convert", capture_file, tmp_path / "out", "--format", "thrift.messages", "--json")
    commonest = json.loads(result.stdout)["query"]["commonest"]
    assert commonest == {"column": "method", "values": [["add", 73], ["ping", 37]]}


def test_convert_of_damage_follows_the_mode(damaged, tmp_path):
    path, _ = damaged

    def converted(format, errors):
        out = tmp_path / f"{format}.{errors}"
        return run("convert", path, out, "--format", format, "--errors", errors).exit_code, out

    for format in ("thrift.frames", "thrift.messages", "thrift.fields"):
        assert converted(format, "strict")[0] == 1
    code, out = converted("thrift.frames", "skip")
    kinds = ["HEADER", "FRAMED_BINARY", "HEADER", *["FRAMED_BINARY"] * 3]
    assert code == 0
    assert pq.read_table(out)["kind"].to_pylist() == kinds
    code, out = converted("thrift.frames", "mark")
    marked = pq.read_table(out)
    assert code == 1
    assert marked["fault"].to_pylist() == [None, "BAD_CODEC", None, "BAD_HEADER", *[None] * 4]
    assert marked["transform_0"].to_pylist()[1] == Transform.CUSTOM
    code, out = converted("thrift.messages", "skip")
    assert code == 0
    assert pq.read_table(out)["method"].to_pylist() == [b"add"] * 4
    code, out = converted("thrift.fields", "mark")
    faults = pq.read_table(out)["fault"].to_pylist()
    assert code == 1
    assert {"BAD_CODEC", "BAD_COMPRESSION", "BAD_COUNT", "BAD_KIND"} < set(faults)


def test_scan_of_damage_follows_the_mode(damaged):
    path, starts = damaged
    for format in ("thrift.frames", "thrift.messages", "thrift.fields"):
        assert run("scan", path, "--format", format, "--errors", "strict").exit_code == 1
        assert run("scan", path, "--format", format, "--errors", "skip").exit_code == 0
    result = run("scan", path, "--format", "thrift.frames", "--json")
    assert result.exit_code == 1
    assert [row["_start"] for row in parse_lines(result)] == starts
    faults = [row["fault"] for row in parse_lines(result)]
    assert faults == [None, "BAD_CODEC", None, "BAD_HEADER", *[None] * 4]
    assert "BAD_CODEC, unknown compression codec" in result.stderr


def test_infos_beside_an_unknown_transform(damaged):
    path, _ = damaged
    rows = parse_lines(run("scan", path, "--format", "thrift.frames", "--json"))
    infos = [{"key": "k", "value": "v"}]
    assert [row["infos"] for row in rows] == [infos, infos, [], None, *[[]] * 4]
    assert "BAD_CODEC" not in run("scan", path, "--format", "thrift.infos").stderr


def test_files_of_a_directory(capture_file):
    (capture_file.parent / "notes.txt").write_text("no capture")
    (capture_file.parent / "_being-written.theader").write_bytes(b"?")
    result = run(
        "scan", capture_file.parent, "--format", "thrift.frames", "--json", "--columns", "_file"
    )
    assert {row["_file"] for row in parse_lines(result)} == {str(capture_file)}
    assert len(parse_lines(result)) == COUNT
    capture_file.unlink()
    assert run("scan", capture_file.parent, "--format", "thrift.frames").exit_code == 2


def test_files_of_another_format(capture_file):
    for path, message in (
        (capture_file, "the files are read as kafka.batches"),
        (capture_file.parent, "no file to read"),
    ):
        result = run("stat", path, "--format", "kafka.batches")
        assert message in result.stderr
        assert "they may hold thrift.frames (--format)" in result.stderr
    assert not run("stat", capture_file, "--format", "thrift.frames").stderr


def test_scan_reports_tails_and_garbage(tmp_path, capture_file):
    whole, cut = capture_file.read_bytes(), tmp_path / "cut.theader"
    cut.write_bytes(whole + make_frame(make_message())[:-5])
    result = run("scan", cut, "--format", "thrift.messages", "--json")
    assert result.exit_code == 0
    assert "cut frame" in result.stderr
    assert len(parse_lines(result)) == COUNT
    assert run("verify", cut, "--format", "thrift.messages").exit_code == 1
    cut.write_bytes(make_framed(make_message()) + b"\xff" * 40)
    result = run("scan", cut, "--format", "thrift.frames", "--json")
    assert result.exit_code == 1
    assert [row["fault"] for row in parse_lines(result)] == [None, "NOT_A_FRAME"]
    assert [row["kind"] for row in parse_lines(result)] == [Kind.FRAMED_BINARY.name, None]


def test_protocols_that_are_not_parsed(tmp_path):
    path = tmp_path / "json.theader"
    path.write_bytes(make_frame(b'[1,"add",1,0,{}]', Protocol.JSON))
    assert " json " in run("scan", path, "--format", "thrift.frames").stdout
    result = run("scan", path, "--format", "thrift.messages", "--json")
    assert result.exit_code == 1
    assert [row["fault"] for row in parse_lines(result)] == ["BAD_KIND"]


# --- options

IDL = """
struct Work { 1: i32 number, 2: string name, 3: list<double> parts, 4: map<string, bool> flags }
service Calc { i32 add(1: i32 number, 2: string name), i32 ping() }
"""


@pytest.fixture
def non_strict_file(tmp_path):
    """Calls of old clients, framed and unframed: they do not begin with a version."""
    path = tmp_path / "old.theader"
    call = (
        struct.pack(">i", 3)
        + b"add"
        + struct.pack(">Bi", MessageType.CALL, 7)
        + make_binary_struct(5, b"name")
    )
    path.write_bytes((make_framed(call) + call) * 20)
    return path


def test_binary_without_a_version(non_strict_file, tmp_path):
    options = ("--format", "thrift.messages", "--non-strict")
    assert run("scan", non_strict_file, "--format", "thrift.messages").exit_code == 1
    rows = parse_lines(run("scan", non_strict_file, *options, "--json"))
    assert [(row["method"], row["seqid"], row["strict"]) for row in rows] == [("add", 7, 0)] * 40
    format = "thrift.messages?non_strict=true"
    assert len(parse_lines(run("scan", non_strict_file, "--format", format, "--json"))) == 40
    assert run("verify", non_strict_file, *options).exit_code == 0
    total = json.loads(run("stat", non_strict_file, *options, "--deep", "--json").stdout)["total"]
    assert total["kinds"] == {"FRAMED_BINARY": 20, "UNFRAMED_BINARY": 20}
    assert total["messages"] == {"CALL": 40}
    result = run("convert", non_strict_file, tmp_path / "out", *options)
    assert result.exit_code == 0
    assert pq.read_table(tmp_path / "out")["method"].to_pylist() == [b"add"] * 40
    result = run("scan", non_strict_file, "--non-strict", "--json")  # found by the file's name
    assert [row["method"] for row in parse_lines(result)] == ["add"] * 40


def test_an_index_of_binary_without_a_version_is_its_own(tmp_path, non_strict_file):
    non_strict_file.write_bytes(non_strict_file.read_bytes() * 1000)
    result = run("index", non_strict_file, "--format", "thrift.frames", "--non-strict")
    assert result.exit_code == 0
    assert "4 starts" in result.stdout
    assert len(sidecar.read(non_strict_file, "thrift.messages?non_strict=true")) == 4
    assert sidecar.read(non_strict_file, "thrift.frames") is None


def test_an_idl_names_fields(tmp_path, capture_file):
    pytest.importorskip("thriftpy2")
    idl = tmp_path / "calc.thrift"
    idl.write_text(IDL)
    options = ("--format", "thrift.fields", "--idl", idl)
    table = thrift.fields(thrift.messages(thrift.scan(capture_file)), idl=idl)
    expected = [name.decode() or None for name in table["name"].tolist()]
    assert expected.count("number") > 20
    assert [
        row["name"] for row in parse_lines(run("scan", capture_file, *options, "--json"))
    ] == expected
    first = parse_lines(run("scan", capture_file, *options, "--limit", 3, "--json"))
    assert [row["name"] for row in first] == expected[:3]
    text = run("scan", capture_file, *options).stdout.splitlines()
    assert text[0].split()[4:6] == ["name", "id"]
    assert [row.split()[4] for row in text[1:]] == [name or "-" for name in expected]
    assert run("convert", capture_file, tmp_path / "out", *options).exit_code == 0
    assert pq.read_table(tmp_path / "out")["name"].to_pylist() == expected


@pytest.fixture
def calculator(tmp_path):
    """A capture of the tutorial's calculator, its IDL, and the folder of a file that it includes.

    The path of the IDL does not say where that file is.
    """
    pytest.importorskip("thrift")
    pytest.importorskip("thriftpy2")
    from tests.support.thrift_calculator import CALCULATOR_IDL, SHARED_IDL, write_capture

    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "shared.thrift").write_text(SHARED_IDL)
    (tmp_path / "tutorial.thrift").write_text(CALCULATOR_IDL)
    (tmp_path / "calls.bin").write_bytes(write_capture("compact, THeader"))
    return tmp_path


def test_scan_shows_calls_as_text(calculator):
    from tests.support.thrift_calculator import CASES

    path = calculator / "calls.bin"
    lines = run("scan", path).stdout.splitlines()
    assert lines[0].split() == ["_start", "kind", "seqid", "protocol", "call"]
    assert [line.split("compact")[1].strip() for line in lines[1:]] == [case.text for case in CASES]
    options = ("--idl", calculator / "tutorial.thrift", "--idl-include", calculator / "common")
    lines = run("scan", path, *options).stdout.splitlines()
    assert [line.split("compact")[1].strip() for line in lines[1:]] == [
        case.named for case in CASES
    ]


def test_the_column_call_is_written_on_request(calculator):
    from tests.support.thrift_calculator import CASES

    path = calculator / "calls.bin"
    folders = f"{calculator / 'no'}{os.pathsep}{calculator / 'common'}"
    idl = ("--idl", calculator / "tutorial.thrift", "--idl-include", folders)
    texts, named = [case.text for case in CASES], [case.named for case in CASES]
    assert "call" not in parse_lines(run("scan", path, "--json"))[0]
    formats = {row["name"]: row for row in parse_lines(run("formats", "--json"))}
    assert formats["thrift.messages"]["computed"] == ["call"]
    rows = parse_lines(run("scan", path, "--json", "--columns", "method,call"))
    assert [row["call"] for row in rows] == texts
    assert [row["call"] for row in parse_lines(run("scan", path, "--json", *idl))] == named
    table = pa.ipc.open_stream(
        run("scan", path, "--arrow", "--columns", "call").stdout_bytes
    ).read_all()
    assert table["call"].to_pylist() == texts
    text = run("scan", path, "--csv", "--columns", "call", *idl, "--limit", 3).stdout
    assert text.splitlines() == ["call", "ping()", "ping -> void", '"add(num1: 17, num2: -4)"']
    condition = ("--where", 'call contains "raised InvalidOperation"', "--columns", "seqid")
    assert run("scan", path, *idl, *condition).stdout.split() == ["seqid", "5"]
    assert run("convert", path, calculator / "out", *idl).exit_code == 0
    assert pq.read_table(calculator / "out")["call"].to_pylist() == named


def test_an_idl_with_a_missing_include(calculator):
    result = run("scan", calculator / "calls.bin", "--idl", calculator / "tutorial.thrift")
    message = " ".join(result.stderr.split())
    assert result.exit_code == 2
    assert "the included file shared.thrift is neither beside it nor" in message
    fields = ("--format", "thrift.fields", "--idl", calculator / "tutorial.thrift")
    include = ("--idl-include", calculator / "common")
    assert run("scan", calculator / "calls.bin", *fields).exit_code == 2
    rows = parse_lines(run("scan", calculator / "calls.bin", *fields, *include, "--json"))
    assert [row["name"] for row in rows][:3] == ["num1", "num2", "logid"]


@pytest.mark.parametrize(
    "text, problem",
    [
        (
            "struct P {\n  1: i32 x\n  2: i32\n}",
            "line 4, character 1: '}' is not expected; expected '(' or ',' or '>' or a name",
        ),
        ("service S { void f(1: i32 a", "the file ends too early; expected"),
        ("enum E {\n  A = x }", "line 2, character 7: 'x' is not expected; expected an integer"),
        ("struct P { 1: i32 5 }", "line 1, character 19: 5 is not expected; expected"),
        ("struct P { 1: Nowhere x }", "No type found: 'Nowhere', at line 1"),
        ('include "broken.thrift"', "line 1 of the included file"),
    ],
)
def test_an_idl_that_cannot_be_parsed(capture_file, text, problem):
    pytest.importorskip("thriftpy2")
    path = capture_file.parent / "bad.thrift"
    path.write_text(text)
    (capture_file.parent / "broken.thrift").write_text("struct }")
    for format in ("thrift.messages", "thrift.fields"):
        result = run("scan", capture_file, "--format", format, "--idl", path)
        message = " ".join(result.stderr.split())
        assert result.exit_code == 2
        assert "Invalid value for --idl" in message
        assert "bad.thrift cannot be parsed: " + problem in message


def test_verbs_have_the_options_that_formats_declare(monkeypatch, capture_file):
    """An option with a name of two words and a text, of a format of another package."""

    def show_column(format, name):
        return replace(format, display=Display(shown=(name,)))

    assert "--only-column" not in run("scan", "--help").stdout
    option = FormatOption("only_column", str, "Outside: show this column.", show_column)
    declared = replace(wirescan.formats()["thrift.frames"], name="out.side", accepts=(option,))
    monkeypatch.setitem(registry.load_formats(), "out.side", declared)
    assert "--only-column" not in run("scan", "--help").stdout
    monkeypatch.delitem(vars(scan_command), "_declared_options")  # it is cached
    text = " ".join(run("scan", "--help").stdout.split())
    assert "--only-column TEXT Outside: show this column." in text
    options = ("--format", "out.side", "--only-column", "seq")
    assert run("scan", capture_file, *options).stdout.split()[0] == "seq"
    options = ("--format", "nats.messages", "--only-column", "seq")
    result = run("scan", capture_file, *options)
    assert result.exit_code == 2
    assert "nats.messages has no option 'only_column'; it has none" in result.stderr


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (
            ["--format", "thrift.frames", "--idl", "x"],
            "thrift.frames has no option 'idl', only non_strict",
        ),
        (["--format", "thrift.fields", "--idl", "no such file"], "no such file or directory"),
        (
            ["--format", "thrift.fields?non_strict=perhaps"],
            "non_strict must be true or false, not 'perhaps'",
        ),
        (["--format", "thrift.fields?non_strict"], "written as option=value"),
        (
            ["--format", "thrift.fields?x=1"],
            "thrift.fields has no option 'x', only non_strict, idl_include, idl",
        ),
        (
            ["--format", "thrift.fields?non_strit=true"],
            "thrift.fields has no option 'non_strit'; did you mean non_strict?",
        ),
        (
            ["--format", "kafka.requests?keylogs=x"],
            "kafka.requests has no option 'keylogs'; did you mean keylog?",
        ),
        (["--format", "thrift.lists?x=1"], "no format 'thrift.lists'"),
    ],
)
def test_unfit_options_are_refused(capture_file, arguments, expected):
    pytest.importorskip("thriftpy2")
    result = run("scan", capture_file, *arguments)
    assert result.exit_code == 2
    assert expected in " ".join(result.stderr.split())


def test_max_frame_limits_every_verb(tmp_path):
    path = tmp_path / "large.theader"
    path.write_bytes(
        make_framed(make_message())
        + make_framed(make_message(arguments=make_binary_struct(1, bytes(3000))))
    )
    options = ("--format", "thrift.messages", "--max-frame")
    for verb, *more in (["scan"], ["stat"], ["verify"], ["convert", tmp_path / "out"]):
        assert run(verb, path, *more, *options, 5000).exit_code == 1, verb
        overwrite = ["--overwrite"] if more else []
        assert run(verb, path, *more, *options, 7000, *overwrite).exit_code == 0, verb
    result = run("scan", path, *options, 5000)
    assert "BAD_LENGTH" in result.stderr
