"""Segments of Redpanda: the kernel of its batches, names of files, offsets, and cloud manifests.

Start with `batch_scan.pyx`, which shows the layout of a batch. kafka/formats.py declares the
formats, because they have the records of Kafka's batches.

Imports the folders below the protocol packages, and of `wirescan.kafka` only `record_batches`.
"""
