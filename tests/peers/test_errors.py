"""wirescan's table of error codes is Kafka's own table."""

from pathlib import Path

import pytest

from wirescan.kafka.protocol.error_codes import ErrorCode

from .broker import LINES, run

pytestmark = pytest.mark.peers


@pytest.mark.parametrize("line", LINES)
def test_error_codes_are_those_of_kafka(line):
    output = run(Path(__file__).with_name("Errors.java"), line=line)
    rows = [text.split(",") for text in output.splitlines()]
    theirs = {(int(code), name, retriable == "true") for code, name, retriable in rows}
    newest = max(code for code, _, _ in theirs)
    assert newest >= 127
    ours = {(int(code), code.name, code.retriable) for code in ErrorCode if code <= newest}
    assert ours == theirs
