from typing import Final

SHARED_REASONS: Final[tuple[str, ...]]

class ProgramMemory: ...
