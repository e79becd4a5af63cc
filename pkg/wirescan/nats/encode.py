"""Write NATS messages: those that carry a payload, one by one or out of columns.

    PUB     PUB <subject> [reply] <size> CRLF payload CRLF
    HPUB    HPUB <subject> [reply] <size of headers> <size> CRLF headers payload CRLF
    MSG     MSG <subject> <sid> [reply] <size> CRLF payload CRLF
    HMSG    HMSG <subject> <sid> [reply] <size of headers> <size> CRLF headers payload CRLF
    headers NATS/1.0[ <status>[ <description>]] CRLF (name: value CRLF)* CRLF

Words are parted by one space; a size, in digits, counts the headers and the payload. The format's sources: NATS
documentation, "Client Protocol" (docs.nats.io); ADR-4, "NATS Message Headers".

Subjects, sids and reply subjects are words: not empty, without spaces, tabs, CR and LF; nothing else is asked of them,
but servers take control lines of up to 4096 bytes, if they are not told otherwise. A message, its headers among it, has
at most 999,999,999 bytes.
"""
from __future__ import annotations

import re
from typing import Any, SupportsIndex

from wirescan.core.columns import columns_of, integer, octets, pairs_of
from wirescan.nats.write import MOST_BYTES, unfit_pair, unfit_word, write_messages

__all__ = ["encode_msg", "encode_msgs", "encode_pub", "encode_pubs"]

_is_word = re.compile(rb"[^ \t\r\n]+").fullmatch
_is_line = re.compile(rb"[^:\r\n]+: [^\r\n]*").fullmatch


def encode_pub(subject: Any, payload: Any, *, reply: Any = None, headers: Any = None) -> bytes:
    """A PUB; with headers an HPUB.

    subject, payload, reply: bytes-like or str. headers: a mapping, or (name, value) in order, of bytes or str; names
    may come twice. A name is not empty and has no colon, CR or LF, a value no CR or LF; to readers, the blanks around
    a value are no part of it. Without pairs it is a PUB.

    Raises TypeError for an argument of another type, ValueError for one that the format cannot hold.
    """
    return _message(b"PUB", {"subject": subject, "reply": reply}, payload, _block(headers))


def encode_msg(
    subject: Any, sid: Any, payload: Any, *, reply: Any = None, headers: Any = None,
    status: SupportsIndex | None = None, description: Any = None,
) -> bytes:
    """A MSG, as servers write it; with headers or a status an HMSG.

    sid: of the subscription: an integer, bytes or str. status: a number from 100 to 999, such as 503, no responders;
    description: of the status, without CR and LF. All else is as in `encode_pub`.
    """
    if not isinstance(sid, (bytes, bytearray, memoryview, str)):
        sid = b"%d" % integer(sid, "sid", (0, (1 << 64) - 1))
    line = b"NATS/1.0"
    if status is not None:
        line += b" %d" % integer(status, "status", (100, 999))
    if description is not None:
        line += b" " + octets(description, "description")
        if status is None or re.search(rb"[\r\n]", line):
            raise ValueError("a description has no CR and LF, and belongs to a status")
    return _message(b"MSG", {"subject": subject, "sid": sid, "reply": reply}, payload, _block(headers, line))


def encode_pubs(subjects: Any, payloads: Any, *, replies: Any = None, headers: Any = None) -> bytes:
    """PUBs and HPUBs, one behind another: a message for each row of some columns.

    subjects, replies: a column, or one bytes-like object or str for all rows; a null is no reply. payloads: a column,
        without nulls, or one for all. A column is a place of a table as (table, "payload"); an Arrow array or chunked
        array of binary or string, or their large and view types; a numpy array of dtype S or of objects; (offsets,
        data); or a list of bytes and None. See `wirescan.core.strings.ByteStrings`.
    headers: a mapping or list of (name, column), where the value may be one for all rows, and a null leaves its pair
        out; or (counts, names, values): an array of integers, how many each row has, and all names and values in
        columns; or an Arrow array of map or list<struct<key, value>>. A row without pairs is a PUB.

    Raises TypeError for an argument of another type; ValueError for columns of unequal length, where no column says how
    many rows there are, for offsets or views that point outside their data, and, by its number, for a row that the
    format cannot hold: as in `encode_pub`.
    """
    return _messages(b"PUB", {"subject": subjects, "reply": replies}, payloads, headers)


def encode_msgs(subjects: Any, sids: Any, payloads: Any, *, replies: Any = None, headers: Any = None) -> bytes:
    """MSGs and HMSGs, one behind another; sids: as subjects, or one integer for all. Everything else is as in
    `encode_pubs`."""
    if hasattr(sids, "__index__") and not getattr(sids, "ndim", 0):
        sids = b"%d" % integer(sids, "sid", (0, (1 << 64) - 1))
    return _messages(b"MSG", {"subject": subjects, "sid": sids, "reply": replies}, payloads, headers)


def _message(operation: bytes, words: dict[str, Any], payload: Any, block: bytes) -> bytes:
    line = [operation]
    for name, given in words.items():
        if given is None and name == "reply":
            continue
        line.append(octets(given, name))
        if not _is_word(line[-1]):
            raise _not_a_word(name, line[-1])
    payload = octets(payload, "payload")
    if (size := len(block) + len(payload)) > MOST_BYTES:
        raise ValueError(f"a message of {size} bytes, and at most {MOST_BYTES} are possible")
    if block:
        line[0] = b"H" + operation
        line.append(b"%d" % len(block))
    return b"%b %d\r\n%b%b\r\n" % (b" ".join(line), size, block, payload)


def _block(headers: Any, line: bytes = b"NATS/1.0") -> bytes:
    lines = [line]
    for key, value in pairs_of(() if headers is None else headers):
        lines.append(key + b": " + octets(value, f"header {key!r:.80}"))
        if not _is_line(lines[-1]) or b":" in key:
            raise _not_a_header(f"header {key!r:.80}")
    return b"\r\n".join((*lines, b"", b"")) if len(lines) > 1 or b" " in line else b""


def _messages(operation: bytes, words: dict[str, Any], payloads: Any, headers: Any) -> bytes:
    columns, pairs = columns_of({**words, "payload": payloads}, headers)
    payloads = columns.pop("payload")
    for name, column in columns.items():
        if (row := unfit_word(column, name == "reply")) >= 0:
            raise _not_a_word(f"row {row}: {name}", column[row])
    if pairs is not None and (row := unfit_pair(pairs)) >= 0:
        raise _not_a_header(f"row {row}: a header")
    return write_messages(operation, list(columns.values()), payloads, pairs)


def _not_a_word(name: str, word: bytes | None) -> ValueError:
    return ValueError(f"{name} must not be null, empty, or hold a space, a tab, CR or LF: {word!r:.80}")


def _not_a_header(name: str) -> ValueError:
    return ValueError(f"{name} must have a name without colon, and CR and LF in neither name nor value")
