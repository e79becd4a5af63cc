"""The names of columns: which ones form a place, and which ones exports add."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

RESERVED = "reserved"  # a column that only pads its row to whole words

# Columns of exports: the path, the position in it of the outermost frame, and the fault of the
# frame or of a frame around it.
FILE = "_file"
START = "_start"
FAULT = "_fault"


def list_columns(dtype: np.dtype[Any]) -> tuple[str, ...]:
    """Return the names of the columns of a structured dtype."""
    return dtype.names or ()


@cache
def list_places(dtype: np.dtype[Any]) -> tuple[str, ...]:
    """Return the names that form a pair `<name>_at`, `<name>_size` in a dtype."""
    names = list_columns(dtype)
    return tuple(n[:-3] for n in names if n.endswith("_at") and n[:-3] + "_size" in names)


def is_place(dtype: np.dtype[Any], name: str) -> bool:
    """Return whether a column of a dtype is the position or the size of a place."""
    return name.rsplit("_", 1)[0] in list_places(dtype) and name.endswith(("_at", "_size"))
