"""How many bits NATS messages are worth in bytes of another kind."""

import pytest

from wirescan import nats
from wirescan.nats.evidence import weigh_messages, weigh_messages_alone

LETTER = 7
BYTE = 8
OBJECT = b'{"a":1}'

# (message, its bits)
MESSAGES = [
    (b"PING\r\n", 4 * LETTER + 2 * BYTE),
    (b"pong\n", 4 * LETTER),
    (b"+OK\r\n", 3 * LETTER + 2 * BYTE),
    (b"-ERR 'no'\r\n", 4 * LETTER + 2 * BYTE),
    (b"UNSUB 1\r\n", 5 * LETTER + 2 * BYTE),
    (b"PUB a 2\r\nxx\r\n", 3 * LETTER + 4 * BYTE),
    (b"HMSG a 1 12 13\r\nNATS/1.0\r\n\r\nx\r\n", 4 * LETTER + 4 * BYTE),
    # Other texts have lines that begin with INFO too, but without an object.
    (b"INFO everything is well\r\n", 0),
    (b"CONNECT me\r\n", 0),
    (b"INFO\r\n", 0),
    (b"INFO " + OBJECT + b"\r\n", 4 * LETTER + 3 * BYTE),
    (b"CONNECT \t " + OBJECT + b"\n", 7 * LETTER + BYTE),
    (b"SUB {a 1\r\n", 3 * LETTER + 3 * BYTE),
    # The object begins with byte 63 or 64: only 64 bytes are looked at.
    (b"INFO" + b" " * 59 + OBJECT + b"\r\n", 4 * LETTER + 3 * BYTE),
    (b"INFO" + b" " * 60 + OBJECT + b"\r\n", 0),
]


@pytest.mark.parametrize(("message", "bits"), MESSAGES)
def test_the_weight_of_a_message(message, bits):
    assert weigh_messages(nats.scan(message)).tolist() == [bits]


def test_messages_of_several_buffers_have_their_own_weights():
    messages, bits = zip(*MESSAGES)
    assert weigh_messages(nats.scan(b"".join(messages))).tolist() == list(bits)
    assert weigh_messages(nats.scan(list(messages))).tolist() == list(bits)
    assert weigh_messages(nats.scan(b"")).tolist() == []


def test_a_long_line_is_worth_nothing_after_lost_bytes():
    line = b'INFO {"a":"' + b"x" * 1100 + b'"}\r\n'
    message = b"PUB a 1100\r\n" + b"x" * 1100 + b"\r\n"
    table = nats.scan(line + message)
    assert weigh_messages(table).tolist() == [4 * LETTER + 3 * BYTE, 3 * LETTER + 4 * BYTE]
    assert weigh_messages_alone(table).tolist() == [0, 3 * LETTER + 4 * BYTE]
