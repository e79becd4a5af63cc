"""Encoders for NATS messages with a payload, from single values or from columns.

    PUB     PUB <subject> [reply] <size> CRLF payload CRLF
    HPUB    HPUB <subject> [reply] <size of headers> <size> CRLF headers payload CRLF
    MSG     MSG <subject> <sid> [reply] <size> CRLF payload CRLF
    HMSG    HMSG <subject> <sid> [reply] <size of headers> <size> CRLF headers payload CRLF
    headers NATS/1.0[ <status>[ <description>]] CRLF (name: value CRLF)* CRLF

One space separates words. A size is decimal, and counts the headers and the payload. Subjects, sids
and reply subjects are words: they must not be empty, and must not hold spaces, tabs, CR and LF.
They are not validated further. By default, servers accept control lines of up to 4096 bytes. A
message with its headers has at most 999,999,999 bytes.

Sources: NATS documentation, "Client Protocol" (docs.nats.io); ADR-4, "NATS Message Headers".
"""

from __future__ import annotations

import re
from typing import Any, SupportsIndex

from wirescan.core.arguments import check_integer, convert_columns, list_pairs, to_bytes
from wirescan.nats.writer import MAX_BYTES, find_unfit_pair, find_unfit_word, write_messages

__all__ = ["encode_msg", "encode_msgs", "encode_pub", "encode_pubs"]

VERSION = b"NATS/1.0"  # the first line of a header block
MAX_SID = (1 << 64) - 1

_is_word = re.compile(rb"[^ \t\r\n]+").fullmatch
_is_line = re.compile(rb"[^:\r\n]+: [^\r\n]*").fullmatch


def encode_pub(subject: Any, payload: Any, *, reply: Any = None, headers: Any = None) -> bytes:
    """Encode a PUB, or an HPUB if there are headers.

    subject, payload, reply: bytes-like or str. headers: a mapping, or (name, value) pairs in order,
    of bytes or str. Names may be repeated. A name must not be empty, and must not hold a colon, CR
    or LF. A value must not hold CR or LF. Readers ignore blanks around a value. Without pairs, the
    result is a PUB.

    Raises TypeError for an argument of another type, and ValueError for an argument that the format
    cannot hold.
    """
    return _encode_message(
        b"PUB", {"subject": subject, "reply": reply}, payload, _encode_block(headers)
    )


def encode_msg(
    subject: Any,
    sid: Any,
    payload: Any,
    *,
    reply: Any = None,
    headers: Any = None,
    status: SupportsIndex | None = None,
    description: Any = None,
) -> bytes:
    """Encode a MSG as servers write it, or an HMSG if there are headers or a status.

    sid: of the subscription: an integer, bytes or str. status: a number from 100 to 999, such as
    503 (no responders). description: of the status, without CR and LF. The other arguments and the
    errors are as in `encode_pub`.
    """
    if not isinstance(sid, (bytes, bytearray, memoryview, str)):
        sid = b"%d" % check_integer(sid, "sid", (0, MAX_SID))
    line = VERSION
    if status is not None:
        line += b" %d" % check_integer(status, "status", (100, 999))
    if description is not None:
        line += b" " + to_bytes(description, "description")
        if status is None or re.search(rb"[\r\n]", line):
            raise ValueError("a description must have a status, and must not hold CR or LF")
    words = {"subject": subject, "sid": sid, "reply": reply}
    return _encode_message(b"MSG", words, payload, _encode_block(headers, line))


def encode_pubs(subjects: Any, payloads: Any, *, replies: Any = None, headers: Any = None) -> bytes:
    """Encode a PUB or HPUB for each row of some columns, without gaps.

    subjects, replies: a column, or one bytes-like object or str for all rows; a null is no reply.
    payloads: a column without nulls, or one payload for all rows.
    headers: a mapping or list of (name, column), where the value may be one for all rows, and a
        pair with a null value is not written; or (counts, names, values): an array of integers with
        the number of headers of each row, and all names and values in columns; or an Arrow array of
        map or list<struct<key, value>>. A row without pairs is a PUB.

    A column is a place of a table as (table, "payload"); an Arrow array or chunked array of binary
    or string, or their large and view types; a numpy array of dtype S or of objects; (offsets,
    data); or a list of bytes and None. See `wirescan.core.strings.ByteStrings`.

    Raises TypeError for an argument of another type. Raises ValueError for columns of unequal
    length, if no column says how many rows there are, and for offsets or views that point outside
    their data. Raises ValueError with the row's number for a row that the format cannot hold, as in
    `encode_pub`.
    """
    return _encode_messages(b"PUB", {"subject": subjects, "reply": replies}, payloads, headers)


def encode_msgs(
    subjects: Any, sids: Any, payloads: Any, *, replies: Any = None, headers: Any = None
) -> bytes:
    """Encode a MSG or HMSG for each row of some columns, without gaps.

    sids: as subjects, or one integer for all rows. The other arguments and the errors are as in
    `encode_pubs`.
    """
    if hasattr(sids, "__index__") and not getattr(sids, "ndim", 0):
        sids = b"%d" % check_integer(sids, "sid", (0, MAX_SID))
    words = {"subject": subjects, "sid": sids, "reply": replies}
    return _encode_messages(b"MSG", words, payloads, headers)


def _encode_message(operation: bytes, words: dict[str, Any], payload: Any, block: bytes) -> bytes:
    line = [operation]
    for name, word in words.items():
        if word is None and name == "reply":
            continue
        line.append(to_bytes(word, name))
        if not _is_word(line[-1]):
            raise _make_word_error(name, line[-1])
    payload = to_bytes(payload, "payload")
    size = len(block) + len(payload)
    if size > MAX_BYTES:
        raise ValueError(f"the message has {size} bytes: the limit is {MAX_BYTES}")
    if block:
        line[0] = b"H" + operation
        line.append(b"%d" % len(block))
    return b"%b %d\r\n%b%b\r\n" % (b" ".join(line), size, block, payload)


def _encode_block(headers: Any, first_line: bytes = VERSION) -> bytes:
    lines = [first_line]
    for key, value in list_pairs(() if headers is None else headers):
        lines.append(key + b": " + to_bytes(value, f"header {key!r:.80}"))
        if not _is_line(lines[-1]) or b":" in key:
            raise _make_header_error(f"header {key!r:.80}")
    if len(lines) == 1 and first_line == VERSION:
        return b""
    return b"\r\n".join((*lines, b"", b""))


def _encode_messages(operation: bytes, words: dict[str, Any], payloads: Any, headers: Any) -> bytes:
    columns, pairs = convert_columns({**words, "payload": payloads}, headers)
    payloads = columns.pop("payload")
    for name, column in columns.items():
        if (row := find_unfit_word(column, optional=name == "reply")) >= 0:
            raise _make_word_error(f"row {row}: {name}", column[row])
    if pairs is not None and (row := find_unfit_pair(pairs)) >= 0:
        raise _make_header_error(f"row {row}: a header")
    return write_messages(operation, list(columns.values()), payloads, pairs)


def _make_word_error(name: str, word: bytes | None) -> ValueError:
    return ValueError(
        f"{name} must not be null, empty, or hold a space, a tab, CR or LF: {word!r:.80}"
    )


def _make_header_error(name: str) -> ValueError:
    return ValueError(
        f"{name} must have a name without colon, and no CR or LF in its name and value"
    )
