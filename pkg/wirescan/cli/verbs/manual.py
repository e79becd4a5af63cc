"""`wirescan manual`: writes the manual pages of the command, from the help of its verbs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import click

import wirescan
from wirescan.cli.completion import complete_directory

SECTION = 1  # of the manual: commands of users
WIDTH = 200  # characters of a description, so that it is not cut
HELP = """Write the manual pages of all verbs to a directory, for man.

\b
Examples:
  wirescan manual ~/.local/share/man/man1
  man wirescan-scan
"""


@click.command(help=HELP, short_help="Write the manual pages for man.")
@click.argument("folder", metavar="DIR", shell_complete=complete_directory)
@click.pass_context
def manual(context: click.Context, *, folder: str) -> None:
    """Run `wirescan manual`."""
    parent = context.parent
    assert parent is not None and isinstance(parent.command, click.Group)
    os.makedirs(folder, exist_ok=True)
    write_page(folder, parent, [])
    for name in parent.command.list_commands(parent):
        command = parent.command.get_command(parent, name)
        assert command is not None
        write_page(folder, click.Context(command, parent, name), [name])


def write_page(folder: str, context: click.Context, verbs: list[str]) -> None:
    """Write the page of a command. verbs: the verb, or nothing for the command of all verbs."""
    name = "-".join(["wirescan", *verbs])
    path = os.path.join(folder, f"{name}.{SECTION}")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(make_page(context, name)) + "\n")


def make_page(context: click.Context, name: str) -> list[str]:
    """Return the lines of a page, in the language of man.

    Source: groff_man(7).
    """
    command = context.command
    usage = " ".join(command.collect_usage_pieces(context))
    title = f'.TH {name.upper()} {SECTION} "" "wirescan {wirescan.__version__}"'
    about = command.get_short_help_str(WIDTH) if context.parent else "bytes from the wire as tables"
    lines = [title, ".SH NAME", f"{escape(name)} \\- {escape(about)}"]
    lines += [".SH SYNOPSIS", f".B {escape(context.command_path)}", escape(usage)]
    lines += [".SH DESCRIPTION", *convert_help(command.help or "")]
    records = [option.get_help_record(context) for option in command.get_params(context)]
    lines.append(".SH OPTIONS")
    for names, text in filter(None, records):
        lines += [".TP", f".B {escape(names)}", escape(" ".join(text.split()))]
    if isinstance(command, click.Group):
        lines.append(".SH COMMANDS")
        for verb in command.list_commands(context):
            child = command.get_command(context, verb)
            assert child is not None
            lines += [".TP", f".BR wirescan\\-{verb} ({SECTION})"]
            lines.append(escape(child.get_short_help_str(WIDTH)))
    return lines


def convert_help(text: str) -> Iterator[str]:
    r"""Yield the lines of a help text. A paragraph after a line with \b keeps its lines."""
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text.strip())):
        if number:
            yield ".PP"
        if paragraph.startswith("\b\n"):
            yield ".nf"
            yield from map(escape, paragraph.split("\n")[1:])
            yield ".fi"
        else:
            yield escape(" ".join(paragraph.split()))


def escape(text: str) -> str:
    """Return text for a line of a page: no character has a meaning of man's language."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    # A full stop or an apostrophe at the start of a line would begin a request.
    return "\\&" + text if text[:1] in (".", "'") else text
