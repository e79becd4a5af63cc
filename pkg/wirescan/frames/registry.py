"""Find formats by name. Protocol packages are imported when a name is first asked for."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode

from wirescan.frames.options import apply_options

if TYPE_CHECKING:
    from wirescan.frames.format import Format

# The folders of the protocol packages.
PROTOCOLS = ("kafka", "lumberjack", "nats", "liftbridge", "thrift")

# "formats" -> {name: Format}. It is filled at the first use, because the protocol packages import
# this module.
_tables: dict[str, dict[str, Format]] = {}


def load_formats() -> dict[str, Format]:
    """Return the dict of all formats, by name. It is not a copy; `formats` returns one."""
    if "formats" not in _tables:
        own = {
            format.name: format
            for protocol in PROTOCOLS
            for format in import_module(f"wirescan.{protocol}.formats").FORMATS
        }
        # Several threads may come here at once. They all use the first dict, so that no
        # registration is lost. There is no lock, because a thread that waits for it could hold
        # the import lock of a protocol package.
        _tables.setdefault("formats", own)
    return _tables["formats"]


def formats() -> dict[str, Format]:
    """Return name -> Format, for the protocol packages and the registered formats."""
    return dict(load_formats())


def format_of(name: str) -> Format:
    """Return the format of a name.

    Options may follow the name as in a URL: "thrift.fields?non_strict=true&idl=calc.thrift".

    Raises:
        ValueError: no format has that name, or the format does not have such an option.
        OSError: an option names a file that cannot be read.
        ImportError: an option needs a package that is not installed.
    """
    plain, _, options = name.partition("?")
    if plain not in load_formats():
        raise ValueError(f"no format {plain!r}; there are {', '.join(load_formats())}")
    return _with_options(plain, options) if options else load_formats()[plain]


@lru_cache(maxsize=64)  # formats are compared by identity
def _with_options(name: str, options: str) -> Format:
    format = load_formats()[name]
    if not format.accepts:
        raise ValueError(f"{name} has no options")
    try:
        values = dict(parse_qsl(options, keep_blank_values=True, strict_parsing=True))
    except ValueError:
        raise ValueError(
            f"the options of {name} are written as option=value&option=value, not as {options!r}"
        ) from None
    return apply_options(format, values)


def make_spec(name: str, **options: str | None) -> str:
    """Return a format's name followed by options, for `format_of`.

    Options that are None are omitted. The name may have options already.
    """
    plain, _, options_before = name.partition("?")
    options_added = {option: value for option, value in options.items() if value is not None}
    query = urlencode(dict(parse_qsl(options_before)) | options_added, safe="/:")
    return f"{plain}?{query}" if query else plain
