"""Partition directories of brokers: segments, their indexes, lookup, and transactions.

Start with `directory.py`.

Imports the folders below the protocol packages, and of `wirescan.kafka` the record batches and
`formats`.
"""
