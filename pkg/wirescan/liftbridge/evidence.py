"""How unlikely a good record of a commit log is in bytes of another kind."""

from wirescan.frames.evidence import weigh_equally

# The checksum has 32 bits, and the magic is one of few bytes.
weigh_entries = weigh_equally(32 + 6)
