"""The verbs of the command `wirescan`, one module each, imported when they are used.

Start with `scan.py`.

Frames in files:
    scan: prints frames one by one.
    stat: prints counts, sizes, rates, codecs, offsets and faults.
    report: writes one page about what is in files.
    convert: writes frames as Parquet.
    exchanges: prints requests with their responses, from captures.
    detect: says which format files have, and why.
    formats: lists all formats.

Logs:
    verify: reports what is damaged, where, and what is lost.
    salvage: writes the intact frames of damaged logs.
    cut: writes a part of a log as a valid segment.
    diff: compares two copies of a log.
    index: writes boundary indexes.
    topics: the log directory of a broker at a glance.

Live systems:
    fetch: copies a topic of a cluster to files.
    produce_records: `wirescan produce`, which writes records to a topic.
    metadata: the brokers, topics and partitions of a cluster.
    receive: serves writers of Lumberjack, and stores what they send.
    send: sends the events in files to a receiver of Lumberjack.

The command itself:
    manual: writes the manual pages.

The modules import everything else of the package, but not `wirescan.cli.main`.
"""
