"""MessagePack maps as structs. The types of the members are given, or inferred from a sample."""

from __future__ import annotations

import threading

import numpy as np

from wirescan.frames.optional_packages import name_package

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa
    from pyarrow import compute

from wirescan.core.strings import ByteStrings
from wirescan.decoding.column_tree import ColumnTree
from wirescan.decoding.decoder import Decoded, Decoder, mark_refused
from wirescan.decoding.json_values import read_json_schema
from wirescan.decoding.msgpack_reader import REASONS, REFUSALS, MapProgram, read_maps
from wirescan.decoding.msgpack_types import check_schema, infer_schema, make_program

SAMPLE_ROWS = 4096  # payloads whose types are inferred


class MsgpackDecoder(Decoder):
    """Decodes MessagePack maps into structs.

    With a schema, members outside of it are ignored. Without one, the types are those of the first
    4,096 payloads of the sample. If no payload of the sample has a member, the values are the
    payloads themselves.

    A payload is refused if it is not exactly one map, if a value does not fit its type, if a string
    or a key is not UTF-8, if a member occurs twice, or if a key is neither a string nor an integer.
    An integer key names the member that has its decimal digits as a name. Ignored members may have
    any values.

    schema: the members and their types.

    Raises TypeError and ValueError for a schema that cannot be used.
    """

    def __init__(self, schema: pa.Schema | None = None):
        self._types: pa.Schema | None = None
        self._tree = ColumnTree()
        self._program: tuple[MapProgram, list[str]] | None = None
        self._lock = threading.Lock()
        if schema is not None:
            self._set_types(check_schema(schema))

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_program": None, "_lock": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def _set_types(self, types: pa.Schema) -> None:
        self._tree.add(pa.struct(types))
        self._program = make_program(types, self._tree)
        self._types = types
        self.type = pa.struct(types) if len(types) else pa.binary()

    def fit(self, sample: pa.Array) -> None:
        """Infer the types of the members, if no schema was given.

        Raises ValueError if the sample has more than 1,000 different members.
        """
        if self.type is None:
            self._set_types(infer_schema(sample.slice(0, SAMPLE_ROWS)))

    def decode(self, payloads: pa.Array) -> Decoded:
        """Return the maps as structs."""
        if self._types is None:
            raise ValueError(
                "the types of MessagePack are not known: give a schema, or call fit first"
            )
        with self._lock:
            if self._program is None:
                self._program = make_program(self._types, self._tree)
        program, paths = self._program
        builder = self._tree.make_builder()
        refusals = read_maps(ByteStrings(payloads), builder, program)
        reasons = _explain(refusals, paths)
        if len(self._types):
            return Decoded(self._tree.make_array(builder), reasons)
        maps = payloads.cast(pa.large_binary())
        accepted = compute.if_else(pa.array(refusals > 0), pa.scalar(None, maps.type), maps)
        return Decoded(accepted.cast(pa.binary()), reasons)


def _explain(refusals: np.ndarray, paths: list[str]) -> pa.Array:
    """Return the reasons of refused payloads, with the names of the members that cause them."""
    numbers, index = np.unique(refusals, return_inverse=True)
    texts = []
    for number in numbers[numbers > 0].tolist():
        step, reason = divmod(number, REFUSALS)
        texts.append(f"{paths[step]}: {REASONS[reason - 1]}".removeprefix(": "))
    # The smallest number is 0 where a payload is accepted, and `mark_refused` counts from 1.
    places = index + (len(numbers) == 0 or numbers[0] > 0)
    return mark_refused(places, texts)


def make_decoder(path: str) -> MsgpackDecoder:
    """Return the decoder for the text after "msgpack:": a schema's file, or nothing.

    Raises what `read_json_schema` and `MsgpackDecoder` raise.
    """
    if not path:
        return MsgpackDecoder()
    try:
        return MsgpackDecoder(read_json_schema(path, "msgpack"))
    except ValueError as error:
        raise ValueError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None
