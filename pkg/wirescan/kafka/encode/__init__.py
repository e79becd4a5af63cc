"""Encoders of record batches and message sets.

Start with `records.py`, which encodes Python objects. `record_columns.py` encodes arrays, and
`writer.pyx` has their loops.

Imports the folders below the protocol packages, and `encode_unsigned` of
`kafka/protocol/encode.py`.
"""
