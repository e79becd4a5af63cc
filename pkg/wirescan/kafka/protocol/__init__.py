"""Requests, responses, and records of internal topics. Start with `formats.py`.

`api_definitions.py` and `metadata_definitions.py` list every message.

Imports the folders below the protocol packages, and of `wirescan.kafka` the record batches.
"""
