from typing import Final

from typing_extensions import Buffer

from wirescan.core.pairs import Pairs
from wirescan.core.strings import ByteStrings

MAX_BYTES: Final[int]

def find_unfit_word(words: ByteStrings, optional: bool = False) -> int: ...
def find_unfit_pair(pairs: Pairs) -> int: ...
def write_messages(
    operation: Buffer, words: list[ByteStrings], payloads: ByteStrings, pairs: Pairs | None = None
) -> bytes: ...
