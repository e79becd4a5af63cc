"""Encoders of record batches and message sets.

Start with `records.py`.

    records.py         Record, encode_batch and encode_message_set: from Python objects
    record_columns.py  encode_batches and encode_message_sets: from arrays
    writer.pyx         the loops of both

Imports the folders below the protocol packages.
"""
