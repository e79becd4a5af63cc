"""Kernels for record batches and message sets. Start with `scan.pyx`, which shows the layouts.

    scan.pyx              runs the loop with the kernels: batches, records, headers
    rows.pxd              the C structs of the rows
    batch.pxd             kernels for batches
    record.pxd            kernels for records of any magic, and for their headers
    record_fast.pxd       fast loops for records with short varints
    record_fast_bmi2.pyx  the same, compiled for processors with a fast BMI2
    decompress.py         decompresses the payloads of batches, on several threads

Imports `wirescan.core` and `wirescan.frames`, and of `wirescan.kafka` the constants.
"""
