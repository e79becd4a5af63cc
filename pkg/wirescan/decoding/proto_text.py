"""Text of .proto files as descriptors.

`parse_proto` reads what the encoding of messages depends on: messages, fields, enums, defaults and
imports. It skips services, reserved numbers, the fields of extensions and most options. It does not
resolve the names of types. The package `protobuf` does that, and refuses files that make no sense.

Entries of maps are the last of the messages inside a message. So they do not count in the message
indexes of Confluent's header, as Java's serializer counts them in the text of a schema.

The package grpcio-tools has protoc, and is not used: it has no wheels for free-threaded Python
(1.85), installs about 35 MB with grpcio and setuptools, and reads and writes only files.

Source: protobuf.dev, "Protocol Buffers Version 3 Language Specification" and its version 2.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

MOST_BYTES = 1 << 20  # of a text
DEEPEST = 32  # messages inside messages, as for protoc
MOST_EXTENSION = 1 << 29  # above each number of a field
TOKEN = re.compile(
    r"""\s+ | //[^\n]*
    | (?P<comment>/\*)
    | (?P<number>\.?[0-9](?:[eE][+-]|[0-9a-zA-Z_.])*)
    | (?P<name>[a-zA-Z_][a-zA-Z0-9_]*)
    | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    | (?P<symbol>[-+=;,.<>(){}\[\]/:])""",
    re.VERBOSE,
)
# After \u: UTF-16, also a pair such as \ud83d\ude00.
ESCAPE = re.compile(
    rb"""\\(?:[xX]([0-9a-fA-F]{1,2}) | ([0-7]{1,3})
    | u((?:[dD][89abAB][0-9a-fA-F]{2}\\u)?[0-9a-fA-F]{4}) | U([0-9a-fA-F]{8}) | (.))""",
    re.DOTALL | re.VERBOSE,
)
SINGLE_ESCAPES = dict(zip(b"abfnrtv\\'\"?", b"\a\b\f\n\r\t\v\\'\"?"))
# The numbers of FieldDescriptorProto.Type and Label.
TYPES = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "fixed64": 6,
    "fixed32": 7,
    "bool": 8,
    "string": 9,
    "bytes": 12,
    "uint32": 13,
    "sfixed32": 15,
    "sfixed64": 16,
    "sint32": 17,
    "sint64": 18,
}
TYPE_GROUP, TYPE_STRING, TYPE_BYTES = 10, 9, 12
LABELS = {"optional": 1, "required": 2, "repeated": 3}
FLOATS = (1, 2)
BRACKETS = {"{": "}", "[": "]", "(": ")"}


class ProtoToken(NamedTuple):
    """A word of the text.

    Attributes:
        kind: "name", "number", "string", "symbol" or "end".
        text: its characters.
        position: where it starts.
    """

    kind: str
    text: str
    position: int


def parse_proto(text: str) -> bytes:
    """Return a FileDescriptorProto without a name.

    Raises ValueError for text that is no .proto file in the syntax of proto2 or proto3, and
    ImportError if protobuf is not installed.
    """
    if len(text) > MOST_BYTES:
        raise ValueError(f"a .proto file has at most {MOST_BYTES:,} characters")
    try:
        from google.protobuf import descriptor_pb2
    except ImportError as error:
        raise ImportError(
            "descriptors are made by protobuf: pip install 'wirescan[protobuf]'"
        ) from error
    file = descriptor_pb2.FileDescriptorProto()
    _Parser(text.removeprefix("\ufeff"), file).parse_file()
    raw: bytes = file.SerializeToString()
    return raw


def _split(text: str) -> list[ProtoToken]:
    """Return the words of a text, and one of the kind "end". Raises ValueError for other text."""
    tokens = []
    position = 0
    while position < len(text):
        match = TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"{_describe(text, position)}: {text[position]!r} is not expected")
        kind = match.lastgroup
        if kind == "comment":
            end = text.find("*/", match.end())
            if end < 0:
                raise ValueError(f"{_describe(text, position)}: the comment has no end")
            position = end + 2
            continue
        if kind is not None:
            tokens.append(ProtoToken(kind, match[0], position))
        position = match.end()
    return [*tokens, ProtoToken("end", "the end", len(text))]


def _describe(text: str, position: int) -> str:
    return f"line {text.count(chr(10), 0, position) + 1} of the .proto file"


class _Parser:
    """Reads one file. `_at` is the number of the next token."""

    def __init__(self, text: str, file: Any):
        self._text = text
        self._tokens = _split(text)
        self._at = 0
        self._file = file

    # ------------------------------------------------------------------------------ tokens

    def _peek(self, ahead: int = 0) -> str:
        """Return the text of a token; that of a string has its quotes."""
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)].text

    def _take(self, kind: str = "") -> str:
        """Return the text of the next token, and go on. Raises ValueError for another kind."""
        token = self._tokens[self._at]
        if token.kind == "end" or kind and token.kind != kind:
            raise self._fail(f"a {kind or 'word'}")
        self._at += 1
        return token.text

    def _expect(self, *texts: str) -> None:
        for text in texts:
            if self._peek() != text:
                raise self._fail(repr(text))
            self._at += 1

    def _accept(self, text: str) -> bool:
        """Return whether the next token has a text, and go on if so."""
        if self._peek() != text:
            return False
        self._at += 1
        return True

    def _fail(self, expected: str) -> ValueError:
        token = self._tokens[self._at]
        where = _describe(self._text, token.position)
        return ValueError(f"{where}: {token.text!r:.40} instead of {expected}")

    def _take_type(self) -> str:
        """Return the name of a type, with dots."""
        name = "." if self._accept(".") else ""
        name += self._take("name")
        while self._accept("."):
            name += f".{self._take('name')}"
        return name

    def _take_number(self) -> int:
        sign = -1 if self._accept("-") else 1
        text = self._take("number")
        try:
            is_octal = text[0] == "0" and text.isdigit()
            return sign * int(text, 8 if is_octal else 0)
        except ValueError:
            self._at -= 1
            raise self._fail("an integer") from None

    def _take_string(self) -> bytes:
        """Return the bytes of one string or several that follow each other."""
        parts: list[bytes] = []
        while not parts or self._tokens[self._at].kind == "string":
            token = self._take("string")
            try:
                parts.append(_unescape(token))
            except ValueError as error:
                where = _describe(self._text, self._tokens[self._at - 1].position)
                raise ValueError(f"{where}: {error}") from None
        return b"".join(parts)

    def _take_text(self) -> str:
        """Return the text of a string. Raises ValueError if it is not UTF-8."""
        first = self._at
        raw = self._take_string()
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self._at = first
            raise self._fail("text in UTF-8") from None

    def _skip(self, *ends: str) -> None:
        """Go on to one of the texts outside of all brackets. It is not taken."""
        open_brackets: list[str] = []
        while open_brackets or self._peek() not in ends:
            text = self._take()
            if text in BRACKETS:
                open_brackets.append(BRACKETS[text])
            elif open_brackets and text == open_brackets[-1]:
                open_brackets.pop()

    def _skip_statement(self) -> None:
        """Skip a statement, up to its semicolon or to the end of its block."""
        self._skip(";", "{")
        if self._accept("{"):
            self._skip("}")
        self._at += 1

    # ------------------------------------------------------------------------------ files

    def parse_file(self) -> None:
        if self._peek() == "edition":
            raise self._fail("syntax: editions are not supported")
        if self._accept("syntax"):
            self._expect("=")
            syntax = self._take_text()
            self._expect(";")
            if syntax not in ("proto2", "proto3"):
                raise ValueError(f"the syntax of the .proto file is {syntax!r:.40}")
            if syntax == "proto3":
                self._file.syntax = syntax
        while self._tokens[self._at].kind != "end":
            self._parse_definition()

    def _parse_definition(self) -> None:
        word = self._peek()
        if word == "message":
            self._parse_message(self._file.message_type.add(), 0)
        elif word == "enum":
            self._parse_enum(self._file.enum_type.add())
        elif word == "extend":
            self._parse_extend(self._file.message_type, 0)
        elif word == "import":
            self._parse_import()
        elif self._accept("package"):
            self._file.package = self._take_type()
            self._expect(";")
        elif word in ("option", "service"):
            self._skip_statement()
        elif not self._accept(";"):
            raise self._fail("a definition")

    def _parse_import(self) -> None:
        self._expect("import")
        is_public = self._accept("public")
        if not is_public:
            self._accept("weak")
        if is_public:
            self._file.public_dependency.append(len(self._file.dependency))
        self._file.dependency.append(self._take_text())
        self._expect(";")

    # ------------------------------------------------------------------------------ messages

    def _parse_message(self, message: Any, depth: int) -> None:
        self._expect("message")
        message.name = self._take("name")
        self._parse_body(message, depth)

    def _parse_body(self, message: Any, depth: int) -> None:
        """Read the definitions inside a message."""
        if depth >= DEEPEST:
            raise ValueError(f"messages are nested more than {DEEPEST} levels deep")
        entries: list[Any] = []
        self._expect("{")
        while not self._accept("}"):
            self._parse_member(message, entries, depth)
        _add_synthetic_oneofs(message)
        message.nested_type.extend(entries)

    def _parse_member(self, message: Any, entries: list[Any], depth: int) -> None:
        word = self._peek()
        if word == "message":
            self._parse_message(message.nested_type.add(), depth + 1)
        elif word == "enum":
            self._parse_enum(message.enum_type.add())
        elif word == "extend":
            self._parse_extend(message.nested_type, depth)
        elif word == "extensions":
            self._parse_extensions(message)
        elif word == "option":
            self._parse_message_option(message)
        elif word == "reserved":
            self._skip_statement()
        elif word == "oneof":
            self._parse_oneof(message, depth)
        elif word == "map" and self._peek(1) == "<":
            entries.append(self._parse_map(message))
        elif not self._accept(";"):
            self._parse_field(message.field.add(), message.nested_type, depth)

    def _parse_message_option(self, message: Any) -> None:
        name, value = self._peek(1), self._peek(3)
        self._skip_statement()
        if name in ("map_entry", "message_set_wire_format"):
            setattr(message.options, name, value == "true")

    def _parse_extensions(self, message: Any) -> None:
        self._expect("extensions")
        while True:
            start = stop = self._take_number()
            if self._accept("to"):
                stop = MOST_EXTENSION - 1 if self._accept("max") else self._take_number()
            message.extension_range.add(start=start, end=stop + 1)
            if not self._accept(","):
                break
        self._skip_statement()

    def _parse_extend(self, messages: Any, depth: int) -> None:
        """Read fields of another message. They are unknown, but their groups are messages here."""
        self._expect("extend")
        self._take_type()
        self._expect("{")
        unused = type(self._file)().message_type.add()
        while not self._accept("}"):
            if not self._accept(";"):
                self._parse_field(unused.field.add(), messages, depth)

    def _parse_oneof(self, message: Any, depth: int) -> None:
        self._expect("oneof")
        number = len(message.oneof_decl)
        message.oneof_decl.add(name=self._take("name"))
        self._expect("{")
        while not self._accept("}"):
            if self._peek() == "option":
                self._skip_statement()
            elif not self._accept(";"):
                field = message.field.add(oneof_index=number)
                self._parse_field(field, message.nested_type, depth)

    # ------------------------------------------------------------------------------ fields

    def _parse_field(self, field: Any, messages: Any, depth: int) -> None:
        """Read a field. `messages` is the list to which a group is added."""
        label = self._peek()
        field.label = LABELS.get(label, LABELS["optional"])
        if label in LABELS:
            self._at += 1
            is_proto3 = self._file.syntax == "proto3"
            field.proto3_optional = is_proto3 and label == "optional"
        if self._peek() == "group" and self._peek(2) == "=":
            self._parse_group(field, messages, depth)
            return
        self._set_type(field, self._take_type())
        field.name = self._take("name")
        self._expect("=")
        field.number = self._take_number()
        self._parse_field_options(field)
        self._expect(";")

    def _set_type(self, field: Any, name: str) -> None:
        if name in TYPES:
            field.type = TYPES[name]
        else:
            field.type_name = name

    def _parse_group(self, field: Any, messages: Any, depth: int) -> None:
        self._expect("group")
        group = messages.add(name=self._take("name"))
        field.name = group.name.lower()
        field.type = TYPE_GROUP
        field.type_name = group.name
        self._expect("=")
        field.number = self._take_number()
        self._parse_field_options(field)
        self._parse_body(group, depth + 1)

    def _parse_map(self, message: Any) -> Any:
        """Read a map. Return the message of its entries."""
        entry = type(message)()
        entry.options.map_entry = True
        self._expect("map", "<")
        for number, name in enumerate(("key", "value"), start=1):
            part = entry.field.add(name=name, number=number, label=LABELS["optional"])
            self._set_type(part, self._take_type())
            self._expect("," if number == 1 else ">")
        field = message.field.add(name=self._take("name"), label=LABELS["repeated"])
        words = field.name.split("_")
        entry.name = "".join(word[:1].upper() + word[1:] for word in words) + "Entry"
        field.type_name = entry.name
        self._expect("=")
        field.number = self._take_number()
        self._parse_field_options(field)
        self._expect(";")
        return entry

    def _parse_field_options(self, field: Any) -> None:
        if not self._accept("["):
            return
        while True:
            name = self._peek()
            self._skip("=")
            self._at += 1
            if name == "default":
                field.default_value = self._take_default(field)
            elif name == "packed":
                field.options.packed = self._peek() == "true"
            self._skip(",", "]")
            if self._accept("]"):
                return
            self._expect(",")

    def _take_default(self, field: Any) -> str:
        """Return a default as descriptors have it."""
        if field.type == TYPE_STRING:
            return self._take_text()
        if field.type == TYPE_BYTES:
            return _escape(self._take_string())
        sign = "-" if self._accept("-") else ""
        if self._tokens[self._at].kind == "name":  # true, inf, or the name of an enum's number
            return sign + self._take()
        is_float = field.type in FLOATS and not self._peek().lower().startswith("0x")
        return sign + (self._take("number").rstrip("fF") if is_float else str(self._take_number()))

    # ------------------------------------------------------------------------------ enums

    def _parse_enum(self, enum: Any) -> None:
        self._expect("enum")
        enum.name = self._take("name")
        self._expect("{")
        while not self._accept("}"):
            if self._peek() == "option":
                is_alias = self._peek(1) == "allow_alias" and self._peek(3) == "true"
                self._skip_statement()
                if is_alias:
                    enum.options.allow_alias = True
            elif self._peek() == "reserved":
                self._skip_statement()
            elif not self._accept(";"):
                value = enum.value.add(name=self._take("name"))
                self._expect("=")
                value.number = self._take_number()
                self._skip_statement()


def _add_synthetic_oneofs(message: Any) -> None:
    """Add a oneof for each field with `optional` in proto3, after the other ones."""
    names = {oneof.name for oneof in message.oneof_decl} | {field.name for field in message.field}
    for field in message.field:
        if field.proto3_optional:
            name = f"_{field.name}"
            while name in names:
                name = f"X{name}"
            names.add(name)
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=name)


def _unescape(token: str) -> bytes:
    """Return the bytes of a string between quotes. Raises ValueError for a bad escape."""

    def replace(match: re.Match[bytes]) -> bytes:
        hexadecimal, octal, short, long, single = match.groups()
        if hexadecimal or octal:
            return bytes([int(hexadecimal or octal, 16 if hexadecimal else 8) & 0xFF])
        try:
            if short:
                units = bytes.fromhex(short.decode().replace("\\u", ""))
                return units.decode("utf-16-be").encode()
            if long:
                return chr(int(long, 16)).encode()
            return bytes([SINGLE_ESCAPES[single[0]]])
        except (ValueError, OverflowError, KeyError):
            shown = match[0].decode(errors="replace")
            raise ValueError(f"a string has the escape {shown}") from None

    return ESCAPE.sub(replace, token[1:-1].encode())


def _escape(raw: bytes) -> str:
    """Return bytes as the default of a field of bytes has them."""
    return "".join(
        chr(byte) if 0x20 <= byte < 0x7F and byte not in b"\\'\"" else f"\\{byte:03o}"
        for byte in raw
    )
