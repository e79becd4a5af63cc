"""Kafka records in the backups of other programs: OSO's kafka-backup, and itadventurer's.

Start with `kbak_formats.py` and `connect_formats.py`, which have the formats.

OSO's kafka-backup writes KBAK segments:

    kbak_formats.py      the formats, and the functions that read them
    kbak_files.py        names of segments
    kbak_scan.pyx        scans segments, their records and the headers of records
    kbak_kernels.pxd     the kernels
    kbak_rows.pxd        the C structs of the rows

itadventurer's kafka-backup is a sink of Kafka Connect:

    connect_formats.py   the formats, and the functions that read them
    connect_files.py     names of segments, and where they can be cut
    connect_scan.pyx     scans records and their headers
    connect_kernels.pxd  the kernels
    connect_rows.pxd     the C struct of the rows

Both:

    backup_headers.py    the headers of records

Imports the folders below the protocol packages, and of `wirescan.kafka` the constants and meanings.
"""
