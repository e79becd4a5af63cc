"""The limits of the coverage report, and the kernel lines that no test can reach."""

from dataclasses import dataclass

from wirescan.core.checksum import PATHS

UNREACHED_KERNEL_LIMIT = 1.0  # per cent of the kernel lines
PYTHON_FLOOR = 92  # per cent of the Python lines


@dataclass(frozen=True)
class Exclusion:
    """Unreached lines of `file` that match `pattern` are not counted.

    With `last`, neither are the lines from such a line to the next line that matches `last`.
    """

    file: str
    pattern: str
    reason: str
    last: str | None = None


EXCLUSIONS = [
    Exclusion(
        "wirescan/core/reader.pxd",
        r"^cdef inline uint16_t le16\(",
        "Part of the C interface for protocol packages outside this one; no kernel here uses it.",
    ),
    Exclusion(
        "wirescan/lumberjack/writer.pyx",
        r"^        return window\.first$"
        r"|^        return ValueError\(f\"event \{i\} cannot be written\"\)$"
        r"|^    cdef void write\(",
        "Methods of the base class Events. Each subclass has its own.",
    ),
]

if "vpclmul" not in PATHS:
    EXCLUSIONS += [
        Exclusion(
            "wirescan/core/checksum.h",
            first,
            "This processor has no AVX-512, which the fastest checksum needs.",
            last,
        )
        for first, last in [
            (r"^WIDE static inline __m512i", r"^}$"),
            (r"^WIDE static uint32_t crc_vpclmul", r"^}$"),
            (r"^    if \(path == CRC_VPCLMUL$", r"^        return crc_vpclmul;$"),
        ]
    ]
