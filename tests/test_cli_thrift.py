"""The command line on captures of Thrift."""
from __future__ import annotations

import json
import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_cli import lines, run
from thrift_bytes import binary, binary_struct, capture, frame, framed

import wirescan
from wirescan import Fault, arrow
from wirescan.thrift.kind import Kind, MessageType, Protocol, Transform

FORMATS = [name for name in wirescan.formats() if name.startswith("thrift.")]
COUNT = 110
KINDS = {"BIG_HEADER": 10, "DOUBLE_HEADER": 10, "FRAMED_BINARY": 10, "FRAMED_COMPACT": 10, "HEADER": 30, "HTTP": 10,
         "HTTP_CHUNKED": 10, "UNFRAMED_BINARY": 10, "UNFRAMED_COMPACT": 10}
TYPES = {"CALL": 28, "EXCEPTION": 27, "ONEWAY": 27, "REPLY": 28}


@pytest.fixture
def taken(tmp_path):
    path = tmp_path / "taken.theader"
    path.write_bytes(capture(0, COUNT))
    return path


def message(kind=MessageType.CALL, arguments=b"\0"):
    return binary(b"add", kind, 1, arguments)


# What is bad in each frame, and in what of it that is found: the frame, its message, a list in a struct of that.
DAMAGED = [
    (frame(message(arguments=binary_struct(1, b"one")), infos=[(b"k", b"v")]), None, None),
    (frame(b"?", transforms=[Transform.CUSTOM], infos=[(b"k", b"v")]), Fault.BAD_CODEC, None),
    (framed(message()), None, None),
    (framed(struct.pack(">HHIH", 0x0FFF, 0, 0, 9) + bytes(8)), Fault.BAD_HEADER, None),
    (frame(b"no stream", transforms=[Transform.ZSTD]), Fault.BAD_COMPRESSION, "thrift.messages"),
    (framed(message(9)), Fault.BAD_KIND, "thrift.messages"),
    (framed(message(arguments=struct.pack(">BhBhBi", 12, 1, 15, 1, 10, 99))), Fault.BAD_COUNT, "thrift.fields"),
    (framed(message()), None, None)]


@pytest.fixture
def damaged(tmp_path):
    """Good and bad frames, and where each begins."""
    path = tmp_path / "damaged.theader"
    path.write_bytes(b"".join(one for one, _, _ in DAMAGED))
    return path, [sum(len(one) for one, _, _ in DAMAGED[:i]) for i in range(len(DAMAGED))]


def frames(path, format):
    return wirescan.scan(path, format, errors="mark")


@pytest.mark.parametrize("format", FORMATS)
def test_scan_gives_every_row_in_text_and_json(taken, format):
    table = frames(taken, format)
    assert len(table) > 80 and not table.bad.any()
    text, found = run("scan", taken, "--format", format), lines(run("scan", taken, "--format", format, "--json"))
    assert text.exit_code == 0 and len(text.stdout.splitlines()) == len(table) + 1
    assert list(found[0]) == ["_file", "_start", *arrow.columns_of(format)]
    assert [row["_start"] for row in found] == table.positions.tolist()
    assert [row["kind"] for row in found] == [table.format.kinds[kind] for kind in table["kind"].tolist()]
    for name in set(found[0]) & set(table.dtype.names) - {"fault", "kind"}:
        assert [row[name] for row in found] == table[name].tolist(), name


def test_numbers_have_names_in_text(taken):
    first, second, _, fourth = run("scan", taken, "--format", "thrift.frames", "--limit", 4).stdout.splitlines()[1:]
    assert first.split() == ["0", "54", "HEADER", "0", "compact", "none"]
    assert second.split() == ["54", "125", "HEADER", "1", "binary", "none", "client=1", "key", "0=x"]
    assert fourth.split()[4:6] == ["binary", "zlib"]
    first = run("scan", taken, "--format", "thrift.messages", "--limit", 1).stdout.splitlines()[1]
    assert first.split()[:6] == ["0", "CALL", "0", "compact", "-", "ping"]
    fields = run("scan", taken, "--format", "thrift.fields", "--limit", 8).stdout.splitlines()[1:]
    assert [row.split()[1] for row in fields] == ["I32", "STRING", "LIST", "MAP", "STRING", "BOOL", "STRUCT", "I64"]
    assert [row.split()[3] for row in fields] == ["field"] * 4 + ["key", "value", "field", "field"]
    infos = lines(run("scan", taken, "--format", "thrift.infos", "--limit", 2, "--json"))
    assert [(row["kind"], row["key"], row["value"]) for row in infos] == [
        ("PKEYVALUE", "client", "1"), ("KEYVALUE", "key 0", "x")]


