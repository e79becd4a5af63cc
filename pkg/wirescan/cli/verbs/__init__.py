"""The verbs of the command `wirescan`, one module each, imported when they are used.

Start with `scan.py`.

Frames in files:

    scan.py            prints frames one by one
    stat.py            prints counts, sizes, rates, codecs, offsets and faults
    report.py          writes one page about what is in files
    convert.py         writes frames as Parquet
    exchanges.py       prints requests with their responses, from captures
    detect.py          says which format files have, and why
    formats.py         lists all formats

Logs:

    verify.py          reports what is damaged, where, and what is lost
    salvage.py         writes the intact frames of damaged logs
    cut.py             writes a part of a log as a valid segment
    diff.py            compares two copies of a log
    index.py           writes boundary indexes
    topics.py          the log directory of a broker at a glance

Live systems:

    fetch.py           copies a topic of a cluster to files
    produce_records.py `wirescan produce`, which writes records to a topic
    metadata.py        the brokers, topics and partitions of a cluster
    receive.py         serves writers of Lumberjack, and stores what they send
    send.py            sends the events in files to a receiver of Lumberjack

The command itself:

    manual.py          writes the manual pages

The modules import everything else of the package, but not `wirescan.cli.main`.
"""
