"""Numbers that a protocol package has twice: as a Python enum, and as a C enum of its kernels."""

import re
from pathlib import Path

import pytest

import wirescan
from wirescan import nats, thrift
from wirescan.lumberjack import constants as lumberjack_constants
from wirescan.pcap import constants as pcap_constants

ROOT = Path(wirescan.__file__).parent
BLOCK = re.compile(r"^cdef enum:\n((?: {4}.*\n)+)", re.MULTILINE)
MEMBER = re.compile(r"^ {4}(\w+) = (-?\w+)", re.MULTILINE)


def read_blocks(name):
    """Return the C enums of a .pxd file, each as a dict of numbers by their names."""
    blocks = BLOCK.findall((ROOT / name).read_text())
    return [{name: int(number, 0) for name, number in MEMBER.findall(block)} for block in blocks]


@pytest.mark.parametrize(
    "numbers, file, block, other_names",
    [
        (nats.Kind, "nats/rows.pxd", 0, {"OK": "ACCEPTED"}),  # OK is a fault in C
        (thrift.Kind, "thrift/rows.pxd", 0, {}),
        (pcap_constants.BlockKind, "pcap/rows.pxd", 0, {"OTHER": "OTHER_BLOCK"}),
        (pcap_constants.PacketKind, "pcap/rows.pxd", 1, {}),
        (pcap_constants.Direction, "pcap/rows.pxd", 2, {}),
    ],
)
def test_c_and_python_have_the_same_kinds(numbers, file, block, other_names):
    expected = {other_names.get(member.name, member.name): member.value for member in numbers}
    assert read_blocks(file)[block] == expected


@pytest.mark.parametrize(
    "numbers, file, block, others",
    [
        (thrift.Type, "thrift/walk.pxd", 0, {"DEEPEST", "STOP", "TYPES", "UNKNOWN"}),
        (
            lumberjack_constants.Kind,
            "lumberjack/rows.pxd",
            0,
            {"SHORT_HEADER", "LONG_HEADER", "SMALLEST_PAIR", "LARGEST", "MAX_PAIRS"},
        ),
    ],
)
def test_c_and_python_have_the_same_numbers_among_others(numbers, file, block, others):
    found = read_blocks(file)[block]
    assert others <= found.keys()
    assert {name: found[name] for name in found.keys() - others} == {
        member.name: member.value for member in numbers
    }


@pytest.mark.parametrize(
    "numbers, names",
    [
        (thrift.Protocol, {"BINARY", "JSON", "COMPACT"}),
        (thrift.Transform, {"HMAC"}),
        (thrift.InfoKind, {"KEYVALUE", "PKEYVALUE"}),
        (thrift.MessageType, {"CALL", "ONEWAY"}),
    ],
)
def test_the_numbers_of_thrift_that_kernels_use(numbers, names):
    in_c = read_blocks("thrift/rows.pxd")[1]
    assert {name: in_c[name] for name in names} == {name: numbers[name].value for name in names}
