"""Parsing of the data source's options. `datasource.py` describes them."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple, TypeVar

from pyspark.sql.types import StructType

from wirescan.frames.limits import EXPANSION, LARGEST, Limits
from wirescan.frames.options import FormatOption, list_format_options
from wirescan.frames.registry import formats, load_common_options, make_spec
from wirescan.reading.splits import ROUNDS, SLICE_BYTES
from wirescan.spark import kafka_schema, kafka_topics
from wirescan.spark.kafka_topics import TopicReading
from wirescan.spark.payload_types import DECODE, parse_payloads
from wirescan.spark.run import (
    DEFAULT_FORMAT,
    LOCAL,
    SLOTS,
    TASK_BYTES,
    Reading,
    find_format,
    make_reading,
)

OPTIONS = (
    "path",
    "paths",
    "format",
    "columns",
    "schema",
    "includeHeaders",
    "errors",
    "check",
    "bytesPerPartition",
    "maxFrame",
    "maxInflated",
    "maxRowBytes",
    "maxExpansion",
    "pushdown",
)
STREAM_OPTIONS = ("maxBytesPerTrigger", "maxFilesPerTrigger", "failOnDataLoss")
SIZE = re.compile(r"([0-9]{1,19})([kmg]?)b?", re.IGNORECASE)
UNITS = {"": 0, "k": 10, "m": 20, "g": 30}  # binary exponents
AnyReading = TypeVar("AnyReading", bound=Reading | TopicReading)
Number = TypeVar("Number", int, float)


def parse_reading(options: Mapping[str, str]) -> Reading | TopicReading:
    """Return the options of the data source as a reading of files or of topics.

    Raises ValueError for an unknown name, and for a value that is not allowed.
    """
    if kafka_topics.is_topic(options):
        return kafka_topics.parse_reading(options)
    format_options = {
        _make_option_name(option): option
        for option in list_format_options(formats().values(), load_common_options())
    }
    all_options = (*OPTIONS, *format_options, *STREAM_OPTIONS)
    lowercase = {name.lower() for name in all_options}
    for name in options:
        if name.lower() not in lowercase and not name.lower().startswith(DECODE):
            raise ValueError(
                f"the data source wirescan has no option {name!r}, only {', '.join(all_options)} "
                f"and {DECODE}COLUMN"
            )
    columns = options.get("columns")
    row_bytes = options.get("maxRowBytes")
    limits = Limits(
        frame=parse_size(
            options.get("maxFrame"), Limits().frame, "maxFrame", largest=LARGEST["frame"]
        ),
        inflated=parse_size(
            options.get("maxInflated"),
            Limits().inflated,
            "maxInflated",
            largest=LARGEST["inflated"],
        ),
        row_bytes=None if row_bytes is None else parse_size(row_bytes, name="maxRowBytes"),
        expansion=parse_size(options.get("maxExpansion"), EXPANSION, "maxExpansion"),
    )
    applied_options = _parse_format_options(options, format_options)
    format = make_spec(options.get("format", DEFAULT_FORMAT), **applied_options)
    if "path" in options or "paths" in options:
        format = find_format(parse_paths(options), format)
    return make_reading(
        format,
        None if columns is None else tuple(name.strip() for name in columns.split(",")),
        options.get("schema"),
        include_headers=kafka_topics.parse_flag(options, "includeHeaders", default=False),
        errors=options.get("errors", "strict"),
        check=kafka_topics.parse_flag(options, "check", default=True),
        limits=limits,
        payloads=parse_payloads(options),
    )


def fit_payloads(reading: AnyReading, options: Mapping[str, str]) -> AnyReading:
    """Infer the types of payloads that the options do not give, from the first rows of the files.

    Returns the reading. Raises ValueError if they cannot be inferred, FrameError and OSError.
    """
    if not isinstance(reading, TopicReading) and not reading.payloads.is_fitted:
        reading.fit_payloads(reading.plan(*parse_plan(options)).slices)
    return reading


def _parse_format_options(
    options: Mapping[str, str], declared: Mapping[str, FormatOption]
) -> dict[str, str]:
    """Return the options of the format: {its own name: text}, without flags that are false.

    declared: {name in the data source: option}.

    Raises ValueError for a flag that is neither true nor false.
    """
    applied = {}
    for name, option in declared.items():
        text = options.get(name)
        if option.value_type is bool:
            is_set = kafka_topics.parse_flag(options, name, default=False)
            text = "true" if is_set else None
        if text is not None:
            applied[option.name] = text
    return applied


def _make_option_name(option: FormatOption) -> str:
    """Return the name of a format's option in the data source: "nonStrict" for "non_strict"."""
    first, *others = option.name.split("_")
    return first + "".join(map(str.capitalize, others))


