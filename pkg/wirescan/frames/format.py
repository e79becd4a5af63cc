"""`Format`: the declaration of a kind of frame, in parts, which all other layers read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from wirescan.core.fault import Fault
from wirescan.core.loop import HEAD
from wirescan.frames.columns import (
    FAULT,
    FILE,
    HEAD_COLUMNS,
    PLAIN,
    RESERVED,
    START,
    Column,
    ColumnDescription,
    ColumnKind,
    PathColumn,
    describe_export_column,
    describe_own_column,
    list_columns,
    list_computed,
    list_places,
)
from wirescan.frames.conversation import (
    CaptureReader,
    CarriedFormat,
    ConnectionGroup,
    Conversation,
)
from wirescan.frames.errors import FrameError
from wirescan.frames.exchange import ExchangeFormat
from wirescan.frames.fault_names import FaultMeaning, check_declared_faults, describe_fault
from wirescan.frames.limits import Limits
from wirescan.frames.logs import LogColumns
from wirescan.frames.lookup import list_levels
from wirescan.frames.options import FormatOption
from wirescan.frames.registry import format_of, load_formats, make_derived_formats
from wirescan.frames.summary_columns import SummaryColumns

if TYPE_CHECKING:
    from wirescan.frames.table import FrameTable


@dataclass(frozen=True, eq=False)
class Parser:
    """The functions that find the frames of a format in bytes.

    Attributes:
        scan: a function of one buffer that returns (rows, bad, fault, position). It takes `check`,
            `resync`, `limits`, `more` if bytes may follow, and `resume` for the next bytes of a
            stream, by keyword. `core.loop.scan_frames` describes them. Outermost formats only.
        spans: a function of buffers, spans of them (dtype HEAD), and the keywords `check`, `resync`
            and `limits`. It returns (rows, bad, faults, positions), as `scan` for each span.
            Optional: with it many small streams cost little more than one stream. A format with a
            `conversation` has it, and it takes `more` too.
        scan_values: a function of a buffer, spans of it (dtype HEAD), and the keywords `check`
            and `limits`. It returns (rows, bad). Each span, such as a value of a binary column,
            is one frame and one row, up to `limits.rows`. Optional: for formats whose frames do
            not state their size.
        bytes_needed: `bytes_needed(held, *state) -> (minimum frame size, *state)`, where `held`
            are the first bytes of a frame. `state` is the rest of the previous result for the
            same frame. Optional: it lets `Stream` skip scans that cannot succeed.
        verify: a function of rows and their buffers that returns the fault of each row (u1) after a
            verification of its checksum. If all are 0, and `scan` without `check` finds no bad
            frame, then `scan` with `check` has the same result. Optional: with it a scan may leave
            the verification to the formats inside, which read the same bytes, or to several
            threads.
        expect_inside: a function of a table of these frames that returns about how many frames are
            inside each of them, as integers, or None if it is one in each. Exports open so many
            frames together that they have about as many rows as a batch. Optional: formats with
            `Display.record_count` state the number.
        is_deflated: a function of a table of these frames that returns which ones hold a stream of
            deflate whose own checksum, at its end, is the only one: a bool array. Such streams with
            damage count as decompressed in `Limits.expansion`. Optional.
        writes_columns: whether `scan` accepts a `ColumnWriter` as `into`, which takes the rows. A
            `scan` that passes `into` to `core.loop.scan_frames` does. Exports read the format
            faster with it.
    """

    scan: Callable[..., tuple[np.ndarray, int, int, int]] | None = None
    spans: Callable[..., tuple[np.ndarray, int, np.ndarray, np.ndarray]] | None = None
    scan_values: Callable[..., tuple[np.ndarray, int]] | None = None
    bytes_needed: Callable[..., tuple[Any, ...]] | None = None
    verify: Callable[..., np.ndarray] | None = None
    expect_inside: Callable[[FrameTable], np.ndarray | None] | None = None
    is_deflated: Callable[[FrameTable], np.ndarray] | None = None
    writes_columns: bool = False


@dataclass(frozen=True, eq=False)
class Storage:
    """How the files of a format are found, cut and skipped.

    Attributes:
        files: a regular expression: the files of a directory that are read. It may be a
            `wirescan.files.file_pattern.FilePattern`, which leaves files out with a log message.
        ignore: a regular expression: the files that a glob excludes.
        finished: a regular expression: the paths of files that do not grow any more. Streams do not
            keep what they read of each of them.
        marks: the first bytes of every file of this format; empty if several formats, or none, have
            such marks. Outermost formats only.
        text_marks: the first bytes of files of this format that look like text. None: the format
            is text. Outermost formats only.
        beside: the ending of the name of a file that belongs to a file of this format -> the bytes
            of each of its entries, 0 for a file without entries. An ending that begins with "."
            replaces that of the file, any other one is the name of a file in the same directory.
            They tell formats apart whose files have the same names.
        weigh: a function of a table of good frames that returns how unlikely each of them is in
            other bytes: an array of float64 or int64, in bits. `wirescan.frames.evidence`
            describes it. Without it, bytes alone do not identify the format: its files are found
            by their names. Outermost formats only.
        evidence: what `weigh` looks at, as in "checksums are right".
        find_connections: for captures: a function of the first bytes of a file, and the keyword
            `is_whole`: whether they are all. It returns the connections in them in groups, at most
            a few dozen. Outermost formats only.
        boundaries: a function of a path, a distance in bytes, a start position (default 0), and
            the keyword `limits`. It returns positions, from the start on, at which the file can be
            cut, about that distance apart. A frame above `limits.frame` is damage, after which it
            finds no position. The start is given for files that grew. Outermost formats only.
        estimate_work: a function of the first bytes of a file that returns about how many
            nanoseconds of one core a byte of the file takes, until its rows are in Spark or Arrow.
            It returns None for bytes that it does not know. Plans divide this work evenly over
            tasks. Without it, all bytes count the same. Outermost formats only.
        statistics: a function of the rows of the format `within` that returns {column of this
            format: (lowest, highest)}, arrays or None. The good frames inside each row have
            values in that range. Optional.
        prune: a function of a path, {column of this format: (lowest, highest)}, numbers or
            None, and the keyword `limits`. It returns the range of bytes (start, stop) that
            contains all frames with such values. Both are boundaries of outermost frames.
            Optional.
        log: how the frames of a log follow each other; None for frames without log offsets.
        path_columns: columns of exports that follow from the path of a file, by their names. A
            column of the rows, or of the frames around them, hides one of the same name.
            Outermost formats only.
    """

    files: str | None = None
    ignore: str | None = None
    finished: str | None = None
    marks: tuple[bytes, ...] = ()
    text_marks: tuple[bytes, ...] | None = None
    beside: Mapping[str, int] = field(default_factory=dict)
    weigh: Callable[[FrameTable], np.ndarray] | None = None
    evidence: str = "frames are whole"
    find_connections: Callable[..., tuple[ConnectionGroup, ...]] | None = None
    boundaries: Callable[..., list[int]] | None = None
    estimate_work: Callable[[memoryview], float | None] | None = None
    statistics: Callable[[np.ndarray], Mapping[str, tuple[Any, Any]]] | None = None
    prune: Callable[..., tuple[int, int]] | None = None
    log: LogColumns | None = None
    path_columns: Mapping[str, PathColumn] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Display:
    """How the command shows and counts the frames of a format.

    Attributes:
        shown: the columns of text output where none are named; empty: all columns.
        grouped_by: the column that a first query on converted frames groups by; optional.
        record_count: the column with the number of records inside a frame, -1 if the frame does
            not state it; optional.
        counted_as: what a summary calls these frames, a plural such as "records". None: a summary
            does not open these frames.
        summary: the columns that a summary counts.
        has_time: a function of a table and the name of a column of times that returns a bool
            array: the rows that a summary includes in the range of times. Optional.
        name_keys: a function of a table that returns names for byte strings that are codes:
            column -> {row: name}. Text for people shows the names. Optional.
        repeats: whether another format, read from the same frames, reports every fault of this one.
    """

    shown: tuple[str, ...] = ()
    grouped_by: str | None = None
    record_count: str | None = None
    counted_as: str | None = None
    summary: SummaryColumns = SummaryColumns()
    has_time: Callable[[FrameTable, str], np.ndarray] | None = None
    name_keys: Callable[[FrameTable], Mapping[str, Mapping[int, str]]] | None = None
    repeats: bool = False


@dataclass(frozen=True, eq=False)
class Format:
    """One kind of frame.

    Attributes:
        name: the protocol and the frame, as in "kafka.records".
        about: a description in one line.
        dtype: the dtype of the rows.
        read: a function of a source, or of the table of `within`, that returns a FrameTable. It
            takes `errors`, `check` and `limits`. A default None of `errors` means the mode of the
            table: see `wirescan.frames.errors.resolve_mode`.
        write: a function of a table of `within` and a `ColumnWriter`, with the keywords `check` and
            `limits`, which reads the frames inside into the writer. With `check` it verifies the
            frames of the table too, if they are not `checked`. It is called on several threads.
            Optional: exports read the format faster with it. Outermost formats have
            `Parser.writes_columns` instead.
        within: the name of the format whose frames contain these; None for an outermost format.
        children: the formats inside a frame: name -> function of a table. It takes `errors`.
        columns: what columns and places mean, for those that mean more than their dtype. If it has
            names for the column `kind`, every export has that column, as text.
        meanings: what columns and places mean, in one line each, for `wirescan formats` and the
            reference. See `explain_column` for those that need no entry.
        parser: the functions that find frames in bytes.
        storage: how files of this format are found, cut and skipped.
        display: how the command shows and counts the frames.
        readable: faults of a frame whose lists can still be read.
        faults: the faults of a format of another package: number -> name and meaning. The numbers
            are 64 to 127 if the end of the bad frame is known, and 192 to 255 if it is not. They
            have a meaning in this format only. A row that covers an enclosing bad frame repeats its
            number, so formats within one another declare the same faults.
        enclosing: the column with the row of the enclosing value, for values that are nested in
            one table. The values around a bad value have its fault; the bad value itself has no
            kind. Optional.
        requests: the format of the other direction, without which the frames inside these cannot
            be opened; optional.
        conversation: how the frames are sent over connections; None for frames that are not. With
            it they can be read from captures. Outermost formats only.
        detached: tables of this format may have no `outer`, so an export has no column of enclosing
            frames.
        exchange: how these frames and their responses form exchanges; None for frames without
            responses, and for responses. The outermost format has a `conversation`.
        carried: the frames of another format that these and their questions carry. Of outermost
            formats with a `conversation`. Optional.
        make_reader: for frames that consist of parts of several outermost frames: a function of
            the keywords `errors`, `check` and `limits` that returns a `CaptureReader`. Optional.
        accepts: the options that may follow the name of this format. See `format_of`.
        options: the options of this format, as the query of a URL; empty: none.
        selected: for a table of some columns, their names: see `FrameTable.__getitem__`. Empty: all
            columns.
    """

    name: str
    about: str
    dtype: np.dtype
    read: Callable[..., FrameTable]
    write: Callable[..., None] | None = field(default=None, kw_only=True)
    within: str | None = None
    children: Mapping[str, Callable[..., FrameTable]] = field(default_factory=dict)
    columns: Mapping[str, Column] = field(default_factory=dict)
    meanings: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    parser: Parser = Parser()
    storage: Storage = Storage()
    display: Display = Display()
    readable: tuple[int, ...] = ()
    faults: Mapping[int, FaultMeaning] = field(default_factory=dict)
    enclosing: str | None = None
    requests: str | None = None
    conversation: Conversation | None = None
    exchange: ExchangeFormat | None = None
    carried: CarriedFormat | None = None
    make_reader: Callable[..., CaptureReader] | None = None
    detached: bool = False
    accepts: tuple[FormatOption, ...] = ()
    options: str = ""
    selected: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.faults:
            check_declared_faults(self.faults, self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return format_of, (self.spec,)

    @property
    def spec(self) -> str:
        """The argument of `format_of` for this format: its name, followed by its options."""
        return f"{self.name}?{self.options}" if self.options else self.name

    @property
    def outermost(self) -> Format:
        """The outermost format around these frames, which has to be scanned first.

        Of captures it is the one whose tables a `CaptureReader` makes.
        """
        if self.within is None or self.make_reader is not None:
            return self
        return format_of(self.within).outermost

    @property
    def in_values(self) -> Format:
        """The format to read in the values of a binary column.

        Of this format and those around it, it is the innermost one that has `scan_values`. If
        there is none, it is the outermost format.
        """
        has_values = self.parser.scan_values is not None
        return self if has_values or self.within is None else format_of(self.within).in_values

    @property
    def lists(self) -> dict[str, str]:
        """The children that are short lists of pairs: name -> the column that counts them."""
        return {name: column.count for name, column in self.columns.items() if column.count}

    @property
    def export_columns(self) -> list[str]:
        """The columns of an export that names none: the format's own columns, and `fault`.

        For a table of some columns these are the selected ones.
        """
        if self.selected:
            return list(self.selected)
        pairs = list_places(self.dtype)
        lists = self.lists
        hidden = {
            *list_columns(HEAD),
            RESERVED,
            *lists.values(),
            *(name + "_at" for name in lists),
            *(name + end for name in pairs for end in ("_at", "_size")),
        }
        names = [name for name in list_columns(self.dtype) if name not in hidden]
        own = [name for name in names if not self.get_column(name).local]
        own += [name for name in pairs if name not in self.children]
        inherited = [name for name, column in self.columns.items() if column.inherited]
        own += [name for name, column in self.columns.items() if column.exported]
        kind = ["kind"] if self.get_column("kind").number_names else []
        return [*kind, *own, *lists, *inherited, "fault"]

    @property
    def all_columns(self) -> list[str]:
        """Every column that an export may have, but `_fault`.

        These are `_file`, `_start`, the columns of an export that names none, and all columns,
        places and computed columns of the rows and of their enclosing frames. RESERVED is none.
        """
        names = [FILE, START, *self.export_columns]
        outer: Format | None = self
        while outer is not None:
            others = [
                name
                for name, column in outer.columns.items()
                if column.outer_name or column.compute_texts is not None
            ]
            own = [
                *list_columns(outer.dtype),
                *list_places(outer.dtype),
                *list_computed(outer.dtype, outer.columns),
                *others,
            ]
            names += [name for name in own if name not in names and name != RESERVED]
            outer = format_of(outer.within) if outer.within and not outer.detached else None
        names += [name for name in self.outermost.storage.path_columns if name not in names]
        return names

    def get_column(self, name: str) -> Column:
        """Return what this format declares about a column or place."""
        return self.columns.get(name) or HEAD_COLUMNS.get(name, PLAIN)

    def describe_column(self, name: str) -> ColumnDescription | None:
        """Return what a column is that an export may have; None if there is no such column.

        The innermost format, of this one and those around it, that has the column is its owner.
        """
        described = describe_export_column(name)
        if described is not None:
            return described
        declared = self.get_column(name)
        if declared.count is not None:
            return ColumnDescription(name, ColumnKind.PAIRS, declared, None, self)
        column = describe_own_column(self.dtype, self, name)
        outer = self
        own_name = name
        while column is None and outer.within is not None and not outer.detached:
            own_name = outer.get_column(own_name).outer_name or own_name
            outer = format_of(outer.within)
            column = describe_own_column(outer.dtype, outer, own_name)
        return column or self.describe_path_column(name)

    def describe_path_column(self, name: str) -> ColumnDescription | None:
        """Return what a column is that follows from the path of a file; None for other names."""
        column = self.outermost.storage.path_columns.get(name)
        if column is None:
            return None
        return ColumnDescription(name, column.kind, read_path=column.read)

    def describe_fault(self, fault: int) -> FaultMeaning:
        """Return the name and the meaning of a number of the column `fault`."""
        return describe_fault(fault, self.faults)

    def open(self, source: Any, **options: Any) -> FrameTable:
        """Return the frames of this format in a source, through every format around them."""
        if self.within is None:
            return self.read(source, **options)
        return self._read_inside(format_of(self.within).open, source, options)

    def inside(self, outer: FrameTable, **options: Any) -> FrameTable:
        """Return the frames of this format in a table of a format that encloses it.

        `outer` may also be a table of any format that has this one among its children.
        """
        if outer.format is self:
            return outer
        if outer.format is None or self.read not in outer.format.children.values():
            if self.within is None:
                return outer
            return self._read_inside(format_of(self.within).inside, outer, options)
        return self.read(outer, **_reduce_limits(outer, options))

    def _read_inside(
        self, enclose: Callable[..., FrameTable], source: Any, options: dict[str, Any]
    ) -> FrameTable:
        """Read the frames inside those that `enclose` finds in a source.

        Strict reading raises the first fault in the order of the wire. That fault may be inside a
        frame that precedes the first bad frame, so those frames are opened first.
        """
        try:
            outer = enclose(source, **options)
        except FrameError as error:
            if error.fault != Fault.LIMIT:
                marked = enclose(source, **{**options, "errors": "mark"})
                before = marked[: int(marked.bad.argmax())] if marked.bad.any() else marked
                strict = {**options, "errors": "strict"}  # not the mode of `before`
                self.read(before, **_reduce_limits(before, strict))
            raise
        return self.read(outer, **_reduce_limits(outer, options))


def _reduce_limits(outer: FrameTable, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options for the frames inside a table.

    The rows of the tables so far count against `Limits.row_bytes`.
    """
    limits = options.get("limits", Limits())
    used = sum(level.rows.nbytes for level in list_levels(outer))
    remaining = limits.limit_row_bytes(sum(map(len, outer.buffers))) - used
    return {**options, "limits": replace(limits, row_bytes=max(remaining, 1))}


