"""How unlikely a good record batch is in bytes of another kind."""

from wirescan.frames.evidence import weigh_equally

# The checksum has 32 bits, and the magic is one of three bytes. The checksum is only right if the
# length is too, but a search for batches tries many lengths.
weigh_batches = weigh_equally(32 + 6)
# A batch of Redpanda has two of them, and its type is one of a few numbers.
weigh_redpanda_batches = weigh_equally(32 + 32 + 2)
