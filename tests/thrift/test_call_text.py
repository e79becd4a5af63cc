"""Messages as text."""

from __future__ import annotations

import struct
import time

import numpy as np
import pytest

import wirescan
from tests.support.slowness import SLOWNESS
from tests.support.thrift_bytes import (
    make_binary_message,
    make_compact_message,
    make_framed,
    make_text,
)
from tests.support.varint import make_varint
from wirescan import thrift
from wirescan.thrift.call_text import LONGEST_TEXT

apache = pytest.importorskip("thrift")
from tests.support.thrift_calculator import (  # noqa: E402
    CALCULATOR_IDL,
    CASES,
    SHARED_IDL,
    WRITERS,
    write_capture,
)

CALL = thrift.MessageType.CALL
REPLY = thrift.MessageType.REPLY
EXCEPTION = thrift.MessageType.EXCEPTION


@pytest.fixture
def calculator(tmp_path):
    """The IDL of the tutorial."""
    (tmp_path / "shared.thrift").write_text(SHARED_IDL)
    path = tmp_path / "tutorial.thrift"
    path.write_text(CALCULATOR_IDL)
    return path


def read_messages(*messages, errors="strict"):
    return thrift.messages(
        thrift.scan(b"".join(map(make_framed, messages)), errors=errors), errors=errors
    )


def show(arguments, kind=CALL, idl=None):
    """Return the text of a binary message of the method f."""
    (text,) = thrift.call_text(
        read_messages(make_binary_message(b"f", kind, 1, arguments)), idl=idl
    )
    return text


def show_compact(arguments, version=1):
    """Return the text of a compact call of the method f."""
    message = make_compact_message(b"f", CALL, 1, arguments, version)
    (text,) = thrift.call_text(read_messages(message))
    return text


def make_field(kind, id, value):
    return struct.pack(">Bh", kind, id) + value


def make_string(data):
    return struct.pack(">I", len(data)) + data


@pytest.mark.parametrize("writer", WRITERS)
def test_messages_by_apache_thrift(writer, calculator):
    messages = thrift.messages(thrift.scan(write_capture(writer)))
    assert thrift.call_text(messages) == [case.text for case in CASES]
    pytest.importorskip("thriftpy2")
    assert thrift.call_text(messages, idl=calculator) == [case.named for case in CASES]


@pytest.mark.parametrize("factory", ["TBinaryProtocol", "TCompactProtocol"])
def test_calls_by_a_client_of_thriftpy2(factory, calculator):
    """thriftpy2 writes the calls of a client, and the replies of a server to them."""
    thriftpy2 = pytest.importorskip("thriftpy2")
    from thriftpy2 import protocol, transport
    from thriftpy2.thrift import TClient, TProcessor

    module = thriftpy2.load(str(calculator))

    class Handler:
        def add(self, num1, num2):
            return num1 + num2

        def calculate(self, logid, w):
            raise module.InvalidOperation(w.op, "no")

    def open_protocol(buffer):
        return getattr(protocol, factory)(transport.TFramedTransport(buffer))

    calls, replies = transport.TMemoryBuffer(), transport.TMemoryBuffer()
    client = TClient(module.Calculator, open_protocol(calls))
    client._send("add", num1=17, num2=-4)
    client._send("calculate", logid=1, w=module.Work(num2=5, op=2, comment="x"))
    processor = TProcessor(module.Calculator, Handler())
    server, output = (
        open_protocol(transport.TMemoryBuffer(calls.getvalue())),
        open_protocol(replies),
    )
    processor.process(server, output)
    processor.process(server, output)
    texts = [
        thrift.call_text(thrift.messages(thrift.scan(each.getvalue())), idl=module)
        for each in (calls, replies)
    ]
    assert texts[0] == [
        "add(num1: 17, num2: -4)",
        'calculate(logid: 1, w: {num1: 0, num2: 5, op: SUBTRACT, comment: "x"})',
    ]
    assert texts[1] == [
        "add -> 13",
        'calculate raised InvalidOperation {whatOp: 2, why: "no"}',
    ]


