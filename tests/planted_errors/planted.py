"""Planted errors: the place and the change of each error, and the tests that must notice it.

The errors of one area are in one TOML file beside this module. An entry has these keys:

    id        a readable name, unique in all files
    file      the file that is changed, relative to pkg/wirescan
    before    the text that is replaced; it occurs exactly once in the file, or in `context`
    after     the text that replaces it
    context   optional: a text that occurs exactly once in the file and contains `before` once
    tests     the pytest node ids that must fail when the error is switched on

`before` is either an expression inside a line, or whole lines. Whole lines are complete statements,
written without their common indentation.
"""

import ast
import textwrap
import tomllib
import zlib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PACKAGE = Path("pkg", "wirescan")
SWITCH_IN_PYTHON = "_planted_error"
SWITCH_IN_C = "wirescan_planted"


class PlantingError(Exception):
    """An entry does not fit its file."""


@dataclass(frozen=True)
class Planted:
    """One planted error."""

    id: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]
    context: str = ""

    @property
    def number(self) -> int:
        """The value of WIRESCAN_PLANTED that switches the error on. It is never 0."""
        return (zlib.crc32(self.id.encode()) & 0x7FFFFFFF) or 1

    @property
    def path(self) -> Path:
        """The path of the file, relative to the root of the repository."""
        return PACKAGE / self.file


@dataclass(frozen=True)
class Place:
    """The start and the stop of the text that an entry replaces in its file."""

    start: int
    stop: int
    is_statement: bool


def read_planted(directory: Path = HERE) -> list[Planted]:
    """Return all entries of all TOML files, in the order of the files' names.

    Raises PlantingError if two entries have the same id or the same number.
    """
    entries = []
    for path in sorted(directory.glob("*.toml")):
        for values in tomllib.loads(path.read_text())["planted"]:
            tests = tuple(values.pop("tests"))
            entries.append(Planted(tests=tests, **values))
    by_number: dict[int, Planted] = {}
    for entry in entries:
        other = by_number.setdefault(entry.number, entry)
        if other is not entry:
            raise PlantingError(
                f"{entry.id}: the id or its number also belongs to {other.id}; rename one of them"
            )
    return entries


def find_all(text: str, fragment: str) -> list[int]:
    """Return the positions at which `fragment` occurs in `text`."""
    positions = []
    position = text.find(fragment)
    while position >= 0:
        positions.append(position)
        position = text.find(fragment, position + 1)
    return positions


def find_once(entry: Planted, text: str, fragment: str, key: str) -> tuple[int, int]:
    """Return where `fragment` starts and stops in `text`, at any indentation.

    Raises PlantingError if it does not occur exactly once.
    """
    matches = []
    indentations = range(0, 60, 4) if "\n" in fragment else range(1)
    for indentation in indentations:
        indented = textwrap.indent(fragment, " " * indentation)[indentation:]
        matches += [(start, start + len(indented)) for start in find_all(text, indented)]
    if len(matches) != 1:
        raise PlantingError(
            f"{entry.id}: `{key}` has to occur exactly once in {entry.path}, and occurs "
            f"{len(matches)} times: {fragment!r}"
        )
    return matches[0]


def find_place(entry: Planted, source: str) -> Place:
    """Return the place of the text that the entry replaces, in the source of its file.

    Raises PlantingError if `before` or `context` does not occur exactly once.
    """
    context_start = 0
    text = source
    if entry.context:
        context_start, context_stop = find_once(entry, source, entry.context, "context")
        text = source[context_start:context_stop]
    start, stop = find_once(entry, text, entry.before, "before")
    start += context_start
    stop += context_start
    line_start = source.rfind("\n", 0, start) + 1
    line_stop = source.find("\n", stop)
    if line_stop < 0:
        line_stop = len(source)
    before = source[line_start:start].strip()
    rest = source[stop:line_stop].strip()
    is_statement = not before and (not rest or rest.startswith("#"))
    return Place(start, stop, is_statement)


def make_switch_expression(entry: Planted) -> str:
    if entry.path.suffix == ".h":
        return f"({SWITCH_IN_C}({entry.number}) ? ({entry.after}) : ({entry.before}))"
    switch = SWITCH_IN_PYTHON if entry.path.suffix == ".py" else SWITCH_IN_C
    # In Cython the two sides of a conditional expression need one C type, and conditions have many.
    if entry.after == "False":
        return f"(({entry.before}) and not {switch}({entry.number}))"
    if entry.after == "True":
        return f"(({entry.before}) or {switch}({entry.number}))"
    return f"(({entry.after}) if {switch}({entry.number}) else ({entry.before}))"


def make_switch_statement(entry: Planted, indentation: str) -> str:
    if entry.path.suffix == ".h":
        return f"if ({SWITCH_IN_C}({entry.number})) {{ {entry.after} }} else {{ {entry.before} }}"
    switch = SWITCH_IN_PYTHON if entry.path.suffix == ".py" else SWITCH_IN_C
    lines = [
        f"if {switch}({entry.number}):",
        textwrap.indent(entry.after, "    "),
        "else:",
        textwrap.indent(entry.before, "    "),
    ]
    return textwrap.indent("\n".join(lines), indentation).lstrip()


def check_grouping(entry: Planted, source: str, place: Place) -> None:
    """Raise PlantingError if parentheses around a Python expression change its meaning."""
    grouped = f"{source[: place.start]}({entry.before}){source[place.stop :]}"
    try:
        same = ast.dump(ast.parse(grouped)) == ast.dump(ast.parse(source))
    except SyntaxError:
        same = False
    if not same:
        raise PlantingError(
            f"{entry.id}: `before` is no whole expression in {entry.path}: {entry.before!r}"
        )


def check_syntax(entries: list[Planted], planted: str) -> None:
    """Raise PlantingError if a planted Python file does not parse."""
    if entries[0].path.suffix != ".py":
        return
    try:
        ast.parse(planted)
    except SyntaxError as error:
        lines = planted.splitlines()[max(error.lineno - 3, 0) : error.lineno]
        raise PlantingError(
            f"{entries[0].path} with its planted errors is no Python: {error.msg}, in {lines}"
        ) from error


def plant(source: str, entries: list[Planted]) -> str:
    """Return the source of one file with a switch for each of its entries.

    Raises PlantingError if an entry does not fit, two entries overlap, or a Python file does not
    parse any more.
    """
    places = sorted(
        ((find_place(entry, source), entry) for entry in entries), key=lambda pair: pair[0].start
    )
    pieces = []
    position = 0
    previous = None
    for place, entry in places:
        if place.start < position:
            raise PlantingError(f"{entry.id} and {previous} overlap in {entry.path}")
        if place.is_statement:
            line_start = source.rfind("\n", 0, place.start) + 1
            switched = make_switch_statement(entry, source[line_start : place.start])
        else:
            if entry.path.suffix == ".py":
                check_grouping(entry, source, place)
            switched = make_switch_expression(entry)
        pieces += [source[position : place.start], switched]
        position = place.stop
        previous = entry.id
    pieces.append(source[position:])
    planted = "".join(pieces)
    check_syntax(entries, planted)
    return planted
