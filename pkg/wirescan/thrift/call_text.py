"""Messages as text for people: `divide(1: 17, 2: -4)`, or with an IDL `divide(num1: 17, num2: -4)`.

    call           method(fields)
    oneway call    oneway method(fields)
    reply          method -> value             method -> void         method raised Name {fields}
    exception      method failed: INTERNAL_ERROR: "message"

    struct {1: value}    list [value, value]    set set{value, value}    map map{key: value}
    text "..."           bytes b"..."           enum, with an IDL: its name

The text is bounded: see LONGEST_TEXT and the other limits. `...` stands for what is cut. A struct
that is damaged is shown up to the damage: `divide(1: 17, <bad struct at byte 31: ...>)`.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import UUID

from wirescan.core.fault import Fault
from wirescan.frames.row_values import iter_views
from wirescan.frames.table import FrameTable, require_rows
from wirescan.frames.value_text import escape_bytes, escape_text
from wirescan.thrift.constants import ExceptionType, MessageType, Protocol, Type
from wirescan.thrift.idl_calls import CallTypes, IdlType, MethodStructs, load_calls
from wirescan.thrift.scan import MESSAGE
from wirescan.thrift.struct_tree import StructTree, WireValue

__all__ = ["call_text"]

LONGEST_TEXT = 1000  # characters of a message
LONGEST_STRING = 100  # characters of a text or of the name of a method, bytes of a byte string
MOST_ITEMS = 20  # fields of a struct, elements of a list or set, pairs of a map
DEEPEST = 8  # levels of structs and containers
LONGEST_CHARACTER = 4  # bytes in UTF-8
CUT = "..."

FAULTS: dict[int, str] = {
    Fault.TRUNCATED: "the bytes end inside a value",
    Fault.BAD_VARINT: "a varint is too long",
    Fault.BAD_FIELD: "no such type or field number",
    Fault.BAD_COUNT: "more elements than bytes follow",
    Fault.NESTED: "more than 64 levels",
    Fault.LEFTOVER: "bytes follow the struct",
}


def call_text(messages: FrameTable, *, idl: Any = None) -> list[str | None]:
    """Return the text of each message, such as `divide(1: 17, 2: -4)`; None for a bad message.

    Args:
        messages: a table of thrift.messages.
        idl: the path of an IDL, or a module that thriftpy2 has loaded. With it the text has the
            names of fields, enum values and exceptions.

    The text has at most 1,000 characters. It shows up to 100 characters of each string, 20 fields
    or elements of each struct or container, and 8 levels of them; `...` stands for the rest. Bytes
    that are not UTF-8 are `b"..."`. Unprintable characters are escaped. A damaged struct is shown
    up to the damage: `divide(1: 17, <bad struct at byte 31: the bytes end inside a value>)`. The
    byte counts from the first byte of the message. The time is linear in the bytes of the messages.

    Names are looked up as in `thrift.fields`. A value of another type than in the IDL has no name.

    Raises:
        TypeError: another table, or another kind of IDL.
        ValueError: an IDL that cannot be parsed.
        OSError: the IDL cannot be read.
        ImportError: `idl` is a path, and thriftpy2 is not installed.
    """
    require_rows(messages, MESSAGE, "call_text takes a table of thrift.messages")
    types = None if idl is None else load_calls(idl)
    columns = ("kind", "protocol", "version", "arguments_at")
    numbers = zip(*(messages[name].tolist() for name in columns))
    views = zip(*(iter_views(messages, name) for name in ("service", "method", "arguments")))
    texts: list[str | None] = []
    for (kind, protocol, version, at), (service, method, arguments) in zip(numbers, views):
        if method is None or arguments is None:
            texts.append(None)
            continue
        tree = StructTree(
            arguments,
            compact=protocol == Protocol.COMPACT,
            version=version,
            deepest=DEEPEST,
            most_items=MOST_ITEMS,
            most_bytes=LONGEST_STRING * LONGEST_CHARACTER,
            budget=LONGEST_TEXT * LONGEST_CHARACTER,
        )
        structs = MethodStructs()
        if types is not None:
            structs = types.find_method(None if service is None else bytes(service), bytes(method))
        writer = _ValueWriter(tree, at, types)
        text = _format_message(kind, _format_name(service, method), writer, structs)
        texts.append(_cut(text, LONGEST_TEXT))
    return texts


def _format_message(kind: int, name: str, writer: _ValueWriter, structs: MethodStructs) -> str:
    """Return a message as text."""
    if kind == MessageType.EXCEPTION:
        return f"{name} failed: {writer.format_failure()}"
    if kind == MessageType.REPLY:
        return f"{name} {writer.format_result(structs.result)}"
    call = f"{name}({writer.format_fields(writer.root, structs.arguments)})"
    return f"oneway {call}" if kind == MessageType.ONEWAY else call


class _ValueWriter:
    """Writes the values of one struct as text.

    tree: the struct. start: where it begins in its message. types: those of the IDL, or None.
    """

    def __init__(self, tree: StructTree, start: int, types: CallTypes | None):
        self.root = tree.root
        self._types = types
        meaning = FAULTS.get(tree.fault, "unknown fault")
        self._damage = f"<bad struct at byte {start + tree.position}: {meaning}>"

    def format_failure(self) -> str:
        """Return what an EXCEPTION carries (TApplicationException): its type and its message."""
        fields = {id: value for id, value in self.root.items or ()}
        kinds = {id: value.kind for id, value in fields.items()}
        is_known = kinds.items() <= {(1, Type.STRING), (2, Type.I32)}
        if not is_known or self.root.is_broken or self.root.is_cut:
            return self._format_value(self.root, None)
        number = fields[2].value if 2 in fields else ExceptionType.UNKNOWN
        name = ExceptionType(number).name if number in list(ExceptionType) else f"type {number}"
        return f"{name}: {_format_string(fields[1], None)}" if 1 in fields else name

    def format_result(self, struct: IdlType | None) -> str:
        """Return the result of a REPLY: the value in field 0, or an exception in another field."""
        items = self.root.items or []
        if len(items) != 1 or self.root.is_broken or self.root.is_cut:
            is_void = not (items or self.root.is_broken or self._has_success(struct))
            return "-> void" if is_void else f"-> {self._format_value(self.root, struct)}"
        id, value = items[0]
        name, type = self._find_field(struct, id, value)
        if id == 0:
            return f"-> {self._format_value(value, type)}"
        if value.kind == Type.STRUCT and type is not None:
            return f"raised {type.spec.__name__} {self._format_value(value, type)}"
        return f"raised {{{name}: {self._format_value(value, type)}}}"

    def format_fields(self, node: WireValue, struct: IdlType | None) -> str:
        """Return the fields of a struct without braces. struct: its type, or None."""
        texts = []
        for id, value in node.items or ():
            name, type = self._find_field(struct, id, value)
            texts.append(f"{name}: {self._format_value(value, type)}")
        return self._join(node, texts)

    def _format_value(self, node: WireValue, type: IdlType | None) -> str:
        if node.kind == Type.STRUCT:
            return f"{{{self.format_fields(node, type)}}}"
        if node.kind in (Type.LIST, Type.SET, Type.MAP):
            return self._format_container(node, type)
        if node.kind == Type.STRING:
            return _format_string(node, type)
        if node.kind == Type.BOOL:
            return str(node.value).lower()
        if node.kind == Type.UUID:
            return str(UUID(bytes=node.value))
        if type is not None and type.is_enum:
            return str(type.spec._VALUES_TO_NAMES.get(node.value, node.value))
        return str(node.value)

    def _format_container(self, node: WireValue, type: IdlType | None) -> str:
        inside: Sequence[IdlType | None] = type.items if type is not None else (None, None)
        items = node.items or ()
        if node.kind == Type.MAP:
            pairs = [
                f"{self._format_item(key, inside[0])}: {self._format_item(value, inside[1])}"
                for key, value in items
            ]
            return f"map{{{self._join(node, pairs)}}}"
        text = self._join(node, [self._format_item(item, inside[0]) for item in items])
        return f"set{{{text}}}" if node.kind == Type.SET else f"[{text}]"

    def _format_item(self, node: WireValue, type: IdlType | None) -> str:
        is_declared = type is not None and type.kind == node.kind
        return self._format_value(node, type if is_declared else None)

    def _join(self, node: WireValue, texts: list[str]) -> str:
        """Return the texts of items, what stands for those that are cut, and the damage."""
        if node.is_cut:
            texts.append(CUT)
        if node.is_broken:
            texts.append(self._damage)
        return ", ".join(texts)

    def _find_field(
        self, struct: IdlType | None, id: int, value: WireValue
    ) -> tuple[str, IdlType | None]:
        """Return the name and the type of a field; its number and None if it is not declared."""
        if self._types is not None and struct is not None:
            field = self._types.get_fields(struct.spec).get(id)
            if field is not None and field.type.kind == value.kind:
                return field.name, field.type
        return str(id), None

    def _has_success(self, struct: IdlType | None) -> bool:
        """Return whether the IDL declares that a method returns a value."""
        return (
            self._types is not None
            and struct is not None
            and 0 in self._types.get_fields(struct.spec)
        )


def _format_string(node: WireValue, type: IdlType | None) -> str:
    """Return a byte string as text, or as bytes if it is not UTF-8 or declared as binary."""
    data: bytes = node.value
    decode = partial(codecs.utf_8_decode, data, "strict", not node.is_cut)
    try:
        text = None if type is not None and type.is_binary else decode()[0]
    except UnicodeDecodeError:
        text = None
    if text is None:
        is_cut = node.is_cut or len(data) > LONGEST_STRING
        shown = 'b"' + escape_bytes(data[:LONGEST_STRING]).replace('"', '\\"')
    else:
        is_cut = node.is_cut or len(text) > LONGEST_STRING
        shown = '"' + escape_text(text[:LONGEST_STRING]).replace('"', '\\"')
    return f'{shown}"{CUT}' if is_cut else f'{shown}"'


def _format_name(service: memoryview | None, method: memoryview) -> str:
    """Return the name of a method, after that of its service."""
    names = [_format_word(method)] if service is None else map(_format_word, (service, method))
    return ":".join(names)


def _format_word(data: memoryview) -> str:
    first = bytes(data[: LONGEST_STRING * LONGEST_CHARACTER])
    return _cut(escape_text(first.decode(errors="surrogateescape")), LONGEST_STRING)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - len(CUT)] + CUT
