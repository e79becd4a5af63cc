"""The faults and the enum that only netstrings have, by their names, wherever wirescan shows them.

tests/test_outside.py builds the package and runs this file.
"""

import json
import pickle
import subprocess
import sys

import netstrings
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import wirescan
from wirescan import FaultMeaning, Format, FrameError
from wirescan.cli.main import main
from wirescan.export.parquet import convert
from wirescan.frames.to_arrow import to_batch
from wirescan.reading.filters import apply_filters, check_filters

BYTES = b"5:hello,03:abc,1:x,12345678901:,1:\xff,0:,"
NAMES = [None, "LEADING_ZERO", None, "LONG_SIZE", None, None]


def read_bytes():
    return wirescan.scan(BYTES, "netstrings", errors="mark")


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "names.txt"
    path.write_bytes(BYTES)
    return str(path)


@pytest.mark.parametrize(
    "raw, fault, text",
    [
        (b"1:a,03:abc,", 64, "the size begins with a zero (LEADING_ZERO) at byte 4, row 1"),
        (b"1:a,1234567890", 192, "the size has more than 9 digits (LONG_SIZE) at byte 4, row 1"),
    ],
)
def test_an_error_has_the_name_here_and_in_a_process_without_the_package(raw, fault, text):
    with pytest.raises(FrameError) as caught:
        netstrings.scan(raw)
    error = caught.value
    assert (type(error.fault), error.fault) == (int, fault)
    assert str(error).startswith(text)
    program = f"import pickle; print(pickle.loads({pickle.dumps(error)!r}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == str(error), done.stderr


def test_two_formats_use_a_number_for_two_faults():
    table = read_bytes()
    other = Format(
        "others", "", table.dtype, netstrings.scan, faults={64: FaultMeaning("NO_TYPE", "no type")}
    )
    assert table.describe_fault(64).name == "LEADING_ZERO"
    assert other.describe_fault(64).name == "NO_TYPE"


def test_arrow_and_filters_have_the_names():
    table = read_bytes()
    assert to_batch(table)["fault"].to_pylist() == NAMES
    assert to_batch(table, ["fault"], types="spark")["fault"].to_pylist() == NAMES
    filters = check_filters([("fault", "==", "LEADING_ZERO")], "netstrings")
    assert apply_filters(table, filters)["start"].tolist() == [8]


def test_the_fault_report_has_the_names(path, tmp_path):
    convert(path, tmp_path / "out", format="netstrings", errors="mark")
    report = pq.read_table(tmp_path / "out.faults").select(["fault", "meaning"]).to_pylist()
    assert [tuple(row.values()) for row in report] == [
        ("LEADING_ZERO", "the size begins with a zero"),
        ("LONG_SIZE", "the size has more than 9 digits"),
    ]


def run(*arguments):
    return CliRunner().invoke(main, [*arguments, "--format", "netstrings"])


def test_the_command_has_the_names(path):
    done = run("scan", path)
    assert "!! LEADING_ZERO in the frame at byte 8 of" in done.stdout
    assert "wirescan: 1 bad frame: LONG_SIZE, the size has more than 9 digits" in done.stderr
    assert "LEADING_ZERO, the size begins with a zero" in run("verify", path).stdout
    found = json.loads(run("stat", "--json", path).stdout)["total"]["faults"]
    assert list(found) == ["LEADING_ZERO", "LONG_SIZE"]


def test_the_enum_names_numbers_in_text_and_its_members_filter(path):
    done = run("scan", path, "--json", "--columns", "content", "--errors", "skip")
    contents = [json.loads(line)["content"] for line in done.stdout.splitlines()]
    assert contents == ["ascii", "ascii", "binary", "nothing"]
    table = wirescan.scan(BYTES, "netstrings", errors="skip")
    assert to_batch(table, ["content"])["content"].to_pylist() == [1, 1, 2, 0]
    filters = check_filters([("content", "==", netstrings.Content.BINARY)], "netstrings")
    assert apply_filters(table, filters)["start"].tolist() == [32]
