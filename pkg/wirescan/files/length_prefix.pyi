from typing import Final

from typing_extensions import Buffer

from wirescan.files.boundaries import LengthPrefix

FOUND: Final[int]
MORE: Final[int]
END: Final[int]

def hop(
    descriptor: int,
    page: Buffer,
    first: int,
    at: int,
    until: int,
    total: int,
    largest: int,
    sized: LengthPrefix,
) -> tuple[int, int, int]: ...
