"""What the columns of a format mean, in words: for `wirescan formats` and the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wirescan.frames.columns import FAULT, FILE, START, list_columns, list_places

if TYPE_CHECKING:
    from wirescan.frames.format import Format

# Columns of every export, and those of `Head`, which have the same meaning in every format.
EXPORT_MEANINGS = {
    FILE: "path or URL of the file",
    START: "byte position of the outermost frame in its file",
    FAULT: "what is wrong with the frame, or with a frame around it",
}
HEAD_MEANINGS = {
    "start": "byte position of the frame in its buffer",
    "size": "bytes in the whole frame",
    "body": "bytes from the start of the frame to its payload",
    "parent": "row of the enclosing frame in the table `outer`, -1 for an outermost frame",
    "buffer": "number of the buffer that holds the frame",
    "kind": "the protocol's number for the kind of frame",
    "fault": "0, or what is wrong with the frame",
}


def explain_column(format: Format, name: str) -> str:
    """Return what a column means, in one line; empty if its format does not say it.

    format: any format, with or without a table. name: a column or place that an export may have,
    as in `Format.all_columns`. A column of an enclosing frame has the meaning that the format of
    that frame gives.
    """
    if name in EXPORT_MEANINGS:
        return EXPORT_MEANINGS[name]
    column = format.describe_column(name)
    if column is None:
        return ""
    if column.owner is None:
        return format.outermost.storage.path_columns[name].meaning
    return _explain_own_column(column.owner, column.name)


def _explain_own_column(format: Format, name: str) -> str:
    """Return what a column of the rows of a format means."""
    if name in format.meanings:
        return format.meanings[name]
    place, _, end = name.rpartition("_")
    if place in list_places(format.dtype):
        if end == "at":
            return f"position of `{place}`, in bytes from the start of the frame"
        if end == "size":
            return f"bytes in `{place}`, -1 for null"
    if end == "count" and f"{place}_at" in list_columns(format.dtype):
        return f"number of entries in `{place}`, -1 for null"
    return HEAD_MEANINGS.get(name, "")
