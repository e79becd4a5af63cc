"""Programs: what the table of messages says of one version, as steps that the kernel follows without looking back."""
from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from wirescan.kafka.body import PROGRAM, STEP, Read
from wirescan.kafka.schema import WIDTHS, Field, Level, Message

LENGTHS = {"string": 2, "bytes": 4, "records": 4}       # bytes of the length, unless it is compact
UUID = 16
KEPT: list[np.ndarray] = []         # what programs point to: threads may write one at once, and a cache keeps the last


class _Writer:
    """Writes the steps of one version of a message; `ranges` says where those of each level are."""

    def __init__(self, message: Message, version: int):
        self.version, self.flexible = version, version >= message.flexible
        self.steps: list[tuple[int, ...]] = []
        self.ranges: dict[str, tuple[int, int]] = {}
        self._struct(message.level, message.level.fields, "", whole=True)

    def _struct(self, level: Level, fields: tuple[Field, ...], prefix: str, whole: bool = False) -> tuple[int, int]:
        """The steps of a struct: its own in a row, and behind them those of what lies inside; returns where they are."""
        entries = list(self._entries(fields, prefix))
        first = len(self.steps)
        last = first + len(entries)
        self.steps += [()] * len(entries)
        if whole:
            self.ranges[level.path] = (first, last)
        for number, (name, one) in enumerate(entries, first):
            self.steps[number] = (self._step(level, name, one) if isinstance(one, Field) else
                                  (Read.TAGS, 0, 0, 0, 0, 0, *self._tags(level, one, name)))
        return first, last

    def _entries(self, fields: tuple[Field, ...], prefix: str) -> Iterator[tuple[str, Field | list[Field]]]:
        """(column, field) of what a struct begins with, those of structs in it among them; and where its tagged fields
        stand, (prefix, these)."""
        present = [one for one in fields if self.version in one.versions]
        for one in present:
            if one.tag is None and one.type == "struct":
                yield from self._entries(one.fields, f"{prefix}{one.name}_")
            elif one.tag is None:
                yield prefix + one.name, one
        if self.flexible:
            yield prefix, [one for one in present if one.tag is not None]

    def _tags(self, level: Level, tagged: list[Field], prefix: str) -> tuple[int, int]:
        first = len(self.steps)
        last = first + len(tagged)
        self.steps += [()] * len(tagged)
        for number, one in enumerate(tagged, first):
            if one.type == "struct":
                inside = self._struct(level, one.fields, f"{prefix}{one.name}_")
            else:
                at = len(self.steps)
                self.steps.append(())
                self.steps[at] = self._step(level, prefix + one.name, one)
                inside = (at, at + 1)
            self.steps[number] = (Read.TAG, one.tag, 0, 0, 0, 0, *inside)
        return first, last

    def _step(self, level: Level, name: str, one: Field) -> tuple[int, ...]:
        columns = level.dtype.fields
        null = self.version >= one.nullable
        if one.type in WIDTHS:
            return Read.NUMBER, WIDTHS[one.type], columns[name][1], 0, 0, 0, 0, 0
        at = columns[name + "_at"][1]
        if one.type == "uuid":
            return Read.FIXED, UUID, at, 0, 0, 0, 0, 0
        if one.type in LENGTHS:
            return Read.SIZED, LENGTHS[one.type], at, 0, null, self.flexible, 0, 0
        if not one.is_array:
            return Read.NUMBERS, WIDTHS[one.type.removeprefix("[]")], at, 0, null, self.flexible, 0, 0
        inner = next(array for array in level.arrays if array.name == name)
        count = columns[name + "_count"][1]
        return (Read.STRUCTS, 0, at, count, null, self.flexible, *self._struct(inner, inner.fields, "", whole=True))


@cache
def steps_of(message: Message, version: int) -> tuple[np.ndarray, dict[str, tuple[int, int]]]:
    """The steps of a version of a message, dtype STEP; and where among them those of each level are."""
    writer = _Writer(message, version)
    steps = np.zeros(len(writer.steps), STEP)
    names = ("read", "width", "at", "count", "is_nullable", "is_compact", "first", "last")
    for number, step in enumerate(writer.steps):
        steps[number] = tuple(dict(zip(names, step)).get(name, 0) for name in STEP.names)
    steps.flags.writeable = False
    return steps, writer.ranges


@cache
def programs_of(message: Message, level: Level) -> np.ndarray:
    """Programs for the structs of a level, dtype PROGRAM: one for each version up to the newest, and at the end one for
    a version that there is not. What they point to lives as long as this module."""
    newest = message.versions[-1]
    found = np.zeros(newest + 2, PROGRAM)
    template = level.template
    KEPT.append(template)
    found["template"], found["stride"] = template.ctypes.data, level.dtype.itemsize
    found["first"] = -1
    for version in message.versions:
        steps, ranges = steps_of(message, version)
        if level.path in ranges:
            KEPT.append(steps)
            found[version]["steps"] = steps.ctypes.data
            found[version]["first"], found[version]["last"] = ranges[level.path]
    found["version"][:-1] = np.arange(newest + 1)
    return found
