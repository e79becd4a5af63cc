"""Payloads as columns: Arrow arrays of byte strings become arrays of typed values.

Start with `decoder.py`, the contract of a decoder, and `notation.py`, which makes one from a text
such as "json". `payload_columns.py` decodes columns of record batches. `plain_values.py` reads
numbers and text, `json_values.py` JSON; `json_parser.py`, `json_lines.pyx` and `json_misfits.py`
are its parser, which other folders use too. `avro_values.py` reads Avro: `avro_schema.py` compiles
a schema for `avro_reader.pyx`, and `schema_registry.py` finds schemas. `protobuf_values.py`,
`protobuf_schema.py`, `protobuf_reader.pyx` and `protobuf_registry.py` do the same for Protobuf.
`msgpack_values.py` reads MessagePack: `msgpack_types.py` infers types and compiles them for
`msgpack_reader.pyx`. The kernels, `*_reader.pyx`, read payloads through the loop of
`payload_reader.pyx`, which also has their limits and the reasons that they share.
`column_tree.py` and `value_builder.pyx` are the memory of nested columns.

Imports `wirescan.core`, `wirescan.frames` and pyarrow.
"""
