"""The arguments and results of functions that encode columns."""

import numpy as np


def flatten_pairs(rows):
    """Return (counts, keys, values) of the pairs of each row."""
    flat = [pair for pairs in rows for pair in pairs]
    return [*map(len, rows)], [key for key, _ in flat], [value for _, value in flat]


def split_strings(encoded):
    """Return the strings of (data, offsets)."""
    data, offsets = encoded
    assert type(data) is bytes
    assert offsets.dtype == np.int64
    assert offsets[0] == 0
    assert offsets[-1] == len(data)
    return [data[start:stop] for start, stop in zip(offsets[:-1].tolist(), offsets[1:].tolist())]
