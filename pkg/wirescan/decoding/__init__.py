"""Payloads as columns: Arrow arrays of byte strings become arrays of typed values.

Start with `decoder.py`, the contract of a decoder.

Decoders in general:

    decoder.py            `Decoder`, the contract
    notation.py           the texts that name decoders, such as "json"
    payload_columns.py    record batches whose columns are decoded
    column_tree.py        the Arrow type of decoded values, and its nodes
    value_builder.pyx     columns that grow value by value
    payload_reader.pyx    the loop over payloads, which the kernels `*_reader.pyx` share; their
                          limits, and the reasons why a payload is refused
    plain_values.py       numbers and text
    utf8.pxd              characters of UTF-8

JSON:

    json_values.py        JSON objects as structs
    json_parser.py        documents as typed columns; other folders use it too
    json_lines.pyx        documents as lines of text, and their shapes
    json_misfits.py       the documents that Arrow's parser refuses
    json_output.py        decoded values as JSON

Avro:

    avro_values.py        Avro payloads as structs
    avro_schema.py        schemas as Arrow types, and as programs
    avro_references.py    schemas that refer to other schemas
    avro_reader.pyx       the kernel
    schema_registry.py    schemas by their ids, of a server or in a directory; Protobuf uses it too

Protobuf:

    protobuf_values.py    Protobuf payloads as structs
    protobuf_schema.py    messages as Arrow types, and as programs
    protobuf_registry.py  schemas by their ids
    protobuf_headers.pyx  Confluent's headers of payloads
    protobuf_program.pyx  what is read of the messages of one type
    protobuf_reader.pyx   the kernel
    protobuf_wire.pyx     the binary encoding
    map_entries.pyx       the last entry of each key in a map
    proto_text.py         .proto files as descriptors
    known_protos.py       .proto files that readers know

MessagePack:

    msgpack_values.py     maps as structs
    msgpack_types.py      types of values, inferred from a sample, and as programs
    msgpack_shapes.pyx    shapes of maps
    msgpack_reader.pyx    the kernel
    msgpack_wire.pyx      values of the binary encoding

Imports `wirescan.core`, `wirescan.frames` and pyarrow.
"""
