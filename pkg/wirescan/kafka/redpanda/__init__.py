"""Segments of Redpanda: formats, the kernel of batches, names of files, offsets, cloud manifests.

Start with `batch_scan.pyx`, which shows the layout of a batch.

    redpanda_formats.py the formats, and the functions that read them
    batch_scan.pyx      scans the batches
    batch_kernel.pxd    the kernel of a batch
    batch_types.py      RedpandaType, and how log offsets become Kafka's offsets
    segment_files.py    names of segments, on disk and in object storage
    partition_log.py    the segments of one partition as one table
    cloud_manifest.py   RedpandaManifest: which segments object storage has
    binary_manifest.py  its binary form, manifest.bin

Imports the folders below the protocol packages, and of `wirescan.kafka` only `record_batches`.
`redpanda_formats.py` also imports the formats of Kafka's batches, whose records Redpanda has.
"""
