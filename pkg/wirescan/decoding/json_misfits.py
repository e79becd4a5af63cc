"""Search for the documents that Arrow's JSON parser refuses. `json_parser.py` uses it.

The parser reports one bad document in each call, and a call costs as much as a thousand good
documents. So after a refusal, `Types.find_misfit` checks each document before the next call. Most
documents of a stream have one of few shapes, so one document of each shape is decoded. The parser
still finds the documents that this check misses.
"""

from __future__ import annotations

import calendar
import json
import math
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wirescan.decoding.json_lines import extract_shape
from wirescan.frames.escape import make_visible
from wirescan.frames.optional_packages import name_package

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa

ANY = "any"  # kind of a value that only the parser checks
DECIMAL = "decimal"  # kind of numbers, and of text that is a number
KINDS = {bool: "boolean", int: "number", float: "number", str: "string", list: "array"}
# The times that the parser accepts. It also refuses days that the month does not have, and times
# that 64 bits cannot hold.
TIME = re.compile(
    r"(\d{4})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
    r"(?:[T ](?:[01]\d|2[0-3])(?::[0-5]\d(?::[0-5]\d(?:\.\d{1,9})?)?)?(?:Z|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)
# A decimal as the parser reads it: whole digits, digits of the fraction, and the exponent.
DECIMAL_TEXT = re.compile(r"[+-]?([0-9]*)(?:\.([0-9]*))?(?:[eE][+-]?0*([0-9]*))?")
LONGEST_EXPONENT = 5  # digits
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
SECONDS_PER_DAY = 86_400
FLOAT_LIMIT = 2**128 - 2**103  # from here on, the nearest float is infinity
FIRST_YEAR = 1677  # 64 bits of nanoseconds begin within this year
LAST_YEAR = 2262  # ... and end within this one


class ObjectMembers(list[tuple[str, Any]]):
    """The members of an object, duplicates included."""


class Real(float):
    """A number with a fraction or an exponent. text: as it is written."""

    text: str


def _make_real(text: str) -> Real:
    real = Real(text)
    real.text = text
    return real


KINDS[ObjectMembers] = "object"
KINDS[Real] = "number"
# `json.loads` makes a new one in each call.
DECODER = json.JSONDecoder(object_pairs_hook=ObjectMembers, parse_float=_make_real)


@dataclass(slots=True)
class _Node:
    """The kind and the type of the values at one path. The type is None unless it is given.

    fields: the nodes of an object's members. item: the node of an array's items.
    open: members without a node are read too.
    """

    kind: str | None = None
    type: Any = None
    open: bool = True
    fields: dict[str, _Node] = field(default_factory=dict)
    item: _Node | None = None


class Types:
    """The types that the fields have so far.

    types: pyarrow.Schema of all fields so far. given_types: pyarrow.Schema of the given ones.
    infers: other fields are read too.
    """

    def __init__(self, types: Any, given_types: Any, *, infers: bool):
        self._open = infers
        self._top = self._make_node(pa.struct(types), pa.struct(given_types))
        self._new: list[_Node] = []
        self._reasons: dict[bytes, str | None] = {}  # shape -> what `find_misfit` returns for it
        self._shape_decides = True

    def find_misfit(self, line: bytes) -> str | None:
        """Return why a document is refused, or None.

        An accepted document sets the types of its new fields.
        """
        shape = extract_shape(line)
        try:
            return self._reasons[shape]
        except KeyError:
            pass
        self._shape_decides = True
        reason = self._check_document(line)
        if self._shape_decides:  # and the type of a field does not change once it is known
            self._reasons[shape] = reason
        return reason

    def _check_document(self, line: bytes) -> str | None:
        self._new = []
        try:
            value = DECODER.decode(line.decode())
            if b"\\u" in line:
                json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return "half a surrogate pair"
        except ValueError as error:
            return make_visible(f"JSON parse error: {error}")
        reason = self._check(self._top, value, "")
        if reason is None:
            return None
        for node in self._new:
            node.kind = None
        return make_visible(reason)  # it quotes names of fields

    def _check(self, node: _Node, value: Any, path: str) -> str | None:
        """Return why a value does not fit its node, or None."""
        if value is None or node.kind == ANY:
            return None
        kind = KINDS[type(value)]
        if node.kind == DECIMAL and kind in ("number", "string"):
            kind = DECIMAL
        if node.kind is None:
            node.kind = kind
            self._new.append(node)
        elif node.kind != kind:
            return f"Field {path} changed from {node.kind} to {kind}"
        if kind == "object":
            return self._check_members(node, value, path)
        if kind == "array":
            return self._check_items(node, value, path)
        return self._check_scalar(node.type, value, path)

    def _check_items(self, node: _Node, items: list[Any], path: str) -> str | None:
        node.item = node.item or _Node()
        for item in items:
            reason = self._check(node.item, item, path + "/[]")
            if reason is not None:
                return reason
        return None

    def _check_members(self, node: _Node, pairs: ObjectMembers, path: str) -> str | None:
        names = set()
        for name, value in pairs:
            child = node.fields.get(name)
            if child is None:
                if not node.open:
                    continue
                child = node.fields[name] = _Node()
            if name in names:
                return f"Field {path}/{name} occurs twice".replace(" /", " ")
            names.add(name)
            reason = self._check(child, value, f"{path}/{name}" if path else name)
            if reason is not None:
                return reason
        return None

    def _check_scalar(self, given_type: Any, value: Any, path: str) -> str | None:
        if isinstance(value, Real) and math.isinf(value):
            return f"Field {path}: a number is too large for a double"
        if given_type is None:
            return None
        name = str(given_type)
        fits = True
        types = pa.types
        if types.is_date(given_type) or types.is_time(given_type) or types.is_decimal(given_type):
            self._shape_decides = False  # each number may be outside the range
            fits = _is_number_of(value, given_type)
        elif name.startswith(("int", "uint")):
            bounds = np.iinfo(name)
            if name != "int64":
                self._shape_decides = False  # a short number may be outside the range
            fits = type(value) is int and bounds.min <= value <= bounds.max
        elif name == "float":
            fits = abs(value) < FLOAT_LIMIT
        elif name.startswith("timestamp"):
            fits = _is_time(value, given_type)
        shown = value.text if isinstance(value, Real) else repr(value)
        return None if fits else f"Field {path}: failed to convert {shown:.80} to {name}"

    def _make_node(self, kind: Any, given_type: Any) -> _Node:
        """Return the node of a type. `given_type` is the given one at the same path, or None."""
        is_given = given_type is not None
        if pa.types.is_struct(kind):
            node = _Node("object", open=self._open)
            for field in kind:
                given_field = find_field_type(given_type, field.name)
                node.fields[field.name] = self._make_node(field.type, given_field)
            return node
        if pa.types.is_list(kind):
            node = _Node("array")
            node.item = self._make_node(
                kind.value_type, given_type.value_type if is_given else None
            )
            return node
        if pa.types.is_null(kind):
            return _Node(ANY if is_given else None)
        if pa.types.is_boolean(kind):
            return _Node("boolean")
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return _Node("number", kind if is_given else None)
        if pa.types.is_string(kind) or pa.types.is_timestamp(kind):
            return _Node("string", kind if is_given else None)
        if pa.types.is_date(kind) or pa.types.is_time(kind):
            return _Node("number", kind)
        if pa.types.is_decimal(kind):
            return _Node(DECIMAL, kind)
        return _Node("string") if pa.types.is_binary(kind) else _Node(ANY)


def find_field_type(kind: pa.DataType | None, name: str) -> pa.DataType | None:
    """Return the type of a field of a struct. None if there is no such field, or no struct."""
    if kind is None or not pa.types.is_struct(kind):
        return None
    index = kind.get_field_index(name)
    return None if index < 0 else kind.field(index).type


def _is_time(text: str, kind: Any) -> bool:
    """Return whether the parser accepts a string as a timestamp of this type."""
    match = TIME.fullmatch(text)
    if match is None:
        return False
    year, month, day = map(int, match.groups())
    if day > calendar.monthrange(year, month)[1]:
        return False
    if kind.unit != "ns" or FIRST_YEAR < year < LAST_YEAR:
        return True
    if not FIRST_YEAR <= year <= LAST_YEAR:
        return False
    # The parser accepts a time with or without its zone, whatever the type has.
    for zone in (None, "UTC"):
        try:
            pa.scalar(text, pa.string()).cast(pa.timestamp(kind.unit, zone))
            return True
        except pa.ArrowInvalid:
            pass
    return False


def _is_number_of(value: Any, kind: Any) -> bool:
    """Return whether a number or text is a date, a time of day or a decimal of this type."""
    if pa.types.is_decimal(kind):
        return _is_decimal(value.text if isinstance(value, Real) else str(value), kind)
    if type(value) is not int:
        return False
    if pa.types.is_time(kind):
        return 0 <= value < SECONDS_PER_DAY * PER_SECOND[kind.unit]
    if pa.types.is_date32(kind):
        return -(1 << 31) <= value < 1 << 31
    return -(1 << 63) <= value < 1 << 63 and value % (SECONDS_PER_DAY * PER_SECOND["ms"]) == 0


def _is_decimal(text: str, kind: Any) -> bool:
    """Return whether a text is a decimal that a type holds without a loss.

    The parser refuses one with more digits than the precision, also if they are zeros.
    """
    match = DECIMAL_TEXT.fullmatch(text)
    if match is None or not (match[1] or match[2]):
        return False
    fraction = match[2] or ""
    digits = (match[1] + fraction).lstrip("0")
    if not digits:
        return len(fraction) <= kind.precision
    if len(digits) > kind.precision or len(match[3] or "") > LONGEST_EXPONENT:
        return False
    exponent = int(match[3] or 0) * (-1 if re.search("[eE]-", text) else 1) - len(fraction)
    significant = digits.rstrip("0")
    last = exponent + len(digits) - len(significant)  # the power of ten of the last digit
    return -last <= kind.scale and len(significant) + last + kind.scale <= kind.precision
