"""Access to the buffers of Arrow arrays that a caller gives.

Only this module and `wirescan.frames.to_arrow` import pyarrow in the lower layers. It is imported
when such an array is given.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def is_arrow(source: Any) -> bool:
    """Return whether an object has the Arrow C data interface.

    Source: arrow.apache.org, "The Arrow PyCapsule Interface".
    """
    return hasattr(source, "__arrow_c_array__") or hasattr(source, "__arrow_c_stream__")


def list_chunks(source: Any) -> list[Any]:
    """Return the pyarrow arrays of an array, a chunked array, or any object of that interface.

    Each array is validated without reading its values. Raises ValueError for an invalid array,
    ImportError without pyarrow.
    """
    import pyarrow as pa

    chunks: list[Any]
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


def find_nulls(chunk: Any) -> np.ndarray:
    """Return a bool array that is true for each null value of a pyarrow array."""
    validity = chunk.buffers()[0]
    if validity is None or not chunk.null_count:
        return np.zeros(len(chunk), bool)
    first_byte = chunk.offset // 8
    stop_byte = (chunk.offset + len(chunk) + 7) // 8
    bits = np.unpackbits(as_byte_array(validity)[first_byte:stop_byte], bitorder="little")
    nulls: np.ndarray = bits[chunk.offset - 8 * first_byte :][: len(chunk)] == 0
    return nulls


def as_byte_array(data: Any) -> np.ndarray:
    """Return the bytes of a bytes-like object as a uint8 array, without a copy.

    data: None gives an empty array.
    Raises TypeError for an object that is not bytes-like or not contiguous.
    """
    try:
        return np.frombuffer(b"" if data is None else data, np.uint8)
    except (TypeError, ValueError, BufferError):
        raise TypeError(f"not a contiguous bytes-like object: {type(data).__name__}") from None


def read_numbers(buffer: Any, dtype: Any, first: int, count: int) -> np.ndarray:
    """Return `count` numbers of a buffer, from number `first` on, as an aligned array.

    Raises ValueError where the buffer ends before, TypeError as `as_byte_array`.
    """
    dtype = np.dtype(dtype)
    data = as_byte_array(buffer)
    if first < 0 or len(data) < (first + count) * dtype.itemsize:
        raise ValueError(
            f"a buffer of {len(data)} bytes does not hold {first + count} numbers of {dtype}"
        )
    data = data[first * dtype.itemsize : (first + count) * dtype.itemsize]
    array = data.view(dtype.base).reshape(count, *dtype.shape)
    return np.require(array, requirements=["C", "A"])
