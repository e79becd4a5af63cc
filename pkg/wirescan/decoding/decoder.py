"""`Decoder`, the contract of everything that turns payloads into typed values.

A decoder takes an Arrow array of byte strings. It returns an array of its type, and the reasons of
refused rows. Payloads are hostile, so no payload raises: a row that cannot be decoded is null and
has a reason. A null payload is null and has no reason.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from wirescan.frames.optional_packages import name_package

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa

from wirescan.frames.escape import make_visible

LONGEST_REASON = 200  # characters


class Decoded(NamedTuple):
    """The values of an array of payloads.

    Attributes:
        values: an array of the decoder's type. Null payloads and refused ones are null.
        reasons: an array of strings: why a payload is refused; null for all others.
    """

    values: pa.Array
    reasons: pa.Array


class Decoder(ABC):
    """Decodes payloads of one kind.

    Attributes:
        type: the Arrow type of the values. None before `fit`, for a decoder that infers it.
    """

    type: pa.DataType | None = None

    def fit(self, sample: pa.Array) -> None:
        """Infer the type from payloads, if it is not known. It does not change afterwards.

        Raises ValueError if no type can be inferred.
        """
        return

    @abstractmethod
    def decode(self, payloads: pa.Array) -> Decoded:
        """Return the values of payloads.

        payloads: an array of binary, large_binary or binary_view.

        Raises ValueError before `fit`, if the type is not known.
        """


class PayloadBytes(NamedTuple):
    """An array of byte strings in numpy. Byte string i is data[starts[i]:stops[i]].

    Attributes:
        data: uint8 array.
        starts, stops: int64 arrays.
        is_valid: bool array, false for null.
    """

    data: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    is_valid: np.ndarray


def read_payloads(payloads: pa.Array) -> PayloadBytes:
    """Return the byte strings of an array of binary, large_binary or binary_view.

    Raises TypeError for another type.
    """
    if not is_binary(payloads.type):
        raise TypeError(f"payloads are an array of byte strings, not of {payloads.type}")
    array = payloads.cast(pa.large_binary())
    _, offsets_buffer, data_buffer = array.buffers()
    offsets = np.zeros(1, np.int64)
    if len(array):
        offsets = np.frombuffer(offsets_buffer, np.int64)
        offsets = offsets[array.offset : array.offset + len(array) + 1]
    data = np.frombuffer(b"" if data_buffer is None else data_buffer, np.uint8)
    is_valid = array.is_valid().to_numpy(zero_copy_only=False)
    return PayloadBytes(data, offsets[:-1], offsets[1:], is_valid)


def is_binary(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is one of the types of payloads."""
    return kind in (pa.binary(), pa.large_binary(), pa.binary_view())


def make_reasons(refused: dict[int, str], count: int) -> pa.Array:
    """Return an array of `count` strings: the reasons of the refused rows, and nulls.

    Control characters in a reason are escaped, and long reasons are cut.
    """
    if not refused:
        return pa.nulls(count, pa.string())
    texts = {row: _show_reason(text) for row, text in refused.items()}
    return pa.array([texts.get(row) for row in range(count)], pa.string())


def mark_refused(refusals: np.ndarray, reasons: Sequence[str]) -> pa.Array:
    """Return an array of strings: the reason that each number names, and null for 0.

    The reasons are shown as `make_reasons` shows them.

    refusals: array of unsigned numbers; number n > 0 names reasons[n - 1].
    """
    if not refusals.any():
        return pa.nulls(len(refusals), pa.string())
    texts = [None, *map(_show_reason, reasons)]
    return pa.array(texts, pa.string()).take(pa.array(refusals.astype(np.int32)))


def _show_reason(reason: str) -> str:
    return make_visible(reason[:LONGEST_REASON])


def decode_in_halves(
    payloads: pa.Array, decode: Callable[[pa.Array], pa.Array], kind: pa.DataType
) -> Decoded:
    """Decode with a function that refuses a whole array if one payload is bad.

    An array that is refused is cut in half, until each bad payload is alone. So n payloads take at
    most 2 n calls, and each payload is read at most log2(n) + 1 times.

    decode: returns the values of payloads. It raises ValueError, or a panic of a Rust library.
    kind: the type of the values.
    """
    arrays: list[pa.Array] = []
    refused: dict[int, str] = {}
    todo = [(0, len(payloads))]
    while todo:
        start, stop = todo.pop()
        try:
            arrays.append(decode(payloads.slice(start, stop - start)))
            continue
        except (KeyboardInterrupt, SystemExit, MemoryError):
            raise
        except BaseException as error:  # a panic is no Exception
            if not isinstance(error, ValueError) and type(error).__name__ != "PanicException":
                raise
            if stop - start == 1:
                refused[start] = " ".join(str(error).split()) or "it cannot be read"
                arrays.append(pa.nulls(1, kind))
                continue
        middle = (start + stop) // 2
        todo += [(middle, stop), (start, middle)]
    values = pa.concat_arrays(arrays) if arrays else pa.nulls(0, kind)
    return Decoded(values, make_reasons(refused, len(payloads)))
