"""Header frames and messages with one wrong field each, and the fault of each."""

import struct

import pytest

import wirescan
from tests.support.thrift_bytes import make_framed
from wirescan import Fault
from wirescan.thrift.constants import Transform

HMAC = int(Transform.HMAC)


def make_frame_with_header(header):
    """A header frame with these bytes as its header. Their size is a multiple of four."""
    assert len(header) % 4 == 0
    return make_framed(struct.pack(">HHIH", 0x0FFF, 0, 7, len(header) // 4) + header + b"payload")


@pytest.mark.parametrize(
    "header, fault",
    [
        (b"\xff\xff\xff\xff", Fault.TRUNCATED),  # the protocol's number has no end
        (b"\xff\x7f\0\0", Fault.BAD_FIELD),  # the protocol's number is more than 255
        (b"\0\xff\xff\xff", Fault.TRUNCATED),  # the count of transforms has no end
        (b"\0\1\xff\xff", Fault.TRUNCATED),  # a transform has no end
        (bytes([0x80, 0, 1, HMAC]), Fault.TRUNCATED),  # the size of the HMAC is missing
        (bytes([0, 2, HMAC, 0, HMAC, 0, 0, 0]), Fault.BAD_HEADER),  # a second HMAC
        (b"\0\0\xff\xff", Fault.TRUNCATED),  # the kind of an info block has no end
        (b"\0\0\1\xff", Fault.TRUNCATED),  # the count of an info block has no end
    ],
)
def test_bad_headers_have_faults(header, fault):
    table = wirescan.scan(make_frame_with_header(header), "thrift.frames", errors="mark")
    assert table["fault"].tolist() == [fault]


def make_compact_message(body):
    """A call of compact protocol, version 1: sequence number 0, no name."""
    return make_framed(b"\x82\x21\0\0" + body)


@pytest.mark.parametrize(
    "body, fault",
    [
        (b"\x03\xfe\xff\x03\0\0", Fault.OK),  # field 32767, an i8
        (b"\x03\xfe\xff\x03\0\x13\0\0", Fault.BAD_FIELD),  # the field after it would be 32768
    ],
)
def test_bad_field_numbers_have_faults(body, fault):
    messages = wirescan.scan(make_compact_message(body), "thrift.messages", errors="mark")
    fields = messages.open("fields", errors="mark")
    assert fields["fault"].tolist()[-1] == fault
