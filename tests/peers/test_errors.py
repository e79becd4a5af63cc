"""Our table of error codes beside Kafka's own."""
from pathlib import Path

import pytest

from wirescan.kafka.errors import ErrorCode

from .broker import LINES, run

pytestmark = pytest.mark.peers


@pytest.mark.parametrize("line", LINES)
def test_every_code_that_kafka_knows(line):
    lines = [text.split(",") for text in run(Path(__file__).with_name("Errors.java"), line=line).splitlines()]
    theirs = {(int(code), name, retriable == "true") for code, name, retriable in lines}
    newest = max(code for code, _, _ in theirs)
    assert newest >= 127
    assert {(int(code), code.name, code.retriable) for code in ErrorCode if code <= newest} == theirs
