"""Errors about names that do not exist name a similar one."""

import pytest

import wirescan
from tests.support.command import run
from tests.support.paths import ORDERS
from wirescan.export.batches import iter_batches
from wirescan.frames.similar_names import find_similar, hint_at_names
from wirescan.kafka import encode_batch


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["scna", ORDERS], "did you mean scan?"),
        (["scan", ORDERS, "--formt", "x"], "Did you mean '--format'?"),
        (["scan", ORDERS, "--format", "kafka.record"], "did you mean kafka.records?"),
        (["scan", ORDERS, "--columns", "Offset,key"], "did you mean offset?"),
        (["scan", ORDERS, "--encoding", "base46"], "did you mean base64?"),
        (["scan", ORDERS, "--encoding", "vlaue=hex"], "did you mean value?"),
        (["scan", ORDERS, "--where", "ofset > 1"], "did you mean offset?"),
        (["nothing", ORDERS], "there are formats, scan"),
    ],
)
def test_the_command_hints_at_a_similar_name(arguments, hint):
    result = run(*arguments)
    assert result.exit_code == 2
    assert hint in result.stderr


def test_functions_hint_at_a_similar_name():
    raw = encode_batch([b"v"])
    with pytest.raises(ValueError, match="no format 'kafka.recrods'; did you mean kafka.records"):
        wirescan.scan(raw, "kafka.recrods")
    with pytest.raises(ValueError, match="no column 'valeu'; did you mean value"):
        list(iter_batches(raw, format="kafka.records", columns=["valeu"]))


def test_all_names_where_none_is_similar():
    assert hint_at_names("xyzzy", ["offset", "key"]) == "; there are offset, key"
    assert find_similar(7, ["offset"]) is None
    assert find_similar("o" * 1_000_000, ["offset"]) is None
