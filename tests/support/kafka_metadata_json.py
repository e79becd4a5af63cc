"""Rows of the metadata log in the form of Kafka's JSON: {"type": ..., "version": ..., "data": ...}.

Kafka's MetadataJsonConverters and DumpLogSegments make the same. Names are in camel case, uuids and
bytes in base64. A tagged field that has its default is left out. Numbers that JSON does not have
are text.
"""

import base64
import math
import re
from typing import Any

import numpy as np

from wirescan import FrameTable, kafka
from wirescan.kafka.protocol.schema import MESSAGE, WIDTHS, Field, to_snake_case


def to_camel_case(name: str) -> str:
    return re.sub("_(.)", lambda match: match[1].upper(), name)


def list_metadata(records: FrameTable) -> list[dict | None]:
    """Return the JSON of each record; None for control records and bad ones."""
    metadata = kafka.metadata_records(records, errors="mark")
    found: list[dict | None] = [None] * len(metadata)
    for name, side in MESSAGE:
        if side != "record":
            continue
        table = kafka.body(metadata, f"{name} record", errors="mark", credentials=True)
        for row in table:
            if row.fault:
                continue
            assert found[row.parent] is None
            found[row.parent] = {
                "type": f"{to_snake_case(name)}_record".upper(),
                "version": row.kind,
                "data": make_struct(row, MESSAGE[name, side].fields, row.kind),
            }
    return found


def make_struct(row: Any, fields: tuple[Field, ...], version: int) -> dict:
    return {
        to_camel_case(field.name): make_value(row, field, version)
        for field in fields
        if version in field.versions and not (field.tag is not None and is_default(row, field))
    }


def is_default(row: Any, field: Field) -> bool:
    if field.is_array:
        # An array that may be null is null by default. Another one is empty.
        count = getattr(row, f"{field.name}_count")
        return count < 0 or (count == 0 and field.nullable > max(field.versions))
    value = getattr(row, field.name)
    return value is None or (field.type in WIDTHS and value == field.default)


def make_value(row: Any, field: Field, version: int) -> Any:
    if field.is_array:
        if getattr(row, f"{field.name}_count") < 0:
            return None
        structs = [make_struct(item, field.fields, version) for item in getattr(row, field.name)]
        return structs if field.type == "[]" else [next(iter(item.values())) for item in structs]
    value = getattr(row, field.name)
    if value is None:
        return None
    if isinstance(value, np.ndarray):
        return value.tolist()
    if field.type == "uuid":
        return base64.urlsafe_b64encode(value).decode().rstrip("=")
    if field.type == "bytes":
        return base64.b64encode(value).decode()
    if field.type == "string":
        return bytes(value).decode(errors="replace")
    if field.type == "float64" and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    return bool(value) if field.type == "bool" else value
