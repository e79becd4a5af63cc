"""The laws of `wirescan.testing` for wirescan's own formats, and the costs of hostile bytes.

`packages.py` declares each protocol package to the laws.
"""
