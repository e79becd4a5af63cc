"""`wirescan scan --encoding`: keys and values as numbers and UUIDs."""

import json
import struct
import uuid

import pytest

from tests.support.command import run
from wirescan.frames.value_text import encode
from wirescan.kafka import Record, encode_batch

UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


@pytest.mark.parametrize(
    ("data", "encoding", "value"),
    [
        (b"\xff", "int", -1),
        (b"\x01\x00", "int", 256),
        (b"\x80\0\0\0", "int", -(2**31)),
        ((2**63 - 1).to_bytes(8, "big"), "int", 2**63 - 1),
        (b"123", "int", "0x313233"),
        (b"\0\0\1", "int", "0x000001"),
        (b"", "int", "0x"),
        (struct.pack(">f", 1.5), "float", 1.5),
        (struct.pack(">d", -0.1), "float", -0.1),
        (struct.pack(">d", float("nan")), "float", "NaN"),
        (struct.pack(">f", float("inf")), "float", "Infinity"),
        (struct.pack(">d", float("-inf")), "float", "-Infinity"),
        (b"1.5", "float", "0x312e35"),
        (UUID.bytes, "uuid", str(UUID)),
        (str(UUID).upper().encode(), "uuid", str(UUID)),
        (b"x" * 36, "uuid", "0x" + "78" * 36),
        (b"\n", "uuid", "0x0a"),
    ],
)
def test_bytes_are_a_value(data, encoding, value):
    assert encode(memoryview(data), encoding) == value


def test_keys_and_values_of_records(tmp_path):
    headers = [("name", (7).to_bytes(4, "big"))]
    record = Record(0, 1, UUID.bytes, (-5).to_bytes(8, "big", signed=True), headers)
    (tmp_path / "a.log").write_bytes(encode_batch([record, Record(1, 1, None, b"?\0\0")]))
    arguments = ("scan", tmp_path / "a.log", "--columns", "key,value,headers")
    arguments += ("--encoding", "key=uuid,value=int,headers=int")
    first, second = map(json.loads, run(*arguments, "--json").stdout.splitlines())
    assert (first["key"], first["value"]) == (str(UUID), -5)
    assert first["headers"] == [{"key": "name", "value": 7}]
    assert (second["key"], second["value"]) == (None, "0x3f0000")
    text = run(*arguments).stdout
    assert f"{UUID}  -5" in " ".join(text.split()).replace(" -5", "  -5")
