"""Encoders for RESP: values from Python objects, and commands from columns."""

from dataclasses import dataclass

from wirescan.core.arguments import I64, check_integer, convert_columns, to_bytes
from wirescan_resp.values import MAX_DEPTH
from wirescan_resp.writer import write_commands


@dataclass(frozen=True)
class Text:
    """A simple string, or with is_error an error. The text must not hold CR or LF."""

    text: bytes | str
    is_error: bool = False


@dataclass(frozen=True)
class NullArray:
    """The null array. None is the null bulk string."""


def encode(value):
    """Return the bytes of a value.

    value: bytes-like or str, a bulk string; int, an integer; None, the null bulk string; a list or
    tuple, an array; a `Text`; a `NullArray`.

    Raises TypeError for another object, such as a bool, and ValueError for a value that RESP cannot
    hold, such as 2**63, or lists in more than 32 levels.
    """
    parts = []
    _append(parts, value, 1)
    return b"".join(parts)


def _append(parts, value, depth):
    if isinstance(value, (list, tuple)):
        if depth >= MAX_DEPTH and value:
            raise ValueError(f"arrays can be nested in at most {MAX_DEPTH - 1} levels")
        parts.append(b"*%d\r\n" % len(value))
        for element in value:
            _append(parts, element, depth + 1)
    elif value is None:
        parts.append(b"$-1\r\n")
    elif isinstance(value, NullArray):
        parts.append(b"*-1\r\n")
    elif isinstance(value, Text):
        text = to_bytes(value.text, "the text")
        if b"\r" in text or b"\n" in text:
            raise ValueError(f"the text must not hold CR or LF: {text!r:.80}")
        parts.append(b"%b%b\r\n" % (b"-" if value.is_error else b"+", text))
    elif isinstance(value, int) and not isinstance(value, bool):
        parts.append(b":%d\r\n" % check_integer(value, "an integer", I64))
    else:
        data = to_bytes(value, "a value")
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))


def encode_commands(*columns):
    """Return one command for each row of some columns, without gaps.

    columns: the words of the commands, 1 to 64 columns. Each is a bytes-like object or str for all
    rows, or a column: a place of a table as (table, "value"), an Arrow array, a numpy array of
    dtype S, (offsets, data), or a list of bytes and None. See `wirescan.core.strings.ByteStrings`.
    A null is not written; the first column must have none.

    Raises TypeError and ValueError for other columns, and for columns of unequal length.
    """
    names = [f"column {i}" for i in range(len(columns))]
    converted, _ = convert_columns(dict(zip(names, columns)))
    words = list(converted.values())
    if words[0].nulls:
        row = int((words[0].lengths() < 0).argmax())
        raise ValueError(f"row {row}: the first word of a command must not be null")
    return write_commands(words)
