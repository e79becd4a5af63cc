"""Templates of output, in the letters of kcat: --template '%o %k %s'.

letter      output
%s, %v      the value; %v is not one of kcat's letters
%S          its size in bytes, -1 for null
%R          its size as 4 big-endian bytes
%k, %K      the key, and its size in bytes
%h          the headers: name=value, separated by commas
%T          the time in milliseconds since 1970, -1 for none
%t, %p      the topic and the partition, by the name of the file's directory
%o          the offset
%{column}   any column
%%          a percent sign

A backslash before n, r, t, 0, xNN or a backslash means that byte.

Byte strings are written as they are. Null is written as nothing, or as another text.

Source: the usage text of kcat 1.7.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wirescan.frames.columns import UNITS, ColumnDescription, ColumnKind
from wirescan.frames.format import Format
from wirescan.frames.lookup import find_column, find_rows_without_lists, open_pairs
from wirescan.frames.row_values import RowValues, iter_views
from wirescan.frames.similar_names import hint_at_names
from wirescan.frames.table import FrameTable
from wirescan.frames.value_text import ENCODINGS

if TYPE_CHECKING:
    from wirescan.decoding.payload_columns import PayloadColumns

COLUMNS = {
    "s": "value",
    "v": "value",
    "S": "value",
    "R": "value",
    "k": "key",
    "K": "key",
    "h": "headers",
    "T": "timestamp",
    "o": "offset",
}
# The kind of the column of each letter, where it is not bytes.
KINDS = {"h": ColumnKind.PAIRS, "T": ColumnKind.TIME, "o": ColumnKind.NUMBER}
DIRECTORY_LETTERS = "tp"
LETTER_LIST = " ".join(f"%{letter}" for letter in (*COLUMNS, *DIRECTORY_LETTERS))
TOKEN = re.compile(
    rb"%%|%\{(?P<column>[^}]*)\}|%(?P<letter>[A-Za-z])|\\x(?P<hex>[0-9a-fA-F]{2})"
    rb"|\\(?P<escape>[nrt0\\])|[^%\\]+",
    re.DOTALL,
)
ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"0": b"\0", b"\\": b"\\"}
# topic-N, or N in a directory of the topic's name.
PARTITION = re.compile(r"(?:(.*)-)?([0-9]{1,10})", re.DOTALL)
Texts = Sequence[bytes]
ReadTexts = Callable[[FrameTable, str], Texts]


class Place(NamedTuple):
    """The topic and the partition of a file, as text; empty if its directory names none."""

    topic: str
    partition: str


def find_place(path: str) -> Place:
    """Return the topic and the partition of a file, by the name of its directory."""
    folder = os.path.dirname(os.path.abspath(path))
    match = None if path == "-" else PARTITION.fullmatch(os.path.basename(folder))
    if match is None:
        return Place("", "")
    topic = match[1] if match[1] is not None else os.path.basename(os.path.dirname(folder))
    return Place(topic, match[2])


class Template:
    """A parsed template for the frames of a format.

    Args:
        text: the template.
        format: the format of the frames.
        null: what is written for null.
        payloads: the columns that are decoded. The value of such a column is text, or JSON. The
            sizes are those of the payloads.

    Raises:
        ValueError: an unknown letter or escape, or a column that the format does not have. The
            message has the position of the character, from 1 on.
    """

    def __init__(
        self, text: str, format: Format, null: str = "", payloads: PayloadColumns | None = None
    ):
        self._null = os.fsencode(null)
        self._format = format
        self._payloads = payloads
        self._decoded = [] if payloads is None else list(payloads.decoders)
        self._reasons = [] if payloads is None else payloads.fault_names
        self._check_decoded()
        self.columns: set[str] = set()
        self._parts: list[bytes | ReadTexts] = []
        source = os.fsencode(text)
        at = 0
        while at < len(source):
            token = TOKEN.match(source, at)
            if token is None:
                shown = os.fsdecode(source[at : at + 2])
                raise ValueError(
                    f"character {at + 1}: {shown} is not understood; there are {LETTER_LIST}, "
                    "%{column} and %%, and the escapes \\n \\r \\t \\0 \\xNN \\\\"
                )
            self._parts.append(self._parse_token(token))
            at = token.end()

    def iter_lines(self, table: FrameTable, path: str) -> Iterator[bytes]:
        """Yield the output for each row of a table of the file `path`."""
        columns = [
            [part] * len(table) if isinstance(part, bytes) else part(table, path)
            for part in self._parts
        ]
        return map(b"".join, zip(*columns))

    def _parse_token(self, token: re.Match[bytes]) -> bytes | ReadTexts:
        """Return the bytes that a token stands for, or a function that reads them from a table."""
        if token["hex"]:
            return bytes.fromhex(token["hex"].decode())
        if token["escape"]:
            return ESCAPES[token["escape"]]
        if token["column"] is not None:
            return self._read_column(os.fsdecode(token["column"]), token.start())
        if token["letter"]:
            return self._parse_letter(token["letter"].decode(), token.start())
        return b"%" if token[0] == b"%%" else token[0]

    def _parse_letter(self, letter: str, at: int) -> ReadTexts:
        if letter in DIRECTORY_LETTERS:
            number = DIRECTORY_LETTERS.index(letter)
            return lambda table, path: [os.fsencode(find_place(path)[number])] * len(table)
        if letter not in COLUMNS:
            raise ValueError(
                f"character {at + 1}: there is no letter %{letter}; there are {LETTER_LIST}"
            )
        name = COLUMNS[letter]
        column = self._find_column(name, at)
        if (
            column.kind is not KINDS.get(letter, ColumnKind.BYTES)
            or letter == "h"
            and (column.owner is not self._format)
        ):
            raise ValueError(
                f"character {at + 1}: column {name} of {self._format.name} is not what %{letter} "
                f"writes; use %{{{name}}}"
            )
        if letter == "h":
            return lambda table, _: self._read_headers(table)
        if letter == "T":
            return lambda table, _: _read_milliseconds(table, name)
        if letter in "SK":
            return lambda table, _: [b"%d" % size for size in _read_sizes(table, name)]
        if letter == "R":
            return lambda table, _: [struct.pack(">i", size) for size in _read_sizes(table, name)]
        return self._read_column(name, at)

    def _check_decoded(self) -> None:
        """Raise ValueError for a decoded column that does not exist, or has no byte strings."""
        if self._payloads is not None:
            from wirescan.frames.to_arrow import make_schema

            self._payloads.check(make_schema(self._format, self._format.all_columns))

    def _read_column(self, name: str, at: int) -> ReadTexts:
        if name in self._reasons:
            decoded = self._decoded[self._reasons.index(name)]
            return lambda table, _: self._read_decoded(table, decoded, "reasons")
        if name in self._decoded:
            return lambda table, _: self._read_decoded(table, name, "values")
        kind = self._find_column(name, at).kind
        if kind is ColumnKind.BYTES:
            return lambda table, _: self._read_bytes(table, name)
        is_list = kind is ColumnKind.PAIRS
        encodings = {name: ENCODINGS[0]}
        values = RowValues(self._format, [name], encodings, "mark", for_people=is_list)
        return lambda table, path: [
            self._null if value is None else os.fsencode(_format_value(value))
            for (value,) in values.iter_rows(table, path)
        ]

    def _find_column(self, name: str, at: int) -> ColumnDescription:
        column = self._format.describe_column(name)
        if column is None or name not in self._format.all_columns:
            hint = hint_at_names(name, self._format.all_columns)
            raise ValueError(
                f"character {at + 1}: {self._format.name} has no column {name!r}{hint}"
            )
        self.columns.add(name)
        return column

    def _read_bytes(self, table: FrameTable, name: str) -> Texts:
        found = find_column(table, name)
        views = iter_views(found.select_rows(), found.column.name)
        return [self._null if view is None else bytes(view) for view in views]

    def _read_decoded(self, table: FrameTable, name: str, part: str) -> Texts:
        """Return the values of a decoded column, or the reasons of its refused payloads."""
        from wirescan.cli.support.decoded_rows import decode_column, format_decoded

        assert self._payloads is not None
        column = decode_column(self._payloads, table, name, ENCODINGS[0])
        return [
            self._null if value is None else format_decoded(value).encode()
            for value in getattr(column, part)
        ]

    def _read_headers(self, table: FrameTable) -> Texts:
        """Return the pairs of each row, as name=value,name=value."""
        pairs: list[list[bytes]] = [[] for _ in range(len(table))]
        inner, rows = open_pairs(table, COLUMNS["h"])
        names, values = (self._read_bytes(inner, place) for place in inner.places)
        for row, bad, name, value in zip(rows.tolist(), inner.bad.tolist(), names, values):
            if not bad:
                pairs[row].append(name + b"=" + value)
        absent = find_rows_without_lists(table).tolist()
        return [
            self._null if is_absent else b",".join(entries)
            for entries, is_absent in zip(pairs, absent)
        ]


def _format_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _read_sizes(table: FrameTable, name: str) -> list[int]:
    """Return the size of a byte string in each row; -1 for null and in bad rows."""
    found = find_column(table, name)
    rows = found.select_rows().rows
    sizes: list[int] = np.where(rows["fault"] != 0, -1, rows[found.column.name + "_size"]).tolist()
    return sizes


def _read_milliseconds(table: FrameTable, name: str) -> Texts:
    found = find_column(table, name)
    unit = found.column.declared.unit
    assert unit is not None  # `timestamp` is a time in every format
    per_millisecond = UNITS[unit] // UNITS["ms"]
    times, absent = found.read_numbers_and_nulls()
    times = times // per_millisecond
    if absent is not None:
        times = np.where(absent, -1, times)
    return [b"%d" % time for time in times.tolist()]
