"""RESP2, the protocol of Redis, for wirescan: `import wirescan_resp`, or only its formats by name.

The entry point in pyproject.toml names this module. So wirescan imports it when it looks for a
format that it does not know.
"""

from wirescan import register
from wirescan_resp.constants import Kind
from wirescan_resp.encode import NullArray, Text, encode, encode_commands
from wirescan_resp.formats import FRAMES, VALUES, scan, values
from wirescan_resp.scan import FRAME
from wirescan_resp.values import VALUE

__all__ = [
    "FRAME",
    "FRAMES",
    "Kind",
    "NullArray",
    "Text",
    "VALUE",
    "VALUES",
    "encode",
    "encode_commands",
    "scan",
    "values",
]

register(FRAMES, VALUES)
