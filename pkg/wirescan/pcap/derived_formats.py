"""Rows of formats that are made of the messages of captures: exchanges, and what they carry."""

from __future__ import annotations

import numpy as np

from wirescan.core.loop import HEAD
from wirescan.frames.columns import list_columns, list_places
from wirescan.frames.table import FrameTable


def list_names(dtype: np.dtype) -> list[str]:
    """Return the names of the columns and places of a dtype, in their order."""
    places = list_places(dtype)
    hidden = {name + "_size" for name in places}
    names = [name for name in list_columns(dtype) if name not in hidden]
    return [name.removesuffix("_at") if name[:-3] in places else name for name in names]


def make_bad_rows(messages: FrameTable, chosen: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return rows for some bad messages. Their places are null, and their other columns 0."""
    rows = np.zeros(len(chosen), dtype)
    for name in list_columns(HEAD):
        rows[name] = messages.rows[name][chosen]
    for name in list_places(dtype):
        rows[name + "_size"] = -1
    return rows
