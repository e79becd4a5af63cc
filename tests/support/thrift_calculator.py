"""Messages of the Calculator of Apache Thrift's tutorial, written by Apache Thrift.

Source: Apache Thrift, tutorial/tutorial.thrift and tutorial/shared.thrift.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.protocol.THeaderProtocol import THeaderProtocol
from thrift.Thrift import TApplicationException, TMessageType, TType
from thrift.transport.THeaderTransport import THeaderSubprotocolID
from thrift.transport.TTransport import TFramedTransport, TMemoryBuffer

SHARED_IDL = """
struct SharedStruct { 1: i32 key, 2: string value }
service SharedService { SharedStruct getStruct(1: i32 key) }
"""
CALCULATOR_IDL = """
include "shared.thrift"
enum Operation { ADD = 1, SUBTRACT = 2, MULTIPLY = 3, DIVIDE = 4 }
struct Work { 1: i32 num1 = 0, 2: i32 num2, 3: Operation op, 4: optional string comment }
exception InvalidOperation { 1: i32 whatOp, 2: string why }
service Calculator extends shared.SharedService {
    void ping(),
    i32 add(1: i32 num1, 2: i32 num2),
    i32 calculate(1: i32 logid, 2: Work w) throws (1: InvalidOperation ouch),
    oneway void zip()
}
"""


def make_spec(*fields):
    """Return a specification of Apache Thrift. fields: (number, type, name, spec of a struct)."""
    return [(number, kind, name, inner, None) for number, kind, name, inner in fields]


def make_struct(spec, **values):
    """Return (class, specification) of a struct as the specification of a field has them."""
    return SimpleNamespace(
        **{name: values.get(name) for _, _, name, _, _ in spec},
        write=lambda protocol: protocol.writeStruct(SimpleNamespace(**values), spec),
    )


WORK = make_spec(
    (1, TType.I32, "num1", None),
    (2, TType.I32, "num2", None),
    (3, TType.I32, "op", None),
    (4, TType.STRING, "comment", "UTF8"),
)
REFUSED = make_spec((1, TType.I32, "whatOp", None), (2, TType.STRING, "why", "UTF8"))
SHARED = make_spec((1, TType.I32, "key", None), (2, TType.STRING, "value", "UTF8"))
ADD_ARGS = make_spec((1, TType.I32, "num1", None), (2, TType.I32, "num2", None))
CALCULATE_ARGS = make_spec((1, TType.I32, "logid", None), (2, TType.STRUCT, "w", [None, WORK]))
CALCULATE_RESULT = make_spec(
    (0, TType.I32, "success", None), (1, TType.STRUCT, "ouch", [None, REFUSED])
)
GET_ARGS = make_spec((1, TType.I32, "key", None))
GET_RESULT = make_spec((0, TType.STRUCT, "success", [None, SHARED]))
DIVISION = {"num1": 17, "num2": 0, "op": 4, "comment": None}


class Case(NamedTuple):
    """A message, and its text without and with the IDL. struct: what has `write`."""

    method: str
    kind: int
    struct: Any
    text: str
    named: str


CASES = [
    Case("ping", TMessageType.CALL, make_struct([]), "ping()", "ping()"),
    Case("ping", TMessageType.REPLY, make_struct([]), "ping -> void", "ping -> void"),
    Case(
        "add",
        TMessageType.CALL,
        make_struct(ADD_ARGS, num1=17, num2=-4),
        "add(1: 17, 2: -4)",
        "add(num1: 17, num2: -4)",
    ),
    Case(
        "calculate",
        TMessageType.CALL,
        make_struct(CALCULATE_ARGS, logid=1, w=make_struct(WORK, **DIVISION)),
        "calculate(1: 1, 2: {1: 17, 2: 0, 3: 4})",
        "calculate(logid: 1, w: {num1: 17, num2: 0, op: DIVIDE})",
    ),
    Case(
        "calculate",
        TMessageType.REPLY,
        make_struct(CALCULATE_RESULT, success=-4, ouch=None),
        "calculate -> -4",
        "calculate -> -4",
    ),
    Case(
        "calculate",
        TMessageType.REPLY,
        make_struct(
            CALCULATE_RESULT, success=None, ouch=make_struct(REFUSED, whatOp=4, why='"0"\n')
        ),
        r'calculate raised {1: {1: 4, 2: "\"0\"\n"}}',
        r'calculate raised InvalidOperation {whatOp: 4, why: "\"0\"\n"}',
    ),
    Case(
        "calculate",
        TMessageType.EXCEPTION,
        TApplicationException(TApplicationException.INTERNAL_ERROR, "Internal error"),
        'calculate failed: INTERNAL_ERROR: "Internal error"',
        'calculate failed: INTERNAL_ERROR: "Internal error"',
    ),
    Case(
        "modulo",
        TMessageType.EXCEPTION,
        TApplicationException(TApplicationException.UNKNOWN_METHOD),
        "modulo failed: UNKNOWN_METHOD",
        "modulo failed: UNKNOWN_METHOD",
    ),
    Case("zip", TMessageType.ONEWAY, make_struct([]), "oneway zip()", "oneway zip()"),
    Case(
        "getStruct",
        TMessageType.CALL,
        make_struct(GET_ARGS, key=7),
        "getStruct(1: 7)",
        "getStruct(key: 7)",
    ),
    Case(
        "getStruct",
        TMessageType.REPLY,
        make_struct(GET_RESULT, success=make_struct(SHARED, key=7, value="ünïcode")),
        'getStruct -> {1: 7, 2: "ünïcode"}',
        'getStruct -> {key: 7, value: "ünïcode"}',
    ),
]


def _open_header(buffer, protocol):
    return THeaderProtocol(buffer, [], default_protocol=protocol)


# A name of a protocol and a transport -> a protocol of Apache Thrift that writes to a buffer.
WRITERS = {
    "binary, framed": lambda buffer: TBinaryProtocol(TFramedTransport(buffer)),
    "compact, framed": lambda buffer: TCompactProtocol(TFramedTransport(buffer)),
    "binary, unframed": TBinaryProtocol,
    "compact, unframed": TCompactProtocol,
    "binary, THeader": lambda buffer: _open_header(buffer, THeaderSubprotocolID.BINARY),
    "compact, THeader": lambda buffer: _open_header(buffer, THeaderSubprotocolID.COMPACT),
}


def write_capture(writer):
    """Return the messages of CASES as Apache Thrift writes them. writer: a key of WRITERS."""
    buffer = TMemoryBuffer()
    for seqid, case in enumerate(CASES):
        protocol = WRITERS[writer](buffer)
        protocol.writeMessageBegin(case.method, case.kind, seqid)
        case.struct.write(protocol)
        protocol.writeMessageEnd()
        protocol.trans.flush()
    return buffer.getvalue()
