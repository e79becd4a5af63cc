"""Arrow arrays of numpy's numbers and of texts.

`pyarrow.array` and `Array.to_numpy` import pandas if that is installed, which takes 0.3 seconds.
These functions do not.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from wirescan.frames.optional_packages import name_package

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa


def wrap_numbers(values: np.ndarray) -> pa.Array:
    """Return numbers of one dimension as Arrow. They are not copied if they are contiguous."""
    values = np.ascontiguousarray(values)
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def read_integers(array: pa.Array) -> np.ndarray:
    """Return the integers of an Arrow array, without a copy. There must be no null."""
    dtype = np.dtype(str(array.type))
    if not len(array):
        return np.zeros(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)


def make_texts(values: Iterable[str | None]) -> pa.Array:
    """Return texts, such as paths, as Arrow. Bytes of a path that are no text are escaped."""
    raw = [None if value is None else value.encode(errors="backslashreplace") for value in values]
    ends = np.cumsum([0, *(len(text or b"") for text in raw)]).astype(np.int32)
    valid = np.packbits([text is not None for text in raw], bitorder="little")
    data = b"".join(text or b"" for text in raw)
    return pa.Array.from_buffers(
        pa.string(), len(raw), [pa.py_buffer(valid), pa.py_buffer(ends), pa.py_buffer(data)]
    )
