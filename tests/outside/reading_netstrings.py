"""A format of an installed package in wirescan's functions and commands.

tests/test_outside.py builds the package and runs this file.
"""

import json
import pickle
import subprocess
import sys

import netstrings
import pytest
from click.testing import CliRunner

import wirescan
from wirescan.cli.main import main
from wirescan.export.parquet import convert
from wirescan.reading.splits import plan


def test_the_format_is_registered_and_read():
    assert wirescan.formats()["netstrings"] is netstrings.NETSTRINGS
    table = wirescan.scan(b"5:hello,0:,", "netstrings")
    assert [bytes(row.text) for row in table] == [b"hello", b""]
    assert table["text_at"].tolist() == [2, 2]
    with pytest.raises(wirescan.FrameError) as caught:
        netstrings.scan(b"2:ok,5:hello!")
    assert (caught.value.fault, caught.value.offset, caught.value.row) == (
        wirescan.Fault.TRUNCATED,
        5,
        1,
    )


def run_python(*arguments):
    """Run Python in a new process, which has not imported netstrings."""
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60)


def test_the_command_finds_the_format_of_an_installed_package(tmp_path):
    path = tmp_path / "names.txt"
    path.write_bytes(b"5:hello,0:,")
    assert "netstrings" in run_python("-m", "wirescan", "formats").stdout
    done = run_python("-m", "wirescan", "scan", "--format", "netstrings", str(path))
    assert done.stdout.split() == ["_start", "size", "text", "0", "8", "hello", "8", "3"], done


def test_a_pickled_table_finds_its_format_in_a_new_process():
    table = wirescan.scan(b"5:hello,", "netstrings")
    program = f"import pickle; print(pickle.loads({pickle.dumps(table)!r})[0].text.tobytes())"
    assert run_python("-c", program).stdout.strip() == "b'hello'"


def test_a_file_is_planned_and_converted(tmp_path):
    """A format without `boundaries` gives one slice per file."""
    path = tmp_path / "names.txt"
    path.write_bytes(b"5:hello,0:," * 1000)
    assert [len(piece) for piece in plan(path, "netstrings", 100)] == [11000]
    result = convert(path, tmp_path / "out", format="netstrings", size=100)
    assert (result.frames, result.bytes, result.faults) == (2000, 11000, 0)


def test_the_command_reads_the_declarations(tmp_path):
    path = tmp_path / "names.txt"
    path.write_bytes(b"5:hello,0:," * 1000)
    result = CliRunner().invoke(main, ["stat", "--format", "netstrings", "--json", str(path)])
    total = json.loads(result.stdout)["total"]
    assert (total["frames"], total["frame_bytes"], total["body"]) == (2000, 11000, {"2": 2000})
    result = CliRunner().invoke(main, ["scan", "--format", "netstrings", "--limit", "1", str(path)])
    assert result.stdout.split() == ["_start", "size", "text", "0", "8", "hello"]
