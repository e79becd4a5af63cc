"""Compile the table of messages into programs for the kernel in body.pyx.

formats.py asks for the programs of a level. A program is an array of steps for one version. The
kernel executes the steps in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from typing import NamedTuple

import numpy as np

from wirescan.kafka.protocol.body import PROGRAM, STEP, Read
from wirescan.kafka.protocol.schema import LENGTHS, UUID, WIDTHS, Field, Level, MessageSchema

# Memory that programs point to. It must live as long as this module: several threads may compile
# the same program, and the cache keeps only one of the results.
_REFERENCES: list[np.ndarray] = []


class _StepRange(NamedTuple):
    """The steps from `first` up to, but without, `last`."""

    first: int
    last: int


@dataclass(frozen=True)
class _Step:
    """A step of a program. The fields are those of `Step` in body.pxd."""

    read: Read
    width: int = 0
    at: int = 0
    count: int = 0
    is_nullable: bool = False
    is_compact: bool = False
    first: int = 0
    last: int = 0


class _Writer:
    """Writes the steps of one version of a message.

    steps: the steps so far; None is a step that is reserved and not written yet.
    ranges: path of a level -> its steps.
    """

    def __init__(self, message: MessageSchema, version: int):
        self.version = version
        self.flexible = version >= message.flexible
        self.steps: list[_Step | None] = []
        self.ranges: dict[str, _StepRange] = {}
        self._write_level(message.level)

    def _write_level(self, level: Level) -> _StepRange:
        """Write the steps of the structs of a level. Return where they are."""
        steps = self._write_struct(level, level.fields, "")
        self.ranges[level.path] = steps
        return steps

    def _write_struct(self, level: Level, members: tuple[Field, ...], prefix: str) -> _StepRange:
        """Write the steps of a struct, then those of its inner structs. Return the former."""
        entries = list(self._list_entries(level, members, prefix))
        own = self._reserve(len(entries))
        for number, (name, entry) in enumerate(entries, own.first):
            if isinstance(entry, Field) and entry.type == "struct":
                inside = self._write_struct(level, entry.fields, f"{name}_")
                self.steps[number] = _Step(Read.OPTIONAL, first=inside.first, last=inside.last)
            elif isinstance(entry, Field):
                self.steps[number] = self._make_step(level, name, entry)
            else:
                tags = self._write_tags(level, entry, name)
                self.steps[number] = _Step(Read.TAGS, first=tags.first, last=tags.last)
        return own

    def _reserve(self, count: int) -> _StepRange:
        first = len(self.steps)
        self.steps += [None] * count
        return _StepRange(first, first + count)

    def _list_entries(
        self, level: Level, members: tuple[Field, ...], prefix: str
    ) -> Iterator[tuple[str, Field | list[Field]]]:
        """Yield (column, field) for the untagged fields of a struct.

        A struct inside is replaced by its fields, unless it may be null. The tagged fields of a
        struct are one entry: (prefix of their columns, list of fields).
        """
        present = [field for field in members if self.version in field.versions]
        for field in present:
            is_inline = field.type == "struct" and self.version < field.nullable
            if field.tag is None and is_inline:
                yield from self._list_entries(level, field.fields, f"{prefix}{field.name}_")
            elif field.tag is None:
                yield prefix + field.name, field
        if self.flexible and not level.is_bare:
            yield prefix, [field for field in present if field.tag is not None]

    def _write_tags(self, level: Level, tagged: list[Field], prefix: str) -> _StepRange:
        """Write a step for each tagged field, then the steps of the fields. Return the former."""
        own = self._reserve(len(tagged))
        for number, field in enumerate(tagged, own.first):
            assert field.tag is not None  # _list_entries selects the fields with a tag
            if field.type == "struct":
                inside = self._write_struct(level, field.fields, f"{prefix}{field.name}_")
            else:
                inside = self._reserve(1)
                self.steps[inside.first] = self._make_step(level, prefix + field.name, field)
            self.steps[number] = _Step(Read.TAG, field.tag, first=inside.first, last=inside.last)
        return own

    def _make_step(self, level: Level, name: str, field: Field) -> _Step:
        """Return the step of a field. name: its column in the rows of the level."""
        is_nullable = self.version >= field.nullable
        if field.type in WIDTHS:
            return _Step(Read.NUMBER, WIDTHS[field.type], _find_position(level, name))
        at = _find_position(level, name + "_at")
        if field.type == "uuid":
            return _Step(Read.FIXED, UUID, at)
        if field.type in LENGTHS:
            width = LENGTHS[field.type]
            return _Step(Read.SIZED, width, at, 0, is_nullable, self.flexible)
        if not field.is_array:
            width = WIDTHS[field.type.removeprefix("[]")]
            return _Step(Read.NUMBERS, width, at, 0, is_nullable, self.flexible)
        inner = next(array for array in level.arrays if array.name == name)
        count = _find_position(level, name + "_count")
        steps = self._write_level(inner)
        return _Step(Read.STRUCTS, 0, at, count, is_nullable, self.flexible, *steps)


def _find_position(level: Level, column: str) -> int:
    """Return the position of a column in the rows of a level, in bytes."""
    columns = level.dtype.fields
    assert columns is not None  # the dtype is structured
    return columns[column][1]


@cache
def compile_steps(message: MessageSchema, version: int) -> tuple[np.ndarray, dict[str, _StepRange]]:
    """Return the steps of a version of a message, dtype STEP, and the steps of each level in it."""
    writer = _Writer(message, version)
    written = [step for step in writer.steps if step is not None]
    steps = np.zeros(len(writer.steps), STEP)
    for column in fields(_Step):
        steps[column.name] = [getattr(step, column.name) for step in written]
    steps.flags.writeable = False
    return steps, writer.ranges


@cache
def compile_programs(message: MessageSchema, level: Level) -> np.ndarray:
    """Return the programs for the structs of a level, dtype PROGRAM.

    There is one program for each version up to the newest. One more, at the end, is for all unknown
    versions. The memory that the programs point to lives as long as this module.
    """
    newest = message.versions[-1]
    programs = np.zeros(newest + 2, PROGRAM)
    template = level.template
    _REFERENCES.append(template)
    programs["template"] = template.ctypes.data
    programs["stride"] = level.dtype.itemsize
    programs["first"] = -1
    for version in message.versions:
        steps, ranges = compile_steps(message, version)
        if level.path in ranges:
            _REFERENCES.append(steps)
            programs[version]["steps"] = steps.ctypes.data
            programs[version]["first"] = ranges[level.path].first
            programs[version]["last"] = ranges[level.path].last
    programs["version"][:-1] = np.arange(newest + 1)
    return programs
