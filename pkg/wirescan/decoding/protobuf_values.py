"""Protobuf payloads as structs: bare messages of one type, or messages after Confluent's header.

Confluent's header is a byte 0, the id of a schema (4 bytes, big-endian) and message indexes: their
number and each of them as zig-zag varints. They lead from the file of the schema to the message: 1,
0 is the first message inside the second one. A single 0 byte stands for the first message.
"""

from __future__ import annotations

import base64
import re
import threading
from typing import Any

import numpy as np

from wirescan.frames.optional_packages import name_package

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa

from wirescan.core.strings import ByteStrings
from wirescan.decoding.column_tree import ColumnTree
from wirescan.decoding.decoder import Decoded, Decoder, mark_refused
from wirescan.decoding.protobuf_headers import split_headers
from wirescan.decoding.protobuf_program import MessageProgram
from wirescan.decoding.protobuf_reader import REASONS, read_messages
from wirescan.decoding.protobuf_registry import ProtobufRegistry
from wirescan.decoding.protobuf_schema import (
    MOST_FILE_BYTES,
    DescriptorFiles,
    find_path,
    make_program,
    make_tree,
)
from wirescan.decoding.schema_registry import HEADER, NO_HEADER
from wirescan.frames.similar_names import hint_at_names

FIRST_MESSAGE = (0,)
INDEXES_AT = HEADER  # bytes before the message indexes
SHORT_HEADER = 6  # bytes of a header with the single 0
OPTIONS = ("message", "header", "registry")
USAGE = "protobuf:FILE,message=NAME[,header=confluent] or protobuf:registry=WHERE[,message=NAME]"
MOST_HEADERS = 10_000  # whose messages are kept


