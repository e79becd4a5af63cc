"""The names and the meanings of faults: those of `Fault`, and those that a format declares.

The numbers from 64 to 127 and from 192 to 255 belong to formats of other packages. Two packages may
use one number for different faults, so only the format of a row tells what its fault means:
`Format.describe_fault` and `FrameTable.describe_fault`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from wirescan.core.fault import Fault

# The numbers that formats of other packages may use. See core/fault.pxd.
DECLARED_SOFT = range(64, 128)  # the end of the frame is known
DECLARED_HARD = range(192, 256)  # the end of the frame is not known
NUMBERS = 256  # of faults: a fault has 8 bits

# All protocols share the enumeration, also those of other packages, so some texts are general.
MEANING: dict[int, str] = {
    Fault.OK: "a good frame",
    Fault.TRUNCATED: "a field runs past the end of its frame",
    Fault.BAD_MAGIC: "unknown magic byte",
    Fault.BAD_VERSION: "unsupported version",
    Fault.BAD_CHECKSUM: "the checksum does not match",
    Fault.BAD_COUNT: "the count does not match what is there",
    Fault.BAD_VARINT: "a varint is too long",
    Fault.BAD_CODEC: "unknown compression codec",
    Fault.BAD_COMPRESSION: "the compressed payload cannot be decompressed",
    Fault.TOO_LARGE: "the decompressed payload is above a limit",
    Fault.LEFTOVER: "bytes are left after the last field of the frame",
    Fault.NESTED: "a compressed frame is inside a compressed frame",
    Fault.BAD_OFFSET: "the offset of the wrapper is below that of its last message",
    Fault.BAD_NULL: "a field is null that must not be null",
    Fault.EMPTY: "a field is empty that must not be empty",
    Fault.BAD_KIND: "unknown kind of frame",
    Fault.BAD_FIELD: "a field has an impossible number, type or name",
    Fault.BAD_HEADER: "a size in the header is wrong",
    Fault.LOST: "bytes of the stream are missing in the capture",
    Fault.SHORT: "the buffer ends inside a frame",
    Fault.ZEROS: "only zeros follow",
    Fault.FILLER: "an overflow filler follows, as brokers pad an answer",
    Fault.BAD_LENGTH: "impossible length",
    Fault.NOT_A_FRAME: "not the beginning of any known frame",
    Fault.LIMIT: (
        "more rows than the limits allow: pass wirescan.Limits with a larger row_bytes, "
        "or rows if it is set (--max-row-bytes on the command line, maxRowBytes in Spark)"
    ),
}


class FaultMeaning(NamedTuple):
    """What a fault is called and what it means.

    Attributes:
        name: an identifier, as in "BAD_MAGIC".
        meaning: what is wrong, in one line, as in "unknown magic byte".
    """

    name: str
    meaning: str


# The names of wirescan's own faults, without OK.
FAULT_NAMES: Mapping[int, str] = {fault.value: fault.name for fault in Fault if fault}


def describe_fault(fault: int, declared: Mapping[int, FaultMeaning]) -> FaultMeaning:
    """Return the name and the meaning of a fault. A number without a name is named by its digits.

    fault: any number. Rows may come from a user.
    declared: the faults that the format declares, `Format.faults`.
    """
    number = int(fault)
    if number in declared:
        return declared[number]
    if number in MEANING:
        return FaultMeaning(Fault(number).name, MEANING[number])
    return FaultMeaning(str(number), "unknown fault")


def list_names(declared: Mapping[int, FaultMeaning]) -> list[str | None]:
    """Return the names of the faults from 0 to 255. The name of 0, a good frame, is None."""
    names = [describe_fault(number, declared).name for number in range(1, NUMBERS)]
    return [None, *names]


def check_declared_faults(declared: Mapping[int, FaultMeaning], format: str) -> None:
    """Check the faults that a format declares.

    declared: the faults.
    format: the name of the format, for messages.

    Raises ValueError for a number outside DECLARED_SOFT and DECLARED_HARD, for a name that is no
    identifier, and for a name that belongs to another fault. Raises TypeError for a value that is
    no FaultMeaning.
    """
    used = {fault.name for fault in Fault}
    for number, fault in declared.items():
        if number not in DECLARED_SOFT and number not in DECLARED_HARD:
            raise ValueError(
                f"fault {number!r} of the format {format!r}: the numbers of other packages are "
                f"{DECLARED_SOFT[0]} to {DECLARED_SOFT[-1]} for faults of frames whose end is "
                f"known, and {DECLARED_HARD[0]} to {DECLARED_HARD[-1]} for all others"
            )
        if not isinstance(fault, FaultMeaning):
            raise TypeError(
                f"fault {number} of the format {format!r} must be a wirescan.FaultMeaning, "
                f"not {fault!r}"
            )
        if not isinstance(fault.name, str) or not fault.name.isidentifier():
            raise ValueError(
                f"fault {number} of the format {format!r}: {fault.name!r} is no identifier"
            )
        if fault.name in used:
            raise ValueError(
                f"fault {number} of the format {format!r}: {fault.name!r} is the name of another "
                "fault"
            )
        used.add(fault.name)
