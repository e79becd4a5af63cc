"""Commit logs of Liftbridge: segments, indexes and look-up. Start with `commit_log.py`.

Imports the folders below the protocol packages, and of `wirescan.liftbridge` the formats.
"""
