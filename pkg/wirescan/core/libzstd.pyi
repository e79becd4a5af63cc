from typing import Any, Final

available: Final[bool]

class ZstdDecompressor:
    def decompress(self, payload: Any, out: Any) -> int: ...
