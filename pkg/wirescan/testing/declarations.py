"""Checks of what a `Format` declares."""

from __future__ import annotations

import inspect

from wirescan.core.loop import HEAD
from wirescan.frames.columns import FAULT, FILE, START, list_columns, list_places
from wirescan.frames.format import Format
from wirescan.frames.registry import formats


def assert_declarations_hold(format: Format) -> None:
    """Assert that a format is registered, has the declared columns, and has a `read` that fits."""
    known = formats()
    assert known.get(format.name) is format, f"{format.name} is not registered"
    assert format.about, f"{format.name} has no description"
    assert format.within is None or format.within in known, f"{format.within} is no format"
    is_outermost = format.within is None
    assert is_outermost == (format.scan is not None), "`scan` is for outermost formats"
    assert set(format.lists) <= set(format.children), "`lists` names a format that is no child"
    parameters = inspect.signature(format.read).parameters
    for name, default in (("errors", "strict"), ("check", True), ("limits", None)):
        assert name in parameters, f"`read` does not take {name!r}"
        parameter = parameters[name]
        assert parameter.kind is parameter.KEYWORD_ONLY, f"{name!r} is no keyword of `read`"
        assert default is None or parameter.default == default, f"the default of {name!r}"
    columns = list_columns(format.dtype)
    head = list_columns(HEAD)
    assert columns[: len(head)] == head, "the rows do not begin with the columns of Head"
    missing = list_declared_columns(format) - set(columns)
    assert not missing, f"{format.name} declares columns that it does not have: {sorted(missing)}"
    missing = {name for name in format.shown if not _is_shown(format, name)}
    assert not missing, f"`shown` has columns that do not exist: {sorted(missing)}"


def list_declared_columns(format: Format) -> set[str]:
    """Return the columns that the declarations of a format name."""
    summary = format.summary
    named = (format.record_count, format.enclosing, summary.codec)
    log_columns = () if format.log is None else (format.log.first, format.log.last)
    return {
        *filter(None, named),
        *format.times,
        *format.nanoseconds,
        *format.local,
        *format.unset,
        *format.lists.values(),
        *summary.values,
        *summary.flags,
        *format.offsets,
        *(name + "_size" for name in (*summary.places, *format.numbers)),
        *log_columns,
    }


def _is_shown(format: Format, name: str) -> bool:
    """Return whether text output can have a column."""
    if name in (FILE, START, FAULT, *format.lists, *list_places(format.dtype)):
        return True
    return format.owner(name) is not None