def describe_rows(table: FrameTable) -> Format:
    """Return the format of a table, with the dtype of its rows.

    The rows may have more columns than the format. A table without a format gets a format
    "frames".
    """
    format: Format = table.format or Format("frames", "", table.dtype, read=type(table))
    return format if format.dtype == table.dtype else replace(format, dtype=table.dtype)


def register(*formats: Format) -> None:
    """Add formats of another package, so that they are found by their names.

    Raises:
        TypeError: an argument is not a Format.
        ValueError: the name belongs to another format, another format carries the same frames, or
            two columns of a format have one name.
    """
    for format in formats:
        if not isinstance(format, Format):
            raise TypeError(f"register takes Formats, not {type(format).__name__}")
    known = load_formats()
    for format in formats:
        _check_names(format)
        _check_carried(format, known)
    added = [format for format in formats if format.name not in known]
    # A changed copy of a format declares the same exchanges.
    derived = [item for item in make_derived_formats(added) if item.name not in known]
    for format in (*formats, *derived):
        if known.setdefault(format.name, format) is not format:
            raise ValueError(f"there is a format {format.name!r} already")


def _check_names(format: Format) -> None:
    """Raise ValueError if two columns of a format have one name."""
    computed = [
        name
        for name, column in format.columns.items()
        if column.computed is not None or column.compute_texts is not None
    ]
    used = {FILE, START, FAULT}
    for name in (*list_columns(format.dtype), *list_places(format.dtype), *computed):
        if name in used:
            raise ValueError(
                f"the format {format.name!r} has two columns with the name {name!r}: rows, places "
                f"(NAME_at and NAME_size) and computed columns need different names, and {FILE}, "
                f"{START} and {FAULT} are in every format"
            )
        used.add(name)


def _check_carried(format: Format, known: Mapping[str, Format]) -> None:
    """Raise ValueError if messages of another format carry the same frames.

    Captures name only the carried format, so one format may carry it.
    """
    if format.carried is None:
        return
    for other in known.values():
        if other.carried is None or other.name == format.name:
            continue
        if other.carried.carries == format.carried.carries:
            raise ValueError(
                f"{format.carried.carries} are carried by {other.name} already, so "
                f"{format.name} cannot carry them"
            )
