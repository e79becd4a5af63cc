"""What the columns of Lumberjack's formats mean."""

# Format -> column or place -> meaning.
MEANINGS = {
    "lumberjack.frames": {
        "kind": "type of the frame: window, data, JSON, compressed or ack",
        "sequence": "sequence number of a data or JSON frame, or of an ack",
        "count": "number of events of a window, or of pairs of a data frame",
        "length": "bytes after the length field of a JSON or compressed frame",
        "version": "version of the protocol, 1 or 2",
        "depth": "number of compressed frames around the frame",
    },
    "lumberjack.exchanges": {
        "count": "number of events of the window",
        "sequence": "number of the ack that ended the window, 0 without one",
        "version": "version of the protocol, 1 or 2",
    },
    "lumberjack.events": {
        "kind": "type of the frame: data or JSON",
        "sequence": "sequence number of the event",
        "version": "version of the protocol, 1 or 2",
        "depth": "number of compressed frames around the event",
        "json": "the JSON document, null for a data frame",
        "pairs": "the keys and values of a data frame",
        "count": "number of pairs of a data frame",
        "window": "number of the event's window in its table, from 0; -1 before the first window",
    },
    "lumberjack.pairs": {
        "key": "the key; it need not be UTF-8",
        "value": "the value; it need not be UTF-8",
    },
}
