"""Options of Thrift's formats, for callers that name a format and do not call its functions.

option              meaning                                            formats
non_strict=true     accept binary messages without a version word      every format of Thrift
idl=calc.thrift     add a column `name`, the names of fields           thrift.fields
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from urllib.parse import urlencode

from wirescan.files.boundaries import find_cuts_at_frames
from wirescan.frames.format import Format
from wirescan.frames.registry import make_spec
from wirescan.thrift.scan import bytes_needed, scan_any, scan_any_streams

FLAGS = {"true": True, "false": False}
NON_STRICT = {"non_strict": "true"}


def apply_options(format: Format, options: Mapping[str, str]) -> Format:
    """Return a format of Thrift with options applied.

    Raises ValueError for an unknown option and for an unfit value; for `idl` as `thrift.fields`.
    """
    names = ("non_strict", "idl") if format.name == "thrift.fields" else ("non_strict",)
    for name in options:
        if name not in names:
            raise ValueError(f"{format.name} has no option {name!r}, only {', '.join(names)}")
    flag = options.get("non_strict", "false").lower()
    if flag not in FLAGS:
        raise ValueError(f"option non_strict must be true or false, not {flag!r}")
    applied: dict[str, str] = {}
    if FLAGS[flag]:
        format = _accept_non_strict(format)
        applied |= NON_STRICT
    if "idl" in options:
        path = os.path.abspath(options["idl"])  # tasks may run in another directory
        format = _add_names(format, path)
        applied["idl"] = path
    return replace(format, options=urlencode(applied, safe="/:")) if applied else format


def _accept_non_strict(format: Format) -> Format:
    if format.within is not None:
        return replace(format, within=make_spec(format.within, **NON_STRICT))
    return replace(
        format,
        read=partial(format.read, non_strict=True),
        scan=scan_any,
        spans=scan_any_streams,
        # Format declares a state of int; here it is bytes.
        bytes_needed=partial(bytes_needed, versions=False),
        boundaries=partial(find_cuts_at_frames, scan=scan_any),
    )


def _add_names(format: Format, idl: str) -> Format:
    from wirescan.thrift.idl import make_named_dtype

    before_id = format.shown.index("id")
    default_columns = (*format.shown[:before_id], "name", *format.shown[before_id:])
    read = partial(format.read, idl=idl)
    return replace(format, dtype=make_named_dtype(idl), read=read, shown=default_columns)
