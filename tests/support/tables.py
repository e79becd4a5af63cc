"""Tables of frames, and their rows as values that tests can compare."""

import pytest

import wirescan
from wirescan import FrameTable


def scan_and_mark(source, format: str) -> FrameTable:
    """Scan a source in the mode that marks bad frames."""
    return wirescan.scan(source, format, errors="mark")


def scan_whole_frames(data: bytes, format: str) -> FrameTable:
    """Scan bytes that must consist of whole good frames."""
    table = wirescan.scan(data, format)
    check_whole_frames(table, data)
    return table


def check_whole_frames(table: FrameTable, data: bytes) -> None:
    """Assert that good frames cover all of the scanned bytes."""
    assert table["size"].sum() == len(data)
    assert not len(table.tail)
    assert not table.bad.any()


def list_columns(table: FrameTable, names: str) -> list[tuple]:
    """Return some columns of each row. names: the columns, separated by blanks."""
    return table.rows[names.split()].tolist()


def record_computed(monkeypatch: pytest.MonkeyPatch, *names: str) -> list[str]:
    """Return a list to which each later computation of a property of FrameTable adds its name.

    names: properties that compute a column of the whole table, such as `bad`.
    """
    computed: list[str] = []

    def record(name: str) -> property:
        compute = getattr(FrameTable, name).fget
        return property(lambda table: computed.append(name) or compute(table))

    for name in names:
        monkeypatch.setattr(FrameTable, name, record(name))
    return computed
