from typing import Final

from typing_extensions import Buffer

NAMES: Final[tuple[str, ...]]
PATHS: Final[tuple[str, ...]]

def crc32(data: Buffer, value: int = 0, *, path: str | None = None) -> int: ...
def crc32c(data: Buffer, value: int = 0, *, path: str | None = None) -> int: ...
def adler32(data: Buffer, value: int = 1) -> int: ...
