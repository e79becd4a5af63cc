"""Payloads that are one Thrift struct each, as structs of Arrow.

`docs/payloads.md` describes the text that names this decoder.
"""

from __future__ import annotations

import threading
from typing import Any

from wirescan.core.strings import ByteStrings
from wirescan.decoding.decoder import Decoded, Decoder, mark_refused
from wirescan.frames.optional_packages import name_package
from wirescan.thrift.struct_reader import REASONS, StructProgram, read_structs
from wirescan.thrift.struct_schema import make_program, make_tree, read_struct_type

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa

PROTOCOLS = ("binary", "compact")
USAGE = "thrift:FILE.thrift,struct=NAME[,protocol=binary or compact]"


class ThriftDecoder(Decoder):
    """Decodes bare structs, as Apache Thrift's TSerializer writes them.

    A payload is refused if it is not one whole struct, if bytes follow the struct, if a required
    field is missing, or if elements have another type than in the IDL. A field that the IDL does
    not have, or that has another type there, is skipped. Missing fields are null, also if the IDL
    has a default for them.

    idl: the path of a .thrift file, or a module that thriftpy2 has loaded.
    struct: the name of a struct, union or exception; "shared.Order" is in an included file.
    protocol: "binary", the default of TSerializer, or "compact".

    Raises ValueError for an IDL that cannot be parsed, a struct that it does not have or that
    contains itself, and for another protocol. Raises OSError for a file that cannot be read, and
    ImportError if thriftpy2 is not installed.
    """

    def __init__(self, idl: Any, struct: str, *, protocol: str = "binary"):
        if protocol not in PROTOCOLS:
            raise ValueError(f"a protocol is {' or '.join(PROTOCOLS)}, not {protocol!r}")
        self._is_compact = protocol == "compact"
        self._struct_type = read_struct_type(idl, struct)
        self._tree = make_tree(self._struct_type)
        self.type = self._tree.type
        self._program: StructProgram | None = None
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_program": None, "_lock": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def decode(self, payloads: pa.Array) -> Decoded:
        """Return the structs as an array of structs."""
        with self._lock:
            if self._program is None:
                self._program = make_program(self._struct_type, self._tree)
        builder = self._tree.make_builder()
        refusals = read_structs(
            ByteStrings(payloads), builder, self._program, compact=self._is_compact
        )
        return Decoded(self._tree.make_array(builder), mark_refused(refusals, REASONS))


def make_decoder(argument: str) -> ThriftDecoder:
    """Return the decoder of what follows "thrift:" in its text. Raises as `ThriftDecoder`."""
    path, *parts = argument.split(",")
    # A comma may be in the path: the options are the last parts.
    while parts and parts[0].partition("=")[0] not in ("struct", "protocol"):
        path += "," + parts.pop(0)
    options: dict[str, str] = {}
    for part in parts:
        name, _, value = part.partition("=")
        if name not in ("struct", "protocol") or not value or name in options:
            raise ValueError(f"decoder 'thrift': {part!r} is no option of it: write {USAGE}")
        options[name] = value
    if not path or "struct" not in options:
        raise ValueError(f"decoder 'thrift' needs an IDL and a struct: write {USAGE}")
    try:
        return ThriftDecoder(path, **options)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
