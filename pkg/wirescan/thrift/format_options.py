"""Options of Thrift's formats, for callers that name a format and do not call its functions.

option              meaning                                            formats
non_strict=true     accept binary messages without a version word      every format of Thrift
idl=calc.thrift     names in the column `call`                         thrift.messages
                    add a column `name`, the names of fields           thrift.fields
idl_include=shared  directories with files that the IDL includes       both
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

from wirescan.files.boundaries import find_cuts_at_frames
from wirescan.frames.columns import Column
from wirescan.frames.format import Format
from wirescan.frames.options import Folders, FormatOption
from wirescan.frames.registry import format_of, make_spec
from wirescan.frames.table import FrameTable
from wirescan.thrift.call_text import call_text
from wirescan.thrift.idl import IdlFile, load_module, make_named_dtype
from wirescan.thrift.scan import bytes_needed, scan_stream, scan_streams

FIELDS = "thrift.fields"


def _accept_non_strict(format: Format, value: str) -> Format:
    """Return a format that accepts binary messages without a version word; `value` is "true"."""
    if format.within is not None:
        return replace(format, within=make_spec(format.within, non_strict=value))
    scan = partial(scan_stream, versions=False)
    return replace(
        format,
        read=partial(format.read, non_strict=True),
        parser=replace(
            format.parser,
            scan=scan,
            spans=partial(scan_streams, versions=False),
            bytes_needed=partial(bytes_needed, versions=False),
        ),
        storage=replace(format.storage, boundaries=partial(find_cuts_at_frames, scan=scan)),
    )


def _set_include(format: Format, directories: str) -> Format:
    """Return a format whose IDL, given later, may include files of some directories."""
    if format.name == FIELDS:
        outer = make_spec(str(format.within), idl_include=directories)
        return replace(format, within=outer)
    include = tuple(directories.split(os.pathsep))
    return _compute_calls(format, IdlFile("", include))


def _apply_idl(format: Format, path: str) -> Format:
    """Return thrift.messages with names in the column `call`, or thrift.fields with `name`.

    Raises as `thrift.fields`.
    """
    if format.name != FIELDS:
        idl = IdlFile(path, _find_idl(format).include)
        load_module(idl)
        return _compute_calls(format, idl)
    within = make_spec(str(format.within), idl=path)
    idl = _find_idl(format_of(within))
    shown = format.display.shown
    before_id = shown.index("id")
    return replace(
        format,
        dtype=make_named_dtype(idl),
        read=partial(format.read, idl=idl),
        within=within,
        display=replace(format.display, shown=(*shown[:before_id], "name", *shown[before_id:])),
    )


def _compute_calls(format: Format, idl: IdlFile) -> Format:
    """Return thrift.messages whose column `call` has the names of an IDL, if its path is known."""
    compute = partial(call_text if idl.path else _ignore_idl, idl=idl)
    column = Column(compute_texts=compute, exported=bool(idl.path))
    return replace(format, columns={**format.columns, "call": column})


def _ignore_idl(messages: FrameTable, *, idl: IdlFile) -> list[str | None]:
    return call_text(messages)


def _find_idl(format: Format) -> IdlFile:
    """Return the IDL of thrift.messages. Its path is empty if none is given."""
    keywords = getattr(format.columns["call"].compute_texts, "keywords", {})
    idl: IdlFile = keywords.get("idl", IdlFile(""))
    return idl


NON_STRICT = FormatOption(
    "non_strict",
    bool,
    "Thrift: also accept binary messages that do not begin with a version.",
    _accept_non_strict,
)
IDL_INCLUDE = FormatOption(
    "idl_include",
    Folders,
    "Thrift: directories with the files that the IDL includes, if they are not beside it.",
    _set_include,
    adds_columns=True,
)
IDL = FormatOption(
    "idl",
    Path,
    "Thrift: add names from this IDL: in the column call of thrift.messages, or in a column name "
    "of thrift.fields.",
    _apply_idl,
    adds_columns=True,
)
