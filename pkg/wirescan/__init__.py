"""Tables from framed wire protocols: frames become numpy structured arrays, without a copy.

This file has the public names. Start with `reading/by_name.py`, which defines `scan` and `stream`.
Folders are layers, and each imports only from those before it:

    core/       kernel toolkit in Cython
    frames/     tables, formats, errors, limits
    decoding/   payloads as typed columns: JSON, Avro, Protobuf, MessagePack
    files/      paths, URLs, frame boundaries
    reading/    streams, filters, files in parts, captures, detection of formats
    export/     Arrow, Parquet, lazy sources for polars and DuckDB
    seglog/     logs of segments: look-up, salvage, cut, comparison
    testing/    checks for formats, also for those of other packages
    kafka/, lumberjack/, nats/, liftbridge/, thrift/, pcap/     one protocol package each
    spark/, cli/    Spark, and the command `wirescan`

Importing this file imports no protocol package: the first look-up of a format imports them.
"""

from typing import TYPE_CHECKING

from wirescan.core.fault import Fault
from wirescan.core.include_path import get_include
from wirescan.files.source import open
from wirescan.frames.columns import Column
from wirescan.frames.errors import ExpansionError, FrameError
from wirescan.frames.fault_names import FaultMeaning
from wirescan.frames.format import Display, Format, Parser, Storage, register
from wirescan.frames.lazy import make_lazy_names
from wirescan.frames.limits import Limits
from wirescan.frames.registry import formats
from wirescan.frames.table import FrameTable, join
from wirescan.reading.by_name import scan, stream
from wirescan.reading.expression import where
from wirescan.reading.stream import Stream

if TYPE_CHECKING:
    from wirescan.export.lazy_sources.arrow_dataset import dataset as dataset
    from wirescan.export.lazy_sources.polars_source import scan_polars as scan_polars
    from wirescan.reading.detect import detect as detect

__version__ = "0.6.0"
__all__ = [
    "Column",
    "Display",
    "ExpansionError",
    "Fault",
    "FaultMeaning",
    "Format",
    "FrameError",
    "FrameTable",
    "Limits",
    "Parser",
    "Storage",
    "Stream",
    "formats",
    "get_include",
    "join",
    "open",
    "register",
    "scan",
    "stream",
    "where",
]

# Imported on first use: two of them need pyarrow. They are not in __all__, so `import *` works
# without it.
__getattr__, __dir__ = make_lazy_names(
    __name__,
    {
        "dataset": "export.lazy_sources.arrow_dataset",
        "detect": "reading.detect",
        "scan_polars": "export.lazy_sources.polars_source",
    },
    {"dataset": "arrow", "scan_polars": "polars"},
)
