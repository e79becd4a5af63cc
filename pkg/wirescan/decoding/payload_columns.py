"""Record batches whose byte strings are decoded.

A column `value` that is decoded has the type of its decoder. The column after it, `value_fault`,
is a string: why a payload is refused. It is null where the payload is decoded or null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np

from wirescan.frames.optional_packages import name_package

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa

from wirescan.decoding.decoder import Decoder, is_binary
from wirescan.decoding.notation import parse_decoder

FAULT_SUFFIX = "_fault"
SAMPLE_PAYLOADS = 4096  # payloads of a column whose types are inferred
HELD_BYTES = 256 << 20  # of batches that are held until these payloads are found


class PayloadColumns:
    """Decoders of columns: PayloadColumns({"value": "json"}).

    decode: for the name of each column, a `Decoder` or a text that `parse_decoder` reads.

    Raises TypeError for another mapping, and what `parse_decoder` raises.
    """

    def __init__(self, decode: Mapping[str, str | Decoder]):
        if not isinstance(decode, Mapping):
            raise TypeError(
                f"decode maps names of columns to decoders, not {type(decode).__name__}"
            )
        self.decoders: dict[str, Decoder] = {}
        for name, decoder in decode.items():
            self.decoders[name] = parse_decoder(decoder) if isinstance(decoder, str) else decoder
            if not isinstance(self.decoders[name], Decoder):
                raise TypeError(f"decode: {name!r} needs a text or a Decoder, not {decoder!r:.80}")

    @property
    def is_fitted(self) -> bool:
        """Whether the types of all decoders are known."""
        return all(decoder.type is not None for decoder in self.decoders.values())

    @property
    def fault_names(self) -> list[str]:
        """The names of the columns that say why payloads are refused."""
        return [name + FAULT_SUFFIX for name in self.decoders]

    def check(self, schema: pa.Schema) -> None:
        """Raise ValueError unless a schema has the columns, as byte strings."""
        for name in self.decoders:
            if name not in schema.names:
                raise ValueError(
                    f"column {name!r} cannot be decoded: the columns are {', '.join(schema.names)}"
                )
            if not is_binary(schema.field(name).type):
                raise ValueError(
                    f"column {name!r} cannot be decoded: its values are not byte strings"
                )
            if name + FAULT_SUFFIX in schema.names:
                raise ValueError(f"column {name!r} cannot be decoded: {name}_fault exists")

    def fit(self, batch: pa.RecordBatch) -> None:
        """Infer the types that are not known from the payloads of a batch. Raises ValueError."""
        for name, decoder in self.decoders.items():
            decoder.fit(_select_sample(batch.column(name)))

    def make_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of decoded batches. The types of all decoders are known.

        Raises ValueError as `check`.
        """
        self.check(schema)
        fields = []
        for field in schema:
            decoder = self.decoders.get(field.name)
            if decoder is None:
                fields.append(field)
            else:
                fields.append(pa.field(field.name, decoder.type))
                fields.append(pa.field(field.name + FAULT_SUFFIX, pa.string()))
        return pa.schema(fields, metadata=schema.metadata)

    def decode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with its columns decoded. Raises ValueError as `check`."""
        if not self.decoders:
            return batch  # it may have rows and no columns
        schema = self.make_schema(batch.schema)
        arrays: list[pa.Array] = []
        for name, array in zip(batch.schema.names, batch.columns):
            decoder = self.decoders.get(name)
            arrays += [array] if decoder is None else decoder.decode(array)
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def decode_all(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches decoded.

        The first payloads of each column give the types that are not known: SAMPLE_PAYLOADS of
        them, wherever batches are cut. Fewer, if the batches that hold them have HELD_BYTES.
        """
        remaining = iter(batches)
        held: list[pa.RecordBatch] = []
        sample = PayloadSample(self)
        while sample.is_incomplete:
            batch = next(remaining, None)
            if batch is None:
                break
            held.append(batch)
            sample.add(batch, batch.nbytes)
        if held:
            sample.fit()
        return map(self.decode, chain(held, remaining))


class PayloadSample:
    """The first payloads of each column, from which the types that are not known are inferred.

    Args:
        columns: the columns that are decoded.
        most: the payloads of a column that are sampled.
    """

    def __init__(self, columns: PayloadColumns, most: int = SAMPLE_PAYLOADS):
        self._unknown = {
            name: decoder for name, decoder in columns.decoders.items() if decoder.type is None
        }
        self._payloads: dict[str, list[pa.Array]] = {name: [] for name in self._unknown}
        self._missing = dict.fromkeys(self._unknown, most)
        self._held_bytes = 0

    @property
    def is_incomplete(self) -> bool:
        """Whether a column needs more payloads, and more bytes may be held."""
        return any(count > 0 for count in self._missing.values()) and self._held_bytes < HELD_BYTES

    def add(self, batch: pa.RecordBatch, held_bytes: int) -> None:
        """Add the payloads of a batch.

        held_bytes: the bytes that the caller holds for this batch until the types are known.
        """
        self._held_bytes += held_bytes
        for name in self._unknown:
            payloads = _select_sample(batch.column(name))
            self._payloads[name].append(payloads)
            self._missing[name] -= len(payloads)

    def fit(self) -> None:
        """Infer the types from the payloads so far. Raises ValueError."""
        for name, decoder in self._unknown.items():
            sampled = pa.chunked_array(self._payloads[name], pa.large_binary())
            decoder.fit(sampled.slice(0, SAMPLE_PAYLOADS).combine_chunks())


def _select_sample(payloads: pa.Array) -> pa.Array:
    """Return the first SAMPLE_PAYLOADS payloads that are not null."""
    rows = np.flatnonzero(payloads.is_valid())[:SAMPLE_PAYLOADS]
    last = int(rows[-1]) + 1 if len(rows) else 0
    # Views have no kernel that drops nulls.
    return payloads.slice(0, last).cast(pa.large_binary()).drop_null()


def decode_table(table: Any, decode: Mapping[str, str | Decoder]) -> pa.RecordBatchReader:
    """Return a table of frames as a stream of record batches, with columns decoded.

    table: a FrameTable, or anything else that exports an Arrow stream.
    decode: as in `PayloadColumns`.

    Raises ValueError for a column that does not exist or has no byte strings, and what
    `PayloadColumns` raises.
    """
    columns = PayloadColumns(decode)
    reader = pa.RecordBatchReader.from_stream(table)
    columns.check(reader.schema)
    decoded = columns.decode_all(reader)
    first = next(decoded, None)
    if first is None:
        columns.fit(pa.RecordBatch.from_pylist([], schema=reader.schema))
        return pa.RecordBatchReader.from_batches(columns.make_schema(reader.schema), [])
    return pa.RecordBatchReader.from_batches(first.schema, chain([first], decoded))
