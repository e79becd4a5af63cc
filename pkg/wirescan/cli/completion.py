"""What the shell offers for a word: files, columns, encodings and decoders."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

from click import Context, Parameter
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    split_arg_string,
)

from wirescan.frames.columns import ColumnKind
from wirescan.frames.format import Format
from wirescan.frames.row_values import list_bytes_columns
from wirescan.frames.value_text import ENCODINGS

BREAKS = ("=", ":")  # of COMP_WORDBREAKS; bash passes each as a word


class BashWords(BashComplete):
    """Completion for bash, which cuts words at "=" and ":" and completes the last part."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the last one, and the last one."""
        count = int(os.environ["COMP_CWORD"]) + 1
        parts = split_arg_string(os.environ["COMP_WORDS"])[:count]
        parts += [""] * (count - len(parts))
        words: list[str] = []
        joins = False
        for part in parts:
            if part == "=" and words and words[-1].startswith("--"):
                words.append("")  # the value of the option begins
                joins = True
            elif words and (joins or part in BREAKS):
                words[-1] += part
                joins = part in BREAKS
            else:
                words.append(part)
        self._is_cut = words[-1] != parts[-1]
        return words[1:-1], words[-1]

    def format_completion(self, item: CompletionItem) -> str:
        """Return an item as the script for bash reads it, without the parts that bash has cut."""
        if self._is_cut and item.type == "plain":
            text = re.split("[=:]", item.value)[-1]
            item = CompletionItem(text, type=item.type)
        return super().format_completion(item)


class _WholeWords(ShellComplete):
    """Completion for shells that compare and replace whole words.

    Such a shell completes a path only if the path is the whole word. So paths after `value=json:`
    or `--output=` are listed here.
    """

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """Return the items for a word. Each item is a whole word."""
        items = super().get_completions(args, incomplete)
        name, equals, _ = incomplete.partition("=")
        option = name + equals if name.startswith("-") else ""
        return [whole for item in items for whole in _make_whole(item, option)]


class ZshWords(_WholeWords, ZshComplete):
    """Completion for zsh."""


class FishWords(_WholeWords, FishComplete):
    """Completion for fish. An item may have commas."""

    source_template = FishComplete.source_template.replace(
        'string split ","', 'string split -m 1 ","'
    )


def _make_whole(item: CompletionItem, option: str) -> list[CompletionItem]:
    """Return the whole words for an item.

    option: the part of the word before the value, such as "--columns=", or empty.
    """
    if item.type == "plain":
        starts_with_it = item.value.startswith(option)
        value = item.value if starts_with_it else option + item.value
        return [CompletionItem(value, help=item.help)]
    path = item.value if item.path is None else item.path
    if not option and path == item.value:
        return [item]
    start = option + item.value.removesuffix(path)
    return [CompletionItem(start + each) for each in _list_paths(path, item.type)]


def _list_paths(incomplete: str, kind: str) -> list[str]:
    """Return the paths that begin with a text; those of directories end with a slash.

    kind: "file", or "dir" for directories only.
    """
    folder, name = os.path.split(incomplete)
    try:
        entries = sorted(os.scandir(folder or "."), key=lambda each: each.name)
    except OSError:
        return []
    return [
        os.path.join(folder, entry.name) + ("/" if entry.is_dir() else "")
        for entry in entries
        if entry.name.startswith(name)
        and (name or not entry.name.startswith("."))
        and (kind == "file" or entry.is_dir())
    ]


def complete_file(context: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete the path of a file."""
    return [CompletionItem(incomplete, type="file")]


def complete_directory(
    context: Context, parameter: Parameter, incomplete: str
) -> list[CompletionItem]:
    """Let the shell complete the path of a directory."""
    return [CompletionItem(incomplete, type="dir")]


def complete_list(columns: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Return lists of columns, with commas between them, that begin with a text."""
    before, comma, last = incomplete.rpartition(",")
    names = [column for column in columns if column.startswith(last)]
    return [CompletionItem(f"{before}{comma}{column}") for column in names]


def complete_encodings(format: Format, incomplete: str) -> list[CompletionItem]:
    """Return values of --encoding that begin with a text."""
    before, comma, last = incomplete.rpartition(",")
    words = _complete_assignment(list_bytes_columns(format), ENCODINGS, last)
    if "=" not in last:
        words += [name for name in ENCODINGS if name.startswith(last)]
    return [CompletionItem(f"{before}{comma}{word}") for word in words]


def complete_decoders(format: Format, incomplete: str) -> list[CompletionItem]:
    """Return values of --decode that begin with a text. After a colon, the shell completes a path.

    Without pyarrow there are no decoders, and none is offered.
    """
    if ":" in incomplete:
        path = re.split("[=:,]", incomplete)[-1]
        return [CompletionItem(incomplete, type="file", path=path)]
    try:
        from wirescan.decoding.notation import MAKERS
    except ImportError:
        return []
    columns = [name for name in list_bytes_columns(format) if _is_bytes(format, name)]
    return [CompletionItem(word) for word in _complete_assignment(columns, MAKERS, incomplete)]


def _is_bytes(format: Format, name: str) -> bool:
    column: Any = format.describe_column(name)
    return column.kind is ColumnKind.BYTES


def _complete_assignment(
    columns: Iterable[str], values: Iterable[str], incomplete: str
) -> list[str]:
    """Return texts COLUMN=VALUE that begin with a text; only COLUMN= while several columns fit.

    bash appends a space to a single word. So one column comes with its values.
    """
    name, equals, value = incomplete.partition("=")
    fitting = [name] if equals else [column for column in columns if column.startswith(name)]
    if len(fitting) > 1:
        return [f"{column}=" for column in fitting]
    return [f"{column}={each}" for column in fitting for each in values if each.startswith(value)]