def test_values_of_the_binary_protocol():
    uuid = bytes(range(16))
    cases = [
        (2, b"\1", "true"),
        (2, b"\0", "false"),
        (3, b"\x80", "-128"),
        (4, struct.pack(">d", -0.1), "-0.1"),
        (6, b"\x80\0", "-32768"),
        (8, b"\x7f\xff\xff\xff", "2147483647"),
        (9, b"\xff" * 8, str(2**64 - 1)),
        (10, b"\x80" + bytes(7), str(-(2**63))),
        (11, make_string("Grüße".encode()), '"Grüße"'),
        (11, make_string(b'\x00\n"\\'), r'"\x00\n\"\\"'),
        (11, make_string(b'\xff\x00a"'), r'b"\xff\x00a\""'),
        (12, b"\0", "{}"),
        (12, make_field(2, 5, b"\1") + b"\0", "{5: true}"),
        (13, b"\x0b\x08" + struct.pack(">I", 1) + make_string(b"k") + bytes(4), 'map{"k": 0}'),
        (14, b"\x06" + struct.pack(">Ihh", 2, 3, 4), "set{3, 4}"),
        (15, b"\x06" + struct.pack(">I", 0), "[]"),
        (15, b"\x0f" + struct.pack(">I", 1) + b"\x02" + struct.pack(">I", 1) + b"\1", "[[true]]"),
        (16, uuid, "00010203-0405-0607-0809-0a0b0c0d0e0f"),
        (19, struct.pack(">f", 1.5), "1.5"),
    ]
    for kind, value, expected in cases:
        assert show(make_field(kind, -3, value) + b"\0") == f"f(-3: {expected})"


def test_values_of_the_compact_protocol():
    double = struct.pack("<d", 2.5)
    cases = [
        (b"\x11", "1: true"),
        (b"\x12", "1: false"),
        (b"\x13\xff", "1: -1"),
        (b"\x14" + make_varint(5), "1: -3"),
        (b"\x15" + make_varint(6), "1: 3"),
        (b"\x16" + make_varint(2**64 - 1), f"1: {-(2**63)}"),
        (b"\x17" + double, "1: 2.5"),
        (b"\x18" + make_text(b"hi"), '1: "hi"'),
        (b"\x19\x21\1\2", "1: [true, false]"),
        (b"\x1a\x15\2", "1: set{1}"),
        (b"\x1b\1\x85" + make_text(b"k") + b"\2", '1: map{"k": 1}'),
        (b"\x1b\0", "1: map{}"),
        (b"\x1c\x11\x11\0", "1: {1: true, 2: true}"),
    ]
    for field, expected in cases:
        assert show_compact(field + b"\0") == f"f({expected})"
    assert show_compact(b"\x17" + struct.pack(">d", 2.5) + b"\0", version=2) == "f(1: 2.5)"


def test_results():
    number = make_field(8, 0, struct.pack(">i", 4))
    refusal = make_field(12, 2, make_field(8, 1, bytes(4)) + b"\0")
    assert show(number + b"\0", REPLY) == "f -> 4"
    assert show(b"\0", REPLY) == "f -> void"
    assert show(refusal + b"\0", REPLY) == "f raised {2: {1: 0}}"
    assert show(number + refusal + b"\0", REPLY) == "f -> {0: 4, 2: {1: 0}}"


def test_exceptions():
    text = make_field(11, 1, make_string(b"no"))
    cases = [
        (text + make_field(8, 2, struct.pack(">i", 4)), 'BAD_SEQUENCE_ID: "no"'),
        (text, 'UNKNOWN: "no"'),
        (b"", "UNKNOWN"),
        (make_field(8, 2, struct.pack(">i", 99)), "type 99"),
        (text + make_field(8, 3, bytes(4)), '{1: "no", 3: 0}'),
        (make_field(8, 1, bytes(4)), "{1: 0}"),
    ]
    for fields, expected in cases:
        assert show(fields + b"\0", EXCEPTION) == f"f failed: {expected}"


def test_a_call_names_its_service():
    message = make_binary_message(b"Calc:f\n", CALL, 1)
    assert thrift.call_text(read_messages(message)) == [r"Calc:f\n()"]


def test_names_need_the_types_of_the_idl(tmp_path):
    pytest.importorskip("thriftpy2")
    path = tmp_path / "s.thrift"
    path.write_text(
        "enum E { A = 1 }\n"
        "service S { i32 f(1: binary raw, 2: list<E> all, 3: map<E, string> names, 4: i64 big) }"
    )
    fields = (
        make_field(11, 1, make_string(b"a"))
        + make_field(15, 2, b"\x08" + struct.pack(">Iii", 2, 1, 2))
        + make_field(13, 3, b"\x08\x06" + struct.pack(">Iih", 1, 1, 7))
        + make_field(8, 4, bytes(4))
        + make_field(8, 5, bytes(4))
    )
    expected = 'f(raw: b"a", all: [A, 2], names: map{A: 7}, 4: 0, 5: 0)'
    assert show(fields + b"\0", idl=path) == expected
    assert show(b"\0", REPLY, idl=path) == "f -> {}"  # a value is declared


def test_a_method_of_two_services(tmp_path):
    pytest.importorskip("thriftpy2")
    path = tmp_path / "s.thrift"
    path.write_text("service A { void f(1: i32 a) } service B { void f(1: i32 b) }")
    number = make_field(8, 1, bytes(4)) + b"\0"
    names = (b"f", b"A:f", b"B:f", b"C:f")
    messages = read_messages(*(make_binary_message(name, CALL, 1, number) for name in names))
    expected = ["f(1: 0)", "A:f(a: 0)", "B:f(b: 0)", "C:f(1: 0)"]
    assert thrift.call_text(messages, idl=path) == expected


