"""`check_format`: the whole test of a format, from examples of its bytes."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from wirescan.frames.columns import ColumnKind, list_places
from wirescan.frames.errors import MODES
from wirescan.frames.format import Format
from wirescan.frames.registry import format_of
from wirescan.frames.table import FrameTable
from wirescan.reading.by_name import scan
from wirescan.testing import laws
from wirescan.testing.cost import row_limits_hold, time_is_linear
from wirescan.testing.declarations import assert_declarations_hold
from wirescan.testing.guarded_scans import assert_nothing_is_read_outside
from wirescan.testing.laws import Expected, Location, ProtocolPackage
from wirescan.testing.mutations import sample_mutations

MOST_CUTS = 40  # positions at which a good example is cut in two
MOST_SINGLE_BYTES = 400  # bytes of an example that is fed byte by byte
MOST_STREAMS = 20  # mutations that are scanned together
NOISE_COUNT = 50  # streams of random bytes
NOISE_SIZE = 60  # bytes in each


def check_format(
    name: str,
    examples: Sequence[bytes],
    *,
    expected: Callable[..., Expected] | None = None,
    children: Mapping[str, Callable[[Any], Location | None]] | None = None,
    sparse: Sequence[str] = (),
    generated: Any = None,
    mutations: int = 200,
    generations: int = 50,
    seed: int = 0,
) -> None:
    """Check that a format keeps every law, for examples, their mutations and random bytes.

    These are the laws:

    - The format is registered, and it declares columns that it has.
    - Rows and tail cover each byte once. Places are in their frames, and frames in their buffers.
    - The modes "strict", "mark" and "skip" agree.
    - A stream, cut anywhere, has the rows, faults and tail of one scan.
    - Parts, joins and pickles of a table have the same rows and open the same frames inside.
    - Arrow has each row and each place, if pyarrow is installed.
    - Any bytes give a table or a FrameError, and at most two rows for each byte.
    - No scan reads a byte before or after its buffer. A process of its own scans bytes next to
      pages that cannot be read.
    - `Limits.row_bytes` bounds the rows, and the time for each byte does not grow with the bytes.
    - The rows are those of a reference decoder, if there is one.

    The mutations of an example cut it at a byte, and change, remove and insert a byte. They also
    insert the whole example before a byte.

    Args:
        name: the name of the format. The formats around it are checked too.
        examples: streams of whole, good frames. One at least has several frames. Each kind of frame
            should occur. Short examples are best: a few hundred bytes each.
        expected: a slow decoder to compare with, see `ProtocolPackage.expected`. Default: none.
        children: where the frames inside a row are, see `ProtocolPackage.children`.
        sparse: formats whose frames do not fill the enclosing frames. Used with `children`.
        generated: a hypothesis strategy of further streams, good or damaged. Needs hypothesis:
            `pip install wirescan[testing]`. Default: none.
        mutations: mutations of each example, at most. If there are more, some are chosen.
        generations: examples of `generated`.
        seed: chooses mutations, cuts and random bytes.

    Raises:
        AssertionError: a law does not hold. The message names the law and the bytes.
        ValueError: there is no such format, an example has a bad frame or a part of one, or no
            example has several frames.
        RuntimeError: `python -O` removed the assertions. Or a new process does not find the format:
            the module with its function `read` must register it.
    """
    if not __debug__:
        raise RuntimeError("the laws are assertions, which python -O removes: run without -O")
    formats = _list_enclosing_formats(name)
    package = ProtocolPackage(
        formats=tuple(format.name for format in formats),
        expected=expected,
        children=children or {},
        sparse=tuple(sparse),
    )
    for format in formats:
        assert_declarations_hold(format)
    raws = [bytes(example) for example in examples]
    _refuse_bad_examples(package, raws)
    chance = random.Random(seed)
    all_streams = list(raws)
    for raw in raws:
        _check_good_stream(package, raw)
        damaged = sample_mutations(raw, mutations, chance)
        for mutation in damaged:
            origin = f"byte {mutation.position} of {raw!r} is {mutation.change}"
            cuts = _choose_cuts(mutation.raw, mutation.position, chance)
            _check_any_stream(package, mutation.raw, cuts, origin)
        all_streams += [mutation.raw for mutation in damaged]
    for raw in _make_noise(raws, chance):
        _check_any_stream(package, raw, _choose_cuts(raw, 0, chance), "random bytes")
        all_streams.append(raw)
    together = chance.sample(all_streams, min(MOST_STREAMS, len(all_streams)))
    laws.spans_agree(package, together)
    pieces = [piece for raw in raws for at in range(len(raw)) for piece in (raw[:at], raw[at:])]
    assert_nothing_is_read_outside(name, [*all_streams, *pieces])
    for raw in raws:
        _apply(time_is_linear, package, raw, "an example")
    if generated is not None:
        _check_generated_streams(package, generated, generations)


def _list_enclosing_formats(name: str) -> list[Format]:
    """Return a format and the formats around it, the outermost first.

    Raises:
        ValueError: there is no such format, or the outermost one has no function `scan`.
    """
    chain = [format_of(name)]
    while chain[0].within is not None:
        chain.insert(0, format_of(chain[0].within))
    if chain[0].parser.scan is None:
        raise ValueError(f"the format {chain[0].name!r} has no function `scan`")
    return chain


def exports_agree(package: ProtocolPackage, raw: bytes) -> None:
    """Arrow has each row of a table and the bytes of each place."""
    import pyarrow

    for name in package.formats:
        table = scan(raw, name, errors="mark")
        exported = pyarrow.table(table)
        assert exported.num_rows == len(table), f"{exported.num_rows} of {len(table)} rows"
        for place in _list_byte_places(table.format):
            assert exported[place].to_pylist() == _list_bytes(table, place), f"place {place!r}"


def _list_byte_places(format: Format) -> list[str]:
    """Return the places that an export has as bytes."""
    places = [place for place in list_places(format.dtype) if place in format.export_columns]
    described = map(format.describe_column, places)
    return [column.name for column in described if column and column.kind is ColumnKind.BYTES]


def _list_bytes(table: FrameTable, place: str) -> list[bytes | None]:
    """Return the bytes of a place in each row."""
    views = (table.bytes(i, place) for i in range(len(table)))
    return [None if view is None else bytes(view) for view in views]


def _refuse_bad_examples(package: ProtocolPackage, raws: list[bytes]) -> None:
    """Raise ValueError for examples that do not test the format."""
    if not raws:
        raise ValueError("check_format needs at least one example")
    most = 0
    for raw in raws:
        table = scan(raw, package.formats[-1], errors="mark")
        for level in laws.list_tables(table):
            if level.bad.any():
                fault = level.describe_fault(int(level["fault"][level.bad.argmax()]))
                raise ValueError(f"the example {raw!r} has a bad frame: {fault.meaning}")
        if not len(laws.list_tables(table)[0]) or len(table.tail):
            raise ValueError(f"the example {raw!r} is no stream of whole frames")
        most = max(most, len(table))
    if most < 2:
        raise ValueError(f"no example has two frames of {package.formats[-1]}")


def _check_good_stream(package: ProtocolPackage, raw: bytes) -> None:
    """Apply the laws to an example."""
    origin = "an example"
    step = max(1, len(raw) // MOST_CUTS)
    many_cuts = [[cut] for cut in range(0, len(raw), step)]
    many_cuts.append(list(range(1, min(len(raw), MOST_SINGLE_BYTES))))
    for errors in MODES:
        for cuts in many_cuts:
            _apply(laws.streams_agree, package, raw, origin, cuts, errors)
    for check in (True, False):
        _apply(laws.covers_every_byte, package, raw, origin, check=check)
        _apply(laws.modes_agree, package, raw, origin, check=check)
    _apply(row_limits_hold, package, raw, origin)
    _check_any_stream(package, raw, many_cuts[:1], origin)


def _check_any_stream(
    package: ProtocolPackage, raw: bytes, many_cuts: list[list[int]], origin: str
) -> None:
    """Apply the laws to bytes that may be damaged. many_cuts: one list for each stream."""
    if package.expected is not None:
        _apply(laws.agrees_with_the_reference, package, raw, origin)
    _apply(laws.ends_well, package, raw, origin)
    _apply(laws.covers_every_byte, package, raw, origin)
    _apply(laws.modes_agree, package, raw, origin)
    _apply(laws.threads_change_nothing, package, raw, origin)
    _apply(laws.columns_are_those_of_rows, package, raw, origin)
    _apply(laws.parts_keep_their_meaning, package, raw, origin, [True, False, False], len(raw) // 2)
    _apply(laws.chunks_change_nothing, package, raw, origin, *many_cuts)
    _apply(laws.streams_lose_nothing, package, raw, origin, many_cuts[-1])
    if find_spec("pyarrow"):
        _apply(exports_agree, package, raw, origin)


def _check_generated_streams(package: ProtocolPackage, generated: Any, count: int) -> None:
    """Apply the laws to the examples of a hypothesis strategy."""
    from hypothesis import HealthCheck, given, settings
    from hypothesis import strategies as st

    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(generated, st.lists(st.integers(0, 1000), max_size=6))
    def check_stream(raw: bytes, cuts: list[int]) -> None:
        bounded = [cut % (len(raw) + 1) for cut in cuts]
        _check_any_stream(package, raw, [bounded], "bytes of the strategy")

    check_stream()


def _apply(
    law: Callable[..., None],
    package: ProtocolPackage,
    raw: bytes,
    origin: str,
    *arguments: Any,
    **options: Any,
) -> None:
    """Apply a law to some bytes. Any exception becomes an AssertionError that names both.

    Args:
        law: the law.
        package: its first argument.
        raw: its second argument.
        origin: where the bytes come from, in words.
        arguments: the other arguments of the law.
        options: its keywords.
    """
    try:
        law(package, raw, *arguments, **options)
    except Exception as error:
        law_name = law.__name__.replace("_", " ")
        raise AssertionError(
            f"{package.formats[-1]} breaks the law {law_name!r} for the bytes {raw!r} ({origin}): "
            f"{type(error).__name__}: {error}"
        ) from error


def _choose_cuts(raw: bytes, position: int, chance: random.Random) -> list[list[int]]:
    """Return lists of positions to cut a stream at: one beside `position`, and several."""
    several = sorted(chance.randrange(len(raw) + 1) for _ in range(4))
    return [[min(position + 1, len(raw))], several]


def _make_noise(raws: list[bytes], chance: random.Random) -> list[bytes]:
    """Return random bytes. Half of the streams have only bytes that the examples have."""
    alphabet = sorted(set(b"".join(raws)))
    noise = []
    for number in range(NOISE_COUNT):
        size = chance.randrange(NOISE_SIZE)
        values = alphabet if number % 2 else range(256)
        noise.append(bytes(np.array(chance.choices(values, k=size), np.uint8)))
    return noise
