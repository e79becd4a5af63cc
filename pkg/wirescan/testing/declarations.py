"""Checks of what a `Format` declares."""

from __future__ import annotations

import inspect

from wirescan.core.loop import HEAD
from wirescan.frames.columns import ColumnKind, list_columns
from wirescan.frames.format import Format
from wirescan.frames.registry import formats


def assert_declarations_hold(format: Format) -> None:
    """Assert that a format is registered, has the declared columns, and has a `read` that fits."""
    known = formats()
    assert known.get(format.name) is format, f"{format.name} is not registered"
    assert format.about, f"{format.name} has no description"
    within = format.within and format.within.partition("?")[0]  # options may follow the name
    assert within is None or within in known, f"{format.within} is no format"
    is_outermost = format.within is None
    assert is_outermost == (format.parser.scan is not None), "`scan` is for outermost formats"
    assert set(format.lists) <= set(format.children), "`count` is for columns that are children"
    parameters = inspect.signature(format.read).parameters
    defaults = {"errors": ("strict", None), "check": (True,)}  # of `limits` any
    for name in ("errors", "check", "limits"):
        assert name in parameters, f"`read` does not take {name!r}"
        parameter = parameters[name]
        assert parameter.kind is parameter.KEYWORD_ONLY, f"{name!r} is no keyword of `read`"
        allowed = defaults.get(name, (parameter.default,))
        assert parameter.default in allowed, f"the default of {name!r}"
    columns = list_columns(format.dtype)
    head = list_columns(HEAD)
    assert columns[: len(head)] == head, "the rows do not begin with the columns of Head"
    missing = {name for name in list_declared_columns(format) if not _has_column(format, name)}
    assert not missing, f"{format.name} declares columns that it does not have: {sorted(missing)}"
    missing = {name for name in format.display.shown if format.describe_column(name) is None}
    assert not missing, f"`shown` has columns that do not exist: {sorted(missing)}"


def list_declared_columns(format: Format) -> set[str]:
    """Return the columns that the declarations of a format name."""
    display = format.display
    log = format.storage.log
    named = (display.record_count, format.enclosing, display.summary.codec)
    log_columns = () if log is None else (log.first, log.last)
    return {
        *filter(None, named),
        *(name for name in format.columns if name not in format.lists),
        *format.lists.values(),
        *display.summary.values,
        *display.summary.flags,
        *(name + "_size" for name in display.summary.places),
        *log_columns,
    }


def _has_column(format: Format, name: str) -> bool:
    """Return whether a column is where its declaration says: in the rows, or in outer frames."""
    column = format.describe_column(name)
    declared = format.get_column(name)
    is_outer = declared.inherited or declared.outer_name is not None
    if column is None or is_outer == (column.owner is format):
        return False
    return declared.items is None or column.kind is ColumnKind.NUMBERS
