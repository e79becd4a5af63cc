"""Pages of the site that are made from the code, and links that leave docs/.

mkdocs calls `on_files` and `on_page_markdown` (see "Hooks" in its documentation).
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from wirescan import formats
from wirescan.cli.main import main
from wirescan.frames.column_meanings import explain_column
from wirescan.frames.columns import ColumnDescription
from wirescan.frames.fault_names import FAULT_NAMES, MEANING
from wirescan.frames.format import Format
from wirescan.frames.registry import format_of

ROOT = Path(__file__).parents[2]
# Files outside docs/ that are pages of the site.
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "bench/RESULTS.md": "figures.md"}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
# The modules whose public names are documented.
MODULES = (
    "wirescan",
    "wirescan.kafka",
    "wirescan.lumberjack",
    "wirescan.nats",
    "wirescan.liftbridge",
    "wirescan.thrift",
    "wirescan.thrift.struct_values",
    "wirescan.pcap",
    "wirescan.spark",
    "wirescan.export.batches",
    "wirescan.export.parquet",
    "wirescan.decoding.payload_columns",
    "wirescan.decoding.notation",
    "wirescan.decoding.json_values",
    "wirescan.decoding.avro_values",
    "wirescan.decoding.msgpack_values",
    "wirescan.decoding.protobuf_values",
    "wirescan.reading.expression",
    "wirescan.reading.filters",
    "wirescan.seglog.log_salvage",
    "wirescan.seglog.log_cut",
    "wirescan.seglog.log_diff",
    "wirescan.testing",
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    picture = "bench/ratios.svg"
    files.append(File.generated(config, picture, content=(ROOT / picture).read_text()))
    makers = {
        "formats": make_formats,
        "faults": make_faults,
        "commands": make_commands,
        "python": make_python,
    }
    for name, make in makers.items():
        content = "\n".join(make()) + "\n"
        files.append(File.generated(config, f"reference/{name}.md", content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make links to other pages relative to this one, and name files that are no pages."""
    source = next((key for key, value in PAGES.items() if value == page.file.src_uri), None)
    folder = os.path.dirname(source or f"docs/{page.file.src_uri}")

    def replace(match: re.Match[str]) -> str:
        picture, text, target, anchor = match.groups()
        if re.match("[a-z]+:", target):
            return match[0]
        path = os.path.normpath(os.path.join(folder, target))
        uri = PAGES.get(path, path.removeprefix("docs/") if path.startswith("docs/") else path)
        if files.get_file_from_path(uri) is not None:
            relative = os.path.relpath(uri, os.path.dirname(page.file.src_uri) or ".")
            return f"{picture}[{text}]({relative}{anchor or ''})"
        if not (ROOT / path).exists():
            return match[0]  # mkdocs warns of it
        return text if text.strip("`") == path else f"{text} (`{path}`)"

    return LINK.sub(replace, markdown)


def make_formats() -> Iterator[str]:
    """Yield the lines of the page of all formats and their columns."""
    yield "# Formats and columns"
    yield ""
    yield "Columns of exports come first; the others are exported if they are named. The column "
    yield "*of* names the enclosing format that a column comes from. Times are integers since 1970."
    yield "The text below a table is that of the function that reads the format: it says what the "
    yield "columns mean. [Every row](../architecture.md#the-table) begins with the same columns, "
    yield "from `start` to `fault`."
    for format in formats().values():
        yield f"\n## {format.name}\n"
        yield f"{format.about[:1].upper()}{format.about[1:]}."
        if format.within:
            yield f"Inside `{format_of(format.within).name}`."
        if format.children:
            yield f"Opens: {', '.join(f'`{name}`' for name in format.children)}."
        yield f"A row has {format.dtype.itemsize} bytes.\n"
        yield "| column | type | meaning | of |"
        yield "|---|---|---|---|"
        for name in format.all_columns:
            column = format.describe_column(name)
            if column is not None:
                yield describe_column(format, name, column)
        # The function of a format that is one of many, such as a body of Kafka, is a `partial`.
        meaning = "" if isinstance(format.read, partial) else inspect.getdoc(format.read)
        if meaning:
            yield f"\n{quote(meaning)}"


def describe_column(format: Format, name: str, column: ColumnDescription) -> str:
    """Return the row of a table for a column."""
    owner = "" if column.owner in (None, format) else f"`{column.owner.name}`"
    meaning = [explain_column(format, name)]
    if name in format.export_columns:
        meaning.append("exported")
    if column.declared.unit:
        meaning.append(f"time in {column.declared.unit}")
    if column.declared.is_offset:
        meaning.append("log offset")
    names = column.declared.number_names
    if names:
        listed = [f"{number} {text}" for number, text in list(names.items())[:12]]
        meaning.append(f"codes: {', '.join(listed)}{', ...' if len(names) > 12 else ''}")
    kind = "" if column.dtype is None else column.dtype.str.lstrip("<|")
    return f"| `{name}` | {kind} {column.kind.value} | {'; '.join(meaning)} | {owner} |"


def make_faults() -> Iterator[str]:
    """Yield the lines of the page of all faults."""
    yield "# Faults\n"
    yield "What can be wrong with a frame. Up to 127 the end of the bad frame is known.\n"
    yield "| number | fault | meaning |"
    yield "|---:|---|---|"
    for number, name in sorted(FAULT_NAMES.items()):
        yield f"| {number} | `{name}` | {MEANING[number]} |"


def make_commands() -> Iterator[str]:
    """Yield the lines of the page of all verbs: their help."""
    yield "# Commands\n"
    context = click.Context(main, info_name="wirescan")
    for verb in main.list_commands(context):
        command = main.get_command(context, verb)
        child = click.Context(command, context, verb, max_content_width=100, terminal_width=100)
        yield f"## wirescan {verb}\n"
        yield f"```text\n{command.get_help(child)}\n```\n"


def make_python() -> Iterator[str]:
    """Yield the lines of the page of all public names: signatures and docstrings."""
    yield "# Python"
    for name in MODULES:
        module = import_module(name)
        yield f"\n## {name}\n"
        yield quote(inspect.getdoc(module) or "")
        for public in list_public_names(module):
            value = getattr(module, public)
            if inspect.isclass(value) or callable(value):
                yield f"\n### {name}.{public}\n"
                yield quote(f"{public}{find_signature(value)}\n\n{inspect.getdoc(value) or ''}")
                if inspect.isclass(value):
                    yield from describe_methods(value)


def list_public_names(module: object) -> list[str]:
    """Return the names that a module offers."""
    names = getattr(module, "__all__", None)
    if names is not None:
        return list(names)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    ]


def describe_methods(value: type) -> Iterator[str]:
    """Yield the signatures and docstrings of the public methods of a class."""
    for name, member in vars(value).items():
        if name.startswith("_") or not (inspect.isfunction(member) or isinstance(member, property)):
            continue
        signature = "" if isinstance(member, property) else find_signature(member)
        yield f"\n#### {name}\n"
        yield quote(f"{name}{signature}\n\n{inspect.getdoc(member) or ''}")


def find_signature(value: object) -> str:
    """Return the arguments of a callable; nothing where Python does not know them."""
    try:
        return str(inspect.signature(value))
    except (TypeError, ValueError):
        return ""


def quote(text: str) -> str:
    """Return text as a block in which nothing has a meaning."""
    return f"```text\n{text.replace('```', chr(0x2019) * 3)}\n```"