# ------------------------------------------------------------------------------ limits


def test_long_values_are_cut():
    text = make_field(11, 1, make_string(b"x" * 101))
    letters = "x" * 100
    assert show(text + b"\0") == f'f(1: "{letters}"...)'
    raw = make_field(11, 1, make_string(b"\xff" * 101))
    digits = r"\xff" * 100
    assert show(raw + b"\0") == f'f(1: b"{digits}"...)'
    clefs = "𝄞" * 100
    wide = make_field(11, 1, make_string("𝄞".encode() * 101))
    assert show(wide + b"\0") == f'f(1: "{clefs}"...)'
    numbers = make_field(15, 1, b"\x06" + struct.pack(">I", 21) + b"\0\1" * 21)
    last = make_field(2, 2, b"\1") + b"\0"
    assert show(numbers + last) == f"f(1: [{'1, ' * 20}...], 2: true)"
    pairs = make_field(13, 1, b"\x03\x03" + struct.pack(">I", 21) + b"\1\2" * 21)
    assert show(pairs + last) == f"f(1: map{{{'1: 2, ' * 20}...}}, 2: true)"
    words = make_field(15, 1, b"\x0b" + struct.pack(">I", 21) + make_string(b"w") * 21)
    assert show(words + last) == "f(1: [" + '"w", ' * 20 + "...], 2: true)"


def test_compact_lists_are_cut():
    numbers = b"\x19\xf5" + make_varint(21) + b"\2" * 21
    flags = b"\x19\xf1" + make_varint(21) + b"\1" * 21
    assert show_compact(numbers + b"\x11\0") == f"f(1: [{'1, ' * 20}...], 2: true)"
    assert show_compact(flags + b"\x11\0") == f"f(1: [{'true, ' * 20}...], 2: true)"
    fields = b"\x11" * 25  # the numbers of fields are counted from the field before
    assert show_compact(b"\x1c" + fields + b"\0" + b"\x11\0").endswith("20: true, ...}, 2: true)")


def test_deep_values_are_cut():
    deep = make_field(12, 1, b"") * 63 + b"\0" * 64
    assert show(deep) == f"f({'1: {' * 7}1: {{...{'}' * 8})"
    empty = make_field(12, 1, b"") * 8 + b"\0" * 9
    assert show(empty) == f"f({'1: {' * 8}{'}' * 8})"


def test_the_text_has_a_limit():
    rows = b"\x0b" + struct.pack(">I", 20) + make_string(b"y" * 90) * 20
    text = show(make_field(15, 1, rows) + b"\0")
    assert len(text) == LONGEST_TEXT
    assert text.endswith("...")
    name = make_binary_message(b"n" * 5000, CALL, 1)
    assert thrift.call_text(read_messages(name)) == ["n" * 97 + "...()"]


# ------------------------------------------------------------------------------ damage


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (b"", "f(<bad struct at byte 13: the bytes end inside a value>)"),
        (
            make_field(8, 1, struct.pack(">i", 17)) + b"\x08\0\2\0",
            "f(1: 17, <bad struct at byte 20: the bytes end inside a value>)",
        ),
        (
            make_field(8, 1, bytes(4)) + b"\x63\0\2\0",
            "f(1: 0, <bad struct at byte 20: no such type or field number>)",
        ),
        (
            make_field(15, 1, b"\x0a" + struct.pack(">I", 99)),
            "f(<bad struct at byte 13: more elements than bytes follow>)",
        ),
        (
            make_field(12, 1, make_field(2, 1, b"\1") + b"\x0b\0\2" + struct.pack(">I", 9)),
            "f(1: {1: true, <bad struct at byte 20: the bytes end inside a value>})",
        ),
        (
            make_field(12, 1, b"") * 64,
            f"f({'1: {' * 7}1: {{..., <bad struct at byte 202: more than 64 levels>{'}' * 8})",
        ),
        (b"\0\1\2", "f(<bad struct at byte 14: bytes follow the struct>)"),
    ],
)
def test_a_bad_struct_is_shown_up_to_the_damage(arguments, expected):
    assert show(arguments) == expected


def test_damage_in_what_is_cut():
    """The fields that are not shown are read too. Their numbers count on from the last one."""
    fields = b"\x11" * 20
    last = b"\x01" + make_varint(2 * 32766) + b"\x11"  # the numbers 32766 and 32767
    shown = "".join(f"{id}: true, " for id in range(1, 21))
    assert show_compact(fields + last + b"\0") == f"f({shown}...)"
    text = show_compact(fields + last + b"\x11\0")
    assert text == f"f({shown}..., <bad struct at byte 30: no such type or field number>)"
    # The first field that is not shown has the number 32767.
    fields = b"\x11" * 19 + b"\x01" + make_varint(2 * 32766)
    assert show_compact(fields + b"\x11\0").endswith("32766: true, ...)")


