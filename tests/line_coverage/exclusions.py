"""The limits of the coverage report, and the kernel lines that no test can reach."""

from dataclasses import dataclass

UNREACHED_KERNEL_LIMIT = 1.0  # per cent of the kernel lines
PYTHON_FLOOR = 92  # per cent of the Python lines


@dataclass(frozen=True)
class Exclusion:
    """Unreached lines of `file` that match `pattern` are not counted."""

    file: str
    pattern: str
    reason: str


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
