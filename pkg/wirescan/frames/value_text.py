"""Values as text for people, and bytes as JSON from which every byte can be restored.

Rows of tables, the command and its reports use this module. Contents of files may be hostile:
control characters and characters that change the direction of text are escaped. In JSON a byte
string becomes a string from which the bytes can be restored:

    utf8      the text. A byte that is not UTF-8 becomes U+FFFD and two hexadecimal digits. So
              does each of the three bytes of a U+FFFD in the data. This is the default.
    base64, hex, escape     that notation
    int, float, uuid        a number or a UUID; other bytes are 0x and hexadecimal digits
"""

from __future__ import annotations

import binascii
import math
import re
import struct
from typing import Any, Literal
from uuid import UUID

import numpy as np

from wirescan.frames.escape import NAMED, make_visible

VALUE_ENCODINGS = ("int", "float", "uuid")
ENCODINGS = ("utf8", "base64", "hex", "escape", *VALUE_ENCODINGS)
DECODABLE = ("utf8", "base64", "hex", "escape")  # from which `decode` restores the bytes
INT_SIZES = (1, 2, 4, 8)  # bytes of what Kafka's serializers of integers write
FLOATS = {4: ">f", 8: ">d"}
UUID_TEXT = re.compile(rb"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
BACKSLASH = "\\\\"
INVALID_BYTE = "\ufffd"  # precedes the digits of a byte that is not UTF-8
TO_ESCAPE = re.compile("[\ufffd\udc80-\udcff]")
# What `surrogateescape` makes of bytes that are not UTF-8 -> how they are written.
INVALID_BYTES = {0xDC00 + byte: f"{INVALID_BYTE}{byte:02x}" for byte in range(0x80, 0x100)}
INVALID_BYTES[ord(INVALID_BYTE)] = "".join(f"{INVALID_BYTE}{b:02x}" for b in INVALID_BYTE.encode())
ESCAPED = [NAMED.get(chr(b)) or (chr(b) if 32 <= b < 127 else f"\\x{b:02x}") for b in range(256)]
ESCAPED[ord("\\")] = BACKSLASH
ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|.|$)", re.DOTALL)
UNESCAPED = {text: character for character, text in NAMED.items()} | {BACKSLASH: "\\"}
HEX_DIGITS = 2  # of a byte
LONGEST_CHARACTER = 4  # bytes in UTF-8


def escape_bytes(data: Any) -> str:
    r"""Return bytes as printable ASCII with the escapes \n, \r, \t, \\ and \xNN.

    Python's codec unicode_escape restores the bytes.
    """
    return "".join([ESCAPED[byte] for byte in bytes(data)])


def escape_text(text: str) -> str:
    """Return text with unprintable characters escaped and backslashes doubled.

    The characters are those of `wirescan.frames.escape.make_visible`. The doubled backslashes make
    the escapes reversible.
    """
    return make_visible(text.replace("\\", BACKSLASH))


def show_bytes(data: Any, encoding: str = "utf8") -> str:
    """Return bytes as text for people, in one of ENCODINGS."""
    if encoding != "utf8":
        return str(encode(data, encoding))
    return escape_text(bytes(data).decode("utf-8", "surrogateescape"))


def encode(data: Any, encoding: str) -> str | int | float:
    """Return bytes as a value for JSON, in one of ENCODINGS.

    Numbers that JSON does not have are the texts of `encode_float`. Bytes that are no number or
    UUID are "0x" and hexadecimal digits, which no number or UUID looks like.
    """
    data = bytes(data)
    if encoding == "int" and len(data) in INT_SIZES:
        return int.from_bytes(data, "big", signed=True)
    if encoding == "float" and len(data) in FLOATS:
        return encode_float(struct.unpack(FLOATS[len(data)], data)[0])
    if encoding == "uuid" and len(data) == 16:
        return str(UUID(bytes=data))
    if encoding == "uuid" and UUID_TEXT.fullmatch(data):
        return data.decode().lower()
    if encoding in VALUE_ENCODINGS:
        return f"0x{data.hex()}"
    if encoding == "hex":
        return data.hex()
    if encoding == "base64":
        return binascii.b2a_base64(data, newline=False).decode()
    if encoding == "utf8":
        text = data.decode("utf-8", "surrogateescape")
        if text.isascii() or not TO_ESCAPE.search(text):
            return text
        return text.translate(INVALID_BYTES)
    return escape_bytes(data)


def decode(text: str, encoding: str) -> bytes:
    """Return the bytes that `encode` made a text of, in one of DECODABLE.

    Raises ValueError for a text that `encode` does not write in this encoding.
    """
    if encoding == "hex":
        return bytes.fromhex(text)
    if encoding == "base64":
        return binascii.a2b_base64(text, strict_mode=True)
    if encoding == "escape":
        return ESCAPE.sub(_unescape_match, text).encode("latin-1")
    if encoding != "utf8":
        raise ValueError(f"bytes cannot be read from {encoding}")
    if INVALID_BYTE not in text:
        return text.encode()
    first, *others = text.split(INVALID_BYTE)
    return first.encode() + b"".join(
        bytes.fromhex(part[:HEX_DIGITS].rjust(HEX_DIGITS, "?")) + part[HEX_DIGITS:].encode()
        for part in others
    )


def _unescape_match(match: re.Match[str]) -> str:
    """Return the character of a match of ESCAPE."""
    if match[1]:
        return chr(int(match[1], 16))
    if match[0] not in UNESCAPED:
        raise ValueError(f"there is no escape {match[0]!r}")
    return UNESCAPED[match[0]]


def encode_float(number: float) -> float | str:
    """Return a number for JSON. One that JSON does not have is its name, as JavaScript has it.

    The names are NaN, Infinity and -Infinity.
    """
    if math.isfinite(number):
        return number
    if math.isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"


def format_time(value: int, unit: Literal["ms", "ns"] = "ms") -> str:
    """Return a time since 1970, in milliseconds or nanoseconds, as UTC in ISO 8601."""
    return str(np.datetime_as_string(np.datetime64(value, unit), timezone="UTC"))


def format_bytes(count: float) -> str:
    """Return a number of bytes for people, such as "8.2 MiB"."""
    units = ["bytes", "KiB", "MiB", "GiB"]
    while abs(count) >= 1024 and len(units) > 1:
        count /= 1024
        del units[0]
    number = format_number(count) if units[0] == "bytes" else f"{count:,.1f}"
    return f"{number} {units[0]}"


def format_number(count: float) -> str:
    """Return a number for people, such as "12,345", "12.3" or "0.0123"."""
    return f"{count:,.0f}" if abs(count) >= 100 or count == int(count) else f"{count:.3g}"


def format_count(count: int, singular: str) -> str:
    """Return a number and its noun, such as "1 file" or "2 files"."""
    return f"{count:,} {singular}" + ("" if count == 1 else "s")
