"""Requests and responses. Start with `formats.py`; `api_definitions.py` lists every message.

Imports the folders below the protocol packages, and of `wirescan.kafka` the record batches.
"""
