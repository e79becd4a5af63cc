"""Arrow arrays as what they consist of: the one place below wirescan.arrow that asks for pyarrow, and only if it is
given such an array."""
from __future__ import annotations

from typing import Any

import numpy as np


def is_arrow(source: Any) -> bool:
    """Whether an object has the Arrow C data interface (arrow.apache.org, "The Arrow PyCapsule Interface")."""
    return hasattr(source, "__arrow_c_array__") or hasattr(source, "__arrow_c_stream__")


def chunks_of(source: Any) -> list[Any]:
    """The arrays of pyarrow in an Arrow array, a chunked array, or anything with that interface.

    Each is consistent in its outlines: ValueError where one is not. ImportError without pyarrow.
    """
    import pyarrow as pa
    if isinstance(source, pa.ChunkedArray):
        chunks = source.chunks
    elif isinstance(source, pa.Array):
        chunks = [source]
    elif hasattr(source, "__arrow_c_array__"):
        chunks = [pa.array(source)]
    else:
        chunks = pa.chunked_array(source).chunks
    for chunk in chunks:
        chunk.validate()
    return chunks


def nulls_of(chunk: Any) -> np.ndarray:
    """Array of bool: which values of an array of pyarrow are null."""
    validity = chunk.buffers()[0]
    if validity is None or not chunk.null_count:
        return np.zeros(len(chunk), bool)
    first = chunk.offset // 8
    bits = np.unpackbits(flat(validity)[first:(chunk.offset + len(chunk) + 7) // 8], bitorder="little")
    return bits[chunk.offset - 8 * first:][:len(chunk)] == 0


def flat(data: Any) -> np.ndarray:
    """The bytes of a bytes-like object, or none of None, as an array of uint8; nothing is copied.

    Raises TypeError for another object, and one that is not contiguous.
    """
    try:
        return np.frombuffer(b"" if data is None else data, np.uint8)
    except (TypeError, ValueError, BufferError):
        raise TypeError(f"not a contiguous bytes-like object: {type(data).__name__}") from None


def numbers(buffer: Any, dtype: Any, first: int, count: int) -> np.ndarray:
    """So many numbers of a buffer, from number `first` on. Raises ValueError where it ends before."""
    dtype, data = np.dtype(dtype), flat(buffer)
    if first < 0 or len(data) < (first + count) * dtype.itemsize:
        raise ValueError(f"a buffer of {len(data)} bytes does not hold {first + count} numbers of {dtype}")
    data = data[first * dtype.itemsize:(first + count) * dtype.itemsize]
    return np.require(data.view(dtype.base).reshape(count, *dtype.shape), requirements="CA")
