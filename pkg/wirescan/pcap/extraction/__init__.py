"""The frames of other formats in the streams of a capture, and the formats that have them.

Start with `captured.py`, which makes "kafka.requests?capture=true" of kafka.requests. The formats
of captures:

    captured.py             the options `capture` and `keylog`, and the columns of captures
    captured_exchanges.py   the formats of exchanges, such as kafka.exchanges
    carried_frames.py       the formats of what messages carry, such as kafka.record_sets
    derived_formats.py      what these two have in common

How frames are found, of all streams at once:

    stream_frames.py        `frames`: the frames in a whole table of streams
    captured_frames.py      CapturedFrames: the same for a capture that is read in pieces
    stream_scanner.py       StreamScanner: frames of one format in one table after another
    answer_scanner.py       AnswerScanner: frames that answer others
    connection_rule.py      which connections have a format
    connection_protocols.py which protocols the first connections of a capture have

Frames after lost bytes:

    packet_resync.py        finds the frame at which a stream continues
    stream_spans.py         an array of the streams that are searched

When frames were sent, and which wait:

    frame_times.py          the columns of times and of packets
    sent_frames.py          the same in arrays, for pairing
    waiting_frames.py       frames that wait for their answers

Imports the folders below the protocol packages, and of `wirescan.pcap` the modules beside this
folder, `assembly` and `decryption`.
"""
