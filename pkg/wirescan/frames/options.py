"""`FormatOption`: an option of a format, written after its name: "thrift.fields?idl=calc.thrift".

A `Format` declares its options in `accepts`. `registry.format_of` applies them. The command line
and Spark's data source make options of their own from the declarations.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from wirescan.frames.similar_names import suggest_name

if TYPE_CHECKING:
    from wirescan.frames.format import Format
    from wirescan.frames.table import FrameTable

FLAGS = {"true": True, "false": False}


class Folders(str):
    """The type of a value that names directories."""


@dataclass(frozen=True)
class FormatOption:
    """An option that a format declares.

    Formats that have an option of the same name declare the same object.

    Attributes:
        name: words with underscores, such as "non_strict". The command line has "--non-strict", and
            Spark's data source "nonStrict".
        value_type: bool for "true" or "false", Path for a file, Folders for directories, separated
            by `os.pathsep`, str for any other text. A relative path becomes an absolute one,
            because tasks may run in another directory.
        help: the help text of the command line, one or two sentences.
        apply: a function of a format and the text of the value that returns the changed format. It
            may raise ValueError, OSError and ImportError. It is not called for "false".
        adds_columns: the option only adds columns, so verbs that write no columns do not have it.
        is_internal: wirescan sets the option itself, so neither the command line nor Spark's data
            source has it.
    """

    name: str
    value_type: type
    help: str
    apply: Callable[[Format, str], Format]
    adds_columns: bool = False
    is_internal: bool = False


def apply_options(
    format: Format, values: Mapping[str, str], common: Sequence[FormatOption] = ()
) -> Format:
    """Return a format with options, {name: text}. Its tables have that format.

    common: options that every format has, besides its own.

    Raises ValueError if the format does not have such an option or the value is unfit, and the
    OSError and ImportError of `FormatOption.apply`.
    """
    accepted = (*format.accepts, *common)
    accepted_names = {option.name for option in accepted}
    names = [option.name for option in format.accepts if not option.is_internal]
    for name in values:
        if name not in accepted_names:
            if suggestion := suggest_name(name, accepted_names):
                raise ValueError(f"{format.name} has no option {name!r}{suggestion}")
            if not names:
                raise ValueError(f"{format.name} has no option {name!r}; it has none")
            raise ValueError(f"{format.name} has no option {name!r}, only {', '.join(names)}")
    applied: dict[str, str] = {}
    for option in accepted:
        value = _parse_value(option, values[option.name]) if option.name in values else None
        if value is not None:
            applied[option.name] = value
            format = option.apply(format, value)
            # The next option may need the name of the format so far.
            format = replace(format, options=urlencode(applied, safe="/:"))
    return _label_tables(format) if applied else format


def list_format_options(
    formats: Iterable[Format], common: Sequence[FormatOption] = ()
) -> list[FormatOption]:
    """Return the options that users may set, each name once.

    formats: those that declare options. common: options that every format has.
    """
    options: dict[str, FormatOption] = {}
    for format in formats:
        for option in (*format.accepts, *common):
            if not option.is_internal:
                options.setdefault(option.name, option)
    return list(options.values())


def _parse_value(option: FormatOption, text: str) -> str | None:
    """Return the text of a value in its usual form; None for "false". Raises ValueError."""
    if option.value_type is bool:
        flag = text.lower()
        if flag not in FLAGS:
            raise ValueError(f"option {option.name} must be true or false, not {flag!r}")
        return flag if FLAGS[flag] else None
    if option.value_type is Folders:
        return os.pathsep.join(map(os.path.abspath, text.split(os.pathsep)))
    return os.path.abspath(text) if option.value_type is Path else text


def _label_tables(format: Format) -> Format:
    """Return a format whose `read` returns tables of that very format, with its options."""

    def read(source: Any, **arguments: Any) -> FrameTable:
        return replace(format.read(source, **arguments), format=labelled)

    labelled = replace(format, read=read)
    return labelled
