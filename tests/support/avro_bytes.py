"""Avro's bytes by fastavro, and Confluent's header."""

import io
import struct

import fastavro


def record(*fields, name="R"):
    return {
        "type": "record",
        "name": name,
        "fields": [dict(zip(("name", "type", "default"), field)) for field in fields],
    }


def array(items):
    return {"type": "array", "items": items}


def encode(schema, value):
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), value)
    return file.getvalue()


def frame(number, raw):
    """Return a value after Confluent's header. number: the id of its schema."""
    return struct.pack(">bi", 0, number) + raw
