"""Numbers and text, as Kafka's own serializers and other programs write them: the whole payload.

name      bytes                            type
short     2, big-endian                    int16
int       4, big-endian                    int32
long      8, big-endian                    int64
float     4, IEEE 754, big-endian          float
double    8, IEEE 754, big-endian          double
uuid      36, hexadecimal with hyphens     string, in lower case
string    any, UTF-8                       string

Source: org.apache.kafka.common.serialization of Apache Kafka.
"""

from __future__ import annotations

import numpy as np

from wirescan.decoding.decoder import (
    Decoded,
    Decoder,
    decode_in_halves,
    mark_refused,
    read_payloads,
)
from wirescan.frames.optional_packages import name_package

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa
    from pyarrow import compute

NUMBERS = {"short": ">i2", "int": ">i4", "long": ">i8", "float": ">f4", "double": ">f8"}
UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"


class NumberDecoder(Decoder):
    """Decodes big-endian numbers of a fixed size.

    dtype: numpy's name of the bytes, such as ">i4".
    """

    def __init__(self, dtype: str):
        self._dtype = np.dtype(dtype)
        self.type = pa.from_numpy_dtype(self._dtype.newbyteorder("="))

    def decode(self, payloads: pa.Array) -> Decoded:
        """Return the numbers. A payload of another size is refused."""
        width = self._dtype.itemsize
        data, starts, stops, is_valid = read_payloads(payloads)
        fits = is_valid & (stops - starts == width)
        rows = np.flatnonzero(fits)
        values = np.zeros(len(payloads), self._dtype.newbyteorder("="))
        if len(rows):
            # Each number that could begin at a byte; numbers need not be aligned.
            shape = len(data) - width + 1
            candidates = np.ndarray(shape, self._dtype, data, strides=(1,))
            values[rows] = candidates[starts[rows]]
        reasons = mark_refused(is_valid & ~fits, [f"it does not have {width} bytes"])
        return Decoded(pa.array(values, mask=~fits), reasons)


class StringDecoder(Decoder):
    """Decodes UTF-8 text."""

    type = pa.string()

    def decode(self, payloads: pa.Array) -> Decoded:
        """Return the text. A payload that is not UTF-8 is refused."""
        read_payloads(payloads)  # checks the type
        decoded = decode_in_halves(payloads, _read_text, self.type)
        is_refused = decoded.reasons.is_valid().to_numpy(zero_copy_only=False)
        return Decoded(decoded.values, mark_refused(is_refused, ["it is not UTF-8"]))


class UuidDecoder(Decoder):
    """Decodes UUIDs that are written as text."""

    type = pa.string()

    def decode(self, payloads: pa.Array) -> Decoded:
        """Return the text in lower case. Any other text is refused."""
        text = StringDecoder().decode(payloads).values
        is_uuid = compute.match_substring_regex(text, UUID).fill_null(False)  # noqa: FBT003
        is_valid = payloads.is_valid().to_numpy(zero_copy_only=False)
        fits = is_uuid.to_numpy(zero_copy_only=False)
        values = compute.if_else(is_uuid, compute.ascii_lower(text), pa.scalar(None, pa.string()))
        return Decoded(values, mark_refused(is_valid & ~fits, ["it is not a UUID"]))


def _read_text(payloads: pa.Array) -> pa.Array:
    """Return payloads as text. Raises ArrowInvalid, a ValueError, if one is not UTF-8."""
    return payloads.cast(pa.binary()).cast(pa.string())


def make_plain_decoder(name: str) -> Decoder:
    """Return the decoder of a name in the module's table."""
    if name in NUMBERS:
        return NumberDecoder(NUMBERS[name])
    return UuidDecoder() if name == "uuid" else StringDecoder()