def test_numbers_that_json_has_not(tmp_path):
    path = tmp_path / "one.theader"
    numbers = [float("nan"), float("inf"), 1.5]
    path.write_bytes(framed(message(arguments=struct.pack(">BhBi3dB", 15, 1, 4, 3, *numbers, 0))))
    result = run("scan", path, "--format", "thrift.fields", "--json", "--columns", "real,value", "--encoding", "hex")
    assert [row["real"] for row in lines(result)] == [0, None, None, 1.5]
    assert lines(result)[2]["value"] == "7ff0000000000000"
    assert run("scan", path, "--format", "thrift.fields", "--columns", "real").stdout.split() == [
        "real", "0.0", "nan", "inf", "1.5"]


def test_stat(taken):
    total = json.loads(run("stat", taken, "--format", "thrift.frames", "--json").stdout)["total"]
    assert total["frames"] == COUNT and total["kinds"] == KINDS and "messages" not in total
    assert total["frame_bytes"] == total["bytes"] == taken.stat().st_size
    deep = json.loads(run("stat", taken, "--format", "thrift.messages", "--deep", "--json").stdout)["total"]
    assert deep == total | {"messages": TYPES}
    text = run("stat", taken, "--format", "thrift.fields", "--deep").stdout
    assert "kinds         BIG_HEADER: 10, DOUBLE_HEADER: 10" in text and "messages      CALL: 28, EXCEPTION: 27" in text


def test_stat_of_damage(damaged):
    path, _ = damaged
    for deep, faults in ((False, {"BAD_CODEC", "BAD_HEADER"}),
                         (True, {"BAD_CODEC", "BAD_HEADER", "BAD_COMPRESSION", "BAD_KIND"})):
        result = run("stat", path, "--format", "thrift.frames", "--json", *["--deep"] * deep)
        assert result.exit_code == 1 and set(json.loads(result.stdout)["total"]["faults"]) == faults


def test_verify(taken, damaged):
    path, starts = damaged
    want = [(at, fault.name, inside) for at, (_, fault, inside) in zip(starts, DAMAGED) if fault]
    for format in FORMATS:
        assert run("verify", taken, "--format", format).exit_code == 0
        result = run("verify", path, "--format", format, "--json")
        found = [(one["offset"], one["fault"], one.get("inside")) for one in lines(result) if one["kind"] == "damage"]
        assert sorted(found, key=str) == sorted(want, key=str) and result.exit_code == 1
        total = lines(result)[-1]
        assert (total["frames"], total["damage"]) == (6, len(want))
    text = run("verify", path, "--format", "thrift.frames")
    assert f"byte {starts[1]:,}, {len(DAMAGED[1][0])} bytes: BAD_CODEC" in text.stdout and text.exit_code == 1


@pytest.mark.parametrize("format", FORMATS)
def test_convert(taken, tmp_path, format):
    out = tmp_path / "out"
    result = run("convert", taken, out, "--format", format)
    assert result.exit_code == 0, result.stderr
    assert pq.read_table(out).equals(pa.Table.from_batches([arrow.to_batch(frames(taken, format), types="spark")]))


def test_the_commonest_methods(taken, tmp_path):
    result = run("convert", taken, tmp_path / "out", "--format", "thrift.messages", "--json")
    commonest = json.loads(result.stdout)["query"]["commonest"]
    assert commonest == {"column": "method", "values": [["add", 73], ["ping", 37]]}