class ProtobufDecoder(Decoder):
    """Decodes Protobuf's binary encoding into columns of one message type.

    A payload is one message. With `has_header` or a registry, it is one after Confluent's header.
    Its message indexes must lead to the type of the columns, or the payload is refused. Without a
    registry they are looked up in the file that declares the type. A registry has the schema of
    each id, and there they must lead to a message with the same name.

    files: a FileDescriptorSet with all imports; None if the registry has the schemas. Then the
        schema with the largest id in the sample is used.
    message: the full name of the type, such as "shop.Order". Without it, the first header of the
        sample names the type; a registry or `has_header` is needed.
    has_header: payloads begin with Confluent's header.
    registry: has the schemas of the ids.

    Raises ValueError for bad files, a message that does not exist or contains itself, and missing
    arguments. Raises ImportError if protobuf is not installed.
    """

    def __init__(
        self,
        files: bytes | None = None,
        message: str | None = None,
        *,
        has_header: bool = False,
        registry: ProtobufRegistry | None = None,
    ):
        if files is None and registry is None:
            raise ValueError("Protobuf needs a FileDescriptorSet or a registry")
        self._registry = registry
        self._has_header = has_header or registry is not None
        self._files = files
        self._name = message
        self._path: tuple[int, ...] = FIRST_MESSAGE
        self._tree: ColumnTree | None = None
        self._program: MessageProgram | None = None
        # Header -> why its payloads are refused, or "".
        self._checked: dict[bytes, str] = {}
        # Schema id -> message indexes -> name; a text is the reason why there is none.
        self._names: dict[int, dict[tuple[int, ...], str] | str] = {}
        self._lock = threading.Lock()
        if files is None:
            return
        parsed = DescriptorFiles(files)
        if message is not None:
            self._set_message(parsed.find(message))
        elif not self._has_header:
            names = ", ".join(parsed.names)
            raise ValueError(f"name the message: message=NAME; the messages are {names}")

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_program": None, "_checked": {}, "_names": {}, "_lock": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())
        if self._tree is not None and self._files is not None and self._name is not None:
            self._program = make_program(DescriptorFiles(self._files).find(self._name), self._tree)

    def _set_message(self, message: Any) -> None:
        tree = make_tree(message)
        self._program = make_program(message, tree)
        self._tree = tree
        self._name = message.full_name
        self._path = find_path(message)
        self.type = tree.type

    # ------------------------------------------------------------------------------ the type

    def fit(self, sample: pa.Array) -> None:
        """Find the message type by the headers of a sample, if it was not given.

        Raises ValueError if no header leads to a message, and OSError as the registry.
        """
        if self._program is not None:
            return
        headers = _list_headers(sample)
        if self._files is not None:
            parsed = DescriptorFiles(self._files)
            paths = parsed.list_paths()
            for header in headers:
                name = paths.get(_read_path(header))
                if name is not None:
                    self._set_message(parsed.find(name))
                    return
            raise ValueError(
                "no payload of the sample has Confluent's header with a message of the file: "
                "name the message"
            )
        self._fit_to_registry(headers)

    def _fit_to_registry(self, headers: list[bytes]) -> None:
        """Find the message type of the largest schema id."""
        assert self._registry is not None
        reasons: dict[tuple[int, str], str] = {}
        for header in sorted(headers, key=_read_id, reverse=True):
            number = _read_id(header)
            names = self._find_names(number)
            if isinstance(names, str):
                reasons[number, ""] = names
                continue
            path = _read_path(header)
            name = self._name or names.get(path, "")
            if (number, name) in reasons:
                continue
            if not name:
                reasons[number, ""] = f"schema {number} has no message {_show(path)}"
                continue
            files = base64.b64decode(self._registry.find(number).text or "")
            try:
                self._set_message(DescriptorFiles(files).find(name))
            except ValueError as error:
                reasons[number, name] = f"schema {number} of the registry: {error}"
                continue
            self._files = files
            return
        detail = f" ({next(iter(reasons.values()))})" if reasons else ""
        raise ValueError(
            "no payload of the sample has the id of a Protobuf schema that the registry has"
            f"{detail}: give a file"
        )

    # ------------------------------------------------------------------------------ values

    def decode(self, payloads: pa.Array) -> Decoded:
        """Return the values of payloads. Raises OSError if the registry cannot be read."""
        if self._program is None or self._tree is None:
            raise ValueError("the Protobuf message is not known: name it, or call fit first")
        strings = ByteStrings(payloads)
        is_valid = payloads.is_valid().to_numpy(zero_copy_only=False)
        others: list[str] = []
        if self._has_header:
            prefixes, before = self._check_headers(payloads, strings, is_valid, others)
        else:
            prefixes = np.where(is_valid, 0, -1).astype(np.int32)
            before = np.zeros(len(payloads), np.int64)
        builder = self._tree.make_builder()
        numbers = read_messages(strings, builder, self._program, prefixes)
        refusals = np.where(before > 0, before, numbers)
        reasons = mark_refused(refusals, [*REASONS, *others])
        return Decoded(self._tree.make_array(builder), reasons)

    def _check_headers(
        self, payloads: pa.Array, strings: ByteStrings, is_valid: np.ndarray, others: list[str]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the bytes before each message, -1 for none, and the numbers of reasons.

        others: the reasons after REASONS are appended.
        """
        sizes, runs = split_headers(strings)
        first_rows = np.flatnonzero(np.diff(runs, prepend=-1))
        numbers: dict[str, int] = {"": 0}
        run_numbers = np.zeros(len(first_rows), np.int64)
        for i, row in enumerate(first_rows.tolist()):
            reason = NO_HEADER
            if sizes[row] >= 0:
                reason = self._check_header(payloads[row].as_py()[: sizes[row]])
            if reason not in numbers:
                others.append(reason)
                numbers[reason] = len(REASONS) + len(others)
            run_numbers[i] = numbers[reason]
        counts = np.diff(np.append(first_rows, len(payloads)))
        before = np.where(is_valid, np.repeat(run_numbers, counts), 0)
        return np.where(before > 0, -1, sizes).astype(np.int32), before

    def _check_header(self, header: bytes) -> str:
        """Return why the payloads with a header are refused, or an empty string."""
        with self._lock:
            reason = self._checked.get(header)
        if reason is None:
            reason = self._compare_message(_read_id(header), _read_path(header))
            with self._lock:
                if len(self._checked) < MOST_HEADERS:
                    self._checked[header] = reason
        return reason

    def _compare_message(self, number: int, path: tuple[int, ...]) -> str:
        """Return why a message is not that of the columns, or an empty string."""
        if self._registry is None:
            if path == self._path:
                return ""
            return f"its header has message indexes {_show(path)}, not {_show(self._path)}"
        names = self._find_names(number)
        if isinstance(names, str):
            return names
        name = names.get(path)
        if name is None:
            return f"schema {number} has no message with the indexes {_show(path)}"
        return "" if name == self._name else f"it is a message {name}, not {self._name}"

    def _find_names(self, number: int) -> dict[tuple[int, ...], str] | str:
        """Return the names of the messages of a schema id, or why there are none."""
        assert self._registry is not None
        with self._lock:
            names = self._names.get(number)
        if names is not None:
            return names
        found = self._registry.find(number)
        if found.text is None:
            return found.reason
        try:
            names = DescriptorFiles(base64.b64decode(found.text)).list_paths()
        except ValueError as error:
            names = f"schema {number} of the registry: {error}"
        with self._lock:
            self._names[number] = names
        return names


def _list_headers(sample: pa.Array) -> list[bytes]:
    """Return the headers in a sample, each once, in their order."""
    sizes, runs = split_headers(ByteStrings(sample))
    rows = np.flatnonzero(np.diff(runs, prepend=-1)).tolist()
    headers = [sample[row].as_py()[: sizes[row]] for row in rows if sizes[row] >= 0]
    return list(dict.fromkeys(headers))


def _read_id(header: bytes) -> int:
    return int.from_bytes(header[1:INDEXES_AT], "big")


def _read_path(header: bytes) -> tuple[int, ...]:
    """Return the message indexes of a header that `split_headers` found."""
    if len(header) == SHORT_HEADER:
        return FIRST_MESSAGE
    numbers: list[int] = []
    value = shift = 0
    for byte in header[INDEXES_AT:]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append((value >> 1) ^ -(value & 1))
            value = shift = 0
    return tuple(numbers[1:]) or FIRST_MESSAGE


def _show(path: tuple[int, ...]) -> str:
    return ".".join(map(str, path))


def read_descriptor_file(path: str) -> bytes:
    """Return the content of a file. Raises OSError, and ValueError for a large file."""
    with open(path, "rb") as file:
        raw = file.read(MOST_FILE_BYTES + 1)
    if len(raw) > MOST_FILE_BYTES:
        raise ValueError(f"{path}: a FileDescriptorSet has at most {MOST_FILE_BYTES:,} bytes")
    return raw


def make_decoder(argument: str) -> ProtobufDecoder:
    """Return the decoder for the text after "protobuf:", which is empty if the name stands alone.

    Raises ValueError for another text, and what `ProtobufDecoder` and the file raise.
    """
    path = ""
    options: dict[str, str] = {}
    for i, text in enumerate(re.split(",(?=[a-z]+=)", argument)):
        name, equals, value = text.partition("=")
        if i == 0 and not (equals and name in OPTIONS):
            path = text
            continue
        if name not in OPTIONS:
            raise ValueError(
                f"decoder 'protobuf' has no option {name!r}{hint_at_names(name, OPTIONS)}"
            )
        if not value or name in options:
            raise ValueError(f"decoder 'protobuf': option {name} has no value, or is given twice")
        options[name] = value
    header = options.get("header")
    if header not in (None, "confluent"):
        raise ValueError(f"decoder 'protobuf': header is confluent, not {header!r}")
    if not path and "registry" not in options:
        raise ValueError(f"decoder 'protobuf' needs a schema: {USAGE}")
    registry = ProtobufRegistry(options["registry"]) if "registry" in options else None
    files = read_descriptor_file(path) if path else None
    try:
        return ProtobufDecoder(
            files, options.get("message"), has_header=header is not None, registry=registry
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}" if path else str(error)) from None
