"""Kernels for record batches and message sets. Start with `scan.pyx`, which shows the layouts.

Imports only `wirescan.core`.
"""
