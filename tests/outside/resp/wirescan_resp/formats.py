"""The functions that read RESP, and its `Format` declarations."""

import operator

from wirescan import Column, Display, Format, FrameTable, Limits, Parser, Storage
from wirescan.files.whole_source import scan_source
from wirescan.frames.conversation import Conversation
from wirescan.frames.errors import enforce_mode, raise_if_row_limit, resolve_mode
from wirescan.frames.summary_columns import SummaryColumns
from wirescan.frames.table import renumber_enclosing, require_rows
from wirescan_resp.constants import FAULTS, Kind
from wirescan_resp.evidence import weigh_frames
from wirescan_resp.exchanges import EXCHANGES
from wirescan_resp.files import FILES, find_boundaries
from wirescan_resp.scan import FRAME, bytes_needed, scan_stream, scan_streams
from wirescan_resp.values import MAX_DEPTH, VALUE, open_values

# What columns and places mean, in one line each.
FRAME_MEANINGS = {
    "kind": "the type of the value: see `Kind`",
    "integer": "the number of an integer, 0 for other types",
    "count": "elements of an array, 0 for other types",
    "value_count": "values in the frame: the outermost one and all inside it",
    "name": "first element of an array if it is a bulk string, first word of an error, or null",
    "value": "the text of a line, the bytes of a bulk string, or all elements of an array",
}
VALUE_MEANINGS = {
    **{name: FRAME_MEANINGS[name] for name in ("kind", "integer", "count", "value")},
    "enclosing": "row of the array that contains the value, -1 for an outermost value",
    "index": "number of the element in its array",
    "depth": "1 for an outermost value, 2 for its elements",
    "element_kind": "the type of an array's first element, 0 for none",
}


def scan(source, *, errors="strict", check=True, limits=Limits(), into=None):
    """Return the frames in a source as a table of resp.frames: dtype FRAME, 56 bytes a row.

    source: anything that `wirescan.open` takes: the bytes of one direction of a connection. errors:
    "strict", "mark" or "skip". check: accepted for consistency and ignored, because RESP has no
    checksum. limits: bounds of what is read. into: a writable array of dtype FRAME that receives
    the rows, for a source of one buffer.

    Columns: `kind` is a `Kind`. `integer` is the value of an integer. `count` is the number of
    elements of an array. `value_count` is the number of rows that `values` gives. Places: value,
    the text of a line, the bytes of a bulk string, or all elements of an array (null for the null
    bulk string and the null array); name, the first element of an array if that is a bulk string,
    the first word of an error, else null.

    Faults: BAD_INTEGER, a number that is not one of 64 bits. TOO_DEEP, more than 32 levels of
    arrays. NOT_A_VALUE, a byte that begins no value; inline commands are such bytes. BAD_LINE, a
    line that does not end with CR LF, or has more than 65,536 bytes, or 20 before a bulk string or
    an array. BAD_LENGTH, a length or count that is not a number from 0 to 2147483647, or a bulk
    string without CR LF after it.

    Raises FrameError according to `errors`, OSError, and TypeError and ValueError for wrong
    arguments.
    """
    return scan_source(source, FRAMES, errors=errors, check=check, limits=limits, into=into)


def values(frames, *, depth=MAX_DEPTH, errors=None, check=True, limits=Limits()):
    """Return the values in frames as a table of resp.values: dtype VALUE, 56 bytes a row.

    frames: a table of resp.frames. depth: 1 to 33, the levels whose values become rows. errors:
    None, the default, means the mode of `frames`. check and limits: as in `scan`.

    A frame is a value, and each element of an array is one. The row of an array is before the rows
    of its elements. Columns: `parent` is the row in `frames`. `enclosing` is the row in this table
    of the array that contains the value, or -1. `depth` is 1 for an outermost value. `index` is the
    number of an element in its array. `element_kind` is the kind of an array's first element. The
    other columns, and the place value, are as in `scan`.

    A bad frame is one bad row.
    """
    errors = resolve_mode(errors, frames, limits)
    require_rows(frames, FRAME, "values are read from a table of resp.frames")
    depth = operator.index(depth)
    if not 1 <= depth <= MAX_DEPTH:
        raise ValueError(f"depth must be from 1 to {MAX_DEPTH}, not {depth}")
    rows, bad, fault = open_values(frames.rows, frames.buffers, depth, limits)
    table = raise_if_row_limit(FrameTable(frames.buffers, rows, (), VALUES, frames), fault)
    return renumber_enclosing(enforce_mode(table, errors, bad), table)


FRAMES = Format(
    "resp.frames",
    "values of RESP, the protocol of Redis: commands and replies",
    FRAME,
    scan,
    children={"values": values},
    columns={"kind": Column(names=Kind)},
    parser=Parser(
        scan=scan_stream, spans=scan_streams, bytes_needed=bytes_needed, writes_columns=True
    ),
    storage=Storage(
        files=FILES,
        boundaries=find_boundaries,
        weigh=weigh_frames,
        evidence="they begin with a type, and sizes and counts are followed by CR LF",
    ),
    conversation=Conversation(ports=(6379,)),
    exchange=EXCHANGES,
    display=Display(
        shown=("_start", "kind", "name", "integer", "count", "value"),
        grouped_by="name",
        record_count="value_count",
    ),
    meanings=FRAME_MEANINGS,
    faults=FAULTS,
)
VALUES = Format(
    "resp.values",
    "the values in frames: a frame's own value, and the elements of arrays",
    VALUE,
    values,
    within="resp.frames",
    columns={
        "kind": Column(names=Kind),
        "element_kind": Column(names=Kind),
        "enclosing": Column(local=True),
        "name": Column(inherited=True),
    },
    display=Display(
        shown=("_start", "kind", "depth", "index", "integer", "count", "value"),
        grouped_by="name",
        counted_as="values",
        summary=SummaryColumns(by_kind=True, places={"value": "nulls"}),
    ),
    meanings=VALUE_MEANINGS,
    faults=FAULTS,
    enclosing="enclosing",
)
