"""The option `topics` of Kafka's batches: which topics of a broker's directory are read.

Without it, Kafka's own topics are left out if the directory has others, and a log message says so.
It is an option of a format: "kafka.records?topics=orders*,payments".
"""

from __future__ import annotations

import fnmatch
import os
import re
from dataclasses import replace
from typing import Any

from wirescan.files.source import expand
from wirescan.frames.format import Format, Storage
from wirescan.frames.options import FormatOption
from wirescan.frames.registry import make_spec
from wirescan.frames.table import FrameTable
from wirescan.kafka.files import ID, MOVED, NAME

TOPIC_CHARACTERS = re.compile(r"[A-Za-z0-9._*?\[\]!-]+")


def choose_topics(format: Format, patterns: str) -> Format:
    """Return kafka.batches, or a format inside it, that reads some topics of a directory.

    patterns: names with *, ? and [...], separated by commas. They are compared with the names of
        directories inside the directory that is read: <topic>-<partition>. A directory or file that
        is named itself is read in any case.

    Raises ValueError for a pattern that matches no topic's name.
    """
    names = [name.strip() for name in patterns.split(",")]
    for name in names:
        if not TOPIC_CHARACTERS.fullmatch(name):
            raise ValueError(
                f"option topics must be names of topics or patterns such as orders*, separated by "
                f"commas, not {patterns!r}"
            )
    if format.within is not None:
        return replace(format, within=make_spec(format.within, topics=patterns))
    topics = "|".join(fnmatch.translate(name).removesuffix(r"\Z") for name in names)
    # A pattern is for one name: the lookahead ends at the next slash.
    files = rf"{MOVED}((.*/)?(?=[^/]*/{NAME})({topics})-[0-9]+({ID})?/)?{NAME}"
    storage = replace(format.storage, files=files)

    def read(source: Any, **arguments: Any) -> FrameTable:
        return format.read(_expand_paths(source, storage), **arguments)

    return replace(format, storage=storage, read=read)


def _expand_paths(source: Any, storage: Storage) -> Any:
    """Return a source with the files of its directories instead of these."""
    if isinstance(source, (str, os.PathLike)):
        return expand(source, files=storage.files, ignore=storage.ignore)
    if isinstance(source, (list, tuple)):
        return [_expand_paths(item, storage) for item in source]
    return source


TOPICS = FormatOption(
    "topics",
    str,
    "Kafka: the topics of a broker's directory that are read, such as 'orders*,payments'. By "
    "default all but Kafka's own; '*' reads these too.",
    choose_topics,
)
