"""Avro payloads as structs: bare values of one schema, or values after Confluent's header.

Confluent's header is a byte 0 and the id of a schema, 4 bytes, big-endian. A registry has the
schemas: see `schema_registry.py`.
"""

from __future__ import annotations

import threading

import numpy as np

from wirescan.frames.optional_packages import name_package

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa

from wirescan.core.strings import ByteStrings
from wirescan.decoding.avro_reader import REASONS, Program, read_values
from wirescan.decoding.avro_schema import AvroSchema, make_program, make_tree, parse_schema
from wirescan.decoding.column_tree import ColumnTree
from wirescan.decoding.decoder import Decoded, Decoder, mark_refused
from wirescan.decoding.schema_registry import (
    HEADER,
    MAX_SCHEMA_BYTES,
    NO_HEADER,
    SchemaRegistry,
    read_ids,
)


class AvroDecoder(Decoder):
    """Decodes Avro's binary encoding into columns of one schema, the reader's schema.

    Without a registry, each payload is one value of the schema. With a registry, each payload has
    Confluent's header, and its schema is resolved to the reader's schema by Avro's rules. Without
    a reader's schema, it is the schema with the largest id in the sample.

    A payload is refused if it does not fit its schema, if bytes follow its value, or if the
    registry does not have its schema.

    schema: the reader's schema, in JSON. registry: has the schemas of the ids.

    Raises ValueError for a bad schema, one that contains itself, and for neither argument.
    """

    def __init__(
        self, schema: str | bytes | None = None, *, registry: SchemaRegistry | None = None
    ):
        if schema is None and registry is None:
            raise ValueError("Avro needs a schema or a registry")
        self._registry = registry
        self._reader: AvroSchema | None = None
        self._tree: ColumnTree | None = None
        # Schema id -> its program; a text is the reason why there is none.
        self._programs: dict[int, Program | str] = {}
        self._lock = threading.Lock()
        if schema is not None:
            self._set_reader(parse_schema(schema))

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_programs": {}, "_lock": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def _set_reader(self, reader: AvroSchema) -> None:
        self._tree = make_tree(reader)
        self._reader = reader
        self.type = self._tree.type

    def fit(self, sample: pa.Array) -> None:
        """Take the schema with the largest id in the sample as the reader's, if none was given.

        Raises ValueError if no payload has the id of a schema, and OSError as the registry.
        """
        if self._reader is not None:
            return
        assert self._registry is not None
        ids = read_ids(sample)
        reason = ""
        for number in sorted(set(ids[ids >= 0].tolist()), reverse=True):
            found = self._registry.find(number)
            if found.text is None:
                reason = reason or f" ({found.reason})"
                continue
            try:
                self._set_reader(parse_schema(found.text))
                return
            except ValueError as error:
                reason = reason or f" (schema {number}: {error})"
        raise ValueError(
            "no payload of the sample has the id of an Avro schema that the registry has"
            f"{reason}: give a schema"
        )

    def decode(self, payloads: pa.Array) -> Decoded:
        """Return the values of payloads. Raises OSError if the registry cannot be read."""
        if self._reader is None or self._tree is None:
            raise ValueError("the Avro schema is not known: give a schema, or call fit first")
        is_valid = payloads.is_valid().to_numpy(zero_copy_only=False)
        if self._registry is None:
            with self._lock:
                program = self._programs.get(-1)
                if program is None:
                    program = make_program(self._reader, self._reader, self._tree)
                    self._programs[-1] = program
            assert isinstance(program, Program)
            program_of = np.where(is_valid, 0, -1).astype(np.int32)
            return self._read(payloads, [program], program_of, 0, ())
        ids = read_ids(payloads)
        numbers, index = np.unique(ids, return_inverse=True)
        programs: list[Program] = []
        others = [NO_HEADER]
        targets = np.full(len(numbers), -1, np.int32)
        refusals = np.zeros(len(numbers), np.int64)
        for i, number in enumerate(numbers.tolist()):
            program = self._find_program(number) if number >= 0 else NO_HEADER
            if isinstance(program, Program):
                targets[i] = len(programs)
                programs.append(program)
            else:
                refusals[i] = len(REASONS) + len(others) + 1
                others.append(program)
        before = np.where(is_valid, refusals[index], 0)
        return self._read(payloads, programs, targets[index], HEADER, others, before)

    def _find_program(self, number: int) -> Program | str:
        """Return the program of a schema id, or why there is none."""
        assert self._registry is not None and self._reader is not None and self._tree is not None
        with self._lock:
            program = self._programs.get(number)
        if program is not None:
            return program
        found = self._registry.find(number)
        if found.text is None:
            return found.reason
        try:
            program = make_program(parse_schema(found.text), self._reader, self._tree)
        except ValueError as error:
            program = f"schema {number}: {error}"
        except RecursionError:
            program = f"schema {number} is nested too deeply"
        with self._lock:
            self._programs[number] = program
        return program

    def _read(
        self,
        payloads: pa.Array,
        programs: list[Program],
        program_of: np.ndarray,
        prefix: int,
        others: tuple[str, ...] | list[str],
        before: np.ndarray | None = None,
    ) -> Decoded:
        """Return the values of payloads.

        program_of: for each payload the index of its program, or -1.
        others: further reasons. before: the reasons that are known, 0 for none.
        """
        assert self._tree is not None
        builder = self._tree.make_builder()
        numbers = read_values(ByteStrings(payloads), builder, programs, program_of, prefix)
        refusals = numbers if before is None else np.where(before > 0, before, numbers)
        reasons = mark_refused(refusals, [*REASONS, *others])
        return Decoded(self._tree.make_array(builder), reasons)


def read_schema_file(path: str) -> bytes:
    """Return the content of a schema's file. Raises OSError, and ValueError for a large file."""
    with open(path, "rb") as file:
        raw = file.read(MAX_SCHEMA_BYTES + 1)
    if len(raw) > MAX_SCHEMA_BYTES:
        raise ValueError(f"{path}: a schema has at most {MAX_SCHEMA_BYTES:,} bytes")
    return raw


def make_decoder(argument: str) -> AvroDecoder:
    """Return the decoder for the text after "avro:", which is empty if the name stands alone.

    Raises ValueError for another text, and what `read_schema_file`, `SchemaRegistry` and
    `AvroDecoder` raise.
    """
    path, found, location = f",{argument}".rpartition(",registry=")
    path = (path if found else location).removeprefix(",")
    if found and not location or not found and not path:
        raise ValueError("decoder 'avro' needs a schema: avro:FILE or avro:registry=WHERE")
    registry = SchemaRegistry(location) if found else None
    if not path:
        return AvroDecoder(registry=registry)
    try:
        return AvroDecoder(read_schema_file(path), registry=registry)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
