"""`wirescan scan --csv`: what Python's csv module reads is what --json writes."""

import csv
import io
import json

import pytest

from tests.support.command import run
from tests.support.paths import ORDERS
from wirescan.cli.csv_rows import format_csv_row
from wirescan.kafka import Record, encode_batch


def to_text(value):
    """Return the field that stands for a value of JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, separators=(",", ":"))


def normalize(text):
    """Return a field, with JSON written in one way."""
    return to_text(json.loads(text)) if text[:1] in ("[", "{") else text


def test_the_corpus_is_what_json_says():
    arguments = ("scan", ORDERS, "--errors", "mark", "--encoding", "base64")
    header, *rows = csv.reader(io.StringIO(run(*arguments, "--csv").stdout, newline=""))
    expected = [json.loads(line) for line in run(*arguments, "--json").stdout.splitlines()]
    assert len(rows) == len(expected) > 20_000
    assert header == list(expected[0])
    for row, document in zip(rows[::97], expected[::97]):
        assert [normalize(text) for text in row] == [to_text(v) for v in document.values()]


def test_null_and_empty_text_differ(tmp_path):
    (tmp_path / "a.log").write_bytes(encode_batch([Record(0, 1, None, b""), Record(1, 1, b'a"\n')]))
    arguments = ("scan", tmp_path / "a.log", "--columns", "offset,key,value")
    expected = 'offset,key,value\r\n0,,""\r\n1,"a""\n",\r\n'
    assert run(*arguments, "--csv").stdout_bytes.decode() == expected
    assert run(*arguments, "-o", tmp_path / "out.csv").exit_code == 0
    assert (tmp_path / "out.csv").read_bytes().decode() == expected


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ([True, 1.5, -7], "true,1.5,-7"),
        (["a,b", "\r", " x "], '"a,b","\r", x '),
        ([[{"key": 'k"'}], None], '"[{""key"":""k\\""""}]",'),
    ],
)
def test_fields(values, line):
    assert format_csv_row(values) == line + "\r\n"


def test_two_formats_are_refused():
    result = run("scan", ORDERS, "--csv", "--arrow")
    assert result.exit_code == 2
    assert "--csv and --arrow exclude each other" in result.stderr
