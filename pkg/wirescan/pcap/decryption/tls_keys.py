"""The secrets of TLS connections: those of a file, and those of a pcapng capture.

`KeyLog` reads the file that a client or server writes, usually because the environment variable
SSLKEYLOGFILE or an option names it:

    CLIENT_RANDOM <client random> <master secret>                             up to TLS 1.2
    CLIENT_HANDSHAKE_TRAFFIC_SECRET <client random> <secret>                  TLS 1.3
    SERVER_HANDSHAKE_TRAFFIC_SECRET, CLIENT_TRAFFIC_SECRET_0, SERVER_TRAFFIC_SECRET_0   the same

A Decryption Secrets Block of a pcapng file has such lines too:

    type 4 (0a) | size 4 | type of the secrets 4 (TLSK) | their size 4 | lines | options | size 4

Format: draft-ietf-tls-keylogfile; draft-ietf-opsawg-pcapng, 4.7.
"""

from __future__ import annotations

import logging
import os

import numpy as np

from wirescan.frames.escape import make_visible
from wirescan.frames.table import FrameTable
from wirescan.pcap.constants import BlockKind
from wirescan.pcap.decryption.tls_ciphers import import_ciphers
from wirescan.pcap.decryption.tls_hello import RANDOM_SIZE
from wirescan.pcap.scan import BLOCK

logger = logging.getLogger(__name__)

CLIENT_RANDOM = b"CLIENT_RANDOM"
HANDSHAKE_SECRETS = (b"CLIENT_HANDSHAKE_TRAFFIC_SECRET", b"SERVER_HANDSHAKE_TRAFFIC_SECRET")
TRAFFIC_SECRETS = (b"CLIENT_TRAFFIC_SECRET_0", b"SERVER_TRAFFIC_SECRET_0")
# Label -> possible sizes of its secret in bytes.
SECRET_SIZES = {
    CLIENT_RANDOM: (48,),
    **dict.fromkeys(HANDSHAKE_SECRETS + TRAFFIC_SECRETS, (32, 48)),
}
LONGEST_LINE = 1024  # bytes of a line that is read
MOST_SECRETS = 1 << 19  # that are kept: four for each of 131,072 connections
TYPE_PLACE = slice(8, 12)  # of the type of secrets in a block
TLS_KEY_LOG = b"TLSK"  # ..., as a number in big-endian
BIG_ENDIAN_BLOCK = b"\0\0\0\x0a"


class KeyLog:
    """The secrets of a file, which may grow, and of a capture: KeyLog(path).

    path: the file, None for none. Lines with other labels, and lines that are no such line, are
    ignored. At most MOST_SECRETS are kept, and at least the last half of that number.

    Attributes:
        has_file: whether there is a file.
        expects_blocks: whether blocks of a capture may follow.

    Raises OSError; ValueError for a file with text in which no line has a label and a random.
    """

    def __init__(self, path: str | None = None):
        self._path = path
        self._secrets: dict[bytes, bytes] = {}
        self._older: dict[bytes, bytes] = {}
        self._position = 0
        self._has_forgotten = False
        self._can_decrypt = True
        self.has_file = path is not None
        self.expects_blocks = False
        if path is not None:
            other_lines = self._read(path)
            if other_lines and not self._secrets:
                raise ValueError(
                    f"{make_visible(path)} has no secret of TLS: expected lines such as "
                    "CLIENT_RANDOM <64 hex digits> <96 hex digits>"
                )

    def __len__(self) -> int:
        return len(self._secrets) + len(self._older)

    @property
    def is_used(self) -> bool:
        """Whether there is a file, or a secret so far."""
        return self.has_file or len(self) > 0

    @property
    def is_open(self) -> bool:
        """Whether there are secrets, or may be."""
        return self.is_used or self.expects_blocks

    def find(self, label: bytes, random: bytes) -> bytes | None:
        """Return a secret; None if it is not known.

        random: the client's. If the secret is not known, what was added to the file is read.
        """
        secret = self._find(label + random)
        path = self._path
        if secret is None and path is not None and os.stat(path).st_size > self._position:
            self._read(path)
            secret = self._find(label + random)
        return secret

    def _find(self, key: bytes) -> bytes | None:
        return self._secrets.get(key) or self._older.get(key)

    def read_blocks(self, blocks: FrameTable) -> None:
        """Add the secrets of blocks. blocks: a table of pcap.blocks.

        Without `cryptography` they are ignored, and a log message says so.
        """
        if not len(blocks):
            return
        kinds = blocks["kind"]
        self.expects_blocks |= bool((kinds == BlockKind.SECTION).any())
        for row in np.flatnonzero((kinds == BlockKind.SECRETS) & ~blocks.bad).tolist():
            block = bytes(blocks.frame(row))
            kind = block[TYPE_PLACE]
            if not block.startswith(BIG_ENDIAN_BLOCK):
                kind = kind[::-1]
            if kind == TLS_KEY_LOG and self._imports_ciphers():
                for line in bytes(blocks.bytes(row, "data") or b"").splitlines():
                    self._add(line[:LONGEST_LINE])

    def read_all(self, blocks: FrameTable | None) -> None:
        """Add the secrets of all blocks of a capture. None: they are not known."""
        if blocks is not None:
            self.read_blocks(blocks)
        self.expects_blocks = False

    def _imports_ciphers(self) -> bool:
        """Return whether secrets of a capture can be used. Log once why not."""
        if self._can_decrypt:
            try:
                import_ciphers()
            except ImportError as error:
                self._can_decrypt = self.has_file
                logger.warning("the secrets in the capture are not used: %s", error)
        return self._can_decrypt

    def _read(self, path: str) -> int:
        """Read the whole lines after those that were read. Return how many are no secrets."""
        others = 0
        with open(path, "rb") as file:
            file.seek(self._position)
            while line := file.readline(LONGEST_LINE):
                if not line.endswith(b"\n") and len(line) < LONGEST_LINE:
                    others += self._add(line) is False  # the file may grow: it is read again
                    break
                self._position += len(line)
                others += self._add(line) is False
        return others

    def _add(self, line: bytes) -> bool | None:
        """Add the secret of a line. Return whether it is one, None for a comment."""
        words = line.split()
        if not words or words[0].startswith(b"#"):
            return None
        if len(words) != 3 or words[0] not in SECRET_SIZES:
            return False
        try:
            random, secret = (bytes.fromhex(word.decode("ascii")) for word in words[1:])
        except ValueError:
            return False
        if len(random) != RANDOM_SIZE or len(secret) not in SECRET_SIZES[words[0]]:
            return False
        self._secrets[words[0] + random] = secret
        if 2 * len(self._secrets) >= MOST_SECRETS:
            self._forget_older()
        return True

    def _forget_older(self) -> None:
        """Forget the half of the secrets that came first."""
        if self._older and not self._has_forgotten:
            self._has_forgotten = True
            logger.warning(
                "there are more than %d secrets of TLS: the first ones are forgotten", MOST_SECRETS
            )
        self._older = self._secrets
        self._secrets = {}


def find_blocks(streams: FrameTable) -> FrameTable | None:
    """Return the table of pcap.blocks that streams were made of, None if it is not known."""
    table: FrameTable | None = streams
    while table is not None and table.dtype != BLOCK:
        table = table.outer
    return table
