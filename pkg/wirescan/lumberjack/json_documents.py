"""Events as an Arrow table, with their JSON documents parsed into typed columns.

`documents` of formats.py calls `parse_events`. The parser is `wirescan.decoding.json_parser`.
"""

from __future__ import annotations

import numpy as np

from wirescan.core.gather import Places
from wirescan.decoding.decoder import make_reasons
from wirescan.decoding.json_parser import check_types, make_structs, parse_documents
from wirescan.frames.errors import resolve_mode
from wirescan.frames.limits import Limits
from wirescan.frames.optional_packages import name_package
from wirescan.frames.table import FrameTable
from wirescan.lumberjack.constants import Kind

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa

TIMESTAMP = "@timestamp"
LARGEST_COLUMN = (1 << 31) - 1  # bytes in an Arrow column of type binary
NEAR = 60  # bytes of a refused document that an error message shows


def parse_events(
    events: FrameTable,
    *,
    schema: pa.Schema | None,
    others: bool,
    errors: str | None,
    limits: Limits,
) -> pa.Table:
    """Return events as an Arrow table: `wirescan.lumberjack.documents`."""
    if not isinstance(events, FrameTable) or "json" not in events.places:
        raise TypeError(
            "documents are those of a table of lumberjack.events, not of "
            f"{getattr(events, 'name', type(events).__name__)}"
        )
    errors = resolve_mode(errors, events, limits)
    given_types = _list_given_types(schema, others=others)
    refused: dict[int, str] = {}

    def refuse(row: int, reason: str) -> None:
        if errors == "strict":
            document = events.bytes(row, "json")
            assert document is not None  # an event without a document is never refused
            near = bytes(document[:NEAR])
            raise ValueError(
                f"the document of event {row} is refused: {reason}; it begins with {near!r}; "
                'give a schema, or errors="mark"'
            )
        refused[row] = reason

    places = Places(events, "json")
    parsed = parse_documents(places, given_types, refuse, infers=schema is None or others)
    absent = places.lengths() < 0
    absent[list(refused)] = True
    names = ["sequence", "version", "window", "fault"]
    head = events.to_arrow(names)
    table = pa.table(
        {
            **{name: head[name] for name in names},
            "pairs": _make_maps(events, errors, limits),
            "document": make_structs(parsed, absent),
            "refused": make_reasons(refused, len(events)),
        }
    )
    keep = ~events.bad
    keep[list(refused)] = False
    return table if errors != "skip" or keep.all() else table.filter(pa.array(keep))


def _list_given_types(schema: pa.Schema | None, *, others: bool) -> pa.Schema:
    """Return the fields whose types are given: those of the schema, and "@timestamp".

    Raises TypeError and ValueError for a schema that cannot be used.
    """
    if schema is not None and not isinstance(schema, pa.Schema):
        raise TypeError(f"schema must be a pyarrow.Schema, not {type(schema).__name__}")
    fields = [pa.field(field.name, field.type) for field in schema or ()]  # any field may be absent
    if len({field.name for field in fields}) < len(fields) or schema is not None and not fields:
        raise ValueError("schema must have at least one field, and no name twice")
    if (schema is None or others) and TIMESTAMP not in (field.name for field in fields):
        fields.append(pa.field(TIMESTAMP, pa.timestamp("ns", "UTC")))
    return check_types(pa.schema(fields))


def _make_maps(events: FrameTable, errors: str, limits: Limits) -> pa.Array:
    """Return the pairs of data frames as maps; other events are null."""
    is_data = (events["kind"] == Kind.DATA) & ~events.bad
    if not is_data.any():
        return pa.nulls(len(events), pa.map_(pa.binary(), pa.binary()))
    pairs = events.where(is_data).open("pairs", errors=errors, limits=limits)
    pairs = pairs.where(~pairs.bad)  # the keys of a map cannot be null
    parents = np.flatnonzero(is_data)[pairs["parent"]]
    offsets = np.zeros(len(events) + 1, np.int32)
    np.cumsum(np.bincount(parents, minlength=len(events)), out=offsets[1:])
    return pa.MapArray.from_arrays(
        pa.array(offsets, mask=np.append(~is_data, False)),  # a null offset makes a null map
        _convert_binary(pairs, "key"),
        _convert_binary(pairs, "value"),
    )


def _convert_binary(pairs: FrameTable, name: str) -> pa.Array:
    """Return a place of the pairs as an array of binary. Raises ValueError for 2 GiB or more."""
    places = Places(pairs, name)
    if places.total > LARGEST_COLUMN:
        raise ValueError(
            f"the {name}s of the pairs have {places.total} bytes, and an Arrow column has at most "
            f"{LARGEST_COLUMN}: pass fewer events at a time"
        )
    arrays = places.gather(large=False)
    return pa.Array.from_buffers(pa.binary(), len(pairs), [None, *map(pa.py_buffer, arrays)])
