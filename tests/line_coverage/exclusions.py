"""The limits of the coverage report, and the kernel lines that no test can reach."""

from dataclasses import dataclass

UNREACHED_KERNEL_LIMIT = 1.0  # per cent of the kernel lines
PYTHON_FLOOR = 80  # per cent of the Python lines


@dataclass(frozen=True)
class Exclusion:
    """Unreached lines of `file` that match `pattern` are not counted."""

    file: str
    pattern: str
    reason: str


EXCLUSIONS: list[Exclusion] = []
