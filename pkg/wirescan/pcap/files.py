"""File names of captures, and their first bytes."""

# Files in a directory. A file that begins with _ or . is still being written, or is hidden.
FILES = r"(?s)(\A|/)[^/_.][^/]*\.(pcap|pcapng|cap|ntar)\d*\Z"
# pcap with microseconds and with nanoseconds, in both byte orders, and pcapng.
MARKS = (
    b"\xa1\xb2\xc3\xd4",
    b"\xd4\xc3\xb2\xa1",
    b"\xa1\xb2\x3c\x4d",
    b"\x4d\x3c\xb2\xa1",
    b"\x0a\x0d\x0d\x0a",
)
