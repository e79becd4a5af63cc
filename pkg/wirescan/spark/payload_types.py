"""Payloads that become typed columns in Spark's tasks. docs/payloads.md lists the decoders.

Spark has fewer types than Arrow. A decoded value gets the nearest type that holds it:

Arrow                                     Spark
uint8, uint16, uint32, uint64             the next larger integer; decimal(20,0)
float16                                   float
timestamp of any unit                     timestamp, or timestamp_ntz without a zone; microseconds
date64                                    date
duration of any unit                      day-time interval
time32, time64                            bigint: microseconds since midnight
null                                      string
large, view, fixed-size, dictionary types the plain type
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
from pyarrow import compute

from wirescan.decoding.decoder import Decoded, Decoder, decode_in_halves
from wirescan.decoding.payload_columns import PayloadColumns

DECODE = "decode."  # an option of the data source is this and the name of a column
MICROSECONDS = "us"
SIMPLE_TYPES = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.null(): pa.string(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}


class SparkDecoder(Decoder):
    """Another decoder, whose values get Spark's types.

    decoder: the other one.
    """

    def __init__(self, decoder: Decoder):
        self._decoder = decoder
        self._set_type()

    def _set_type(self) -> None:
        kind = self._decoder.type
        if kind is not None:
            self._timed = convert_type(kind, to_time)
            self.type = convert_type(kind, to_plain)

    def fit(self, sample: pa.Array) -> None:
        """Infer the type as the other decoder does. Raises ValueError for a type Spark lacks."""
        self._decoder.fit(sample)
        self._set_type()

    def decode(self, payloads: pa.Array) -> Decoded:
        """Return the values of payloads. A value that Spark's type does not hold is refused."""
        decoded = self._decoder.decode(payloads)
        if decoded.values.type == self.type:
            return decoded
        converted = decode_in_halves(decoded.values, self._convert, self.type)
        return Decoded(converted.values, compute.coalesce(decoded.reasons, converted.reasons))

    def _convert(self, values: pa.Array) -> pa.Array:
        for kind in (self._timed, self.type):
            # Fractions of microseconds are cut off; all else has to fit.
            values = compute.cast(
                values, options=compute.CastOptions(kind, allow_time_truncate=True)
            )
        return values


def make_payloads(decode: Mapping[str, str | Decoder] | None) -> PayloadColumns:
    """Return the columns that are decoded, in Spark's types. Raises as `PayloadColumns`.

    decode: the argument of `wirescan.spark.read`.
    """
    payloads = PayloadColumns(decode or {})
    for name, decoder in payloads.decoders.items():
        payloads.decoders[name] = SparkDecoder(decoder)
    return payloads


def parse_payloads(options: Mapping[str, str]) -> PayloadColumns:
    """Return the columns that options of the data source decode. Raises as `PayloadColumns`."""
    names = [name for name in options if name.lower().startswith(DECODE)]
    return make_payloads({name[len(DECODE) :].lower(): options[name] for name in names})


def convert_type(kind: pa.DataType, convert: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type with all types inside it converted. Raises ValueError for one Spark lacks."""
    if pa.types.is_struct(kind):
        return pa.struct(
            [pa.field(field.name, convert_type(field.type, convert)) for field in kind.fields]
        )
    if pa.types.is_map(kind):
        return pa.map_(convert_type(kind.key_type, convert), convert_type(kind.item_type, convert))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(convert_type(kind.value_type, convert))
    if pa.types.is_dictionary(kind):
        return convert_type(kind.value_type, convert)
    return convert(kind)


def to_time(kind: pa.DataType) -> pa.DataType:
    """Return a type that has no other type in it, with times of day in microseconds."""
    return pa.time64(MICROSECONDS) if pa.types.is_time(kind) else to_plain(kind)


def to_plain(kind: pa.DataType) -> pa.DataType:
    """Return Spark's type for a type that has no other type in it. Raises ValueError."""
    if pa.types.is_time(kind):
        return pa.int64()
    if pa.types.is_timestamp(kind):
        return pa.timestamp(MICROSECONDS, kind.tz)
    if pa.types.is_duration(kind):
        return pa.duration(MICROSECONDS)
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_decimal256(kind) and kind.precision > 38:
        raise ValueError(f"Spark has no decimals of {kind.precision} digits")
    return SIMPLE_TYPES.get(kind, kind)