def choose_columns(reading: AnyReading, schema: StructType) -> AnyReading:
    """Return a reading of the columns in `schema` only.

    Raises ValueError unless each column exists and has the type that the schema says.
    """
    added = set(reading.payloads.fault_names)
    columns = tuple(name for name in schema.names if name not in added)
    if isinstance(reading, Reading) and reading.kafka_columns is not None:
        sources = kafka_schema.list_sources(columns)
        reading = replace(reading, columns=sources, kafka_columns=columns)
    else:
        reading = replace(reading, columns=columns)
    if reading.struct.names != schema.names:
        raise ValueError(f"the columns have to be {', '.join(reading.struct.names)}")
    for declared, actual in zip(schema.fields, reading.struct.fields):
        if declared.dataType.simpleString() != actual.dataType.simpleString():
            raise ValueError(
                f"column {declared.name} of {reading.format} is {actual.dataType.simpleString()}, "
                f"not {declared.dataType.simpleString()}"
            )
    return reading


class FilePlan(NamedTuple):
    """The arguments of `Reading.plan`."""

    paths: list[str]
    size: int
    cut: None
    slots: int
    rounds: int


def parse_plan(options: Mapping[str, str]) -> FilePlan:
    """Return the arguments of `Reading.plan` in the options.

    Without the option bytesPerPartition, there are several tasks for each core of this machine.
    """
    default = TASK_BYTES if LOCAL in os.environ else SLICE_BYTES
    text = options.get("bytesPerPartition")
    size = parse_size(text, default)
    return FilePlan(parse_paths(options), size, None, SLOTS, ROUNDS if text is None else 1)


def parse_paths(options: Mapping[str, str]) -> list[str]:
    """Return the paths that were given to `load`.

    Raises ValueError if there is no path, or if `paths` is not a JSON list of strings.
    """
    paths: object = []
    if "paths" in options:
        try:
            paths = json.loads(options["paths"])
        except ValueError:
            paths = None
    elif "path" in options:
        paths = [options["path"]]
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise ValueError(
            "option paths must be a JSON list of strings, as load([...]) makes it, not "
            f"{options['paths']!r:.80}"
        )
    if not paths:
        raise ValueError("the data source wirescan needs a path: load(path)")
    return paths


def parse_size(
    text: str | None,
    default: Number = SLICE_BYTES,
    name: str = "bytesPerPartition",
    expected: str = "a size such as 64m",
    largest: float = math.inf,
) -> int | Number:
    """Return the bytes of an option such as 67108864 or 64m, or the default if it is not given.

    name, expected: the option's name, and what it must be, for errors. largest: the largest size.

    Raises ValueError for another text, for zero, and for a larger size.
    """
    if text is None:
        return default
    match = SIZE.fullmatch(text.strip())
    if not match or not int(match[1]):
        raise ValueError(f"option {name} must be {expected}, not {text!r}")
    size = int(match[1]) << UNITS[match[2].lower()]
    if size > largest:
        raise ValueError(f"option {name} must be at most {largest}, not {text!r}")
    return size
