"""`wirescan scan --template`: each letter of kcat, and columns by name."""

import json
import os

import crc32c
import pytest

from tests.support.command import run
from tests.support.paths import CORPUS, ORDERS
from wirescan.cli.support.template import find_place
from wirescan.kafka import Record, encode_batch

RECORDS = [
    Record(7, 1_700_000_000_001, b"k\xff", b"v\n", [("a", b"1"), ("b", None), ("a", b"\0")]),
    Record(8, -1, None, None, []),
    Record(9, 0, b"", b"", []),
]


@pytest.fixture
def segment(tmp_path):
    folder = tmp_path / "a-topic-12"
    folder.mkdir()
    (folder / f"{7:020}.log").write_bytes(encode_batch(RECORDS))
    return folder


def render(source, template, *options):
    result = run("scan", source, "--template", template, *options)
    assert result.exit_code == 0, result.output
    return result.stdout_bytes


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("%o,", b"7,8,9,"),
        ("%k|", b"k\xff|||"),
        ("%s|", b"v\n|||"),
        ("%v|", b"v\n|||"),
        ("%K %S;", b"2 2;-1 -1;0 0;"),
        ("%R", b"\0\0\0\2\xff\xff\xff\xff\0\0\0\0"),
        ("%T,", b"1700000000001,-1,0,"),
        ("%h|", b"a=1,b=,a=\0|||"),
        ("%t[%p] ", b"a-topic[12] " * 3),
        (r"%%\n\t\r\x41\x7e\0\\", b"%\n\t\rA~\0\\" * 3),
        ("%{codec}/%{is_control} ", b"none/false " * 3),
        ("%{base_offset} é", "7 é".encode() * 3),
        ("%{key}|", b"k\xff|||"),
        ("%{timestamp} ", b"1700000000001  0 "),
        ("", b""),
    ],
)
def test_each_letter(segment, template, expected):
    assert render(segment, template) == expected


def test_another_text_for_null(segment):
    template = "%k %s %h %{timestamp}|"
    assert render(segment, template, "--null", "NULL") == (
        b"k\xff v\n a=1,b=NULL,a=\0 1700000000001|NULL NULL  NULL|   0|"
    )


def test_the_rows_of_json(tmp_path):
    out = tmp_path / "out.txt"
    result = run("scan", ORDERS, "--template", r"%o\t%k\t%s\n", "-o", out)
    assert result.exit_code == 0
    lines = out.read_text().split("\n")
    rows = [json.loads(line) for line in run("scan", ORDERS, "--json").stdout.splitlines()]
    expected = [f"{row['offset']}\t{row['key'] or ''}\t{row['value'] or ''}" for row in rows]
    assert lines == [*expected, ""]


def test_other_formats():
    source = sorted((CORPUS / "liftbridge").glob("**/00000000000000000000.log"))[0]
    rows = run("scan", source, "--format", "liftbridge.entries", "--json").stdout.splitlines()
    times = [json.loads(row)["timestamp"] for row in rows]
    text = render(source, r"%T\n", "--format", "liftbridge.entries").decode()
    assert text.split() == [str(-1 if time is None else time // 10**6) for time in times]
    source = sorted((CORPUS / "nats").glob("**/*.bin"))[0]
    rows = run("scan", source, "--format", "nats.messages", "--json").stdout.splitlines()
    kinds = render(source, "%{kind} ", "--format", "nats.messages").decode().split()
    assert kinds == [json.loads(row)["kind"] for row in rows]


def test_bad_frames_are_written_with_their_fault_only(segment):
    (path,) = segment.iterdir()
    damaged = bytearray(encode_batch([Record(1)]) + encode_batch([Record(2)]))
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    for template, output in (("%o ", "1 "), ("%o:%{fault} ", "1: :BAD_CHECKSUM ")):
        result = run("scan", path, "--template", template)
        assert result.exit_code == 1
        assert result.stdout == output
        assert "1 bad frame: BAD_CHECKSUM" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--template", "%o %q"], "character 4: there is no letter %q; there are %s %v"),
        (["--template", "ab%"], "character 3: % is not understood"),
        (["--template", r"\q"], "character 1: \\q is not understood"),
        (["--template", r"\x4"], "character 1: \\x is not understood"),
        (["--template", "%{codek}"], "kafka.records has no column 'codek'; did you mean codec?"),
        (["--template", "%{"], "character 1: %{ is not understood"),
        (["--template", "%o", "--json"], "--json and --template exclude each other"),
        (["--template", "%o", "-o", "x.parquet"], "x.parquet is a name for parquet"),
        (["--null", "-"], "--null needs --template"),
        (["--template", "%s", "--format", "kafka.batches"], "kafka.batches has no column 'value'"),
        (
            ["--template", "%T", "--format", "kafka.list_offsets_request.partitions"],
            "is not what %T writes; use %{timestamp}",
        ),
        (
            ["--template", "%h", "--format", "liftbridge.headers"],
            "column headers of liftbridge.headers is not what %h writes",
        ),
    ],
)
def test_templates_that_are_refused(segment, options, message):
    result = run("scan", segment, *options)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/d/a-b-3/0.log", ("a-b", "3")),
        ("/d/stream/7/0.log", ("stream", "7")),
        ("/d/x/0.log", ("", "")),
        ("/d/-1/0.log", ("", "1")),
        ("-", ("", "")),
    ],
)
def test_a_place_is_found_by_the_directory(path, place):
    assert find_place(path) == place


def test_a_name_that_is_not_utf8(tmp_path):
    folder = os.fsencode(tmp_path) + b"/t\xff-1"
    os.mkdir(folder)
    path = os.fsdecode(folder + b"/0.log")
    with open(path, "wb") as file:
        file.write(encode_batch([Record(0)]))
    assert render(path, "%t") == b"t\xff"


def test_text_names_the_files_when_there_are_several(tmp_path):
    paths = [tmp_path / name for name in ("0.log", "1.log", "2.log")]
    for number, path in enumerate(paths):
        path.write_bytes(encode_batch([Record(number)]) if number != 1 else b"")
    lines = run("scan", *paths, "--columns", "offset").stdout.splitlines()
    assert lines == ["offset", f"==> {paths[0]} <==", "     0", f"==> {paths[2]} <==", "     2"]
    assert run("scan", paths[0], "--columns", "offset").stdout.splitlines() == ["offset", "     0"]


def make_control_batch(offset, key):
    batch = bytearray(encode_batch([Record(offset, key=key, value=b"\0\0\0\0\0\0")]))
    batch[22] |= 0x30  # a transactional control batch
    batch[17:21] = crc32c.crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


def test_control_records_have_names_in_text(tmp_path):
    keys = [b"\0\0\0\0", b"\0\0\0\1", b"\0\0\0\5", b"\0\0\xff\xfe", b"\0\0\0", None]
    batches = [make_control_batch(offset, key) for offset, key in enumerate(keys)]
    path = tmp_path / "0.log"
    path.write_bytes(b"".join(batches) + encode_batch([Record(6, key=b"\0\0\0\1")]))
    rows = run("scan", path, "--columns", "offset,key").stdout.splitlines()[1:]
    names = [line.split(maxsplit=1)[1] for line in rows]
    ordinary = [r"\x00\x00\x00", "-", r"\x00\x00\x00\x01"]
    assert names == ["ABORT", "COMMIT", "KRAFT_VERSION", "control type 65534", *ordinary]
    rows = [json.loads(line) for line in run("scan", path, "--json").stdout.splitlines()]
    assert [row["key"] for row in rows][:2] == ["\0\0\0\0", "\0\0\0\1"]
