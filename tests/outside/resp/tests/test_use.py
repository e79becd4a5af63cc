"""Everything that reads a format by its name works with RESP: streams, exports, the command."""

import json
import pickle
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet

import wirescan
import wirescan_resp as resp
from wirescan import FrameError, FrameTable
from wirescan.cli.main import main
from wirescan.export.parquet import convert
from wirescan.reading.splits import plan

COMMANDS = resp.encode_commands(
    "SET", [b"key %d" % i for i in range(1000)], [b"value %d" % i for i in range(1000)]
)


def run(*arguments, exit_code=0):
    """Run the command `wirescan`, and return its output."""
    result = CliRunner().invoke(main, list(map(str, arguments)))
    assert result.exit_code == exit_code, result.output
    return result.stdout


def run_python(*arguments):
    """Run Python in a new process, which has not imported the package."""
    result = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "commands.resp"
    path.write_bytes(COMMANDS)
    return path


def test_columns():
    table = wirescan.scan(COMMANDS, "resp.values")
    assert table["count"][::4].tolist() == [3] * 1000
    assert table["index"].tolist() == [0, 0, 1, 2] * 1000
    assert table["depth"].tolist() == [1, 2, 2, 2] * 1000
    assert bytes(table[7].value) == b"value 1"
    numbers = resp.scan(resp.encode([1, -1, 2**63 - 1, -(2**63)]))
    assert resp.values(numbers)["integer"].tolist() == [0, 1, -1, 2**63 - 1, -(2**63)]
    assert resp.values(numbers, depth=1)["size"].tolist() == [len(numbers.frame(0))]
    with pytest.raises(ValueError, match="depth must be from 1 to 33"):
        resp.values(numbers, depth=34)


@pytest.mark.parametrize("format", [resp.FRAMES, resp.VALUES], ids=lambda format: format.name)
def test_every_column_has_a_meaning(format):
    (described,) = (
        description
        for description in map(json.loads, run("formats", "--json").splitlines())
        if description["name"] == format.name
    )
    meanings = described["meanings"]
    columns = {name for name in format.all_columns if format.describe_column(name) is not None}
    assert {name for name in columns - {"reserved"} if not meanings.get(name)} == set()
    assert meanings["name"].startswith("first element of an array")


def test_rows_are_written_into_an_array():
    rows = np.zeros(2000, resp.FRAME)
    table = resp.scan(COMMANDS, into=rows)
    assert len(table) == 1000
    assert np.shares_memory(table.rows, rows)


def test_row_numbers_of_skipped_rows():
    raw = resp.encode([1]) + b":x\r\n" + resp.encode([2])
    marked = wirescan.scan(raw, "resp.values", errors="mark")
    assert marked["enclosing"].tolist() == [-1, 0, -1, -1, 3]
    skipped = wirescan.scan(raw, "resp.values", errors="skip")
    assert skipped["enclosing"].tolist() == [-1, 0, -1, 2]


def test_a_stream():
    stream = wirescan.stream("resp.values")
    count = 0
    for i in range(0, len(COMMANDS), 7):
        count += len(stream.feed(COMMANDS[i : i + 7]))
    assert count + len(stream.close()) == 4000


def test_arrow():
    table = pa.table(wirescan.scan(COMMANDS + b":x\r\n", "resp.frames", errors="mark"))
    assert table["kind"].to_pylist()[:2] == ["ARRAY", "ARRAY"]
    assert table["name"].to_pylist()[:2] == [b"SET", b"SET"]
    assert table["fault"].to_pylist()[-1] == "BAD_INTEGER"


def test_parquet(path, tmp_path):
    result = convert(path, tmp_path / "out", format="resp.values")
    assert (result.frames, result.faults) == (1000, 0)
    table = parquet.read_table(tmp_path / "out")
    assert len(table) == 4000
    assert table["name"].unique().to_pylist() == [b"SET"]


def test_a_file_is_cut_at_frames(path):
    pieces = plan(path, "resp.frames", 10000)
    assert len(pieces) > 3
    assert sum(map(len, pieces)) == len(COMMANDS)


def test_the_command(path):
    first = json.loads(run("scan", "--format", "resp.frames", "--json", "--limit", 1, path))
    assert (first["kind"], first["name"]) == ("ARRAY", "SET")
    total = json.loads(run("stat", "--format", "resp.frames", "--json", path))["total"]
    assert (total["frames"], total["frame_bytes"]) == (1000, len(COMMANDS))
    assert json.loads(run("stat", "--format", "resp.frames", "--deep", "--json", path))["total"]
    run("verify", "--format", "resp.frames", path)
    run("convert", "--format", "resp.values", path, path.with_suffix(".parquet"))
    path.write_bytes(COMMANDS + b"PING\r\n" + COMMANDS)
    assert "NOT_A_VALUE" in run("verify", "--format", "resp.frames", path, exit_code=1)


def test_other_processes_find_the_formats(path):
    listed = run_python("-m", "wirescan", "formats")
    assert "resp.frames" in listed
    assert "resp.values" in listed
    table = pickle.dumps(wirescan.scan(resp.encode([b"SET"]), "resp.frames"))
    print_name = f"import pickle; print(pickle.loads({table!r})[0].name.tobytes())"
    assert run_python("-c", print_name) == "b'SET'\n"


def test_errors_name_the_fault():
    with pytest.raises(FrameError, match=r"no value begins with \(NOT_A_VALUE\) at byte 5, row 1"):
        resp.scan(b"+OK\r\nPING\r\n")


def test_the_encoders_refuse_what_does_not_fit():
    for value in (True, 1.5, {}, object()):
        with pytest.raises(TypeError):
            resp.encode(value)
    for value in (2**63, resp.Text("a\r\n"), resp.Text(b"\n", is_error=True)):
        with pytest.raises(ValueError):
            resp.encode([value])
    with pytest.raises(ValueError, match="row 1: the first word"):
        resp.encode_commands([b"GET", None], [b"a", b"b"])
    with pytest.raises(ValueError, match="unequal length"):
        resp.encode_commands([b"GET"], [b"a", b"b"])
    with pytest.raises(ValueError, match="no column"):
        resp.encode_commands()
    with pytest.raises(ValueError, match="1 to 64 columns"):
        resp.encode_commands([b"GET"], *["a"] * 64)


def test_commands_are_written_from_columns():
    names = pa.array(["GET", "SET"])
    raw = resp.encode_commands(names, "key", [None, b""])
    assert raw == resp.encode([b"GET", b"key"]) + resp.encode([b"SET", b"key", b""])
    table = wirescan.scan(raw, "resp.frames")
    assert resp.encode_commands((table, "name")) == resp.encode([b"GET"]) + resp.encode([b"SET"])


def test_a_table_of_another_format_is_refused():
    table = wirescan.scan(COMMANDS, "resp.values")
    with pytest.raises(TypeError, match="resp.frames"):
        resp.values(table)
    assert isinstance(table, FrameTable)


@pytest.mark.spark
def test_spark(path):
    """Driver and workers find the formats by the entry point."""
    import wirescan.spark

    spark = wirescan.spark.session()
    frame = wirescan.spark.read(spark, str(path), "resp.values", columns=["depth", "value"])
    assert frame.where("depth = 2").count() == 3000
    counts = frame.groupBy("depth").count().collect()
    assert {row["depth"]: row["count"] for row in counts} == {1: 1000, 2: 3000}