def test_bad_results_and_exceptions():
    assert show(b"", REPLY) == "f -> {<bad struct at byte 13: the bytes end inside a value>}"
    assert show(b"", EXCEPTION) == (
        "f failed: {<bad struct at byte 13: the bytes end inside a value>}"
    )


def test_the_position_is_that_of_the_row_in_thrift_fields():
    cut = make_field(
        15, 3, b"\x0b" + struct.pack(">I", 2) + make_string(b"a") + struct.pack(">I", 9)
    )
    messages = read_messages(make_binary_message(b"f", CALL, 1, cut))
    fields = thrift.fields(messages, errors="mark")
    position = fields["start"][-1] - messages["start"][0]
    assert f"<bad struct at byte {position}:" in thrift.call_text(messages)[0]


def test_bad_messages_have_no_text():
    messages = read_messages(make_binary_message(b"f", CALL, 1), b"\x80\1\0\x63", errors="mark")
    assert thrift.call_text(messages) == ["f()", None]
    assert messages["call"].to_pylist() == ["f()", None]


def test_random_bytes_give_text():
    numbers = np.random.default_rng(5)
    for _ in range(300):
        arguments = numbers.choice([*range(20), 255], 60).astype(np.uint8).tobytes()
        for text in (show(arguments), show_compact(arguments)):
            assert text.startswith("f(")
            assert len(text) <= LONGEST_TEXT
            assert text.isprintable()


@pytest.mark.parametrize("seed", range(3))
def test_a_struct_is_bad_where_fields_finds_a_fault(seed):
    """Where nothing is cut, the text and `thrift.fields` agree about damage."""
    numbers = np.random.default_rng(seed)
    good = make_field(8, 1, bytes(4)) + make_field(11, 2, make_string(b"abc")) + b"\0"
    for _ in range(200):
        arguments = bytearray(good)
        arguments[numbers.integers(len(good))] = numbers.integers(16)
        messages = read_messages(make_binary_message(b"f", CALL, 1, bytes(arguments)))
        is_bad = thrift.fields(messages, errors="mark").bad.any()
        assert ("<bad struct" in thrift.call_text(messages)[0]) == is_bad


def test_time_is_linear_in_the_bytes():
    """A list of many lists, and many nested structs: what is cut is stepped over."""
    lists = b"\x0f" + struct.pack(">I", 1 << 20) + (b"\x02" + bytes(4)) * (1 << 20)
    structs = b"\x0c" + struct.pack(">I", 1 << 22) + bytes(1 << 22)
    messages = read_messages(
        make_binary_message(b"f", CALL, 1, make_field(15, 1, lists) + b"\0"),
        make_binary_message(b"f", CALL, 1, make_field(15, 1, structs) + b"\0"),
    )
    start = time.process_time()
    texts = thrift.call_text(messages)
    assert time.process_time() - start < 2 * SLOWNESS
    assert texts == [f"f(1: [{'[], ' * 20}...])", f"f(1: [{'{}, ' * 20}...])"]


# ------------------------------------------------------------------------------ the column


def test_the_column_call(calculator):
    pytest.importorskip("thriftpy2")
    data = write_capture("binary, framed")
    messages = wirescan.scan(data, "thrift.messages")
    texts = [case.text for case in CASES]
    assert messages["call"].to_pylist() == texts
    assert messages[2:4]["call"].to_pylist() == texts[2:4]
    assert messages[["call"]]["call"].to_pylist() == texts
    assert "call" not in messages.columns
    named = wirescan.scan(data, f"thrift.messages?idl={calculator}")
    assert named["call"].to_pylist() == [case.named for case in CASES]
    assert "add(num1: 17, num2: -4)" in repr(named)
    fields = thrift.fields(messages)
    assert fields["call"].to_pylist() == [texts[parent] for parent in fields["parent"]]


def test_conditions_on_the_column_call():
    messages = wirescan.scan(write_capture("compact, framed"), "thrift.messages")
    found = wirescan.where(messages, 'call ~ "^calculate" and not call contains "raised"')
    assert found["call"].to_pylist() == [
        "calculate(1: 1, 2: {1: 17, 2: 0, 3: 4})",
        "calculate -> -4",
        'calculate failed: INTERNAL_ERROR: "Internal error"',
    ]
    assert len(wirescan.where(messages, 'call == "ping()"')) == 1


def test_other_tables_are_refused():
    with pytest.raises(TypeError, match="call_text takes a table of thrift.messages"):
        thrift.call_text(thrift.scan(b""))
