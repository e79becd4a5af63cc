"""Requests, responses, and records of internal topics. Start with `formats.py`.

Formats and functions:

    formats.py               the formats of requests, responses, bodies and records
    exchanges.py             requests with their responses
    record_sets.py           record sets in Produce requests and Fetch responses
    metadata_log.py          records of the metadata log
    request_option.py        the option `requests`: the file with the requests
    evidence.py              how unlikely good messages are in bytes of another kind
    encode.py                encodes requests and responses
    error_codes.py           ErrorCode and BrokerError

Definitions of the messages:

    api_definitions.py       every message in all versions
    metadata_definitions.py  every record of the metadata log in all versions
    field_meanings.py        what the fields mean
    schema.py                the messages as Python objects, and the dtypes of their rows
    compile.py               the messages as programs for the kernel

Kernels:

    message.pyx              requests and responses in a stream; message.pxd has their rows
    body.pyx                 the structs in bodies, by programs
    metadata_record.pyx      frames in the values of the metadata log

Imports the folders below the protocol packages, and of `wirescan.kafka` the record batches.
"""
