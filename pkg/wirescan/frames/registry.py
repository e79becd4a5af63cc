"""Find formats by name. Protocol packages are imported when a name is first asked for.

Formats of other packages are found in two ways. A program may import such a package, which calls
`wirescan.register`. Or the package declares an entry point of the group "wirescan.formats", whose
value is the module that calls `register`. Then every process finds its formats, also the command
and the workers of Spark.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode

from wirescan.frames.options import FormatOption, apply_options
from wirescan.frames.similar_names import hint_at_names

if TYPE_CHECKING:
    from wirescan.frames.format import Format

GROUP = "wirescan.formats"  # of the entry points of other packages
# The folders of the protocol packages.
PROTOCOLS = ("kafka", "lumberjack", "nats", "liftbridge", "thrift", "pcap")
# Names of decoders of payloads -> modules of protocol packages whose `make_decoder` makes them.
PAYLOAD_DECODERS = {"thrift": "wirescan.thrift.struct_values"}
# Modules of protocol packages with COMMON_OPTIONS, which the formats of other packages have too.
OPTION_MODULES = ("pcap.extraction.captured",)
# Modules that make formats of captures.
DERIVING_MODULES = ("pcap.extraction.carried_frames", "pcap.extraction.captured_exchanges")
CAPTURE_FORMAT = "pcap.blocks"  # of captures, in which the frames of other formats are found

# "formats" -> {name: Format}. It is filled at the first use, because the protocol packages import
# this module.
_tables: dict[str, dict[str, Format]] = {}


def load_formats() -> dict[str, Format]:
    """Return the dict of the registered formats, by name. It is not a copy; `formats` returns one.

    Formats of packages that are installed, but not imported yet, are missing.
    """
    if "formats" not in _tables:
        own = {
            format.name: format
            for protocol in PROTOCOLS
            for format in import_module(f"wirescan.{protocol}.formats").FORMATS
        }
        own |= {format.name: format for format in make_derived_formats(own.values())}
        # Several threads may come here at once. They all use the first dict, so that no
        # registration is lost. There is no lock, because a thread that waits for it could hold
        # the import lock of a protocol package.
        _tables.setdefault("formats", own)
    return _tables["formats"]


def make_derived_formats(formats: Iterable[Format]) -> list[Format]:
    """Return the formats that follow from declarations of other formats.

    They are read from captures: exchanges, and what messages carry.
    """
    formats = list(formats)
    modules = [import_module(f"wirescan.{name}") for name in DERIVING_MODULES]
    return [format for module in modules for format in module.make_formats(formats)]


@cache
def import_installed_formats() -> None:
    """Import the modules that entry points name. A module that cannot be imported is a warning."""
    from importlib.metadata import entry_points  # slow to import, and not always needed

    load_formats()
    for entry_point in entry_points(group=GROUP):
        try:
            entry_point.load()
        except Exception as error:
            # One broken package must not break the formats of the others.
            warnings.warn(
                f"the formats of {entry_point.value} are missing, because importing it raised "
                f"{type(error).__name__}: {error}",
                RuntimeWarning,
                stacklevel=2,
            )


def formats() -> dict[str, Format]:
    """Return name -> Format, for the protocol packages, the registered and the installed formats.

    An installed package whose import fails is a RuntimeWarning.
    """
    import_installed_formats()
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
        import_installed_formats()
    if plain not in load_formats():
        raise ValueError(f"no format {plain!r}{hint_at_names(plain, load_formats())}")
    return _with_options(plain, options) if options else load_formats()[plain]


@cache
def load_common_options() -> tuple[FormatOption, ...]:
    """Return the options that every format has."""
    return tuple(
        option
        for name in OPTION_MODULES
        for option in import_module(f"wirescan.{name}").COMMON_OPTIONS
    )


@lru_cache(maxsize=1024)  # formats are compared by identity
def _with_options(name: str, options: str) -> Format:
    format = load_formats()[name]
    try:
        values = dict(parse_qsl(options, keep_blank_values=True, strict_parsing=True))
    except ValueError:
        raise ValueError(
            f"the options of {name} are written as option=value&option=value, not as {options!r}"
        ) from None
    changed = apply_options(format, values, load_common_options())
    # Formats are compared by identity, so each one is made of its normalized name.
    is_normalized = changed.options in (options, "")
    return changed if is_normalized else _with_options(name, changed.options)


def make_spec(name: str, **options: str | None) -> str:
    """Return a format's name followed by options, for `format_of`.

    Options that are None are omitted. The name may have options already.
    """
    plain, _, options_before = name.partition("?")
    options_added = {option: value for option, value in options.items() if value is not None}
    query = urlencode(dict(parse_qsl(options_before)) | options_added, safe="/:")
    return f"{plain}?{query}" if query else plain
