"""What a damaged log has lost: ranges of offsets, and how many records they held.

The evidence is: headers of damaged and cut batches, offsets of the good batches around them, names
of segments, and for the end of a log its side files (`wirescan.frames.logs.SideFiles`).
`wirescan verify` uses this module.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from wirescan.files.object_store import list_names
from wirescan.files.source import URL
from wirescan.frames.logs import Claim, SegmentNames
from wirescan.frames.table import FrameTable
from wirescan.frames.value_text import format_count
from wirescan.seglog.frame_offsets import log_columns

# How far a number of lost records is known.
EXACT = "exact"
AT_MOST = "at most"
AT_LEAST = "at least"
ABOUT = "about"

NO_OFFSET = np.iinfo(np.int64).min  # below all offsets


class Lost(NamedTuple):
    """A range of lost offsets, first..last, and the number of records lost with it.

    bound: EXACT; AT_MOST if the log is compacted; AT_LEAST at the end of a log, which may have
    continued; or ABOUT if both apply.
    """

    first: int
    last: int
    records: int
    bound: str = EXACT

    def __str__(self) -> str:
        offsets = f"offset {self.first}"
        if self.last > self.first:
            offsets = f"offsets {self.first} to {self.last}"
        return f"lost {describe_loss(self.records, self.bound)}, {offsets}"

    def to_json_fields(self) -> dict[str, int | str]:
        """Return the loss as fields for JSON."""
        return {
            "lost_first": self.first,
            "lost_last": self.last,
            "lost_records": self.records,
            "bound": self.bound,
        }


def describe_loss(records: int, bound: str) -> str:
    """Return a number of lost records as text."""
    prefix = "" if bound == EXACT else f"{bound} "
    return prefix + format_count(records, "record")


def combine_bounds(bounds: Iterable[str]) -> str:
    """Return the bound of a sum of numbers with these bounds."""
    inexact = {bound for bound in bounds if bound != EXACT}
    if not inexact:
        return EXACT
    return inexact.pop() if len(inexact) == 1 else ABOUT


class LossTotals(NamedTuple):
    """What logs have lost together.

    unknown: damaged places at the end of a log that lost an unknown number of records.
    """

    records: int
    ranges: int
    bound: str
    unknown: int


def sum_losses(lost: Sequence[Lost], unknown: int) -> LossTotals:
    """Return the sum of lost ranges, and of damaged places with an unknown loss."""
    bounds = [*(loss.bound for loss in lost), *[AT_LEAST] * unknown]
    records = sum(loss.records for loss in lost)
    return LossTotals(records, len(lost), combine_bounds(bounds), unknown)


class LogLosses:
    """What one log has lost, and its state while its segments are verified in order.

    Args:
        prefix: of the paths of its segments; None for a file that is not named as a segment.
        segments: how its segments are named; None for a file that is not a segment.
        memory: what the checks of side files keep; see `wirescan.frames.logs.LogState`.
        options: of the URLs of its segments; "" for paths.

    Attributes:
        compacted: whether there are signs of compaction.
        damaged: whether damage follows the last good batch.
        claims: what that damage claims.
        lost: every range lost so far.
        unknown: damaged places at the end of a log that lost an unknown number of records.
        names: of the files in the directory; None if it cannot be listed.
        bases: base offsets of its segments; None if it cannot be listed.
        verified: base offsets of the segments that were verified.
    """

    def __init__(
        self,
        prefix: str | None = None,
        segments: SegmentNames | None = None,
        memory: Any = None,
        options: str = "",
    ):
        self.prefix = prefix
        self.options = options
        self.memory = memory
        self.compacted = False
        self.damaged = False
        self.claims: list[Claim] = []
        self.lost: list[Lost] = []
        self.unknown = 0
        self.verified: list[int] = []
        self.names = self._list_directory()
        self.bases: list[int] | None = None
        if self.names is not None and segments is not None:
            self.bases = _list_base_offsets(self.names, segments)

    def _list_directory(self) -> list[str] | None:
        if self.prefix is None:
            return None
        if URL.match(self.prefix):
            folder, _, rest = self.prefix.rpartition("/")
            # Objects may be readable where their directory cannot be listed.
            with suppress(OSError):
                return None if rest else list_names(folder + self.options)
            return None
        folder = os.path.dirname(self.prefix) or "."
        is_listed = os.path.isdir(folder) and not os.path.basename(self.prefix)
        return os.listdir(folder) if is_listed else None

    def has_unverified_segment(self, first: int, last: int) -> bool:
        """Return whether the directory has a segment in first..last that was not verified."""
        bases = self.bases or []
        inside = bases[bisect_left(bases, first) : bisect_right(bases, last)]
        return any(base not in self.verified for base in inside)

    def add_damage(self, claim: Claim | None) -> None:
        """Note damage after the last good batch, and what its header claims."""
        self.damaged = True
        if claim is not None:
            self.claims.append(claim)

    def clear_damage(self) -> None:
        """Forget the damage before a good batch: what it lost is known by then."""
        self.damaged = False
        self.claims = []

    def add_claimed_loss(self) -> None:
        """Note what the end of a log has lost by the headers of its damaged batches alone."""
        if self.claims:
            first = min(claim.first for claim in self.claims)
            last = max(claim.last for claim in self.claims)
            self.add_loss(first, last, self.claims, at_end=True)
        elif self.damaged:
            self.unknown += 1

    def add_loss(
        self, first: int, last: int, claims: Sequence[Claim] = (), *, at_end: bool = False
    ) -> Lost:
        """Note that a range of offsets is lost, and return it with its number of records.

        Args:
            first: the first lost offset.
            last: the last lost offset.
            claims: of headers inside the range; they make the number of records exact.
            at_end: the range ends the log, which may have continued.
        """
        inside: list[Claim] = []
        reach = first - 1
        for claim in sorted(claims):
            if claim.first > reach and claim.last <= last:
                inside.append(claim)
                reach = claim.last
        spans = sum(claim.last - claim.first + 1 for claim in inside)
        records = last - first + 1 - spans + sum(claim.records for claim in inside)
        bound = EXACT if spans == last - first + 1 or not self.compacted else AT_MOST
        if at_end:
            bound = AT_LEAST if bound == EXACT else ABOUT
        lost = Lost(first, last, records, bound)
        self.lost.append(lost)
        return lost


def _list_base_offsets(names: Iterable[str], segments: SegmentNames) -> list[int]:
    """Return the base offsets of the segments among file names, in order."""
    parsed = map(segments.parse, names)
    return sorted(segment.base for segment in parsed if segment and not segment.prefix)


def find_lost_records(inner: FrameTable, bad: np.ndarray, outer: FrameTable) -> dict[int, Lost]:
    """Return the lost records of each batch, by the first bad row of that batch.

    There are none unless the batches state their number of records and the records have offsets.

    Args:
        inner: the frames inside the batches `outer`.
        bad: rows of `inner` that are bad in batches that are good.
        outer: the batches.
    """
    losses: dict[int, Lost] = {}
    counted = outer.format.display.record_count
    if not len(bad) or counted is None or inner.format.storage.log is None:
        return losses
    columns = log_columns(outer)
    parents, places = np.unique(inner["parent"][bad], return_index=True)
    is_good = ~inner.bad
    parents_of_good = inner["parent"][is_good]
    good_counts = np.bincount(parents_of_good, minlength=len(outer))[parents].tolist()
    bad_counts = np.bincount(inner["parent"][~is_good], minlength=len(outer))[parents].tolist()
    highest = np.full(len(outer), NO_OFFSET)
    np.maximum.at(highest, parents_of_good, inner[inner.format.storage.log.last][is_good])
    batches = zip(
        bad[places].tolist(),
        outer[counted][parents].tolist(),
        good_counts,
        bad_counts,
        outer[columns.first][parents].tolist(),
        outer[columns.last][parents].tolist(),
        highest[parents].tolist(),
        strict=True,
    )
    for row, count, good_count, bad_count, first, last, highest_good in batches:
        # A batch that does not state its count has lost at least one record for each bad row.
        missing = count - good_count if count >= 0 else bad_count
        if missing <= 0:
            continue
        bound = EXACT if count >= 0 else AT_LEAST
        losses[row] = Lost(min(max(first, highest_good + 1), last), last, missing, bound)
    return losses
