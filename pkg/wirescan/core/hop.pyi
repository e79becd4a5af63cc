from typing import Final

from typing_extensions import Buffer

from wirescan.walk import Sized

FOUND: Final[int]
MORE: Final[int]
END: Final[int]

def hop(
    descriptor: int, page: Buffer, first: int, at: int, until: int, total: int, largest: int, sized: Sized
) -> tuple[int, int, int]: ...
