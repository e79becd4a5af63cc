"""The formats that tests of every format run over.

One reader opens all bodies of Kafka's messages, by their schemas. Tests that take a second for
each format run over every fourth of them.
"""

import re

import wirescan

SAME_READER = re.compile(r"kafka\.\w+_(request|response|key|value)(\.|$)")
EVERY = 4


def list_chosen_formats() -> list[str]:
    """Return the names of all formats, but most of those with the same reader."""
    return [
        name
        for number, name in enumerate(wirescan.formats())
        if number % EVERY == 0 or not SAME_READER.match(name)
    ]
