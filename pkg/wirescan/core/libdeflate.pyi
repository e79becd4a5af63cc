from typing import Any, Final

available: Final[bool]

class DeflateDecompressor:
    def decompress_gzip(self, payload: Any, out: Any) -> int: ...
    def decompress_zlib(self, payload: Any, out: Any) -> int: ...