def test_convert_of_damage(damaged, tmp_path):
    path, _ = damaged
    def converted(format, errors):
        out = tmp_path / f"{format}.{errors}"
        return run("convert", path, out, "--format", format, "--errors", errors).exit_code, out
    for format in ("thrift.frames", "thrift.messages", "thrift.fields"):
        assert converted(format, "strict")[0] == 1
    code, out = converted("thrift.frames", "skip")
    kinds = ["HEADER", "FRAMED_BINARY", "HEADER", *["FRAMED_BINARY"] * 3]
    assert code == 0 and pq.read_table(out)["kind"].to_pylist() == kinds
    code, out = converted("thrift.frames", "mark")
    kept = pq.read_table(out)
    assert code == 1 and kept["fault"].to_pylist() == [0, Fault.BAD_CODEC, 0, Fault.BAD_HEADER, 0, 0, 0, 0]
    assert kept["transform_0"].to_pylist()[1] == Transform.CUSTOM
    code, out = converted("thrift.messages", "skip")
    assert code == 0 and pq.read_table(out)["method"].to_pylist() == [b"add"] * 4
    code, out = converted("thrift.fields", "mark")
    faults = pq.read_table(out)["fault"].to_pylist()
    assert code == 1 and {Fault.BAD_CODEC, Fault.BAD_COMPRESSION, Fault.BAD_COUNT, Fault.BAD_KIND} < set(faults)


def test_scan_of_damage(damaged):
    path, starts = damaged
    for format in ("thrift.frames", "thrift.messages", "thrift.fields"):
        assert run("scan", path, "--format", format, "--errors", "strict").exit_code == 1
        assert run("scan", path, "--format", format, "--errors", "skip").exit_code == 0
    result = run("scan", path, "--format", "thrift.frames", "--json")
    assert result.exit_code == 1 and [row["_start"] for row in lines(result)] == starts
    assert [row["fault"] for row in lines(result)] == [None, "BAD_CODEC", None, "BAD_HEADER", *[None] * 4]
    assert "BAD_CODEC, unknown compression codec" in result.stderr


def test_files_of_a_directory(taken):
    (taken.parent / "notes.txt").write_text("no capture")
    (taken.parent / "_being-written.theader").write_bytes(b"?")
    result = run("scan", taken.parent, "--format", "thrift.frames", "--json", "--columns", "_file")
    assert {row["_file"] for row in lines(result)} == {str(taken)} and len(lines(result)) == COUNT
    taken.unlink()
    assert run("scan", taken.parent, "--format", "thrift.frames").exit_code == 2


def test_files_of_another_format(taken):
    for path, said in ((taken, "these are read as kafka.batches"), (taken.parent, "no file to read")):
        result = run("stat", path)
        assert said in result.stderr and "they may hold thrift.frames (--format)" in result.stderr
    assert not run("stat", taken, "--format", "thrift.frames").stderr


def test_tails_and_garbage(tmp_path, taken):
    whole, cut = taken.read_bytes(), tmp_path / "cut.theader"
    cut.write_bytes(whole + frame(message())[:-5])
    result = run("scan", cut, "--format", "thrift.messages", "--json")
    assert result.exit_code == 0 and "cut frame" in result.stderr and len(lines(result)) == COUNT
    assert run("verify", cut, "--format", "thrift.messages").exit_code == 1
    cut.write_bytes(framed(message()) + b"\xff" * 40)
    result = run("scan", cut, "--format", "thrift.frames", "--json")
    assert result.exit_code == 1 and [row["fault"] for row in lines(result)] == [None, "NOT_A_FRAME"]
    assert [row["kind"] for row in lines(result)] == [Kind.FRAMED_BINARY.name, None]


def test_protocols_that_are_not_opened(tmp_path):
    path = tmp_path / "json.theader"
    path.write_bytes(frame(b'[1,"add",1,0,{}]', Protocol.JSON))
    assert " json " in run("scan", path, "--format", "thrift.frames").stdout
    result = run("scan", path, "--format", "thrift.messages", "--json")
    assert result.exit_code == 1 and [row["fault"] for row in lines(result)] == ["BAD_KIND"]
